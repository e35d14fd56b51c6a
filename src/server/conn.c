/* A connection: its descriptor, what is read and not used yet, what is written and not sent yet, its deadlines.
 *
 * READABLE and DISCONNECT are always polled but for: READABLE, when HELD_MAX bytes wait for somebody to want them;
 * DISCONNECT, once it has been seen (it is level-triggered); WRITABLE only after EAGAIN. A change costs two system calls, so
 * a request in an ordinary exchange makes none. When nothing else is left PRIORITIZED is polled: an error is then still told. */
#include "server/internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

enum { MAX_STEPS = 256, MAX_IOV = 8, BODY_WINDOW_MIN = 30 * 1024 /* bytes in a DEADLINE_BODY window: 1 KiB/s */ };

static void on_poll(uv_poll_t *h, int status, int events);

static void run_task(struct task *t)
{
	conn_run(container_of(t, struct conn, task));
}

/* --- birth and death --- */

static void tune(struct conn *c)
{
	struct sockaddr_storage local = { 0 };
	socklen_t len = sizeof local;
	int on = 1, idle = 60, user_timeout = 90 * 1000;

	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof user_timeout);
	if (getsockname(c->fd, (struct sockaddr *)&local, &len) < 0)
		return;
	if (local.ss_family == AF_INET)
		c->check_host = ntohl(((struct sockaddr_in *)&local)->sin_addr.s_addr) >> 24 == 127;
	else if (local.ss_family == AF_INET6) {
		const struct in6_addr *a = &((struct sockaddr_in6 *)&local)->sin6_addr;
		c->check_host = IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
	}
}

void conn_accept(struct server *s, int fd, bool local)
{
	struct conn *c = xcalloc(1, sizeof *c);
	int size = LOCAL_BUFFER;

	c->server = s;
	c->fd = fd;
	c->local = local;
	c->task.run = run_task;
	c->poll.data = c;
	c->read_deadline.conn = c->write_deadline.conn = c;
	buf_init_secret(&c->in, 2 * READ_SIZE + HELD_MAX);
	buf_init(&c->out, SIZE_MAX / 4);
	http_init(&c->parser, HTTP_REQUEST);
	if (local)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size); /* fewer, larger turns */
	else
		tune(c);
	if (uv_poll_init(s->loop, &c->poll, fd) < 0) {
		close(fd);
		free(c);
		return;
	}
	s->n_handles++;
	s->n_conns++;
	DL_APPEND(s->conns, c);
	conn_run(c);
}

static void on_closed(uv_handle_t *h)
{
	struct conn *c = h->data;
	struct server *s = c->server;

	buf_done(&c->in);
	buf_done(&c->out);
	http_done(&c->parser);
	free(c);
	server_conn_closed(s);
}

void conn_kill(struct conn *c)
{
	struct server *s = c->server;

	if (c->mode == CONN_CLOSED)
		return;
	c->mode = CONN_CLOSED;
	deadline_set(s, &c->read_deadline, DEADLINE_NONE);
	deadline_set(s, &c->write_deadline, DEADLINE_NONE);
	task_cancel(s, &c->task);
	DL_DELETE(s->conns, c);
	uv_close((uv_handle_t *)&c->poll, on_closed); /* before close(): libuv still knows the descriptor */
	c->fd = close_fd(c->fd);
	if (c->request)
		request_detach(take_ptr(&c->request));
	if (c->socket)
		socket_gone(take_ptr(&c->socket));
	if (c->proxy)
		tunnel_gone(take_ptr(&c->proxy));
}

void conn_post(struct conn *c)
{
	if (c->mode != CONN_CLOSED)
		task_post(c->server, &c->task);
}

void conn_break(struct conn *c)
{
	c->broken = true;
	conn_post(c);
}

/* --- output --- */

static void sent(struct conn *c, size_t n, const struct iovec *iov, int n_iov)
{
	c->sent += n;
	for (int i = 0; i < n_iov; i++) {
		size_t m = MIN(n, iov[i].iov_len);
		n -= m;
		if (i == 0 && c->out.len && iov[i].iov_base == c->out.data)
			continue; /* consumed below, after what follows it was copied behind it */
		buf_add(&c->out, (const char *)iov[i].iov_base + m, iov[i].iov_len - m);
	}
}

void conn_writev(struct conn *c, const struct iovec *iov, int n)
{
	struct iovec all[MAX_IOV];
	int n_all = 0;
	size_t queued = c->out.len;

	if (c->mode == CONN_CLOSED || c->broken || c->shut)
		return;
	if (queued)
		all[n_all++] = (struct iovec){ c->out.data, queued };
	for (int i = 0; i < n && n_all < MAX_IOV; i++)
		all[n_all++] = iov[i];
	if (n_all == 0)
		return;
	ssize_t r = 0;
	if (!c->blocked) {
		struct msghdr m = { .msg_iov = all, .msg_iovlen = (size_t)n_all };
		r = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (r < 0 && errno != EAGAIN && errno != EINTR) {
			conn_break(c);
			return;
		}
		r = MAX(r, 0);
	}
	sent(c, (size_t)r, all, n_all);
	buf_consume(&c->out, MIN((size_t)r, queued));
	c->blocked = c->out.len > 0;
	if (c->blocked)
		conn_post(c);
}

void conn_queue(struct conn *c, struct str bytes)
{
	if (c->mode == CONN_CLOSED || c->broken || c->shut)
		return;
	buf_add(&c->out, bytes.p, bytes.n);
	conn_post(c);
}

/* --- input --- */

void conn_use_input(struct conn *c)
{
	if (!c->view.p)
		c->view = buf_str(&c->in);
}

/* All input is in memory of ours. */
void conn_wipe_input(struct str piece)
{
	explicit_bzero((void *)(uintptr_t)piece.p, piece.n);
}

void conn_keep_input(struct conn *c)
{
	struct str v = c->view;

	c->view = (struct str){ NULL, 0 };
	if (c->in.len && v.p >= c->in.data && v.p <= c->in.data + c->in.len) {
		buf_consume(&c->in, c->in.len - v.n);
	} else if (v.n) {
		buf_add(&c->in, v.p, v.n);
		conn_wipe_input(v);
	}
	if (c->in.len == 0)
		buf_done(&c->in);
}

static void read_some(struct conn *c)
{
	char *to = c->server->read_buf;

	if (c->in.len) /* behind what is held already */
		to = buf_reserve(&c->in, READ_SIZE);
	if (!to)
		return;
	ssize_t n = recv(c->fd, to, READ_SIZE, MSG_DONTWAIT);
	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			c->broken = true;
		return;
	}
	if (n == 0)
		c->eof = true;
	c->received += (uint64_t)n;
	if (to == c->server->read_buf)
		c->view = (struct str){ to, (size_t)n };
	else
		buf_grew(&c->in, (size_t)n);
}

/* --- the pump --- */

void conn_linger(struct conn *c)
{
	c->mode = CONN_LINGER;
}

static bool linger_step(struct conn *c)
{
	c->lingered += c->view.n;
	c->view = (struct str){ c->view.p, 0 };
	if (c->out.len)
		return false;
	if (!c->shut) {
		c->shut = true;
		if (shutdown(c->fd, SHUT_WR) < 0)
			c->broken = true;
	}
	if (c->eof || c->lingered > LINGER_BYTES)
		c->broken = true;
	return c->broken;
}

static bool conn_step(struct conn *c)
{
	if (c->broken) {
		conn_kill(c);
		return false;
	}
	if (c->out.len && !c->blocked) {
		conn_writev(c, NULL, 0);
		if (c->broken)
			return true;
	}
	switch (c->mode) {
	case CONN_HTTP:
		return exchange_step(c);
	case CONN_SOCKET:
		return socket_step(c);
	case CONN_TUNNEL:
		return tunnel_step(c);
	case CONN_LINGER:
		return linger_step(c);
	case CONN_CLOSED:
		break;
	}
	return false;
}

static bool wants_input(const struct conn *c)
{
	switch (c->mode) {
	case CONN_HTTP:
		return exchange_wants_input(c);
	case CONN_SOCKET:
		return socket_wants_input(c->socket);
	case CONN_LINGER:
		return true;
	case CONN_TUNNEL:
	case CONN_CLOSED:
		break;
	}
	return false;
}

static void update_poll(struct conn *c)
{
	int mask = 0;

	if (!c->eof && (wants_input(c) || c->in.len < HELD_MAX))
		mask |= UV_READABLE;
	if (!c->eof && !c->hup)
		mask |= UV_DISCONNECT;
	if (c->out.len)
		mask |= UV_WRITABLE;
	if (mask == 0)
		mask = UV_PRIORITIZED;
	if (mask != c->mask && uv_poll_start(&c->poll, mask, on_poll) == 0)
		c->mask = mask;
}

static enum deadline_kind read_deadline_kind(const struct conn *c)
{
	switch (c->mode) {
	case CONN_HTTP:
		if (!c->request)
			return http_is_idle(&c->parser) && c->in.len == 0 ? DEADLINE_IDLE : DEADLINE_HEAD;
		return exchange_wants_input(c) ? DEADLINE_BODY : DEADLINE_NONE;
	case CONN_SOCKET:
		return socket_deadline(c->socket);
	case CONN_TUNNEL:
		return tunnel_is_half(c) ? DEADLINE_HALF : DEADLINE_NONE;
	case CONN_LINGER:
		return c->out.len ? DEADLINE_NONE : DEADLINE_LINGER;
	case CONN_CLOSED:
		break;
	}
	return DEADLINE_NONE;
}

void conn_run(struct conn *c)
{
	if (c->mode == CONN_CLOSED || c->running)
		return;
	task_cancel(c->server, &c->task);
	c->running = true;
	conn_use_input(c);
	unsigned steps = 0;
	while (conn_step(c)) {
		if (++steps == MAX_STEPS) { /* one client's pipeline must not hold the loop */
			conn_post(c);
			break;
		}
	}
	c->running = false;
	if (c->mode == CONN_CLOSED)
		return;
	conn_keep_input(c);
	if (c->out.len == 0)
		buf_done(&c->out);
	deadline_set(c->server, &c->read_deadline, read_deadline_kind(c));
	deadline_set(c->server, &c->write_deadline, c->out.len ? DEADLINE_WRITE : DEADLINE_NONE);
	update_poll(c);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	struct conn *c = h->data;

	if (c->mode == CONN_CLOSED)
		return;
	if (status < 0 || (events & UV_PRIORITIZED))
		c->broken = true; /* libuv says EBADF for a reset; PRIORITIZED alone is polled when only an error can come */
	if (events & UV_WRITABLE)
		c->blocked = false;
	if (!c->broken && (events & UV_READABLE))
		read_some(c);
	else if (events & UV_DISCONNECT)
		c->hup = true;
	conn_run(c);
}

void conn_expired(struct conn *c, struct deadline *d)
{
	struct server *s = c->server;

	switch (d->kind) {
	case DEADLINE_HEAD:
		exchange_syntax_error(c, 408, "the head of the request took too long");
		break;
	case DEADLINE_BODY:
		if (c->received - c->read_mark >= BODY_WINDOW_MIN) {
			deadline_restart(s, d);
			return;
		}
		exchange_syntax_error(c, 408, "the body of the request comes too slowly");
		break;
	case DEADLINE_WRITE:
		if (c->sent != c->write_mark) {
			deadline_restart(s, d);
			return;
		}
		c->broken = true;
		break;
	case DEADLINE_PING:
		deadline_restart(s, d);
		socket_silent(c);
		break;
	case DEADLINE_HALF:
		if (c->received + c->sent != c->read_mark) {
			deadline_restart(s, d);
			c->read_mark = c->received + c->sent;
			return;
		}
		c->broken = true;
		break;
	case DEADLINE_IDLE:
	case DEADLINE_LINGER:
	case DEADLINE_CLOSE:
	case DEADLINE_NONE:
	case DEADLINE_COUNT:
		c->broken = true;
		break;
	}
	conn_run(c);
}
