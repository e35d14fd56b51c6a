#include "egress/screen.h"

void screen_init(struct screen *s, size_t max)
{
	*s = (struct screen){ 0 };
	buf_init(&s->held, max);
}

void screen_done(struct screen *s)
{
	if (s->held.data)
		explicit_bzero(s->held.data, s->held.len);
	buf_done(&s->held);
}

void screen_mask(const struct keyring *k, char *bytes, size_t n)
{
	for (size_t i = 0; i < k->n_forms; i++) {
		const struct str form = k->forms[i];
		char *at = bytes;
		while ((at = memmem(at, n - (size_t)(at - bytes), form.p, form.n)))
			memset(at, '*', form.n);
	}
}

/* No value holds it (secret_value_check). */
static bool parts(char c)
{
	return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

/* How many bytes at the end could be in a value that is not over. */
static size_t unsure(const struct keyring *k, const char *bytes, size_t n)
{
	size_t most = k->longest ? MIN(k->longest - 1, n) : 0, at = 0;

	while (at < most && !parts(bytes[n - 1 - at]))
		at++;
	return at;
}

/* How many are the beginning of one, and at least half of it. */
static size_t begun(const struct keyring *k, const char *bytes, size_t n)
{
	size_t found = 0;

	for (size_t i = 0; i < k->n_forms; i++) {
		const struct str form = k->forms[i];
		for (size_t len = MIN(form.n - 1, n); len > found && len >= (form.n + 1) / 2; len--)
			if (memcmp(bytes + n - len, form.p, len) == 0)
				found = len;
	}
	return found;
}

struct str screen_pass(struct screen *s, const struct keyring *k, struct str bytes, enum screen_when when)
{
	struct buf *b = &s->held;

	buf_consume(b, s->drop);
	s->drop = 0;
	(void)buf_add(b, bytes.p, bytes.n);
	screen_mask(k, b->data, b->len);
	size_t keep = when == SCREEN_END ? 0 : unsure(k, b->data, b->len), from = s->told;
	size_t to = b->len - (when == SCREEN_IDLE ? MIN(keep, begun(k, b->data, b->len)) : keep);
	to = MAX(to, from);
	s->drop = b->len - keep;
	s->told = to - MIN(to, s->drop);
	return (struct str){ b->data + from, to - from };
}

bool screen_waits(const struct screen *s)
{
	return s->held.len - s->drop > s->told;
}
