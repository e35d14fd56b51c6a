#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"

static void numbers(void **state)
{
	(void)state;
	uint64_t v = 9;
	assert_int_equal(parse_u64(STR("18446744073709551615"), UINT64_MAX, &v), 0);
	assert_true(v == UINT64_MAX);
	assert_int_equal(parse_u64(STR("18446744073709551616"), UINT64_MAX, &v), -ERANGE);
	assert_int_equal(parse_u64(STR("11"), 10, &v), -ERANGE);
	assert_int_equal(parse_u64(STR(""), 10, &v), -EINVAL);
	assert_int_equal(parse_u64(STR("+1"), 10, &v), -EINVAL);
	assert_int_equal(parse_u64(STR(" 1"), 10, &v), -EINVAL);
}

static void utf8_is_repaired(void **state)
{
	size_t n;
	(void)state;
	auto_free char *text = utf8_repaired(STR("a\xc3\xa9\xff\xe2\x82z\0"), &n);
	assert_int_equal(n, 14);
	assert_memory_equal(text, "a\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\0", 14);
	auto_free char *nothing = utf8_repaired((struct str){ 0 }, &n);
	assert_int_equal(n, 0);
}

static void utf8(void **state)
{
	(void)state;
	assert_true(utf8_valid(STR("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80")));
	assert_false(utf8_valid(STR("\xc0\x80")));         /* overlong */
	assert_false(utf8_valid(STR("\xed\xa0\x80")));     /* surrogate */
	assert_false(utf8_valid(STR("\xf4\x90\x80\x80"))); /* beyond U+10FFFF */
	assert_false(utf8_valid(STR("\xe2\x82")));         /* cut */
	for (size_t at = 0; at < 20; at++) { /* wherever it is in a text of ASCII */
		char text[] = "twenty letters, each";
		text[at] = '\xe9';
		assert_false(utf8_valid(str_of(text)));
	}
}

static void base64(void **state)
{
	(void)state;
	for (size_t n = 0; n < 50; n++) {
		unsigned char in[50], out[60];
		char text[80];
		random_bytes(in, n);
		base64_encode(in, n, text);
		assert_int_equal(base64_decode(str_of(text), out), n);
		assert_memory_equal(in, out, n);
	}
	unsigned char out[8];
	assert_int_equal(base64_decode(STR("QQ="), out), -EINVAL);
	assert_int_equal(base64_decode(STR("QR=="), out), -EINVAL); /* bits behind the end */
	assert_int_equal(base64_decode(STR("Q==="), out), -EINVAL);
	assert_int_equal(base64_decode(STR("QQ=A"), out), -EINVAL);
}

static void buffer_keeps_its_bound(void **state)
{
	(void)state;
	auto_buf struct buf b;
	buf_init(&b, 1000);
	for (int i = 0; i < 100; i++)
		assert_int_equal(buf_addf(&b, "%09d.", i), 0);
	assert_int_equal(buf_addc(&b, 'x'), -ENOBUFS);
	assert_true(b.overflow);
	assert_int_equal(b.len, 1000);
	buf_consume(&b, 995);
	assert_string_equal(b.data, "0099.");
	assert_int_equal(buf_addz(&b, "more"), 0);
	assert_string_equal(b.data, "0099.more");
	buf_trim(&b, 0);
	assert_int_equal(b.len, 9); /* not empty */
	auto_free char *text = buf_take(&b);
	assert_string_equal(text, "0099.more");
	assert_int_equal(b.len, 0);
}

static void errors(void **state)
{
	(void)state;
	struct err e;
	assert_int_equal(err_set(&e, ERR_NOT_FOUND, ENOENT, "no sandbox %s", "x"), -ENOENT);
	err_prefix(&e, "run");
	assert_string_equal(e.message, "run: no sandbox x");
	assert_string_equal(err_kind_name(e.kind), "not_found");
	assert_int_equal(err_set(NULL, ERR_INVALID, 0, "nothing"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers), cmocka_unit_test(utf8), cmocka_unit_test(utf8_is_repaired), cmocka_unit_test(base64), cmocka_unit_test(buffer_keeps_its_bound),
		cmocka_unit_test(errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
