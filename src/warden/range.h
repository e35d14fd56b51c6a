/* Ranges of user ids, one per running sandbox, host-wide without collision.
 *
 * Ids 0x40000000 to 0x7fffffff are 16,384 slots of 65,536. A warden claims them in blocks of 64 by a lock on a file of
 * the ranges folder, which also names its owner: a block whose owner has died but left sandboxes running (its state folder is
 * not empty) is not free, and the owner's next warden takes it back. */
#ifndef CAISSON_WARDEN_RANGE_H
#define CAISSON_WARDEN_RANGE_H

#include "base/err.h"
#include "base/util.h"

#define RANGE_BASE   0x40000000u
#define RANGE_SIZE   65536u
#define RANGE_SLOTS  16384u
#define RANGE_BLOCK  64u
#define RANGE_BLOCKS (RANGE_SLOTS / RANGE_BLOCK)

struct ranges {
	int dir;
	char *state_folder;
	int lock[RANGE_BLOCKS];	     /* descriptor of a block that is ours, or negative */
	uint64_t used[RANGE_BLOCKS]; /* bit per slot */
};

static inline uint32_t range_uid(uint32_t slot)
{
	return RANGE_BASE + slot * RANGE_SIZE;
}

/* Takes back every block that is this owner's. */
int ranges_open(struct ranges *r, const char *folder, const char *state_folder, struct err *e);
void ranges_close(struct ranges *r, bool empty); /* empty: no sandbox left, the blocks are given back */
int range_take(struct ranges *r, uint32_t *ret_slot, struct err *e);
/* For adoption: 0, or -EBUSY when the slot is not ours or in use. */
int range_take_slot(struct ranges *r, uint32_t slot);
void range_release(struct ranges *r, uint32_t slot);

#endif
