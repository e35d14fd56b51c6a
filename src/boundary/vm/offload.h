/* Work that may wait for a disk, done by a thread of the loop's pool, for the loop itself never waits. */
#ifndef CAISSON_BOUNDARY_VM_OFFLOAD_H
#define CAISSON_BOUNDARY_VM_OFFLOAD_H

#include "base/err.h"

#include <uv.h>

struct offload;
/* In the thread: what it is given is its own until `done` or `release`, and it touches nothing else. 0, or negative with e. */
typedef int (*offload_work_fn)(void *work, struct err *e);
typedef void (*offload_done_fn)(void *ctx, const struct err *e); /* e NULL = it is done */

/* done, from the loop and never before this returns, then release(work). */
struct offload *offload_new(uv_loop_t *loop, offload_work_fn run, void (*release)(void *work), void *work, offload_done_fn done, void *ctx);
/* Nobody is told; what has begun goes on for a while, and `work` is released then. Not after `done`, which frees it. */
void offload_cancel(struct offload *o);

/* A copy of a disk that may be large, sparse, or sharing blocks where the host's file system can. Both are taken. */
struct offload *offload_disk_copy(uv_loop_t *loop, int from, int to, offload_done_fn done, void *ctx);

#endif
