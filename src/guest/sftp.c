/* One request at a time: read whole, done, answered. It runs as a program of the tenant's like any other, so that the kernel decides what
 * it may; what it must not do is to go beyond its own memory, whatever a client sends. */
#include "guest/sftp.h"

#include "base/buf.h"
#include "base/util.h"
#include "guest/fileop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
	VERSION = 3,
	PACKET_MAX = 256 << 10, /* what clients send at most: 32 KiB of data, and some allow themselves more */
	DATA_MAX = 128 << 10,	/* of one answer */
	HANDLES_MAX = 512,
	NAMES_AT_ONCE = 64,
};

enum type {
	T_INIT = 1,
	T_VERSION,
	T_OPEN,
	T_CLOSE,
	T_READ,
	T_WRITE,
	T_LSTAT,
	T_FSTAT,
	T_SETSTAT,
	T_FSETSTAT,
	T_OPENDIR,
	T_READDIR,
	T_REMOVE,
	T_MKDIR,
	T_RMDIR,
	T_REALPATH,
	T_STAT,
	T_RENAME,
	T_READLINK,
	T_SYMLINK,
	T_STATUS = 101,
	T_HANDLE,
	T_DATA,
	T_NAME,
	T_ATTRS,
	T_EXTENDED = 200,
	T_EXTENDED_REPLY,
};

enum status { S_OK, S_EOF, S_NO_SUCH_FILE, S_PERMISSION_DENIED, S_FAILURE, S_BAD_MESSAGE, S_OP_UNSUPPORTED = 8 };
enum { F_READ = 1, F_WRITE = 2, F_APPEND = 4, F_CREAT = 8, F_TRUNC = 16, F_EXCL = 32 };
enum { A_SIZE = 1, A_UIDGID = 2, A_PERMISSIONS = 4, A_ACMODTIME = 8 };

struct handle {
	int fd; /* of a file; else -1 */
	DIR *dir;
	char *path; /* of a folder */
	bool used, append;
};

struct request { /* what is left of the packet */
	const unsigned char *p;
	size_t n;
	bool bad; /* it said more than there was */
};

struct attrs {
	uint32_t flags, uid, gid, mode, atime, mtime;
	uint64_t size;
};

static struct handle handles[HANDLES_MAX];
static struct buf out;

/* --- reading a packet --- */

static uint32_t get_u32(struct request *r)
{
	if (r->n < 4) {
		r->bad = true;
		r->n = 0;
		return 0;
	}
	uint32_t v = (uint32_t)r->p[0] << 24 | (uint32_t)r->p[1] << 16 | (uint32_t)r->p[2] << 8 | r->p[3];
	r->p += 4;
	r->n -= 4;
	return v;
}

static uint64_t get_u64(struct request *r)
{
	uint64_t high = get_u32(r);
	return high << 32 | get_u32(r);
}

static struct str get_bytes(struct request *r)
{
	uint32_t n = get_u32(r);

	if (n > r->n) {
		r->bad = true;
		return (struct str){ "", 0 };
	}
	struct str s = { (const char *)r->p, n };
	r->p += n;
	r->n -= n;
	return s;
}

/* A path as the kernel takes it; empty means where we are. */
static void get_path(struct request *r, char ret[static PATH_MAX])
{
	struct str s = get_bytes(r);

	if (s.n >= PATH_MAX || memchr(s.p, '\0', s.n)) {
		r->bad = true;
		s.n = 0;
	}
	memcpy(ret, s.p, s.n);
	ret[s.n] = '\0';
	if (s.n == 0)
		memcpy(ret, ".", 2);
}

static void get_attrs(struct request *r, struct attrs *a)
{
	*a = (struct attrs){ .flags = get_u32(r) };
	if (a->flags & A_SIZE)
		a->size = get_u64(r);
	if (a->flags & A_UIDGID) {
		a->uid = get_u32(r);
		a->gid = get_u32(r);
	}
	if (a->flags & A_PERMISSIONS)
		a->mode = get_u32(r);
	if (a->flags & A_ACMODTIME) {
		a->atime = get_u32(r);
		a->mtime = get_u32(r);
	}
}

static struct handle *get_handle(struct request *r)
{
	struct str s = get_bytes(r);
	struct request inner = { (const unsigned char *)s.p, s.n, false };
	uint32_t i = get_u32(&inner);

	return s.n == 4 && i < HANDLES_MAX && handles[i].used ? &handles[i] : NULL;
}

/* --- writing one --- */

static void put_u32(uint32_t v)
{
	const unsigned char b[4] = { (unsigned char)(v >> 24), (unsigned char)(v >> 16), (unsigned char)(v >> 8), (unsigned char)v };
	(void)buf_add(&out, b, sizeof b);
}

static void put_u64(uint64_t v)
{
	put_u32((uint32_t)(v >> 32));
	put_u32((uint32_t)v);
}

static void put_bytes(const void *p, size_t n)
{
	put_u32((uint32_t)n);
	(void)buf_add(&out, p, n);
}

static void put_text(const char *z)
{
	put_bytes(z, strlen(z));
}

static void put_attrs(const struct stat *st)
{
	put_u32(A_SIZE | A_UIDGID | A_PERMISSIONS | A_ACMODTIME);
	put_u64((uint64_t)st->st_size);
	put_u32(st->st_uid);
	put_u32(st->st_gid);
	put_u32(st->st_mode);
	put_u32((uint32_t)st->st_atime);
	put_u32((uint32_t)st->st_mtime);
}

/* The length is filled in by send_packet. */
static void begin(enum type type, uint32_t id)
{
	buf_reset(&out);
	put_u32(0);
	(void)buf_addc(&out, (char)type);
	put_u32(id);
}

static bool send_packet(void)
{
	uint32_t n = (uint32_t)out.len - 4;

	for (int i = 0; i < 4; i++)
		out.data[i] = (char)(n >> (24 - 8 * i));
	while (out.len) {
		ssize_t w = write(STDOUT_FILENO, out.data, out.len);
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return false;
		buf_consume(&out, (size_t)w);
	}
	return true;
}

static void say_status(uint32_t id, enum status status, const char *text)
{
	begin(T_STATUS, id);
	put_u32(status);
	put_text(text);
	put_text("");
}

/* rc: 0, or a negative errno. */
static void say(uint32_t id, int rc)
{
	enum status s = rc == 0 ? S_OK : rc == -ENOENT || rc == -ENOTDIR ? S_NO_SUCH_FILE : rc == -EACCES || rc == -EPERM ? S_PERMISSION_DENIED : S_FAILURE;
	say_status(id, s, rc == 0 ? "Success" : strerror(-rc));
}

static int check(int r)
{
	return r < 0 ? -errno : 0;
}

/* --- the requests --- */

static void say_handle(uint32_t id, const struct handle *h)
{
	begin(T_HANDLE, id);
	put_u32(4);
	put_u32((uint32_t)(h - handles));
}

static struct handle *new_handle(void)
{
	for (size_t i = 0; i < HANDLES_MAX; i++)
		if (!handles[i].used) {
			handles[i] = (struct handle){ .fd = -1, .used = true };
			return &handles[i];
		}
	return NULL;
}

static void free_handle(struct handle *h)
{
	if (h->fd >= 0)
		(void)close(h->fd);
	if (h->dir)
		(void)closedir(h->dir);
	free(h->path);
	*h = (struct handle){ .fd = -1 };
}

static void do_open(uint32_t id, struct request *r)
{
	char path[PATH_MAX];
	struct attrs a;

	get_path(r, path);
	uint32_t flags = get_u32(r);
	get_attrs(r, &a);
	int mode = flags & F_READ && flags & F_WRITE ? O_RDWR : flags & F_WRITE ? O_WRONLY : O_RDONLY;
	mode |= (flags & F_CREAT ? O_CREAT : 0) | (flags & F_TRUNC ? O_TRUNC : 0) | (flags & F_EXCL ? O_EXCL : 0) | (flags & F_APPEND ? O_APPEND : 0);
	/* A pipe or a device must not hold us up. */
	int fd = r->bad ? -1 : open(path, mode | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, a.flags & A_PERMISSIONS ? a.mode & 07777 : 0666);
	struct handle *h = fd < 0 ? NULL : new_handle();
	if (!h) {
		say(id, fd < 0 ? -errno : -EMFILE);
		if (fd >= 0)
			(void)close(fd);
		return;
	}
	h->fd = fd;
	h->append = flags & F_APPEND;
	say_handle(id, h);
}

static void do_opendir(uint32_t id, struct request *r)
{
	char path[PATH_MAX];

	get_path(r, path);
	DIR *dir = r->bad ? NULL : opendir(path);
	struct handle *h = dir ? new_handle() : NULL;
	if (!h) {
		say(id, dir ? -EMFILE : -errno);
		if (dir)
			(void)closedir(dir);
		return;
	}
	h->dir = dir;
	h->path = xstrdup(path);
	say_handle(id, h);
}

static void do_close(uint32_t id, struct request *r)
{
	struct handle *h = get_handle(r);

	if (h)
		free_handle(h);
	say(id, h ? 0 : -EBADF);
}

static void do_read(uint32_t id, struct request *r)
{
	struct handle *h = get_handle(r);
	uint64_t offset = get_u64(r);
	uint32_t asked = get_u32(r), want = MIN(asked, (uint32_t)DATA_MAX);
	static char data[DATA_MAX];

	if (!h || h->fd < 0) {
		say(id, -EBADF);
		return;
	}
	ssize_t n = pread(h->fd, data, want, (off_t)offset);
	if (n < 0)
		say(id, -errno);
	else if (n == 0)
		say_status(id, S_EOF, "End of file");
	else {
		begin(T_DATA, id);
		put_bytes(data, (size_t)n);
	}
}

static void do_write(uint32_t id, struct request *r)
{
	struct handle *h = get_handle(r);
	uint64_t offset = get_u64(r);
	struct str data = get_bytes(r);
	int rc = 0;

	if (!h || h->fd < 0 || r->bad) {
		say(id, -EBADF);
		return;
	}
	while (rc == 0 && data.n) {
		ssize_t n = h->append ? write(h->fd, data.p, data.n) : pwrite(h->fd, data.p, data.n, (off_t)offset);
		if (n < 0) {
			rc = -errno;
		} else {
			data.p += n;
			data.n -= (size_t)n;
			offset += (uint64_t)n;
		}
	}
	say(id, rc);
}

static void say_attrs(uint32_t id, int rc, const struct stat *st)
{
	if (rc < 0) {
		say(id, rc);
		return;
	}
	begin(T_ATTRS, id);
	put_attrs(st);
}

static void do_stat(uint32_t id, struct request *r, bool follow)
{
	char path[PATH_MAX];
	struct stat st;

	get_path(r, path);
	say_attrs(id, check(follow ? stat(path, &st) : lstat(path, &st)), &st);
}

static void do_fstat(uint32_t id, struct request *r)
{
	struct handle *h = get_handle(r);
	struct stat st;

	say_attrs(id, !h ? -EBADF : check(fstat(h->dir ? dirfd(h->dir) : h->fd, &st)), &st);
}

/* By a descriptor, so that a file and a path are the same. */
static int set_attrs(int fd, const struct attrs *a)
{
	const struct timespec times[2] = { { .tv_sec = (time_t)a->atime }, { .tv_sec = (time_t)a->mtime } };

	if (a->flags & A_SIZE && ftruncate(fd, (off_t)a->size) < 0)
		return -errno;
	if (a->flags & A_UIDGID && fchown(fd, a->uid, a->gid) < 0)
		return -errno;
	if (a->flags & A_PERMISSIONS && fchmod(fd, a->mode & 07777) < 0)
		return -errno;
	return a->flags & A_ACMODTIME ? check(futimens(fd, times)) : 0;
}

/* A path may be of what we cannot open (no right to read it, a pipe). */
static int set_path_attrs(const char *path, const struct attrs *a)
{
	const struct timespec times[2] = { { .tv_sec = (time_t)a->atime }, { .tv_sec = (time_t)a->mtime } };

	if (a->flags & A_SIZE && truncate(path, (off_t)a->size) < 0)
		return -errno;
	if (a->flags & A_UIDGID && chown(path, a->uid, a->gid) < 0)
		return -errno;
	if (a->flags & A_PERMISSIONS && chmod(path, a->mode & 07777) < 0)
		return -errno;
	return a->flags & A_ACMODTIME ? check(utimensat(AT_FDCWD, path, times, 0)) : 0;
}

static void do_setstat(uint32_t id, struct request *r)
{
	char path[PATH_MAX];
	struct attrs a;

	get_path(r, path);
	get_attrs(r, &a);
	say(id, r->bad ? -EINVAL : set_path_attrs(path, &a));
}

static void do_fsetstat(uint32_t id, struct request *r)
{
	struct handle *h = get_handle(r);
	struct attrs a;

	get_attrs(r, &a);
	say(id, !h || r->bad ? -EBADF : set_attrs(h->dir ? dirfd(h->dir) : h->fd, &a));
}

/* What `ls -l` prints, which clients show as it is. */
static void put_long_name(const char *name, const struct stat *st)
{
	static const char kinds[] = "?pc?d?b?-?l?s???";
	char mode[11] = "----------", when[32], text[NAME_MAX + 128];
	struct tm tm = { 0 };

	mode[0] = kinds[(st->st_mode >> 12) & 15];
	for (int i = 0; i < 9; i++)
		if (st->st_mode & (0400u >> i))
			mode[1 + i] = "rwx"[i % 3];
	(void)gmtime_r(&st->st_mtime, &tm);
	(void)strftime(when, sizeof when, "%b %e %H:%M %Y", &tm);
	snprintf(text, sizeof text, "%s %4u %-8u %-8u %10llu %s %s", mode, (unsigned)st->st_nlink, (unsigned)st->st_uid, (unsigned)st->st_gid,
		 (unsigned long long)st->st_size, when, name);
	put_text(text);
}

static void do_readdir(uint32_t id, struct request *r)
{
	struct handle *h = get_handle(r);
	struct dirent *d = NULL;
	uint32_t n = 0;

	if (!h || !h->dir) {
		say(id, -EBADF);
		return;
	}
	begin(T_NAME, id);
	size_t at = out.len;
	put_u32(0);
	while (n < NAMES_AT_ONCE && (d = readdir(h->dir))) {
		struct stat st = { 0 };
		(void)fstatat(dirfd(h->dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW);
		put_text(d->d_name);
		put_long_name(d->d_name, &st);
		put_attrs(&st);
		n++;
	}
	if (n == 0) {
		say_status(id, S_EOF, "End of folder");
		return;
	}
	for (int i = 0; i < 4; i++)
		out.data[at + (size_t)i] = (char)(n >> (24 - 8 * i));
}

static void say_name(uint32_t id, const char *name)
{
	begin(T_NAME, id);
	put_u32(1);
	put_text(name);
	put_text(name);
	put_u32(0); /* no attributes */
}

/* As far as the path exists it is resolved; a last part that does not is what a client is about to make. */
static void do_realpath(uint32_t id, struct request *r)
{
	char path[PATH_MAX], real[PATH_MAX], whole[2 * PATH_MAX];

	get_path(r, path);
	if (realpath(path, real)) {
		say_name(id, real);
		return;
	}
	char *slash = strrchr(path, '/');
	const char *last = slash ? slash + 1 : path;
	const char *parent = !slash ? "." : slash == path ? "/" : path;
	if (errno != ENOENT || !*last) {
		say(id, -errno);
		return;
	}
	if (slash && slash != path)
		*slash = '\0';
	if (!realpath(parent, real)) {
		say(id, -errno);
		return;
	}
	snprintf(whole, sizeof whole, "%s/%s", streq(real, "/") ? "" : real, last);
	say_name(id, whole);
}

static void do_readlink(uint32_t id, struct request *r)
{
	char path[PATH_MAX], target[PATH_MAX];

	get_path(r, path);
	ssize_t n = readlink(path, target, sizeof target - 1);
	if (n < 0) {
		say(id, -errno);
		return;
	}
	target[n] = '\0';
	say_name(id, target);
}

static void do_mkdir(uint32_t id, struct request *r)
{
	char path[PATH_MAX];
	struct attrs a;

	get_path(r, path);
	get_attrs(r, &a);
	say(id, r->bad ? -EINVAL : check(mkdir(path, a.flags & A_PERMISSIONS ? a.mode & 07777 : 0777)));
}

static void do_one_path(uint32_t id, struct request *r, int (*op)(const char *path))
{
	char path[PATH_MAX];

	get_path(r, path);
	say(id, r->bad ? -EINVAL : check(op(path)));
}

/* The protocol's own rename never replaces anything. */
static void do_rename(uint32_t id, struct request *r, bool replace)
{
	char from[PATH_MAX], to[PATH_MAX];

	get_path(r, from);
	get_path(r, to);
	say(id, r->bad ? -EINVAL : replace ? check(rename(from, to)) : rename_anew(from, to));
}

/* Clients give the target first, as OpenSSH's does, whatever the draft says. */
static void do_link(uint32_t id, struct request *r, int (*op)(const char *target, const char *path))
{
	char target[PATH_MAX], path[PATH_MAX];

	get_path(r, target);
	get_path(r, path);
	say(id, r->bad ? -EINVAL : check(op(target, path)));
}

static void do_statvfs(uint32_t id, struct request *r)
{
	char path[PATH_MAX];
	struct statvfs v;

	get_path(r, path);
	if (statvfs(path, &v) < 0) {
		say(id, -errno);
		return;
	}
	const uint64_t values[] = { v.f_bsize, v.f_frsize, v.f_blocks, v.f_bfree, v.f_bavail, v.f_files, v.f_ffree, v.f_favail, v.f_fsid,
				    (v.f_flag & ST_RDONLY ? 1u : 0u) | (v.f_flag & ST_NOSUID ? 2u : 0u), v.f_namemax };
	begin(T_EXTENDED_REPLY, id);
	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		put_u64(values[i]);
}

static void do_extended(uint32_t id, struct request *r)
{
	struct str name = get_bytes(r);
	struct handle *h;

	if (str_eqz(name, "posix-rename@openssh.com")) {
		do_rename(id, r, true);
	} else if (str_eqz(name, "hardlink@openssh.com")) {
		do_link(id, r, link);
	} else if (str_eqz(name, "statvfs@openssh.com")) {
		do_statvfs(id, r);
	} else if (str_eqz(name, "fsync@openssh.com")) {
		h = get_handle(r);
		say(id, h && h->fd >= 0 ? check(fsync(h->fd)) : -EBADF);
	} else {
		say_status(id, S_OP_UNSUPPORTED, "Not supported");
	}
}

static void greet(void)
{
	static const char *const extensions[][2] = {
		{ "posix-rename@openssh.com", "1" }, { "hardlink@openssh.com", "1" }, { "statvfs@openssh.com", "2" }, { "fsync@openssh.com", "1" }
	};

	buf_reset(&out);
	put_u32(0);
	(void)buf_addc(&out, T_VERSION);
	put_u32(VERSION);
	for (size_t i = 0; i < ARRAY_LEN(extensions); i++) {
		put_text(extensions[i][0]);
		put_text(extensions[i][1]);
	}
}

static void answer(unsigned type, struct request *r)
{
	if (type == T_INIT) {
		greet();
		return;
	}
	uint32_t id = get_u32(r);
	switch (type) {
	case T_OPEN: do_open(id, r); break;
	case T_CLOSE: do_close(id, r); break;
	case T_READ: do_read(id, r); break;
	case T_WRITE: do_write(id, r); break;
	case T_LSTAT: do_stat(id, r, false); break;
	case T_STAT: do_stat(id, r, true); break;
	case T_FSTAT: do_fstat(id, r); break;
	case T_SETSTAT: do_setstat(id, r); break;
	case T_FSETSTAT: do_fsetstat(id, r); break;
	case T_OPENDIR: do_opendir(id, r); break;
	case T_READDIR: do_readdir(id, r); break;
	case T_REMOVE: do_one_path(id, r, unlink); break;
	case T_MKDIR: do_mkdir(id, r); break;
	case T_RMDIR: do_one_path(id, r, rmdir); break;
	case T_REALPATH: do_realpath(id, r); break;
	case T_RENAME: do_rename(id, r, false); break;
	case T_READLINK: do_readlink(id, r); break;
	case T_SYMLINK: do_link(id, r, symlink); break;
	case T_EXTENDED: do_extended(id, r); break;
	default: say_status(id, S_OP_UNSUPPORTED, "Not supported"); break;
	}
	if (r->bad)
		say_status(id, S_BAD_MESSAGE, "Bad message");
}

/* 1, 0 at the end of input, or -1. */
static int read_whole(void *to, size_t n)
{
	for (size_t have = 0; have < n;) {
		ssize_t r = read(STDIN_FILENO, (char *)to + have, n - have);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r == 0 && have == 0 ? 0 : -1;
		have += (size_t)r;
	}
	return 1;
}

int sftp_main(void)
{
	static unsigned char packet[PACKET_MAX];
	unsigned char head[4];
	int rc;

	buf_init(&out, 2 * PACKET_MAX);
	while ((rc = read_whole(head, sizeof head)) > 0) {
		uint32_t n = (uint32_t)head[0] << 24 | (uint32_t)head[1] << 16 | (uint32_t)head[2] << 8 | head[3];
		if (n < 1 || n > sizeof packet || read_whole(packet, n) <= 0)
			return 1;
		struct request r = { packet + 1, n - 1, false };
		answer(packet[0], &r);
		if (!send_packet())
			return 1;
	}
	return rc < 0 ? 1 : 0;
}
