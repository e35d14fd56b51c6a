/* Values in what comes back (egress/screen.h). */
#include "egress/screen.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define HEX	    "abababababababababababababababababababababababababababababababab"
#define PLACEHOLDER "caisson-placeholder-" HEX
#define VALUE	    "ghp_k9/Vq2+Zr7=Xw41"

static void keys(struct keyring *k, const char *value)
{
	struct secret_spec spec = { .hosts = (char *[]){ (char[]){ "api.test:443" }, NULL }, .query = (char *[]){ (char[]){ "key" }, NULL }, .basic = true };
	struct buf text;

	buf_init(&text, 4096);
	keyring_put_authority(&text, STR("x"), STR("y"));
	keyring_put(&text, "sec_1", PLACEHOLDER, &spec, value);
	assert_int_equal(keyring_parse(text.data, text.len, k), 0);
	buf_done(&text);
}

static char *screened(const struct keyring *k, const char *text)
{
	char *copy = xstrdup(text);

	screen_mask(k, copy, strlen(copy));
	return copy;
}

static void every_form(void **state)
{
	static const char *const users[] = { "", "m:", "me:", "you:", "x-access-token:" };
	struct keyring k;

	(void)state;
	keys(&k, VALUE);
	auto_free char *plain = screened(&k, "a " VALUE " b" VALUE), *query = screened(&k, "/x?key=ghp_k9%2FVq2%2BZr7%3DXw41&b=ghp_k9");
	assert_string_equal(plain, "a ******************* b*******************");
	assert_string_equal(query, "/x?key=*************************&b=ghp_k9");
	for (size_t i = 0; i < ARRAY_LEN(users); i++) {
		char credentials[64], coded[100], back[100];
		snprintf(credentials, sizeof credentials, "%s" VALUE, users[i]);
		base64_encode(credentials, strlen(credentials), coded);
		auto_free char *seen = screened(&k, coded);
		/* What is left of it says no whole byte of the value. */
		for (char *c = seen; *c; c++)
			if (*c == '*')
				*c = 'A';
		assert_true(base64_decode(str_of(seen), back) == (ssize_t)strlen(credentials));
		for (size_t at = strlen(users[i]); credentials[at]; at++)
			assert_true(back[at] != credentials[at]);
		assert_memory_equal(back, users[i], strlen(users[i]));
	}
	keyring_done(&k);
}

static size_t pass(struct screen *s, const struct keyring *k, const char *text, enum screen_when when, char *out)
{
	struct str got = screen_pass(s, k, str_of(text), when);

	memcpy(out, got.p ? got.p : "", got.n);
	out[got.n] = '\0';
	return got.n;
}

/* Whoever can choose what comes back finds out nothing by when it comes. */
static void what_is_kept_back_says_nothing(void **state)
{
	struct keyring with, without;
	char a[200], b[200];

	(void)state;
	keys(&with, VALUE);
	keys(&without, "another--value-2026");
	for (size_t n = 0; n < strlen(VALUE); n++) {
		char text[64];
		snprintf(text, sizeof text, "some text before %.*s", (int)n, VALUE);
		struct screen s, t;
		screen_init(&s, 1000);
		screen_init(&t, 1000);
		assert_int_equal(pass(&s, &with, text, SCREEN_MORE, a), pass(&t, &without, text, SCREEN_MORE, b));
		bool half = n >= (strlen(VALUE) + 1) / 2;
		size_t gone = pass(&s, &with, "", SCREEN_IDLE, a), all = pass(&t, &without, "", SCREEN_IDLE, b);
		assert_int_equal(gone, all - (half ? n : 0));
		assert_int_equal(screen_waits(&s), half);
		assert_false(screen_waits(&t));
		/* Cut there, the rest of it is starred out all the same. */
		(void)pass(&s, &with, VALUE + n, SCREEN_END, a);
		assert_string_equal(a, half ? "*******************" : &"*******************"[n]);
		screen_done(&s);
		screen_done(&t);
	}
	keyring_done(&with);
	keyring_done(&without);
}

static void lines_pass_at_once(void **state)
{
	struct keyring k;
	struct screen s;
	char out[200];

	(void)state;
	keys(&k, VALUE);
	screen_init(&s, 1000);
	pass(&s, &k, "data: one\n\n", SCREEN_MORE, out);
	assert_string_equal(out, "data: one\n\n");
	assert_false(screen_waits(&s));
	pass(&s, &k, "{}\nghp_", SCREEN_MORE, out);
	assert_string_equal(out, "{}\n");
	assert_true(screen_waits(&s));
	pass(&s, &k, &VALUE[4], SCREEN_MORE, out);
	assert_string_equal(out, "");
	pass(&s, &k, "\r\n", SCREEN_MORE, out);
	assert_string_equal(out, "*******************\r\n");
	pass(&s, &k, "end", SCREEN_END, out);
	assert_string_equal(out, "end");
	screen_done(&s);
	keyring_done(&k);
}

/* In pieces of any size, with silences: all of it comes, in order, and no value. */
static void in_pieces(void **state)
{
	static const char *const parts[] = { VALUE, "ghp_k9/Vq", "\n", "x", "some words", "bWU6Z2hwX2s5L1ZxMitacjc9WHc0MQ==", "ghp_k9%2FVq2%2BZr7%3DXw41", VALUE };
	struct keyring k;

	(void)state;
	keys(&k, VALUE);
	for (unsigned seed = 1; seed <= 2000; seed++) {
		char text[700] = "", got[700];
		unsigned dice = seed;
		struct screen s;
		size_t n = 0, at = 0;
		bool silent = false;
		for (int i = 0; i < 12; i++)
			strcat(text, parts[(unsigned)rand_r(&dice) % ARRAY_LEN(parts)]);
		size_t len = strlen(text);
		screen_init(&s, 1000);
		while (at < len) {
			size_t roll = 1 + (unsigned)rand_r(&dice) % 30, some = MIN(roll, len - at);
			bool idle = seed % 2 && rand_r(&dice) % 4 == 0;
			struct str out = screen_pass(&s, &k, (struct str){ text + at, some }, SCREEN_MORE);
			memcpy(got + n, out.p ? out.p : "", out.n);
			n += out.n;
			out = idle ? screen_pass(&s, &k, (struct str){ 0 }, SCREEN_IDLE) : (struct str){ 0 };
			memcpy(got + n, out.p ? out.p : "", out.n);
			n += out.n;
			silent |= idle;
			at += some;
		}
		struct str out = screen_pass(&s, &k, (struct str){ 0 }, SCREEN_END);
		memcpy(got + n, out.p ? out.p : "", out.n);
		n += out.n;
		got[n] = '\0';
		assert_int_equal(n, len);
		assert_null(strstr(got, VALUE));
		for (size_t i = 0; i < len; i++)
			assert_true(got[i] == text[i] || got[i] == '*');
		auto_free char *whole = screened(&k, text);
		if (!silent)
			assert_string_equal(got, whole);
		screen_done(&s);
	}
	keyring_done(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_form),
		cmocka_unit_test(what_is_kept_back_says_nothing),
		cmocka_unit_test(lines_pass_at_once),
		cmocka_unit_test(in_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
