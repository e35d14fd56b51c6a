/* An operation inside a sandbox that is not a run: files, a TCP connection, questions. Plain data.
 *
 * The guest carries it out in a process of the sandbox's user, so a path can reach what that user could and no more. */
#ifndef CAISSON_MODEL_OP_H
#define CAISSON_MODEL_OP_H

#include "model/sandbox.h"

enum op_kind {
	OP_STAT,       /* path -> one info */
	OP_LIST,       /* path, depth (1 = direct children) -> infos */
	OP_READ,       /* path, offset, length (0 = to the end) -> info, then bytes */
	OP_WRITE,      /* path, mode (0 = 0644 & ~umask), flags: parents, append, exclusive; bytes in, then eof. Atomic: written beside
	                * and renamed unless append or the target is not a regular file */
	OP_MKDIR,      /* path, mode, flags: parents */
	OP_REMOVE,     /* path, flags: recursive */
	OP_MOVE,       /* path, path2, flags: exclusive */
	OP_CHMOD,      /* path, mode and/or owner, group (names or ids) as has_mode says */
	OP_FIND,       /* path, pattern: literal text in files -> matches */
	OP_SEARCH,     /* path, pattern: glob on base names -> paths */
	OP_REPLACE,    /* path, pattern, text: literal, in one file */
	OP_CONNECT,    /* port: TCP to 127.0.0.1 (then ::1) inside -> bytes both ways */
	OP_PORTS,      /* -> listening TCP ports */
	OP_USERINFO,   /* user -> home, shell, uid, gid, workdir */
	OP_DISK,       /* -> statfs of /; "processes": those of runs and sessions, where the guest has a group of all of them */
	OP_SYNC,       /* flush the disk */
};
enum { OP_F_PARENTS = 1, OP_F_APPEND = 2, OP_F_EXCLUSIVE = 4, OP_F_RECURSIVE = 8, OP_F_NOFOLLOW = 16 };

struct op_spec {
	enum op_kind kind;
	const char *user;      /* NULL = the guest's default */
	const char *path, *path2, *pattern, *text, *owner, *group;
	uint32_t mode, depth, flags;
	bool has_mode;
	uint64_t offset, length;
	uint16_t port;
	const char *cwd;       /* for a relative path; NULL = the user's work directory */
	bool unasked;          /* preparation that is nobody's transfer: no line of the audit log */
};
struct op_events {
	void (*on_info)(void *ctx, const struct file_info *info);                     /* STAT LIST READ */
	void (*on_match)(void *ctx, const char *path, uint64_t line, struct str text); /* FIND (line, text) SEARCH (path only) */
	void (*on_values)(void *ctx, const struct pairs *values);                     /* PORTS USERINFO DISK: named values */
	void (*on_open)(void *ctx);           /* READ WRITE CONNECT: accepted, data may flow */
	void (*on_data)(void *ctx, struct str bytes);
	void (*on_data_end)(void *ctx);       /* the other side sends no more (CONNECT half-close) */
	void (*on_room)(void *ctx);           /* room became non-zero */
	void (*on_end)(void *ctx, const struct err *e); /* last event; e NULL = success. The op is freed after it. */
};

#endif
