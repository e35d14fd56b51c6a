#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sys/fs.h"
#include "warden/range.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[] = "/tmp/caisson-test-range-XXXXXX";
static char folder[80], state_a[80], state_b[80];

static int make(void **state)
{
	(void)state;
	if (!mkdtemp(base))
		return -1;
	snprintf(folder, sizeof folder, "%s/ranges", base);
	snprintf(state_a, sizeof state_a, "%s/a", base);
	snprintf(state_b, sizeof state_b, "%s/b", base);
	return mkdir(state_a, 0700) < 0 || mkdir(state_b, 0700) < 0 ? -1 : 0;
}

static int unmake(void **state)
{
	(void)state;
	return fs_remove_tree_at(AT_FDCWD, base);
}

static void two_owners_never_share(void **state)
{
	(void)state;
	static unsigned char seen[RANGE_SLOTS];
	struct ranges a, b;
	struct err e;
	uint32_t slot;
	size_t got = 0;

	assert_int_equal(ranges_open(&a, folder, state_a, &e), 0);
	assert_int_equal(ranges_open(&b, folder, state_b, &e), 0);
	while (range_take(got % 2 ? &a : &b, &slot, &e) == 0) {
		assert_true(slot < RANGE_SLOTS);
		assert_int_equal(seen[slot]++, 0);
		got++;
	}
	assert_int_equal(e.kind, ERR_LIMIT);
	assert_true(got >= RANGE_SLOTS - RANGE_BLOCK);
	assert_true(range_uid(RANGE_SLOTS - 1) + (RANGE_SIZE - 1) == 0x7fffffffu);
	ranges_close(&a, true);
	ranges_close(&b, true);
}

static void sandboxes_left_behind_keep_their_block(void **state)
{
	(void)state;
	struct ranges a, b;
	struct err e;
	uint32_t slot, other;
	char left[120];

	assert_int_equal(ranges_open(&a, folder, state_a, &e), 0);
	assert_int_equal(range_take(&a, &slot, &e), 0);
	snprintf(left, sizeof left, "%s/record", state_a);
	int fd = open(left, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	ranges_close(&a, false); /* the owner dies and leaves a sandbox */

	assert_int_equal(ranges_open(&b, folder, state_b, &e), 0);
	assert_int_equal(range_take(&b, &other, &e), 0);
	assert_int_not_equal(other / RANGE_BLOCK, slot / RANGE_BLOCK);

	assert_int_equal(ranges_open(&a, folder, state_a, &e), 0); /* and comes back */
	assert_int_equal(range_take_slot(&a, slot), 0);
	assert_int_equal(range_take_slot(&a, slot), -EBUSY);
	assert_int_equal(range_take_slot(&a, other), -EBUSY);
	assert_int_equal(range_take_slot(&a, RANGE_SLOTS), -EBUSY);
	ranges_close(&a, false);

	/* gone without a trace: the block is free, though its file still names the owner */
	assert_int_equal(unlink(left), 0);
	bool found = false;
	for (unsigned n = 0; n < RANGE_SLOTS && !found && range_take(&b, &other, &e) == 0; n++)
		found = other == slot;
	assert_true(found);
	ranges_close(&b, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_owners_never_share),
		cmocka_unit_test(sandboxes_left_behind_keep_their_block),
	};
	return cmocka_run_group_tests(tests, make, unmake);
}
