/* Listening, many connections, running out of descriptors, stopping. */
#include "server/internal.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "net-client.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>

static struct server *server;
static uint16_t port;
static struct request *waiting, *waiting2;
static unsigned n_gone;

static void echo(struct request *r, void *ctx)
{
	(void)ctx;
	req_reply(r, 200, NULL, 0, "text/plain", req_body(r));
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
	if (req_query(r, "holder"))
		req_set_holder(r, req_query(r, "holder"));
}

static const struct route routes[] = {
	{ "*", "/echo", BODY_BUFFER, 0, false, echo, 0 },
	{ "GET", "/wait", BODY_NONE, 0, false, wait_for, 0 },
};
static const struct dialect dialect = { .name = "test", .routes = routes, .n_routes = ARRAY_LEN(routes), .prefix = "" };

static int start(void **state)
{
	struct err e;

	(void)state;
	waiting = waiting2 = NULL;
	n_gone = 0;
	uv_loop_init(&loop);
	server = server_new(&loop);
	if (server_add_dialect(server, &dialect, &e) || server_listen_tcp(server, "127.0.0.1:0", &port, &e))
		return -1;
	server_start(server);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	server_free(server);
	while (uv_run(&loop, UV_RUN_NOWAIT))
		;
	return uv_loop_close(&loop);
}

#define H " HTTP/1.1\r\nHost: localhost\r\n"

static void test_unix_socket(void **state)
{
	char dir[] = "/tmp/caisson-test-XXXXXX", path[64];
	struct err e;
	struct stat st;
	struct buf in;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/s", dir);
	int dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); /* what a killed server leaves */
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	assert_int_equal(bind(dead, (struct sockaddr *)&sa, sizeof sa), 0);
	close(dead);
	assert_int_equal(server_listen_unix(server, path, &e), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_true(server_listen_unix(server, path, &e) < 0);
	assert_int_equal(e.kind, ERR_CONFLICT);
	int fd = client_unix(path);
	buf_init(&in, 1 << 16);
	client_send(fd, STR("POST /echo HTTP/1.1\r\nHost: whatever\r\nOrigin: http://evil.example\r\nContent-Length: 2\r\n\r\nhi"));
	assert_true(client_until(fd, &in, "\r\n\r\nhi"));
	client_send(fd, STR("GET /wait HTTP/1.1\r\nHost: whatever\r\n\r\n"));
	WAIT_FOR(waiting);
	assert_true(req_is_local(waiting));
	close(fd);
	WAIT_FOR(n_gone == 1);
	buf_done(&in);
	listener_close_all(server);
	assert_int_equal(stat(path, &st), -1);
	assert_int_equal(rmdir(dir), 0);
}

static void test_addresses(void **state)
{
	static const char *const bad[] = { "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "example.org:80", ":80", "[::1:80", "::1:80",
					   "" };
	struct err e;
	uint16_t p = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_true(server_listen_tcp(server, bad[i], &p, &e) < 0);
	assert_int_equal(server_listen_tcp(server, "localhost:0", &p, &e), 0);
	assert_true(p > 0);
	char taken[32];
	snprintf(taken, sizeof taken, "127.0.0.1:%u", p);
	assert_true(server_listen_tcp(server, taken, &p, &e) < 0);
	assert_int_equal(e.errnum, EADDRINUSE);
}

static void test_connection_limit(void **state)
{
	struct buf in;
	int a, b, c;

	(void)state;
	server_set_max_connections(server, 2);
	a = client_tcp(port);
	b = client_tcp(port);
	WAIT_FOR(server_connections(server) == 2);
	c = client_tcp(port);
	client_send(c, STR("GET /echo" H "\r\n"));
	turn_for(20);
	assert_int_equal(server_connections(server), 2);
	close(a);
	buf_init(&in, 1 << 16);
	assert_true(client_until(c, &in, "200 OK"));
	close(b);
	close(c);
	buf_done(&in);
}

/* A connection between two requests owns no buffer. */
static void test_idle_connections(void **state)
{
	enum { N = 400 };
	static int fds[N];
	struct buf in;

	(void)state;
	buf_init(&in, 1 << 20);
	size_t before = mallinfo2().uordblks;
	for (int i = 0; i < N; i++) {
		fds[i] = client_tcp(port);
		buf_reset(&in);
		client_send(fds[i], STR("POST /echo" H "Content-Length: 5\r\n\r\nhello"));
		assert_true(client_until(fds[i], &in, "hello"));
	}
	assert_int_equal(server_connections(server), N);
	for (struct conn *c = server->conns; c; c = c->next) {
		assert_null(c->request);
		assert_null(c->in.base_);
		assert_null(c->out.base_);
		assert_null(c->parser.head);
	}
	size_t each = (mallinfo2().uordblks - before) / N;
	assert_true(each < 2048);
	for (int i = 0; i < N; i++)
		close(fds[i]);
	WAIT_FOR(server_connections(server) == 0);
	buf_done(&in);
}

/* Out of descriptors: what can't be served is closed, nothing spins, and it goes on afterwards. */
static void test_out_of_descriptors(void **state)
{
	struct rlimit old, now;
	struct buf in;
	int probe = dup(0), first = client_tcp(port), refused = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	(void)state;
	buf_init(&in, 1 << 20);
	WAIT_FOR(server_connections(server) == 1);
	close(probe); /* the lowest free descriptor is `probe`: with that as the limit none can be opened */
	getrlimit(RLIMIT_NOFILE, &old);
	now = old;
	now.rlim_cur = (rlim_t)probe;
	assert_int_equal(connect(refused, (struct sockaddr *)&sa, sizeof sa), 0);
	setrlimit(RLIMIT_NOFILE, &now);
	bool ended = client_to_end(refused, &in);
	client_send(first, STR("POST /echo" H "Content-Length: 2\r\n\r\nhi"));
	bool served = client_until(first, &in, "\r\n\r\nhi");
	setrlimit(RLIMIT_NOFILE, &old);
	assert_true(ended);
	assert_true(served);
	assert_int_equal(server_connections(server), 1);
	int again = client_tcp(port);
	buf_reset(&in);
	client_send(again, STR("POST /echo" H "Content-Length: 2\r\n\r\nho"));
	assert_true(client_until(again, &in, "\r\n\r\nho"));
	close(first);
	close(refused);
	close(again);
	buf_done(&in);
}

/* Before server_start connections wait, and are then served. */
static void test_start(void **state)
{
	struct server *second = server_new(&loop); /* two in one process */
	struct err e;
	struct buf in;
	uint16_t p;

	(void)state;
	assert_int_equal(server_add_dialect(second, &dialect, &e), 0);
	assert_true(server_add_dialect(second, &dialect, &e) < 0); /* the same prefix twice */
	assert_int_equal(server_listen_tcp(second, "127.0.0.1:0", &p, &e), 0);
	buf_init(&in, 1 << 20);
	int fd = client_tcp(p);
	client_send(fd, STR("POST /echo" H "Content-Length: 2\r\n\r\nhi"));
	turn_for(20);
	assert_int_equal(server_connections(second), 0);
	server_start(second);
	assert_true(client_until(fd, &in, "\r\n\r\nhi"));
	close(fd);
	server_free(second);
	buf_done(&in);
}

/* What a right holds open ends with it; what another one does, and a connection on which nothing is asked now, stays. */
static void test_a_right_that_is_no_more(void **state)
{
	struct buf in;

	(void)state;
	buf_init(&in, 1 << 16);
	int cut = client_tcp(port), other = client_tcp(port);
	client_send(cut, STR("GET /wait?holder=one" H "\r\n"));
	WAIT_FOR(waiting);
	client_send(other, STR("GET /wait?holder=other" H "\r\n"));
	WAIT_FOR(waiting2);
	server_cut(server, "one");
	assert_true(client_to_end(cut, &in));
	assert_int_equal(in.len, 0);
	WAIT_FOR(n_gone == 1);
	req_reply(waiting2, 200, NULL, 0, "text/plain", STR("still here"));
	assert_true(client_until(other, &in, "still here"));
	turn_for(10);
	server_cut(server, "other"); /* it is answered */
	buf_reset(&in);
	client_send(other, STR("POST /echo" H "Content-Length: 2\r\n\r\nhi"));
	assert_true(client_until(other, &in, "\r\n\r\nhi"));
	client_send(other, STR("POST /echo" H "Content-Length: 2\r\n\r\n")); /* a request of nobody's is not what came before it */
	turn_for(10);
	server_cut(server, "other");
	buf_reset(&in);
	client_send(other, STR("ho"));
	assert_true(client_until(other, &in, "\r\n\r\nho"));
	close(cut);
	close(other);
	buf_done(&in);
}

/* An answer that its handler owes when the server is freed goes nowhere, and harms nothing. */
static void test_answer_after_the_end(void **state)
{
	struct server *second = server_new(&loop);
	struct err e;
	uint16_t p;

	(void)state;
	server_add_dialect(second, &dialect, &e);
	server_listen_tcp(second, "127.0.0.1:0", &p, &e);
	server_start(second);
	int fd = client_tcp(p);
	client_send(fd, STR("GET /wait" H "\r\n"));
	WAIT_FOR(waiting);
	req_on_gone(waiting, NULL, NULL);
	server_free(second);
	turn_for(10);
	req_reply(waiting, 200, NULL, 0, "text/plain", STR("nobody hears"));
	close(fd);
}

static void on_tick(uv_timer_t *t)
{
	*(bool *)t->data = true;
}

/* Turns of the loop in 100 ms in which nothing should happen. */
static unsigned turns_at_rest(void)
{
	uv_timer_t timer;
	bool over = false;
	unsigned n = 0;

	turn_for(20);
	uv_timer_init(&loop, &timer);
	timer.data = &over;
	uv_timer_start(&timer, on_tick, 100, 0);
	for (; !over; n++)
		uv_run(&loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&timer, NULL);
	turn();
	return n;
}

/* Level-triggered events that nobody acts on would keep the loop busy. */
static void test_no_spinning(void **state)
{
	static char junk[256 * 1024];
	static const char *const asks[] = { "", "GET /wait", "GET /echo" H "\r\n", "GET /wait?deaf=1" H "\r\n" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
		for (int with = 0; with < 4; with++) { /* nothing, FIN, more bytes than are held, both */
			int fd = client_tcp(port);
			waiting = NULL;
			client_send(fd, str_of(asks[i]));
			if (with & 2)
				while (send(fd, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
					;
			if (with & 1)
				shutdown(fd, SHUT_WR);
			unsigned n = turns_at_rest();
			if (n > 200) /* a loop that spins makes thousands */
				fail_msg("request %zu with %d: %u turns of the loop", i, with, n);
			client_reset(fd);
			WAIT_FOR(server_connections(server) == 0);
			if (waiting)
				req_reply_empty(waiting, 204);
		}
	}
}

static bool stopped;

static void on_stopped(void *ctx)
{
	(void)ctx;
	stopped = true;
}

static void test_graceful_stop(void **state)
{
	struct buf in;
	int idle = client_tcp(port), busy = client_tcp(port), stuck = client_tcp(port);

	(void)state;
	buf_init(&in, 1 << 16);
	stopped = false;
	client_send(busy, STR("GET /wait" H "\r\n"));
	WAIT_FOR(waiting);
	client_send(stuck, STR("GET /wait" H "\r\n"));
	WAIT_FOR(waiting2);
	server_stop(server, 300, on_stopped, NULL);
	assert_true(client_to_end(idle, &in));
	assert_int_equal(in.len, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), -1);
	close(fd);
	assert_false(stopped);
	req_reply(waiting, 200, NULL, 0, "text/plain", STR("still"));
	assert_true(client_to_end(busy, &in));
	assert_non_null(strstr(in.data, "Connection: close"));
	assert_non_null(strstr(in.data, "still"));
	close(busy);
	assert_false(stopped);
	WAIT_FOR(stopped);
	assert_int_equal(n_gone, 1); /* the one that was still waiting when the grace was over */
	close(idle);
	close(stuck);
	buf_done(&in);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, start, stop)
		T(test_no_spinning),	      T(test_start),
		T(test_unix_socket),	      T(test_addresses),
		T(test_connection_limit),     T(test_idle_connections),
		T(test_out_of_descriptors),   T(test_graceful_stop),
		T(test_answer_after_the_end), T(test_a_right_that_is_no_more),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
