/* Puts the set-id bits that a tree on the host must not have into a file system made of it: in the file they act on nobody but who
 * mounts it. mkfs.erofs has no option for that. Only what it makes here is understood: uncompressed, without attributes. Private to this
 * layer; the format is that of Linux's fs/erofs/erofs_fs.h. */
#ifndef CAISSON_IMAGE_EROFS_H
#define CAISSON_IMAGE_EROFS_H

#include "base/err.h"
#include "base/util.h"

/* Each of `privileged` is "4755 /usr/bin/sudo"; NULL-terminated, NULL = none. Only regular files get bits, and nothing but bits. */
int erofs_put_modes(int fd, char *const *privileged, struct err *e);
/* Are they there already? 1, 0, or an error. */
int erofs_has_modes(int fd, char *const *privileged, struct err *e);

#endif
