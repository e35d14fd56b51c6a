/* Drives the process boundary by lines, for the runners of the tests: no daemon, no guest protocol.
 *
 *   drive IMAGES DATA GUEST        commands on stdin, one answer line each ("ok ..." or "error KIND MESSAGE")
 *     create ID DIGEST MEM_MIB DISK_MIB PIDS CPU_MILLIS EPHEMERAL    start: the same
 *     stop ID   destroy ID   pause ID   resume ID   list   usage ID
 *     run ID UID FILE COMMAND...   FILE ("-" = none) is the input; output goes to stdout, ended by "exit N"
 *     restart                      the warden ends, a new one starts        kill: as restart, with SIGKILL
 *     wait MS                      events are printed as they come: "event ID oom|ended" */
#include "boundary/process/process.h"
#include "warden/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static uv_loop_t loop;
static struct boundary *b;
static pid_t warden;
static struct warden_options options;
static bool answered, lost;

static void done(void *ctx, const struct err *e)
{
	(void)ctx;
	answered = true;
	if (e)
		printf("error %s %s\n", err_kind_name(e->kind), e->message);
	else
		printf("ok\n");
}

static void listed(void *ctx, const struct err *e, const char *const *ids, const bool *started, size_t n)
{
	(void)ctx;
	answered = true;
	if (e) {
		printf("error %s %s\n", err_kind_name(e->kind), e->message);
		return;
	}
	printf("ok");
	for (size_t i = 0; i < n; i++)
		printf(" %s=%d", ids[i], started[i]);
	printf("\n");
}

static void used(void *ctx, const struct err *e, const struct usage *u)
{
	(void)ctx;
	answered = true;
	if (e) {
		printf("error %s %s\n", err_kind_name(e->kind), e->message);
		return;
	}
	printf("ok memory=%llu/%llu cpu_usec=%llu cpus=%.2f pids=%llu/%llu disk=%llu/%llu inodes=%llu/%llu oom=%llu\n",
	       (unsigned long long)u->memory_bytes, (unsigned long long)u->memory_limit_bytes, (unsigned long long)u->cpu_usec, u->cpu_limit,
	       (unsigned long long)u->pids, (unsigned long long)u->pids_limit, (unsigned long long)u->disk_bytes,
	       (unsigned long long)u->disk_limit_bytes, (unsigned long long)u->inodes, (unsigned long long)u->inodes_limit,
	       (unsigned long long)u->oom_kills);
}

static void exited(void *ctx, const char *id, const struct boundary_exit *x)
{
	(void)ctx;
	printf("event %s %s\n", id, x->oom ? "oom" : "ended");
}

static void on_lost(void *ctx, const struct err *e)
{
	(void)ctx;
	lost = true;
	printf("lost %s\n", e->message);
}

static int start_warden(void)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	warden = fork();
	if (warden == 0) {
		close(pair[0]);
		int null = open("/dev/null", O_RDWR);
		dup2(null, 0);
		dup2(null, 1);
		_exit(warden_main(pair[1], &options));
	}
	close(pair[1]);
	lost = false;
	b = process_boundary_new(&loop, pair[0], on_lost, NULL);
	b->on_exit = exited;
	return 0;
}

static void end_warden(int signo)
{
	int status;

	if (signo)
		kill(warden, signo);
	else
		b->ops->free(b);
	while (waitpid(warden, &status, 0) < 0 && errno == EINTR)
		;
	if (signo) {
		while (!lost)
			uv_run(&loop, UV_RUN_ONCE);
		b->ops->free(b);
	}
	uv_run(&loop, UV_RUN_NOWAIT);
}

static void until_answered(void)
{
	while (!answered)
		uv_run(&loop, UV_RUN_ONCE);
}

static bool send_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t w = write(fd, p, n);
		if (w < 0)
			return false;
		p += w;
		n -= (size_t)w;
	}
	return true;
}

static void run(const char *id, const char *uid, const char *file, const char *command)
{
	struct err e;
	char bytes[65536];
	ssize_t n;
	auto_fd int fd = b->ops->open_guest(b, id, &e);

	if (fd < 0) {
		printf("error %s %s\n", err_kind_name(e.kind), e.message);
		return;
	}
	(void)fcntl(fd, F_SETFL, 0);
	auto_free char *head = xasprintf("%s\n%s", uid, command);
	bool sent = send_all(fd, head, strlen(head) + 1);
	auto_fd int in = streq(file, "-") ? -EBADF : open(file, O_RDONLY | O_CLOEXEC);
	while (sent && in >= 0 && (n = read(in, bytes, sizeof bytes)) > 0)
		sent = send_all(fd, bytes, (size_t)n);
	(void)shutdown(fd, SHUT_WR);
	while ((n = read(fd, bytes, sizeof bytes)) > 0)
		fwrite(bytes, 1, (size_t)n, stdout);
	printf("done\n");
}

static void make(const char *op, const char *id, const char *digest, char *rest)
{
	unsigned long long memory = 0, disk = 0, pids = 0, cpus = 0, ephemeral = 0;
	struct pair pairs[] = { { (char[]){ "LANG" }, (char[]){ "C.UTF-8" } } };
	const struct pairs env = { pairs, 1 };

	(void)sscanf(rest, "%llu %llu %llu %llu %llu", &memory, &disk, &pids, &cpus, &ephemeral);
	const struct boundary_spec spec = {
		.id = id,
		.image_digest = digest,
		.hostname = "drive-test",
		.env = &env,
		.ephemeral = ephemeral,
		.resources = { .cpus = (double)cpus / 1000, .memory_mib = memory, .disk_mib = disk, .pids = pids },
	};
	(streq(op, "create") ? b->ops->create : b->ops->start)(b, &spec, done, NULL);
}

static void on_late(uv_timer_t *timer)
{
	answered = true;
	uv_close((uv_handle_t *)timer, NULL);
}

static void wait_ms(const char *ms)
{
	static uv_timer_t timer;

	uv_timer_init(&loop, &timer);
	uv_timer_start(&timer, on_late, strtoull(ms, NULL, 10), 0);
	until_answered();
	uv_run(&loop, UV_RUN_NOWAIT);
	printf("ok\n");
}

static void obey(char *line)
{
	const struct boundary_ops *ops = b->ops;
	char *at = NULL, *op = strtok_r(line, " \n", &at), *id = strtok_r(NULL, " \n", &at);

	answered = false;
	if (!op)
		return;
	if (streq(op, "restart") || streq(op, "kill")) {
		end_warden(streq(op, "kill") ? SIGKILL : 0);
		printf(start_warden() < 0 ? "error\n" : "ok\n");
		return;
	}
	if (streq(op, "list")) {
		ops->list(b, listed, NULL);
	} else if (!id) {
		printf("error invalid what?\n");
		return;
	} else if (streq(op, "run")) {
		char *uid = strtok_r(NULL, " \n", &at), *file = strtok_r(NULL, " \n", &at);
		run(id, uid, file, at);
		return;
	} else if (streq(op, "create") || streq(op, "start")) {
		char *digest = strtok_r(NULL, " \n", &at);
		make(op, id, digest, at);
	} else if (streq(op, "wait")) {
		wait_ms(id);
		return;
	} else if (streq(op, "usage")) {
		ops->usage(b, id, used, NULL);
	} else {
		void (*const f)(struct boundary *, const char *, boundary_done_fn, void *) = streq(op, "stop")	   ? ops->stop
											     : streq(op, "pause")  ? ops->pause
											     : streq(op, "resume") ? ops->resume
														   : ops->destroy;
		f(b, id, done, NULL);
	}
	until_answered();
}

static void *read_file(const char *path, size_t *ret_n)
{
	struct stat st;
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	void *p = xmalloc((size_t)st.st_size);
	ssize_t n = read(fd, p, (size_t)st.st_size);
	*ret_n = n < 0 ? 0 : (size_t)n;
	return p;
}

int main(int argc, char **argv)
{
	static char line[1 << 20];

	if (argc != 4)
		return 2;
	options = (struct warden_options){ .images = argv[1], .data = argv[2], .log_level = LOG_WARN, .old_kernel = getenv("OLD_KERNEL") != NULL, .end_all = getenv("END_ALL") != NULL };
	void *guest = read_file(argv[3], &options.guest_len);
	options.guest = guest;
	setvbuf(stdout, NULL, _IOLBF, 0);
	uv_loop_init(&loop);
	if (!guest || start_warden() < 0)
		return 1;
	while (fgets(line, sizeof line, stdin))
		obey(line);
	end_warden(0);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_loop_close(&loop);
	free(guest);
	return 0;
}
