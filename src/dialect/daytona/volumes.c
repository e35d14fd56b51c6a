/* Volumes: the calls of the clients' `volume`, and what a create says of them. */
#include "dialect/daytona/internal.h"

#include <errno.h>

static json_t *volume_json(const struct volume_view *v)
{
	static const char *const states[] = { [VOLUME_CREATING] = "creating", [VOLUME_READY] = "ready", [VOLUME_DELETING] = "deleting" };
	json_t *o = json_object();
	put(o, "id", textz_json(v->id));
	put(o, "name", textz_json(v->name));
	put(o, "organizationId", json_string("local"));
	put(o, "state", json_string(states[v->state]));
	put(o, "createdAt", time_json(v->created_ms));
	put(o, "updatedAt", time_json(v->created_ms));
	put(o, "lastUsedAt", v->used_ms ? time_json(v->used_ms) : json_null());
	put(o, "errorReason", json_null());
	return o;
}

static void add_volume(void *ctx, const struct volume_view *v)
{
	json_array_append_new(ctx, volume_json(v));
}

static void handle_all(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	json_t *items = json_array();
	api_volume_list(d->api, caller_of(r), add_volume, items);
	req_reply_json(r, 200, items);
}

static void on_created(void *ctx, const struct err *e, const struct volume_view *v)
{
	struct call *c = ctx;
	if (e)
		call_fail(c, e);
	else
		call_json(c, 200, volume_json(v));
}

static void handle_make(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	const char *name = NULL;
	json_t *body = body_object(r, &e);
	int rc = body ? want_text(body, "name", &name, &e) : -EINVAL;
	if (rc == 0)
		rc = err_set(&e, ERR_INVALID, EINVAL, "name is required");
	if (rc < 0) {
		fail(r, &e);
	} else {
		struct call *c = call_new(sizeof(*c), d, r, NULL);
		api_volume_create(d->api, &c->caller, name, 0, on_created, c);
	}
	json_decref(body);
}

static void handle_get(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct volume_view v;
	struct err e = { 0 };
	if (api_volume_get(d->api, caller_of(r), req_path_arg(r, "volume"), &v, &e) < 0)
		fail(r, &e);
	else
		req_reply_json(r, 200, volume_json(&v));
}

static void on_deleted(void *ctx, const struct err *e)
{
	call_on_done_empty(ctx, e, 200);
}

static void handle_delete(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct call *c = call_new(sizeof(*c), d, r, NULL);
	api_volume_delete(d->api, &c->caller, req_path_arg(r, "volume"), on_deleted, c);
}

/* The clients' users write a '/' at the end of a folder, which changes nothing. */
static char *folder_text(const char *text)
{
	size_t n = strlen(text);
	while (n > 1 && text[n - 1] == '/')
		n--;
	return xstrndup(text, n);
}

int volumes_decode(const json_t *body, struct volume_mounts *ret, struct err *e)
{
	const json_t *list = NULL;
	int rc = want_array(body, "volumes", &list, e);
	for (size_t i = 0; rc >= 0 && i < json_array_size(list); i++) {
		const json_t *one = json_array_get(list, i);
		const char *volume = NULL, *path = NULL, *subpath = NULL;
		if (i >= SPEC_VOLUMES_MAX)
			return err_set(e, ERR_TOO_LARGE, E2BIG, "volumes: at most %d can be mounted into a sandbox", SPEC_VOLUMES_MAX);
		if (!json_is_object(one) || want_text(one, "volumeId", &volume, e) < 0 || want_text(one, "mountPath", &path, e) < 0 ||
		    want_text(one, "subpath", &subpath, e) < 0 || !volume || !path)
			return err_set(e, ERR_INVALID, EINVAL, "volumes must be an array of {volumeId, mountPath, subpath?}, all of them strings");
		struct volume_mount *v = volume_mounts_add(ret);
		v->volume = xstrdup(volume);
		v->path = folder_text(path);
		v->subpath = subpath && *subpath ? folder_text(subpath) : NULL;
	}
	return rc;
}

json_t *volumes_json(const struct volume_mounts *m)
{
	json_t *list = json_array();
	for (size_t i = 0; i < m->n; i++) {
		json_t *one = json_object();
		put(one, "volumeId", textz_json(m->v[i].volume));
		put(one, "mountPath", textz_json(m->v[i].path));
		if (m->v[i].subpath)
			put(one, "subpath", textz_json(m->v[i].subpath));
		json_array_append_new(list, one);
	}
	return list;
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/volumes", .handle = handle_all },
	{ .method = "POST", .pattern = "/volumes", .body = BODY_BUFFER, .handle = handle_make },
	{ .method = "GET", .pattern = "/volumes/{volume}", .handle = handle_get },
	{ .method = "GET", .pattern = "/volumes/by-name/{volume}", .handle = handle_get },
	{ .method = "DELETE", .pattern = "/volumes/{volume}", .handle = handle_delete },
};
const struct route_table volume_routes = { routes, ARRAY_LEN(routes) };
