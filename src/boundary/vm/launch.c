#include "boundary/vm/launch.h"

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

struct direct {
	struct launcher base;
	char *images, *program;
	uid_t uid;
	gid_t gid;
};

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

static int give_up_rights(const struct direct *d, bool kvm)
{
	if (geteuid() == 0) {
		if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
			return -errno;
		int r = own_dev(kvm);
		if (r < 0)
			return r;
	}
	if (d->uid && (setgroups(0, NULL) < 0 || setresgid(d->gid, d->gid, d->gid) < 0 || setresuid(d->uid, d->uid, d->uid) < 0))
		return -errno;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* Out of the way first, since one's number may be another's place. */
static int arrange_descriptors(const int fds[static VMM_FDS])
{
	int aside[VMM_FDS];

	for (int i = 0; i < VMM_FDS; i++) {
		aside[i] = fds[i] < 0 ? -EBADF : fcntl(fds[i], F_DUPFD_CLOEXEC, VMM_FD_END);
		if (fds[i] >= 0 && aside[i] < 0)
			return -errno;
	}
	for (int i = 0; i < VMM_FDS; i++)
		if (aside[i] >= 0 && dup2(aside[i], VMM_FD_FIRST + i) < 0)
			return -errno;
	return 0;
}

/* In the child. Returns the errno that stopped it. */
static int become(const struct direct *d, const struct launch *l, char **argv, const int fds[static VMM_FDS])
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	if (setsid() < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(l->log, 2) < 0)
		return errno;
	(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* huge pages cost a waiting guest 3 to 4 MiB */
	int r = give_up_rights(d, l->plan.kvm);
	if (r == 0)
		r = arrange_descriptors(fds);
	if (r < 0)
		return -r;
	for (int n = 1; n < 65; n++)
		(void)signal(n, SIG_DFL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	execv(argv[0], argv);
	return errno;
}

static pid_t begin(const struct direct *d, const struct launch *l, const int fds[static VMM_FDS], int *ret_pidfd, struct err *e)
{
	int report[2], cause = 0;

	if (pipe2(report, O_CLOEXEC) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make a pipe");
	char **argv = vmm_argv(d->program, &l->plan);
	pid_t pid = fork();
	if (pid == 0) {
		int out = fcntl(report[1], F_DUPFD_CLOEXEC, VMM_FD_END);
		cause = become(d, l, argv, fds);
		ssize_t n = write(out, &cause, sizeof cause);
		_exit(n == sizeof cause ? 127 : 126);
	}
	int failed = errno;
	vmm_argv_free(argv);
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
		return err_sys(e, ERR_UNAVAILABLE, n ? cause : -pidfd, "start %s (package qemu-system-x86)", d->program);
	}
	*ret_pidfd = pidfd;
	return pid;
}

static void direct_start(struct launcher *base, const struct launch *l, launched_fn done, void *ctx)
{
	const struct direct *d = container_of(base, struct direct, base);
	auto_free char *path = xasprintf("%s/sha256-%s/root.erofs", d->images, strchr(l->image, ':') + 1);
	auto_fd int image = open(path, O_RDONLY | O_CLOEXEC);
	int fds[VMM_FDS], pidfd = -EBADF;
	struct err e;

	if (image < 0) {
		(void)err_sys(&e, ERR_UNAVAILABLE, errno, "open the image's file system %s", path);
		done(ctx, &e, 0, -EBADF);
		return;
	}
	memcpy(fds, l->fds, sizeof fds);
	fds[VMM_FD_IMAGE - VMM_FD_FIRST] = image;
	pid_t pid = begin(d, l, fds, &pidfd, &e);
	done(ctx, pid < 0 ? &e : NULL, pid, pidfd);
}

static void direct_kill(struct launcher *base, const char *id, int pidfd)
{
	(void)base;
	(void)id;
	(void)process_signal(pidfd, SIGKILL);
}

static void direct_free(struct launcher *base)
{
	struct direct *d = container_of(base, struct direct, base);

	free(d->images);
	free(d->program);
	free(d);
}

struct launcher *launcher_direct(const char *images, const char *program, uid_t uid, gid_t gid, struct err *e)
{
	program = program ? program : VMM_PROGRAM;
	if (access(program, X_OK) < 0) {
		(void)err_sys(e, ERR_UNAVAILABLE, errno, "%s (package qemu-system-x86)", program);
		return NULL;
	}
	struct direct *d = xcalloc(1, sizeof *d);

	d->base = (struct launcher){ .start = direct_start, .kill = direct_kill, .free = direct_free };
	d->images = xstrdup(images);
	d->program = xstrdup(program);
	d->uid = uid;
	d->gid = gid;
	return &d->base;
}
