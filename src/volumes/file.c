/* What is open: bytes of files, entries of folders. */
#include "volumes/server_int.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/falloc.h, which is not in reach of musl's compiler */
enum { FALLOC_KEEP_SIZE = 1, FALLOC_PUNCH = 2, FALLOC_ZERO = 16 };

struct entry { /* the kernel's linux_dirent64 */
	uint64_t ino;
	int64_t next;
	unsigned short size;
	unsigned char type;
	char name[];
};

static int answer_done(struct server *s, const struct fuse_request *r, int rc)
{
	if (rc == 0)
		fuse_put_status(&s->out, s->volume, r->unique, 0);
	return rc;
}

static int do_open(struct server *s, const struct fuse_request *r, bool folder)
{
	const int kept = O_ACCMODE | O_APPEND | O_TRUNC | O_SYNC | O_DSYNC;
	uint64_t handle;
	uint32_t node;
	int rc = node_find(s, r->node, &node);

	if (rc == 0 && s->nodes[node].type != (folder ? S_IFDIR : S_IFREG))
		rc = folder ? -ENOTDIR : -EINVAL;
	if (rc < 0)
		return rc;
	int fd = node_open(s, node, folder ? O_RDONLY | O_DIRECTORY : (int)r->flags & kept);
	if (fd < 0)
		return fd;
	if ((rc = handle_add(s, fd, folder, &handle)) < 0)
		return rc;
	fuse_put_opened(&s->out, s->volume, r->unique, handle);
	return 0;
}

static int do_read(struct server *s, const struct fuse_request *r, const struct handle *h)
{
	static char bytes[FUSE_DATA_MAX];
	ssize_t n = pread(h->fd, bytes, r->size, (off_t)r->offset);

	if (n < 0)
		return -errno;
	fuse_put_bytes(&s->out, s->volume, r->unique, (struct str){ bytes, (size_t)n });
	return 0;
}

static int do_write(struct server *s, const struct fuse_request *r, const struct handle *h)
{
	ssize_t n = pwrite(h->fd, r->data.p, r->data.n, (off_t)r->offset);

	if (n < 0)
		return -errno;
	fuse_put_written(&s->out, s->volume, r->unique, (uint32_t)n);
	return 0;
}

static int do_readdir(struct server *s, const struct fuse_request *r, const struct handle *h)
{
	_Alignas(struct entry) static char raw[16384];
	auto_buf struct buf out;
	bool room = true;
	long n;

	buf_init(&out, FUSE_DATA_MAX);
	if (lseek(h->fd, (off_t)r->offset, SEEK_SET) < 0)
		return -errno;
	while (room && (n = syscall(SYS_getdents64, h->fd, raw, sizeof raw)) != 0) {
		if (n < 0 && !out.len)
			return -errno;
		for (long at = 0; room && at < n;) {
			const struct entry *e = (const void *)(raw + at);
			room = fuse_dirent_put(&out, r->size, e->ino, (uint64_t)e->next, e->type, str_of(e->name));
			at += e->size;
		}
		if (n < 0)
			break;
	}
	fuse_put_bytes(&s->out, s->volume, r->unique, buf_str(&out));
	return 0;
}

static int do_fallocate(struct server *s, const struct fuse_request *r, const struct handle *h)
{
	if (r->mode & ~(uint32_t)(FALLOC_KEEP_SIZE | FALLOC_PUNCH | FALLOC_ZERO))
		return -EOPNOTSUPP;
	return answer_done(s, r, fallocate(h->fd, (int)r->mode, (off_t)r->offset, (off_t)r->size) < 0 ? -errno : 0);
}

static int do_lseek(struct server *s, const struct fuse_request *r, const struct handle *h)
{
	if (r->flags != SEEK_DATA && r->flags != SEEK_HOLE)
		return -EINVAL;
	off_t at = lseek(h->fd, (off_t)r->offset, (int)r->flags);
	if (at < 0)
		return -errno;
	fuse_put_offset(&s->out, s->volume, r->unique, (uint64_t)at);
	return 0;
}

static int sync_one(const struct fuse_request *r, const struct handle *h)
{
	return (r->flags & FUSE_FSYNC_DATA ? fdatasync(h->fd) : fsync(h->fd)) < 0 ? -errno : 0;
}

static int do_flush(struct server *s, const struct fuse_request *r)
{
	uint32_t node;

	if (node_find(s, r->node, &node) == 0)
		lock_flush(s, node, r->owner);
	return answer_done(s, r, 0);
}

int file_do(struct server *s, const struct fuse_request *r)
{
	const bool folder = r->op == FUSE_OP_READDIR || r->op == FUSE_OP_RELEASEDIR || r->op == FUSE_OP_FSYNCDIR;
	struct handle *h;

	if (r->op == FUSE_OP_OPEN || r->op == FUSE_OP_OPENDIR)
		return do_open(s, r, r->op == FUSE_OP_OPENDIR);
	int rc = handle_find(s, r->handle, folder, &h);
	if (rc < 0)
		return rc;
	switch (r->op) {
	case FUSE_OP_READ:
		return do_read(s, r, h);
	case FUSE_OP_WRITE:
		return do_write(s, r, h);
	case FUSE_OP_READDIR:
		return do_readdir(s, r, h);
	case FUSE_OP_FLUSH:
		return do_flush(s, r);
	case FUSE_OP_FSYNC:
	case FUSE_OP_FSYNCDIR:
		return answer_done(s, r, sync_one(r, h));
	case FUSE_OP_FALLOCATE:
		return do_fallocate(s, r, h);
	case FUSE_OP_LSEEK:
		return do_lseek(s, r, h);
	default: /* RELEASE, RELEASEDIR: and whole-file locks go with it */
		handle_drop(s, h);
		return answer_done(s, r, 0);
	}
}
