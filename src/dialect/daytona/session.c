/* Sessions: shells that take one command after another; their logs by HTTP and WebSocket. */
#include "dialect/daytona/execution.h"

#include <errno.h>

#define ENTRYPOINT "entrypoint" /* the session that stands for the image's own command */

/* --- finding --- */

static void no_session(struct request *r, const char *id)
{
	fail_code(r, 404, "PROCESS_NOT_FOUND", "not found: session %.128s", id);
}

/* The session of the path: else answers and returns false. */
static bool session_of(struct daytona *d, struct request *r, struct session_view *ret)
{
	struct err e = { 0 };
	struct sandbox_view v;
	const char *id = req_path_arg(r, "session");
	if (!toolbox_sandbox(d, r, &v))
		return false;
	if (api_session_get(d->api, caller_of(r), v.id, id, ret, &e) == 0)
		return true;
	if (e.kind == ERR_NOT_FOUND)
		no_session(r, id);
	else
		fail(r, &e);
	return false;
}

/* The command of the path, in its session: else answers and returns false. */
static bool command_of(struct daytona *d, struct request *r, struct run_view *ret)
{
	struct err e = { 0 };
	struct sandbox_view v;
	const char *id = req_path_arg(r, "cmd");
	if (!toolbox_sandbox(d, r, &v))
		return false;
	const char *session = req_path_arg(r, "session");
	if (streq(session, ENTRYPOINT) && entrypoint_run(d, caller_of(r), &v, ret) == 0 && streq(ret->id, id))
		return true;
	int rc = api_run_get(d->api, caller_of(r), v.id, id, ret, &e);
	if (rc == 0 && streq(ret->session, session))
		return true;
	if (rc == 0 || e.kind == ERR_NOT_FOUND)
		fail_code(r, 404, "PROCESS_NOT_FOUND", "not found: command %.64s of session %.128s", id, req_path_arg(r, "session"));
	else
		fail(r, &e);
	return false;
}

/* --- encoding --- */

static json_t *command_json(const struct run_view *r)
{
	json_t *o = json_object();
	put(o, "id", json_string(r->id));
	put(o, "command", textz_json(r->display ? r->display : ""));
	if (run_view_ended(r)) /* its absence says "still running" */
		put(o, "exitCode", json_integer(r->state == RUN_EXITED ? r->exit_code : -1));
	return o;
}

static void add_command(void *ctx, const struct run_view *r)
{
	json_array_append_new(ctx, command_json(r));
}

static json_t *session_json(struct daytona *d, const struct caller *c, const char *ref, const char *id)
{
	struct err e = { 0 };
	json_t *o = json_object(), *commands = json_array();
	if (api_run_list(d->api, c, ref, id, add_command, commands, &e) < 0)
		json_array_clear(commands); /* the session went away meanwhile */
	put(o, "sessionId", textz_json(id));
	put(o, "commands", commands);
	return o;
}

/* --- sessions --- */

static void on_session_created(void *ctx, const struct err *e)
{
	call_on_done_empty(ctx, e, 201);
}

static void handle_create_session(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v;
	const char *id = NULL;
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *body = body_object(r, &e);
	int rc = body ? want_text(body, "sessionId", &id, &e) : -EINVAL;
	if (rc >= 0 && (!id || !*id))
		rc = err_set(&e, ERR_INVALID, EINVAL, "sessionId is required");
	if (rc >= 0 && streq(id, ENTRYPOINT))
		rc = err_set(&e, ERR_INVALID, EINVAL, "sessionId: " ENTRYPOINT " is reserved");
	if (rc < 0) {
		fail(r, &e);
	} else {
		struct call *c = call_new(sizeof(*c), d, r, NULL);
		api_session_create(d->api, &c->caller, c->ref, id, NULL, NULL, on_session_created, c);
	}
	json_decref(body);
}

static void add_session_id(void *ctx, const struct session_view *s)
{
	json_array_append_new(ctx, textz_json(s->id));
}

static void handle_list_sessions(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v;
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *ids = json_array(), *list = json_array();
	if (api_session_list(d->api, caller_of(r), v.id, add_session_id, ids, &e) < 0) {
		json_decref(list);
		fail(r, &e);
	} else {
		const char *ref = req_path_arg(r, "id");
		for (size_t i = 0; i < json_array_size(ids); i++)
			json_array_append_new(list, session_json(d, caller_of(r), ref, json_string_value(json_array_get(ids, i))));
		req_reply_json(r, 200, list);
	}
	json_decref(ids);
}

static void handle_get_session(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct session_view s;
	if (session_of(d, r, &s))
		req_reply_json(r, 200, session_json(d, caller_of(r), req_path_arg(r, "id"), req_path_arg(r, "session")));
}

static void on_session_deleted(void *ctx, const struct err *e)
{
	call_on_done_empty(ctx, e, 204);
}

static void handle_delete_session(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct session_view s;
	if (!session_of(d, r, &s))
		return;
	auto_free char *id = xstrdup(req_path_arg(r, "session"));
	struct call *c = call_new(sizeof(*c), d, r, NULL);
	api_session_delete(d->api, &c->caller, c->ref, id, on_session_deleted, c);
}

static void handle_entrypoint(struct request *r, void *daytona)
{
	struct sandbox_view v;
	struct run_view run;
	if (!toolbox_sandbox(daytona, r, &v))
		return;
	json_t *commands = json_array();
	if (entrypoint_run(daytona, caller_of(r), &v, &run) == 0)
		add_command(commands, &run);
	req_reply_json(r, 200, json_pack("{s:s, s:o}", "sessionId", ENTRYPOINT, "commands", commands));
}

/* --- commands --- */

static json_t *result_json(const struct execution *x, enum log_form form)
{
	json_t *o = json_object();
	put(o, "cmdId", json_string(x->run));
	put(o, "output", form == LOG_MARKED ? text_json(buf_str(&x->output.marked)) : collector_text(&x->output, &x->end));
	put(o, "stdout", text_json(buf_str(&x->output.out)));
	put(o, "stderr", x->end.state == RUN_FAILED ? textz_json(x->message) : text_json(buf_str(&x->output.err)));
	put(o, "exitCode", json_integer(x->end.state == RUN_FAILED ? -1 : x->end.exit_code));
	return o;
}

static void answer_command(struct execution *x)
{
	if (!execution_failed(x))
		call_json(&x->call, 200, result_json(x, wanted_log_form(x->call.r)));
}

static void on_async_started(void *ctx, const struct err *e, const struct run_view *r)
{
	struct execution *x = ctx;
	if (e)
		call_fail(&x->call, e);
	else
		call_json(&x->call, 202, json_pack("{s:s}", "cmdId", r->id));
}

static int decode_command(const json_t *body, const char **command, bool *async, struct err *e)
{
	bool old = false, quiet = false;
	int rc;
	if ((rc = want_text(body, "command", command, e)) < 0 || (rc = want_bool(body, "runAsync", async, e)) < 0 ||
	    (rc = want_bool(body, "async", &old, e)) < 0 || (rc = want_bool(body, "suppressInputEcho", &quiet, e)) < 0)
		return rc;
	*async = *async || old;
	if (!*command || !(*command)[strspn(*command, " \t\r\n")])
		return err_set(e, ERR_INVALID, EINVAL, "command is required and must not be blank");
	return 0;
}

static void handle_exec(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct session_view s;
	const char *command = NULL;
	bool async = false;
	if (!session_of(d, r, &s))
		return;
	if (!s.alive) {
		fail_code(r, 410, "SESSION_ENDED", "the shell of session %.128s has ended", req_path_arg(r, "session"));
		return;
	}
	json_t *body = body_object(r, &e);
	if (!body || decode_command(body, &command, &async, &e) < 0) {
		fail(r, &e);
	} else {
		const char *session = req_path_arg(r, "session");
		struct execution *x = execution_new(d, r, wanted_log_form(r) == LOG_MARKED, answer_command);
		x->spec.session = xstrdup(session);
		x->spec.shell = xstrdup(command);
		x->spec.display = xstrdup(command);
		x->spec.detach = x->spec.stdin_open = async; /* a synchronous one is at the end of its input */
		x->spec.output_max = async ? 0 : REPLY_OUTPUT_MAX;
		if (async)
			api_run_start(d->api, &x->call.caller, x->call.ref, &x->spec, on_async_started, x);
		else
			execution_start(x);
	}
	json_decref(body);
}

static void handle_get_command(struct request *r, void *daytona)
{
	struct run_view run;
	if (command_of(daytona, r, &run))
		req_reply_json(r, 200, command_json(&run));
}

/* --- input: given as the command takes it --- */

struct input {
	struct call call;
	struct follower *follower; /* tells of room */
	char *run;
	struct buf data;
};

static void input_drop(struct call *c)
{
	struct input *x = container_of(c, struct input, call);
	if (x->follower)
		follower_free(x->follower);
	buf_done(&x->data);
	free(x->run);
}

static void input_too_late(struct input *x)
{
	struct request *r = x->call.r;
	call_detach(&x->call);
	fail_code(r, 410, "COMMAND_ALREADY_COMPLETED", "the command has ended or reads no input");
	call_free(&x->call);
}

/* Answers, and returns true, when all is given or nothing more can be. */
static bool give_input(struct input *x)
{
	struct err e = { 0 };
	while (x->data.len) {
		ssize_t n = api_run_write(x->call.d->api, &x->call.caller, x->call.ref, x->run, buf_str(&x->data), &e);
		if (n == 0)
			return false;
		if (n < 0 && e.kind == ERR_GONE) {
			input_too_late(x);
			return true;
		}
		if (n < 0) {
			call_fail(&x->call, &e);
			return true;
		}
		buf_consume(&x->data, (size_t)n);
	}
	call_empty(&x->call, 204);
	return true;
}

static void on_input_room(void *ctx)
{
	give_input(ctx);
}

static void on_input_output(void *ctx, int stream, uint64_t offset, struct str bytes)
{
	(void)ctx, (void)stream, (void)offset, (void)bytes;
}

static void on_input_end(void *ctx, const struct run_view *r)
{
	(void)r;
	input_too_late(ctx);
}

static void start_input(struct daytona *d, struct request *r, const struct run_view *run, const char *data)
{
	static const struct follower_events events = { .on_output = on_input_output, .on_stdin_room = on_input_room, .on_end = on_input_end };
	struct err e = { 0 };
	uint64_t at[2] = { run->stdout_bytes, run->stderr_bytes };
	struct input *x = call_new(sizeof(*x), d, r, input_drop);
	x->run = xstrdup(run->id);
	buf_init(&x->data, RUN_STDIN_INLINE_MAX);
	buf_addz(&x->data, data);
	if (!x->data.len || x->data.data[x->data.len - 1] != '\n')
		buf_addc(&x->data, '\n');
	if (give_input(x))
		return;
	x->follower = api_run_follow(d->api, &x->call.caller, x->call.ref, x->run, at[0], at[1], &events, x, &e);
	if (!x->follower)
		call_fail(&x->call, &e);
}

static void handle_input(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct run_view run;
	const char *data = NULL;
	if (!command_of(d, r, &run))
		return;
	json_t *body = body_object(r, &e);
	int rc = body ? want_text(body, "data", &data, &e) : -EINVAL;
	if (rc >= 0 && !data)
		rc = err_set(&e, ERR_INVALID, EINVAL, "data is required");
	if (rc < 0)
		fail(r, &e);
	else if (run_view_ended(&run))
		fail_code(r, 410, "COMMAND_ALREADY_COMPLETED", "the command has ended");
	else
		start_input(d, r, &run, data);
	json_decref(body);
}

/* --- logs by HTTP --- */

/* run NULL: of a command that there is not, which has said nothing. */
static void answer_logs(struct daytona *d, struct request *r, const struct run_view *run)
{
	struct err e = { 0 };
	if (req_is_websocket(r)) {
		if (run)
			log_stream(d, r, run->id);
		else
			log_stream_empty(d, r);
		return;
	}
	enum log_form form = wanted_log_form(r);
	struct collector c;
	collector_init(&c, form == LOG_MARKED);
	if (run && collector_read(&c, d, caller_of(r), req_path_arg(r, "id"), run->id, &e) < 0) {
		fail(r, &e);
	} else if (form == LOG_JSON) {
		json_t *o = json_object();
		put(o, "output", collector_text(&c, run));
		put(o, "stdout", text_json(buf_str(&c.out)));
		put(o, "stderr", text_json(buf_str(&c.err)));
		req_reply_json(r, 200, o);
	} else {
		if (form == LOG_PLAIN)
			collector_join(&c);
		req_reply(r, 200, NULL, 0, "text/plain; charset=utf-8", buf_str(form == LOG_MARKED ? &c.marked : &c.out));
	}
	collector_done(&c);
}

static void handle_logs(struct request *r, void *daytona)
{
	struct run_view run;
	if (command_of(daytona, r, &run))
		answer_logs(daytona, r, &run);
}

static void handle_entrypoint_logs(struct request *r, void *daytona)
{
	struct sandbox_view v;
	struct run_view run;
	if (toolbox_sandbox(daytona, r, &v))
		answer_logs(daytona, r, entrypoint_run(daytona, caller_of(r), &v, &run) == 0 ? &run : NULL);
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/process/session", .handle = handle_list_sessions },
	{ .method = "POST", .pattern = "/process/session", .body = BODY_BUFFER, .handle = handle_create_session },
	{ .method = "GET", .pattern = "/process/session/entrypoint", .handle = handle_entrypoint },
	{ .method = "GET", .pattern = "/process/session/entrypoint/logs", .websocket = true, .handle = handle_entrypoint_logs },
	{ .method = "GET", .pattern = "/process/session/{session}", .handle = handle_get_session },
	{ .method = "DELETE", .pattern = "/process/session/{session}", .handle = handle_delete_session },
	{ .method = "POST", .pattern = "/process/session/{session}/exec", .body = BODY_BUFFER, .body_max = RUN_SCRIPT_MAX, .handle = handle_exec },
	{ .method = "GET", .pattern = "/process/session/{session}/command/{cmd}", .handle = handle_get_command },
	{ .method = "GET", .pattern = "/process/session/{session}/command/{cmd}/logs", .websocket = true, .handle = handle_logs },
	{ .method = "POST", .pattern = "/process/session/{session}/command/{cmd}/input", .body = BODY_BUFFER, .handle = handle_input },
};
const struct route_table session_routes = { routes, ARRAY_LEN(routes) };
