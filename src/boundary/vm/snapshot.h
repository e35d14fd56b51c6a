/* Snapshots of machines: DATA/snapshots/ID with
 *
 *   disk    as it was at that moment
 *   state   the machine's memory and devices, of a snapshot with memory, but not of a fork whose children map it (memory.h)
 *   meta    what it was taken of, and a hash over each of the two, but not of a fork; written last, so that a snapshot without it is none
 *
 * Of a machine that is suspended memory and devices are taken in the same way, into its own folder (vmdir.h), and it ends.
 *
 * A running machine is held while QEMU writes its memory and the disk is copied, and goes on as it was. What its guest has not
 * written to its disk by then is in its memory only. So for a snapshot without memory a copy of the machine comes to life that nobody else
 * ever speaks to, is asked to SYNC, and ends: its disk is the snapshot's. */
#ifndef CAISSON_BOUNDARY_VM_SNAPSHOT_H
#define CAISSON_BOUNDARY_VM_SNAPSHOT_H

#include "boundary/vm/transfer.h"
#include "boundary/vm/vm_int.h"

struct snapshot_meta {
	char id[40];
	uint64_t memory_mib, disk_mib;
	unsigned cpus;
	bool with_memory;
	char disk_sum[TRANSFER_SUM + 1], memory_sum[TRANSFER_SUM + 1]; /* of transfer.h; "" of one that passes */
	bool apart; /* its memory and devices are in files that we hold (memory.h), and there is no "state" */
};

void vm_snapshot(struct boundary *b, const char *id, const char *snapshot, bool memory, bool passing, boundary_snapshot_fn done, void *ctx);
void vm_suspend(struct boundary *b, const char *id, boundary_done_fn done, void *ctx);
void vm_drop_snapshot(struct boundary *b, const char *snapshot, boundary_done_fn done, void *ctx);
void vm_list_snapshots(struct boundary *b, boundary_snapshots_fn done, void *ctx);

/* Its folder, or a negative errno with e. */
int vm_snapshot_open(const struct vm *v, const char *snapshot, struct snapshot_meta *ret, struct err *e);

/* From the machine's side: an event of its QEMU; it is no more. */
void vm_snapshot_event(struct machine *m, const char *name, const json_t *data);
void vm_snapshot_machine_gone(struct machine *m);

void vm_snapshots_sweep(struct vm *v); /* at start: what a former daemon left unfinished */
void vm_snapshots_close(struct vm *v); /* those under way are told ECANCELED */
void vm_snapshots_remove(const char *data);

#endif
