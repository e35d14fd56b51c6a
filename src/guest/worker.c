#include "guest/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OUT_FLUSH = 64 * 1024, READ_MAX = 512 * 1024, SOCKET_BUFFER = 1024 * 1024, WORKER_FD = 3, LINGER_MS = 5000 };

/* --- the port --- */

static void gone(struct port *p) __attribute__((noreturn));
static void gone(struct port *p)
{
	if (p->on_gone)
		p->on_gone(p->ctx);
	_exit(0);
}

static void take_credit(struct port *p, struct str payload)
{
	if (payload.n != 8)
		gone(p);
	p->sent_limit = MAX(p->sent_limit, guest_u64(payload.p));
}

void port_flush(struct port *p)
{
	while (p->out.len) {
		ssize_t n = send(p->fd, p->out.data, p->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			gone(p);
		buf_consume(&p->out, (size_t)n);
	}
}

void port_sort(struct port *p)
{
	struct guest_frame f;
	struct buf to;
	size_t tail = 0;
	ssize_t n;

	buf_init(&to, p->in.max);
	while ((n = guest_frame_next(buf_str(&p->in), &f)) > 0) {
		if (f.type == GUEST_OP_DATA) {
			(void)guest_data_put(&to, &tail, f.type, f.id, f.payload);
		} else if (f.type == GUEST_OP_CREDIT) {
			take_credit(p, f.payload);
		} else {
			(void)guest_frame_put(&to, f.type, f.channel, f.id, f.payload);
			tail = 0;
		}
		buf_consume(&p->in, (size_t)n);
	}
	if (n < 0)
		gone(p);
	(void)buf_add(&to, p->in.data, p->in.len);
	buf_done(&p->in);
	p->in = to;
}

void port_fill(struct port *p)
{
	if (p->in.len > p->in.max - READ_MAX)
		port_sort(p);
	char *at = buf_reserve(&p->in, READ_MAX);
	ssize_t n;

	if (!at)
		gone(p); /* more than its credit */
	do
		n = recv(p->fd, at, READ_MAX, 0);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		gone(p);
	buf_grew(&p->in, (size_t)n);
}

bool port_next(struct port *p, struct str *ret)
{
	struct guest_frame f;
	ssize_t n;

	while ((n = guest_frame_next(buf_str(&p->in), &f)) > 0) {
		bool last = p->eof;
		if (f.type == GUEST_OP_CREDIT)
			take_credit(p, f.payload);
		else if (f.type == GUEST_OP_EOF)
			p->eof = true;
		else if (f.type != GUEST_OP_DATA || last)
			gone(p);
		if (f.type == GUEST_OP_DATA && f.payload.n) {
			*ret = f.payload;
			p->received += f.payload.n;
			if (p->received > p->received_limit)
				gone(p);
			/* stays readable: the space is only reused by the next port_fill */
			buf_consume(&p->in, (size_t)n);
			return true;
		}
		buf_consume(&p->in, (size_t)n);
	}
	if (n < 0)
		gone(p);
	return false;
}

size_t port_room(const struct port *p)
{
	return (size_t)(p->sent_limit - p->sent);
}

/* Only for ops that receive nothing but credit meanwhile. */
static void wait_for_room(struct port *p, size_t n)
{
	struct str unexpected;

	while (port_room(p) < n) {
		port_flush(p);
		if (port_next(p, &unexpected))
			continue; /* data that nobody asked for */
		if (port_room(p) >= n)
			return;
		port_fill(p);
	}
}

static void put_counted(struct port *p, size_t before)
{
	p->sent += p->out.len - before - GUEST_HEAD;
	if (p->out.len >= OUT_FLUSH)
		port_flush(p);
}

void port_opened(struct port *p)
{
	(void)guest_frame_put(&p->out, GUEST_OP_OPENED, 0, p->id, (struct str){ NULL, 0 });
}

void port_data(struct port *p, struct str s)
{
	while (s.n) {
		size_t n = MIN(s.n, (size_t)GUEST_PAYLOAD_MAX);
		wait_for_room(p, n);
		size_t before = p->out.len;
		(void)guest_frame_put(&p->out, GUEST_OP_DATA, 0, p->id, (struct str){ s.p, n });
		put_counted(p, before);
		s.p += n;
		s.n -= n;
	}
}

bool port_file(struct port *p, int fd, size_t n)
{
	static const char zeros[4096];
	uint8_t head[GUEST_HEAD];

	wait_for_room(p, n);
	guest_head_put(head, GUEST_OP_DATA, 0, p->id, n);
	(void)buf_add(&p->out, head, sizeof head);
	port_flush(p);
	p->sent += n;
	bool whole = true;
	while (n) {
		ssize_t got = whole ? sendfile(p->fd, fd, NULL, n) : send(p->fd, zeros, MIN(n, sizeof zeros), MSG_NOSIGNAL);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (!whole || errno == EPIPE || errno == ECONNRESET))
			gone(p);
		whole = whole && got > 0;
		n -= (size_t)MAX(got, 0);
	}
	return whole;
}

void port_data_end(struct port *p)
{
	(void)guest_frame_put(&p->out, GUEST_OP_EOF, 0, p->id, (struct str){ NULL, 0 });
}

/* Records are small against the window, so room for the largest is simply waited for. */
void port_info(struct port *p, const struct guest_info *i)
{
	wait_for_room(p, GUEST_PAYLOAD_MAX);
	size_t before = p->out.len;
	if (guest_info_put(&p->out, p->id, i) == 0)
		put_counted(p, before);
}

void port_match(struct port *p, const char *path, uint64_t line, struct str text)
{
	wait_for_room(p, GUEST_PAYLOAD_MAX);
	size_t before = p->out.len;
	if (guest_match_put(&p->out, p->id, path, line, text) == 0)
		put_counted(p, before);
}

void port_values(struct port *p, const struct buf *values)
{
	wait_for_room(p, GUEST_PAYLOAD_MAX);
	size_t before = p->out.len;
	if (guest_frame_put(&p->out, GUEST_OP_VALUES, 0, p->id, buf_str(values)) == 0)
		put_counted(p, before);
}

struct str port_receive(struct port *p)
{
	struct str s = { NULL, 0 };

	while (!port_next(p, &s) && !p->eof)
		port_fill(p);
	return s;
}

void port_consumed(struct port *p, size_t n)
{
	(void)n;
	if (p->received + GUEST_OP_WINDOW - p->received_limit < GUEST_OP_WINDOW / 4)
		return;
	p->received_limit = p->received + GUEST_OP_WINDOW;
	(void)guest_u64_put(&p->out, GUEST_OP_CREDIT, 0, p->id, p->received_limit);
	port_flush(p);
}

/* --- the process --- */

int path_error(struct err *e, int errnum, const char *what, const char *path)
{
	return err_sys(e, err_kind_of_file_errno(errnum), errnum, "%s %.200s", what, path);
}

static int enter(struct work *w, struct err *e)
{
	const char *cwd = w->req->cwd ? w->req->cwd : w->opt->workdir;

	if (w->req->path && w->req->path[0] == '/' && (!w->req->path2 || w->req->path2[0] == '/'))
		return 0; /* not needed, and it need not exist */
	if (!w->req->path)
		return 0;
	if (cwd ? chdir(cwd) == 0 : chdir(w->user.home) == 0)
		return 0;
	return path_error(e, errno, "cannot enter", cwd ? cwd : w->user.home);
}

/* Root behind a boundary that leaves it this capability would otherwise read PID 1 by way of /proc: its environment, its descriptors. A
 * tenant's programs may have it; that the file operations, which the daemon speaks to, can't is the same behind every boundary. */
static void leave_other_processes_alone(void)
{
	enum { CAP_PTRACE = 19 }; /* linux/capability.h, as the two structs: the kernel's headers are not in reach of musl's compiler */
	struct {
		uint32_t version;
		int pid;
	} head = { 0x20080522, 0 };
	struct {
		uint32_t effective, permitted, inheritable;
	} sets[2];

	if (syscall(SYS_capget, &head, sets) < 0 || !(sets[0].permitted & 1U << CAP_PTRACE))
		return;
	sets[0].effective &= ~(1U << CAP_PTRACE);
	sets[0].permitted &= ~(1U << CAP_PTRACE);
	sets[0].inheritable &= ~(1U << CAP_PTRACE);
	(void)syscall(SYS_capset, &head, sets);
}

static int perform(struct work *w, struct err *e)
{
	static int (*const ops[GUEST_OP_COUNT])(struct work *, struct err *) = {
		[GUEST_STAT] = op_stat,       [GUEST_LIST] = op_list,         [GUEST_READ] = op_read,     [GUEST_WRITE] = op_write,
		[GUEST_MKDIR] = op_mkdir,     [GUEST_REMOVE] = op_remove,     [GUEST_MOVE] = op_move,     [GUEST_CHMOD] = op_chmod,
		[GUEST_FIND] = op_find,       [GUEST_SEARCH] = op_search,     [GUEST_REPLACE] = op_replace, [GUEST_CONNECT] = op_connect,
		[GUEST_PORTS] = op_ports,     [GUEST_USERINFO] = op_userinfo, [GUEST_DISK] = op_disk,     [GUEST_SYNC] = op_sync,
	};
	bool with_path = w->req->kind <= GUEST_REPLACE;

	if (user_find(w->req->user ? w->req->user : w->opt->user, &w->user, e) < 0)
		return -1;
	int r = user_become(&w->user);
	if (r < 0) /* EINVAL: an id beyond the sandbox's own */
		return err_sys(e, r == -EINVAL ? ERR_INVALID : ERR_UNAVAILABLE, -r, "cannot become user %s",
		               w->req->user ? w->req->user : w->opt->user);
	leave_other_processes_alone();
	if (with_path && (!w->req->path || !w->req->path[0]))
		return err_set(e, ERR_INVALID, EINVAL, "a path is needed");
	if ((r = enter(w, e)) < 0)
		return r;
	return ops[w->req->kind](w, e);
}

/* Alone with the socket: no descriptor of PID 1 stays open where a path could lead to it. */
static int settle(int fd)
{
	sigset_t none;
	int size = SOCKET_BUFFER;

	if (fd != WORKER_FD && dup3(fd, WORKER_FD, O_CLOEXEC) < 0)
		_exit(1);
	(void)syscall(SYS_close_range, WORKER_FD + 1, ~0U, 0);
	sigemptyset(&none);
	sigaddset(&none, SIGPIPE); /* write() to a fifo that nobody reads is an error, not a death */
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	umask(022);
	(void)setsockopt(WORKER_FD, SOL_SOCKET, SO_SNDBUF, &size, sizeof size); /* the kernel gives less: fewer, larger turns all the same */
	return WORKER_FD;
}

/* Waits for the other side to close. To go away with credit of its unread would reset the connection, and what it has not read yet
 * would be lost. Bounded: the other side may have been told to wait for something else. */
static void linger(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char byte[4096];

	(void)shutdown(fd, SHUT_WR);
	while (poll(&p, 1, LINGER_MS) > 0 && recv(fd, byte, sizeof byte, 0) > 0)
		;
}

void worker_main(const struct options *opt, int fd, uint64_t id, const struct guest_op_request *req, struct str rest)
{
	struct work w = {
		.port = { .fd = settle(fd), .id = id, .sent_limit = GUEST_OP_WINDOW, .received_limit = GUEST_OP_WINDOW },
		.opt = opt,
		.req = req,
	};
	struct err e = { 0 };
	struct guest_result result = { 0 };

	buf_init(&w.port.in, 2 * GUEST_OP_WINDOW);
	buf_init(&w.port.out, 4 * (GUEST_HEAD + GUEST_PAYLOAD_MAX));
	(void)buf_add(&w.port.in, rest.p, rest.n);
	if (perform(&w, &e) < 0) {
		e.message[GUEST_TEXT_MAX - 1] = '\0';
		result = (struct guest_result){ e.kind, (uint32_t)MAX(e.errnum, 0), str_of(e.message) };
	}
	w.port.on_gone = NULL;
	(void)guest_result_put(&w.port.out, GUEST_OP_END, id, &result);
	port_flush(&w.port);
	linger(w.port.fd);
	_exit(0);
}
