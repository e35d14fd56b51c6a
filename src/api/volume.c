/* The verbs of volumes. A volume of another tenant is "not found", as a sandbox is. */
#include "api/api_int.h"

#include <errno.h>

static struct volume *look_up(struct api *a, const struct caller *c, const char *ref, struct err *e)
{
	struct volume *v = ref && volume_name_valid(str_of(ref)) ? core_find_volume(a->core, c->tenant, ref) : NULL;

	if (!v)
		err_set(e, ERR_NOT_FOUND, ENOENT, "volume '%.128s' not found", ref ? ref : "");
	return v;
}

static void answer_volume(void *ctx, const struct err *e, struct volume *v)
{
	struct call *c = ctx;
	struct volume_view view;

	if (api_call_end(c)) {
		if (v)
			volume_view(v, &view);
		c->fn.volume(c->ctx, e, v && !e ? &view : NULL);
	}
	free(c);
}

void api_volume_create(struct api *a, const struct caller *c, const char *name, uint64_t size_mib, api_volume_fn done, void *ctx)
{
	struct call *call = api_call(a, ctx);

	call->fn.volume = done;
	audit_text(api_line(a, c, "volume.create", NULL), "name", name);
	api_line_end(a);
	core_volume_create(a->core, c->tenant, c->key_id, name, size_mib, answer_volume, call);
}

int api_volume_get(struct api *a, const struct caller *c, const char *ref, struct volume_view *ret, struct err *e)
{
	struct volume *v = look_up(a, c, ref, e);

	if (!v)
		return -ENOENT;
	volume_view(v, ret);
	return 0;
}

static void answer_measured(void *ctx)
{
	api_answer_done(ctx, NULL, NULL);
}

void api_volume_measure(struct api *a, api_done_fn done, void *ctx)
{
	struct call *call = api_call(a, ctx);

	call->fn.done = done;
	core_volumes_measure(a->core, answer_measured, call);
}

void api_volume_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct volume_view *v), void *ctx)
{
	struct volume_view view;

	for (struct volume *v = core_next_volume(a->core, NULL); v; v = core_next_volume(a->core, v)) {
		if (!streq(volume_tenant(v), c->tenant))
			continue;
		volume_view(v, &view);
		each(ctx, &view);
	}
}

static void answer_done(void *ctx, const struct err *e)
{
	api_answer_done(ctx, e, NULL);
}

void api_volume_delete(struct api *a, const struct caller *c, const char *ref, api_done_fn done, void *ctx)
{
	struct err e;
	struct volume *v = look_up(a, c, ref, &e);

	if (!v) {
		done(ctx, &e);
		return;
	}
	struct call *call = api_call(a, ctx);
	struct volume_view view;
	volume_view(v, &view);
	audit_text(api_line(a, c, "volume.delete", NULL), "id", view.id);
	api_line_end(a);
	call->fn.done = done;
	volume_delete(v, answer_done, call);
}
