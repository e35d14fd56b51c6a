/* Runs: started, fed, followed, ended, remembered.
 *
 * Theory of operation. The guest keeps a run's output until we acknowledge it, and we acknowledge only what a kill -9 of
 * this daemon cannot lose: bytes that are in the run's file. While a stream is short nothing is acknowledged and nothing
 * written; its end puts it, with the result, in the run's row of the store, and only then is the guest told to forget it. So
 * after a restart the rest of every output is still to be had, from the file, the row or the guest. For the same reason those
 * who wait for a short run are told before its end is stored: until then it is safe with the guest.
 *
 * Readers (followers) have their own position in the spool and are fed from the loop, never from inside a call of theirs:
 * a slow one holds up nobody. An ended run becomes "cold" after a while: its output leaves memory and is read back on demand. */
#include "base/log.h"
#include "core/ahead.h"
#include "core/core_int.h"
#include "core/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COLD_AFTER_MS = 10000 };

static const char *const stream_suffix[2] = { "out", "err" };

static void spools_init(struct run *r)
{
	for (int i = 0; i < 2; i++) {
		char name[128];
		snprintf(name, sizeof name, "%s/%llu.%s", r->sandbox->row.id, (unsigned long long)r->number, stream_suffix[i]);
		spool_init(&r->out[i], r->sandbox->core->runs_dir, name, r->row.output_max);
	}
}

/* The folder of a sandbox's spool files is made when the first one is needed. */
void run_make_folder(struct sandbox *s)
{
	if (mkdirat(s->core->runs_dir, s->row.id, 0700) < 0 && errno != EEXIST)
		log_error("sandbox=%s msg=\"cannot make the folder for its output: %s\"", s->row.id, strerror(errno));
}

/* --- making, finding, forgetting --- */

struct run *run_put(struct sandbox *s, struct run_row *take)
{
	struct run *r = xcalloc(1, sizeof *r);

	r->sandbox = s;
	r->row = *take;
	*take = (struct run_row){ 0 };
	r->number = r->row.number;
	snprintf(r->id, sizeof r->id, "run_%llu", (unsigned long long)r->number);
	spools_init(r);
	HASH_ADD(hh, s->runs, number, sizeof r->number, r);
	return r;
}

/* It need not be stored any more. */
static void saved(struct run *r)
{
	if (r->to_save)
		DL_DELETE2(r->sandbox->core->to_save, r, save_prev, save_next);
	r->to_save = false;
}

static void run_delete(struct run *r, bool files)
{
	struct sandbox *s = r->sandbox;

	followers_leave(r);
	saved(r);
	for (int i = 0; i < 2; i++) {
		if (files)
			spool_remove(&r->out[i]);
		spool_done(&r->out[i]);
	}
	HASH_DEL(s->runs, r);
	run_row_done(&r->row);
	free(r);
}

static struct run *find_number(struct sandbox *s, uint64_t number)
{
	struct run *r;

	HASH_FIND(hh, s->runs, &number, sizeof number, r);
	return r;
}

struct run *sandbox_find_run(struct sandbox *s, const char *id)
{
	uint64_t number;

	if (strncmp(id, "run_", 4) != 0 || parse_u64(str_of(id + 4), UINT64_MAX, &number) < 0)
		return NULL;
	struct run *r = find_number(s, number);
	return r && streq(r->id, id) ? r : NULL;
}

struct run *sandbox_next_run(struct sandbox *s, struct run *prev)
{
	return prev ? prev->hh.next : s->runs;
}

static void forget_oldest(struct sandbox *s)
{
	struct run *r, *next;

	HASH_ITER (hh, s->runs, r, next) {
		if (HASH_COUNT(s->runs) <= RUNS_KEPT)
			return;
		if (run_ended(r) && !r->followers && !r->waiters) {
			store_run_delete(s->core->o.store, s->row.id, r->number);
			run_delete(r, true);
		}
	}
}

void run_view(const struct run *r, struct run_view *ret)
{
	const struct run_row *w = &r->row;
	uint64_t out = run_ended(r) ? w->stdout_bytes : spool_total(&r->out[0]);
	uint64_t err = run_ended(r) ? w->stderr_bytes : spool_total(&r->out[1]);

	*ret = (struct run_view){
		.id = r->id,
		.session = w->session,
		.display = w->display,
		.state = w->state,
		.exit_code = w->exit_code,
		.signal = w->signal,
		.timed_out = w->timed_out,
		.canceled = w->canceled,
		.oom = w->oom,
		.truncated = w->truncated,
		.pty = w->pty,
		.message = w->message,
		.stdout_bytes = out,
		.stderr_bytes = err,
		.started_ms = w->started_ms,
		.ended_ms = w->ended_ms,
		.duration_ms = run_ended(r) ? w->duration_ms : now_unix_ms() - w->started_ms,
	};
}

/* --- starting --- */

static uint64_t next_number(struct sandbox *s)
{
	uint64_t n = s->row.next_run++;

	if (n >= s->run_reserved) { /* reserved in blocks, so that a restart never uses a number twice */
		struct err e;
		uint64_t live = s->row.next_run;
		s->run_reserved = n + RUN_NUMBERS_RESERVED;
		s->row.next_run = s->run_reserved;
		if (store_sandbox_put(s->core->o.store, &s->row, &e) < 0)
			log_error("sandbox=%s msg=\"%s\"", s->row.id, e.message);
		s->row.next_run = live;
	}
	return n;
}

static struct run *find_idempotent(struct sandbox *s, const char *key)
{
	if (!key)
		return NULL;
	for (struct run *r = s->runs; r; r = r->hh.next)
		if (streq(r->row.idempotency_key, key))
			return r;
	return NULL;
}

static int check_startable(struct sandbox *s, const struct run_spec *spec, struct err *e)
{
	if (run_spec_validate(spec, e) < 0)
		return -EINVAL;
	if (core_audit_ready(s->core, e) < 0)
		return -ENOSPC;
	if (s->row.state != SANDBOX_RUNNING || !s->link)
		return err_set(e, ERR_CONFLICT, EBUSY, "the sandbox is not running (state %s)", sandbox_state_name(s->row.state));
	if (spec->session) {
		struct session_view v;
		if (session_get(s, spec->session, &v) < 0)
			return err_set(e, ERR_NOT_FOUND, ENOENT, "no session '%.64s' is there", spec->session);
		if (!v.alive)
			return err_set(e, ERR_GONE, ESHUTDOWN, "session '%.64s' has ended", spec->session);
	}
	return 0;
}

/* It is as if it had never begun. */
static void unrecorded(struct run *r)
{
	struct sandbox *s = r->sandbox;

	if (s->link) {
		link_run_cancel(s->link, r->number);
		link_run_release(s->link, r->number);
	}
	s->live_runs--;
	run_delete(r, true);
}

static int start(struct sandbox *s, const struct run_spec *spec, bool kernel, struct run **ret, struct err *e)
{
	struct command cmd;
	struct pairs env = { 0 };
	struct run *r;

	int rc = check_startable(s, spec, e);
	if (rc < 0)
		return rc;
	if ((r = find_idempotent(s, spec->idempotency_key))) {
		*ret = r;
		return 0;
	}
	if ((rc = command_build(spec, &cmd, e)) < 0)
		return rc;
	sandbox_env(s, &env);
	for (size_t i = 0; i < spec->env.n; i++)
		pairs_add(&env, spec->env.v[i].key, spec->env.v[i].value);
	bool ahead = ahead_take(s, spec, &cmd, &env);
	struct run_row row = {
		.sandbox_id = xstrdup(s->row.id),
		.number = ahead ? AHEAD_RUN : next_number(s),
		.session = xstrdup(spec->session),
		.display = run_spec_display(spec),
		.idempotency_key = xstrdup(spec->idempotency_key),
		.state = spec->session ? RUN_QUEUED : RUN_RUNNING,
		.pty = spec->pty,
		.merge_stderr = spec->merge_stderr,
		.started_ms = now_unix_ms(),
		.output_max = kernel ? RUN_OUTPUT_MAX_KERNEL : spec->output_max ? spec->output_max : RUN_OUTPUT_MAX_DEFAULT,
	};
	bool first = spec->idempotency_key; /* such a one may never be begun twice, whenever we die */
	if (first && (rc = store_run_put(s->core->o.store, &row)) < 0) {
		if (ahead)
			link_run_release(s->link, AHEAD_RUN);
		run_row_done(&row);
		pairs_done(&env);
		command_done(&cmd);
		return err_sys(e, ERR_UNAVAILABLE, -rc, "the run cannot be recorded");
	}
	r = run_put(s, &row);
	r->taken = ahead;
	r->stdin_open = spec->stdin_open || spec->pty;
	r->link_seq = s->link_seq;
	s->live_runs++;
	sandbox_touch(s);
	struct link_run_spec ls = {
		.argv = (const char *const *)cmd.argv,
		.script = cmd.script,
		.script_suffix = cmd.script_suffix,
		.env = &env,
		.cwd = spec->cwd ? spec->cwd : s->row.spec.workdir,
		.user = spec->user ? spec->user : s->row.user,
		.session = spec->session,
		.stdin_open = r->stdin_open,
		.stdin_bytes = cmd.stdin_bytes,
		.pty = spec->pty,
		.merge_stderr = spec->merge_stderr,
		.rows = spec->rows ? spec->rows : 24,
		.cols = spec->cols ? spec->cols : 80,
		.timeout_ms = spec->timeout_ms,
	};
	if (ahead)
		ahead_run(s, &cmd, spec->timeout_ms);
	else
		link_run_start(s->link, r->number, &ls);
	pairs_done(&env);
	command_done(&cmd);
	/* Written while the guest is at it already, which on one processor needs us to step back. If we die in between, the guest is
	 * told to cancel a run that nobody knows. */
	(void)sched_yield();
	if (!first && (rc = store_run_put(s->core->o.store, &r->row)) < 0) {
		unrecorded(r);
		return err_sys(e, ERR_UNAVAILABLE, -rc, "the run cannot be recorded");
	}
	core_emit(s->core, "run.started", s, s->row.state, r);
	forget_oldest(s);
	*ret = r;
	return 0;
}

int sandbox_run(struct sandbox *s, const struct run_spec *spec, struct run **ret, struct err *e)
{
	return start(s, spec, false, ret, e);
}

int run_start_kernel(struct sandbox *s, const struct run_spec *spec, struct run **ret, struct err *e)
{
	return start(s, spec, true, ret, e);
}

/* --- what the guest says --- */

void run_on_started(void *ctx, uint64_t number)
{
	struct run *r = find_number(ctx, number);

	if (r)
		r->taken = r->stdin_unknown = false;
	if (r && r->row.state == RUN_QUEUED)
		r->row.state = RUN_RUNNING;
}

/* Puts a stream's bytes in its file and lets the guest forget them. */
static void make_durable(struct run *r, int i)
{
	struct sandbox *s = r->sandbox;

	run_make_folder(s);
	int rc = spool_flush(&r->out[i]);
	if (rc < 0 && !r->row.message) {
		log_error("sandbox=%s run=%s msg=\"output cannot be stored: %s\"", s->row.id, r->id, strerror(-rc));
		r->row.message = xasprintf("output was lost: the server cannot store it (%s)", strerror(-rc));
		r->row.truncated = true;
	}
	r->acked[i] = spool_total(&r->out[i]); /* also after a failure: what cannot be kept is counted and said, not waited for */
	if (s->link && !s->carrying)
		link_run_ack(s->link, r->number, i + 1, r->acked[i]);
}

void run_on_output(void *ctx, uint64_t number, int stream, uint64_t offset, struct str bytes)
{
	struct sandbox *s = ctx;
	struct run *r = find_number(s, number);
	int i = stream - 1;

	if (!r || run_ended(r) || r->finishing || i < 0 || i > 1)
		return;
	struct spool *sp = &r->out[i];
	uint64_t total = spool_total(sp);
	if (offset < total) { /* sent again after a reconnect */
		size_t known = (size_t)MIN((uint64_t)bytes.n, total - offset);
		bytes.p += known;
		bytes.n -= known;
	} else if (offset > total) {
		r->row.truncated = true;
		spool_skip(sp, offset);
	}
	if (bytes.n == 0)
		return;
	spool_append(sp, bytes);
	if (spool_total(sp) > spool_kept(sp) && !r->row.truncated) {
		r->row.truncated = true;
		if (run_is_kernel(r)) /* a conversation with a hole in it is none */
			link_run_cancel(s->link, r->number);
	}
	bool given_up = run_is_kernel(r) && i == 0; /* by run_forget; until then it stays in the guest, whose window bounds it */
	if (!given_up && spool_total(sp) - r->acked[i] >= RUN_ACK_AFTER)
		make_durable(r, i);
	if (run_keeps_tail(r) && spool_total(sp) - spool_forgotten(sp) > 2 * TERMINAL_KEPT)
		spool_forget(sp, spool_total(sp) - TERMINAL_KEPT); /* a disk that can't do it keeps more */
	followers_wake(r);
}

void run_on_stdin_room(void *ctx, uint64_t number)
{
	struct run *r = find_number(ctx, number);

	if (!r)
		return;
	if (r->stdin_unknown)
		r->stdin_open = true;
	r->stdin_unknown = false;
	followers_tell_room(r);
}

static bool fits_row(const struct run *r)
{
	struct str out = spool_memory(&r->out[0]), err = spool_memory(&r->out[1]);

	return out.p && err.p && out.n <= RUN_ROW_OUTPUT_MAX && err.n <= RUN_ROW_OUTPUT_MAX;
}

/* Puts the result and the output where a kill -9 can't lose them; then the guest may forget the run. When the disk is full the
 * guest keeps it, and the sweep tries again. */
static void save(struct run *r)
{
	struct sandbox *s = r->sandbox;
	struct str out = spool_memory(&r->out[0]), err = spool_memory(&r->out[1]);
	struct run_row row = r->row; /* borrows: not freed */

	if (fits_row(r)) {
		row.stdout_data = (uint8_t *)(uintptr_t)out.p;
		row.stderr_data = (uint8_t *)(uintptr_t)err.p;
		row.stdout_len = out.n;
		row.stderr_len = err.n;
	} else {
		make_durable(r, 0);
		make_durable(r, 1);
		row.message = r->row.message;
		row.truncated = r->row.truncated;
	}
	r->unsaved = store_run_put(s->core->o.store, &row) < 0;
}

static void release_saved(struct run *r)
{
	if (!r->unsaved && r->sandbox->link)
		link_run_release(r->sandbox->link, r->number);
}

static void save_ended(struct run *r)
{
	saved(r);
	save(r);
	release_saved(r);
}

/* Together: one transaction for all that ended within a moment. When it fails they are unsaved, and the sweep tries again. */
void runs_save_ended(struct core *c)
{
	struct run *done = take_ptr(&c->to_save), *r, *next;

	store_begin(c->o.store);
	DL_FOREACH2 (done, r, save_next)
		save(r);
	bool kept = store_commit(c->o.store) == 0;
	DL_FOREACH_SAFE2 (done, r, next, save_next) {
		r->to_save = false;
		r->unsaved |= !kept;
		release_saved(r);
	}
}

static void finish(struct run *r)
{
	struct sandbox *s = r->sandbox;
	struct run_waiter *w, *next;

	r->finishing = false;
	r->stdin_open = false;
	r->row.ended_ms = now_unix_ms();
	r->used_ms = now_ms();
	if (!r->row.duration_ms)
		r->row.duration_ms = r->row.ended_ms - r->row.started_ms;
	if (s->link && r->row.state != RUN_LOST && fits_row(r)) { /* the guest has it as well */
		r->unsaved = r->to_save = true;
		DL_APPEND2(s->core->to_save, r, save_prev, save_next);
		core_save_soon(s->core);
	} else {
		save_ended(r); /* it may find that output is lost, which those who wait are told */
	}
	s->live_runs--;
	sandbox_touch(s);
	core_emit(s->core, "run.ended", s, s->row.state, r);
	followers_wake(r);
	w = take_ptr(&r->waiters);
	while (w) {
		next = w->next;
		w->done(w->ctx, NULL, r);
		free(w);
		w = next;
	}
}

/* A SIGKILL that nobody here sent may have been the out-of-memory killer: its counter tells. */
struct oom_question {
	struct core *core;
	char sandbox[40];
	uint64_t number;
};

static void on_oom_answer(void *ctx, const struct err *e, const struct usage *u)
{
	struct oom_question *q = ctx;
	struct sandbox *s = core_find(q->core, NULL, q->sandbox);
	struct run *r = s ? find_number(s, q->number) : NULL;

	free(q);
	if (!r || !r->finishing)
		return;
	if (!e && u->oom_kills > s->oom_kills) {
		s->oom_kills = u->oom_kills;
		r->row.oom = true;
	}
	finish(r);
}

void run_on_end(void *ctx, uint64_t number, const struct link_run_end *end)
{
	struct sandbox *s = ctx;
	struct run *r = find_number(s, number);

	if (!r && number == AHEAD_RUN)
		ahead_drop(s);
	if (!r || run_ended(r) || r->finishing)
		return;
	static const struct link_run_end never = { .failed = true, .errnum = ESRCH, .message = "the interpreter that had been started for it has ended before it" };
	end = r->taken ? &never : end;
	r->row.state = end->failed ? RUN_FAILED : RUN_EXITED;
	r->row.exit_code = end->exit_code;
	r->row.signal = end->signal;
	r->row.timed_out = end->timed_out;
	r->row.canceled = end->canceled;
	r->row.oom = end->oom;
	r->row.duration_ms = end->duration_ms;
	r->row.stdout_bytes = end->stdout_bytes;
	r->row.stderr_bytes = end->stderr_bytes;
	if (end->failed || end->message[0]) {
		free(r->row.message);
		r->row.message = xstrdup(end->message);
	}
	if (spool_total(&r->out[0]) < end->stdout_bytes || spool_total(&r->out[1]) < end->stderr_bytes)
		r->row.truncated = true;
	if (end->session_ended && r->row.session)
		session_on_end(s, r->row.session, end->exit_code);
	if (end->signal == SIGKILL && !end->timed_out && !end->canceled && !end->oom) {
		struct oom_question *q = xcalloc(1, sizeof *q);
		*q = (struct oom_question){ .core = s->core, .number = number };
		snprintf(q->sandbox, sizeof q->sandbox, "%s", s->row.id);
		r->finishing = true;
		s->boundary->ops->usage(s->boundary, s->row.id, on_oom_answer, q);
		return;
	}
	finish(r);
}

void runs_lost(struct sandbox *s, const char *why)
{
	struct run *r, *next;

	HASH_ITER (hh, s->runs, r, next) {
		if (run_ended(r) && !r->finishing)
			continue;
		if (!r->finishing) { /* else its result is known already */
			r->row.state = RUN_LOST;
			r->row.stdout_bytes = spool_total(&r->out[0]);
			r->row.stderr_bytes = spool_total(&r->out[1]);
			free(r->row.message);
			r->row.message = xstrdup(why);
		}
		finish(r);
	}
}

void runs_hello(struct sandbox *s, const struct link_run_state *known, size_t n)
{
	struct run *r, *next;

	for (size_t i = 0; i < n; i++) {
		r = find_number(s, known[i].run);
		if (!r)
			link_run_cancel(s->link, known[i].run);
		if (!r || (run_ended(r) && !r->unsaved && !r->finishing)) /* else released when it is stored */
			link_run_release(s->link, known[i].run);
		if (!r || run_ended(r))
			continue;
		r->link_seq = s->link_seq;
		link_run_attach(s->link, r->number, spool_total(&r->out[0]), spool_total(&r->out[1]));
		followers_tell_room(r); /* who has input has waited for the connection */
	}
	HASH_ITER (hh, s->runs, r, next) {
		if (run_ended(r) || r->finishing || r->link_seq == s->link_seq)
			continue;
		r->row.state = RUN_LOST;
		r->row.stdout_bytes = spool_total(&r->out[0]);
		r->row.stderr_bytes = spool_total(&r->out[1]);
		free(r->row.message);
		r->row.message = xstrdup("the run was lost between the daemon and the sandbox");
		finish(r);
	}
}

/* --- after a restart, and later --- */

static int load_run(void *ctx, struct run_row *row)
{
	struct sandbox *s = ctx;
	struct run *r = run_put(s, row);

	free(take_ptr(&r->row.stdout_data));
	free(take_ptr(&r->row.stderr_data));
	r->cold = run_ended(r);
	if (!r->cold) {
		s->live_runs++;
		for (int i = 0; i < 2; i++) {
			spool_load(&r->out[i]);
			r->acked[i] = spool_total(&r->out[i]);
		}
		r->stdin_open = r->row.pty || run_is_kernel(r);
		r->stdin_unknown = !r->stdin_open;
	}
	return 0;
}

void runs_load(struct sandbox *s)
{
	store_run_each(s->core->o.store, s->row.id, load_run, s);
}

void runs_free(struct sandbox *s)
{
	struct run *r, *next;
	bool gone = s->row.state == SANDBOX_DELETED;

	HASH_ITER (hh, s->runs, r, next)
		run_delete(r, gone);
	if (gone)
		unlinkat(s->core->runs_dir, s->row.id, AT_REMOVEDIR);
}

void runs_sweep(struct sandbox *s)
{
	struct run *r, *next;
	uint64_t now = now_ms();

	ahead_sweep(s);

	HASH_ITER (hh, s->runs, r, next) {
		if (!run_ended(r) || r->finishing || r->cold || r->followers || now - r->used_ms < COLD_AFTER_MS)
			continue;
		if (r->unsaved)
			save_ended(r);
		if (r->unsaved)
			continue;
		for (int i = 0; i < 2; i++)
			spool_done(&r->out[i]);
		spools_init(r);
		r->cold = true;
	}
}

void run_warm_up(struct run *r)
{
	struct run_row row = { 0 };

	r->used_ms = now_ms();
	if (!r->cold)
		return;
	r->cold = false;
	if (store_run_get(r->sandbox->core->o.store, r->sandbox->row.id, r->number, &row) < 0)
		return;
	if (row.stdout_data || row.stderr_data) {
		spool_append(&r->out[0], (struct str){ (char *)row.stdout_data, row.stdout_len });
		spool_append(&r->out[1], (struct str){ (char *)row.stderr_data, row.stderr_len });
	} else {
		spool_load(&r->out[0]);
		spool_load(&r->out[1]);
	}
	run_row_done(&row);
}

void run_forget(struct run *r, uint64_t offset)
{
	run_make_folder(r->sandbox);
	int rc = spool_forget(&r->out[0], offset);

	if (rc < 0)
		log_error("sandbox=%s run=%s msg=\"output cannot be given up: %s\"", r->sandbox->row.id, r->id, strerror(-rc));
	r->acked[0] = MAX(r->acked[0], offset);
	if (r->sandbox->link && !r->sandbox->carrying && !run_ended(r))
		link_run_ack(r->sandbox->link, r->number, LINK_STDOUT, r->acked[0]);
}

/* --- asking --- */

void run_wait(struct run *r, run_done_fn done, void *ctx)
{
	if (run_ended(r) && !r->finishing) {
		done(ctx, NULL, r);
		return;
	}
	struct run_waiter *w = xcalloc(1, sizeof *w);
	*w = (struct run_waiter){ .done = done, .ctx = ctx };
	LL_APPEND(r->waiters, w);
}

int run_output(struct run *r, int stream, uint64_t offset, size_t max, struct buf *out, struct err *e)
{
	if (stream != LINK_STDOUT && stream != LINK_STDERR)
		return err_set(e, ERR_INVALID, EINVAL, "stream: 'stdout' or 'stderr'");
	if (run_is_kernel(r) && stream == LINK_STDOUT)
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "%s is an interpreter's kernel: what it says is not kept", r->id);
	run_warm_up(r);
	struct spool *sp = &r->out[stream - 1];
	if (offset < spool_forgotten(sp))
		return err_set(e, ERR_GONE, ENODATA, "what was said before byte %llu is no longer kept", (unsigned long long)spool_forgotten(sp));
	if (offset >= spool_kept(sp))
		return 0;
	ssize_t n = spool_read(sp, offset, max, out);
	if (n < 0)
		return err_sys(e, ERR_INTERNAL, (int)-n, "the output of %s cannot be read back", r->id);
	return 0;
}

static int not_now(struct err *e)
{
	return err_set(e, ERR_CONFLICT, EBUSY, "the sandbox is not reachable now, try again");
}

static int live_link(struct run *r, struct link **ret, struct err *e)
{
	if (run_ended(r) || r->finishing)
		return err_set(e, ERR_GONE, ESRCH, "%s has ended", r->id);
	if (!r->sandbox->link)
		return not_now(e);
	sandbox_touch(r->sandbox);
	*ret = r->sandbox->link;
	return 0;
}

static int stdin_link(struct run *r, struct link **ret, struct err *e)
{
	int rc = live_link(r, ret, e);

	return rc == 0 && r->stdin_unknown ? not_now(e) : rc;
}

int run_signal(struct run *r, int signo, bool tree, struct err *e)
{
	struct link *l = NULL;

	if (signo < 1 || signo > 64)
		return err_set(e, ERR_INVALID, EINVAL, "signal: 1 to 64, or a name such as TERM");
	int rc = live_link(r, &l, e);
	if (rc == 0)
		link_run_signal(l, r->number, signo, tree);
	return rc;
}

int run_cancel(struct run *r, struct err *e)
{
	struct link *l = NULL;

	if (run_ended(r))
		return 0;
	int rc = live_link(r, &l, e);
	if (rc == 0)
		link_run_cancel(l, r->number);
	return rc;
}

int run_resize(struct run *r, uint16_t rows, uint16_t cols, struct err *e)
{
	struct link *l = NULL;

	if (!r->row.pty)
		return err_set(e, ERR_CONFLICT, ENOTTY, "%s has no terminal", r->id);
	if (rows < 1 || cols < 1 || rows > 1000 || cols > 1000)
		return err_set(e, ERR_INVALID, EINVAL, "rows and cols: 1 to 1000");
	int rc = live_link(r, &l, e);
	if (rc == 0)
		link_run_resize(l, r->number, rows, cols);
	return rc;
}

int run_set_display(struct run *r, const char *display, struct err *e)
{
	if (strlen(display) > RUN_DISPLAY_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "display: at most %u bytes", RUN_DISPLAY_MAX);
	free(r->row.display);
	r->row.display = xstrdup(display);
	if (run_ended(r)) /* its row has the output, too: it stays as it is */
		return 0;
	int rc = store_run_put(r->sandbox->core->o.store, &r->row);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "the run cannot be recorded") : 0;
}

ssize_t run_write(struct run *r, struct str bytes, struct err *e)
{
	struct link *l = NULL;

	int rc = stdin_link(r, &l, e);
	if (rc < 0)
		return rc;
	if (!r->stdin_open)
		return err_set(e, ERR_GONE, EPIPE, "the input of %s is closed", r->id);
	bytes.n = MIN(bytes.n, link_run_stdin_room(l, r->number));
	if (bytes.n == 0)
		return 0;
	rc = link_run_stdin(l, r->number, bytes);
	return rc == -EAGAIN ? 0 : rc < 0 ? err_sys(e, ERR_GONE, -rc, "the input of %s", r->id) : (ssize_t)bytes.n;
}

int run_close_stdin(struct run *r, struct err *e)
{
	struct link *l = NULL;

	int rc = stdin_link(r, &l, e);
	if (rc < 0)
		return rc;
	if (r->stdin_open)
		link_run_stdin_eof(l, r->number);
	r->stdin_open = false;
	return 0;
}
