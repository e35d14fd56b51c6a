/* The kernel's file-system protocol (FUSE, linux/fuse.h, as of 7.31) for a server that shares folders with virtual machines, and the line
 * that carries it there. Pure: bytes in, a request out; an answer in, bytes out. Layouts are the kernel's, little endian; written out here,
 * since its headers are not in reach of musl's compiler.
 *
 * The line is a byte stream between the relay in the machine (guest/volumes.c) and the server (volumes/server.h). Each end begins with the
 * same 16 bytes, which are new for each start of a machine, and ignores whatever comes before them: what somebody else has left half said in
 * a restored machine. Then frames: {u32 length, u8 kind, u8 volume, u16 zero} and as many bytes. A wrong one ends the line. */
#ifndef CAISSON_WIRE_FUSE_H
#define CAISSON_WIRE_FUSE_H

#include "base/buf.h"

enum {
	LINE_HEAD = 8,
	LINE_NONCE = 16,
	LINE_MESSAGE = 0, /* of the file system `volume`, both ways */
	LINE_FORGET = 1,  /* to the relay: the server holds very many files; whatever the kernel needn't remember it should forget. Empty */
	LINE_KINDS,
	FUSE_DATA_MAX = 128 * 1024, /* of one read or write */
	FUSE_MESSAGE_MAX = FUSE_DATA_MAX + 8192,
	FUSE_IN_HEAD = 40,
	FUSE_OUT_HEAD = 16,
	FUSE_NAME_MAX = 255,
	FUSE_TARGET_MAX = 4095, /* of a symlink */
	FUSE_ROOT_ID = 1,
};

struct line_frame {
	uint8_t kind, volume;
	struct str payload;
};
void line_head_put(char ret[static LINE_HEAD], uint8_t kind, uint8_t volume, uint32_t length);
/* The first frame in `bytes`: its length with head; 0 = not all of it is there; -EPROTO. */
ssize_t line_frame_next(struct str bytes, struct line_frame *ret);
/* How many of `bytes` are behind the nonce, or in front of what may be its beginning. *ret_found: the rest is behind it. */
size_t line_noise(struct str bytes, const char nonce[static LINE_NONCE], bool *ret_found);

enum fuse_op { /* those that are answered; anything else is ENOSYS, after which most are not asked again */
	FUSE_OP_LOOKUP = 1,
	FUSE_OP_FORGET, /* no answer */
	FUSE_OP_GETATTR,
	FUSE_OP_SETATTR,
	FUSE_OP_READLINK,
	FUSE_OP_SYMLINK,
	FUSE_OP_MKNOD = 8,
	FUSE_OP_MKDIR,
	FUSE_OP_UNLINK,
	FUSE_OP_RMDIR,
	FUSE_OP_RENAME,
	FUSE_OP_LINK,
	FUSE_OP_OPEN,
	FUSE_OP_READ,
	FUSE_OP_WRITE,
	FUSE_OP_STATFS,
	FUSE_OP_RELEASE,
	FUSE_OP_FSYNC = 20,
	FUSE_OP_FLUSH = 25,
	FUSE_OP_INIT,
	FUSE_OP_OPENDIR,
	FUSE_OP_READDIR,
	FUSE_OP_RELEASEDIR,
	FUSE_OP_FSYNCDIR,
	FUSE_OP_GETLK,
	FUSE_OP_SETLK,
	FUSE_OP_SETLKW,
	FUSE_OP_CREATE = 35,
	FUSE_OP_INTERRUPT, /* no answer of its own */
	FUSE_OP_DESTROY = 38,
	FUSE_OP_BATCH_FORGET = 42, /* no answer */
	FUSE_OP_FALLOCATE,
	FUSE_OP_RENAME2 = 45,
	FUSE_OP_LSEEK,
	FUSE_OP_END,
};

enum { /* of SETATTR */
	FUSE_SET_MODE = 1,
	FUSE_SET_UID = 2,
	FUSE_SET_GID = 4,
	FUSE_SET_SIZE = 8,
	FUSE_SET_ATIME = 16,
	FUSE_SET_MTIME = 32,
	FUSE_SET_HANDLE = 64,
	FUSE_SET_ATIME_NOW = 128,
	FUSE_SET_MTIME_NOW = 256,
};
enum { FUSE_GETATTR_HANDLE = 1, FUSE_FSYNC_DATA = 1, FUSE_LOCK_WHOLE = 1 };

struct fuse_time {
	uint64_t s;
	uint32_t ns;
};

struct fuse_request {
	uint32_t op;
	uint64_t unique, node;
	uint32_t uid, gid;
	/* what the op has of these */
	struct str name, name2; /* terminated in place. Of entries: not empty, ".", ".." and without '/' */
	uint64_t handle, owner, offset, size, other; /* other: node (LINK, RENAME), unique (INTERRUPT), lookups (FORGET) */
	uint32_t flags, mode, mask;
	uint32_t lock_type; /* F_RDLCK, F_WRLCK, F_UNLCK as the kernel says them: 0, 1, 2 */
	uint64_t lock_first, lock_last;
	uint32_t new_uid, new_gid;
	struct fuse_time atime, mtime;
	struct str data; /* WRITE: the bytes. BATCH_FORGET: pairs of node and lookups */
};

/* The one request that message is. -EPROTO: none at all. Another negative errno: its names or numbers cannot be; op and unique are set, and
 * that is its answer. Unknown ops have what is common to all. */
int fuse_request_get(struct str message, struct fuse_request *ret);
bool fuse_op_answered(uint32_t op);
size_t fuse_forgets(const struct fuse_request *r); /* of a BATCH_FORGET, and the i-th of them: */
void fuse_forget_at(const struct fuse_request *r, size_t i, uint64_t *ret_node, uint64_t *ret_lookups);

struct fuse_attr {
	uint64_t ino, size, blocks;
	struct fuse_time atime, mtime, ctime;
	uint32_t mode, nlink, uid, gid, rdev, blksize;
};
struct fuse_fs {
	uint64_t blocks, bfree, bavail, files, ffree;
	uint32_t bsize, namelen, frsize;
};

/* Answers, each a whole frame of the line for the volume. Nothing in them may be remembered by the machine's kernel: others change it. */
void fuse_put_status(struct buf *out, uint8_t volume, uint64_t unique, int errnum); /* 0 or a positive errno */
void fuse_put_init(struct buf *out, uint8_t volume, const struct fuse_request *r);
void fuse_put_entry(struct buf *out, uint8_t volume, uint64_t unique, uint64_t node, uint64_t generation, const struct fuse_attr *a);
void fuse_put_attr(struct buf *out, uint8_t volume, uint64_t unique, const struct fuse_attr *a);
void fuse_put_opened(struct buf *out, uint8_t volume, uint64_t unique, uint64_t handle);
void fuse_put_created(struct buf *out, uint8_t volume, uint64_t unique, uint64_t node, uint64_t generation, const struct fuse_attr *a, uint64_t handle);
void fuse_put_written(struct buf *out, uint8_t volume, uint64_t unique, uint32_t n);
void fuse_put_statfs(struct buf *out, uint8_t volume, uint64_t unique, const struct fuse_fs *s);
void fuse_put_lock(struct buf *out, uint8_t volume, uint64_t unique, uint32_t type, uint64_t first, uint64_t last);
void fuse_put_offset(struct buf *out, uint8_t volume, uint64_t unique, uint64_t offset);
void fuse_put_bytes(struct buf *out, uint8_t volume, uint64_t unique, struct str bytes);
/* An entry of a READDIR's bytes. False: it does not go in. */
bool fuse_dirent_put(struct buf *to, size_t max, uint64_t ino, uint64_t next, uint8_t type, struct str name);

#endif
