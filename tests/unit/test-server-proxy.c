/* The proxy: an upstream played by the test, honest and hostile, and what the client sees of it. */
#include "server/internal.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "net-client.h"

static struct server *server;
static uint16_t port;

static struct upstream {
	struct proxy *proxy;
	struct buf got;
	size_t room;
	bool eof, paused;
	unsigned n_open, n_closed, n_paused, n_resumed;
} up;

static size_t up_room(void *ctx)
{
	(void)ctx;
	return up.room;
}

static void up_write(void *ctx, struct str bytes)
{
	(void)ctx;
	assert_true(bytes.n <= up.room);
	assert_int_equal(up.n_closed, 0);
	up.room -= bytes.n;
	buf_add(&up.got, bytes.p, bytes.n);
}

static void up_eof(void *ctx)
{
	(void)ctx;
	assert_false(up.eof);
	up.eof = true;
}

static void up_pause(void *ctx)
{
	(void)ctx;
	assert_false(up.paused);
	up.paused = true;
	up.n_paused++;
}

static void up_resume(void *ctx)
{
	(void)ctx;
	assert_true(up.paused);
	up.paused = false;
	up.n_resumed++;
}

static void up_close(void *ctx)
{
	(void)ctx;
	up.n_closed++;
	if (--up.n_open == 0) /* the next exchange of a connection may have begun before the last stream is closed */
		up.proxy = NULL;
}

static const struct upstream_ops ops = { up_room, up_write, up_eof, up_pause, up_resume, up_close };

static bool scoped; /* the host is shared: cookies are for the path */

static bool is_secret(struct str value)
{
	return value.n && memmem(value.p, value.n, "hush", 4);
}

static void hand_on(struct request *r)
{
	static const char *const drop[] = { "X-Api-Key", NULL }, *const cookies[] = { "key", NULL };
	static const struct header add[] = { { "X-Added", "yes" }, { "X-Bad", "a\r\nb" } };
	const struct proxy_options o = {
		.path = "/there?q=1", .host = "inside:3000", .drop_headers = drop, .drop_cookies = cookies, .is_secret = is_secret, .add_headers = add,
		.n_add_headers = 2, .cookie_path = scoped ? "/p/here/;x" : NULL
	};

	up.n_open++;
	up.proxy = req_proxy(r, &o, &ops, &up);
}

static bool claim(struct request *r, struct str host, void *ctx)
{
	(void)ctx;
	if (!str_eqz(host, "p.example"))
		return false;
	hand_on(r);
	return true;
}

static void route_proxy(struct request *r, void *ctx)
{
	(void)ctx;
	hand_on(r);
}

static void refuse(struct request *r, int status, const struct err *e, void *ctx)
{
	(void)ctx;
	req_reply(r, status, NULL, 0, "text/plain", str_of(e->message));
}

static const struct route routes[] = { { "*", "/p/{rest*}", BODY_STREAM, 0, true, route_proxy, 0 } };
static const struct dialect dialect = { .name = "test", .routes = routes, .n_routes = 1, .refuse = refuse, .prefix = "" };

static int start(void **state)
{
	struct err e;

	(void)state;
	memset(&up, 0, sizeof up);
	buf_init(&up.got, 64 << 20);
	up.room = SIZE_MAX / 2;
	uv_loop_init(&loop);
	server = server_new(&loop);
	if (server_add_dialect(server, &dialect, &e) || server_listen_tcp(server, "127.0.0.1:0", &port, &e))
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
	buf_done(&up.got);
	return uv_loop_close(&loop);
}

#define HOST "Host: p.example\r\n"

static int ask(const char *text)
{
	int fd = client_tcp(port);

	up.proxy = NULL;
	up.n_closed = 0;
	up.eof = false;
	buf_reset(&up.got);
	client_send(fd, str_of(text));
	WAIT_FOR(up.proxy);
	return fd;
}

static void answer(struct str text, size_t piece)
{
	for (size_t at = 0; at < text.n && up.proxy; at += piece) {
		char *copy = xmemdup(text.p + at, MIN(piece, text.n - at));
		proxy_upstream_data(up.proxy, (struct str){ copy, MIN(piece, text.n - at) });
		free(copy);
		if (piece == 1 && at % 7 == 0)
			turn();
	}
}

static void test_request_head(void **state)
{
	(void)state;
	int fd = ask("PUT /p/x HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nX-Api-Key: secret\r\n"
		     "Cookie: a=1; key=secret; b=2\r\nCookie: key=secret\r\nAuthorization: Bearer a hush b\r\n"
		     "Authorization: hush\r\nX-Kept: yes\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\nhi");
	assert_int_equal(up.got.len, 0); /* nothing before the stream is open */
	proxy_upstream_open(up.proxy);
	WAIT_FOR(up.got.len && strstr(up.got.data, "\r\n\r\nhi"));
	assert_string_equal(up.got.data, "PUT /there?q=1 HTTP/1.1\r\nHost: inside:3000\r\nCookie: a=1; b=2\r\nX-Kept: yes\r\nContent-Length: 2\r\n"
					 "Connection: close\r\n\r\nhi");
	close(fd);
	WAIT_FOR(up.n_closed == 1);
	fd = ask("POST /x HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
	proxy_upstream_open(up.proxy);
	struct buf in;
	buf_init(&in, 1 << 20);
	assert_true(client_until(fd, &in, "100 Continue\r\n\r\n"));
	client_send(fd, STR("2;ext\r\nhi\r\n0\r\nTrailer: x\r\n\r\n"));
	WAIT_FOR(up.got.len && strstr(up.got.data, "\r\n0\r\n\r\n"));
	assert_string_equal(up.got.data, "POST /there?q=1 HTTP/1.1\r\nHost: inside:3000\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
					 "2\r\nhi\r\n0\r\n\r\n");
	close(fd);
	WAIT_FOR(up.n_closed == 1);
	buf_done(&in);
}

struct exchange {
	const char *request;
	const char *answer;
	bool eof;
	const char *want[3];
	const char *never;
};

static const struct exchange exchanges[] = {
	{ "GET / HTTP/1.1\r\n" HOST "\r\n",
	  "HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nX-A: b\r\nKeep-Alive: timeout=1\r\n\r\nhello",
	  false,
	  { "HTTP/1.1 200 OK\r\nX-A: b\r\nX-Added: yes\r\nDate: ", "Content-Length: 5\r\nKeep-Alive: timeout=75\r\n", "\r\n\r\nhello" },
	  "X-Bad" },
	{ "GET / HTTP/1.1\r\n" HOST "\r\n",
	  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X-Hop\r\nX-Hop: z\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	  false,
	  { "Transfer-Encoding: chunked\r\n", "o\r\n", "0\r\n\r\n" },
	  "X-Hop" },
	{ "GET / HTTP/1.1\r\n" HOST "\r\n",
	  "HTTP/1.0 200 OK\r\nDate: then\r\n\r\nuntil the end",
	  true,
	  { "Date: then\r\n", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n" },
	  "Connection: close" },
	{ "GET / HTTP/1.0\r\n" HOST "\r\n",
	  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	  false,
	  { "Connection: close\r\n", "\r\n\r\nhello", NULL },
	  "chunked" },
	{ "HEAD / HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, { "Content-Length: 5\r\n", NULL, NULL }, NULL },
	{ "GET / HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", false, { "304", "ETag: x", NULL }, "Content-Length" },
	{ "GET / HTTP/1.1\r\n" HOST "\r\n",
	  "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
	  false,
	  { "204", NULL, NULL },
	  "Link" },
	/* an answer before the body is read */
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 1000\r\n\r\nabc",
	  "HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno",
	  false,
	  { "403", "Connection: close\r\n", "\r\n\r\nno" },
	  NULL },
	/* lies */
	{ "GET / HTTP/1.1\r\n" HOST "\r\n",
	  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	  false,
	  { "HTTP/1.1 502 ", NULL, NULL },
	  "200" },
	{ "GET / HTTP/1.1\r\n" HOST "\r\n", "SSH-2.0-OpenSSH\r\n", false, { "HTTP/1.1 502 ", NULL, NULL }, NULL },
	{ "GET / HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 200 OK\r\nContent-", true, { "HTTP/1.1 502 ", NULL, NULL }, "200" },
	{ "GET / HTTP/1.1\r\n" HOST "\r\n", "", true, { "HTTP/1.1 502 ", NULL, NULL }, NULL },
	{ "GET / HTTP/1.1\r\n" HOST "\r\n",
	  "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
	  false,
	  { "HTTP/1.1 502 ", NULL, NULL },
	  NULL },
	{ "GET / HTTP/1.1\r\n" HOST "\r\n",
	  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n",
	  false,
	  { "\r\n\r\nok", NULL, NULL },
	  "okH" },
	/* cut short: the client must not take it for the whole */
	{ "GET / HTTP/1.1\r\n" HOST "\r\n",
	  "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
	  true,
	  { "Content-Length: 9\r\n", NULL, NULL },
	  "502" },
	{ "GET / HTTP/1.1\r\n" HOST "\r\n",
	  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nXX\r\n",
	  false,
	  { "chunked", NULL, NULL },
	  "0\r\n\r\n" },
};

static void test_exchanges(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(exchanges); i++) {
		const struct exchange *x = &exchanges[i];
		for (size_t piece = 1; piece <= 1000; piece += 999) {
			struct buf in;
			buf_init(&in, 1 << 20);
			int fd = ask(x->request);
			proxy_upstream_open(up.proxy);
			answer(str_of(x->answer), piece);
			if (x->eof && up.proxy)
				proxy_upstream_eof(up.proxy);
			WAIT_FOR(up.n_closed == 1);
			shutdown(fd, SHUT_WR);
			client_to_end(fd, &in);
			for (size_t j = 0; j < ARRAY_LEN(x->want); j++)
				if (x->want[j] && (!in.len || !strstr(in.data, x->want[j])))
					fail_msg("exchange %zu, pieces of %zu: no <%s> in <%s>", i, piece, x->want[j], in.len ? in.data : "");
			if (x->never && in.len && strstr(in.data, x->never))
				fail_msg("exchange %zu, pieces of %zu: <%s> in <%s>", i, piece, x->never, in.data);
			close(fd);
			WAIT_FOR(server_connections(server) == 0);
			buf_done(&in);
		}
	}
}

/* Cookies stay with the program that set them. */
static void test_cookies(void **state)
{
	static const char *const want[2][2] = {
		{ "\r\nSet-Cookie: a=b; Path=/; Secure; HttpOnly\r\n", "\r\nSet-Cookie: c=\r\nClear-Site-Data: \"*\"\r\n" },
		{ "\r\nSet-Cookie: a=b; Secure; HttpOnly; Path=/p/here\r\n", "\r\nSet-Cookie: c=; Path=/p/here\r\nX-Added" },
	};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct buf in;
		buf_init(&in, 1 << 20);
		scoped = i == 1;
		int fd = ask("GET / HTTP/1.1\r\n" HOST "\r\n");
		proxy_upstream_open(up.proxy);
		answer(STR("HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Domain=.example; Path=/;Secure ; domain = x;HttpOnly\r\n"
			   "Set-Cookie: c=; DOMAIN=x\r\nClear-Site-Data: \"*\"\r\nContent-Length: 2\r\n\r\nok"),
		       1000);
		assert_true(client_until(fd, &in, "\r\n\r\nok"));
		for (int j = 0; j < 2; j++)
			if (!strstr(in.data, want[i][j]))
				fail_msg("no <%s> in <%s>", want[i][j], in.data);
		WAIT_FOR(up.n_closed == 1);
		close(fd);
		buf_done(&in);
	}
	scoped = false;
}

/* After a proxied exchange the client's connection serves the next one. */
static void test_keeps_connection(void **state)
{
	struct buf in;
	int fd = ask("GET / HTTP/1.1\r\n" HOST "\r\nGET /p/2 HTTP/1.1\r\nHost: localhost\r\n\r\n");

	(void)state;
	buf_init(&in, 1 << 20);
	for (int i = 0; i < 2; i++) {
		WAIT_FOR(up.proxy);
		up.n_closed = 0;
		proxy_upstream_open(up.proxy);
		answer(STR("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"), 1000);
		WAIT_FOR(up.n_closed == 1);
	}
	assert_true(client_until(fd, &in, "abc"));
	WAIT_FOR((client_recv(fd, &in, 1000), count(&in, "abc") == 2));
	close(fd);
	buf_done(&in);
}

static void test_failures(void **state)
{
	struct buf in;
	struct err e;

	(void)state;
	buf_init(&in, 1 << 20);
	int fd = ask("GET /p/x HTTP/1.1\r\nHost: localhost\r\n\r\n"); /* never opened */
	err_set(&e, ERR_UNAVAILABLE, 0, "nobody listens on port 3000");
	proxy_upstream_failed(up.proxy, &e);
	assert_true(client_until(fd, &in, "nobody listens on port 3000"));
	assert_int_equal(strncmp(in.data, "HTTP/1.1 502", 12), 0);
	WAIT_FOR(up.n_closed == 1);
	close(fd);
	fd = ask("GET / HTTP/1.1\r\n" HOST "\r\n"); /* the client leaves while the stream opens */
	close(fd);
	WAIT_FOR(up.n_closed == 1);
	fd = ask("GET / HTTP/1.1\r\n" HOST "\r\n"); /* ... and in the middle of the answer */
	proxy_upstream_open(up.proxy);
	answer(STR("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"), 1000);
	client_reset(fd);
	WAIT_FOR(up.n_closed == 1);
	buf_done(&in);
}

static void test_back_pressure(void **state)
{
	static char block[1 << 20];
	struct buf in;
	int fd = ask("POST / HTTP/1.1\r\n" HOST "Content-Length: 33554432\r\n\r\n");
	size_t sent = 0, taken;

	(void)state;
	buf_init(&in, 64 << 20);
	memset(block, 'x', sizeof block);
	up.room = 100000; /* up: the stream takes a little, then nothing */
	proxy_upstream_open(up.proxy);
	for (int idle = 0; idle < 100; turn()) {
		ssize_t n = send(fd, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += (size_t)MAX(n, 0);
		idle = n > 0 ? 0 : idle + 1;
	}
	assert_int_equal(up.got.len, 100000);
	assert_true(sent < 30 << 20);
	while (sent < 33554432) {
		up.room = 50000;
		proxy_upstream_room(up.proxy);
		ssize_t n = send(fd, block, MIN(sizeof block, 33554432 - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += (size_t)MAX(n, 0);
		turn();
	}
	taken = 0;
	for (uint64_t end = now_ms() + CLIENT_PATIENCE_MS; taken < 33554432 && now_ms() < end; turn()) {
		up.room = 1 << 20;
		proxy_upstream_room(up.proxy);
		taken = up.got.len - (size_t)(strstr(up.got.data, "\r\n\r\n") + 4 - up.got.data);
	}
	assert_int_equal(taken, 33554432);
	/* down: the client takes nothing */
	answer(STR("HTTP/1.1 200 OK\r\nContent-Length: 16777216\r\n\r\n"), 1000);
	size_t given = 0;
	while (!up.paused) {
		answer((struct str){ block, 65536 }, 65536);
		given += 65536;
		turn();
		assert_true(given < 16 << 20);
	}
	assert_true(server->conns->out.len < OUT_HIGH + 2 * 65536);
	while (given < 16777216) {
		client_recv(fd, &in, 65536);
		if (!up.paused) {
			answer((struct str){ block, 65536 }, 65536);
			given += 65536;
		}
		turn();
	}
	const char *end = strstr(in.data, "\r\n\r\n");
	size_t head = (size_t)(end + 4 - in.data);
	WAIT_FOR((client_recv(fd, &in, 65536), in.len == head + 16777216));
	assert_true(up.n_resumed > 0);
	assert_int_equal(up.n_closed, 1);
	close(fd);
	buf_done(&in);
}

#define UPGRADE                                                                                                                                      \
	"GET / HTTP/1.1\r\n" HOST                                                                                                                    \
	"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
#define SWITCH "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3p\r\n\r\n"

static void test_tunnel(void **state)
{
	static char block[64 * 1024];
	struct buf in;
	int fd = ask(UPGRADE "\r\nearly");

	(void)state;
	buf_init(&in, 32 << 20);
	proxy_upstream_open(up.proxy);
	WAIT_FOR(up.got.len);
	assert_non_null(strstr(up.got.data, "Sec-WebSocket-Version: 13\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"));
	turn_for(10);
	assert_null(strstr(up.got.data, "early")); /* not before the other side has switched */
	answer(STR(SWITCH "behind"), 1);
	assert_true(client_until(fd, &in, "\r\n\r\nbehind"));
	assert_non_null(strstr(in.data, "Sec-WebSocket-Accept: s3p\r\n"));
	WAIT_FOR(strstr(up.got.data, "early"));
	client_send(fd, STR("ping"));
	WAIT_FOR(strstr(up.got.data, "earlyping"));
	answer(STR("pong"), 1000);
	assert_true(client_until(fd, &in, "behindpong"));
	up.room = 0; /* up: no room */
	size_t sent = 0, before = up.got.len;
	for (int idle = 0; idle < 100; turn()) {
		ssize_t n = send(fd, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += (size_t)MAX(n, 0);
		idle = n > 0 ? 0 : idle + 1;
	}
	assert_int_equal(up.got.len, before);
	assert_true(server->conns->in.len < 3 * READ_SIZE);
	up.room = SIZE_MAX / 2;
	proxy_upstream_room(up.proxy);
	WAIT_FOR(up.got.len == before + sent);
	while (!up.paused) { /* down: no room */
		answer((struct str){ block, sizeof block }, sizeof block);
		turn();
	}
	assert_true(server->conns->out.len < OUT_HIGH + 2 * sizeof block);
	WAIT_FOR((client_recv(fd, &in, 65536), !up.paused));
	shutdown(fd, SHUT_WR); /* half-closes are passed on, each way */
	WAIT_FOR(up.eof);
	assert_int_equal(up.n_closed, 0);
	answer(STR("last words"), 1000);
	proxy_upstream_eof(up.proxy);
	assert_true(client_to_end(fd, &in));
	assert_true(memcmp(in.data + in.len - 10, "last words", 10) == 0);
	WAIT_FOR(up.n_closed == 1);
	close(fd);
	WAIT_FOR(server_connections(server) == 0);
	buf_done(&in);
}

static void test_tunnel_ends(void **state)
{
	struct buf in;
	struct err e;

	(void)state;
	buf_init(&in, 1 << 20);
	int fd = ask(UPGRADE "\r\n"); /* refused by the upstream: an ordinary answer */
	proxy_upstream_open(up.proxy);
	answer(STR("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"), 1000);
	assert_true(client_until(fd, &in, "403 Forbidden"));
	WAIT_FOR(up.n_closed == 1);
	close(fd);
	fd = ask(UPGRADE "\r\n"); /* another protocol than asked */
	proxy_upstream_open(up.proxy);
	answer(STR("HTTP/1.1 101 S\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"), 1000);
	buf_reset(&in);
	assert_true(client_until(fd, &in, "502"));
	WAIT_FOR(up.n_closed == 1);
	close(fd);
	fd = ask(UPGRADE "\r\n"); /* the client is reset */
	proxy_upstream_open(up.proxy);
	answer(STR(SWITCH), 1000);
	turn_for(5);
	client_reset(fd);
	WAIT_FOR(up.n_closed == 1);
	fd = ask(UPGRADE "\r\n"); /* the upstream breaks */
	proxy_upstream_open(up.proxy);
	answer(STR(SWITCH), 1000);
	turn_for(5);
	err_set(&e, ERR_UNAVAILABLE, 0, "gone");
	proxy_upstream_failed(up.proxy, &e);
	WAIT_FOR(up.n_closed == 1);
	WAIT_FOR(server_connections(server) == 0);
	close(fd);
	fd = ask(UPGRADE "\r\n"); /* one side has ended, the other says nothing more */
	proxy_upstream_open(up.proxy);
	answer(STR(SWITCH), 1000);
	turn_for(5);
	deadline_shorten_for_tests(1000);
	proxy_upstream_eof(up.proxy);
	WAIT_FOR(up.n_closed == 1);
	close(fd);
	/* and the server goes while a tunnel is open */
	deadline_shorten_for_tests(1);
	fd = ask(UPGRADE "\r\n");
	proxy_upstream_open(up.proxy);
	answer(STR(SWITCH), 1000);
	turn_for(5);
	close(fd);
	buf_done(&in);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, start, stop)
		T(test_request_head),  T(test_exchanges), T(test_cookies), T(test_keeps_connection), T(test_failures),
		T(test_back_pressure), T(test_tunnel),	  T(test_tunnel_ends),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
