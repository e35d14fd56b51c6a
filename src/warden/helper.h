/* A child of the warden for what takes long or waits in the kernel, so that the loop never does. The warden has two of the same
 * kind: one makes disks, for which creates may be waiting; the other makes network namespaces, lets go of the mounts of the dead, and
 * deletes files. Asked by messages; what it makes comes back as a descriptor. Ends when the warden does, after what it was told
 * last and after emptying the trash. */
#ifndef CAISSON_WARDEN_HELPER_H
#define CAISSON_WARDEN_HELPER_H

#include "warden/disk.h"

#define SPARE_NAME_MAX 40

struct helper {
	int fd;
	pid_t pid;
	unsigned disks, namespaces, gates; /* asked for and not come yet */
};

enum helper_kind { HELPER_DISK = 1, HELPER_NAMESPACE, HELPER_GATE };

struct helper_news {
	enum helper_kind kind;
	char name[SPARE_NAME_MAX]; /* of a disk */
	uint64_t mib;
	bool journal;
	struct disk disk;
	int namespace; /* of a sandbox */
	int gate;      /* HELPER_GATE: and of its gate */
};

/* Forks; before the warden holds anything of the daemon's that must not stay open in the child. */
int helper_start(struct helper *h, const struct place *p, struct err *e);
void helper_empty_trash(struct helper *h);
bool helper_make_disk(struct helper *h, const char *name, uint64_t mib, bool journal); /* false: it is gone or far behind */
void helper_make_namespace(struct helper *h);
void helper_make_gate(struct helper *h);
/* The last hold on the mounts of a dead sandbox (its mount namespace) is given up there: the kernel waits more than once when it takes
 * them apart. With a file as the disk, that is in the trash already, which is emptied then. fd is taken. */
void helper_let_go(struct helper *h, int fd, bool file);
/* h->fd is readable: 0 and the news, or a negative errno (-EAGAIN: nothing yet; -EPIPE: the helper is gone; else it could not,
 * and ret->kind says what). */
int helper_take(struct helper *h, struct helper_news *ret);
void helper_stop(struct helper *h, bool wait);

#endif
