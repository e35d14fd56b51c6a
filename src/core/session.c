/* Sessions: long-lived shells inside a sandbox. The guest holds the shell; here is what is known of it.
 *
 * A dead session stays listed, with its commands, until it is deleted or the sandbox stops, so that its last exit code and output
 * can still be asked for. */
#include "core/ahead.h"
#include "core/core_int.h"
#include "core/secret.h"

#include <errno.h>
#include <stdio.h>

enum { SESSIONS_MAX = 1000 };

static struct session *find(struct sandbox *s, const char *id)
{
	struct session *ss;

	HASH_FIND_STR(s->sessions, id, ss);
	return ss;
}

static struct session *add(struct sandbox *s, const struct session_row *row)
{
	struct session *ss = xcalloc(1, sizeof *ss);

	ss->row = (struct session_row){
		.sandbox_id = xstrdup(row->sandbox_id), .id = xstrdup(row->id), .alive = row->alive, .created_ms = row->created_ms
	};
	HASH_ADD_KEYPTR(hh, s->sessions, ss->row.id, strlen(ss->row.id), ss);
	return ss;
}

void session_put(struct sandbox *s, const char *id, uint64_t created_ms)
{
	struct session_row row = { .sandbox_id = s->row.id, .id = (char *)(uintptr_t)id, .alive = true, .created_ms = created_ms };

	store_session_put(s->core->o.store, &add(s, &row)->row);
}

static void forget(struct sandbox *s, struct session *ss)
{
	HASH_DEL(s->sessions, ss);
	store_session_delete(s->core->o.store, s->row.id, ss->row.id);
	session_row_done(&ss->row);
	free(ss);
}

static int load(void *ctx, const struct session_row *row)
{
	add(ctx, row);
	return 0;
}

void sessions_load(struct sandbox *s)
{
	store_session_each(s->core->o.store, s->row.id, load, s);
}

void sessions_end(struct sandbox *s)
{
	struct session *ss, *next;

	HASH_ITER (hh, s->sessions, ss, next)
		forget(s, ss);
}

void session_on_end(void *ctx, const char *id, int exit_code)
{
	struct sandbox *s = ctx;
	struct session *ss = find(s, id);

	(void)exit_code; /* known to the run that caused it */
	if (ss && ss->row.alive) {
		ss->row.alive = false;
		store_session_put(s->core->o.store, &ss->row);
	}
}

static void view(const struct session *ss, struct session_view *ret)
{
	*ret = (struct session_view){ .id = ss->row.id, .alive = ss->row.alive, .created_ms = ss->row.created_ms };
}

int session_get(struct sandbox *s, const char *id, struct session_view *ret)
{
	struct session *ss = find(s, id);

	if (!ss)
		return -ENOENT;
	view(ss, ret);
	return 0;
}

void session_each(struct sandbox *s, void (*each)(void *ctx, const struct session_view *v), void *ctx)
{
	struct session *ss, *next;
	struct session_view v;

	HASH_ITER (hh, s->sessions, ss, next) {
		view(ss, &v);
		each(ctx, &v);
	}
}

/* --- asking the guest --- */

struct request {
	struct core *core;
	char sandbox[40];
	char *session;
	sandbox_done_fn done;
	void *ctx;
};

static struct request *request_new(struct sandbox *s, const char *session, sandbox_done_fn done, void *ctx)
{
	struct request *q = xcalloc(1, sizeof *q);

	*q = (struct request){ .core = s->core, .session = xstrdup(session), .done = done, .ctx = ctx };
	snprintf(q->sandbox, sizeof q->sandbox, "%s", s->row.id);
	return q;
}

static void request_end(struct request *q, const struct err *e, struct sandbox *s)
{
	q->done(q->ctx, e, s);
	free(q->session);
	free(q);
}

static void on_created(void *ctx, const struct err *e)
{
	struct request *q = ctx;
	struct sandbox *s = core_find(q->core, NULL, q->sandbox);
	struct session *ss = s ? find(s, q->session) : NULL;

	if (e && ss)
		forget(s, ss); /* it was reserved by session_create */
	request_end(q, e, s);
}

void session_create(struct sandbox *s, const char *id, const char *cwd, const struct pairs *env, sandbox_done_fn done, void *ctx)
{
	struct pairs all = { 0 };
	struct err e = { 0 };

	if (!session_id_valid(str_of(id)))
		err_set(&e, ERR_INVALID, EINVAL, "session id: 1 to 128 bytes of UTF-8 without control characters and '/'");
	else if (s->row.state != SANDBOX_RUNNING || !s->link)
		err_set(&e, ERR_CONFLICT, EBUSY, "the sandbox is not running (state %s)", sandbox_state_name(s->row.state));
	else if (find(s, id))
		err_set(&e, ERR_CONFLICT, EEXIST, "session '%.64s' exists already", id);
	else if (HASH_COUNT(s->sessions) >= SESSIONS_MAX)
		err_set(&e, ERR_LIMIT, EMFILE, "%d sessions are there already: delete some", SESSIONS_MAX);
	if (e.kind) {
		done(ctx, &e, s);
		return;
	}
	sandbox_touch(s);
	session_put(s, id, now_unix_ms());
	ahead_drop(s);
	sandbox_env(s, &all);
	for (size_t i = 0; env && i < env->n; i++)
		pairs_add(&all, env->v[i].key, env->v[i].value);
	struct link_session_spec ls = { .id = id, .env = &all, .cwd = cwd ? cwd : s->row.spec.workdir, .user = s->row.user };
	link_session_open(s->link, &ls, on_created, request_new(s, id, done, ctx));
	pairs_done(&all);
}

static void on_deleted(void *ctx, const struct err *e)
{
	struct request *q = ctx;
	struct sandbox *s = core_find(q->core, NULL, q->sandbox);
	struct session *ss = s ? find(s, q->session) : NULL;

	if (ss)
		forget(s, ss);
	request_end(q, e && e->kind != ERR_NOT_FOUND && e->kind != ERR_GONE ? e : NULL, s);
}

void session_delete(struct sandbox *s, const char *id, sandbox_done_fn done, void *ctx)
{
	struct session *ss = find(s, id);
	struct err e;

	if (!ss) {
		err_set(&e, ERR_NOT_FOUND, ENOENT, "no session '%.64s' is there", id);
		done(ctx, &e, s);
		return;
	}
	sandbox_touch(s);
	if (!s->link || s->row.state != SANDBOX_RUNNING) {
		forget(s, ss);
		done(ctx, NULL, s);
		return;
	}
	link_session_close(s->link, id, on_deleted, request_new(s, id, done, ctx));
}
