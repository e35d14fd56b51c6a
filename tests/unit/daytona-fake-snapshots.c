/* Snapshots, forks and build contexts of the api in memory: one snapshot that is always there, contexts that never are; and volumes, one of them. */
#include "daytona-fake-int.h"

static struct sandbox_spec kept_spec = { .resources = { 2, 2048, 5120, 100 } };
static bool kept;
static char kept_name[140], kept_source[40];

static void fill(struct snapshot_view *v)
{
	*v = (struct snapshot_view){ .id = "11111111-2222-4333-8444-555555555555", .name = kept_name, .state = SNAPSHOT_READY, .sandbox = kept_source,
				     .boundary = "fake", .image_digest = "sha256:0", .spec = &kept_spec, .user = "root", .bytes = 1 << 29,
				     .created_ms = 1767225600000 };
}

void api_snapshot_create(struct api *a, const struct caller *c, const char *ref, const char *name, bool memory, const char *extra, api_snapshot_fn done,
                         void *ctx)
{
	struct snapshot_view v;
	struct sandbox_view s;
	struct err e;

	if (api_sandbox_get(a, c, ref, &s, &e) < 0) {
		done(ctx, &e, NULL);
		return;
	}
	if (memory) {
		err_set(&e, ERR_UNSUPPORTED, 0, "no memory");
		done(ctx, &e, NULL);
		return;
	}
	kept = true;
	snprintf(kept_name, sizeof kept_name, "%s", name);
	snprintf(kept_source, sizeof kept_source, "%s", s.id);
	free(kept_spec.extra);
	kept_spec.extra = xstrdup(extra);
	fill(&v);
	done(ctx, NULL, &v);
}

int api_snapshot_get(struct api *a, const struct caller *c, const char *ref, struct snapshot_view *ret, struct err *e)
{
	(void)a, (void)c;
	fill(ret);
	if (kept && (streq(ref, kept_name) || streq(ref, ret->id)))
		return 0;
	return err_set(e, ERR_NOT_FOUND, ENOENT, "no snapshot %s", ref);
}

void api_snapshot_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct snapshot_view *v), void *ctx)
{
	struct snapshot_view v;

	(void)a, (void)c;
	fill(&v);
	if (kept)
		each(ctx, &v);
}

int api_snapshot_set_extra(struct api *a, const struct caller *c, const char *ref, const char *extra, struct err *e)
{
	(void)a, (void)c, (void)ref, (void)e;
	free(kept_spec.extra);
	kept_spec.extra = xstrdup(extra);
	return 0;
}

void api_snapshot_delete(struct api *a, const struct caller *c, const char *ref, api_done_fn done, void *ctx)
{
	(void)a, (void)c, (void)ref;
	kept = false;
	free(take_ptr(&kept_spec.extra));
	done(ctx, NULL);
}

void api_sandbox_fork(struct api *a, const struct caller *c, const char *ref, size_t count, const char *name, api_fork_fn done, void *ctx)
{
	struct sandbox_view v;
	struct err e;

	(void)count, (void)name;
	if (api_sandbox_get(a, c, ref, &v, &e) < 0)
		done(ctx, &e, NULL, 0);
	else
		done(ctx, NULL, &v, 1);
}

void api_sandbox_resize(struct api *a, const struct caller *c, const char *ref, const struct resources *r, api_sandbox_fn done, void *ctx)
{
	struct sandbox_view v;
	struct err e;

	if (api_sandbox_get(a, c, ref, &v, &e) < 0) {
		done(ctx, &e, NULL);
		return;
	}
	struct sandbox_spec changed = *v.spec;
	changed.resources = *r;
	v.spec = &changed;
	done(ctx, NULL, &v);
}

int api_context_put(struct api *a, const char *upload, unsigned part, struct err *e)
{
	(void)a, (void)upload, (void)part;
	return err_set(e, ERR_UNAVAILABLE, ENOSPC, "no room");
}

int api_context_commit(struct api *a, const struct caller *c, const char *hash, const char *upload, struct err *e)
{
	(void)a, (void)c, (void)hash, (void)upload;
	return err_set(e, ERR_NOT_FOUND, ENOENT, "nothing was uploaded");
}

void api_context_abort(struct api *a, const char *upload)
{
	(void)a, (void)upload;
}

int api_context_open(struct api *a, const struct caller *c, const char *hash, unsigned part, struct err *e)
{
	(void)a, (void)c, (void)hash, (void)part;
	return err_set(e, ERR_NOT_FOUND, ENOENT, "no such context");
}

/* One volume at most. */
static char *volume_name;
static const char volume_id[] = "77777777-2222-4333-8444-555555555555";

static struct volume_view the_volume(void)
{
	return (struct volume_view){ .id = volume_id, .name = volume_name, .state = VOLUME_READY, .created_ms = 1767225600000 };
}

void api_volume_create(struct api *a, const struct caller *c, const char *name, uint64_t size_mib, api_volume_fn done, void *ctx)
{
	(void)a, (void)c, (void)size_mib;
	volume_name = xstrdup(name);
	struct volume_view v = the_volume();
	done(ctx, NULL, &v);
}

int api_volume_get(struct api *a, const struct caller *c, const char *ref, struct volume_view *ret, struct err *e)
{
	(void)a, (void)c;
	if (!volume_name || (!streq(ref, volume_name) && !streq(ref, volume_id)))
		return err_set(e, ERR_NOT_FOUND, ENOENT, "volume '%s' not found", ref);
	*ret = the_volume();
	return 0;
}

void api_volume_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct volume_view *v), void *ctx)
{
	(void)a, (void)c;
	struct volume_view v = the_volume();
	if (volume_name)
		each(ctx, &v);
}

void api_volume_delete(struct api *a, const struct caller *c, const char *ref, api_done_fn done, void *ctx)
{
	(void)a, (void)c, (void)ref;
	free(take_ptr(&volume_name));
	done(ctx, NULL);
}

/* Tokens: the last one that was made. */
static char grant_token[GRANT_TOKEN_SIZE], grant_sandbox[40];
static enum grant_kind granted_kind;
static uint16_t granted_port;
static uint64_t granted_until;

int api_grant_create(struct api *a, const struct caller *c, const char *ref, enum grant_kind kind, uint16_t port, uint64_t seconds,
                     char ret_token[static GRANT_TOKEN_SIZE], struct grant_view *ret, struct err *e)
{
	struct sandbox_view v;
	if (api_sandbox_get(a, c, ref, &v, e) < 0)
		return -ENOENT;
	random_hex(grant_token, (size_t)(kind == GRANT_PORT ? GRANT_PORT_DIGITS : GRANT_TOKEN_SIZE - 1) / 2);
	snprintf(grant_sandbox, sizeof grant_sandbox, "%s", v.id);
	granted_kind = kind;
	granted_port = port;
	granted_until = now_unix_ms() + seconds * 1000;
	memcpy(ret_token, grant_token, sizeof grant_token);
	*ret = (struct grant_view){ "11111111-2222-4333-8444-666666666666", grant_sandbox, kind, port, now_unix_ms(), granted_until };
	return 0;
}

int api_grant_open(struct api *a, struct str token, enum grant_kind kind, uint16_t port, struct caller *ret, char ret_sandbox[static 40], struct err *e)
{
	if (!grant_token[0] || !str_eqz(token, grant_token) || kind != granted_kind || port != granted_port || granted_until <= now_unix_ms())
		return err_set(e, ERR_UNAUTHENTICATED, EACCES, "this token is not valid");
	memcpy(ret_sandbox, grant_sandbox, sizeof grant_sandbox);
	return api_owner_of(a, grant_sandbox, ret, e);
}

int api_grant_revoke(struct api *a, const struct caller *c, const char *ref, enum grant_kind kind, const char *token, struct err *e)
{
	(void)a, (void)c, (void)ref, (void)e;
	if (kind == granted_kind && (!token || streq(token, grant_token)))
		grant_token[0] = '\0';
	return 0;
}

/* Secrets: there are none, and none can be made. */
int api_secret_create(struct api *a, const struct caller *c, const struct secret_spec *spec, struct secret_view *ret, struct err *e)
{
	(void)a, (void)c, (void)spec, (void)ret;
	return err_set(e, ERR_UNAVAILABLE, ENOSPC, "no room");
}

int api_secret_get(struct api *a, const struct caller *c, const char *ref, struct secret_view *ret, struct err *e)
{
	(void)a, (void)c, (void)ret;
	return err_set(e, ERR_NOT_FOUND, ENOENT, "secret '%s' not found", ref);
}

int api_secret_change(struct api *a, const struct caller *c, const char *ref, const struct secret_spec *with, struct secret_view *ret, struct err *e)
{
	(void)with;
	return api_secret_get(a, c, ref, ret, e);
}

int api_secret_delete(struct api *a, const struct caller *c, const char *ref, struct err *e)
{
	return api_secret_get(a, c, ref, NULL, e);
}

void api_secret_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct secret_view *v), void *ctx)
{
	(void)a, (void)c, (void)each, (void)ctx;
}

void api_sandbox_set_secrets(struct api *a, const struct caller *c, const char *ref, const struct pairs *env, const struct pairs *files,
                             api_sandbox_fn done, void *ctx)
{
	struct sandbox_view v;
	struct err e;

	(void)env, (void)files;
	bool there = api_sandbox_get(a, c, ref, &v, &e) == 0;
	done(ctx, there ? NULL : &e, there ? &v : NULL);
}
