/* The HTTP parser. Every case is fed whole, byte by byte and in random pieces, and must give the same events. */
#include "wire/http.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

enum split { WHOLE, BYTES, RANDOM };

static unsigned seed = 1;

static size_t piece(enum split split, size_t left)
{
	seed = seed * 1103515245u + 12345u;
	return split == WHOLE ? left : split == BYTES ? 1 : MIN(left, (size_t)(seed >> 16) % 7 + 1);
}

static void note_head(struct buf *log, const struct http_head *h, enum http_kind kind)
{
	if (kind == HTTP_REQUEST)
		buf_addf(log, "%s %.*s%s%.*s host=%.*s", h->method, (int)h->path.n, h->path.p, h->query.p ? " ?" : "", (int)h->query.n,
			 h->query.p ? h->query.p : "", (int)h->host.n, h->host.p ? h->host.p : "");
	else
		buf_addf(log, "%d %.*s", h->status, (int)h->reason.n, h->reason.p ? h->reason.p : "");
	buf_addf(log, " 1.%d length=%lld%s%s fields=%zu|", h->minor, (long long)h->length, h->keep_alive ? " keep" : "",
		 h->expect_continue ? " expect" : "", h->n_fields);
}

/* All events of the input as one line: heads, joined body bytes, ends, the error with its status. */
static char *parse(enum http_kind kind, bool answers_head, struct str input, enum split split, bool eof)
{
	struct http_parser p;
	struct buf log;
	struct str none = { NULL, 0 }, bytes = none;
	bool in_body = false;
	enum http_event e = HTTP_MORE;

	buf_init(&log, 1 << 20);
	http_init(&p, kind);
	p.answers_head = answers_head;
	while (input.n && e != HTTP_ERROR) {
		size_t n = piece(split, input.n);
		char *copy = xmemdup(input.p, n); /* exact size: reading past it is found by the sanitizer */
		struct str in = { copy, n };
		do {
			e = http_feed(&p, &in, &bytes);
			if (in_body && e != HTTP_BODY && e != HTTP_MORE) {
				buf_addc(&log, '|');
				in_body = false;
			}
			if (e == HTTP_HEAD)
				note_head(&log, p.head, kind);
			else if (e == HTTP_BODY) {
				assert_true(bytes.n > 0);
				buf_add(&log, bytes.p, bytes.n);
				in_body = true;
			} else if (e == HTTP_END) {
				buf_addz(&log, "end|");
				http_next(&p);
			}
		} while (e != HTTP_MORE && e != HTTP_ERROR);
		if (e == HTTP_MORE)
			assert_int_equal(in.n, 0);
		free(copy);
		input.p += n;
		input.n -= n;
	}
	if (eof && e != HTTP_ERROR) {
		e = http_eof(&p);
		buf_addz(&log, in_body ? "|" : "");
		buf_addz(&log, e == HTTP_END ? "end|" : e == HTTP_MORE ? "idle|" : "");
	}
	if (e == HTTP_ERROR) {
		assert_non_null(p.error);
		assert_int_equal(http_feed(&p, &none, &bytes), HTTP_ERROR);
		buf_addf(&log, "error %d", p.error_status);
	}
	http_done(&p);
	return buf_take(&log);
}

static void expect(enum http_kind kind, bool answers_head, struct str input, const char *want, bool eof)
{
	for (int i = 0; i < 12; i++) {
		auto_free char *got = parse(kind, answers_head, input, MIN(i, RANDOM), eof);
		if (!streq(got ? got : "", want))
			fail_msg("split %d of <%.*s>\n want %s\n got  %s", i, (int)MIN(input.n, (size_t)300), input.p, want, got ? got : "");
	}
}

#define GET	     "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST	     "POST / HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED	     POST "Transfer-Encoding: chunked\r\n\r\n"
#define CHUNKED_HEAD "POST / host=a 1.1 length=-1 keep fields=2|"

struct refusal {
	struct str input;
	const char *want;
};
#define REFUSED(text, status)                                                                                                                        \
	{                                                                                                                                            \
		STR(text), "error " #status                                                                                                          \
	}

static const struct refusal refused[] = {
	/* line endings and control bytes */
	REFUSED("GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
	REFUSED("GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
	REFUSED(GET "\n", 400),
	REFUSED("GET / HTTP/1.1\rHost: a\r\n\r\n", 400),
	REFUSED(GET "X: a\rb\r\n\r\n", 400),
	REFUSED(GET "X: a\r\r\n\r\n", 400),
	REFUSED(GET "X: a\0b\r\n\r\n", 400),
	REFUSED(GET "X: a\x01\r\n\r\n", 400),
	REFUSED(GET "X: a\x7f\r\n\r\n", 400),
	REFUSED(GET "X: a\x0b\r\n\r\n", 400),
	REFUSED("\0GET / HTTP/1.1\r\n", 400),
	REFUSED("\r\n\r\n\r\n" GET "\r\n", 400),
	REFUSED("\n" GET "\r\n", 400),
	/* the request line */
	REFUSED("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
	REFUSED(" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET /\r\n\r\n", 400),
	REFUSED("GET\r\n\r\n", 400),
	REFUSED("get / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET / HTTP/1.x\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET / HTTP/1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
	REFUSED("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
	REFUSED("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
	REFUSED("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
	REFUSED("\x16\x03\x01\x02", 400), /* TLS */
	/* the target */
	REFUSED("GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET http://u@b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	REFUSED("GET ftp://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
	/* fields */
	REFUSED(GET "X: a\r\n b\r\n\r\n", 400),
	REFUSED("GET / HTTP/1.1\r\n X: a\r\nHost: a\r\n\r\n", 400),
	REFUSED(POST "Content-Lengt: 5\r\n h\r\n\r\nhello", 400),
	REFUSED(GET "X\r\n\r\n", 400),
	REFUSED(GET ": a\r\n\r\n", 400),
	REFUSED(GET "X : a\r\n\r\n", 400),
	REFUSED(GET "X\t: a\r\n\r\n", 400),
	REFUSED(GET "X y: a\r\n\r\n", 400),
	REFUSED(GET "X(y): a\r\n\r\n", 400),
	REFUSED(GET "X\x80: a\r\n\r\n", 400),
	/* Host */
	REFUSED("GET / HTTP/1.1\r\n\r\n", 400),
	REFUSED(GET "Host: a\r\n\r\n", 400),
	REFUSED(GET "host: b\r\n\r\n", 400),
	REFUSED("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
	REFUSED("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
	REFUSED("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
	REFUSED("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
	REFUSED("GET http://b/ HTTP/1.1\r\n\r\n", 400),
	/* framing */
	REFUSED(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
	REFUSED(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
	REFUSED(POST "Content-Length: 5, 5\r\n\r\nhello", 400),
	REFUSED(POST "Content-Length: +5\r\n\r\nhello", 400),
	REFUSED(POST "Content-Length: -1\r\n\r\nhello", 400),
	REFUSED(POST "Content-Length: 5 5\r\n\r\nhello", 400),
	REFUSED(POST "Content-Length: 0x5\r\n\r\nhello", 400),
	REFUSED(POST "Content-Length:\r\n\r\nhello", 400),
	REFUSED(POST "Content-Length: 9999999999999999999\r\n\r\n", 400),
	REFUSED(POST "Content-Length: 0000000000000000005\r\n\r\nhello", 400),
	REFUSED(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
	REFUSED(POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
	REFUSED(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
	REFUSED(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400),
	REFUSED(POST "Transfer-Encoding: chunked, chunked\r\n\r\n", 501),
	REFUSED(POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
	REFUSED(POST "Transfer-Encoding: identity\r\n\r\n", 501),
	REFUSED(POST "Transfer-Encoding: xchunked\r\n\r\n", 501),
	REFUSED(POST "Transfer-Encoding: \"chunked\"\r\n\r\n", 501),
	REFUSED(POST "Transfer-Encoding:\r\n\r\n", 501),
	REFUSED("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
	REFUSED(POST "Expect: 200-ok\r\nContent-Length: 1\r\n\r\n", 417),
};

static const struct refusal refused_chunks[] = {
	REFUSED("0x5\r\nhello\r\n", 400),
	REFUSED("+5\r\nhello\r\n", 400),
	REFUSED("-5\r\nhello\r\n", 400),
	REFUSED(" 5\r\nhello\r\n", 400),
	REFUSED("5 \r\nhello\r\n", 400),
	REFUSED("\r\nhello\r\n", 400),
	REFUSED("g\r\nhello\r\n", 400),
	REFUSED(";x\r\nhello\r\n", 400),
	REFUSED("5\nhello\r\n", 400),
	REFUSED("5\rhello\r\n", 400),
	REFUSED("5;a\nb\r\nhello\r\n", 400),
	REFUSED("5;a\0\r\nhello\r\n", 400),
	REFUSED("0000000000000005\r\nhello\r\n", 400),
	REFUSED("fffffffffffffffff\r\n", 400),
	REFUSED("0\r\n a: b\r\n\r\n", 400),
	REFUSED("0\r\na\r\n\r\n", 400),
	REFUSED("0\r\na : b\r\n\r\n", 400),
	REFUSED("0\r\na: b\n\r\n", 400),
	REFUSED("0\r\n\n", 400),
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		expect(HTTP_REQUEST, false, refused[i].input, refused[i].want, false);
}

static void test_refused_chunks(void **state)
{
	char input[512], want[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(refused_chunks); i++) {
		struct str c = refused_chunks[i].input;
		size_t n = sizeof CHUNKED - 1;
		memcpy(input, CHUNKED, n);
		memcpy(input + n, c.p, c.n);
		snprintf(want, sizeof want, "%s%s", CHUNKED_HEAD, refused_chunks[i].want);
		expect(HTTP_REQUEST, false, (struct str){ input, n + c.n }, want, false);
	}
	expect(HTTP_REQUEST, false, STR(CHUNKED "5\r\nhelloXX0\r\n\r\n"), CHUNKED_HEAD "hello|error 400", false);
	expect(HTTP_REQUEST, false, STR(CHUNKED "5\r\nhello\r5\r\n"), CHUNKED_HEAD "hello|error 400", false);
	expect(HTTP_REQUEST, false, STR(CHUNKED "5\r\nhello0\r\n\r\n"), CHUNKED_HEAD "hello|error 400", false);
	expect(HTTP_REQUEST, false, STR(CHUNKED "5\r\nhello!\r\n0\r\n\r\n"), CHUNKED_HEAD "hello|error 400", false);
}

static void test_requests(void **state)
{
	(void)state;
	expect(HTTP_REQUEST, false, STR(GET "\r\n"), "GET / host=a 1.1 length=0 keep fields=1|end|", false);
	expect(HTTP_REQUEST, false, STR("\r\n\r\n" GET "\r\n"), "GET / host=a 1.1 length=0 keep fields=1|end|", false);
	expect(HTTP_REQUEST, false, STR("GET /a/%2F?x=1?y HTTP/1.1\r\nHOST:a:80 \r\nConnection: x, Close\r\n\r\n"),
	       "GET /a/%2F ?x=1?y host=a:80 1.1 length=0 fields=2|end|", false);
	expect(HTTP_REQUEST, false, STR("GET / HTTP/1.0\r\n\r\n"), "GET / host= 1.0 length=0 fields=0|end|", false);
	expect(HTTP_REQUEST, false, STR("GET /? HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), "GET / ? host= 1.0 length=0 keep fields=1|end|", false);
	expect(HTTP_REQUEST, false, STR("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n"), "OPTIONS * host= 1.1 length=0 keep fields=1|end|", false);
	expect(HTTP_REQUEST, false, STR("GET http://b:1?q HTTP/1.1\r\nHost: a\r\n\r\n"), "GET / ?q host=b:1 1.1 length=0 keep fields=1|end|", false);
	expect(HTTP_REQUEST, false, STR("GET HTTPS://[::1]/x HTTP/1.1\r\nHost: a\r\n\r\n"), "GET /x host=[::1] 1.1 length=0 keep fields=1|end|",
	       false);
	expect(HTTP_REQUEST, false, STR(POST "Content-Length: 5\r\nExpect: 100-Continue\r\n\r\nhello"),
	       "POST / host=a 1.1 length=5 keep expect fields=3|hello|end|", false);
	expect(HTTP_REQUEST, false, STR("DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"),
	       "DELETE / host=a 1.1 length=2 keep fields=2|hi|end|", false);
	expect(HTTP_REQUEST, false, STR(POST "Content-Length: 0\r\n\r\n"), "POST / host=a 1.1 length=0 keep fields=2|end|", false);
	expect(HTTP_REQUEST, false, STR(POST "Transfer-Encoding: Chunked\r\n\r\n005;n=\"v\"\r\nhello\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\n"),
	       CHUNKED_HEAD "hello0123456789|end|", false);
	expect(HTTP_REQUEST, false, STR(GET "X: \t caf\xc3\xa9\tb \r\n\r\n"), "GET / host=a 1.1 length=0 keep fields=2|end|", false);
	expect(HTTP_REQUEST, false, STR(""), "idle|", true);
	expect(HTTP_REQUEST, false, STR("\r\n"), "idle|", true);
	expect(HTTP_REQUEST, false, STR("G"), "error 400", true);
	expect(HTTP_REQUEST, false, STR(POST "Content-Length: 5\r\n\r\nhell"), "POST / host=a 1.1 length=5 keep fields=2|hell|error 400", true);
}

/* Whatever ends one message, the next one begins right behind it. */
static void test_pairs(void **state)
{
	static const struct refusal one[] = {
		{ STR(GET "\r\n"), "GET / host=a 1.1 length=0 keep fields=1|end|" },
		{ STR(POST "Content-Length: 3\r\n\r\nGET"), "POST / host=a 1.1 length=3 keep fields=2|GET|end|" },
		{ STR(POST "Content-Length: 0\r\n\r\n"), "POST / host=a 1.1 length=0 keep fields=2|end|" },
		{ STR(CHUNKED "3\r\nGET\r\n0\r\n\r\n"), CHUNKED_HEAD "GET|end|" },
		{ STR(CHUNKED "0\r\n\r\n"), CHUNKED_HEAD "end|" },
		{ STR(CHUNKED "1\r\n\n\r\n0\r\nA: b\r\n\r\n"), CHUNKED_HEAD "\n|end|" },
	};
	char input[512], want[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(one); i++)
		for (size_t j = 0; j < ARRAY_LEN(one); j++) {
			int n = snprintf(input, sizeof input, "%s%s", one[i].input.p, one[j].input.p);
			snprintf(want, sizeof want, "%s%s", one[i].want, one[j].want);
			expect(HTTP_REQUEST, false, (struct str){ input, (size_t)n }, want, false);
		}
}

static void test_responses(void **state)
{
	(void)state;
	expect(HTTP_RESPONSE, false, STR("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), "200 OK 1.1 length=2 keep fields=1|hi|end|", false);
	expect(HTTP_RESPONSE, false, STR("HTTP/1.1 200 \r\n\r\nto the end"), "200  1.1 length=-2 keep fields=0|to the end|end|", true);
	expect(HTTP_RESPONSE, false, STR("HTTP/1.0 200\r\n\r\n"), "200  1.0 length=-2 fields=0|end|", true);
	expect(HTTP_RESPONSE, false, STR("HTTP/1.1 404 Not Here\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
	       "404 Not Here 1.1 length=-1 keep fields=1|x|end|", false);
	expect(HTTP_RESPONSE, false, STR("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n"),
	       "100 Continue 1.1 length=0 keep fields=0|end|204 No 1.1 length=0 keep fields=1|end|", false);
	expect(HTTP_RESPONSE, true, STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), "200 OK 1.1 length=5 keep fields=1|end|", false);
	expect(HTTP_RESPONSE, true, STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), "200 OK 1.1 length=-1 keep fields=1|end|", false);
	expect(HTTP_RESPONSE, false, STR("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
	       "304 Not Modified 1.1 length=0 keep fields=1|end|", false);
}

static void test_refused_responses(void **state)
{
	static const struct refusal cases[] = {
		REFUSED("HTTP/2 200 OK\r\n\r\n", 502),
		REFUSED("HTTP/1.1 20 OK\r\n\r\n", 502),
		REFUSED("HTTP/1.1 099 OK\r\n\r\n", 502),
		REFUSED("HTTP/1.1 600 OK\r\n\r\n", 502),
		REFUSED("HTTP/1.1\r\n\r\n", 502),
		REFUSED("\r\nHTTP/1.1 200 OK\r\n\r\n", 400),
		REFUSED("HTTP/1.1 200 OK\n\n", 400),
		REFUSED("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
		REFUSED("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n", 400),
		REFUSED("HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", 400),
		REFUSED("hello", 502),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		expect(HTTP_RESPONSE, false, cases[i].input, cases[i].want, true);
	expect(HTTP_RESPONSE, false, STR("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi"), "200 OK 1.1 length=3 keep fields=1|hi|error 502", true);
}

static void test_limits(void **state)
{
	static char big[80000], want[200];
	size_t n;

	(void)state;
	for (int over = 0; over < 2; over++) { /* the target */
		n = (size_t)snprintf(big, sizeof big, "GET /%0*d HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_MAX_TARGET - 1 + over, 0);
		auto_free char *got = parse(HTTP_REQUEST, false, (struct str){ big, n }, RANDOM, false);
		assert_int_equal(strncmp(got, over ? "error 414" : "GET /0000", 9), 0);
	}
	memset(big, 'A', sizeof big);
	memcpy(big, "GET /", 5);
	expect(HTTP_REQUEST, false, (struct str){ big, sizeof big }, "error 414", false);
	memcpy(big, GET, sizeof GET - 1);
	expect(HTTP_REQUEST, false, (struct str){ big, sizeof big }, "error 431", false);
	for (int over = 0; over < 2; over++) { /* fields, Host among them */
		n = (size_t)snprintf(big, sizeof big, GET);
		for (int i = 1; i < HTTP_MAX_FIELDS + over; i++)
			n += (size_t)snprintf(big + n, sizeof big - n, "A: b\r\n");
		n += (size_t)snprintf(big + n, sizeof big - n, "\r\n");
		snprintf(want, sizeof want, "GET / host=a 1.1 length=0 keep fields=%d|end|", HTTP_MAX_FIELDS);
		expect(HTTP_REQUEST, false, (struct str){ big, n }, over ? "error 431" : want, false);
	}
	n = (size_t)snprintf(big, sizeof big, CHUNKED "1;%0*d\r\nx\r\n", HTTP_MAX_CHUNK_LINE, 0);
	expect(HTTP_REQUEST, false, (struct str){ big, n }, CHUNKED_HEAD "error 400", false);
	n = (size_t)snprintf(big, sizeof big, CHUNKED "0\r\n");
	for (int i = 0; i < 5; i++)
		n += (size_t)snprintf(big + n, sizeof big - n, "A: %08000d\r\n", 0);
	expect(HTTP_REQUEST, false, (struct str){ big, n }, CHUNKED_HEAD "error 431", false);
}

static void test_lookup(void **state)
{
	struct http_parser p;
	struct str in = STR(GET "A: 1\r\nList: x,, y ,\tZ\r\na: 2\r\nlist: w\r\n\r\n"), none, item, rest;

	(void)state;
	http_init(&p, HTTP_REQUEST);
	assert_int_equal(http_feed(&p, &in, &none), HTTP_HEAD);
	assert_true(str_eq(http_get(p.head, "a"), STR("1")));
	assert_null(http_get(p.head, "b").p);
	assert_true(http_list_has(p.head, "LIST", "z"));
	assert_true(http_list_has(p.head, "list", "W"));
	assert_false(http_list_has(p.head, "list", "v"));
	rest = http_get(p.head, "list");
	assert_true(http_list_next(&rest, &item) && str_eq(item, STR("x")));
	assert_true(http_list_next(&rest, &item) && str_eq(item, STR("y")));
	assert_true(http_list_next(&rest, &item) && str_eq(item, STR("Z")));
	assert_false(http_list_next(&rest, &item));
	struct http_head *h = take_ptr(&p.head); /* taken: it outlives the parser's message */
	assert_int_equal(http_feed(&p, &in, &none), HTTP_END);
	http_next(&p);
	assert_true(http_is_idle(&p));
	assert_true(str_eq(h->target, STR("/")));
	http_head_free(h);
	http_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused), cmocka_unit_test(test_refused_chunks), cmocka_unit_test(test_requests),
		cmocka_unit_test(test_pairs),	cmocka_unit_test(test_responses),      cmocka_unit_test(test_refused_responses),
		cmocka_unit_test(test_limits),	cmocka_unit_test(test_lookup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
