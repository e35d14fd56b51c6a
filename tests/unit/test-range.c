#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sys/fs.h"
#include "warden/range.h"
#include "warden/record.h"

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

static void count(void *ctx, const struct record *r)
{
	assert_string_equal(r->id, "00000000-0000-4000-8000-000000000001");
	assert_int_equal(r->pid, 4711);
	(*(int *)ctx)++;
}

static void records_are_whole_or_not_there(void **state)
{
	(void)state;
	int n = 0, dir = open(state_b, O_RDONLY | O_DIRECTORY);
	struct record r = { .magic = RECORD_MAGIC, .size = sizeof r, .pid = 4711, .id = "00000000-0000-4000-8000-000000000001" };

	assert_int_equal(record_write(dir, &r), 0);
	assert_int_equal(fs_replace_at(dir, "00000000-0000-4000-8000-000000000002", &r, sizeof r, 0600), 0);	 /* not its own name */
	assert_int_equal(fs_replace_at(dir, "00000000-0000-4000-8000-000000000003", &r, sizeof r - 1, 0600), 0); /* cut */
	assert_int_equal(fs_replace_at(dir, "00000000-0000-4000-8000-000000000001.new", "half", 4, 0600), 0);
	assert_int_equal(symlinkat("00000000-0000-4000-8000-000000000001", dir, "00000000-0000-4000-8000-000000000004"), 0);
	assert_int_equal(record_each(dir, count, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(faccessat(dir, "00000000-0000-4000-8000-000000000001.new", F_OK, 0), -1);
	record_remove(dir, r.id);
	n = 0;
	assert_int_equal(record_each(dir, count, &n), 0);
	assert_int_equal(n, 0);
	close(dir);
}

static void ids(void **state)
{
	(void)state;
	static const char *const bad[] = { "",
					   "../../../../../../etc/passwd0000000000",
					   "00000000-0000-4000-8000-00000000000",
					   "0000000g-0000-4000-8000-000000000001",
					   "00000000-0000-4000-8000-0000000000011",
					   "-0000000-0000-4000-8000-000000000001",
					   "00000000/0000-4000-8000-000000000001" };
	char id[40] = "00000000-0000-4000-8000-00000000000f";

	assert_true(record_id_valid(id));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		memset(id, 0, sizeof id);
		strncpy(id, bad[i], sizeof id - 1);
		assert_false(record_id_valid(id));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_owners_never_share),
		cmocka_unit_test(sandboxes_left_behind_keep_their_block),
		cmocka_unit_test(records_are_whole_or_not_there),
		cmocka_unit_test(ids),
	};
	return cmocka_run_group_tests(tests, make, unmake);
}
