/* Connections of the daemon. The one that has said hello last is the daemon's; a new one that begins with an op instead is
 * handed to that op's process. Whoever breaks the protocol is cut off; a stream that cannot be cut off (a serial port) is
 * ignored until the next hello. */
#include "guest/guest.h"

#include "guest/hold.h"
#include "guest/op.h"
#include "guest/run.h"
#include "guest/session.h"
#include "guest/vm.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	SHORT = 2048,
	HIGH = 256 * 1024,              /* enough to send for now: leave the rest in the windows */
	OUT_MAX = 64 * 1024 * 1024,     /* answers of a daemon that asks and does not read */
	KEEP = 2 * HIGH,                /* of an empty buffer: giving it back after each turn costs more than using it */
	WAITING_MAX = 64,
};

struct conn {
	struct guest *g;
	struct conn *next;           /* while waiting */
	struct watch w;
	bool permanent, hello, lost; /* lost: a permanent one is to be synchronised by a hello */
	bool much;                   /* the last read was not a short one */
	struct buf in, out;
	struct guest_assembly message;
	bool away;                   /* permanent, and nobody was at the other end when we looked last */
};

struct buf *guest_out(struct guest *g)
{
	return g->conn && g->conn->hello ? &g->conn->out : NULL;
}

static void unlink_waiting(struct conn *c)
{
	for (struct conn **at = &c->g->waiting; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			return;
		}
}

static void conn_free(struct conn *c)
{
	watch_close(&c->g->loop, &c->w);
	buf_done(&c->in);
	buf_done(&c->out);
	guest_assembly_done(&c->message);
	free(c);
}

/* The daemon's side of everything ends; runs go on. */
static void let_go(struct guest *g)
{
	ops_cancel(g);
	runs_detach(g);
}

static void conn_drop(struct conn *c)
{
	struct guest *g = c->g;

	if (g->conn == c)
		let_go(g);
	if (c->permanent) {
		c->hello = false;
		c->lost = true;
		buf_reset(&c->out);
		guest_assembly_done(&c->message);
		return;
	}
	if (g->conn == c)
		g->conn = NULL;
	else
		unlink_waiting(c);
	conn_free(c);
}

/* --- frames --- */

static int session_request(struct guest *g, const struct guest_frame *f, struct str message)
{
	struct guest_run_request r;

	if (guest_run_request_get(message, &r) < 0)
		return -EPROTO;
	int e = r.session ? 0 : -EPROTO;
	if (e == 0 && f->type == GUEST_SESSION_OPEN)
		session_open(g, f->id, &r);
	else if (e == 0)
		session_close(g, f->id, r.session);
	guest_run_request_done(&r);
	return e;
}

static int run_request(struct guest *g, uint64_t id, struct str message)
{
	struct guest_run_request r;

	if (guest_run_request_get(message, &r) < 0)
		return -EPROTO;
	int e = run_start(g, id, &r);
	guest_run_request_done(&r);
	return e;
}

static int setup_request(struct guest *g, uint64_t id, struct str message)
{
	struct guest_setup s;
	struct err e = { 0 };

	if (!g->in_vm || guest_setup_get(message, &s) < 0)
		return -EPROTO;
	bool bad = vm_setup(g, &s, &e) < 0;
	struct guest_result r = { .kind = bad ? e.kind : ERR_NONE, .errnum = bad ? (uint32_t)e.errnum : 0, .text = { e.message, bad ? MIN(strlen(e.message), (size_t)GUEST_TEXT_MAX) : 0 } };
	guest_setup_done(&s);
	(void)guest_result_put(guest_out(g), GUEST_SETUP_DONE, id, &r);
	return 0;
}

/* Frames with a payload of fixed length: that length + 1. The others have 0 here and are looked at by who takes them. */
static const uint8_t fixed_length[GUEST_TYPE_END] = {
	[GUEST_RUN_TAKE] = 9,     [GUEST_ANSWER] = 2,          [GUEST_RUN_ATTACH] = 17,  [GUEST_RUN_ACK] = 9,       [GUEST_OP_CREDIT] = 9,  [GUEST_RUN_SIGNAL] = 5, [GUEST_RUN_RESIZE] = 5,
	[GUEST_RUN_RELEASE] = 1,  [GUEST_RUN_STDIN_EOF] = 1, [GUEST_RUN_CANCEL] = 1, [GUEST_OP_EOF] = 1,     [GUEST_OP_CANCEL] = 1,
};

static int take_frame(struct guest *g, const struct guest_frame *f, struct str m)
{
	size_t want = fixed_length[f->type];

	if (want && f->payload.n != want - 1)
		return -EPROTO;
	if (g->bare && f->type != GUEST_SETUP)
		return -EPROTO;
	switch ((enum guest_type)f->type) {
	case GUEST_RUN_START:
		return run_request(g, f->id, m);
	case GUEST_RUN_TAKE:
		run_take(g, f->id, guest_u64(m.p));
		return 0;
	case GUEST_RUN_ATTACH:
		return run_attach(g, f->id, guest_u64(m.p), guest_u64(m.p + 8));
	case GUEST_RUN_ACK:
		return run_ack(g, f->id, f->channel, guest_u64(m.p));
	case GUEST_RUN_RELEASE:
		run_release(g, f->id);
		return 0;
	case GUEST_RUN_STDIN:
		return run_stdin(g, f->id, m);
	case GUEST_RUN_STDIN_EOF:
		run_stdin_eof(g, f->id);
		return 0;
	case GUEST_RUN_SIGNAL:
		run_signal(g, f->id, (int)MIN(guest_u32(m.p), 65u), f->channel == 1);
		return 0;
	case GUEST_RUN_CANCEL:
		run_cancel(g, f->id);
		return 0;
	case GUEST_RUN_RESIZE:
		run_resize(g, f->id, (uint16_t)guest_u32(m.p), (uint16_t)(guest_u32(m.p) >> 16));
		return 0;
	case GUEST_SESSION_OPEN:
	case GUEST_SESSION_CLOSE:
		return session_request(g, f, m);
	case GUEST_OP_OPEN:
		return op_open(g, f->id, m);
	case GUEST_OP_DATA:
	case GUEST_OP_EOF:
	case GUEST_OP_CREDIT:
	case GUEST_OP_CANCEL:
		return op_input(g, f);
	case GUEST_ANSWER:
		hold_answer(g, f->id, m.p[0] == 1);
		return 0;
	case GUEST_PERMIT:
		return confine_set(&g->confine, m, g->in_vm);
	case GUEST_SETUP:
		return setup_request(g, f->id, m);
	case GUEST_HELLO:
	case GUEST_READY:
	case GUEST_RUN_STARTED:
	case GUEST_RUN_OUTPUT:
	case GUEST_RUN_ROOM:
	case GUEST_RUN_END:
	case GUEST_SESSION_REPLY:
	case GUEST_SESSION_END:
	case GUEST_OP_OPENED:
	case GUEST_OP_INFO:
	case GUEST_OP_MATCH:
	case GUEST_OP_VALUES:
	case GUEST_OP_END:
	case GUEST_SETUP_DONE:
	case GUEST_VERDICT:
	case GUEST_ASK:
	case GUEST_ASK_END:
	case GUEST_TYPE_END:
		break;
	}
	return -EPROTO;
}

static int conn_read(struct conn *c);
static int conn_parse(struct conn *c);

/* c becomes the daemon's connection. What the one before has already sent counts: a daemon that dies has still said it. */
static int take_hello(struct conn *c, const struct guest_frame *f)
{
	struct guest *g = c->g;
	struct conn *old = g->conn;

	if (f->id != GUEST_HELLO_ID || f->payload.n != 4 || guest_u32(f->payload.p) != GUEST_VERSION)
		return -EPROTO;
	if (old && old != c) {
		while (conn_read(old) > 0)
			if (conn_parse(old) < 0)
				break;
		conn_drop(old);
	} else if (old) {
		let_go(g);
		buf_reset(&c->out);
	}
	unlink_waiting(c);
	g->conn = c;
	c->hello = true;
	runs_list(g, &c->out);
	hold_tell_all(g);
	sessions_tell_ends(g);
	return 0;
}

/* 1: c has been given away. */
static int first_frame(struct conn *c, const struct guest_frame *f, struct str message, size_t taken)
{
	if (f->type == GUEST_HELLO)
		return take_hello(c, f);
	if (f->type != GUEST_OP_OPEN || c->permanent)
		return -EPROTO;
	struct guest *g = c->g;
	struct str rest = { c->in.data + taken, c->in.len - taken };
	int fd = c->w.fd;
	unlink_waiting(c);
	watch_set(&g->loop, &c->w, 0);
	c->w.fd = -EBADF;
	(void)op_open_direct(g, fd, f->id, message, rest);
	conn_free(c);
	return 1;
}

/* Takes all whole frames. 1: c has been given away; -EPROTO. */
static int conn_parse(struct conn *c)
{
	struct guest_frame f;
	struct str message;
	ssize_t n;

	if (c->lost) {
		buf_consume(&c->in, guest_noise(buf_str(&c->in), GUEST_HELLO));
		if (c->in.len < GUEST_HEAD)
			return 0;
		c->lost = false;
	}
	while ((n = guest_frame_next(buf_str(&c->in), &f)) > 0) {
		int got = guest_assembly_feed(&c->message, &f, &message);
		if (got < 0)
			return got;
		int e = 0;
		if (got == 1 && (!c->hello || f.type == GUEST_HELLO))
			e = first_frame(c, &f, message, (size_t)n);
		else if (got == 1)
			e = take_frame(c->g, &f, message);
		if (e != 0)
			return e;
		if (c->out.overflow)
			return -ENOBUFS;
		buf_consume(&c->in, (size_t)n);
	}
	buf_trim(&c->in, KEEP);
	return (int)n;
}

/* Bytes read; 0 = nothing there now; negative: the connection is at its end. */
static int conn_read(struct conn *c)
{
	/* Most requests are short, and fresh pages are dear. */
	size_t want = c->much ? GUEST_PAYLOAD_MAX : SHORT;
	char *at = buf_reserve(&c->in, want);
	ssize_t n = at ? read(c->w.fd, at, want) : -1;

	c->much = n >= SHORT;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return -EPIPE;
	buf_grew(&c->in, (size_t)n);
	return (int)n;
}

/* -EPIPE when the other end is gone. */
static int conn_write(struct conn *c)
{
	while (c->out.len) {
		ssize_t n = c->permanent ? write(c->w.fd, c->out.data, c->out.len) : send(c->w.fd, c->out.data, c->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			return -EPIPE;
		buf_consume(&c->out, (size_t)n);
	}
	buf_trim(&c->out, KEEP);
	return 0;
}

/* A serial port would report for ever that its other end is gone; now only what changes. What was said to us last is not taken back for it: the
 * port's driver hears of a new other end later than of its first bytes, and then what we would forget is the answer to its hello. */
static void go_away(struct conn *c)
{
	if (!c->away)
		watch_set(&c->g->loop, &c->w, EPOLLIN | EPOLLOUT | EPOLLET);
	c->away = true;
}

static void conn_ready(struct watch *w, uint32_t events)
{
	struct conn *c = container_of(w, struct conn, w);
	int n = events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? conn_read(c) : 0;

	if (n < 0 && c->permanent) {
		go_away(c);
		return;
	}
	c->away = false;
	int e = n > 0 ? conn_parse(c) : n;
	if (e < 0)
		conn_drop(c);
	/* writing is done once for all at the end of the turn */
}

void conn_flush(struct guest *g)
{
	struct conn *c = g->conn;

	while (c && c->hello) {
		runs_send(g, &c->out, HIGH);
		size_t before = c->out.len;
		if (before == 0)
			break;
		if (conn_write(c) < 0) {
			conn_drop(c);
			return;
		}
		if (c->out.len)
			break;
	}
	if (!c || c->away)
		return;
	watch_set(&g->loop, &c->w, EPOLLIN | (c->out.len ? (uint32_t)EPOLLOUT : 0));
	ops_resume(g);
}

void conn_accept(struct guest *g, int fd, bool permanent)
{
	struct conn *c = xcalloc(1, sizeof *c);
	size_t n = 0;

	c->g = g;
	c->w = (struct watch){ .fd = fd, .ready = conn_ready };
	c->permanent = c->lost = permanent;
	buf_init(&c->in, 4 * (GUEST_HEAD + GUEST_PAYLOAD_MAX));
	buf_init(&c->out, OUT_MAX);
	guest_assembly_init(&c->message);
	if (permanent) {
		g->conn = c;
	} else {
		for (struct conn **at = &g->waiting; *at; at = &(*at)->next)
			if (++n >= WAITING_MAX) {
				struct conn *oldest = *at; /* new ones are put in front */
				*at = oldest->next;
				conn_free(oldest);
				break;
			}
		c->next = g->waiting;
		g->waiting = c;
	}
	watch_set(&g->loop, &c->w, EPOLLIN);
}

static void listener_ready(struct watch *w, uint32_t events)
{
	struct guest *g = container_of(w, struct guest, listener);
	int fd;

	(void)events;
	while ((fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		conn_accept(g, fd, false);
}

void conn_listen(struct guest *g, int fd)
{
	g->listener = (struct watch){ .fd = fd, .ready = listener_ready };
	watch_set(&g->loop, &g->listener, EPOLLIN);
}
