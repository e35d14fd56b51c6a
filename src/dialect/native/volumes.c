/* /v1/volumes, and what a create says of them. */
#include "dialect/native/native_int.h"

#include <errno.h>

static void encode_volume(struct jout *j, const char *key, const struct volume_view *v)
{
	jout_object(j, key);
	jout_z(j, "id", v->id);
	jout_z(j, "name", v->name);
	jout_z(j, "state", volume_state_name(v->state));
	jout_u64(j, "size_mib", v->size_mib);
	jout_u64(j, "used_bytes", v->used_bytes);
	jout_u64(j, "sandboxes", v->sandboxes);
	jout_time(j, "created_at", v->created_ms);
	jout_time(j, "used_at", v->used_ms);
	jout_z(j, "owner", v->owner);
	jout_end_object(j);
}

/* --- in a create --- */

static const struct field mount_fields[] = {
	{ .name = "volume", .kind = FIELD_STRING, .offset = offsetof(struct volume_mount, volume), .required = true },
	{ .name = "path", .kind = FIELD_STRING, .offset = offsetof(struct volume_mount, path), .required = true },
	{ .name = "subpath", .kind = FIELD_STRING, .offset = offsetof(struct volume_mount, subpath) },
	{ .name = "read_only", .kind = FIELD_BOOL, .offset = offsetof(struct volume_mount, read_only) },
	{ 0 },
};

int set_volumes(void *into, const char *where, const json_t *v, struct err *e)
{
	struct volume_mounts *m = &((struct sandbox_spec *)into)->volumes;
	if (!json_is_array(v))
		return err_set(e, ERR_INVALID, EINVAL, "%s must be an array", where);
	if (json_array_size(v) > SPEC_VOLUMES_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "%s has %zu entries; at most %d are allowed", where, json_array_size(v), SPEC_VOLUMES_MAX);
	for (size_t i = 0; i < json_array_size(v); i++) {
		const json_t *one = json_array_get(v, i);
		if (!json_is_object(one))
			return err_set(e, ERR_INVALID, EINVAL, "%s must be an array of objects", where);
		if (decode_object(one, mount_fields, volume_mounts_add(m), e) < 0)
			return -EINVAL;
	}
	return 0;
}

void encode_volume_mounts(struct jout *j, const struct volume_mounts *m)
{
	jout_array(j, "volumes");
	for (size_t i = 0; i < m->n; i++) {
		jout_object(j, NULL);
		jout_z(j, "volume", m->v[i].volume);
		jout_z(j, "path", m->v[i].path);
		jout_z(j, "subpath", m->v[i].subpath);
		jout_bool(j, "read_only", m->v[i].read_only);
		jout_end_object(j);
	}
	jout_end_array(j);
}

/* --- create --- */

struct volume_body {
	char *name;
	uint64_t size_mib;
};

static const struct field volume_fields[] = {
	{ .name = "name", .kind = FIELD_STRING, .offset = offsetof(struct volume_body, name) },
	{ .name = "size_mib", .kind = FIELD_U64, .offset = offsetof(struct volume_body, size_mib), .min = VOLUME_MIB_MIN, .max = VOLUME_MIB_MAX },
	{ 0 },
};

static void made(void *ctx, const struct err *e, const struct volume_view *v)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	if (e) {
		answer_err(n, r, e);
		return;
	}
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	encode_volume(&j, NULL, v);
	auto_free char *location = xasprintf("/v1/volumes/%s", v->id);
	answer_created(n, r, location, &b);
}

void native_volume_create(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct volume_body body = { 0 };
	struct err e;
	if (decode_body(req_body(r), volume_fields, &body, &e) < 0)
		answer_err(n, r, &e);
	else
		api_volume_create(n->api, req_caller(r), body.name, body.size_mib, made, pending_new(n, r));
	free(body.name);
}

/* --- list, get, delete --- */

static void add_volume(void *ctx, const struct volume_view *v)
{
	encode_volume(ctx, NULL, v);
}

static void list_measured(void *ctx, const struct err *e)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	auto_items struct items l;
	(void)e;
	items_begin(&l);
	api_volume_list(n->api, req_caller(r), add_volume, &l.j);
	answer_items(n, r, 200, &l);
}

void native_volume_list(struct request *r, void *dialect)
{
	struct native *n = dialect;
	api_volume_measure(n->api, list_measured, pending_new(n, r));
}

static void one_measured(void *ctx, const struct err *e)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	struct volume_view v;
	struct err why;
	(void)e;
	if (api_volume_get(n->api, req_caller(r), req_path_arg(r, "volume"), &v, &why) < 0) {
		answer_err(n, r, &why);
		return;
	}
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	encode_volume(&j, NULL, &v);
	answer_json(n, r, 200, &b);
}

void native_volume_get(struct request *r, void *dialect)
{
	struct native *n = dialect;
	api_volume_measure(n->api, one_measured, pending_new(n, r));
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

void native_volume_delete(struct request *r, void *dialect)
{
	struct native *n = dialect;
	api_volume_delete(n->api, req_caller(r), req_path_arg(r, "volume"), dropped, pending_new(n, r));
}
