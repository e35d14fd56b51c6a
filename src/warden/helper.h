/* A child of the warden for what takes long or waits in the kernel, so that the loop never does. The warden has two of the same
 * kind: one deletes big files and makes disks in advance, the other makes network namespaces and lets go of the mounts
 * of the dead, so that none of these waits for a run of mkfs. Asked by messages; what it makes comes back as a
 * descriptor. Ends when the warden does, after what it was told last and after emptying the trash. */
#ifndef CAISSON_WARDEN_HELPER_H
#define CAISSON_WARDEN_HELPER_H

#include "warden/disk.h"

#define SPARE_NAME_MAX 40

struct helper {
	int fd;
	pid_t pid;
	unsigned disks, namespaces; /* asked for and not come yet */
};

enum helper_kind { HELPER_DISK = 1, HELPER_NAMESPACE, HELPER_GONE };

struct helper_news {
	enum helper_kind kind;	   /* made the one or the other; or has let go of a sandbox whose disk is a file */
	char name[SPARE_NAME_MAX]; /* of a disk */
	uint64_t mib;
	bool journal;
	struct disk disk;
	int namespace;
};

/* Forks; before the warden holds anything of the daemon's that must not stay open in the child. */
int helper_start(struct helper *h, const struct place *p, struct err *e);
void helper_empty_trash(struct helper *h);
bool helper_make_disk(struct helper *h, const char *name, uint64_t mib, bool journal); /* false: it is gone or far behind */
void helper_make_namespace(struct helper *h);
/* The last hold on the mounts of a dead sandbox (its mount namespace) is given up there: the kernel waits more than once when it takes
 * them apart. With a file as the disk, HELPER_GONE tells when that is bound no more and can be deleted. fd is taken. */
void helper_let_go(struct helper *h, int fd, bool file);
/* h->fd is readable: 0 and the news, or a negative errno (-EAGAIN: nothing yet; -EPIPE: the helper is gone; else it could not,
 * and ret->kind says what). */
int helper_take(struct helper *h, struct helper_news *ret);
void helper_stop(struct helper *h, bool wait);

#endif
