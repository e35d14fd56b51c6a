/* Telemetry: figures of the moment. Nothing is recorded over time, and nothing of what programs inside report is collected. */
#include "dialect/daytona/internal.h"

static double figure(const char *name, const struct usage *u, const struct sandbox_view *v)
{
	double cores = u->cpu_limit > 0 ? u->cpu_limit : 1;
	uint64_t now = now_unix_ms();
	double lived_us = (double)(now - MIN(v->created_ms, now) + 1) * 1000;
	if (streq(name, "cpu.utilization"))
		return 100.0 * (double)u->cpu_usec / lived_us / cores; /* the mean since it was created */
	if (streq(name, "cpu.limit"))
		return cores;
	if (streq(name, "memory.usage"))
		return (double)u->memory_bytes;
	if (streq(name, "memory.limit"))
		return (double)u->memory_limit_bytes;
	if (streq(name, "filesystem.usage"))
		return (double)u->disk_bytes;
	if (streq(name, "filesystem.total"))
		return (double)u->disk_limit_bytes;
	return 0; /* memory.cache: part of usage here */
}

struct telemetry {
	struct call call;
	json_t *wanted; /* names; empty = all */
};

static void telemetry_drop(struct call *c)
{
	json_decref(container_of(c, struct telemetry, call)->wanted);
}

static void want_name(void *wanted, const char *name, const char *value)
{
	if (streq(name, "metricNames") && json_array_size(wanted) < 64)
		json_array_append_new(wanted, textz_json(value));
}

static bool wants(const json_t *wanted, const char *name)
{
	size_t i;
	json_t *v;
	json_array_foreach (wanted, i, v)
		if (streq(json_string_value(v), name))
			return true;
	return json_array_size(wanted) == 0;
}

static void on_usage(void *ctx, const struct err *e, const struct usage *u)
{
	static const char *const names[] = { "cpu.utilization", "cpu.limit", "memory.usage", "memory.limit", "memory.cache", "filesystem.usage", "filesystem.total" };
	struct telemetry *t = ctx;
	struct sandbox_view v;
	struct err why = { 0 };
	if (e || api_sandbox_get(t->call.d->api, &t->call.caller, t->call.ref, &v, &why) < 0) {
		call_fail(&t->call, e ? e : &why);
		return;
	}
	json_t *series = json_array();
	uint64_t now = now_unix_ms(); /* SDKs put the points of one time together */
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		auto_free char *name = xasprintf("daytona.sandbox.%s", names[i]);
		if (!wants(t->wanted, name))
			continue;
		json_t *point = json_object();
		put(point, "timestamp", time_json(now));
		put(point, "value", number_json(figure(names[i], u, &v)));
		json_array_append_new(series, json_pack("{s:s, s:[o]}", "metricName", name, "dataPoints", point));
	}
	call_json(&t->call, 200, json_pack("{s:o}", "series", series));
}

static void handle_metrics(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct telemetry *t = call_new(sizeof(*t), d, r, telemetry_drop);
	t->wanted = json_array();
	req_query_each(r, want_name, t->wanted);
	api_sandbox_usage(d->api, &t->call.caller, t->call.ref, on_usage, t);
}

static void handle_no_records(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v;
	if (api_sandbox_get(d->api, caller_of(r), req_path_arg(r, "id"), &v, &e) < 0)
		fail(r, &e);
	else
		req_reply_json(r, 200, json_pack("{s:[], s:i, s:i, s:i}", "items", "total", 0, "page", 1, "totalPages", 0));
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/sandbox/{id}/telemetry/metrics", .handle = handle_metrics },
	{ .method = "GET", .pattern = "/sandbox/{id}/telemetry/logs", .handle = handle_no_records },
	{ .method = "GET", .pattern = "/sandbox/{id}/telemetry/traces", .handle = handle_no_records },
};
const struct route_table telemetry_routes = { routes, ARRAY_LEN(routes) };
