/* A WebSocket on a run: both streams out, input and control in. The messages are described in docs/openapi.yaml.
 *
 * Back-pressure both ways: a client that does not read pauses its follower; input that the command does not take stops the
 * reading of the socket, so the client's own socket fills up. Control messages wait in line behind input, as they were sent. */
#include "dialect/native/native_int.h"

#include <errno.h>

enum { MESSAGE_MAX = 1 << 20 };

struct attach {
	struct native *n;
	struct run_ref ref;
	struct socket *s;    /* NULL once closed by either side */
	struct follower *f;
	struct buf input;    /* at most one message: reading stops while there is any */
	bool eof;            /* close the input once that is through */
	bool kill, ended;
	uint64_t at[3];      /* offset of the next byte to send */
};

static void attach_free(struct attach *a)
{
	if (a->f)
		follower_free(a->f);
	buf_done(&a->input);
	run_ref_done(&a->ref);
	free(a);
}

/* --- server to client --- */

static void send_json(struct attach *a, const struct buf *b)
{
	if (a->s)
		socket_send(a->s, true, buf_str(b));
}

static void send_error(struct attach *a, const struct err *e)
{
	auto_buf struct buf b;
	buf_init(&b, 8192);
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	jout_z(&j, "type", "error");
	jout_object(&j, "error");
	jout_z(&j, "kind", err_kind_name(e->kind));
	jout_z(&j, "message", e->message);
	jout_end_object(&j);
	jout_end_object(&j);
	send_json(a, &b);
}

static void send_started(struct attach *a, const struct run_view *v)
{
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	jout_z(&j, "type", "started");
	encode_run(&j, "run", v);
	jout_u64(&j, "stdout_offset", a->at[1]);
	jout_u64(&j, "stderr_offset", a->at[2]);
	jout_end_object(&j);
	send_json(a, &b);
}

static void send_gap(struct attach *a, int stream, uint64_t offset)
{
	auto_buf struct buf b;
	buf_init(&b, 256);
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	jout_z(&j, "type", "gap");
	jout_z(&j, "stream", stream == 1 ? "stdout" : "stderr");
	jout_u64(&j, "offset", offset);
	jout_end_object(&j);
	send_json(a, &b);
}

static void on_output(void *ctx, int stream, uint64_t offset, struct str bytes)
{
	struct attach *a = ctx;
	if (!a->s || stream < 1 || stream > 2)
		return;
	if (offset != a->at[stream])
		send_gap(a, stream, offset);
	a->at[stream] = offset + bytes.n;
	auto_buf struct buf b;
	buf_init(&b, bytes.n + 1);
	buf_addc(&b, (char)stream);
	buf_add(&b, bytes.p, bytes.n);
	socket_send(a->s, false, buf_str(&b));
	if (a->f && !socket_room(a->s))
		follower_pause(a->f);
}

static void on_end(void *ctx, const struct run_view *v)
{
	struct attach *a = ctx;
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	a->ended = true;
	if (!a->s)
		return;
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	jout_z(&j, "type", "end");
	encode_run(&j, "result", v);
	jout_end_object(&j);
	send_json(a, &b);
	socket_close(a->s, 1000, "the run has ended"); /* on_close follows and frees */
}

/* --- client to server --- */

/* Feeds what is waiting. Reading goes on when there is nothing left of it. */
static void push(struct attach *a)
{
	struct run_ref *ref = &a->ref;
	struct err e;
	while (a->input.len) {
		ssize_t took = api_run_write(a->n->api, &ref->caller, ref->sandbox, ref->run, buf_str(&a->input), &e);
		if (took < 0) {
			buf_reset(&a->input); /* it has nowhere to go; say so, and go on with the output */
			send_error(a, &e);
		} else if (took == 0) {
			socket_pause(a->s);
			return;
		} else {
			buf_consume(&a->input, (size_t)took);
		}
	}
	if (a->eof) {
		a->eof = false;
		if (api_run_close_stdin(a->n->api, &ref->caller, ref->sandbox, ref->run, &e) < 0)
			send_error(a, &e);
	}
	socket_resume(a->s);
}

static void on_stdin_room(void *ctx)
{
	struct attach *a = ctx;
	if (a->s && (a->input.len || a->eof))
		push(a);
}

struct control {
	char *type;
	int signo;
	bool tree;
	uint16_t rows, cols;
};

static int set_signal(void *into, const char *where, const json_t *v, struct err *e)
{
	return decode_signal(where, v, &((struct control *)into)->signo, e);
}

static int control_decode(struct str text, struct control *c, struct err *e)
{
	static const struct field fields[] = {
		{ .name = "type", .kind = FIELD_STRING, .offset = offsetof(struct control, type), .required = true },
		{ .name = "rows", .kind = FIELD_U16, .offset = offsetof(struct control, rows), .min = 1 },
		{ .name = "cols", .kind = FIELD_U16, .offset = offsetof(struct control, cols), .min = 1 },
		{ .name = "signal", .kind = FIELD_CUSTOM, .set = set_signal },
		{ .name = "tree", .kind = FIELD_BOOL, .offset = offsetof(struct control, tree) },
		{ 0 },
	};
	return decode_body(text, fields, c, e);
}

static int act(struct attach *a, const struct control *c, struct err *e)
{
	struct api *api = a->n->api;
	const struct run_ref *ref = &a->ref;
	if (streq(c->type, "resize")) {
		if (!c->rows || !c->cols)
			return err_set(e, ERR_INVALID, EINVAL, "\"resize\" needs \"rows\" and \"cols\"");
		return api_run_resize(api, &ref->caller, ref->sandbox, ref->run, c->rows, c->cols, e);
	}
	if (streq(c->type, "signal")) {
		if (!c->signo)
			return err_set(e, ERR_INVALID, EINVAL, "\"signal\" needs the field \"signal\": a name or a number");
		return api_run_signal(api, &ref->caller, ref->sandbox, ref->run, c->signo, c->tree, e);
	}
	if (streq(c->type, "cancel"))
		return api_run_cancel(api, &ref->caller, ref->sandbox, ref->run, e);
	if (streq(c->type, "eof")) {
		a->eof = true;
		push(a);
		return 0;
	}
	return err_set(e, ERR_INVALID, EINVAL, "\"type\" must be \"resize\", \"signal\", \"cancel\" or \"eof\"");
}

static void on_text(struct attach *a, struct str text)
{
	struct control c = { 0 };
	struct err e;
	if (control_decode(text, &c, &e) < 0 || act(a, &c, &e) < 0)
		send_error(a, &e);
	free(c.type);
}

static void on_message(void *ctx, bool text, struct str bytes)
{
	struct attach *a = ctx;
	struct err e;
	if (a->ended)
		return; /* closing */
	if (text) {
		on_text(a, bytes);
		return;
	}
	if (bytes.n == 0 || bytes.p[0] != 0) {
		err_set(&e, ERR_INVALID, EINVAL, "a binary message must begin with the byte 0 (standard input)");
		send_error(a, &e);
		return;
	}
	if (buf_add(&a->input, bytes.p + 1, bytes.n - 1) < 0) {
		err_set(&e, ERR_INTERNAL, ENOBUFS, "input came faster than it was asked for");
		send_error(a, &e);
		socket_close(a->s, 1011, "input overflow");
		return;
	}
	push(a);
}

static void on_room(void *ctx)
{
	struct attach *a = ctx;
	if (a->f)
		follower_resume(a->f);
}

static void on_close(void *ctx, int code)
{
	struct attach *a = ctx;
	struct err e;
	(void)code;
	a->s = NULL;
	if (a->kill && !a->ended)
		(void)api_run_cancel(a->n->api, &a->ref.caller, a->ref.sandbox, a->ref.run, &e); /* ended meanwhile: fine */
	attach_free(a);
}

/* --- */

struct attach_query {
	uint64_t out, err;
	bool kill;
};

static const struct field attach_fields[] = {
	{ .name = "stdout_offset", .kind = FIELD_U64, .offset = offsetof(struct attach_query, out) },
	{ .name = "stderr_offset", .kind = FIELD_U64, .offset = offsetof(struct attach_query, err) },
	{ .name = "kill_on_disconnect", .kind = FIELD_BOOL, .offset = offsetof(struct attach_query, kill) },
	{ 0 },
};

void native_run_attach(struct request *r, void *dialect)
{
	static const struct follower_events events = { .on_output = on_output, .on_stdin_room = on_stdin_room, .on_end = on_end };
	static const struct socket_events socket_events = { on_message, on_room, on_close };
	struct attach_query q = { 0 };
	struct native *n = dialect;
	struct run_view v;
	struct err e;
	int rc = decode_query(r, attach_fields, &q, &e);
	if (rc >= 0)
		rc = api_run_get(n->api, req_caller(r), req_ref(r), req_path_arg(r, "run"), &v, &e);
	if (rc >= 0 && !req_is_websocket(r))
		rc = err_set(&e, ERR_INVALID, EINVAL, "this is a WebSocket: ask with \"Upgrade: websocket\" (plain HTTP: .../events, .../output, .../stdin)");
	if (rc < 0) {
		answer_err(n, r, &e);
		return;
	}
	struct attach *a = xcalloc(1, sizeof *a);
	*a = (struct attach){ .n = n, .ref = run_ref_of(r, NULL), .kill = q.kill, .at = { 0, q.out, q.err } };
	buf_init(&a->input, (size_t)MESSAGE_MAX * 4);
	/* First the handshake: with it the request, and everything asked of it, is used up. */
	a->s = req_accept_websocket(r, NULL, MESSAGE_MAX, &socket_events, a);
	if (!a->s) {
		attach_free(a);
		return;
	}
	n->answers[1]++;
	send_started(a, &v);
	a->f = api_run_follow(n->api, &a->ref.caller, a->ref.sandbox, a->ref.run, q.out, q.err, &events, a, &e);
	if (!a->f)
		socket_close(a->s, 1011, "the run is gone");
}
