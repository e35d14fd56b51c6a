/* Parts of the file ops that others use too. All run in a process that is the user. */
#ifndef CAISSON_GUEST_FILEOP_H
#define CAISSON_GUEST_FILEOP_H

#include "guest/worker.h"

/* Removes a file, or a directory with all in it. Follows no link; needs the same few descriptors at any depth. */
int remove_tree(int dirfd, const char *path);
int make_parents(const char *path); /* every missing directory above the last component */

/* A file that will take another one's place in one step. */
struct replacement {
	char *target; /* links resolved */
	char *temp;   /* NULL: written in place */
	int fd;
};
/* Opens for writing. Regular or missing target: a temporary file beside it, with its mode and owner. Other targets, and a
 * directory that takes no new file: the target itself. */
int replacement_open(struct replacement *r, const char *path, uint32_t mode, struct err *e);
int replacement_commit(struct replacement *r, bool exclusive, struct err *e);
void replacement_abort(void *r);
int write_bytes(int fd, struct str s);
int rename_anew(const char *from, const char *to); /* -EEXIST when there is something at `to` */

#endif
