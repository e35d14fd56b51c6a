/* The verbs of secrets. One of another tenant is "not found", as a sandbox is. Nobody is ever told a value. */
#include "api/api_int.h"

#include <errno.h>

static struct secret *look_up(struct api *a, const struct caller *c, const char *ref, struct err *e)
{
	struct secret *x = ref && *ref && strlen(ref) <= SPEC_NAME_MAX ? core_find_secret(a->core, c->tenant, ref) : NULL;

	if (!x)
		err_set(e, ERR_NOT_FOUND, ENOENT, "secret '%.64s' not found", ref ? ref : "");
	return x;
}

static void say(struct api *a, const struct caller *c, const char *type, const struct secret_view *v)
{
	struct audit_line *l = api_line(a, c, type, NULL);

	audit_text(l, "id", v->id);
	audit_text(l, "name", v->spec->name);
	api_line_end(a);
}

int api_secret_create(struct api *a, const struct caller *c, const struct secret_spec *spec, struct secret_view *ret, struct err *e)
{
	struct secret *x;
	int rc = core_secret_create(a->core, c->tenant, spec, &x, e);

	if (rc == 0) {
		secret_get_view(x, ret);
		say(a, c, "secret.created", ret);
	}
	return rc;
}

int api_secret_get(struct api *a, const struct caller *c, const char *ref, struct secret_view *ret, struct err *e)
{
	struct secret *x = look_up(a, c, ref, e);

	if (!x)
		return -ENOENT;
	secret_get_view(x, ret);
	return 0;
}

int api_secret_change(struct api *a, const struct caller *c, const char *ref, const struct secret_spec *with, struct secret_view *ret, struct err *e)
{
	struct secret *x = look_up(a, c, ref, e);
	int rc = x ? core_secret_change(a->core, x, with, e) : -ENOENT;

	if (rc == 0) {
		secret_get_view(x, ret);
		say(a, c, "secret.changed", ret);
	}
	return rc;
}

int api_secret_delete(struct api *a, const struct caller *c, const char *ref, struct err *e)
{
	struct secret *x = look_up(a, c, ref, e);
	struct secret_view v;

	if (!x)
		return -ENOENT;
	secret_get_view(x, &v);
	say(a, c, "secret.delete", &v);
	return core_secret_delete(a->core, x, e);
}

void api_secret_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct secret_view *v), void *ctx)
{
	struct secret_view v;

	for (struct secret *x = core_next_secret(a->core, NULL); x; x = core_next_secret(a->core, x))
		if (streq(secret_tenant(x), c->tenant)) {
			secret_get_view(x, &v);
			each(ctx, &v);
		}
}
