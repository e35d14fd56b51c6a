/* Raw bytes of one stream: what is there now (here), or all to the end (run_follow.c). */
#include "dialect/native/native_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct output_query {
	char *stream;
	uint64_t offset, limit;
	bool follow;
};

static int output_query_decode(const struct request *r, struct output_query *q, int *ret_stream, struct err *e)
{
	static const struct field fields[] = {
		{ .name = "stream", .kind = FIELD_STRING, .offset = offsetof(struct output_query, stream) },
		{ .name = "offset", .kind = FIELD_U64, .offset = offsetof(struct output_query, offset) },
		{ .name = "limit", .kind = FIELD_U64, .offset = offsetof(struct output_query, limit), .min = 1 },
		{ .name = "follow", .kind = FIELD_BOOL, .offset = offsetof(struct output_query, follow) },
		{ 0 },
	};
	int rc = decode_query(r, fields, q, e);
	if (rc < 0)
		return rc;
	if (q->stream && !streq(q->stream, "stdout") && !streq(q->stream, "stderr"))
		return err_set(e, ERR_INVALID, EINVAL, "query parameter \"stream\" must be \"stdout\" or \"stderr\"");
	if (q->follow && q->limit)
		return err_set(e, ERR_INVALID, EINVAL, "query parameters \"follow\" and \"limit\" exclude each other");
	*ret_stream = q->stream && streq(q->stream, "stderr") ? 2 : 1;
	return 0;
}

size_t output_headers(struct header h[static 4], char text[static 96], int stream, uint64_t offset, const struct run_view *v)
{
	uint64_t total = stream == 1 ? v->stdout_bytes : v->stderr_bytes;
	snprintf(text, 24, "%" PRIu64, offset);
	snprintf(text + 24, 24, "%" PRIu64, total);
	h[0] = (struct header){ "X-Caisson-Offset", text };
	h[1] = (struct header){ "X-Caisson-Total", text + 24 };
	h[2] = (struct header){ "X-Caisson-Truncated", v->truncated ? "true" : "false" };
	h[3] = (struct header){ "X-Caisson-Run-State", run_state_name(v->state) };
	return 4;
}

struct output {
	struct native *n;
	struct request *r;
	struct run_ref ref;
	int stream;
	uint64_t offset, end;
	struct buf piece;
};

static void output_free(void *ctx)
{
	struct output *o = ctx;
	run_ref_done(&o->ref);
	buf_done(&o->piece);
	free(o);
}

static int read_more(struct output *o, struct err *e)
{
	uint64_t left = o->end - o->offset;
	size_t max = left < QUEUE_ROOM ? (size_t)left : QUEUE_ROOM;
	buf_consume(&o->piece, o->piece.len);
	int rc = max ? api_run_output(o->n->api, &o->ref.caller, o->ref.sandbox, o->ref.run, o->stream, o->offset, max, &o->piece, e) : 0;
	o->offset += o->piece.len;
	return rc;
}

static enum pump_step step(void *ctx)
{
	struct output *o = ctx;
	struct err e;
	req_write(o->r, buf_str(&o->piece));
	if (read_more(o, &e) < 0) {
		req_abort(o->r);
		return PUMP_END;
	}
	if (o->piece.len)
		return PUMP_MORE;
	req_end(o->r);
	return PUMP_END;
}

static void answer_now(struct native *n, struct request *r, const struct run_ref *ref, const struct output_query *q, int stream,
                       const struct run_view *v)
{
	static const struct pump_ops ops = { step, output_free };
	struct header h[4];
	char text[96];
	struct err e;
	struct output *o = xcalloc(1, sizeof *o);
	uint64_t end = stream == 1 ? v->stdout_bytes : v->stderr_bytes;
	if (q->limit && end > q->offset && end - q->offset > q->limit)
		end = q->offset + q->limit;
	*o = (struct output){ n, r, { ref->caller, xstrdup(ref->sandbox), xstrdup(ref->run) }, stream, q->offset, MAX(end, q->offset), { 0 } };
	buf_init(&o->piece, QUEUE_ROOM);
	size_t n_h = output_headers(h, text, stream, q->offset, v);
	if (read_more(o, &e) < 0) {
		answer_err(n, r, &e);
		output_free(o);
	} else if (o->offset == o->end || o->piece.len == 0) { /* all of it, in one piece */
		req_reply(r, 200, h, n_h, "application/octet-stream", buf_str(&o->piece));
		n->answers[2]++;
		output_free(o);
	} else {
		answer_begin(n, r, h, n_h, "application/octet-stream");
		pump_start(n, r, &ops, o);
	}
}

void native_run_output(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct output_query q = { 0 };
	struct run_view v;
	struct err e;
	int stream = 1, rc = output_query_decode(r, &q, &stream, &e);
	if (rc >= 0)
		rc = api_run_get(n->api, req_caller(r), req_ref(r), req_path_arg(r, "run"), &v, &e);
	if (rc < 0) {
		answer_err(n, r, &e);
	} else {
		struct run_ref ref = run_ref_of(r, NULL);
		if (q.follow)
			answer_follow_raw(n, r, &ref, stream, q.offset, &v);
		else
			answer_now(n, r, &ref, &q, stream, &v);
		run_ref_done(&ref);
	}
	free(q.stream);
}
