/* Followers: readers of a run's output, each at its own position in the spool.
 *
 * They are fed from the loop, a few chunks a turn, never from inside a call of theirs: so a slow one holds up nobody, and a callback may
 * pause or free its follower. */
#include "core/core_int.h"

enum { CHUNKS_A_TURN = 4 };

static void follower_queue(struct follower *f)
{
	struct core *c = f->run->sandbox->core;

	if (f->queued || f->dead)
		return;
	f->queued = true;
	DL_APPEND2(c->ready, f, ready_prev, ready_next);
	core_deliver_soon(c);
}

void followers_wake(struct run *r)
{
	struct follower *f;

	DL_FOREACH (r->followers, f)
		follower_queue(f);
}

/* The sandbox goes, with the run: nobody may be left waiting for an end. */
void followers_leave(struct run *r)
{
	struct follower *f, *next;
	struct run_view v;

	run_view(r, &v);
	DL_FOREACH_SAFE (r->followers, f, next) {
		DL_DELETE(r->followers, f);
		f->run = NULL;
		if (f->queued) {
			DL_DELETE2(r->sandbox->core->ready, f, ready_prev, ready_next);
			f->queued = false;
		}
		if (!f->told_end && !f->dead) {
			f->told_end = true;
			f->ev->on_end(f->ctx, &v);
		}
	}
}

void followers_tell_room(struct run *r)
{
	struct follower *f, *next;

	DL_FOREACH_SAFE (r->followers, f, next) {
		if (!f->dead && f->ev->on_stdin_room)
			f->ev->on_stdin_room(f->ctx);
	}
}

struct follower *run_follow(struct run *r, uint64_t stdout_offset, uint64_t stderr_offset, const struct follower_events *ev, void *ctx)
{
	struct follower *f = xcalloc(1, sizeof *f);

	run_warm_up(r);
	*f = (struct follower){ .run = r, .ev = ev, .ctx = ctx, .at = { stdout_offset, stderr_offset } };
	DL_APPEND(r->followers, f);
	follower_queue(f);
	return f;
}

void follower_pause(struct follower *f)
{
	f->paused = true;
}

void follower_resume(struct follower *f)
{
	f->paused = false;
	if (f->run)
		follower_queue(f);
}

static void follower_delete(struct follower *f)
{
	if (f->run) {
		if (f->queued)
			DL_DELETE2(f->run->sandbox->core->ready, f, ready_prev, ready_next);
		DL_DELETE(f->run->followers, f);
	}
	free(f);
}

void follower_free(struct follower *f)
{
	if (!f)
		return;
	f->dead = true;
	if (!f->busy)
		follower_delete(f);
}

/* One chunk of each stream that has something new. False when there was nothing. */
static bool deliver_chunk(struct follower *f)
{
	bool any = false;
	struct buf b;

	for (int i = 0; i < 2 && !f->dead && !f->paused && f->run; i++) {
		struct spool *sp = &f->run->out[i];
		f->at[i] = MAX(f->at[i], spool_forgotten(sp)); /* too slow for a terminal: the offset tells */
		if (f->at[i] >= spool_kept(sp))
			continue;
		buf_init(&b, FOLLOW_CHUNK);
		ssize_t n = spool_read(sp, f->at[i], FOLLOW_CHUNK, &b);
		if (n > 0) {
			uint64_t at = f->at[i];
			f->at[i] += (uint64_t)n;
			any = true;
			f->ev->on_output(f->ctx, i + 1, at, buf_str(&b));
		} else {
			f->at[i] = spool_kept(sp); /* unreadable: go on behind it, the totals tell */
		}
		buf_done(&b);
	}
	return any;
}

static void deliver(struct follower *f)
{
	struct run_view v;
	int left = CHUNKS_A_TURN;

	f->busy = true;
	while (left-- > 0 && deliver_chunk(f))
		;
	if (f->run && !f->dead && !f->paused) {
		struct run *r = f->run;
		bool all = f->at[0] >= spool_kept(&r->out[0]) && f->at[1] >= spool_kept(&r->out[1]);
		r->used_ms = now_ms();
		if (!all) {
			follower_queue(f);
		} else if (run_ended(r) && !r->finishing && !f->told_end) {
			f->told_end = true;
			run_view(r, &v);
			f->ev->on_end(f->ctx, &v);
		}
	}
	f->busy = false;
	if (f->dead)
		follower_delete(f);
}

void run_deliver_ready(struct core *c)
{
	struct follower *f;
	size_t n;

	DL_COUNT2(c->ready, f, n, ready_next);
	while (n-- > 0 && (f = c->ready)) { /* those that queue again meanwhile wait for the next turn */
		DL_DELETE2(c->ready, f, ready_prev, ready_next);
		f->queued = false;
		deliver(f);
	}
}
