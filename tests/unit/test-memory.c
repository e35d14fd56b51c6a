/* A fork's memory and devices, as its children get them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "boundary/vm/memory.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 2 << 20 >> 12 };
#define DEVICES "QEVM\0\0\0\3\4\0\0\0\0\5timer...\0"
#define HEAD "QEVM\0\0\0\3\7\0\0\0\7microvm\5\x1a" "configuration/capabilities\0\0\0\1\0\0\0\1\x0f" "x-ignore-shared"
#define RAM "\1Cais\3ram\0\0\0\0\0\0\0\4\0\0\0\0\0\x20\0\4\3mem\0\0\0\0\0\x20\0\0\0\0\0\0\0\0\0\0" /* of 2 MiB */
#define RAM_END "\0\0\0\0\0\0\0\x10\x7e" "Cais"
#define TAIL "\4\0\0\0\0\5timer...\0\6\0\0\0\2{}"

static int devices_of(const char *bytes, size_t n)
{
	int fd = memfd_create("devices", MFD_CLOEXEC);

	assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
	return fd;
}

static void put(int fd, int page, char c)
{
	char block[PAGE];

	memset(block, c, sizeof block);
	assert_int_equal(pwrite(fd, block, PAGE, (off_t)page * PAGE), PAGE);
}

static bool same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static void assert_sealed(int fd)
{
	char c = 'x';

	assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_true(pwrite(fd, &c, 1, 0) < 0 && errno == EPERM);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), -1);
}

/* The next so many bytes of it must be these. */
static void expect(int fd, const void *want, size_t n)
{
	auto_free char *got = xmalloc(n);

	assert_int_equal(read(fd, got, n), n);
	assert_memory_equal(got, want, n);
}

static void expect_end(int fd)
{
	char c;

	assert_int_equal(read(fd, &c, 1), 0);
}

/* `pages`: what each page of it is, 0 where nobody has written. The state from its first byte. */
static void expect_pages(int state, const char pages[static PAGES])
{
	bool first = true;

	expect(state, RAM, sizeof RAM - 1);
	for (int i = 0; i < PAGES; i++) {
		if (!pages[i])
			continue;
		char page[PAGE];
		uint64_t head = htobe64((uint64_t)i * PAGE | 8 | (first ? 0 : 0x20));
		memset(page, pages[i] == 'z' ? '\0' : pages[i], sizeof page);
		expect(state, &head, sizeof head);
		if (first)
			expect(state, "\3mem", 4);
		expect(state, page, sizeof page);
		first = false;
	}
	expect(state, RAM_END, sizeof RAM_END - 1);
}

static void few_pages_are_in_the_state(void **state)
{
	(void)state;
	auto_fd int base = memory_new_file(2), devices = devices_of(DEVICES, sizeof DEVICES - 1);
	struct memory_files f;

	put(base, 7, 'b');
	for (int many = 0; many < 2; many++) { /* none; more than are written at once */
		auto_fd int changed = memory_new_file(2);
		char want[PAGES] = { 0 };
		for (int i = 5; many && i < PAGES; i++)
			if (i % 5)
				put(changed, i, (want[i] = i % 3 ? 'o' : 'z') == 'z' ? '\0' : 'o');
		assert_int_equal(memory_make(changed, base, devices, MEMORY_READ_IN_MAX, &f), 0);
		assert_true(same_file(f.ram, base) && f.ram != base);
		assert_sealed(f.state);
		assert_int_equal(lseek(f.state, 0, SEEK_SET), 0);
		expect(f.state, HEAD, sizeof HEAD - 1);
		expect_pages(f.state, want);
		expect(f.state, TAIL, sizeof TAIL - 1);
		expect_end(f.state);
		memory_files_close(&f);
	}
}

/* A page of its own stays, also one of zeros; what it has none of is the other's; what neither has stays a hole. */
static void many_pages_make_a_file(void **state)
{
	(void)state;
	auto_fd int base = memory_new_file(2), changed = memory_new_file(2), devices = devices_of(DEVICES, sizeof DEVICES - 1);
	char want[PAGES] = { 0 }, block[PAGE];
	struct memory_files f;
	struct stat st;

	for (int i = 0; i < PAGES; i++) {
		if (i % 5 == 0 || (i > 100 && i < 180))
			put(base, i, want[i] = 'b');
		if (i % 7 == 0 || i == PAGES - 1)
			put(changed, i, want[i] = i % 2 ? 'o' : '\0');
	}
	assert_int_equal(memory_make(changed, base, devices, PAGE, &f), 0);
	assert_true(same_file(f.ram, changed));
	for (int i = 0; i < PAGES; i++) {
		assert_int_equal(pread(f.ram, block, PAGE, (off_t)i * PAGE), PAGE);
		if (block[0] != want[i] || block[PAGE - 1] != want[i])
			fail_msg("page %d has %d, not %d", i, block[0], want[i]);
	}
	assert_int_equal(fstat(f.ram, &st), 0);
	assert_true(st.st_blocks * 512 < PAGES * PAGE);
	assert_sealed(f.ram);
	assert_sealed(f.state);
	assert_int_equal(lseek(f.state, 0, SEEK_SET), 0);
	expect(f.state, HEAD TAIL, sizeof HEAD TAIL - 1);
	expect_end(f.state);
	memory_files_close(&f);
}

/* What QEMU writes is the word of one that may have been taken over. */
static void other_things_are_none(void **state)
{
	(void)state;
	static const struct str bad[] = {
		{ "QEVM\0\0\0\3", 8 },
		{ "QEVM\0\0\0\3\7\0\0\0\7microvm\4\0", 18 },
		{ "QEVM\0\0\0\4\4\0\0\0\0\0", 14 },
		{ "qevm\0\0\0\3\4\0\0\0\0\0", 14 },
		{ "QEVM\0\0\0\3\4\0\0\0\0\1", 14 }, /* cut short */
	};
	auto_fd int base = memory_new_file(2), changed = memory_new_file(2);
	struct memory_files f = { -EBADF, -EBADF };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		auto_fd int fd = devices_of(bad[i].p, bad[i].n);
		assert_int_equal(memory_devices_begin(fd), i == ARRAY_LEN(bad) - 1 ? 0 : -EBADMSG);
		assert_int_equal(memory_make(changed, base, fd, MEMORY_READ_IN_MAX, &f), -EBADMSG);
	}
	auto_fd int fd = devices_of("", 0);
	assert_int_equal(memory_devices_begin(fd), -EBADMSG);
	assert_int_equal(memory_make(changed, base, fd, MEMORY_READ_IN_MAX, &f), -EFBIG);
	assert_int_equal(write(fd, DEVICES, sizeof DEVICES - 1), sizeof DEVICES - 1);
	assert_int_equal(ftruncate(fd, 1 << 30), 0);
	assert_int_equal(memory_make(changed, base, fd, MEMORY_READ_IN_MAX, &f), -EFBIG);
	assert_true(f.ram < 0 && f.state < 0);
	assert_int_equal(fcntl(changed, F_GET_SEALS), 0);
}

static void kept_by_name(void **state)
{
	(void)state;
	struct vm v = { 0 };
	struct memory_files a = { memory_new_file(1), memory_new_file(1) }, b = { memory_new_file(1), memory_new_file(1) }, was = a;

	memory_keep(&v, "a", &a);
	memory_keep(&v, "b", &b);
	assert_true(a.ram < 0 && b.state < 0);
	assert_true(memory_of(&v, "a")->ram == was.ram && memory_of(&v, "a")->state == was.state);
	assert_non_null(memory_of(&v, "b"));
	assert_null(memory_of(&v, "c"));
	memory_forget(&v, "c");
	memory_forget(&v, "a");
	assert_null(memory_of(&v, "a"));
	assert_true(fcntl(was.ram, F_GETFD) < 0 && fcntl(was.state, F_GETFD) < 0);
	memories_free(&v);
	assert_null(memory_of(&v, "b"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_pages_are_in_the_state),
		cmocka_unit_test(many_pages_make_a_file),
		cmocka_unit_test(other_things_are_none),
		cmocka_unit_test(kept_by_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
