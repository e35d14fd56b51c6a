/* What passes between the two sides of an opened connection, without the TLS around it. The first byte says which protocol; then pieces follow: a
 * byte whose lowest bit says from which side (or, with the next one set, that somebody answers for what has waited longest: the third says how; with the fourth, that the host is silent for a while), a byte of length, and its bytes. Whatever they are: nothing grows without bound, nothing is kept
 * when the connection is gone, and no answer tells the value. */
#include "../opened.h"

#include <sys/socket.h>

static void check(bool holds)
{
	if (!holds)
		abort();
}

static void drain(struct side *s)
{
	check(!s->out.overflow && s->out.len <= OUT_MAX);
	/* Of the client's side alone: on the other one is where it belongs. HTTP/2 says heads in a code of its own, and there this sees bodies. */
	check(s != &s->conn->client || !s->out.len || !memmem(s->out.data, s->out.len, OPENED_VALUE, strlen(OPENED_VALUE)));
	buf_consume(&s->out, s->out.len);
}

static void run(struct conn *c)
{
	for (int i = 0; i < 1000 && c->state == CONN_OPEN; i++) {
		bool moved = c->http2 ? http2_run(c) : http1_run(c);
		if (c->state == CONN_DEAD)
			return;
		drain(&c->client);
		drain(&c->server);
		if (!moved)
			return;
	}
	check(c->state != CONN_OPEN); /* it goes round without end */
}

static int daemon_end = -1;
static uint64_t asked[64]; /* what the daemon has been asked for, and has not heard the end of */
static size_t n_asked;

static void forget(uint64_t ask)
{
	for (size_t i = 0; i < n_asked; i++)
		if (asked[i] == ask) {
			memmove(asked + i, asked + i + 1, (n_asked - i - 1) * sizeof *asked);
			n_asked--;
			return;
		}
	abort();
}

/* It hears of all that waits, and of each end of that, and of nothing else. */
static void hear(const struct opener *o)
{
	struct opener_event ev = { 0 };

	while (recv(daemon_end, &ev, sizeof ev, MSG_DONTWAIT) == (ssize_t)sizeof ev) {
		check(ev.magic == OPENER_MAGIC && ev.kind >= OPENER_SECRET && ev.kind <= OPENER_ASK_END);
		if (ev.kind == OPENER_ASK && n_asked < ARRAY_LEN(asked))
			asked[n_asked++] = ev.ask;
		else if (ev.ask)
			forget(ev.ask);
	}
	check(o->n_held == n_asked);
}

static void answer(struct conn *c, bool allowed)
{
	if (!n_asked)
		return;
	methods_answer(c->o, asked[0], allowed);
	c->o->run = NULL;
	c->queued = false;
	run(c);
	hear(c->o);
}

static void silence(struct conn *c)
{
	if (c->state == CONN_OPEN && (c->http2 ? http2_idle(c, UINT64_MAX) : http1_idle(c, UINT64_MAX)))
		run(c);
	hear(c->o);
}

static void feed(struct conn *c, bool server, const void *p, size_t n)
{
	struct side *s = server ? &c->server : &c->client;

	if (c->state != CONN_OPEN || s->in.len + n > ROOM)
		return;
	(void)buf_add(&s->in, p, n);
	run(c);
	hear(c->o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct opener o = { .epoll = -EBADF, .daemon = { .fd = -EBADF }, .edge = { .fd = -EBADF } };
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0";

	if (size == 0)
		return 0;
	if (daemon_end < 0) {
		int pair[2];
		check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
		o.daemon.fd = pair[0];
		daemon_end = pair[1];
	}
	check(o.keys.n || opened_keys(&o.keys));
	struct conn *c = opened_begin(&o, data[0] & 1);
	if (data[0] & 2) /* nobody there */
		snprintf(c->refusal, sizeof c->refusal, "no");
	if (c->http2) {
		feed(c, false, preface, sizeof preface);
		feed(c, true, preface + 24, sizeof preface - 24);
	}
	for (size_t at = 1; at + 2 <= size;) {
		size_t n = MIN((size_t)data[at + 1], size - at - 2);
		if ((data[at] & 10) == 10)
			silence(c);
		else if (data[at] & 2)
			answer(c, data[at] & 4);
		else
			feed(c, data[at] & 1, data + at + 2, n);
		at += 2 + n;
	}
	if (c->state == CONN_OPEN) {
		c->server.eof = true;
		run(c);
	}
	if (c->state == CONN_OPEN) {
		c->client.eof = true;
		run(c);
	}
	check(c->state != CONN_OPEN);
	opened_free(c);
	hear(&o);
	check(n_asked == 0 && o.kept == 0 && o.n_wide == 0 && o.n_conns == 0);
	return 0;
}
