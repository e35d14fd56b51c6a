#include "warden/place.h"

#include "sys/fs.h"
#include "sys/mnt.h"
#include "sys/process.h"
#include "warden/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/keyctl.h>
#include <linux/magic.h>
#include <linux/securebits.h>
#include <mntent.h>
#include <sched.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define LOCK_WAIT_MS 10000 /* a warden whose daemon was killed is on its way out */

int warden_data_id(const char *data, char ret_id[static 17])
{
	char path[PATH_MAX];
	uint64_t h = 0xcbf29ce484222325u; /* FNV-1a: a name, not a secret */

	if (!realpath(data, path))
		return -errno;
	for (const char *p = path; *p; p++)
		h = (h ^ (unsigned char)*p) * 0x100000001b3u;
	snprintf(ret_id, 17, "%016llx", (unsigned long long)h);
	return 0;
}

char *warden_run_folder(const char *data)
{
	char id[17];
	return warden_data_id(data, id) < 0 ? NULL : xasprintf("/run/caisson/%s", id);
}

char *place_state_folder(const struct place *p)
{
	return xasprintf("%s/state", p->run);
}

/* The numbers that a sandbox's child finds its descriptors in (inside.h) must never become anybody else's. */
static int reserve_low_fds(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), fd;

	if (null < 0)
		return -errno;
	for (fd = INSIDE_NULL; fd < INSIDE_END; fd++)
		if (fd != null && dup3(null, fd, O_CLOEXEC) < 0)
			return -errno;
	do { /* and no gap below */
		fd = fcntl(null, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			return -errno;
	} while (fd < INSIDE_END);
	close_fd(fd);
	if (null >= INSIDE_END)
		close_fd(null);
	return 0;
}

static const char *const run_folders[] = { "state", "s", "dev", "v" };

static int own_folder(int dirfd, const char *name, mode_t mode, uid_t uid, gid_t gid)
{
	if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST)
		return -errno;
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fchown(fd, uid, gid) < 0 || fchmod(fd, mode) < 0) {
		int e = errno;
		close_fd(fd);
		return -e;
	}
	return fd;
}

static int lock_run(int fd)
{
	for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; waited += 20) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (waited >= LOCK_WAIT_MS)
			return -EBUSY;
		usleep(20000);
	}
	return 0;
}

/* The number of the first mount that a process sees: no two namespaces have one of the same. -1 = it cannot be read. */
static int first_mount(const char *mountinfo)
{
	FILE *f = fopen(mountinfo, "re");
	int number = -1;

	if (f && fscanf(f, "%d", &number) != 1)
		number = -1;
	if (f)
		(void)fclose(f);
	return number;
}

static bool is_hosts_namespace(void)
{
	int hosts = first_mount("/proc/1/mountinfo");

	return hosts < 0 || hosts == first_mount("/proc/self/mountinfo");
}

/* Where /run is no tmpfs (containers, small virtual machines), what is written and removed for each sandbox would go through a journal,
 * which can wait for the disk for milliseconds. RUN gets a tmpfs of its own then, unless it holds what an earlier warden left.
 * It is the host's mount, so that the next warden finds its records (from a mount namespace of somebody's it would be there for nobody else);
 * the last one to leave removes it with the folder. Locked. */
static bool put_in_memory(const struct place *p)
{
	struct statfs st;

	if (fstatfs(p->run_fd, &st) < 0 || st.f_type == TMPFS_MAGIC || !is_hosts_namespace())
		return false;
	for (size_t i = 0; i < ARRAY_LEN(run_folders); i++)
		if (unlinkat(p->run_fd, run_folders[i], AT_REMOVEDIR) < 0 && errno != ENOENT)
			return false;
	return mount("tmpfs", p->run, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0711,size=256m") == 0;
}

/* Opens and locks RUN. */
static int open_run(struct place *p, struct err *e)
{
	for (int attempt = 0; attempt < 100; attempt++) { /* the last warden may be removing the folder just now */
		int rc = fs_mkdirs(p->run, 0755);
		if (rc < 0)
			return err_sys(e, ERR_UNAVAILABLE, -rc, "make the run folder %s", p->run);
		p->run_fd = own_folder(AT_FDCWD, p->run, 0711, 0, 0);
		if (p->run_fd == -ENOENT)
			continue;
		if (p->run_fd < 0)
			return err_sys(e, ERR_UNAVAILABLE, -p->run_fd, "open the run folder %s", p->run);
		if (lock_run(p->run_fd) < 0) {
			p->run_fd = close_fd(p->run_fd); /* not ours to remove */
			return err_set(e, ERR_CONFLICT, EBUSY, "another warden serves the data folder %s: end it first", p->options->data);
		}
		struct stat there, mine;
		bool same = fstat(p->run_fd, &mine) == 0 && stat(p->run, &there) == 0 && there.st_ino == mine.st_ino && there.st_dev == mine.st_dev;
		if (same && !put_in_memory(p))
			return 0;
		p->run_fd = close_fd(p->run_fd);
	}
	return err_set(e, ERR_UNAVAILABLE, EBUSY, "the run folder %s keeps vanishing", p->run);
}

static int open_folders(struct place *p, struct err *e)
{
	const struct warden_options *o = p->options;
	int rc = warden_data_id(o->data, p->name);

	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "the data folder %s", o->data);
	p->run = o->run ? xstrdup(o->run) : xasprintf("/run/caisson/%s", p->name);
	rc = open_run(p, e);
	if (rc < 0)
		return rc;
	p->state_fd = own_folder(p->run_fd, "state", 0700, 0, 0);
	p->sockets_fd = own_folder(p->run_fd, "s", 0710, 0, o->daemon_gid);
	auto_fd int data = open(o->data, O_PATH | O_DIRECTORY | O_CLOEXEC);
	p->disks_fd = data < 0 ? -errno : own_folder(data, "disks", 0700, 0, 0);
	if (p->state_fd < 0 || p->sockets_fd < 0 || p->disks_fd < 0)
		return err_set(e, ERR_UNAVAILABLE, EIO, "make the folders of the warden in %s and %s", p->run, o->data);
	rc = fs_mkdirs(o->images, 0755);
	p->images_fd = rc < 0 ? rc : open(o->images, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (p->images_fd < 0)
		return err_set(e, ERR_UNAVAILABLE, ENOENT, "the images folder %s cannot be opened", o->images);
	return 0;
}

/* Is `mount` needed: does something we use lie in it, or is it a control group tree? */
static bool mount_needed(const struct place *p, const char *mount)
{
	char images[PATH_MAX], data[PATH_MAX], run[PATH_MAX];
	const char *needed[] = { "/proc",
				 "/sys",
				 "/dev",
				 "/usr",
				 "/bin",
				 "/lib",
				 "/lib64",
				 "/sbin",
				 "/etc",
				 realpath(p->options->images, images),
				 realpath(p->options->data, data),
				 realpath(p->run, run),
				 p->options->ranges ? p->options->ranges : "/run/caisson",
				 p->options->vmm };
	size_t n = strlen(mount);

	if (streq(mount, "/") || strncmp(mount, "/sys/fs/cgroup", 14) == 0)
		return true;
	for (size_t i = 0; i < ARRAY_LEN(needed); i++)
		if (needed[i] && strncmp(needed[i], mount, n) == 0 && (needed[i][n] == '/' || needed[i][n] == '\0'))
			return true;
	return false;
}

/* A mount namespace of our own with as few mounts as possible, so that we keep nobody's disk busy; and a /proc of our own: the caller's
 * may be masked. */
static int slim_mounts(struct place *p, struct err *e)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make a private mount namespace");

	char *points[4096];
	size_t n = 0;
	struct mntent *m, space;
	char text[4096];
	FILE *f = setmntent("/proc/self/mounts", "re");
	while (f && n < ARRAY_LEN(points) && (m = getmntent_r(f, &space, text, sizeof text)))
		points[n++] = xstrdup(m->mnt_dir);
	if (f)
		(void)endmntent(f);
	while (n--) {
		if (!mount_needed(p, points[n]))
			(void)umount2(points[n], MNT_DETACH | UMOUNT_NOFOLLOW);
		free(points[n]);
	}
	(void)umount2("/proc", MNT_DETACH);
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "mount /proc");
	return 0;
}

static int fill_dev(int fd)
{
	static const struct {
		const char *name;
		unsigned major, minor;
	} nodes[] = { { "null", 1, 3 }, { "zero", 1, 5 }, { "full", 1, 7 }, { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 } };
	static const char *const links[][2] = {
		{ "fd", "/proc/self/fd" },	 { "stdin", "/proc/self/fd/0" }, { "stdout", "/proc/self/fd/1" },
		{ "stderr", "/proc/self/fd/2" }, { "ptmx", "pts/ptmx" },
	};

	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		if (mknodat(fd, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) < 0 ||
		    fchmodat(fd, nodes[i].name, 0666, 0) < 0)
			return -errno;
	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		if (symlinkat(links[i][1], fd, links[i][0]) < 0)
			return -errno;
	if (mkdirat(fd, "pts", 0755) < 0 || mkdirat(fd, "shm", 0755) < 0)
		return -errno;
	/* These lie over what is hidden in /proc. */
	return mkdirat(fd, ".empty", 0555) < 0 || mknodat(fd, ".nothing", S_IFREG | 0444, 0) < 0 ? -errno : 0;
}

/* The guest once more, as the program that asks PID 1 for what set-id programs would do elsewhere. */
static int put_sudo(int dev, const struct warden_options *o)
{
	auto_fd int fd = openat(dev, strrchr(PLACE_SUDO, '/') + 1, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0555);

	if (fd < 0)
		return -errno;
	for (size_t at = 0; at < o->guest_len;) {
		ssize_t n = write(fd, (const char *)o->guest + at, o->guest_len - at);
		if (n < 0)
			return -errno;
		at += (size_t)n;
	}
	return fchmod(fd, 0555) < 0 ? -errno : 0;
}

static int make_dev(struct place *p, struct err *e)
{
	static const struct mnt_option options[] = { { "mode", "0755" }, { "size", "4m" }, { "nr_inodes", "32" }, { 0 } };
	const char *why = "";
	mode_t before = umask(0);
	auto_fd int fd = mnt_new("tmpfs", options, MOUNT_ATTR_NOSUID, &why);
	int rc = fd < 0 ? fd : fill_dev(fd);

	if (rc == 0)
		rc = put_sudo(fd, p->options);

	umask(before);
	if (rc == 0)
		rc = mnt_readonly(fd, false);
	/* Attached, because only what is in our own tree may be cloned by kernels before 6.15. */
	if (rc == 0 && mkdirat(p->run_fd, "dev", 0700) < 0 && errno != EEXIST)
		rc = -errno;
	auto_fd int target = rc < 0 ? -EBADF : openat(p->run_fd, "dev", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (rc == 0)
		rc = mnt_attach(fd, target);
	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "make the /dev of the sandboxes %s", why);
	p->dev_fd = take_fd(&fd);
	return 0;
}

static int seal_guest(struct place *p, struct err *e)
{
	const struct warden_options *o = p->options;
	auto_fd int fd = memfd_create("caisson-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make a memory file for the guest");
	for (size_t at = 0; at < o->guest_len;) {
		ssize_t n = write(fd, (const char *)o->guest + at, o->guest_len - at);
		if (n < 0)
			return err_sys(e, ERR_UNAVAILABLE, errno, "write the guest");
		at += (size_t)n;
	}
	if (fchmod(fd, 0555) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "seal the guest");
	p->guest_fd = take_fd(&fd);
	return 0;
}

static int prepare_process(struct err *e)
{
	struct rlimit files;

	(void)setsid(); /* no terminal, and the daemon's Ctrl-C is not ours */
	umask(022);
	/* An id of the file system is changed for a moment to mount an overlay as a sandbox's root; capabilities must stay then. */
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "set securebits");
	/* A keyring of our own, empty: the sandboxes would inherit the caller's. */
	(void)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	return 0;
}

int place_set_up(struct place *p, const struct warden_options *options, struct err *e)
{
	int rc;

	*p = (struct place){ .options = options,
			     .run_fd = -EBADF,
			     .state_fd = -EBADF,
			     .sockets_fd = -EBADF,
			     .disks_fd = -EBADF,
			     .images_fd = -EBADF,
			     .stage = STAGE_INIT,
			     .netns = { .own = -EBADF, .proc = -EBADF },
			     .guest_fd = -EBADF,
			     .dev_fd = -EBADF };
	if (geteuid() != 0)
		return err_set(e, ERR_UNAVAILABLE, EPERM, "the process boundary needs root: start caisson as root, or with sudo");
	if (reserve_low_fds() < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "open /dev/null");
	if ((rc = prepare_process(e)) < 0)
		return rc;
	if ((rc = open_folders(p, e)) < 0)
		return rc;
	if ((rc = slim_mounts(p, e)) < 0)
		return rc;
	/* The folders again, as seen in the new mount namespace: only its own mounts can be cloned. */
	close_fd(p->images_fd);
	p->images_fd = open(options->images, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int run = open(p->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->images_fd < 0 || run < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "open the folders %s and %s", options->images, p->run);
	/* The lock stays with the descriptor it was taken on. */
	int lock = p->run_fd;
	p->run_fd = run;
	rc = make_dev(p, e);
	p->run_fd = lock;
	close_fd(run);
	if (rc < 0)
		return rc;
	if ((rc = seal_guest(p, e)) < 0)
		return rc;
	if ((rc = netns_maker_init(&p->netns)) < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "open the network namespace");
	if ((rc = stage_make(&p->stage, e)) < 0)
		return rc;
	if ((rc = process_boot_id(p->boot_id)) < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "read the boot's id");
	return 0;
}

void place_close(struct place *p, bool empty)
{
	if (empty && p->run_fd >= 0) {
		struct statfs st;
		bool removed = true;
		if (p->dev_fd >= 0) {
			auto_free char *dev = xasprintf("%s/dev", p->run);
			(void)umount2(dev, MNT_DETACH);
		}
		for (size_t i = 0; i < ARRAY_LEN(run_folders); i++)
			removed &= unlinkat(p->run_fd, run_folders[i], AT_REMOVEDIR) == 0 || errno == ENOENT;
		/* Taken off here, it is a mount of the host's namespace only, and goes there with the folder it is on. */
		if (removed && fstatfs(p->run_fd, &st) == 0 && st.f_type == TMPFS_MAGIC)
			(void)umount2(p->run, MNT_DETACH | UMOUNT_NOFOLLOW);
		if (removed)
			(void)rmdir(p->run);
	}
	netns_maker_done(&p->netns);
	stage_close(&p->stage);
	int *fds[] = { &p->state_fd, &p->sockets_fd, &p->disks_fd, &p->images_fd, &p->guest_fd, &p->dev_fd, &p->run_fd };
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		*fds[i] = close_fd(*fds[i]);
	free(take_ptr(&p->run));
}
