#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "image/erofs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/caisson-erofs-XXXXXX";

/* A file system of a small tree, as image/vm.c has one made. -1: there is no mkfs.erofs here. */
static int make(void)
{
	char command[600];

	snprintf(command, sizeof command,
	         "cd %s && rm -rf t e && mkdir -p t/usr/bin t/many && cd t && echo 1 >usr/bin/sudo && echo 22 >usr/bin/wall && ln -s sudo usr/bin/link && "
	         "for i in $(seq 900); do : >many/a-name-of-some-length-$i; done && mkfs.erofs -x-1 ../e . >/dev/null 2>&1",
	         dir);
	if (system("command -v mkfs.erofs >/dev/null") != 0)
		return -1;
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof command, "%s/e", dir);
	int fd = open(command, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* The checksum and everything else as the distribution's own program sees it, and as the bits come out of it. */
static void sees(const char *path, const char *mode)
{
	char command[300];

	snprintf(command, sizeof command, "cd %s && rm -rf x && fsck.erofs --extract=x --no-preserve-owner --preserve-perms e >/dev/null && test $(stat -c %%a x%s) = %s", dir, path, mode);
	assert_int_equal(system(command), 0);
}

static void bits_are_put_where_they_belong(void **state)
{
	(void)state;
	char sudo[] = "4755 /usr/bin/sudo", wall[] = "2755 /usr/bin/wall", deep[] = "6711 /many/a-name-of-some-length-871";
	char *all[] = { sudo, wall, deep, NULL };
	struct err e = { 0 };
	umask(022);
	int fd = make();

	umask(0);
	if (fd < 0)
		skip();
	assert_int_equal(erofs_has_modes(fd, all, &e), 0);
	assert_int_equal(erofs_put_modes(fd, all, &e), 0);
	assert_int_equal(erofs_has_modes(fd, all, &e), 1);
	assert_int_equal(erofs_put_modes(fd, NULL, &e), 0);
	sees("/usr/bin/sudo", "4644");
	sees("/usr/bin/wall", "2644");
	sees("/many/a-name-of-some-length-871", "6644");
	sees("/many/a-name-of-some-length-870", "644");
	close(fd);
}

static void what_is_not_there_is_refused(void **state)
{
	(void)state;
	static char bad[][40] = { "4755 /usr/bin/nosuch", "4755 /usr/bin", "4755 /usr/bin/link", "4755 /usr/bin/sudo/x", "x", "99999 /usr/bin/sudo", "4755" };
	struct err e = { 0 };
	int fd = make();

	if (fd < 0)
		skip();
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char *one[] = { bad[i], NULL };
		assert_true(erofs_put_modes(fd, one, &e) < 0);
	}
	close(fd);
	fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	assert_true(erofs_has_modes(fd, NULL, &e) < 0);
	close(fd);
}

/* Damage anywhere in its structures is an error or another answer, and nothing worse (the sanitizers look). */
static void damage_does_no_harm(void **state)
{
	(void)state;
	char sudo[] = "4755 /usr/bin/sudo", deep[] = "4755 /many/a-name-of-some-length-871";
	char *all[] = { sudo, deep, NULL };
	struct err e = { 0 };
	int fd = make();
	struct stat st;

	if (fd < 0)
		skip();
	assert_int_equal(fstat(fd, &st), 0);
	for (off_t at = 1024; at < st.st_size; at += at < 8192 ? 3 : 97) {
		uint8_t was, now;
		assert_int_equal(pread(fd, &was, 1, at), 1);
		now = (uint8_t)(was ^ (1u << (at % 8)) ^ 0x80u);
		assert_int_equal(pwrite(fd, &now, 1, at), 1);
		int r = erofs_has_modes(fd, all, &e);
		assert_true(r <= 1);
		assert_int_equal(pwrite(fd, &was, 1, at), 1);
	}
	assert_int_equal(erofs_has_modes(fd, all, &e), 0);
	close(fd);
}

static int set_up(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[100];

	(void)state;
	snprintf(command, sizeof command, "rm -rf %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_are_put_where_they_belong),
		cmocka_unit_test(what_is_not_there_is_refused),
		cmocka_unit_test(damage_does_no_harm),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
