#include "boundary/vm/vmm.h"

#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static int make_node(const char *path, unsigned major, unsigned minor)
{
	return mknod(path, S_IFCHR | 0666, makedev(major, minor)) < 0 || chmod(path, 0666) < 0 ? -errno : 0;
}

static int own_dev(bool kvm)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k") < 0)
		return -errno;
	int r = make_node("/dev/null", 1, 3);
	if (r == 0)
		r = make_node("/dev/urandom", 1, 9);
	return r == 0 && kvm ? make_node("/dev/kvm", 10, 232) : r;
}

static int give_up_rights(const struct vmm_start *s, bool kvm)
{
	if (geteuid() == 0) {
		if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
			return -errno;
		int r = own_dev(kvm);
		if (r < 0)
			return r;
	}
	if (s->uid && (setgroups(0, NULL) < 0 || setresgid(s->gid, s->gid, s->gid) < 0 || setresuid(s->uid, s->uid, s->uid) < 0))
		return -errno;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* In the child. Returns the errno that stopped it. */
static int become(const struct vmm_start *s, bool kvm)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	if (setsid() < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(s->log, 2) < 0)
		return errno;
	for (size_t i = 0; i < s->fds_n; i++)
		if (fcntl(s->fds[i], F_SETFD, 0) < 0)
			return errno;
	(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* huge pages cost a waiting guest 3 to 4 MiB */
	int r = give_up_rights(s, kvm);
	if (r < 0)
		return -r;
	for (int n = 1; n < 65; n++)
		(void)signal(n, SIG_DFL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	execv(s->argv[0], s->argv);
	return errno;
}

pid_t vmm_start(const struct vmm_start *s, bool kvm, int *ret_pidfd, struct err *e)
{
	int report[2], cause = 0;

	if (pipe2(report, O_CLOEXEC) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make a pipe");
	pid_t pid = fork();
	if (pid == 0) {
		cause = become(s, kvm);
		ssize_t n = write(report[1], &cause, sizeof cause);
		_exit(n == sizeof cause ? 127 : 126);
	}
	int failed = errno;
	(void)close(report[1]);
	ssize_t n = pid < 0 ? 0 : read(report[0], &cause, sizeof cause);
	(void)close(report[0]);
	if (pid < 0)
		return err_sys(e, ERR_UNAVAILABLE, failed, "start a process for QEMU");
	int pidfd = process_pidfd(pid);
	if (n != 0 || pidfd < 0) {
		if (pidfd >= 0) {
			(void)process_signal(pidfd, SIGKILL);
			(void)process_wait(pidfd, NULL);
			(void)close(pidfd);
		}
		return err_sys(e, ERR_UNAVAILABLE, n ? cause : -pidfd, "start %s (package qemu-system-x86)", s->argv[0]);
	}
	*ret_pidfd = pidfd;
	return pid;
}

char *vmm_record(pid_t pid)
{
	uint64_t ticks;
	char boot[37];

	if (process_start_time(pid, &ticks) < 0 || process_boot_id(boot) < 0)
		return NULL;
	return xasprintf("%d %llu %s", (int)pid, (unsigned long long)ticks, boot);
}

int vmm_find(const char *record, pid_t *ret_pid)
{
	char *end;
	long pid = strtol(record, &end, 10);

	if (end == record || *end != ' ' || pid <= 1 || pid > INT32_MAX)
		return -ESRCH;
	int pidfd = process_pidfd((pid_t)pid); /* before the comparison: from here on the number is not given away again */
	if (pidfd < 0)
		return -ESRCH;
	auto_free char *now = vmm_record((pid_t)pid);
	if (!now || !streq(now, record) || process_ended(pidfd)) {
		(void)close(pidfd);
		return -ESRCH;
	}
	*ret_pid = (pid_t)pid;
	return pidfd;
}
