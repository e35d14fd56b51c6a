/* /v1/snapshots, and the fork of a sandbox. */
#include "dialect/native/native_int.h"
#include "wire/urlencode.h"

#include <errno.h>

static void answer_snapshot(struct native *n, struct request *r, int status, const struct snapshot_view *v)
{
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	encode_snapshot(&j, NULL, v);
	if (status == 201) {
		auto_free char *location = xasprintf("/v1/snapshots/%s", v->id);
		answer_created(n, r, location, &b);
	} else {
		answer_json(n, r, status, &b);
	}
}

/* --- create --- */

struct snapshot_body {
	char *sandbox, *name;
	bool memory;
};

static const struct field snapshot_fields[] = {
	{ .name = "sandbox", .kind = FIELD_STRING, .offset = offsetof(struct snapshot_body, sandbox), .required = true },
	{ .name = "name", .kind = FIELD_STRING, .offset = offsetof(struct snapshot_body, name) },
	{ .name = "memory", .kind = FIELD_BOOL, .offset = offsetof(struct snapshot_body, memory) },
	{ 0 },
};

static void taken(void *ctx, const struct err *e, const struct snapshot_view *v)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	if (e)
		answer_err(n, r, e);
	else
		answer_snapshot(n, r, 201, v);
}

void native_snapshot_create(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct snapshot_body body = { 0 };
	struct err e;
	if (decode_body(req_body(r), snapshot_fields, &body, &e) < 0)
		answer_err(n, r, &e);
	else
		api_snapshot_create(n->api, req_caller(r), body.sandbox, body.name, body.memory, NULL, taken, pending_new(n, r));
	free(body.sandbox);
	free(body.name);
}

/* --- list, get, delete --- */

struct snapshot_list {
	struct jout *j;
	const char *sandbox; /* of this one only, or NULL */
};

static void add_snapshot(void *ctx, const struct snapshot_view *v)
{
	struct snapshot_list *l = ctx;
	if (!l->sandbox || streq(l->sandbox, v->sandbox))
		encode_snapshot(l->j, NULL, v);
}

void native_snapshot_list(struct request *r, void *dialect)
{
	static const struct field fields[] = { { .name = "sandbox", .kind = FIELD_STRING, .offset = 0 }, { 0 } };
	struct native *n = dialect;
	char *sandbox = NULL;
	struct err e;
	if (decode_query(r, fields, &sandbox, &e) < 0) {
		answer_err(n, r, &e);
		free(sandbox);
		return;
	}
	auto_items struct items l;
	items_begin(&l);
	api_snapshot_list(n->api, req_caller(r), add_snapshot, &(struct snapshot_list){ &l.j, sandbox });
	answer_items(n, r, 200, &l);
	free(sandbox);
}

/* A name may hold slashes, so it is the rest of the path. Heap, or NULL and e. */
static char *snapshot_ref(const struct request *r, struct err *e)
{
	struct str raw = str_of(req_path_arg(r, "snapshot"));
	auto_free char *ref = xmalloc(raw.n + 1);
	if (url_decode(raw, URL_PERCENT, ref) >= 0 && snapshot_name_valid(str_of(ref)))
		return take_ptr(&ref);
	err_set(e, ERR_INVALID, EINVAL, "the path does not end in the name or id of a snapshot");
	return NULL;
}

void native_snapshot_get(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct snapshot_view v;
	struct err e;
	auto_free char *ref = snapshot_ref(r, &e);
	if (!ref || api_snapshot_get(n->api, req_caller(r), ref, &v, &e) < 0)
		answer_err(n, r, &e);
	else
		answer_snapshot(n, r, 200, &v);
}

static void dropped(void *ctx, const struct err *e)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	if (e && e->kind != ERR_NOT_FOUND) /* gone before: what was asked for is so */
		answer_err(n, r, e);
	else
		answer_empty(n, r, 204);
}

void native_snapshot_delete(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	auto_free char *ref = snapshot_ref(r, &e);
	if (!ref)
		answer_err(n, r, &e);
	else
		api_snapshot_delete(n->api, req_caller(r), ref, dropped, pending_new(n, r));
}

/* --- fork --- */

struct fork_body {
	uint64_t count;
	char *name;
};

static const struct field fork_fields[] = {
	{ .name = "count", .kind = FIELD_U64, .offset = offsetof(struct fork_body, count), .min = 1, .max = 100 },
	{ .name = "name", .kind = FIELD_STRING, .offset = offsetof(struct fork_body, name) },
	{ 0 },
};

static void forked(void *ctx, const struct err *e, const struct sandbox_view *children, size_t count)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	if (e) {
		answer_err(n, r, e);
		return;
	}
	auto_items struct items l;
	items_begin(&l);
	for (size_t i = 0; i < count; i++)
		encode_sandbox(&l.j, NULL, &children[i]);
	answer_items(n, r, 201, &l);
}

void native_sandbox_fork(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct fork_body body = { .count = 1 };
	struct err e;
	int rc = decode_body(req_body(r), fork_fields, &body, &e);
	if (rc >= 0 && body.name) {
		struct sandbox_spec s = { .name = body.name };
		rc = spec_validate(&s, &e);
	}
	if (rc < 0)
		answer_err(n, r, &e);
	else
		api_sandbox_fork(n->api, req_caller(r), req_ref(r), body.count, body.name, forked, pending_new(n, r));
	free(body.name);
}
