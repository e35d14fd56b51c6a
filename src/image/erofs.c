#include "image/erofs.h"

#include "base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Offsets, little endian. */
enum {
	SUPER = 1024,
	SUPER_MAGIC = 0,
	SUPER_CHECKSUM = 4,
	SUPER_COMPAT = 8,
	SUPER_BLOCK_BITS = 12,
	SUPER_ROOT = 14,
	SUPER_META = 40,
	SUPER_SIZE = 128,
	COMPAT_CHECKSUM = 1,

	SLOT = 32, /* inodes are numbered by slots */
	INODE_FORMAT = 0,
	INODE_XATTRS = 2,
	INODE_MODE = 4,
	INODE_SIZE = 8,
	INODE_BLOCK = 16,
	INODE_BYTES = 64,
	FORMAT_LONG = 1,
	LAYOUT_PLAIN = 0,
	LAYOUT_INLINE = 2,

	ENTRY = 12,
	ENTRY_NAME = 8,
	BLOCK_MAX = 65536,
};
#define MAGIC 0xe0f5e1e2u

struct erofs {
	int fd;
	uint32_t block;
	uint64_t meta, root;
	bool checksum;
};

struct inode {
	uint64_t at; /* in the file */
	unsigned mode, layout, head;
	uint64_t size;
	uint32_t first_block;
};

static unsigned le16(const uint8_t *p)
{
	return (unsigned)p[0] | (unsigned)p[1] << 8;
}

static uint32_t le32(const uint8_t *p)
{
	return le16(p) | (uint32_t)le16(p + 2) << 16;
}

static uint64_t le64(const uint8_t *p)
{
	return le32(p) | (uint64_t)le32(p + 4) << 32;
}

static int read_at(const struct erofs *f, void *to, size_t n, uint64_t at)
{
	ssize_t got = at > INT64_MAX ? 0 : pread(f->fd, to, n, (off_t)at);

	return got < 0 ? -errno : got == (ssize_t)n ? 0 : -EIO;
}

static int open_super(int fd, struct erofs *ret)
{
	uint8_t s[SUPER_SIZE];
	struct erofs f = { .fd = fd };
	int r = read_at(&f, s, sizeof s, SUPER);

	if (r < 0)
		return r;
	if (le32(s + SUPER_MAGIC) != MAGIC || s[SUPER_BLOCK_BITS] < 9 || s[SUPER_BLOCK_BITS] > 16)
		return -EINVAL;
	f.block = 1u << s[SUPER_BLOCK_BITS];
	f.meta = (uint64_t)le32(s + SUPER_META) * f.block;
	f.root = le16(s + SUPER_ROOT);
	f.checksum = le32(s + SUPER_COMPAT) & COMPAT_CHECKSUM;
	*ret = f;
	return 0;
}

static int read_inode(const struct erofs *f, uint64_t number, struct inode *ret)
{
	uint8_t b[INODE_BYTES];
	uint64_t at = f->meta + number * SLOT;
	int r = read_at(f, b, sizeof b, at);

	if (r < 0)
		return r;
	bool is_long = le16(b + INODE_FORMAT) & FORMAT_LONG;
	*ret = (struct inode){
		.at = at,
		.mode = le16(b + INODE_MODE),
		.layout = le16(b + INODE_FORMAT) >> 1 & 7,
		.head = is_long ? 64 : 32,
		.size = is_long ? le64(b + INODE_SIZE) : le32(b + INODE_SIZE),
		.first_block = le32(b + INODE_BLOCK),
	};
	return le16(b + INODE_XATTRS) == 0 && (ret->layout == LAYOUT_PLAIN || ret->layout == LAYOUT_INLINE) ? 0 : -EINVAL;
}

/* Looks for the name in one block of a folder: its entries first, then their names, each up to the next one's. 1: found. */
static int find_in_block(const uint8_t *b, size_t n, struct str name, uint64_t *ret)
{
	size_t entries = n < ENTRY ? 0 : le16(b + ENTRY_NAME) / ENTRY;

	if (entries == 0 || entries * ENTRY > n)
		return -EINVAL;
	for (size_t i = 0; i < entries; i++) {
		const uint8_t *entry = b + i * ENTRY;
		size_t from = le16(entry + ENTRY_NAME), to = i + 1 < entries ? le16(entry + ENTRY + ENTRY_NAME) : n;
		if (from > to || to > n)
			return -EINVAL;
		size_t len = strnlen((const char *)b + from, to - from); /* the last one may end with zeros */
		if (len == name.n && memcmp(b + from, name.p, len) == 0) {
			*ret = le64(entry);
			return 1;
		}
	}
	return 0;
}

static int find_in_folder(const struct erofs *f, const struct inode *folder, struct str name, uint64_t *ret)
{
	static uint8_t block[BLOCK_MAX];

	if (!S_ISDIR(folder->mode))
		return -ENOTDIR;
	for (uint64_t at = 0; at < folder->size; at += f->block) {
		size_t n = (size_t)MIN(folder->size - at, (uint64_t)f->block);
		bool tail = folder->layout == LAYOUT_INLINE && folder->size - at < f->block;
		uint64_t where = tail ? folder->at + folder->head : (uint64_t)folder->first_block * f->block + at;
		int r = read_at(f, block, n, where);
		if (r == 0)
			r = find_in_block(block, n, name, ret);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	return -ENOENT;
}

static int find(const struct erofs *f, const char *path, struct inode *ret)
{
	uint64_t number = f->root;
	int r = read_inode(f, number, ret);

	while (r == 0 && *(path += strspn(path, "/"))) {
		struct str name = { path, strcspn(path, "/") };
		path += name.n;
		r = find_in_folder(f, ret, name, &number);
		if (r == 0)
			r = read_inode(f, number, ret);
	}
	return r;
}

/* The kernel's: reflected CRC-32C, begun with ones, not inverted at its end. */
static uint32_t crc32c(const uint8_t *p, size_t n)
{
	uint32_t crc = ~0u;

	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return crc;
}

/* It is over the first block, in which there may be inodes. */
static int renew_checksum(const struct erofs *f)
{
	static uint8_t block[BLOCK_MAX];
	uint8_t *s = block + SUPER;

	if (!f->checksum || f->block <= SUPER)
		return 0;
	int r = read_at(f, block, f->block, 0);
	if (r < 0)
		return r;
	memset(s + SUPER_CHECKSUM, 0, 4);
	uint32_t crc = crc32c(s, f->block - SUPER);
	for (int i = 0; i < 4; i++)
		s[SUPER_CHECKSUM + i] = (uint8_t)(crc >> (8 * i));
	return pwrite(f->fd, s + SUPER_CHECKSUM, 4, SUPER + SUPER_CHECKSUM) == 4 ? 0 : -EIO;
}

/* "4755 /path": the inode, and the mode that it is to have. */
static int look_up(const struct erofs *f, const char *entry, struct inode *ret, unsigned *ret_mode)
{
	char *path;
	unsigned long mode = strtoul(entry, &path, 8);

	if (*path != ' ' || mode > 07777)
		return -EINVAL;
	int r = find(f, path + 1, ret);
	if (r == 0 && !S_ISREG(ret->mode))
		r = -EINVAL;
	if (r == 0)
		*ret_mode = ret->mode | (unsigned)(mode & (S_ISUID | S_ISGID));
	return r;
}

static int fail(const char *entry, int r, struct err *e)
{
	return err_sys(e, ERR_UNSUPPORTED, -r, "put set-id bits into the image's file system (%.200s)", entry);
}

int erofs_put_modes(int fd, char *const *privileged, struct err *e)
{
	struct erofs f;
	struct inode inode;
	unsigned mode;
	int r = open_super(fd, &f);

	if (r < 0)
		return fail("its head", r, e);
	for (; privileged && *privileged; privileged++) {
		r = look_up(&f, *privileged, &inode, &mode);
		uint8_t b[2] = { (uint8_t)mode, (uint8_t)(mode >> 8) };
		if (r == 0 && pwrite(fd, b, sizeof b, (off_t)(inode.at + INODE_MODE)) != sizeof b)
			r = -EIO;
		if (r < 0)
			return fail(*privileged, r, e);
	}
	r = renew_checksum(&f);
	return r < 0 ? fail("its checksum", r, e) : 0;
}

int erofs_has_modes(int fd, char *const *privileged, struct err *e)
{
	struct erofs f;
	struct inode inode;
	unsigned mode;
	int r = open_super(fd, &f);

	if (r < 0)
		return fail("its head", r, e);
	for (; privileged && *privileged; privileged++) {
		r = look_up(&f, *privileged, &inode, &mode);
		if (r < 0)
			return fail(*privileged, r, e);
		if (mode != inode.mode)
			return 0;
	}
	return 1;
}
