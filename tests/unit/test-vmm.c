#include "wire/vmm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static const struct vmm_plan boot = { .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .tsc_khz = 2000000, .cpu_millis = 1500, .memory_mib = 256 };

/* The value that follows an option, or NULL. */
static const char *value(char **argv, const char *option)
{
	for (; argv[0] && argv[1]; argv++)
		if (streq(argv[0], option))
			return argv[1];
	return NULL;
}

/* Does any word name this descriptor, as a path or as fd=? */
static bool names_fd(char **argv, int fd)
{
	char path[40], word[20], middle[20];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	snprintf(word, sizeof word, "fd=%d", fd);
	snprintf(middle, sizeof middle, ",fd=%d,", fd);
	for (; *argv; argv++)
		if (strstr(*argv, path) || strncmp(*argv, word, strlen(word)) == 0 || strstr(*argv, middle))
			return true;
	return false;
}

static void every_descriptor_is_used(void **state)
{
	(void)state;
	for (uint32_t begin = VMM_BOOT; begin <= VMM_INCOMING; begin++)
		for (uint32_t ram = VMM_RAM_OWN; ram <= VMM_RAM_COPIED; ram++) {
			struct vmm_plan p = boot;
			p.begin = begin;
			p.ram = ram;
			p.tap = begin == VMM_BOOT;
			p.volumes = begin == VMM_INCOMING;
			assert_null(vmm_plan_wrong(&p));
			char **argv = vmm_argv("/q", &p);
			for (int fd = VMM_FD_FIRST; fd < VMM_FD_END; fd++)
				assert_int_equal(names_fd(argv, fd), !!(vmm_plan_fds(&p) & VMM_FD_BIT(fd)));
			vmm_argv_free(argv);
		}
}

static void says_what_is_asked(void **state)
{
	(void)state;
	char **argv = vmm_argv("/q", &boot);
	assert_string_equal(argv[0], "/q");
	assert_string_equal(value(argv, "-smp"), "2");
	assert_string_equal(value(argv, "-m"), "256M");
	assert_non_null(strstr(value(argv, "-accel"), "tcg"));
	assert_non_null(strstr(value(argv, "-append"), "tsc_early_khz=2000000"));
	assert_non_null(strstr(value(argv, "-sandbox"), "spawn=deny"));
	assert_null(value(argv, "-incoming"));
	vmm_argv_free(argv);

	struct vmm_plan clone = boot;
	clone.begin = VMM_INCOMING;
	clone.ram = VMM_RAM_COPIED;
	clone.kvm = 1;
	argv = vmm_argv("/q", &clone);
	assert_null(value(argv, "-kernel"));
	assert_string_equal(value(argv, "-incoming"), "defer");
	assert_string_equal(value(argv, "-accel"), "kvm");
	assert_non_null(strstr(value(argv, "-M"), "memory-backend=mem"));
	vmm_argv_free(argv);
}

static void refuses_what_is_out_of_bounds(void **state)
{
	(void)state;
	static const struct vmm_plan wrong[] = {
		{ .begin = 0, .ram = VMM_RAM_OWN, .cpu_millis = 1000, .memory_mib = 256 },
		{ .begin = VMM_INCOMING + 1, .ram = VMM_RAM_OWN, .cpu_millis = 1000, .memory_mib = 256 },
		{ .begin = VMM_BOOT, .ram = VMM_RAM_COPIED + 1, .cpu_millis = 1000, .memory_mib = 256 },
		{ .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .kvm = 2, .cpu_millis = 1000, .memory_mib = 256 },
		{ .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .volumes = 2, .cpu_millis = 1000, .memory_mib = 256 },
		{ .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .keep_disk = 2, .cpu_millis = 1000, .memory_mib = 256 },
		{ .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .tsc_khz = UINT64_MAX, .cpu_millis = 1000, .memory_mib = 256 },
		{ .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .cpu_millis = 9, .memory_mib = 256 },
		{ .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .cpu_millis = UINT64_MAX, .memory_mib = 256 },
		{ .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .cpu_millis = 1000, .memory_mib = VMM_MEMORY_MIB_MIN - 1 },
		{ .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .cpu_millis = 1000, .memory_mib = UINT64_MAX },
	};

	assert_null(vmm_plan_wrong(&boot));
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_non_null(vmm_plan_wrong(&wrong[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_descriptor_is_used),
		cmocka_unit_test(says_what_is_asked),
		cmocka_unit_test(refuses_what_is_out_of_bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
