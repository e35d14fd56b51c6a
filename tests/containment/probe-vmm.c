/* Runs in a machine's jail in QEMU's place: what somebody finds who has taken QEMU over. Takes a line from a connection to the guest's
 * serial port and answers it:
 *
 *   report   everything it can find out, a line each: "name value..."
 *   args     its command line and environment
 *   hog      takes memory until it is killed
 *   grow     writes behind the end of the disk
 *   log      fills its standard error
 *   threads  as many threads as it gets
 *   end      exits */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { IMAGE = 3, DISK, GUEST };

static FILE *out;

static void lines_of(const char *name, const char *path)
{
	char line[1024];
	FILE *f = fopen(path, "re");

	if (!f) {
		fprintf(out, "%s - %s\n", name, strerror(errno));
		return;
	}
	while (fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		fprintf(out, "%s %s\n", name, line);
	}
	fclose(f);
}

static void walk(const char *path, int depth)
{
	char inside[4096];
	struct stat st;

	if (strcmp(path, "/proc") == 0 || lstat(path, &st) < 0) /* /proc is listed apart */
		return;
	fprintf(out, "file %s %o %u%s\n", path, st.st_mode, st.st_uid, access(path, W_OK) == 0 ? " writable" : "");
	DIR *d = S_ISDIR(st.st_mode) && depth < 16 ? opendir(path) : NULL;
	if (!d)
		return;
	snprintf(inside, sizeof inside, "%s/made", path);
	if (open(inside, O_WRONLY | O_CREAT, 0600) >= 0)
		fprintf(out, "made %s\n", inside);
	for (struct dirent *e; (e = readdir(d));) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(inside, sizeof inside, "%s/%s", path[1] ? path : "", e->d_name);
		walk(inside, depth + 1);
	}
	closedir(d);
}

static void list(const char *name, const char *path)
{
	DIR *d = opendir(path);

	if (!d)
		fprintf(out, "%s - %s\n", name, strerror(errno));
	for (struct dirent *e; d && (e = readdir(d));) {
		char full[4096], target[4096] = "";
		if (e->d_name[0] == '.')
			continue;
		snprintf(full, sizeof full, "%s/%s", path, e->d_name);
		(void)!readlink(full, target, sizeof target - 1);
		fprintf(out, "%s %s %s\n", name, e->d_name, target);
	}
	if (d)
		closedir(d);
}

static void call(const char *name, long rc)
{
	fprintf(out, "call %s %s\n", name, rc < 0 ? strerror(errno) : "DONE");
}

static void processes(void)
{
	char bytes[16];
	struct iovec here = { bytes, sizeof bytes }, there = { (void *)4096, sizeof bytes };
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	call("fork", child);
	call("vfork", syscall(SYS_vfork));
	call("kill-all", kill(-1, 0));
	call("kill-parent", kill(getppid(), 0));
	for (pid_t p = 1; p < 400; p++)
		if (p != getpid() && (syscall(SYS_tgkill, p, p, 0) == 0 || errno == EPERM))
			fprintf(out, "sees process %d\n", p);
	call("ptrace", ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	call("process_vm_readv", process_vm_readv(getppid(), &here, 1, &there, 1, 0));
	call("pidfd_open", syscall(SYS_pidfd_open, 1, 0));
	call("setuid", setuid(0));
	call("setpriority", setpriority(PRIO_PROCESS, 0, -5));
}

static void kernel_surface(void)
{
	char attr[128] = { 0 };

	call("unshare-user", unshare(CLONE_NEWUSER));
	call("unshare-net", unshare(CLONE_NEWNET));
	call("setns", setns(0, 0));
	call("mount", mount("none", "/proc", "tmpfs", 0, NULL));
	call("umount", umount2("/proc", MNT_DETACH));
	call("pivot_root", syscall(SYS_pivot_root, "/", "/"));
	call("chroot", chroot("/dev"));
	call("mknod", mknod("/dev/null2", S_IFCHR | 0666, 0x103));
	call("bpf", syscall(SYS_bpf, 0, attr, sizeof attr));
	call("perf", syscall(SYS_perf_event_open, attr, 0, -1, -1, 0));
	call("io_uring", syscall(SYS_io_uring_setup, 1, attr));
	call("userfaultfd", syscall(SYS_userfaultfd, 0));
	call("keyctl", syscall(SYS_keyctl, 0, -3, 1));
	call("add_key", syscall(SYS_add_key, "user", "x", "x", 1, -2));
	call("by_handle", syscall(SYS_open_by_handle_at, AT_FDCWD, attr, 0));
	call("shmget", syscall(SYS_shmget, 0, 4096, 01600));
	call("mq_open", syscall(SYS_mq_open, "x", O_RDWR | O_CREAT, 0600, NULL));
	call("socket-unix", socket(AF_UNIX, SOCK_STREAM, 0));
	call("socket-inet", socket(AF_INET, SOCK_STREAM, 0));
	call("socket-inet6", socket(AF_INET6, SOCK_DGRAM, 0));
	call("socket-netlink", socket(AF_NETLINK, SOCK_RAW, 0));
	call("socket-vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
	call("write-image", pwrite(IMAGE, "x", 1, 0));
	call("truncate-image", ftruncate(IMAGE, 0));
	call("reopen-image", open("/proc/self/fd/3", O_RDWR));
	call("program-for-writing", open("/proc/self/exe", O_RDWR));
	call("up", open("/proc/self/root/..", O_PATH) < 0 ? -1 : open("/etc/passwd", O_RDONLY));
}

static void report(void)
{
	struct rlimit r;
	struct utsname u;

	uname(&u);
	fprintf(out, "name %s\n", u.nodename);
	lines_of("status", "/proc/self/status");
	lines_of("uid_map", "/proc/self/uid_map");
	lines_of("cgroup", "/proc/self/cgroup");
	lines_of("net", "/proc/self/net/dev");
	lines_of("mountinfo", "/proc/self/mountinfo");
	list("proc", "/proc");
	list("fd", "/proc/self/fd");
	list("ns", "/proc/self/ns");
	getrlimit(RLIMIT_FSIZE, &r);
	fprintf(out, "fsize %llu\n", (unsigned long long)r.rlim_cur);
	getrlimit(RLIMIT_CORE, &r);
	fprintf(out, "core %llu\n", (unsigned long long)r.rlim_max);
	walk("/", 0);
	processes();
	kernel_surface();
	int kvm = open("/dev/kvm", O_RDWR);
	fprintf(out, "kvm %s\n", kvm >= 0 ? "opens" : strerror(errno));
}

static void *sleep_on(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void grow(void)
{
	struct stat st;
	struct rlimit r;

	signal(SIGXFSZ, SIG_IGN);
	fstat(DISK, &st);
	getrlimit(RLIMIT_FSIZE, &r);
	call("write-behind", pwrite(DISK, "x", 1, (off_t)r.rlim_cur));
	call("extend", ftruncate(DISK, (off_t)r.rlim_cur + 1));
	call("write-within", pwrite(DISK, "x", 1, st.st_size - 1));
}

static void obey(const char *line, char **argv, char **env)
{
	if (strcmp(line, "report") == 0) {
		report();
	} else if (strcmp(line, "args") == 0) {
		for (; *argv; argv++)
			fprintf(out, "arg %s\n", *argv);
		for (; *env; env++)
			fprintf(out, "env %s\n", *env);
	} else if (strcmp(line, "hog") == 0) {
		fprintf(out, "begun\n");
		fflush(out);
		for (;;) {
			char *p = mmap(NULL, 1 << 24, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
			if (p == MAP_FAILED)
				return;
			memset(p, 1, 1 << 24);
		}
	} else if (strcmp(line, "grow") == 0) {
		grow();
	} else if (strcmp(line, "log") == 0) {
		long long total = 0;
		char block[4096];
		memset(block, 'x', sizeof block);
		for (ssize_t n; (n = write(2, block, sizeof block)) > 0 && total < 1 << 24;)
			total += n;
		fprintf(out, "written %lld\n", total);
	} else if (strcmp(line, "threads") == 0) {
		int n = 0;
		pthread_t t;
		pthread_attr_t small;
		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, 16384);
		while (n < 5000 && pthread_create(&t, &small, sleep_on, NULL) == 0)
			n++;
		fprintf(out, "threads %d\n", n);
	} else if (strcmp(line, "end") == 0) {
		exit(0);
	}
}

int main(int argc, char **argv, char **env)
{
	if (argc > 1 && strcmp(argv[1], "--version") == 0)
		return 0;
	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		char line[64] = "";
		size_t n = 0;
		int fd = accept4(GUEST, NULL, NULL, SOCK_CLOEXEC);
		for (ssize_t got; fd >= 0 && n < sizeof line - 1 && (got = read(fd, line + n, sizeof line - 1 - n)) > 0;)
			n += (size_t)got;
		if (fd < 0)
			return 1;
		line[strcspn(line, "\n")] = '\0';
		out = fdopen(fd, "w");
		obey(line, argv, env);
		fclose(out);
	}
}
