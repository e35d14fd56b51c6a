/* What passes between the two sides of an opened connection, without the TLS around it. The first byte says which protocol; then pieces follow: a
 * byte whose lowest bit says from which side, a byte of length, and its bytes. Whatever they are: nothing grows without bound, nothing is kept
 * when the connection is gone, and no answer tells the value. */
#include "egress/opener_int.h"

#include <errno.h>
#include <stdio.h>

#define VALUE	    "value-that-is-secret"
#define PLACEHOLDER "caisson-placeholder-abababababababababababababababababababababababababababababababab"

static void check(bool holds)
{
	if (!holds)
		abort();
}

static void keys_of(struct keyring *k)
{
	static const char text[] = "certificate=AA==\0signer=AA==\0secret=sec_1\0placeholder=" PLACEHOLDER "\0value=" VALUE
				   "\0host=api.test:443\0header=Authorization\0query=key\0basic=1\0path=/v1\0"
				   "secret=sec_2\0placeholder=caisson-placeholder-cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd\0value=" VALUE
				   "-of-aws\0host=api.test:443\0aws=AKIDEXAMPLE";

	check(keyring_parse(text, sizeof text, k) == 0);
}

static struct conn *begin(struct opener *o, bool h2)
{
	struct conn *c = xcalloc(1, sizeof *c);
	struct side *sides[] = { &c->client, &c->server };

	c->o = o;
	c->state = CONN_OPEN;
	c->port = 443;
	snprintf(c->name, sizeof c->name, "api.test");
	for (size_t i = 0; i < 2; i++) {
		sides[i]->conn = c;
		sides[i]->fd = -EBADF;
		sides[i]->up = true;
		buf_init(&sides[i]->in, ROOM);
		buf_init(&sides[i]->out, OUT_MAX);
	}
	DL_APPEND(o->conns, c);
	o->n_conns++;
	if (h2)
		c->http2 = http2_new(c);
	else
		c->http1 = http1_new(c);
	return c;
}

static void drain(struct side *s)
{
	check(!s->out.overflow && s->out.len <= OUT_MAX);
	/* Of the client's side alone: on the other one is where it belongs. HTTP/2 says heads in a code of its own, and there this sees bodies. */
	check(s != &s->conn->client || !s->out.len || !memmem(s->out.data, s->out.len, VALUE, strlen(VALUE)));
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
	if (!o.keys.n)
		keys_of(&o.keys);
	struct conn *c = begin(&o, data[0] & 1);
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
	opened_kill(c);
	http1_free(c->http1);
	http2_free(c->http2);
	free(c);
	o.dead = NULL;
	check(o.kept == 0 && o.n_wide == 0 && o.n_conns == 0);
	return 0;
}
