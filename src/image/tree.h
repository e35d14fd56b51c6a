/* The tree of an image: checked, made harmless to the host, and given its digest, in one walk. Private to this layer.
 *
 * The digest is the SHA-256 over
 *     <configuration text> NUL
 *   and for every entry below the root, parents before children, each folder's names in byte order:
 *     <type> SP <mode, 4 octal digits> SP <uid> SP <gid> SP <path from the root> NUL <content> NUL
 * where type is one of d f l p s, and content is the SHA-256 in hex of a file's bytes, the target of a symbolic link, else
 * nothing. Times, hard links and the size of folders are no part of it: the same files give the same digest, whenever and by
 * whatever tool they were unpacked. Modes are those before sealing.
 *
 * Sealing: an image lies on the host with the numeric owners it has inside, so what could act on the host is taken off:
 *   - set-user-id and set-group-id bits of files (a root shell in an image would be one on the host); they are listed, so
 *     that a boundary with a kernel of its own may put them back. Behind a process boundary they have no effect anyway
 *     (no_new_privs).
 *   - every extended attribute: file capabilities for the same reason, and overlayfs' own ones, which would let an image
 *     steer the overlay that is laid on it.
 * Refused: devices (those in /dev are removed: each sandbox gets its own), owners over 65535 (a sandbox has that many ids),
 * paths too deep to handle, more bytes or entries than the limits. */
#ifndef CAISSON_IMAGE_TREE_H
#define CAISSON_IMAGE_TREE_H

#include "base/err.h"
#include "base/util.h"

struct tree_limits {
	uint64_t bytes;   /* of all files, as their size says: holes count */
	uint64_t entries;
};

struct tree_sealed {
	char digest[72];
	uint64_t bytes, entries;
	char **privileged; /* "4755 /usr/bin/sudo"; NULL-terminated, heap-owned */
};

/* root: the tree's folder, which nobody else can reach while this runs. */
int tree_seal(int root, const char *config_text, const struct tree_limits *limits, struct tree_sealed *ret, struct err *e);

/* Removes parent/name and everything in it. Never follows a link and never crosses into another file system: -EXDEV when
 * something is mounted in it. Succeeds when it is not there. */
int tree_remove(int parent, const char *name, struct err *e);

#endif
