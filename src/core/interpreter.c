/* Interpreters: the life of their kernels.
 *
 * A kernel is a run in the sandbox: its own python3 with the program core/kernel.py, which takes requests as lines on stdin and tells
 * events as lines on stdout. So it is limited, accounted, killed and adopted after a restart as any run is. It is found again by the
 * run's display text: "interpreter " and a JSON object, and by an output limit that no client may ask for. One thing is different from other runs: its output is read once, here, and
 * then given up (run_forget), so that it may talk for months; and while nobody reads it waits, the guest's window being full.
 *
 * One that has died stays listed until it is deleted, so that its users are told; the default one is made anew at the next use. */
#include "base/log.h"
#include "core/interpreter_int.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

#define DISPLAY "interpreter "
#define INTERPRETERS_MAX 100
#define HURRY_MS 1000

static struct interpreter *find(struct sandbox *s, const char *id)
{
	struct interpreter *in;

	HASH_FIND_STR(s->interpreters, id, in);
	return in;
}

struct interpreter *interpreter_find(struct sandbox *s, const char *id)
{
	return find(s, id);
}

struct interpreter *interpreter_next(struct sandbox *s, struct interpreter *prev)
{
	return prev ? prev->hh.next : s->interpreters;
}

void interpreter_view(const struct interpreter *in, struct interpreter_view *ret)
{
	*ret = (struct interpreter_view){
		.id = in->id,
		.language = in->language,
		.cwd = in->cwd ? in->cwd : "",
		.alive = in->state != KERNEL_DEAD,
		.busy = in->state == KERNEL_BUSY || in->queue,
		.created_ms = in->created_ms,
	};
}

size_t interpreters_resting(struct sandbox *s)
{
	struct interpreter *in, *next;
	size_t n = 0;

	HASH_ITER (hh, s->interpreters, in, next)
		n += in->run && !in->queue;
	return n;
}

/* --- coming and going --- */

static void on_timer_closed(uv_handle_t *h)
{
	struct interpreter *in = h->data;
	struct core *c = in->core;

	buf_done(&in->line);
	buf_done(&in->input);
	free(in->id);
	free(in->language);
	free(in->cwd);
	free(in);
	core_handle_closed(c);
}

static struct interpreter *add(struct sandbox *s, const char *id, const char *cwd)
{
	struct interpreter *in = xcalloc(1, sizeof *in);

	in->core = s->core;
	in->sandbox = s;
	in->id = xstrdup(id);
	in->language = xstrdup("python");
	in->cwd = xstrdup(cwd);
	in->created_ms = now_unix_ms();
	in->serial = in->created_ms * 1000; /* an adopted one has used up smaller numbers only */
	buf_init(&in->line, KERNEL_LINE_MAX);
	buf_init(&in->input, EXECUTIONS_BYTES_MAX);
	uv_timer_init(s->core->loop, &in->timer);
	in->timer.data = in;
	s->core->handles++;
	HASH_ADD_KEYPTR(hh, s->interpreters, in->id, strlen(in->id), in);
	return in;
}

static void answer_waiters(struct interpreter *in, const struct err *e)
{
	struct interpreter_waiter *w = take_ptr(&in->waiters), *next;

	for (; w; w = next) {
		next = w->next;
		w->done(w->ctx, e, e ? NULL : in);
		free(w);
	}
}

/* The sandbox no longer knows it. Its kernel goes on, unless its run is ended. */
static void detach(struct interpreter *in, const char *why)
{
	struct err e;

	HASH_DEL(in->sandbox->interpreters, in);
	in->sandbox = NULL;
	in->run = NULL;
	if (in->follower)
		follower_free(take_ptr(&in->follower));
	uv_close((uv_handle_t *)&in->timer, on_timer_closed);
	executions_lost(in, why);
	err_set(&e, ERR_GONE, ESHUTDOWN, "%s", why);
	answer_waiters(in, &e);
}

void interpreter_delete(struct interpreter *in)
{
	struct err e;

	if (in->run)
		run_cancel(in->run, &e);
	sandbox_touch(in->sandbox);
	detach(in, "the interpreter was deleted");
}

void interpreters_end(struct sandbox *s, const char *why)
{
	struct interpreter *in, *next;

	HASH_ITER (hh, s->interpreters, in, next)
		detach(in, why);
}

/* --- speaking with it --- */

static void give_input(struct interpreter *in)
{
	struct err e;

	while (in->run && in->input.len) {
		ssize_t n = run_write(in->run, buf_str(&in->input), &e);
		if (n <= 0) /* when there is room again we are told; when it has ended, too */
			return;
		buf_consume(&in->input, (size_t)n);
	}
	buf_trim(&in->input, 64U << 10);
}

void kernel_say(struct interpreter *in, const char *line)
{
	buf_addz(&in->input, line);
	give_input(in);
}

static void on_stdin_room(void *ctx)
{
	give_input(ctx);
}

static void on_output(void *ctx, int stream, uint64_t offset, struct str bytes)
{
	struct interpreter *in = ctx;
	struct err e;

	if (stream != LINK_STDOUT) /* the last words of a python3 that could not start; read when it has ended */
		return;
	in->read = offset + bytes.n;
	if (buf_add(&in->line, bytes.p, bytes.n) < 0) { /* no kernel of ours says that */
		log_warn("sandbox=%s interpreter=%s msg=\"its kernel spoke nonsense and is ended\"", in->sandbox->row.id, in->id);
		buf_reset(&in->line);
		run_cancel(in->run, &e);
		return;
	}
	const char *nl;
	size_t at = 0;
	while (in->sandbox && at < in->line.len && (nl = memchr(in->line.data + at, '\n', in->line.len - at))) {
		size_t n = (size_t)(nl - in->line.data) - at;
		kernel_said(in, (struct str){ in->line.data + at, n });
		at += n + 1;
	}
	buf_consume(&in->line, MIN(at, in->line.len));
	if (in->run && in->read - in->forgotten >= KERNEL_FORGET_AFTER) {
		in->forgotten = in->read;
		run_forget(in->run, in->read);
	}
}

/* Why it ended, in words for its user. */
static char *cause_of(const struct interpreter *in, const struct run_view *v)
{
	struct err quiet;
	auto_buf struct buf words;

	buf_init(&words, 256);
	if (v->oom)
		return xstrdup("the kernel was killed: out of memory");
	if (v->truncated)
		return xstrdup("the kernel was ended: the server could not store what it said");
	if (v->state == RUN_FAILED || v->state == RUN_LOST)
		return xasprintf("the kernel %s: %s", in->state == KERNEL_STARTING ? "did not start" : "has ended", v->message ? v->message : "its sandbox went away");
	if (v->signal)
		return xasprintf("the kernel was ended by signal %d (%s)", v->signal, strsignal(v->signal));
	if (in->state != KERNEL_STARTING)
		return xasprintf("the kernel has exited with %d", v->exit_code);
	run_output(in->run, LINK_STDERR, 0, 200, &words, &quiet);
	while (words.len && words.data[words.len - 1] == '\n')
		words.data[--words.len] = '\0';
	return xasprintf("python3 did not start in this sandbox (exit code %d)%s%s", v->exit_code, words.len ? ": " : "", words.len ? words.data : "");
}

static void on_end(void *ctx, const struct run_view *v)
{
	struct interpreter *in = ctx;
	struct err e;
	auto_free char *cause = cause_of(in, v);
	bool stillborn = in->state == KERNEL_STARTING;

	err_set(&e, !stillborn ? ERR_GONE : v->state == RUN_FAILED ? ERR_INVALID : v->exit_code == 127 ? ERR_UNSUPPORTED : ERR_GONE,
	        0, "%s", cause);
	in->state = KERNEL_DEAD;
	in->run = NULL; /* the run may be forgotten from now on */
	if (in->follower)
		follower_free(take_ptr(&in->follower));
	uv_timer_stop(&in->timer);
	buf_reset(&in->input);
	answer_waiters(in, &e);
	executions_lost(in, cause);
	if (stillborn && in->sandbox)
		detach(in, cause);
}

static void follow(struct interpreter *in, uint64_t from)
{
	static const struct follower_events events = { .on_output = on_output, .on_stdin_room = on_stdin_room, .on_end = on_end };

	in->read = in->forgotten = from;
	in->follower = run_follow(in->run, from, 0, &events, in);
}

void kernel_in(struct interpreter *in, const char *cwd)
{
	free(in->cwd);
	in->cwd = xstrdup(cwd && strlen(cwd) <= SPEC_PATH_MAX ? cwd : NULL);
}

void kernel_ready(struct interpreter *in)
{
	if (in->state != KERNEL_STARTING)
		return;
	in->state = KERNEL_IDLE;
	answer_waiters(in, NULL);
	if (in->sandbox)
		executions_next(in);
}

/* --- time --- */

static void on_time(uv_timer_t *t)
{
	struct interpreter *in = t->data;

	if (in->urgency == CALM)
		execution_overdue(in);
	kernel_hurry(in);
}

void kernel_limit(struct interpreter *in, uint64_t ms)
{
	if (ms)
		uv_timer_start(&in->timer, on_time, ms, 0);
}

void kernel_hurry(struct interpreter *in)
{
	struct err quiet; /* unreachable or ended: then its end is told elsewhere */

	if (!in->run)
		return;
	switch (in->urgency) {
	case CALM:
		in->urgency = INTERRUPTED_IT;
		execution_strike(in);
		break;
	case INTERRUPTED_IT: /* it may be waiting for a program that it started */
		in->urgency = INTERRUPTED_ALL;
		run_signal(in->run, SIGINT, true, &quiet);
		break;
	case INTERRUPTED_ALL:
	case KILLED:
		in->urgency = KILLED;
		run_cancel(in->run, &quiet);
		break;
	}
	uv_timer_start(&in->timer, on_time, HURRY_MS, 0);
}

void kernel_calm(struct interpreter *in)
{
	in->urgency = CALM;
	in->state = KERNEL_IDLE;
	uv_timer_stop(&in->timer);
}

/* --- making one --- */

extern const char kernel_program[]; /* kernel.py; kernel_blob.S */

static int start_kernel(struct sandbox *s, const char *id, const char *cwd, struct interpreter **ret, struct err *e)
{
	struct run *run;
	struct run_spec spec;

	json_t *about = json_pack("{s:s, s:s, s:s*}", "id", id, "language", "python", "cwd", cwd);
	auto_free char *text = about ? json_dumps(about, JSON_COMPACT) : NULL;
	json_decref(about);
	if (!text)
		return err_set(e, ERR_INVALID, EINVAL, "cwd: must be UTF-8");
	run_spec_init(&spec);
	const char *const argv[] = { "python3", "-u", "-c", kernel_program, NULL };
	spec.argv = strv_copy((char *const *)(uintptr_t)argv);
	spec.display = xasprintf(DISPLAY "%s", text);
	spec.cwd = xstrdup(cwd);
	spec.stdin_open = spec.detach = true;
	int rc = run_start_kernel(s, &spec, &run, e);
	run_spec_done(&spec);
	if (rc < 0)
		return rc;
	struct interpreter *in = add(s, id, cwd);
	in->run = run;
	follow(in, 0);
	*ret = in;
	return 0;
}

int interpreter_default(struct sandbox *s, struct interpreter **ret, struct err *e)
{
	struct interpreter *in = find(s, INTERPRETER_DEFAULT);

	if (in && in->state == KERNEL_DEAD) {
		detach(in, "the kernel has ended");
		in = NULL;
	}
	if (!in)
		return start_kernel(s, INTERPRETER_DEFAULT, NULL, ret, e);
	*ret = in;
	return 0;
}

void interpreter_create(struct sandbox *s, const struct interpreter_spec *spec, interpreter_done_fn done, void *ctx)
{
	struct err e = { 0 };
	struct interpreter *in = NULL;
	char id[37];

	random_uuid(id);
	if (spec->language && *spec->language && !streq(spec->language, "python"))
		err_set(&e, ERR_UNSUPPORTED, EINVAL, "language: only python has interpreters; run other languages as commands");
	else if (HASH_COUNT(s->interpreters) >= INTERPRETERS_MAX)
		err_set(&e, ERR_LIMIT, EMFILE, "%d interpreters are there already: delete some", INTERPRETERS_MAX);
	else
		start_kernel(s, id, spec->cwd, &in, &e);
	if (!in) {
		done(ctx, &e, NULL);
		return;
	}
	struct interpreter_waiter *w = xcalloc(1, sizeof *w);
	*w = (struct interpreter_waiter){ .done = done, .ctx = ctx };
	LL_APPEND(in->waiters, w);
}

/* --- after a restart, and in a fork's child --- */

void interpreters_adopt(struct sandbox *s, bool copied)
{
	for (struct run *r = sandbox_next_run(s, NULL); r; r = sandbox_next_run(s, r)) {
		if (run_ended(r) || r->finishing || !run_is_kernel(r) || strncmp(r->row.display, DISPLAY, strlen(DISPLAY)) != 0)
			continue;
		json_t *about = json_loads(r->row.display + strlen(DISPLAY), JSON_REJECT_DUPLICATES, NULL);
		const char *id = json_string_value(json_object_get(about, "id"));
		if (id && strlen(id) <= 36 && !find(s, id)) {
			struct interpreter *in = add(s, id, json_string_value(json_object_get(about, "cwd")));
			char question[96];
			in->run = r;
			in->created_ms = r->row.started_ms;
			in->state = KERNEL_ASKED;
			in->asked = ++in->serial;
			follow(in, spool_total(&r->out[0]));
			snprintf(question, sizeof question, "\n{\"op\":\"ping\",\"n\":%llu,\"copied\":%s}\n", (unsigned long long)in->asked, copied ? "true" : "false");
			kernel_say(in, question); /* the first newline ends what the daemon before may have left half said */
		}
		json_decref(about);
	}
}
