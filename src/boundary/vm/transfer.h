/* A template's files from where they are to where they shall be, with a hash over each, by a thread of the loop's pool. */
#ifndef CAISSON_BOUNDARY_VM_TRANSFER_H
#define CAISSON_BOUNDARY_VM_TRANSFER_H

#include "base/util.h"

#include <uv.h>

enum { TRANSFER_FILES = 3, TRANSFER_SUM = 64 };
struct transfer_file {
	int from, to;                /* borrowed. to negative: it is only read */
	char sum[TRANSFER_SUM + 1]; /* result: over what is not zero and where it is, so that holes make no difference */
};

/* The same sum of one file alone, which is read now: in a thread. 0 or a negative errno. */
int transfer_sum(int fd, char ret_sum[static TRANSFER_SUM + 1]);

struct transfer;
typedef void (*transfer_fn)(void *ctx, int r, const struct transfer_file files[TRANSFER_FILES]); /* r: 0 or a negative errno */
/* `to` files get the same size. */
struct transfer *transfer_new(uv_loop_t *loop, const struct transfer_file files[TRANSFER_FILES], transfer_fn done, void *ctx);
void transfer_free(struct transfer *t); /* instead of the call, after which it is gone by itself */

#endif
