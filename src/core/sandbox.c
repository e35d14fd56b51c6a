/* What can be asked of a sandbox and changed about it without a change of its state. */
#include "base/log.h"
#include "core/ahead.h"
#include "core/core_int.h"
#include "core/secret.h"
#include "model/policy.h"
#include "model/reach.h"

#include <errno.h>
#include <stdio.h>

enum { ACTIVE_SAVE_MS = 10000 };

void sandbox_touch(struct sandbox *s)
{
	s->row.active_ms = now_unix_ms();
	if (s->row.active_ms - s->active_saved_ms > ACTIVE_SAVE_MS) {
		s->active_saved_ms = s->row.active_ms;
		store_sandbox_active(s->core->o.store, s->row.id, s->row.active_ms);
	}
}

static int save(struct sandbox *s, struct err *e)
{
	uint64_t next_run = s->row.next_run;

	s->row.updated_ms = now_unix_ms();
	s->row.next_run = s->run_reserved; /* what the store holds is the bound of what may have been used */
	int rc = store_sandbox_put(s->core->o.store, &s->row, e);
	s->row.next_run = next_run;
	return rc;
}

int sandbox_replace_spec(struct sandbox *s, struct sandbox_spec *changed, struct err *e)
{
	struct sandbox_spec old = s->row.spec;

	int r = spec_validate(changed, e);
	if (r < 0) {
		spec_done(changed);
		return r;
	}
	s->row.spec = *changed;
	r = save(s, e);
	if (r < 0) {
		spec_done(&s->row.spec);
		s->row.spec = old;
		return r;
	}
	spec_done(&old);
	return 0;
}

int sandbox_set_labels(struct sandbox *s, const struct pairs *labels, struct err *e)
{
	struct sandbox_spec changed;

	spec_copy(&changed, &s->row.spec);
	pairs_done(&changed.labels);
	pairs_copy(&changed.labels, labels);
	return sandbox_replace_spec(s, &changed, e);
}

int sandbox_set_env(struct sandbox *s, const struct pairs *set, char *const *unset, struct err *e)
{
	struct sandbox_spec changed;
	struct pairs kept = { 0 };

	spec_copy(&changed, &s->row.spec);
	for (size_t i = 0; i < changed.env.n; i++) {
		bool drop = false;
		for (char *const *u = unset; u && *u && !drop; u++)
			drop = streq(*u, changed.env.v[i].key);
		if (!drop)
			pairs_add(&kept, changed.env.v[i].key, changed.env.v[i].value);
	}
	for (size_t i = 0; set && i < set->n; i++)
		pairs_add(&kept, set->v[i].key, set->v[i].value);
	pairs_done(&changed.env);
	changed.env = kept;
	int rc = spec_check_secrets(&changed, e);
	if (rc < 0) {
		spec_done(&changed);
		return rc;
	}
	return sandbox_replace_spec(s, &changed, e);
}

int sandbox_set_lifetime(struct sandbox *s, const struct lifetime *l, struct err *e)
{
	struct sandbox_spec changed;

	spec_copy(&changed, &s->row.spec);
	changed.lifetime = *l;
	return sandbox_replace_spec(s, &changed, e);
}

/* --- network --- */

int network_permitted(const struct core *c, const struct sandbox_spec *spec, struct err *e)
{
	if (spec->network != NETWORK_NONE && !c->o.egress)
		return err_set(e, ERR_DENIED, EPERM, "network.mode: this server gives no networks");
	struct reach reach;
	reach_of(spec, &reach);
	int rc = ceiling_permits(c->o.ceiling, reach.mode, reach.allow, &spec->network_limits, e);
	reach_done(&reach);
	return rc;
}

/* The sandbox's own denials and the operator's; the texts are theirs. */
static char **all_denials(const struct core *c, char *const *own)
{
	char *const *lists[] = { own, c->o.ceiling->deny };
	char **all = xcalloc(POLICY_RULES_MAX + POLICY_OPERATOR_MAX + 1, sizeof *all);
	size_t n = 0;

	for (size_t l = 0; l < ARRAY_LEN(lists); l++)
		for (size_t i = 0; lists[l] && lists[l][i] && n < POLICY_RULES_MAX + POLICY_OPERATOR_MAX; i++)
			all[n++] = lists[l][i];
	return all;
}

void network_tell(struct sandbox *s)
{
	const struct sandbox_spec *spec = &s->row.spec;
	struct network_limits limits = spec->network_limits;
	struct core *c = s->core;
	struct err e;

	if (!c->o.egress)
		return;
	struct reach reach;
	reach_of(spec, &reach);
	/* One that was made under another ceiling and is above this one: closed, until what it wants is something that it may have. */
	bool above = ceiling_permits(c->o.ceiling, reach.mode, reach.allow, &(struct network_limits){ 0 }, &e) < 0;
	if (above)
		log_warn("sandbox=%s msg=\"it reaches nothing: %s\"", s->row.id, e.message);
	if (above || reach.mode == NETWORK_NONE) {
		egress_forget(c->o.egress, s->row.id);
	} else {
		auto_free char **deny = all_denials(c, reach.deny);
		struct reach told = reach;
		told.deny = deny;
		ceiling_limit(c->o.ceiling, &limits);
		egress_set(c->o.egress, s->row.id, &told, &limits);
	}
	reach_done(&reach);
	secrets_tell(s);
}

int sandbox_answer_host(struct sandbox *s, const char *name, bool allowed, struct err *e)
{
	struct sandbox_spec changed;
	size_t n = 0;

	while (s->row.spec.host_answers && s->row.spec.host_answers[n])
		n++;
	if (n >= HOST_ANSWERS_MAX)
		return err_set(e, ERR_LIMIT, E2BIG, "%d hosts have been answered for in this sandbox: give it a rule instead", HOST_ANSWERS_MAX);
	spec_copy(&changed, &s->row.spec);
	reach_answer(&changed, name, allowed);
	int rc = sandbox_replace_spec(s, &changed, e);
	if (rc == 0)
		network_tell(s);
	return rc;
}

struct network_change {
	struct core *core;
	char id[40];
	sandbox_done_fn done;
	void *ctx;
};

static void on_network(void *ctx, const struct err *e)
{
	struct network_change *n = ctx;
	struct sandbox *s = core_find(n->core, NULL, n->id);
	struct err gone;

	/* Without a gate it has no network, whatever was asked for. */
	if (e && s) {
		struct err ignored;
		struct sandbox_spec changed;
		spec_copy(&changed, &s->row.spec);
		changed.network = NETWORK_NONE;
		strv_free(take_ptr(&changed.network_allow));
		strv_free(take_ptr(&changed.network_deny));
		(void)sandbox_replace_spec(s, &changed, &ignored);
		network_tell(s);
	}
	if (!s && !e)
		err_set(&gone, ERR_NOT_FOUND, ENOENT, "the sandbox was deleted meanwhile");
	n->done(n->ctx, e ? e : s ? NULL : &gone, s);
	free(n);
}

static int check_network(struct sandbox *s, const struct sandbox_spec *changed, struct err *e)
{
	int rc = network_permitted(s->core, changed, e);

	if (rc < 0 || changed->network == NETWORK_NONE)
		return rc;
	if (s->boundary && !(s->boundary->ops->caps & BOUNDARY_CAN_NETWORK))
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "network.mode: the boundary '%s' gives a sandbox no network", s->row.boundary);
	return 0;
}

void sandbox_set_network(struct sandbox *s, enum network_mode mode, char *const *allow, char *const *deny, const struct network_limits *limits,
			 sandbox_done_fn done, void *ctx)
{
	bool had = s->row.spec.network != NETWORK_NONE, lives = s->row.state == SANDBOX_RUNNING || s->row.state == SANDBOX_PAUSED;
	struct sandbox_spec changed;
	struct err e;

	spec_copy(&changed, &s->row.spec);
	strv_free(changed.network_allow);
	strv_free(changed.network_deny);
	changed.network = mode;
	if (limits)
		changed.network_limits = *limits;
	changed.network_allow = strv_copy(allow);
	changed.network_deny = strv_copy(deny);
	int rc = policy_check(mode, changed.network_allow, changed.network_deny, true, &e);
	if (rc == 0)
		rc = check_network(s, &changed, &e);
	if (rc == 0 && s->under_way)
		rc = err_set(&e, ERR_CONFLICT, EBUSY, "cannot change the network: a state change is in progress (state %s)", sandbox_state_name(s->row.state));
	if (rc == 0 && mode != NETWORK_NONE)
		ceiling_limit(s->core->o.ceiling, &changed.network_limits);
	if (rc < 0)
		spec_done(&changed);
	else
		rc = sandbox_replace_spec(s, &changed, &e);
	if (rc < 0) {
		done(ctx, &e, s);
		return;
	}
	network_tell(s);
	audit_say_network(core_audit_begin(s->core, "sandbox.network", s->row.tenant, s->row.id), s);
	core_audit_end(s->core);
	if (!lives || had == (mode != NETWORK_NONE)) {
		done(ctx, NULL, s);
		return;
	}
	struct network_change *n = xcalloc(1, sizeof *n);
	*n = (struct network_change){ .core = s->core, .done = done, .ctx = ctx };
	snprintf(n->id, sizeof n->id, "%s", s->row.id);
	s->boundary->ops->network(s->boundary, s->row.id, mode != NETWORK_NONE, on_network, n);
}

/* --- secrets --- */

void sandbox_set_secrets(struct sandbox *s, const struct pairs *env, const struct pairs *files, sandbox_done_fn done, void *ctx)
{
	struct sandbox_spec changed;
	struct err e;

	spec_copy(&changed, &s->row.spec);
	pairs_done(&changed.secret_env);
	pairs_done(&changed.secret_files);
	pairs_copy(&changed.secret_env, env);
	pairs_copy(&changed.secret_files, files);
	int rc = spec_check_secrets(&changed, &e);
	if (rc == 0)
		rc = secrets_known(s->core, s->row.tenant, &changed, &e);
	if (rc == 0 && s->row.state != SANDBOX_RUNNING)
		rc = err_set(&e, ERR_CONFLICT, EBUSY, "secrets: they are put into a running sandbox only; this one is %s", sandbox_state_name(s->row.state));
	if (rc < 0)
		spec_done(&changed);
	else
		rc = sandbox_replace_spec(s, &changed, &e);
	if (rc < 0) {
		done(ctx, &e, s);
		return;
	}
	audit_say_secrets(core_audit_begin(s->core, "sandbox.secrets", s->row.tenant, s->row.id), s);
	core_audit_end(s->core);
	secrets_tell(s);
	secrets_install(s, done, ctx);
}

int sandbox_set_extra(struct sandbox *s, const char *extra, struct err *e)
{
	struct sandbox_spec changed;

	spec_copy(&changed, &s->row.spec);
	free(changed.extra);
	changed.extra = xstrdup(extra);
	return sandbox_replace_spec(s, &changed, e);
}

struct resizing {
	struct core *core;
	char id[40];
	uint64_t generation;
	struct resources resources;
	sandbox_done_fn done;
	void *ctx;
};

static int keep_resources(struct sandbox *s, const struct resources *r, struct err *e)
{
	struct sandbox_spec changed;

	spec_copy(&changed, &s->row.spec);
	changed.resources = *r;
	return sandbox_replace_spec(s, &changed, e);
}

static void on_resized(void *ctx, const struct err *e)
{
	struct resizing *r = ctx;
	struct sandbox *s = core_find(r->core, NULL, r->id);
	struct err why;

	if (!s)
		e = (err_set(&why, ERR_GONE, ESRCH, "the sandbox was deleted meanwhile"), &why);
	else if (!e && keep_resources(s, &r->resources, &why) < 0)
		e = &why;
	if (s)
		lifecycle_release(s, r->generation);
	r->done(r->ctx, e, s);
	free(r);
}

void sandbox_resize(struct sandbox *s, const struct resources *want, sandbox_done_fn done, void *ctx)
{
	struct resources now = s->row.spec.resources;
	struct err e;

	if (want->cpus > 0)
		now.cpus = want->cpus;
	if (want->memory_mib)
		now.memory_mib = want->memory_mib;
	if (want->pids)
		now.pids = want->pids;
	/* Nothing of it runs: its next start is with these. (One that is on its way to something is refused by the hold.) */
	bool rests = !s->under_way && (s->row.state == SANDBOX_STOPPED || s->row.state == SANDBOX_ERROR);
	int rc = resources_validate(&now, &e);
	if (rc == 0 && want->disk_mib && want->disk_mib != now.disk_mib)
		rc = err_set(&e, ERR_UNSUPPORTED, EOPNOTSUPP, "the size of a disk cannot change: it has %llu MiB; create a new sandbox and copy the files",
		             (unsigned long long)now.disk_mib);
	if (rc == 0 && !s->boundary)
		rc = err_set(&e, ERR_UNAVAILABLE, ENOSYS, "the boundary '%s' is not offered by this server now", s->row.boundary);
	if (rc == 0)
		rc = s->boundary->ops->check(s->boundary, &now, &e);
	if (rc == 0 && !rests && !(s->boundary->ops->caps & BOUNDARY_CAN_RESIZE))
		rc = err_set(&e, ERR_UNSUPPORTED, EOPNOTSUPP, "the boundary '%s' cannot change the limits of a started sandbox: stop it first",
		             s->row.boundary);
	if (rc == 0 && rests)
		rc = keep_resources(s, &now, &e);
	if (rc < 0 || rests) {
		done(ctx, rc < 0 ? &e : NULL, s);
		return;
	}
	uint64_t generation = lifecycle_hold(s, "resize", &e);
	if (!generation) {
		done(ctx, &e, s);
		return;
	}
	struct resizing *r = xcalloc(1, sizeof *r);
	*r = (struct resizing){ .core = s->core, .generation = generation, .resources = now, .done = done, .ctx = ctx };
	snprintf(r->id, sizeof r->id, "%s", s->row.id);
	s->boundary->ops->resize(s->boundary, s->row.id, &now, on_resized, r);
}

/* Bulk goes past PID 1 where it can. NULL: by the ordinary way, then. */
static struct link_op *open_direct(struct sandbox *s, const struct op_spec *spec, const struct op_events *ev, void *ctx)
{
	struct err e;

	if ((spec->kind != OP_READ && spec->kind != OP_WRITE) || !(s->boundary->ops->caps & BOUNDARY_MANY_CONNECTIONS))
		return NULL;
	int fd = s->boundary->ops->open_guest(s->boundary, s->row.id, &e);
	return fd < 0 ? NULL : link_op_open_direct(s->link, fd, spec, ev, ctx);
}

struct link_op *sandbox_op(struct sandbox *s, const struct op_spec *spec, const struct op_events *ev, void *ctx, struct err *e)
{
	struct op_spec filled = *spec;

	if (s->row.state != SANDBOX_RUNNING || !s->link) {
		err_set(e, ERR_CONFLICT, EBUSY, "the sandbox is not running (state %s)", sandbox_state_name(s->row.state));
		return NULL;
	}
	if (core_audit_ready(s->core, e) < 0)
		return NULL;
	sandbox_touch(s);
	ahead_drop_for(s, spec);
	if (!filled.user)
		filled.user = s->row.user;
	if (!filled.cwd)
		filled.cwd = s->row.spec.workdir;
	struct link_op *op = open_direct(s, &filled, ev, ctx);
	if (!op)
		op = link_op_open(s->link, &filled, ev, ctx);
	audit_op(s, &filled, op);
	return op;
}
