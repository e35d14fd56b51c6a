#include "core/link_int.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	READ_CHUNK = 256 * 1024,
	READS = 4,                       /* before others on the loop get their turn */
	NOISE_MAX = 4 * 1024 * 1024,     /* of a former connection on a serial line */
	OUT_MAX = 256 * 1024 * 1024,     /* a guest that does not read must not eat the daemon */
};

struct pump {
	uv_poll_t poll;
	int fd;
	bool open, synced, stream; /* stream: not a socket */
	int events;
	size_t noise;
	uint64_t received;
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

static void listen_for(struct pump *p, int events)
{
	if (p->open && events != p->events && uv_poll_start(&p->poll, events, on_uv_poll) == 0)
		p->events = events;
}

/* Negative errno when the other end is gone. */
static int flush(struct pump *p)
{
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
	listen_for(p, UV_READABLE | (p->out.len || refused || r < 0 ? UV_WRITABLE : 0));
}

static int synchronise(struct pump *p)
{
	size_t skip = guest_noise(buf_str(&p->in), GUEST_READY);

	p->noise += skip;
	buf_consume(&p->in, skip);
	p->synced = p->in.len >= GUEST_HEAD;
	return p->noise > NOISE_MAX ? -EPROTO : 0;
}

static int parse(struct pump *p)
{
	struct guest_frame f;
	struct str message;
	ssize_t n = 0;

	if (!p->synced && synchronise(p) < 0)
		return -EPROTO;
	while (p->open && p->synced && (n = guest_frame_next(buf_str(&p->in), &f)) > 0) {
		int r = guest_assembly_feed(&p->message, &f, &message);
		if (r > 0 && p->ev)
			r = p->ev->frame(p->ctx, &f, message);
		if (r < 0)
			return r;
		buf_consume(&p->in, (size_t)n);
	}
	return n < 0 ? (int)n : 0;
}

/* Plain reads: a descriptor that the guest may have attached is never received, the kernel drops it. */
static void take_in(struct pump *p)
{
	for (int i = 0; i < READS && p->open; i++) {
		char *at = buf_reserve(&p->in, READ_CHUNK);
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
		buf_grew(&p->in, (size_t)n);
		p->received += (size_t)n;
		int r = parse(p);
		if (r < 0 && p->open)
			fail(p, ERR_INTERNAL, -r, "it does not keep to the protocol");
		if (n < READ_CHUNK)
			break;
	}
	if (p->open && p->in.len == 0)
		buf_reset(&p->in);
}

static void on_uv_poll(uv_poll_t *h, int status, int events)
{
	struct pump *p = h->data;

	if (status < 0) {
		/* an error of the socket: the other end has gone, with something of ours unread. What it said before is still there */
		uint64_t before;
		do {
			before = p->received;
			take_in(p);
		} while (p->open && p->received != before);
		fail(p, ERR_UNAVAILABLE, -status, "cannot poll");
		return;
	}
	if (events & UV_READABLE)
		take_in(p);
	if (!p->open)
		return;
	if (p->out.overflow) {
		fail(p, ERR_UNAVAILABLE, ENOBUFS, "it takes no more bytes");
		return;
	}
	int r = flush(p);
	if (r < 0 && (events & UV_WRITABLE)) {
		/* what it said before it went may still be there to read */
		take_in(p);
		if (p->open)
			fail(p, ERR_UNAVAILABLE, -r, "cannot write");
		return;
	}
	listen_for(p, UV_READABLE | (p->out.len ? UV_WRITABLE : 0));
}

struct pump *pump_new(uv_loop_t *loop, int fd, const struct pump_events *ev, void *ctx)
{
	struct pump *p = xcalloc(1, sizeof *p);
	int type;
	socklen_t len = sizeof type;

	p->fd = fd;
	p->ev = ev;
	p->ctx = ctx;
	p->stream = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0;
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
	listen_for(p, UV_READABLE);
	return p;
}

bool pump_is_line(const struct pump *p)
{
	return p->stream;
}

void pump_synced(struct pump *p)
{
	p->synced = true;
}
