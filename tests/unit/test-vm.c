/* The vm boundary as a whole: what it says of itself before it has made a machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "boundary/vm/vm.h"

#include <fcntl.h>
#include <stdlib.h>

static void not_freed(struct launcher *l)
{
	(void)l;
}

/* What it says with these options, "kvm: why", in a folder that stays. */
static void says(const char *text, const char *data, bool kvm, bool kvm_only, const char *no_kvm)
{
	struct launcher launcher = { .free = not_freed };
	const struct vm_options o = { .data = data, .kernel = "/dev/null", .modules = "/dev/null", .guest = "", .kvm = kvm, .kvm_only = kvm_only, .no_kvm = no_kvm,
				      .launcher = &launcher };
	const char *why;
	uv_loop_t loop;
	struct err e;

	uv_loop_init(&loop);
	struct boundary *b = vm_boundary_new(&loop, &o, &e);
	assert_non_null(b);
	const char *how = b->ops->accelerator(b, &why);
	auto_free char *said = xasprintf("%s%s%s", how, why ? ": " : "", why ? why : "");
	assert_string_equal(said, text);
	b->ops->free(b);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void kvm_is_not_claimed_before_it_was_tried(void **state)
{
	(void)state;
	char data[] = "/tmp/caisson-vm-XXXXXX";

	assert_non_null(mkdtemp(data));
	says("kvm: not tried yet", data, true, false, NULL);
	says("kvm", data, true, true, NULL); /* who asked for nothing else gets nothing else */
	says("emulated: there is none", data, false, false, "there is none");
	vm_data_remove(data);
	assert_int_equal(rmdir(data), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(kvm_is_not_claimed_before_it_was_tried) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
