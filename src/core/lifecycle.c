/* The life of a sandbox.
 *
 * Theory of operation. A transition (create, start, stop, pause, suspend, resume, delete) puts the sandbox in its passing state (pause, and resume
 * from it, have none), asks the boundary, and ends in a resting state when the answer (and for create and start also the guest's
 * hello) is there. s->under_way says which one it is; those who asked wait in s->waiters, who asks for the same joins
 * them, and another verb is refused. Only delete is allowed from everywhere and overtakes what is under way: each transition has a
 * generation, and an answer of an older one is dropped. Boundaries answer in order, so a destroy sent after a create finds what the create made.
 *
 * Only enter_state() changes a state: it alone logs, stores and tells. */
#include "base/log.h"
#include "core/core_int.h"
#include "core/secret.h"
#include "model/permission.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

enum { REOPEN_MAX = 5, REOPEN_WINDOW_MS = 60000, DELETE_AGAIN_MS = 5000,
       TELL_TIME_MS = 60000 /* clocks drift apart */, TELL_AGAIN_MAX = 10,
       ASK_WAITED_MS = 10000, ANSWER_WITHIN_MS = 45000, EXIT_WITHIN_MS = 5000 };

enum verb { V_CREATE = 1, V_START = 2, V_STOP = 4, V_PAUSE = 8, V_RESUME = 16, V_DELETE = 32, V_HOLD = 64, V_SUSPEND = 128 };

static const struct {
	unsigned permits; /* verbs that may begin here, when none is under way (delete: always) */
	unsigned already; /* verbs that have nothing to do here */
} states[] = {
	[SANDBOX_CREATING] = { V_DELETE, 0 },
	[SANDBOX_RUNNING] = { V_STOP | V_PAUSE | V_SUSPEND | V_DELETE | V_HOLD, V_START | V_RESUME },
	[SANDBOX_PAUSED] = { V_STOP | V_SUSPEND | V_RESUME | V_DELETE | V_HOLD, V_PAUSE },
	[SANDBOX_STOPPING] = { V_DELETE, 0 },
	[SANDBOX_STOPPED] = { V_START | V_DELETE | V_HOLD, V_STOP },
	[SANDBOX_STARTING] = { V_DELETE, 0 },
	[SANDBOX_DELETING] = { V_DELETE, 0 }, /* again, after a failure */
	[SANDBOX_DELETED] = { 0, V_DELETE },
	[SANDBOX_ERROR] = { V_START | V_STOP | V_DELETE, 0 },
	[SANDBOX_SUSPENDING] = { V_DELETE, 0 },
	[SANDBOX_SUSPENDED] = { V_STOP | V_RESUME | V_DELETE, V_SUSPEND | V_PAUSE },
	[SANDBOX_RESUMING] = { V_DELETE, 0 },
};
static_assert(sizeof states / sizeof states[0] == SANDBOX_STATE_COUNT, "a state without a line");

static void enter_state(struct sandbox *s, enum sandbox_state state, const char *error)
{
	enum sandbox_state old = s->row.state;
	uint64_t now = now_unix_ms();

	log_info("sandbox=%s from=%s to=%s error=\"%s\"", s->row.id, sandbox_state_name(old), sandbox_state_name(state), error ? error : "");
	s->row.state = state;
	s->row.updated_ms = now;
	if (state == SANDBOX_STOPPED)
		s->row.stopped_ms = now;
	char *copy = xstrdup(error);
	free(s->row.error);
	s->row.error = copy;
	s->unsaved = store_sandbox_state(s->core->o.store, s->row.id, state, error, now) < 0;
	core_emit(s->core, "sandbox.state", s, old, NULL);
	if (sandbox_is_opened(s))
		secrets_tell(s);
}

/* Nobody waits for this one's create any more. */
static void no_longer_creating(struct sandbox *s)
{
	if (!s->counted)
		return;
	s->counted = false;
	s->core->creating--;
	pool_refill(s->core);
}

/* --- waiting --- */

static void wait_for(struct sandbox *s, sandbox_done_fn done, void *ctx)
{
	struct waiter *w = xcalloc(1, sizeof *w);

	*w = (struct waiter){ .done = done, .ctx = ctx };
	LL_APPEND(s->waiters, w);
}

static void tell(struct waiter *list, const struct err *e, struct sandbox *s)
{
	struct waiter *w, *next;

	LL_FOREACH_SAFE (list, w, next) {
		w->done(w->ctx, e, s);
		free(w);
	}
}

/* The transition is over. */
static void end(struct sandbox *s, const struct err *e)
{
	s->under_way = 0;
	tell(take_ptr(&s->waiters), e, s);
}

/* An answer on its way back from the boundary. */
struct step {
	struct core *core;
	char id[40];
	uint64_t generation;
};

static struct step *step_new(struct sandbox *s)
{
	struct step *st = xcalloc(1, sizeof *st);

	st->core = s->core;
	snprintf(st->id, sizeof st->id, "%s", s->row.id);
	st->generation = ++s->generation;
	return st;
}

/* The sandbox, if this answer still matters to it. Frees the step. */
static struct sandbox *step_take(struct step *st)
{
	struct sandbox *s = core_find(st->core, NULL, st->id);

	if (s && s->generation != st->generation)
		s = NULL;
	free(st);
	return s;
}

/* True when the verb has begun: the caller asks the boundary now, and `done` waits. Otherwise `done` has been called, or waits for the
 * same transition that is under way already. */
static bool begin(struct sandbox *s, enum verb verb, const char *word, sandbox_done_fn done, void *ctx)
{
	struct err e;

	if (s->under_way == verb) {
		wait_for(s, done, ctx);
		return false;
	}
	if (s->under_way && verb != V_DELETE) {
		err_set(&e, ERR_CONFLICT, EBUSY, "cannot %s: %s is in progress (state %s)", word, s->under_way == V_HOLD ? "a snapshot or a fork" : "a state change",
			sandbox_state_name(s->row.state));
	} else if (states[s->row.state].already & verb) {
		done(ctx, NULL, s);
		return false;
	} else if (!(states[s->row.state].permits & verb)) {
		err_set(&e, ERR_CONFLICT, EBUSY, "cannot %s: the state is %s", word, sandbox_state_name(s->row.state));
	} else if (!s->boundary && verb != V_DELETE) {
		err_set(&e, ERR_UNAVAILABLE, ENOSYS, "this sandbox needs the boundary '%s', which this server does not offer now", s->row.boundary);
	} else {
		s->under_way = verb;
		return true;
	}
	done(ctx, &e, s);
	return false;
}

/* --- the guest's connection --- */

static void drop_link(struct sandbox *s)
{
	struct link *l = take_ptr(&s->link);

	permissions_unheard(s);
	s->hello = false;
	s->ahead_ms = 0;
	s->hello_deadline_ms = 0;
	if (l)
		link_free(l);
}

static void ended_by_itself(struct sandbox *s, const char *reason);

static void connect_guest(struct sandbox *s)
{
	struct err e;
	uint64_t now = now_ms();

	drop_link(s);
	if (now - s->reopened_ms > REOPEN_WINDOW_MS) {
		s->reopened = 0;
		s->reopened_ms = now;
	}
	if (++s->reopened > REOPEN_MAX) {
		ended_by_itself(s, "the guest keeps breaking its connection");
		return;
	}
	int fd = s->boundary->ops->open_guest(s->boundary, s->row.id, &e);
	if (fd == -ESHUTDOWN) { /* the boundary will say what it ended by */
		s->hello_deadline_ms = now + EXIT_WITHIN_MS;
		return;
	}
	if (fd < 0) {
		ended_by_itself(s, e.message);
		return;
	}
	s->hello_deadline_ms = now + HELLO_TIMEOUT_MS;
	s->link_seq++;
	s->link = link_new(s->core->loop, fd, &sandbox_link_events, s);
	if (!s->link)
		ended_by_itself(s, "the guest's connection cannot be watched (out of file descriptors?)");
	else if (permission_of_guest(s->row.spec.permissions, 0))
		link_permit(s->link, s->row.spec.permissions);
}

void lifecycle_tell_time(struct sandbox *s, bool name)
{
	struct boundary_spec named;
	char hostname[SPEC_HOSTNAME_MAX + 1];

	/* (One that is held or paused would hear it late, and take it for the time of that moment.) */
	if (!s->boundary || !(s->boundary->ops->caps & BOUNDARY_OWN_CLOCK) || !s->hello || s->row.state != SANDBOX_RUNNING)
		return;
	name_it(&named, s, hostname);
	s->told_time_ms = now_ms();
	s->told_again = 0;
	link_tell_time(s->link, name ? hostname : NULL);
}

/* A telling only ever brings the clock forward, so the quickest one counts. A host that has no time for any is left in peace. */
static void on_told_late(void *ctx)
{
	struct sandbox *s = ctx;
	unsigned again = s->told_again;

	if (again >= TELL_AGAIN_MAX || s->under_way)
		return;
	lifecycle_tell_time(s, false);
	s->told_again = again + 1;
}

static void on_hello(void *ctx, const struct link_run_state *known, size_t n)
{
	struct sandbox *s = ctx;

	s->hello = true;
	s->hello_deadline_ms = 0;
	lifecycle_tell_time(s, false); /* one that was paused has lost the time of it; what is asked of it now comes behind this */
	runs_hello(s, known, n);
	if (s->row.state == SANDBOX_CREATING || s->row.state == SANDBOX_STARTING || s->row.state == SANDBOX_RESUMING) {
		enter_state(s, SANDBOX_RUNNING, NULL);
		no_longer_creating(s);
		lifecycle_tell_time(s, true); /* the host name may be another than it was made with */
		end(s, NULL);
	}
}

static void on_closed(void *ctx, const struct err *why)
{
	struct sandbox *s = ctx;

	log_info("sandbox=%s msg=\"guest connection closed: %s\"", s->row.id, why ? why->message : "");
	drop_link(s);
	switch (s->row.state) {
	case SANDBOX_CREATING:
	case SANDBOX_STARTING:
	case SANDBOX_RUNNING:
	case SANDBOX_PAUSED:
	case SANDBOX_RESUMING:
		connect_guest(s);
		break;
	case SANDBOX_STOPPING:
	case SANDBOX_STOPPED:
	case SANDBOX_DELETING:
	case SANDBOX_DELETED:
	case SANDBOX_ERROR:
	case SANDBOX_SUSPENDING:
	case SANDBOX_SUSPENDED:
	case SANDBOX_STATE_COUNT:
		break;
	}
}

const struct link_events sandbox_link_events = {
	.on_hello = on_hello,
	.on_run_started = run_on_started,
	.on_run_output = run_on_output,
	.on_run_stdin_room = run_on_stdin_room,
	.on_run_end = run_on_end,
	.on_session_end = session_on_end,
	.on_verdict = audit_permission,
	.on_ask = permission_on_ask,
	.on_ask_end = permission_on_ask_end,
	.on_closed = on_closed,
	.on_told_late = on_told_late,
};

/* --- ending --- */

static void everything_inside_ended(struct sandbox *s, const char *why)
{
	drop_link(s);
	permissions_forget(s);
	runs_lost(s, why);
	interpreters_end(s, why);
	sessions_end(s);
}

static void ignore_answer(void *ctx, const struct err *e)
{
	(void)ctx;
	if (e)
		log_warn("msg=\"%s\"", e->message);
}

/* Nothing of it is left but its record. Who waits is told before that goes, too: should the daemon die in between, the next one finds
 * a sandbox being created or deleted, and ends it. */
static void forget_sandbox(struct sandbox *s, const struct err *why)
{
	struct waiter *waiters = take_ptr(&s->waiters);
	struct store *store = s->core->o.store;
	char id[40];

	snprintf(id, sizeof id, "%s", s->row.id);
	s->row.state = SANDBOX_DELETED;
	core_emit(s->core, "sandbox.deleted", s, SANDBOX_DELETING, NULL);
	core_remove(s);
	tell(waiters, why, NULL);
	store_sandbox_delete(store, id);
}

/* A create that did not work out leaves nothing. */
static void create_failed(struct sandbox *s, const struct err *why)
{
	struct err e = *why;

	s->generation++;
	no_longer_creating(s);
	everything_inside_ended(s, why->message);
	s->boundary->ops->destroy(s->boundary, s->row.id, ignore_answer, NULL);
	forget_sandbox(s, &e);
}

static void ended_by_itself(struct sandbox *s, const char *reason)
{
	struct err e;

	err_set(&e, ERR_UNAVAILABLE, ESHUTDOWN, "%s", reason);
	if (s->row.state == SANDBOX_CREATING) {
		create_failed(s, &e);
		return;
	}
	s->generation++;
	everything_inside_ended(s, e.message);
	enter_state(s, SANDBOX_ERROR, e.message);
	s->boundary->ops->stop(s->boundary, s->row.id, ignore_answer, NULL);
	end(s, &e);
}

void lifecycle_boundary_exit(void *ctx, const char *id, const struct boundary_exit *x)
{
	struct core *c = ctx;
	struct sandbox *s = core_find(c, NULL, id);
	char reason[256];

	snprintf(reason, sizeof reason, "%s", x->oom ? "out of memory: the kernel ended the sandbox's first process" : x->reason);
	if (!s) {
		pool_exit(c, id, reason);
		return;
	}
	if (s->row.state == SANDBOX_DELETING || s->row.state == SANDBOX_STOPPING || s->row.state == SANDBOX_STOPPED ||
	    s->row.state == SANDBOX_SUSPENDED)
		return;
	ended_by_itself(s, reason);
}

/* --- create: core/create.c says of what; here is its transition --- */

/* Of a start or a wake: what is refused for what was asked has not begun, and memory that was not read is kept. */
static enum sandbox_state state_after_failure(const struct sandbox *s, const struct err *e)
{
	if (s->row.state == SANDBOX_RESUMING)
		return e->kind == ERR_GONE ? SANDBOX_ERROR : SANDBOX_SUSPENDED;
	return e->kind == ERR_INVALID || e->kind == ERR_UNSUPPORTED ? SANDBOX_STOPPED : SANDBOX_ERROR;
}

static void boundary_up(struct sandbox *s, const struct err *e)
{
	if (!e) {
		s->reopened = 0;
		connect_guest(s);
	} else if (s->row.state == SANDBOX_CREATING) {
		create_failed(s, e);
	} else {
		enum sandbox_state state = state_after_failure(s, e);
		enter_state(s, state, state == SANDBOX_ERROR ? e->message : NULL);
		end(s, e);
	}
}

static void on_boundary_up(void *ctx, const struct err *e)
{
	struct sandbox *s = step_take(ctx);

	if (s)
		boundary_up(s, e);
}

void lifecycle_made(struct core *c, const char *id, const struct err *e)
{
	struct sandbox *s = core_find(c, NULL, id);

	if (s && s->under_way == V_CREATE) /* else it is being deleted: that comes after this create */
		boundary_up(s, e);
}

void lifecycle_begin_create(struct sandbox *s, sandbox_done_fn done, void *ctx)
{
	s->counted = true;
	s->core->creating++;
	s->under_way = V_CREATE;
	wait_for(s, done, ctx);
}

void lifecycle_ask_create(struct sandbox *s, const struct boundary_spec *spec)
{
	s->boundary->ops->create(s->boundary, spec, on_boundary_up, step_new(s));
}

void lifecycle_await_create(struct sandbox *s, sandbox_done_fn done, void *ctx)
{
	wait_for(s, done, ctx);
}

/* --- the other transitions --- */

typedef void (*up_fn)(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx);

/* The rest of a start, and of a resume of what was suspended. */
static void bring_up(struct sandbox *s, enum sandbox_state passing, up_fn up, sandbox_done_fn done, void *ctx)
{
	struct boundary_spec bs;
	struct image image = { 0 };
	char hostname[SPEC_HOSTNAME_MAX + 1];
	struct err e;

	wait_for(s, done, ctx);
	if (image_resolve(s->core->o.images, s->row.image_digest, &image, &e) < 0) {
		err_prefix(&e, "the image of this sandbox");
		e.kind = ERR_UNAVAILABLE;
		end(s, &e);
		return;
	}
	enter_state(s, passing, NULL);
	sandbox_touch(s);
	bs = shape_of(s->boundary, &s->row.spec, s->row.user, &image);
	name_it(&bs, s, hostname);
	up(s->boundary, &bs, on_boundary_up, step_new(s));
	image_done(&image);
}

void sandbox_start(struct sandbox *s, sandbox_done_fn done, void *ctx)
{
	if (begin(s, V_START, "start", done, ctx))
		bring_up(s, SANDBOX_STARTING, s->boundary->ops->start, done, ctx);
}

static void on_stopped(void *ctx, const struct err *e)
{
	struct sandbox *s = step_take(ctx);

	if (!s)
		return;
	if (e)
		enter_state(s, SANDBOX_ERROR, e->message);
	else
		enter_state(s, SANDBOX_STOPPED, NULL);
	end(s, e);
}

/* stop of an ephemeral sandbox deletes it: its disk would not outlive the stop anyway */
struct relay {
	sandbox_done_fn done;
	void *ctx;
};

static void relay_done(void *ctx, const struct err *e, struct sandbox *s)
{
	struct relay *r = ctx;

	r->done(r->ctx, e, s);
	free(r);
}

void sandbox_stop(struct sandbox *s, sandbox_done_fn done, void *ctx)
{
	if (s->row.spec.ephemeral) {
		struct relay *r = xcalloc(1, sizeof *r);
		*r = (struct relay){ done, ctx };
		sandbox_delete(s, relay_done, r);
		return;
	}
	if (!begin(s, V_STOP, "stop", done, ctx))
		return;
	everything_inside_ended(s, "the sandbox was stopped");
	enter_state(s, SANDBOX_STOPPING, NULL);
	wait_for(s, done, ctx);
	s->boundary->ops->stop(s->boundary, s->row.id, on_stopped, step_new(s));
}

static void on_pause_answer(struct sandbox *s, const struct err *e, enum sandbox_state state)
{
	if (!s)
		return;
	if (!e)
		enter_state(s, state, NULL);
	if (!e && s->hello_deadline_ms) /* a frozen guest could not answer: its time begins now */
		s->hello_deadline_ms = now_ms() + HELLO_TIMEOUT_MS;
	lifecycle_tell_time(s, false);
	end(s, e);
}

static void on_paused(void *ctx, const struct err *e)
{
	on_pause_answer(step_take(ctx), e, SANDBOX_PAUSED);
}

static void on_resumed(void *ctx, const struct err *e)
{
	on_pause_answer(step_take(ctx), e, SANDBOX_RUNNING);
}

void sandbox_pause(struct sandbox *s, sandbox_done_fn done, void *ctx)
{
	struct err e;

	if (s->boundary && !(s->boundary->ops->caps & BOUNDARY_CAN_PAUSE)) {
		err_set(&e, ERR_UNSUPPORTED, EOPNOTSUPP, "the boundary '%s' cannot pause", s->row.boundary);
		done(ctx, &e, s);
		return;
	}
	if (!begin(s, V_PAUSE, "pause", done, ctx))
		return;
	wait_for(s, done, ctx);
	audit_asked(s, "sandbox.pause");
	s->boundary->ops->pause(s->boundary, s->row.id, on_paused, step_new(s));
}

void sandbox_resume(struct sandbox *s, sandbox_done_fn done, void *ctx)
{
	if (!begin(s, V_RESUME, "resume", done, ctx))
		return;
	audit_asked(s, "sandbox.resume");
	if (s->row.state == SANDBOX_SUSPENDED) {
		bring_up(s, SANDBOX_RESUMING, s->boundary->ops->wake, done, ctx);
		return;
	}
	wait_for(s, done, ctx);
	sandbox_touch(s);
	s->boundary->ops->resume(s->boundary, s->row.id, on_resumed, step_new(s));
}

/* --- suspend: a pause with nothing left of it but files --- */

static void on_suspended(void *ctx, const struct err *e)
{
	struct sandbox *s = step_take(ctx);

	if (!s)
		return;
	if (!e) {
		enter_state(s, SANDBOX_SUSPENDED, NULL);
	} else {
		enter_state(s, s->suspended_from, NULL);
		connect_guest(s); /* may end it, and tell */
	}
	end(s, e);
}

static int can_suspend(const struct sandbox *s, struct err *e)
{
	if (s->boundary && !(s->boundary->ops->caps & BOUNDARY_CAN_SUSPEND))
		return err_set(e, ERR_UNSUPPORTED, EOPNOTSUPP, "the boundary '%s' cannot keep what runs on the disk: pause it in memory, or stop it", s->row.boundary);
	if (s->row.spec.ephemeral)
		return err_set(e, ERR_UNSUPPORTED, EOPNOTSUPP, "the disk of an ephemeral sandbox does not outlive its process: pause it in memory");
	return 0;
}

void sandbox_suspend(struct sandbox *s, sandbox_done_fn done, void *ctx)
{
	struct err e;

	if (can_suspend(s, &e) < 0) {
		done(ctx, &e, s);
		return;
	}
	if (!begin(s, V_SUSPEND, "pause to disk", done, ctx))
		return;
	wait_for(s, done, ctx);
	audit_asked(s, "sandbox.suspend");
	s->suspended_from = s->row.state;
	drop_link(s); /* what was not acknowledged by now is said again after the resume */
	enter_state(s, SANDBOX_SUSPENDING, NULL);
	s->boundary->ops->suspend(s->boundary, s->row.id, on_suspended, step_new(s));
}

/* --- held by a snapshot or a resize: a transition without a state of its own --- */

uint64_t lifecycle_hold(struct sandbox *s, const char *what, struct err *e)
{
	if (s->under_way)
		err_set(e, ERR_CONFLICT, EBUSY, "cannot %s: a state change is in progress (state %s)", what, sandbox_state_name(s->row.state));
	else if (!(states[s->row.state].permits & V_HOLD))
		err_set(e, ERR_CONFLICT, EBUSY, "cannot %s: the state is %s", what, sandbox_state_name(s->row.state));
	else {
		s->under_way = V_HOLD;
		return ++s->generation;
	}
	return 0;
}

void lifecycle_release(struct sandbox *s, uint64_t generation)
{
	if (s->generation != generation || s->under_way != V_HOLD)
		return;
	lifecycle_tell_time(s, false);
	end(s, NULL);
}

static void on_destroyed(void *ctx, const struct err *e)
{
	struct sandbox *s = step_take(ctx);
	struct err kept;
	int rc;

	if (!s)
		return;
	/* A later daemon that reads neither would bring it back. (What was on its disk may have made room by now.) */
	if (!e && s->unsaved && (rc = store_sandbox_delete(s->core->o.store, s->row.id)) < 0) {
		(void)err_sys(&kept, ERR_UNAVAILABLE, -rc, "the sandbox's record could not be removed");
		e = &kept;
	}
	if (e) {
		log_error("sandbox=%s msg=\"delete failed, will be tried again: %s\"", s->row.id, e->message);
		s->delete_again_ms = now_unix_ms() + DELETE_AGAIN_MS;
		if (!s->row.error || !streq(s->row.error, e->message))
			enter_state(s, SANDBOX_DELETING, e->message);
		end(s, e);
		return;
	}
	forget_sandbox(s, NULL);
}

static void destroy(struct sandbox *s)
{
	s->delete_again_ms = 0;
	if (s->boundary) {
		s->boundary->ops->destroy(s->boundary, s->row.id, on_destroyed, step_new(s));
		return;
	}
	struct err e;
	struct step *st = step_new(s);
	err_set(&e, ERR_UNAVAILABLE, ENOSYS, "this sandbox was made by the boundary '%s', which this server does not offer now", s->row.boundary);
	on_destroyed(st, &e);
}

void sandbox_delete(struct sandbox *s, sandbox_done_fn done, void *ctx)
{
	struct waiter *overtaken;
	struct err e;

	unsigned overtaking = s->under_way;

	if (!begin(s, V_DELETE, "delete", done, ctx))
		return;
	overtaken = overtaking ? take_ptr(&s->waiters) : NULL;
	doors_close(s);
	no_longer_creating(s);
	everything_inside_ended(s, "the sandbox was deleted");
	if (s->row.state != SANDBOX_DELETING)
		enter_state(s, SANDBOX_DELETING, NULL); /* stored first: a later daemon must know why there is nothing left of it */
	wait_for(s, done, ctx);
	err_set(&e, ERR_CONFLICT, ECANCELED, "it was deleted meanwhile");
	tell(overtaken, &e, s);
	destroy(s);
}

/* --- after a restart --- */

/* A pause or resume whose answer nobody heard: what is stored holds, and is made true. */
static void settle_pause(struct sandbox *s)
{
	const struct boundary_ops *ops = s->boundary->ops;

	if (ops->caps & BOUNDARY_CAN_PAUSE)
		(s->row.state == SANDBOX_PAUSED ? ops->pause : ops->resume)(s->boundary, s->row.id, ignore_answer, NULL);
}

static void adoption_done(void *ctx, const struct err *e, struct sandbox *s)
{
	(void)ctx;
	if (e && s)
		log_warn("sandbox=%s msg=\"%s\"", s->row.id, e->message);
}

void lifecycle_adopt(struct sandbox *s)
{
	enum sandbox_state was = s->row.state;

	/* A create that was not acknowledged is finished when its caller can come back for it, else undone. */
	bool finish = was == SANDBOX_CREATING && s->boundary && s->present_started && s->row.spec.idempotency_key;
	if (finish) {
		connect_guest(s);
		return;
	}
	if (was == SANDBOX_CREATING || was == SANDBOX_DELETING) {
		s->row.state = SANDBOX_ERROR; /* so that a delete may begin */
		sandbox_delete(s, adoption_done, NULL);
		return;
	}
	if (!s->boundary)
		return;
	/* On its way to the disk or back, and nothing runs: then it is there. That its memory is, is found out by a resume. */
	bool suspended = was == SANDBOX_SUSPENDED || was == SANDBOX_SUSPENDING || was == SANDBOX_RESUMING;
	if (suspended && s->present && !s->present_started) {
		if (was != SANDBOX_SUSPENDED)
			enter_state(s, SANDBOX_SUSPENDED, NULL);
		return;
	}
	if (s->present_started && (was == SANDBOX_RUNNING || was == SANDBOX_PAUSED || was == SANDBOX_STARTING || suspended)) {
		if (was == SANDBOX_STARTING || suspended)
			enter_state(s, SANDBOX_RUNNING, NULL);
		settle_pause(s);
		connect_guest(s);
		return;
	}
	everything_inside_ended(s, "the sandbox ended while no daemon was running");
	if (!s->present && was != SANDBOX_ERROR) {
		enter_state(s, SANDBOX_ERROR, "nothing of it is left on this host (was it restarted?)");
	} else if (was != SANDBOX_STOPPED && was != SANDBOX_ERROR) {
		s->row.state = SANDBOX_ERROR; /* stopping, or its processes are gone: finish the stop */
		sandbox_stop(s, adoption_done, NULL);
	}
}

/* --- time --- */

/* A guest that keeps its own time has an answer due to each telling: one that gives none, nor says anything else, does not hear us, or is dead, though its
 * connection may stand. When somebody waits for something it is asked more often. */
static bool is_silent(struct sandbox *s)
{
	uint64_t now = now_ms(), heard = 0;

	if (s->row.state != SANDBOX_RUNNING || s->under_way || !s->link || !link_is_asked(s->link, &heard)) {
		s->answer_by_ms = 0;
	} else if (!s->answer_by_ms || heard != s->heard) {
		s->heard = heard;
		s->answer_by_ms = now + ANSWER_WITHIN_MS;
	}
	return s->answer_by_ms && now > s->answer_by_ms;
}

static bool is_waited_for(struct sandbox *s)
{
	return s->live_runs > interpreters_resting(s) || (s->link && link_is_waited_for(s->link));
}

void lifecycle_sweep(struct sandbox *s, uint64_t now)
{
	const struct lifetime *l = &s->row.spec.lifetime;
	enum sandbox_state state = s->row.state;

	runs_sweep(s);
	if (!s->under_way && !s->answer_by_ms && now_ms() - s->told_time_ms > (is_waited_for(s) ? ASK_WAITED_MS : TELL_TIME_MS))
		lifecycle_tell_time(s, false);
	if (s->hello_deadline_ms && now_ms() > s->hello_deadline_ms && state != SANDBOX_PAUSED) {
		s->hello_deadline_ms = 0;
		ended_by_itself(s, s->link ? "the guest did not answer within 30 seconds (does its kernel stand still?)" : "it has ended");
	} else if (is_silent(s)) {
		s->answer_by_ms = 0;
		log_warn("sandbox=%s msg=\"the guest has not answered for %d seconds: its connection is made anew\"", s->row.id, ANSWER_WITHIN_MS / 1000);
		connect_guest(s); /* it may have lost its place in what it reads; if it is dead, it answers no hello either */
	} else if (state == SANDBOX_DELETING) {
		if (s->delete_again_ms && now > s->delete_again_ms)
			destroy(s);
	} else if (l->max_s && now - s->row.created_ms > l->max_s * 1000) {
		log_info("sandbox=%s msg=\"maximum lifetime reached\"", s->row.id);
		sandbox_delete(s, adoption_done, NULL);
	} else if (state == SANDBOX_STOPPED && l->delete_after_s >= 0 && now - s->row.stopped_ms >= (uint64_t)l->delete_after_s * 1000) {
		sandbox_delete(s, adoption_done, NULL);
	} else if (state == SANDBOX_RUNNING && !s->under_way && l->idle_s && now - s->row.active_ms > l->idle_s * 1000 &&
	           s->live_runs == interpreters_resting(s)) {
		log_info("sandbox=%s msg=\"idle\"", s->row.id);
		sandbox_stop(s, adoption_done, NULL);
	}
}
