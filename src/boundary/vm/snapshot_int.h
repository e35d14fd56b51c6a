/* How snapshots lie on the disk. Private to snapshot.c and snapshot_store.c. */
#ifndef CAISSON_BOUNDARY_VM_SNAPSHOT_INT_H
#define CAISSON_BOUNDARY_VM_SNAPSHOT_INT_H

#include "boundary/vm/memory.h"
#include "boundary/vm/snapshot.h"

/* 1 was before machines had the port of volumes, so that its memory is of no use; 2 had no hashes. */
enum { SNAPSHOT_META_VERSION = 3, SNAPSHOT_META_WITH_MEMORY = 2, SNAPSHOT_META_WITH_SUMS = 3 };

char *snapshot_path(const char *data, const char *prefix, const char *snapshot); /* heap */
void snapshot_folder_remove(const char *path);

/* The last step, and the one that waits for the disk: a thread's. All that it holds is its own. */
struct keeping {
	int dir;
	int changed, devices, base; /* of memory apart (memory.h), or negative */
	bool good, passing, memory; /* not good: it is removed */
	int machine;                /* suspended: whose folder gets the memory, and there is no snapshot; or negative */
	char *folder, *path, *to, meta[200]; /* but for the sums */
	uint64_t bytes;             /* result */
	struct memory_files apart;  /* the same, when its memory is */
};

int keeping_run(void *keeping, struct err *e);
void keeping_release(void *keeping);

void snapshot_droppings_cancel(struct vm *v, const struct err *e);

#endif
