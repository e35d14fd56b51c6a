/* libcaisson against a server of canned answers on a unix socket: what it asks, byte for byte, and what it makes of answers, also
 * of ones that no good server sends. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/util.h"
#include "caisson.h"

#define OK_JSON(body) "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", body
#define SANDBOX                                                                                                                    \
	"{\"id\":\"11111111-2222-4333-8444-555555555555\",\"name\":\"box\",\"state\":\"running\",\"error\":null,\"boundary\":\"process\"," \
	"\"image\":\"default\",\"created_at\":\"2026-01-02T03:04:05.678Z\",\"resources\":{\"cpus\":0.5,\"memory_mib\":512,\"disk_mib\":1024," \
	"\"pids\":64},\"labels\":{\"a\":\"b\",\"c\":\"\\u001b[31m\"},\"later\":[1]}"
#define RUN_END                                                                                                                      \
	"{\"id\":\"run_1\",\"state\":\"exited\",\"exit_code\":7,\"signal\":null,\"timed_out\":false,\"canceled\":false,\"oom\":false,"      \
	"\"truncated\":false,\"message\":null,\"stdout_bytes\":3,\"stderr_bytes\":1,\"duration_ms\":12"

struct answer {
	const char *head, *body;
};

enum { MAX = 8 };
struct fake {
	char folder[32], path[48];
	int fd, stop[2];
	pthread_t thread;
	struct answer answers[MAX];
	size_t n_answers, n_requests;
	char *requests[MAX]; /* the head and body of each */
	struct caisson *c;
};

/* Where a request ends in text, or 0. */
static size_t request_end(const char *text, size_t n)
{
	const char *head = memmem(text, n, "\r\n\r\n", 4), *length = memmem(text, n, "Content-Length: ", 16);

	if (!head)
		return 0;
	size_t at = (size_t)(head - text) + 4;
	if (length && length < head)
		return at + strtoul(length + 16, NULL, 10) <= n ? at + strtoul(length + 16, NULL, 10) : 0;
	if (memmem(text, at, "Transfer-Encoding: chunked", 26)) {
		const char *end = memmem(head + 2, n - at + 2, "\r\n0\r\n\r\n", 7);
		return end ? (size_t)(end - text) + 7 : 0;
	}
	return at;
}

static void reply(int fd, const struct answer *a)
{
	auto_free char *text = NULL;

	if (!a->body) /* the head is all there is: for answers that break off */
		text = xstrdup(a->head);
	else
		text = xasprintf("%sContent-Length: %zu\r\n\r\n%s", a->head, strlen(a->body), a->body);
	ssize_t ignored = send(fd, text, strlen(text), MSG_NOSIGNAL);
	(void)ignored;
}

static void talk(struct fake *f, int fd)
{
	static char text[1 << 16];
	size_t n = 0;

	for (;;) {
		struct pollfd p[] = { { .fd = fd, .events = POLLIN }, { .fd = f->stop[0], .events = POLLIN } };
		poll(p, 2, -1);
		if (p[1].revents)
			return;
		ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
		if (got <= 0)
			return;
		n += (size_t)got;
		text[n] = '\0';
		size_t end = request_end(text, n);
		if (!end)
			continue;
		const struct answer none = { "HTTP/1.1 500 No\r\n", "{}" };
		const struct answer *a = f->n_requests < f->n_answers ? &f->answers[f->n_requests] : &none;
		if (f->n_requests < MAX)
			f->requests[f->n_requests++] = xstrndup(text, end);
		n = 0;
		reply(fd, a);
		if (!a->body)
			return;
	}
}

static void *serve(void *ctx)
{
	struct fake *f = ctx;

	for (;;) {
		struct pollfd p[] = { { .fd = f->fd, .events = POLLIN }, { .fd = f->stop[0], .events = POLLIN } };
		poll(p, 2, -1);
		if (p[1].revents)
			return NULL;
		auto_fd int fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			talk(f, fd);
	}
}

static struct fake *fake_new(const struct answer *answers, size_t n)
{
	struct fake *f = xcalloc(1, sizeof *f);
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct caisson_error e;

	f->answers[0] = (struct answer){ OK_JSON("{\"status\":\"ok\"}") };
	memcpy(f->answers + 1, answers, n * sizeof *answers);
	f->n_answers = n + 1;
	snprintf(f->folder, sizeof f->folder, "/tmp/test-client-XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->path, sizeof f->path, "%s/api.sock", f->folder);
	memcpy(at.sun_path, f->path, strlen(f->path));
	f->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(f->fd, (struct sockaddr *)&at, sizeof at), 0);
	assert_int_equal(listen(f->fd, 4), 0);
	assert_int_equal(pipe(f->stop), 0);
	assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
	auto_free char *url = xasprintf("unix:%s", f->path);
	const struct caisson_connect_options o = { .url = url, .key = "e2b_0123456789abcdef0123456789abcdef01234567" };
	assert_int_equal(caisson_connect(&o, &f->c, &e), 0);
	return f;
}

static void fake_free(struct fake *f)
{
	caisson_close(f->c);
	close(f->stop[1]);
	pthread_join(f->thread, NULL);
	close(f->stop[0]);
	close(f->fd);
	unlink(f->path);
	rmdir(f->folder);
	for (size_t i = 0; i < f->n_requests; i++)
		free(f->requests[i]);
	free(f);
}

#define FAKE(...) fake_new((const struct answer[]){ __VA_ARGS__ }, ARRAY_LEN(((const struct answer[]){ __VA_ARGS__ })))

static const char *body_of(const struct fake *f, size_t i)
{
	return strstr(f->requests[i], "\r\n\r\n") + 4;
}

static void begins(const char *text, const char *with)
{
	if (strncmp(text, with, strlen(with)) != 0)
		fail_msg("\"%s\" does not begin with \"%s\"", text, with);
}

/* --- tests --- */

static void creates(void **state)
{
	(void)state;
	struct fake *f = FAKE({ "HTTP/1.1 201 Created\r\n", SANDBOX });
	const struct caisson_pair labels[] = { { "a", "b" } };
	const struct caisson_create_options o = { .name = "box", .cpus = 0.5, .memory_mib = 512, .network = "public", .labels = labels, .n_labels = 1,
		                                  .idle_s = 60, .ephemeral = true };
	struct caisson_sandbox *s;
	struct caisson_error e;

	assert_int_equal(caisson_create(f->c, &o, &s, &e), 0);
	begins(f->requests[1], "POST /v1/sandboxes HTTP/1.1\r\n");
	assert_non_null(strstr(f->requests[1], "\r\nAuthorization: Bearer e2b_0123456789abcdef0123456789abcdef01234567\r\n"));
	assert_non_null(strstr(f->requests[1], "\r\nContent-Type: application/json\r\n"));
	assert_null(strstr(f->requests[1], "Expect"));
	assert_string_equal(body_of(f, 1), "{\"name\":\"box\",\"labels\":{\"a\":\"b\"},\"ephemeral\":true,\"resources\":{\"cpus\":0.5,\"memory_mib\":512},"
	                                   "\"network\":{\"mode\":\"public\"},\"lifetime\":{\"idle_s\":60}}");
	assert_string_equal(s->id, "11111111-2222-4333-8444-555555555555");
	assert_string_equal(s->state, "running");
	assert_null(s->error);
	assert_int_equal(s->memory_mib, 512);
	assert_true(s->cpus == 0.5);
	assert_int_equal(s->n_labels, 2);
	assert_string_equal(s->labels[1].value, "\x1b[31m");
	caisson_sandbox_free(s);
	fake_free(f);
}

static void refusals(void **state)
{
	(void)state;
	struct fake *f = FAKE({ "HTTP/1.1 404 Not Found\r\n", "{\"error\":{\"kind\":\"not_found\",\"message\":\"no sandbox\\nbox\"}}" },
	                      { "HTTP/1.1 418 Teapot\r\n", "<html>" }, { "HTTP/1.1 503 Busy\r\n", "" }, { OK_JSON("[1") }, { OK_JSON("{\"id\":1}") });
	struct caisson_sandbox *s = NULL;
	struct caisson_error e = { 0 };

	assert_int_equal(caisson_get(f->c, "../x/y z", &s, &e), -1);
	begins(f->requests[1], "GET /v1/sandboxes/..%2Fx%2Fy%20z HTTP/1.1\r\n");
	assert_int_equal(e.kind, CAISSON_ERR_NOT_FOUND);
	assert_int_equal(e.http_status, 404);
	assert_string_equal(e.message, "no sandbox box");
	assert_int_equal(caisson_get(f->c, "..", &s, &e), -1);
	begins(f->requests[2], "GET /v1/sandboxes/.. HTTP/1.1\r\n"); /* not made into another path */
	assert_int_equal(e.kind, CAISSON_ERR_PROTOCOL);
	assert_int_equal(caisson_get(f->c, "a", &s, &e), -1);
	assert_int_equal(e.kind, CAISSON_ERR_UNAVAILABLE);
	assert_int_equal(caisson_get(f->c, "a", &s, &e), -1);
	assert_int_equal(e.kind, CAISSON_ERR_PROTOCOL);
	assert_int_equal(caisson_get(f->c, "a", &s, &e), -1);
	assert_int_equal(e.kind, CAISSON_ERR_PROTOCOL);
	assert_null(s);
	fake_free(f);
}

static void runs_buffered(void **state)
{
	(void)state;
	struct fake *f = FAKE({ OK_JSON(RUN_END ",\"stdout\":\"a\\u0000b\",\"stderr_base64\":\"/w==\"}") });
	const struct caisson_run_options o = { .argv = (const char *const[]){ "sh", "-c", "x", NULL }, .stdin_bytes = "\xff", .stdin_len = 1,
		                               .timeout_ms = 1000 };
	struct caisson_run *r;
	struct caisson_error e;

	assert_int_equal(caisson_run(f->c, "box", &o, &r, &e), 0);
	begins(f->requests[1], "POST /v1/sandboxes/box/runs HTTP/1.1\r\n");
	assert_string_equal(body_of(f, 1), "{\"argv\":[\"sh\",\"-c\",\"x\"],\"timeout_ms\":1000,\"stdin_base64\":\"/w==\",\"kill_on_disconnect\":true}");
	assert_int_equal(r->exit_code, 7);
	assert_true(r->ended);
	assert_int_equal(r->out_len, 3);
	assert_memory_equal(r->out, "a\0b", 4);
	assert_int_equal(r->err_len, 1);
	assert_int_equal(r->err[0], 0xff);
	assert_null(strstr(r->json, "stdout\""));
	caisson_run_free(r);
	fake_free(f);
}

struct seen {
	char text[256];
	size_t n;
	int stop_after;
	char run[32];
};

static int on_output(void *ctx, int stream, const void *bytes, size_t n)
{
	struct seen *s = ctx;

	s->text[s->n++] = stream == CAISSON_STDERR ? '!' : '.';
	memcpy(s->text + s->n, bytes, n);
	s->n += n;
	return s->stop_after && --s->stop_after == 0;
}

static void on_start(void *ctx, const char *run)
{
	struct seen *s = ctx;

	snprintf(s->run, sizeof s->run, "%s", run);
}

#define STARTED "{\"event\":\"started\",\"run\":{\"id\":\"run_1\",\"state\":\"running\"}}\n"
#define OUT_A "{\"event\":\"output\",\"stream\":\"stdout\",\"offset\":0,\"data\":\"a\\u0000\"}\n"
#define ERR_B "{\"event\":\"output\",\"stream\":\"stderr\",\"offset\":0,\"data_base64\":\"/wA=\"}\n"
#define END "{\"event\":\"end\",\"result\":" RUN_END "}}\n"

static void runs_streamed(void **state)
{
	(void)state;
	struct fake *f = FAKE({ OK_JSON(STARTED OUT_A "\n{\"event\":\"new\"}\n" ERR_B END) });
	struct seen seen = { 0 };
	const struct caisson_run_options o = { .shell = "x", .on_output = on_output, .on_start = on_start, .ctx = &seen, .keep_running = true };
	struct caisson_run *r;
	struct caisson_error e;

	assert_int_equal(caisson_run(f->c, "box", &o, &r, &e), 0);
	begins(f->requests[1], "POST /v1/sandboxes/box/runs?stream=1 HTTP/1.1\r\n");
	assert_string_equal(body_of(f, 1), "{\"shell\":\"x\"}");
	assert_string_equal(seen.run, "run_1");
	assert_int_equal(seen.n, 6);
	assert_memory_equal(seen.text, ".a\0!\xff\0", 6);
	assert_int_equal(r->exit_code, 7);
	assert_int_equal(r->out_len, 0);
	caisson_run_free(r);
	fake_free(f);
}

static void streams_that_go_wrong(void **state)
{
	(void)state;
	static const struct answer bad[] = {
		{ OK_JSON(STARTED OUT_A) },                                                   /* no end */
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"eve", NULL }, /* cut */
		{ OK_JSON("hello\n") },
		{ OK_JSON(STARTED "{\"event\":\"output\",\"stream\":\"stdout\",\"data_base64\":\"%\"}\n") },
		{ OK_JSON(STARTED "{\"event\":\"end\",\"result\":{}}\n") },
	};
	static const enum caisson_error_kind kinds[] = { CAISSON_ERR_CONNECT, CAISSON_ERR_CONNECT, CAISSON_ERR_PROTOCOL, CAISSON_ERR_PROTOCOL,
		                                         CAISSON_ERR_PROTOCOL };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct fake *f = fake_new(&bad[i], 1);
		struct seen seen = { 0 };
		const struct caisson_run_options o = { .shell = "x", .on_output = on_output, .ctx = &seen };
		struct caisson_run *r = NULL;
		struct caisson_error e = { 0 };
		assert_int_equal(caisson_run(f->c, "box", &o, &r, &e), -1);
		assert_int_equal(e.kind, kinds[i]);
		assert_null(r);
		fake_free(f);
	}
}

static void stopping_cancels(void **state)
{
	(void)state;
	struct fake *f = FAKE({ OK_JSON(STARTED OUT_A ERR_B END) }, { "HTTP/1.1 204 No Content\r\n\r\n", NULL });
	struct seen seen = { .stop_after = 1 };
	const struct caisson_run_options o = { .shell = "x", .on_output = on_output, .ctx = &seen };
	struct caisson_run *r = NULL;
	struct caisson_error e = { 0 };

	assert_int_equal(caisson_run(f->c, "box", &o, &r, &e), -1);
	assert_int_equal(e.kind, CAISSON_ERR_STOPPED);
	assert_int_equal(seen.n, 3);
	begins(f->requests[2], "DELETE /v1/sandboxes/box/runs/run_1 HTTP/1.1\r\n");
	fake_free(f);
}

static void one_command_only(void **state)
{
	(void)state;
	struct fake *f = FAKE({ OK_JSON("{}") });
	const struct caisson_run_options none = { 0 }, two = { .shell = "a", .code = "b" };
	const struct caisson_run_options latin = { .argv = (const char *const[]){ "\xff", NULL } };
	struct caisson_run *r;
	struct caisson_error e;

	assert_int_equal(caisson_run(f->c, "b", &none, &r, &e), -1);
	assert_int_equal(e.kind, CAISSON_ERR_INVALID);
	assert_int_equal(caisson_run(f->c, "b", &two, &r, &e), -1);
	assert_int_equal(caisson_run(f->c, "b", &latin, &r, NULL), -1);
	assert_int_equal(f->n_requests, 1); /* only healthz: nothing was asked */
	fake_free(f);
}

struct upload {
	const char *text;
	size_t n, step;
};

static ptrdiff_t source(void *ctx, void *bytes, size_t n)
{
	struct upload *u = ctx;
	size_t k = MIN(MIN(u->n, u->step), n);

	memcpy(bytes, u->text, k);
	u->text += k;
	u->n -= k;
	return (ptrdiff_t)k;
}

static void files(void **state)
{
	(void)state;
	struct fake *f = FAKE({ "HTTP/1.1 204 No Content\r\n", "" }, { "HTTP/1.1 204 No Content\r\n", "" }, { "HTTP/1.1 200 OK\r\n", "bytes" },
	                      { OK_JSON("{\"items\":[{\"path\":\"?\",\"path_base64\":\"/w==\",\"name\":\"?\",\"name_base64\":\"/w==\",\"type\":\"symlink\","
	                                "\"is_dir\":true,\"size\":3,\"mode\":\"4755\",\"uid\":1,\"gid\":2,\"owner\":\"a\",\"group\":\"b\",\"mtime_ms\":-5,"
	                                "\"target\":\"/etc\"}]}") },
	                      { "HTTP/1.1 200 OK\r\n", "longer" });
	struct upload u = { "0123456789", 10, 4 };
	struct caisson_file_list *l;
	struct caisson_error e;
	void *bytes;
	size_t n;

	assert_int_equal(caisson_write_file(f->c, "b", "/a b&c", 0755, "hi", 2, &e), 0);
	begins(f->requests[1], "PUT /v1/sandboxes/b/files?path=%2Fa%20b%26c&parents=true&mode=0755 HTTP/1.1\r\n");
	assert_string_equal(body_of(f, 1), "hi");
	assert_int_equal(caisson_upload(f->c, "b", "\xff", 0, source, &u, &e), 0);
	begins(f->requests[2], "PUT /v1/sandboxes/b/files?path_base64=%2Fw%3D%3D&parents=true&mode=0644 HTTP/1.1\r\n");
	assert_string_equal(body_of(f, 2), "4\r\n0123\r\n4\r\n4567\r\n2\r\n89\r\n0\r\n\r\n");
	assert_int_equal(caisson_read_file(f->c, "b", "x", 0, &bytes, &n, &e), 0);
	assert_int_equal(n, 5);
	assert_memory_equal(bytes, "bytes", 6);
	free(bytes);
	assert_int_equal(caisson_list_files(f->c, "b", "/", &l, &e), 0);
	assert_int_equal(l->n, 1);
	assert_string_equal(l->items[0]->name, "\xff");
	assert_int_equal(l->items[0]->mode, 04755);
	assert_int_equal(l->items[0]->mtime_ms, -5);
	assert_string_equal(l->items[0]->target, "/etc");
	caisson_file_list_free(l);
	assert_int_equal(caisson_read_file(f->c, "b", "x", 5, &bytes, &n, &e), -1);
	assert_int_equal(e.kind, CAISSON_ERR_TOO_LARGE);
	fake_free(f);
}

static void feeds(void **state)
{
	(void)state;
	struct fake *f = FAKE({ "HTTP/1.1 204 No Content\r\n", "" }, { "HTTP/1.1 410 Gone\r\n", "{\"error\":{\"kind\":\"gone\",\"message\":\"m\"}}" },
	                      { "HTTP/1.1 204 No Content\r\n", "" });
	struct upload u = { "abc", 3, 3 };
	struct caisson_error e;

	assert_int_equal(caisson_run_feed(f->c, "b", "run_1", source, &u, &e), 0);
	begins(f->requests[1], "POST /v1/sandboxes/b/runs/run_1/stdin?close=true HTTP/1.1\r\n");
	assert_string_equal(body_of(f, 1), "3\r\nabc\r\n0\r\n\r\n");
	assert_int_equal(caisson_run_write(f->c, "b", "run_1", "x", 1, &e), -1);
	assert_int_equal(e.kind, CAISSON_ERR_GONE);
	assert_int_equal(caisson_run_signal(f->c, "b", "run_1", 15, true, &e), 0);
	begins(f->requests[3], "POST /v1/sandboxes/b/runs/run_1/signal HTTP/1.1\r\n");
	assert_string_equal(body_of(f, 3), "{\"signal\":15,\"tree\":true}");
	fake_free(f);
}

static void addresses(void **state)
{
	(void)state;
	static const char *const bad[] = { "ftp://x", "unix:relative", "127.0.0.1:4780", "file:///etc/passwd" };
	struct caisson *c = NULL;
	struct caisson_error e;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		const struct caisson_connect_options o = { .url = bad[i] };
		assert_int_equal(caisson_connect(&o, &c, &e), -1);
		assert_int_equal(e.kind, CAISSON_ERR_INVALID);
	}
	const struct caisson_connect_options nobody = { .url = "unix:/nonexistent/api.sock" }, split = { .url = "http://127.0.0.1:1", .key = "a\r\nb" };
	assert_int_equal(caisson_connect(&nobody, &c, &e), -1);
	assert_int_equal(e.kind, CAISSON_ERR_CONNECT);
	assert_int_equal(caisson_connect(&split, &c, &e), -1);
	assert_int_equal(e.kind, CAISSON_ERR_INVALID); /* no second header by way of the key */
	assert_null(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(creates), cmocka_unit_test(refusals), cmocka_unit_test(runs_buffered), cmocka_unit_test(runs_streamed),
		cmocka_unit_test(streams_that_go_wrong), cmocka_unit_test(stopping_cancels), cmocka_unit_test(one_command_only),
		cmocka_unit_test(files), cmocka_unit_test(feeds), cmocka_unit_test(addresses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
