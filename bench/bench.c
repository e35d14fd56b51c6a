/* Speed against the same thing done bare, in one run and interleaved, because machines are noisy: what counts is the ratio.
 *
 * Needs a server (CAISSON_URL, CAISSON_API_KEY; bench/run starts one) and prints Markdown. Each measurement alternates between our
 * side and the bare one. "cycle" is the whole life of a sandbox through the HTTP API over the unix socket. */
#include "base/util.h"
#include "caisson.h"
#include "series.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static _Noreturn void die(const char *what, const struct caisson_error *e)
{
	fprintf(stderr, "bench: %s: %s\n", what, e ? e->message : strerror(errno));
	exit(1);
}

static double ms_since(uint64_t t)
{
	return (double)(now_us() - t) / 1000;
}

/* --- the bare side --- */

static double spawn_and_wait(char *const *argv)
{
	posix_spawn_file_actions_t fa;
	int status;
	pid_t pid;

	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	uint64_t t = now_us();
	if (posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ) != 0 || waitpid(pid, &status, 0) != pid || status != 0)
		die(argv[0], NULL);
	double ms = ms_since(t);
	posix_spawn_file_actions_destroy(&fa);
	return ms;
}

static char arg_true[] = "/usr/bin/true", arg_python[] = "/usr/bin/python3", arg_c[] = "-c", arg_print[] = "print(1)";
static char *true_argv[] = { arg_true, NULL };
static char *python_argv[] = { arg_python, arg_c, arg_print, NULL };

static double bwrap(void)
{
	static const char *const words[] = { "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "/usr/bin/true" };
	char *argv[ARRAY_LEN(words) + 1] = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		argv[i] = (char *)(uintptr_t)words[i];
	return spawn_and_wait(argv);
}

/* --- our side --- */

static char *create(struct caisson *c, bool ephemeral)
{
	struct caisson_create_options o = { .ephemeral = ephemeral };
	struct caisson_sandbox *s;
	struct caisson_error e;

	if (caisson_create(c, &o, &s, &e) < 0)
		die("create", &e);
	char *id = xstrdup(s->id);
	caisson_sandbox_free(s);
	return id;
}

static void run_as(struct caisson *c, const char *id, const struct caisson_run_options *o)
{
	struct caisson_run *r;
	struct caisson_error e;

	if (caisson_run(c, id, o, &r, &e) < 0)
		die("run", &e);
	if (r->exit_code != 0) {
		fprintf(stderr, "bench: %s ended with %d: %s\n", o->code ? o->code : o->argv[0], r->exit_code, (char *)r->err);
		exit(1);
	}
	caisson_run_free(r);
}

static void run(struct caisson *c, const char *id, char *const *argv)
{
	run_as(c, id, &(struct caisson_run_options){ .argv = (const char *const *)argv });
}

static void delete(struct caisson *c, const char *id)
{
	struct caisson_error e;

	if (caisson_delete(c, id, &e) < 0)
		die("delete", &e);
}

/* So long the server has nothing to do: what it makes in advance is made now, and disturbs neither side. */
static void rest(void)
{
	usleep(30000);
}

/* One after the other, so that nothing is made in advance but at the cost of what is measured. */
static void bench_row(struct caisson *c, int rounds)
{
	struct series ours = { 0 }, bare = { 0 };

	for (int turn = 0; turn < 10; turn++) {
		for (int i = 0; i < rounds / 10; i++) {
			uint64_t t = now_us();
			auto_free char *id = create(c, true);
			run(c, id, true_argv);
			delete(c, id);
			series_add(&ours, ms_since(t));
		}
		rest();
		for (int i = 0; i < rounds / 10; i++)
			series_add(&bare, bwrap());
	}
	series_report("create + run true + delete (ephemeral), in a row without rests", "bwrap true, in a row", &ours, &bare, 0.5);
}

static void bench_cycle(struct caisson *c, int rounds, bool ephemeral)
{
	struct series ours = { 0 }, bare = { 0 }, parts[3] = { 0 };

	for (int i = 0; i < rounds; i++) {
		rest();
		uint64_t t0 = now_us();
		auto_free char *id = create(c, ephemeral);
		uint64_t t1 = now_us();
		run(c, id, true_argv);
		uint64_t t2 = now_us();
		delete(c, id);
		uint64_t t3 = now_us();
		series_add(&ours, (double)(t3 - t0) / 1000);
		series_add(&parts[0], (double)(t1 - t0) / 1000);
		series_add(&parts[1], (double)(t2 - t1) / 1000);
		series_add(&parts[2], (double)(t3 - t2) / 1000);
		rest();
		series_add(&bare, bwrap());
	}
	series_report(ephemeral ? "create + run true + delete (ephemeral)" : "create + run true + delete (disk that outlives a stop)", "bwrap true", &ours, &bare,
	       0.5);
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = { "... create", "... run", "... delete" };
		series_sort(&parts[i]);
		series_row(names[i], &parts[i]);
		printf(" |\n");
		free(parts[i].v);
	}
}

static void bench_live(struct caisson *c, int rounds)
{
	struct series ours = { 0 }, bare = { 0 };
	auto_free char *id = create(c, true);

	for (int i = 0; i < rounds; i++) {
		uint64_t t = now_us();
		run(c, id, true_argv);
		series_add(&ours, ms_since(t));
		series_add(&bare, spawn_and_wait(true_argv));
	}
	delete(c, id);
	series_report("one run of true in a live sandbox", "posix_spawn of true", &ours, &bare, 1.5);
}

static void bench_python(struct caisson *c, int rounds)
{
	struct series ours = { 0 }, bare = { 0 };

	for (int i = 0; i < rounds; i++) {
		rest();
		uint64_t t = now_us();
		auto_free char *id = create(c, true);
		run(c, id, python_argv);
		series_add(&ours, ms_since(t));
		delete(c, id);
		rest();
		series_add(&bare, spawn_and_wait(python_argv));
	}
	series_report("create + run python3 -c 'print(1)'", "python3 -c 'print(1)'", &ours, &bare, 1.3);
}

/* By way of a Python that waits in the claimed sandbox. It is started within the rests, as the sandbox is made. */
static void bench_code(struct caisson *c, int rounds)
{
	struct series ours = { 0 }, bare = { 0 };

	for (int i = -5; i < rounds; i++) { /* the first ones make it known that Python is wanted */
		for (int k = 0; k < 5; k++)
			rest();
		uint64_t t = now_us();
		auto_free char *id = create(c, true);
		run_as(c, id, &(struct caisson_run_options){ .code = arg_print, .language = "python" });
		double ms = ms_since(t);
		delete(c, id);
		rest();
		double other = spawn_and_wait(python_argv);
		if (i < 0)
			continue;
		series_add(&ours, ms);
		series_add(&bare, other);
	}
	series_report("claim + Python code + result, an interpreter waiting", "python3 -c 'print(1)'", &ours, &bare, 0.15);
}

/* --- files --- */

struct feed {
	int fd;
	bool failed;
};

static ptrdiff_t from_file(void *ctx, void *bytes, size_t n)
{
	struct feed *f = ctx;

	return read(f->fd, bytes, n);
}

static int to_file(void *ctx, const void *bytes, size_t n)
{
	struct feed *f = ctx;

	return write(f->fd, bytes, n) == (ssize_t)n ? 0 : 1;
}

static void bench_files(struct caisson *c, int rounds, const char *dir, size_t mib)
{
	struct series up = { 0 }, down = { 0 }, bare = { 0 }, bare_again = { 0 };
	struct caisson_create_options o = { .ephemeral = true, .memory_mib = 4096, .disk_mib = 2048 };
	struct caisson_sandbox *s;
	struct caisson_error e;
	auto_free char *from = xasprintf("%s/from", dir), *to = xasprintf("%s/to", dir), *copy = xasprintf("%s/copy", dir);
	char cp[] = "/bin/cp";
	char *cp_argv[] = { cp, from, copy, NULL };
	char block[65536];

	if (caisson_create(c, &o, &s, &e) < 0)
		die("create", &e);
	auto_fd int fd = open(from, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	random_bytes(block, sizeof block);
	for (size_t i = 0; i < mib * 16; i++)
		if (fd < 0 || write(fd, block, sizeof block) != sizeof block)
			die(from, NULL);
	for (int i = 0; i < rounds; i++) {
		struct feed f = { .fd = fd };
		lseek(fd, 0, SEEK_SET);
		/* a new file on both sides: to replace one means to free its blocks, too */
		if (i && caisson_remove(c, s->id, "/tmp/file", false, &e) < 0)
			die("remove", &e);
		uint64_t t = now_us();
		if (caisson_upload(c, s->id, "/tmp/file", 0, from_file, &f, &e) < 0)
			die("upload", &e);
		series_add(&up, ms_since(t));
		unlink(copy);
		double ms = spawn_and_wait(cp_argv);
		series_add(&bare, ms);
		series_add(&bare_again, ms);
		f.fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		t = now_us();
		if (caisson_download(c, s->id, "/tmp/file", to_file, &f, &e) < 0)
			die("download", &e);
		series_add(&down, ms_since(t));
		close_fd(f.fd);
		unlink(to);
	}
	unlink(copy);
	unlink(from);
	delete(c, s->id);
	caisson_sandbox_free(s);
	series_report("upload of the file", "cp of the same bytes", &up, &bare, 2.0);
	series_report("download of the file", "cp of the same bytes", &down, &bare_again, 2.0);
}

/* --- many at once --- */

static uint64_t available_kib(void)
{
	char line[128];
	unsigned long long kib = 0;
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %llu", &kib) != 1)
		;
	if (f)
		fclose(f);
	return kib;
}

static void bench_many(struct caisson *c, size_t many)
{
	char **ids = xcalloc(many, sizeof *ids);
	struct series first = { 0 }, last = { 0 };
	uint64_t before = available_kib();

	for (size_t i = 0; i < many; i++) {
		uint64_t t = now_us();
		ids[i] = create(c, true);
		double ms = ms_since(t);
		if (i < many / 10)
			series_add(&first, ms);
		if (i >= many - many / 10)
			series_add(&last, ms);
	}
	uint64_t after = available_kib();
	for (size_t i = 0; i < many; i++) {
		delete(c, ids[i]);
		free(ids[i]);
	}
	free(ids);
	series_report("create, the last tenth", "create, the first tenth", &last, &first, 1.5);
	printf("\n%zu live at once: %.0f KiB each (MemAvailable)\n", many, (double)(before - after) / (double)many);
}

int main(int argc, char **argv)
{
	struct caisson_error e;
	struct caisson *c;
	const char *only = argc > 2 ? argv[2] : "";
	const char *dir = argc > 1 ? argv[1] : "/tmp";

	signal(SIGPIPE, SIG_IGN);
	if (caisson_connect(NULL, &c, &e) < 0)
		die("connect", &e);
	auto_free char *first = create(c, true); /* it fills the warden's pools */
	sleep(1);
	delete(c, first);
	if (!*only || streq(only, "cycle")) {
		series_head("The whole life of a sandbox");
		bench_cycle(c, 300, true);
		bench_cycle(c, 100, false);
		bench_row(c, 300);
	}
	if (!*only || streq(only, "run") || streq(only, "live")) {
		series_head("Runs");
		bench_live(c, 500);
		if (!streq(only, "live"))
			bench_python(c, 100);
	}
	if (!*only || streq(only, "code")) {
		series_head("Code");
		bench_code(c, 100);
	}
	if (!*only || streq(only, "files")) {
		series_head("Files, 256 MiB");
		bench_files(c, 10, dir, 256);
	}
	if (!*only || streq(only, "many")) {
		series_head("2,000 live sandboxes");
		bench_many(c, 2000);
	}
	caisson_close(c);
	return 0;
}
