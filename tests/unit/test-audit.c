/* The audit log: what is written is found again, and whatever is done to its files is told. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "audit/audit_int.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct place {
	char top[64], dir[80];
	char problems[4096];
	size_t lines;
	char last[AUDIT_LINE_MAX];
	uint64_t last_seq;
};

static int place_make(void **state)
{
	struct place *p = xcalloc(1, sizeof *p);

	snprintf(p->top, sizeof p->top, "/tmp/caisson-test-audit-XXXXXX");
	if (!mkdtemp(p->top))
		return -1;
	snprintf(p->dir, sizeof p->dir, "%s/audit", p->top);
	*state = p;
	return 0;
}

static void each_file(struct place *p, void (*what)(const char *path, void *ctx), void *ctx)
{
	DIR *d = opendir(p->dir);

	for (struct dirent *e; d && (e = readdir(d));) {
		auto_free char *path = xasprintf("%s/%s", p->dir, e->d_name);
		if (e->d_name[0] != '.')
			what(path, ctx);
	}
	if (d)
		closedir(d);
}

static void remove_one(const char *path, void *ctx)
{
	(void)ctx;
	unlink(path);
}

static int place_remove(void **state)
{
	struct place *p = *state;

	each_file(p, remove_one, NULL);
	rmdir(p->dir);
	int r = rmdir(p->top);
	free(p);
	return r;
}

static struct audit *open_log(struct place *p, uint64_t file_bytes, uint64_t keep)
{
	const struct audit_options o = { .dir = p->dir, .file_bytes = file_bytes, .keep_bytes = keep };
	struct audit *a = NULL;
	struct err e;

	assert_int_equal(audit_open(&o, &a, &e), 0);
	return a;
}

static void write_lines(struct audit *a, int n, const char *tenant)
{
	for (int i = 0; i < n; i++) {
		struct audit_line *l = audit_begin(a, i % 2 ? "run.ended" : "run.started", tenant);
		audit_text(l, "sandbox", i % 3 ? "one" : "two");
		audit_u64(l, "number", (uint64_t)i);
		assert_int_equal(audit_end(a), 0);
	}
}

static void on_problem(void *ctx, const char *what)
{
	struct place *p = ctx;
	size_t n = strlen(p->problems);

	snprintf(p->problems + n, sizeof p->problems - n, "%s\n", what);
}

static struct audit_report verify(struct place *p, const char *expect)
{
	struct audit_report r;
	struct err e;

	p->problems[0] = '\0';
	assert_int_equal(audit_verify(p->dir, expect, on_problem, p, &r, &e), 0);
	return r;
}

static void assert_problem(struct place *p, const char *text)
{
	struct audit_report r = verify(p, NULL);

	assert_true(r.problems > 0);
	if (!strstr(p->problems, text))
		fail_msg("no \"%s\" in: %s", text, p->problems);
}

static void on_line(void *ctx, uint64_t seq, struct str line)
{
	struct place *p = ctx;

	p->lines++;
	p->last_seq = seq;
	snprintf(p->last, sizeof p->last, "%.*s", (int)line.n, line.p);
}

static uint64_t read_lines(struct place *p, struct audit *a, uint64_t after, size_t limit, struct audit_filter f)
{
	uint64_t next = 0;
	struct err e;

	p->lines = 0;
	assert_int_equal(audit_read(a, after, limit, &f, on_line, p, &next, &e), 0);
	return next;
}

/* --- what the files hold, for breaking it --- */

static char *first_file(struct place *p)
{
	return xasprintf("%s/audit-%020d.log", p->dir, 1);
}

static char *slurp(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = xcalloc(1, 1 << 20);

	assert_non_null(f);
	size_t n = fread(text, 1, (1 << 20) - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

static void spit(const char *path, const char *text, size_t n)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	fclose(f);
}

static char *line_at(char *text, int n) /* 0 = the first */
{
	while (n--)
		text = strchr(text, '\n') + 1;
	return text;
}

/* --- tests --- */

static void test_what_is_written_is_read(void **state)
{
	struct place *p = *state;
	struct audit *a = open_log(p, 0, 0);

	write_lines(a, 10, "default");
	struct audit_line *l = audit_begin(a, "file.read", "other");
	audit_text(l, "path", "a\"b\\c\n\x01\xff" "d\xc3\xa4");
	audit_text(l, "absent", NULL);
	char x[] = "x", y[] = "y\"";
	audit_flag(l, "no", false);
	audit_flag(l, "yes", true);
	audit_texts(l, "list", (char *const[]){ x, y, NULL });
	assert_int_equal(audit_end(a), 0);
	assert_int_equal(audit_seq(a), 12);
	assert_int_equal(read_lines(p, a, 0, 100, (struct audit_filter){ 0 }), 12);
	assert_int_equal(p->lines, 12);
	assert_non_null(strstr(p->last, ",\"type\":\"file.read\",\"tenant\":\"other\",\"path\":\"a\\\"b\\\\c\\u000a\\u0001\xef\xbf\xbd" "d\xc3\xa4\",\"yes\":true,"
					"\"list\":[\"x\",\"y\\\"\"],\"hash\":\""));
	assert_non_null(strstr(p->last, audit_hash(a)));
	read_lines(p, a, 0, 100, (struct audit_filter){ .tenant = "default" });
	assert_int_equal(p->lines, 10);
	read_lines(p, a, 0, 100, (struct audit_filter){ .type = "run" });
	assert_int_equal(p->lines, 10);
	read_lines(p, a, 0, 100, (struct audit_filter){ .type = "run.start" }); /* not the beginning of a word */
	assert_int_equal(p->lines, 0);
	read_lines(p, a, 0, 100, (struct audit_filter){ .sandbox = "two" });
	assert_int_equal(p->lines, 4);
	audit_close(a);
	assert_int_equal(verify(p, NULL).problems, 0);
}

static void test_a_value_cannot_forge_a_member(void **state)
{
	struct place *p = *state;
	struct audit *a = open_log(p, 0, 0);
	struct audit_line *l = audit_begin(a, "file.read", "a\",\"tenant\":\"b");

	audit_text(l, "path", "\",\"sandbox\":\"victim\",\"x\":\"");
	audit_end(a);
	read_lines(p, a, 0, 100, (struct audit_filter){ .sandbox = "victim" });
	assert_int_equal(p->lines, 0);
	read_lines(p, a, 0, 100, (struct audit_filter){ .tenant = "b" });
	assert_int_equal(p->lines, 0);
	audit_close(a);
	assert_int_equal(verify(p, NULL).problems, 0);
}

static void test_long_texts_are_cut(void **state)
{
	struct place *p = *state;
	struct audit *a = open_log(p, 0, 0);
	auto_free char *text = xmalloc(5001);

	memset(text, 'x', 5000);
	text[5000] = '\0';
	memcpy(text + AUDIT_TEXT_MAX - 1, "\xc3\xa4", 2); /* the cut would be inside a character */
	struct audit_line *l = audit_begin(a, "file.read", "default");
	audit_text(l, "path", text);
	assert_int_equal(audit_end(a), 0);
	read_lines(p, a, 1, 100, (struct audit_filter){ 0 });
	assert_non_null(strstr(p->last, "xxx...\""));
	assert_true(strlen(p->last) < AUDIT_TEXT_MAX + 300);
	l = audit_begin(a, "file.read", "default"); /* more than a line can hold is refused whole, and counted */
	for (int i = 0; i < 40; i++)
		audit_text(l, "path", text);
	assert_int_equal(audit_end(a), -E2BIG);
	write_lines(a, 1, "default");
	read_lines(p, a, 2, 100, (struct audit_filter){ .type = "audit.lost" });
	assert_int_equal(p->lines, 1);
	assert_non_null(strstr(p->last, "\"lines\":1,"));
	audit_close(a);
	assert_int_equal(verify(p, NULL).problems, 0);
}

static void test_it_goes_on_after_a_restart(void **state)
{
	struct place *p = *state;

	for (int i = 0; i < 5; i++) {
		struct audit *a = open_log(p, 0, 0);
		write_lines(a, 7, "default");
		audit_close(a);
	}
	struct audit_report r = verify(p, NULL);
	assert_int_equal(r.problems, 0);
	assert_int_equal(r.first, 1);
	assert_int_equal(r.last, 36);
	assert_int_equal(r.files, 1);
}

static void test_files_follow_one_another(void **state)
{
	struct place *p = *state;
	struct audit *a = open_log(p, 2000, 0);

	write_lines(a, 200, "default");
	uint64_t last = audit_seq(a), n = 0;
	for (uint64_t next = 0; next < last;) { /* in pages over the files, each line once */
		uint64_t before = next;
		next = read_lines(p, a, next, 7, (struct audit_filter){ 0 });
		assert_true(next > before && p->lines <= 7);
		n += p->lines;
	}
	assert_int_equal(n, last);
	audit_close(a);
	struct audit_report r = verify(p, NULL);
	assert_int_equal(r.problems, 0);
	assert_true(r.files > 10);
	assert_int_equal(r.last, last);
}

static void test_the_oldest_files_go(void **state)
{
	struct place *p = *state;
	struct audit *a = open_log(p, 2000, 10000);

	write_lines(a, 500, "default");
	audit_close(a);
	struct audit_report r = verify(p, NULL);
	assert_int_equal(r.problems, 0);
	assert_true(r.first > 1 && r.files < 8);
	a = open_log(p, 2000, 10000);
	read_lines(p, a, 0, 1000, (struct audit_filter){ .type = "audit.removed" });
	assert_true(p->lines > 0);
	assert_true(read_lines(p, a, 0, 1, (struct audit_filter){ 0 }) == r.first); /* what is gone is passed over */
	audit_close(a);
}

/* What a broken log is told as; then the server starts again on it, and it still is. */
static void broken(struct place *p, const char *said)
{
	assert_problem(p, said);
	struct audit *a = open_log(p, 0, 0);
	write_lines(a, 3, "default");
	audit_close(a);
	assert_true(verify(p, NULL).problems > 0);
}

static void fill(struct place *p, int n)
{
	struct audit *a = open_log(p, 0, 0);

	write_lines(a, n, "default");
	audit_close(a);
	assert_int_equal(verify(p, NULL).problems, 0);
}

static void test_an_edit_is_told(void **state)
{
	struct place *p = *state;
	auto_free char *path = first_file(p);

	fill(p, 20);
	auto_free char *text = slurp(path);
	*strstr(line_at(text, 5), "default") = 'D';
	spit(path, text, strlen(text));
	broken(p, "line 6 was changed");
}

/* The line's own hash made to fit: then the next one does not go on from it. */
static void test_an_edit_with_its_own_hash_is_told(void **state)
{
	struct place *p = *state;
	auto_free char *path = first_file(p);
	struct parsed before, edited;
	char hash[AUDIT_HASH_SIZE];

	fill(p, 20);
	auto_free char *text = slurp(path);
	char *four = line_at(text, 4), *five = line_at(text, 5), *six = line_at(text, 6);
	*strstr(five, "default") = 'D';
	assert_true(line_parse((struct str){ four, (size_t)(five - four) - 1 }, &before));
	assert_true(line_parse((struct str){ five, (size_t)(six - five) - 1 }, &edited));
	chain_hash(before.hash, edited.body, hash);
	memcpy(strstr(five, "\"hash\":\"") + 8, hash, AUDIT_HASH_SIZE - 1);
	spit(path, text, strlen(text));
	broken(p, "line 7 was changed, or the one before it");
	assert_null(strstr(p->problems, "line 6 was changed"));
}

static void test_a_deletion_is_told(void **state)
{
	struct place *p = *state;
	auto_free char *path = first_file(p);

	fill(p, 20);
	auto_free char *text = slurp(path);
	char *five = line_at(text, 5), *six = line_at(text, 6);
	memmove(five, six, strlen(six) + 1);
	spit(path, text, strlen(text));
	broken(p, "lines 6 to 6 are missing");
}

/* Lines that nothing stands before: it is the file's name, and the head, that say where the log begins. */
static void test_a_lost_beginning_is_told(void **state)
{
	struct place *p = *state;
	auto_free char *path = first_file(p);

	fill(p, 20);
	auto_free char *text = slurp(path);
	char *five = line_at(text, 5);
	spit(path, five, strlen(five));
	assert_problem(p, "lines 1 to 5 are missing");
	char *prev = strstr(text, "\"prev\"");
	*strstr(five, "default") = 'D'; /* a line that is checked against nothing but them */
	spit(path, five, strlen(five));
	assert_problem(p, "lines 1 to 5 are missing");
	*strstr(five, "Default") = 'd';
	prev[1] = 'P';
	spit(path, text, strlen(text));
	assert_problem(p, "line 1 was changed");
	prev[1] = 'p';
	prev[8] = '1';
	spit(path, text, strlen(text));
	assert_problem(p, "the file does not go on from the one before it");
	spit(path, five, strlen(five));
	broken(p, "lines 1 to 5 are missing");
}

static void test_a_lost_beginning_of_many_files_is_told(void **state)
{
	struct place *p = *state;
	struct audit *a = open_log(p, 2000, 10000);
	char name[NAME_SIZE], said[80];

	write_lines(a, 500, "default");
	audit_close(a);
	struct audit_report r = verify(p, NULL);
	assert_true(r.problems == 0 && r.first > 1);
	file_name(r.first, name);
	auto_free char *path = xasprintf("%s/%s", p->dir, name), *text = slurp(path);
	char *two = line_at(text, 2);
	spit(path, two, strlen(two));
	snprintf(said, sizeof said, "lines %llu to %llu are missing", (unsigned long long)r.first, (unsigned long long)r.first + 1);
	assert_problem(p, said);
	spit(path, "", 0);
	snprintf(said, sizeof said, "lines %llu to ", (unsigned long long)r.first);
	assert_problem(p, said);
	spit(path, text, strlen(text));
	assert_int_equal(verify(p, NULL).problems, 0);
}

static void test_a_reorder_is_told(void **state)
{
	struct place *p = *state;
	auto_free char *path = first_file(p);

	fill(p, 20);
	auto_free char *text = slurp(path);
	char *five = line_at(text, 5), *six = line_at(text, 6), *seven = line_at(text, 7);
	auto_free char *copy = xstrndup(five, (size_t)(six - five));
	size_t n = (size_t)(seven - six);
	memmove(five, six, n);
	memcpy(five + n, copy, strlen(copy));
	spit(path, text, strlen(text));
	broken(p, "lines were moved or put in");
}

static void test_a_truncation_is_told(void **state)
{
	struct place *p = *state;
	auto_free char *path = first_file(p);

	fill(p, 20);
	auto_free char *text = slurp(path);
	spit(path, text, (size_t)(line_at(text, 18) - text));
	broken(p, "the end is missing: the log goes to line 18, and went to line 21");
}

static void test_a_truncation_inside_a_line_is_told(void **state)
{
	struct place *p = *state;
	auto_free char *path = first_file(p);

	fill(p, 20);
	auto_free char *text = slurp(path);
	spit(path, text, strlen(text) - 5);
	broken(p, "the end is missing");
}

static void test_a_missing_head_or_file_is_told(void **state)
{
	struct place *p = *state;
	auto_free char *head = xasprintf("%s/head", p->dir), *path = first_file(p);
	struct audit *a = open_log(p, 2000, 0);

	write_lines(a, 100, "default");
	audit_close(a);
	auto_free char *text = slurp(path);
	unlink(path);
	assert_problem(p, "are missing");
	spit(path, text, strlen(text));
	assert_int_equal(verify(p, NULL).problems, 0);
	unlink(head);
	broken(p, "head: it is missing");
}

static void test_a_log_written_anew_is_told_by_what_is_known_elsewhere(void **state)
{
	struct place *p = *state;
	struct audit *a = open_log(p, 0, 0);
	char expect[100];
	struct err e;

	write_lines(a, 10, "default");
	snprintf(expect, sizeof expect, "%llu:%s", (unsigned long long)audit_seq(a), audit_hash(a));
	write_lines(a, 5, "default");
	audit_close(a);
	assert_int_equal(verify(p, expect).problems, 0);
	each_file(p, remove_one, NULL);
	a = open_log(p, 0, 0);
	write_lines(a, 15, "another"); /* of the same millisecond the same lines would be the same log */
	audit_close(a);
	assert_int_equal(verify(p, NULL).problems, 0);
	assert_int_equal(verify(p, expect).problems, 1);
	assert_non_null(strstr(p->problems, "written anew"));
	struct audit_report r;
	assert_true(audit_verify(p->dir, "7", on_problem, p, &r, &e) < 0);
	assert_true(audit_verify(p->dir, "0:00", on_problem, p, &r, &e) < 0);
}

static void test_a_part_is_checked_alone(void **state)
{
	struct place *p = *state;
	auto_free char *path = first_file(p), *part = xasprintf("%s/part", p->top);
	struct audit_report r;
	struct err e;

	fill(p, 20);
	auto_free char *text = slurp(path);
	char *five = line_at(text, 5);
	spit(part, five, strlen(five));
	p->problems[0] = '\0';
	assert_int_equal(audit_verify(part, NULL, on_problem, p, &r, &e), 0);
	assert_int_equal(r.problems, 0);
	assert_int_equal(r.first, 6);
	*strstr(line_at(five, 3), "default") = 'D';
	spit(part, five, strlen(five));
	assert_int_equal(audit_verify(part, NULL, on_problem, p, &r, &e), 0);
	assert_int_equal(r.problems, 1);
	*strstr(line_at(five, 3), "Default") = 'd';
	spit(part, five, strlen(five) - 5);
	assert_int_equal(audit_verify(part, NULL, on_problem, p, &r, &e), 0);
	assert_int_equal(r.problems, 1); /* the end of its last line */
	spit(part, "", 0);
	assert_int_equal(audit_verify(part, NULL, on_problem, p, &r, &e), -ENOENT);
	assert_int_equal(audit_verify(p->top, NULL, on_problem, p, &r, &e), -ENOENT); /* a folder, and not of a log */
	unlink(part);
}

/* What append has returned for is there, however the process ended; a line that was cut short is no damage. */
static void test_a_kill_loses_nothing(void **state)
{
	struct place *p = *state;
	auto_free char *path = first_file(p);
	int pipe_fds[2];

	assert_int_equal(pipe(pipe_fds), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct audit *a = open_log(p, 0, 0);
		for (;;) {
			write_lines(a, 1, "default");
			uint64_t seq = audit_seq(a);
			if (write(pipe_fds[1], &seq, sizeof seq) < 0)
				_exit(1);
		}
	}
	uint64_t seq = 0;
	close(pipe_fds[1]);
	while (seq < 2000)
		assert_int_equal(read(pipe_fds[0], &seq, sizeof seq), sizeof seq);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	while (read(pipe_fds[0], &seq, sizeof seq) == (ssize_t)sizeof seq)
		;
	close(pipe_fds[0]);
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_int_equal(write(fd, "{\"seq\":99", 9), 9);
	close(fd);
	assert_int_equal(verify(p, NULL).problems, 0);
	struct audit *a = open_log(p, 0, 0);
	assert_true(audit_seq(a) >= seq);
	write_lines(a, 1, "default");
	audit_close(a);
	assert_int_equal(verify(p, NULL).problems, 0);
}

/* Room runs out: new work is refused first, what ends is still written, then lines are lost and said to be. */
static void test_a_full_disk(void **state)
{
	struct place *p = *state;
	struct err e;
	int i = 0;

	if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", p->top, "tmpfs", 0, "size=2m") < 0)
		skip(); /* the host gives no mount */
	struct audit *a = open_log(p, 0, 0);
	while (audit_ready(a, &e) == 0 && i++ < 1000)
		write_lines(a, 100, "default");
	assert_true(i < 1000);
	assert_int_equal(e.kind, ERR_UNAVAILABLE);
	write_lines(a, 500, "default");
	for (i = 0; i < 100000; i++) {
		audit_text(audit_begin(a, "run.ended", "default"), "sandbox", "one");
		if (audit_end(a) < 0)
			break;
	}
	assert_true(i < 100000);
	assert_int_equal(mount("none", p->top, "tmpfs", MS_REMOUNT, "size=8m"), 0);
	assert_int_equal(audit_ready(a, &e), 0);
	uint64_t seq = audit_seq(a);
	write_lines(a, 1, "default");
	read_lines(p, a, seq, 10, (struct audit_filter){ .type = "audit.lost" });
	assert_int_equal(p->lines, 1);
	audit_close(a);
	assert_int_equal(verify(p, NULL).problems, 0);
	assert_int_equal(umount2(p->top, MNT_DETACH), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, place_make, place_remove)
	const struct CMUnitTest tests[] = {
		T(what_is_written_is_read),
		T(a_value_cannot_forge_a_member),
		T(long_texts_are_cut),
		T(it_goes_on_after_a_restart),
		T(files_follow_one_another),
		T(the_oldest_files_go),
		T(an_edit_is_told),
		T(an_edit_with_its_own_hash_is_told),
		T(a_deletion_is_told),
		T(a_lost_beginning_is_told),
		T(a_lost_beginning_of_many_files_is_told),
		T(a_reorder_is_told),
		T(a_truncation_is_told),
		T(a_truncation_inside_a_line_is_told),
		T(a_missing_head_or_file_is_told),
		T(a_log_written_anew_is_told_by_what_is_known_elsewhere),
		T(a_part_is_checked_alone),
		T(a_kill_loses_nothing),
		T(a_full_disk),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
