/* One command, answered when it has ended. */
#include "dialect/daytona/execution.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#define TIMEOUT_MAX_S 31536000

static void execution_drop(struct call *c)
{
	struct execution *x = container_of(c, struct execution, call);
	if (x->drop)
		x->drop(x);
	if (x->follower)
		follower_free(x->follower);
	run_spec_done(&x->spec);
	collector_done(&x->output);
	free(x->run);
}

static void execution_prepare(struct execution *x, bool want_marked)
{
	run_spec_init(&x->spec);
	x->spec.output_max = REPLY_OUTPUT_MAX;
	collector_init(&x->output, want_marked);
}

void *execution_new_sized(size_t size, struct daytona *d, struct request *r, bool want_marked, void (*answer)(struct execution *x))
{
	static_assert(offsetof(struct execution, call) == 0, "a call is freed by its own address");
	struct execution *x = call_new(size, d, r, execution_drop);
	execution_prepare(x, want_marked);
	x->answer = answer;
	return x;
}

struct execution *execution_new(struct daytona *d, struct request *r, bool want_marked, void (*answer)(struct execution *x))
{
	return execution_new_sized(sizeof(struct execution), d, r, want_marked, answer);
}

void execution_again(struct execution *x)
{
	bool want_marked = x->output.want_marked;
	if (x->follower)
		follower_free(take_ptr(&x->follower));
	run_spec_done(&x->spec);
	collector_done(&x->output);
	free(take_ptr(&x->run));
	execution_prepare(x, want_marked);
	x->ended = false;
	x->end = (struct run_view){ 0 };
}

static void on_output(void *ctx, int stream, uint64_t offset, struct str bytes)
{
	(void)offset;
	struct execution *x = ctx;
	collector_add(&x->output, stream, bytes);
}

static void on_end(void *ctx, const struct run_view *r)
{
	struct execution *x = ctx;
	x->end = *r;
	x->end.id = x->run;
	x->end.session = x->end.display = NULL;
	x->end.message = NULL;
	if (r->message) {
		snprintf(x->message, sizeof(x->message), "%s", r->message);
		x->end.message = x->message;
	}
	x->ended = true;
	if (!x->following)
		x->answer(x);
}

static void on_started(void *ctx, const struct err *e, const struct run_view *r)
{
	static const struct follower_events events = { .on_output = on_output, .on_end = on_end };
	struct execution *x = ctx;
	struct err why = { 0 };
	if (e) {
		call_fail(&x->call, e);
		return;
	}
	x->run = xstrdup(r->id);
	x->following = true;
	x->follower = api_run_follow(x->call.d->api, &x->call.caller, x->call.ref, x->run, 0, 0, &events, x, &why);
	x->following = false;
	if (!x->follower)
		call_fail(&x->call, &why);
	else if (x->ended)
		x->answer(x);
}

void execution_start(struct execution *x)
{
	api_run_start(x->call.d->api, &x->call.caller, x->call.ref, &x->spec, on_started, x);
}

bool execution_failed(struct execution *x)
{
	struct request *r = x->call.r;
	if (x->end.state == RUN_LOST) {
		struct err e = { 0 };
		err_set(&e, ERR_GONE, 0, "the command was ended with its surroundings: sandbox is not running%s%s", x->end.message ? ": " : "",
		        x->end.message ? x->end.message : "");
		call_fail(&x->call, &e);
		return true;
	}
	if (x->end.timed_out) {
		call_detach(&x->call);
		json_t *more = json_object();
		put(more, "result", collector_text(&x->output, &x->end));
		fail_more(r, 408, "PROCESS_EXECUTION_TIMEOUT", more, "command timed out after %llu s and was ended",
		          (unsigned long long)(x->spec.timeout_ms / 1000));
		call_free(&x->call);
		return true;
	}
	return false;
}

/* --- charts: lines on stdout that SDKs draw --- */

#define CHART_MARK "dtn_artifact_k39fd2:"

static json_t *chart_of(struct str line)
{
	json_t *o = json_loadb(line.p, line.n, 0, NULL);
	json_t *chart = json_object_get(o, "value");
	bool is_one = streq(json_string_value(json_object_get(o, "type")), "chart") && json_is_object(chart);
	chart = is_one ? json_incref(chart) : NULL;
	json_decref(o);
	return chart;
}

/* Cuts such lines out of the output; NULL when there were none. */
static json_t *take_charts(struct buf *out)
{
	const size_t mark = sizeof(CHART_MARK) - 1;
	if (!out->len || !memmem(out->data, out->len, CHART_MARK, mark))
		return NULL;
	json_t *charts = json_array();
	auto_buf struct buf rest;
	buf_init(&rest, out->max);
	for (size_t at = 0; at < out->len;) {
		const char *line = out->data + at, *nl = memchr(line, '\n', out->len - at);
		size_t n = nl ? (size_t)(nl - line) + 1 : out->len - at;
		json_t *chart = n > mark && memcmp(line, CHART_MARK, mark) == 0 ? chart_of((struct str){ line + mark, n - mark }) : NULL;
		if (chart)
			json_array_append_new(charts, chart);
		else
			buf_add(&rest, line, n);
		at += n;
	}
	buf_reset(out);
	buf_add(out, rest.data, rest.len);
	return charts;
}

/* --- the two calls --- */

static void answer_result(struct execution *x)
{
	if (execution_failed(x))
		return;
	json_t *o = json_object();
	bool never = x->end.state == RUN_FAILED;
	json_t *charts = x->spec.code ? take_charts(&x->output.out) : NULL;
	put(o, "exitCode", json_integer(never ? -1 : x->end.exit_code));
	put(o, "result", never ? textz_json(x->message) : collector_text(&x->output, &x->end));
	if (json_array_size(charts))
		put(o, "artifacts", json_pack("{s:O}", "charts", charts));
	json_decref(charts);
	if (x->end.oom)
		put(o, "oom", json_true());
	call_json(&x->call, 200, o);
}

static int decode_common(const json_t *body, struct run_spec *spec, struct err *e)
{
	int64_t timeout = 0;
	const char *cwd = NULL;
	int rc;
	if ((rc = want_pairs(body, "envs", &spec->env, e)) < 0 || (rc = want_int(body, "timeout", 0, TIMEOUT_MAX_S, &timeout, e)) < 0 ||
	    (rc = want_text(body, "cwd", &cwd, e)) < 0)
		return rc;
	spec->timeout_ms = (uint64_t)timeout * 1000;
	spec->cwd = cwd && *cwd ? xstrdup(cwd) : NULL;
	spec->merge_stderr = true;
	return 0;
}

static int decode_command(const json_t *body, struct run_spec *spec, struct err *e)
{
	const char *command = NULL;
	int rc = want_text(body, "command", &command, e);
	if (rc < 0)
		return rc;
	size_t blank = command ? strspn(command, " \t\r\n") : 0;
	if (!command || !command[blank])
		return err_set(e, ERR_INVALID, EINVAL, "command is required and must not be blank");
	spec->shell = xstrdup(command);
	return decode_common(body, spec, e);
}

static int decode_code(const json_t *body, struct run_spec *spec, struct err *e)
{
	const char *code = NULL, *language = NULL;
	int rc;
	if ((rc = want_text(body, "code", &code, e)) < 0 || (rc = want_text(body, "language", &language, e)) < 0 ||
	    (rc = want_texts(body, "argv", &spec->code_argv, e)) < 0)
		return rc;
	if (!code)
		return err_set(e, ERR_INVALID, EINVAL, "code is required");
	if (!language || (!streq(language, "python") && !streq(language, "javascript") && !streq(language, "typescript")))
		return err_set(e, ERR_INVALID, EINVAL, "language must be python, javascript or typescript");
	code_language_parse(str_of(language), &spec->language);
	spec->code = xstrdup(code);
	return decode_common(body, spec, e);
}

static void execute(struct request *r, struct daytona *d, int (*decode)(const json_t *, struct run_spec *, struct err *))
{
	struct err e = { 0 };
	struct sandbox_view v;
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *body = body_object(r, &e);
	if (!body) {
		fail(r, &e);
		return;
	}
	struct execution *x = execution_new(d, r, false, answer_result);
	int rc = decode(body, &x->spec, &e);
	json_decref(body);
	if (rc < 0)
		call_fail(&x->call, &e);
	else
		execution_start(x);
}

static void handle_execute(struct request *r, void *daytona)
{
	execute(r, daytona, decode_command);
}

static void handle_code_run(struct request *r, void *daytona)
{
	execute(r, daytona, decode_code);
}

static const struct route routes[] = {
	{ .method = "POST", .pattern = "/process/execute", .body = BODY_BUFFER, .body_max = RUN_SCRIPT_MAX, .handle = handle_execute },
	{ .method = "POST", .pattern = "/process/code-run", .body = BODY_BUFFER, .body_max = RUN_SCRIPT_MAX, .handle = handle_code_run },
};
const struct route_table process_routes = { routes, ARRAY_LEN(routes) };
