#include "wire/urlencode.h"

#include <errno.h>

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

ssize_t url_decode(struct str in, int flags, char *ret_text)
{
	size_t n = 0;

	for (size_t i = 0; i < in.n; i++) {
		char c = in.p[i];
		if (c == '%') {
			if (in.n - i < 3)
				return -EINVAL;
			int hi = hex_digit(in.p[i + 1]), lo = hex_digit(in.p[i + 2]);
			if (hi < 0 || lo < 0)
				return -EINVAL;
			c = (char)(hi << 4 | lo);
			i += 2;
			if (c == '\0' || (c == '/' && (flags & URL_NO_SLASH)))
				return -EINVAL;
		} else if (c == '+' && (flags & URL_FORM)) {
			c = ' ';
		} else if (c == '\0') {
			return -EINVAL;
		}
		ret_text[n++] = c;
	}
	ret_text[n] = '\0';
	return utf8_valid((struct str){ ret_text, n }) ? (ssize_t)n : -EINVAL;
}

static struct str front(struct str *rest, char at)
{
	const char *q = memchr(rest->p, at, rest->n);
	size_t n = q ? (size_t)(q - rest->p) : rest->n;
	struct str s = { rest->p, n };

	n = MIN(n + 1, rest->n);
	rest->p += n;
	rest->n -= n;
	return s;
}

bool url_query_next(struct str *rest, struct str *ret_name, struct str *ret_value)
{
	while (rest->n) {
		struct str pair = front(rest, '&');
		if (pair.n == 0)
			continue;
		*ret_name = front(&pair, '=');
		*ret_value = pair;
		return true;
	}
	return false;
}

int url_encode(struct buf *to, struct str in, const char *keep)
{
	static const char digits[] = "0123456789ABCDEF";
	int r = 0;

	for (size_t i = 0; i < in.n && r == 0; i++) {
		unsigned char c = (unsigned char)in.p[i];
		bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("-._~", c)) ||
			     (c && strchr(keep, c));
		if (plain)
			r = buf_addc(to, (char)c);
		else
			r = buf_add(to, (char[]){ '%', digits[c >> 4], digits[c & 15] }, 3);
	}
	return r;
}
