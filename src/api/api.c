/* The verbs of sandboxes; look-up by id or name within the tenant, and the way back to the asker.
 *
 * An asynchronous verb makes a `struct call`, which core's answer finds again. api_forget marks the calls of an asker that
 * has gone: their answers come, and are dropped. */
#include "api/api_int.h"

#include <errno.h>
#include <utlist.h>

struct api *api_new(uv_loop_t *loop, struct core *core)
{
	struct api *a = xcalloc(1, sizeof *a);

	a->loop = loop;
	a->core = core;
	return a;
}

void api_free(struct api *a)
{
	struct asker *k, *next;

	if (!a)
		return;
	HASH_ITER (hh, a->askers, k, next)
		api_forget(a, k->ctx); /* the calls themselves belong to core's answers */
	image_done(&a->last_image);
	free(a);
}

/* --- calls --- */

struct call *api_call(struct api *a, void *ctx)
{
	struct call *c = xcalloc(1, sizeof *c);
	struct asker *k;

	c->api = a;
	c->ctx = ctx;
	HASH_FIND_PTR(a->askers, &ctx, k);
	if (!k) {
		k = xcalloc(1, sizeof *k);
		k->ctx = ctx;
		HASH_ADD_PTR(a->askers, ctx, k);
	}
	c->asker = k;
	DL_APPEND2(k->calls, c, same_prev, same_next);
	return c;
}

static void asker_forget(struct api *a, struct asker *k)
{
	HASH_DEL(a->askers, k);
	free(k);
}

bool api_call_end(struct call *c)
{
	struct asker *k = c->asker;

	if (!k)
		return false;
	DL_DELETE2(k->calls, c, same_prev, same_next);
	if (!k->calls)
		asker_forget(c->api, k);
	return true;
}

void api_forget(struct api *a, void *ctx)
{
	struct call *c, *next;
	struct asker *k;

	HASH_FIND_PTR(a->askers, &ctx, k);
	if (!k)
		return;
	DL_FOREACH_SAFE2 (k->calls, c, next, same_next)
		c->asker = NULL; /* forgotten */
	asker_forget(a, k);
}

static void answer_sandbox(void *ctx, const struct err *e, struct sandbox *s)
{
	struct call *c = ctx;
	struct sandbox_view v;

	if (api_call_end(c)) {
		if (s)
			sandbox_view(s, &v);
		c->fn.sandbox(c->ctx, e, s && !e ? &v : NULL);
	}
	free(c);
}

void api_answer_done(void *ctx, const struct err *e, struct sandbox *s)
{
	struct call *c = ctx;

	(void)s;
	if (api_call_end(c))
		c->fn.done(c->ctx, e);
	free(c);
}

static void answer_usage(void *ctx, const struct err *e, const struct usage *u)
{
	struct call *c = ctx;

	if (api_call_end(c))
		c->fn.usage(c->ctx, e, u);
	free(c);
}

/* --- the audit log --- */

struct audit_line *api_line(struct api *a, const struct caller *c, const char *type, const char *sandbox)
{
	api_act(a, c);
	return core_audit_begin(a->core, type, c->tenant, sandbox);
}

void api_line_end(struct api *a)
{
	core_audit_end(a->core);
	api_act(a, NULL);
}

void api_say(struct api *a, const struct caller *c, const char *type, const struct sandbox *s)
{
	struct sandbox_view v;

	sandbox_view(s, &v);
	api_line(a, c, type, v.id);
	api_line_end(a);
}

/* --- look-ups --- */

struct sandbox *api_lookup(struct api *a, const struct caller *c, const char *ref, struct err *e)
{
	struct sandbox *s = ref && *ref && strlen(ref) <= 128 ? core_find(a->core, c->tenant, ref) : NULL;

	if (!s)
		err_set(e, ERR_NOT_FOUND, ENOENT, "sandbox '%.64s' not found", ref ? ref : "");
	return s;
}

/* --- sandboxes --- */

void api_sandbox_create(struct api *a, const struct caller *c, const struct sandbox_spec *spec, api_sandbox_fn done, void *ctx)
{
	struct call *call = api_call(a, ctx);

	call->fn.sandbox = done;
	api_act(a, c);
	core_create(a->core, c->tenant, c->key_id, spec, answer_sandbox, call);
	api_act(a, NULL);
}

int api_sandbox_get(struct api *a, const struct caller *c, const char *ref, struct sandbox_view *ret, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	if (!s)
		return -ENOENT;
	sandbox_view(s, ret);
	return 0;
}

static bool matches(const struct sandbox_query *q, const struct sandbox_view *v)
{
	if (q->states && !(q->states & 1U << v->state))
		return false;
	if (q->id_prefix && strncmp(v->id, q->id_prefix, strlen(q->id_prefix)) != 0)
		return false;
	if (q->name_prefix && strncmp(v->name, q->name_prefix, strlen(q->name_prefix)) != 0)
		return false;
	for (size_t i = 0; i < q->labels.n; i++) {
		if (!streq(pairs_get(&v->spec->labels, q->labels.v[i].key), q->labels.v[i].value))
			return false;
	}
	return true;
}

/* Both ways through the table; the cursor is the sequence number of the last one given. */
int api_sandbox_list(struct api *a, const struct caller *c, const struct sandbox_query *q,
                     void (*each)(void *ctx, const struct sandbox_view *v), void *ctx, char **ret_next, uint64_t *ret_total, struct err *e)
{
	uint64_t after = 0, total = 0, skip = q->skip;
	size_t limit = q->limit ? q->limit : 100, given = 0;
	struct sandbox_view v;
	char *next = NULL;

	if (limit > 1000)
		return err_set(e, ERR_INVALID, EINVAL, "limit: 1 to 1000");
	if (q->cursor && parse_u64(str_of(q->cursor), UINT64_MAX, &after) < 0)
		return err_set(e, ERR_INVALID, EINVAL, "cursor: not one that this server gave");
	for (struct sandbox *s = core_walk(a->core, NULL, q->newest_first); s; s = core_walk(a->core, s, q->newest_first)) {
		if (!streq(sandbox_tenant(s), c->tenant))
			continue;
		sandbox_view(s, &v);
		if (!matches(q, &v))
			continue;
		total++;
		if (q->cursor && (q->newest_first ? sandbox_seq(s) >= after : sandbox_seq(s) <= after))
			continue;
		if (skip > 0) {
			skip--;
		} else if (given < limit) {
			each(ctx, &v);
			if (++given == limit) {
				free(next);
				next = xasprintf("%llu", (unsigned long long)sandbox_seq(s));
			}
		} else {
			given = limit + 1; /* there is more */
			if (!ret_total)
				break;
		}
	}
	if (given <= limit)
		free(take_ptr(&next));
	if (ret_next)
		*ret_next = next;
	else
		free(next);
	if (ret_total)
		*ret_total = total;
	return 0;
}

/* What is asked of one sandbox, and answered with it: until api_act(a, NULL) audit lines carry the caller's key. NULL: there is none, and done knows. */
static struct call *begin(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx, struct sandbox **ret)
{
	struct err e;

	*ret = api_lookup(a, c, ref, &e);
	if (!*ret) {
		done(ctx, &e, NULL);
		return NULL;
	}
	struct call *call = api_call(a, ctx);
	call->fn.sandbox = done;
	api_act(a, c);
	return call;
}

typedef void (*transition_fn)(struct sandbox *s, sandbox_done_fn done, void *ctx);

static void transition(struct api *a, const struct caller *c, const char *ref, transition_fn go, api_sandbox_fn done, void *ctx)
{
	struct sandbox *s;
	struct call *call = begin(a, c, ref, done, ctx, &s);

	if (!call)
		return;
	go(s, answer_sandbox, call);
	api_act(a, NULL);
}

void api_sandbox_start(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx)
{
	transition(a, c, ref, sandbox_start, done, ctx);
}

void api_sandbox_stop(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx)
{
	transition(a, c, ref, sandbox_stop, done, ctx);
}

void api_sandbox_pause(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx)
{
	transition(a, c, ref, sandbox_pause, done, ctx);
}

void api_sandbox_suspend(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx)
{
	transition(a, c, ref, sandbox_suspend, done, ctx);
}

void api_sandbox_resume(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx)
{
	transition(a, c, ref, sandbox_resume, done, ctx);
}

void api_sandbox_resize(struct api *a, const struct caller *c, const char *ref, const struct resources *r, api_sandbox_fn done, void *ctx)
{
	struct sandbox *s;
	struct call *call = begin(a, c, ref, done, ctx, &s);

	if (!call)
		return;
	api_say(a, c, "sandbox.resize", s);
	sandbox_resize(s, r, answer_sandbox, call);
}

void api_sandbox_delete(struct api *a, const struct caller *c, const char *ref, api_done_fn done, void *ctx)
{
	struct err e;
	struct sandbox *s = api_lookup(a, c, ref, &e);

	if (!s) {
		done(ctx, &e);
		return;
	}
	struct call *call = api_call(a, ctx);
	call->fn.done = done;
	api_act(a, c);
	sandbox_delete(s, api_answer_done, call);
	api_act(a, NULL);
}

int api_sandbox_set_labels(struct api *a, const struct caller *c, const char *ref, const struct pairs *labels, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	return s ? sandbox_set_labels(s, labels, e) : -ENOENT;
}

int api_sandbox_set_env(struct api *a, const struct caller *c, const char *ref, const struct pairs *set, char *const *unset, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	return s ? sandbox_set_env(s, set, unset, e) : -ENOENT;
}

int api_sandbox_set_lifetime(struct api *a, const struct caller *c, const char *ref, const struct lifetime *l, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	return s ? sandbox_set_lifetime(s, l, e) : -ENOENT;
}

void api_sandbox_set_network(struct api *a, const struct caller *c, const char *ref, enum network_mode mode, char *const *allow,
                             char *const *deny, const struct network_limits *limits, api_sandbox_fn done, void *ctx)
{
	struct sandbox *s;
	struct call *call = begin(a, c, ref, done, ctx, &s);

	if (!call)
		return;
	sandbox_set_network(s, mode, allow, deny, limits, answer_sandbox, call);
	api_act(a, NULL);
}

void api_sandbox_set_secrets(struct api *a, const struct caller *c, const char *ref, const struct pairs *env, const struct pairs *files,
                             api_sandbox_fn done, void *ctx)
{
	struct sandbox *s;
	struct call *call = begin(a, c, ref, done, ctx, &s);

	if (!call)
		return;
	sandbox_set_secrets(s, env, files, answer_sandbox, call);
	api_act(a, NULL);
}

void api_sandbox_set_permissions(struct api *a, const struct caller *c, const char *ref, char *const *rules, api_sandbox_fn done, void *ctx)
{
	struct sandbox *s;
	struct call *call = begin(a, c, ref, done, ctx, &s);

	if (!call)
		return;
	sandbox_set_permissions(s, rules, answer_sandbox, call);
	api_act(a, NULL);
}

int api_sandbox_set_extra(struct api *a, const struct caller *c, const char *ref, const char *extra, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	return s ? sandbox_set_extra(s, extra, e) : -ENOENT;
}

int api_sandbox_touch(struct api *a, const struct caller *c, const char *ref, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	if (!s)
		return -ENOENT;
	sandbox_touch(s);
	return 0;
}

void api_sandbox_usage(struct api *a, const struct caller *c, const char *ref, api_usage_fn done, void *ctx)
{
	struct err e;
	struct sandbox *s = api_lookup(a, c, ref, &e);

	if (!s) {
		done(ctx, &e, NULL);
		return;
	}
	struct call *call = api_call(a, ctx);
	call->fn.usage = done;
	sandbox_usage(s, answer_usage, call);
}
