#include "warden/stage.h"

#include "base/log.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int stage_enter(const struct stage *s)
{
	return setns(s->set, CLONE_NEWNS) < 0 ? -errno : 0;
}

void stage_leave(const struct stage *s)
{
	/* The root that comes with a namespace is not ours if we were started in a chroot. */
	if (setns(s->own, CLONE_NEWNS) == 0 && fchdir(s->root) == 0 && chroot(".") == 0)
		return;
	log_error("msg=\"cannot go back to the own mount namespace\" errno=%d", errno);
	abort();
}

/* In a fresh copy of our namespace: everything that is in it makes way. */
static int strip(void)
{
	static const struct mnt_option empty[] = { { "mode", "0555" }, { "size", "4k" }, { "nr_inodes", "4" }, { 0 } };
	static const struct mnt_option nobody[] = { { "hidepid", "ptraceable" }, { "subset", "pid" }, { 0 } };

	auto_fd int root = mnt_new("tmpfs", empty, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, NULL);
	if (root < 0)
		return root;
	if (mkdirat(root, "proc", 0555) < 0)
		return -errno;
	int rc = mnt_readonly(root, false);
	if (rc < 0)
		return rc;
	/* /sys is a directory that every host has; it is covered in this namespace only, and gone with the pivot. */
	if (move_mount(root, "", AT_FDCWD, "/sys", MOVE_MOUNT_F_EMPTY_PATH) < 0 || fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return -errno;
	auto_fd int proc = mnt_new("proc", nobody, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, NULL);
	if (proc < 0)
		return proc;
	auto_fd int target = mnt_open_beneath(AT_FDCWD, "proc", O_PATH | O_DIRECTORY, false);
	return target < 0 ? target : mnt_attach(proc, target);
}

int stage_make(struct stage *s, struct err *e)
{
	s->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	s->own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (s->root < 0 || s->own < 0 || unshare(CLONE_NEWNS) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make the mount namespace of the sandboxes");
	int rc = strip();
	if (rc == 0) {
		s->set = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
		rc = s->set < 0 ? -errno : 0;
	}
	stage_leave(s);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "empty the mount namespace of the sandboxes") : 0;
}

void stage_close(struct stage *s)
{
	s->own = close_fd(s->own);
	s->root = close_fd(s->root);
	s->set = close_fd(s->set);
}
