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
/* What may have been left half said on the line, or be lost by a QEMU whose guest is still booting: HELLO is then led up to. PERHAPS: only when it
 * is not answered soon, since reading so much is a fifth of a restored guest's time to its answer. */
enum ask_lead { ASK_BETWEEN, ASK_PERHAPS_HALF_SAID, ASK_HALF_SAID };
struct ask_what {
	ask_put_fn put;
	uint8_t answer;     /* the type of the frame that answers, with that id: a struct guest_result; or RUN_END, whatever it says */
	enum ask_lead lead;
	uint64_t timeout_ms;
};
/* fd: a stream to the guest, non-blocking, taken. done is called once, from the loop, unless ask_free comes first. */
struct ask *ask_new(uv_loop_t *loop, int fd, const struct ask_what *w, ask_done_fn done, void *ctx);
void ask_free(struct ask *a);

void ask_put_sync(void *ctx, struct buf *to); /* an ask_put_fn: SYNC, answered by GUEST_OP_END */

/* What has to precede a HELLO on a serial line on which something may have been left half said. */
extern const char ask_zeros[65536 + 16];

#endif
