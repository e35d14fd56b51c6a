/* Runs. Streaming is newline-delimited JSON (docs/openapi.yaml, RunEvent): lines are put together in `struct stream`, which
 * curl's write callback feeds, and turned into calls of the user's callbacks as soon as each is complete. */
#include "client/client.h"

#include <stdio.h>

enum { LINE_MAX_BYTES = 64 << 20, ACT_SECONDS = 10 };
#define RESULT_MAX ((size_t)3 << 30) /* two streams of output_max's default, as base64 or escaped */

struct stream {
	int (*on_output)(void *ctx, int stream, const void *bytes, size_t n);
	void (*on_start)(void *ctx, const char *run);
	void *ctx;
	struct bytes line;         /* the beginning of a line whose end has not come yet */
	struct caisson_run *end;   /* the result, once it came */
	char *run;                 /* id, once it came */
	bool user_stopped;
	struct caisson_error error; /* why the stream's reading was given up, unless user_stopped */
};

static void stream_done(struct stream *s)
{
	bytes_done(&s->line);
	caisson_run_free(s->end);
	free(s->run);
}
#define auto_stream __attribute__((cleanup(stream_done)))

static int output_event(struct stream *s, const json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "stream"));
	const json_t *text = json_object_get(o, "data"), *coded = json_object_get(o, "data_base64");
	int stream = streq(name, "stderr") ? CAISSON_STDERR : CAISSON_STDOUT;
	size_t n = json_string_length(text ? text : coded);
	auto_free char *decoded = NULL;
	const char *bytes = json_string_value(text ? text : coded);

	if (!bytes)
		return error_set(&s->error, CAISSON_ERR_PROTOCOL, "an output event without data");
	if (!text) {
		decoded = malloc(n + 1);
		if (!decoded)
			return error_memory(&s->error);
		ssize_t got = base64_decode((struct str){ bytes, n }, decoded);
		if (got < 0)
			return error_set(&s->error, CAISSON_ERR_PROTOCOL, "data_base64 of the server is not base64");
		bytes = decoded;
		n = (size_t)got;
	}
	if (n && s->on_output && s->on_output(s->ctx, stream, bytes, n) != 0) {
		s->user_stopped = true;
		return -1;
	}
	return 0;
}

static int stream_line(struct stream *s, const char *p, size_t n)
{
	if (n == 0)
		return 0;
	auto_json json_t *o = json_loadb(p, n, JSON_ALLOW_NUL, NULL);
	const char *event = json_string_value(json_object_get(o, "event"));

	if (!event)
		return error_set(&s->error, CAISSON_ERR_PROTOCOL, "a line of the run's stream is not an event");
	if (streq(event, "output"))
		return output_event(s, o);
	if (streq(event, "started") && !s->run) {
		bool ok = true;
		s->run = json_text(json_object_get(o, "run"), "id", &ok);
		if (!s->run)
			return ok ? error_set(&s->error, CAISSON_ERR_PROTOCOL, "a run without id") : error_memory(&s->error);
		if (s->on_start)
			s->on_start(s->ctx, s->run);
	} else if (streq(event, "end") && !s->end) {
		return run_decode(json_object_get(o, "result"), &s->end, &s->error);
	}
	return 0;
}

static int stream_bytes(void *ctx, const void *bytes, size_t n)
{
	struct stream *s = ctx;
	const char *p = bytes, *end = p + n;

	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		int r;
		if (!nl || s->line.n) {
			if (bytes_add(&s->line, p, (size_t)((nl ? nl : end) - p)) < 0)
				return s->line.over ? error_set(&s->error, CAISSON_ERR_PROTOCOL, "a line of the run's stream has no end")
				                    : error_memory(&s->error);
			if (!nl)
				return 0;
			r = stream_line(s, s->line.p, s->line.n);
			s->line.n = 0;
		} else {
			r = stream_line(s, p, (size_t)(nl - p));
		}
		if (r < 0)
			return -1;
		p = nl + 1;
	}
	return 0;
}

/* Reads a stream to its end. 0 and *ret, or -1: also when the user's callback stopped it (CAISSON_ERR_STOPPED). */
static int stream_perform(struct caisson *c, struct exchange *x, struct stream *s, struct caisson_run **ret, struct caisson_error *e)
{
	s->line.max = LINE_MAX_BYTES;
	x->sink = stream_bytes;
	x->ctx = s;
	int r = exchange_perform(c, x, e);
	if (r < 0 && s->user_stopped)
		return error_set(e, CAISSON_ERR_STOPPED, "stopped by the caller");
	if (r < 0 && x->stopped) {
		if (e)
			*e = s->error;
		return -1;
	}
	if (s->end) { /* the result counts, whatever happened to the connection after it */
		*ret = take_ptr(&s->end);
		return 0;
	}
	if (r == 0)
		error_set(e, CAISSON_ERR_CONNECT, "the stream from %s ended before the command did: the server or the connection went away", c->url);
	return -1;
}

/* --- the request --- */

static bool put(json_t *o, const char *name, json_t *take)
{
	return take && json_object_set_new(o, name, take) == 0;
}

static json_t *argv_json(const char *const *argv)
{
	json_t *a = json_array();

	for (; a && *argv; argv++) {
		if (json_array_append_new(a, json_string(*argv)) < 0) {
			json_decref(a);
			return NULL;
		}
	}
	return a;
}

static json_t *stdin_json(const void *p, size_t n)
{
	char *text = malloc(4 * ((n + 2) / 3) + 1);

	if (!text)
		return NULL;
	base64_encode(p, n, text);
	json_t *o = json_string(text);
	free(text);
	return o;
}

static json_t *run_body(const struct caisson_run_options *o, bool detach)
{
	auto_json json_t *b = json_object();
	bool ok = b != NULL;

	ok = ok && (!o->argv || put(b, "argv", argv_json(o->argv)));
	ok = ok && (!o->shell || put(b, "shell", json_string(o->shell)));
	ok = ok && (!o->code || put(b, "code", json_string(o->code)));
	ok = ok && (!o->language || put(b, "language", json_string(o->language)));
	ok = ok && (!o->n_env || put(b, "env", pairs_json(o->env, o->n_env)));
	ok = ok && (!o->cwd || put(b, "cwd", json_string(o->cwd)));
	ok = ok && (!o->user || put(b, "user", json_string(o->user)));
	ok = ok && (!o->timeout_ms || put(b, "timeout_ms", json_integer((json_int_t)MIN(o->timeout_ms, (uint64_t)INT64_MAX))));
	ok = ok && (!o->output_max || put(b, "output_max", json_integer((json_int_t)MIN(o->output_max, (uint64_t)INT64_MAX))));
	ok = ok && (!o->stdin_bytes || put(b, "stdin_base64", stdin_json(o->stdin_bytes, o->stdin_len)));
	ok = ok && (!o->stdin_open || put(b, "stdin_open", json_true()));
	ok = ok && (!o->pty || put(b, "pty", json_true()));
	ok = ok && (!o->pty || !o->rows || put(b, "rows", json_integer(o->rows)));
	ok = ok && (!o->pty || !o->cols || put(b, "cols", json_integer(o->cols)));
	ok = ok && (!o->idempotency_key || put(b, "idempotency_key", json_string(o->idempotency_key)));
	ok = ok && (!detach || put(b, "detach", json_true()));
	ok = ok && (detach || o->keep_running || put(b, "kill_on_disconnect", json_true()));
	return ok ? take_ptr(&b) : NULL;
}

/* The request's text, for free(); NULL and e on failure. */
static char *run_text(const struct caisson_run_options *o, bool detach, struct caisson_error *e)
{
	if (!!o->argv + !!o->shell + !!o->code != 1) {
		error_set(e, CAISSON_ERR_INVALID, "a run is exactly one of argv, shell and code");
		return NULL;
	}
	auto_json json_t *body = run_body(o, detach);
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	if (!text)
		error_set(e, CAISSON_ERR_INVALID, "an argument or variable of the command is not UTF-8 (or memory is gone)");
	return text;
}

static int one_run(struct caisson *c, struct exchange *x, struct caisson_run **ret, struct caisson_error *e)
{
	if (exchange_perform(c, x, e) < 0)
		return -1;
	auto_json json_t *o = json_loadb(x->reply.p, x->reply.n, JSON_ALLOW_NUL, NULL);
	bytes_done(&x->reply); /* may be large, and its text is all in o now */
	if (!o)
		return error_set(e, CAISSON_ERR_PROTOCOL, "the answer of %s is not JSON", c->url);
	return run_decode(o, ret, e);
}

int caisson_run(struct caisson *c, const char *sandbox, const struct caisson_run_options *o, struct caisson_run **ret, struct caisson_error *e)
{
	bool streamed = o->on_output || o->on_start;
	auto_free char *path = sandbox_path(sandbox, streamed ? "/runs?stream=1" : "/runs"), *text = run_text(o, false, e);
	auto_exchange struct exchange x = { .method = "POST", .path = path, .body = text, .reply_max = RESULT_MAX };
	auto_stream struct stream s = { .on_output = o->on_output, .on_start = o->on_start, .ctx = o->ctx };

	if (!path)
		return error_memory(e);
	if (!text)
		return -1;
	x.body_len = strlen(text);
	if (!streamed)
		return one_run(c, &x, ret, e);
	int r = stream_perform(c, &x, &s, ret, e);
	if (r < 0 && s.user_stopped && s.run)
		caisson_run_cancel(c, sandbox, s.run, NULL); /* leaving ends it too, unless keep_running: this makes sure */
	return r;
}

int caisson_run_detached(struct caisson *c, const char *sandbox, const struct caisson_run_options *o, struct caisson_run **ret,
                         struct caisson_error *e)
{
	auto_free char *path = sandbox_path(sandbox, "/runs"), *text = run_text(o, true, e);
	auto_exchange struct exchange x = { .method = "POST", .path = path, .body = text };

	if (!path)
		return error_memory(e);
	if (!text)
		return -1;
	x.body_len = strlen(text);
	return one_run(c, &x, ret, e);
}

int caisson_run_get(struct caisson *c, const char *sandbox, const char *run, struct caisson_run **ret, struct caisson_error *e)
{
	auto_free char *path = run_path(sandbox, run, "");
	auto_exchange struct exchange x = { .method = "GET", .path = path };

	return path ? one_run(c, &x, ret, e) : error_memory(e);
}

/* --- following --- */

struct plain { /* one stream's raw bytes, on their way to the user's callback */
	int (*on_output)(void *ctx, int stream, const void *bytes, size_t n);
	void *ctx;
	int stream;
};

static int plain_bytes(void *ctx, const void *bytes, size_t n)
{
	const struct plain *p = ctx;

	return p->on_output ? p->on_output(p->ctx, p->stream, bytes, n) : 0;
}

static int read_there(struct caisson *c, const char *sandbox, const char *run, uint64_t offset, struct plain *p, struct caisson_error *e)
{
	char query[80];

	snprintf(query, sizeof query, "/output?stream=%s&offset=%llu", p->stream == CAISSON_STDOUT ? "stdout" : "stderr",
	         (unsigned long long)offset);
	auto_free char *path = run_path(sandbox, run, query);
	auto_exchange struct exchange x = { .method = "GET", .path = path, .sink = plain_bytes, .ctx = p };
	return path ? exchange_perform(c, &x, e) : error_memory(e);
}

int caisson_run_follow(struct caisson *c, const char *sandbox, const char *run, uint64_t out_offset, uint64_t err_offset, bool follow,
                       int (*on_output)(void *ctx, int stream, const void *bytes, size_t n), void *ctx, struct caisson_run **ret,
                       struct caisson_error *e)
{
	if (!follow) {
		struct plain out = { on_output, ctx, CAISSON_STDOUT }, err = { on_output, ctx, CAISSON_STDERR };
		if (read_there(c, sandbox, run, out_offset, &out, e) < 0 || read_there(c, sandbox, run, err_offset, &err, e) < 0)
			return -1;
		return caisson_run_get(c, sandbox, run, ret, e);
	}
	char query[100];
	snprintf(query, sizeof query, "/events?stdout_offset=%llu&stderr_offset=%llu", (unsigned long long)out_offset,
	         (unsigned long long)err_offset);
	auto_free char *path = run_path(sandbox, run, query);
	auto_exchange struct exchange x = { .method = "GET", .path = path };
	auto_stream struct stream s = { .on_output = on_output, .ctx = ctx };
	return path ? stream_perform(c, &x, &s, ret, e) : error_memory(e);
}

/* --- acting on a run --- */

int caisson_run_write(struct caisson *c, const char *sandbox, const char *run, const void *bytes, size_t n, struct caisson_error *e)
{
	auto_free char *path = run_path(sandbox, run, "/stdin");
	auto_exchange struct exchange x = {
		.method = "POST", .path = path, .content_type = "application/octet-stream", .body = bytes, .body_len = n,
	};

	return path ? exchange_perform(c, &x, e) : error_memory(e);
}

int caisson_run_feed(struct caisson *c, const char *sandbox, const char *run, ptrdiff_t (*source)(void *ctx, void *bytes, size_t n), void *ctx,
                     struct caisson_error *e)
{
	auto_free char *path = run_path(sandbox, run, "/stdin?close=true");
	auto_exchange struct exchange x = {
		.method = "POST", .path = path, .content_type = "application/octet-stream", .source = source, .ctx = ctx,
	};

	return path ? exchange_perform(c, &x, e) : error_memory(e);
}

int caisson_run_close_stdin(struct caisson *c, const char *sandbox, const char *run, struct caisson_error *e)
{
	auto_free char *path = run_path(sandbox, run, "/stdin?close=true");
	auto_exchange struct exchange x = { .method = "POST", .path = path };

	return path ? exchange_perform(c, &x, e) : error_memory(e);
}

/* Small requests that somebody waits for, perhaps in order to get rid of a server that hangs: they give up. */
static int act(struct caisson *c, const char *method, const char *sandbox, const char *run, const char *verb, json_t *take_body,
               struct caisson_error *e)
{
	auto_json json_t *body = take_body;
	auto_free char *path = run_path(sandbox, run, verb), *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	auto_exchange struct exchange x = {
		.method = method, .path = path, .body = text, .body_len = text ? strlen(text) : 0, .timeout_s = ACT_SECONDS,
	};

	return path && (text || streq(method, "DELETE")) ? exchange_perform(c, &x, e) : error_memory(e);
}

int caisson_run_signal(struct caisson *c, const char *sandbox, const char *run, int signo, bool tree, struct caisson_error *e)
{
	return act(c, "POST", sandbox, run, "/signal", json_pack("{s:i,s:b}", "signal", signo, "tree", (int)tree), e);
}

int caisson_run_resize(struct caisson *c, const char *sandbox, const char *run, uint16_t rows, uint16_t cols, struct caisson_error *e)
{
	return act(c, "POST", sandbox, run, "/resize", json_pack("{s:i,s:i}", "rows", (int)rows, "cols", (int)cols), e);
}

int caisson_run_cancel(struct caisson *c, const char *sandbox, const char *run, struct caisson_error *e)
{
	return act(c, "DELETE", sandbox, run, "", NULL, e);
}
