/* The verbs about the server itself: keys, images, what it is. */
#include "api/api_int.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>

int api_need_operator(const struct caller *c, struct err *e)
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

	if (rc < 0) {
		core_audit_key_refused(a->core);
		return rc;
	}
	caller_of(row, ret);
	if (rc > 0) { /* not of each request, but of each minute with one */
		api_line(a, ret, "key.used", NULL);
		api_line_end(a);
	}
	return 0;
}

void api_owner(struct sandbox *s, const struct sandbox_view *v, struct caller *ret)
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
			api_owner(s, &v, ret);
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
	api_owner(s, &v, ret);
	return 0;
}

void api_sandbox_each(struct api *a, void (*each)(void *ctx, const struct caller *owner, const struct sandbox_view *v), void *ctx)
{
	struct sandbox_view v;
	struct caller owner;

	for (struct sandbox *s = core_walk(a->core, NULL, false); s; s = core_walk(a->core, s, false)) {
		sandbox_view(s, &v);
		api_owner(s, &v, &owner);
		each(ctx, &owner, &v);
	}
}

int api_key_create(struct api *a, const struct caller *c, const char *name, const char *tenant, bool operator_, char ret_key[static 48],
                   char ret_id[static 40], struct err *e)
{
	int rc = api_need_operator(c, e);

	if (rc == 0)
		rc = keys_create(core_keys(a->core), name ? name : "", tenant ? tenant : c->tenant, operator_, ret_key, ret_id, e);
	if (rc == 0) {
		struct audit_line *l = api_line(a, c, "key.created", NULL);
		audit_text(l, "id", ret_id);
		audit_text(l, "name", name);
		audit_text(l, "for_tenant", tenant ? tenant : c->tenant);
		audit_flag(l, "operator", operator_);
		api_line_end(a);
	}
	return rc;
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
	int rc = api_need_operator(c, e);

	return rc < 0 ? rc : store_key_each(core_store(a->core), each_key, &k);
}

int api_key_revoke(struct api *a, const struct caller *c, const char *id, struct err *e)
{
	int rc = api_need_operator(c, e);

	if (rc == 0)
		rc = keys_revoke(core_keys(a->core), id, e);
	if (rc == 0) {
		audit_text(api_line(a, c, "key.revoked", NULL), "id", id);
		api_line_end(a);
		if (a->revoked)
			a->revoked(a->revoked_ctx, id);
	}
	return rc;
}

void api_on_key_revoked(struct api *a, void (*revoked)(void *ctx, const char *key_id), void *ctx)
{
	a->revoked = revoked;
	a->revoked_ctx = ctx;
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
		.stand_in = i->stand_in,
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

	int rc = api_need_operator(c, e);
	if (rc == 0)
		rc = api_image_get(a, c, ref, &v, e);
	if (rc == 0) /* the daemon has no right to write the images folder, by design */
		rc = err_set(e, ERR_UNSUPPORTED, EOPNOTSUPP, "images are removed on the server's own machine, by: caisson image rm %.64s", ref);
	return rc;
}

int api_pool_set(struct api *a, const struct caller *c, const struct sandbox_spec *spec, size_t size, struct err *e)
{
	int rc = api_need_operator(c, e);

	if (rc == 0 && size > POOL_SIZE_MAX)
		rc = err_set(e, ERR_INVALID, EINVAL, "size: at most %d", POOL_SIZE_MAX);
	if (rc == 0)
		rc = core_pool_set(a->core, spec, size, e);
	if (rc == 0) {
		audit_u64(api_line(a, c, "pool.set", NULL), "size", size);
		api_line_end(a);
	}
	return rc;
}

int api_pool_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct pool_view *v), void *ctx, struct err *e)
{
	int rc = api_need_operator(c, e);

	if (rc == 0)
		core_pool_each(a->core, each, ctx);
	return rc;
}

int api_info(struct api *a, const struct caller *c, struct server_info *ret)
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
		.sandboxes = core_count(a->core, c && !c->operator_ ? c->tenant : NULL, &running),
		.defaults = &a->defaults,
	};
	ret->running = running;
	for (size_t i = 0; i < n; i++)
		if (o->boundaries[i]->ops->accelerator)
			ret->accelerator = o->boundaries[i]->ops->accelerator(o->boundaries[i], &ret->accelerator_reason);
	return 0;
}

struct subscription *api_subscribe(struct api *a, const struct caller *c, void (*on_event)(void *ctx, const struct event_view *ev), void *ctx)
{
	return core_subscribe(a->core, c->tenant, on_event, ctx);
}
