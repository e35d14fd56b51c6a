#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/spool.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
	char dir[64];
	int fd;
	struct spool s;
};

static int place_make(void **state)
{
	struct place *p = xcalloc(1, sizeof *p);
	snprintf(p->dir, sizeof p->dir, "/tmp/caisson-test-spool-XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	p->fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	spool_init(&p->s, p->fd, "out", UINT64_MAX);
	*state = p;
	return p->fd < 0 ? -1 : 0;
}

static int place_remove(void **state)
{
	struct place *p = *state;
	spool_remove(&p->s);
	spool_done(&p->s);
	p->fd = close_fd(p->fd);
	int r = rmdir(p->dir); /* fails when a spool left something behind */
	free(p);
	return r;
}

/* The byte at an offset: a period that is no power of two, so that a shift of pages shows. */
static char byte_at(uint64_t offset)
{
	return (char)(offset % 251);
}

static int append(struct spool *s, size_t n)
{
	char *bytes = xmalloc(n);
	for (size_t i = 0; i < n; i++)
		bytes[i] = byte_at(spool_total(s) + i);
	int r = spool_append(s, (struct str){ bytes, n });
	free(bytes);
	return r;
}

static void holds(struct spool *s, uint64_t offset, size_t max, size_t expected)
{
	struct buf b;
	buf_init(&b, max + 4);
	buf_addz(&b, "pre"); /* reading appends */
	assert_int_equal(spool_read(s, offset, max, &b), expected);
	assert_int_equal(b.len, expected + 3);
	for (size_t i = 0; i < expected; i++)
		if (b.data[3 + i] != byte_at(offset + i))
			fail_msg("byte %llu is wrong", (unsigned long long)(offset + i));
	buf_done(&b);
}

static off_t file_size(const struct place *p)
{
	struct stat st;
	return fstatat(p->fd, "out", &st, AT_SYMLINK_NOFOLLOW) < 0 ? -1 : st.st_size;
}

static void stays_in_memory(void **state)
{
	struct place *p = *state;
	struct spool *s = &p->s;
	assert_non_null(spool_memory(s).p);
	assert_int_equal(spool_memory(s).n, 0);
	holds(s, 0, 10, 0);
	assert_int_equal(spool_flush(s), 0);
	assert_int_equal(file_size(p), -1); /* nothing to keep, no file */
	assert_int_equal(append(s, 100), 0);
	assert_int_equal(append(s, 0), 0);
	assert_int_equal(append(s, SPOOL_MEMORY - 100), 0);
	assert_int_equal(spool_total(s), SPOOL_MEMORY);
	assert_int_equal(spool_kept(s), SPOOL_MEMORY);
	assert_int_equal(spool_memory(s).n, SPOOL_MEMORY);
	assert_int_equal(file_size(p), -1);
	holds(s, 0, SPOOL_MEMORY * 2, SPOOL_MEMORY);
	holds(s, 50, 100, 100);
	holds(s, SPOOL_MEMORY - 1, 100, 1);
	holds(s, SPOOL_MEMORY, 100, 0);
	holds(s, UINT64_MAX, 100, 0);
	holds(s, 0, 0, 0);
	struct buf small;
	buf_init(&small, 10);
	assert_int_equal(spool_read(s, 0, 11, &small), -ENOBUFS);
	buf_done(&small);
}

static void moves_to_a_file(void **state)
{
	struct place *p = *state;
	struct spool *s = &p->s;
	struct stat st;
	mode_t old = umask(0);
	assert_int_equal(append(s, SPOOL_MEMORY), 0);
	assert_int_equal(append(s, 1), 0);
	umask(old);
	assert_null(spool_memory(s).p);
	assert_int_equal(fstatat(p->fd, "out", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, SPOOL_MEMORY + 1);
	assert_true(fcntl(s->fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(append(s, 3 << 20), 0);
	assert_int_equal(spool_kept(s), SPOOL_MEMORY + 1 + (3 << 20));
	holds(s, 0, 4 << 20, SPOOL_MEMORY + 1 + (3 << 20));
	holds(s, SPOOL_MEMORY - 7, 14, 14);
	spool_remove(s);
	assert_int_equal(file_size(p), -1);
	assert_int_equal(spool_total(s), 0);
	assert_int_equal(append(s, 5), 0); /* may be used again */
	holds(s, 0, 10, 5);
}

static void one_big_append(void **state)
{
	struct place *p = *state;
	assert_int_equal(append(&p->s, 1 << 20), 0);
	assert_null(spool_memory(&p->s).p);
	holds(&p->s, 0, 2 << 20, 1 << 20);
}

static void drops_beyond_max(void **state)
{
	struct place *p = *state;
	struct spool s;
	spool_init(&s, p->fd, "out", 10);
	assert_int_equal(append(&s, 7), 0);
	assert_int_equal(append(&s, 7), 0);
	assert_int_equal(append(&s, 7), 0);
	assert_int_equal(spool_total(&s), 21);
	assert_int_equal(spool_kept(&s), 10);
	holds(&s, 0, 100, 10);
	assert_int_equal(spool_flush(&s), 0);
	assert_int_equal(file_size(p), 10);
	assert_int_equal(append(&s, 7), 0);
	assert_int_equal(file_size(p), 10);
	assert_int_equal(spool_total(&s), 28);
	spool_remove(&s);
	spool_done(&s);

	spool_init(&s, p->fd, "out", SPOOL_MEMORY + 5);
	assert_int_equal(append(&s, SPOOL_MEMORY + 9), 0);
	assert_int_equal(spool_kept(&s), SPOOL_MEMORY + 5);
	assert_int_equal(file_size(p), SPOOL_MEMORY + 5);
	spool_remove(&s);
	spool_done(&s);

	spool_init(&s, p->fd, "out", 0);
	assert_int_equal(append(&s, 3), 0);
	assert_int_equal(spool_kept(&s), 0);
	assert_int_equal(spool_total(&s), 3);
	spool_done(&s);
}

static void skips(void **state)
{
	struct place *p = *state;
	struct spool *s = &p->s;
	assert_int_equal(append(s, 10), 0);
	spool_skip(s, 5); /* behind: nothing */
	assert_int_equal(spool_total(s), 10);
	assert_int_equal(append(s, 10), 0);
	spool_skip(s, 30);
	assert_int_equal(append(s, 10), 0);
	assert_int_equal(spool_total(s), 40);
	assert_int_equal(spool_kept(s), 20); /* no byte after a hole: offsets would lie */
	holds(s, 0, 100, 20);
}

/* One that goes on where another one is, with the last part of what that has. */
static void begins_later(void **state)
{
	struct place *p = *state;
	struct spool *s = &p->s;
	assert_int_equal(spool_begin(s, 3 * SPOOL_STEP), 0);
	assert_int_equal(spool_total(s), 3 * SPOOL_STEP);
	assert_int_equal(append(s, 100), 0);
	assert_int_equal(spool_kept(s), 3 * SPOOL_STEP + 100);
	assert_int_equal(spool_forgotten(s), 3 * SPOOL_STEP);
	holds(s, 3 * SPOOL_STEP, 200, 100);
	spool_done(s); /* and whoever comes next finds it so */
	spool_init(s, p->fd, "out", UINT64_MAX);
	assert_int_equal(spool_load(s), 0);
	assert_int_equal(spool_forgotten(s), 3 * SPOOL_STEP);
	assert_int_equal(append(s, SPOOL_MEMORY), 0);
	holds(s, 3 * SPOOL_STEP, SPOOL_MEMORY, SPOOL_MEMORY);
}

static void begins_where_nothing_can_be_kept(void **state)
{
	struct place *p = *state;
	struct spool s;
	spool_init(&s, p->fd, "no-such-folder/out", UINT64_MAX);
	assert_int_equal(spool_begin(&s, SPOOL_STEP), -ENOENT);
	assert_int_equal(spool_append(&s, str_of("more")), 0);
	assert_int_equal(spool_total(&s), SPOOL_STEP + 4);
	assert_int_equal(spool_kept(&s), 0);
	spool_done(&s);
}

static void survives(void **state)
{
	struct place *p = *state;
	struct spool *s = &p->s;
	assert_int_equal(spool_load(s), 0); /* there is none yet */
	assert_int_equal(append(s, 1000), 0);
	assert_int_equal(spool_flush(s), 0);
	assert_int_equal(spool_flush(s), 0);
	assert_null(spool_memory(s).p);
	assert_int_equal(append(s, 10), 0);
	assert_int_equal(file_size(p), 1010); /* after a flush all goes straight to the file */
	spool_done(s);
	spool_done(s);

	spool_init(s, p->fd, "out", UINT64_MAX);
	assert_int_equal(spool_load(s), 0);
	assert_int_equal(spool_total(s), 1010);
	assert_int_equal(spool_kept(s), 1010);
	assert_null(spool_memory(s).p);
	holds(s, 990, 100, 20);
	assert_int_equal(append(s, 90), 0);
	holds(s, 0, 2000, 1100);
	spool_done(s);

	spool_init(s, p->fd, "out", 500); /* a file longer than its bound shows no more than that */
	assert_int_equal(spool_load(s), 0);
	assert_int_equal(spool_kept(s), 500);
	holds(s, 0, 2000, 500);
	spool_done(s);

	spool_init(s, p->fd, "out", UINT64_MAX); /* never loaded, yet removed */
	spool_remove(s);
	assert_int_equal(file_size(p), -1);
}

static void forgets(void **state)
{
	struct place *p = *state;
	struct spool *s = &p->s;
	struct stat st;
	assert_int_equal(append(s, 200000), 0);
	assert_int_equal(spool_forget(s, 150000), 0);
	holds(s, 150000, 100000, 50000);
	assert_int_equal(append(s, 1000000), 0);
	assert_int_equal(spool_forget(s, 1150000), 0);
	assert_int_equal(spool_forget(s, 10), 0); /* long gone */
	holds(s, 1150000, 100000, 50000);
	assert_int_equal(file_size(p), 1200000); /* offsets stay what they are, the space is free */
	assert_int_equal(fstatat(p->fd, "out", &st, 0), 0);
	assert_true((uint64_t)st.st_blocks * 512 < 200000);
	assert_int_equal(spool_forget(s, 99999999), 0);
	assert_int_equal(spool_total(s), 1200000);
	spool_done(s);

	spool_init(s, p->fd, "out", UINT64_MAX);
	assert_int_equal(spool_load(s), 0);
	assert_int_equal(spool_total(s), 1200000);
	assert_int_equal(append(s, 10), 0);
	holds(s, 1200000, 100, 10);
	spool_remove(s);
}

static void follows_no_link(void **state)
{
	struct place *p = *state;
	struct spool *s = &p->s;
	assert_int_equal(symlinkat("/dev/null", p->fd, "out"), 0);
	assert_int_equal(spool_load(s), -ELOOP);
	assert_int_equal(append(s, 10), 0);
	assert_int_equal(spool_flush(s), -ELOOP);
	holds(s, 0, 100, 10); /* still there, in memory */
	assert_int_equal(unlinkat(p->fd, "out", 0), 0);
	assert_int_equal(mkfifoat(p->fd, "out", 0600), 0);
	spool_done(s);
	spool_init(s, p->fd, "out", 100);
	assert_int_equal(spool_load(s), -EINVAL); /* and does not wait for a writer */
}

static void no_folder(void **state)
{
	struct place *p = *state;
	struct spool s;
	spool_init(&s, p->fd, "missing/out", UINT64_MAX);
	assert_int_equal(spool_load(&s), 0);
	assert_int_equal(append(&s, SPOOL_MEMORY - 10), 0);
	assert_int_equal(spool_flush(&s), -ENOENT);
	assert_int_equal(spool_kept(&s), SPOOL_MEMORY - 10);
	assert_int_equal(append(&s, 20), -ENOENT);
	assert_int_equal(spool_kept(&s), SPOOL_MEMORY); /* as much as memory takes */
	assert_int_equal(append(&s, 20), 0);            /* was reported; now it is truncated */
	assert_int_equal(spool_kept(&s), SPOOL_MEMORY);
	assert_int_equal(spool_total(&s), SPOOL_MEMORY + 30);
	holds(&s, 0, SPOOL_MEMORY + 100, SPOOL_MEMORY);
	spool_remove(&s);
	spool_done(&s);
}

/* A disk that is full, by a limit on the size of files. */
static void a_full_disk_is_reported(void **state)
{
	struct place *p = *state;
	struct spool *s = &p->s, other;
	struct rlimit old, little;
	fflush(NULL);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	little = (struct rlimit){ 300000, old.rlim_max };
	spool_init(&other, p->fd, "other", UINT64_MAX);
	assert_int_equal(append(&other, 200000), 0);
	assert_int_equal(append(s, SPOOL_MEMORY), 0);

	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	int grow = append(s, 100000), again = append(s, 1);
	little.rlim_cur = 1000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	int flush = spool_flush(&other);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);

	assert_int_equal(grow, -EFBIG);
	assert_int_equal(again, 0);
	assert_int_equal(spool_kept(s), 300000); /* what did fit is kept */
	assert_int_equal(spool_total(s), SPOOL_MEMORY + 100001);
	holds(s, 0, 1 << 20, 300000);
	assert_int_equal(file_size(p), 300000);

	assert_int_equal(flush, -EFBIG);
	assert_int_equal(spool_memory(&other).n, 200000); /* a failed flush loses nothing */
	assert_int_equal(faccessat(p->fd, "other", F_OK, 0), -1);
	assert_int_equal(spool_flush(&other), 0);
	holds(&other, 0, 1 << 20, 200000);
	spool_remove(&other);
	spool_done(&other);
}

static void a_cut_file_is_reported(void **state)
{
	struct place *p = *state;
	struct spool *s = &p->s;
	struct buf b;
	assert_int_equal(append(s, 1 << 20), 0);
	assert_int_equal(ftruncate(s->fd, 1000), 0);
	buf_init(&b, 1 << 20);
	assert_int_equal(spool_read(s, 0, 2000, &b), -EIO);
	assert_int_equal(b.len, 0);
	buf_done(&b);
	holds(s, 0, 1000, 1000);
}

#define PLACED(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLACED(stays_in_memory),
		PLACED(moves_to_a_file),
		PLACED(one_big_append),
		PLACED(drops_beyond_max),
		PLACED(skips),
		PLACED(begins_later),
		PLACED(begins_where_nothing_can_be_kept),
		PLACED(survives),
		PLACED(forgets),
		PLACED(follows_no_link),
		PLACED(no_folder),
		PLACED(a_full_disk_is_reported),
		PLACED(a_cut_file_is_reported),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
