/* /v1/sandboxes: create, list, look, change, start and stop, delete. */
#include "dialect/native/native_int.h"

#include <errno.h>
#include <stdio.h>

static void answer_sandbox(struct native *n, struct request *r, int status, const struct sandbox_view *v)
{
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	encode_sandbox(&j, NULL, v);
	if (status == 201) {
		auto_free char *location = xasprintf("/v1/sandboxes/%s", v->id);
		answer_created(n, r, location, &b);
	} else {
		answer_json(n, r, status, &b);
	}
}

static void created(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	if (e)
		answer_err(n, r, e);
	else
		answer_sandbox(n, r, 201, v);
}

void native_sandbox_create(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct sandbox_spec spec;
	struct err e;
	if (native_sandbox_decode(n, r, &spec, &e) < 0)
		answer_err(n, r, &e);
	else
		api_sandbox_create(n->api, req_caller(r), &spec, created, pending_new(n, r));
	spec_done(&spec);
}

/* --- list --- */

struct list_query {
	char **labels, **states;
	char *name_prefix, *id_prefix, *order, *cursor;
	uint64_t limit;
};

static const struct field list_fields[] = {
	{ .name = "label", .kind = FIELD_STRINGS, .offset = offsetof(struct list_query, labels) },
	{ .name = "state", .kind = FIELD_STRINGS, .offset = offsetof(struct list_query, states) },
	{ .name = "name_prefix", .kind = FIELD_STRING, .offset = offsetof(struct list_query, name_prefix) },
	{ .name = "id_prefix", .kind = FIELD_STRING, .offset = offsetof(struct list_query, id_prefix) },
	{ .name = "order", .kind = FIELD_STRING, .offset = offsetof(struct list_query, order) },
	{ .name = "limit", .kind = FIELD_U64, .offset = offsetof(struct list_query, limit), .min = 1, .max = 1000 },
	{ .name = "cursor", .kind = FIELD_STRING, .offset = offsetof(struct list_query, cursor) },
	{ 0 },
};

static void list_query_done(struct list_query *q)
{
	strv_free(q->labels);
	strv_free(q->states);
	free(q->name_prefix);
	free(q->id_prefix);
	free(q->order);
	free(q->cursor);
}

static int add_label(struct pairs *to, const char *text, struct err *e)
{
	const char *colon = strchr(text, ':');
	if (!colon || colon == text)
		return err_set(e, ERR_INVALID, EINVAL, "query parameter \"label\" must be of the form key:value");
	auto_free char *key = xstrndup(text, (size_t)(colon - text));
	const char *before = pairs_get(to, key);
	if (before && !streq(before, colon + 1))
		return err_set(e, ERR_INVALID, EINVAL, "query parameter \"label\" asks for two values of one key, which no sandbox can have");
	pairs_add(to, key, colon + 1);
	return 0;
}

static int add_state(unsigned *to, const char *text, struct err *e)
{
	enum sandbox_state s;
	if (sandbox_state_parse(str_of(text), &s) < 0)
		return err_set(e, ERR_INVALID, EINVAL,
		               "query parameter \"state\" must be creating, running, paused, suspending, suspended, resuming, stopping, stopped, starting, deleting, deleted or error");
	*to |= 1U << s;
	return 0;
}

#define ALPHANUMERIC "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* alphabet NULL = any; value NULL = not given */
static int check_text(const char *name, const char *value, size_t max, const char *alphabet, struct err *e)
{
	if (!value)
		return 0;
	if (!*value)
		return err_set(e, ERR_INVALID, EINVAL, "query parameter \"%s\" is empty; leave it out", name);
	if (strlen(value) > max)
		return err_set(e, ERR_INVALID, EINVAL, "query parameter \"%s\" has at most %zu bytes", name, max);
	if (alphabet && value[strspn(value, alphabet)])
		return err_set(e, ERR_INVALID, EINVAL, "query parameter \"%s\" holds a character that none of them has", name);
	return 0;
}

static int list_query_decode(const struct request *r, struct list_query *q, struct sandbox_query *ret, struct err *e)
{
	int rc = decode_query(r, list_fields, q, e);
	for (char **l = q->labels; rc == 0 && l && *l; l++)
		rc = add_label(&ret->labels, *l, e);
	for (char **s = q->states; rc == 0 && s && *s; s++)
		rc = add_state(&ret->states, *s, e);
	if (rc == 0 && ret->labels.n > 0)
		rc = labels_validate(&ret->labels, e);
	if (rc == 0 && q->order && !streq(q->order, "oldest") && !streq(q->order, "newest"))
		rc = err_set(e, ERR_INVALID, EINVAL, "query parameter \"order\" must be \"oldest\" or \"newest\"");
	if (rc == 0)
		rc = check_text("cursor", q->cursor, 256, NULL, e);
	if (rc == 0)
		rc = check_text("name_prefix", q->name_prefix, SPEC_NAME_MAX, ALPHANUMERIC "_.-", e);
	if (rc == 0)
		rc = check_text("id_prefix", q->id_prefix, 36, "0123456789abcdef-", e);
	if (rc < 0)
		return rc;
	ret->name_prefix = q->name_prefix;
	ret->id_prefix = q->id_prefix;
	ret->cursor = q->cursor;
	ret->limit = q->limit;
	ret->newest_first = q->order && streq(q->order, "newest");
	return 0;
}

static void add_sandbox(void *ctx, const struct sandbox_view *v)
{
	encode_sandbox(ctx, NULL, v);
}

void native_sandbox_list(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct list_query text = { 0 };
	struct sandbox_query q = { 0 };
	struct err e;
	auto_free char *next = NULL;
	uint64_t total = 0;
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	jout_array(&j, "items");
	if (list_query_decode(r, &text, &q, &e) < 0 || api_sandbox_list(n->api, req_caller(r), &q, add_sandbox, &j, &next, &total, &e) < 0) {
		answer_err(n, r, &e);
	} else {
		jout_end_array(&j);
		jout_z(&j, "next", next);
		jout_u64(&j, "total", total);
		jout_end_object(&j);
		answer_json(n, r, 200, &b);
	}
	pairs_done(&q.labels);
	list_query_done(&text);
}

/* --- one --- */

void native_sandbox_get(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct sandbox_view v;
	struct err e;
	if (api_sandbox_get(n->api, req_caller(r), req_ref(r), &v, &e) < 0)
		answer_err(n, r, &e);
	else
		answer_sandbox(n, r, 200, &v);
}

static int apply(struct native *n, const struct request *r, const struct sandbox_changes *c, struct err *e)
{
	const struct caller *who = req_caller(r);
	const char *ref = req_ref(r);
	int rc = 0;
	/* The environment first: it alone can be refused for what is there already (its total size). */
	if (c->env_set.n || (c->env_unset && c->env_unset[0]))
		rc = api_sandbox_set_env(n->api, who, ref, &c->env_set, c->env_unset, e);
	if (rc >= 0 && c->has_labels)
		rc = api_sandbox_set_labels(n->api, who, ref, &c->labels, e);
	if (rc >= 0 && c->has_lifetime)
		rc = api_sandbox_set_lifetime(n->api, who, ref, &c->lifetime, e);
	return rc;
}

static void reach_changed(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	if (e)
		answer_err(n, r, e);
	else
		answer_sandbox(n, r, 200, v);
}

void native_sandbox_update(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct sandbox_changes c = { 0 };
	struct sandbox_view v;
	struct err e;
	int rc = api_sandbox_get(n->api, req_caller(r), req_ref(r), &v, &e);
	if (rc >= 0) {
		c.lifetime = v.spec->lifetime;
		c.network.network = v.spec->network;
		c.network.network_limits = v.spec->network_limits;
		rc = changes_decode(req_body(r), &c, &e);
	}
	if (rc >= 0 && c.has_network + c.has_secrets + c.has_permissions > 1)
		rc = err_set(&e, ERR_INVALID, EINVAL, "give \"network\", \"secrets\" and \"permissions\" in requests of their own: each can fail by itself");
	if (rc >= 0)
		rc = apply(n, r, &c, &e);
	if (rc >= 0 && !c.has_network)
		rc = api_sandbox_get(n->api, req_caller(r), req_ref(r), &v, &e);
	if (rc < 0)
		answer_err(n, r, &e);
	else if (c.has_network) /* last, since it answers later */
		api_sandbox_set_network(n->api, req_caller(r), req_ref(r), c.network.network, c.network.network_allow, c.network.network_deny,
		                        &c.network.network_limits, reach_changed, pending_new(n, r));
	else if (c.has_secrets)
		api_sandbox_set_secrets(n->api, req_caller(r), req_ref(r), &c.network.secret_env, &c.network.secret_files, reach_changed,
		                        pending_new(n, r));
	else if (c.has_permissions)
		api_sandbox_set_permissions(n->api, req_caller(r), req_ref(r), c.network.permissions, reach_changed, pending_new(n, r));
	else
		answer_sandbox(n, r, 200, &v);
	changes_done(&c);
}

static void deleted(void *ctx, const struct err *e)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	if (e && e->kind != ERR_NOT_FOUND) /* gone before: what was asked for is so */
		answer_err(n, r, e);
	else
		answer_empty(n, r, 204);
}

void native_sandbox_delete(struct request *r, void *dialect)
{
	struct native *n = dialect;
	api_sandbox_delete(n->api, req_caller(r), req_ref(r), deleted, pending_new(n, r));
}

/* --- states --- */

static void changed(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	if (e)
		answer_err(n, r, e);
	else if (v)
		answer_sandbox(n, r, 200, v);
	else
		answer_empty(n, r, 204); /* stopping was its end: an ephemeral one */
}

void native_sandbox_start(struct request *r, void *dialect)
{
	struct native *n = dialect;
	api_sandbox_start(n->api, req_caller(r), req_ref(r), changed, pending_new(n, r));
}

void native_sandbox_stop(struct request *r, void *dialect)
{
	struct native *n = dialect;
	api_sandbox_stop(n->api, req_caller(r), req_ref(r), changed, pending_new(n, r));
}

void native_sandbox_pause(struct request *r, void *dialect)
{
	struct native *n = dialect;
	api_sandbox_pause(n->api, req_caller(r), req_ref(r), changed, pending_new(n, r));
}

void native_sandbox_suspend(struct request *r, void *dialect)
{
	struct native *n = dialect;
	api_sandbox_suspend(n->api, req_caller(r), req_ref(r), changed, pending_new(n, r));
}

void native_sandbox_resume(struct request *r, void *dialect)
{
	struct native *n = dialect;
	api_sandbox_resume(n->api, req_caller(r), req_ref(r), changed, pending_new(n, r));
}

void native_sandbox_resize(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct resources res = { 0 };
	struct err e;
	if (resources_decode(req_body(r), &res, &e) < 0)
		answer_err(n, r, &e);
	else
		api_sandbox_resize(n->api, req_caller(r), req_ref(r), &res, changed, pending_new(n, r));
}

void native_sandbox_touch(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	if (api_sandbox_touch(n->api, req_caller(r), req_ref(r), &e) < 0)
		answer_err(n, r, &e);
	else
		answer_empty(n, r, 204);
}

static void measured(void *ctx, const struct err *e, const struct usage *u)
{
	struct request *r;
	struct native *n = pending_take(ctx, &r);
	auto_buf struct buf b;
	buf_init(&b, 4096);
	struct jout j = { .b = &b };
	if (e) {
		answer_err(n, r, e);
		return;
	}
	encode_usage(&j, NULL, u);
	answer_json(n, r, 200, &b);
}

void native_sandbox_usage(struct request *r, void *dialect)
{
	struct native *n = dialect;
	api_sandbox_usage(n->api, req_caller(r), req_ref(r), measured, pending_new(n, r));
}
