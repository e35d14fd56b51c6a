#include "sys/mnt.h"

#include "sys/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fail(const char **ret_why, const char *why)
{
	if (ret_why)
		*ret_why = why;
	return -errno;
}

int mnt_idmapped(int dirfd, const char *path, int userns_fd, const char **ret_why)
{
	struct mount_attr attr = {
		.attr_set = (uint64_t)(MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV),
		.userns_fd = (unsigned)userns_fd,
	};
	auto_fd int fd = open_tree(dirfd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | (*path ? 0u : AT_EMPTY_PATH));

	if (fd < 0)
		return fail(ret_why, "clone the image's mount");
	if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return fail(ret_why, "map the owners of the image (idmapped mount)");
	return take_fd(&fd);
}

int mnt_new(const char *type, const struct mnt_option *options, uint64_t attrs, const char **ret_why)
{
	auto_fd int fs = fsopen(type, FSOPEN_CLOEXEC);

	if (fs < 0)
		return fail(ret_why, "open the file system type");
	for (; options && options->key; options++) {
		int rc = options->value ? fsconfig(fs, FSCONFIG_SET_STRING, options->key, options->value, 0)
					: fsconfig(fs, FSCONFIG_SET_FLAG, options->key, NULL, 0);
		if (rc < 0)
			return fail(ret_why, options->key);
	}
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return fail(ret_why, "make the file system");
	int fd = fsmount(fs, FSMOUNT_CLOEXEC, (unsigned)attrs);
	return fd < 0 ? fail(ret_why, "mount the file system") : fd;
}

int mnt_overlay(int lower_fd, int upper_fd, int work_fd, bool is_volatile, const char **ret_why)
{
	auto_fd int fs = fsopen("overlay", FSOPEN_CLOEXEC);

	if (fs < 0)
		return fail(ret_why, "open overlay");
	if (fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, lower_fd) < 0 || fsconfig(fs, FSCONFIG_SET_FD, "upperdir", NULL, upper_fd) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_FD, "workdir", NULL, work_fd) < 0)
		return fail(ret_why, "give overlay its layers");
	if (fsconfig(fs, FSCONFIG_SET_STRING, "redirect_dir", "on", 0) < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "metacopy", "on", 0) < 0)
		return fail(ret_why, "set overlay's redirect_dir and metacopy");
	if (is_volatile && fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0) < 0)
		return fail(ret_why, "set overlay's volatile");
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return fail(ret_why, "make the overlay");
	int fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	return fd < 0 ? fail(ret_why, "mount the overlay") : fd;
}

/* Of the same tree a second, detached view; the attached ones are taken away again whatever happened. */
static int overlay_attached(const char *lower, const char *options, const char **ret_why)
{
	if (mount("overlay", lower, "overlay", MS_NOSUID | MS_NODEV, options) < 0)
		return fail(ret_why, "make the overlay");
	int fd = open_tree(AT_FDCWD, lower, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (fd < 0)
		(void)fail(ret_why, "take the overlay");
	int saved = fd < 0 ? -errno : fd;
	(void)umount2(lower, MNT_DETACH);
	return saved;
}

int mnt_overlay_by_path(const char *scratch, int lower_fd, int disk_fd, bool is_volatile, const char **ret_why)
{
	char lower[256], upper[256], options[1024];

	if ((size_t)snprintf(lower, sizeof lower, "%s/l", scratch) >= sizeof lower ||
	    (size_t)snprintf(upper, sizeof upper, "%s/u", scratch) >= sizeof upper) {
		errno = ENAMETOOLONG;
		return fail(ret_why, "name the layers");
	}
	if (move_mount(lower_fd, "", AT_FDCWD, lower, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return fail(ret_why, "attach the image");
	int rc;
	if (move_mount(disk_fd, "", AT_FDCWD, upper, MOVE_MOUNT_F_EMPTY_PATH) < 0) {
		rc = fail(ret_why, "attach the disk");
	} else {
		snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s/upper,workdir=%s/work,redirect_dir=on,metacopy=on%s", lower, upper, upper,
			 is_volatile ? ",volatile" : "");
		rc = overlay_attached(lower, options, ret_why);
		(void)umount2(upper, MNT_DETACH);
	}
	(void)umount2(lower, MNT_DETACH);
	return rc;
}

int mnt_clone(int dirfd, const char *path, bool recursive)
{
	int fd =
		open_tree(dirfd, path,
			  OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | (*path ? 0u : AT_EMPTY_PATH) | (recursive ? AT_RECURSIVE : 0u));
	return fd < 0 ? -errno : fd;
}

int mnt_readonly(int mnt_fd, bool recursive)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
	return mount_setattr(mnt_fd, "", AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0u), &attr, sizeof attr) < 0 ? -errno : 0;
}

int mnt_attach(int mnt_fd, int target_fd)
{
	return move_mount(mnt_fd, "", target_fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0 ? -errno : 0;
}

int mnt_open_beneath(int dirfd, const char *path, uint64_t flags, bool cross)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | (cross ? 0u : RESOLVE_NO_XDEV),
	};
	int fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof how);
	return fd < 0 ? -errno : fd;
}
