/* What is taken for a file of a machine's folder. */
#include "boundary/vm/vmdir.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_only_files_are_opened_and_none_is_waited_for(void **state)
{
	(void)state;
	char path[] = "/tmp/caisson-vmdir-XXXXXX";

	assert_non_null(mkdtemp(path));
	auto_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(vmdir_write(dir, "file", "text"), 0);
	assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
	assert_int_equal(mkdirat(dir, "folder", 0700), 0);
	assert_int_equal(symlinkat("file", dir, "link"), 0);
	auto_fd int file = vmdir_open_file(dir, "file", O_RDWR);
	assert_true(file >= 0);
	assert_int_equal(fcntl(file, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDWR);
	assert_int_equal(vmdir_open_file(dir, "fifo", O_RDONLY), -EBADMSG); /* an open of which would wait for a writer */
	assert_int_equal(vmdir_open_file(dir, "folder", O_RDONLY), -EBADMSG);
	assert_int_equal(vmdir_open_file(dir, "link", O_RDONLY), -ELOOP);
	assert_int_equal(vmdir_open_file(dir, "none", O_RDONLY), -ENOENT);
	assert_null(vmdir_read(dir, "fifo"));
	assert_int_equal(unlinkat(dir, "file", 0) + unlinkat(dir, "fifo", 0) + unlinkat(dir, "link", 0) + unlinkat(dir, "folder", AT_REMOVEDIR) + rmdir(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_only_files_are_opened_and_none_is_waited_for) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
