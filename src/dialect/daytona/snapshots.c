/* Snapshots as this API has them: states of sandboxes that were kept, what is being built, and the images that are here. */
#include "dialect/daytona/build.h"

#include <errno.h>

#define GIB (1024.0 * 1024 * 1024)

static json_t *common_json(const struct daytona *d, const char *id, const char *name, const char *state, const struct resources *res, uint64_t created_ms,
                           uint64_t updated_ms)
{
	json_t *o = json_object();
	put(o, "id", json_string(id));
	put(o, "organizationId", json_string("local"));
	put(o, "name", textz_json(name));
	put(o, "state", json_string(state));
	put(o, "cpu", number_json(res ? res->cpus : 0));
	put(o, "gpu", json_integer(0));
	put(o, "mem", number_json(res ? (double)res->memory_mib / 1024 : 0));
	put(o, "disk", number_json(res ? (double)res->disk_mib / 1024 : 0));
	put(o, "errorReason", json_null());
	put(o, "entrypoint", json_null());
	put(o, "lastUsedAt", json_null());
	put(o, "sourceSandboxId", json_null());
	put(o, "size", json_null());
	put(o, "createdAt", time_json(created_ms));
	put(o, "updatedAt", time_json(updated_ms));
	put(o, "regionIds", json_pack("[s]", d->target));
	return o;
}

static void put_extra(json_t *o, const json_t *extra)
{
	static const char *const keys[] = { ENTRYPOINT_FIELD, "buildInfo", "imageName" };
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		json_t *v = json_object_get(extra, keys[i]);
		if (v && !json_is_null(v))
			json_object_set(o, keys[i], v);
	}
}

static json_t *image_json(const struct daytona *d, const struct image_view *v, const char *name)
{
	struct server_info info = { 0 };
	api_info(d->api, NULL, &info);
	json_t *o = common_json(d, v->digest, name, "active", info.defaults, v->created_ms, v->created_ms);
	put(o, "general", json_true());
	put(o, "imageName", textz_json(name));
	put(o, "size", number_json((double)v->size_bytes / GIB));
	put(o, "ref", json_string(v->digest));
	return o;
}

/* The dialect's own part of what is kept with a snapshot; always a new object. */
static json_t *kept_of(const struct snapshot_view *v)
{
	json_t *whole = v->spec->extra ? json_loads(v->spec->extra, JSON_REJECT_DUPLICATES, NULL) : NULL;
	json_t *ours = json_object_get(whole, "daytona");
	ours = json_is_object(ours) ? json_incref(ours) : json_object();
	json_decref(whole);
	return ours;
}

static json_t *snapshot_json(const struct daytona *d, const struct snapshot_view *v)
{
	json_t *extra = kept_of(v);
	bool inactive = json_is_true(json_object_get(extra, "inactive"));
	const char *state = v->state == SNAPSHOT_CREATING ? "snapshotting" : v->state == SNAPSHOT_DELETING ? "removing" : inactive ? "inactive" : "active";
	json_t *o = common_json(d, v->id, v->name, state, &v->spec->resources, v->created_ms, MAX(v->created_ms, v->used_ms));
	put(o, "general", json_false());
	put(o, "imageName", textz_json(v->spec->image));
	put(o, "size", number_json((double)v->bytes / GIB));
	put(o, "ref", json_string(v->id));
	put(o, "sourceSandboxId", textz_json(json_is_true(json_object_get(extra, "built")) ? NULL : v->sandbox));
	if (v->used_ms)
		put(o, "lastUsedAt", time_json(v->used_ms));
	put_extra(o, extra);
	json_decref(extra);
	return o;
}

static json_t *build_json(const struct daytona *d, const struct build_view *v)
{
	static const char *const states[] = { [BUILD_RUNNING] = "building", [BUILD_DONE] = "active", [BUILD_FAILED] = "build_failed" };
	struct resources res = v->spec->resources;
	resources_fill(&res, false);
	json_t *o = common_json(d, v->id, v->name, states[v->state], &res, v->created_ms, v->updated_ms);
	put(o, "general", json_false());
	put(o, "imageName", textz_json(v->spec->image));
	if (v->error)
		put(o, "errorReason", textz_json(v->error));
	put_extra(o, v->extra);
	return o;
}

/* --- list and get --- */

struct snapshot_list {
	struct daytona *d;
	const char *source; /* only those of this sandbox, or NULL */
	json_t *items;
};

static void add_image(void *ctx, const struct image_view *v)
{
	struct snapshot_list *l = ctx;
	if (!v->names || !v->names[0])
		json_array_append_new(l->items, image_json(l->d, v, v->digest));
	for (size_t i = 0; v->names && v->names[i]; i++)
		json_array_append_new(l->items, image_json(l->d, v, v->names[i]));
}

static void add_snapshot(void *ctx, const struct snapshot_view *v)
{
	struct snapshot_list *l = ctx;
	if (!snapshot_is_layer(v) && (!l->source || streq(l->source, v->sandbox)))
		json_array_append_new(l->items, snapshot_json(l->d, v));
}

static void add_build(void *ctx, const struct build_view *v)
{
	struct snapshot_list *l = ctx;
	json_array_append_new(l->items, build_json(l->d, v));
}

static void handle_list(struct request *r, void *daytona)
{
	struct snapshot_list l = { .d = daytona, .items = json_array(), .source = req_query(r, "sourceSandboxId") };
	struct err e = { 0 };
	int64_t page = 1, limit = 100;
	const char *text;
	int rc = 0;
	if ((text = req_query(r, "page")))
		rc = parse_int("page", text, 1, 1000000000, &page, &e);
	if (rc >= 0 && (text = req_query(r, "limit")))
		rc = parse_int("limit", text, 1, 200, &limit, &e);
	if (rc >= 0) {
		api_snapshot_list(l.d->api, caller_of(r), add_snapshot, &l);
		if (!l.source)
			build_each(l.d, caller_of(r), add_build, &l);
		if (!l.source)
			rc = api_image_list(l.d->api, caller_of(r), add_image, &l, &e);
	}
	if (rc < 0)
		fail(r, &e);
	else {
		json_t *items = json_array();
		size_t total = json_array_size(l.items), from = (size_t)((page - 1) * limit);
		for (size_t i = from; i < total && i < from + (size_t)limit; i++)
			json_array_append(items, json_array_get(l.items, i));
		req_reply_json(r, 200, page_json(items, total, page, (size_t)limit));
	}
	json_decref(l.items);
}

static void handle_get(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct snapshot_view s;
	struct build_view b;
	struct image_view v;
	const char *ref = req_path_arg(r, "snapshot");
	bool built = build_find(d, caller_of(r), ref, &b) && b.name;
	/* The build's id goes on to mean what came of it: clients poll by it. */
	if (api_snapshot_get(d->api, caller_of(r), built && b.state == BUILD_DONE ? b.name : ref, &s, &e) == 0)
		req_reply_json(r, 200, snapshot_json(d, &s));
	else if (built && b.state != BUILD_DONE)
		req_reply_json(r, 200, build_json(d, &b));
	else if (api_image_get(d->api, caller_of(r), ref, &v, &e) < 0)
		fail(r, &e);
	else
		req_reply_json(r, 200, image_json(d, &v, streq(ref, v.digest) && v.names && v.names[0] ? v.names[0] : ref));
}

/* --- delete, activate --- */

static void on_deleted(void *ctx, const struct err *e)
{
	call_on_done_empty(ctx, e, 200);
}

static void handle_delete(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct snapshot_view s;
	struct build_view b;
	const char *ref = req_path_arg(r, "snapshot");
	if (api_snapshot_get(d->api, caller_of(r), ref, &s, &e) == 0) {
		struct call *c = call_new(sizeof(*c), d, r, NULL);
		(void)build_dismiss(d, &c->caller, s.name);
		api_snapshot_delete(d->api, &c->caller, ref, on_deleted, c);
	} else if (build_find(d, caller_of(r), ref, &b) && b.name && b.state == BUILD_RUNNING) {
		struct call *c = call_new(sizeof(*c), d, r, NULL);
		(void)build_cancel(d, &c->caller, ref, on_deleted, c);
	} else if (build_dismiss(d, caller_of(r), ref)) {
		req_reply_empty(r, 200);
	} else if (api_image_remove(d->api, caller_of(r), ref, &e) < 0) {
		fail(r, &e);
	} else {
		req_reply_empty(r, 200);
	}
}

/* Whether it may be used is kept with it; an image always may. */
static bool set_active(struct daytona *d, struct request *r, bool active)
{
	struct err e = { 0 };
	struct snapshot_view s;
	struct image_view image;
	const char *ref = req_path_arg(r, "snapshot");
	if (api_snapshot_get(d->api, caller_of(r), ref, &s, &e) < 0) {
		if (api_image_get(d->api, caller_of(r), ref, &image, &e) == 0) {
			if (active)
				return true;
			err_set(&e, ERR_DENIED, EPERM, "%.128s is an image of this server, which is active for all", ref);
		}
		fail(r, &e);
		return false;
	}
	json_t *extra = kept_of(&s);
	put(extra, "inactive", json_boolean(!active));
	auto_free char *text = extra_text(s.spec->extra, extra);
	json_decref(extra);
	if (api_snapshot_set_extra(d->api, caller_of(r), ref, text, &e) == 0)
		return true;
	fail(r, &e);
	return false;
}

static void handle_activate(struct request *r, void *daytona)
{
	if (set_active(daytona, r, true))
		handle_get(r, daytona);
}

static void handle_deactivate(struct request *r, void *daytona)
{
	if (set_active(daytona, r, false))
		req_reply_empty(r, 204);
}

int snapshot_usable(struct daytona *d, const struct caller *c, const char *ref, json_t **ret_extra, struct err *e)
{
	struct err quiet;
	struct snapshot_view v;
	if (api_snapshot_get(d->api, c, ref, &v, &quiet) < 0)
		return 0;
	json_t *extra = kept_of(&v);
	if (json_is_true(json_object_get(extra, "inactive"))) {
		json_decref(extra);
		return err_set(e, ERR_INVALID, EINVAL, "snapshot: %.128s is inactive; activate it first", ref);
	}
	*ret_extra = extra;
	return 1;
}

/* --- create --- */

struct making {
	struct call call;
	char *name;
};

static void making_drop(struct call *c)
{
	struct making *x = container_of(c, struct making, call);
	build_forget_starter(c->d, x);
	free(x->name);
}

static void on_started(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct making *x = ctx;
	struct build_view b;
	(void)v;
	if (e) {
		struct err copy = *e;
		call_fail(&x->call, &copy);
	} else if (build_find(x->call.d, &x->call.caller, x->name, &b)) {
		call_json(&x->call, 200, build_json(x->call.d, &b));
	}
}

static int decode_source(struct daytona *d, const struct caller *c, const json_t *body, struct dockerfile *f, char ***hashes, json_t *extra, struct err *e)
{
	const json_t *info = json_object_get(body, "buildInfo");
	const char *image = NULL, *text = NULL;
	char **entrypoint = NULL;
	int rc = want_text(body, "imageName", &image, e);
	if (rc < 0 || (rc = want_texts(body, "entrypoint", &entrypoint, e)) < 0)
		return rc;
	bool built = info && !json_is_null(info);
	if (built == (image && *image)) {
		rc = err_set(e, ERR_INVALID, EINVAL, "give imageName or buildInfo");
	} else if (built) {
		rc = build_info(info, f, hashes, &text, e);
	} else {
		f->image = xstrdup(image);
		put(extra, "imageName", textz_json(image));
	}
	if (rc == 0)
		put(extra, ENTRYPOINT_FIELD, entrypoint && entrypoint[0] ? entrypoint_json(entrypoint) : entrypoint_of(d, c, f));
	put(extra, "built", json_true());
	if (rc == 0 && built)
		put(extra, "buildInfo", build_info_json(text, f->image));
	texts_free(entrypoint);
	return rc;
}

static void handle_make(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct dockerfile f = { 0 };
	struct sandbox_spec spec;
	struct snapshot_view s;
	const char *name = NULL;
	char **hashes = NULL;
	json_t *body = body_object(r, &e), *extra = json_object();
	spec_init(&spec);
	spec.network = d->network;
	spec.network_unasked = true;
	int rc = body ? want_text(body, "name", &name, &e) : -EINVAL;
	if (rc >= 0 && (!name || !snapshot_name_valid(str_of(name))))
		rc = err_set(&e, ERR_INVALID, EINVAL, "name: a snapshot needs one, of letters, digits and ._:/@+-");
	if (rc >= 0 && (rc = want_resources(body, &spec.resources, &e)) >= 0)
		rc = decode_source(d, caller_of(r), body, &f, &hashes, extra, &e);
	struct err quiet;
	if (rc >= 0 && (api_snapshot_get(d->api, caller_of(r), name, &s, &quiet) == 0 || build_under_way(d, caller_of(r), name)))
		rc = err_set(&e, ERR_CONFLICT, EEXIST, "a snapshot with the name %.128s exists already", name);
	if (rc < 0) {
		fail(r, &e);
		json_decref(extra);
		strv_free(hashes);
	} else {
		struct making *x = call_new(sizeof(*x), d, r, making_drop);
		(void)build_dismiss(d, &x->call.caller, name);
		x->name = xstrdup(name);
		free(spec.image);
		spec.image = xstrdup(f.image);
		spec.user = xstrdup(f.user);
		spec.workdir = xstrdup(f.workdir);
		pairs_add(&spec.labels, "caisson.build", name);
		build_start(d, &x->call.caller, &spec, &f, hashes, name, extra, on_started, x);
	}
	json_decref(body);
	spec_done(&spec);
	dockerfile_done(&f);
}

/* --- of a sandbox --- */

static void on_taken(void *ctx, const struct err *e, const struct snapshot_view *v)
{
	struct call *c = ctx;
	struct sandbox_view s;
	struct err why;
	(void)v;
	if (e || api_sandbox_get(c->d->api, &c->caller, c->ref, &s, &why) < 0) {
		call_fail(c, e ? e : &why);
		return;
	}
	auto_free char *base = base_url(c->d, c->r);
	call_json(c, 200, sandbox_json(c->d, base, &s, false));
}

/* What is known of the sandbox's image is known of its snapshot; nothing else that is kept with the sandbox is the snapshot's. */
static char *passed_on(const struct call *c)
{
	struct sandbox_view v;
	struct err quiet;
	if (api_sandbox_get(c->d->api, &c->caller, c->ref, &v, &quiet) < 0)
		return NULL;
	json_t *of_sandbox = extra_load(&v), *ours = json_object();
	put_extra(ours, of_sandbox);
	char *text = json_object_size(ours) ? extra_text(NULL, ours) : NULL;
	json_decref(of_sandbox);
	json_decref(ours);
	return text;
}

static void handle_snapshot(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	const char *name = NULL;
	bool memory = false;
	json_t *body = body_object(r, &e);
	int rc = body ? want_text(body, "name", &name, &e) : -EINVAL;
	if (rc >= 0)
		rc = want_bool(body, "includeMemory", &memory, &e);
	if (rc >= 0 && (!name || !*name))
		rc = err_set(&e, ERR_INVALID, EINVAL, "name is required");
	if (rc < 0) {
		fail(r, &e);
	} else {
		struct call *c = call_new(sizeof(*c), d, r, NULL);
		auto_free char *extra = passed_on(c);
		api_snapshot_create(d->api, &c->caller, c->ref, name, memory, extra, on_taken, c);
	}
	json_decref(body);
}

static void on_forked(void *ctx, const struct err *e, const struct sandbox_view *children, size_t n)
{
	struct call *c = ctx;
	if (e || n == 0) {
		struct err copy = { 0 };
		if (e)
			copy = *e;
		else
			err_set(&copy, ERR_GONE, ESRCH, "the child was deleted meanwhile");
		if (copy.kind == ERR_NOT_FOUND)
			sandbox_not_found(&copy, c->ref);
		call_fail(c, &copy);
		return;
	}
	entrypoint_start(c->d, &c->caller, &children[0]); /* unless it came along */
	auto_free char *base = base_url(c->d, c->r);
	call_json(c, 200, sandbox_json(c->d, base, &children[0], false));
}

static void handle_fork(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	const char *name = NULL;
	json_t *body = body_object(r, &e);
	if (!body || want_text(body, "name", &name, &e) < 0) {
		fail(r, &e);
	} else {
		struct call *c = call_new(sizeof(*c), d, r, NULL);
		api_sandbox_fork(d->api, &c->caller, c->ref, 1, name && *name ? name : NULL, on_forked, c);
	}
	json_decref(body);
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/snapshots", .handle = handle_list },
	{ .method = "POST", .pattern = "/snapshots", .body = BODY_BUFFER, .handle = handle_make },
	{ .method = "GET", .pattern = "/snapshots/{snapshot}", .handle = handle_get },
	{ .method = "DELETE", .pattern = "/snapshots/{snapshot}", .handle = handle_delete },
	{ .method = "POST", .pattern = "/snapshots/{snapshot}/activate", .handle = handle_activate },
	{ .method = "POST", .pattern = "/snapshots/{snapshot}/deactivate", .handle = handle_deactivate },
	{ .method = "POST", .pattern = "/sandbox/{id}/snapshot", .body = BODY_BUFFER, .handle = handle_snapshot },
	{ .method = "POST", .pattern = "/sandbox/{id}/fork", .body = BODY_BUFFER, .handle = handle_fork },
};
const struct route_table snapshot_routes = { routes, ARRAY_LEN(routes) };
