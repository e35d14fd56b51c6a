#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sys/fs.h"
#include "warden/record.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static char base[] = "/tmp/caisson-test-record-XXXXXX";
static int state_fd;

static int make(void **state)
{
	(void)state;
	if (!mkdtemp(base))
		return -1;
	state_fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return state_fd < 0 ? -1 : 0;
}

static int unmake(void **state)
{
	(void)state;
	close(state_fd);
	return fs_remove_tree_at(AT_FDCWD, base);
}

static struct record sample(const char *id, size_t size)
{
	struct record r = { .magic = RECORD_MAGIC, .size = (uint32_t)size, .pid = 42, .cpu_millis = 1500 };
	snprintf(r.id, sizeof r.id, "%s", id);
	return r;
}

static const char *const ids[] = { "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002" };

/* What this version writes, and every earlier version's length. */
static void all_lengths_since_the_first_are_read(void **state)
{
	(void)state;
	assert_true(sizeof(struct record) >= RECORD_SIZE_FIRST);
	for (size_t n = RECORD_SIZE_FIRST; n <= sizeof(struct record); n += 4) {
		struct record r = sample(ids[0], n), got;
		unsigned char bytes[sizeof r];
		memcpy(bytes, &r, n);
		assert_int_equal(record_parse(bytes, n, &got), 0);
		assert_int_equal(got.pid, 42);
		assert_int_equal(got.cpu_millis, 1500); /* the last field of the first version */
		assert_int_equal(got.size, sizeof got);
		for (size_t i = n; i < sizeof got; i++)
			assert_int_equal(((unsigned char *)&got)[i], 0);
	}
}

static void a_longer_one_is_read_if_it_says_no_more(void **state)
{
	(void)state;
	unsigned char bytes[sizeof(struct record) + 16] = { 0 };
	struct record r = sample(ids[0], sizeof bytes), got = { .pid = 7 };

	memcpy(bytes, &r, sizeof r);
	assert_int_equal(record_parse(bytes, sizeof bytes, &got), 0);
	assert_int_equal(got.pid, 42);
	assert_int_equal(got.size, sizeof got);
	got.pid = 7;
	bytes[sizeof bytes - 1] = 1;
	assert_int_equal(record_parse(bytes, sizeof bytes, &got), -E2BIG);
	assert_int_equal(got.pid, 7);
}

static void what_is_no_record(void **state)
{
	(void)state;
	struct record r = sample(ids[0], sizeof r), got;

	assert_int_equal(record_parse(&r, RECORD_SIZE_FIRST - 1, &got), -EINVAL);
	assert_int_equal(record_parse(&r, sizeof r - 1, &got), -EINVAL); /* cut short: its size says so */
	r.magic++;
	assert_int_equal(record_parse(&r, sizeof r, &got), -EINVAL);
	r = sample("../../etc/passwd", sizeof r);
	assert_int_equal(record_parse(&r, sizeof r, &got), -EINVAL);
}

static void count(void *ctx, const struct record *r)
{
	(void)r;
	++*(int *)ctx;
}

static void records_are_whole_or_not_there(void **state)
{
	(void)state;
	int n = 0;
	struct err e;
	struct record r = { .magic = RECORD_MAGIC, .size = sizeof r, .pid = 4711, .id = "00000000-0000-4000-8000-000000000001" };

	assert_int_equal(record_write(state_fd, &r), 0);
	assert_int_equal(fs_replace_at(state_fd, "00000000-0000-4000-8000-000000000002", &r, sizeof r, 0600), 0);     /* not its own name */
	assert_int_equal(fs_replace_at(state_fd, "00000000-0000-4000-8000-000000000003", &r, sizeof r - 1, 0600), 0); /* cut */
	assert_int_equal(fs_replace_at(state_fd, "00000000-0000-4000-8000-000000000001.new", "half", 4, 0600), 0);
	assert_int_equal(symlinkat("00000000-0000-4000-8000-000000000001", state_fd, "00000000-0000-4000-8000-000000000004"), 0);
	assert_int_equal(record_each(state_fd, count, &n, &e), 0);
	assert_int_equal(n, 1);
	assert_int_equal(faccessat(state_fd, "00000000-0000-4000-8000-000000000001.new", F_OK, 0), -1);
	record_remove(state_fd, r.id);
	n = 0;
	assert_int_equal(record_each(state_fd, count, &n, &e), 0);
	assert_int_equal(n, 0);
}

static void only_ids_are_names(void **state)
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

static void a_later_version_stops_it_all(void **state)
{
	(void)state;
	struct record r = sample(ids[0], sizeof r);
	unsigned char later[sizeof r + 8];
	struct err e = { 0 };
	int seen = 0;

	assert_int_equal(record_write(state_fd, &r), 0);
	assert_int_equal(record_each(state_fd, count, &seen, &e), 0);
	assert_int_equal(seen, 1);
	r = sample(ids[1], sizeof later);
	memset(later, 1, sizeof later);
	memcpy(later, &r, sizeof r);
	assert_int_equal(fs_replace_at(state_fd, ids[1], later, sizeof later, 0600), 0);
	assert_int_equal(record_each(state_fd, count, &seen, &e), -E2BIG);
	assert_int_equal(seen, 1);
	assert_int_equal(e.kind, ERR_CONFLICT);
	assert_non_null(strstr(e.message, ids[1]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_lengths_since_the_first_are_read),
		cmocka_unit_test(a_longer_one_is_read_if_it_says_no_more),
		cmocka_unit_test(what_is_no_record),
		cmocka_unit_test(records_are_whole_or_not_there),
		cmocka_unit_test(only_ids_are_names),
		cmocka_unit_test(a_later_version_stops_it_all),
	};
	return cmocka_run_group_tests(tests, make, unmake);
}
