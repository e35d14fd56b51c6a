/* Writes archives that the Linux kernel unpacks as an initramfs ("newc", Documentation/driver-api/early-userspace/buffer-format.rst of
 * the kernel). Several archives behind one another are one to the kernel, so a part that seldom changes can be kept ready. */
#ifndef CAISSON_WIRE_CPIO_H
#define CAISSON_WIRE_CPIO_H

#include "base/buf.h"

#include <sys/stat.h>

/* One entry: name without a slash in front, folders before what is in them; mode with its type; data of a regular file, else empty;
 * rdev (makedev) of a device. Owner root, no time. 0, -ENOBUFS, -EINVAL (data of 4 GiB and more). */
int cpio_put(struct buf *to, const char *name, mode_t mode, dev_t rdev, struct str data);
/* The end of the archive. */
int cpio_end(struct buf *to);

#endif
