/* What passes between the two sides of an opened connection, without the TLS around it. The first byte says which protocol; then pieces follow: a
 * byte whose lowest bit says from which side, a byte of length, and its bytes. Whatever they are: nothing grows without bound, nothing is kept
 * when the connection is gone, and no answer tells the value. */
#include "../opened.h"

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

static void feed(struct conn *c, bool server, const void *p, size_t n)
{
	struct side *s = server ? &c->server : &c->client;

	if (c->state != CONN_OPEN || s->in.len + n > ROOM)
		return;
	(void)buf_add(&s->in, p, n);
	run(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct opener o = { .epoll = -EBADF, .daemon = { .fd = -EBADF }, .edge = { .fd = -EBADF } };
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0";

	if (size == 0)
		return 0;
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
	check(o.kept == 0 && o.n_wide == 0 && o.n_conns == 0);
	return 0;
}
