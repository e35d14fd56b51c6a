/* A connection of an opener's without the TLS around it, for tests and fuzzers: what has come from a side is in its `in`, what goes there in its
 * `out`. Two secrets may go to api.test: one in fields, one that signs for AWS; PUT
 * and POST may not go below /no, and somebody is asked for DELETE and POST of what begins with /v1/ask. */
#ifndef CAISSON_TESTS_OPENED_H
#define CAISSON_TESTS_OPENED_H

#include "egress/opener_int.h"

#include <errno.h>
#include <stdio.h>

#define OPENED_VALUE	   "value-that-is-secret"
#define OPENED_PLACEHOLDER "caisson-placeholder-abababababababababababababababababababababababababababababababab"

static inline bool opened_keys(struct keyring *k)
{
	static const char text[] = "certificate=AA==\0signer=AA==\0rule=deny method:PUT,POST api.test/no\0rule=ask method:DELETE,POST api.test/v1/ask*\0secret=sec_1\0placeholder=" OPENED_PLACEHOLDER "\0value=" OPENED_VALUE
				   "\0host=api.test:443\0header=Authorization\0query=key\0basic=1\0path=/v1\0"
				   "secret=sec_2\0placeholder=caisson-placeholder-cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd\0value=" OPENED_VALUE
				   "-of-aws\0host=api.test:443\0aws=AKIDEXAMPLE";

	return keyring_parse(text, sizeof text, k) == 0;
}

static inline struct conn *opened_begin(struct opener *o, bool h2)
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

/* It must not be open any more, or nothing of it be needed. */
static inline void opened_free(struct conn *c)
{
	opened_kill(c);
	c->o->dead = NULL;
	http1_free(c->http1);
	http2_free(c->http2);
	free(c);
}

#endif
