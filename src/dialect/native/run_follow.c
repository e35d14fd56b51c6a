/* Following a run over plain HTTP: newline-delimited JSON of both streams, or the raw bytes of one.
 *
 * A slow client pauses the follower, never the run; what it has not taken yet stays where core keeps it. */
#include "dialect/native/native_int.h"

#include <errno.h>

struct tail {
	struct native *n;
	struct request *r;
	struct run_ref ref;
	struct follower *f; /* NULL until api_run_follow has returned, and after the end */
	bool kill, ended;
	int raw;            /* the stream, or 0: NDJSON */
	struct {
		char bytes[4];  /* the beginning of a character whose rest is to come */
		size_t n;
		uint64_t at;    /* offset of bytes[0] */
	} carry[3];
};

static void tail_free(struct tail *t)
{
	if (t->f)
		follower_free(t->f);
	run_ref_done(&t->ref);
	free(t);
}

static void write_line(struct tail *t, const struct buf *b)
{
	req_write(t->r, buf_str(b));
	if (!req_room(t->r) && t->f)
		follower_pause(t->f);
}

static void output_line(struct tail *t, int stream, uint64_t offset, struct str bytes)
{
	auto_buf struct buf b;
	buf_init(&b, bytes.n * 6 + 256); /* a control byte becomes six */
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	jout_z(&j, "event", "output");
	jout_z(&j, "stream", stream == 1 ? "stdout" : "stderr");
	jout_u64(&j, "offset", offset);
	jout_text(&j, "data", bytes);
	jout_end_object(&j);
	buf_addc(&b, '\n');
	write_line(t, &b);
}

/* What was carried over is sent as it is: nothing completes it. */
static void flush_carry(struct tail *t, int stream)
{
	size_t n = t->carry[stream].n;
	t->carry[stream].n = 0;
	if (n)
		output_line(t, stream, t->carry[stream].at, (struct str){ t->carry[stream].bytes, n });
}

static void on_output(void *ctx, int stream, uint64_t offset, struct str bytes)
{
	struct tail *t = ctx;
	if (stream < 1 || stream > 2 || (t->raw && t->raw != stream))
		return;
	if (t->raw) {
		req_write(t->r, bytes);
		if (!req_room(t->r) && t->f)
			follower_pause(t->f);
		return;
	}
	auto_buf struct buf joined;
	buf_init(&joined, bytes.n + 4);
	if (t->carry[stream].n && t->carry[stream].at + t->carry[stream].n != offset)
		flush_carry(t, stream); /* something was dropped between */
	if (t->carry[stream].n) {
		buf_add(&joined, t->carry[stream].bytes, t->carry[stream].n);
		buf_add(&joined, bytes.p, bytes.n);
		offset = t->carry[stream].at;
		bytes = buf_str(&joined);
		t->carry[stream].n = 0;
	}
	size_t rest = utf8_unfinished(bytes);
	if (rest && utf8_valid((struct str){ bytes.p, bytes.n - rest })) {
		bytes.n -= rest;
		memcpy(t->carry[stream].bytes, bytes.p + bytes.n, rest);
		t->carry[stream].n = rest;
		t->carry[stream].at = offset + bytes.n;
	}
	if (bytes.n)
		output_line(t, stream, offset, bytes);
}

static void finish(struct tail *t, const struct run_view *v)
{
	if (!t->raw) {
		flush_carry(t, 1);
		flush_carry(t, 2);
		auto_buf struct buf b;
		buf_init(&b, JSON_REPLY_MAX);
		struct jout j = { .b = &b };
		jout_object(&j, NULL);
		jout_z(&j, "event", "end");
		encode_run(&j, "result", v);
		jout_end_object(&j);
		buf_addc(&b, '\n');
		req_write(t->r, buf_str(&b));
	}
	req_end(t->r);
}

static void on_end(void *ctx, const struct run_view *v)
{
	struct tail *t = ctx;
	finish(t, v);
	if (t->f)
		tail_free(t);
	else
		t->ended = true; /* inside api_run_follow: begin_tail cleans up */
}

static void on_room(void *ctx)
{
	struct tail *t = ctx;
	if (t->f)
		follower_resume(t->f);
}

static void on_gone(void *ctx)
{
	struct tail *t = ctx;
	struct err e;
	if (t->kill)
		(void)api_run_cancel(t->n->api, &t->ref.caller, t->ref.sandbox, t->ref.run, &e); /* ended meanwhile: fine */
	tail_free(t);
}

static struct tail *tail_new(struct native *n, struct request *r, const struct run_ref *ref)
{
	struct tail *t = xcalloc(1, sizeof *t);
	t->n = n;
	t->r = r;
	t->ref = (struct run_ref){ ref->caller, xstrdup(ref->sandbox), xstrdup(ref->run) };
	req_on_gone(r, on_gone, t);
	req_on_room(r, on_room, t);
	return t;
}

/* The head has been written. */
static void begin_tail(struct tail *t, uint64_t stdout_offset, uint64_t stderr_offset)
{
	static const struct follower_events events = { .on_output = on_output, .on_end = on_end };
	struct err e;
	struct follower *f =
		api_run_follow(t->n->api, &t->ref.caller, t->ref.sandbox, t->ref.run, stdout_offset, stderr_offset, &events, t, &e);
	t->f = f;
	if (!f) {
		req_abort(t->r);
		tail_free(t);
	} else if (t->ended) {
		tail_free(t);
	} else if (!req_room(t->r)) {
		follower_pause(f);
	}
}

void answer_events(struct native *n, struct request *r, const struct run_ref *ref, uint64_t stdout_offset, uint64_t stderr_offset, bool kill)
{
	struct run_view v;
	struct err e;
	if (api_run_get(n->api, &ref->caller, ref->sandbox, ref->run, &v, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	struct tail *t = tail_new(n, r, ref);
	t->kill = kill;
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	jout_z(&j, "event", "started");
	encode_run(&j, "run", &v);
	jout_end_object(&j);
	buf_addc(&b, '\n');
	answer_begin(n, r, NULL, 0, "application/x-ndjson");
	req_write(r, buf_str(&b));
	begin_tail(t, stdout_offset, stderr_offset);
}

void answer_follow_raw(struct native *n, struct request *r, const struct run_ref *ref, int stream, uint64_t offset, const struct run_view *v)
{
	struct header h[4];
	char text[96];
	size_t n_h = output_headers(h, text, stream, offset, v);
	struct tail *t = tail_new(n, r, ref);
	t->raw = stream;
	answer_begin(n, r, h, n_h, "application/octet-stream");
	/* Of the other stream nothing is wanted: no offset lies behind the last one. */
	begin_tail(t, stream == 1 ? offset : UINT64_MAX, stream == 2 ? offset : UINT64_MAX);
}

void native_run_events(struct request *r, void *dialect)
{
	struct query { uint64_t out, err; } query = { 0 };
	static const struct field fields[] = {
		{ .name = "stdout_offset", .kind = FIELD_U64, .offset = offsetof(struct query, out) },
		{ .name = "stderr_offset", .kind = FIELD_U64, .offset = offsetof(struct query, err) },
		{ 0 },
	};
	struct native *n = dialect;
	struct err e;
	if (decode_query(r, fields, &query, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	struct run_ref ref = run_ref_of(r, NULL);
	answer_events(n, r, &ref, query.out, query.err, false);
	run_ref_done(&ref);
}
