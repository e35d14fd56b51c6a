/* A body into a run's standard input, as fast as the command takes it.
 *
 * The bytes that do not fit yet wait here while the client is not read; a follower that wants no output tells when there is room
 * again, and when the run has ended. */
#include "dialect/native/native_int.h"

#include <errno.h>

struct feed {
	struct native *n;
	struct request *r;
	struct run_ref ref;
	struct follower *f;
	struct buf waiting; /* at most one read of the server's */
	bool close, complete;
};

enum { WAITING_MAX = 4 << 20 };

static void feed_free(struct feed *d)
{
	if (d->f)
		follower_free(d->f);
	buf_done(&d->waiting);
	run_ref_done(&d->ref);
	free(d);
}

static void fail(struct feed *d, const struct err *e)
{
	answer_err(d->n, d->r, e);
	feed_free(d);
}

/* Gives what is waiting; answers when that was all. */
static void push(struct feed *d)
{
	struct run_ref *ref = &d->ref;
	struct err e;
	while (d->waiting.len) {
		ssize_t took = api_run_write(d->n->api, &ref->caller, ref->sandbox, ref->run, buf_str(&d->waiting), &e);
		if (took < 0) {
			fail(d, &e);
			return;
		}
		if (took == 0)
			break;
		buf_consume(&d->waiting, (size_t)took);
	}
	if (d->waiting.len) {
		req_body_pause(d->r);
	} else if (!d->complete) {
		req_body_resume(d->r);
	} else if (d->close && api_run_close_stdin(d->n->api, &ref->caller, ref->sandbox, ref->run, &e) < 0) {
		fail(d, &e);
	} else {
		answer_empty(d->n, d->r, 204);
		feed_free(d);
	}
}

static void on_bytes(void *ctx, struct str bytes)
{
	struct feed *d = ctx;
	if (buf_add(&d->waiting, bytes.p, bytes.n) < 0) {
		struct err e;
		err_set(&e, ERR_INTERNAL, ENOBUFS, "input came faster than it was asked for");
		fail(d, &e);
		return;
	}
	push(d);
}

static void on_body_end(void *ctx)
{
	struct feed *d = ctx;
	d->complete = true;
	push(d);
}

static void on_stdin_room(void *ctx)
{
	struct feed *d = ctx;
	if (d->waiting.len)
		push(d);
}

static void on_run_end(void *ctx, const struct run_view *v)
{
	struct feed *d = ctx;
	struct err e;
	err_set(&e, ERR_GONE, EPIPE, "the run has ended (state %s) before it took all of its input", run_state_name(v->state));
	fail(d, &e);
}

static void on_output(void *ctx, int stream, uint64_t offset, struct str bytes)
{
	(void)ctx, (void)stream, (void)offset, (void)bytes; /* none is asked for */
}

static void on_gone(void *ctx)
{
	feed_free(ctx);
}

void native_run_stdin(struct request *r, void *dialect)
{
	static const struct field fields[] = { { .name = "close", .kind = FIELD_BOOL }, { 0 } };
	static const struct follower_events events = { .on_output = on_output, .on_stdin_room = on_stdin_room, .on_end = on_run_end };
	static const struct body_events body = { .on_bytes = on_bytes, .on_end = on_body_end };
	struct { bool close; } query = { false };
	struct native *n = dialect;
	struct run_view v;
	struct err e;
	int rc = decode_query(r, fields, &query, &e);
	if (rc >= 0)
		rc = api_run_get(n->api, req_caller(r), req_ref(r), req_path_arg(r, "run"), &v, &e);
	if (rc >= 0 && run_view_ended(&v))
		rc = err_set(&e, ERR_GONE, EPIPE, "the run has ended; its input is closed");
	if (rc >= 0) /* an empty write asks whether the input is open */
		rc = api_run_write(n->api, req_caller(r), req_ref(r), req_path_arg(r, "run"), STR(""), &e) < 0 ? -EPIPE : 0;
	if (rc < 0) {
		answer_err(n, r, &e);
		return;
	}
	struct feed *d = xcalloc(1, sizeof *d);
	*d = (struct feed){ .n = n, .r = r, .ref = run_ref_of(r, NULL), .close = query.close };
	buf_init(&d->waiting, WAITING_MAX);
	d->f = api_run_follow(n->api, &d->ref.caller, d->ref.sandbox, d->ref.run, UINT64_MAX, UINT64_MAX, &events, d, &e);
	if (!d->f) {
		fail(d, &e);
		return;
	}
	req_on_gone(r, on_gone, d);
	req_read_body(r, &body, d);
}
