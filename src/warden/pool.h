/* What is made in advance or kept for the next sandbox: network namespaces, some with their gate, uid slots with their user namespace and their view of
 * an image, disks; and the images in use.
 *
 * A network namespace is handed out once: what a tenant left in it (TIME_WAIT, port clashes) must not reach the next. A uid
 * slot is used again once its sandbox is gone, with the namespace that only maps owners; the sandbox's own is always fresh. */
#ifndef CAISSON_WARDEN_POOL_H
#define CAISSON_WARDEN_POOL_H

#include "warden/helper.h"
#include "warden/place.h"
#include "warden/range.h"

struct image_use { /* an image that some sandbox stands on; the shared lock keeps it from being removed */
	char digest[80];
	int folder; /* locked */
	dev_t dev;  /* of its rootfs */
	ino_t ino;
	unsigned users;
	struct image_use *next;
};

struct slot {
	uint32_t number;
	int userns;	 /* maps 0..65535 to the slot's uids */
	int lower;	 /* detached: an image seen through that map, or negative */
	dev_t lower_dev; /* which one; the mount pins the inode, so its number means nothing else meanwhile */
	ino_t lower_ino;
	struct slot *next;
};

struct spare_disk {
	struct helper_news made;
	struct spare_disk *next;
};

struct spare_gate { /* a sandbox's namespace and, linked to it, the gate's */
	int inside, gate;
};

enum { POOL_GATES = 8 };

struct pool {
	struct place *place;
	struct helper *disk_helper, *space_helper;
	struct ranges ranges;
	struct image_use *images;
	struct slot *free_slots; /* last in, first out: warm ones first */
	unsigned slots_live, slots_free;
	int *namespaces;
	unsigned namespace_count, namespace_max;
	struct spare_gate gates[POOL_GATES];
	unsigned gate_count;
	bool gates_wanted; /* somebody has asked for one */
	struct spare_disk *disks;
	unsigned disk_count, disk_max;
	uint64_t disk_mib, disk_serial; /* size asked for last; 0 = nobody asked */
	bool disks_failing, namespaces_failing, gates_failing;
};

int pool_open(struct pool *p, struct place *place, struct helper *disk_helper, struct helper *space_helper, struct err *e);
void pool_close(struct pool *p, bool empty);

/* Digest "sha256:<64 hex>". ERR_NOT_FOUND when it is not in the images folder. */
int pool_image_get(struct pool *p, const char *digest, struct image_use **ret, struct err *e);
void pool_image_put(struct pool *p, const char *digest);

struct slot *pool_slot_get(struct pool *p, struct err *e);
/* For adoption: marks it used; NULL when it is not ours. */
struct slot *pool_slot_adopt(struct pool *p, uint32_t number);
void pool_slot_put(struct pool *p, struct slot *s);
int pool_slot_lower(struct pool *p, struct slot *s, struct image_use *image, struct err *e); /* a borrowed descriptor */
/* While it is in use: its descriptors can go when there are many. */
void pool_slot_rest(struct pool *p, struct slot *s);

int pool_namespace_get(struct pool *p, struct err *e);
/* One with its gate. */
int pool_gate_get(struct pool *p, struct spare_gate *ret, struct err *e);
/* A disk of its own under this id. -EINPROGRESS: none is at hand and the helper makes one; ask pool_disk_take when it has delivered. */
int pool_disk_get(struct pool *p, const char *id, uint64_t mib, bool journal, struct disk *ret, struct err *e);
/* As before, but 1 (not yet) instead of another order; once the helper cannot, it is made on the spot. */
int pool_disk_take(struct pool *p, const char *id, uint64_t mib, bool journal, struct disk *ret, struct err *e);

/* In a quiet moment: orders what is missing. */
void pool_fill(struct pool *p);
/* A helper has something to say. False: it is gone. */
bool pool_take(struct pool *p, struct helper *from);

#endif
