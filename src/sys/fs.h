/* Small files and folders by descriptor. Everything returns 0 or positive, or a negative errno; descriptors are close-on-exec. */
#ifndef CAISSON_SYS_FS_H
#define CAISSON_SYS_FS_H

#include "base/util.h"

/* One write(2) of the whole text, as kernel files want it. */
int fs_write_at(int dirfd, const char *path, const char *text);
int fs_write_at_f(int dirfd, const char *path, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* At most size-1 bytes and a NUL; returns the number of bytes. */
ssize_t fs_read_at(int dirfd, const char *path, char *ret_text, size_t size);
/* The first number of a file, or of the line `key N` with a key. -ENODATA when there is none. "max" reads as UINT64_MAX. */
int fs_read_u64_at(int dirfd, const char *path, const char *key, uint64_t *ret_value);

/* A directory as O_PATH, no symlink as last component. */
int fs_open_dir_at(int dirfd, const char *path);
/* As mkdir -p for an absolute path; existing parts stay as they are. */
int fs_mkdirs(const char *path, mode_t mode);
/* Removes a tree that only we write (never one a sandbox could race with). -ENOENT is success. */
int fs_remove_tree_at(int dirfd, const char *name);
/* Writes beside and renames: a reader sees the old bytes or the new ones. Not synced to the disk. */
int fs_replace_at(int dirfd, const char *name, const void *bytes, size_t n, mode_t mode);

#endif
