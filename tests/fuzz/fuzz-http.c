/* HTTP messages: the first byte says which direction and how the rest is cut. Whole, byte by byte and in pieces, the events must
 * be the same, and what the parser says of a message must hold. */
#include "wire/http.h"

#include <stdio.h>

static void check(bool holds)
{
	if (!holds)
		abort();
}

static void check_head(const struct http_head *h, enum http_kind kind)
{
	const char *bytes = h->bytes_.data, *end = bytes + h->bytes_.len;

	check(h->n_fields <= HTTP_MAX_FIELDS && h->bytes_.len <= HTTP_MAX_HEAD);
	check(h->length >= HTTP_UNTIL_EOF);
	for (size_t i = 0; i < h->n_fields; i++) {
		struct str name = h->fields[i].name, value = h->fields[i].value;
		check(http_is_token(name) && http_value_ok(value));
		check(name.p >= bytes && value.p + value.n <= end);
	}
	if (kind == HTTP_REQUEST) {
		check(h->length >= HTTP_CHUNKED && h->target.n <= HTTP_MAX_TARGET && h->target.n > 0);
		check(h->path.n > 0 && (h->path.p[0] == '/' || str_eq(h->path, STR("*"))));
		check(!memchr(h->path.p, '?', h->path.n));
	} else {
		check(h->status >= 100 && h->status <= 599);
	}
}

static void run(struct buf *log, enum http_kind kind, bool answers_head, struct str input, unsigned piece)
{
	struct http_parser p;
	struct str bytes;
	enum http_event e = HTTP_MORE;
	uint64_t body = 0;

	http_init(&p, kind);
	p.answers_head = answers_head;
	for (unsigned seed = piece; input.n && e != HTTP_ERROR;) {
		seed = seed * 1103515245u + 12345u;
		size_t n = piece == 0 ? input.n : piece == 1 ? 1 : MIN(input.n, (size_t)(seed >> 16) % piece + 1);
		char *copy = xmemdup(input.p, n);
		struct str in = { copy, n };
		while ((e = http_feed(&p, &in, &bytes)) != HTTP_MORE && e != HTTP_ERROR) {
			if (e == HTTP_HEAD) {
				check_head(p.head, kind);
				buf_addf(log, "H%lld,%zu;", (long long)p.head->length, p.head->n_fields);
			} else if (e == HTTP_BODY) {
				check(bytes.n > 0 && bytes.p >= copy && bytes.p + bytes.n <= copy + n);
				for (size_t i = 0; i < bytes.n; i++)
					body = body * 31 + (unsigned char)bytes.p[i] + 1;
			} else {
				buf_addf(log, "E%llx;", (unsigned long long)body);
				body = 0;
				http_next(&p);
			}
		}
		check(e == HTTP_ERROR || in.n == 0);
		free(copy);
		input.p += n;
		input.n -= n;
	}
	buf_addf(log, "B%llx;", (unsigned long long)body);
	e = http_eof(&p);
	buf_addf(log, "%d %d %s", e, e == HTTP_ERROR ? p.error_status : 0, e == HTTP_ERROR ? p.error : "");
	http_done(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf want, got;

	if (size == 0)
		return 0;
	enum http_kind kind = data[0] & 1 ? HTTP_RESPONSE : HTTP_REQUEST;
	bool answers_head = kind == HTTP_RESPONSE && (data[0] & 2);
	unsigned pieces[] = { 1, 2 + (data[0] >> 2) };
	struct str input = { (const char *)data + 1, size - 1 };
	buf_init(&want, 1 << 24);
	run(&want, kind, answers_head, input, 0);
	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
		buf_init(&got, 1 << 24);
		run(&got, kind, answers_head, input, pieces[i]);
		check(str_eq(buf_str(&want), buf_str(&got)));
		buf_done(&got);
	}
	buf_done(&want);
	return 0;
}
