/* Work that may wait for a disk, done by a thread of the loop's pool, for the loop itself never waits. */
#ifndef CAISSON_BOUNDARY_VM_OFFLOAD_H
#define CAISSON_BOUNDARY_VM_OFFLOAD_H

#include "base/err.h"
#include "boundary/vm/transfer.h"

#include <uv.h>

struct offload;
/* In the thread: what it is given is its own until `done` or `release`, and it touches nothing else. 0, or negative with e. */
typedef int (*offload_work_fn)(void *work, struct err *e);
typedef void (*offload_done_fn)(void *ctx, const struct err *e); /* e NULL = it is done */

/* done, from the loop and never before this returns, then release(work). */
struct offload *offload_new(uv_loop_t *loop, offload_work_fn run, void (*release)(void *work), void *work, offload_done_fn done, void *ctx);
/* Nobody is told; what has begun goes on for a while, and `work` is released then. Not after `done`, which frees it. */
void offload_cancel(struct offload *o);

/* What a machine is to go on from: a copy of a disk, which may be large, sparse, or sharing blocks where the host's file system can, and files of
 * which it is known what they were. The descriptors are taken; negative: there is none. A sum of "": it is not known, and not looked at. */
struct offload_files {
	int from, to;
	int memory;
	char whose[60]; /* for messages */
	char disk_sum[TRANSFER_SUM + 1], memory_sum[TRANSFER_SUM + 1]; /* of transfer.h */
};
struct offload *offload_files(uv_loop_t *loop, const struct offload_files *f, offload_done_fn done, void *ctx); /* EBADMSG: one is damaged */

#endif
