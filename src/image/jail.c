#include "image/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The new root is a tmpfs laid over this folder; every host has it, and what is under it is not needed in the jail. */
#define BASE "/tmp"

/* Without what is mounted below it: the flags would not reach that. */
static int bind(const char *from, const char *to, unsigned long flags)
{
	if (mount(from, to, NULL, MS_BIND, NULL) < 0 || mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | flags, NULL) < 0)
		return -errno;
	return 0;
}

/* The folders that are opened before the old root is covered, as descriptors: BASE hides them if they lie below it. */
struct opened {
	int out, in;
};

static int bind_fd(int fd, const char *to, unsigned long flags)
{
	char from[64];
	snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
	return mkdir(to, 0755) < 0 ? -errno : bind(from, to, flags);
}

/* /bin and the like: links into /usr on a merged system, folders of their own on others. */
static int give_system_folder(const char *name)
{
	char host[16], to[32], target[64];
	snprintf(host, sizeof host, "/%s", name);
	snprintf(to, sizeof to, BASE "/%s", name);
	ssize_t n = readlink(host, target, sizeof target - 1);
	if (n > 0) {
		target[n] = 0;
		return symlink(target, to) < 0 ? -errno : 0;
	}
	struct stat st;
	if (lstat(host, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	return mkdir(to, 0755) < 0 ? -errno : bind(host, to, MS_RDONLY | MS_NOSUID | MS_NODEV);
}

static int give_null(void)
{
	int fd = mkdir(BASE "/dev", 0755) < 0 ? -1 : open(BASE "/dev/null", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	close(fd);
	return bind("/dev/null", BASE "/dev/null", MS_NOSUID | MS_NOEXEC);
}

static int build_root(const struct opened *o)
{
	static const char *const folders[] = { "usr", "bin", "sbin", "lib", "lib64", "lib32" };
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", BASE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64m,nr_inodes=4096") < 0)
		return -errno;
	int r = 0;
	for (size_t i = 0; i < ARRAY_LEN(folders) && r == 0; i++)
		r = give_system_folder(folders[i]);
	if (r == 0)
		r = give_null();
	if (r == 0 && o->out >= 0)
		r = bind_fd(o->out, BASE "/out", MS_NOSUID | MS_NODEV);
	if (r == 0 && o->in >= 0)
		r = bind_fd(o->in, BASE "/in", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC);
	if (r < 0)
		return r;
	if (mkdir(BASE "/tmp", 0700) < 0 || mkdir(BASE "/proc", 0755) < 0 ||
	    mount("proc", BASE "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL) < 0)
		return -errno;
	return 0;
}

static int enter_root(void)
{
	if (chdir(BASE) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return -errno;
	return 0;
}

/* Unpacking sets owners and modes of files that belong to others, and does no more. Without CAP_MKNOD a device in an
 * archive is an error, without CAP_SETFCAP so is a capability. Dropped from the bounding set, so the next exec loses them. */
static int drop_capabilities(void)
{
	static const unsigned keep[] = { CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID };
	for (unsigned cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
		bool kept = false;
		for (size_t i = 0; i < ARRAY_LEN(keep); i++)
			kept |= keep[i] == cap;
		if (!kept && prctl(PR_CAPBSET_DROP, cap) < 0)
			return -errno;
	}
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* Forks; the child returns, the parent waits for it and ends as it did. */
static int stand_by(void)
{
	pid_t pid = fork();
	if (pid <= 0)
		return pid < 0 ? -errno : 0;
	close_range(0, ~0U, 0);
	int status = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

static int open_folder(const char *path)
{
	return path ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
}

int jail_enter(const struct child_jail *j)
{
	if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		return -errno;
	int r = stand_by(); /* a new PID namespace is entered by the next child */
	if (r < 0)
		return r;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	/* Opened here and not before: a mount of another mount namespace can't be bound. */
	struct opened o = { open_folder(j->out), open_folder(j->in) };
	if ((j->out && o.out < 0) || (j->in && o.in < 0))
		return -errno;
	r = build_root(&o);
	if (r == 0)
		r = enter_root();
	if (r == 0 && j->out && chdir("/out") < 0)
		r = -errno;
	if (r == 0)
		r = drop_capabilities();
	/* PID 1 is deaf to signals such as SIGXFSZ and SIGPIPE, which must end a tool; so PID 1 is this one, and the tool its child. */
	return r < 0 ? r : stand_by();
}
