/* Interpreters: kernels that keep their variables from one piece of code to the next. A piece's answer is one object, or its events as they come
 * (?stream=1, newline-delimited JSON; a slow client makes the code wait). A client that leaves interrupts its piece. */
#include "dialect/native/native_int.h"

#include <errno.h>

#define TEXT_KEPT (32U << 20)    /* of each stream, and of results, in one answer */
#define EVENT_MAX (64U << 20)    /* one line: what a kernel may say in one, with JSON's worst escapes */

static void encode_interpreter(struct jout *j, const struct interpreter_view *v)
{
	jout_object(j, NULL);
	jout_z(j, "id", v->id);
	jout_z(j, "language", v->language);
	jout_z(j, "cwd", v->cwd);
	jout_bool(j, "alive", v->alive);
	jout_bool(j, "busy", v->busy);
	jout_time(j, "created_at", v->created_ms);
	jout_end_object(j);
}

static void answer_interpreter(struct native *n, struct request *r, int status, const struct interpreter_view *v)
{
	auto_buf struct buf b;
	buf_init(&b, 64U << 10);
	struct jout j = { .b = &b };
	encode_interpreter(&j, v);
	answer_json(n, r, status, &b);
}

static void created(void *ctx, const struct err *e, const struct interpreter_view *v)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	if (e)
		answer_err(n, r, e);
	else
		answer_interpreter(n, r, 201, v);
}

void native_interpreter_create(struct request *r, void *dialect)
{
	struct body {
		char *language, *cwd;
	} body = { 0 };
	static const struct field fields[] = {
		{ .name = "language", .kind = FIELD_STRING, .offset = offsetof(struct body, language) },
		{ .name = "cwd", .kind = FIELD_STRING, .offset = offsetof(struct body, cwd) },
		{ 0 },
	};
	struct native *n = dialect;
	struct err e;
	int rc = decode_body(req_body(r), fields, &body, &e);
	if (rc >= 0 && body.cwd && (!*body.cwd || strlen(body.cwd) > SPEC_PATH_MAX))
		rc = err_set(&e, ERR_INVALID, EINVAL, "field \"cwd\" must be a path of 1 to %d bytes", SPEC_PATH_MAX);
	if (rc < 0) {
		answer_err(n, r, &e);
	} else {
		struct interpreter_spec spec = { body.language, body.cwd };
		api_interpreter_create(n->api, req_caller(r), req_ref(r), &spec, created, pending_new(n, r));
	}
	free(body.language);
	free(body.cwd);
}

static void add_interpreter(void *ctx, const struct interpreter_view *v)
{
	encode_interpreter(ctx, v);
}

void native_interpreter_list(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	auto_items struct items l;
	items_begin(&l);
	if (api_interpreter_list(n->api, req_caller(r), req_ref(r), add_interpreter, &l.j, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	answer_items(n, r, 200, &l);
}

void native_interpreter_get(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct interpreter_view v;
	struct err e;
	if (api_interpreter_get(n->api, req_caller(r), req_ref(r), req_path_arg(r, "interpreter"), &v, &e) < 0)
		answer_err(n, r, &e);
	else
		answer_interpreter(n, r, 200, &v);
}

void native_interpreter_delete(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	if (api_interpreter_delete(n->api, req_caller(r), req_ref(r), req_path_arg(r, "interpreter"), &e) < 0)
		answer_err(n, r, &e);
	else
		answer_empty(n, r, 204);
}

void native_interpreter_interrupt(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	if (api_interpreter_interrupt(n->api, req_caller(r), req_ref(r), req_path_arg(r, "interpreter"), &e) < 0)
		answer_err(n, r, &e);
	else
		answer_empty(n, r, 204);
}

/* --- a piece of code --- */

struct piece {
	struct native *n;
	struct request *r;
	struct execution *execution;
	bool stream, truncated;
	struct buf out[2], results, error; /* results, error: JSON */
};

static void piece_free(struct piece *p)
{
	for (int i = 0; i < 2; i++)
		buf_done(&p->out[i]);
	buf_done(&p->results);
	buf_done(&p->error);
	free(p);
}

static void piece_gone(void *ctx)
{
	struct piece *p = ctx;
	execution_leave(p->execution);
	piece_free(p);
}

static void piece_room(void *ctx)
{
	execution_resume(((struct piece *)ctx)->execution);
}

static void send_line(struct piece *p, struct buf *b)
{
	buf_addc(b, '\n');
	req_write(p->r, buf_str(b));
	if (!req_room(p->r))
		execution_pause(p->execution);
}

static void keep(struct piece *p, struct buf *to, struct str bytes)
{
	if (buf_add(to, bytes.p, bytes.n) < 0)
		p->truncated = true;
}

static void on_output(void *ctx, int stream, struct str text)
{
	struct piece *p = ctx;
	if (!p->stream) {
		keep(p, &p->out[stream == 2], text);
		return;
	}
	auto_buf struct buf b;
	buf_init(&b, EVENT_MAX);
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	jout_z(&j, "event", "output");
	jout_z(&j, "stream", stream == 2 ? "stderr" : "stdout");
	jout_str(&j, "data", text);
	jout_end_object(&j);
	send_line(p, &b);
}

static void encode_result(struct jout *j, bool main, const struct form *forms, size_t n)
{
	jout_bool(j, "main", main);
	jout_array(j, "forms");
	for (size_t i = 0; i < n; i++) {
		jout_object(j, NULL);
		jout_str(j, "type", forms[i].mime);
		jout_str(j, "data", forms[i].text);
		jout_end_object(j);
	}
	jout_end_array(j);
	jout_end_object(j);
}

static void on_result(void *ctx, bool main, const struct form *forms, size_t n)
{
	struct piece *p = ctx;
	auto_buf struct buf b;
	buf_init(&b, EVENT_MAX);
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	if (p->stream)
		jout_z(&j, "event", "result");
	encode_result(&j, main, forms, n);
	if (p->stream) {
		send_line(p, &b);
		return;
	}
	if (p->results.len + 1 + b.len > p->results.max) {
		p->truncated = true;
		return;
	}
	if (p->results.len)
		buf_addc(&p->results, ',');
	buf_add(&p->results, b.data, b.len);
}

static void encode_error(struct jout *j, struct str name, struct str value, struct str traceback)
{
	jout_str(j, "name", name);
	jout_str(j, "value", value);
	jout_str(j, "traceback", traceback);
	jout_end_object(j);
}

static void on_error(void *ctx, struct str name, struct str value, struct str traceback)
{
	struct piece *p = ctx;
	auto_buf struct buf b;
	buf_init(&b, EVENT_MAX);
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	if (p->stream)
		jout_z(&j, "event", "error");
	encode_error(&j, name, value, traceback);
	if (p->stream)
		send_line(p, &b);
	else if (!p->error.len)
		keep(p, &p->error, buf_str(&b));
}

static void raw(struct jout *j, const char *key, const char *before, struct str json, const char *after)
{
	buf_addf(j->b, ",\"%s\":%s", key, before);
	buf_add(j->b, json.p, json.n);
	buf_addz(j->b, after);
}

static void on_end(void *ctx, enum execution_end end, const char *message)
{
	struct piece *p = ctx;
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	req_on_gone(p->r, NULL, NULL);
	jout_object(&j, NULL);
	if (p->stream)
		jout_z(&j, "event", "end");
	jout_z(&j, "state", execution_end_name(end));
	jout_z(&j, "message", message);
	if (p->stream) {
		jout_end_object(&j);
		buf_addc(&b, '\n');
		req_write(p->r, buf_str(&b));
		req_end(p->r);
	} else {
		jout_str(&j, "stdout", buf_str(&p->out[0]));
		jout_str(&j, "stderr", buf_str(&p->out[1]));
		jout_bool(&j, "truncated", p->truncated);
		raw(&j, "results", "[", buf_str(&p->results), "]");
		raw(&j, "error", "", p->error.len ? buf_str(&p->error) : STR("null"), "");
		jout_end_object(&j);
		answer_json(p->n, p->r, 200, &b);
	}
	piece_free(p);
}

struct code_body {
	char *code;
	struct pairs env;
	uint64_t timeout_ms;
};

static struct piece *piece_new(struct native *n, struct request *r, bool stream)
{
	struct piece *p = xcalloc(1, sizeof *p);
	*p = (struct piece){ .n = n, .r = r, .stream = stream };
	for (int i = 0; i < 2; i++)
		buf_init(&p->out[i], TEXT_KEPT);
	buf_init(&p->results, TEXT_KEPT);
	buf_init(&p->error, TEXT_KEPT);
	return p;
}

static void run_piece(struct native *n, struct request *r, const struct code_body *body, bool stream)
{
	static const struct execution_events events = { .on_output = on_output, .on_result = on_result, .on_error = on_error, .on_end = on_end };
	struct err e;
	struct execution_spec spec = { .interpreter = req_path_arg(r, "interpreter"), .code = body->code, .env = body->env,
		                       .timeout_ms = body->timeout_ms, .stop_on_leave = true };
	struct piece *p = piece_new(n, r, stream);
	p->execution = api_execute(n->api, req_caller(r), req_ref(r), &spec, &events, p, &e);
	if (!p->execution) {
		answer_err(n, r, &e);
		piece_free(p);
		return;
	}
	req_on_gone(r, piece_gone, p);
	if (stream) {
		answer_begin(n, r, NULL, 0, "application/x-ndjson");
		req_on_room(r, piece_room, p);
	}
}

void native_interpreter_execute(struct request *r, void *dialect)
{
	static const struct field fields[] = {
		{ .name = "code", .kind = FIELD_STRING, .offset = offsetof(struct code_body, code), .required = true },
		{ .name = "env", .kind = FIELD_PAIRS, .offset = offsetof(struct code_body, env) },
		{ .name = "timeout_ms", .kind = FIELD_U64, .offset = offsetof(struct code_body, timeout_ms) },
		{ 0 },
	};
	static const struct field query_fields[] = { { .name = "stream", .kind = FIELD_BOOL }, { 0 } };
	struct native *n = dialect;
	struct {
		bool stream;
	} query = { 0 };
	struct code_body body = { 0 };
	struct err e;
	if (decode_query(r, query_fields, &query, &e) < 0 || decode_body(req_body(r), fields, &body, &e) < 0)
		answer_err(n, r, &e);
	else
		run_piece(n, r, &body, query.stream);
	free(body.code);
	pairs_done(&body.env);
}
