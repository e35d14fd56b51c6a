/* WebSockets of the server: handshake, fragments, control frames, big messages, refusals, closing, back-pressure. */
#include "server/internal.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "net-client.h"

static struct server *server;
static uint16_t port;
static struct socket *last;
static unsigned n_closed, n_messages, n_room;
static int close_code;
static size_t message_bytes;
static const char *protocol;
static bool echoing, pausing;

static void on_message(void *ctx, bool text, struct str bytes)
{
	(void)ctx;
	n_messages++;
	message_bytes += bytes.n;
	if (str_eqz(bytes, "please close"))
		socket_close(last, 4001, "as asked");
	else if (echoing)
		socket_send(last, text, bytes);
	if (pausing)
		socket_pause(last);
}

static void on_room(void *ctx)
{
	(void)ctx;
	n_room++;
}

static void on_close(void *ctx, int code)
{
	(void)ctx;
	n_closed++;
	close_code = code;
	last = NULL;
}

static const struct socket_events events = { on_message, on_room, on_close };

static void open_socket(struct request *r, void *ctx)
{
	(void)ctx;
	if (!req_is_websocket(r)) {
		req_reply(r, 200, NULL, 0, "text/plain", STR("plain"));
		return;
	}
	assert_false(req_offers_protocol(r, "nonsense"));
	if (req_offers_protocol(r, "two"))
		protocol = "two";
	last = req_accept_websocket(r, protocol, 400 * 1024, &events, NULL);
	if (req_query(r, "hello"))
		socket_send(last, true, STR("hello"));
}

static void plain(struct request *r, void *ctx)
{
	(void)ctx;
	req_reply(r, 200, NULL, 0, "text/plain", req_is_websocket(r) ? STR("websocket") : STR("no websocket"));
}

static const struct route routes[] = {
	{ "GET", "/ws", BODY_NONE, 0, true, open_socket, 0 },
	{ "GET", "/plain", BODY_NONE, 0, false, plain, 0 },
};
static const struct dialect dialect = { .name = "test", .routes = routes, .n_routes = ARRAY_LEN(routes), .prefix = "" };

static int start(void **state)
{
	struct err e;

	(void)state;
	last = NULL;
	n_closed = n_messages = n_room = 0;
	message_bytes = 0;
	close_code = 0;
	protocol = NULL;
	echoing = true;
	pausing = false;
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
	deadline_shorten_for_tests(1);
	server_free(server);
	while (uv_run(&loop, UV_RUN_NOWAIT))
		;
	return uv_loop_close(&loop);
}

#define ASK(path)	"GET " path " HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
#define KEY		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define VERSION		"Sec-WebSocket-Version: 13\r\n"
#define HANDSHAKE(path) ASK(path) KEY VERSION "\r\n"

/* A masked frame, as a client sends it. */
static void add_frame(struct buf *to, unsigned first, const void *p, size_t n)
{
	static const unsigned char mask[4] = { 1, 2, 3, 200 };
	unsigned char head[14] = { (unsigned char)first };
	size_t len = 2;

	if (n < 126)
		head[1] = (unsigned char)(0x80 | n);
	else if (n < 65536) {
		head[1] = 0x80 | 126;
		head[2] = (unsigned char)(n >> 8);
		head[3] = (unsigned char)n;
		len = 4;
	} else {
		head[1] = 0x80 | 127;
		for (int i = 0; i < 8; i++)
			head[2 + i] = (unsigned char)((uint64_t)n >> (8 * (7 - i)));
		len = 10;
	}
	buf_add(to, head, len);
	buf_add(to, mask, 4);
	char *body = buf_reserve(to, n);
	for (size_t i = 0; i < n; i++)
		body[i] = (char)(((const unsigned char *)p)[i] ^ mask[i % 4]);
	buf_grew(to, n);
}

static void send_frame(int fd, unsigned first, const void *p, size_t n)
{
	struct buf b;

	buf_init(&b, 8 << 20);
	add_frame(&b, first, p, n);
	assert_true(client_send(fd, buf_str(&b)));
	buf_done(&b);
}

static int connect_socket(const char *handshake, struct buf *in)
{
	int fd = client_tcp(port);

	buf_init(in, 64 << 20);
	client_send(fd, str_of(handshake));
	assert_true(client_until(fd, in, "\r\n\r\n"));
	assert_int_equal(strncmp(in->data, "HTTP/1.1 101 ", 13), 0);
	const char *end = strstr(in->data, "\r\n\r\n");
	assert_non_null(strstr(in->data, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n")); /* RFC 6455, 1.3 */
	buf_consume(in, (size_t)(end + 4 - in->data));
	return fd;
}

/* The next frame of the server; its payload is consumed from `in` into `ret`. */
static unsigned next_frame(int fd, struct buf *in, struct buf *ret)
{
	size_t head = 2, n = 0;

	for (uint64_t end = now_ms() + CLIENT_PATIENCE_MS; now_ms() < end;) {
		const unsigned char *p = (const unsigned char *)in->data;
		if (in->len >= 2) {
			assert_false(p[1] & 0x80); /* servers don't mask */
			n = p[1];
			head = n == 126 ? 4 : n == 127 ? 10 : 2;
			if (in->len >= head) {
				if (head > 2)
					n = 0;
				for (size_t i = 2; i < head; i++)
					n = n << 8 | p[i];
				if (in->len >= head + n) {
					unsigned first = p[0];
					buf_reset(ret);
					buf_add(ret, in->data + head, n);
					buf_consume(in, head + n);
					return first;
				}
			}
		}
		ssize_t r = client_recv(fd, in, 65536);
		if (r == 0 || r == -2)
			return 0;
		turn();
	}
	return 0;
}

static void test_echo(void **state)
{
	struct buf in, got;
	int fd = connect_socket(HANDSHAKE("/ws?hello=1"), &in);

	(void)state;
	buf_init(&got, 1 << 20);
	assert_int_equal(next_frame(fd, &in, &got), 0x81);
	assert_string_equal(got.data, "hello");
	send_frame(fd, 0x81, "caf\xc3\xa9", 5);
	assert_int_equal(next_frame(fd, &in, &got), 0x81);
	assert_string_equal(got.data, "caf\xc3\xa9");
	send_frame(fd, 0x82, "\0\xff", 2);
	assert_int_equal(next_frame(fd, &in, &got), 0x82);
	assert_true(got.len == 2 && memcmp(got.data, "\0\xff", 2) == 0);
	send_frame(fd, 0x82, "", 0);
	assert_int_equal(next_frame(fd, &in, &got), 0x82);
	assert_int_equal(got.len, 0);
	/* fragments with a ping between them, the UTF-8 sequence cut */
	send_frame(fd, 0x01, "a\xc3", 2);
	send_frame(fd, 0x89, "are you there", 13);
	send_frame(fd, 0x00, "\xa9", 1);
	send_frame(fd, 0x80, "b", 1);
	assert_int_equal(next_frame(fd, &in, &got), 0x8a);
	assert_string_equal(got.data, "are you there");
	assert_int_equal(next_frame(fd, &in, &got), 0x81);
	assert_string_equal(got.data, "a\xc3\xa9"
				      "b");
	send_frame(fd, 0x88, "\x0f\xa1", 2);
	assert_int_equal(next_frame(fd, &in, &got), 0x88);
	assert_true(got.len >= 2 && memcmp(got.data, "\x0f\xa1", 2) == 0);
	WAIT_FOR(n_closed == 1);
	assert_int_equal(close_code, 4001);
	assert_true(client_to_end(fd, &in));
	close(fd);
	WAIT_FOR(server_connections(server) == 0);
	buf_done(&in);
	buf_done(&got);
}

static void test_big_messages(void **state)
{
	static char big[300 * 1024];
	struct buf in, got;
	int fd = connect_socket(HANDSHAKE("/ws"), &in);

	(void)state;
	buf_init(&got, 1 << 20);
	random_bytes(big, sizeof big);
	for (int i = 0; i < 5; i++) {
		send_frame(fd, 0x82, big, sizeof big);
		assert_int_equal(next_frame(fd, &in, &got), 0x82);
		assert_true(got.len == sizeof big && memcmp(got.data, big, sizeof big) == 0);
	}
	close(fd);
	WAIT_FOR(n_closed == 1);
	assert_int_equal(close_code, 1006);
	buf_done(&in);
	buf_done(&got);
}

/* The first frames may come with the handshake, in pieces of any size. */
static void test_frames_with_head(void **state)
{
	struct buf out, in, got;

	(void)state;
	buf_init(&out, 4096);
	buf_init(&in, 1 << 20);
	buf_init(&got, 1 << 20);
	buf_addz(&out, HANDSHAKE("/ws"));
	add_frame(&out, 0x81, "one", 3);
	add_frame(&out, 0x81, "two", 3);
	for (size_t piece = 1; piece < 300; piece += 37) {
		int fd = client_tcp(port);
		buf_reset(&in);
		for (size_t at = 0; at < out.len; at += piece)
			assert_true(client_send(fd, (struct str){ out.data + at, MIN(piece, out.len - at) }));
		assert_true(client_until(fd, &in, "\r\n\r\n"));
		buf_consume(&in, (size_t)(strstr(in.data, "\r\n\r\n") + 4 - in.data));
		assert_int_equal(next_frame(fd, &in, &got), 0x81);
		assert_string_equal(got.data, "one");
		assert_int_equal(next_frame(fd, &in, &got), 0x81);
		assert_string_equal(got.data, "two");
		n_closed = 0;
		client_reset(fd);
		WAIT_FOR(n_closed == 1);
	}
	buf_done(&out);
	buf_done(&in);
	buf_done(&got);
}

static void expect_close(struct str frames, int code)
{
	struct buf in, got;
	int fd = connect_socket(HANDSHAKE("/ws"), &in);

	buf_init(&got, 1 << 20);
	n_closed = 0;
	client_send(fd, frames);
	unsigned first = next_frame(fd, &in, &got);
	if (first != 0x88 || got.len < 2)
		fail_msg("frame %x with %zu bytes instead of close %d", first, got.len, code);
	assert_int_equal((unsigned char)got.data[0] << 8 | (unsigned char)got.data[1], code);
	assert_true(client_to_end(fd, &in));
	WAIT_FOR(n_closed == 1);
	assert_int_equal(close_code, code);
	close(fd);
	buf_done(&in);
	buf_done(&got);
}

static void test_broken_frames(void **state)
{
	static char big[500 * 1024];
	struct buf b;

	(void)state;
	expect_close(STR("\x81\x02hi"), 1002);			       /* unmasked */
	expect_close(STR("\xc1\x80\1\2\3\4"), 1002);		       /* RSV1: nothing was negotiated */
	expect_close(STR("\x80\x81\0\0\0\0x"), 1002);		       /* a continuation of nothing */
	expect_close(STR("\x83\x80\0\0\0\0"), 1002);		       /* unknown opcode */
	expect_close(STR("\x09\x80\0\0\0\0"), 1002);		       /* a fragmented ping */
	expect_close(STR("\x81\x81\0\0\0\0\xff"), 1007);	       /* not UTF-8 */
	expect_close(STR("\x88\x82\0\0\0\0\x03\xed"), 1002);	       /* 1005 may not be sent */
	expect_close(STR("\x01\x81\0\0\0\0a\x81\x81\0\0\0\0b"), 1002); /* a new message inside one */
	buf_init(&b, 1 << 20);
	add_frame(&b, 0x82, big, sizeof big);
	expect_close(buf_str(&b), 1009);
	buf_reset(&b);
	add_frame(&b, 0x02, big, 300 * 1024);
	add_frame(&b, 0x80, big, 300 * 1024);
	expect_close(buf_str(&b), 1009);
	buf_done(&b);
	assert_int_equal(n_messages, 0);
}

static void test_close_by_server(void **state)
{
	struct buf in, got;
	int fd = connect_socket(HANDSHAKE("/ws"), &in);

	(void)state;
	buf_init(&got, 1 << 20);
	send_frame(fd, 0x81, "please close", 12);
	send_frame(fd, 0x81, "not read", 8);
	assert_int_equal(next_frame(fd, &in, &got), 0x88);
	assert_int_equal((unsigned char)got.data[0] << 8 | (unsigned char)got.data[1], 4001);
	assert_string_equal(got.data + 2, "as asked");
	turn_for(10);
	assert_int_equal(n_closed, 0); /* the peer's answer is awaited */
	send_frame(fd, 0x88, got.data, 2);
	WAIT_FOR(n_closed == 1);
	assert_int_equal(close_code, 4001);
	assert_int_equal(n_messages, 1);
	assert_true(client_to_end(fd, &in));
	close(fd);
	/* a peer that never answers the close, and one that is silent for too long */
	buf_done(&in);
	deadline_shorten_for_tests(100);
	fd = connect_socket(HANDSHAKE("/ws"), &in);
	socket_close(last, 1000, NULL);
	socket_send(last, true, STR("too late"));
	WAIT_FOR(n_closed == 2);
	assert_int_equal(close_code, 1006);
	close(fd);
	buf_done(&in);
	fd = connect_socket(HANDSHAKE("/ws"), &in);
	WAIT_FOR(n_closed == 3);
	assert_int_equal(close_code, 1006);
	client_to_end(fd, &in);
	assert_int_equal(in.len, 6);
	assert_int_equal(memcmp(in.data, "\x89\0\x89\0\x89\0", 6), 0);
	close(fd);
	buf_done(&in);
	buf_done(&got);
}

static void expect(const char *request, const char *status, const char *part)
{
	struct buf in;
	int fd = client_tcp(port);

	buf_init(&in, 1 << 16);
	client_send(fd, str_of(request));
	shutdown(fd, SHUT_WR);
	client_to_end(fd, &in);
	if (in.len < 12 || strncmp(in.data + 9, status, 3) != 0 || (part && !strstr(in.data, part)))
		fail_msg("<%s>\n want %s and %s\n got  %s", request, status, part ? part : "-", in.data);
	close(fd);
	buf_done(&in);
}

static void test_handshakes(void **state)
{
	struct buf in;

	(void)state;
	expect(ASK("/ws") KEY "Sec-WebSocket-Version: 8\r\n\r\n", "426", "Sec-WebSocket-Version: 13\r\n");
	expect(ASK("/ws") KEY "\r\n", "426", NULL);
	expect(ASK("/ws") VERSION "\r\n", "400", "Sec-WebSocket-Key");
	expect(ASK("/ws") VERSION "Sec-WebSocket-Key: c2hvcnQ=\r\n\r\n", "400", NULL);
	expect(ASK("/ws") VERSION "Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!!!\r\n\r\n", "400", NULL);
	expect("GET /ws HTTP/1.1\r\nHost: localhost\r\n\r\n", "200", "plain");
	expect(ASK("/plain") KEY VERSION "\r\n", "200", "no websocket");
	expect(ASK("/ws") KEY VERSION "Origin: http://evil.example\r\n\r\n", "403", NULL);
	expect(ASK("/ws") KEY VERSION "Content-Length: 2\r\n\r\nhi", "200", "plain");
	assert_int_equal(n_closed, 0);
	int fd = connect_socket(ASK("/ws") KEY VERSION "Origin: http://localhost\r\nSec-WebSocket-Protocol: one\r\n"
						       "Sec-WebSocket-Protocol: x, two\r\n\r\n",
				&in);
	assert_string_equal(protocol, "two");
	close(fd);
	buf_done(&in);
	fd = client_tcp(port);
	buf_init(&in, 1 << 20);
	client_send(fd, STR(ASK("/ws") KEY VERSION "Sec-WebSocket-Protocol: two\r\n\r\n"));
	assert_true(client_until(fd, &in, "Sec-WebSocket-Protocol: two\r\n"));
	close(fd);
	buf_done(&in);
	WAIT_FOR(n_closed == 2);
}

static void test_back_pressure(void **state)
{
	static char block[64 * 1024];
	struct buf in, got;
	int fd = connect_socket(HANDSHAKE("/ws"), &in);
	size_t n = 0;

	(void)state;
	buf_init(&got, 1 << 20);
	while (socket_room(last)) { /* out */
		socket_send(last, false, (struct str){ block, sizeof block });
		turn();
		assert_true(++n < 1000);
	}
	assert_true(server->conns->out.len < OUT_HIGH + 2 * sizeof block);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(next_frame(fd, &in, &got), 0x82);
		assert_int_equal(got.len, sizeof block);
	}
	WAIT_FOR(n_room == 1);
	echoing = false; /* in */
	pausing = true;
	buf_reset(&got);
	add_frame(&got, 0x82, block, sizeof block);
	size_t sent = 0;
	for (int idle = 0; idle < 100; turn()) {
		ssize_t r = send(fd, got.data + sent % got.len, got.len - sent % got.len, MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += (size_t)MAX(r, 0);
		idle = r > 0 ? 0 : idle + 1;
	}
	assert_int_equal(n_messages, 1);
	assert_true(server->conns->in.len < 3 * READ_SIZE);
	pausing = false;
	socket_resume(last);
	size_t rest = (got.len - sent % got.len) % got.len; /* of the last one */
	assert_true(client_send(fd, (struct str){ got.data + got.len - rest, rest }));
	sent += rest;
	WAIT_FOR(n_messages == sent / got.len);
	assert_int_equal(message_bytes, sent / got.len * sizeof block);
	close(fd);
	WAIT_FOR(n_closed == 1);
	buf_done(&in);
	buf_done(&got);
}

static bool stopped;

static void on_stopped(void *ctx)
{
	(void)ctx;
	stopped = true;
}

static void test_stop(void **state)
{
	struct buf in, got;
	int fd = connect_socket(HANDSHAKE("/ws"), &in);

	(void)state;
	stopped = false;
	buf_init(&got, 1 << 20);
	server_stop(server, 5000, on_stopped, NULL);
	assert_int_equal(next_frame(fd, &in, &got), 0x88);
	assert_int_equal((unsigned char)got.data[0] << 8 | (unsigned char)got.data[1], 1001);
	send_frame(fd, 0x88, got.data, 2);
	close(fd);
	WAIT_FOR(stopped);
	assert_int_equal(n_closed, 1);
	buf_done(&in);
	buf_done(&got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, start, stop)
		T(test_echo),
		T(test_big_messages),
		T(test_frames_with_head),
		T(test_broken_frames),
		T(test_close_by_server),
		T(test_handshakes),
		T(test_back_pressure),
		T(test_stop),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
