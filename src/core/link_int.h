/* Private to core/link*.c. */
#ifndef CAISSON_CORE_LINK_INT_H
#define CAISSON_CORE_LINK_INT_H

#include "core/link.h"
#include "wire/guest.h"

#include <uthash.h>

/* --- link_pump.c: one descriptor, its frames in and out --- */

struct pump;
struct pump_events {
	/* < 0: the peer broke the rules; the pump fails with that. Message: the payload, or the assembled request. */
	int (*frame)(void *ctx, const struct guest_frame *f, struct str message);
	void (*closed)(void *ctx, const struct err *why); /* from the loop; the pump is gone after it */
};
/* Takes fd, also on failure (NULL). */
struct pump *pump_new(uv_loop_t *loop, int fd, const struct pump_events *ev, void *ctx);
bool pump_is_open(const struct pump *p);
bool pump_is_line(const struct pump *p); /* no socket: a serial line, which a former daemon may have used */
struct buf *pump_out(struct pump *p); /* append frames, then pump_kick */
void pump_kick(struct pump *p);       /* writes what can be written now; an error shows up later, from the loop */
/* Bytes in frames of one type, straight from where they are if the descriptor takes them; the rest is kept. */
void pump_send(struct pump *p, uint8_t type, uint64_t id, struct str bytes);
void pump_fail(struct pump *p, const struct err *why);
void pump_drop(struct pump *p);       /* closes; no further callback */
/* For one op with much to carry: the first frame need not be a READY, and the input buffer is kept until the end. */
void pump_bulk(struct pump *p);
/* Nothing more is read, and no frame is given, until it is resumed; then from the loop. Only of a bulk pump. */
void pump_pause(struct pump *p);
void pump_resume(struct pump *p);

/* --- link_op.c --- */

struct link_op {
	struct link *link;            /* NULL: it is being freed */
	struct pump *pump;            /* of its own when direct */
	uint64_t id;
	const struct op_events *ev;
	void *ctx;
	uint64_t sent, sent_limit, received, received_limit;
	bool paused, eof_sent, data_ended, opened;
	uint64_t data;                /* of what was received, the bytes */
	link_op_watch_fn watch;       /* or NULL */
	void *watch_ctx;
	bool refused;                 /* could not be asked for; ends from the loop */
	bool busy, dead;              /* in a callback; ended or cancelled meanwhile, to be freed after it */
	UT_hash_handle hh;
};
bool op_frame_type(uint8_t type);
/* A frame of this op: its callbacks are called, and on OP_END it is freed. -EPROTO */
int op_frame(struct link_op *op, const struct guest_frame *f);
/* on_end with e, and frees. */
void op_end(struct link_op *op, const struct err *e);

/* --- link.c, for link_op.c --- */
void link_op_add(struct link *l, struct link_op *op);    /* gives it its id */
void link_op_remove(struct link *l, struct link_op *op);
struct pump *link_pump(struct link *l);                  /* NULL when closed */
uv_loop_t *link_loop(struct link *l);
void link_defer(struct link *l);                         /* let the loop end what was refused */

/* Text of a sandbox as clean UTF-8: anything else becomes '?'. Writes a string of at most size - 1 bytes. */
void clean_text(struct str in, char *to, size_t size);

#endif
