/* One sandbox as the warden sees it, and its life.
 *
 *   MAKING    new, and a helper is at its disk                may: destroy
 *   STOPPED   no process; the disk may be there        may: start, stop (nothing to do), destroy
 *   RUNNING   PID 1 lives (perhaps frozen)             may: stop, destroy, pause, resume, usage
 *   ENDING    told to die, its pidfd is awaited        may: stop, destroy (joined)
 *   SWEEPING  PID 1 is gone, groups or disk are still being let go of by the kernel; tried again, ever more seldom
 *
 * ENDING and SWEEPING last as long as a process of it lives: whoever waits is told every ten seconds that it does.
 *
 * RUNNING -> ENDING -> SWEEPING -> STOPPED, or gone if destroy was asked for. From RUNNING an end by itself goes to SWEEPING. */
#ifndef CAISSON_WARDEN_SANDBOX_H
#define CAISSON_WARDEN_SANDBOX_H

#include "sys/cgroup.h"
#include "warden/gatekeeper.h"
#include "warden/pool.h"
#include "warden/record.h"
#include "warden/inside.h"
#include "wire/warden.h"

enum life { LIFE_STOPPED, LIFE_RUNNING, LIFE_ENDING, LIFE_SWEEPING, LIFE_MAKING };

struct waiter { /* a request that is answered later */
	uint64_t serial;
	enum warden_op op;
	uint64_t deadline_ms;
	struct waiter *next;
};

struct sandbox {
	struct record record;
	enum life life;
	int pidfd;
	int server; /* a machine's, of its volumes: a pidfd while it is our child, else negative */
	int gate; /* its gate's namespace, or negative */
	int mounts; /* ENDING for good: its mount namespace, which the helper takes apart once it is dead; else negative */
	struct slot *slot;
	struct warden_request *making; /* what it is to become */
	bool destroying, oom, untold;  /* untold: ended by itself, the daemon has not heard yet */
	uint64_t ending_since_ms; /* ENDING or SWEEPING, or it was late and has been told to die once more */
	uint64_t sweep_next_ms;
	bool unthrottled;
	struct waiter *waiters;
	struct sandbox *next_in_bucket, *next_busy, *prev_busy;
	bool busy; /* in the list of those that a tick looks at */
};

struct keeper { /* what a sandbox is made with */
	struct place *place;
	struct pool *pool;
	struct cgroup_host *groups;
	struct gatekeeper *gates;
	int last_cap;
	uint64_t files_max;
};

/* Makes the disk and starts it. The sandbox is stopped and new. -EINPROGRESS: it is MAKING now. */
int sandbox_create(struct keeper *k, struct sandbox *s, const struct warden_request *rq, struct err *e);
/* MAKING, and the helper has delivered something: as sandbox_create, but 1 when its disk is not there yet. */
int sandbox_make(struct keeper *k, struct sandbox *s, struct err *e);
/* MAKING -> STOPPED and nothing left of it. */
void sandbox_unmake(struct keeper *k, struct sandbox *s);
/* Starts it on the disk it has. */
int sandbox_boot(struct keeper *k, struct sandbox *s, const struct warden_request *rq, struct err *e);
/* RUNNING -> ENDING. */
void sandbox_kill(struct keeper *k, struct sandbox *s);
/* Looked at while ENDING: one that takes long gets the processor's time it needs to die. */
void sandbox_hurry(struct keeper *k, struct sandbox *s);
/* ENDING or SWEEPING: true once every ten seconds that its end does not come. It has been killed again then. */
bool sandbox_end_is_late(struct keeper *k, struct sandbox *s);
/* PID 1 has ended -> SWEEPING. */
void sandbox_ended(struct keeper *k, struct sandbox *s);
/* -> SWEEPING, from now on. */
void sandbox_await_sweep(struct sandbox *s);
/* One try to let go of everything that a running one had. 0: done, now STOPPED; else again at sweep_next_ms: -EBUSY while a process of
 * it lives, however long that is; -EAGAIN while its disk is bound, which is passed over in the end. */
int sandbox_sweep(struct keeper *k, struct sandbox *s);
/* Of a STOPPED one: the disk's name and the record. */
int sandbox_remove(struct keeper *k, struct sandbox *s);
/* After the answer: what is left of a removed one and that nobody can name any more goes to a helper. */
void sandbox_let_go(struct keeper *k, struct sandbox *s);
/* Of a running one: with a gate or without. */
int sandbox_network(struct keeper *k, struct sandbox *s, bool on, struct err *e);
/* Other limits for a RUNNING one. */
int sandbox_set_limits(struct keeper *k, struct sandbox *s, const struct warden_request *rq, struct err *e);
int sandbox_freeze(struct keeper *k, struct sandbox *s, bool frozen);
void sandbox_measure(struct keeper *k, struct sandbox *s, struct warden_answer *a);
/* A record left by an earlier warden: RUNNING if that very process lives, else SWEEPING. */
void sandbox_adopt(struct keeper *k, struct sandbox *s, const struct record *r);


/* For those who start something else than the guest (machine.c). The sandbox has its slot and, in `group` or in none, its cgroups;
 * `in` says what to become, `offered` what is at INSIDE_ROOT up to offered_end, `net` is its network namespace. On success its pid, start
 * time and pidfd are set. */
int sandbox_clone(struct keeper *k, struct sandbox *s, struct inside *in, const int *offered, int offered_end, int group, int net, struct err *e);
/* After a failure: the groups and the slot. */
void sandbox_undo_clone(struct keeper *k, struct sandbox *s);

#endif
