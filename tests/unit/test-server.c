/* The server over a real loop, with raw sockets as clients: requests, answers, their order, their limits, and clients that
 * leave, lie or stall. Listening and stopping: test-server-life.c; WebSockets: test-server-socket.c; the proxy: test-server-proxy.c. */
#include "server/internal.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "net-client.h"

#include <sys/resource.h>

static struct server *server;
static uint16_t port;

/* what handlers saw */
static struct request *waiting, *waiting2;
static unsigned n_gone, n_guarded, n_ended;
static uint64_t body_bytes;
static bool body_wrong;
static bool hold_body, expect_pattern;

static void echo(struct request *r, void *ctx)
{
	json_t *args = json_object(), *query = json_object();
	const char *id = req_path_arg(r, "id"), *rest = req_path_arg(r, "rest"), *q = req_query(r, "q");
	struct str body = req_body(r);

	(void)ctx;
	if (id)
		json_object_set_new(args, "id", json_string(id));
	if (rest)
		json_object_set_new(args, "rest", json_string(rest));
	if (q)
		json_object_set_new(query, "q", json_string(q));
	req_reply_json(r, 200,
		       json_pack("{s:s,s:i,s:o,s:o,s:s%}", "method", req_method(r), "tag", (int)req_route(r)->tag, "args", args, "query", query,
				 "body", body.n ? body.p : "", body.n));
}

static void gone(void *ctx)
{
	(void)ctx;
	n_gone++;
}

static void wait_for(struct request *r, void *ctx)
{
	(void)ctx;
	if (waiting)
		waiting2 = r;
	else
		waiting = r;
	if (!req_query(r, "deaf"))
		req_on_gone(r, gone, NULL);
}

static void on_bytes(void *ctx, struct str bytes)
{
	(void)ctx;
	for (size_t i = 0; i < bytes.n && expect_pattern; i += 61)
		body_wrong |= bytes.p[i] != (char)((body_bytes + i) * 31);
	body_bytes += bytes.n;
	if (hold_body)
		req_body_pause(waiting);
}

static void on_end(void *ctx)
{
	struct request *r = ctx;
	char text[64];

	n_ended++;
	snprintf(text, sizeof text, "got %llu", (unsigned long long)body_bytes);
	req_reply(r, 200, NULL, 0, "text/plain", str_of(text));
}

static const struct body_events body_events = { on_bytes, on_end };

static void upload(struct request *r, void *ctx)
{
	(void)ctx;
	waiting = r;
	req_on_gone(r, gone, NULL);
	if (req_query(r, "refuse"))
		req_reply_empty(r, 507);
	else if (!req_query(r, "later"))
		req_read_body(r, &body_events, r);
}

static void stream(struct request *r, void *ctx)
{
	(void)ctx;
	waiting = r;
	req_on_gone(r, gone, NULL);
	req_begin(r, 200, NULL, 0, "text/plain", req_query(r, "n") ? 10 : -1);
}

static void bad_header(struct request *r, void *ctx)
{
	const struct header h = { "X-A", "b\r\nX-C: d" };

	(void)ctx;
	req_reply(r, 200, &h, 1, "text/plain", STR("x"));
}

static const struct route routes[] = {
	{ "GET", "/things/{id}", BODY_NONE, 0, false, echo, 1 },
	{ "GET", "/things/all", BODY_NONE, 0, false, echo, 2 },
	{ "POST", "/things/{id}", BODY_BUFFER, 1000, false, echo, 3 },
	{ "DELETE", "/things/{id}", BODY_NONE, 0, false, echo, 4 },
	{ "*", "/raw/{id}/{rest*}", BODY_BUFFER, 0, false, echo, 5 },
	{ "GET", "/raw/{id}/known", BODY_NONE, 0, false, echo, 6 },
	{ "GET", "/", BODY_NONE, 0, false, echo, 7 },
	{ "GET", "/wait", BODY_NONE, 0, false, wait_for, 0 },
	{ "POST", "/wait", BODY_BUFFER, 0, false, wait_for, 0 },
	{ "POST", "/upload", BODY_STREAM, 0, false, upload, 0 },
	{ "GET", "/upload", BODY_STREAM, 0, false, upload, 0 },
	{ "GET", "/stream", BODY_NONE, 0, false, stream, 0 },
	{ "GET", "/bad-header", BODY_NONE, 0, false, bad_header, 0 },
};

static bool guard(struct request *r, const struct route *route, void *ctx)
{
	(void)route;
	(void)ctx;
	n_guarded++;
	if (!str_eqz(req_header(r, "X-Refuse"), "yes"))
		return true;
	req_reply(r, 401, NULL, 0, "text/plain", STR("who?"));
	return false;
}

static void refuse(struct request *r, int status, const struct err *e, void *ctx)
{
	(void)ctx;
	req_reply_json(r, status, json_pack("{s:s,s:i}", "message", e->message, "statusCode", status));
}

static const struct dialect native = { .name = "native", .routes = routes, .n_routes = ARRAY_LEN(routes), .guard = guard, .prefix = "" };
static const struct dialect other = {
	.name = "other", .routes = routes, .n_routes = 4, .refuse = refuse, .prefix = "/other", .collapse_slashes = true
};

static bool claim(struct request *r, struct str host, void *ctx)
{
	(void)ctx;
	if (!str_eqz(host, "mine.example"))
		return false;
	req_reply(r, 200, NULL, 0, "text/plain", STR("claimed"));
	return true;
}

static int start(void **state)
{
	struct err e;

	(void)state;
	waiting = waiting2 = NULL;
	n_gone = n_guarded = n_ended = 0;
	body_bytes = 0;
	hold_body = expect_pattern = body_wrong = false;
	uv_loop_init(&loop);
	server = server_new(&loop);
	if (server_add_dialect(server, &native, &e) || server_add_dialect(server, &other, &e) || server_listen_tcp(server, "127.0.0.1:0", &port, &e))
		return -1;
	server_set_host_claim(server, claim, NULL);
	server_start(server);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	deadline_shorten_for_tests(1);
	server_free(server);
	while (uv_run(&loop, UV_RUN_NOWAIT))
		;
	return uv_loop_close(&loop); /* EBUSY: a handle was left */
}

/* One connection: sends `text`, reads to the end, gives what came. */
static char *ask_n(struct str text)
{
	struct buf b;
	int fd = client_tcp(port);

	buf_init(&b, 1 << 24);
	client_send(fd, text);
	shutdown(fd, SHUT_WR);
	assert_true(client_to_end(fd, &b));
	close(fd);
	return buf_take(&b);
}

static void expect(const char *request, const char *status, const char *part)
{
	auto_free char *got = ask_n(str_of(request));

	if (!got || strncmp(got, "HTTP/1.1 ", 9) != 0 || strncmp(got + 9, status, strlen(status)) != 0 || (part && !strstr(got, part)))
		fail_msg("<%s>\n want %s and %s\n got  %s", request, status, part ? part : "-", got ? got : "nothing");
}

#define H " HTTP/1.1\r\nHost: localhost\r\n"

static void test_routes(void **state)
{
	(void)state;
	expect("GET /things/a%20b?q=x%2By+z" H "\r\n", "200", "\"tag\":1,\"args\":{\"id\":\"a b\"},\"query\":{\"q\":\"x+y z\"}");
	expect("GET /things/all" H "\r\n", "200", "\"tag\":2");
	expect("GET /things/a%6cl" H "\r\n", "200", "\"tag\":2");
	expect("POST /things/a" H "Content-Length: 2\r\n\r\nhi", "200", "\"tag\":3,\"args\":{\"id\":\"a\"},\"query\":{},\"body\":\"hi\"");
	expect("POST /things/a" H "Transfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", "200", "\"body\":\"hi\"");
	expect("DELETE /things/a" H "Content-Length: 2\r\n\r\nhi", "200", "\"tag\":4");
	expect("PATCH /raw/a/b%2F/../c?x=%ff" H "\r\n", "200", "\"tag\":5,\"args\":{\"id\":\"a\",\"rest\":\"b%2F/../c\"}");
	expect("GET /raw/a/known" H "\r\n", "200", "\"tag\":6");
	expect("GET /raw/a/" H "\r\n", "200", "\"rest\":\"\"");
	expect("GET /" H "\r\n", "200", "\"tag\":7");
	expect("GET http://localhost/?q=1" H "\r\n", "200", "\"q\":\"1\"");
	expect("GET /nothing" H "\r\n", "404", "{\"error\":{\"kind\":\"not_found\"");
	expect("GET /things" H "\r\n", "404", NULL);
	expect("GET /things/" H "\r\n", "404", NULL);
	expect("GET /things/a/" H "\r\n", "404", NULL);
	expect("GET //things/a" H "\r\n", "404", NULL);
	expect("GET /things/.." H "\r\n", "404", NULL);
	expect("GET /things/%2e%2e" H "\r\n", "400", NULL);
	expect("GET /things/a%2Fb" H "\r\n", "400", "encoded slash");
	expect("GET /things/a%00" H "\r\n", "400", NULL);
	expect("GET /things/a%ff" H "\r\n", "400", NULL);
	expect("GET /things/a?q=%zz" H "\r\n", "400", "query");
	expect("PUT /things/a" H "\r\n", "405", "Allow: GET, POST, DELETE\r\n");
	expect("GET /bad-header" H "\r\n", "500", "\"kind\":\"internal\"");
}

static void test_dialects(void **state)
{
	(void)state;
	expect("GET /other/things/a" H "\r\n", "200", "\"id\":\"a\"");
	expect("GET /other//things///a" H "\r\n", "200", "\"id\":\"a\"");
	expect("GET /otherthings/a" H "\r\n", "404", "\"error\"");
	expect("GET /other/none" H "\r\n", "404", "\"statusCode\":404");
	expect("PUT /other/things/a" H "\r\n", "405", "\"statusCode\":405");
	assert_int_equal(n_guarded, 0);
	expect("POST /other/things/a" H "Content-Length: 1001\r\n\r\n", "413", "at most 1000 bytes");
}

static void test_head_and_versions(void **state)
{
	(void)state;
	auto_free char *head = ask_n(STR("HEAD /things/a" H "Connection: close\r\n\r\n"));
	assert_non_null(strstr(head, "Content-Length: "));
	assert_string_equal(strstr(head, "\r\n\r\n"), "\r\n\r\n");
	expect("GET /things/a HTTP/1.0\r\n\r\n", "200", "Connection: close\r\n");
	expect("GET /things/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "200", "Connection: keep-alive\r\nKeep-Alive: timeout=75");
	expect("GET /things/a" H "\r\n", "200", "Keep-Alive: timeout=75");
	expect("GET /things/a HTTP/3.0\r\n\r\n", "505", "Connection: close");
	expect("nonsense\r\n\r\n", "400", "\"kind\":\"invalid\"");
}

static void test_browser_checks(void **state)
{
	(void)state;
	expect("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421", "evil.example");
	expect("GET / HTTP/1.1\r\nHost:\r\n\r\n", "421", NULL);
	expect("GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example:4780\r\n\r\n", "421", NULL);
	expect("GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", "200", NULL);
	expect("GET / HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", "200", NULL);
	expect("GET / HTTP/1.1\r\nHost: LOCALHOST\r\n\r\n", "200", NULL);
	expect("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "421", NULL);
	expect("GET /anything HTTP/1.1\r\nHost: mine.example:99\r\n\r\n", "200", "claimed");
	expect("POST /things/a HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\n\r\n", "200", NULL);
	expect("POST /things/a HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:2\r\n\r\n", "403", NULL);
	expect("POST /things/a" H "Origin: https://evil.example\r\n\r\n", "403", NULL);
	expect("POST /things/a" H "Origin: null\r\n\r\n", "403", NULL);
	expect("DELETE /other/things/a" H "Origin: null\r\n\r\n", "403", "\"statusCode\":403");
	expect("GET /things/a" H "Origin: https://evil.example\r\n\r\n", "200", NULL);
	server_allow_host(server, "good.example");
	expect("POST /things/a HTTP/1.1\r\nHost: good.example\r\n\r\n", "200", NULL);
	expect("POST /things/a" H "Origin: https://good.example:8443\r\n\r\n", "200", NULL);
	expect("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421", NULL);
}

static void test_keep_alive_and_pipelining(void **state)
{
	enum { N = 500 };
	struct buf in, out;
	int fd = client_tcp(port);

	(void)state;
	buf_init(&in, 1 << 24);
	buf_init(&out, 1 << 24);
	for (int i = 0; i < N; i++)
		buf_addf(&out,
			 i % 3 == 0   ? "GET /things/n%d" H "\r\n"
			 : i % 3 == 1 ? "POST /things/n%d" H "Content-Length: 3\r\n\r\nabc"
				      : "POST /things/n%d" H "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			 i);
	buf_addz(&out, "GET /things/last" H "Connection: close\r\n\r\n");
	assert_true(client_send(fd, buf_str(&out)));
	assert_true(client_to_end(fd, &in));
	assert_int_equal(count(&in, "HTTP/1.1 200 OK"), N + 1);
	const char *at = in.data;
	for (int i = 0; i < N; i++) { /* in the order asked */
		char id[32];
		snprintf(id, sizeof id, "{\"id\":\"n%d\"}", i);
		assert_non_null(at = strstr(at, id));
	}
	close(fd);
	buf_done(&in);
	buf_done(&out);
}

/* A request behind one that waits is not begun before that is answered. */
static void test_one_at_a_time(void **state)
{
	struct buf in;
	int fd = client_tcp(port);

	(void)state;
	buf_init(&in, 1 << 20);
	client_send(fd, STR("GET /wait" H "\r\nGET /wait" H "\r\n"));
	WAIT_FOR(waiting);
	turn_for(20);
	assert_null(waiting2);
	req_reply(waiting, 200, NULL, 0, "text/plain", STR("first"));
	WAIT_FOR(waiting2);
	assert_true(client_until(fd, &in, "first"));
	req_reply(waiting2, 200, NULL, 0, "text/plain", STR("second"));
	assert_true(client_until(fd, &in, "second"));
	close(fd);
	WAIT_FOR(server_connections(server) == 0);
	assert_int_equal(n_gone, 0);
	buf_done(&in);
}

static void test_pipeline_is_bounded(void **state)
{
	static char junk[4 << 20];
	int fd = client_tcp(port);

	(void)state;
	client_send(fd, STR("GET /wait" H "\r\n"));
	WAIT_FOR(waiting);
	memset(junk, 'A', sizeof junk);
	size_t sent = 0;
	for (int idle = 0; idle < 100; turn()) { /* until the server's refusal to read has filled the kernel's buffers */
		ssize_t n = send(fd, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += (size_t)MAX(n, 0);
		idle = n > 0 ? 0 : idle + 1;
	}
	assert_true(server->conns->in.len < 128 * 1024);
	client_reset(fd);
	WAIT_FOR(n_gone == 1 && server_connections(server) == 0);
}

/* 413, 401 and 507 while the body is still being sent: the client must be able to read the answer. */
static void early(const char *head, const char *status)
{
	static char body[8 << 20];
	struct buf in;
	int fd = client_tcp(port);

	buf_init(&in, 1 << 20);
	client_send(fd, str_of(head));
	assert_true(client_send(fd, (struct str){ body, sizeof body }));
	assert_true(client_to_end(fd, &in));
	assert_non_null(strstr(in.data, status));
	assert_non_null(strstr(in.data, "Connection: close"));
	assert_int_equal(count(&in, "HTTP/1.1"), 1);
	close(fd);
	WAIT_FOR(server_connections(server) == 0);
	buf_done(&in);
}

static void test_early_answers(void **state)
{
	(void)state;
	early("POST /things/a" H "Content-Length: 8388608\r\n\r\n", "413");
	early("POST /things/a" H "Transfer-Encoding: chunked\r\n\r\n800000\r\n", "413");
	early("POST /upload" H "X-Refuse: yes\r\nContent-Length: 8388608\r\n\r\n", "401");
	early("POST /upload?refuse=1" H "Content-Length: 8388608\r\n\r\n", "507");
	early("GET /wrong" H "Content-Length: 8388608\r\n\r\n", "404");
	early("GET /things/a" H "Content-Length: 8388608\r\n\r\n", "413");
}

/* When the body is here already, an early answer keeps the connection. */
static void test_early_answer_keeps(void **state)
{
	(void)state;
	auto_free char *got =
		ask_n(STR("POST /wrong" H "Content-Length: 2\r\n\r\nhiPOST /upload" H "X-Refuse: yes\r\nTransfer-Encoding: chunked\r\n\r\n"
			  "2\r\nhi\r\n0\r\n\r\nGET /things/a" H "\r\n"));
	assert_non_null(strstr(got, "404 Not Found"));
	assert_non_null(strstr(got, "401 Unauthorized"));
	assert_non_null(strstr(got, "200 OK"));
}

static void test_expect(void **state)
{
	struct buf in;
	int fd = client_tcp(port);

	(void)state;
	buf_init(&in, 1 << 20);
	client_send(fd, STR("POST /things/a" H "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
	assert_true(client_until(fd, &in, "HTTP/1.1 100 Continue\r\n\r\n"));
	client_send(fd, STR("hi"));
	assert_true(client_until(fd, &in, "\"body\":\"hi\""));
	buf_reset(&in);
	/* a stream: only when its handler wants the body */
	client_send(fd, STR("POST /upload?later=1" H "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
	WAIT_FOR(waiting);
	turn_for(10);
	assert_int_equal(client_recv(fd, &in, 100), -1);
	req_read_body(waiting, &body_events, waiting);
	assert_true(client_until(fd, &in, "HTTP/1.1 100 Continue\r\n\r\n"));
	client_send(fd, STR("hi"));
	assert_true(client_until(fd, &in, "got 2"));
	buf_reset(&in);
	client_send(fd, STR("POST /upload" H "X-Refuse: yes\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
	assert_true(client_to_end(fd, &in));
	assert_int_equal(strncmp(in.data, "HTTP/1.1 401", 12), 0);
	close(fd);
	expect("POST /things/a" H "Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n", "413", NULL);
	buf_done(&in);
}

static void test_client_leaves(void **state)
{
	static const char *const asks[] = { "GET /wait" H "\r\n", "GET /stream" H "\r\n", "POST /upload?later=1" H "Content-Length: 9\r\n\r\nabc",
					    "POST /upload" H "Content-Length: 9\r\n\r\nabc", "GET /wait" H "\r\nGET /wait" H "\r\n" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
		for (int reset = 0; reset < 2; reset++) {
			int fd = client_tcp(port);
			if (i == 2 && !reset) { /* nobody reads: a FIN behind unread bytes ends the upload when it is read */
				close(fd);
				continue;
			}
			n_gone = 0;
			waiting = waiting2 = NULL;
			client_send(fd, str_of(asks[i]));
			WAIT_FOR(waiting);
			if (reset)
				client_reset(fd);
			else
				close(fd);
			WAIT_FOR(n_gone == 1);
			WAIT_FOR(server_connections(server) == 0);
			assert_int_equal(n_gone, 1);
			assert_null(waiting2);
		}
	}
}

/* A handler that did not ask to be told answers into nothing. */
static void test_deaf_handler(void **state)
{
	int fd = client_tcp(port);

	(void)state;
	client_send(fd, STR("GET /wait?deaf=1" H "\r\n"));
	WAIT_FOR(waiting);
	client_reset(fd);
	WAIT_FOR(server_connections(server) == 0);
	assert_string_equal(req_query(waiting, "deaf"), "1");
	req_begin(waiting, 200, NULL, 0, "text/plain", -1);
	req_write(waiting, STR("x"));
	assert_true(req_room(waiting));
	req_end(waiting);
	waiting = NULL;
	fd = client_tcp(port); /* one that only shuts its sending side gets its answer */
	struct buf in;
	buf_init(&in, 1 << 16);
	client_send(fd, STR("GET /wait?deaf=1" H "\r\n"));
	shutdown(fd, SHUT_WR);
	WAIT_FOR(waiting);
	turn_for(10);
	req_reply(waiting, 200, NULL, 0, "text/plain", STR("late"));
	assert_true(client_to_end(fd, &in));
	assert_non_null(strstr(in.data, "late"));
	close(fd);
	buf_done(&in);
}

static unsigned n_room;

static void on_room(void *ctx)
{
	(void)ctx;
	n_room++;
}

static void test_slow_reader(void **state)
{
	static char block[100 * 1024];
	struct buf in;
	size_t written = 0;
	int fd = client_tcp(port);

	(void)state;
	n_room = 0;
	memset(block, 'x', sizeof block);
	client_send(fd, STR("GET /stream" H "\r\n"));
	WAIT_FOR(waiting);
	req_on_room(waiting, on_room, NULL);
	while (req_room(waiting)) {
		req_write(waiting, (struct str){ block, sizeof block });
		written += sizeof block;
		turn();
		assert_true(written < 64 << 20);
	}
	assert_true(server->conns->out.len < OUT_HIGH + 2 * sizeof block);
	turn_for(10);
	assert_int_equal(n_room, 0);
	buf_init(&in, 128 << 20);
	size_t n_x = 0;
	bool ended = false;
	for (uint64_t end = now_ms() + CLIENT_PATIENCE_MS; now_ms() < end; turn()) {
		if (n_room && !ended) {
			assert_true(req_room(waiting));
			req_end(waiting);
			ended = true;
		}
		client_recv(fd, &in, 65536);
		if (in.len >= 5 && memcmp(in.data + in.len - 5, "0\r\n\r\n", 5) == 0)
			break;
	}
	assert_int_equal(n_room, 1);
	assert_true(ended);
	for (const char *x = strstr(in.data, "\r\n\r\n"); x < in.data + in.len; x++)
		n_x += *x == 'x';
	assert_int_equal(n_x, written);
	close(fd);
	buf_done(&in);
}

static void test_streams(void **state)
{
	struct buf in;
	int fd = client_tcp(port);

	(void)state;
	buf_init(&in, 1 << 20);
	client_send(fd, STR("GET /stream" H "\r\n"));
	WAIT_FOR(waiting);
	assert_true(client_until(fd, &in, "Transfer-Encoding: chunked\r\n")); /* the head does not wait for the first bytes */
	req_write(waiting, STR("one"));
	req_write(waiting, STR(""));
	req_write(waiting, STR("two"));
	req_end(waiting);
	assert_true(client_until(fd, &in, "\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"));
	buf_reset(&in);
	waiting = NULL;
	client_send(fd, STR("GET /stream?n=1" H "\r\n")); /* a length promised and kept */
	WAIT_FOR(waiting);
	req_write(waiting, STR("0123456789"));
	req_end(waiting);
	assert_true(client_until(fd, &in, "Content-Length: 10\r\n"));
	assert_true(client_until(fd, &in, "0123456789"));
	buf_reset(&in);
	waiting = NULL;
	client_send(fd, STR("GET /stream?n=1" H "\r\n")); /* ... and not kept: a cut, not a wrong end */
	WAIT_FOR(waiting);
	req_write(waiting, STR("01234"));
	req_end(waiting);
	client_to_end(fd, &in);
	assert_true(in.len > 5 && memcmp(in.data + in.len - 5, "01234", 5) == 0);
	close(fd);
	fd = client_tcp(port);
	buf_reset(&in);
	waiting = NULL;
	client_send(fd, STR("GET /stream" H "\r\n")); /* aborted: no last chunk */
	WAIT_FOR(waiting);
	req_write(waiting, STR("x"));
	req_abort(waiting);
	client_to_end(fd, &in);
	assert_int_equal(count(&in, "0\r\n\r\n"), 0);
	assert_int_equal(count(&in, "1\r\nx\r\n"), 1);
	close(fd);
	fd = client_tcp(port);
	buf_reset(&in);
	waiting = NULL;
	client_send(fd, STR("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")); /* 1.0: until the end */
	WAIT_FOR(waiting);
	req_write(waiting, STR("all"));
	req_end(waiting);
	assert_true(client_to_end(fd, &in));
	assert_int_equal(count(&in, "chunked"), 0);
	assert_string_equal(strstr(in.data, "\r\n\r\n"), "\r\n\r\nall");
	close(fd);
	buf_done(&in);
	assert_int_equal(n_gone, 0);
}

static void test_big_upload(void **state)
{
	enum { BLOCK = 1 << 20, N = 200 };
	static char block[BLOCK];
	struct rusage before, after;
	struct buf in;
	int fd = client_tcp(port);

	(void)state;
	buf_init(&in, 1 << 20);
	for (size_t i = 0; i < BLOCK; i++)
		block[i] = (char)(i * 31); /* 31 * BLOCK is 0 modulo 256: the pattern goes on from block to block */
	expect_pattern = true;
	client_send(fd, STR("POST /upload" H "Transfer-Encoding: chunked\r\n\r\n"));
	getrusage(RUSAGE_SELF, &before);
	for (int i = 0; i < N; i++)
		assert_true(client_send(fd, STR("100000\r\n")) && client_send(fd, (struct str){ block, BLOCK }) && client_send(fd, STR("\r\n")));
	getrusage(RUSAGE_SELF, &after);
	client_send(fd, STR("0\r\n\r\n"));
	assert_true(client_until(fd, &in, "got 209715200"));
	assert_false(body_wrong);
	assert_true(after.ru_maxrss - before.ru_maxrss < 16 * 1024);
	close(fd);
	buf_done(&in);
}

static void test_paused_upload(void **state)
{
	static char block[4 << 20];
	struct buf in;
	int fd = client_tcp(port);
	size_t sent = 0;

	(void)state;
	buf_init(&in, 1 << 20);
	hold_body = true;
	client_send(fd, STR("POST /upload" H "Content-Length: 33554432\r\n\r\n"));
	for (int idle = 0; idle < 100; turn()) {
		ssize_t n = send(fd, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += (size_t)MAX(n, 0);
		idle = n > 0 ? 0 : idle + 1;
	}
	assert_true(sent < 30 << 20);
	assert_true(body_bytes <= READ_SIZE);
	assert_true(server->conns->in.len < 3 * READ_SIZE);
	hold_body = false;
	req_body_resume(waiting);
	while (sent < 33554432) {
		size_t n = MIN(sizeof block, 33554432 - sent);
		assert_true(client_send(fd, (struct str){ block, n }));
		sent += n;
	}
	assert_true(client_until(fd, &in, "got 33554432"));
	/* no body at all: the end is told all the same */
	buf_reset(&in);
	client_send(fd, STR("GET /upload" H "\r\n"));
	assert_true(client_until(fd, &in, "got 33554432"));
	assert_int_equal(n_ended, 2);
	close(fd);
	buf_done(&in);
}

static void test_deadlines(void **state)
{
	static const char *const asks[] = { "", "GET / HTTP", "POST /things/a" H "Content-Length: 10\r\n\r\nabc" };
	static const char *const answers[] = { "", "HTTP/1.1 408", "HTTP/1.1 408" };

	(void)state;
	deadline_shorten_for_tests(200); /* idle 400 ms, head 50, body 150, linger 10 */
	for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
		struct buf in;
		buf_init(&in, 1 << 16);
		int fd = client_tcp(port);
		client_send(fd, str_of(asks[i]));
		assert_true(client_to_end(fd, &in));
		assert_int_equal(strncmp(in.len ? in.data : "", answers[i], strlen(answers[i])), 0);
		close(fd);
		buf_done(&in);
	}
	/* a byte now and then does not push the head's deadline away */
	int fd = client_tcp(port);
	uint64_t begin = now_ms();
	for (int i = 0; i < 1000 && server_connections(server) + (i < 5); i++) {
		send(fd, "G", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		turn_for(5);
	}
	assert_true(now_ms() - begin < 5000); /* a hundred times the deadline */
	close(fd);
	/* a client that reads nothing is cut, and its handler told */
	static char block[1 << 20];
	fd = client_tcp(port);
	client_send(fd, STR("GET /stream" H "\r\n"));
	waiting = NULL;
	WAIT_FOR(waiting);
	while (req_room(waiting)) {
		req_write(waiting, (struct str){ block, sizeof block });
		turn();
	}
	WAIT_FOR(n_gone == 1 && server_connections(server) == 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, start, stop)
		T(test_routes),
		T(test_dialects),
		T(test_head_and_versions),
		T(test_browser_checks),
		T(test_keep_alive_and_pipelining),
		T(test_one_at_a_time),
		T(test_pipeline_is_bounded),
		T(test_early_answers),
		T(test_early_answer_keeps),
		T(test_expect),
		T(test_client_leaves),
		T(test_deaf_handler),
		T(test_slow_reader),
		T(test_streams),
		T(test_big_upload),
		T(test_paused_upload),
		T(test_deadlines),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
