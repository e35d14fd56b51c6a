/* The stateful interpreter: contexts, and code that runs in one by a WebSocket of its own.
 *
 * The client's first message is the code; events follow as messages, and the socket is closed when it has ended: 1000, or 4008 for a time
 * limit, 1008 for a request that can't be done, 1011 for a kernel that died. SDKs pass over types of messages that they don't know, so
 * results (values, pictures) go out as "result", for clients that do. */
#include "dialect/daytona/internal.h"

#include <errno.h>
#include <stdio.h>

#define TIMEOUT_DEFAULT_S 600
#define TIMEOUT_MAX_S 31536000
#define CLOSE_REASON_MAX 123 /* of a close frame */

/* --- contexts --- */

static json_t *context_json(const struct interpreter_view *v)
{
	json_t *o = json_object();
	put(o, "id", textz_json(v->id));
	put(o, "cwd", textz_json(v->cwd));
	put(o, "createdAt", time_json(v->created_ms));
	put(o, "active", json_boolean(v->alive));
	put(o, "language", textz_json(v->language));
	return o;
}

static void on_created(void *ctx, const struct err *e, const struct interpreter_view *v)
{
	struct call *c = ctx;
	if (e)
		call_fail(c, e);
	else
		call_json(c, 200, context_json(v));
}

static void handle_create_context(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v;
	struct interpreter_spec spec = { 0 };
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *body = body_object(r, &e);
	if (!body || want_text(body, "cwd", &spec.cwd, &e) < 0 || want_text(body, "language", &spec.language, &e) < 0) {
		fail(r, &e);
	} else {
		if (spec.cwd && !*spec.cwd)
			spec.cwd = NULL;
		struct call *c = call_new(sizeof(*c), d, r, NULL);
		api_interpreter_create(d->api, &c->caller, c->ref, &spec, on_created, c);
	}
	json_decref(body);
}

static void each_context(void *list, const struct interpreter_view *v)
{
	if (!streq(v->id, INTERPRETER_DEFAULT))
		json_array_append_new(list, context_json(v));
}

static void handle_list_contexts(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v;
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *list = json_array();
	if (api_interpreter_list(d->api, caller_of(r), v.id, each_context, list, &e) < 0) {
		json_decref(list);
		fail(r, &e);
	} else {
		req_reply_json(r, 200, json_pack("{s:o}", "contexts", list));
	}
}

static void handle_delete_context(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v;
	const char *id = req_path_arg(r, "context");
	if (!toolbox_sandbox(d, r, &v))
		return;
	if (streq(id, INTERPRETER_DEFAULT))
		fail_code(r, 400, "BAD_REQUEST", "the default context cannot be deleted");
	else if (api_interpreter_delete(d->api, caller_of(r), v.id, id, &e) < 0)
		fail(r, &e);
	else
		req_reply_json(r, 200, json_pack("{s:s}", "message", "context deleted"));
}

/* --- code --- */

struct piece {
	struct daytona *d;
	struct caller caller;
	char *ref;
	struct socket *socket;
	struct execution *execution; /* NULL before its start and after its end */
	bool asked;                  /* the first message has come */
};

static void say(struct piece *p, json_t *take)
{
	size_t n = json_dumpb(take, NULL, 0, JSON_COMPACT);
	auto_free char *text = xmalloc(n + 1);
	json_dumpb(take, text, n, JSON_COMPACT);
	json_decref(take);
	socket_send(p->socket, true, (struct str){ text, n });
	if (!socket_room(p->socket) && p->execution)
		execution_pause(p->execution);
}

/* All the members every time, as the official server does. */
static json_t *chunk(const char *type, struct str text, struct str name, struct str value, struct str traceback)
{
	json_t *o = json_object();
	put(o, "type", json_string(type));
	put(o, "text", text_json(text));
	put(o, "name", text_json(name));
	put(o, "value", text_json(value));
	put(o, "traceback", text_json(traceback));
	return o;
}

static void on_output(void *ctx, int stream, struct str text)
{
	say(ctx, chunk(stream == 2 ? "stderr" : "stdout", text, STR(""), STR(""), STR("")));
}

static void on_error(void *ctx, struct str name, struct str value, struct str traceback)
{
	say(ctx, chunk("error", STR(""), name, value, traceback));
}

static void on_result(void *ctx, bool main, const struct form *forms, size_t n)
{
	json_t *o = json_pack("{s:s, s:b}", "type", "result", "main", main), *data = json_object();
	for (size_t i = 0; i < n; i++) {
		auto_free char *mime = xstrndup(forms[i].mime.p, forms[i].mime.n);
		put(data, mime, text_json(forms[i].text));
	}
	put(o, "data", data);
	say(ctx, o);
}

static void close_with(struct piece *p, int code, const char *reason)
{
	char text[CLOSE_REASON_MAX + 1];
	size_t n = (size_t)snprintf(text, sizeof(text), "%s", reason ? reason : "");
	for (n = MIN(n, sizeof(text) - 1); n && !utf8_valid((struct str){ text, n }); n--) /* cut inside a character */
		;
	text[n] = '\0';
	socket_close(p->socket, code, text);
}

static void on_end(void *ctx, enum execution_end end, const char *message)
{
	struct piece *p = ctx;
	p->execution = NULL;
	switch (end) {
	case EXECUTION_DONE:
	case EXECUTION_INTERRUPTED:
		say(p, chunk("control", end == EXECUTION_DONE ? STR("completed") : STR("interrupted"), STR(""), STR(""), STR("")));
		close_with(p, 1000, "");
		break;
	case EXECUTION_TIMED_OUT:
		close_with(p, 4008, "execution timeout");
		break;
	case EXECUTION_LOST:
		close_with(p, 1011, message);
		break;
	}
}

static int decode_piece(const json_t *o, struct execution_spec *spec, struct err *e)
{
	int64_t timeout = TIMEOUT_DEFAULT_S;
	int rc;
	if ((rc = want_text(o, "code", &spec->code, e)) < 0 || (rc = want_text(o, "contextId", &spec->interpreter, e)) < 0 ||
	    (rc = want_pairs(o, "envs", &spec->env, e)) < 0 || (rc = want_int(o, "timeout", 0, TIMEOUT_MAX_S, &timeout, e)) < 0)
		return rc;
	if (!spec->code || !*spec->code)
		return err_set(e, ERR_INVALID, EINVAL, "code is required");
	if (spec->interpreter && !*spec->interpreter)
		spec->interpreter = NULL;
	spec->timeout_ms = (uint64_t)timeout * 1000;
	spec->stop_on_leave = true; /* nobody could come back to it */
	return 0;
}

static void on_message(void *ctx, bool text, struct str bytes)
{
	static const struct execution_events events = { .on_output = on_output, .on_result = on_result, .on_error = on_error, .on_end = on_end };
	struct piece *p = ctx;
	struct err e = { 0 };
	struct execution_spec spec = { 0 };
	(void)text;
	if (p->asked) /* there is no second one */
		return;
	p->asked = true;
	json_t *o = json_loadb(bytes.p, bytes.n, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(o)) {
		close_with(p, 1002, "the first message is a JSON object with the code");
	} else if (decode_piece(o, &spec, &e) < 0) {
		close_with(p, 1008, e.message);
	} else {
		p->execution = api_execute(p->d->api, &p->caller, p->ref, &spec, &events, p, &e);
		if (!p->execution)
			close_with(p, e.kind == ERR_INTERNAL || e.kind == ERR_UNAVAILABLE ? 1011 : 1008, e.message);
	}
	pairs_done(&spec.env);
	json_decref(o);
}

static void on_room(void *ctx)
{
	struct piece *p = ctx;
	if (p->execution)
		execution_resume(p->execution);
}

static void on_close(void *ctx, int code)
{
	struct piece *p = ctx;
	(void)code;
	if (p->execution)
		execution_leave(p->execution);
	free(p->ref);
	free(p);
}

static void handle_execute(struct request *r, void *daytona)
{
	static const struct socket_events events = { .on_message = on_message, .on_room = on_room, .on_close = on_close };
	struct sandbox_view v;
	if (!req_is_websocket(r)) {
		fail_code(r, 426, "UPGRADE_REQUIRED", "this is a WebSocket");
		return;
	}
	if (!toolbox_sandbox(daytona, r, &v))
		return;
	struct piece *p = xcalloc(1, sizeof(*p));
	struct str offered = req_protocol_at(r, 0);
	auto_free char *protocol = offered.p ? xstrndup(offered.p, offered.n) : NULL;
	p->d = daytona;
	p->caller = *caller_of(r);
	p->ref = xstrdup(v.id);
	p->socket = req_accept_websocket(r, protocol, 2U * RUN_SCRIPT_MAX, &events, p);
	if (!p->socket)
		on_close(p, 0);
}

static const struct route routes[] = {
	{ .method = "POST", .pattern = "/process/interpreter/context", .body = BODY_BUFFER, .handle = handle_create_context },
	{ .method = "GET", .pattern = "/process/interpreter/context", .handle = handle_list_contexts },
	{ .method = "DELETE", .pattern = "/process/interpreter/context/{context}", .handle = handle_delete_context },
	{ .method = "GET", .pattern = "/process/interpreter/execute", .websocket = true, .handle = handle_execute },
};
const struct route_table interpreter_routes = { routes, ARRAY_LEN(routes) };
