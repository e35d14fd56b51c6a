/* What a create is made of: the request checked and completed, the shape a boundary is asked for, the record; then a ready sandbox is
 * claimed or the transition begins (core/lifecycle.c). */
#include "base/log.h"
#include "core/ahead.h"
#include "core/carry.h"
#include "core/core_int.h"
#include "core/secret.h"
#include "model/policy.h"
#include "model/reach.h"

#include <errno.h>
#include <stdio.h>

/* A network that nobody asked for, on a boundary that gives none: the sandbox has none. */
static bool network_falls_away(const struct boundary *b, const struct sandbox_spec *spec)
{
	return spec->network_unasked && !spec->network_allow && !spec->network_deny && !(b->ops->caps & BOUNDARY_CAN_NETWORK);
}

/* " or ask for the boundary 'x'" where one has what this one lacks. */
static void add_alternative(const struct core *c, unsigned cap, struct err *e)
{
	size_t at = strlen(e->message);

	for (size_t i = 0; i < c->o.n_boundaries; i++) {
		if (c->o.boundaries[i]->ops->caps & cap) {
			snprintf(e->message + at, sizeof e->message - at, ", or ask for the boundary '%s'", c->o.boundaries[i]->ops->name);
			return;
		}
	}
}

int permissions_kept(const struct core *c, const struct boundary *b, const struct sandbox_spec *spec, struct err *e)
{
	if (spec->permissions && !(b->ops->caps & BOUNDARY_CAN_PERMIT)) {
		(void)err_set(e, ERR_UNSUPPORTED, ENOTSUP, "permissions: nothing in the boundary '%s' would enforce them: leave them out", b->ops->name);
		add_alternative(c, BOUNDARY_CAN_PERMIT, e);
		return -ENOTSUP;
	}
	if (spec->network == NETWORK_NONE && reach_has_hosts(spec->permissions))
		return err_set(e, ERR_INVALID, EINVAL, "permissions: rules about hosts or methods, and no network: give a network.mode");
	return 0;
}

/* Less than was asked for is never given in silence. */
static int check_caps(const struct core *c, const struct boundary *b, const struct sandbox_spec *spec, struct err *e)
{
	int rc = network_permitted(c, spec, e);
	if (rc < 0)
		return rc;
	if (spec->network != NETWORK_NONE && !network_falls_away(b, spec) && !(b->ops->caps & BOUNDARY_CAN_NETWORK))
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "network.mode: the boundary '%s' gives a sandbox no network: leave it out, or ask for \"none\"",
		               b->ops->name);
	if ((rc = permissions_kept(c, b, spec, e)) < 0)
		return rc;
	if (!spec->volumes.n || b->ops->caps & BOUNDARY_CAN_VOLUMES)
		return 0;
	(void)err_set(e, ERR_UNSUPPORTED, ENOTSUP, "volumes: the boundary '%s' shares no folders with anybody: leave them out", b->ops->name);
	add_alternative(c, BOUNDARY_CAN_VOLUMES, e);
	return -ENOTSUP;
}

int resolve_spec(struct core *c, const struct sandbox_spec *asked, struct snapshot *from, struct sandbox_spec *filled,
                 struct boundary **ret_b, struct image *ret_image, struct err *e)
{
	const struct sandbox_spec *spec = asked;

	if (spec_validate(asked, e) < 0)
		return -EINVAL;
	if (from) {
		if (snapshot_fill_spec(from, asked, filled, e) < 0)
			return -EINVAL;
		spec = filled;
	}
	struct boundary *b = core_boundary(c, spec->boundary, e);
	if (!b || check_caps(c, b, spec, e) < 0)
		return -EINVAL;
	*ret_b = b;
	const char *image = from ? from->row.image_digest : spec->image ? spec->image : "default";
	int rc = image_resolve(c->o.images, image, ret_image, e);
	if (rc < 0 && e->kind == ERR_NOT_FOUND)
		e->kind = ERR_INVALID; /* an image that is not there is the request's fault, not a missing sandbox */
	return rc;
}

const char *user_of(const struct sandbox_spec *spec, const struct image *image)
{
	return spec->user ? spec->user : image->user ? image->user : "root";
}

struct boundary_spec shape_of(const struct boundary *b, const struct sandbox_spec *spec, const char *user, const struct image *image)
{
	struct boundary_spec shape = {
		.image_digest = image->digest,
		.resources = spec->resources,
		.ephemeral = spec->ephemeral,
		.sudo = spec_sudo(spec),
		.network = spec->network != NETWORK_NONE && !network_falls_away(b, spec),
		.volumes = &spec->volumes,
		.user = user,
		.workdir = spec->workdir ? spec->workdir : image->workdir,
		.env = &image->env,
	};

	resources_fill(&shape.resources, shape.ephemeral);
	return shape;
}

void name_it(struct boundary_spec *b, const struct sandbox *s, char hostname[static SPEC_HOSTNAME_MAX + 1])
{
	if (s->row.spec.hostname)
		snprintf(hostname, SPEC_HOSTNAME_MAX + 1, "%s", s->row.spec.hostname);
	else
		hostname_from_name(s->row.name, hostname);
	b->id = s->row.id;
	b->hostname = hostname;
}

/* The same idempotency key again: the sandbox that the first call made. */
static struct sandbox *find_idempotent(struct core *c, const char *tenant, const char *key)
{
	struct sandbox *s = NULL;

	while (key && (s = core_next(c, s))) {
		if (streq(s->row.spec.idempotency_key, key) && streq(s->row.tenant, tenant))
			return s;
	}
	return NULL;
}

/* Stored with the state it will have in a moment, so that one write is enough. */
static int make_row(struct core *c, const char *tenant, const char *key_id, const struct sandbox_spec *spec, const struct boundary *b,
                    const struct boundary_spec *shape, enum sandbox_state state, struct sandbox_row *row, struct err *e)
{
	const char *id = shape->id;
	char token[33];
	uint64_t now = now_unix_ms();

	random_hex(token, 16);
	*row = (struct sandbox_row){
		.id = xstrdup(id),
		.name = xstrdup(spec->name ? spec->name : id),
		.tenant = xstrdup(tenant),
		.key_id = xstrdup(key_id),
		.preview_token = xstrdup(token),
		.state = state,
		.image_digest = xstrdup(shape->image_digest),
		.boundary = xstrdup(b->ops->name),
		.user = xstrdup(shape->user),
		.created_ms = now,
		.updated_ms = now,
		.active_ms = now,
		.next_run = 1 + RUN_NUMBERS_RESERVED,
	};
	spec_copy(&row->spec, spec);
	if (network_falls_away(b, spec))
		row->spec.network = NETWORK_NONE;
	row->spec.network_unasked = false;
	if (row->spec.network != NETWORK_NONE)
		ceiling_limit(c->o.ceiling, &row->spec.network_limits);
	if (reach_asks(spec->permissions) && !pairs_get(&spec->env, "RES_OPTIONS"))
		pairs_add(&row->spec.env, "RES_OPTIONS", "timeout:30 attempts:4"); /* as long as somebody has to answer */
	(void)policy_check(row->spec.network, row->spec.network_allow, row->spec.network_deny, true, e); /* valid: to its canonical form */
	row->spec.resources = shape->resources;
	volume_mounts_done(&row->spec.volumes);
	volume_mounts_copy(&row->spec.volumes, shape->volumes);
	return store_sandbox_put(c->o.store, row, e);
}

static int check_request(struct core *c, const char *tenant, const struct sandbox_spec *spec, struct err *e)
{
	if (core_audit_ready(c, e) < 0)
		return -ENOSPC;
	if (HASH_CNT(hh_id, c->by_id) >= c->o.max_sandboxes)
		return err_set(e, ERR_LIMIT, ENOSPC, "this server holds %zu sandboxes already: delete some", c->o.max_sandboxes);
	if (spec->name && core_find(c, tenant, spec->name)) /* a name that is another one's id would make that one unreachable by it */
		return err_set(e, ERR_CONFLICT, EEXIST, "name: '%s' is taken by a sandbox of this name or id", spec->name);
	return 0;
}

static void create_again(struct sandbox *s, sandbox_done_fn done, void *ctx)
{
	struct err e;

	if (s->row.state == SANDBOX_CREATING) {
		lifecycle_await_create(s, done, ctx);
	} else if (s->row.state == SANDBOX_DELETING) {
		err_set(&e, ERR_CONFLICT, EBUSY, "the sandbox of this idempotency key is being deleted");
		done(ctx, &e, NULL);
	} else {
		done(ctx, NULL, s);
	}
}

/* From nothing: the boundary is asked, and its answer and the guest's hello are waited for. */
static void create_cold(struct sandbox *s, struct boundary_spec *bs, sandbox_done_fn done, void *ctx)
{
	char hostname[SPEC_HOSTNAME_MAX + 1];

	lifecycle_begin_create(s, done, ctx);
	name_it(bs, s, hostname);
	lifecycle_ask_create(s, bs);
}

/* One of the pool: up and connected, or on its way there. */
static void create_claimed(struct sandbox *s, const struct claim *claim, sandbox_done_fn done, void *ctx)
{
	if (claim->link) {
		s->link = claim->link;
		s->link_seq++;
		link_set_events(s->link, &sandbox_link_events, s);
		s->hello_deadline_ms = claim->ready ? 0 : now_ms() + HELLO_TIMEOUT_MS;
	}
	if (!claim->ready) {
		lifecycle_begin_create(s, done, ctx);
		return;
	}
	s->hello = true;
	lifecycle_tell_time(s, true);
	core_emit(s->core, "sandbox.state", s, SANDBOX_CREATING, NULL);
	done(ctx, NULL, s);
}

static void unclaimed(void *ctx, const struct err *e)
{
	(void)ctx;
	if (e)
		log_warn("msg=\"%s\"", e->message);
}

static void unclaim(struct boundary *b, const struct claim *claim)
{
	if (claim->link)
		link_free(claim->link);
	b->ops->destroy(b, claim->id, unclaimed, NULL);
}

/* A ready one is called by its id. */
static bool may_rename(const struct boundary *b, const struct sandbox_spec *spec)
{
	return (!spec->name && !spec->hostname) || b->ops->caps & BOUNDARY_OWN_CLOCK;
}

/* A sandbox some of whose TLS is opened is there when it is prepared for that, and if that fails it is not there. */
struct preparing {
	sandbox_done_fn done;
	void *ctx;
	struct err why;
};

static void unprepared_gone(void *ctx, const struct err *e, struct sandbox *s)
{
	struct preparing *p = ctx;

	(void)e;
	(void)s;
	p->done(p->ctx, &p->why, NULL);
	free(p);
}

static void prepared(void *ctx, const struct err *e, struct sandbox *s)
{
	struct preparing *p = ctx;

	if (e && s) {
		p->why = *e;
		sandbox_delete(s, unprepared_gone, p);
		return;
	}
	p->done(p->ctx, e, s);
	free(p);
}

static void prepare(void *ctx, const struct err *e, struct sandbox *s)
{
	if (e || !s)
		prepared(ctx, e, NULL);
	else
		secrets_install(s, prepared, ctx);
}

static void prepare_secrets(const struct sandbox_spec *spec, sandbox_done_fn *done, void **ctx)
{
	if (!spec_is_opened(spec))
		return;
	struct preparing *p = xcalloc(1, sizeof *p);
	*p = (struct preparing){ .done = *done, .ctx = *ctx };
	*done = prepare;
	*ctx = p;
}

void core_create(struct core *c, const char *tenant, const char *key_id, const struct sandbox_spec *spec, sandbox_done_fn done, void *ctx)
{
	struct snapshot *from = spec->from_snapshot ? core_find_snapshot(c, tenant, spec->from_snapshot) : NULL;
	struct err e;

	if (spec->from_snapshot && !from) {
		err_set(&e, ERR_INVALID, ENOENT, "from_snapshot: there is no snapshot '%.128s'", spec->from_snapshot);
		done(ctx, &e, NULL);
		return;
	}
	core_create_from(c, tenant, key_id, spec, from, done, ctx);
}

/* A request that was found good, completed. */
struct plan {
	const struct sandbox_spec *spec; /* the caller's, or filled */
	struct sandbox_spec filled;
	struct snapshot *from; /* or NULL */
	struct boundary *boundary;
	struct image image;
	struct volume_mounts volumes;
	struct door *doors;
};

static int plan_make(struct core *c, const char *tenant, const struct sandbox_spec *spec, struct plan *p, struct err *e)
{
	int rc = check_request(c, tenant, spec, e);

	if (rc == 0)
		rc = resolve_spec(c, spec, p->from, &p->filled, &p->boundary, &p->image, e);
	if (rc == 0)
		rc = volumes_resolve(c, tenant, p->boundary, &spec->volumes, &p->volumes, e);
	if (rc == 0)
		rc = secrets_known(c, tenant, spec, e);
	p->spec = p->from ? &p->filled : spec;
	if (rc < 0 || !spec->publish.n)
		return rc;
	if (!p->from)
		spec_copy(&p->filled, spec); /* the ports that it gets are put in */
	p->spec = &p->filled;
	return doors_open(c, &p->filled.publish, &p->doors, e);
}

static void plan_done(struct plan *p)
{
	doors_drop(p->doors);
	volume_mounts_done(&p->volumes);
	spec_done(&p->filled);
	image_done(&p->image);
}

static int plan_begin(struct core *c, const char *tenant, const char *key_id, struct plan *p, sandbox_done_fn done, void *ctx, struct err *e)
{
	const struct sandbox_spec *spec = p->spec;
	struct boundary *b = p->boundary;
	struct sandbox_row row = { 0 };
	struct claim claim = { 0 };

	struct boundary_spec bs = shape_of(b, spec, user_of(spec, &p->image), &p->image);
	bs.volumes = &p->volumes;
	if (p->from)
		bs.from_snapshot = p->from->row.id;
	/* A ready one may hold programs that were started without rules. */
	bool claimed = !spec->permissions && may_rename(b, spec) && pool_claim(c, b, &bs, &claim);
	if (!claimed)
		random_uuid(claim.id);
	bs.id = claim.id;
	int rc = make_row(c, tenant, key_id, spec, b, &bs, claim.ready ? SANDBOX_RUNNING : SANDBOX_CREATING, &row, e);
	if (rc < 0) {
		if (claimed)
			unclaim(b, &claim);
		sandbox_row_done(&row);
		return rc;
	}
	prepare_secrets(spec, &done, &ctx);
	struct sandbox *s = core_add(c, &row);
	s->shape = claim.shape;
	s->ahead_ms = claimed && claim.ahead ? now_ms() : 0;
	s->ahead_merged = claim.ahead_merged;
	s->row.next_run = s->ahead_ms ? AHEAD_RUN + 1 : AHEAD_RUN; /* the store holds the end of what is reserved: the first run need not write it */
	s->boundary = b;
	core_emit(c, "sandbox.created", s, SANDBOX_CREATING, NULL);
	doors_attach(s, take_ptr(&p->doors));
	if (p->from && p->from->carried)
		carry_give(p->from->carried, s);
	if (p->from)
		snapshot_used(p->from);
	if (claimed)
		create_claimed(s, &claim, done, ctx);
	else
		create_cold(s, &bs, done, ctx);
	return 0;
}

void core_create_from(struct core *c, const char *tenant, const char *key_id, const struct sandbox_spec *spec, struct snapshot *from, sandbox_done_fn done,
                      void *ctx)
{
	struct plan p = { .from = from };
	struct err e;

	struct sandbox *s = find_idempotent(c, tenant, spec->idempotency_key);
	if (s) {
		create_again(s, done, ctx);
		return;
	}
	int rc = plan_make(c, tenant, spec, &p, &e);
	if (rc == 0)
		rc = plan_begin(c, tenant, key_id, &p, done, ctx, &e);
	plan_done(&p);
	if (rc < 0)
		done(ctx, &e, NULL);
	else
		pool_refill(c);
}
