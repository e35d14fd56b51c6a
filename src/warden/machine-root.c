#include "warden/machine-root.h"

#include "sys/fs.h"
#include "sys/kvm.h"
#include "sys/mnt.h"
#include "wire/vmm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIST_MAX = 64 * 1024, LIBRARIES_MAX = 256, FOLDERS_MAX = 16 };
static const char *const names[2] = { "vmm", "vmm-kvm" };

/* What QEMU opens besides what it is linked with; where distributions have it. Not there: not needed, or QEMU says so. */
static const char *const data_files[] = {
	"/usr/share/qemu/bios-microvm.bin",    "/usr/share/seabios/bios-microvm.bin",
	"/usr/share/qemu/pvh.bin",	       "/usr/share/qemu/linuxboot_dma.bin",
	"/usr/lib/qemu/accel-tcg-x86_64.so",   "/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so",
	"/usr/lib64/qemu/accel-tcg-x86_64.so", "/usr/lib64/qemu-kvm/accel-tcg-x86_64.so",
};

static const char *program_of(const struct place *p)
{
	return p->options->vmm ? p->options->vmm : VMM_PROGRAM;
}

/* What the loader would load, said by the loader itself: with this variable it lists instead of running the program. (A static
 * program has no loader and runs; --version is harmless.) Heap, or NULL. */
static char *ask_loader(const char *program)
{
	char trace[] = "LD_TRACE_LOADED_OBJECTS=1", *env[] = { trace, NULL };
	const char *argv[] = { program, "--version", NULL };
	union {
		const char **in;
		char **out;
	} args = { argv };
	posix_spawn_file_actions_t actions;
	int out[2], status = -1;
	size_t n = 0;
	pid_t pid;

	if (pipe2(out, O_CLOEXEC) < 0)
		return NULL;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
	int rc = posix_spawn(&pid, program, &actions, NULL, args.out, env);
	posix_spawn_file_actions_destroy(&actions);
	close_fd(out[1]);
	char *text = xmalloc(LIST_MAX);
	for (ssize_t got; rc == 0 && n < LIST_MAX - 1 && (got = read(out[0], text + n, LIST_MAX - 1 - n)) != 0;)
		if (got > 0)
			n += (size_t)got;
		else if (errno != EINTR)
			break;
	close_fd(out[0]); /* one that says more than that is ended by it */
	if (rc == 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	text[n] = '\0';
	if (status != 0)
		free(take_ptr(&text));
	return text;
}

static int make_folders(int root, const char *path)
{
	char part[PATH_MAX];

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
		if (mkdirat(root, part, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* An empty file at the same place, and the host's over it. Twice is once. */
static int put(int root, const char *path)
{
	const char *inside = path + 1;

	if (path[0] != '/' || strlen(path) >= PATH_MAX || strstr(path, "/../"))
		return -EINVAL;
	int rc = make_folders(root, inside);
	if (rc < 0)
		return rc;
	auto_fd int point = openat(root, inside, O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
	if (point < 0)
		return errno == EEXIST ? 0 : -errno;
	auto_fd int file = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	struct mount_attr attr = { .attr_set = (uint64_t)(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV) };
	if (file < 0 || mount_setattr(file, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return -errno;
	return mnt_attach(file, point);
}

struct folders { /* where libraries are, each once */
	char *v[FOLDERS_MAX];
	size_t n;
};

/* Takes the last component off the path. */
static int note_folder(struct folders *f, char *path)
{
	*strrchr(path, '/') = '\0';
	for (size_t i = 0; i < f->n; i++)
		if (streq(f->v[i], path))
			return 0;
	if (f->n == FOLDERS_MAX)
		return -E2BIG;
	f->v[f->n++] = xstrdup(path);
	return 0;
}

static char *search_path(struct folders *f)
{
	char *text = xstrdup("LD_LIBRARY_PATH=");

	for (size_t i = 0; i < f->n; i++) {
		char *longer = xasprintf("%s%s%s", text, i ? ":" : "", f->v[i]);
		free(text);
		free(f->v[i]);
		text = longer;
	}
	return text;
}

/* "\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x...)" or "\t/lib64/ld-linux-x86-64.so.2 (0x...)"; the vdso has no path. */
static int put_libraries(int root, char *list, char **ret_search, struct err *e)
{
	struct folders folders = { 0 };
	unsigned n = 0;
	char *at = NULL;
	int rc = 0;

	for (char *line = strtok_r(list, "\n", &at); rc == 0 && line; line = strtok_r(NULL, "\n", &at)) {
		char *path = strchr(line, '/'), *end = strstr(line, " (0x");
		if (strstr(line, "not found")) {
			rc = err_set(e, ERR_UNAVAILABLE, ENOENT, "QEMU cannot run here:%s", line);
			break;
		}
		if (!path || !end || end < path)
			continue;
		*end = '\0';
		rc = ++n > LIBRARIES_MAX ? -E2BIG : put(root, path);
		if (rc == 0)
			rc = note_folder(&folders, path);
		if (rc < 0)
			(void)err_sys(e, ERR_UNAVAILABLE, -rc, "put QEMU's library into its root: %s", path);
	}
	auto_free char *search = search_path(&folders);
	if (rc == 0) {
		free(*ret_search);
		*ret_search = take_ptr(&search);
	}
	return rc;
}

static int put_device(int root, const char *name, dev_t number)
{
	return mknodat(root, name, S_IFCHR | 0666, number) < 0 || fchmodat(root, name, 0666, 0) < 0 ? -errno : 0;
}

static int put_devices(int root, bool kvm, struct err *e)
{
	struct stat st;

	if (kvm && (stat(KVM_DEVICE, &st) < 0 || !S_ISCHR(st.st_mode)))
		return err_set(e, ERR_UNAVAILABLE, ENODEV, "%s is no device", KVM_DEVICE);
	mode_t before = umask(0);
	int rc = mkdirat(root, "dev", 0755) < 0 || mkdirat(root, "proc", 0555) < 0 ? -errno : put_device(root, "dev/null", makedev(1, 3));
	if (rc == 0)
		rc = put_device(root, "dev/urandom", makedev(1, 9));
	if (rc == 0 && kvm)
		rc = put_device(root, "dev/kvm", st.st_rdev);
	umask(before);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "make the devices of QEMU's root") : 0;
}

static int fill(struct machine_root *r, const struct place *p, int root, bool kvm, struct err *e)
{
	const char *program = program_of(p);
	auto_free char *list = ask_loader(program);

	if (!list)
		return err_set(e, ERR_UNAVAILABLE, ENOEXEC, "%s does not run on this host (package qemu-system-x86)", program);
	int rc = put_devices(root, kvm, e);
	if (rc == 0)
		rc = put_libraries(root, list, &r->libraries, e);
	if (rc < 0)
		return rc;
	rc = put(root, program);
	for (size_t i = 0; rc == 0 && i < ARRAY_LEN(data_files); i++)
		if (access(data_files[i], R_OK) == 0)
			rc = put(root, data_files[i]);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "put QEMU's files into its root") : 0;
}

static void drop(struct machine_root *r, const struct place *p, int which)
{
	auto_free char *path = xasprintf("%s/%s", p->run, names[which]);

	if (r->tree[which] >= 0)
		(void)umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
	r->tree[which] = close_fd(r->tree[which]);
}

/* Attached first, since a mount can be put on a file of a tree only where that is ours. */
static int make(struct machine_root *r, const struct place *p, int which, struct err *e)
{
	static const struct mnt_option options[] = { { "mode", "0755" }, { "size", "1m" }, { "nr_inodes", "1k" }, { 0 } };
	auto_free char *path = xasprintf("%s/%s", p->run, names[which]);
	const char *why = "";
	auto_fd int root = mnt_new("tmpfs", options, MOUNT_ATTR_NOSUID, &why);

	if (root < 0)
		return err_sys(e, ERR_UNAVAILABLE, -root, "make QEMU's root: %s", why);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make %s", path);
	/* By its path, which is of our own mount namespace; run_fd, that holds the lock, may be of another. */
	auto_fd int point = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int rc = point < 0 ? -errno : mnt_attach(root, point);
	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "attach QEMU's root");
	r->tree[which] = take_fd(&root);
	rc = fill(r, p, r->tree[which], which == 1, e);
	if (rc == 0 && (rc = mnt_readonly(r->tree[which], false)) < 0)
		(void)err_sys(e, ERR_UNAVAILABLE, -rc, "make QEMU's root read-only");
	if (rc < 0)
		drop(r, p, which);
	return rc;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

int machine_root_clone(struct machine_root *r, const struct place *p, bool kvm, struct err *e)
{
	const char *program = program_of(p);
	struct stat now, loader = { 0 };

	if (kvm) { /* the daemon has seen it, and a root may be there that was made with it */
		auto_fd int device = kvm_open(KVM_DEVICE, e);
		if (device < 0) {
			err_prefix(e, "KVM has gone");
			return device;
		}
	}
	if (stat(program, &now) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "%s (package qemu-system-x86)", program);
	(void)stat("/etc/ld.so.cache", &loader); /* a libc may do without */
	if (!same_file(&now, &r->program) || !same_file(&loader, &r->loader)) {
		drop(r, p, 0);
		drop(r, p, 1);
		r->program = now;
		r->loader = loader;
	}
	int rc = r->tree[kvm] >= 0 ? 0 : make(r, p, kvm, e);
	if (rc < 0)
		return rc;
	int fd = mnt_clone(r->tree[kvm], "", true);
	return fd < 0 ? err_sys(e, ERR_UNAVAILABLE, -fd, "clone QEMU's root") : fd;
}

void machine_root_close(struct machine_root *r, const struct place *p, bool empty)
{
	for (int which = 0; which < 2; which++) {
		drop(r, p, which);
		if (empty && p->run_fd >= 0)
			(void)unlinkat(p->run_fd, names[which], AT_REMOVEDIR);
	}
	free(take_ptr(&r->libraries));
}
