/* What an image runs by itself: ENTRYPOINT and CMD, in every sandbox of it and at every start, as a run like any other. Both the command and
 * the run's id are kept in the sandbox's `extra`. Clients see it as the session "entrypoint", which takes no commands. */
#include "dialect/daytona/dockerfile.h"
#include "dialect/daytona/internal.h"

#include <errno.h>

#define RUN_FIELD "entrypointRun"

json_t *entrypoint_json(char *const *command)
{
	json_t *list = command && command[0] ? json_array() : NULL;
	for (size_t i = 0; list && command[i]; i++)
		json_array_append_new(list, textz_json(command[i]));
	return list;
}

json_t *entrypoint_of(struct daytona *d, const struct caller *c, const struct dockerfile *f)
{
	json_t *kept = NULL, *list;
	struct err quiet;
	if (f->entrypoint || f->cmd) {
		char **command = dockerfile_command(f);
		list = entrypoint_json(command);
		strv_free(command);
		return list;
	}
	if (snapshot_usable(d, c, f->image, &kept, &quiet) <= 0)
		return NULL;
	list = json_incref(json_object_get(kept, ENTRYPOINT_FIELD));
	json_decref(kept);
	return list;
}

int entrypoint_run(struct daytona *d, const struct caller *c, const struct sandbox_view *v, struct run_view *ret)
{
	struct err quiet;
	json_t *extra = extra_load(v);
	const char *run = json_string_value(json_object_get(extra, RUN_FIELD));
	int rc = run ? api_run_get(d->api, c, v->id, run, ret, &quiet) : -ENOENT;
	json_decref(extra);
	return rc;
}

struct starting {
	struct starting *prev, *next;
	struct daytona *d;
	struct caller caller;
	char *id;
};

static void starting_free(struct starting *x)
{
	api_forget(x->d->api, x);
	if (x->prev)
		x->prev->next = x->next;
	else
		x->d->starting = x->next;
	if (x->next)
		x->next->prev = x->prev;
	free(x->id);
	free(x);
}

void entrypoints_done(struct daytona *d)
{
	while (d->starting)
		starting_free(d->starting);
}

static void on_started(void *ctx, const struct err *e, const struct run_view *r)
{
	struct starting *x = ctx;
	struct sandbox_view v;
	struct err why;
	if (e)
		log_warn("sandbox=%s msg=\"the command of its image could not be started: %s\"", x->id, e->message);
	else if (api_sandbox_get(x->d->api, &x->caller, x->id, &v, &why) == 0 && extra_put(x->d, &x->caller, &v, RUN_FIELD, json_string(r->id), &why) < 0)
		log_warn("sandbox=%s msg=\"the run of its image's command is not kept: %s\"", x->id, why.message);
	starting_free(x);
}

void entrypoint_start(struct daytona *d, const struct caller *c, const struct sandbox_view *v)
{
	struct run_view present;
	struct run_spec run;
	char **command = NULL;
	struct err e;
	json_t *extra = extra_load(v);
	int rc = want_texts(extra, ENTRYPOINT_FIELD, &command, &e);
	json_decref(extra);
	if (rc > 0 && !command_only_waits(command) && (entrypoint_run(d, c, v, &present) < 0 || run_view_ended(&present))) {
		struct starting *x = xcalloc(1, sizeof *x);
		*x = (struct starting){ .d = d, .caller = *c, .id = xstrdup(v->id), .next = d->starting };
		if (x->next)
			x->next->prev = x;
		d->starting = x;
		run_spec_init(&run);
		run.argv = take_ptr(&command);
		run.detach = true;
		api_run_start(d->api, c, v->id, &run, on_started, x);
		run_spec_done(&run);
	}
	texts_free(command);
}
