/* Sandboxes of the control plane: their JSON, and every call on one but create. */
#include "dialect/daytona/build.h"

#include <errno.h>
#include <stdio.h>
#include <strings.h>

/* --- encoding --- */

static const struct {
	const char *state, *desired;
} states[SANDBOX_STATE_COUNT] = {
	[SANDBOX_CREATING] = { "creating", "started" },
	[SANDBOX_RUNNING] = { "started", "started" },
	[SANDBOX_PAUSED] = { "paused", "paused" },
	[SANDBOX_STOPPING] = { "stopping", "stopped" },
	[SANDBOX_STOPPED] = { "stopped", "stopped" },
	[SANDBOX_STARTING] = { "starting", "started" },
	[SANDBOX_DELETING] = { "destroying", "destroyed" },
	[SANDBOX_DELETED] = { "destroyed", "destroyed" },
	[SANDBOX_ERROR] = { "error", NULL },
	[SANDBOX_SUSPENDING] = { "paused", "paused" },
	[SANDBOX_SUSPENDED] = { "paused", "paused" },
	[SANDBOX_RESUMING] = { "starting", "started" },
};

const char *sandbox_state_word(enum sandbox_state s)
{
	return states[s].state;
}

json_t *extra_load(const struct sandbox_view *v)
{
	json_t *whole = v->spec->extra ? json_loads(v->spec->extra, JSON_REJECT_DUPLICATES, NULL) : NULL;
	json_t *ours = json_object_get(whole, "daytona");
	ours = json_is_object(ours) ? json_incref(ours) : json_object();
	json_decref(whole);
	return ours;
}

char *extra_text(const char *whole, json_t *ours)
{
	json_t *o = whole ? json_loads(whole, JSON_REJECT_DUPLICATES, NULL) : NULL;
	if (!json_is_object(o)) {
		json_decref(o);
		o = json_object();
	}
	json_object_set(o, "daytona", ours);
	char *text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	return text;
}

int extra_put(struct daytona *d, const struct caller *c, const struct sandbox_view *v, const char *key, json_t *take, struct err *e)
{
	json_t *ours = extra_load(v);
	put(ours, key, take);
	auto_free char *text = extra_text(v->spec->extra, ours);
	json_decref(ours);
	return api_sandbox_set_extra(d->api, c, v->id, text, e);
}

static void put_copy(json_t *to, const char *key, const json_t *from)
{
	json_t *v = json_object_get(from, key);
	if (v)
		json_object_set(to, key, v);
}

static void put_lifetime(json_t *o, const struct sandbox_view *v, const json_t *extra)
{
	const struct lifetime *l = &v->spec->lifetime;
	put(o, "autoStopInterval", json_integer((json_int_t)((l->idle_s + 59) / 60)));
	json_t *archive = json_object_get(extra, "autoArchiveInterval");
	put(o, "autoArchiveInterval", json_is_integer(archive) ? json_incref(archive) : json_integer(10080));
	put(o, "autoPauseInterval", json_integer(0));
	put(o, "autoDeleteInterval", json_integer(l->delete_after_s < 0 ? -1 : (json_int_t)((l->delete_after_s + 59) / 60)));
	if (l->max_s)
		put(o, "autoDestroyAt", time_json(v->created_ms + l->max_s * 1000));
}

/* The state of one whose image is being built in it, or could not be; else NULL. */
static const char *build_word(const struct daytona *d, const struct sandbox_view *v, const json_t *extra, const char **reason)
{
	const char *kept = json_string_value(json_object_get(extra, "build"));
	if (!kept)
		return NULL;
	if (streq(kept, "running") && build_in_sandbox(d, v->id))
		return "building_snapshot";
	*reason = json_string_value(json_object_get(extra, "buildError"));
	if (!*reason)
		*reason = "the server was restarted while the image was built";
	return "build_failed";
}

json_t *sandbox_json(const struct daytona *d, const char *base, const struct sandbox_view *v, bool item)
{
	json_t *extra = extra_load(v);
	const struct resources *res = &v->spec->resources;
	json_t *o = json_object();
	put(o, "id", json_string(v->id));
	put(o, "organizationId", json_string("local"));
	put(o, "name", textz_json(v->name ? v->name : v->id));
	put(o, "user", textz_json(v->user ? v->user : ""));
	put(o, "labels", pairs_json(&v->spec->labels));
	put(o, "public", json_boolean(json_is_true(json_object_get(extra, "public"))));
	network_put(o, v->spec, extra);
	const char *target = json_string_value(json_object_get(extra, "target"));
	put(o, "target", textz_json(target ? target : d->target));
	put(o, "cpu", number_json(res->cpus));
	put(o, "gpu", json_integer(0));
	put(o, "memory", number_json((double)res->memory_mib / 1024));
	put(o, "disk", number_json((double)res->disk_mib / 1024));
	const char *build = NULL, *reason = v->error;
	if (v->state != SANDBOX_DELETING && v->state != SANDBOX_DELETED)
		build = build_word(d, v, extra, &reason);
	bool archived = v->state == SANDBOX_STOPPED && json_is_true(json_object_get(extra, "archived"));
	put(o, "state", json_string(build ? build : archived ? "archived" : states[v->state].state));
	if (states[v->state].desired)
		put(o, "desiredState", json_string(archived ? "archived" : states[v->state].desired));
	put(o, "recoverable", json_boolean(v->state == SANDBOX_ERROR));
	if (reason)
		put(o, "errorReason", textz_json(reason));
	const char *snapshot = json_string_value(json_object_get(extra, "snapshot"));
	put(o, "snapshot", textz_json(snapshot ? snapshot : v->spec->image ? v->spec->image : "default"));
	put(o, "backupState", json_string("None"));
	put(o, "sandboxClass", json_string(v->accelerator ? "linux-vm" : "container"));
	put_lifetime(o, v, extra);
	put(o, "createdAt", time_json(v->created_ms));
	put(o, "updatedAt", time_json(v->updated_ms));
	put(o, "lastActivityAt", time_json(v->active_ms));
	put(o, "toolboxProxyUrl", json_sprintf("%s" BASE_PATH "/toolbox", base));
	if (!item) {
		put(o, "env", pairs_json(&v->spec->env));
		put(o, "volumes", volumes_json(&v->spec->volumes));
		put(o, "kvm", json_false());
		put_copy(o, "buildInfo", extra);
		put_copy(o, "outboundProxyUrl", extra);
	}
	json_decref(extra);
	return o;
}

/* --- one sandbox --- */

/* Fills *ret, or answers and returns false. Also when it is being deleted: clients read 404 as "destroyed". */
static bool get(struct daytona *d, struct request *r, struct sandbox_view *ret)
{
	struct err e = { 0 };
	const char *ref = req_path_arg(r, "id");
	int rc = api_sandbox_get(d->api, caller_of(r), ref, ret, &e);
	if (rc == 0 && ret->state == SANDBOX_DELETED)
		rc = sandbox_not_found(&e, ref);
	else if (rc < 0 && e.kind == ERR_NOT_FOUND)
		sandbox_not_found(&e, ref);
	if (rc < 0)
		fail(r, &e);
	return rc >= 0;
}

static void reply(struct daytona *d, struct request *r, const struct sandbox_view *v)
{
	auto_free char *base = base_url(d, r);
	req_reply_json(r, 200, sandbox_json(d, base, v, false));
}

static void reply_again(struct daytona *d, struct request *r)
{
	struct sandbox_view v;
	if (get(d, r, &v))
		reply(d, r, &v);
}

static void handle_get(struct request *r, void *daytona)
{
	reply_again(daytona, r);
}

static void on_sandbox(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct call *c = ctx;
	if (e) {
		struct err copy = *e;
		if (copy.kind == ERR_NOT_FOUND)
			sandbox_not_found(&copy, c->ref);
		call_fail(c, &copy);
		return;
	}
	auto_free char *base = base_url(c->d, c->r);
	call_json(c, 200, sandbox_json(c->d, base, v, false));
}

static void on_sandbox_started(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct call *c = ctx;
	if (!e)
		entrypoint_start(c->d, &c->caller, v);
	on_sandbox(ctx, e, v);
}

enum { DO_START, DO_STOP, DO_PAUSE, DO_RESUME };
static void change(struct request *r, struct daytona *d, int what)
{
	static void (*const verbs[])(struct api *, const struct caller *, const char *, api_sandbox_fn, void *) = {
		[DO_START] = api_sandbox_start, [DO_STOP] = api_sandbox_stop, [DO_PAUSE] = api_sandbox_pause, [DO_RESUME] = api_sandbox_resume
	};
	struct call *c = call_new(sizeof(*c), d, r, NULL);
	verbs[what](d->api, &c->caller, c->ref, what == DO_START ? on_sandbox_started : on_sandbox, c);
}

/* A stopped sandbox's disk stays where it is, so being archived is only a word that it goes by until it is started again. */
static bool is_archived(const struct sandbox_view *v)
{
	json_t *extra = extra_load(v);
	bool archived = v->state == SANDBOX_STOPPED && json_is_true(json_object_get(extra, "archived"));
	json_decref(extra);
	return archived;
}

static void handle_archive(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct sandbox_view v;
	struct err e;
	if (!get(d, r, &v))
		return;
	if (v.state != SANDBOX_STOPPED)
		fail_code(r, 400, "BAD_REQUEST", "only a stopped sandbox can be archived: it is %s", sandbox_state_word(v.state));
	else if (extra_put(d, caller_of(r), &v, "archived", json_true(), &e) < 0)
		fail(r, &e);
	else
		reply_again(d, r);
}

static void handle_resize(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct resources res = { 0 };
	struct err e = { 0 };
	json_t *body = body_object(r, &e);
	if (!body || want_resources(body, &res, &e) < 0) {
		fail(r, &e);
	} else {
		struct call *c = call_new(sizeof(*c), d, r, NULL);
		api_sandbox_resize(d->api, &c->caller, c->ref, &res, on_sandbox, c);
	}
	json_decref(body);
}

/* One in error gets another start; its disk is as it was. */
static void handle_recover(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct sandbox_view v;
	if (!get(d, r, &v))
		return;
	if (v.state != SANDBOX_ERROR)
		fail_code(r, 400, "BAD_REQUEST", "there is nothing to recover from: the sandbox is %s", sandbox_state_word(v.state));
	else
		change(r, d, DO_START);
}

static void handle_start(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct sandbox_view v;
	struct err e;
	if (!get(d, r, &v))
		return;
	if (is_archived(&v) && (extra_put(d, caller_of(r), &v, "archived", json_null(), &e) < 0 || !get(d, r, &v)))
		return;
	if (v.state == SANDBOX_RUNNING)
		reply(d, r, &v);
	else
		change(r, d, v.state == SANDBOX_PAUSED || v.state == SANDBOX_SUSPENDED ? DO_RESUME : DO_START);
}

static void handle_stop(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct sandbox_view v;
	if (!get(d, r, &v))
		return;
	if (v.state == SANDBOX_STOPPED)
		reply(d, r, &v);
	else
		change(r, d, DO_STOP);
}

static void handle_pause(struct request *r, void *daytona)
{
	struct sandbox_view v;
	if (get(daytona, r, &v))
		change(r, daytona, DO_PAUSE);
}

struct deletion {
	struct call call;
	json_t *last; /* the sandbox as it was */
};

static void deletion_drop(struct call *c)
{
	json_decref(container_of(c, struct deletion, call)->last);
}

static void on_deleted(void *ctx, const struct err *e)
{
	struct deletion *x = ctx;
	if (e && e->kind != ERR_NOT_FOUND) { /* somebody else was faster: it is gone all the same */
		call_fail(&x->call, e);
		return;
	}
	call_json(&x->call, 200, json_incref(x->last));
}

static void handle_delete(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct sandbox_view v;
	if (!get(d, r, &v))
		return;
	struct deletion *x = call_new(sizeof(*x), d, r, deletion_drop);
	auto_free char *base = base_url(d, r);
	v.state = SANDBOX_DELETED; /* what it is once the answer is sent */
	x->last = sandbox_json(d, base, &v, false);
	api_sandbox_delete(d->api, &x->call.caller, x->call.ref, on_deleted, x);
}

static void handle_labels(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct pairs labels = { 0 };
	struct sandbox_view v;
	json_t *body = body_object(r, &e);
	int rc = body ? want_pairs(body, "labels", &labels, &e) : -EINVAL;
	if (rc == 0)
		rc = err_set(&e, ERR_INVALID, EINVAL, "labels is required");
	if (rc < 0)
		fail(r, &e);
	else if (get(d, r, &v)) {
		if (api_sandbox_set_labels(d->api, caller_of(r), v.id, &labels, &e) < 0)
			fail(r, &e);
		else {
			json_t *o = json_object();
			put(o, "labels", pairs_json(&labels));
			req_reply_json(r, 200, o);
		}
	}
	pairs_done(&labels);
	json_decref(body);
}

/* --- intervals, in minutes --- */

enum interval { INTERVAL_STOP, INTERVAL_PAUSE, INTERVAL_ARCHIVE, INTERVAL_DELETE, INTERVAL_TTL };

static int set_interval(struct daytona *d, struct request *r, const struct sandbox_view *v, enum interval which, int64_t minutes, struct err *e)
{
	struct lifetime l = v->spec->lifetime;
	switch (which) {
	case INTERVAL_STOP:
		l.idle_s = (uint64_t)minutes * 60;
		break;
	case INTERVAL_DELETE:
		l.delete_after_s = minutes < 0 ? -1 : minutes * 60;
		break;
	case INTERVAL_TTL: /* counted from now; the lifetime counts from creation */
		l.max_s = minutes == 0 ? 0 : (uint64_t)minutes * 60 + (now_unix_ms() - MIN(v->created_ms, now_unix_ms())) / 1000;
		break;
	case INTERVAL_ARCHIVE: /* a stopped disk stays where it is; the number is only kept */
		return extra_put(d, caller_of(r), v, "autoArchiveInterval", json_integer(minutes), e);
	case INTERVAL_PAUSE:
		return minutes == 0 ? 0 : err_set(e, ERR_UNSUPPORTED, 0, "automatic pausing is not supported; use autostop");
	default:
		return err_set(e, ERR_INTERNAL, 0, "unknown interval");
	}
	return api_sandbox_set_lifetime(d->api, caller_of(r), v->id, &l, e);
}

static void interval(struct request *r, void *daytona, enum interval which)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v;
	int64_t minutes;
	if (parse_int("the interval", req_path_arg(r, "n"), which == INTERVAL_DELETE ? -1 : 0, 525600000, &minutes, &e) < 0)
		fail(r, &e);
	else if (get(d, r, &v)) {
		if (set_interval(d, r, &v, which, minutes, &e) < 0)
			fail(r, &e);
		else
			reply_again(d, r);
	}
}

static void handle_autostop(struct request *r, void *d)
{
	interval(r, d, INTERVAL_STOP);
}
static void handle_autopause(struct request *r, void *d)
{
	interval(r, d, INTERVAL_PAUSE);
}
static void handle_autoarchive(struct request *r, void *d)
{
	interval(r, d, INTERVAL_ARCHIVE);
}
static void handle_autodelete(struct request *r, void *d)
{
	interval(r, d, INTERVAL_DELETE);
}
static void handle_ttl(struct request *r, void *d)
{
	interval(r, d, INTERVAL_TTL);
}

static void handle_public(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v;
	bool open;
	if (parse_bool("the last part of the path", req_path_arg(r, "flag"), &open, &e) < 0)
		fail(r, &e);
	else if (get(d, r, &v)) {
		if (extra_put(d, caller_of(r), &v, "public", json_boolean(open), &e) < 0)
			fail(r, &e);
		else
			reply_again(d, r);
	}
}

static void handle_activity(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v;
	if (!get(d, r, &v))
		return;
	if (api_sandbox_touch(d->api, caller_of(r), v.id, &e) < 0)
		fail(r, &e);
	else
		req_reply_empty(r, 201);
}

static void handle_toolbox_url(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct sandbox_view v;
	if (!get(d, r, &v))
		return;
	auto_free char *base = base_url(d, r);
	req_reply_json(r, 200, json_pack("{s:o}", "url", json_sprintf("%s" BASE_PATH "/toolbox", base)));
}

/* What is known by name and not there (yet): said plainly instead of a 404 that looks like a lost sandbox. */
static void handle_unsupported(struct request *r, void *daytona)
{
	(void)daytona;
	const char *what = strrchr(req_route(r)->pattern, '/') + 1;
	fail_code(r, 422, "UNPROCESSABLE_ENTITY", "%s is not supported by this server", what);
}

static const struct route routes[] = {
	{ .method = "POST", .pattern = "/sandbox", .body = BODY_BUFFER, .handle = handle_create },
	{ .method = "GET", .pattern = "/sandbox/{id}", .handle = handle_get },
	{ .method = "DELETE", .pattern = "/sandbox/{id}", .handle = handle_delete },
	{ .method = "POST", .pattern = "/sandbox/{id}/start", .handle = handle_start },
	{ .method = "POST", .pattern = "/sandbox/{id}/stop", .handle = handle_stop },
	{ .method = "POST", .pattern = "/sandbox/{id}/pause", .handle = handle_pause },
	{ .method = "PUT", .pattern = "/sandbox/{id}/labels", .body = BODY_BUFFER, .handle = handle_labels },
	{ .method = "POST", .pattern = "/sandbox/{id}/autostop/{n}", .handle = handle_autostop },
	{ .method = "POST", .pattern = "/sandbox/{id}/autopause/{n}", .handle = handle_autopause },
	{ .method = "POST", .pattern = "/sandbox/{id}/autoarchive/{n}", .handle = handle_autoarchive },
	{ .method = "POST", .pattern = "/sandbox/{id}/autodelete/{n}", .handle = handle_autodelete },
	{ .method = "POST", .pattern = "/sandbox/{id}/ttl/{n}", .handle = handle_ttl },
	{ .method = "POST", .pattern = "/sandbox/{id}/public/{flag}", .handle = handle_public },
	{ .method = "POST", .pattern = "/sandbox/{id}/last-activity", .handle = handle_activity },
	{ .method = "GET", .pattern = "/sandbox/{id}/toolbox-proxy-url", .handle = handle_toolbox_url },
	{ .method = "POST", .pattern = "/sandbox/{id}/archive", .handle = handle_archive },
	{ .method = "POST", .pattern = "/sandbox/{id}/recover", .handle = handle_recover },
	{ .method = "POST", .pattern = "/sandbox/{id}/resize", .body = BODY_BUFFER, .handle = handle_resize },
	{ .method = "POST", .pattern = "/sandbox/{id}/backup", .handle = handle_unsupported },
	{ .method = "POST", .pattern = "/sandbox/{id}/network-settings", .body = BODY_BUFFER, .handle = handle_network },
};
const struct route_table sandbox_routes = { routes, ARRAY_LEN(routes) };
