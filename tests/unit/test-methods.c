/* Requests that wait for somebody's word, in an opener without TLS around it (tests/opened.h). */
#include "../opened.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include <cmocka.h>

#define ASKED "DELETE /v1/ask HTTP/1.1\r\nHost: api.test\r\nContent-Length: 3\r\n\r\nabc"

struct place_of { /* an opener, and the daemon's end */
	struct opener o;
	int daemon;
};

static void place_init(struct place_of *p)
{
	int pair[2];

	*p = (struct place_of){ .o = { .epoll = -EBADF, .edge = { .fd = -EBADF } } };
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	p->o.daemon.fd = pair[0];
	p->daemon = pair[1];
	assert_true(opened_keys(&p->o.keys));
}

static void place_finish(struct place_of *p)
{
	assert_int_equal(p->o.n_held, 0);
	keyring_done(&p->o.keys);
	close_fd(p->o.daemon.fd);
	close_fd(p->daemon);
}

static struct conn *begin(struct place_of *p, const char *bytes)
{
	struct conn *c = opened_begin(&p->o, false);

	(void)buf_add(&c->client.in, bytes, strlen(bytes));
	while (http1_run(c) && c->state == CONN_OPEN)
		;
	return c;
}

static void end(struct conn *c)
{
	c->o->run = NULL;
	opened_free(c);
}

static bool said(const struct side *s, const char *what)
{
	return s->out.len && memmem(s->out.data, s->out.len, what, strlen(what));
}

/* The next thing that the daemon hears. */
static struct opener_event heard(const struct place_of *p, enum opener_event_kind kind)
{
	struct opener_event ev;

	assert_int_equal(recv(p->daemon, &ev, sizeof ev, MSG_DONTWAIT), sizeof ev);
	assert_int_equal(ev.kind, kind);
	return ev;
}

static void answered(void **state)
{
	struct place_of p;

	(void)state;
	place_init(&p);
	for (int allowed = 0; allowed < 2; allowed++) {
		struct conn *c = begin(&p, ASKED);
		struct opener_event ev = heard(&p, OPENER_ASK);
		assert_true(ev.ask && strcmp(ev.method, "DELETE") == 0 && strcmp(ev.path, "/v1/ask") == 0 && strncmp(ev.rule, "ask method:", 11) == 0);
		assert_int_equal(c->server.out.len, 0);
		methods_answer(&p.o, ev.ask + 1, true);
		assert_int_equal(p.o.n_held, 1);
		methods_answer(&p.o, ev.ask, allowed);
		struct opener_event verdict = heard(&p, OPENER_METHOD);
		assert_true(verdict.ask == ev.ask && verdict.allowed == (uint32_t)allowed && strcmp(verdict.reason, "as it was answered") == 0);
		methods_answer(&p.o, ev.ask, true); /* once */
		while (c->state == CONN_OPEN && http1_run(c))
			;
		assert_true(said(&c->server, "DELETE /v1/ask") == allowed && said(&c->server, "\r\n\r\nabc") == allowed && said(&c->client, "HTTP/1.1 403") != allowed);
		end(c);
	}
	place_finish(&p);
}

static void by_itself(void **state)
{
	struct place_of p;

	(void)state;
	place_init(&p);
	struct conn *late = begin(&p, ASKED), *gone = begin(&p, ASKED), *left = begin(&p, ASKED), *freed = begin(&p, ASKED);
	for (int i = 0; i < 4; i++)
		(void)heard(&p, OPENER_ASK);
	gone->client.eof = true;
	assert_true(http1_run(gone) && gone->state == CONN_LINGER);
	(void)heard(&p, OPENER_ASK_END);
	left->server.eof = true;
	assert_true(http1_run(left) && said(&left->client, "HTTP/1.1 503"));
	(void)heard(&p, OPENER_ASK_END);
	/* rules of now, which say nothing of it */
	methods_sweep(&p.o, now_ms());
	assert_int_equal(p.o.n_held, 2);
	methods_sweep(&p.o, now_ms() + OPENER_ASK_MS + 1);
	assert_true(strcmp(heard(&p, OPENER_METHOD).reason, "nobody answered in time") == 0 && said(&late->client, "nobody answered in time"));
	(void)heard(&p, OPENER_METHOD);
	end(freed);
	freed = begin(&p, ASKED);
	(void)heard(&p, OPENER_ASK);
	method_rules_done(&p.o.keys.rules);
	methods_rejudge(&p.o);
	assert_true(heard(&p, OPENER_METHOD).allowed && said(&freed->server, "DELETE /v1/ask"));
	end(late);
	end(gone);
	end(left);
	end(freed);
	place_finish(&p);
}

static void so_many(void **state)
{
	struct conn *c[70];
	struct place_of p;

	(void)state;
	place_init(&p);
	for (size_t i = 0; i < ARRAY_LEN(c); i++) {
		c[i] = begin(&p, ASKED);
		bool denied = i >= 64;
		assert_true(said(&c[i]->client, "too many requests wait") == denied);
		(void)heard(&p, denied ? OPENER_METHOD : OPENER_ASK);
	}
	for (size_t i = 0; i < ARRAY_LEN(c); i++)
		end(c[i]);
	place_finish(&p);
	/* nobody who could answer hears of it: it does not wait */
	place_init(&p);
	p.daemon = close_fd(p.daemon);
	c[0] = begin(&p, ASKED);
	assert_true(said(&c[0]->client, "HTTP/1.1 403"));
	end(c[0]);
	place_finish(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answered),
		cmocka_unit_test(by_itself),
		cmocka_unit_test(so_many),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
