/* Names and attributes. */
#include "volumes/server_int.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NOREPLACE = 1, EXCHANGE = 2 }; /* linux/fs.h, which is not in reach of musl's compiler */

static int check(long rc)
{
	return rc < 0 ? -errno : 0;
}

void fill_attr(const struct stat *st, struct fuse_attr *ret)
{
	*ret = (struct fuse_attr){
		.ino = st->st_ino, .size = (uint64_t)st->st_size, .blocks = (uint64_t)st->st_blocks,
		.atime = { (uint64_t)st->st_atim.tv_sec, (uint32_t)st->st_atim.tv_nsec },
		.mtime = { (uint64_t)st->st_mtim.tv_sec, (uint32_t)st->st_mtim.tv_nsec },
		.ctime = { (uint64_t)st->st_ctim.tv_sec, (uint32_t)st->st_ctim.tv_nsec },
		.mode = st->st_mode, .nlink = (uint32_t)st->st_nlink, .uid = st->st_uid, .gid = st->st_gid,
		.rdev = (uint32_t)st->st_rdev, .blksize = (uint32_t)st->st_blksize,
	};
}

/* The capabilities stay (NO_SETUID_FIXUP): whether it may is decided by the machine's kernel, which knows the groups. */
int as_owner(const struct server *s, const struct fuse_request *r)
{
	(void)setfsgid(r->gid);
	(void)setfsuid(r->uid);
	if ((gid_t)setfsgid((gid_t)-1) == r->gid && (uid_t)setfsuid((uid_t)-1) == r->uid)
		return 0;
	as_oneself(s);
	return -EOVERFLOW; /* no such user exists on the volume */
}

void as_oneself(const struct server *s)
{
	(void)setfsuid(s->uid);
	(void)setfsgid(s->gid);
}

static int look_up(struct server *s, int folder, const char *name, uint32_t *ret_node, struct stat *ret)
{
	int fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, ret) < 0) {
		int e = errno;
		(void)close(fd);
		return -e;
	}
	return node_add(s, fd, ret, ret_node);
}

static int answer_entry(struct server *s, const struct fuse_request *r, int folder)
{
	struct fuse_attr a;
	struct stat st;
	uint32_t node;
	int rc = look_up(s, folder, r->name.p, &node, &st);

	if (rc < 0)
		return rc;
	fill_attr(&st, &a);
	fuse_put_entry(&s->out, s->volume, r->unique, node_number(s, node), s->nodes[node].generation, &a);
	return 0;
}

static int answer_done(struct server *s, const struct fuse_request *r, int rc)
{
	if (rc == 0)
		fuse_put_status(&s->out, s->volume, r->unique, 0);
	return rc;
}

static int do_getattr(struct server *s, const struct fuse_request *r, uint32_t node)
{
	struct fuse_attr a;
	struct stat st;

	if (fstat(s->nodes[node].fd, &st) < 0)
		return -errno;
	fill_attr(&st, &a);
	fuse_put_attr(&s->out, s->volume, r->unique, &a);
	return 0;
}

static int set_size(struct server *s, const struct fuse_request *r, uint32_t node)
{
	struct handle *h;

	if (s->nodes[node].type != S_IFREG)
		return -EINVAL;
	if (r->mask & FUSE_SET_HANDLE) {
		int rc = handle_find(s, r->handle, false, &h);
		return rc < 0 ? rc : check(ftruncate(h->fd, (off_t)r->size));
	}
	auto_fd int fd = node_open(s, node, O_WRONLY);
	return fd < 0 ? fd : check(ftruncate(fd, (off_t)r->size));
}

static struct timespec time_for(const struct fuse_request *r, unsigned set, unsigned now, const struct fuse_time *t)
{
	if (r->mask & now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	if (!(r->mask & set))
		return (struct timespec){ .tv_nsec = UTIME_OMIT };
	return (struct timespec){ .tv_sec = (time_t)t->s, .tv_nsec = (long)t->ns };
}

/* The owner first: a change of that takes set-id bits away, which the kernel over there gives back by the mode if they are to stay. */
static int do_setattr(struct server *s, const struct fuse_request *r, uint32_t node)
{
	const int fd = s->nodes[node].fd;
	const struct timespec times[2] = { time_for(r, FUSE_SET_ATIME, FUSE_SET_ATIME_NOW, &r->atime),
					   time_for(r, FUSE_SET_MTIME, FUSE_SET_MTIME_NOW, &r->mtime) };
	char name[16];
	int rc = 0;

	proc_name(fd, name);
	if (r->mask & (FUSE_SET_UID | FUSE_SET_GID))
		rc = check(fchownat(fd, "", r->mask & FUSE_SET_UID ? r->new_uid : (uid_t)-1, r->mask & FUSE_SET_GID ? r->new_gid : (gid_t)-1, AT_EMPTY_PATH));
	if (rc == 0 && r->mask & FUSE_SET_MODE)
		rc = check(fchmodat(s->proc, name, r->mode & 07777, 0));
	if (rc == 0 && r->mask & FUSE_SET_SIZE)
		rc = set_size(s, r, node);
	if (rc == 0 && (times[0].tv_nsec != UTIME_OMIT || times[1].tv_nsec != UTIME_OMIT))
		rc = check(utimensat(s->proc, name, times, 0));
	return rc < 0 ? rc : do_getattr(s, r, node);
}

static int do_readlink(struct server *s, const struct fuse_request *r, uint32_t node)
{
	char target[FUSE_TARGET_MAX + 1];
	ssize_t n = readlinkat(s->nodes[node].fd, "", target, sizeof target);

	if (n < 0)
		return -errno;
	fuse_put_bytes(&s->out, s->volume, r->unique, (struct str){ target, (size_t)n });
	return 0;
}

static int make(const struct fuse_request *r, int folder)
{
	const mode_t type = r->mode & S_IFMT;

	if (r->op == FUSE_OP_MKDIR)
		return check(mkdirat(folder, r->name.p, r->mode & 07777));
	if (r->op == FUSE_OP_SYMLINK)
		return check(symlinkat(r->name2.p, folder, r->name.p));
	if (type != S_IFREG && type != S_IFIFO && type != S_IFSOCK)
		return -EPERM;
	return check(mknodat(folder, r->name.p, type | (r->mode & 07777), 0));
}

static int do_make(struct server *s, const struct fuse_request *r, uint32_t node)
{
	const int folder = s->nodes[node].fd;
	int rc = as_owner(s, r);

	if (rc < 0)
		return rc;
	rc = make(r, folder);
	as_oneself(s);
	return rc < 0 ? rc : answer_entry(s, r, folder);
}

/* Answers with the entry, and what it has made is open. One that somebody else has made meanwhile is for the machine's kernel to look at, which
 * knows who may open it: it asks again after ESTALE. */
static int do_create(struct server *s, const struct fuse_request *r, uint32_t node)
{
	const int kept = O_ACCMODE | O_APPEND | O_SYNC | O_DSYNC;
	struct fuse_attr a;
	struct stat st;
	char name[16];
	uint64_t handle;
	uint32_t made;
	int rc = as_owner(s, r);

	if (rc < 0)
		return rc;
	auto_fd int fd = openat(s->nodes[node].fd, r->name.p, ((int)r->flags & kept) | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, r->mode & 07777);
	rc = fd < 0 ? -errno : 0;
	as_oneself(s);
	if (rc < 0)
		return rc == -EEXIST && !(r->flags & O_EXCL) ? -ESTALE : rc;
	proc_name(fd, name);
	int path = openat(s->proc, name, O_PATH | O_CLOEXEC);
	if (path < 0 || fstat(path, &st) < 0) {
		rc = -errno;
		close_fd(path);
		return rc;
	}
	if ((rc = node_add(s, path, &st, &made)) < 0)
		return rc;
	if ((rc = handle_add(s, take_fd(&fd), false, &handle)) < 0) {
		node_forget(s, node_number(s, made), 1);
		return rc;
	}
	fill_attr(&st, &a);
	fuse_put_created(&s->out, s->volume, r->unique, node_number(s, made), s->nodes[made].generation, &a, handle);
	return 0;
}

static int do_link(struct server *s, const struct fuse_request *r, uint32_t folder)
{
	uint32_t what;
	char name[16];
	int rc = node_find(s, r->other, &what);

	if (rc < 0)
		return rc;
	proc_name(s->nodes[what].fd, name); /* what it leads to is that very inode, also if that is a symlink */
	rc = check(linkat(s->proc, name, s->nodes[folder].fd, r->name.p, AT_SYMLINK_FOLLOW));
	return rc < 0 ? rc : answer_entry(s, r, s->nodes[folder].fd);
}

static int do_rename(struct server *s, const struct fuse_request *r, uint32_t from)
{
	uint32_t to;
	int rc = r->flags & ~(uint32_t)(NOREPLACE | EXCHANGE) ? -EINVAL : node_find(s, r->other, &to);

	if (rc < 0)
		return rc;
	return answer_done(s, r, check(syscall(SYS_renameat2, s->nodes[from].fd, r->name.p, s->nodes[to].fd, r->name2.p, r->flags)));
}

static int do_statfs(struct server *s, const struct fuse_request *r)
{
	struct statfs f;

	if (fstatfs(s->nodes[s->roots[s->volume]].fd, &f) < 0)
		return -errno;
	const struct fuse_fs fs = { f.f_blocks, f.f_bfree, f.f_bavail, f.f_files, f.f_ffree, (uint32_t)f.f_bsize, (uint32_t)f.f_namelen, (uint32_t)f.f_frsize };
	fuse_put_statfs(&s->out, s->volume, r->unique, &fs);
	return 0;
}

int tree_do(struct server *s, const struct fuse_request *r)
{
	uint32_t node;
	int rc = node_find(s, r->node, &node);

	if (r->op == FUSE_OP_STATFS)
		return do_statfs(s, r);
	if (rc < 0)
		return rc;
	const int fd = s->nodes[node].fd;
	switch (r->op) {
	case FUSE_OP_LOOKUP:
		return answer_entry(s, r, fd);
	case FUSE_OP_GETATTR:
		return do_getattr(s, r, node);
	case FUSE_OP_SETATTR:
		return do_setattr(s, r, node);
	case FUSE_OP_READLINK:
		return do_readlink(s, r, node);
	case FUSE_OP_SYMLINK:
	case FUSE_OP_MKNOD:
	case FUSE_OP_MKDIR:
		return do_make(s, r, node);
	case FUSE_OP_CREATE:
		return do_create(s, r, node);
	case FUSE_OP_UNLINK:
	case FUSE_OP_RMDIR:
		return answer_done(s, r, check(unlinkat(fd, r->name.p, r->op == FUSE_OP_RMDIR ? AT_REMOVEDIR : 0)));
	case FUSE_OP_LINK:
		return do_link(s, r, node);
	default:
		return do_rename(s, r, node);
	}
}
