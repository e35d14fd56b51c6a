/* What machines cost (bench/run vm): against the same guest restored bare, alternating in one run. Emulated it takes minutes, so there are few
 * repetitions.
 *
 *   vm-bench TEMPLATES IMAGES DIR [LIVE [PARTS]]      with CAISSON_URL and CAISSON_API_KEY of a server whose default boundary is vm, with --pool 0 */
#include "bare-vm.h"
#include "caisson.h"
#include "series.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include <uv.h>

enum { MEMORY_MIB = 256, REST_US = 100000, CREATES = 20, CLAIMS = 10, FORKS = 5, RUNS = 40 };

static struct caisson *c;
static bool kvm;

static _Noreturn void die(const char *what, const struct caisson_error *e)
{
	fprintf(stderr, "bench: %s: %s\n", what, e ? e->message : strerror(errno));
	exit(1);
}

static double ms_since(uint64_t t)
{
	return (double)(now_us() - t) / 1000;
}

static char *create(void)
{
	struct caisson_create_options o = { .ephemeral = true, .memory_mib = MEMORY_MIB };
	struct caisson_sandbox *s;
	struct caisson_error e;

	if (caisson_create(c, &o, &s, &e) < 0)
		die("create", &e);
	char *id = xstrdup(s->id);
	caisson_sandbox_free(s);
	return id;
}

static void run(const char *id, const char *const *argv)
{
	struct caisson_run_options o = { .argv = argv };
	struct caisson_run *r;
	struct caisson_error e;

	if (caisson_run(c, id, &o, &r, &e) < 0)
		die("run", &e);
	if (r->exit_code != 0) {
		fprintf(stderr, "bench: %s ended with %d: %s\n", argv[0], r->exit_code, (char *)r->err);
		exit(1);
	}
	caisson_run_free(r);
}

static void delete(const char *id)
{
	struct caisson_error e;

	if (caisson_delete(c, id, &e) < 0)
		die("delete", &e);
}

/* (Inlined, gcc 12 takes the answer for a pointer to its own variable, and warns.) */
static __attribute__((noinline)) char *request(const char *method, const char *path, const char *body)
{
	struct caisson_error e;
	char *answer = NULL;

	if (caisson_request(c, method, path, body, &answer, &e) < 0)
		die(path, &e);
	return answer;
}

static const char *const true_argv[] = { "/usr/bin/true", NULL };
static const char *const python_argv[] = { "python3", "-c", "print(1)", NULL };

/* --- create, claim --- */

static void bench_create(struct bare_vm *bare)
{
	struct series ours = { 0 }, again = { 0 }, first = { 0 }, theirs = { 0 }, told = { 0 };

	for (int i = 0; i < CREATES; i++) {
		usleep(REST_US);
		uint64_t t = now_us();
		auto_free char *id = create();
		double took = ms_since(t);
		series_add(&ours, took);
		series_add(&again, took);
		run(id, true_argv);
		series_add(&first, ms_since(t));
		delete(id);
		usleep(REST_US);
		series_add(&theirs, bare_vm_restore(bare, false));
		bare_vm_end(bare);
		usleep(REST_US);
		series_add(&told, bare_vm_restore(bare, true));
		bare_vm_end(bare);
	}
	series_report("create from a template, request to reply", "bare -incoming restore of the same guest, exec to its answer", &ours, &theirs, 1.3);
	series_report("the same creates", "the bare one until it also has its randomness, clock and names", &again, &told, 0);
	series_alone("... create and run true", &first, 0);
}

static void set_pool(unsigned size)
{
	auto_free char *body = xasprintf("{\"resources\":{\"memory_mib\":%d},\"ephemeral\":true,\"size\":%u}", MEMORY_MIB, size), *ready = xasprintf("\"ready\":%u", size);

	free(request("PUT", "/v1/pools", body));
	for (bool is = size == 0; !is; usleep(REST_US)) {
		auto_free char *pools = request("GET", "/v1/pools", NULL);
		is = strstr(pools, ready) != NULL;
	}
}

static void bench_claim(void)
{
	struct series claim = { 0 }, first = { 0 };

	for (int i = 0; i < CLAIMS; i++) {
		set_pool(1);
		usleep(10 * REST_US); /* it has had its first run */
		uint64_t t = now_us();
		auto_free char *id = create();
		series_add(&claim, ms_since(t));
		run(id, true_argv);
		series_add(&first, ms_since(t));
		delete(id);
	}
	set_pool(0);
	series_alone("create, one is ready, request to reply", &claim, 1);
	series_alone("... create and run true", &first, 70);
}

/* --- runs --- */

static void bench_runs(struct bare_vm *bare)
{
	static const struct {
		const char *ours, *theirs, *const *argv;
		int n;
	} kinds[] = { { "one run of true in a live machine", "the same in a bare one", true_argv, RUNS },
		      { "one run of python3 -c 'print(1)' in a live machine", "the same in a bare one", python_argv, RUNS / 4 } };
	auto_free char *id = create();

	(void)bare_vm_restore(bare, false);
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		struct series ours = { 0 }, theirs = { 0 };
		for (int i = 0; i < kinds[k].n + 2; i++) {
			uint64_t t = now_us();
			run(id, kinds[k].argv);
			double ms = ms_since(t), other = bare_vm_run(bare, kinds[k].argv);
			if (i < 2)
				continue; /* what is translated and read in for the first time */
			series_add(&ours, ms);
			series_add(&theirs, other);
		}
		series_report(kinds[k].ours, kinds[k].theirs, &ours, &theirs, 0);
	}
	bare_vm_end(bare);
	delete(id);
}

/* --- forks --- */

/* The times at which lines of a run came, and the longest gap between two of them. */
struct gaps {
	uint64_t last;
	double longest;
	volatile bool over;
};

static int on_line(void *ctx, int stream, const void *bytes, size_t n)
{
	struct gaps *g = ctx;

	(void)stream;
	(void)bytes;
	(void)n;
	if (g->last)
		g->longest = MAX(g->longest, ms_since(g->last));
	g->last = now_us();
	return g->over;
}

struct listening {
	const char *sandbox, *run;
	struct gaps gaps;
};

static void listen_to(void *arg)
{
	struct listening *l = arg;
	struct caisson *own;
	struct caisson_run *r = NULL;
	struct caisson_error e;

	if (caisson_clone(c, &own, &e) < 0)
		die("clone", &e);
	(void)caisson_run_follow(own, l->sandbox, l->run, 0, 0, true, on_line, &l->gaps, &r, &e); /* stopped by us */
	caisson_run_free(r);
	caisson_close(own);
}

static void fork_it(const char *path, char child[static 37])
{
	char *answer = request("POST", path, "{}");
	const char *at = strstr(answer, "\"id\":\"");

	if (!at || sscanf(at, "\"id\":\"%36[0-9a-f-]", child) != 1)
		die("fork", NULL);
	free(answer);
}

static const char ticking[] = "import time, random\nkept = list(range(200000))\nwhile True:\n  print(random.random(), flush=True)\n  time.sleep(0.004)\n";

static void bench_fork(void)
{
	auto_free char *id = create(), *path = xasprintf("/v1/sandboxes/%s/fork", id);
	struct caisson_run_options o = { .code = ticking, .language = "python" };
	struct series ready = { 0 }, pause = { 0 }, quiet = { 0 };
	struct caisson_run *r;
	struct caisson_error e;

	if (caisson_run_detached(c, id, &o, &r, &e) < 0)
		die("run", &e);
	for (int i = 0; i < 2 * FORKS; i++) {
		struct listening l = { .sandbox = id, .run = r->id };
		uv_thread_t thread;
		(void)uv_thread_create(&thread, listen_to, &l);
		usleep(1500000);
		l.gaps.longest = 0;
		uint64_t t = now_us();
		if (i % 2) {
			char child[37];
			fork_it(path, child);
			series_add(&ready, ms_since(t));
			usleep(300000);
			series_add(&pause, l.gaps.longest);
			delete(child);
		} else {
			usleep(1000000);
			series_add(&quiet, l.gaps.longest);
		}
		l.gaps.over = true;
		(void)uv_thread_join(&thread);
	}
	delete(id);
	caisson_run_free(r);
	series_alone("fork of a live 256 MiB machine in which Python runs: request to a running child", &ready, 250);
	series_alone("... longest silence of the parent, which says a line every 4 ms, meanwhile", &pause, 60);
	series_alone("... longest silence in a second without a fork", &quiet, 0);
}

/* --- many --- */

static uint64_t kib_of(const char *path, const char *field)
{
	char line[256];
	unsigned long long kib = 0, sum = 0;
	size_t n = strlen(field);
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, field, n) == 0 && sscanf(line + n, ": %llu", &kib) == 1)
			sum += kib;
	if (f)
		fclose(f);
	return sum;
}

/* Memory that is nobody else's, of every QEMU of the machines whose folders are there. */
static uint64_t private_kib(const char *machines)
{
	DIR *d = opendir(machines);
	uint64_t sum = 0;

	for (const struct dirent *entry; d && (entry = readdir(d));) {
		auto_free char *path = xasprintf("%s/%s/vmm", machines, entry->d_name);
		FILE *f = strlen(entry->d_name) == 36 ? fopen(path, "re") : NULL;
		int pid = 0;
		if (f && fscanf(f, "%d", &pid) == 1) {
			auto_free char *rollup = xasprintf("/proc/%d/smaps_rollup", pid);
			sum += kib_of(rollup, "Private_Dirty") + kib_of(rollup, "Private_Clean");
		}
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return sum;
}

static void bench_many(const char *machines, size_t many)
{
	char **ids = xcalloc(many, sizeof *ids);
	struct series first = { 0 }, last = { 0 };
	uint64_t before = kib_of("/proc/meminfo", "MemAvailable");

	for (size_t i = 0; i < many; i++) {
		uint64_t t = now_us();
		ids[i] = create();
		if (i < many / 5 || i >= many - many / 5)
			series_add(i < many / 5 ? &first : &last, ms_since(t));
	}
	sleep(2);
	uint64_t after = kib_of("/proc/meminfo", "MemAvailable"), private = private_kib(machines);
	for (size_t i = 0; i < many; i++) {
		delete(ids[i]);
		free(ids[i]);
	}
	free(ids);
	series_report("create, the last fifth", "create, the first fifth", &last, &first, 0);
	printf("\n%zu live at once, idle: **%.1f MiB** private to each QEMU (budget %d), %.1f MiB less available for each\n", many,
	       (double)private / (double)many / 1024, kvm ? 18 : 25, (double)(before - after) / (double)many / 1024);
}

int main(int argc, char **argv)
{
	struct caisson_error e;

	signal(SIGPIPE, SIG_IGN);
	if (argc < 4)
		return 2;
	size_t many = argc > 4 ? strtoul(argv[4], NULL, 10) : 100;
	const char *only = argc > 5 ? argv[5] : "";
	kvm = getenv("CAISSON_BENCH_KVM") != NULL;
	if (caisson_connect(NULL, &c, &e) < 0)
		die("connect", &e);
	auto_free char *made = create(); /* the template */
	delete(made);
	sleep(2); /* it is written */
	struct bare_vm *bare = bare_vm_new(argv[1], argv[2], MEMORY_MIB, kvm, argv[3]);
	auto_free char *title = xasprintf("Machines (%s, 1 cpu, 256 MiB)", kvm ? "KVM" : "emulated, hence few repetitions");
	series_head(title);
	if (!*only || strstr(only, "create"))
		bench_create(bare);
	if (!*only || strstr(only, "claim"))
		bench_claim();
	if (!*only || strstr(only, "runs"))
		bench_runs(bare);
	if (!*only || strstr(only, "fork"))
		bench_fork();
	if (many) {
		auto_free char *live = xasprintf("%zu live machines", many), *machines = xasprintf("%s/..", argv[1]);
		series_head(live);
		bench_many(machines, many);
	}
	bare_vm_free(bare);
	caisson_close(c);
	return 0;
}
