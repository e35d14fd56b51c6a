/* The output of a run on its way from a pipe to the daemon.
 *
 * A window holds what the daemon has not acknowledged, at most GUEST_WINDOW bytes, and memory only for what is there. A source
 * is the reading end of a pipe or terminal; it fills a window and stands still while that is full. Without a window it
 * throws away what comes, so that a background child that outlives its run is not killed by a closed pipe. */
#ifndef CAISSON_GUEST_STREAM_H
#define CAISSON_GUEST_STREAM_H

#include "guest/loop.h"
#include "wire/guest.h"

struct window {
	uint64_t base;    /* offset of the first byte held */
	uint64_t sent;    /* offset of the first byte not yet sent on this connection */
	struct buf held;
	bool discard;     /* nobody will ever ask: what comes is dropped */
};
void window_init(struct window *w);
void window_done(struct window *w);
static inline uint64_t window_end(const struct window *w)
{
	return w->base + w->held.len;
}
static inline size_t window_room(const struct window *w)
{
	return GUEST_WINDOW - w->held.len;
}
int window_ack(struct window *w, uint64_t offset);    /* -EPROTO: never sent, or going back */
void window_discard(struct window *w);
int window_attach(struct window *w, uint64_t offset); /* -ERANGE: not held any more, or not yet there */
struct str window_unsent(const struct window *w, size_t max);

struct source {
	struct watch w;
	struct loop *loop;
	struct window *to;      /* NULL = thrown away */
	bool draining;          /* `left` more bytes, then done */
	bool till_end;          /* draining: until end of file, however much */
	size_t left;
	void (*changed)(void *ctx); /* bytes came into the window, or it is done */
	void *ctx;
};
struct source *source_new(struct loop *l, int fd); /* takes fd; starts when source_point is called */
void source_point(struct source *s, struct window *to, void (*changed)(void *), void *ctx);
void source_resume(struct source *s); /* the window has room again */
/* What is in the pipe now belongs to the window, and no more. till_end: a terminal, which can't tell how much that is. */
void source_drain(struct source *s, bool till_end);
static inline bool source_drained(const struct source *s)
{
	return !s || s->w.fd < 0 || (s->draining && !s->till_end && s->left == 0);
}
/* No longer wanted: frees itself at end of file. */
void source_abandon(struct source *s);
void source_free(struct source *s);

#endif
