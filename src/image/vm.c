/* Theory of operation.
 *
 *   apt-cache     which package the distribution's name for "the kernel for virtual machines" stands for
 *   apt-get       fetches it into TMP/package
 *   dpkg-deb      unpacks it into TMP/files, in the jail
 *   xz, zstd...   the kernel's own compression, in the jail; a kernel that unpacks itself boots 0.5 s slower
 *   rename        TMP/kernel becomes IMAGES/vm/<version>, and `current` points to it
 *
 * modules.cpio holds what a microvm with our devices needs, and what that depends on, in an order in which it can be loaded one by one. */
#include "image/vm.h"

#include "image/child.h"
#include "image/erofs.h"
#include "image/kernel.h"
#include "image/ref.h"
#include "image/refs.h"
#include "image/tree.h"
#include "image/work.h"
#include "wire/cpio.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define META_PACKAGE "linux-image-cloud-amd64"
enum { KERNEL_MAX = 256 << 20, MODULE_MAX = 16 << 20, MODULES_MAX = 64 << 20, FOLDERS_DEEP = 12 };

/* At the end of a kernel's version here: which recipe it was made by. One that was made by another lacks what this program needs of it. */
#define RECIPE "+2"

/* Built in is as good as a module. virtio_rng's file has a hyphen; names here are those of the kernel. */
static const char *const wanted[] = { "virtio_mmio", "virtio_blk", "virtio_console", "virtio_net", "virtio_rng", "erofs", "overlay", "fuse" };

void image_vm_kernel_done(struct image_vm_kernel *k)
{
	free(k->version);
	free(k->vmlinux);
	free(k->modules);
	*k = (struct image_vm_kernel){ 0 };
}

int image_vm_kernel_find(struct image_store *s, struct image_vm_kernel *ret, struct err *e)
{
	auto_free char *link = xasprintf("%s/vm/current", s->folder);
	char version[200];
	ssize_t n = readlink(link, version, sizeof version - 1);

	if (n <= 0)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "there is no kernel for the vm boundary in %s yet", s->folder);
	version[n] = '\0';
	if ((size_t)n <= strlen(RECIPE) || !streq(version + (size_t)n - strlen(RECIPE), RECIPE))
		return err_set(e, ERR_NOT_FOUND, ENOENT, "the kernel for the vm boundary in %s is an earlier program's", s->folder);
	struct image_vm_kernel k = { .version = xstrdup(version),
				     .vmlinux = xasprintf("%s/vm/%s/vmlinux", s->folder, version),
				     .modules = xasprintf("%s/vm/%s/modules.cpio", s->folder, version) };
	if (strchr(version, '/') || access(k.vmlinux, F_OK) < 0 || access(k.modules, F_OK) < 0) {
		image_vm_kernel_done(&k);
		return err_set(e, ERR_NOT_FOUND, ENOENT, "%s does not lead to a kernel", link);
	}
	*ret = k;
	return 0;
}

/* --- the package --- */

/* The first package that the distribution's name depends on and that is a kernel. Heap-owned. */
static int find_package(char **ret, struct err *e)
{
	static const char *const argv[] = { "apt-cache", "depends", META_PACKAGE, NULL };
	static const char key[] = "Depends: linux-image-";
	auto_free char *text = NULL;
	struct err why;
	int r = child_output(&(struct child_spec){ .argv = argv, .in = -1, .out = -1 }, 65536, &text, "apt-cache", &why);
	const char *at = r < 0 ? NULL : strstr(text, key);

	if (!at)
		return err_set(e, ERR_UNAVAILABLE, ENOENT,
			       "this host's package sources have no " META_PACKAGE ", from which the vm boundary takes its kernel (Debian on amd64 has it); "
			       "'apt-get update' may help");
	at += strlen("Depends: ");
	*ret = xstrndup(at, strcspn(at, " \n"));
	return 0;
}

/* "<version>" of the only file "linux-image-<version>.deb" in TMP/package. Heap-owned. */
static char *version_of_package(struct work *w)
{
	auto_free char *path = xasprintf("%s/package", w->path);
	DIR *d = opendir(path);
	char *version = NULL;

	for (const struct dirent *entry; d && !version && (entry = readdir(d));) {
		size_t n = strlen(entry->d_name);
		if (n > 16 && strncmp(entry->d_name, "linux-image-", 12) == 0 && streq(entry->d_name + n - 4, ".deb"))
			version = xstrndup(entry->d_name + 12, n - 16);
	}
	if (d)
		closedir(d);
	return version;
}

static int fetch(struct work *w, char **ret_version, struct err *e)
{
	auto_free char *package = NULL, *dir = xasprintf("%s/package", w->path);
	int r = find_package(&package, e);

	if (r < 0)
		return r;
	work_say(w, "fetching the kernel %s (apt-get)", package);
	/* apt's own user cannot write here */
	const char *const argv[] = { "apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package, NULL };
	if (mkdirat(w->dir, "package", 0755) < 0 || mkdirat(w->dir, "files", 0755) < 0 || mkdirat(w->dir, "kernel", 0755) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't make a folder in %s", w->path);
	r = child_run(&(struct child_spec){ .argv = argv, .dir = dir, .in = -1, .out = -1 }, work_line, w, "apt-get could not fetch the kernel", e);
	if (r < 0)
		return r;
	*ret_version = version_of_package(w);
	return *ret_version ? 0 : err_set(e, ERR_UNAVAILABLE, ENOENT, "apt-get has fetched no file of package %s", package);
}

static int unpack(struct work *w, const char *version, struct err *e)
{
	auto_free char *in = xasprintf("%s/package", w->path), *out = xasprintf("%s/files", w->path);
	auto_free char *file = xasprintf("/in/linux-image-%s.deb", version);
	const char *const argv[] = { "dpkg-deb", "-x", file, "/out", NULL };

	work_say(w, "unpacking it");
	return child_run(&(struct child_spec){ .argv = argv, .jail = &(struct child_jail){ .in = in, .out = out }, .in = -1, .out = -1 }, work_line, w,
			 "dpkg-deb could not unpack the kernel", e);
}

/* --- files of it --- */

struct mapped {
	void *p;
	struct str s;
};

static void mapped_done(struct mapped *m)
{
	if (m->p)
		munmap(m->p, m->s.n);
	*m = (struct mapped){ 0 };
}

static int map_file(int dir, const char *name, size_t max, struct mapped *ret, struct err *e)
{
	struct stat st;
	auto_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "%s of the kernel's package", name);
	if (!S_ISREG(st.st_mode) || st.st_size == 0 || (uint64_t)st.st_size > max)
		return err_set(e, ERR_INVALID, EFBIG, "%s of the kernel's package is no file, or has a size we don't expect", name);
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return err_sys(e, ERR_UNAVAILABLE, errno, "map %s", name);
	*ret = (struct mapped){ p, { p, (size_t)st.st_size } };
	return 0;
}

/* s goes through `program -dc` in the jail into the file `to`. */
static int decompress(struct work *w, struct str s, const char *program, int dir, const char *to, uint64_t max, struct err *e)
{
	const char *const argv[] = { program, "-dc", NULL };
	auto_fd int out = openat(dir, to, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	auto_fd int in = memfd_create("packed", MFD_CLOEXEC);

	if (out < 0 || in < 0 || write(in, s.p, s.n) != (ssize_t)s.n || lseek(in, 0, SEEK_SET) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't unpack %s in %s", to, w->path);
	pid_t pid = child_start(&(struct child_spec){ .argv = argv, .jail = &(struct child_jail){ 0 }, .in = in, .out = out, .mute = true, .file_max = max }, e);
	if (pid < 0)
		return (int)pid;
	int status = child_wait(pid);
	return status == 0 ? 0 : err_set(e, ERR_UNAVAILABLE, EIO, "%s could not unpack %s (it ended with %d)", program, to, status);
}

static int make_vmlinux(struct work *w, int kernel, const char *release, struct err *e)
{
	auto_free char *name = xasprintf("files/boot/vmlinuz-%s", release);
	struct mapped image = { 0 }, elf = { 0 };
	struct str payload;
	const char *program;
	int r = map_file(w->dir, name, KERNEL_MAX, &image, e);

	if (r == 0 && kernel_payload(image.s, &payload, &program) < 0)
		r = err_set(e, ERR_UNSUPPORTED, EINVAL, "the kernel %s is packed in a way that is not known here", release);
	if (r == 0)
		r = decompress(w, payload, program, kernel, "vmlinux", KERNEL_MAX, e);
	if (r == 0)
		r = map_file(kernel, "vmlinux", KERNEL_MAX, &elf, e);
	if (r == 0 && !kernel_has_pvh(elf.s))
		r = err_set(e, ERR_UNSUPPORTED, ENOEXEC, "the kernel %s can't be booted by QEMU's microvm: it has no PVH entry", release);
	mapped_done(&image);
	mapped_done(&elf);
	return r;
}

/* --- its modules --- */

struct modules {
	struct work *work;
	int root;     /* lib/modules/<release> */
	char **paths; /* of every module, below root */
	char **names;
	bool *taken;
	size_t n, taken_n;
	struct mapped builtin; /* the list of what is built in */
	struct buf cpio;
};

static void modules_done(struct modules *m)
{
	for (size_t i = 0; i < m->n; i++) {
		free(m->paths[i]);
		free(m->names[i]);
	}
	free(m->paths);
	free(m->names);
	free(m->taken);
	close_fd(m->root);
	mapped_done(&m->builtin);
	buf_done(&m->cpio);
}

static void index_folder(struct modules *m, const char *path, unsigned depth)
{
	struct dirent **found = NULL;
	int n = depth > FOLDERS_DEEP ? 0 : scandirat(m->root, path, &found, NULL, alphasort);
	char name[64];

	for (int i = 0; i < n; i++) {
		auto_free struct dirent *d = found[i];
		if (d->d_name[0] == '.')
			continue;
		auto_free char *below = xasprintf("%s/%s", path, d->d_name);
		if (d->d_type == DT_DIR) {
			index_folder(m, below, depth + 1);
		} else if (d->d_type == DT_REG && kernel_module_name(d->d_name, name)) {
			m->paths = xreallocarray(m->paths, m->n + 1, sizeof *m->paths);
			m->names = xreallocarray(m->names, m->n + 1, sizeof *m->names);
			m->paths[m->n] = take_ptr(&below);
			m->names[m->n++] = xstrdup(name);
		}
	}
	free(found);
}

static bool is_built_in(const struct modules *m, const char *name)
{
	char found[64];

	for (struct str s = m->builtin.s; s.n;) {
		const char *end = memchr(s.p, '\n', s.n);
		size_t n = end ? (size_t)(end - s.p) : s.n;
		const char *slash = memrchr(s.p, '/', n);
		auto_free char *file = slash ? xstrndup(slash + 1, n - (size_t)(slash + 1 - s.p)) : xstrndup(s.p, n);
		if (kernel_module_name(file, found) && streq(found, name))
			return true;
		s = (struct str){ s.p + n + (end != NULL), s.n - n - (end != NULL) };
	}
	return false;
}

static int open_module(struct modules *m, const char *path, struct mapped *ret, struct err *e)
{
	const char *suffix = strrchr(path, '.');
	const char *program = streq(suffix, ".xz") ? "xz" : streq(suffix, ".zst") ? "zstd" : streq(suffix, ".gz") ? "gzip" : NULL;
	struct mapped packed = { 0 };
	int r = map_file(m->root, path, MODULE_MAX, program ? &packed : ret, e);

	if (r == 0 && program)
		r = decompress(m->work, packed.s, program, m->work->dir, "module.ko", MODULE_MAX, e);
	if (r == 0 && program)
		r = map_file(m->work->dir, "module.ko", MODULE_MAX, ret, e);
	mapped_done(&packed);
	return r;
}

/* Behind what it depends on. */
static int take_module(struct modules *m, const char *name, unsigned depth, struct err *e)
{
	size_t i = 0;

	while (i < m->n && !streq(m->names[i], name))
		i++;
	if (i == m->n && is_built_in(m, name))
		return 0;
	if (i == m->n || depth > FOLDERS_DEEP)
		return err_set(e, ERR_UNSUPPORTED, ENOENT, "the kernel has no module %s, which the vm boundary needs", name);
	if (m->taken[i])
		return 0;
	m->taken[i] = true;
	struct mapped file = { 0 };
	int r = open_module(m, m->paths[i], &file, e);
	auto_free char *depends = r == 0 ? kernel_module_depends(file.s) : NULL;
	char *rest = depends;
	for (char *one; r == 0 && (one = strsep(&rest, ","));)
		if (*one)
			r = take_module(m, one, depth + 1, e);
	if (r == 0) {
		auto_free char *entry = xasprintf("modules/%02zu-%s.ko", m->taken_n++, name);
		if (cpio_put(&m->cpio, entry, S_IFREG | 0644, 0, file.s) < 0)
			r = err_set(e, ERR_UNSUPPORTED, EFBIG, "the kernel's modules are larger than %d MiB", MODULES_MAX >> 20);
	}
	mapped_done(&file);
	return r;
}

static int write_whole(int dir, const char *name, struct str s, struct err *e)
{
	auto_fd int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, s.p, s.n) != (ssize_t)s.n)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't write %s", name);
	return 0;
}

static int make_modules(struct work *w, int kernel, const char *release, struct err *e)
{
	auto_free char *path = xasprintf("files/lib/modules/%s", release);
	struct modules m = { .work = w, .root = openat(w->dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	int r = 0;

	buf_init(&m.cpio, MODULES_MAX);
	if (m.root < 0)
		r = err_sys(e, ERR_UNSUPPORTED, errno, "the kernel's package has no modules of %s", release);
	if (r == 0)
		r = map_file(m.root, "modules.builtin", MODULE_MAX, &m.builtin, e);
	if (r == 0)
		index_folder(&m, "kernel", 0);
	m.taken = xcalloc(m.n + 1, sizeof *m.taken);
	(void)cpio_put(&m.cpio, "modules", S_IFDIR | 0755, 0, (struct str){ NULL, 0 });
	for (size_t i = 0; i < ARRAY_LEN(wanted) && r == 0; i++)
		r = take_module(&m, wanted[i], 0, e);
	(void)cpio_end(&m.cpio);
	if (r == 0)
		r = write_whole(kernel, "modules.cpio", buf_str(&m.cpio), e);
	modules_done(&m);
	return r;
}

/* --- all of it --- */

static int settle(struct work *w, int kernel, const char *version, struct err *e)
{
	auto_free char *to = xasprintf("vm/%s", version), *link = xasprintf("%s/current", w->name);

	if (syncfs(kernel) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't write the kernel to the disk");
	if ((mkdirat(w->folder, "vm", 0755) < 0 && errno != EEXIST) ||
	    (renameat2(w->dir, "kernel", w->folder, to, RENAME_NOREPLACE) < 0 && errno != EEXIST) || symlinkat(version, w->folder, link) < 0 ||
	    renameat(w->folder, link, w->folder, "vm/current") < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't put kernel %s in its place", version);
	return fsync(w->folder) == 0 ? 0 : err_sys(e, ERR_UNAVAILABLE, errno, "can't write the image folder to the disk");
}

static int make_kernel(struct work *w, struct err *e)
{
	auto_free char *package = NULL;
	int r = fetch(w, &package, e);

	if (r == 0)
		r = unpack(w, package, e);
	if (r < 0)
		return r;
	auto_free char *version = xasprintf("%s" RECIPE, package);
	auto_fd int kernel = openat(w->dir, "kernel", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (kernel < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't open a folder in %s", w->path);
	auto_free char *release = xstrndup(version, strcspn(version, "_"));
	r = make_vmlinux(w, kernel, release, e);
	if (r == 0)
		r = make_modules(w, kernel, release, e);
	if (r == 0)
		r = settle(w, kernel, version, e);
	if (r == 0)
		work_say(w, "kernel %s is ready for the vm boundary", version);
	return r;
}

int image_vm_kernel_make(struct image_store *s, const struct image_options *o, struct image_vm_kernel *ret, struct err *e)
{
	struct work w;

	if (!(o && o->force) && image_vm_kernel_find(s, ret, NULL) == 0)
		return 0;
	int r = work_begin(s, o, &w, e);
	if (r < 0)
		return r;
	/* a second one waits, and then has nothing to do */
	auto_fd int lock = image_folder_lock(w.folder, "kernel.lock", true, e);
	bool there = lock >= 0 && !(o && o->force) && image_vm_kernel_find(s, ret, NULL) == 0;
	r = lock < 0 ? lock : there ? 0 : make_kernel(&w, e);
	work_end(&w);
	return r < 0 || there ? r : image_vm_kernel_find(s, ret, e);
}

/* --- images --- */

/* A uuid out of the digest, so that the same image gives the same file system. */
static char *uuid_option(const char *digest)
{
	const char *h = strchr(digest, ':') + 1;

	return xasprintf("-U%.8s-%.4s-4%.3s-8%.3s-%.12s", h, h + 8, h + 13, h + 17, h + 20);
}

/* The file is there and has the set-id bits of the image's files (those of earlier versions had none). */
static bool root_is_whole(int dir, char *const *privileged)
{
	auto_fd int fd = openat(dir, "root.erofs", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 && erofs_has_modes(fd, privileged, NULL) == 1;
}

static int put_modes(struct work *w, char *const *privileged, struct err *e)
{
	auto_fd int fd = openat(w->dir, "image/root.erofs", O_RDWR | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "open the image's file system");
	return erofs_put_modes(fd, privileged, e);
}

static int make_root(struct work *w, const char *image, const char *digest, struct err *e)
{
	auto_free char *in = xasprintf("%s/rootfs", image), *out = xasprintf("%s/image", w->path), *uuid = uuid_option(digest);
	/* Uncompressed: neither boot nor reading gains by less, and the guest's kernel parses less. No attributes: the tree has none. Times stay,
	 * since Python's compiled files are held against them. */
	const char *const argv[] = { "mkfs.erofs", "-x-1", uuid, "/out/root.erofs", "/in", NULL };

	work_say(w, "making a file system of image %.19s (mkfs.erofs)", digest);
	return child_run(&(struct child_spec){ .argv = argv, .jail = &(struct child_jail){ .in = in, .out = out }, .in = -1, .out = -1,
					       .file_max = w->options.max_bytes },
			 NULL, NULL, "mkfs.erofs could not make the image's file system", e);
}

int image_vm_ready(struct image_store *s, struct err *e)
{
	struct image_vm_kernel kernel;
	struct image image;
	char name[72];

	int r = image_vm_kernel_find(s, &kernel, e);
	if (r < 0)
		return r;
	image_vm_kernel_done(&kernel);
	if (image_resolve(s, "default", &image, e) < 0)
		return 0;
	image_folder_name(image.digest, name);
	image_done(&image);
	auto_free char *path = xasprintf("%s/%s/root.erofs", s->folder, name);
	return access(path, F_OK) == 0 ? 0 : err_set(e, ERR_NOT_FOUND, ENOENT, "the default image has not been prepared for virtual machines");
}

int image_vm_root(struct image_store *s, const char *digest, const struct image_options *o, char **ret_path, struct err *e)
{
	char name[72];
	struct work w;

	if (!image_digest_valid(digest))
		return err_set(e, ERR_INVALID, EINVAL, "not the digest of an image: '%.100s'", digest);
	image_folder_name(digest, name);
	auto_free char *image = xasprintf("%s/%s", s->folder, name), *path = xasprintf("%s/root.erofs", image);
	auto_fd int dir = open(image, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 || flock(dir, LOCK_SH) < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, errno, "image %s", digest);
	char **privileged = NULL;
	int r = image_json_privileged(dir, &privileged, e);
	if (r < 0)
		return r;
	if (root_is_whole(dir, privileged)) {
		strings_free(privileged);
		*ret_path = take_ptr(&path);
		return 0;
	}
	r = work_begin(s, o, &w, e);
	if (r < 0) {
		strings_free(privileged);
		return r;
	}
	r = make_root(&w, image, digest, e);
	if (r == 0)
		r = put_modes(&w, privileged, e);
	strings_free(privileged);
	if (r == 0 && (fchmodat(w.dir, "image/root.erofs", 0600, 0) < 0 || syncfs(w.dir) < 0 || renameat(w.dir, "image/root.erofs", dir, "root.erofs") < 0 ||
		       fsync(dir) < 0))
		r = err_sys(e, ERR_UNAVAILABLE, errno, "can't put the file system of image %s in its place", digest);
	work_end(&w);
	if (r == 0)
		*ret_path = take_ptr(&path);
	return r;
}
