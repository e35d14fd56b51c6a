/* What a QEMU may say. First byte: how many calls are made in advance; the rest: its lines. What we have to send is sent after each line.
 * Whole lines and pieces must lead to the same events, and each call must end exactly once. */
#include "wire/qmp.h"

#include <errno.h>

struct record {
	struct buf log;
	unsigned ended;
};

static void on_event(void *ctx, const char *name, const json_t *data)
{
	struct record *r = ctx;

	buf_addf(&r->log, "E%s/%zu;", name, json_object_size(data));
}

static void on_done(void *ctx, const struct err *e, const json_t *result)
{
	struct record *r = ctx;

	if (!e == !result)
		abort();
	r->ended++;
	buf_addf(&r->log, "%s;", e ? e->message : "good");
}

static void drain(struct qmp *q)
{
	struct str s;
	int fd;

	for (int i = 0; qmp_to_send(q, &s, &fd); i++) {
		if (s.n == 0 || i > 10000)
			abort();
		qmp_sent(q, i % 3 ? s.n : s.n / 2 + 1);
	}
}

static void run(struct record *rec, unsigned calls, struct str in, unsigned piece)
{
	struct qmp q;
	struct err end;
	unsigned seed = piece;
	int r = 0;

	buf_init(&rec->log, 1 << 24);
	rec->ended = 0;
	qmp_init(&q, on_event, rec);
	for (unsigned i = 0; i < calls; i++)
		qmp_call(&q, "query-status", i % 2 ? json_pack("{s:i}", "n", i) : NULL, -1, on_done, rec);
	while (in.n && r == 0) {
		const char *newline = memchr(in.p, '\n', in.n);
		size_t n = newline ? (size_t)(newline - in.p) + 1 : in.n;
		seed = seed * 1103515245u + 12345u;
		if (piece)
			n = MIN(n, (seed >> 16) % piece + 1);
		char *copy = xmemdup(in.p, n);
		r = qmp_feed(&q, (struct str){ copy, n });
		free(copy);
		in.p += n;
		in.n -= n;
		if (in.p[-1] == '\n')
			drain(&q);
	}
	if ((r != 0) != (q.state == QMP_ENDED))
		abort();
	(void)err_set(&end, ERR_UNAVAILABLE, EPIPE, "the end");
	qmp_end(&q, &end);
	if (rec->ended != calls)
		abort();
	qmp_done(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record whole, parts;

	if (size == 0)
		return 0;
	struct str in = { (const char *)data + 1, size - 1 };
	run(&whole, data[0] % 8, in, 0);
	for (unsigned piece = 1; piece < 20; piece += 9) {
		run(&parts, data[0] % 8, in, piece);
		if (!str_eq(buf_str(&whole.log), buf_str(&parts.log)))
			abort();
		buf_done(&parts.log);
	}
	buf_done(&whole.log);
	return 0;
}
