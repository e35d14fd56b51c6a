/* Interpreters that only say what the code tells them to: "out TEXT", "err TEXT", "fail", "result", "late", "slow", "die". */
#include "daytona-fake-int.h"

struct execution {
	uv_timer_t timer; /* first: freed by close */
	struct api *a;
	const struct execution_events *ev;
	void *ctx;
	char *code;
	uint64_t timeout_ms;
	bool gone;
};

static char ids[4][37];
static size_t n_ids;

void api_interpreter_create(struct api *a, const struct caller *c, const char *ref, const struct interpreter_spec *spec, api_interpreter_fn done,
                            void *ctx)
{
	struct err e;
	(void)c;
	if (!fake_lookup(a, ref, &e) || (spec->language && !streq(spec->language, "python") && err_set(&e, ERR_UNSUPPORTED, 0, "only python"))) {
		done(ctx, &e, NULL);
		return;
	}
	random_uuid(ids[n_ids % ARRAY_LEN(ids)]);
	struct interpreter_view v = { .id = ids[n_ids++ % ARRAY_LEN(ids)], .language = "python", .cwd = spec->cwd ? spec->cwd : "/home/user",
		                      .alive = true, .created_ms = 1000 };
	done(ctx, NULL, &v);
}

int api_interpreter_list(struct api *a, const struct caller *c, const char *ref, void (*each)(void *ctx, const struct interpreter_view *v),
                         void *ctx, struct err *e)
{
	(void)c;
	if (!fake_lookup(a, ref, e))
		return -ENOENT;
	struct interpreter_view v = { .id = INTERPRETER_DEFAULT, .language = "python", .cwd = "/", .alive = true };
	each(ctx, &v);
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		if (*ids[i]) {
			v.id = ids[i];
			each(ctx, &v);
		}
	return 0;
}

static char *find(const char *id)
{
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		if (streq(ids[i], id))
			return ids[i];
	return NULL;
}

int api_interpreter_delete(struct api *a, const struct caller *c, const char *ref, const char *id, struct err *e)
{
	(void)c;
	if (!fake_lookup(a, ref, e))
		return -ENOENT;
	char *found = find(id);
	if (!found)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "no interpreter '%s' is there", id);
	*found = '\0';
	return 0;
}

static void end(struct execution *x, enum execution_end how, const char *message)
{
	if (!x->gone)
		x->ev->on_end(x->ctx, how, message);
	x->a->pending--;
	free(x->code);
	uv_close((uv_handle_t *)&x->timer, fake_free_handle);
}

static void on_time(uv_timer_t *t)
{
	struct execution *x = (struct execution *)t;
	const char *code = x->code;
	if (x->gone)
		;
	else if (strncmp(code, "out ", 4) == 0)
		x->ev->on_output(x->ctx, 1, str_of(code + 4));
	else if (strncmp(code, "err ", 4) == 0)
		x->ev->on_output(x->ctx, 2, str_of(code + 4));
	else if (streq(code, "fail"))
		x->ev->on_error(x->ctx, STR("ValueError"), STR("b\0d"), STR("Traceback (most recent call last):\n"));
	else if (streq(code, "result"))
		x->ev->on_result(x->ctx, true, (struct form[]){ { STR("image/png"), STR("iVBO") } }, 1);
	if (streq(code, "die"))
		end(x, EXECUTION_LOST, "the kernel was ended by signal 9");
	else if (streq(code, "late"))
		end(x, EXECUTION_TIMED_OUT, NULL);
	else
		end(x, EXECUTION_DONE, NULL);
}

struct execution *api_execute(struct api *a, const struct caller *c, const char *ref, const struct execution_spec *spec,
                              const struct execution_events *ev, void *ctx, struct err *e)
{
	(void)c;
	if (!fake_lookup(a, ref, e))
		return NULL;
	if (spec->interpreter && !find(spec->interpreter)) {
		err_set(e, ERR_NOT_FOUND, ENOENT, "no interpreter '%s' is there", spec->interpreter);
		return NULL;
	}
	struct execution *x = xcalloc(1, sizeof(*x));
	*x = (struct execution){ .a = a, .ev = ev, .ctx = ctx, .code = xstrdup(spec->code), .timeout_ms = spec->timeout_ms };
	a->pending++;
	uv_timer_init(a->loop, &x->timer);
	uv_timer_start(&x->timer, on_time, streq(spec->code, "slow") ? 300 : 5, 0);
	return x;
}

void execution_pause(struct execution *x)
{
	(void)x;
}
void execution_resume(struct execution *x)
{
	(void)x;
}
void execution_leave(struct execution *x)
{
	x->gone = true;
}
