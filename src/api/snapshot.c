/* The verbs of snapshots and forks. A snapshot of another tenant is "not found", as a sandbox is. */
#include "api/api_int.h"

#include <errno.h>

static struct snapshot *look_up(struct api *a, const struct caller *c, const char *ref, struct err *e)
{
	struct snapshot *p = ref && *ref && strlen(ref) <= SNAPSHOT_NAME_MAX ? core_find_snapshot(a->core, c->tenant, ref) : NULL;

	if (!p)
		err_set(e, ERR_NOT_FOUND, ENOENT, "snapshot '%.128s' not found", ref ? ref : "");
	return p;
}

static void answer_snapshot(void *ctx, const struct err *e, struct snapshot *p)
{
	struct call *c = ctx;
	struct snapshot_view v;

	if (api_call_end(c)) {
		if (p)
			snapshot_view(p, &v);
		c->fn.snapshot(c->ctx, e, p && !e ? &v : NULL);
	}
	free(c);
}

void api_snapshot_create(struct api *a, const struct caller *c, const char *ref, const char *name, bool memory, const char *extra, api_snapshot_fn done,
                         void *ctx)
{
	struct err e;
	struct sandbox *s = api_lookup(a, c, ref, &e);

	if (!s) {
		done(ctx, &e, NULL);
		return;
	}
	struct call *call = api_call(a, ctx);
	struct sandbox_view v;
	sandbox_view(s, &v);
	struct audit_line *l = api_line(a, c, "snapshot.create", v.id);
	audit_text(l, "name", name);
	audit_flag(l, "memory", memory);
	api_line_end(a);
	call->fn.snapshot = done;
	sandbox_snapshot(s, c->key_id, name, memory, extra, answer_snapshot, call);
}

int api_snapshot_get(struct api *a, const struct caller *c, const char *ref, struct snapshot_view *ret, struct err *e)
{
	struct snapshot *p = look_up(a, c, ref, e);

	if (!p)
		return -ENOENT;
	snapshot_view(p, ret);
	return 0;
}

void api_snapshot_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct snapshot_view *v), void *ctx)
{
	struct snapshot_view v;

	for (struct snapshot *p = core_next_snapshot(a->core, NULL); p; p = core_next_snapshot(a->core, p)) {
		if (!streq(snapshot_tenant(p), c->tenant))
			continue;
		snapshot_view(p, &v);
		each(ctx, &v);
	}
}

int api_snapshot_set_extra(struct api *a, const struct caller *c, const char *ref, const char *extra, struct err *e)
{
	struct snapshot *p = look_up(a, c, ref, e);

	return p ? snapshot_set_extra(p, extra, e) : -ENOENT;
}

static void answer_done(void *ctx, const struct err *e)
{
	api_answer_done(ctx, e, NULL);
}

void api_snapshot_delete(struct api *a, const struct caller *c, const char *ref, api_done_fn done, void *ctx)
{
	struct err e;
	struct snapshot *p = look_up(a, c, ref, &e);

	if (!p) {
		done(ctx, &e);
		return;
	}
	struct call *call = api_call(a, ctx);
	struct snapshot_view v;
	snapshot_view(p, &v);
	audit_text(api_line(a, c, "snapshot.delete", NULL), "snapshot", v.id);
	api_line_end(a);
	call->fn.done = done;
	snapshot_delete(p, answer_done, call);
}

static void answer_fork(void *ctx, const struct err *e, struct sandbox *const *children, size_t n)
{
	struct call *c = ctx;

	if (api_call_end(c)) {
		struct sandbox_view *v = xcalloc(n + 1, sizeof *v);
		for (size_t i = 0; i < n; i++)
			sandbox_view(children[i], &v[i]);
		c->fn.fork(c->ctx, e, v, n);
		free(v);
	}
	free(c);
}

void api_sandbox_fork(struct api *a, const struct caller *c, const char *ref, size_t count, const char *name, api_fork_fn done, void *ctx)
{
	struct err e;
	struct sandbox *s = api_lookup(a, c, ref, &e);

	if (!s) {
		done(ctx, &e, NULL, 0);
		return;
	}
	struct call *call = api_call(a, ctx);
	api_say(a, c, "sandbox.fork", s);
	call->fn.fork = done;
	sandbox_fork(s, c->key_id, count, name, answer_fork, call);
}
