/* The verbs: authentication, tenancy, look-up by id or name, and the way back to the asker.
 *
 * An asynchronous verb makes a `struct call`, which core's answer finds again. api_forget marks the calls of an asker that
 * has gone: their answers come, and are dropped. */
#include "api/api_int.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <uthash.h>
#include <utlist.h>

struct call {
	struct api *api;
	void *ctx; /* the asker; key of the hash */
	union {
		api_sandbox_fn sandbox;
		api_done_fn done;
		api_run_fn run;
		api_usage_fn usage;
	} fn;
	struct call *same_prev, *same_next; /* further calls of the same asker (utlist) */
};

struct asker {
	void *ctx;
	struct call *calls;
	UT_hash_handle hh;
};

struct api {
	uv_loop_t *loop;
	struct core *core;
	struct asker *askers;
	struct image last_image; /* behind the view of api_image_get */
	const char *boundaries[8];
	struct resources defaults;
};

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

static struct call *call_new(struct api *a, void *ctx)
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
	DL_APPEND2(k->calls, c, same_prev, same_next);
	return c;
}

static void asker_forget(struct api *a, struct asker *k)
{
	HASH_DEL(a->askers, k);
	free(k);
}

/* Takes the call off its asker's list. Returns whether there still is somebody to tell; frees nothing. */
static bool call_end(struct call *c)
{
	struct asker *k;

	if (!c->api)
		return false;
	HASH_FIND_PTR(c->api->askers, &c->ctx, k);
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
		c->api = NULL; /* forgotten */
	asker_forget(a, k);
}

static void answer_sandbox(void *ctx, const struct err *e, struct sandbox *s)
{
	struct call *c = ctx;
	struct sandbox_view v;

	if (call_end(c)) {
		if (s)
			sandbox_view(s, &v);
		c->fn.sandbox(c->ctx, e, s && !e ? &v : NULL);
	}
	free(c);
}

static void answer_done(void *ctx, const struct err *e, struct sandbox *s)
{
	struct call *c = ctx;

	(void)s;
	if (call_end(c))
		c->fn.done(c->ctx, e);
	free(c);
}

static void answer_run(void *ctx, const struct err *e, struct run *r)
{
	struct call *c = ctx;
	struct run_view v;

	if (call_end(c)) {
		if (r)
			run_view(r, &v);
		c->fn.run(c->ctx, e, r && !e ? &v : NULL);
	}
	free(c);
}

static void answer_usage(void *ctx, const struct err *e, const struct usage *u)
{
	struct call *c = ctx;

	if (call_end(c))
		c->fn.usage(c->ctx, e, u);
	free(c);
}

/* --- look-ups --- */

struct sandbox *api_lookup(struct api *a, const struct caller *c, const char *ref, struct err *e)
{
	struct sandbox *s = ref && *ref && strlen(ref) <= 128 ? core_find(a->core, c->tenant, ref) : NULL;

	if (!s)
		err_set(e, ERR_NOT_FOUND, ENOENT, "sandbox '%.64s' not found", ref ? ref : "");
	return s;
}

static struct run *lookup_run(struct api *a, const struct caller *c, const char *ref, const char *run, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);
	struct run *r = s ? sandbox_find_run(s, run) : NULL;

	if (s && !r)
		err_set(e, ERR_NOT_FOUND, ENOENT, "no run '%.64s' is known (ended runs are forgotten after a while)", run);
	return r;
}

static int need_operator(const struct caller *c, struct err *e)
{
	if (!c->operator_)
		return err_set(e, ERR_DENIED, EPERM, "this needs an operator's key");
	return 0;
}

/* --- keys --- */

static void caller_of(const struct key_row *row, struct caller *ret)
{
	*ret = (struct caller){ .operator_ = row->operator_ };
	snprintf(ret->key_id, sizeof ret->key_id, "%s", row->id);
	snprintf(ret->tenant, sizeof ret->tenant, "%s", row->tenant);
}

int api_authenticate(struct api *a, struct str key, struct caller *ret, struct err *e)
{
	const struct key_row *row;
	int rc = keys_check(core_keys(a->core), key, &row, e);

	if (rc == 0)
		caller_of(row, ret);
	return rc;
}

static void owner_of(struct sandbox *s, const struct sandbox_view *v, struct caller *ret)
{
	*ret = (struct caller){ .operator_ = false };
	snprintf(ret->key_id, sizeof ret->key_id, "%s", v->owner);
	snprintf(ret->tenant, sizeof ret->tenant, "%s", sandbox_tenant(s));
}

int api_authenticate_preview(struct api *a, const char *ref, struct str token, struct caller *ret, struct err *e)
{
	struct sandbox *s = core_find(a->core, NULL, ref);
	struct sandbox_view v;

	if (s) {
		sandbox_view(s, &v);
		if (token.n == strlen(v.preview_token) && CRYPTO_memcmp(token.p, v.preview_token, token.n) == 0) {
			owner_of(s, &v, ret);
			return 0;
		}
	}
	return err_set(e, ERR_UNAUTHENTICATED, EACCES, "this preview token is not valid");
}

int api_owner_of(struct api *a, const char *id, struct caller *ret, struct err *e)
{
	struct sandbox *s = core_find(a->core, NULL, id);
	struct sandbox_view v;

	if (!s)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "sandbox '%.64s' not found", id);
	sandbox_view(s, &v);
	owner_of(s, &v, ret);
	return 0;
}

int api_key_create(struct api *a, const struct caller *c, const char *name, const char *tenant, bool operator_, char ret_key[static 48],
                   char ret_id[static 40], struct err *e)
{
	int rc = need_operator(c, e);

	return rc < 0 ? rc : keys_create(core_keys(a->core), name ? name : "", tenant ? tenant : c->tenant, operator_, ret_key, ret_id, e);
}

struct key_each {
	void (*each)(void *ctx, const struct key_view *k);
	void *ctx;
};

static int each_key(void *ctx, const struct key_row *row)
{
	struct key_each *k = ctx;
	struct key_view v = { row->id, row->name, row->tenant, row->operator_, row->revoked, row->created_ms, row->used_ms };

	k->each(k->ctx, &v);
	return 0;
}

int api_key_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct key_view *k), void *ctx, struct err *e)
{
	struct key_each k = { each, ctx };
	int rc = need_operator(c, e);

	return rc < 0 ? rc : store_key_each(core_store(a->core), each_key, &k);
}

int api_key_revoke(struct api *a, const struct caller *c, const char *id, struct err *e)
{
	int rc = need_operator(c, e);

	return rc < 0 ? rc : keys_revoke(core_keys(a->core), id, e);
}

/* --- sandboxes --- */

void api_sandbox_create(struct api *a, const struct caller *c, const struct sandbox_spec *spec, api_sandbox_fn done, void *ctx)
{
	struct call *call = call_new(a, ctx);

	call->fn.sandbox = done;
	core_create(a->core, c->tenant, c->key_id, spec, answer_sandbox, call);
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

typedef void (*transition_fn)(struct sandbox *s, sandbox_done_fn done, void *ctx);

static void transition(struct api *a, const struct caller *c, const char *ref, transition_fn begin, api_sandbox_fn done, void *ctx)
{
	struct err e;
	struct sandbox *s = api_lookup(a, c, ref, &e);

	if (!s) {
		done(ctx, &e, NULL);
		return;
	}
	struct call *call = call_new(a, ctx);
	call->fn.sandbox = done;
	begin(s, answer_sandbox, call);
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

void api_sandbox_resume(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx)
{
	transition(a, c, ref, sandbox_resume, done, ctx);
}

void api_sandbox_delete(struct api *a, const struct caller *c, const char *ref, api_done_fn done, void *ctx)
{
	struct err e;
	struct sandbox *s = api_lookup(a, c, ref, &e);

	if (!s) {
		done(ctx, &e);
		return;
	}
	struct call *call = call_new(a, ctx);
	call->fn.done = done;
	sandbox_delete(s, answer_done, call);
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
	struct call *call = call_new(a, ctx);
	call->fn.usage = done;
	sandbox_usage(s, answer_usage, call);
}

/* --- runs --- */

void api_run_start(struct api *a, const struct caller *c, const char *ref, const struct run_spec *spec, api_run_fn done, void *ctx)
{
	struct err e;
	struct run_view v;
	struct run *r;
	struct sandbox *s = api_lookup(a, c, ref, &e);

	if (!s || sandbox_run(s, spec, &r, &e) < 0) {
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
	struct call *call = call_new(a, ctx);
	call->fn.run = done;
	run_wait(r, answer_run, call);
}

int api_run_output(struct api *a, const struct caller *c, const char *ref, const char *run, int stream, uint64_t offset, size_t max,
                   struct buf *out, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	return r ? run_output(r, stream, offset, max, out, e) : -ENOENT;
}

int api_run_cancel(struct api *a, const struct caller *c, const char *ref, const char *run, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	return r ? run_cancel(r, e) : -ENOENT;
}

int api_run_signal(struct api *a, const struct caller *c, const char *ref, const char *run, int signo, bool tree, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	return r ? run_signal(r, signo, tree, e) : -ENOENT;
}

int api_run_resize(struct api *a, const struct caller *c, const char *ref, const char *run, uint16_t rows, uint16_t cols, struct err *e)
{
	struct run *r = lookup_run(a, c, ref, run, e);

	return r ? run_resize(r, rows, cols, e) : -ENOENT;
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
	struct call *call = call_new(a, ctx);
	call->fn.done = done;
	session_create(s, id, cwd, env, answer_done, call);
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
	struct call *call = call_new(a, ctx);
	call->fn.done = done;
	session_delete(s, id, answer_done, call);
}

/* --- images, server --- */

static void view_image(const struct image *i, struct image_view *ret)
{
	*ret = (struct image_view){
		.digest = i->digest,
		.names = (const char *const *)i->names,
		.size_bytes = i->size_bytes,
		.created_ms = i->created_ms,
		.user = i->user,
		.workdir = i->workdir,
	};
}

struct image_each_call {
	void (*each)(void *ctx, const struct image_view *v);
	void *ctx;
};

static void each_image(void *ctx, const struct image *i)
{
	struct image_each_call *call = ctx;
	struct image_view v;

	view_image(i, &v);
	call->each(call->ctx, &v);
}

int api_image_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct image_view *v), void *ctx, struct err *e)
{
	struct image_each_call call = { each, ctx };

	(void)c;
	return image_each(core_images(a->core), each_image, &call, e);
}

int api_image_get(struct api *a, const struct caller *c, const char *ref, struct image_view *ret, struct err *e)
{
	struct image image = { 0 };

	(void)c;
	int rc = image_resolve(core_images(a->core), ref, &image, e);
	if (rc < 0)
		return rc;
	image_done(&a->last_image);
	a->last_image = image;
	view_image(&a->last_image, ret);
	return 0;
}

int api_image_remove(struct api *a, const struct caller *c, const char *ref, struct err *e)
{
	struct image_view v;

	int rc = need_operator(c, e);
	if (rc == 0)
		rc = api_image_get(a, c, ref, &v, e);
	if (rc == 0) /* the daemon has no right to write the images folder, by design */
		rc = err_set(e, ERR_UNSUPPORTED, EOPNOTSUPP, "images are removed on the server's own machine, by: caisson image rm %.64s", ref);
	return rc;
}

int api_info(struct api *a, struct server_info *ret)
{
	const struct core_options *o = core_get_options(a->core);
	size_t running, n = MIN(o->n_boundaries, ARRAY_LEN(a->boundaries) - 1);

	for (size_t i = 0; i < n; i++)
		a->boundaries[i] = o->boundaries[i]->ops->name;
	a->boundaries[n] = NULL;
	a->defaults = (struct resources){ 0 };
	resources_fill(&a->defaults, false);
	*ret = (struct server_info){
		.version = CAISSON_VERSION,
		.default_boundary = a->boundaries[0],
		.boundaries = a->boundaries,
		.caps = n ? o->boundaries[0]->ops->caps : 0,
		.sandboxes = core_count(a->core, &running),
		.defaults = &a->defaults,
	};
	ret->running = running;
	return 0;
}

struct subscription *api_subscribe(struct api *a, const struct caller *c, void (*on_event)(void *ctx, const struct event_view *ev), void *ctx)
{
	return core_subscribe(a->core, c->tenant, on_event, ctx);
}
