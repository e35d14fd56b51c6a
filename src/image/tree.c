#include "image/tree.h"

#include "base/buf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define DEPTH_MAX 128 /* one descriptor and one stack frame a level */
#define ID_MAX 65535
#define PRIVILEGED_MAX 10000

struct walk {
	const struct tree_limits *limits;
	EVP_MD_CTX *digest;
	struct buf path; /* from the root, with no slash in front */
	uint64_t bytes, entries;
	char **privileged;
	size_t privileged_n;
	char *block;
	struct err *e;
};
#define BLOCK (256U << 10)

static void feed(struct walk *w, const void *p, size_t n)
{
	if (EVP_DigestUpdate(w->digest, p, n) != 1)
		abort();
}

static const char *path_of(const struct walk *w)
{
	return w->path.len ? w->path.data : ".";
}

static int hash_file(struct walk *w, int dir, const char *name, const struct stat *st, char ret_hex[static 65])
{
	auto_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME);
	if (fd < 0)
		return err_sys(w->e, ERR_UNAVAILABLE, errno, "can't read /%s of the image", path_of(w));
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	if (!md || EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1)
		abort();
	uint64_t left = (uint64_t)st->st_size;
	ssize_t n = 0;
	while (left > 0 && (n = read(fd, w->block, BLOCK)) > 0) {
		EVP_DigestUpdate(md, w->block, (size_t)n);
		left -= MIN(left, (uint64_t)n);
	}
	int cause = n < 0 ? errno : EIO;
	unsigned char sum[32];
	EVP_DigestFinal_ex(md, sum, NULL);
	EVP_MD_CTX_free(md);
	hex_encode(sum, sizeof sum, ret_hex);
	return left == 0 ? 0 : err_sys(w->e, ERR_UNAVAILABLE, cause, "can't read /%s of the image", path_of(w));
}

static char type_letter(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return 'd';
	case S_IFREG:
		return 'f';
	case S_IFLNK:
		return 'l';
	case S_IFIFO:
		return 'p';
	case S_IFSOCK:
		return 's';
	default:
		return 0;
	}
}

static int check_entry(struct walk *w, const struct stat *st)
{
	if (st->st_uid > ID_MAX || st->st_gid > ID_MAX)
		return err_set(w->e, ERR_INVALID, EINVAL, "/%s belongs to %u:%u; ids in an image must be %u or less", path_of(w), st->st_uid, st->st_gid,
			       ID_MAX);
	w->entries++;
	if (S_ISREG(st->st_mode))
		w->bytes += (uint64_t)st->st_size;
	if (w->entries > w->limits->entries)
		return err_set(w->e, ERR_LIMIT, EFBIG, "the image has more than %llu files", (unsigned long long)w->limits->entries);
	if (w->bytes > w->limits->bytes)
		return err_set(w->e, ERR_LIMIT, EFBIG, "the image's files are larger than %llu MiB together", (unsigned long long)(w->limits->bytes >> 20));
	return 0;
}

/* Set-id bits off; noted down. */
static int strip_mode(struct walk *w, int dir, const char *name, const struct stat *st)
{
	if (!S_ISREG(st->st_mode) || !(st->st_mode & (S_ISUID | S_ISGID)))
		return 0;
	if (w->privileged_n == PRIVILEGED_MAX)
		return err_set(w->e, ERR_LIMIT, EFBIG, "the image has more than %d set-id files", PRIVILEGED_MAX);
	w->privileged = xreallocarray(w->privileged, w->privileged_n + 2, sizeof *w->privileged);
	w->privileged[w->privileged_n++] = xasprintf("%04o /%s", st->st_mode & 07777, path_of(w));
	w->privileged[w->privileged_n] = NULL;
	if (fchmodat(dir, name, st->st_mode & 01777, 0) < 0)
		return err_sys(w->e, ERR_UNAVAILABLE, errno, "can't take the set-id bits off /%s", path_of(w));
	return 0;
}

/* There is no *at form of these calls; the folder's descriptor in /proc stands in for it, and the last part is not followed. */
static int strip_xattrs(struct walk *w, int dir, const char *name)
{
	char names[65536], path[32 + NAME_MAX + 2];
	snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dir, name);
	ssize_t n = llistxattr(path, names, sizeof names);
	if (n < 0 && errno != ENOTSUP)
		return err_sys(w->e, ERR_UNAVAILABLE, errno, "can't list the attributes of /%s", path_of(w));
	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1)
		if (lremovexattr(path, p) < 0 && errno != ENODATA)
			return err_sys(w->e, ERR_UNAVAILABLE, errno, "can't take the attribute %s off /%s", p, path_of(w));
	return 0;
}

static int feed_entry(struct walk *w, int dir, const char *name, const struct stat *st)
{
	char head[64], hex[65] = "", target[4097];
	int n = snprintf(head, sizeof head, "%c %04o %u %u ", type_letter(st->st_mode), st->st_mode & 07777, st->st_uid, st->st_gid);
	const char *content = hex;
	if (S_ISREG(st->st_mode)) {
		int r = hash_file(w, dir, name, st, hex);
		if (r < 0)
			return r;
	} else if (S_ISLNK(st->st_mode)) {
		ssize_t len = readlinkat(dir, name, target, sizeof target - 1);
		if (len < 0)
			return err_sys(w->e, ERR_UNAVAILABLE, errno, "can't read the link /%s", path_of(w));
		target[len] = 0;
		content = target;
	}
	feed(w, head, (size_t)n);
	feed(w, path_of(w), strlen(path_of(w)) + 1);
	feed(w, content, strlen(content) + 1);
	return 0;
}

static int seal_folder(struct walk *w, int fd, unsigned depth);

static int seal_entry(struct walk *w, int dir, const char *name, unsigned depth)
{
	struct stat st;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(w->e, ERR_UNAVAILABLE, errno, "can't read /%s of the image", path_of(w));
	if (!type_letter(st.st_mode)) {
		if (strncmp(path_of(w), "dev/", 4) == 0)
			return unlinkat(dir, name, 0) == 0 ? 0 : err_sys(w->e, ERR_UNAVAILABLE, errno, "can't remove the device /%s", path_of(w));
		return err_set(w->e, ERR_INVALID, EINVAL, "/%s is a device: an image may have none outside /dev", path_of(w));
	}
	int r = check_entry(w, &st);
	if (r == 0)
		r = feed_entry(w, dir, name, &st);
	if (r == 0)
		r = strip_mode(w, dir, name, &st);
	if (r == 0)
		r = strip_xattrs(w, dir, name);
	if (r < 0 || !S_ISDIR(st.st_mode))
		return r;
	if (depth >= DEPTH_MAX)
		return err_set(w->e, ERR_INVALID, ELOOP, "the image has folders more than %d deep", DEPTH_MAX);
	int sub = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub < 0)
		return err_sys(w->e, ERR_UNAVAILABLE, errno, "can't open /%s of the image", path_of(w));
	return seal_folder(w, sub, depth + 1);
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *d)
{
	return !streq(d->d_name, ".") && !streq(d->d_name, "..");
}

/* Consumes fd. */
static int seal_folder(struct walk *w, int fd, unsigned depth)
{
	struct dirent **found = NULL;
	int n = scandirat(fd, ".", &found, not_dots, by_bytes);
	int r = n < 0 ? err_sys(w->e, ERR_UNAVAILABLE, errno, "can't list /%s of the image", path_of(w)) : 0;
	size_t before = w->path.len;
	for (int i = 0; i < n; i++) {
		auto_free struct dirent *d = found[i];
		if (r < 0)
			continue;
		if (buf_addf(&w->path, "%s%s", before ? "/" : "", d->d_name) < 0)
			r = err_set(w->e, ERR_INVALID, ENAMETOOLONG, "the image has a path of more than %zu bytes", w->path.max);
		else
			r = seal_entry(w, fd, d->d_name, depth);
		w->path.len = before;
		if (w->path.data)
			w->path.data[before] = 0;
	}
	free(found);
	close(fd);
	return r;
}

int tree_seal(int root, const char *config_text, const struct tree_limits *limits, struct tree_sealed *ret, struct err *e)
{
	struct walk w = { .limits = limits, .digest = EVP_MD_CTX_new(), .e = e };
	if (!w.digest || EVP_DigestInit_ex(w.digest, EVP_sha256(), NULL) != 1)
		abort();
	buf_init(&w.path, 8192);
	w.block = xmalloc(BLOCK);
	feed(&w, config_text, strlen(config_text) + 1);
	int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 ? err_sys(e, ERR_UNAVAILABLE, errno, "can't open the image's tree") : seal_folder(&w, fd, 0);
	unsigned char sum[32];
	EVP_DigestFinal_ex(w.digest, sum, NULL);
	EVP_MD_CTX_free(w.digest);
	buf_done(&w.path);
	free(w.block);
	if (r == 0) {
		*ret = (struct tree_sealed){ .bytes = w.bytes, .entries = w.entries, .privileged = take_ptr(&w.privileged) };
		memcpy(ret->digest, "sha256:", 7);
		hex_encode(sum, sizeof sum, ret->digest + 7);
	}
	for (size_t i = 0; w.privileged && i < w.privileged_n; i++)
		free(w.privileged[i]);
	free(w.privileged);
	return r;
}

/* The id of the mount: a bind mount of the same file system has the same device number, but not this. */
static uint64_t mount_of(int fd)
{
	struct statx x = { 0 };
	return statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &x) == 0 && (x.stx_mask & STATX_MNT_ID) ? x.stx_mnt_id : 0;
}

/* Depth is bounded by moving what lies too deep up to the top: a hostile archive can nest further than we have
 * descriptors for, and its remains must go all the same. */
static int remove_in(int top, int dir, const char *name, uint64_t mount, unsigned depth)
{
	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	auto_fd int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (mount_of(fd) != mount)
		return -EXDEV;
	if (depth >= DEPTH_MAX) {
		char aside[32] = "deep-";
		random_hex(aside + 5, 8);
		return renameat(dir, name, top, aside) == 0 ? 1 : -errno;
	}
	DIR *list = fdopendir(dup(fd));
	if (!list)
		return -errno;
	int r = 0;
	const struct dirent *d;
	while (r >= 0 && (d = readdir(list)))
		if (not_dots(d)) {
			int sub = remove_in(top, fd, d->d_name, mount, depth + 1);
			r = sub < 0 ? sub : MAX(r, sub);
		}
	closedir(list);
	if (r >= 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0)
		return errno == ENOTEMPTY && depth == 0 && r == 1 ? 1 : -errno;
	return r;
}

int tree_remove(int parent, const char *name, struct err *e)
{
	auto_fd int top = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r;
	do
		r = remove_in(top, parent, name, mount_of(parent), 0);
	while (r == 1);
	return r < 0 ? err_sys(e, ERR_UNAVAILABLE, -r, "can't remove %s", name) : 0;
}
