/* A line as it is put together. */
#include "audit/audit_int.h"

#include <assert.h>

enum { TEXTS_MAX = 32 };

static void add_escaped(struct buf *b, struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];
		if (c == '"' || c == '\\')
			(void)buf_addf(b, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			(void)buf_addf(b, "\\u%04x", c);
		else
			(void)buf_addc(b, (char)c);
	}
}

/* Cut where a character ends. */
static void add_value(struct buf *b, const char *text)
{
	struct str s = str_of(text);
	bool cut = s.n > AUDIT_TEXT_MAX;
	auto_free char *repaired = NULL;

	if (cut) {
		s.n = AUDIT_TEXT_MAX;
		while (s.n && ((unsigned char)s.p[s.n] & 0xc0) == 0x80)
			s.n--;
	}
	if (!utf8_valid(s)) {
		repaired = utf8_repaired(s, &s.n);
		s.p = repaired;
	}
	(void)buf_addc(b, '"');
	add_escaped(b, s);
	(void)buf_addz(b, cut ? "...\"" : "\"");
}

struct audit_line *audit_begin(struct audit *a, const char *type, const char *tenant)
{
	struct audit_line *l = &a->line;
	char at[25];

	buf_reset(&l->b);
	format_iso8601(now_unix_ms(), at);
	(void)buf_addf(&l->b, "{\"seq\":%llu,\"at\":\"%s\",\"type\":\"%s\"", (unsigned long long)a->seq + 1, at, type);
	audit_text(l, "tenant", tenant);
	return l;
}

void audit_text(struct audit_line *l, const char *key, const char *text)
{
	if (!text)
		return;
	(void)buf_addf(&l->b, ",\"%s\":", key);
	add_value(&l->b, text);
}

void audit_u64(struct audit_line *l, const char *key, uint64_t v)
{
	(void)buf_addf(&l->b, ",\"%s\":%llu", key, (unsigned long long)v);
}

void audit_flag(struct audit_line *l, const char *key, bool v)
{
	if (v)
		(void)buf_addf(&l->b, ",\"%s\":true", key);
}

void audit_texts(struct audit_line *l, const char *key, char *const *texts)
{
	if (!texts)
		return;
	(void)buf_addf(&l->b, ",\"%s\":[", key);
	for (size_t i = 0; texts[i]; i++) {
		if (i)
			(void)buf_addc(&l->b, ',');
		if (i == TEXTS_MAX || l->b.len > AUDIT_LINE_MAX / 2) {
			(void)buf_addz(&l->b, "\"...\"");
			break;
		}
		add_value(&l->b, texts[i]);
	}
	(void)buf_addc(&l->b, ']');
}
