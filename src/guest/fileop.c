#include "guest/fileop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	DEPTH_MAX = 256,
	FRAMES_A_WRITE = 16,
	NO_REPLACE = 1, /* RENAME_NOREPLACE; musl 1.2.3 knows neither the call nor its flags */
};

static int rename_with(const char *from, const char *to, unsigned flags)
{
	return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags) < 0 ? -errno : 0;
}

int rename_anew(const char *from, const char *to)
{
	int rc = rename_with(from, to, NO_REPLACE);

	if (rc == -EINVAL && faccessat(AT_FDCWD, to, F_OK, AT_SYMLINK_NOFOLLOW) < 0) /* a file system without that flag */
		rc = rename_with(from, to, 0);
	return rc;
}

/* --- stat, list --- */

static uint8_t type_of(mode_t mode)
{
	/* order of enum file_type */
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return 1;
	case S_IFLNK:
		return 2;
	case S_IFIFO:
		return 3;
	case S_IFSOCK:
		return 4;
	case S_IFCHR:
		return 5;
	case S_IFBLK:
		return 6;
	default:
		return 0;
	}
}

static void tell_stat(struct work *w, const struct stat *st, const char *as, const char *target, bool is_dir)
{
	char owner[64], group[64];

	user_name_of(st->st_uid, false, owner);
	user_name_of(st->st_gid, true, group);
	struct guest_info i = {
		.size = (uint64_t)st->st_size,
		.mtime_ms = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000,
		.mode = st->st_mode & 07777,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.type = type_of(st->st_mode),
		.is_dir = is_dir,
		.path = as,
		.owner = owner,
		.group = group,
		.target = target,
	};
	port_info(&w->port, &i);
}

/* Tells about one entry; -errno when it is not there. */
static int tell(struct work *w, int dir, const char *name, const char *as, struct stat *ret)
{
	struct stat st, behind;
	char target[PATH_MAX];

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode)) {
		ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
		target[MAX(n, 0)] = '\0';
		tell_stat(w, &st, as, target, fstatat(dir, name, &behind, 0) == 0 && S_ISDIR(behind.st_mode));
	} else {
		tell_stat(w, &st, as, NULL, S_ISDIR(st.st_mode));
	}
	*ret = st;
	return 0;
}

int op_stat(struct work *w, struct err *e)
{
	struct stat st;
	int r = tell(w, AT_FDCWD, w->req->path, w->req->path, &st);

	return r < 0 ? path_error(e, -r, "cannot stat", w->req->path) : 0;
}

static int list(struct work *w, int fd, const char *prefix, uint32_t depth)
{
	DIR *d = fdopendir(fd);
	struct stat st;

	if (!d) {
		int r = -errno;
		close_fd(fd);
		return r;
	}
	for (struct dirent *entry; (entry = readdir(d));) {
		if (streq(entry->d_name, ".") || streq(entry->d_name, ".."))
			continue;
		auto_free char *as = prefix[0] ? xasprintf("%s/%s", prefix, entry->d_name) : xstrdup(entry->d_name);
		if (strlen(as) >= PATH_MAX || tell(w, dirfd(d), entry->d_name, as, &st) < 0)
			continue; /* gone meanwhile, or deeper than any path can say */
		if (depth > 1 && S_ISDIR(st.st_mode)) {
			int sub = openat(dirfd(d), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
			if (sub >= 0)
				(void)list(w, sub, as, depth - 1); /* one that may not be read is listed, without what is in it */
		}
	}
	closedir(d);
	return 0;
}

int op_list(struct work *w, struct err *e)
{
	int fd = open(w->req->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
	int r = fd < 0 ? -errno : list(w, fd, "", MIN(MAX(w->req->depth, 1u), (uint32_t)DEPTH_MAX));

	return r < 0 ? path_error(e, -r, "cannot list", w->req->path) : 0;
}

/* --- read --- */

static const char *kind_word(mode_t mode)
{
	static const char *const words[] = { "a file", "a directory", "a symbolic link", "a fifo", "a socket", "a device", "a device" };

	return words[type_of(mode)];
}

/* size: what a plain file had when it was opened. Its whole frames go by port_file, which must know beforehand how much there is;
 * what the size does not tell (a device, a file of /proc or /sys, one that has grown) is read until it ends. */
static int copy_out(struct work *w, int fd, uint64_t size, struct err *e)
{
	uint64_t left = w->req->length ? w->req->length : UINT64_MAX;
	uint64_t sure = MIN(left, size - MIN(size, w->req->offset));
	auto_free char *bytes = xmalloc(GUEST_PAYLOAD_MAX);

	for (; sure >= GUEST_PAYLOAD_MAX; sure -= GUEST_PAYLOAD_MAX, left -= GUEST_PAYLOAD_MAX)
		if (!port_file(&w->port, fd, GUEST_PAYLOAD_MAX))
			return err_set(e, ERR_UNAVAILABLE, EIO, "%.200s has been cut while it was read", w->req->path);
	while (left) {
		ssize_t n = read(fd, bytes, (size_t)MIN(left, (uint64_t)GUEST_PAYLOAD_MAX));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return path_error(e, errno, "cannot read", w->req->path);
		if (n == 0)
			break;
		port_data(&w->port, (struct str){ bytes, (size_t)n });
		left -= (uint64_t)n;
	}
	port_data_end(&w->port);
	return 0;
}

int op_read(struct work *w, struct err *e)
{
	const char *path = w->req->path;
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (w->req->flags & GUEST_F_NOFOLLOW ? O_NOFOLLOW : 0));
	struct stat st;

	if (fd < 0)
		return path_error(e, errno, "cannot open", path);
	if (fstat(fd, &st) < 0)
		return path_error(e, errno, "cannot stat", path);
	if (S_ISDIR(st.st_mode))
		return path_error(e, EISDIR, "cannot read", path);
	if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode))
		return err_set(e, ERR_INVALID, EINVAL, "cannot read %.200s: it is %s", path, kind_word(st.st_mode));
	if (w->req->offset > INT64_MAX || (w->req->offset && lseek(fd, (off_t)w->req->offset, SEEK_SET) < 0))
		return path_error(e, EINVAL, "cannot seek in", path);
	(void)fcntl(fd, F_SETFL, 0);
	tell_stat(w, &st, path, NULL, false); /* of the file that is read, not of a link that led to it */
	port_opened(&w->port);
	return copy_out(w, fd, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0, e);
}

/* --- write --- */

int make_parents(const char *path)
{
	auto_free char *copy = xstrdup(path);

	for (char *slash = copy + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		if (mkdir(copy, 0777) < 0 && errno != EEXIST) {
			int r = errno;
			struct stat st; /* EACCES, EROFS: also said of directories that are there */
			if (stat(copy, &st) < 0 || !S_ISDIR(st.st_mode))
				return -r;
		}
		*slash = '/';
	}
	return 0;
}

/* Changes v. */
static int write_all(int fd, struct iovec *v, int n)
{
	while (n) {
		ssize_t done = writev(fd, v, n);
		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		for (; n && (size_t)done >= v->iov_len; v++, n--)
			done -= (ssize_t)v->iov_len;
		if (n)
			*v = (struct iovec){ (char *)v->iov_base + done, v->iov_len - (size_t)done };
	}
	return 0;
}

int write_bytes(int fd, struct str s)
{
	struct iovec v = { (char *)(uintptr_t)s.p, s.n };

	return write_all(fd, &v, 1);
}

static int open_in_place(struct replacement *r, const char *path, uint32_t mode, bool truncate, struct err *e)
{
	/* O_NONBLOCK: a fifo without a reader is an error (ENXIO), not a wait without end */
	r->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (truncate ? O_TRUNC : 0), mode);
	if (r->fd < 0)
		return path_error(e, errno, "cannot write", path);
	(void)fcntl(r->fd, F_SETFL, 0);
	return 0;
}

int replacement_open(struct replacement *r, const char *path, uint32_t mode, struct err *e)
{
	struct stat st;
	bool there = stat(path, &st) == 0, dangling = !there && lstat(path, &st) == 0;
	size_t len = strlen(path);

	*r = (struct replacement){ .fd = -EBADF };
	if ((there && S_ISDIR(st.st_mode)) || path[len - 1] == '/')
		return path_error(e, EISDIR, "cannot write", path);
	if (there && S_ISSOCK(st.st_mode))
		return err_set(e, ERR_INVALID, ENXIO, "cannot write %.200s: it is a socket", path);
	if (dangling || (there && !S_ISREG(st.st_mode)))
		return open_in_place(r, path, mode, false, e);
	if (there && access(path, W_OK) < 0) /* renaming over it would get around its permissions */
		return path_error(e, errno, "cannot write", path);
	r->target = there ? realpath(path, NULL) : xstrdup(path);
	if (!r->target)
		return path_error(e, errno, "cannot resolve", path);
	const char *slash = strrchr(r->target, '/');
	char random[17];
	random_hex(random, 8);
	r->temp = xasprintf("%.*s.caisson-%s.tmp", slash ? (int)(slash - r->target + 1) : 0, r->target, random);
	r->fd = open(r->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, there ? 0600 : mode);
	int error = r->fd < 0 ? errno : 0;
	bool same_owner = true;
	if (error == 0 && there) {
		if (st.st_uid != geteuid() || st.st_gid != getegid())
			same_owner = fchown(r->fd, st.st_uid, st.st_gid) == 0;
		(void)fchmod(r->fd, st.st_mode & 07777);
	}
	if (error == 0 && same_owner)
		return 0;
	/* the directory takes no new file, or the owner could not be kept: write the file itself */
	if (error == 0)
		replacement_abort(r);
	free(take_ptr(&r->temp));
	if (error && !there)
		return path_error(e, error, "cannot create", path);
	return open_in_place(r, path, mode, true, e);
}

int replacement_commit(struct replacement *r, bool exclusive, struct err *e)
{
	int error = 0;

	if (close(r->fd) < 0 && errno != EINTR)
		error = errno; /* ENOSPC and EDQUOT may come as late as this */
	r->fd = -EBADF;
	if (!error && r->temp)
		error = -rename_with(r->temp, r->target, exclusive ? NO_REPLACE : 0);
	if (error && r->temp)
		(void)unlink(r->temp);
	int result = error ? path_error(e, error, "cannot write", r->target ? r->target : "the file") : 0;
	free(take_ptr(&r->temp));
	free(take_ptr(&r->target));
	return result;
}

void replacement_abort(void *ctx)
{
	struct replacement *r = ctx;

	r->fd = close_fd(r->fd);
	if (r->temp)
		(void)unlink(r->temp);
}

/* The frames that are there are written together: large writes cost a file system much less. */
static int receive_into(struct work *w, int fd, struct err *e)
{
	struct iovec v[FRAMES_A_WRITE];
	struct str s;

	while ((s = port_receive(&w->port)).n) {
		int n = 0;
		size_t total = 0;
		do {
			v[n++] = (struct iovec){ (char *)(uintptr_t)s.p, s.n };
			total += s.n;
		} while (n < FRAMES_A_WRITE && port_next(&w->port, &s));
		int r = write_all(fd, v, n);
		if (r < 0)
			return path_error(e, -r, "cannot write", w->req->path);
		port_consumed(&w->port, total);
	}
	return 0;
}

int op_write(struct work *w, struct err *e)
{
	const char *path = w->req->path;
	uint32_t mode = w->req->mode ? w->req->mode : 0644, flags = w->req->flags;
	struct replacement r = { .fd = -EBADF };
	struct stat st;
	int result = flags & GUEST_F_PARENTS ? make_parents(path) : 0;

	if (result < 0)
		return path_error(e, -result, "cannot make the directories above", path);
	if (flags & GUEST_F_EXCLUSIVE && lstat(path, &st) == 0)
		return path_error(e, EEXIST, "cannot create", path);
	if (flags & GUEST_F_APPEND) {
		result = open_in_place(&r, path, mode, false, e);
		if (result == 0)
			(void)fcntl(r.fd, F_SETFL, O_APPEND);
	} else {
		result = replacement_open(&r, path, mode, e);
	}
	if (result < 0)
		return result;
	w->port.on_gone = replacement_abort;
	w->port.ctx = &r;
	port_opened(&w->port);
	port_flush(&w->port);
	result = receive_into(w, r.fd, e);
	w->port.on_gone = NULL;
	if (result < 0) {
		replacement_abort(&r);
		return result;
	}
	if (w->req->has_mode && fchmod(r.fd, w->req->mode) < 0) {
		result = path_error(e, errno, "cannot set the mode of", path);
		replacement_abort(&r);
		return result;
	}
	return replacement_commit(&r, flags & GUEST_F_EXCLUSIVE, e);
}

/* --- the rest --- */

int op_mkdir(struct work *w, struct err *e)
{
	const char *path = w->req->path;
	mode_t mode = w->req->mode ? w->req->mode : 0777;
	struct stat st;

	if (w->req->flags & GUEST_F_PARENTS) {
		int r = make_parents(path);
		if (r < 0)
			return path_error(e, -r, "cannot make the directories above", path);
	}
	if (mkdir(path, mode) < 0) {
		int error = errno;
		if (error == EEXIST && w->req->flags & GUEST_F_PARENTS && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			return 0;
		return path_error(e, error, "cannot make", path);
	}
	/* what was asked for, not what the umask leaves of it */
	if (w->req->mode && chmod(path, mode) < 0)
		return path_error(e, errno, "cannot set the mode of", path);
	return 0;
}

struct level {
	dev_t dev;
	ino_t ino;
	char *name;
};

/* Empties the directory `at` (taken over) and what is below it. Goes down with one descriptor and comes up by "..", which must
 * be the directory it came from: somebody may be moving things about meanwhile. */
static int empty_tree(int at)
{
	struct level *levels = NULL;
	size_t n = 0;
	int result = 0;

	for (;;) {
		int copy = fcntl(at, F_DUPFD_CLOEXEC, 3);
		DIR *d = copy < 0 ? NULL : fdopendir(copy);
		int down = -EBADF;
		if (!d) {
			result = -errno;
			break;
		}
		rewinddir(d);
		for (struct dirent *entry; down < 0 && result == 0 && (entry = readdir(d));) {
			if (streq(entry->d_name, ".") || streq(entry->d_name, "..") || unlinkat(at, entry->d_name, 0) == 0)
				continue;
			if (errno == ENOENT)
				continue;
			int error = errno;
			down = openat(at, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
			struct stat st;
			if (down < 0 || fstat(at, &st) < 0) {
				/* an empty directory that may not be read can still be removed */
				if (down < 0 && unlinkat(at, entry->d_name, AT_REMOVEDIR) == 0)
					continue;
				result = error == EISDIR ? -errno : -error;
			} else {
				levels = xreallocarray(levels, n + 1, sizeof *levels);
				levels[n++] = (struct level){ st.st_dev, st.st_ino, xstrdup(entry->d_name) };
			}
		}
		closedir(d);
		if (result < 0) {
			close_fd(down);
			break;
		}
		if (down >= 0) {
			close_fd(at);
			at = down;
			continue;
		}
		if (n == 0)
			break;
		struct stat st;
		int up = openat(at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
		close_fd(at);
		at = up;
		n--;
		if (up < 0 || fstat(up, &st) < 0 || st.st_dev != levels[n].dev || st.st_ino != levels[n].ino)
			result = up < 0 ? -errno : -EBUSY;
		else if (unlinkat(up, levels[n].name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			result = -errno;
		free(levels[n].name);
		if (result < 0)
			break;
	}
	while (n)
		free(levels[--n].name);
	free(levels);
	close_fd(at);
	return result;
}

int remove_tree(int dirfd, const char *path)
{
	if (unlinkat(dirfd, path, 0) == 0)
		return 0;
	int error = errno;
	int at = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (at < 0) /* not a directory: the first reason counts */
		return error == EISDIR ? -errno : -error;
	int r = empty_tree(at);
	if (r < 0)
		return r;
	return unlinkat(dirfd, path, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* "/", ".", "..": the last step would fail, after everything below is gone. */
static bool cannot_be_removed(const char *path)
{
	size_t n = strlen(path), at;

	while (n && path[n - 1] == '/')
		n--;
	for (at = n; at && path[at - 1] != '/'; at--)
		;
	return n == 0 || (n - at == 1 && path[at] == '.') || (n - at == 2 && path[at] == '.' && path[at + 1] == '.');
}

int op_remove(struct work *w, struct err *e)
{
	const char *path = w->req->path;
	struct stat st;
	int r;

	if (cannot_be_removed(path))
		return err_set(e, ERR_INVALID, EINVAL, "cannot remove %.200s: name the directory itself, and not the root", path);
	if (lstat(path, &st) < 0)
		return path_error(e, errno, "cannot remove", path);
	if (w->req->flags & GUEST_F_RECURSIVE)
		r = remove_tree(AT_FDCWD, path);
	else
		r = unlinkat(AT_FDCWD, path, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
	return r < 0 ? path_error(e, -r, "cannot remove", path) : 0;
}

int op_move(struct work *w, struct err *e)
{
	if (!w->req->path2 || !w->req->path2[0])
		return err_set(e, ERR_INVALID, EINVAL, "a destination is needed");
	int r = rename_with(w->req->path, w->req->path2, w->req->flags & GUEST_F_EXCLUSIVE ? NO_REPLACE : 0);
	if (r < 0)
		return err_sys(e, err_kind_of_file_errno(-r), -r, "cannot move %.150s to %.150s", w->req->path, w->req->path2);
	return 0;
}

int op_chmod(struct work *w, struct err *e)
{
	const struct guest_op_request *q = w->req;
	int nofollow = q->flags & GUEST_F_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0;
	uid_t uid = (uid_t)-1;
	gid_t gid = (gid_t)-1;

	if (q->owner && user_id_of(q->owner, false, &uid) < 0)
		return err_set(e, ERR_INVALID, ENOENT, "the sandbox has no user \"%.80s\"", q->owner);
	if (q->group && user_id_of(q->group, true, &gid) < 0)
		return err_set(e, ERR_INVALID, ENOENT, "the sandbox has no group \"%.80s\"", q->group);
	/* owner first: changing it clears setuid bits that may be asked for */
	if ((q->owner || q->group) && fchownat(AT_FDCWD, q->path, uid, gid, nofollow) < 0)
		return path_error(e, errno, "cannot change the owner of", q->path);
	if (q->has_mode && fchmodat(AT_FDCWD, q->path, q->mode, nofollow) < 0)
		return path_error(e, errno, "cannot change the mode of", q->path);
	return 0;
}
