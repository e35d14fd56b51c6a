#include "wire/cpio.h"

#include <errno.h>
#include <sys/sysmacros.h>

/* Name and data each begin at a multiple of four, counted from the archive's first byte; every entry ends on one. */
static int pad(struct buf *to, size_t from)
{
	static const char zeros[4];

	return buf_add(to, zeros, (4 - (to->len - from) % 4) % 4);
}

int cpio_put(struct buf *to, const char *name, mode_t mode, dev_t rdev, struct str data)
{
	size_t from = to->len, name_n = strlen(name) + 1;

	if (data.n > UINT32_MAX)
		return -EINVAL;
	/* magic, inode, mode, uid, gid, links, mtime, size, device (2), rdev (2), length of the name, checksum */
	(void)buf_addf(to, "070701%08X%08X%08X%08X%08X%08X%08zX%08X%08X%08X%08X%08zX%08X", 0, mode, 0, 0, 1, 0, data.n, 0, 0, major(rdev),
		       minor(rdev), name_n, 0);
	(void)buf_add(to, name, name_n);
	(void)pad(to, from);
	(void)buf_add(to, data.p, data.n);
	(void)pad(to, from);
	return to->overflow ? -ENOBUFS : 0;
}

int cpio_end(struct buf *to)
{
	return cpio_put(to, "TRAILER!!!", 0, 0, (struct str){ NULL, 0 });
}
