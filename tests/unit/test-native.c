/* The native dialect against a private api and server: what is refused and how, and output byte for byte in every form. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "dialect/native/native_int.h"

/* --- a request that is a table, and an answer that is a buffer --- */

struct request {
	const char *query[8][2];
	const char *headers[8][2];
	const char *body, *run;
	void *data;
	bool remote;
	/* the answer */
	int status, began, ended, aborted;
	char challenge[64];
	struct buf out;
	size_t room; /* no more of it is taken at once; 0 = all */
	void (*gone)(void *);
	void (*on_room)(void *);
	void *gone_ctx, *room_ctx;
};

static const struct dialect *dialect;

int server_add_dialect(struct server *s, const struct dialect *d, struct err *e)
{
	(void)s, (void)e;
	dialect = d;
	return 0;
}

const char *req_path_arg(const struct request *r, const char *name)
{
	return streq(name, "run") ? r->run : streq(name, "id") ? "box" : NULL;
}

const char *req_query(const struct request *r, const char *name)
{
	for (size_t i = 0; i < 8 && r->query[i][0]; i++)
		if (streq(r->query[i][0], name))
			return r->query[i][1];
	return NULL;
}

void req_query_each(const struct request *r, void (*each)(void *, const char *, const char *), void *ctx)
{
	for (size_t i = 0; i < 8 && r->query[i][0]; i++)
		each(ctx, r->query[i][0], r->query[i][1]);
}

struct str req_header(const struct request *r, const char *name)
{
	for (size_t i = 0; i < 8 && r->headers[i][0]; i++)
		if (str_eq_nocase(str_of(r->headers[i][0]), str_of(name)))
			return str_of(r->headers[i][1]);
	return (struct str){ 0 };
}

struct str req_bearer(const struct request *r)
{
	struct str h = req_header(r, "Authorization");
	size_t skip = h.n > 7 && str_eq_nocase((struct str){ h.p, 7 }, STR("Bearer ")) ? 7 : 0;

	while (skip && skip < h.n && (h.p[skip] == ' ' || h.p[skip] == '\t'))
		skip++;
	return skip ? (struct str){ h.p + skip, h.n - skip } : (struct str){ 0 };
}

struct str req_body(const struct request *r)
{
	return str_of(r->body);
}

bool req_is_loopback(const struct request *r)
{
	return !r->remote;
}

void req_set_data(struct request *r, void *heap)
{
	free(r->data);
	r->data = heap;
}

void req_set_holder(struct request *r, const char *id)
{
	(void)r;
	(void)id;
}

void *req_data(const struct request *r)
{
	return r->data;
}

void req_on_gone(struct request *r, void (*gone)(void *ctx), void *ctx)
{
	r->gone = gone;
	r->gone_ctx = ctx;
}

void req_on_room(struct request *r, void (*room)(void *ctx), void *ctx)
{
	r->on_room = room;
	r->room_ctx = ctx;
}

bool req_room(const struct request *r)
{
	return !r->room || r->out.len % (2 * r->room) < r->room;
}

void req_begin(struct request *r, int status, const struct header *h, size_t n_h, const char *type, int64_t length)
{
	(void)h, (void)n_h, (void)type, (void)length;
	r->status = status;
	r->began++;
}

void req_write(struct request *r, struct str bytes)
{
	assert_int_equal(buf_add(&r->out, bytes.p, bytes.n), 0);
}

void req_end(struct request *r)
{
	r->ended++;
}

void req_abort(struct request *r)
{
	r->aborted++;
}

void req_reply(struct request *r, int status, const struct header *h, size_t n_h, const char *type, struct str body)
{
	(void)type;
	for (size_t i = 0; i < n_h; i++)
		if (streq(h[i].name, "WWW-Authenticate"))
			snprintf(r->challenge, sizeof r->challenge, "%s", h[i].value);
	r->status = status;
	req_write(r, body);
	r->ended++;
}

void req_reply_empty(struct request *r, int status)
{
	r->status = status;
	r->ended++;
}

/* --- an api with one sandbox and one run --- */

struct follower {
	const struct follower_events *ev;
	void *ctx;
	bool paused;
};

static struct {
	struct sandbox_spec spec;  /* of the last create */
	struct run_spec run;
	struct str out[3];         /* what the run said */
	bool answer_start_late, canceled, follower_freed, forgotten;
	api_run_fn start, wait;
	void *start_ctx, *wait_ctx;
	struct follower follower;
} api;

static struct run_view view(void)
{
	return (struct run_view){ .id = "run_1", .display = "x", .state = RUN_EXITED, .exit_code = 137, .signal = 9, .started_ms = 1, .ended_ms = 2,
		                  .stdout_bytes = api.out[1].n, .stderr_bytes = api.out[2].n };
}

int api_authenticate(struct api *a, struct str key, struct caller *ret, struct err *e)
{
	(void)a;
	if (!str_eqz(key, "good"))
		return err_set(e, ERR_UNAUTHENTICATED, EACCES, "not a key");
	*ret = (struct caller){ .key_id = "k", .tenant = "t" };
	return 0;
}

void api_forget(struct api *a, void *ctx)
{
	(void)a, (void)ctx;
	api.forgotten = true;
}

int api_sandbox_get(struct api *a, const struct caller *c, const char *ref, struct sandbox_view *ret, struct err *e)
{
	(void)a, (void)c, (void)ref, (void)ret;
	return err_set(e, ERR_NOT_FOUND, ENOENT, "no sandbox");
}

void api_sandbox_create(struct api *a, const struct caller *c, const struct sandbox_spec *spec, api_sandbox_fn done, void *ctx)
{
	(void)a, (void)c;
	spec_done(&api.spec);
	spec_copy(&api.spec, spec);
	struct sandbox_view v = { .id = "00000000-0000-4000-8000-000000000000", .name = "n", .state = SANDBOX_RUNNING, .boundary = "fake", .spec = &api.spec,
		                  .created_ms = 1 };
	done(ctx, NULL, &v);
}

int api_sandbox_list(struct api *a, const struct caller *c, const struct sandbox_query *q, void (*each)(void *ctx, const struct sandbox_view *v),
                     void *ctx, char **ret_next, uint64_t *ret_total, struct err *e)
{
	(void)a, (void)c, (void)q, (void)each, (void)ctx, (void)e;
	*ret_next = NULL;
	*ret_total = 0;
	return 0;
}

void api_run_start(struct api *a, const struct caller *c, const char *ref, const struct run_spec *spec, api_run_fn done, void *ctx)
{
	(void)a, (void)c, (void)ref;
	run_spec_done(&api.run);
	run_spec_copy(&api.run, spec);
	if (api.answer_start_late) {
		api.start = done;
		api.start_ctx = ctx;
		return;
	}
	struct run_view v = view();
	done(ctx, NULL, &v);
}

void api_run_wait(struct api *a, const struct caller *c, const char *ref, const char *run, api_run_fn done, void *ctx)
{
	(void)a, (void)c, (void)ref, (void)run;
	api.wait = done;
	api.wait_ctx = ctx;
}

int api_run_get(struct api *a, const struct caller *c, const char *ref, const char *run, struct run_view *ret, struct err *e)
{
	(void)a, (void)c, (void)ref;
	if (!streq(run, "run_1"))
		return err_set(e, ERR_NOT_FOUND, ENOENT, "no run");
	*ret = view();
	return 0;
}

int api_run_output(struct api *a, const struct caller *c, const char *ref, const char *run, int stream, uint64_t offset, size_t max, struct buf *out,
                   struct err *e)
{
	(void)a, (void)c, (void)ref, (void)run, (void)e;
	struct str all = api.out[stream];
	if (offset >= all.n)
		return 0;
	size_t n = MIN(MIN(max, all.n - (size_t)offset), (size_t)100003); /* in short, odd pieces, as a spool may */
	assert_int_equal(buf_add(out, all.p + offset, n), 0);
	return 0;
}

int api_run_cancel(struct api *a, const struct caller *c, const char *ref, const char *run, struct err *e)
{
	(void)a, (void)c, (void)ref, (void)e;
	assert_string_equal(run, "run_1");
	api.canceled = true;
	return 0;
}

struct follower *api_run_follow(struct api *a, const struct caller *c, const char *ref, const char *run, uint64_t stdout_offset,
                                uint64_t stderr_offset, const struct follower_events *ev, void *ctx, struct err *e)
{
	(void)a, (void)c, (void)ref, (void)run, (void)stdout_offset, (void)stderr_offset, (void)e;
	api.follower = (struct follower){ ev, ctx, false };
	return &api.follower;
}

void follower_pause(struct follower *f)
{
	f->paused = true;
}

void follower_resume(struct follower *f)
{
	f->paused = false;
}

void follower_free(struct follower *f)
{
	(void)f;
	api.follower_freed = true;
}

/* --- calling it --- */

static uv_loop_t loop;
static struct native *native;

/* As the server does: route's guard, then its handler. */
static void call(struct request *r, const char *method, const char *pattern)
{
	if (!r->headers[0][0]) {
		r->headers[0][0] = "Authorization";
		r->headers[0][1] = "Bearer good";
	}
	buf_init(&r->out, 512 << 20);
	for (size_t i = 0; i < dialect->n_routes; i++) {
		const struct route *route = &dialect->routes[i];
		if (!streq(route->method, method) || !streq(route->pattern, pattern))
			continue;
		if (dialect->guard(r, route, dialect->ctx))
			route->handle(r, dialect->ctx);
		return;
	}
	fail_msg("no route %s %s", method, pattern);
}

static void done(struct request *r)
{
	buf_done(&r->out);
	free(r->data);
}

static json_t *parsed(const struct request *r)
{
	json_error_t why;
	json_t *j = json_loadb(r->out.data, r->out.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
	if (!j)
		fail_msg("not JSON: %s", why.text);
	return j;
}

static void expect_error(struct request *r, const char *method, const char *pattern, int status, const char *part)
{
	call(r, method, pattern);
	json_t *j = parsed(r), *error = json_object_get(j, "error");
	const char *message = json_string_value(json_object_get(error, "message"));
	assert_int_equal(r->status, status);
	assert_non_null(message);
	if (!strstr(message, part))
		fail_msg("\"%s\" does not hold \"%s\"", message, part);
	assert_non_null(json_string_value(json_object_get(error, "kind")));
	json_decref(j);
	done(r);
}

#define SANDBOXES "/v1/sandboxes"
#define RUNS "/v1/sandboxes/{id}/runs"

/* --- tests --- */

static void bad_bodies_are_refused_by_name(void **state)
{
	(void)state;
	static const struct { const char *route, *body; int status; const char *part; } cases[] = {
		{ SANDBOXES, "{\"imgae\":\"x\"}", 400, "unknown field \"imgae\"; known here: name, image" },
		{ SANDBOXES, "{\"resources\":{\"cpu\":1}}", 400, "unknown field \"resources.cpu\"" },
		{ SANDBOXES, "{\"resources\":{\"cpus\":\"1\"}}", 400, "field \"resources.cpus\" must be a number, and is a string" },
		{ SANDBOXES, "{\"resources\":{\"memory_mib\":1.5}}", 400, "field \"resources.memory_mib\" must be an integer" },
		{ SANDBOXES, "{\"resources\":{\"memory_mib\":1}}", 400, "is 1, and must be 16 to" },
		{ SANDBOXES, "{\"resources\":{\"memory_mib\":-9000000000000000000}}", 400, "must be 16 to" },
		{ SANDBOXES, "{\"resources\":{\"cpus\":1e300}}", 400, "must be 0.01 to 1024" },
		{ SANDBOXES, "{\"resources\":{\"pids\":99999999999999999999}}", 400, "not valid JSON" },
		{ SANDBOXES, "{\"name\":null}", 400, "field \"name\" must be a string, and is null" },
		{ SANDBOXES, "{\"name\":\"a b\"}", 400, "name:" },
		{ SANDBOXES, "{\"name\":\"a\",\"name\":\"b\"}", 400, "duplicate" },
		{ SANDBOXES, "{\"name\":\"a\\u0000\"}", 400, "not valid JSON" },
		{ SANDBOXES, "{\"name\":\"\xff\"}", 400, "not valid JSON" },
		{ SANDBOXES, "[]", 400, "must be a JSON object, and is an array" },
		{ SANDBOXES, "{", 400, "not valid JSON" },
		{ SANDBOXES, "{\"env\":{\"A\":1}}", 400, "the value of \"A\" must be a string" },
		{ SANDBOXES, "{\"env\":[]}", 400, "must be an object of strings" },
		{ SANDBOXES, "{\"env\":{\"1A\":\"\"}}", 400, "not a variable name" },
		{ SANDBOXES, "{\"network\":{\"mode\":\"host\"}}", 400, "\"none\", \"public\" or \"allow\"" },
		{ SANDBOXES, "{\"network\":{\"allow\":[\"x\"]}}", 400, "rules are given with mode" },
		{ SANDBOXES, "{\"network\":{\"mode\":\"allow\",\"allow\":[\"x:0\"]}}", 400, "network.allow" },
		{ SANDBOXES, "{\"network\":{\"mode\":\"public\",\"deny\":[\"127.0.0.1\"]}}", 400, "network.deny" },
		{ SANDBOXES, "{\"lifetime\":{\"delete_after_s\":-2}}", 400, "must be -1 to" },
		{ SANDBOXES, "{\"ephemeral\":1}", 400, "must be true or false, and is an integer" },
		{ RUNS, "{}", 400, "exactly one of argv, shell and code" },
		{ RUNS, "{\"argv\":[],\"shell\":\"x\"}", 400, "more than one command" },
		{ RUNS, "{\"argv\":[\"a\",1]}", 400, "element 1 must be a string" },
		{ RUNS, "{\"argv\":\"a\"}", 400, "must be an array of strings" },
		{ RUNS, "{\"code\":\"x\"}", 400, "language" },
		{ RUNS, "{\"code\":\"x\",\"language\":\"perl\"}", 400, "language" },
		{ RUNS, "{\"shell\":\"x\",\"stdin\":\"a\",\"stdin_base64\":\"YQ==\"}", 400, "not both" },
		{ RUNS, "{\"shell\":\"x\",\"stdin_base64\":\"YQ=\"}", 400, "not valid base64" },
		{ RUNS, "{\"shell\":\"x\",\"timeout_ms\":0}", 400, "timeout_ms" },
		{ RUNS, "{\"shell\":\"x\",\"rows\":70000,\"pty\":true}", 400, "must be 1 to 65535" },
		{ RUNS, "{\"shell\":\"x\",\"rows\":10}", 400, "pty" },
		{ RUNS, "{\"shell\":\"x\",\"cwd\":\"\"}", 400, "cwd" },
		{ RUNS "/{run}/signal", "{\"signal\":\"NOPE\"}", 400, "not a signal" },
		{ RUNS "/{run}/signal", "{\"signal\":65}", 400, "1 to 64" },
		{ RUNS "/{run}/signal", "{}", 400, "field \"signal\" is missing" },
		{ RUNS "/{run}/resize", "{\"rows\":1}", 400, "field \"cols\" is missing" },
		{ "/v1/sandboxes/{id}/files/chmod", "{\"path\":\"/a\"}", 400, "nothing to change" },
		{ "/v1/sandboxes/{id}/files/chmod", "{\"path\":\"/a\",\"mode\":\"999\"}", 400, "octal" },
		{ "/v1/sandboxes/{id}/files/chmod", "{\"path\":\"/a\",\"mode\":493}", 400, "octal" },
		{ "/v1/sandboxes/{id}/files/mkdir", "{\"path\":\"\"}", 400, "empty" },
		{ "/v1/keys", "{\"name\":\"\"}", 400, "name" },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct request r = { .body = cases[i].body, .run = "run_1" };
		expect_error(&r, "POST", cases[i].route, cases[i].status, cases[i].part);
	}
}

static void bad_queries_are_refused_by_name(void **state)
{
	(void)state;
	static const struct { const char *route, *name, *value, *name2, *value2, *part; } cases[] = {
		{ SANDBOXES, "lable", "a:b", NULL, NULL, "unknown query parameter \"lable\"" },
		{ SANDBOXES, "limit", "0", NULL, NULL, "must be 1 to 1000" },
		{ SANDBOXES, "limit", "1e3", NULL, NULL, "decimal digits" },
		{ SANDBOXES, "limit", "1", "limit", "2", "given twice" },
		{ SANDBOXES, "label", "nocolon", NULL, NULL, "key:value" },
		{ SANDBOXES, "label", "a:1", "label", "a:2", "two values" },
		{ SANDBOXES, "state", "asleep", NULL, NULL, "creating, running" },
		{ SANDBOXES, "cursor", "\xff", NULL, NULL, "not valid UTF-8" },
		{ SANDBOXES, "cursor", "", NULL, NULL, "is empty" },
		{ RUNS "/{run}/output", "follow", "yes", NULL, NULL, "must be true or false" },
		{ RUNS "/{run}/output", "follow", "1", "limit", "1", "exclude each other" },
		{ RUNS "/{run}/output", "stream", "std", NULL, NULL, "\"stdout\" or \"stderr\"" },
		{ "/v1/sandboxes/{id}/files", "user", "root", NULL, NULL, "\"path\" is missing" },
		{ "/v1/sandboxes/{id}/files", "path", "", NULL, NULL, "is empty" },
		{ "/v1/sandboxes/{id}/files", "path", "a", "path_base64", "YQ==", "not both" },
		{ "/v1/sandboxes/{id}/files", "path_base64", "YQBh", NULL, NULL, "NUL" },
		{ "/v1/sandboxes/{id}", "x", "", NULL, NULL, "none is known here" },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct request r = { .run = "run_1" };
		r.query[0][0] = cases[i].name, r.query[0][1] = cases[i].value;
		r.query[1][0] = cases[i].name2, r.query[1][1] = cases[i].value2;
		expect_error(&r, "GET", cases[i].route, 400, cases[i].part);
	}
}

static void keys_are_asked_for(void **state)
{
	(void)state;
	struct request none = { .headers = { { "X-Other", "1" } } };
	expect_error(&none, "GET", SANDBOXES, 401, "a key is needed");
	assert_string_equal(none.challenge, "Bearer realm=\"caisson\"");
	struct request wrong = { .headers = { { "X-API-Key", "bad" }, { "Authorization", "Bearer good" } } };
	expect_error(&wrong, "GET", SANDBOXES, 401, "not a key");
	struct request basic = { .headers = { { "Authorization", "Basic good" } } };
	expect_error(&basic, "GET", SANDBOXES, 401, "of the form");
	struct request query = { .query = { { "api_key", "good" } } };
	expect_error(&query, "GET", SANDBOXES, 401, "query string");
	struct request far = { .headers = { { "X-Other", "1" } }, .remote = true };
	expect_error(&far, "GET", "/healthz", 401, "a key is needed");
	struct request near = { .headers = { { "X-Other", "1" } } };
	call(&near, "GET", "/healthz");
	assert_int_equal(near.status, 200);
	done(&near);
	struct request lower = { .headers = { { "authorization", "bearer \t good" } } };
	call(&lower, "GET", SANDBOXES);
	assert_int_equal(lower.status, 200);
	done(&lower);
}

static void good_bodies_arrive(void **state)
{
	(void)state;
	struct request r = { .body = "{\"name\":\"n-1\",\"image\":\"debian:12\",\"resources\":{\"cpus\":0.5,\"memory_mib\":64.0,\"disk_mib\":1,\"pids\":4},"
		                     "\"env\":{\"A\":\"\xc3\xa9\"},\"labels\":{\"k\":\"v\"},\"lifetime\":{\"idle_s\":7,\"max_s\":8,\"delete_after_s\":-1},"
		                     "\"ephemeral\":true,\"network\":{\"mode\":\"none\",\"allow\":[]},\"user\":\"u\",\"workdir\":\"/w\"}",
		             .headers = { { "Authorization", "Bearer good" }, { "Idempotency-Key", "ik" } } };
	call(&r, "POST", SANDBOXES);
	assert_int_equal(r.status, 201);
	const struct sandbox_spec *s = &api.spec;
	assert_string_equal(s->name, "n-1");
	assert_string_equal(s->image, "debian:12");
	assert_true(s->resources.cpus == 0.5);
	assert_int_equal(s->resources.memory_mib, 64);
	assert_int_equal(s->resources.disk_mib, 1);
	assert_int_equal(s->resources.pids, 4);
	assert_string_equal(pairs_get(&s->env, "A"), "\xc3\xa9");
	assert_string_equal(pairs_get(&s->labels, "k"), "v");
	assert_int_equal(s->lifetime.idle_s, 7);
	assert_int_equal(s->lifetime.max_s, 8);
	assert_true(s->ephemeral);
	assert_string_equal(s->idempotency_key, "ik");
	json_t *j = parsed(&r);
	assert_string_equal(json_string_value(json_object_get(json_object_get(j, "env"), "A")), "\xc3\xa9");
	assert_true(json_is_null(json_object_get(j, "error")));
	json_decref(j);
	done(&r);
	struct request twice = { .body = "{\"idempotency_key\":\"a\"}", .headers = { { "Authorization", "Bearer good" }, { "Idempotency-Key", "b" } } };
	expect_error(&twice, "POST", SANDBOXES, 400, "differ");
}

/* Runs a buffered POST to its end and returns the parsed result. */
static json_t *buffered(struct str out, struct str err, size_t room)
{
	struct request r = { .body = "{\"argv\":[\"x\"]}", .room = room };
	api.out[1] = out;
	api.out[2] = err;
	call(&r, "POST", RUNS);
	assert_int_equal(r.ended, 0);
	struct run_view v = view();
	api.wait(api.wait_ctx, NULL, &v);
	for (int turns = 0; !r.ended && turns < 100000; turns++) {
		if (!req_room(&r) && r.on_room) {
			r.room = 0; /* the client reads on */
			r.on_room(r.room_ctx);
		}
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	assert_int_equal(r.ended, 1);
	assert_int_equal(r.aborted, 0);
	assert_int_equal(r.status, 200);
	json_t *j = parsed(&r);
	assert_int_equal(json_integer_value(json_object_get(j, "exit_code")), 137);
	assert_string_equal(json_string_value(json_object_get(j, "signal_name")), "SIGKILL");
	done(&r);
	uv_run(&loop, UV_RUN_NOWAIT); /* closes the pump */
	return j;
}

static void expect_bytes(const json_t *j, const char *key, struct str want, bool text)
{
	char other[32];
	snprintf(other, sizeof other, "%s_base64", key);
	const json_t *v = json_object_get(j, text ? key : other);
	assert_null(json_object_get(j, text ? other : key));
	assert_non_null(v);
	struct str got = { json_string_value(v), json_string_length(v) };
	auto_free char *bytes = xmalloc(got.n + 1);
	if (!text) {
		ssize_t n = base64_decode(got, bytes);
		assert_true(n >= 0);
		got = (struct str){ bytes, (size_t)n };
	}
	assert_int_equal(got.n, want.n);
	assert_memory_equal(got.p, want.p, want.n);
}

static void output_comes_back_whole(void **state)
{
	(void)state;
	static const size_t sizes[] = { 0, 1, 255 << 10, 256 << 10, (256 << 10) + 1, 1 << 20, (3 << 20) + 7 };
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		size_t n = sizes[i];
		auto_free char *binary = xmalloc(n + 1);
		auto_free char *text = xmalloc(n + 8);
		random_bytes(binary, n);
		if (n)
			binary[n - 1] = '\xc3'; /* also when a short random one happens to be text */
		size_t t = 0;
		static const char *const pieces[] = { "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\n", "\"", "\\", "\x01", "\x7f" };
		for (size_t k = 0; t < n; k++) {
			const char *p = pieces[(k * 7 + k / 5) % ARRAY_LEN(pieces)];
			memcpy(text + t, p, strlen(p));
			t += strlen(p);
		}
		json_t *j = buffered((struct str){ binary, n }, (struct str){ text, t }, n > 1000000 ? 300000 : 0);
		expect_bytes(j, "stdout", (struct str){ binary, n }, n == 0);
		expect_bytes(j, "stderr", (struct str){ text, t }, true);
		json_decref(j);
	}
}

/* A NUL is text to UTF-8 and to JSON. A cut character at the very end is not. */
static void odd_bytes(void **state)
{
	(void)state;
	json_t *j = buffered(STR("a\0b"), STR("x\xe2\x82"), 0);
	expect_bytes(j, "stdout", STR("a\0b"), true);
	expect_bytes(j, "stderr", STR("x\xe2\x82"), false);
	json_decref(j);
}

static void lines_never_split_a_character(void **state)
{
	(void)state;
	static const char said[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\xff\xe2\x82";
	for (size_t cut = 1; cut < sizeof said - 1; cut++) {
		struct request r = { .body = "{\"shell\":\"x\"}", .query = { { "stream", "1" } } };
		auto_buf struct buf got;
		size_t n = sizeof said - 1, offset = 0;
		api.follower_freed = false;
		buf_init(&got, 100);
		call(&r, "POST", RUNS);
		for (size_t at = 0; at < n; at += cut)
			api.follower.ev->on_output(api.follower.ctx, 1, at, (struct str){ said + at, MIN(cut, n - at) });
		struct run_view v = view();
		api.follower.ev->on_end(api.follower.ctx, &v);
		assert_true(api.follower_freed);
		assert_int_equal(r.ended, 1);
		bool ended = false;
		for (char *line = r.out.data, *end; (end = strchr(line, '\n')); line = end + 1) {
			json_t *j = json_loadb(line, (size_t)(end - line), 0, NULL);
			assert_non_null(j);
			assert_false(ended);
			const char *event = json_string_value(json_object_get(j, "event"));
			ended = streq(event, "end");
			const char *data = json_string_value(json_object_get(j, "data")), *b64 = json_string_value(json_object_get(j, "data_base64"));
			if (streq(event, "output")) {
				assert_int_equal(json_integer_value(json_object_get(j, "offset")), offset);
				char bytes[100];
				size_t m = data ? strlen(data) : (size_t)base64_decode(str_of(b64), bytes);
				buf_add(&got, data ? data : bytes, m);
				offset += m;
			}
			json_decref(j);
		}
		assert_true(ended);
		assert_int_equal(got.len, n);
		assert_memory_equal(got.data, said, n);
		done(&r);
	}
}

static void leaving_cancels_only_when_asked(void **state)
{
	(void)state;
	for (int kill = 0; kill < 2; kill++)
		for (int late = 0; late < 2; late++)
			for (int stream = 0; stream < 2; stream++) {
				struct request r = { .body = kill ? "{\"shell\":\"x\",\"kill_on_disconnect\":true}" : "{\"shell\":\"x\"}" };
				if (stream)
					r.query[0][0] = "stream", r.query[0][1] = "1";
				api.canceled = false;
				api.answer_start_late = late;
				call(&r, "POST", RUNS);
				r.gone(r.gone_ctx);
				if (late && kill) {
					assert_false(api.canceled); /* its id is not known yet */
					struct run_view v = view();
					api.start(api.start_ctx, NULL, &v);
				}
				assert_int_equal(api.canceled, kill);
				assert_int_equal(r.ended, 0);
				api.answer_start_late = false;
				done(&r);
			}
}

static void slow_readers_pause_the_follower(void **state)
{
	(void)state;
	struct request r = { .run = "run_1", .room = 1000 };
	char bytes[700];
	memset(bytes, 'x', sizeof bytes);
	call(&r, "GET", RUNS "/{run}/events");
	api.follower.ev->on_output(api.follower.ctx, 1, 0, (struct str){ bytes, sizeof bytes });
	assert_true(api.follower.paused);
	r.on_room(r.room_ctx);
	assert_false(api.follower.paused);
	r.gone(r.gone_ctx);
	done(&r);
}

static void every_byte_is_escaped(void **state)
{
	(void)state;
	for (unsigned c = 0; c < 256; c++) {
		auto_buf struct buf b;
		char one[] = { 'a', (char)c, 'b' };
		buf_init(&b, 200);
		struct jout j = { .b = &b };
		jout_object(&j, NULL);
		jout_name(&j, "k", c ? (char[]){ 'a', (char)c, 'b', 0 } : "ab");
		jout_text(&j, "t", (struct str){ one, 3 });
		jout_end_object(&j);
		json_t *v = json_loadb(b.data, b.len, JSON_ALLOW_NUL, NULL);
		assert_non_null(v);
		assert_int_equal(json_object_get(v, "t") != NULL, c < 128);
		assert_int_equal(json_object_get(v, "k_base64") != NULL, c >= 128);
		if (c < 128)
			assert_memory_equal(json_string_value(json_object_get(v, "t")), one, 3);
		json_decref(v);
	}
	/* a row of them longer than what is escaped at a time, and a character between bytes that are none */
	char zeros[1000] = { 0 };
	auto_buf struct buf b;
	buf_init(&b, 8000);
	json_escape(&b, (struct str){ zeros, sizeof zeros });
	assert_int_equal(b.len, 6 * sizeof zeros);
	for (size_t i = 0; i < b.len; i += 6)
		assert_memory_equal(b.data + i, "\\u0000", 6);
	buf_reset(&b);
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	jout_name(&j, "k", "\xc3x\xff\xe2\x82\xac\xe2\x82");
	jout_end_object(&j);
	assert_non_null(strstr(b.data, "\"\xef\xbf\xbdx\xef\xbf\xbd\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd\""));
	assert_int_equal(utf8_unfinished(STR("a\xc3")), 1);
	assert_int_equal(utf8_unfinished(STR("a\xf0\x9f\x98")), 3);
	assert_int_equal(utf8_unfinished(STR("a\xe2\x82\xac")), 0);
	assert_int_equal(utf8_unfinished(STR("\x80\x80\x80\x80")), 0);
	assert_int_equal(utf8_unfinished(STR("\xff")), 0);
}

static int begin(void **state)
{
	(void)state;
	uv_loop_init(&loop);
	native = native_new(&loop, NULL, NULL);
	return native ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	native_free(native);
	spec_done(&api.spec);
	run_spec_done(&api.run);
	uv_run(&loop, UV_RUN_DEFAULT);
	return uv_loop_close(&loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_bodies_are_refused_by_name), cmocka_unit_test(bad_queries_are_refused_by_name),
		cmocka_unit_test(keys_are_asked_for),             cmocka_unit_test(good_bodies_arrive),
		cmocka_unit_test(output_comes_back_whole),        cmocka_unit_test(odd_bytes),
		cmocka_unit_test(lines_never_split_a_character),  cmocka_unit_test(leaving_cancels_only_when_asked),
		cmocka_unit_test(slow_readers_pause_the_follower), cmocka_unit_test(every_byte_is_escaped),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
