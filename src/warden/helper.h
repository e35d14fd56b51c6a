/* A child of the warden for what takes long: deleting big files and making disks in advance, so that the loop never waits for
 * either. Asked by messages; hands a mounted disk over as a descriptor. Ends when the warden does, after emptying the trash. */
#ifndef CAISSON_WARDEN_HELPER_H
#define CAISSON_WARDEN_HELPER_H

#include "warden/disk.h"

#define SPARE_NAME_MAX 40

struct helper {
	int fd;
	pid_t pid;
	bool making; /* a disk has been asked for and not come yet */
};

struct helper_disk {
	char name[SPARE_NAME_MAX];
	uint64_t mib;
	struct disk disk;
};

/* Forks; before the warden holds anything of the daemon's that must not stay open in the child. */
int helper_start(struct helper *h, const struct place *p, struct err *e);
void helper_empty_trash(struct helper *h);
void helper_make_disk(struct helper *h, const char *name, uint64_t mib);
/* h->fd is readable: 0 and a disk, or a negative errno (-EAGAIN: nothing yet; -EPIPE: the helper is gone; else it could not). */
int helper_take_disk(struct helper *h, struct helper_disk *ret);
void helper_stop(struct helper *h, bool wait);

#endif
