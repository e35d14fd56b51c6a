/* Terminals: an interactive login shell as a run with a pty, joined by WebSockets.
 *
 * A terminal is found again by its run: the run's display text is "pty " and a JSON object with what the client gave
 * (id, cwd, envs) and the present size, so terminals outlive this process as runs do. */
#include "dialect/daytona/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#define DISPLAY "pty "
#define EXIT_CONTROL "X-Daytona-Pty-Exit-Control"
#define ENVS_TOKEN "X-Daytona-Pty-Envs~"
#define SCROLLBACK (64U << 10) /* bytes of earlier output that a client sees when it joins */
#define SIZE_MAX_CELLS 1000

/* --- finding --- */

struct search {
	const char *id;     /* NULL: all */
	json_t *found;      /* [{"run", "pty", "created"}] of the living */
};

static void each_run(void *ctx, const struct run_view *r)
{
	struct search *s = ctx;
	if (!r->pty || run_view_ended(r) || !r->display || strncmp(r->display, DISPLAY, strlen(DISPLAY)) != 0)
		return;
	json_t *pty = json_loads(r->display + strlen(DISPLAY), JSON_REJECT_DUPLICATES, NULL);
	const char *id = json_string_value(json_object_get(pty, "id"));
	if (id && (!s->id || streq(s->id, id)))
		json_array_append_new(s->found, json_pack("{s:s, s:O, s:I}", "run", r->id, "pty", pty, "created", (json_int_t)r->started_ms));
	json_decref(pty);
}

/* New array, or NULL and e. */
static json_t *find(struct daytona *d, const struct caller *c, const char *ref, const char *id, struct err *e)
{
	struct search s = { .id = id, .found = json_array() };
	if (api_run_list(d->api, c, ref, NULL, each_run, &s, e) < 0) {
		json_decref(s.found);
		return NULL;
	}
	return s.found;
}

static char *display_of(json_t *pty)
{
	auto_free char *text = json_dumps(pty, JSON_COMPACT);
	return xasprintf(DISPLAY "%s", text ? text : "");
}

static json_t *info_json(const json_t *found)
{
	json_t *o = json_copy(json_object_get(found, "pty"));
	put(o, "createdAt", time_json((uint64_t)json_integer_value(json_object_get(found, "created"))));
	put(o, "active", json_true());
	put(o, "lazyStart", json_false());
	return o;
}

/* The run of the path's terminal (heap), and it as find() has it (new; ret may be NULL), or an answer and NULL. */
static char *run_of(struct daytona *d, struct request *r, json_t **ret_found)
{
	struct err e = { 0 };
	struct sandbox_view v;
	const char *id = req_path_arg(r, "pty");
	if (!toolbox_sandbox(d, r, &v))
		return NULL;
	json_t *found = find(d, caller_of(r), v.id, id, &e);
	if (!found) {
		fail(r, &e);
		return NULL;
	}
	json_t *first = json_array_get(found, 0);
	char *run = xstrdup(json_string_value(json_object_get(first, "run")));
	if (!run)
		fail_code(r, 404, "PROCESS_NOT_FOUND", "not found: terminal %.128s", id);
	else if (ret_found)
		*ret_found = json_incref(first);
	json_decref(found);
	return run;
}

/* --- a client at a terminal --- */

struct seat {
	struct daytona *d;
	struct caller caller;
	char *ref, *run;
	struct socket *socket;
	struct follower *follower;
	struct buf input; /* what the terminal has not taken yet */
	uint64_t expected; /* offset of the next output; UINT64_MAX before the first */
	bool exit_control, closing;
};

static void seat_text(struct seat *s, json_t *take)
{
	auto_free char *text = json_dumps(take, JSON_COMPACT);
	json_decref(take);
	socket_send(s->socket, true, str_of(text));
}

static void seat_output(void *ctx, int stream, uint64_t offset, struct str bytes)
{
	(void)stream;
	struct seat *s = ctx;
	if (s->closing)
		return;
	if (s->expected != UINT64_MAX && offset != s->expected) { /* tens of MiB behind: better said than a screen that is wrong */
		s->closing = true;
		socket_close(s->socket, 1008, "the client reads too slowly; connect again");
		return;
	}
	s->expected = offset + bytes.n;
	socket_send(s->socket, false, bytes);
	if (!socket_room(s->socket) && s->follower)
		follower_pause(s->follower);
}

static const char *exit_reason(int code)
{
	static char text[24]; /* one loop, used at once */
	switch (code) {
	case 130:
		return "Ctrl+C";
	case 137:
		return "SIGKILL";
	case 143:
		return "SIGTERM";
	default:
		snprintf(text, sizeof(text), "signal %d", code - 128);
		return code > 128 ? text : "non-zero exit";
	}
}

static void seat_fail(struct seat *s, const char *why)
{
	seat_text(s, json_pack("{s:s, s:s, s:o}", "type", "control", "status", "error", "error", textz_json(why)));
	s->closing = true;
	socket_close(s->socket, 1011, "");
}

static void seat_end(void *ctx, const struct run_view *r)
{
	struct seat *s = ctx;
	if (s->closing)
		return;
	if (r->state == RUN_FAILED) {
		seat_fail(s, r->message ? r->message : "the terminal could not be started");
		return;
	}
	int code = r->state == RUN_EXITED ? r->exit_code : 137;
	json_t *o = json_pack("{s:i}", "exitCode", code);
	if (code)
		put(o, "exitReason", json_string(exit_reason(code)));
	auto_free char *reason = json_dumps(o, JSON_COMPACT);
	put(o, "type", json_string("control"));
	put(o, "status", json_string("exited"));
	if (s->exit_control)
		seat_text(s, json_incref(o));
	json_decref(o);
	s->closing = true;
	socket_close(s->socket, code ? 1011 : 1000, reason);
}

static void seat_room(void *ctx)
{
	struct seat *s = ctx;
	if (s->follower)
		follower_resume(s->follower);
}

static void give_input(struct seat *s)
{
	while (s->input.len) {
		struct err e;
		ssize_t n = api_run_write(s->d->api, &s->caller, s->ref, s->run, buf_str(&s->input), &e);
		if (n < 0) /* it has ended; seat_end tells */
			buf_reset(&s->input);
		if (n <= 0)
			break;
		buf_consume(&s->input, (size_t)n);
	}
	if (s->input.len)
		socket_pause(s->socket);
	else
		socket_resume(s->socket);
}

static void seat_stdin_room(void *ctx)
{
	give_input(ctx);
}

static void seat_message(void *ctx, bool text, struct str bytes)
{
	(void)text;
	struct seat *s = ctx;
	if (s->closing)
		return;
	if (buf_add(&s->input, bytes.p, bytes.n) < 0) {
		s->closing = true;
		socket_close(s->socket, 1009, "too much input at once");
		return;
	}
	give_input(s);
}

static void seat_close(void *ctx, int code)
{
	(void)code;
	struct seat *s = ctx;
	if (s->follower)
		follower_free(s->follower);
	buf_done(&s->input);
	free(s->ref);
	free(s->run);
	free(s);
}

/* Which offered protocol to select: a client that offers some must see one of them. */
static char *protocol_for(struct request *r)
{
	if (req_offers_protocol(r, EXIT_CONTROL))
		return xstrdup(EXIT_CONTROL);
	struct str first = req_protocol_at(r, 0);
	return first.p ? xstrndup(first.p, first.n) : NULL;
}

/* Uses up the request. */
static void sit_down(struct daytona *d, const struct caller *c, struct request *r, const char *ref, const char *run)
{
	static const struct socket_events events = { .on_message = seat_message, .on_room = seat_room, .on_close = seat_close };
	static const struct follower_events output = { .on_output = seat_output, .on_stdin_room = seat_stdin_room, .on_end = seat_end };
	struct err e = { 0 };
	struct run_view v;
	struct seat *s = xcalloc(1, sizeof(*s));
	s->d = d;
	s->caller = *c;
	s->ref = xstrdup(ref);
	s->run = xstrdup(run);
	s->exit_control = req_offers_protocol(r, EXIT_CONTROL);
	buf_init(&s->input, 2U << 20);
	s->expected = UINT64_MAX;
	uint64_t from = api_run_get(d->api, c, ref, run, &v, &e) == 0 && v.stdout_bytes > SCROLLBACK ? v.stdout_bytes - SCROLLBACK : 0;
	auto_free char *protocol = protocol_for(r);
	s->socket = req_accept_websocket(r, protocol, 0, &events, s);
	if (!s->socket) {
		seat_close(s, 0);
		return;
	}
	s->follower = api_run_follow(d->api, &s->caller, s->ref, s->run, from, 0, &output, s, &e);
	if (s->follower) {
		seat_text(s, json_pack("{s:s, s:s}", "type", "control", "status", "connected"));
	} else {
		seat_fail(s, e.message);
	}
}

/* --- making one --- */

struct opening {
	struct call call;
	struct run_spec spec;
	char *id;
	bool join; /* by WebSocket at once */
};

static void opening_drop(struct call *c)
{
	struct opening *x = container_of(c, struct opening, call);
	run_spec_done(&x->spec);
	free(x->id);
}

static void on_opened(void *ctx, const struct err *e, const struct run_view *run)
{
	struct opening *x = ctx;
	if (e) {
		call_fail(&x->call, e);
	} else if (!x->join) {
		call_json(&x->call, 201, json_pack("{s:s}", "sessionId", x->id));
	} else {
		struct request *r = x->call.r;
		auto_free char *id = xstrdup(run->id);
		call_detach(&x->call);
		sit_down(x->call.d, &x->call.caller, r, x->call.ref, id);
		call_free(&x->call);
	}
}

/* What a person would get: her shell, else bash, else sh; never one that only says no. */
static const char shell_line[] = "for s in \"$SHELL\" /bin/bash /bin/sh; do case $s in ''|*/nologin|*/false) ;; *) [ -x \"$s\" ] && exec \"$s\" -i -l ;; "
				 "esac; done; exit 127";

static int decode_pty(const json_t *o, struct opening *x, struct err *e)
{
	const char *id = NULL, *cwd = NULL;
	int64_t cols = 80, rows = 24;
	bool lazy = false;
	if (want_text(o, "id", &id, e) < 0 || want_text(o, "cwd", &cwd, e) < 0 || want_pairs(o, "envs", &x->spec.env, e) < 0 ||
	    want_int(o, "cols", 1, SIZE_MAX_CELLS, &cols, e) < 0 || want_int(o, "rows", 1, SIZE_MAX_CELLS, &rows, e) < 0 ||
	    want_bool(o, "lazyStart", &lazy, e) < 0)
		return -EINVAL;
	if (!id || !*id || strlen(id) > 128)
		return err_set(e, ERR_INVALID, EINVAL, "id must be 1 to 128 bytes");
	json_t *about = json_object();
	put(about, "id", json_string(id));
	put(about, "cwd", json_string(cwd ? cwd : ""));
	put(about, "envs", pairs_json(&x->spec.env));
	put(about, "cols", json_integer(cols));
	put(about, "rows", json_integer(rows));
	x->id = xstrdup(id);
	x->spec.display = display_of(about);
	json_decref(about);
	x->spec.output_max = RUN_OUTPUT_MAX_MAX;
	x->spec.cwd = cwd && *cwd ? xstrdup(cwd) : NULL;
	x->spec.cols = (uint16_t)cols;
	x->spec.rows = (uint16_t)rows;
	return 0;
}

static void open_pty(struct daytona *d, struct request *r, const json_t *o, bool join)
{
	struct err e = { 0 };
	struct opening *x = call_new(sizeof(*x), d, r, opening_drop);
	run_spec_init(&x->spec);
	x->join = join;
	int rc = decode_pty(o, x, &e);
	json_t *same = rc == 0 ? find(d, &x->call.caller, x->call.ref, x->id, &e) : NULL;
	if (same && json_array_size(same)) {
		err_set(&e, ERR_CONFLICT, EEXIST, "terminal %.128s exists already", x->id);
		rc = -EEXIST;
	}
	json_decref(same);
	if (!same || rc < 0) {
		call_fail(&x->call, &e);
		return;
	}
	x->spec.argv = xcalloc(4, sizeof(char *));
	x->spec.argv[0] = xstrdup("/bin/sh");
	x->spec.argv[1] = xstrdup("-c");
	x->spec.argv[2] = xstrdup(shell_line);
	if (!pairs_get(&x->spec.env, "TERM"))
		pairs_add(&x->spec.env, "TERM", "xterm-256color");
	x->spec.pty = x->spec.stdin_open = x->spec.detach = true;
	api_run_start(d->api, &x->call.caller, x->call.ref, &x->spec, on_opened, x);
}

/* Environment variables come in a subprotocol token: base64url without padding of a JSON object. */
static json_t *envs_of(struct request *r)
{
	const size_t mark = strlen(ENVS_TOKEN);
	for (size_t i = 0; i < 16; i++) {
		struct str p = req_protocol_at(r, i);
		if (!p.p)
			break;
		if (p.n <= mark || memcmp(p.p, ENVS_TOKEN, mark) != 0)
			continue;
		size_t n = p.n - mark, padded = (n + 3) / 4 * 4;
		auto_free char *text = xmalloc(padded + 1), *plain = xmalloc(padded + 1);
		for (size_t k = 0; k < padded; k++) {
			char c = k < n ? p.p[mark + k] : '=';
			text[k] = c == '-' ? '+' : c == '_' ? '/' : c;
		}
		ssize_t len = base64_decode((struct str){ text, padded }, plain);
		return len < 0 ? NULL : json_loadb(plain, (size_t)len, JSON_REJECT_DUPLICATES, NULL);
	}
	return json_object();
}

static void handle_create_connect(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v;
	if (!req_is_websocket(r)) {
		fail_code(r, 426, "UPGRADE_REQUIRED", "this is a WebSocket");
		return;
	}
	if (!toolbox_sandbox(d, r, &v))
		return;
	static const char *const numbers[] = { "cols", "rows" };
	json_t *o = json_object(), *envs = envs_of(r);
	int rc = json_is_object(envs) ? 0 : err_set(&e, ERR_INVALID, EINVAL, "the environment token is not base64url of a JSON object");
	put(o, "envs", envs);
	put(o, "id", textz_json(req_query(r, "id")));
	put(o, "cwd", textz_json(req_query(r, "cwd")));
	for (size_t i = 0; rc == 0 && i < ARRAY_LEN(numbers); i++) {
		int64_t n;
		const char *text = req_query(r, numbers[i]);
		if (text && *text && (rc = parse_int(numbers[i], text, 1, SIZE_MAX_CELLS, &n, &e)) == 0)
			put(o, numbers[i], json_integer(n));
	}
	if (rc < 0)
		fail(r, &e);
	else
		open_pty(d, r, o, true);
	json_decref(o);
}

static void handle_create_only(struct request *r, void *daytona)
{
	struct err e = { 0 };
	struct sandbox_view v;
	if (!toolbox_sandbox(daytona, r, &v))
		return;
	json_t *o = body_object(r, &e);
	if (o)
		open_pty(daytona, r, o, false);
	else
		fail(r, &e);
	json_decref(o);
}

static void handle_connect(struct request *r, void *daytona)
{
	if (!req_is_websocket(r)) {
		fail_code(r, 426, "UPGRADE_REQUIRED", "this is a WebSocket");
		return;
	}
	auto_free char *run = run_of(daytona, r, NULL);
	if (!run)
		return;
	struct caller caller = *caller_of(r);
	auto_free char *ref = xstrdup(req_path_arg(r, "id"));
	sit_down(daytona, &caller, r, ref, run);
}

static void handle_list(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v;
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *found = find(d, caller_of(r), v.id, NULL, &e), *list = json_array();
	if (!found) {
		json_decref(list);
		fail(r, &e);
		return;
	}
	for (size_t i = 0; i < json_array_size(found); i++)
		json_array_append_new(list, info_json(json_array_get(found, i)));
	json_decref(found);
	req_reply_json(r, 200, json_pack("{s:o}", "sessions", list));
}

static void handle_info(struct request *r, void *daytona)
{
	json_t *found = NULL;
	auto_free char *run = run_of(daytona, r, &found);
	if (run)
		req_reply_json(r, 200, info_json(found));
	json_decref(found);
}

static void handle_resize(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	int64_t cols = 0, rows = 0;
	json_t *found = NULL;
	auto_free char *run = run_of(d, r, &found);
	if (!run)
		return;
	json_t *o = body_object(r, &e), *pty = json_object_get(found, "pty");
	int rc = o ? want_int(o, "cols", 1, SIZE_MAX_CELLS, &cols, &e) : -EINVAL;
	if (rc >= 0)
		rc = want_int(o, "rows", 1, SIZE_MAX_CELLS, &rows, &e);
	if (rc >= 0 && (!cols || !rows))
		rc = err_set(&e, ERR_INVALID, EINVAL, "cols and rows are required");
	if (rc >= 0)
		rc = api_run_resize(d->api, caller_of(r), req_path_arg(r, "id"), run, (uint16_t)rows, (uint16_t)cols, &e);
	if (rc >= 0) {
		put(pty, "cols", json_integer(cols));
		put(pty, "rows", json_integer(rows));
		auto_free char *display = display_of(pty);
		rc = api_run_set_display(d->api, caller_of(r), req_path_arg(r, "id"), run, display, &e);
	}
	if (rc < 0)
		fail(r, &e);
	else
		req_reply_json(r, 200, info_json(found));
	json_decref(o);
	json_decref(found);
}

static void handle_kill(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	auto_free char *run = run_of(d, r, NULL);
	if (!run)
		return;
	if (api_run_cancel(d->api, caller_of(r), req_path_arg(r, "id"), run, &e) < 0)
		fail(r, &e);
	else
		req_reply_json(r, 200, json_pack("{s:s}", "message", "terminal ended"));
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/process/pty", .handle = handle_list },
	{ .method = "POST", .pattern = "/process/pty", .body = BODY_BUFFER, .handle = handle_create_only },
	{ .method = "GET", .pattern = "/process/pty/create-connect", .websocket = true, .handle = handle_create_connect },
	{ .method = "GET", .pattern = "/process/pty/{pty}", .handle = handle_info },
	{ .method = "DELETE", .pattern = "/process/pty/{pty}", .handle = handle_kill },
	{ .method = "GET", .pattern = "/process/pty/{pty}/connect", .websocket = true, .handle = handle_connect },
	{ .method = "POST", .pattern = "/process/pty/{pty}/resize", .body = BODY_BUFFER, .handle = handle_resize },
};
const struct route_table pty_routes = { routes, ARRAY_LEN(routes) };
