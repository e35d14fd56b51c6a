/* Form bodies and the header that announces them. First line: a Content-Type; the rest: the body, under its boundary or, when it
 * has none, under "b". Whole, byte by byte and in pieces the events must be the same. */
#include "wire/multipart.h"
#include "wire/urlencode.h"

static void check(bool holds)
{
	if (!holds)
		abort();
}

static void run(struct buf *log, const char *boundary, struct str input, unsigned piece)
{
	struct multipart m;
	struct str bytes;
	enum multipart_event e = MULTIPART_MORE;
	uint64_t sum = 0;
	size_t n_in = input.n, n_out = 0;

	multipart_init(&m, boundary);
	for (unsigned seed = piece; input.n && e != MULTIPART_ERROR;) {
		seed = seed * 1103515245u + 12345u;
		size_t n = piece == 0 ? input.n : piece == 1 ? 1 : MIN(input.n, (size_t)(seed >> 16) % piece + 1);
		char *copy = xmemdup(input.p, n);
		struct str in = { copy, n };
		while ((e = multipart_feed(&m, &in, &bytes)) != MULTIPART_MORE && e != MULTIPART_ERROR) {
			if (e == MULTIPART_PART) {
				check(m.name && utf8_valid(str_of(m.name)) && (!m.filename || utf8_valid(str_of(m.filename))));
				buf_addf(log, "P%s|%s;", m.name, m.filename ? m.filename : "");
			} else if (e == MULTIPART_BYTES) {
				n_out += bytes.n;
				for (size_t i = 0; i < bytes.n; i++)
					sum = sum * 31 + (unsigned char)bytes.p[i] + 1;
			} else {
				buf_addf(log, "%d,%llx;", e, (unsigned long long)sum);
			}
		}
		check(e == MULTIPART_ERROR || in.n == 0);
		free(copy);
		input.p += n;
		input.n -= n;
	}
	check(n_out <= n_in);
	buf_addf(log, "%d,%llx", e, e == MULTIPART_ERROR ? 0ull : (unsigned long long)sum);
	multipart_done(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str body = { (const char *)data, size };
	const char *newline = memchr(data, '\n', size);
	char boundary[MULTIPART_MAX_BOUNDARY + 1];
	struct buf want, got;

	if (!newline)
		return 0;
	struct str type = { body.p, (size_t)(newline - body.p) };
	body = (struct str){ newline + 1, size - type.n - 1 };
	if (multipart_boundary(type, boundary) < 0)
		memcpy(boundary, "b", 2);
	auto_free char *text = xmalloc(type.n + 1);
	ssize_t n = url_decode(type, URL_FORM, text);
	check(n <= (ssize_t)type.n && (n < 0 || strlen(text) == (size_t)n));
	buf_init(&want, 1 << 24);
	run(&want, boundary, body, 0);
	for (unsigned piece = 1; piece < 9; piece += 3) {
		buf_init(&got, 1 << 24);
		run(&got, boundary, body, piece);
		check(str_eq(buf_str(&want), buf_str(&got)));
		buf_done(&got);
	}
	buf_done(&want);
	return 0;
}
