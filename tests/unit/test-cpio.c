#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <cmocka.h>

#include "wire/cpio.h"

static unsigned field(const char *entry, int number)
{
	unsigned v = 0;

	assert_int_equal(sscanf(entry + 6 + 8 * number, "%8x", &v), 1);
	return v;
}

static void entries_are_as_the_kernel_wants_them(void **state)
{
	(void)state;
	auto_buf struct buf b;

	buf_init(&b, 4096);
	assert_int_equal(cpio_put(&b, "init", S_IFREG | 0755, 0, STR("hello")), 0);
	assert_int_equal(b.len, 116 + 8); /* head and name up to a multiple of four, and so the data */
	assert_memory_equal(b.data, "070701", 6);
	assert_int_equal(field(b.data, 1), S_IFREG | 0755);
	assert_int_equal(field(b.data, 6), 5);
	assert_int_equal(field(b.data, 11), 5);
	assert_memory_equal(b.data + 110, "init\0\0hello\0\0\0", 14);
	size_t at = b.len;
	assert_int_equal(cpio_put(&b, "dev/console", S_IFCHR | 0600, makedev(5, 1), (struct str){ NULL, 0 }), 0);
	assert_int_equal(field(b.data + at, 9), 5);
	assert_int_equal(field(b.data + at, 10), 1);
	at = b.len;
	assert_int_equal(at % 4, 0);
	assert_int_equal(cpio_end(&b), 0);
	assert_string_equal(b.data + at + 110, "TRAILER!!!");
	assert_int_equal(b.len % 4, 0);
}

static void a_bound_is_kept(void **state)
{
	(void)state;
	auto_buf struct buf b;

	buf_init(&b, 100);
	assert_int_equal(cpio_end(&b), -ENOBUFS);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(entries_are_as_the_kernel_wants_them), cmocka_unit_test(a_bound_is_kept) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
