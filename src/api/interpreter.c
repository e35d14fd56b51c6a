/* The verbs of interpreters. */
#include "api/api_int.h"

#include <errno.h>

static struct interpreter *lookup(struct api *a, const struct caller *c, const char *ref, const char *id, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);
	struct interpreter *in = s ? interpreter_find(s, id) : NULL;

	if (s && !in)
		err_set(e, ERR_NOT_FOUND, ENOENT, "no interpreter '%.64s' is there", id);
	return in;
}

static void on_created(void *ctx, const struct err *e, struct interpreter *in)
{
	struct call *c = ctx;
	struct interpreter_view v;

	if (api_call_end(c)) {
		if (in)
			interpreter_view(in, &v);
		c->fn.interpreter(c->ctx, e, in && !e ? &v : NULL);
	} else if (in) { /* nobody will ever know of it */
		interpreter_delete(in);
	}
	free(c);
}

void api_interpreter_create(struct api *a, const struct caller *c, const char *ref, const struct interpreter_spec *spec, api_interpreter_fn done,
                            void *ctx)
{
	struct err e;
	struct sandbox *s = api_lookup(a, c, ref, &e);

	if (!s) {
		done(ctx, &e, NULL);
		return;
	}
	struct call *call = api_call(a, ctx);
	call->fn.interpreter = done;
	api_act(a, c);
	interpreter_create(s, spec, on_created, call);
	api_act(a, NULL);
}

int api_interpreter_list(struct api *a, const struct caller *c, const char *ref, void (*each)(void *ctx, const struct interpreter_view *v),
                         void *ctx, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);
	struct interpreter_view v;

	if (!s)
		return -ENOENT;
	for (struct interpreter *in = interpreter_next(s, NULL); in; in = interpreter_next(s, in)) {
		interpreter_view(in, &v);
		each(ctx, &v);
	}
	return 0;
}

int api_interpreter_get(struct api *a, const struct caller *c, const char *ref, const char *id, struct interpreter_view *ret, struct err *e)
{
	struct interpreter *in = lookup(a, c, ref, id, e);

	if (!in)
		return -ENOENT;
	interpreter_view(in, ret);
	return 0;
}

int api_interpreter_delete(struct api *a, const struct caller *c, const char *ref, const char *id, struct err *e)
{
	struct interpreter *in = lookup(a, c, ref, id, e);

	if (!in)
		return -ENOENT;
	interpreter_delete(in);
	return 0;
}

int api_interpreter_interrupt(struct api *a, const struct caller *c, const char *ref, const char *id, struct err *e)
{
	struct interpreter *in = lookup(a, c, ref, id, e);

	return in ? interpreter_interrupt(in, e) : -ENOENT;
}

struct execution *api_execute(struct api *a, const struct caller *c, const char *ref, const struct execution_spec *spec,
                              const struct execution_events *ev, void *ctx, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	api_act(a, c);
	struct execution *x = s ? sandbox_execute(s, spec, ev, ctx, e) : NULL;
	api_act(a, NULL);
	return x;
}
