/* Small questions about the inside of a sandbox: directories, ports, figures, environment. */
#include "dialect/daytona/internal.h"

#include <errno.h>

#define VALUES_MAX 4096 /* of a guest that talks too much; more are not looked at */

struct question {
	struct call call;
	struct api_op *op;
	struct pairs values;
	bool home;     /* user info: the home directory instead of the work directory */
	int64_t port;  /* asked for, 0 = all */
};

static void question_drop(struct call *c)
{
	struct question *x = container_of(c, struct question, call);
	if (x->op)
		api_op_cancel(x->op);
	pairs_done(&x->values);
}

static void on_values(void *ctx, const struct pairs *values)
{
	struct question *x = ctx;
	for (size_t i = 0; i < values->n && x->values.n < VALUES_MAX; i++)
		pairs_add(&x->values, values->v[i].key, values->v[i].value);
}

static void ask(struct question *x, enum op_kind kind, const struct op_events *events)
{
	struct err e = { 0 };
	x->op = api_op_open(x->call.d->api, &x->call.caller, x->call.ref, &(struct op_spec){ .kind = kind }, events, x, &e);
	if (!x->op)
		call_fail(&x->call, &e);
}

/* --- directories --- */

static void on_user_end(void *ctx, const struct err *e)
{
	struct question *x = ctx;
	x->op = NULL;
	if (e) {
		call_fail(&x->call, e);
		return;
	}
	const char *home = pairs_get(&x->values, "home"), *work = pairs_get(&x->values, "workdir");
	const char *dir = x->home || !work || !*work ? home : work;
	call_json(&x->call, 200, json_pack("{s:o}", "dir", textz_json(dir ? dir : "/")));
}

static void user_info(struct request *r, struct daytona *d, bool home)
{
	static const struct op_events events = { .on_values = on_values, .on_end = on_user_end };
	struct sandbox_view v;
	if (!toolbox_sandbox(d, r, &v))
		return;
	if (!home && v.spec->workdir && *v.spec->workdir == '/') {
		req_reply_json(r, 200, json_pack("{s:o}", "dir", textz_json(v.spec->workdir)));
		return;
	}
	struct question *x = call_new(sizeof(*x), d, r, question_drop);
	x->home = home;
	ask(x, OP_USERINFO, &events);
}

static void handle_home(struct request *r, void *daytona)
{
	user_info(r, daytona, true);
}

static void handle_work(struct request *r, void *daytona)
{
	user_info(r, daytona, false);
}

/* --- ports --- */

static void on_ports_end(void *ctx, const struct err *e)
{
	struct question *x = ctx;
	x->op = NULL;
	if (e) {
		call_fail(&x->call, e);
		return;
	}
	json_t *ports = json_array();
	bool used = false;
	for (size_t i = 0; i < x->values.n; i++) {
		uint64_t port;
		if (parse_u64(str_of(x->values.v[i].key), 65535, &port) < 0 && parse_u64(str_of(x->values.v[i].value), 65535, &port) < 0)
			continue; /* what the guest says is only its own word */
		json_array_append_new(ports, json_integer((json_int_t)port));
		used = used || (int64_t)port == x->port;
	}
	if (x->port) {
		json_decref(ports);
		call_json(&x->call, 200, json_pack("{s:b}", "isInUse", used));
	} else {
		call_json(&x->call, 200, json_pack("{s:o}", "ports", ports));
	}
}

static void handle_ports(struct request *r, void *daytona)
{
	static const struct op_events events = { .on_values = on_values, .on_end = on_ports_end };
	struct err e = { 0 };
	struct sandbox_view v;
	int64_t port = 0;
	const char *text = req_path_arg(r, "port");
	if (!toolbox_sandbox(daytona, r, &v))
		return;
	if (text && parse_int("port", text, 1, 65535, &port, &e) < 0) {
		fail(r, &e);
		return;
	}
	struct question *x = call_new(sizeof(*x), daytona, r, question_drop);
	x->port = port;
	ask(x, OP_PORTS, &events);
}

/* --- figures --- */

static void on_usage(void *ctx, const struct err *e, const struct usage *u)
{
	struct call *c = ctx;
	struct sandbox_view v;
	struct err why = { 0 };
	if (e || api_sandbox_get(c->d->api, &c->caller, c->ref, &v, &why) < 0) {
		call_fail(c, e ? e : &why);
		return;
	}
	uint64_t now = now_unix_ms();
	double lived_us = (double)(now - MIN(v.created_ms, now) + 1) * 1000, cores = u->cpu_limit > 0 ? u->cpu_limit : 1;
	json_t *o = json_object();
	put(o, "cpuCount", number_json(cores));
	put(o, "cpuUsedPct", json_real(100.0 * (double)u->cpu_usec / lived_us / cores)); /* the mean since it was created */
	put(o, "memTotal", json_integer((json_int_t)u->memory_limit_bytes));
	put(o, "memUsed", json_integer((json_int_t)u->memory_bytes));
	put(o, "memCache", json_integer(0));
	put(o, "diskTotal", json_integer((json_int_t)u->disk_limit_bytes));
	put(o, "diskUsed", json_integer((json_int_t)u->disk_bytes));
	put(o, "diskFree", json_integer((json_int_t)(u->disk_limit_bytes - MIN(u->disk_bytes, u->disk_limit_bytes))));
	put(o, "timestamp", time_json(now));
	put(o, "timestampUnix", json_integer((json_int_t)(now / 1000)));
	call_json(c, 200, o);
}

static void handle_metrics(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct sandbox_view v;
	if (!toolbox_sandbox(d, r, &v))
		return;
	struct call *c = call_new(sizeof(*c), d, r, NULL);
	api_sandbox_usage(d->api, &c->caller, c->ref, on_usage, c);
}

static void handle_version(struct request *r, void *daytona)
{
	struct sandbox_view v;
	if (toolbox_sandbox(daytona, r, &v))
		req_reply_json(r, 200, json_pack("{s:s}", "version", CAISSON_VERSION));
}

/* --- environment --- */

/* *unset and every variable whose value begins with `prefix` and is not set anew. */
static char **with_prefix(char **unset, const struct pairs *env, const char *prefix, const struct pairs *set)
{
	size_t n = 0;
	while (unset && unset[n])
		n++;
	unset = xreallocarray(unset, n + env->n + 1, sizeof(*unset));
	for (size_t i = 0; prefix && i < env->n; i++)
		if (strncmp(env->v[i].value, prefix, strlen(prefix)) == 0 && !pairs_get(set, env->v[i].key))
			unset[n++] = xstrdup(env->v[i].key);
	unset[n] = NULL;
	return unset;
}

static void handle_env(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct pairs set = { 0 };
	struct sandbox_view v;
	char **unset = NULL;
	const char *prefix = NULL;
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *body = body_object(r, &e);
	int rc = body ? want_pairs(body, "set", &set, &e) : -EINVAL;
	if (rc >= 0)
		rc = want_texts(body, "unset", &unset, &e);
	if (rc >= 0)
		rc = want_text(body, "unsetValuePrefix", &prefix, &e);
	if (rc >= 0) {
		unset = with_prefix(unset, &v.spec->env, prefix, &set);
		rc = api_sandbox_set_env(d->api, caller_of(r), v.id, &set, unset, &e);
	}
	if (rc < 0)
		fail(r, &e);
	else
		req_reply_json(r, 200, json_object());
	texts_free(unset);
	pairs_done(&set);
	json_decref(body);
}

/* Known by name and not there: said plainly instead of a 404 that looks like a lost sandbox. */
static void handle_computer_use(struct request *r, void *daytona)
{
	struct sandbox_view v;
	if (toolbox_sandbox(daytona, r, &v))
		fail_code(r, 422, "UNPROCESSABLE_ENTITY",
		          "computer use is not supported: it needs a desktop in the image (an X server such as xvfb, a window manager, xdotool, scrot), and this "
		          "server does not drive one");
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/user-home-dir", .handle = handle_home },
	{ .method = "GET", .pattern = "/project-dir", .handle = handle_home },
	{ .method = "GET", .pattern = "/work-dir", .handle = handle_work },
	{ .method = "GET", .pattern = "/version", .handle = handle_version },
	{ .method = "GET", .pattern = "/system/metrics", .handle = handle_metrics },
	{ .method = "GET", .pattern = "/port", .handle = handle_ports },
	{ .method = "GET", .pattern = "/port/{port}/in-use", .handle = handle_ports },
	{ .method = "POST", .pattern = "/env", .body = BODY_BUFFER, .handle = handle_env },
	{ .method = "*", .pattern = "/computeruse/{rest*}", .handle = handle_computer_use },
};
const struct route_table box_routes = { routes, ARRAY_LEN(routes) };
