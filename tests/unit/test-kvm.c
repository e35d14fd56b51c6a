/* What is said of a KVM that is not there, not ours to use, or something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "sys/kvm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/caisson-kvm-XXXXXX";

static char *at(const char *name)
{
	return xasprintf("%s/%s", dir, name);
}

static void one_that_is_not_there(void **state)
{
	(void)state;
	auto_free char *path = at("none");
	struct err e = { 0 };

	assert_int_equal(kvm_probe(path, &e), -ENOENT);
	assert_int_equal(e.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(e.message, "there is no /tmp/"));
	assert_non_null(strstr(kvm_advice(e.errnum), "kvm_intel or kvm_amd"));
}

static void something_else_in_its_place(void **state)
{
	(void)state;
	struct err e = { 0 };

	assert_int_equal(kvm_open("/dev/null", &e), -ENOTTY);
	assert_non_null(strstr(e.message, "/dev/null is not KVM's device"));
	assert_non_null(strstr(kvm_advice(e.errnum), "something else"));
}

/* Also root would be refused, were it not root: so as somebody else. */
static void one_that_is_somebody_elses(void **state)
{
	(void)state;
	auto_free char *path = at("kept");
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), status;

	assert_true(fd >= 0);
	close(fd);
	if (geteuid() != 0)
		assert_int_equal(chmod(path, 0), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct err e = { 0 };
		if (geteuid() == 0 && (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0))
			_exit(2);
		bool told = kvm_probe(path, &e) == -EACCES && strstr(e.message, "Permission denied") && strstr(kvm_advice(e.errnum), "root");
		_exit(told ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	(void)unlink(path);
}

static int set_up(void **state)
{
	(void)state;
	return mkdtemp(dir) && chmod(dir, 0755) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_is_not_there),
		cmocka_unit_test(something_else_in_its_place),
		cmocka_unit_test(one_that_is_somebody_elses),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
