/* Executions: pieces of code on their way through a kernel, one after another, and what the kernel says of them.
 *
 * All that a kernel says is the sandbox's word: a line that is not what kernel.py says is ignored, and so is one about another
 * execution than the one under way. */
#include "core/interpreter_int.h"

#include <errno.h>
#include <stdio.h>

#define FORMS_MAX 32

/* --- coming and going --- */

static void execution_free(struct execution *x)
{
	free(x->request);
	free(x);
}

/* Out of the queue, told, gone. */
static void end(struct execution *x, enum execution_end how, const char *message)
{
	struct interpreter *in = x->in;

	DL_DELETE(in->queue, x);
	if (x->paused && in->follower)
		follower_resume(in->follower);
	if (!x->left)
		x->ev->on_end(x->ctx, how, message);
	execution_free(x);
}

void executions_lost(struct interpreter *in, const char *why)
{
	struct execution *x;

	while ((x = in->queue))
		end(x, x->timed_out ? EXECUTION_TIMED_OUT : EXECUTION_LOST, why);
}

static struct execution *add(struct interpreter *in, uint64_t id, uint64_t timeout_ms)
{
	struct execution *x = xcalloc(1, sizeof *x);

	*x = (struct execution){ .in = in, .id = id, .timeout_ms = timeout_ms };
	DL_APPEND(in->queue, x);
	return x;
}

void executions_next(struct interpreter *in)
{
	struct execution *x = in->queue;

	if (in->state != KERNEL_IDLE || !x)
		return;
	in->state = KERNEL_BUSY;
	auto_free char *request = take_ptr(&x->request);
	kernel_say(in, request);
	kernel_limit(in, x->timeout_ms);
}

static char *request_of(uint64_t id, const struct execution_spec *spec)
{
	json_t *o = json_object(), *env = json_object();

	for (size_t i = 0; i < spec->env.n; i++)
		json_object_set_new(env, spec->env.v[i].key, json_string(spec->env.v[i].value));
	json_object_set_new(o, "op", json_string("run"));
	json_object_set_new(o, "id", json_integer((json_int_t)id));
	json_object_set_new(o, "code", json_string(spec->code));
	json_object_set_new(o, "env", env);
	json_object_set_new(o, "timeout_ms", json_integer((json_int_t)spec->timeout_ms));
	bool whole = json_object_get(o, "code") && json_object_size(env) == spec->env.n;
	char *text = whole ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (!text)
		return NULL;
	size_t n = strlen(text);
	text = xrealloc(text, n + 2);
	memcpy(text + n, "\n", 2);
	return text;
}

struct execution *sandbox_execute(struct sandbox *s, const struct execution_spec *spec, const struct execution_events *ev, void *ctx, struct err *e)
{
	struct interpreter *in = NULL;
	struct execution *x;
	size_t queued = 0, bytes = 0;

	if (!spec->code || strlen(spec->code) > RUN_SCRIPT_MAX) {
		err_set(e, ERR_INVALID, EINVAL, "code: up to %u bytes", RUN_SCRIPT_MAX);
		return NULL;
	}
	if (env_validate(&spec->env, e) < 0 || core_audit_ready(s->core, e) < 0)
		return NULL;
	if (spec->timeout_ms > EXECUTION_TIMEOUT_MAX_MS) {
		err_set(e, ERR_INVALID, EINVAL, "timeout: at most a year");
		return NULL;
	}
	if (spec->interpreter && !streq(spec->interpreter, INTERPRETER_DEFAULT)) {
		in = interpreter_find(s, spec->interpreter);
		if (!in)
			err_set(e, ERR_NOT_FOUND, ENOENT, "no interpreter '%.64s' is there", spec->interpreter);
		else if (in->state == KERNEL_DEAD)
			err_set(e, ERR_GONE, ESHUTDOWN, "the kernel of interpreter '%.64s' has ended: delete it and make another", spec->interpreter);
	} else {
		interpreter_default(s, &in, e);
	}
	if (!in || in->state == KERNEL_DEAD)
		return NULL;
	DL_FOREACH (in->queue, x) {
		queued++;
		bytes += x->request ? strlen(x->request) : 0;
	}
	auto_free char *request = request_of(in->serial + 1, spec);
	if (!request) {
		err_set(e, ERR_INVALID, EINVAL, "code, env: must be UTF-8");
		return NULL;
	}
	if (queued >= EXECUTIONS_QUEUED_MAX || bytes + strlen(request) > EXECUTIONS_BYTES_MAX) {
		err_set(e, ERR_LIMIT, EAGAIN, "%zu pieces of code wait for this interpreter already", queued);
		return NULL;
	}
	x = add(in, ++in->serial, spec->timeout_ms);
	x->request = take_ptr(&request);
	x->stop_on_leave = spec->stop_on_leave;
	x->ev = ev;
	x->ctx = ctx;
	audit_execution(s, in, spec->code);
	sandbox_touch(s);
	executions_next(in);
	return x;
}

static bool under_way(const struct execution *x)
{
	return x->in->queue == x && !x->request;
}

void execution_interrupt(struct execution *x)
{
	if (!under_way(x)) {
		end(x, EXECUTION_INTERRUPTED, NULL);
		return;
	}
	x->interrupted = true;
	execution_strike(x->in);
}

void execution_strike(struct interpreter *in)
{
	struct execution *x = in->queue;
	char line[64];

	if (!x || !under_way(x) || !in->run)
		return;
	if (x->struck && in->input.len) /* it has not read the last one yet */
		return;
	x->struck = true;
	snprintf(line, sizeof line, "{\"op\":\"interrupt\",\"id\":%llu}\n", (unsigned long long)x->id);
	kernel_say(in, line);
}

void execution_leave(struct execution *x)
{
	x->left = true;
	if (x->paused && x->in->follower)
		follower_resume(x->in->follower);
	x->paused = false;
	if (x->stop_on_leave && !under_way(x))
		end(x, EXECUTION_INTERRUPTED, NULL);
	else if (x->stop_on_leave && x->in->urgency == CALM)
		kernel_hurry(x->in);
}

int interpreter_interrupt(struct interpreter *in, struct err *e)
{
	if (in->state != KERNEL_BUSY || !in->queue)
		return err_set(e, ERR_CONFLICT, EBUSY, "nothing runs in interpreter '%.64s'", in->id);
	execution_interrupt(in->queue);
	return 0;
}

void execution_pause(struct execution *x)
{
	if (!under_way(x) || x->timed_out) /* its end must not wait for a reader */
		return;
	x->paused = true;
	if (x->in->follower)
		follower_pause(x->in->follower);
}

void execution_resume(struct execution *x)
{
	if (!x->paused)
		return;
	x->paused = false;
	if (x->in->follower)
		follower_resume(x->in->follower);
}

void execution_overdue(struct interpreter *in)
{
	struct execution *x = in->queue;

	if (!x || !under_way(x))
		return;
	x->timed_out = true;
	execution_resume(x);
}

/* --- what it says --- */

static bool text_of(json_t *o, const char *key, struct str *ret)
{
	json_t *v = json_object_get(o, key);

	if (!json_is_string(v))
		return false;
	*ret = (struct str){ json_string_value(v), json_string_length(v) };
	return true;
}

static void tell_result(struct execution *x, json_t *o)
{
	struct form forms[FORMS_MAX];
	size_t n = 0;
	const char *mime;
	json_t *v;

	json_object_foreach (json_object_get(o, "data"), mime, v) {
		if (n < FORMS_MAX && json_is_string(v))
			forms[n++] = (struct form){ str_of(mime), { json_string_value(v), json_string_length(v) } };
	}
	if (n && x->ev->on_result)
		x->ev->on_result(x->ctx, json_is_true(json_object_get(o, "main")), forms, n);
}

static void on_done(struct interpreter *in, struct execution *x)
{
	kernel_calm(in);
	sandbox_touch(in->sandbox);
	end(x, x->timed_out ? EXECUTION_TIMED_OUT : x->interrupted ? EXECUTION_INTERRUPTED : EXECUTION_DONE, NULL);
	if (in->sandbox)
		executions_next(in);
}

static void on_pong(struct interpreter *in, json_t *o)
{
	json_int_t id = json_integer_value(json_object_get(o, "id")), left = json_integer_value(json_object_get(o, "left"));

	if (in->state != KERNEL_ASKED || json_integer_value(json_object_get(o, "n")) != (json_int_t)in->asked)
		return;
	in->state = KERNEL_IDLE;
	kernel_in(in, json_string_value(json_object_get(o, "cwd")));
	if (id > 0) { /* begun by the daemon before us, whose client is gone: it goes on, within its limit */
		struct execution *x = add(in, (uint64_t)id, 0);
		DL_DELETE(in->queue, x);
		DL_PREPEND(in->queue, x);
		x->left = true;
		in->state = KERNEL_BUSY;
		kernel_limit(in, left < 0 ? 0 : MIN((uint64_t)MAX(left, 1), EXECUTION_TIMEOUT_MAX_MS));
	}
	executions_next(in);
}

void kernel_said(struct interpreter *in, struct str line)
{
	json_t *o = json_loadb(line.p, line.n, JSON_ALLOW_NUL, NULL);
	const char *type = json_string_value(json_object_get(o, "t"));
	struct execution *x = in->state == KERNEL_BUSY ? in->queue : NULL;
	struct str text, name, value;

	if (streq(type, "ready")) {
		kernel_in(in, json_string_value(json_object_get(o, "cwd")));
		kernel_ready(in);
	} else if (streq(type, "pong")) {
		on_pong(in, o);
	} else if (type && x && (uint64_t)json_integer_value(json_object_get(o, "id")) == x->id) {
		bool heard = !x->left && !x->timed_out;
		if (streq(type, "end"))
			on_done(in, x);
		else if (heard && streq(type, "out") && text_of(o, "x", &text) && x->ev->on_output)
			x->ev->on_output(x->ctx, json_integer_value(json_object_get(o, "s")) == LINK_STDERR ? LINK_STDERR : LINK_STDOUT, text);
		else if (heard && streq(type, "result"))
			tell_result(x, o);
		else if (heard && streq(type, "error") && text_of(o, "name", &name) && text_of(o, "value", &value) && text_of(o, "traceback", &text) &&
		         x->ev->on_error)
			x->ev->on_error(x->ctx, name, value, text);
	}
	json_decref(o);
}
