/* What a process has of its own of a file: from a process that is as it should be, and from the words of one that is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sys/pages.h"
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 1000 };

static const struct stat file = { .st_dev = 1 /* 00:01 */, .st_ino = 77, .st_size = 0x10000 };

static void lines(void **state)
{
	(void)state;
	static const struct {
		const char *line;
		int result;
	} cases[] = {
		{ "7f0000000000-7f0000010000 rw-p 00000000 00:01 77    /memfd:ram (deleted)\n", 1 },
		{ "7f0000000000-7f0000001000 r--p 0000f000 00:01 77    /memfd:ram (deleted)\n", 1 },
		{ "7f0000000000-7f0000010000 ---p 00000000 00:01 77", 1 },
		{ "7f0000000000-7f0000010000 rw-s 00000000 00:01 77    /memfd:ram (deleted)\n", 0 },
		{ "7f0000000000-7f0000010000 rw-p 00000000 00:01 78    /memfd:ram (deleted)\n", 0 },
		{ "7f0000000000-7f0000010000 rw-p 00000000 00:02 77    /memfd:ram (deleted)\n", 0 },
		{ "7f0000000000-7f0000010000 rw-p 00000000 00:00 0     [anon: 7f0-7f1 rw-p 0 00:01 77]\n", 0 },
		{ "7f0000000000-7f0000011000 rw-p 00000000 00:01 77    more than it has\n", -EBADMSG },
		{ "7f0000000000-7f0000010000 rw-p 00001000 00:01 77    past its end\n", -EBADMSG },
		{ "7f0000000000-7f0000001000 rw-p fffffffffffff000 00:01 77    around\n", -EBADMSG },
		{ "7f0000000000-7f0000000000 rw-p 00000000 00:01 77    empty\n", -EBADMSG },
		{ "7f0000010000-7f0000000000 rw-p 00000000 00:01 77    backwards\n", -EBADMSG },
		{ "7f0000000001-7f0000001001 rw-p 00000000 00:01 77    no pages\n", -EBADMSG },
		{ "7f0000000000-7f0000001000 rw-p 00000800 00:01 77    not at one\n", -EBADMSG },
		{ "", -EBADMSG },
		{ "7f0000000000", -EBADMSG },
		{ "7f0000000000-7f0000010000 rw-p\n", -EBADMSG },
		{ "7f0000000000-7f0000010000 rw-pp0 00000000 00:01 77\n", -EBADMSG },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct pages_range r = { 0 };
		if (pages_line(cases[i].line, &file, &r) != cases[i].result)
			fail_msg("line %zu: %s", i, cases[i].line);
	}
	struct pages_range r = { 0 };
	assert_int_equal(pages_line(cases[1].line, &file, &r), 1);
	assert_true(r.start == 0x7f0000000000 && r.size == PAGE && r.offset == 0xf000);
}

static int ranges(const char *text, struct pages_range ret[static PAGES_RANGES])
{
	FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");

	assert_non_null(f);
	int n = pages_ranges(f, &file, ret);
	(void)fclose(f);
	return n;
}

/* However it lays its memory out: no more is read than there is, and only so often. */
static void layouts(void **state)
{
	(void)state;
	struct pages_range r[PAGES_RANGES];
	char text[200 * (PAGES_RANGES + 1)];
	size_t n = 0;

	assert_int_equal(ranges("55d0-55d1 r-xp 0 08:01 5 /bin/x\n7f0000000000-7f0000008000 rw-p 0 00:01 77 a\n7f0000008000-7f0000010000 rw-p 8000 00:01 77 a\n", r), 2);
	assert_true(r[0].offset == 0 && r[1].offset == 0x8000 && r[1].start == 0x7f0000008000);
	assert_int_equal(ranges("1000-2000 rw-p 0 00:00 0\n", r), 0);
	assert_int_equal(ranges("7f0000000000-7f0000010000 rw-p 0 00:01 77 a\n7f1000000000-7f1000001000 rw-p 0 00:01 77 twice\n", r), -E2BIG);
	assert_int_equal(ranges("7f0000000000-7f0000010000 rw-p 1000 00:01 77 a\n1000-2000 rw-p 0 00:01 77\n", r), -EBADMSG);
	for (int i = 0; i <= PAGES_RANGES; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "7f00000%02x000-7f00000%02x000 rw-p 0 00:01 77 one of many\n", i, i + 1);
	struct stat large = file;
	large.st_size = 1 << 30;
	FILE *f = fmemopen(text, n, "r");
	assert_non_null(f);
	assert_int_equal(pages_ranges(f, &large, r), -E2BIG);
	(void)fclose(f);
}

static void entries(void **state)
{
	(void)state;
	const uint64_t present = UINT64_C(1) << 63, swapped = UINT64_C(1) << 62, of_a_file = UINT64_C(1) << 61;

	assert_true(pages_own(present) && pages_own(swapped) && pages_own(present | UINT64_C(1) << 55 | 12345));
	assert_false(pages_own(0) || pages_own(of_a_file) || pages_own(present | of_a_file));
}

struct other {
	pid_t pid;
	int pidfd, base;
};

/* It has written to every third page of what it maps, has read the rest, and stands still. In two mappings. */
static _Noreturn void be_other(int base, int ready)
{
	char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, base, 0);
	volatile char sum = 0;

	if (p == MAP_FAILED || madvise(p + 500 * PAGE, 500 * PAGE, MADV_RANDOM) < 0)
		_exit(1);
	for (int i = 0; i < PAGES; i++) {
		if (i % 3 == 0)
			memset(p + i * PAGE, 'n', PAGE);
		sum = (char)(sum + p[i * PAGE]);
	}
	(void)!write(ready, "", 1);
	for (;;)
		pause();
}

static struct other other_new(void)
{
	struct other o = { .base = memfd_create("base", MFD_CLOEXEC) };
	int pair[2];
	char c, page[PAGE];

	memset(page, 'o', sizeof page);
	assert_true(o.base >= 0 && pipe(pair) == 0);
	for (int i = 0; i < PAGES; i++)
		assert_int_equal(pwrite(o.base, page, PAGE, (off_t)i * PAGE), PAGE);
	o.pid = fork();
	assert_true(o.pid >= 0);
	if (o.pid == 0)
		be_other(o.base, pair[1]);
	o.pidfd = process_pidfd(o.pid);
	close(pair[1]);
	assert_int_equal(read(pair[0], &c, 1), 1);
	close(pair[0]);
	return o;
}

static void other_end(struct other *o)
{
	(void)process_signal(o->pidfd, SIGKILL);
	(void)waitpid(o->pid, NULL, 0);
	close(o->pidfd);
	close(o->base);
}

static void of_another_process(void **state)
{
	(void)state;
	struct other o = other_new();
	auto_fd int to = memfd_create("to", MFD_CLOEXEC), none = memfd_create("none", MFD_CLOEXEC);
	char page[PAGE];
	uint64_t bytes = 0;

	assert_int_equal(ftruncate(to, PAGES * PAGE), 0);
	assert_int_equal(ftruncate(none, PAGES * PAGE), 0);
	assert_int_equal(pages_copy(o.pid, o.pidfd, o.base, to, &bytes), 0);
	assert_int_equal(bytes, (PAGES + 2) / 3 * PAGE);
	for (int i = 0; i < PAGES; i++) {
		assert_int_equal(pread(to, page, PAGE, (off_t)i * PAGE), PAGE);
		assert_int_equal(page[0], i % 3 == 0 ? 'n' : 0);
		assert_int_equal(page[PAGE - 1], i % 3 == 0 ? 'n' : 0);
	}
	assert_int_equal(pages_copy(o.pid, o.pidfd, none, to, &bytes), -ENOENT);
	other_end(&o);
}

/* Its number may be somebody else's by now. */
static void of_one_that_has_ended(void **state)
{
	(void)state;
	struct other gone = other_new(), o = other_new();
	auto_fd int to = memfd_create("to", MFD_CLOEXEC);
	uint64_t bytes = 0;
	int pidfd = fcntl(gone.pidfd, F_DUPFD_CLOEXEC, 3);

	assert_int_equal(ftruncate(to, PAGES * PAGE), 0);
	other_end(&gone);
	assert_int_equal(pages_copy(o.pid, pidfd, o.base, to, &bytes), -ESRCH);
	assert_int_equal(bytes, 0);
	close(pidfd);
	other_end(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines),
		cmocka_unit_test(layouts),
		cmocka_unit_test(entries),
		cmocka_unit_test(of_another_process),
		cmocka_unit_test(of_one_that_has_ended),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
