/* POST /sandbox: what a client asks for, as a sandbox_spec. */
#include "dialect/daytona/build.h"

#include <errno.h>

#define MINUTES_MAX 525600000 /* a thousand years */

struct creation {
	struct call call;
	struct sandbox_spec spec;
	json_t *extra;
	struct dockerfile dockerfile; /* of buildInfo */
	char **hashes;
	char *made_workdir; /* of a Dockerfile: made before the first command */
	char *id;
	struct api_op *op;
	struct err why;
};

static void creation_drop(struct call *c)
{
	struct creation *x = container_of(c, struct creation, call);
	if (x->op)
		api_op_cancel(x->op);
	build_forget_starter(c->d, x);
	spec_done(&x->spec);
	json_decref(x->extra);
	dockerfile_done(&x->dockerfile);
	strv_free(x->hashes);
	free(x->made_workdir);
	free(x->id);
}

static void replace(char **to, char *take)
{
	free(*to);
	*to = take;
}

static int text_field(const json_t *body, const char *key, char **to, struct err *e)
{
	const char *text = NULL;
	int rc = want_text(body, key, &text, e);
	if (rc > 0 && *text)
		replace(to, xstrdup(text));
	return rc;
}

/* snapshot: one of the caller's, else an image. */
static int from_snapshot(struct creation *x, const char *ref, struct err *e)
{
	json_t *kept = NULL;
	int rc = snapshot_usable(x->call.d, &x->call.caller, ref, &kept, e);
	if (rc > 0) {
		x->spec.from_snapshot = xstrdup(ref);
		json_object_set_new(x->extra, "snapshot", textz_json(ref));
		static const char *const passed_on[] = { "buildInfo", ENTRYPOINT_FIELD };
		for (size_t i = 0; i < ARRAY_LEN(passed_on); i++) {
			json_t *v = json_object_get(kept, passed_on[i]);
			if (v)
				json_object_set(x->extra, passed_on[i], v);
		}
	} else if (rc == 0) {
		replace(&x->spec.image, xstrdup(ref));
	}
	json_decref(kept);
	return rc < 0 ? rc : 0;
}

static int from_build(struct creation *x, const json_t *info, struct err *e)
{
	const char *text = NULL;
	struct dockerfile *f = &x->dockerfile;
	json_t *kept = NULL;
	int rc = build_info(info, f, &x->hashes, &text, e);
	if (rc < 0 || (rc = snapshot_usable(x->call.d, &x->call.caller, f->image, &kept, e)) < 0)
		return rc;
	json_decref(kept);
	if (rc > 0 && !f->needs_build) /* else the build takes it, or a layer of its own */
		x->spec.from_snapshot = xstrdup(f->image);
	else
		replace(&x->spec.image, xstrdup(f->image));
	if (f->user)
		replace(&x->spec.user, xstrdup(f->user));
	if (f->workdir)
		replace(&x->spec.workdir, xstrdup(f->workdir));
	if (f->needs_build) {
		json_object_set_new(x->extra, "build", json_string("running"));
	} else {
		x->made_workdir = xstrdup(f->workdir);
		for (size_t i = 0; i < f->env.n; i++)
			pairs_add(&x->spec.env, f->env.v[i].key, f->env.v[i].value);
	}
	put(x->extra, ENTRYPOINT_FIELD, entrypoint_of(x->call.d, &x->call.caller, f));
	json_object_set_new(x->extra, "buildInfo", build_info_json(text, f->image));
	return 0;
}

static int image(const json_t *body, struct creation *x, struct err *e)
{
	const json_t *build = json_object_get(body, "buildInfo");
	const char *ref = NULL;
	int rc = want_text(body, "snapshot", &ref, e);
	if (rc < 0)
		return rc;
	bool built = build && !json_is_null(build);
	if (built && !json_is_object(build))
		return err_set(e, ERR_INVALID, EINVAL, "buildInfo must be an object");
	if (built && ref && *ref)
		return err_set(e, ERR_INVALID, EINVAL, "give snapshot or buildInfo, not both");
	return built ? from_build(x, build, e) : ref && *ref ? from_snapshot(x, ref, e) : 0;
}

int want_resources(const json_t *body, struct resources *res, struct err *e)
{
	double cpu = 0, memory = 0, disk = 0, gpu = 0;
	int rc;
	if ((rc = want_number(body, "cpu", 0.01, 1024, &cpu, e)) < 0 || (rc = want_number(body, "memory", 0.015625, 1024, &memory, e)) < 0 ||
	    (rc = want_number(body, "disk", 0.001, 16384, &disk, e)) < 0 || (rc = want_number(body, "gpu", 0, 1024, &gpu, e)) < 0)
		return rc;
	if (gpu > 0)
		return err_set(e, ERR_UNSUPPORTED, 0, "gpu: this server has no GPUs to give");
	if (cpu > 0)
		res->cpus = cpu;
	if (memory > 0)
		res->memory_mib = (uint64_t)(memory * 1024);
	if (disk > 0)
		res->disk_mib = (uint64_t)(disk * 1024);
	return 0;
}

static int lifetime(const json_t *body, struct creation *x, struct err *e)
{
	int64_t stop = 15, pause = 0, archive = 10080, remove = -1, ttl = 0;
	int rc;
	if ((rc = want_int(body, "autoStopInterval", 0, MINUTES_MAX, &stop, e)) < 0 ||
	    (rc = want_int(body, "autoPauseInterval", 0, MINUTES_MAX, &pause, e)) < 0 ||
	    (rc = want_int(body, "autoArchiveInterval", 0, MINUTES_MAX, &archive, e)) < 0 ||
	    (rc = want_int(body, "autoDeleteInterval", -1, MINUTES_MAX, &remove, e)) < 0 ||
	    (rc = want_int(body, "ttlMinutes", 0, MINUTES_MAX, &ttl, e)) < 0)
		return rc;
	if (pause > 0)
		return err_set(e, ERR_UNSUPPORTED, 0, "autoPauseInterval: automatic pausing is not supported; use autoStopInterval");
	x->spec.lifetime.idle_s = (uint64_t)stop * 60;
	x->spec.lifetime.delete_after_s = remove < 0 ? -1 : remove * 60;
	x->spec.lifetime.max_s = (uint64_t)ttl * 60;
	if (archive != 10080)
		json_object_set_new(x->extra, "autoArchiveInterval", json_integer(archive));
	return 0;
}

/* Settings that would promise what is not done are refused: the caller must know. */
static int refuse_unsupported(const json_t *body, struct err *e)
{
	static const char *const texts[] = { "linkedSandbox" };
	static const char *const flags[] = { "spot", "kvm" };
	int rc;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		const char *v = NULL;
		if ((rc = want_text(body, texts[i], &v, e)) < 0)
			return rc;
		if (v && *v)
			return err_set(e, ERR_UNSUPPORTED, 0, "%s is not supported yet", texts[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		bool v = false;
		if ((rc = want_bool(body, flags[i], &v, e)) < 0)
			return rc;
		if (v)
			return err_set(e, ERR_UNSUPPORTED, 0, "%s is not supported", flags[i]);
	}
	return 0;
}

/* By the usual variables: a convenience, as its clients say themselves; what is reached is still the policy's. */
static int outbound_proxy(const json_t *body, struct creation *x, struct err *e)
{
	static const char *const names[] = { "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy" };
	const char *url = NULL;
	int rc = want_text(body, "outboundProxyUrl", &url, e);
	if (rc <= 0 || !*url)
		return rc;
	if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
		return err_set(e, ERR_INVALID, EINVAL, "outboundProxyUrl must begin with http:// or https://");
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!pairs_get(&x->spec.env, names[i]))
			pairs_add(&x->spec.env, names[i], url);
	json_object_set_new(x->extra, "outboundProxyUrl", textz_json(url));
	return rc;
}

static int decode(const json_t *body, struct creation *x, struct err *e)
{
	bool open = false;
	struct network_wish wish = { .mode = x->call.d->network };
	const char *target = NULL;
	int rc;
	if ((rc = refuse_unsupported(body, e)) < 0 || (rc = text_field(body, "name", &x->spec.name, e)) < 0 || (rc = image(body, x, e)) < 0 ||
	    (rc = text_field(body, "user", &x->spec.user, e)) < 0 || (rc = want_pairs(body, "env", &x->spec.env, e)) < 0 ||
	    (rc = want_pairs(body, "labels", &x->spec.labels, e)) < 0 || (rc = want_bool(body, "public", &open, e)) < 0 ||
	    (rc = want_text(body, "target", &target, e)) < 0 || (rc = want_resources(body, &x->spec.resources, e)) < 0 || (rc = lifetime(body, x, e)) < 0 ||
	    (rc = volumes_decode(body, &x->spec.volumes, e)) < 0 || (rc = secrets_decode(body, &x->spec.secret_env, e)) < 0 || (rc = outbound_proxy(body, x, e)) < 0)
		return rc;
	rc = network_decode(body, NULL, &wish, e);
	x->spec.network = wish.mode;
	x->spec.network_allow = wish.allow;
	x->spec.network_unasked = !wish.given;
	if (wish.behind)
		json_object_set_new(x->extra, NETWORK_BEHIND, json_string(wish.behind));
	free(wish.behind);
	if (rc < 0)
		return rc;
	if (open)
		json_object_set_new(x->extra, "public", json_true());
	if (target && *target)
		json_object_set_new(x->extra, "target", json_string(target));
	x->spec.extra = extra_text(NULL, x->extra);
	return 0;
}

static void answer_created(struct creation *x)
{
	struct sandbox_view v;
	struct err e = { 0 };
	if (api_sandbox_get(x->call.d->api, &x->call.caller, x->id, &v, &e) < 0) {
		call_fail(&x->call, &e);
		return;
	}
	entrypoint_start(x->call.d, &x->call.caller, &v);
	auto_free char *base = base_url(x->call.d, x->call.r);
	call_json(&x->call, 200, sandbox_json(x->call.d, base, &v, false));
}

static void on_undone(void *ctx, const struct err *e)
{
	(void)e;
	struct creation *x = ctx;
	struct err why = x->why;
	call_fail(&x->call, &why);
}

/* The work directory could not be made: no half-made sandbox stays behind. */
static void undo(struct creation *x, const struct err *e)
{
	x->why = *e;
	err_prefix(&x->why, "WORKDIR %s", x->made_workdir);
	api_sandbox_delete(x->call.d->api, &x->call.caller, x->id, on_undone, x);
}

static void on_workdir(void *ctx, const struct err *e)
{
	struct creation *x = ctx;
	x->op = NULL;
	if (e)
		undo(x, e);
	else
		answer_created(x);
}

static void on_created(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct creation *x = ctx;
	if (e) {
		struct err copy = *e;
		if (copy.kind == ERR_NOT_FOUND) /* the image: the sandbox path itself is there */
			copy.kind = ERR_INVALID;
		call_fail(&x->call, &copy);
		return;
	}
	x->id = xstrdup(v->id);
	if (!x->made_workdir) {
		answer_created(x);
		return;
	}
	static const struct op_events events = { .on_end = on_workdir };
	const struct op_spec spec = { .kind = OP_MKDIR, .path = x->made_workdir, .user = "root", .cwd = "/", .mode = 0755, .flags = OP_F_PARENTS };
	struct err why = { 0 };
	x->op = api_op_open(x->call.d->api, &x->call.caller, x->id, &spec, &events, x, &why);
	if (!x->op)
		undo(x, &why);
}

/* The sandbox is there, its image's steps are still to be done in it: answered as it is now. */
static void on_build_started(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct creation *x = ctx;
	if (e) {
		on_created(x, e, v);
		return;
	}
	auto_free char *base = base_url(x->call.d, x->call.r);
	json_t *o = sandbox_json(x->call.d, base, v, false);
	put(o, "state", json_string("pending_build")); /* by which the clients know that there is a log to follow */
	call_json(&x->call, 200, o);
}

void handle_create(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	json_t *body = body_object(r, &e);
	if (!body) {
		fail(r, &e);
		return;
	}
	struct creation *x = call_new(sizeof(*x), d, r, creation_drop);
	spec_init(&x->spec);
	x->extra = json_object();
	int rc = decode(body, x, &e);
	json_decref(body);
	if (rc < 0)
		call_fail(&x->call, &e);
	else if (x->dockerfile.needs_build)
		build_start(d, &x->call.caller, &x->spec, &x->dockerfile, take_ptr(&x->hashes), NULL, NULL, on_build_started, x);
	else
		api_sandbox_create(d->api, &x->call.caller, &x->spec, on_created, x);
}
