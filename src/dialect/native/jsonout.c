#include "dialect/native/jsonout.h"

#include <inttypes.h>
#include <math.h>

/* What a byte needs inside a JSON string: 0 nothing, 'u' a \u escape, else the letter behind the backslash. */
static const char escapes[256] = {
	[0 ... 7] = 'u', ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', [11] = 'u', ['\f'] = 'f', ['\r'] = 'r', [14 ... 31] = 'u', ['"'] = '"', ['\\'] = '\\', [127] = 'u',
};

/* Escapes the bytes at p that need it, some at a time: output full of them (zeros of a device) must cost the loop no more than its
 * length. Returns how many. */
static size_t escape_some(struct buf *b, const char *p, const char *end)
{
	static const char hex[] = "0123456789abcdef";
	char text[6 * 256];
	size_t n = 0, i = 0;

	for (; p + i < end && n + 6 <= sizeof text; i++) {
		unsigned char c = (unsigned char)p[i];
		char how = escapes[c];
		if (!how)
			break;
		text[n++] = '\\';
		text[n++] = how;
		if (how == 'u') {
			memcpy(text + n, (char[]){ '0', '0', hex[c >> 4], hex[c & 15] }, 4);
			n += 4;
		}
	}
	buf_add(b, text, n);
	return i;
}

void json_escape(struct buf *b, struct str s)
{
	const char *p = s.p, *end = s.p + s.n;
	while (p < end) {
		const char *from = p;
		while (p < end && !escapes[(unsigned char)*p])
			p++;
		if (p > from)
			buf_add(b, from, (size_t)(p - from));
		if (p == end)
			return;
		p += escape_some(b, p, end);
	}
}

size_t utf8_unfinished(struct str s)
{
	for (size_t back = 1; back <= 3 && back <= s.n; back++) {
		unsigned char c = (unsigned char)s.p[s.n - back];
		if ((c & 0xc0) == 0x80)
			continue;
		size_t want = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
		return c <= 0xf4 && want > back ? back : 0;
	}
	return 0;
}

/* Bytes of the character at the beginning of s, 0 if it is none. */
static size_t character(struct str s)
{
	unsigned char c = (unsigned char)s.p[0];
	size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

	return n == 1 || (n <= s.n && utf8_valid((struct str){ s.p, n })) ? n : 0;
}

/* s with U+FFFD for each byte that is not part of a valid character. */
static void escape_lossy(struct buf *b, struct str s)
{
	if (utf8_valid(s)) {
		json_escape(b, s);
		return;
	}
	while (s.n) {
		size_t good = 0;
		for (size_t n; good < s.n && (n = character((struct str){ s.p + good, s.n - good })); good += n)
			;
		json_escape(b, (struct str){ s.p, good });
		if (good < s.n)
			buf_add(b, "\xef\xbf\xbd", 3);
		good = MIN(good + 1, s.n);
		s.p += good;
		s.n -= good;
	}
}

static void lead(struct jout *j, const char *key, const char *suffix)
{
	if (j->comma)
		buf_addc(j->b, ',');
	j->comma = true;
	if (key) {
		buf_addc(j->b, '"');
		escape_lossy(j->b, str_of(key)); /* keys of labels and variables are the caller's */
		buf_addz(j->b, suffix);
		buf_addz(j->b, "\":");
	}
}

static void open_with(struct jout *j, const char *key, char c)
{
	lead(j, key, "");
	buf_addc(j->b, c);
	j->comma = false;
}

static void close_with(struct jout *j, char c)
{
	buf_addc(j->b, c);
	j->comma = true;
}

void jout_object(struct jout *j, const char *key)
{
	open_with(j, key, '{');
}

void jout_array(struct jout *j, const char *key)
{
	open_with(j, key, '[');
}

void jout_end_object(struct jout *j)
{
	close_with(j, '}');
}

void jout_end_array(struct jout *j)
{
	close_with(j, ']');
}

void jout_null(struct jout *j, const char *key)
{
	lead(j, key, "");
	buf_addz(j->b, "null");
}

void jout_str(struct jout *j, const char *key, struct str s)
{
	lead(j, key, "");
	buf_addc(j->b, '"');
	escape_lossy(j->b, s);
	buf_addc(j->b, '"');
}

void jout_z(struct jout *j, const char *key, const char *z)
{
	if (z)
		jout_str(j, key, str_of(z));
	else
		jout_null(j, key);
}

void jout_base64(struct jout *j, const char *key, struct str s)
{
	lead(j, key, "_base64");
	buf_addc(j->b, '"');
	size_t n = 4 * ((s.n + 2) / 3);
	char *to = buf_reserve(j->b, n);
	if (to) {
		base64_encode(s.p, s.n, to);
		buf_grew(j->b, n);
	}
	buf_addc(j->b, '"');
}

void jout_text(struct jout *j, const char *key, struct str s)
{
	if (utf8_valid(s))
		jout_str(j, key, s);
	else
		jout_base64(j, key, s);
}

void jout_name(struct jout *j, const char *key, const char *z)
{
	jout_z(j, key, z);
	if (z && !utf8_valid(str_of(z)))
		jout_base64(j, key, str_of(z));
}

void jout_u64(struct jout *j, const char *key, uint64_t v)
{
	lead(j, key, "");
	buf_addf(j->b, "%" PRIu64, v);
}

void jout_i64(struct jout *j, const char *key, int64_t v)
{
	lead(j, key, "");
	buf_addf(j->b, "%" PRId64, v);
}

void jout_number(struct jout *j, const char *key, double v)
{
	lead(j, key, "");
	if (isfinite(v))
		buf_addf(j->b, "%.10g", v);
	else
		buf_addz(j->b, "null"); /* JSON has no word for it */
}

void jout_bool(struct jout *j, const char *key, bool v)
{
	lead(j, key, "");
	buf_addz(j->b, v ? "true" : "false");
}

void jout_time(struct jout *j, const char *key, uint64_t unix_ms)
{
	char text[25];
	if (unix_ms == 0) {
		jout_null(j, key);
		return;
	}
	format_iso8601(unix_ms, text);
	jout_z(j, key, text);
}
