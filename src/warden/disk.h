/* The writable side of a sandbox: in memory, or an ext4 file system in a sparse file on a loop device.
 *
 * In memory (tmpfs) when it need not outlive a stop and is small against the memory limit, since its pages count as the sandbox's
 * memory. Else DATA/disks/<id>.img, copied from a template of its size. On the file the owners are 0..65535 and the mount is
 * idmapped, so a disk is bound to no uid range. Either way the size is a hard one and gives ENOSPC inside. */
#ifndef CAISSON_WARDEN_DISK_H
#define CAISSON_WARDEN_DISK_H

#include "warden/place.h"

enum disk_kind { DISK_MEMORY = 1, DISK_FILE };

struct disk {
	int mount;     /* detached; holds upper/ and work/ */
	unsigned loop; /* DISK_FILE: number of the device */
};
#define DISK_INIT ((struct disk){ .mount = -EBADF })

struct disk_seed { /* files that a new disk starts with, in /etc */
	const char *id, *hostname;
};

enum disk_kind disk_kind_for(bool ephemeral, uint64_t disk_mib, uint64_t memory_mib);
/* Could the host give a disk of this size now? */
int disk_check(const struct place *p, enum disk_kind kind, uint64_t mib, struct err *e);
int disk_make_memory(uint64_t mib, uid_t owner, const struct disk_seed *seed, struct disk *ret, struct err *e);

/* A fresh file under this name (no ".img") and its mount, not yet mapped: for one's own use or as a spare. */
int disk_make_file(const struct place *p, const char *name, uint64_t mib, bool journal, struct disk *ret, struct err *e);
/* Turns a fresh mount into the sandbox's: seeds it, maps its owners. */
int disk_settle(const struct disk *d, int userns_fd, const struct disk_seed *seed, struct err *e);
/* An empty file system of this size in a file that is not to be written to: to be copied. A descriptor. */
int disk_template(const struct place *p, uint64_t mib, bool journal, struct err *e);
/* The same bytes in another file of the folder: shared where the host's file system can, else only what holds data, and only if that
 * leaves the host its reserve. */
int disk_copy(int disks_fd, int from, int to, struct err *e);
/* Mounts the kept disk of a stopped sandbox. seed: not NULL for one that was made from another's disk; it gets a name of its own. ERR_UNAVAILABLE with EBUSY while the kernel is still letting go of it (loop is the
 * number it had last), ERR_NOT_FOUND when there is none. */
int disk_open_file(const struct place *p, const char *id, unsigned loop, int userns_fd, const struct disk_seed *seed, struct disk *ret, struct err *e);
bool disk_is_bound(const struct place *p, const char *id, unsigned loop);
/* The sandbox's root: the disk over the image. owner: who the file system is written as (DISK_FILE). */
int disk_overlay(const struct place *p, const struct disk *d, enum disk_kind kind, int lower_fd, uid_t owner, bool is_volatile, int *ret_root,
		 struct err *e);
/* Renames it to trash-*, for the helper: the unlinking itself can take long. Not there is success. */
int disk_remove_file(const struct place *p, const char *id);
void disk_close(struct disk *d);

/* What is called trash-*. True: that many were removed, and there may be more. */
bool disk_remove_trash(int disks_fd, unsigned at_most);
/* What a crash left of half-made files and of spares: before there are any of our own. */
void disk_remove_unfinished(int disks_fd);
void disk_remove_making(int disks_fd, const char *id); /* the half-made ones with this in their name */
/* Of one warden, which is gone. */
void disk_remove_spares(int disks_fd, const char *prefix);
/* The data folder will not be used again: templates, snapshots, volumes. */
void disk_remove_rest(int disks_fd);

#endif
