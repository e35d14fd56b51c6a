#include "wire/fuse.h"

#include <endian.h>
#include <errno.h>

static uint16_t get16(const char *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof v);
	return le16toh(v);
}

static uint32_t get32(const char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return le32toh(v);
}

static uint64_t get64(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return le64toh(v);
}

/* --- the line --- */

void line_head_put(char ret[static LINE_HEAD], uint8_t kind, uint8_t volume, uint32_t length)
{
	uint32_t n = htole32(length);

	memcpy(ret, &n, sizeof n);
	ret[4] = (char)kind;
	ret[5] = (char)volume;
	ret[6] = ret[7] = 0;
}

ssize_t line_frame_next(struct str bytes, struct line_frame *ret)
{
	if (bytes.n < LINE_HEAD)
		return 0;
	uint32_t length = get32(bytes.p);
	uint8_t kind = (uint8_t)bytes.p[4];
	if (length > FUSE_MESSAGE_MAX || kind >= LINE_KINDS || get16(bytes.p + 6) || (kind == LINE_FORGET && length))
		return -EPROTO;
	if (bytes.n - LINE_HEAD < length)
		return 0;
	*ret = (struct line_frame){ kind, (uint8_t)bytes.p[5], { bytes.p + LINE_HEAD, length } };
	return LINE_HEAD + (ssize_t)length;
}

size_t line_noise(struct str bytes, const char nonce[static LINE_NONCE], bool *ret_found)
{
	const char *at = bytes.n >= LINE_NONCE ? memmem(bytes.p, bytes.n, nonce, LINE_NONCE) : NULL;

	*ret_found = at != NULL;
	if (at)
		return (size_t)(at - bytes.p) + LINE_NONCE;
	return bytes.n < LINE_NONCE ? 0 : bytes.n - LINE_NONCE + 1;
}

/* --- requests --- */

/* A terminated string at the front of *rest, which it is taken from. 0, or the errno that answers it. */
static int take_text(struct str *rest, size_t max, struct str *ret)
{
	const char *end = rest->n ? memchr(rest->p, '\0', rest->n) : NULL;

	if (!end || end == rest->p)
		return -EINVAL;
	if ((size_t)(end - rest->p) > max)
		return -ENAMETOOLONG;
	*ret = (struct str){ rest->p, (size_t)(end - rest->p) };
	rest->p += ret->n + 1;
	rest->n -= ret->n + 1;
	return 0;
}

/* Of something in a folder: nothing that could lead out of that. */
static int take_name(struct str *rest, struct str *ret)
{
	int r = take_text(rest, FUSE_NAME_MAX, ret);

	return r == 0 && (memchr(ret->p, '/', ret->n) || str_eqz(*ret, ".") || str_eqz(*ret, "..")) ? -EINVAL : r;
}

static int names(struct str rest, struct str *one, struct str *two)
{
	int r = take_name(&rest, one);

	if (r == 0 && two)
		r = take_name(&rest, two);
	return r == 0 && rest.n ? -EINVAL : r;
}

static int symlink_names(struct str rest, struct fuse_request *r)
{
	int rc = take_name(&rest, &r->name);

	if (rc == 0)
		rc = take_text(&rest, FUSE_TARGET_MAX, &r->name2);
	return rc == 0 && rest.n ? -EINVAL : rc;
}

static struct fuse_time time_at(const char *s, const char *ns)
{
	return (struct fuse_time){ get64(s), get32(ns) };
}

static int get_setattr(const char *p, struct fuse_request *r)
{
	r->mask = get32(p);
	r->handle = get64(p + 8);
	r->size = get64(p + 16);
	r->atime = time_at(p + 32, p + 56);
	r->mtime = time_at(p + 40, p + 60);
	r->mode = get32(p + 68);
	r->new_uid = get32(p + 76);
	r->new_gid = get32(p + 80);
	return r->atime.ns > 999999999 || r->mtime.ns > 999999999 || r->size > INT64_MAX ? -EINVAL : 0;
}

static int get_io(const char *p, struct str rest, struct fuse_request *r)
{
	r->handle = get64(p);
	r->offset = get64(p + 8);
	r->size = get32(p + 16);
	if (r->op == FUSE_OP_WRITE) {
		if (rest.n != r->size)
			return -EPROTO;
		r->data = rest;
	}
	/* of a folder it is a number of the file system's own */
	return r->size > FUSE_DATA_MAX || r->offset > (uint64_t)(r->op == FUSE_OP_READDIR ? INT64_MAX : INT64_MAX - FUSE_DATA_MAX) ? -EINVAL : 0;
}

static int get_lock(const char *p, struct fuse_request *r)
{
	r->handle = get64(p);
	r->owner = get64(p + 8);
	r->lock_first = get64(p + 16);
	r->lock_last = get64(p + 24);
	r->lock_type = get32(p + 32);
	r->flags = get32(p + 40);
	return r->lock_type > 2 || r->lock_first > r->lock_last || r->lock_last > INT64_MAX ? -EINVAL : 0;
}

static int get_forgets(const char *p, struct str rest, struct fuse_request *r)
{
	if (rest.n % 16 || get32(p) != rest.n / 16)
		return -EPROTO;
	r->data = rest;
	return 0;
}

/* Behind the head: so many bytes of fixed size, at p, and what follows them. */
static const uint8_t fixed_size[FUSE_OP_END] = {
	[FUSE_OP_FORGET] = 8,  [FUSE_OP_GETATTR] = 16,	 [FUSE_OP_SETATTR] = 88,   [FUSE_OP_MKNOD] = 16,     [FUSE_OP_MKDIR] = 8,
	[FUSE_OP_RENAME] = 8,  [FUSE_OP_LINK] = 8,	 [FUSE_OP_OPEN] = 8,	   [FUSE_OP_READ] = 40,	     [FUSE_OP_WRITE] = 40,
	[FUSE_OP_RELEASE] = 24, [FUSE_OP_FSYNC] = 16,	 [FUSE_OP_FLUSH] = 24,	   [FUSE_OP_INIT] = 16,	     [FUSE_OP_OPENDIR] = 8,
	[FUSE_OP_READDIR] = 40, [FUSE_OP_RELEASEDIR] = 24, [FUSE_OP_FSYNCDIR] = 16, [FUSE_OP_GETLK] = 48,     [FUSE_OP_SETLK] = 48,
	[FUSE_OP_SETLKW] = 48, [FUSE_OP_CREATE] = 16,	 [FUSE_OP_INTERRUPT] = 8,  [FUSE_OP_BATCH_FORGET] = 8, [FUSE_OP_FALLOCATE] = 32,
	[FUSE_OP_RENAME2] = 16, [FUSE_OP_LSEEK] = 24,
};

static int get_arguments(const char *p, struct str rest, struct fuse_request *r)
{
	switch ((enum fuse_op)r->op) {
	case FUSE_OP_LOOKUP:
	case FUSE_OP_UNLINK:
	case FUSE_OP_RMDIR:
		return names(rest, &r->name, NULL);
	case FUSE_OP_SYMLINK:
		return symlink_names(rest, r);
	case FUSE_OP_FORGET:
	case FUSE_OP_INTERRUPT:
		r->other = get64(p);
		return 0;
	case FUSE_OP_BATCH_FORGET:
		return get_forgets(p, rest, r);
	case FUSE_OP_GETATTR:
		r->flags = get32(p);
		r->handle = get64(p + 8);
		return 0;
	case FUSE_OP_SETATTR:
		return get_setattr(p, r);
	case FUSE_OP_MKNOD:
	case FUSE_OP_MKDIR:
		r->mode = get32(p);
		return names(rest, &r->name, NULL);
	case FUSE_OP_RENAME2:
		r->flags = get32(p + 8);
		r->other = get64(p);
		return names(rest, &r->name, &r->name2);
	case FUSE_OP_RENAME:
		r->other = get64(p);
		return names(rest, &r->name, &r->name2);
	case FUSE_OP_LINK:
		r->other = get64(p);
		return names(rest, &r->name, NULL);
	case FUSE_OP_OPEN:
	case FUSE_OP_OPENDIR:
		r->flags = get32(p);
		return 0;
	case FUSE_OP_CREATE:
		r->flags = get32(p);
		r->mode = get32(p + 4);
		return names(rest, &r->name, NULL);
	case FUSE_OP_READ:
	case FUSE_OP_WRITE:
	case FUSE_OP_READDIR:
		return get_io(p, rest, r);
	case FUSE_OP_RELEASE:
	case FUSE_OP_RELEASEDIR:
	case FUSE_OP_FLUSH:
		r->handle = get64(p);
		r->owner = get64(p + 16);
		return 0;
	case FUSE_OP_FSYNC:
	case FUSE_OP_FSYNCDIR:
		r->handle = get64(p);
		r->flags = get32(p + 8);
		return 0;
	case FUSE_OP_INIT:
		r->other = get32(p);
		r->size = get32(p + 8); /* read ahead */
		r->flags = get32(p + 12);
		return 0;
	case FUSE_OP_GETLK:
	case FUSE_OP_SETLK:
	case FUSE_OP_SETLKW:
		return get_lock(p, r);
	case FUSE_OP_FALLOCATE:
		r->handle = get64(p);
		r->offset = get64(p + 8);
		r->size = get64(p + 16);
		r->mode = get32(p + 24);
		return r->offset > INT64_MAX || r->size > INT64_MAX ? -EINVAL : 0;
	case FUSE_OP_LSEEK:
		r->handle = get64(p);
		r->offset = get64(p + 8);
		r->flags = get32(p + 16);
		return r->offset > INT64_MAX ? -EINVAL : 0;
	case FUSE_OP_READLINK:
	case FUSE_OP_STATFS:
	case FUSE_OP_DESTROY:
	case FUSE_OP_END:
		return 0;
	}
	return 0; /* one that we don't know */
}

int fuse_request_get(struct str message, struct fuse_request *ret)
{
	if (message.n < FUSE_IN_HEAD || message.n > FUSE_MESSAGE_MAX || get32(message.p) != message.n)
		return -EPROTO;
	*ret = (struct fuse_request){ .op = get32(message.p + 4), .unique = get64(message.p + 8), .node = get64(message.p + 16),
				      .uid = get32(message.p + 24), .gid = get32(message.p + 28) };
	struct str rest = { message.p + FUSE_IN_HEAD, message.n - FUSE_IN_HEAD };
	const size_t fixed = ret->op < FUSE_OP_END ? fixed_size[ret->op] : 0;
	if (rest.n < fixed)
		return -EPROTO;
	const char *p = rest.p;
	rest.p += fixed;
	rest.n -= fixed;
	return get_arguments(p, rest, ret);
}

bool fuse_op_answered(uint32_t op)
{
	return op != FUSE_OP_FORGET && op != FUSE_OP_BATCH_FORGET && op != FUSE_OP_INTERRUPT;
}

size_t fuse_forgets(const struct fuse_request *r)
{
	return r->data.n / 16;
}

void fuse_forget_at(const struct fuse_request *r, size_t i, uint64_t *ret_node, uint64_t *ret_lookups)
{
	*ret_node = get64(r->data.p + 16 * i);
	*ret_lookups = get64(r->data.p + 16 * i + 8);
}

/* --- answers --- */

/* A row of bytes of fixed size that is filled from the front. */
struct row {
	char bytes[FUSE_OUT_HEAD + 160];
	size_t n;
};

static void put16(struct row *r, uint32_t v)
{
	uint16_t le = htole16((uint16_t)v);

	memcpy(r->bytes + r->n, &le, sizeof le);
	r->n += sizeof le;
}

static void put32(struct row *r, uint32_t v)
{
	uint32_t le = htole32(v);

	memcpy(r->bytes + r->n, &le, sizeof le);
	r->n += sizeof le;
}

static void put64(struct row *r, uint64_t v)
{
	uint64_t le = htole64(v);

	memcpy(r->bytes + r->n, &le, sizeof le);
	r->n += sizeof le;
}

static void put_zeros(struct row *r, size_t n)
{
	memset(r->bytes + r->n, 0, n);
	r->n += n;
}

static void send_row(struct buf *out, uint8_t volume, uint64_t unique, int errnum, const struct row *body, struct str more)
{
	const uint32_t length = (uint32_t)(FUSE_OUT_HEAD + body->n + more.n);
	struct row head = { .n = LINE_HEAD };

	line_head_put(head.bytes, LINE_MESSAGE, volume, length);
	put32(&head, length);
	put32(&head, (uint32_t)-errnum);
	put64(&head, unique);
	(void)buf_add(out, head.bytes, head.n);
	(void)buf_add(out, body->bytes, body->n);
	if (more.n)
		(void)buf_add(out, more.p, more.n);
}

static void send_body(struct buf *out, uint8_t volume, uint64_t unique, const struct row *body)
{
	send_row(out, volume, unique, 0, body, (struct str){ NULL, 0 });
}

void fuse_put_status(struct buf *out, uint8_t volume, uint64_t unique, int errnum)
{
	send_row(out, volume, unique, errnum, &(struct row){ .n = 0 }, (struct str){ NULL, 0 });
}

void fuse_put_bytes(struct buf *out, uint8_t volume, uint64_t unique, struct str bytes)
{
	send_row(out, volume, unique, 0, &(struct row){ .n = 0 }, bytes);
}

/* What we want of what the kernel offers: reads in parallel, both kinds of lock, truncation as part of an open, writes of more than a page,
 * what has changed elsewhere thrown away, lookups in one folder in parallel, long messages. */
enum {
	WANTED = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 10 | 1 << 12 | 1 << 18 | 1 << 22,
	MINOR = 31,
	BACKGROUND = 16,
};

void fuse_put_init(struct buf *out, uint8_t volume, const struct fuse_request *r)
{
	struct row b = { .n = 0 };

	if (r->other != 7) {
		fuse_put_status(out, volume, r->unique, EPROTO);
		return;
	}
	put32(&b, 7);
	put32(&b, MINOR);
	put32(&b, MIN((uint32_t)r->size, (uint32_t)FUSE_DATA_MAX));
	put32(&b, r->flags & (uint32_t)WANTED);
	put16(&b, BACKGROUND);
	put16(&b, BACKGROUND * 3 / 4);
	put32(&b, FUSE_DATA_MAX);
	put32(&b, 1); /* nanosecond */
	put16(&b, FUSE_DATA_MAX / 4096);
	put16(&b, 0);
	put_zeros(&b, 32);
	send_body(out, volume, r->unique, &b);
}

static void put_attr(struct row *b, const struct fuse_attr *a)
{
	put64(b, a->ino);
	put64(b, a->size);
	put64(b, a->blocks);
	put64(b, a->atime.s);
	put64(b, a->mtime.s);
	put64(b, a->ctime.s);
	put32(b, a->atime.ns);
	put32(b, a->mtime.ns);
	put32(b, a->ctime.ns);
	put32(b, a->mode);
	put32(b, a->nlink);
	put32(b, a->uid);
	put32(b, a->gid);
	put32(b, a->rdev);
	put32(b, a->blksize);
	put32(b, 0);
}

static void put_entry(struct row *b, uint64_t node, uint64_t generation, const struct fuse_attr *a)
{
	put64(b, node);
	put64(b, generation);
	put_zeros(b, 24); /* for how long name and attributes hold: not at all */
	put_attr(b, a);
}

void fuse_put_entry(struct buf *out, uint8_t volume, uint64_t unique, uint64_t node, uint64_t generation, const struct fuse_attr *a)
{
	struct row b = { .n = 0 };

	put_entry(&b, node, generation, a);
	send_body(out, volume, unique, &b);
}

void fuse_put_attr(struct buf *out, uint8_t volume, uint64_t unique, const struct fuse_attr *a)
{
	struct row b = { .n = 0 };

	put_zeros(&b, 16);
	put_attr(&b, a);
	send_body(out, volume, unique, &b);
}

static void put_opened(struct row *b, uint64_t handle)
{
	put64(b, handle);
	put64(b, 0);
}

void fuse_put_opened(struct buf *out, uint8_t volume, uint64_t unique, uint64_t handle)
{
	struct row b = { .n = 0 };

	put_opened(&b, handle);
	send_body(out, volume, unique, &b);
}

void fuse_put_created(struct buf *out, uint8_t volume, uint64_t unique, uint64_t node, uint64_t generation, const struct fuse_attr *a, uint64_t handle)
{
	struct row b = { .n = 0 };

	put_entry(&b, node, generation, a);
	put_opened(&b, handle);
	send_body(out, volume, unique, &b);
}

void fuse_put_written(struct buf *out, uint8_t volume, uint64_t unique, uint32_t n)
{
	struct row b = { .n = 0 };

	put32(&b, n);
	put32(&b, 0);
	send_body(out, volume, unique, &b);
}

void fuse_put_statfs(struct buf *out, uint8_t volume, uint64_t unique, const struct fuse_fs *s)
{
	struct row b = { .n = 0 };

	put64(&b, s->blocks);
	put64(&b, s->bfree);
	put64(&b, s->bavail);
	put64(&b, s->files);
	put64(&b, s->ffree);
	put32(&b, s->bsize);
	put32(&b, s->namelen);
	put32(&b, s->frsize);
	put_zeros(&b, 28);
	send_body(out, volume, unique, &b);
}

void fuse_put_lock(struct buf *out, uint8_t volume, uint64_t unique, uint32_t type, uint64_t first, uint64_t last)
{
	struct row b = { .n = 0 };

	put64(&b, first);
	put64(&b, last);
	put32(&b, type);
	put32(&b, 0);
	send_body(out, volume, unique, &b);
}

void fuse_put_offset(struct buf *out, uint8_t volume, uint64_t unique, uint64_t offset)
{
	struct row b = { .n = 0 };

	put64(&b, offset);
	send_body(out, volume, unique, &b);
}

bool fuse_dirent_put(struct buf *to, size_t max, uint64_t ino, uint64_t next, uint8_t type, struct str name)
{
	static const char zeros[8];
	struct row b = { .n = 0 };
	const size_t padding = (8 - name.n % 8) % 8;

	put64(&b, ino);
	put64(&b, next);
	put32(&b, (uint32_t)name.n);
	put32(&b, type);
	if (to->len + b.n + name.n + padding > max)
		return false;
	(void)buf_add(to, b.bytes, b.n);
	(void)buf_add(to, name.p, name.n);
	(void)buf_add(to, zeros, padding);
	return true;
}
