/* Volumes: folders that sandboxes share and that outlive them.
 *
 * Theory of operation. A volume's row is there, as "creating", before the boundary is asked for it, and as "deleting" until the boundary
 * has let it go; what a dead daemon left in either state is taken away at the next start. Who has a volume is said by the specifications
 * of sandboxes and nowhere else. Unlike a snapshot, one that the boundary has and no row knows is left alone: it may be all that there is
 * of somebody's work. */
#include "base/log.h"
#include "core/core_int.h"

#include <errno.h>
#include <stdio.h>

static const char *kind_of(const struct boundary *b)
{
	return b->ops->volumes_of ? b->ops->volumes_of : b->ops->name;
}

/* Whoever uses another kind's leaves it to that to keep them. */
static bool keeps_some(const struct boundary *b)
{
	return b->ops->caps & BOUNDARY_CAN_VOLUMES && !b->ops->volumes_of;
}

static struct volume *add(struct core *c, struct volume_row *take)
{
	struct volume *v = xcalloc(1, sizeof *v);

	v->core = c;
	v->row = *take;
	*take = (struct volume_row){ 0 };
	v->boundary = core_boundary(c, v->row.boundary, NULL);
	HASH_ADD_KEYPTR(hh, c->volumes, v->row.id, strlen(v->row.id), v);
	return v;
}

static void forget(struct volume *v)
{
	HASH_DEL(v->core->volumes, v);
	volume_row_done(&v->row);
	free(v);
}

void volumes_free(struct core *c)
{
	while (c->volumes)
		forget(c->volumes);
}

struct volume *core_find_volume(struct core *c, const char *tenant, const char *ref)
{
	struct volume *v, *next;

	HASH_FIND_STR(c->volumes, ref, v);
	if (v)
		return streq(v->row.tenant, tenant) ? v : NULL;
	HASH_ITER (hh, c->volumes, v, next)
		if (streq(v->row.name, ref) && streq(v->row.tenant, tenant))
			return v;
	return NULL;
}

struct volume *core_next_volume(struct core *c, struct volume *prev)
{
	return prev ? prev->hh.next : c->volumes;
}

const char *volume_tenant(const struct volume *v)
{
	return v->row.tenant;
}

static bool has(const struct sandbox *s, const char *volume)
{
	for (size_t i = 0; i < s->row.spec.volumes.n; i++)
		if (streq(s->row.spec.volumes.v[i].volume, volume))
			return true;
	return false;
}

/* The next sandbox that has it. */
static struct sandbox *next_user(const struct volume *v, struct sandbox *prev)
{
	struct sandbox *s = prev;

	while ((s = core_next(v->core, s)))
		if (has(s, v->row.id))
			break;
	return s;
}

void volume_view(const struct volume *v, struct volume_view *ret)
{
	*ret = (struct volume_view){
		.id = v->row.id,
		.name = v->row.name,
		.state = v->row.state,
		.owner = v->row.key_id,
		.size_mib = v->row.size_mib,
		.used_bytes = v->bytes,
		.created_ms = v->row.created_ms,
		.used_ms = v->row.used_ms,
	};
	for (struct sandbox *s = next_user(v, NULL); s; s = next_user(v, s))
		ret->sandboxes++;
}

/* --- create --- */

struct making {
	struct core *core;
	char id[40];
	volume_done_fn done;
	void *ctx;
};

static void on_made(void *ctx, const struct err *e)
{
	struct making *m = ctx;
	struct volume *v;
	struct err why;

	HASH_FIND_STR(m->core->volumes, m->id, v);
	if (v && !e) {
		v->row.state = VOLUME_READY;
		if (store_volume_put(m->core->o.store, &v->row, &why) < 0)
			e = &why; /* the next start takes the file away */
	}
	if (v && e) {
		store_volume_delete(m->core->o.store, v->row.id);
		forget(v);
		v = NULL;
	}
	m->done(m->ctx, e, v);
	free(m);
}

static struct boundary *boundary_with_volumes(const struct core *c, struct err *e)
{
	for (size_t i = 0; i < c->o.n_boundaries; i++)
		if (keeps_some(c->o.boundaries[i]))
			return c->o.boundaries[i];
	err_set(e, ERR_UNSUPPORTED, ENOTSUP, "volumes: no boundary of this server has any; they need 'process'");
	return NULL;
}

static int check(struct core *c, const char *tenant, const char *name, uint64_t size_mib, struct err *e)
{
	if (name && !volume_name_valid(str_of(name)))
		return err_set(e, ERR_INVALID, EINVAL, "name: %s is not the name of a volume; use 1 to %d letters, digits, '.', '_' and '-'",
		               str_quote(str_of(name), &(struct quoted){ 0 }), VOLUME_NAME_MAX);
	if (size_mib && (size_mib < VOLUME_MIB_MIN || size_mib > VOLUME_MIB_MAX))
		return err_set(e, ERR_INVALID, EINVAL, "size_mib: %u to %u", VOLUME_MIB_MIN, VOLUME_MIB_MAX);
	if (name && core_find_volume(c, tenant, name))
		return err_set(e, ERR_CONFLICT, EEXIST, "name: there is a volume '%s' already; delete it or choose another name", name);
	if (HASH_CNT(hh, c->volumes) >= VOLUMES_MAX)
		return err_set(e, ERR_LIMIT, ENOSPC, "this server holds %d volumes already: delete some", VOLUMES_MAX);
	return 0;
}

void core_volume_create(struct core *c, const char *tenant, const char *key_id, const char *name, uint64_t size_mib, volume_done_fn done, void *ctx)
{
	struct volume_row row = { 0 };
	struct err e;
	char id[37];

	struct boundary *b = boundary_with_volumes(c, &e);
	if (!b || check(c, tenant, name, size_mib, &e) < 0) {
		done(ctx, &e, NULL);
		return;
	}
	random_uuid(id);
	row = (struct volume_row){
		.id = xstrdup(id),
		.tenant = xstrdup(tenant),
		.name = xstrdup(name ? name : id),
		.key_id = xstrdup(key_id),
		.state = VOLUME_CREATING,
		.boundary = xstrdup(b->ops->name),
		.size_mib = size_mib ? size_mib : VOLUME_MIB_DEFAULT,
		.created_ms = now_unix_ms(),
	};
	if (store_volume_put(c->o.store, &row, &e) < 0) {
		volume_row_done(&row);
		done(ctx, &e, NULL);
		return;
	}
	struct volume *v = add(c, &row);
	struct making *m = xcalloc(1, sizeof *m);
	*m = (struct making){ .core = c, .done = done, .ctx = ctx };
	snprintf(m->id, sizeof m->id, "%s", id);
	b->ops->make_volume(b, m->id, v->row.size_mib, on_made, m);
}

/* --- use --- */

int volumes_resolve(struct core *c, const char *tenant, const struct boundary *b, const struct volume_mounts *asked, struct volume_mounts *ret,
                    struct err *e)
{
	for (size_t i = 0; i < asked->n; i++) {
		struct volume *v = core_find_volume(c, tenant, asked->v[i].volume);
		if (!v)
			return err_set(e, ERR_INVALID, ENOENT, "volumes: there is no volume '%s'", asked->v[i].volume);
		if (v->row.state != VOLUME_READY)
			return err_set(e, ERR_CONFLICT, EBUSY, "volumes: the volume '%s' is %s", v->row.name, volume_state_name(v->row.state));
		if (!streq(v->row.boundary, kind_of(b)))
			return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "volumes: the volume '%s' is of the boundary '%s'", v->row.name, v->row.boundary);
	}
	volume_mounts_copy(ret, asked);
	for (size_t i = 0; i < ret->n; i++) {
		struct volume *v = core_find_volume(c, tenant, ret->v[i].volume);
		struct err quiet;
		free(ret->v[i].volume);
		ret->v[i].volume = xstrdup(v->row.id);
		v->row.used_ms = now_unix_ms();
		(void)store_volume_put(c->o.store, &v->row, &quiet); /* only the time of use */
	}
	return 0;
}

/* --- what they take --- */

struct measuring {
	struct core *core;
	size_t pending;
	void (*done)(void *ctx);
	void *ctx;
};

static void measured(struct measuring *m)
{
	if (--m->pending)
		return;
	m->done(m->ctx);
	free(m);
}

static void note_bytes(void *ctx, const struct err *e, const char *const *ids, const uint64_t *bytes, size_t n)
{
	struct measuring *m = ctx;
	struct volume *v;

	(void)e; /* then there are none of them */
	for (size_t i = 0; i < n; i++) {
		HASH_FIND_STR(m->core->volumes, ids[i], v);
		if (v)
			v->bytes = bytes[i];
	}
	measured(m);
}

void core_volumes_measure(struct core *c, void (*done)(void *ctx), void *ctx)
{
	struct measuring *m = xcalloc(1, sizeof *m);

	*m = (struct measuring){ .core = c, .pending = 1, .done = done, .ctx = ctx };
	for (size_t i = 0; i < c->o.n_boundaries; i++) {
		struct boundary *b = c->o.boundaries[i];
		if (!keeps_some(b))
			continue;
		m->pending++;
		b->ops->list_volumes(b, note_bytes, m);
	}
	measured(m);
}

/* --- the end of one --- */

struct dropping {
	struct core *core;
	char id[40];
	void (*done)(void *ctx, const struct err *e); /* NULL: nobody asks */
	void *ctx;
};

static void on_dropped(void *ctx, const struct err *e)
{
	struct dropping *d = ctx;
	struct volume *v;

	HASH_FIND_STR(d->core->volumes, d->id, v);
	if (e)
		log_error("volume=%s msg=\"delete failed: %s\"", d->id, e->message);
	if (v && !e) {
		store_volume_delete(d->core->o.store, v->row.id);
		forget(v);
	}
	if (d->done)
		d->done(d->ctx, e);
	free(d);
}

static void drop(struct volume *v, void (*done)(void *ctx, const struct err *e), void *ctx)
{
	struct dropping *d = xcalloc(1, sizeof *d);

	*d = (struct dropping){ .core = v->core, .done = done, .ctx = ctx };
	snprintf(d->id, sizeof d->id, "%s", v->row.id);
	v->boundary->ops->drop_volume(v->boundary, d->id, on_dropped, d);
}

static int may_go(const struct volume *v, struct err *e)
{
	const struct sandbox *s = next_user(v, NULL);

	if (v->row.state == VOLUME_CREATING)
		return err_set(e, ERR_CONFLICT, EBUSY, "the volume is being made");
	if (!v->boundary)
		return err_set(e, ERR_UNAVAILABLE, ENOSYS, "this volume is of the boundary '%s', which this server does not offer now", v->row.boundary);
	if (s)
		return err_set(e, ERR_CONFLICT, EBUSY, "the volume '%s' is in use: the sandbox '%s' has it", v->row.name, s->row.name);
	return 0;
}

void volume_delete(struct volume *v, void (*done)(void *ctx, const struct err *e), void *ctx)
{
	enum volume_state was = v->row.state;
	struct err e;

	int rc = may_go(v, &e);
	if (rc == 0) {
		v->row.state = VOLUME_DELETING;
		rc = store_volume_put(v->core->o.store, &v->row, &e);
	}
	if (rc < 0) {
		v->row.state = was;
		done(ctx, &e);
		return;
	}
	drop(v, done, ctx);
}

/* --- after a restart --- */

static int load_row(void *ctx, struct volume_row *row)
{
	(void)add(ctx, row);
	return 0;
}

void volumes_load(struct core *c)
{
	store_volume_each(c->o.store, load_row, c);
}

struct adoption {
	struct core *core;
	struct boundary *boundary;
};

static void on_listed(void *ctx, const struct err *e, const char *const *ids, const uint64_t *bytes, size_t n)
{
	struct adoption *a = ctx;
	struct volume *v, *next;

	for (size_t i = 0; i < n; i++) {
		HASH_FIND_STR(a->core->volumes, ids[i], v);
		if (v) {
			v->present = true;
			v->bytes = bytes[i];
		} else {
			log_warn("volume=%s msg=\"nobody knows of it: left alone\"", ids[i]);
		}
	}
	HASH_ITER (hh, a->core->volumes, v, next) {
		if (v->boundary != a->boundary)
			continue;
		if (v->row.state != VOLUME_READY)
			drop(v, NULL, NULL);
		else if (!e && !v->present)
			log_error("volume=%s name=%s msg=\"nothing of it is left on this host\"", v->row.id, v->row.name);
	}
	free(a);
}

void volumes_adopt(struct core *c, struct boundary *b)
{
	if (!keeps_some(b))
		return;
	struct adoption *a = xcalloc(1, sizeof *a);
	*a = (struct adoption){ c, b };
	b->ops->list_volumes(b, on_listed, a);
}
