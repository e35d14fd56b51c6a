/* A copy of a disk that may be large, made by a thread of the loop's pool: sparse, or sharing blocks where the host's file system can. */
#ifndef CAISSON_BOUNDARY_VM_DISKCOPY_H
#define CAISSON_BOUNDARY_VM_DISKCOPY_H

#include "base/err.h"

#include <uv.h>

struct diskcopy;
typedef void (*diskcopy_fn)(void *ctx, const struct err *e);
/* from: taken. To the new file "disk" in dir, which is borrowed for the call. */
struct diskcopy *diskcopy_new(uv_loop_t *loop, int from, int dir, diskcopy_fn done, void *ctx);
/* Nobody is told; it may write on for a while into a file that is perhaps gone. Not after `done`, which frees it. */
void diskcopy_cancel(struct diskcopy *c);

#endif
