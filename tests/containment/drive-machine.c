/* Drives the warden's door for machines by lines, for test_machine.py. What is started as QEMU is PROGRAM.
 *
 *   drive-machine IMAGES DATA PROGRAM KERNEL INITRD     commands on stdin, one answer line each ("ok ..." or "error KIND MESSAGE")
 *     start ID DIGEST MEM_MIB CPU_MILLIS KVM DISK_MIB [WRONG]   "ok PID"; WRONG: what is handed over in place of the disk: "folder", "device"
 *     say ID TEXT      to the program's serial port; what comes back goes to stdout, ended by "done"
 *     end ID           the warden ends it; answered when nothing is left of it; "ok oom" when it had ended of that
 *     raw SEED         a thousand messages that a broken or hostile daemon might send
 *     restart, kill    the warden ends, by itself or by SIGKILL; a new one starts
 *     wait MS          events are printed as they come: "event ID ended"
 * A machine's log is DATA/ID.log, its disk DATA/ID.disk. */
#include "boundary/vm/launch.h"
#include "sys/process.h"
#include "warden/warden.h"
#include "wire/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct one {
	char id[40];
	int pidfd, log;
	uv_poll_t poll;
	bool ended;
	struct one *next;
};

enum { LOG_BYTES = 16384 };

static uv_loop_t loop;
static struct launcher *launcher;
static pid_t warden;
static int control; /* its daemon's pair: it ends when this closes */
static int raw_door; /* a copy of the launcher's */
static struct warden_options options;
static const char *data, *kernel, *initrd;
static struct one *ones;
static bool answered;

/* The one that runs. */
static struct one *find(const char *id)
{
	for (struct one *o = ones; o; o = o->next)
		if (streq(o->id, id) && !o->ended)
			return o;
	return NULL;
}

static void on_ended(uv_poll_t *h, int status, int events)
{
	struct one *o = h->data;

	(void)status, (void)events;
	uv_poll_stop(h);
	o->ended = true;
	printf("event %s ended\n", o->id);
}

static void launched(void *ctx, const struct err *e, pid_t pid, int pidfd)
{
	struct one *o = ctx;

	answered = true;
	if (e) {
		o->ended = true;
		printf("error %s %s\n", err_kind_name(e->kind), e->message);
		return;
	}
	o->pidfd = pidfd;
	uv_poll_init(&loop, &o->poll, pidfd);
	o->poll.data = o;
	uv_poll_start(&o->poll, UV_READABLE, on_ended);
	printf("ok %d\n", (int)pid);
}

static int address(const char *id, const char *name, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(a->sun_path, sizeof a->sun_path, "%s/%s.%s", data, id, name);
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int listener(const char *id, const char *name)
{
	struct sockaddr_un a;
	int fd = address(id, name, &a);

	(void)unlink(a.sun_path);
	return bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 4) < 0 ? -errno : fd;
}

static int disk_for(const char *id, unsigned long long mib, const char *wrong)
{
	auto_free char *path = xasprintf("%s/%s.disk", data, id);

	if (wrong && streq(wrong, "folder"))
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (wrong && streq(wrong, "device"))
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 || ftruncate(fd, (off_t)(mib << 20)) < 0 ? -errno : fd;
}

static void start(const char *id, const char *digest, char *rest)
{
	unsigned long long memory = 0, cpus = 0, kvm = 0, disk_mib = 0;
	char wrong[16] = "";
	struct one *o = xcalloc(1, sizeof *o);

	(void)sscanf(rest, "%llu %llu %llu %llu %15s", &memory, &cpus, &kvm, &disk_mib, wrong);
	auto_fd int disk = disk_for(id, disk_mib, wrong);
	bool again = find(id) != NULL; /* whose sockets stay where they are */
	auto_fd int guest = listener(id, again ? "guest-again" : "guest");
	auto_fd int qmp = listener(id, again ? "qmp-again" : "qmp");
	auto_fd int k = open(kernel, O_RDONLY | O_CLOEXEC);
	auto_fd int i = open(initrd, O_RDONLY | O_CLOEXEC);
	snprintf(o->id, sizeof o->id, "%s", id);
	o->log = memfd_create("log", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ftruncate(o->log, LOG_BYTES) < 0 || fcntl(o->log, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0)
		abort();
	o->next = ones;
	ones = o;
	const struct launch l = { .id = id,
				  .image = digest,
				  .plan = { .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .kvm = (uint32_t)kvm, .tsc_khz = 2000000, .cpu_millis = cpus, .memory_mib = memory },
				  .fds = { -EBADF, disk, guest, qmp, -EBADF, i, k },
				  .log = o->log };
	launcher->start(launcher, &l, launched, o);
	while (!answered)
		uv_run(&loop, UV_RUN_ONCE);
}

static void say(const char *id, const char *text)
{
	struct sockaddr_un a;
	char bytes[65536];
	ssize_t n;
	auto_fd int fd = address(id, "guest", &a);

	if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0 || write(fd, text, strlen(text)) < 0 || shutdown(fd, SHUT_WR) < 0)
		printf("error unavailable %s\n", strerror(errno));
	while ((n = read(fd, bytes, sizeof bytes)) > 0)
		fwrite(bytes, 1, (size_t)n, stdout);
	printf("done\n");
}

static void start_warden(void)
{
	int pair[2], door[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, door) < 0)
		abort();
	warden = fork();
	if (warden == 0) {
		int null = open("/dev/null", O_RDWR);
		close(pair[0]);
		close(door[0]);
		dup2(null, 0);
		dup2(null, 1);
		options.machines = door[1];
		_exit(warden_main(pair[1], &options));
	}
	close(pair[1]);
	close(door[1]);
	control = pair[0];
	raw_door = fcntl(door[0], F_DUPFD_CLOEXEC, 3);
	launcher = launcher_warden(&loop, door[0]);
}

static void end_warden(int signo)
{
	if (signo)
		kill(warden, signo);
	close(control);
	close(raw_door);
	launcher->free(launcher);
	while (waitpid(warden, NULL, 0) < 0 && errno == EINTR)
		;
	uv_run(&loop, UV_RUN_NOWAIT);
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
	while (!answered)
		uv_run(&loop, UV_RUN_ONCE);
	uv_run(&loop, UV_RUN_NOWAIT);
	printf("ok\n");
}

static void swept(void *ctx, bool oom)
{
	answered = true;
	printf("ok%s\n", oom ? " oom" : "");
	(void)ctx;
}

static void end(const char *id)
{
	struct one *o = find(id);

	launcher->kill(launcher, id, o ? o->pidfd : -EBADF);
	while (o && !o->ended)
		uv_run(&loop, UV_RUN_ONCE);
	launcher->swept(launcher, id, swept, NULL);
	while (!answered)
		uv_run(&loop, UV_RUN_ONCE);
}

/* Half of them are records but for a few bytes, and some have every field right but one; with as many descriptors as chance wants. Answers
 * that have serials nobody has given are thrown away by the launcher. */
static void raw(unsigned seed)
{
	int fds[16];

	srandom(seed);
	for (int i = 0; i < 1000; i++) {
		struct machine_request rq = { .magic = MACHINE_MAGIC, .op = MACHINE_START, .serial = 1u << 30, .id = "00000000-0000-4000-8000-000000000000",
					      .image_digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000",
					      .plan = { .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .cpu_millis = 1000, .memory_mib = 128 } };
		union {
			struct cmsghdr head;
			char room[CMSG_SPACE(sizeof fds)];
		} control_data = { 0 };
		size_t n = (size_t)random() % 16, changes = (size_t)random() % 4, size = random() % 4 ? sizeof rq : 1 + (size_t)random() % sizeof rq; /* none at all is the end */
		struct iovec v = { &rq, size };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
		for (size_t k = 0; k < changes; k++)
			((unsigned char *)&rq)[(size_t)random() % sizeof rq] = (unsigned char)random();
		for (size_t k = 0; k < n; k++)
			fds[k] = random() % 2 ? 0 : raw_door;
		if (n) {
			control_data.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
			memcpy(CMSG_DATA(&control_data.head), fds, n * sizeof(int));
			m.msg_control = &control_data;
			m.msg_controllen = CMSG_SPACE(n * sizeof(int));
		}
		if (sendmsg(raw_door, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EAGAIN)
			i--;
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	printf("ok\n");
}

static void obey(char *line)
{
	char *at = NULL, *op = strtok_r(line, " \n", &at), *id = strtok_r(NULL, " \n", &at);

	answered = false;
	if (op && (streq(op, "restart") || streq(op, "kill"))) {
		end_warden(streq(op, "kill") ? SIGKILL : 0);
		start_warden();
		printf("ok\n");
	} else if (!op || !id) {
		printf("error invalid what?\n");
	} else if (streq(op, "wait")) {
		wait_ms(id);
	} else if (streq(op, "raw")) {
		raw((unsigned)strtoul(id, NULL, 10));
	} else if (streq(op, "end")) {
		end(id);
	} else if (streq(op, "say")) {
		say(id, at);
	} else {
		char *digest = strtok_r(NULL, " \n", &at);
		start(id, digest, at);
	}
}

static void write_logs(void)
{
	for (struct one *o = ones; o; o = o->next) {
		char text[LOG_BYTES + 1] = "";
		auto_free char *path = xasprintf("%s/%s.log", data, o->id);
		FILE *f = fopen(path, "w");
		if (f && pread(o->log, text, LOG_BYTES, 0) > 0)
			fputs(text, f);
		if (f)
			fclose(f);
	}
}

int main(int argc, char **argv)
{
	static char line[4096];
	static const char guest[] = "no guest is started here";

	if (argc != 6)
		return 2;
	options = (struct warden_options){ .images = argv[1], .data = argv[2], .guest = guest, .guest_len = sizeof guest, .log_level = LOG_WARN };
	options.vmm = argv[3];
	data = argv[2];
	kernel = argv[4];
	initrd = argv[5];
	setvbuf(stdout, NULL, _IOLBF, 0);
	uv_loop_init(&loop);
	start_warden();
	while (fgets(line, sizeof line, stdin))
		obey(line);
	write_logs();
	end_warden(0);
	return 0;
}
