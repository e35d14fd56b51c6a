/* The verbs of runs and sessions. */
#include "api/api_int.h"

#include <errno.h>

static struct run *lookup_run(struct api *a, const struct caller *c, const char *ref, const char *run, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);
	struct run *r = s ? sandbox_find_run(s, run) : NULL;

	if (s && !r)
		err_set(e, ERR_NOT_FOUND, ENOENT, "no run '%.64s' is known (ended runs are forgotten after a while)", run);
	return r;
}

static void answer_run(void *ctx, const struct err *e, struct run *r)
{
	struct call *c = ctx;
	struct run_view v;

	if (api_call_end(c)) {
		if (r)
			run_view(r, &v);
		c->fn.run(c->ctx, e, r && !e ? &v : NULL);
	}
	free(c);
}

/* --- runs --- */

void api_run_start(struct api *a, const struct caller *c, const char *ref, const struct run_spec *spec, api_run_fn done, void *ctx)
{
	struct err e;
	struct run_view v;
	struct run *r;
	struct sandbox *s = api_lookup(a, c, ref, &e);

	api_act(a, c);
	int rc = s ? sandbox_run(s, spec, &r, &e) : -ENOENT;
	api_act(a, NULL);
	if (rc < 0) {
		done(ctx, &e, NULL);
		return;
	}
	run_view(r, &v);
	done(ctx, NULL, &v);
}

int api_run_get(struct api *a, const struct caller *c, const char *ref, const char *run, struct run_view *ret, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	if (!r)
		return -ENOENT;
	run_view(r, ret);
	return 0;
}

int api_run_list(struct api *a, const struct caller *c, const char *ref, const char *session, void (*each)(void *ctx, const struct run_view *r),
                 void *ctx, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);
	struct run_view v;

	if (!s)
		return -ENOENT;
	for (struct run *r = sandbox_next_run(s, NULL); r; r = sandbox_next_run(s, r)) {
		run_view(r, &v);
		if (!session || streq(v.session, session))
			each(ctx, &v);
	}
	return 0;
}

void api_run_wait(struct api *a, const struct caller *c, const char *ref, const char *run, api_run_fn done, void *ctx)
{
	struct err e;
	struct run *r = lookup_run(a, c, ref, run, &e);

	if (!r) {
		done(ctx, &e, NULL);
		return;
	}
	struct call *call = api_call(a, ctx);
	call->fn.run = done;
	run_wait(r, answer_run, call);
}

int api_run_output(struct api *a, const struct caller *c, const char *ref, const char *run, int stream, uint64_t offset, size_t max,
                   struct buf *out, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	return r ? run_output(r, stream, offset, max, out, e) : -ENOENT;
}

static void say_of_run(struct api *a, const struct caller *c, const char *type, const char *ref, const char *run, int signo)
{
	struct sandbox_view v;

	sandbox_view(core_find(a->core, c->tenant, ref), &v);
	struct audit_line *l = api_line(a, c, type, v.id);
	audit_text(l, "run", run);
	if (signo)
		audit_u64(l, "signal", (uint64_t)(signo & 0xff));
	api_line_end(a);
}

int api_run_cancel(struct api *a, const struct caller *c, const char *ref, const char *run, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	if (r)
		say_of_run(a, c, "run.cancel", ref, run, 0);
	return r ? run_cancel(r, e) : -ENOENT;
}

int api_run_signal(struct api *a, const struct caller *c, const char *ref, const char *run, int signo, bool tree, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	if (r)
		say_of_run(a, c, "run.signal", ref, run, signo);
	return r ? run_signal(r, signo, tree, e) : -ENOENT;
}

int api_run_resize(struct api *a, const struct caller *c, const char *ref, const char *run, uint16_t rows, uint16_t cols, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	return r ? run_resize(r, rows, cols, e) : -ENOENT;
}

int api_run_set_display(struct api *a, const struct caller *c, const char *ref, const char *run, const char *display, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	return r ? run_set_display(r, display, e) : -ENOENT;
}

ssize_t api_run_write(struct api *a, const struct caller *c, const char *ref, const char *run, struct str bytes, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	return r ? run_write(r, bytes, e) : -ENOENT;
}

int api_run_close_stdin(struct api *a, const struct caller *c, const char *ref, const char *run, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	return r ? run_close_stdin(r, e) : -ENOENT;
}

struct follower *api_run_follow(struct api *a, const struct caller *c, const char *ref, const char *run, uint64_t stdout_offset,
                                uint64_t stderr_offset, const struct follower_events *ev, void *ctx, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	return r ? run_follow(r, stdout_offset, stderr_offset, ev, ctx) : NULL;
}

/* --- sessions --- */

void api_session_create(struct api *a, const struct caller *c, const char *ref, const char *id, const char *cwd, const struct pairs *env,
                        api_done_fn done, void *ctx)
{
	struct err e;
	struct sandbox *s = api_lookup(a, c, ref, &e);

	if (!s) {
		done(ctx, &e);
		return;
	}
	struct call *call = api_call(a, ctx);
	call->fn.done = done;
	api_say(a, c, "session.create", s);
	session_create(s, id, cwd, env, api_answer_done, call);
}

int api_session_list(struct api *a, const struct caller *c, const char *ref, void (*each)(void *ctx, const struct session_view *s), void *ctx,
                     struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	if (!s)
		return -ENOENT;
	session_each(s, each, ctx);
	return 0;
}

int api_session_get(struct api *a, const struct caller *c, const char *ref, const char *id, struct session_view *ret, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	if (!s)
		return -ENOENT;
	return session_get(s, id, ret) < 0 ? err_set(e, ERR_NOT_FOUND, ENOENT, "no session '%.64s' is there", id) : 0;
}

void api_session_delete(struct api *a, const struct caller *c, const char *ref, const char *id, api_done_fn done, void *ctx)
{
	struct err e;
	struct sandbox *s = api_lookup(a, c, ref, &e);

	if (!s) {
		done(ctx, &e);
		return;
	}
	struct call *call = api_call(a, ctx);
	call->fn.done = done;
	api_say(a, c, "session.delete", s);
	session_delete(s, id, api_answer_done, call);
}
