/* Other processes, IPC, privileges, scheduling, cgroups as seen from inside. */
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void others(void)
{
	int strangers = 0, highest = 0;
	char path[64], text[256];
	DIR *dir = opendir("/proc");

	for (struct dirent *d; dir && (d = readdir(dir));) {
		int pid = atoi(d->d_name);
		highest = pid > highest ? pid : highest;
		snprintf(path, sizeof path, "/proc/%d/comm", pid);
		FILE *f = pid ? fopen(path, "r") : NULL;
		if (f) {
			if (fgets(text, sizeof text, f) &&
			    (strstr(text, "systemd") || strstr(text, "kthreadd") || strstr(text, "caissond") || strstr(text, "warden")))
				strangers++;
			fclose(f);
		}
	}
	if (dir)
		closedir(dir);
	verdict(strangers == 0, "host-processes", "%d seen", strangers);
	verdict(getppid() >= 0 && getpid() < 20000, "own-pid-namespace", "pid %d", getpid());
	/* A signal to a number that is certainly somebody's on the host, and to all. */
	verdict(kill(2000000, 0) < 0 && errno == ESRCH, "kill-stranger", "errno %d", errno);
	refused("pidfd-of-stranger", syscall(434, 2000000, 0));
	/* Root inside may do with its own PID 1 what it likes, at its own cost; the user may not. */
	if (geteuid() != 0)
		refused("ptrace-pid1", ptrace(PTRACE_ATTACH, 1, NULL, NULL));
}

static void everybody(void)
{
	/* In a child with its own group, so that the probe survives: kill(-1) and kill(0) end at the edge of the sandbox; whether
	 * anything died outside is the runner's to see. Signal 0 only tries the rights. */
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		setsid();
		kill(0, 0);
		kill(-1, 0);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	verdict(WIFEXITED(status), "kill-everybody", "status %x", status);
}

static void capabilities(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct now[2] = { { 0 } }, more[2];
	/* chown dac_override fowner fsetid kill setgid setuid net_bind_service sys_chroot setfcap */
	const uint64_t kept =
		1ULL << 0 | 1ULL << 1 | 1ULL << 3 | 1ULL << 4 | 1ULL << 5 | 1ULL << 6 | 1ULL << 7 | 1ULL << 10 | 1ULL << 18 | 1ULL << 31;

	syscall(SYS_capget, &head, now);
	uint64_t have = (uint64_t)now[1].permitted << 32 | now[0].permitted;
	verdict((have & ~kept) == 0, "capabilities", "%llx", (unsigned long long)have);
	uint64_t bounding = 0;
	for (int cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1)
			bounding |= 1ULL << cap;
	verdict((bounding & ~kept) == 0, "bounding-set", "%llx", (unsigned long long)bounding);
	memset(more, 0xff, sizeof more);
	refused("capset-all", syscall(SYS_capset, &head, more));
	refused("nice-below-zero", setpriority(PRIO_PROCESS, 0, -10));
	struct sched_param rt = { .sched_priority = 50 };
	refused("real-time", sched_setscheduler(0, SCHED_FIFO, &rt));
	struct rlimit r;
	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_max += 1000000;
	r.rlim_cur = r.rlim_max;
	refused("raise-hard-limit", setrlimit(RLIMIT_NOFILE, &r));
}

/* IPC objects of the host or a neighbour would have these keys: the runner makes them. */
static void ipc(void)
{
	refused("sysv-shm-of-host", shmget(0x43414953, 1, 0));
	refused("sysv-sem-of-host", semget(0x43414953, 1, 0));
	refused("sysv-msg-of-host", msgget(0x43414953, 0));
	refused("posix-queue-of-host", syscall(SYS_mq_open, "caisson-host-queue", O_RDONLY, 0, NULL));
	refused("posix-shm-of-host", open("/dev/shm/caisson-host-shm", O_RDONLY));
}

static void memory_of_pid1(void)
{
	char bytes[16];
	struct iovec local = { bytes, sizeof bytes }, remote = { (void *)0x10000, sizeof bytes };
	char path[] = "/proc/1/mem";

	/* PID 1 is inside, so this is about what it may hold: nothing of the host; as the user it must be refused. */
	if (geteuid() != 0) {
		refused("read-pid1-memory", process_vm_readv(1, &local, 1, &remote, 1, 0));
		refused("open-pid1-memory", open(path, O_RDWR));
		refused("read-pid1-environment", open("/proc/1/environ", O_RDONLY));
	}
	int fd = open("/proc/1/root/etc/hostname", O_RDONLY);
	struct stat a, b;
	if (fd >= 0 && fstat(fd, &a) == 0 && stat("/etc/hostname", &b) == 0)
		verdict(a.st_ino == b.st_ino && a.st_dev == b.st_dev, "root-of-pid1", "is another one");
	else
		verdict(1, "root-of-pid1", " ");
	if (fd >= 0)
		close(fd);
}

static void cgroup_view(void)
{
	char line[512];
	FILE *f = fopen("/proc/self/cgroup", "r");
	int leaks = 0;

	while (f && fgets(line, sizeof line, f))
		if (strstr(line, "caisson") || strstr(line, ".."))
			leaks++;
	if (f)
		fclose(f);
	verdict(leaks == 0, "cgroup-view", "%d lines of /proc/self/cgroup name places of the host", leaks);
	/* The delegated directory of PID 1, if root can get at it: the limits are not delegated. */
	static const char *const limits[] = {
		"memory.max", "pids.max", "cpu.max", "cgroup.max.descendants", "cgroup.freeze", "../cgroup.procs", "memory.limit_in_bytes"
	};
	char path[80], name[80];
	for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) {
		snprintf(path, sizeof path, "/proc/1/fd/4/%s", limits[i]);
		snprintf(name, sizeof name, "limit-%s", limits[i]);
		if (strcmp(limits[i], "cgroup.freeze") == 0 && access(path, W_OK) < 0)
			continue;
		refused(name, write_file(path, "0"));
	}
}

/* A setuid program must gain nothing: a copy of ourselves, setuid root, run by the user. */
static void setuid_files(void)
{
	char *argv[] = { "probe-setuid", NULL };
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (geteuid() == 0 && (setgid(1000) < 0 || setuid(1000) < 0))
			_exit(0);
		int null = open("/dev/null", O_RDWR);
		for (int fd = 0; fd < 3; fd++)
			dup2(null, fd);
		/* su is setuid root in any Debian; without it there is nothing to try */
		execv("/usr/bin/su", argv);
		_exit(0);
	}
	usleep(50000);
	char path[40], line[256];
	unsigned uid = 0, euid = 1;
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "Uid: %u %u", &uid, &euid) == 2)
			break;
	if (f)
		fclose(f);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	verdict(!(uid == 1000 && euid == 0), "setuid-program", "ran as uid %u euid %u", uid, euid);
}

/* A program that only is in memory obeys the same filter. */
static void memory_program(void)
{
	char bytes[65536];
	ssize_t n;
	int in = open("/proc/self/exe", O_RDONLY), out = memfd_create("again", 0), status = 0;

	while ((n = read(in, bytes, sizeof bytes)) > 0)
		if (write(out, bytes, (size_t)n) != n)
			break;
	close(in);
	pid_t pid = fork();
	if (pid == 0) {
		char path[40];
		snprintf(path, sizeof path, "/proc/self/fd/%d", out);
		char *argv[] = { path, "--seccomp", NULL }, *env[] = { "LD_PRELOAD=/tmp/none.so", NULL };
		execve(path, argv, env);
		_exit(99);
	}
	waitpid(pid, &status, 0);
	close(out);
	verdict(WIFEXITED(status) && WEXITSTATUS(status) == 2, "memfd-program", "status %x", status);
}

void probe_processes(void)
{
	others();
	everybody();
	capabilities();
	ipc();
	memory_of_pid1();
	cgroup_view();
	setuid_files();
	memory_program();
}
