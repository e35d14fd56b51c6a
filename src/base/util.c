#include "base/util.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

bool str_eq_nocase(struct str a, struct str b)
{
	return a.n == b.n && (a.n == 0 || strncasecmp(a.p, b.p, a.n) == 0);
}

bool streq(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

int parse_u64(struct str s, uint64_t max, uint64_t *ret_value)
{
	uint64_t v = 0;

	if (s.n == 0)
		return -EINVAL;
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return -EINVAL;
		uint64_t digit = (uint64_t)(s.p[i] - '0');
		if (__builtin_mul_overflow(v, (uint64_t)10, &v) || __builtin_add_overflow(v, digit, &v) || v > max)
			return -ERANGE;
	}
	*ret_value = v;
	return 0;
}

bool utf8_valid(struct str s)
{
	const unsigned char *p = (const unsigned char *)s.p, *end = p + s.n;

	while (p < end) {
		uint64_t eight;
		while (end - p >= 8 && (memcpy(&eight, p, 8), (eight & 0x8080808080808080) == 0)) /* most text is ASCII */
			p += 8;
		if (p == end)
			return true;
		unsigned c = *p++, min;
		int more;

		if (c < 0x80)
			continue;
		if (c >= 0xc2 && c <= 0xdf)
			more = 1, min = 0x80, c &= 0x1f;
		else if (c >= 0xe0 && c <= 0xef)
			more = 2, min = 0x800, c &= 0x0f;
		else if (c >= 0xf0 && c <= 0xf4)
			more = 3, min = 0x10000, c &= 0x07;
		else
			return false;
		if (end - p < more)
			return false;
		while (more--) {
			if ((*p & 0xc0) != 0x80)
				return false;
			c = c << 6 | (*p++ & 0x3fU);
		}
		if (c < min || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
			return false;
	}
	return true;
}

/* Length of the valid character at p, 0 when there is none. utf8_valid is the judge; this only finds the extent. */
static size_t character(const char *p, size_t n)
{
	unsigned char c = (unsigned char)*p;
	size_t want = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;

	return want && want <= n && utf8_valid((struct str){ p, want }) ? want : 0;
}

char *utf8_repaired(struct str s, size_t *ret_n)
{
	char *text = xreallocarray(NULL, s.n + 1, 3);
	size_t to = 0;

	for (size_t at = 0; at < s.n;) {
		size_t n = character(s.p + at, s.n - at);
		memcpy(text + to, n ? s.p + at : "\xef\xbf\xbd", n ? n : 3);
		to += n ? n : 3;
		at += n ? n : 1;
	}
	*ret_n = to;
	return text;
}

static void *or_abort(void *p)
{
	if (!p)
		abort();
	return p;
}

void *xmalloc(size_t n)
{
	return or_abort(malloc(n ? n : 1));
}

void *xcalloc(size_t n, size_t size)
{
	return or_abort(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t n)
{
	return or_abort(realloc(p, n ? n : 1));
}

void *xreallocarray(void *p, size_t n, size_t size)
{
	size_t total;

	if (__builtin_mul_overflow(n, size, &total))
		abort();
	return xrealloc(p, total);
}

void free_secret(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

char *xstrdup(const char *s)
{
	return s ? or_abort(strdup(s)) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
	char *p = xmalloc(n + 1);

	if (n)
		memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

void *xmemdup(const void *p, size_t n)
{
	void *q = xmalloc(n);

	if (n)
		memcpy(q, p, n);
	return q;
}

char *xasprintf(const char *fmt, ...)
{
	char *p = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&p, fmt, ap) < 0)
		abort();
	va_end(ap);
	return p;
}

int close_fd(int fd)
{
	if (fd >= 0) {
		int saved = errno;
		(void)close(fd); /* never retried: on Linux the descriptor is gone whatever close says */
		errno = saved;
	}
	return -EBADF;
}

void close_fd_ptr(int *fd)
{
	*fd = close_fd(*fd);
}

static uint64_t clock_us(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts) < 0)
		abort();
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t now_ms(void)
{
	return clock_us(CLOCK_MONOTONIC) / 1000;
}

uint64_t now_us(void)
{
	return clock_us(CLOCK_MONOTONIC);
}

uint64_t now_unix_ms(void)
{
	return clock_us(CLOCK_REALTIME) / 1000;
}

void format_iso8601(uint64_t unix_ms, char ret_text[static 25])
{
	time_t t = (time_t)(unix_ms / 1000);
	struct tm tm;

	gmtime_r(&t, &tm);
	snprintf(ret_text, 25, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)(tm.tm_year + 1900) % 10000u,
	         (unsigned)(tm.tm_mon + 1) % 100u, (unsigned)tm.tm_mday % 100u, (unsigned)tm.tm_hour % 100u,
	         (unsigned)tm.tm_min % 100u, (unsigned)tm.tm_sec % 100u, (unsigned)(unix_ms % 1000));
}

void random_bytes(void *p, size_t n)
{
	char *at = p;

	while (n) {
		ssize_t got = getrandom(at, n, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			abort();
		at += got;
		n -= (size_t)got;
	}
}

void hex_encode(const void *p, size_t n, char *ret_text)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *b = p;

	for (size_t i = 0; i < n; i++) {
		*ret_text++ = digits[b[i] >> 4];
		*ret_text++ = digits[b[i] & 15];
	}
	*ret_text = '\0';
}

void random_hex(char *ret_text, size_t n)
{
	unsigned char b[64];

	if (n > sizeof b)
		abort();
	random_bytes(b, n);
	hex_encode(b, n, ret_text);
}

void random_uuid(char ret_text[static 37])
{
	unsigned char b[16];
	char hex[33];

	random_bytes(b, sizeof b);
	b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
	b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
	hex_encode(b, sizeof b, hex);
	snprintf(ret_text, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *p, size_t n, char *ret_text)
{
	const unsigned char *b = p;

	for (; n >= 3; b += 3, n -= 3) {
		*ret_text++ = base64_digits[b[0] >> 2];
		*ret_text++ = base64_digits[(b[0] & 3) << 4 | b[1] >> 4];
		*ret_text++ = base64_digits[(b[1] & 15) << 2 | b[2] >> 6];
		*ret_text++ = base64_digits[b[2] & 63];
	}
	if (n) {
		unsigned second = n == 2 ? b[1] : 0;
		*ret_text++ = base64_digits[b[0] >> 2];
		*ret_text++ = base64_digits[(b[0] & 3u) << 4 | second >> 4];
		*ret_text++ = n == 2 ? base64_digits[(second & 15) << 2] : '=';
		*ret_text++ = '=';
	}
	*ret_text = '\0';
}

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+')
		return 62;
	return c == '/' ? 63 : -1;
}

ssize_t base64_decode(struct str text, void *ret_bytes)
{
	unsigned char *out = ret_bytes;
	size_t pad = 0;

	if (text.n % 4)
		return -EINVAL;
	while (pad < 2 && pad < text.n && text.p[text.n - 1 - pad] == '=')
		pad++;
	for (size_t i = 0; i < text.n; i += 4) {
		unsigned v = 0;
		size_t have = i + 4 == text.n ? 4 - pad : 4;
		for (size_t k = 0; k < 4; k++) {
			int digit = k < have ? base64_value(text.p[i + k]) : 0;
			if (digit < 0)
				return -EINVAL;
			v = v << 6 | (unsigned)digit;
		}
		if ((have == 2 && (v & 0xffff)) || (have == 3 && (v & 0xff)))
			return -EINVAL; /* bits behind the end */
		for (size_t k = 0; k + 1 < have; k++)
			*out++ = (unsigned char)(v >> (16 - 8 * k));
	}
	return (ssize_t)(out - (unsigned char *)ret_bytes);
}
