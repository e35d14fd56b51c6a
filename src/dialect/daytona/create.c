/* POST /sandbox: what a client asks for, as a sandbox_spec. */
#include "dialect/daytona/dockerfile.h"
#include "dialect/daytona/internal.h"

#include <errno.h>

#define MINUTES_MAX 525600000 /* a thousand years */

struct creation {
	struct call call;
	struct sandbox_spec spec;
	json_t *extra;
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
	spec_done(&x->spec);
	json_decref(x->extra);
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

static int image(const json_t *body, struct creation *x, struct err *e)
{
	const json_t *build = json_object_get(body, "buildInfo");
	int rc = text_field(body, "snapshot", &x->spec.image, e);
	if (rc < 0 || !build || json_is_null(build))
		return rc;
	if (!json_is_object(build))
		return err_set(e, ERR_INVALID, EINVAL, "buildInfo must be an object");
	if (rc > 0)
		return err_set(e, ERR_INVALID, EINVAL, "give snapshot or buildInfo, not both");
	const char *text = NULL;
	const json_t *hashes = NULL;
	if ((rc = want_text(build, "dockerfileContent", &text, e)) < 0 || (rc = want_array(build, "contextHashes", &hashes, e)) < 0)
		return rc;
	if (!text)
		return err_set(e, ERR_INVALID, EINVAL, "buildInfo.dockerfileContent is required");
	if (hashes && json_array_size(hashes))
		return err_set(e, ERR_UNSUPPORTED, 0, "images built from local files are not supported yet");
	struct dockerfile f = { 0 };
	rc = dockerfile_parse(str_of(text), &f, e);
	if (rc == 0) {
		replace(&x->spec.image, take_ptr(&f.image));
		if (f.user)
			replace(&x->spec.user, take_ptr(&f.user));
		if (f.workdir) {
			x->made_workdir = xstrdup(f.workdir);
			replace(&x->spec.workdir, take_ptr(&f.workdir));
		}
		for (size_t i = 0; i < f.env.n; i++)
			pairs_add(&x->spec.env, f.env.v[i].key, f.env.v[i].value);
		char now[25];
		format_iso8601(now_unix_ms(), now);
		json_object_set_new(x->extra, "buildInfo",
		                    json_pack("{s:s, s:s, s:s, s:s}", "dockerfileContent", text, "createdAt", now, "updatedAt", now, "snapshotRef", x->spec.image));
	}
	dockerfile_done(&f);
	return rc;
}

static int resources(const json_t *body, struct resources *res, struct err *e)
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
	static const char *const lists[] = { "volumes", "secrets" };
	static const char *const texts[] = { "outboundProxyUrl", "linkedSandbox" };
	static const char *const flags[] = { "spot", "kvm" };
	int rc;
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		const json_t *v = NULL;
		if ((rc = want_array(body, lists[i], &v, e)) < 0)
			return rc;
		if (v && json_array_size(v))
			return err_set(e, ERR_UNSUPPORTED, 0, "%s are not supported yet", lists[i]);
	}
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

static int decode(const json_t *body, struct creation *x, struct err *e)
{
	bool open = false;
	struct network_wish wish = { .mode = x->call.d->network };
	const char *target = NULL;
	int rc;
	if ((rc = refuse_unsupported(body, e)) < 0 || (rc = text_field(body, "name", &x->spec.name, e)) < 0 || (rc = image(body, x, e)) < 0 ||
	    (rc = text_field(body, "user", &x->spec.user, e)) < 0 || (rc = want_pairs(body, "env", &x->spec.env, e)) < 0 ||
	    (rc = want_pairs(body, "labels", &x->spec.labels, e)) < 0 || (rc = want_bool(body, "public", &open, e)) < 0 ||
	    (rc = want_text(body, "target", &target, e)) < 0 || (rc = resources(body, &x->spec.resources, e)) < 0 || (rc = lifetime(body, x, e)) < 0)
		return rc;
	rc = network_decode(body, &wish, e);
	x->spec.network = wish.mode;
	x->spec.network_allow = wish.allow;
	x->spec.network_unasked = !wish.given;
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
	else
		api_sandbox_create(d->api, &x->call.caller, &x->spec, on_created, x);
}
