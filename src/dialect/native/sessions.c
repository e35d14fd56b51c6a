/* Sessions: long-lived shells that runs share. */
#include "dialect/native/native_int.h"

#include <errno.h>

struct session_body {
	char *id, *cwd;
	struct pairs env;
};

static const struct field session_fields[] = {
	{ .name = "id", .kind = FIELD_STRING, .offset = offsetof(struct session_body, id) },
	{ .name = "cwd", .kind = FIELD_STRING, .offset = offsetof(struct session_body, cwd) },
	{ .name = "env", .kind = FIELD_PAIRS, .offset = offsetof(struct session_body, env) },
	{ 0 },
};

static int session_body_decode(struct str body, struct session_body *ret, struct err *e)
{
	int rc = decode_body(body, session_fields, ret, e);
	if (rc < 0)
		return rc;
	if (!ret->id) {
		ret->id = xmalloc(37);
		random_uuid(ret->id);
	}
	if (!session_id_valid(str_of(ret->id)))
		return err_set(e, ERR_INVALID, EINVAL, "field \"id\" must have 1 to 128 bytes, no '/' and no control characters, and not be \".\" or \"..\"");
	if (ret->cwd && (!*ret->cwd || strlen(ret->cwd) > SPEC_PATH_MAX))
		return err_set(e, ERR_INVALID, EINVAL, "field \"cwd\" must be a path of 1 to %d bytes", SPEC_PATH_MAX);
	return env_validate(&ret->env, e);
}

/* The answer to a create is the session itself, so its name is kept. */
struct opening {
	struct native *n;
	struct request *r;
	char *id;
};

static void opening_free(struct opening *o)
{
	free(o->id);
	free(o);
}

static void opening_gone(void *ctx)
{
	struct opening *o = ctx;
	api_forget(o->n->api, o);
	opening_free(o);
}

static void answer_session(struct native *n, struct request *r, int status, const char *id)
{
	struct session_view v;
	struct err e;
	if (api_session_get(n->api, req_caller(r), req_ref(r), id, &v, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	auto_buf struct buf b;
	buf_init(&b, 8192);
	struct jout j = { .b = &b };
	encode_session(&j, NULL, &v);
	answer_json(n, r, status, &b);
}

static void opened(void *ctx, const struct err *e)
{
	struct opening *o = ctx;
	if (e)
		answer_err(o->n, o->r, e);
	else
		answer_session(o->n, o->r, 201, o->id);
	opening_free(o);
}

void native_session_create(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct session_body body = { 0 };
	struct err e;
	if (session_body_decode(req_body(r), &body, &e) < 0) {
		answer_err(n, r, &e);
	} else {
		struct opening *o = xcalloc(1, sizeof *o);
		*o = (struct opening){ n, r, xstrdup(body.id) };
		req_on_gone(r, opening_gone, o);
		api_session_create(n->api, req_caller(r), req_ref(r), body.id, body.cwd, &body.env, opened, o);
	}
	free(body.id);
	free(body.cwd);
	pairs_done(&body.env);
}

static void add_session(void *ctx, const struct session_view *v)
{
	encode_session(ctx, NULL, v);
}

void native_session_list(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	auto_items struct items l;
	items_begin(&l);
	if (api_session_list(n->api, req_caller(r), req_ref(r), add_session, &l.j, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	answer_items(n, r, 200, &l);
}

void native_session_get(struct request *r, void *dialect)
{
	answer_session(dialect, r, 200, req_path_arg(r, "session"));
}

static void closed(void *ctx, const struct err *e)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	if (e)
		answer_err(n, r, e);
	else
		answer_empty(n, r, 204);
}

void native_session_delete(struct request *r, void *dialect)
{
	struct native *n = dialect;
	api_session_delete(n->api, req_caller(r), req_ref(r), req_path_arg(r, "session"), closed, pending_new(n, r));
}
