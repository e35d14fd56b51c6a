#include "warden/volume.h"

#include "sys/loop.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

void volume_file(char ret[static 64], const char *id)
{
	snprintf(ret, 64, VOLUME_FILES "%s.img", id);
}

static int mount_device(unsigned number, struct err *e)
{
	char source[32];
	const char *why = "";
	struct mnt_option options[] = { { "source", source }, { "errors", "remount-ro" }, { "noinit_itable", NULL }, { 0 } };

	snprintf(source, sizeof source, "/dev/loop%u", number);
	int fd = mnt_new("ext4", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME, &why);
	return fd < 0 ? err_sys(e, ERR_UNAVAILABLE, -fd, "mount the volume: %s", why) : fd;
}

static int still_busy(struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, EBUSY, "the volume is still being let go of by the kernel");
}

/* Another sandbox has it. The same device mounted again is the same file system, unless it has gone to another file meanwhile. */
static int mount_bound(int file, struct err *e)
{
	unsigned number;

	if (loop_find(file, &number) < 0)
		return still_busy(e);
	auto_fd int fd = mount_device(number, e);
	if (fd < 0 || loop_is_bound(number, file) != 1)
		return still_busy(e);
	return take_fd(&fd);
}

/* The file system of the volume, detached. */
static int open_volume(const struct place *p, const char *id, struct err *e)
{
	char name[64];
	unsigned number;

	volume_file(name, id);
	auto_fd int file = openat(p->disks_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (file < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, errno, "open the volume %s", id);
	if (flock(file, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? mount_bound(file, e) : err_sys(e, ERR_UNAVAILABLE, errno, "lock the volume");
	auto_fd int loop = loop_attach(file, &number);
	if (loop < 0)
		return err_sys(e, ERR_UNAVAILABLE, -loop, "bind the volume to a loop device");
	return mount_device(number, e);
}

/* One folder below another, made when it is missing. No symlink is followed: what is in a volume is its sandboxes' doing. */
static int enter(int parent, const char *name)
{
	int fd = mnt_open_beneath(parent, name, O_PATH | O_DIRECTORY, false);

	if (fd != -ENOENT)
		return fd;
	/* For everybody: those who share a volume may be different users inside. */
	mode_t before = umask(0);
	int rc = mkdirat(parent, name, 0777) < 0 && errno != EEXIST ? -errno : 0;
	umask(before);
	return rc < 0 ? rc : mnt_open_beneath(parent, name, O_PATH | O_DIRECTORY, false);
}

static int enter_subpath(int root, const char *subpath)
{
	char name[256];
	int fd = enter(root, "data");

	for (const char *p = subpath; fd >= 0 && *p;) {
		size_t n = strcspn(p, "/");
		if (n == 0 || n >= sizeof name || (n <= 2 && strspn(p, ".") >= n)) {
			close_fd(fd);
			return -EINVAL;
		}
		memcpy(name, p, n);
		name[n] = '\0';
		int next = enter(fd, name);
		close_fd(fd);
		fd = next;
		p += n + (p[n] == '/');
	}
	return fd;
}

static int map_folder(int folder, const struct warden_volume *v, int userns_fd, struct err *e)
{
	struct mount_attr attr = {
		.attr_set = (uint64_t)(MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (v->read_only ? MOUNT_ATTR_RDONLY : 0)),
		.userns_fd = (unsigned)userns_fd,
	};
	auto_fd int fd = mnt_clone(folder, "", false);

	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, -fd, "clone the volume's mount");
	if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "map the owners of the volume (idmapped ext4)");
	return take_fd(&fd);
}

static int mount_folder(int root, const struct warden_volume *v, int userns_fd, struct err *e)
{
	auto_fd int folder = enter_subpath(root, v->subpath);

	if (folder == -ELOOP || folder == -ENOTDIR || folder == -EINVAL)
		return err_set(e, ERR_INVALID, -folder, "volumes: the subpath '%s' has something in its way that is no folder", v->subpath);
	if (folder < 0)
		return err_sys(e, ERR_UNAVAILABLE, -folder, "open the subpath '%s' of the volume", v->subpath);
	return map_folder(folder, v, userns_fd, e);
}

int volume_mount(const struct place *p, const struct warden_volume *v, int userns_fd, struct err *e)
{
	auto_fd int root = open_volume(p, v->id, e);
	auto_free char *at = xasprintf("%s/v", p->run);

	if (root < 0)
		return root;
	/* Attached for a moment, because only what is in our own tree may be cloned by kernels before 6.15. */
	if (mkdir(at, 0700) < 0 && errno != EEXIST)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make %s", at);
	if (move_mount(root, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "attach the volume");
	int fd = mount_folder(root, v, userns_fd, e);
	(void)umount2(at, MNT_DETACH | UMOUNT_NOFOLLOW);
	return fd;
}
