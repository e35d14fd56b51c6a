/* The file of the store: what is refused, groups, a full disk, kill -9. The rows are in test-store-rows.c. */
#include "store-place.h"

#include "store/schema.h"


#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void refuses(const struct place *p, int errnum, const char *part)
{
	struct store *s = NULL;
	struct err e = { 0 };
	assert_int_equal(store_open(p->path, &s, &e), -errnum);
	assert_null(s);
	assert_int_equal(e.kind, ERR_UNAVAILABLE);
	if (!strstr(e.message, part) || !strstr(e.message, p->path))
		fail_msg("message is: %s", e.message);
}

/* --- the file --- */

static void makes_a_private_file(void **state)
{
	struct place *p = *state;
	struct stat st;
	mode_t old = umask(0);
	struct store *s = opened(p);
	umask(old);
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	auto_free char *wal = xasprintf("%s-wal", p->path);
	assert_int_equal(stat(wal, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	store_close(s);
	store_close(NULL);
	assert_int_equal(chmod(p->path, 0644), 0);
	s = opened(p);
	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	store_close(s);
}

static void refuses_what_is_not_ours(void **state)
{
	struct place *p = *state;
	struct place none = { .path = "/nonexistent-folder/x.db" };
	refuses(&none, ENOENT, "can't make");

	assert_int_equal(symlink("/dev/null", p->path), 0);
	refuses(p, EINVAL, "not a regular file");
	unlink(p->path);

	int fd = open(p->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(write(fd, "rubbish!", 8), 8);
	close(fd);
	refuses(p, EUCLEAN, "damaged or not a database");
	unlink(p->path);

	raw_sql(p, "CREATE TABLE other (x); INSERT INTO other VALUES (1)");
	refuses(p, EINVAL, "another program");
	unlink(p->path);
}

static void refuses_a_newer_schema(void **state)
{
	struct place *p = *state;
	store_close(opened(p));
	raw_sql(p, "PRAGMA user_version = 99");
	refuses(p, EPROTO, "schema 99, this version knows");
	auto_free char *current = xasprintf("PRAGMA user_version = %zu", store_migration_count);
	raw_sql(p, current); /* nothing was spoilt by the refusal */
	store_close(opened(p));
}

static void refuses_a_damaged_file(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	char id[16];
	for (int i = 0; i < 500; i++) {
		snprintf(id, sizeof id, "id%d", i);
		assert_int_equal(put_simple(s, id, id, NULL), 0);
	}
	store_close(s);
	struct stat st;
	assert_int_equal(stat(p->path, &st), 0);
	assert_true(st.st_size > 20 * 4096);
	char page[4096];
	memset(page, 0x5a, sizeof page);
	int fd = open(p->path, O_WRONLY | O_CLOEXEC);
	for (int i = 10; i < 20; i++)
		assert_int_equal(pwrite(fd, page, sizeof page, i * 4096), sizeof page);
	close(fd);
	refuses(p, EUCLEAN, "damaged");
	assert_int_equal(truncate(p->path, 3 * 4096), 0);
	refuses(p, EUCLEAN, "damaged");
}

static void one_server_at_a_time(void **state)
{
	struct place *p = *state;
	int ready[2], go[2];
	char c;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct store *s;
		if (store_open(p->path, &s, NULL) < 0 || put_simple(s, "a", "a", NULL) < 0)
			_exit(1);
		close(go[1]);
		if (write(ready[1], "x", 1) != 1 || read(go[0], &c, 1) != 0)
			_exit(1);
		_exit(0); /* without store_close, as a crash would */
	}
	close(go[0]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	refuses(p, EBUSY, "in use by another process");
	close(go[1]);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(ready[0]);
	close(ready[1]);
	struct store *s = opened(p); /* the lock went with the process */
	assert_int_equal(count_sandboxes(s), 1);
	store_close(s);
}

/* --- groups and failures --- */

static void groups(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	store_begin(s);
	assert_int_equal(store_commit(s), 0); /* nothing in it */
	store_begin(s);
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	store_begin(s);
	assert_int_equal(put_simple(s, "b", "b", NULL), 0);
	assert_int_equal(store_commit(s), 0);
	assert_int_equal(count_sandboxes(s), 2); /* a group sees its own writes */
	store_idle(s);                           /* has no business inside a group */
	assert_int_equal(store_commit(s), 0);
	store_begin(s);
	assert_int_equal(put_simple(s, "c", "c", NULL), 0);
	store_close(s); /* an open group is not kept */
	s = opened(p);
	assert_int_equal(count_sandboxes(s), 2);
	store_close(s);
}

/* A disk that is full, by a limit on the size of files. */
static void a_full_disk_is_reported(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	struct rlimit old, little;
	struct err e = { 0 };
	char big[] = "big";
	assert_int_equal(put_simple(s, "big", "big", NULL), 0);
	uint8_t *data = xcalloc(1, 1 << 20);
	struct run_row r = run_of(big, 1);
	r.stdout_data = data;
	r.stdout_len = 1 << 20;
	fflush(NULL);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	little = (struct rlimit){ 512 << 10, old.rlim_max };

	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	int alone = store_run_put(s, &r);
	store_begin(s);
	int before = put_simple(s, "x", "x", &e);
	int write = store_run_put(s, &r), after = put_simple(s, "y", "y", &e), commit = store_commit(s);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);

	assert_true(alone < 0);
	assert_int_equal(before, 0);
	/* Pages stay in memory until the commit if they fit: then it is the commit that fails. */
	assert_true(commit < 0);
	assert_true(write == 0 || after < 0);
	assert_int_equal(count_sandboxes(s), 1); /* neither x nor y */
	assert_int_equal(count_runs(s, "big"), 0);
	store_begin(s);
	assert_int_equal(store_run_put(s, &r), 0); /* and it goes on when there is room */
	assert_int_equal(store_commit(s), 0);
	store_close(s);
	s = opened(p);
	assert_int_equal(count_runs(s, "big"), 1);
	store_close(s);
	free(data);
}

static void the_log_stays_small(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	struct stat st;
	char a[] = "a";
	auto_free char *wal = xasprintf("%s-wal", p->path);
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	auto_free uint8_t *data = xcalloc(1, 256 << 10);
	struct run_row r = run_of(a, 1);
	r.stdout_data = data;
	r.stdout_len = 256 << 10;
	for (int i = 0; i < 400; i++) { /* 100 MiB; equal pages would not be written again */
		memset(data, i, r.stdout_len);
		assert_int_equal(store_run_put(s, &r), 0);
	}
	assert_int_equal(stat(wal, &st), 0);
	assert_in_range(st.st_size, 4 << 20, 40 << 20);
	store_idle(s);
	for (int i = 0; i < 10; i++)
		assert_int_equal(store_run_put(s, &r), 0);
	assert_int_equal(stat(p->path, &st), 0);
	assert_in_range(st.st_size, 256 << 10, 2 << 20); /* the same pages again and again */
	store_close(s);
	assert_int_equal(stat(wal, &st), -1);
}

/* --- kill -9 --- */

#define KILLS 10
#define OUTPUT 3000

/* Writes sandboxes with two runs each, in groups, and tells of each after its commit; every third is deleted again. */
static void write_until_killed(const struct place *p, int ack, uint64_t from)
{
	struct store *s;
	uint8_t data[OUTPUT];
	char id[32];
	if (store_open(p->path, &s, NULL) < 0)
		_exit(1);
	for (uint64_t i = from;; i++) {
		snprintf(id, sizeof id, "box-%llu", (unsigned long long)i);
		memset(data, (int)(i & 0xff), sizeof data);
		struct run_row one = run_of(id, 1), two = run_of(id, 2);
		two.stdout_data = data;
		two.stdout_len = sizeof data;
		store_begin(s);
		if (put_simple(s, id, id, NULL) < 0 || store_run_put(s, &one) < 0 || store_run_put(s, &two) < 0 || store_commit(s) < 0)
			_exit(2);
		if (i % 3 == 0 && store_sandbox_delete(s, id) < 0)
			_exit(3);
		if (i % 50 == 0)
			store_idle(s); /* the fold into the file is a good moment to die as well */
		if (write(ack, &i, sizeof i) != sizeof i)
			_exit(4);
	}
}

struct seen {
	unsigned char *boxes; /* by number */
	uint64_t max;
	struct store *s;
	uint64_t id;
	int runs;
};

static int see_run(void *ctx, struct run_row *r)
{
	struct seen *seen = ctx;
	seen->runs++;
	if (r->number == 2) {
		assert_int_equal(r->stdout_len, OUTPUT);
		for (size_t i = 0; i < OUTPUT; i++)
			assert_int_equal(r->stdout_data[i], seen->id & 0xff);
	}
	return 0;
}

static int see_box(void *ctx, struct sandbox_row *r)
{
	struct seen *seen = ctx;
	assert_int_equal(parse_u64(str_of(r->id + 4), seen->max, &seen->id), 0);
	seen->boxes[seen->id] = 1;
	seen->runs = 0;
	assert_int_equal(store_run_each(seen->s, r->id, see_run, seen), 0);
	assert_int_equal(seen->runs, 2); /* a group is there whole or not at all */
	return 0;
}

static void survives_kill_9(void **state)
{
	struct place *p = *state;
	uint64_t done = 0; /* the highest number that was ever acknowledged */
	unsigned seed = 0;
	random_bytes(&seed, sizeof seed);
	for (int round = 0; round < KILLS; round++) {
		int ack[2];
		assert_int_equal(pipe2(ack, O_CLOEXEC), 0);
		fcntl(ack[1], F_SETPIPE_SZ, 1 << 20);
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			close(ack[0]);
			write_until_killed(p, ack[1], done + 1);
		}
		close(ack[1]);
		uint64_t last = 0;
		assert_int_equal(read(ack[0], &last, sizeof last), sizeof last);
		usleep((unsigned)rand_r(&seed) % 60000);
		assert_int_equal(kill(pid, SIGKILL), 0);
		int status;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status)); /* it did not end by an error of its own */
		uint64_t next;
		while (read(ack[0], &next, sizeof next) == sizeof next)
			last = next;
		close(ack[0]);
		assert_true(last > done);
		done = last;

		struct store *s = opened(p); /* reads it through as well */
		/* One more may be whole without having been acknowledged. */
		struct seen seen = { .boxes = xcalloc(done + 2, 1), .max = done + 1, .s = s };
		assert_int_equal(store_sandbox_each(s, see_box, &seen), 0);
		for (uint64_t i = 1; i <= done; i++)
			if (seen.boxes[i] != (i % 3 != 0))
				fail_msg("round %d: sandbox %llu of %llu is %s", round, (unsigned long long)i, (unsigned long long)done,
				         seen.boxes[i] ? "back from the dead" : "lost");
		char unacknowledged[32];
		snprintf(unacknowledged, sizeof unacknowledged, "box-%llu", (unsigned long long)done + 1);
		assert_int_equal(store_sandbox_delete(s, unacknowledged), 0);
		free(seen.boxes);
		store_close(s);
	}
	print_message("             %llu acknowledged in %d rounds, none lost\n", (unsigned long long)done, KILLS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLACED(makes_a_private_file),
		PLACED(refuses_what_is_not_ours),
		PLACED(refuses_a_newer_schema),
		PLACED(refuses_a_damaged_file),
		PLACED(one_server_at_a_time),
		PLACED(groups),
		PLACED(a_full_disk_is_reported),
		PLACED(the_log_stays_small),
		PLACED(survives_kill_9),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
