/* Snapshots and forks.
 *
 * Theory of operation. A snapshot is taken of one sandbox at a time: it is a transition of the sandbox (lifecycle.c), which nothing but
 * a delete overtakes; a second one of the same sandbox waits for the first. Its row is there, as "creating", before the boundary is
 * asked, and becomes "ready" when the boundary has answered; what a dead daemon left in any other state is taken away at the next
 * start, and so is what the boundary has and no row knows. A snapshot keeps its image from being removed.
 *
 * A fork is a snapshot without a row and a name, as many creates from it, and its end. It makes all children or none. */
#include "base/log.h"
#include "core/carry.h"
#include "core/core_int.h"
#include "core/secret.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { SNAPSHOTS_MAX = 10000 };

struct image_hold { /* one for all snapshots of an image */
	char digest[80];
	int fd;
	unsigned users;
	struct image_hold *next;
};

struct taking { /* a snapshot that is being taken, or waits for its turn */
	struct core *core;
	struct snapshot *snapshot;
	uint64_t generation; /* of the sandbox's transition; 0 = not begun */
	snapshot_done_fn done;
	void *ctx;
	struct taking *next;
};

/* --- the table --- */

static void hold_image(struct snapshot *p)
{
	struct core *c = p->core;
	struct image_hold *h = c->image_holds;
	struct err e;

	while (h && !streq(h->digest, p->row.image_digest))
		h = h->next;
	if (!h) {
		h = xcalloc(1, sizeof *h);
		snprintf(h->digest, sizeof h->digest, "%s", p->row.image_digest);
		h->fd = image_hold(c->o.images, h->digest, &e);
		if (h->fd < 0)
			log_warn("snapshot=%s msg=\"%s\"", p->row.id, e.message);
		h->next = c->image_holds;
		c->image_holds = h;
	}
	h->users++;
}

static void let_image_go(struct snapshot *p)
{
	struct image_hold **at = &p->core->image_holds;

	while (*at && !streq((*at)->digest, p->row.image_digest))
		at = &(*at)->next;
	struct image_hold *h = *at;
	if (!h || --h->users)
		return;
	*at = h->next;
	close_fd(h->fd);
	free(h);
}

static struct snapshot *add(struct core *c, struct snapshot_row *take)
{
	struct snapshot *p = xcalloc(1, sizeof *p);

	p->core = c;
	p->row = *take;
	*take = (struct snapshot_row){ 0 };
	HASH_ADD_KEYPTR(hh, c->snapshots, p->row.id, strlen(p->row.id), p);
	hold_image(p);
	return p;
}

static void forget(struct snapshot *p)
{
	let_image_go(p);
	carry_free(p->carried);
	HASH_DEL(p->core->snapshots, p);
	snapshot_row_done(&p->row);
	free(p);
}

void snapshots_free(struct core *c)
{
	while (c->snapshots)
		forget(c->snapshots);
}

struct snapshot *core_find_snapshot(struct core *c, const char *tenant, const char *ref)
{
	struct snapshot *p, *next;

	HASH_FIND_STR(c->snapshots, ref, p);
	if (p)
		return !p->transient && streq(p->row.tenant, tenant) ? p : NULL;
	HASH_ITER (hh, c->snapshots, p, next)
		if (!p->transient && streq(p->row.name, ref) && streq(p->row.tenant, tenant))
			return p;
	return NULL;
}

struct snapshot *core_next_snapshot(struct core *c, struct snapshot *prev)
{
	struct snapshot *p = prev ? prev->hh.next : c->snapshots;

	while (p && p->transient)
		p = p->hh.next;
	return p;
}

const char *snapshot_tenant(const struct snapshot *p)
{
	return p->row.tenant;
}

void snapshot_view(const struct snapshot *p, struct snapshot_view *ret)
{
	*ret = (struct snapshot_view){
		.id = p->row.id,
		.name = p->row.name,
		.state = p->row.state,
		.sandbox = p->row.sandbox_id,
		.boundary = p->row.boundary,
		.image_digest = p->row.image_digest,
		.spec = &p->row.spec,
		.user = p->row.user,
		.owner = p->row.key_id,
		.memory = p->row.memory,
		.bytes = p->row.bytes,
		.created_ms = p->row.created_ms,
		.used_ms = p->row.used_ms,
	};
}

/* --- taking one --- */

static void begin(struct taking *t);

static void unlink_taking(struct taking *t)
{
	LL_DELETE(t->core->takings, t);
}

static void end_taking(struct taking *t, const struct err *e)
{
	struct core *c = t->core;
	struct snapshot *p = t->snapshot;
	auto_free char *sandbox = xstrdup(p->row.sandbox_id);
	struct taking *next;

	unlink_taking(t);
	if (e) {
		if (!p->transient)
			store_snapshot_delete(c->o.store, p->row.id);
		forget(p);
		p = NULL;
	}
	t->done(t->ctx, e, p);
	free(t);
	LL_FOREACH (c->takings, next)
		if (!next->generation && streq(next->snapshot->row.sandbox_id, sandbox)) {
			begin(next); /* may end it, and go on with the one after it */
			break;
		}
}

static void on_taken(void *ctx, const struct err *e, uint64_t bytes)
{
	struct taking *t = ctx;
	struct snapshot *p = t->snapshot;
	struct sandbox *s = core_find(t->core, NULL, p->row.sandbox_id);
	struct err why;

	if (s && s->carrying)
		carry_release(p->carried, s);
	if (s)
		lifecycle_release(s, t->generation);
	if (!e) {
		p->row.bytes = bytes;
		p->row.state = SNAPSHOT_READY;
		log_info("snapshot=%s sandbox=%s bytes=%llu", p->row.id, p->row.sandbox_id, (unsigned long long)bytes);
		if (!p->transient && store_snapshot_put(t->core->o.store, &p->row, &why) < 0)
			e = &why; /* the file is an orphan now, which the next start takes away */
	}
	end_taking(t, e);
}

static void begin(struct taking *t)
{
	struct snapshot *p = t->snapshot;
	struct sandbox *s = core_find(t->core, NULL, p->row.sandbox_id);
	struct err e;

	if (!s)
		err_set(&e, ERR_NOT_FOUND, ENOENT, "the sandbox is gone");
	if (!s || (t->generation = lifecycle_hold(s, "take a snapshot", &e)) == 0) {
		end_taking(t, &e);
		return;
	}
	if (p->transient && p->row.memory && s->link)
		p->carried = carry_take(s);
	s->boundary->ops->snapshot(s->boundary, s->row.id, p->row.id, p->row.memory, p->transient, on_taken, t);
}

static int check(struct sandbox *s, const char *name, bool memory, struct err *e)
{
	struct core *c = s->core;

	if (name && !snapshot_name_valid(str_of(name)))
		return err_set(e, ERR_INVALID, EINVAL, "name: %s is not the name of a snapshot; use 1 to %d letters, digits and ._:/@+-",
		               str_quote(str_of(name), &(struct quoted){ 0 }), SNAPSHOT_NAME_MAX);
	if (name && core_find_snapshot(c, s->row.tenant, name))
		return err_set(e, ERR_CONFLICT, EEXIST, "name: there is a snapshot '%s' already; delete it or choose another name", name);
	if (HASH_CNT(hh, c->snapshots) >= SNAPSHOTS_MAX)
		return err_set(e, ERR_LIMIT, ENOSPC, "this server holds %d snapshots already: delete some", SNAPSHOTS_MAX);
	if (!s->boundary)
		return err_set(e, ERR_UNAVAILABLE, ENOSYS, "this sandbox needs the boundary '%s', which this server does not offer now", s->row.boundary);
	if (!(s->boundary->ops->caps & BOUNDARY_CAN_SNAPSHOT_DISK))
		return err_set(e, ERR_UNSUPPORTED, EOPNOTSUPP, "the boundary '%s' cannot take snapshots", s->row.boundary);
	if (memory && !(s->boundary->ops->caps & BOUNDARY_CAN_SNAPSHOT_MEMORY))
		return err_set(e, ERR_UNSUPPORTED, EOPNOTSUPP, "memory: the boundary '%s' keeps disks, not what runs: leave it out", s->row.boundary);
	return 0;
}

static void fill_row(struct snapshot_row *row, const struct sandbox *s, const char *key_id, const char *name, bool memory, const char *extra)
{
	char id[37];

	random_uuid(id);
	*row = (struct snapshot_row){
		.id = xstrdup(id),
		.tenant = xstrdup(s->row.tenant),
		.name = xstrdup(name ? name : id),
		.key_id = xstrdup(key_id),
		.state = SNAPSHOT_CREATING,
		.boundary = xstrdup(s->row.boundary),
		.image_digest = xstrdup(s->row.image_digest),
		.sandbox_id = xstrdup(s->row.id),
		.user = xstrdup(s->row.user),
		.memory = memory,
		.created_ms = now_unix_ms(),
	};
	spec_copy(&row->spec, &s->row.spec);
	free(take_ptr(&row->spec.idempotency_key));
	free(row->spec.extra);
	row->spec.extra = xstrdup(extra);
}

static void take_one(struct sandbox *s, struct snapshot_row *row, bool transient, snapshot_done_fn done, void *ctx)
{
	struct core *c = s->core;
	struct taking *t = xcalloc(1, sizeof *t), *before;

	*t = (struct taking){ .core = c, .done = done, .ctx = ctx };
	t->snapshot = add(c, row);
	t->snapshot->transient = transient;
	bool first = true;
	LL_FOREACH (c->takings, before)
		first = first && !streq(before->snapshot->row.sandbox_id, s->row.id);
	LL_APPEND(c->takings, t);
	if (first)
		begin(t);
}

void sandbox_snapshot(struct sandbox *s, const char *key_id, const char *name, bool memory, const char *extra, snapshot_done_fn done, void *ctx)
{
	struct snapshot_row row = { 0 };
	struct err e;

	if (check(s, name, memory, &e) < 0) {
		done(ctx, &e, NULL);
		return;
	}
	fill_row(&row, s, key_id, name, memory, extra);
	if (store_snapshot_put(s->core->o.store, &row, &e) < 0) {
		snapshot_row_done(&row);
		done(ctx, &e, NULL);
		return;
	}
	take_one(s, &row, false, done, ctx);
}

/* --- the end of one --- */

struct dropping {
	struct core *core;
	char id[40];
	void (*done)(void *ctx, const struct err *e);
	void *ctx;
};

static void on_dropped(void *ctx, const struct err *e)
{
	struct dropping *d = ctx;
	struct snapshot *p;

	HASH_FIND_STR(d->core->snapshots, d->id, p);
	if (e)
		log_error("snapshot=%s msg=\"delete failed: %s\"", d->id, e->message);
	if (p && !e) {
		if (!p->transient)
			store_snapshot_delete(d->core->o.store, p->row.id);
		forget(p);
	}
	d->done(d->ctx, e);
	free(d);
}

void snapshot_delete(struct snapshot *p, void (*done)(void *ctx, const struct err *e), void *ctx)
{
	struct boundary *b = core_boundary(p->core, p->row.boundary, NULL);
	struct err e;

	if (p->row.state == SNAPSHOT_CREATING)
		err_set(&e, ERR_CONFLICT, EBUSY, "the snapshot is being taken");
	else if (!b)
		err_set(&e, ERR_UNAVAILABLE, ENOSYS, "this snapshot was made by the boundary '%s', which this server does not offer now", p->row.boundary);
	else
		p->row.state = SNAPSHOT_DELETING;
	if (p->row.state != SNAPSHOT_DELETING || !b || (!p->transient && store_snapshot_put(p->core->o.store, &p->row, &e) < 0)) {
		done(ctx, &e);
		return;
	}
	struct dropping *d = xcalloc(1, sizeof *d);
	*d = (struct dropping){ .core = p->core, .done = done, .ctx = ctx };
	snprintf(d->id, sizeof d->id, "%s", p->row.id);
	b->ops->drop_snapshot(b, d->id, on_dropped, d);
}

int snapshot_set_extra(struct snapshot *p, const char *extra, struct err *e)
{
	char *old = p->row.spec.extra;

	p->row.spec.extra = xstrdup(extra);
	int rc = store_snapshot_put(p->core->o.store, &p->row, e);
	if (rc < 0) {
		free(p->row.spec.extra);
		p->row.spec.extra = old;
		return rc;
	}
	free(old);
	return 0;
}

/* --- creating from one --- */

/* A value that the caller may leave out, or must agree with. */
static int agree(const char *field, const char *asked, const char *has, struct err *e)
{
	if (!asked || streq(asked, has))
		return 0;
	return err_set(e, ERR_INVALID, EINVAL, "%s: the snapshot was made with '%.100s', and that cannot change: leave it out", field, has);
}

int snapshot_fill_spec(struct snapshot *p, const struct sandbox_spec *asked, struct sandbox_spec *ret, struct err *e)
{
	const struct sandbox_spec *from = &p->row.spec;
	const struct resources *res = &from->resources;
	struct sandbox_spec s;

	if (p->row.state != SNAPSHOT_READY)
		return err_set(e, ERR_CONFLICT, EBUSY, "from_snapshot: the snapshot is %s", snapshot_state_name(p->row.state));
	if (agree("boundary", asked->boundary, p->row.boundary, e) < 0)
		return -EINVAL;
	if (asked->image && !streq(asked->image, "default") && !streq(asked->image, p->row.image_digest) &&
	    agree("image", asked->image, from->image ? from->image : "default", e) < 0)
		return -EINVAL;
	if (asked->resources.disk_mib && asked->resources.disk_mib != res->disk_mib)
		return err_set(e, ERR_INVALID, EINVAL, "resources.disk_mib: the disk of this snapshot has %llu MiB, and that cannot change: leave it out",
		               (unsigned long long)res->disk_mib);
	if (p->row.memory && asked->permissions && !strv_equal(asked->permissions, from->permissions))
		return err_set(e, ERR_INVALID, EINVAL, "permissions: what runs in this snapshot was started with others, and goes on with them: leave them out");
	spec_copy(&s, asked);
	free(s.image);
	s.image = xstrdup(from->image);
	free(s.boundary);
	s.boundary = xstrdup(p->row.boundary);
	free(s.from_snapshot);
	s.from_snapshot = p->transient ? NULL : xstrdup(p->row.id);
	s.resources = (struct resources){
		.cpus = s.resources.cpus > 0 ? s.resources.cpus : res->cpus,
		.memory_mib = s.resources.memory_mib ? s.resources.memory_mib : res->memory_mib,
		.disk_mib = res->disk_mib,
		.pids = s.resources.pids ? s.resources.pids : res->pids,
	};
	pairs_done(&s.env);
	pairs_copy(&s.env, &from->env);
	for (size_t i = 0; i < asked->env.n; i++)
		pairs_add(&s.env, asked->env.v[i].key, asked->env.v[i].value);
	if (!s.user)
		s.user = xstrdup(p->row.user);
	if (!s.workdir)
		s.workdir = xstrdup(from->workdir);
	if (!s.permissions)
		s.permissions = strv_copy(from->permissions);
	if (s.sudo == WANT_DEFAULT)
		s.sudo = from->sudo;
	*ret = s;
	return 0;
}

void snapshot_used(struct snapshot *p)
{
	struct err e;

	p->row.used_ms = now_unix_ms();
	if (!p->transient)
		(void)store_snapshot_put(p->core->o.store, &p->row, &e);
}

/* --- fork --- */

struct fork {
	struct core *core;
	char parent[40], snapshot[40];
	char *key_id;
	struct sandbox_spec spec; /* of the children */
	size_t wanted, answered, n;
	char (*ids)[40];          /* those that are there */
	struct err why;           /* kind 0 = good so far */
	fork_done_fn done;
	void *ctx;
};

static void fork_answer(struct fork *f)
{
	struct sandbox **v = xcalloc(f->wanted, sizeof(struct sandbox *));
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++) { /* one may have been deleted already */
		struct sandbox *s = core_find(f->core, NULL, f->ids[i]);
		if (s)
			v[n++] = s;
	}
	f->done(f->ctx, f->why.kind ? &f->why : NULL, v, f->why.kind ? 0 : n);
	free(v);
	free(f->ids);
	free(f->key_id);
	spec_done(&f->spec);
	free(f);
}

static void ignore_dropped(void *ctx, const struct err *e)
{
	(void)ctx, (void)e; /* logged; the next start tries again */
}

static void ignore_deleted(void *ctx, const struct err *e, struct sandbox *s)
{
	(void)ctx, (void)e, (void)s; /* a delete that fails is tried again by itself */
}

static void fork_over(struct fork *f)
{
	struct snapshot *p;

	for (size_t i = 0; f->why.kind && i < f->n; i++) {
		struct sandbox *s = core_find(f->core, NULL, f->ids[i]);
		if (s)
			sandbox_delete(s, ignore_deleted, NULL);
	}
	HASH_FIND_STR(f->core->snapshots, f->snapshot, p);
	fork_answer(f); /* what goes now is nobody's to wait for */
	if (p)
		snapshot_delete(p, ignore_dropped, NULL);
}

static void on_child(void *ctx, const struct err *e, struct sandbox *s)
{
	struct fork *f = ctx;

	if (e && !f->why.kind)
		f->why = *e;
	if (!e)
		snprintf(f->ids[f->n++], sizeof f->ids[0], "%s", s->row.id);
	if (++f->answered == f->wanted)
		fork_over(f);
}

static void on_fork_taken(void *ctx, const struct err *e, struct snapshot *p)
{
	struct fork *f = ctx;
	size_t wanted = f->wanted;

	if (e) {
		f->why = *e;
		fork_answer(f);
		return;
	}
	snprintf(f->snapshot, sizeof f->snapshot, "%s", p->row.id);
	auto_free char *tenant = xstrdup(p->row.tenant);
	secrets_forget_gone(f->core, tenant, &f->spec); /* the parent has lost them, too */
	for (size_t i = 0; i < wanted; i++) /* f lives until the last has answered */
		core_create_from(f->core, tenant, f->key_id, &f->spec, p, on_child, f);
}

void sandbox_fork(struct sandbox *s, const char *key_id, size_t count, const char *name, fork_done_fn done, void *ctx)
{
	struct snapshot_row row = { 0 };
	struct err e;

	int rc = check(s, NULL, false, &e);
	if (rc == 0 && (count < 1 || count > FORK_MAX))
		rc = err_set(&e, ERR_INVALID, EINVAL, "count: 1 to %d", FORK_MAX);
	if (rc == 0 && name && count > 1)
		rc = err_set(&e, ERR_INVALID, EINVAL, "name: only for a single child");
	if (rc == 0 && name && core_find(s->core, s->row.tenant, name))
		rc = err_set(&e, ERR_CONFLICT, EEXIST, "name: '%.64s' is taken by a sandbox of this name or id", name);
	if (rc < 0) {
		done(ctx, &e, NULL, 0);
		return;
	}
	struct fork *f = xcalloc(1, sizeof *f);
	*f = (struct fork){ .core = s->core, .wanted = count, .done = done, .ctx = ctx, .key_id = xstrdup(key_id) };
	f->ids = xcalloc(count, sizeof f->ids[0]);
	spec_copy(&f->spec, &s->row.spec);
	free(f->spec.name);
	f->spec.name = xstrdup(name);
	free(take_ptr(&f->spec.hostname));
	free(take_ptr(&f->spec.idempotency_key));
	free(take_ptr(&f->spec.from_snapshot));
	publications_done(&f->spec.publish); /* the parent has these ports */
	fill_row(&row, s, key_id, NULL, s->boundary->ops->caps & BOUNDARY_CAN_SNAPSHOT_MEMORY, NULL);
	take_one(s, &row, true, on_fork_taken, f);
}

/* --- after a restart --- */

static int load_row(void *ctx, struct snapshot_row *row)
{
	(void)add(ctx, row);
	return 0;
}

void snapshots_load(struct core *c)
{
	store_snapshot_each(c->o.store, load_row, c);
}

struct cleaning {
	struct core *core;
	struct boundary *boundary;
};

static void on_cleaned(void *ctx, const struct err *e)
{
	(void)ctx;
	if (e)
		log_error("msg=\"a snapshot that nobody knows could not be removed: %s\"", e->message);
}

static void on_listed(void *ctx, const struct err *e, const char *const *ids, size_t n)
{
	struct cleaning *k = ctx;
	struct core *c = k->core;
	struct snapshot *p, *next;

	for (size_t i = 0; i < n; i++) {
		HASH_FIND_STR(c->snapshots, ids[i], p);
		if (p && p->row.state == SNAPSHOT_READY)
			p->present = true;
		else
			k->boundary->ops->drop_snapshot(k->boundary, ids[i], on_cleaned, NULL);
	}
	HASH_ITER (hh, c->snapshots, p, next) {
		if (e || !streq(p->row.boundary, k->boundary->ops->name) || p->present)
			continue;
		if (p->row.state == SNAPSHOT_READY)
			log_error("snapshot=%s msg=\"nothing of it is left on this host\"", p->row.id);
		store_snapshot_delete(c->o.store, p->row.id);
		forget(p);
	}
	free(k);
}

void snapshots_adopt(struct core *c, struct boundary *b)
{
	if (!(b->ops->caps & BOUNDARY_CAN_SNAPSHOT_DISK))
		return;
	struct cleaning *k = xcalloc(1, sizeof *k);
	*k = (struct cleaning){ c, b };
	b->ops->list_snapshots(b, on_listed, k);
}
