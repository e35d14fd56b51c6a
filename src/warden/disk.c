#include "warden/disk.h"

#include "sys/fs.h"
#include "sys/loop.h"
#include "sys/mnt.h"
#include "sys/process.h"
#include "wire/edge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB		(1024ULL * 1024)
#define INODE_PER_BYTES 16384ULL
#define HOST_RESERVE	(512 * MIB) /* what a host needs to go on living */
#define TEMPLATES_MAX	16
#define FILE_MIB_MIN	4 /* less has no room for an ext4 of ours */

enum disk_kind disk_kind_for(bool ephemeral, uint64_t disk_mib, uint64_t memory_mib)
{
	return ephemeral && disk_mib <= memory_mib / 2 ? DISK_MEMORY : DISK_FILE;
}

int disk_check(const struct place *p, enum disk_kind kind, uint64_t mib, struct err *e)
{
	struct statvfs st;

	if (kind == DISK_MEMORY)
		return 0;
	if (fstatvfs(p->disks_fd, &st) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "look for free disk space");
	uint64_t total = (uint64_t)st.f_blocks * st.f_frsize, avail = (uint64_t)st.f_bavail * st.f_frsize;
	if (mib > total / MIB)
		return err_set(e, ERR_INVALID, ENOSPC, "a disk of %llu MiB does not fit: the file system of the data folder has %llu MiB",
			       (unsigned long long)mib, (unsigned long long)(total / MIB));
	if (avail < HOST_RESERVE || mib > (avail - HOST_RESERVE) / MIB)
		return err_set(e, ERR_UNAVAILABLE, ENOSPC,
			       "no room for a disk of %llu MiB: the data folder has %llu MiB free, %llu of them kept back", (unsigned long long)mib,
			       (unsigned long long)(avail / MIB), HOST_RESERVE / MIB);
	return 0;
}

static int write_file(int dir, const char *name, uid_t owner, mode_t mode, const char *text)
{
	size_t n = strlen(text);
	auto_fd int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);

	if (fd < 0)
		return -errno;
	if (write(fd, text, n) != (ssize_t)n)
		return -ENOSPC;
	return fchown(fd, owner, owner) < 0 ? -errno : 0;
}

#define SEED_MAX 256

/* A small plain file as text, at most SEED_MAX - 1 bytes of it; else a negative errno. */
static ssize_t read_plain(int dir, const char *name, char ret[static SEED_MAX])
{
	struct stat st;

	auto_fd int fd = mnt_open_beneath(dir, name, O_RDONLY | O_NONBLOCK, false);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EINVAL;
	ssize_t n = read(fd, ret, SEED_MAX - 1);
	if (n < 0)
		return -errno;
	ret[n] = '\0';
	return n;
}

static void hosts_text(char ret[static SEED_MAX], const char *hostname)
{
	snprintf(ret, SEED_MAX, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t%.64s\n", hostname);
}

static void machine_id_text(char ret[static SEED_MAX], const char *id)
{
	size_t n = 0;

	for (const char *p = id; *p && n < 32; p++)
		if (*p != '-')
			ret[n++] = *p;
	ret[n++] = '\n';
	ret[n] = '\0';
}

/* The upper directory before anybody sees it: plain files over the image's, so that /etc/hostname tells the truth and no
 * resolver of the host is named. */
static int seed_upper(int disk, uid_t owner, const struct disk_seed *s)
{
	char text[SEED_MAX];

	auto_fd int upper = openat(disk, "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (upper < 0 || mkdirat(upper, "etc", 0755) < 0)
		return -errno;
	auto_fd int etc = openat(upper, "etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (etc < 0 || fchown(etc, owner, owner) < 0 || fchown(upper, owner, owner) < 0)
		return -errno;
	snprintf(text, sizeof text, "%s\n", s->hostname);
	int rc = write_file(etc, "hostname", owner, 0644, text);
	hosts_text(text, s->hostname);
	if (rc == 0)
		rc = write_file(etc, "hosts", owner, 0644, text);
	/* The gate of a sandbox with a network; without one there is no way there, and a name is refused at once. */
	if (rc == 0)
		rc = write_file(etc, "resolv.conf", owner, 0644, "nameserver " GATE_ADDR4 "\n");
	machine_id_text(text, s->id);
	if (rc == 0)
		rc = write_file(etc, "machine-id", owner, 0444, text);
	return rc;
}

/* A sandbox that was made from another's disk is another machine. What it finds in /etc was the other one's to arrange, so nothing
 * there is followed or believed, and what is no plain file is left as it is. */
static void reseed_upper(int disk, const struct disk_seed *s)
{
	char old[SEED_MAX], was[SEED_MAX], text[SEED_MAX];

	auto_fd int upper = openat(disk, "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	auto_fd int etc = upper < 0 ? -EBADF : mnt_open_beneath(upper, "etc", O_RDONLY | O_DIRECTORY, false);
	if (etc < 0)
		return;
	if (read_plain(etc, "hostname", old) > 0) {
		old[strcspn(old, "\n")] = '\0';
		hosts_text(was, old);
		/* Only where nobody has changed it. */
		bool ours = read_plain(etc, "hosts", text) > 0 && streq(text, was);
		hosts_text(text, s->hostname);
		if (ours && unlinkat(etc, "hosts", 0) == 0)
			(void)write_file(etc, "hosts", 0, 0644, text);
		snprintf(text, sizeof text, "%s\n", s->hostname);
		if (unlinkat(etc, "hostname", 0) == 0)
			(void)write_file(etc, "hostname", 0, 0644, text);
	}
	machine_id_text(text, s->id);
	if (read_plain(etc, "machine-id", old) > 0 && unlinkat(etc, "machine-id", 0) == 0)
		(void)write_file(etc, "machine-id", 0, 0444, text);
}

static int make_layers(int mount)
{
	return mkdirat(mount, "upper", 0755) < 0 || mkdirat(mount, "work", 0700) < 0 ? -errno : 0;
}

int disk_make_memory(uint64_t mib, uid_t owner, const struct disk_seed *seed, struct disk *ret, struct err *e)
{
	char size[24], inodes[24];
	const char *why = "";
	struct mnt_option options[] = { { "size", size }, { "nr_inodes", inodes }, { "mode", "0755" }, { 0 } };

	snprintf(size, sizeof size, "%lluk", (unsigned long long)(mib * 1024));
	snprintf(inodes, sizeof inodes, "%llu", (unsigned long long)(mib * MIB / INODE_PER_BYTES + 1024));
	auto_fd int fd = mnt_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, &why);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, -fd, "make the disk in memory: %s", why);
	int rc = make_layers(fd);
	if (rc == 0)
		rc = seed_upper(fd, owner, seed);
	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "fill the disk in memory");
	*ret = (struct disk){ .mount = take_fd(&fd) };
	return 0;
}

/* Everything is said here, so that the host's mke2fs.conf does not matter. dir_index: without it a folder of 20,000 files takes a
 * minute to fill. */
#define FEATURES "none,ext_attr,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum,64bit"

static int run_mkfs(const char *path, bool journal, uint64_t mib, struct err *e)
{
	char inodes[24], path_env[] = "PATH=/usr/sbin:/sbin:/usr/bin:/bin", config[] = "MKE2FS_CONFIG=/etc/mke2fs.conf";
	char *env[] = { path_env, config, NULL };
	const char *argv[] = { "mke2fs",
			       "-q",
			       "-F",
			       "-b",
			       "4096",
			       "-m",
			       "0",
			       "-I",
			       "256",
			       "-N",
			       inodes,
			       "-J",
			       "size=4",
			       "-O",
			       FEATURES ",has_journal",
			       "-E",
			       "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0",
			       path,
			       NULL };
	const char *plain[] = { "mke2fs", "-q", "-F",	  "-b",	 "4096",
				"-m",	  "0",	"-I",	  "256", "-N",
				inodes,	  "-O", FEATURES, "-E",	 "lazy_itable_init=1,nodiscard,root_owner=0:0",
				path,	  NULL };
	union {
		const char **in;
		char **out;
	} args = { journal ? argv : plain };
	pid_t pid;
	int status;

	snprintf(inodes, sizeof inodes, "%llu", (unsigned long long)(mib * MIB / INODE_PER_BYTES + 1024));
	int rc = posix_spawn(&pid, "/usr/sbin/mke2fs", NULL, NULL, args.out, env);
	if (rc == ENOENT)
		rc = posix_spawn(&pid, "/sbin/mke2fs", NULL, NULL, args.out, env);
	if (rc != 0)
		return err_sys(e, ERR_UNAVAILABLE, rc, "mke2fs cannot be run (install e2fsprogs)");
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, ERR_INTERNAL, errno, "wait for mke2fs");
	if (status != 0)
		return err_set(e, ERR_UNAVAILABLE, EIO, "mke2fs failed for a disk of %llu MiB", (unsigned long long)mib);
	return 0;
}

/* Whoever may create chooses the sizes, so what is kept of them has a bound. An open one outlives its name. */
static void make_room_for_template(int disks_fd)
{
	int fd = openat(disks_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	unsigned n = 0;

	if (!dir) {
		close_fd(fd);
		return;
	}
	for (struct dirent *d; (d = readdir(dir));)
		n += strncmp(d->d_name, "template-", 9) == 0;
	(void)closedir(dir);
	if (n >= TEMPLATES_MAX)
		disk_remove_spares(disks_fd, "template-");
}

/* Made once per size, and copied from then on: 120 KiB instead of a run of mkfs. The number in the name goes up with the features. */
int disk_template(const struct place *p, uint64_t mib, bool journal, struct err *e)
{
	char name[64], beside[96], path[64];

	snprintf(name, sizeof name, "template-2-%llu-%s.img", (unsigned long long)mib, journal ? "j" : "n");
	int fd = openat(p->disks_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	make_room_for_template(p->disks_fd);
	snprintf(beside, sizeof beside, "making-%d-%s", (int)getpid(), name); /* warden and helper may both be at it */
	(void)unlinkat(p->disks_fd, beside, 0);
	auto_fd int made = openat(p->disks_fd, beside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (made < 0 || ftruncate(made, (off_t)(mib * MIB)) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make the template of a disk of %llu MiB", (unsigned long long)mib);
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), made); /* by name: mke2fs wants to open it itself */
	int rc = run_mkfs(path, journal, mib, e);
	if (rc == 0 && renameat(p->disks_fd, beside, p->disks_fd, name) < 0)
		rc = err_sys(e, ERR_UNAVAILABLE, errno, "keep the template of a disk");
	if (rc < 0) {
		(void)unlinkat(p->disks_fd, beside, 0);
		return rc;
	}
	return take_fd(&made);
}

static int copy_sparse(int from, int to)
{
	off_t end = lseek(from, 0, SEEK_END);

	if (end < 0 || ftruncate(to, end) < 0)
		return -errno;
	for (off_t data = 0, hole; data < end; data = hole) {
		data = lseek(from, data, SEEK_DATA);
		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		hole = lseek(from, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		off_t in = data, out = data;
		while (in < hole) {
			ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(hole - in), 0);
			if (n <= 0)
				return n < 0 ? -errno : -EIO;
		}
	}
	return 0;
}

int disk_copy(int disks_fd, int from, int to, struct err *e)
{
	struct statvfs fs;
	struct stat st;

	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	if (fstat(from, &st) < 0 || fstatvfs(disks_fd, &fs) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "look for free disk space");
	uint64_t need = (uint64_t)st.st_blocks * 512, avail = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (avail < HOST_RESERVE || need > avail - HOST_RESERVE)
		return err_set(e, ERR_UNAVAILABLE, ENOSPC,
			       "no room for a copy of %llu MiB: the data folder has %llu MiB free, %llu of them kept back",
			       (unsigned long long)(need / MIB), (unsigned long long)(avail / MIB), HOST_RESERVE / MIB);
	int rc = copy_sparse(from, to);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "copy the disk") : 0;
}

static int mount_file(int fd, bool kept, struct disk *ret, struct err *e)
{
	char source[32];
	const char *why = "";
	/* barrier: what will not outlive a stop need not be forced to the host's disk.
	 * noinit_itable: the kernel would zero the inode tables in the background, 16 MiB of writing for each GiB of every disk. */
	struct mnt_option options[] = {
		{ "source", source }, { "errors", "remount-ro" }, { "noinit_itable", NULL }, { "barrier", kept ? "1" : "0" }, { 0 }
	};
	unsigned number = 0;
	auto_fd int loop = loop_attach(fd, &number);

	if (loop == -ENODEV)
		return err_set(e, ERR_UNAVAILABLE, ENODEV, "this host has no loop devices: load the kernel module \"loop\"");
	if (loop < 0)
		return err_sys(e, ERR_UNAVAILABLE, -loop, "bind the disk to a loop device");
	snprintf(source, sizeof source, "/dev/loop%u", number);
	int mount = mnt_new("ext4", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME, &why);
	if (mount < 0)
		return err_sys(e, ERR_UNAVAILABLE, -mount, "mount the disk: %s", why);
	*ret = (struct disk){ .mount = mount, .loop = number };
	return 0;
}

int disk_make_file(const struct place *p, const char *name, uint64_t mib, bool journal, struct disk *ret, struct err *e)
{
	char file[64];
	int rc;

	mib = MAX(mib, (uint64_t)(journal ? FILE_MIB_MIN + 8 : FILE_MIB_MIN)); /* a journal takes four MiB of its own */
	snprintf(file, sizeof file, "%s.img", name);
	auto_fd int from = disk_template(p, mib, journal, e);
	if (from < 0)
		return from;
	(void)unlinkat(p->disks_fd, file, 0);
	auto_fd int fd = openat(p->disks_fd, file, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make the disk's file");
	rc = copy_sparse(from, fd);
	if (rc < 0)
		(void)err_sys(e, ERR_UNAVAILABLE, -rc, "copy the disk's template");
	else
		rc = mount_file(fd, journal, ret, e);
	if (rc == 0 && (rc = make_layers(ret->mount)) < 0) {
		(void)err_sys(e, ERR_UNAVAILABLE, -rc, "make the disk's folders");
		disk_close(ret);
	}
	if (rc < 0)
		(void)unlinkat(p->disks_fd, file, 0);
	return rc;
}

static int map_owners(const struct disk *d, int userns_fd, struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)userns_fd };

	if (mount_setattr(d->mount, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "map the owners of the disk (idmapped ext4)");
	return 0;
}

int disk_settle(const struct disk *d, int userns_fd, const struct disk_seed *seed, struct err *e)
{
	int rc = seed_upper(d->mount, 0, seed);

	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "fill the disk");
	return map_owners(d, userns_fd, e);
}

bool disk_is_bound(const struct place *p, const char *id, unsigned loop)
{
	char file[64];

	snprintf(file, sizeof file, "%s.img", id);
	auto_fd int fd = openat(p->disks_fd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && loop_is_bound(loop, fd) == 1;
}

int disk_open_file(const struct place *p, const char *id, unsigned loop, int userns_fd, const struct disk_seed *seed, struct disk *ret, struct err *e)
{
	char file[64];

	snprintf(file, sizeof file, "%s.img", id);
	auto_fd int fd = openat(p->disks_fd, file, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, errno, "open the disk of the sandbox");
	if (loop_is_bound(loop, fd) == 1)
		return err_set(e, ERR_UNAVAILABLE, EBUSY, "the disk is still being let go of by the kernel");
	int rc = mount_file(fd, true, ret, e);
	if (rc < 0)
		return rc;
	/* The overlay's own scratch space may hold what a power cut interrupted. */
	(void)fs_remove_tree_at(ret->mount, "work");
	if (mkdirat(ret->mount, "work", 0700) < 0)
		rc = err_sys(e, ERR_UNAVAILABLE, errno, "clean the disk");
	if (rc == 0 && seed)
		reseed_upper(ret->mount, seed);
	if (rc == 0)
		rc = map_owners(ret, userns_fd, e);
	if (rc < 0)
		disk_close(ret);
	return rc;
}

int disk_overlay(const struct place *p, const struct disk *d, enum disk_kind kind, int lower_fd, uid_t owner, bool is_volatile, int *ret_root,
		 struct err *e)
{
	const char *why = "";
	int rc;
	auto_fd int upper = fs_open_dir_at(d->mount, "upper");
	auto_fd int work = fs_open_dir_at(d->mount, "work");

	if (upper < 0 || work < 0)
		return err_set(e, ERR_UNAVAILABLE, EIO, "the disk's folders are missing");
	/* What overlay makes for itself belongs to whoever mounts it, and on a mapped disk our own root has no name. */
	if (kind == DISK_FILE) {
		(void)setfsgid(owner);
		(void)setfsuid(owner);
	}
	if (p->layers_by_fd) {
		rc = mnt_overlay(lower_fd, upper, work, is_volatile, &why);
	} else {
		auto_free char *scratch = xasprintf("%s/scratch", p->run);
		rc = mnt_overlay_by_path(scratch, lower_fd, d->mount, is_volatile, &why);
	}
	if (kind == DISK_FILE) {
		(void)setfsuid(0);
		(void)setfsgid(0);
	}
	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "put the disk over the image: %s", why);
	*ret_root = rc;
	return 0;
}

int disk_remove_file(const struct place *p, const char *id)
{
	char file[64], trash[80];

	snprintf(file, sizeof file, "%s.img", id);
	snprintf(trash, sizeof trash, "trash-%s", file);
	return renameat(p->disks_fd, file, p->disks_fd, trash) < 0 && errno != ENOENT ? -errno : 0;
}

void disk_close(struct disk *d)
{
	d->mount = close_fd(d->mount);
}

static bool remove_named(int disks_fd, const char *const prefixes[], size_t n, unsigned at_most)
{
	int fd = openat(disks_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	unsigned removed = 0;

	if (!dir) {
		close_fd(fd);
		return false;
	}
	for (struct dirent *d; removed < at_most && (d = readdir(dir));)
		for (size_t i = 0; i < n; i++)
			if (strncmp(d->d_name, prefixes[i], strlen(prefixes[i])) == 0)
				removed += unlinkat(disks_fd, d->d_name, 0) == 0;
	(void)closedir(dir);
	return removed == at_most;
}

bool disk_remove_trash(int disks_fd, unsigned at_most)
{
	static const char *const prefixes[] = { "trash-" };
	return remove_named(disks_fd, prefixes, 1, at_most);
}

void disk_remove_unfinished(int disks_fd)
{
	static const char *const prefixes[] = { "making-", "spare-" };
	(void)remove_named(disks_fd, prefixes, 2, UINT_MAX);
}

void disk_remove_making(int disks_fd, const char *id)
{
	int fd = openat(disks_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		close_fd(fd);
		return;
	}
	for (struct dirent *d; (d = readdir(dir));)
		if (strncmp(d->d_name, "making-", 7) == 0 && strstr(d->d_name, id))
			(void)unlinkat(disks_fd, d->d_name, 0);
	(void)closedir(dir);
}

void disk_remove_spares(int disks_fd, const char *prefix)
{
	(void)remove_named(disks_fd, &prefix, 1, UINT_MAX);
}

void disk_remove_rest(int disks_fd)
{
	static const char *const prefixes[] = { "template-", "snapshot-", "volume-" };
	(void)remove_named(disks_fd, prefixes, ARRAY_LEN(prefixes), UINT_MAX);
}
