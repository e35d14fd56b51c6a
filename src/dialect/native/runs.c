/* Runs: made, looked at, ended, signalled. What streams is in run_result.c, run_output.c, run_follow.c, run_stdin.c, attach.c. */
#include "dialect/native/native_int.h"

#include <errno.h>

/* One POST .../runs. It lives until the run has its id (detached, streamed) or its end (buffered), or the client has left. */
struct exec {
	struct native *n;
	struct request *r; /* NULL: the client has left */
	struct run_ref ref; /* run NULL until it is known */
	bool stream, detach, kill;
};

static void exec_free(struct exec *x)
{
	run_ref_done(&x->ref);
	free(x);
}

static void cancel(struct exec *x)
{
	struct err e;
	(void)api_run_cancel(x->n->api, &x->ref.caller, x->ref.sandbox, x->ref.run, &e); /* it may have ended: then all is well */
}

static void exec_gone(void *ctx)
{
	struct exec *x = ctx;
	if (x->kill && !x->ref.run) {
		x->r = NULL; /* the cancel needs the id that is still to come */
		return;
	}
	api_forget(x->n->api, x);
	if (x->kill)
		cancel(x);
	exec_free(x);
}

static void exec_ended(void *ctx, const struct err *e, const struct run_view *v)
{
	struct exec *x = ctx;
	if (e)
		answer_err(x->n, x->r, e);
	else
		answer_result(x->n, x->r, &x->ref, v);
	exec_free(x);
}

static void answer_detached(struct native *n, struct request *r, const struct run_ref *ref, const struct run_view *v)
{
	auto_free char *location = xasprintf("/v1/sandboxes/%s/runs/%s", ref->sandbox, ref->run);
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	encode_run(&j, NULL, v);
	/* The sandbox's name as it came in the path, decoded: only what can stand in a header is given back. */
	for (const char *p = location; *p; p++)
		if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f) {
			answer_json(n, r, 201, &b);
			return;
		}
	answer_created(n, r, location, &b);
}

static void exec_started(void *ctx, const struct err *e, const struct run_view *v)
{
	struct exec *x = ctx;
	if (!e)
		x->ref.run = xstrdup(v->id);
	if (!x->r) {
		if (!e)
			cancel(x);
		exec_free(x);
		return;
	}
	if (!e && !x->stream && !x->detach) {
		struct run_ref *ref = &x->ref;
		api_run_wait(x->n->api, &ref->caller, ref->sandbox, ref->run, exec_ended, x); /* x may be gone after this */
		return;
	}
	if (e)
		answer_err(x->n, x->r, e);
	else if (x->stream)
		answer_events(x->n, x->r, &x->ref, 0, 0, x->kill);
	else
		answer_detached(x->n, x->r, &x->ref, v);
	exec_free(x);
}

static bool wants_stream(const struct request *r)
{
	struct str accept = req_header(r, "Accept");
	return accept.n && memmem(accept.p, accept.n, "application/x-ndjson", 20);
}

void native_run_create(struct request *r, void *dialect)
{
	struct { bool stream; } query = { wants_stream(r) };
	static const struct field fields[] = { { .name = "stream", .kind = FIELD_BOOL }, { 0 } };
	struct native *n = dialect;
	struct run_spec spec;
	struct err e;
	int rc = native_run_decode(r, &spec, &e);
	if (rc >= 0)
		rc = decode_query(r, fields, &query, &e);
	if (rc >= 0 && spec.detach && req_query(r, "stream") && query.stream)
		rc = err_set(&e, ERR_INVALID, EINVAL, "\"detach\": true and ?stream=1 exclude each other: a stream is what a detached run does without");
	if (rc < 0) {
		answer_err(n, r, &e);
	} else {
		struct exec *x = xcalloc(1, sizeof *x);
		*x = (struct exec){ n, r, { *req_caller(r), xstrdup(req_ref(r)), NULL }, query.stream && !spec.detach, spec.detach,
			            spec.kill_on_disconnect && !spec.detach };
		req_on_gone(r, exec_gone, x);
		api_run_start(n->api, req_caller(r), req_ref(r), &spec, exec_started, x);
	}
	run_spec_done(&spec);
}

/* --- look --- */

static void add_run(void *ctx, const struct run_view *v)
{
	encode_run(ctx, NULL, v);
}

void native_run_list(struct request *r, void *dialect)
{
	struct { char *session; } query = { 0 };
	static const struct field fields[] = { { .name = "session", .kind = FIELD_STRING }, { 0 } };
	struct native *n = dialect;
	struct err e;
	auto_items struct items l;
	items_begin(&l);
	int rc = decode_query(r, fields, &query, &e);
	if (rc >= 0 && query.session && !session_id_valid(str_of(query.session)))
		rc = err_set(&e, ERR_INVALID, EINVAL, "query parameter \"session\" is not the id of a session");
	if (rc >= 0)
		rc = api_run_list(n->api, req_caller(r), req_ref(r), query.session, add_run, &l.j, &e);
	free(query.session);
	if (rc < 0) {
		answer_err(n, r, &e);
		return;
	}
	answer_items(n, r, 200, &l);
}

/* One GET .../runs/{run}?wait */
struct waiting {
	struct native *n;
	struct request *r;
	struct run_ref ref;
	bool output;
};

static void waiting_free(struct waiting *w)
{
	run_ref_done(&w->ref);
	free(w);
}

static void waiting_gone(void *ctx)
{
	struct waiting *w = ctx;
	api_forget(w->n->api, w);
	waiting_free(w);
}

static void answer_run(struct native *n, struct request *r, const struct run_ref *ref, const struct run_view *v, bool output)
{
	if (output) {
		answer_result(n, r, ref, v);
		return;
	}
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	encode_run(&j, NULL, v);
	answer_json(n, r, 200, &b);
}

static void waiting_done(void *ctx, const struct err *e, const struct run_view *v)
{
	struct waiting *w = ctx;
	if (e)
		answer_err(w->n, w->r, e);
	else
		answer_run(w->n, w->r, &w->ref, v, w->output);
	waiting_free(w);
}

void native_run_get(struct request *r, void *dialect)
{
	struct query { bool wait, output; } query = { 0 };
	static const struct field fields[] = {
		{ .name = "wait", .kind = FIELD_BOOL, .offset = offsetof(struct query, wait) },
		{ .name = "output", .kind = FIELD_BOOL, .offset = offsetof(struct query, output) },
		{ 0 },
	};
	struct native *n = dialect;
	struct run_view v;
	struct err e;
	if (decode_query(r, fields, &query, &e) < 0 ||
	    api_run_get(n->api, req_caller(r), req_ref(r), req_path_arg(r, "run"), &v, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	if (!query.wait || run_view_ended(&v)) {
		struct run_ref ref = run_ref_of(r, NULL);
		answer_run(n, r, &ref, &v, query.output);
		run_ref_done(&ref);
		return;
	}
	struct waiting *w = xcalloc(1, sizeof *w);
	*w = (struct waiting){ n, r, run_ref_of(r, NULL), query.output };
	req_on_gone(r, waiting_gone, w);
	api_run_wait(n->api, req_caller(r), req_ref(r), req_path_arg(r, "run"), waiting_done, w);
}

/* --- act --- */

static void answer_verb(struct native *n, struct request *r, int rc, const struct err *e)
{
	if (rc < 0)
		answer_err(n, r, e);
	else
		answer_empty(n, r, 204);
}

void native_run_cancel(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct run_view v;
	struct err e;
	int rc = api_run_get(n->api, req_caller(r), req_ref(r), req_path_arg(r, "run"), &v, &e);
	if (rc >= 0 && !run_view_ended(&v))
		rc = api_run_cancel(n->api, req_caller(r), req_ref(r), req_path_arg(r, "run"), &e);
	answer_verb(n, r, rc, &e);
}

struct signal_body {
	int signo;
	bool tree;
};

static int set_signal(void *into, const char *where, const json_t *v, struct err *e)
{
	return decode_signal(where, v, &((struct signal_body *)into)->signo, e);
}

void native_run_signal(struct request *r, void *dialect)
{
	static const struct field fields[] = {
		{ .name = "signal", .kind = FIELD_CUSTOM, .set = set_signal, .required = true },
		{ .name = "tree", .kind = FIELD_BOOL, .offset = offsetof(struct signal_body, tree) },
		{ 0 },
	};
	struct native *n = dialect;
	struct signal_body b = { 0 };
	struct err e;
	int rc = decode_body(req_body(r), fields, &b, &e);
	if (rc >= 0)
		rc = api_run_signal(n->api, req_caller(r), req_ref(r), req_path_arg(r, "run"), b.signo, b.tree, &e);
	answer_verb(n, r, rc, &e);
}

void native_run_resize(struct request *r, void *dialect)
{
	struct size { uint16_t rows, cols; } size = { 0 };
	static const struct field fields[] = {
		{ .name = "rows", .kind = FIELD_U16, .offset = offsetof(struct size, rows), .min = 1, .required = true },
		{ .name = "cols", .kind = FIELD_U16, .offset = offsetof(struct size, cols), .min = 1, .required = true },
		{ 0 },
	};
	struct native *n = dialect;
	struct err e;
	int rc = decode_body(req_body(r), fields, &size, &e);
	if (rc >= 0)
		rc = api_run_resize(n->api, req_caller(r), req_ref(r), req_path_arg(r, "run"), size.rows, size.cols, &e);
	answer_verb(n, r, rc, &e);
}
