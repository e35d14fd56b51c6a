/* The table of sandboxes: adding, finding, adopting after a restart, the once-a-second sweep, events. */
#include "core/core_int.h"

#include "base/log.h"
#include "core/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SANDBOXES = 20000 };

static void on_deliver(uv_idle_t *h)
{
	struct core *c = h->data;

	run_deliver_ready(c);
	audit_tell(c);
	if (!c->ready)
		uv_idle_stop(h);
}

void core_deliver_soon(struct core *c)
{
	if (!uv_is_active((uv_handle_t *)&c->deliver))
		uv_idle_start(&c->deliver, on_deliver);
}

static void on_save(uv_timer_t *h)
{
	runs_save_ended(h->data);
}

void core_save_soon(struct core *c)
{
	if (!uv_is_active((uv_handle_t *)&c->save))
		uv_timer_start(&c->save, on_save, SAVE_AFTER_MS, 0);
}

static void on_sweep(uv_timer_t *h)
{
	struct core *c = h->data;
	struct sandbox *s, *next;
	uint64_t now = now_unix_ms(), since = now_ms() - c->swept_ms;

	/* A sweep that comes much too late: we did not run, and the guests likely neither, so they have not had that time. */
	uint64_t lost = since > 5 * SWEEP_MS ? since - SWEEP_MS : 0;
	c->swept_ms = now_ms();
	pool_excuse(c, lost);
	HASH_ITER (hh_id, c->by_id, s, next) {
		if (s->hello_deadline_ms)
			s->hello_deadline_ms += lost;
		if (s->answer_by_ms)
			s->answer_by_ms += lost;
		audit_sweep_box(s);
		doors_sweep(s);
		if (s->link)
			link_sweep(s->link);
		lifecycle_sweep(s, now); /* may remove s, never another */
	}
	pool_sweep(c);
	audit_sweep(c);
	webhooks_sweep(c);
	if (c->next_event == c->swept_event)
		store_idle(c->o.store); /* nothing has begun or ended since the last time: a good moment to fold its log */
	c->swept_event = c->next_event;
}

struct core *core_new(uv_loop_t *loop, const struct core_options *o)
{
	struct core *c = xcalloc(1, sizeof *c);
	auto_free char *runs = xasprintf("%s/runs", o->data_dir);

	c->loop = loop;
	c->o = *o;
	if (c->o.max_sandboxes == 0)
		c->o.max_sandboxes = MAX_SANDBOXES;
	c->keys = keys_new(o->store);
	c->audit = audit_state_new(c);
	c->webhooks = webhooks_new();
	c->pool = pool_new(c);
	c->secrets = secrets_new(o->store, o->data_dir);
	secrets_serve(c);
	if (mkdir(runs, 0700) < 0 && errno != EEXIST)
		log_error("msg=\"cannot make %s: %s\"", runs, strerror(errno));
	c->runs_dir = open(runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uv_idle_init(loop, &c->deliver);
	uv_timer_init(loop, &c->sweep);
	uv_timer_init(loop, &c->save);
	c->deliver.data = c->sweep.data = c->save.data = c;
	c->handles += 3;
	c->swept_ms = now_ms();
	uv_timer_start(&c->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
	for (size_t i = 0; i < o->n_boundaries; i++) {
		o->boundaries[i]->on_exit = lifecycle_boundary_exit;
		o->boundaries[i]->on_exit_ctx = c;
	}
	return c;
}

void core_handle_closed(struct core *c)
{
	if (--c->handles == 0 && c->closed)
		c->closed(c->closed_ctx);
}

static void on_handle_closed(uv_handle_t *h)
{
	core_handle_closed(h->data);
}

static void close_handles(void *ctx)
{
	struct core *c = ctx;

	uv_close((uv_handle_t *)&c->deliver, on_handle_closed);
	uv_close((uv_handle_t *)&c->sweep, on_handle_closed);
	uv_close((uv_handle_t *)&c->save, on_handle_closed);
	pool_close_handle(c, on_handle_closed);
}

void core_close(struct core *c, bool lost, void (*done)(void *ctx), void *ctx)
{
	struct sandbox *s, *next;

	HASH_ITER (hh_id, c->by_id, s, next) {
		interpreters_end(s, "the server ends");
		doors_close(s);
		if (s->link) {
			link_free(s->link);
			s->link = NULL;
			s->hello = false; /* a snapshot that is cut off lets go of the sandbox still */
		}
	}
	core_audit_begin(c, "server.stopped", NULL, NULL);
	core_audit_end(c);
	webhooks_stop(c);
	c->closed = done;
	c->closed_ctx = ctx;
	if (!lost) {
		pool_drain(c, close_handles, c);
		return;
	}
	pool_abandon(c);
	close_handles(c);
}

void core_free(struct core *c)
{
	struct sandbox *s, *next;

	if (!c)
		return;
	runs_save_ended(c);
	HASH_ITER (hh_id, c->by_id, s, next)
		core_remove(s);
	snapshots_free(c);
	volumes_free(c);
	grants_free(c);
	pool_free(c->pool);
	secrets_free(c->secrets);
	keys_free(c->keys);
	webhooks_free(c->webhooks);
	audit_state_free(c->audit);
	close_fd(c->runs_dir);
	free(c);
}

struct store *core_store(struct core *c)
{
	return c->o.store;
}

struct image_store *core_images(struct core *c)
{
	return c->o.images;
}

struct keys *core_keys(struct core *c)
{
	return c->keys;
}

const struct core_options *core_get_options(const struct core *c)
{
	return &c->o;
}

struct boundary *core_boundary(struct core *c, const char *name, struct err *e)
{
	if (!name && c->o.n_boundaries)
		return c->o.boundaries[0];
	for (size_t i = 0; name && i < c->o.n_boundaries; i++) {
		if (streq(c->o.boundaries[i]->ops->name, name))
			return c->o.boundaries[i];
	}
	auto_buf struct buf offered;
	buf_init(&offered, 200);
	for (size_t i = 0; i < c->o.n_boundaries; i++)
		buf_addf(&offered, "%s%s", i ? ", " : "", c->o.boundaries[i]->ops->name);
	if (!c->o.n_boundaries)
		err_set(e, ERR_UNAVAILABLE, ENOSYS, "this host offers no boundary: 'caisson doctor' says what is missing");
	else
		err_set(e, ERR_INVALID, EINVAL, "boundary: '%.32s' is not offered here (this server offers: %.*s)", name, (int)offered.len, offered.data);
	return NULL;
}

size_t core_count(const struct core *c, const char *tenant, size_t *ret_running)
{
	struct sandbox *s, *next;
	size_t n = 0, running = 0;

	HASH_ITER (hh_id, c->by_id, s, next) {
		if (tenant && !streq(s->row.tenant, tenant))
			continue;
		n++;
		running += s->row.state == SANDBOX_RUNNING;
	}
	*ret_running = running;
	return n;
}

/* --- the table --- */

static void name_key(char *to, size_t size, const char *tenant, const char *name)
{
	snprintf(to, size, "%s/%s", tenant, name);
}

struct sandbox *core_add(struct core *c, struct sandbox_row *take)
{
	struct sandbox *s = xcalloc(1, sizeof *s);

	s->core = c;
	s->row = *take;
	*take = (struct sandbox_row){ 0 };
	s->seq = ++c->next_seq;
	s->run_reserved = s->row.next_run;
	s->active_saved_ms = s->row.active_ms;
	name_key(s->name_key, sizeof s->name_key, s->row.tenant, s->row.name);
	HASH_ADD_KEYPTR(hh_id, c->by_id, s->row.id, strlen(s->row.id), s);
	HASH_ADD(hh_name, c->by_name, name_key, strlen(s->name_key), s);
	network_tell(s);
	return s;
}

void core_remove(struct sandbox *s)
{
	struct core *c = s->core;

	HASH_DELETE(hh_id, c->by_id, s);
	HASH_DELETE(hh_name, c->by_name, s);
	interpreters_end(s, "the sandbox was deleted");
	doors_close(s);
	grants_of_removed(s);
	if (c->o.egress)
		egress_forget(c->o.egress, s->row.id);
	if (s->link)
		link_free(s->link);
	permissions_forget(s);
	runs_free(s);
	struct session *ss, *next;
	HASH_ITER (hh, s->sessions, ss, next) {
		HASH_DEL(s->sessions, ss);
		session_row_done(&ss->row);
		free(ss);
	}
	free(s->more);
	sandbox_row_done(&s->row);
	free(s);
	if (c->emptied && HASH_CNT(hh_id, c->by_id) == 0)
		c->emptied(c->emptied_ctx);
}

struct sandbox *core_find(struct core *c, const char *tenant, const char *ref)
{
	char key[SPEC_NAME_MAX + 72];
	struct sandbox *s;

	HASH_FIND(hh_id, c->by_id, ref, strlen(ref), s);
	if (!s && tenant && strlen(ref) <= SPEC_NAME_MAX) {
		name_key(key, sizeof key, tenant, ref);
		HASH_FIND(hh_name, c->by_name, key, strlen(key), s);
	}
	return s && (!tenant || streq(s->row.tenant, tenant)) ? s : NULL;
}

struct sandbox *core_next(struct core *c, struct sandbox *prev)
{
	return prev ? prev->hh_id.next : c->by_id;
}

struct sandbox *core_walk(struct core *c, struct sandbox *prev, bool backwards)
{
	if (!backwards)
		return core_next(c, prev);
	if (prev)
		return prev->hh_id.prev;
	return c->by_id ? ELMT_FROM_HH(c->by_id->hh_id.tbl, c->by_id->hh_id.tbl->tail) : NULL;
}

const char *sandbox_tenant(const struct sandbox *s)
{
	return s->row.tenant;
}

uint64_t sandbox_seq(const struct sandbox *s)
{
	return s->seq;
}

void sandbox_view(const struct sandbox *s, struct sandbox_view *ret)
{
	*ret = (struct sandbox_view){
		.id = s->row.id,
		.name = s->row.name,
		.state = s->row.state,
		.error = s->row.state == SANDBOX_ERROR || s->row.state == SANDBOX_DELETING ? s->row.error : NULL,
		.image_digest = s->row.image_digest,
		.boundary = s->row.boundary,
		.accelerator = s->boundary && s->boundary->ops->accelerator ? s->boundary->ops->accelerator(s->boundary, &(const char *){ NULL }) : NULL,
		.spec = &s->row.spec,
		.user = s->row.user,
		.owner = s->row.key_id,
		.preview_token = s->row.preview_token,
		.created_ms = s->row.created_ms,
		.updated_ms = s->row.updated_ms,
		.active_ms = s->row.active_ms,
	};
}

/* --- adoption --- */

static int load_row(void *ctx, struct sandbox_row *row)
{
	struct core *c = ctx;
	struct sandbox *s = core_add(c, row);

	s->boundary = core_boundary(c, s->row.boundary, NULL);
	runs_load(s);
	interpreters_adopt(s, false);
	sessions_load(s);
	doors_restore(s);
	return 0;
}

struct listing {
	struct core *core;
	struct boundary *boundary;
};

static void orphan_gone(void *ctx, const struct err *e)
{
	(void)ctx;
	if (e)
		log_error("msg=\"a sandbox without a record could not be removed: %s\"", e->message);
}

static void on_listed(void *ctx, const struct err *e, const char *const *ids, const bool *started, size_t n)
{
	struct listing *l = ctx;
	struct core *c = l->core;
	struct sandbox *s, *next;

	if (e) {
		c->started(c->started_ctx, e);
		free(l);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		s = core_find(c, NULL, ids[i]);
		if (!s || l->boundary != s->boundary) {
			l->boundary->ops->destroy(l->boundary, ids[i], orphan_gone, NULL);
		} else {
			s->present = true;
			s->present_started = started[i];
		}
	}
	HASH_ITER (hh_id, c->by_id, s, next) {
		if (l->boundary != s->boundary)
			continue;
		lifecycle_adopt(s); /* may remove s */
	}
	free(l);
	if (--c->lists_pending == 0)
		c->started(c->started_ctx, NULL);
}

void core_start(struct core *c, void (*done)(void *ctx, const struct err *e), void *ctx)
{
	struct sandbox *s, *next;

	audit_text(core_audit_begin(c, "server.started", NULL, NULL), "version", CAISSON_VERSION);
	core_audit_end(c);
	c->started = done;
	c->started_ctx = ctx;
	store_sandbox_each(c->o.store, load_row, c);
	webhooks_load(c);
	snapshots_load(c);
	volumes_load(c);
	grants_load(c);
	pool_load(c);
	HASH_ITER (hh_id, c->by_id, s, next) {
		if (!s->boundary)
			lifecycle_adopt(s);
	}
	if (c->o.n_boundaries == 0) {
		done(ctx, NULL);
		return;
	}
	c->lists_pending = c->o.n_boundaries;
	for (size_t i = 0; i < c->o.n_boundaries; i++) {
		struct listing *l = xcalloc(1, sizeof *l);
		*l = (struct listing){ c, c->o.boundaries[i] };
		snapshots_adopt(c, l->boundary);
		volumes_adopt(c, l->boundary);
		l->boundary->ops->list(l->boundary, on_listed, l);
	}
}

static void deleted_one(void *ctx, const struct err *e, struct sandbox *s)
{
	(void)ctx;
	(void)s;
	if (e)
		log_error("msg=\"%s\"", e->message);
}

void core_delete_all(struct core *c, void (*done)(void *ctx), void *ctx)
{
	struct sandbox *s, *next;

	if (!c->by_id) {
		done(ctx);
		return;
	}
	c->emptied = done;
	c->emptied_ctx = ctx;
	HASH_ITER (hh_id, c->by_id, s, next)
		sandbox_delete(s, deleted_one, NULL);
}

/* --- events --- */

struct subscription *core_subscribe(struct core *c, const char *tenant, void (*on_event)(void *ctx, const struct event_view *ev), void *ctx)
{
	struct subscription *s = xcalloc(1, sizeof *s);

	*s = (struct subscription){ .core = c, .tenant = xstrdup(tenant), .on_event = on_event, .ctx = ctx };
	DL_APPEND(c->subscriptions, s);
	return s;
}

static void subscription_delete(struct subscription *s)
{
	DL_DELETE(s->core->subscriptions, s);
	free(s->tenant);
	free(s);
}

void subscription_free(struct subscription *s)
{
	if (!s)
		return;
	s->dead = true;
	if (!s->core->emitting)
		subscription_delete(s);
}

void core_emit(struct core *c, const char *type, struct sandbox *s, enum sandbox_state old, const struct run *r)
{
	struct subscription *sub, *next;
	struct sandbox_view sv;
	struct run_view rv;

	uint64_t seq = ++c->next_event;
	audit_emit(c, type, s, old, r);
	if (!c->subscriptions)
		return;
	sandbox_view(s, &sv);
	if (r)
		run_view(r, &rv);
	struct event_view ev = { .seq = seq, .at_ms = now_unix_ms(), .type = type, .sandbox = &sv, .old_state = old, .run = r ? &rv : NULL };
	bool outer = !c->emitting;
	c->emitting = true;
	DL_FOREACH (c->subscriptions, sub) {
		if (!sub->dead && (!sub->tenant || streq(sub->tenant, s->row.tenant)))
			sub->on_event(sub->ctx, &ev);
	}
	if (outer) {
		c->emitting = false;
		DL_FOREACH_SAFE (c->subscriptions, sub, next) {
			if (sub->dead)
				subscription_delete(sub);
		}
	}
}
