/* The output of one stream of one run: bytes with offsets, in memory while they are few, then in a file.
 *
 * Up to SPOOL_MEMORY bytes stay in memory; more, or spool_flush, puts everything in the file `name` below `dirfd` (mode 0600, made
 * when first needed; the folder on the way must exist). Bytes beyond `max` are counted and dropped. Nothing here blocks
 * longer than a local write does. After an error of the disk, what could not be stored is counted, as dropped. */
#ifndef CAISSON_CORE_SPOOL_H
#define CAISSON_CORE_SPOOL_H

#include "base/buf.h"

#define SPOOL_MEMORY (256U << 10)
#define SPOOL_STEP 4096U /* whole blocks: a block punched in part would be zeros that look like data after a restart */

struct spool {
	int dirfd;      /* borrowed */
	char *name;
	int fd;         /* of the file, or -EBADF */
	struct buf mem; /* the bytes, while there is no file */
	uint64_t max, kept, total;
	uint64_t forgotten; /* the space before it is given back */
};

void spool_init(struct spool *s, int dirfd, const char *name, uint64_t max); /* copies name */
void spool_done(struct spool *s);   /* keeps the file */
void spool_remove(struct spool *s); /* unlinks the file, if there is one; the spool is empty afterwards */

int spool_append(struct spool *s, struct str bytes); /* 0, or the negative errno of a full or broken disk */
/* Of an empty one: what is before the offset, a multiple of SPOOL_STEP, counts and is forgotten. 0 or a negative errno. */
int spool_begin(struct spool *s, uint64_t offset);
void spool_skip(struct spool *s, uint64_t offset);   /* the bytes up to offset are missing: counted, not kept (nothing after is kept either) */
uint64_t spool_total(const struct spool *s);         /* bytes appended (and skipped) */
uint64_t spool_kept(const struct spool *s);          /* bytes that can be read back: [0, kept) */
/* At most max bytes from offset, appended to out; the number (0 at the end), or a negative errno. */
ssize_t spool_read(struct spool *s, uint64_t offset, size_t max, struct buf *out);
/* Puts the bytes in the file, so that they survive this process. 0 or a negative errno. */
int spool_flush(struct spool *s);
/* What is before the offset will not be read again: puts the rest in the file and gives back the space. 0 or a negative errno. */
int spool_forget(struct spool *s, uint64_t offset);
uint64_t spool_forgotten(const struct spool *s); /* what is before it reads as zeros */
int spool_load(struct spool *s);    /* takes over what an earlier process left in the file: 0 also when there is none */
/* All kept bytes when they are in memory (p not NULL even when empty); p NULL when they are in the file. */
struct str spool_memory(const struct spool *s);

#endif
