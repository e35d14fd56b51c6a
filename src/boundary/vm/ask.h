/* One question to a virtual machine's guest, outside of what core says to it: SETUP before core may come, SYNC before the end. */
#ifndef CAISSON_BOUNDARY_VM_ASK_H
#define CAISSON_BOUNDARY_VM_ASK_H

#include "base/buf.h"
#include "base/err.h"

#include <uv.h>

struct ask;
typedef void (*ask_done_fn)(void *ctx, const struct err *e);

/* Puts the request, with id ASK_ID, when the guest has said that it is there: a clock in it is then right. */
enum { ASK_ID = 1 };
typedef void (*ask_put_fn)(void *ctx, struct buf *to);
/* fd: a stream to the guest, non-blocking, taken. The answer is a frame of type `answer` with that id and a struct guest_result in
 * it. done is called once, from the loop, unless ask_free comes first. */
struct ask *ask_new(uv_loop_t *loop, int fd, ask_put_fn put, uint8_t answer, uint64_t timeout_ms, ask_done_fn done, void *ctx);
void ask_free(struct ask *a);

void ask_put_sync(void *ctx, struct buf *to); /* an ask_put_fn: SYNC, answered by GUEST_OP_END */

/* What has to precede a HELLO on a serial line. */
extern const char ask_zeros[65536 + 16];

#endif
