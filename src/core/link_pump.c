#include "core/link_int.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	READ_CHUNK = 256 * 1024,
	SEND_FRAMES = 16,                /* in one system call */
	SOCKET_BUFFER = 1024 * 1024,     /* what we ask for; the kernel gives an unprivileged process less (net.core.wmem_max) */
	READS = 4,                       /* before others on the loop get their turn */
	NOISE_MAX = 4 * 1024 * 1024,     /* of a former connection on a serial line */
	OUT_MAX = 256 * 1024 * 1024,     /* a guest that does not read must not eat the daemon */
};

struct pump {
	uv_poll_t poll;
	int fd;
	bool open, synced, stream; /* stream: not a socket */
	bool bulk, paused, deaf;   /* deaf: the other end hears nothing any more, but may have said more than we have read */
	int events;
	size_t noise;
	struct buf in, out;
	struct guest_assembly message;
	const struct pump_events *ev; /* NULL: dropped */
	void *ctx;
	struct err why;
};

static void on_uv_closed(uv_handle_t *h)
{
	struct pump *p = h->data;
	const struct pump_events *ev = p->ev;

	close_fd(p->fd);
	buf_done(&p->in);
	buf_done(&p->out);
	guest_assembly_done(&p->message);
	if (ev)
		ev->closed(p->ctx, &p->why);
	free(p);
}

static void shut(struct pump *p)
{
	if (!p->open)
		return;
	p->open = false;
	uv_poll_stop(&p->poll);
	uv_close((uv_handle_t *)&p->poll, on_uv_closed);
}

void pump_fail(struct pump *p, const struct err *why)
{
	if (!p->open)
		return;
	p->why = *why;
	shut(p);
}

void pump_drop(struct pump *p)
{
	p->ev = NULL;
	shut(p);
}

bool pump_is_open(const struct pump *p)
{
	return p->open;
}

struct buf *pump_out(struct pump *p)
{
	return &p->out;
}

static void fail(struct pump *p, enum err_kind kind, int errnum, const char *what)
{
	struct err e;

	err_sys(&e, kind, errnum, "the connection to the sandbox's guest: %s", what);
	pump_fail(p, &e);
}

static void on_uv_poll(uv_poll_t *h, int status, int events);

/* Polls for input unless paused, and for room when asked. */
static void listen_for(struct pump *p, bool room)
{
	int events = (p->paused ? 0 : UV_READABLE) | (room ? UV_WRITABLE : 0);

	if (p->open && events != p->events && uv_poll_start(&p->poll, events, on_uv_poll) == 0)
		p->events = events;
}

/* Negative errno when the other end is gone. */
static int flush(struct pump *p)
{
	if (p->deaf)
		buf_reset(&p->out);
	while (p->out.len) {
		ssize_t n = p->stream ? write(p->fd, p->out.data, p->out.len) : send(p->fd, p->out.data, p->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0)
			return -errno;
		buf_consume(&p->out, (size_t)n);
	}
	buf_reset(&p->out);
	return 0;
}

void pump_kick(struct pump *p)
{
	if (!p->open)
		return;
	bool refused = p->out.overflow;
	int r = refused ? 0 : flush(p);
	/* callbacks come from the loop only, so let that find out what is wrong */
	listen_for(p, p->out.len || refused || r < 0);
}

void pump_send(struct pump *p, uint8_t type, uint64_t id, struct str bytes)
{
	uint8_t heads[SEND_FRAMES][GUEST_HEAD];
	struct iovec v[2 * SEND_FRAMES];
	size_t n = 0;
	ssize_t r = 0;

	for (; bytes.n && !p->stream && p->out.len == 0 && n < SEND_FRAMES; n++) {
		size_t len = MIN(bytes.n, (size_t)GUEST_PAYLOAD_MAX);
		guest_head_put(heads[n], type, 0, id, len);
		v[2 * n] = (struct iovec){ heads[n], GUEST_HEAD };
		v[2 * n + 1] = (struct iovec){ (char *)(uintptr_t)bytes.p, len };
		bytes.p += len;
		bytes.n -= len;
	}
	if (n && p->open) {
		struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 * n };
		r = sendmsg(p->fd, &m, MSG_NOSIGNAL); /* an error comes again when the loop writes */
	}
	size_t sent = (size_t)MAX(r, 0);
	for (size_t i = 0; i < 2 * n; i++) {
		size_t skip = MIN(sent, v[i].iov_len);
		sent -= skip;
		(void)buf_add(&p->out, (char *)v[i].iov_base + skip, v[i].iov_len - skip);
	}
	for (size_t len; bytes.n; bytes.p += len, bytes.n -= len) {
		len = MIN(bytes.n, (size_t)GUEST_PAYLOAD_MAX);
		(void)guest_frame_put(&p->out, type, 0, id, (struct str){ bytes.p, len });
	}
	pump_kick(p);
}

static size_t synchronise(struct pump *p, struct str in)
{
	size_t skip = guest_noise(in, GUEST_READY);

	p->noise += skip;
	p->synced = in.n - skip >= GUEST_HEAD;
	return skip;
}

/* Takes all whole frames off *in. */
static int parse(struct pump *p, struct str *in)
{
	struct guest_frame f;
	struct str message;
	ssize_t n = p->synced ? 0 : (ssize_t)synchronise(p, *in);

	if (p->noise > NOISE_MAX)
		return -EPROTO;
	*in = (struct str){ in->p + n, in->n - (size_t)n };
	while (p->open && !p->paused && p->synced && (n = guest_frame_next(*in, &f)) > 0) {
		int r = guest_assembly_feed(&p->message, &f, &message);
		if (r > 0 && p->ev)
			r = p->ev->frame(p->ctx, &f, message);
		if (r < 0)
			return r;
		*in = (struct str){ in->p + n, in->n - (size_t)n };
	}
	return n < 0 ? (int)n : 0;
}

/* Used up, or moved into a pump's own buffer (the beginning of a frame), before anybody reads into it again. */
static char scratch[READ_CHUNK];

/* Parses what was read to the common buffer (n bytes), or behind what was held. */
static void use(struct pump *p, bool common, size_t n)
{
	struct str in = common ? (struct str){ scratch, n } : buf_str(&p->in);
	int r = parse(p, &in);

	if (common)
		(void)buf_add(&p->in, in.p, in.n);
	else
		buf_consume(&p->in, p->in.len - in.n);
	if (r < 0 && p->open)
		fail(p, ERR_INTERNAL, -r, "it does not keep to the protocol");
}

/* Plain reads: a descriptor that the guest may have attached is never received, the kernel drops it. */
static void take_in(struct pump *p)
{
	if (p->in.len) /* left by a pause */
		use(p, false, 0);
	for (int i = 0; i < READS && p->open && !p->paused; i++) {
		bool common = p->in.len == 0 && !p->bulk;
		char *at = common ? scratch : buf_reserve(&p->in, READ_CHUNK);
		ssize_t n = at ? read(p->fd, at, READ_CHUNK) : -1;
		if (!at) {
			fail(p, ERR_INTERNAL, ENOBUFS, "input");
			return;
		}
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n < 0 && errno != ECONNRESET) {
			fail(p, ERR_UNAVAILABLE, errno, "cannot read");
			return;
		}
		if (n <= 0) {
			struct err e;
			err_set(&e, ERR_UNAVAILABLE, EPIPE, "the sandbox's guest has closed the connection");
			pump_fail(p, &e);
			return;
		}
		if (!common)
			buf_grew(&p->in, (size_t)n);
		use(p, common, (size_t)n);
		if (n < READ_CHUNK)
			break;
	}
	if (p->open && p->in.len == 0 && !p->bulk)
		buf_done(&p->in);
}

/* An error of the socket: the other end went with something of ours unread, and libuv has stopped polling. All that it said is still
 * there to be read, until the end of file; a slow reader of ours takes its time for that. */
static bool gone_but_readable(struct pump *p)
{
	int e = 0;
	socklen_t len = sizeof e;

	if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0 || e == 0) /* asking clears it */
		return false;
	p->deaf = true;
	p->events = 0;
	return true;
}

static void on_uv_poll(uv_poll_t *h, int status, int events)
{
	struct pump *p = h->data;

	if (status < 0 && !gone_but_readable(p)) {
		fail(p, ERR_UNAVAILABLE, -status, "cannot poll");
		return;
	}
	if (events & UV_READABLE || p->in.len)
		take_in(p);
	if (!p->open)
		return;
	if (p->out.overflow) {
		fail(p, ERR_UNAVAILABLE, ENOBUFS, "it takes no more bytes");
		return;
	}
	int r = flush(p);
	if (r < 0 && p->bulk) {
		p->deaf = true;
		r = flush(p);
	}
	if (r < 0 && (events & UV_WRITABLE)) {
		/* what it said before it went may still be there to read */
		take_in(p);
		if (p->open)
			fail(p, ERR_UNAVAILABLE, -r, "cannot write");
		return;
	}
	listen_for(p, p->out.len);
}

struct pump *pump_new(uv_loop_t *loop, int fd, const struct pump_events *ev, void *ctx)
{
	struct pump *p = xcalloc(1, sizeof *p);
	int type;
	socklen_t len = sizeof type;
	int size = SOCKET_BUFFER;

	p->fd = fd;
	p->ev = ev;
	p->ctx = ctx;
	p->stream = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size); /* fewer, larger turns */
	p->poll.data = p;
	buf_init(&p->in, READ_CHUNK + 2 * (GUEST_HEAD + GUEST_PAYLOAD_MAX));
	buf_init(&p->out, OUT_MAX);
	guest_assembly_init(&p->message);
	if (uv_poll_init(loop, &p->poll, fd) < 0) {
		close_fd(fd);
		free(p);
		return NULL;
	}
	p->open = true;
	listen_for(p, false);
	return p;
}

bool pump_is_line(const struct pump *p)
{
	return p->stream;
}

void pump_bulk(struct pump *p)
{
	p->synced = p->bulk = true;
}

void pump_pause(struct pump *p)
{
	p->paused = true;
	listen_for(p, p->out.len);
}

void pump_resume(struct pump *p)
{
	if (!p->paused)
		return;
	p->paused = false;
	listen_for(p, p->out.len || p->in.len); /* there is room, so the loop will call, and what was left is parsed */
}
