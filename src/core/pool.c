/* Sandboxes that are ready before anybody asks: a create of the same shape takes one instead of waiting for the boundary.
 *
 * Theory of operation. A shape is all that a boundary is asked for besides the id and the host name, so what is taken is what
 * a cold create of this request would have made. Each shape that was asked for lately, or that the operator wants, has
 * a number of ready sandboxes it is filled up to: of each boundary one after the other, and not while callers' own creates are under way.
 * A ready one is known to the boundary and to nobody else: it has no record in the store, so a daemon that finds it after a crash removes it
 * as it does everything without a record. Claiming is the daemon's own work only: its id and its open connection are given away. One that is
 * still being made is given away as well: to begin another one beside it would only make both late. */
#include "base/log.h"
#include "core/ahead.h"
#include "core/core_int.h"

#include <errno.h>
#include <stdio.h>

enum { LEASE_MS = 60000 /* how long an automatic shape is kept filled after it was last asked for */, RETRY_MS = 5000 /* at first; then twice as long each time */, RETRY_MAX_MS = 300000, SHAPES_MAX = 32,
       REST_MS = 10 /* a claimed one is used at once, and should not share the processors with the making of the next */ };

#define WARM_RUN ((uint64_t)1 << 63) /* the number of a ready one's first run, which no tenant's ever has */

struct spare {
	struct shape *shape;
	char id[37];
	struct link *link;
	bool ready;             /* the guest has said hello */
	bool warming;           /* it runs what the boundary has for that (WARM_RUN) */
	bool ahead, ahead_merged; /* and a Python waits there, its stderr in its stdout */
	uint64_t ready_ms;      /* since when it is */
	uint64_t deadline_ms;   /* until it does; 0 while the boundary is at it, which always answers */
	struct spare *prev, *next;
};

struct shape {
	struct pool *pool;
	struct boundary *boundary;
	struct boundary_spec spec; /* without id and host name; its strings are the shape's own */
	struct pairs env;
	struct spare *spares;      /* ready ones, and at most one that is being made (the last) */
	size_t n;
	size_t fixed;              /* what the operator wants; found out by each sweep */
	char why[200];             /* the last one did not come up; empty: it did */
	unsigned failures;         /* since one did, and stayed for LEASE_MS or was taken */
	uint64_t serial;
	uint64_t ahead_ms;         /* when somebody last began with Python code; 0 = nobody has */
	bool ahead_merged;         /* and wanted its stderr in its stdout */
	bool automatic;            /* also kept filled because it was asked for lately */
	uint64_t asked_ms, retry_ms, rest_ms; /* not before retry_ms and rest_ms is one made */
	struct shape *prev, *next;
};

/* What the operator wants. Its image is looked up again and again, for a name may come to mean another image. */
struct standing {
	struct sandbox_spec spec;
	size_t size;
	char why[200];             /* there is no shape of it: its image is gone, ...; empty: there is one */
	struct standing *next;
};

struct pool {
	struct core *core;
	uv_timer_t rest;
	struct shape *shapes; /* the one asked for last comes first */
	struct standing *standing;
	uint64_t shapes_made;
	size_t leaving;       /* destroys under way */
	bool draining;
	void (*drained)(void *ctx);
	void *drained_ctx;
};

struct pool *pool_new(struct core *c)
{
	struct pool *p = xcalloc(1, sizeof *p);

	p->core = c;
	uv_timer_init(c->loop, &p->rest);
	p->rest.data = c;
	c->handles++;
	return p;
}

/* --- shapes --- */

static bool same_env(const struct pairs *a, const struct pairs *b)
{
	size_t na = a ? a->n : 0, nb = b ? b->n : 0;

	if (na != nb)
		return false;
	for (size_t i = 0; i < na; i++) {
		if (!streq(a->v[i].key, b->v[i].key) || !streq(a->v[i].value, b->v[i].value))
			return false;
	}
	return true;
}

static bool same_resources(const struct resources *a, const struct resources *b)
{
	return a->cpus == b->cpus && a->memory_mib == b->memory_mib && a->disk_mib == b->disk_mib &&
	       a->pids == b->pids;
}

static bool fits(const struct shape *s, const struct boundary *b, const struct boundary_spec *spec)
{
	return b == s->boundary && streq(s->spec.image_digest, spec->image_digest) && same_resources(&s->spec.resources, &spec->resources) &&
	       s->spec.ephemeral == spec->ephemeral && s->spec.sudo == spec->sudo && s->spec.network == spec->network && streq(s->spec.user, spec->user) && streq(s->spec.workdir, spec->workdir) &&
	       same_env(&s->env, spec->env);
}

static struct shape *find(struct pool *p, const struct boundary *b, const struct boundary_spec *spec)
{
	struct shape *s;

	DL_FOREACH (p->shapes, s) {
		if (fits(s, b, spec))
			return s;
	}
	return NULL;
}

static void shape_free(struct shape *s)
{
	DL_DELETE(s->pool->shapes, s);
	free((char *)(uintptr_t)s->spec.image_digest);
	free((char *)(uintptr_t)s->spec.user);
	free((char *)(uintptr_t)s->spec.workdir);
	pairs_done(&s->env);
	free(s);
}

static struct shape *shape_new(struct pool *p, struct boundary *b, const struct boundary_spec *spec)
{
	struct shape *s = xcalloc(1, sizeof *s);

	s->pool = p;
	s->serial = ++p->shapes_made;
	s->boundary = b;
	s->spec = (struct boundary_spec){
		.image_digest = xstrdup(spec->image_digest),
		.resources = spec->resources,
		.ephemeral = spec->ephemeral,
		.sudo = spec->sudo,
		.network = spec->network,
		.user = xstrdup(spec->user),
		.workdir = xstrdup(spec->workdir),
		.env = &s->env,
	};
	if (spec->env)
		pairs_copy(&s->env, spec->env);
	DL_PREPEND(p->shapes, s);
	return s;
}

static size_t wanted(const struct shape *s)
{
	size_t automatic = s->automatic ? s->pool->core->o.spares == CORE_SPARES_DEFAULT ? s->boundary->ops->spares : s->pool->core->o.spares : 0;

	return s->pool->draining ? 0 : MAX(s->fixed, automatic);
}

/* --- leaving --- */

static void fill(struct pool *p);

static void on_left(void *ctx, const struct err *e)
{
	struct pool *p = ctx;

	if (e)
		log_warn("msg=\"a ready sandbox could not be removed: %s\"", e->message);
	p->leaving--;
	if (p->draining && p->leaving == 0 && p->drained)
		p->drained(p->drained_ctx);
}

static void spare_free(struct spare *sp)
{
	DL_DELETE(sp->shape->spares, sp);
	sp->shape->n--;
	if (sp->link)
		link_free(sp->link);
	free(sp);
}

static void leave(struct spare *sp)
{
	struct shape *s = sp->shape;
	struct boundary *b = s->boundary;
	char id[37];

	snprintf(id, sizeof id, "%s", sp->id);
	spare_free(sp);
	s->pool->leaving++;
	b->ops->destroy(b, id, on_left, s->pool);
}

/* It did not come up, or went by itself: the next try waits, longer each time, so that what can never be made costs little. */
static void lost(struct spare *sp, const char *why, uint64_t wait_ms)
{
	struct shape *s = sp->shape;

	log_warn("sandbox=%s msg=\"a ready sandbox is lost: %s\"", sp->id, why);
	snprintf(s->why, sizeof s->why, "%s", why);
	if (sp->ready && now_ms() - sp->ready_ms > LEASE_MS)
		s->failures = 0;
	for (unsigned i = 0; i < s->failures && wait_ms < RETRY_MAX_MS; i++)
		wait_ms *= 2;
	s->failures++;
	s->retry_ms = now_ms() + MIN(wait_ms, (uint64_t)RETRY_MAX_MS);
	leave(sp);
}

static void broken(struct spare *sp, const char *why)
{
	lost(sp, why, RETRY_MS);
}

/* This host cannot have such a one at all (more memory than there is, ...): that does not change from one moment to the next. */
static void refused(struct spare *sp, const char *why)
{
	sp->shape->automatic = false;
	lost(sp, why, LEASE_MS);
}

/* --- coming --- */

static void start_ahead(struct spare *sp)
{
	const struct shape *s = sp->shape;

	if (sp->ahead || !sp->ready || !s->ahead_ms || now_ms() - s->ahead_ms > LEASE_MS)
		return;
	sp->ahead = true;
	sp->ahead_merged = s->ahead_merged;
	ahead_start(sp->link, s->spec.user, s->ahead_merged);
}

static void on_hello(void *ctx, const struct link_run_state *known, size_t n)
{
	struct spare *sp = ctx;

	(void)known;
	(void)n;
	const char *program = sp->shape->boundary->ops->spare_runs;
	if (program && !sp->ready) {
		sp->warming = true;
		link_run_start(sp->link, WARM_RUN, &(struct link_run_spec){ .argv = (const char *[]){ program, NULL }, .timeout_ms = HELLO_TIMEOUT_MS });
	}
	sp->ready = true;
	sp->ready_ms = now_ms();
	sp->shape->why[0] = '\0';
	start_ahead(sp);
	pool_refill(sp->shape->pool->core);
}

static void on_closed(void *ctx, const struct err *why)
{
	broken(ctx, why ? why->message : "the guest closed its connection");
}

static void ignore_run(void *ctx, uint64_t run)
{
	(void)ctx;
	(void)run;
}

static void ignore_output(void *ctx, uint64_t run, int stream, uint64_t offset, struct str bytes)
{
	(void)stream;
	(void)offset;
	(void)bytes;
	ignore_run(ctx, run);
}

/* How the boundary's one ended is all the same: an image need not have the program. Nor a Python. */
static void on_spare_run_end(void *ctx, uint64_t run, const struct link_run_end *end)
{
	struct spare *sp = ctx;

	(void)end;
	if (run == WARM_RUN) {
		sp->warming = false;
	} else if (run == AHEAD_RUN && sp->ahead) {
		sp->ahead = false;
		sp->shape->ahead_ms = 0;
	}
	link_run_release(sp->link, run);
}

static void ignore_session(void *ctx, const char *session, int exit_code)
{
	(void)ctx;
	(void)session;
	(void)exit_code;
}

/* What a hostile guest tells of runs that nobody has started does not come here: it is a violation. */
static const struct link_events spare_link_events = {
	.on_hello = on_hello,
	.on_run_started = ignore_run,
	.on_run_output = ignore_output,
	.on_run_stdin_room = ignore_run,
	.on_run_end = on_spare_run_end,
	.on_session_end = ignore_session,
	.on_closed = on_closed,
};

static struct spare *find_spare(struct pool *p, const char *id)
{
	struct shape *s;
	struct spare *sp;

	DL_FOREACH (p->shapes, s) {
		DL_FOREACH (s->spares, sp) {
			if (streq(sp->id, id))
				return sp;
		}
	}
	return NULL;
}

struct making {
	struct pool *pool;
	char id[37];
};

static void on_made(void *ctx, const struct err *e)
{
	struct making *m = ctx;
	struct pool *p = m->pool;
	struct spare *sp = find_spare(p, m->id);
	struct err ignored;
	char id[37];

	memcpy(id, m->id, sizeof id);
	free(m);
	if (!sp) {
		lifecycle_made(p->core, id, e);
		return;
	}
	if (e) {
		(e->kind == ERR_INVALID ? refused : broken)(sp, e->message);
		return;
	}
	struct boundary *b = sp->shape->boundary;
	int fd = b->ops->open_guest(b, sp->id, &ignored);
	if (fd >= 0)
		sp->link = link_new(p->core->loop, fd, &spare_link_events, sp);
	sp->deadline_ms = now_ms() + HELLO_TIMEOUT_MS;
	if (!sp->link)
		broken(sp, "its guest cannot be reached");
}

static void make_one(struct shape *s)
{
	struct spare *sp = xcalloc(1, sizeof *sp);
	struct making *m = xcalloc(1, sizeof *m);
	struct boundary_spec spec = s->spec;

	sp->shape = s;
	random_uuid(sp->id);
	DL_APPEND(s->spares, sp);
	s->n++;
	m->pool = s->pool;
	memcpy(m->id, sp->id, sizeof m->id);
	spec.id = spec.hostname = sp->id;
	s->boundary->ops->create(s->boundary, &spec, on_made, m);
}

static bool making(const struct pool *p, const struct boundary *b)
{
	const struct shape *s;

	DL_FOREACH (p->shapes, s) {
		if (b == s->boundary && s->spares && !s->spares->prev->ready)
			return true;
	}
	return false;
}

static bool may_be_filled(const struct shape *s, uint64_t now)
{
	return s->n < wanted(s) && now >= s->retry_ms && now >= s->rest_ms;
}

static void fill(struct pool *p)
{
	struct shape *s;
	uint64_t now = now_ms();

	/* (Before every boundary has said what it has, a new one would be taken for something left over.) */
	if (p->draining || p->core->lists_pending || p->core->creating)
		return;
	DL_FOREACH (p->shapes, s) {
		struct spare *sp;
		DL_FOREACH (s->spares, sp) { /* made before anybody began with Python code */
			start_ahead(sp);
		}
		if (may_be_filled(s, now) && !making(p, s->boundary))
			make_one(s);
	}
}

/* --- from outside --- */

/* Whoever may create chooses the kinds, so there is a bound on those that are kept for having been asked for. */
static void forget_idlest(struct pool *p)
{
	struct shape *s;
	size_t n = 0;

	DL_FOREACH (p->shapes, s) {
		if (s->automatic && !s->fixed && ++n > SHAPES_MAX)
			s->automatic = false;
	}
}

bool pool_claim(struct core *c, struct boundary *b, const struct boundary_spec *spec, struct claim *ret)
{
	struct pool *p = c->pool;
	struct shape *s = find(p, b, spec);

	if (spec->from_snapshot || (spec->volumes && spec->volumes->n))
		return false; /* each begins as something else, or has folders of its own */
	if (s) {
		DL_DELETE(p->shapes, s);
		DL_PREPEND(p->shapes, s);
	} else if (c->o.spares == 0 || (c->o.spares == CORE_SPARES_DEFAULT && b->ops->spares == 0)) {
		return false;
	} else {
		s = shape_new(p, b, spec);
	}
	s->automatic = true;
	s->asked_ms = now_ms();
	s->rest_ms = s->asked_ms + b->ops->spare_rest_ms;
	forget_idlest(p);
	ret->shape = s->serial;
	if (!s->spares)
		return false;
	if (s->spares->warming)
		link_run_release(s->spares->link, WARM_RUN);
	s->failures = 0;
	struct spare *sp = s->spares;
	*ret = (struct claim){ .link = take_ptr(&sp->link), .ready = sp->ready, .ahead = sp->ahead, .ahead_merged = sp->ahead_merged, .shape = s->serial };
	memcpy(ret->id, sp->id, sizeof ret->id);
	spare_free(sp);
	return true;
}

void pool_wants_ahead(struct core *c, uint64_t shape, bool merge_stderr)
{
	struct shape *s;

	DL_FOREACH (c->pool->shapes, s) {
		if (s->serial == shape) {
			s->ahead_ms = now_ms();
			s->ahead_merged = merge_stderr;
		}
	}
}

static bool running_short(const struct pool *p)
{
	const struct shape *s;
	uint64_t now = now_ms();

	DL_FOREACH (p->shapes, s) {
		if (2 * s->n < wanted(s) && may_be_filled(s, now))
			return true;
	}
	return false;
}

static void on_rest(uv_timer_t *h)
{
	struct core *c = h->data;

	fill(c->pool);
}

void pool_refill(struct core *c)
{
	if (running_short(c->pool))
		fill(c->pool);
	else if (!c->pool->draining)
		uv_timer_start(&c->pool->rest, on_rest, REST_MS, 0);
}

void pool_close_handle(struct core *c, uv_close_cb closed)
{
	uv_close((uv_handle_t *)&c->pool->rest, closed);
}

bool pool_exit(struct core *c, const char *id, const char *reason)
{
	struct spare *sp = find_spare(c->pool, id);

	if (sp)
		broken(sp, reason);
	return sp;
}

/* --- what the operator wants --- */

static void apply_standing(struct pool *p)
{
	struct shape *s;
	struct standing *st;

	DL_FOREACH (p->shapes, s)
		s->fixed = 0;
	LL_FOREACH (p->standing, st) {
		struct image image = { 0 };
		struct boundary *b = NULL;
		struct err e = { 0 };
		bool known = resolve_spec(p->core, &st->spec, NULL, NULL, &b, &image, &e) == 0;
		snprintf(st->why, sizeof st->why, "%.199s", known ? "" : e.message);
		if (known) {
			struct boundary_spec spec = shape_of(b, &st->spec, user_of(&st->spec, &image), &image);
			s = find(p, b, &spec);
			if (!s)
				s = shape_new(p, b, &spec);
			s->fixed = st->size;
		}
		image_done(&image);
	}
}

static bool same_kind(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
	return streq(a->image, b->image) && streq(a->boundary, b->boundary) && streq(a->user, b->user) && streq(a->workdir, b->workdir) &&
	       same_resources(&a->resources, &b->resources) && a->ephemeral == b->ephemeral && spec_sudo(a) == spec_sudo(b) &&
	       (a->network == NETWORK_NONE) == (b->network == NETWORK_NONE);
}

/* A copy of what shapes a sandbox, with nothing left to defaults that may change. */
static void kind_of(const struct sandbox_spec *spec, const struct boundary *b, struct sandbox_spec *ret)
{
	spec_init(ret);
	if (spec->image) {
		free(ret->image);
		ret->image = xstrdup(spec->image);
	}
	ret->boundary = xstrdup(b->ops->name);
	ret->user = xstrdup(spec->user);
	ret->workdir = xstrdup(spec->workdir);
	ret->ephemeral = spec->ephemeral;
	ret->sudo = spec->sudo;
	ret->network = spec->network_unasked && !(b->ops->caps & BOUNDARY_CAN_NETWORK) ? NETWORK_NONE : spec->network;
	ret->resources = spec->resources;
	resources_fill(&ret->resources, ret->ephemeral);
}

static struct standing *find_standing(struct pool *p, const struct sandbox_spec *kind)
{
	struct standing *st;

	LL_FOREACH (p->standing, st) {
		if (same_kind(&st->spec, kind))
			return st;
	}
	return NULL;
}

/* Takes the kind. */
static void set_standing(struct pool *p, struct sandbox_spec *kind, size_t size)
{
	struct standing *st = find_standing(p, kind);

	if (!st && size) {
		st = xcalloc(1, sizeof *st);
		st->spec = *kind;
		LL_PREPEND(p->standing, st);
	} else {
		spec_done(kind);
	}
	if (st && size == 0) {
		LL_DELETE(p->standing, st);
		spec_done(&st->spec);
		free(st);
	} else if (st) {
		st->size = size;
	}
}

int core_pool_set(struct core *c, const struct sandbox_spec *spec, size_t size, struct err *e)
{
	struct image image = { 0 };
	struct boundary *b = core_boundary(c, spec->boundary, e);
	struct sandbox_spec kind;

	if (!b)
		return -EINVAL;
	kind_of(spec, b, &kind);
	/* What can't be made any more can still be given up. */
	int r = size == 0 && find_standing(c->pool, &kind) ? 0 : resolve_spec(c, spec, NULL, NULL, &b, &image, e);
	image_done(&image);
	if (r == 0)
		r = store_pool_set(c->o.store, &kind, size, e);
	if (r < 0) {
		spec_done(&kind);
		return r;
	}
	set_standing(c->pool, &kind, size);
	pool_sweep(c);
	return 0;
}

static int load_standing(void *ctx, const struct sandbox_spec *spec, size_t size)
{
	struct sandbox_spec copy;

	spec_copy(&copy, spec);
	set_standing(ctx, &copy, size);
	return 0;
}

void pool_load(struct core *c)
{
	store_pool_each(c->o.store, load_standing, c->pool);
	apply_standing(c->pool);
}

void core_pool_each(struct core *c, void (*each)(void *ctx, const struct pool_view *v), void *ctx)
{
	struct shape *s;
	struct spare *sp;

	DL_FOREACH (c->pool->shapes, s) {
		struct pool_view v = {
			.image_digest = s->spec.image_digest, .boundary = s->boundary->ops->name, .user = s->spec.user, .workdir = s->spec.workdir,
			.resources = &s->spec.resources, .ephemeral = s->spec.ephemeral, .sudo = s->spec.sudo, .network = s->spec.network, .size = wanted(s), .standing = s->fixed,
			.error = *s->why ? s->why : NULL,
		};
		DL_FOREACH (s->spares, sp)
			v.ready += sp->ready;
		each(ctx, &v);
	}
	struct standing *st;
	LL_FOREACH (c->pool->standing, st) {
		const struct sandbox_spec *k = &st->spec;
		if (*st->why) /* it has no shape: this is all there is to tell */
			each(ctx, &(struct pool_view){ .image_digest = k->image, .boundary = k->boundary, .user = k->user ? k->user : "", .workdir = k->workdir,
			                               .resources = &k->resources, .ephemeral = k->ephemeral, .sudo = spec_sudo(k),
			                               .network = k->network != NETWORK_NONE, .size = st->size, .standing = st->size, .error = st->why });
	}
}

/* --- time --- */

void pool_excuse(struct core *c, uint64_t ms)
{
	struct shape *s;

	DL_FOREACH (c->pool->shapes, s)
		if (s->spares && s->spares->prev->deadline_ms)
			s->spares->prev->deadline_ms += ms;
}

void pool_sweep(struct core *c)
{
	struct shape *s, *next;
	uint64_t now = now_ms();

	if (c->pool->draining)
		return;
	apply_standing(c->pool);

	DL_FOREACH_SAFE (c->pool->shapes, s, next) {
		if (s->automatic && now - s->asked_ms > LEASE_MS)
			s->automatic = false;
		if (s->spares && !s->spares->prev->ready && s->spares->prev->deadline_ms && now > s->spares->prev->deadline_ms)
			broken(s->spares->prev, "the guest did not answer within 30 seconds");
		while (s->n > wanted(s))
			leave(s->spares->prev);
		if (s->n == 0 && !s->fixed && !s->automatic)
			shape_free(s);
	}
	fill(c->pool);
}

void pool_abandon(struct core *c)
{
	struct shape *s;

	c->pool->draining = true;
	uv_timer_stop(&c->pool->rest);
	DL_FOREACH (c->pool->shapes, s) {
		while (s->spares)
			spare_free(s->spares);
	}
}

void pool_drain(struct core *c, void (*done)(void *ctx), void *ctx)
{
	struct pool *p = c->pool;
	struct shape *s;

	p->draining = true;
	uv_timer_stop(&p->rest);
	p->drained = done;
	p->drained_ctx = ctx;
	p->leaving++; /* of our own, so that `done` comes once */
	DL_FOREACH (p->shapes, s) {
		while (s->spares)
			leave(s->spares);
	}
	on_left(p, NULL);
}

void pool_free(struct pool *p)
{
	struct shape *s, *next;

	DL_FOREACH_SAFE (p->shapes, s, next) {
		while (s->spares)
			spare_free(s->spares);
		shape_free(s);
	}
	while (p->standing) {
		struct standing *st = p->standing;
		p->standing = st->next;
		spec_done(&st->spec);
		free(st);
	}
	free(p);
}
