/* Rows to structs and back. The SQL of the writes is the table in store.c. */
#include "store/store_int.h"

#include <errno.h>

/* --- keys --- */

void key_row_done(struct key_row *k)
{
	free(k->id);
	free(k->name);
	free(k->tenant);
	*k = (struct key_row){ 0 };
}

#define KEY_COLUMNS "id, name, tenant, hash, operator, revoked, created_ms, used_ms"

static void read_key(struct cursor *c, struct key_row *k)
{
	size_t n = 0;
	*k = (struct key_row){ 0 };
	k->id = get_text(c);
	k->name = get_text(c);
	k->tenant = get_text(c);
	auto_free uint8_t *hash = get_blob(c, &n);
	if (n == sizeof k->hash)
		memcpy(k->hash, hash, n);
	k->operator_ = get_bool(c);
	k->revoked = get_bool(c);
	k->created_ms = get_u64(c);
	k->used_ms = get_u64(c);
}

int store_key_add(struct store *s, const struct key_row *k, struct err *e)
{
	struct cursor c = store_statement(s, ST_KEY_ADD);
	put_text(&c, k->id);
	put_text(&c, k->name);
	put_text(&c, k->tenant);
	put_blob(&c, k->hash, sizeof k->hash);
	put_int(&c, k->operator_);
	put_int(&c, k->revoked);
	put_u64(&c, k->created_ms);
	put_u64(&c, k->used_ms);
	int r = store_write_synced(s, c);
	if (r == -EEXIST)
		return err_set(e, ERR_CONFLICT, EEXIST, "key %s exists already", k->id);
	return r < 0 ? err_sys(e, ERR_UNAVAILABLE, -r, "can't store the key") : 0;
}

int store_key_by_hash(struct store *s, const unsigned char hash[32], struct key_row *ret)
{
	struct cursor c = store_statement(s, ST_KEY_BY_HASH);
	put_blob(&c, hash, 32);
	int r = store_get(s, &c);
	if (r == 0)
		read_key(&c, ret);
	store_got(c);
	return r;
}

struct key_walk {
	int (*each)(void *ctx, const struct key_row *k);
	void *ctx;
};

static int walk_key(void *ctx, struct cursor *c)
{
	struct key_walk *w = ctx;
	struct key_row k;
	read_key(c, &k);
	int r = w->each(w->ctx, &k);
	key_row_done(&k);
	return r;
}

int store_key_each(struct store *s, int (*each)(void *ctx, const struct key_row *k), void *ctx)
{
	return store_walk(s, "SELECT " KEY_COLUMNS " FROM keys ORDER BY created_ms, id", NULL, walk_key, &(struct key_walk){ each, ctx });
}

int store_key_revoke(struct store *s, const char *id, struct err *e)
{
	struct cursor c = store_statement(s, ST_KEY_REVOKE);
	put_text(&c, id);
	int r = store_write_synced(s, c);
	if (r == -ENOENT)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "there is no key %s", str_quote(str_of(id), &(struct quoted){ 0 }));
	return r < 0 ? err_sys(e, ERR_UNAVAILABLE, -r, "can't revoke the key") : 0;
}

int store_key_used(struct store *s, const char *id, uint64_t at_ms)
{
	struct cursor c = store_statement(s, ST_KEY_USED);
	put_u64(&c, at_ms);
	put_text(&c, id);
	return store_write(s, c);
}

/* --- sandboxes --- */

void sandbox_row_done(struct sandbox_row *r)
{
	free(r->id);
	free(r->name);
	free(r->tenant);
	free(r->key_id);
	free(r->preview_token);
	free(r->error);
	free(r->image_digest);
	free(r->boundary);
	free(r->user);
	spec_done(&r->spec);
	*r = (struct sandbox_row){ 0 };
}

#define SANDBOX_COLUMNS                                                                                                                              \
	"id, tenant, name, key_id, preview_token, state, error, image_digest, boundary, user, idempotency_key, created_ms, updated_ms," \
	" active_ms, stopped_ms, next_run, spec"

static void read_sandbox(struct cursor *c, struct sandbox_row *r)
{
	*r = (struct sandbox_row){ 0 };
	r->id = get_text(c);
	r->tenant = get_text(c);
	r->name = get_text(c);
	r->key_id = get_text(c);
	r->preview_token = get_text(c);
	auto_free char *state = get_text(c);
	r->error = get_text(c);
	r->image_digest = get_text(c);
	r->boundary = get_text(c);
	r->user = get_text(c);
	auto_free char *key = get_text(c);
	r->created_ms = get_u64(c);
	r->updated_ms = get_u64(c);
	r->active_ms = get_u64(c);
	r->stopped_ms = get_u64(c);
	r->next_run = get_u64(c);
	auto_free char *spec = get_text(c);
	const char *damage = NULL;
	if (sandbox_state_parse(str_of(state), &r->state) < 0)
		damage = "its stored state is not one that this version knows";
	if (spec_from_json(spec, &r->spec) < 0) {
		spec_init(&r->spec);
		damage = "its stored specification can't be read";
	}
	r->spec.idempotency_key = take_ptr(&key);
	if (damage) {
		r->state = SANDBOX_ERROR;
		free(r->error);
		r->error = xstrdup(damage);
	}
}

/* Which of the two unique indexes refused the row: the caller's mistake is explained, not guessed. */
static int sandbox_conflict(struct store *s, const struct sandbox_row *r, struct err *e)
{
	struct cursor c = store_statement(s, ST_SANDBOX_HOLDS_NAME);
	put_text(&c, r->tenant);
	put_text(&c, r->name);
	int found = store_get(s, &c);
	auto_free char *holder = found == 0 ? get_text(&c) : NULL;
	store_got(c);
	if (holder && !streq(holder, r->id))
		return err_set(e, ERR_CONFLICT, EEXIST, "name: a sandbox with the name %s exists already; delete it or choose another name",
		               str_quote(str_of(r->name), &(struct quoted){ 0 }));
	return err_set(e, ERR_CONFLICT, EEXIST, "idempotency_key: %s belongs to another sandbox",
	               str_quote(str_of(r->spec.idempotency_key), &(struct quoted){ 0 }));
}

int store_sandbox_put(struct store *s, const struct sandbox_row *r, struct err *e)
{
	char *spec = spec_to_json(&r->spec);
	if (!spec)
		return err_set(e, ERR_INVALID, EILSEQ, "the specification holds text that is not UTF-8");
	struct cursor c = store_statement(s, ST_SANDBOX_PUT);
	put_text(&c, r->id);
	put_text(&c, r->tenant);
	put_text(&c, r->name);
	put_text(&c, r->key_id);
	put_text(&c, r->preview_token);
	put_text(&c, sandbox_state_name(r->state));
	put_text(&c, r->error);
	put_text(&c, r->image_digest);
	put_text(&c, r->boundary);
	put_text(&c, r->user);
	put_text(&c, r->spec.idempotency_key);
	put_u64(&c, r->created_ms);
	put_u64(&c, r->updated_ms);
	put_u64(&c, r->active_ms);
	put_u64(&c, r->stopped_ms);
	put_u64(&c, r->next_run);
	put_text(&c, spec);
	int rc = store_write(s, c);
	free(spec);
	if (rc == -EEXIST)
		return sandbox_conflict(s, r, e);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "can't store the sandbox") : 0;
}

int store_sandbox_state(struct store *s, const char *id, enum sandbox_state state, const char *error, uint64_t at_ms)
{
	struct cursor c = store_statement(s, ST_SANDBOX_STATE);
	put_text(&c, sandbox_state_name(state));
	put_text(&c, error);
	put_u64(&c, at_ms);
	put_text(&c, id);
	return store_write(s, c);
}

int store_sandbox_active(struct store *s, const char *id, uint64_t at_ms)
{
	struct cursor c = store_statement(s, ST_SANDBOX_ACTIVE);
	put_u64(&c, at_ms);
	put_text(&c, id);
	return store_write(s, c);
}

int store_sandbox_delete(struct store *s, const char *id)
{
	struct cursor c = store_statement(s, ST_SANDBOX_DELETE);
	put_text(&c, id);
	int r = store_write(s, c);
	return r == -ENOENT ? 0 : r;
}

struct sandbox_walk {
	int (*each)(void *ctx, struct sandbox_row *r);
	void *ctx;
};

static int walk_sandbox(void *ctx, struct cursor *c)
{
	struct sandbox_walk *w = ctx;
	struct sandbox_row row;
	read_sandbox(c, &row);
	int r = w->each(w->ctx, &row);
	sandbox_row_done(&row);
	return r;
}

int store_sandbox_each(struct store *s, int (*each)(void *ctx, struct sandbox_row *r), void *ctx)
{
	return store_walk(s, "SELECT " SANDBOX_COLUMNS " FROM sandboxes ORDER BY created_ms, id", NULL, walk_sandbox,
	                  &(struct sandbox_walk){ each, ctx });
}

/* --- runs --- */

void run_row_done(struct run_row *r)
{
	free(r->sandbox_id);
	free(r->session);
	free(r->display);
	free(r->idempotency_key);
	free(r->message);
	free(r->stdout_data);
	free(r->stderr_data);
	*r = (struct run_row){ 0 };
}

static void read_run(struct cursor *c, struct run_row *r)
{
	*r = (struct run_row){ 0 };
	r->sandbox_id = get_text(c);
	r->number = get_u64(c);
	r->session = get_text(c);
	r->display = get_text(c);
	r->idempotency_key = get_text(c);
	r->message = get_text(c);
	auto_free char *state = get_text(c);
	r->exit_code = get_int(c);
	r->signal = get_int(c);
	r->timed_out = get_bool(c);
	r->canceled = get_bool(c);
	r->oom = get_bool(c);
	r->truncated = get_bool(c);
	r->pty = get_bool(c);
	r->merge_stderr = get_bool(c);
	r->stdout_bytes = get_u64(c);
	r->stderr_bytes = get_u64(c);
	r->started_ms = get_u64(c);
	r->ended_ms = get_u64(c);
	r->duration_ms = get_u64(c);
	r->output_max = get_u64(c);
	r->stdout_data = get_blob(c, &r->stdout_len);
	r->stderr_data = get_blob(c, &r->stderr_len);
	if (run_state_parse(str_of(state), &r->state) < 0) {
		r->state = RUN_LOST;
		free(r->message);
		r->message = xstrdup("its stored state is not one that this version knows");
	}
}

int store_run_put(struct store *s, const struct run_row *r)
{
	struct cursor c = store_statement(s, ST_RUN_PUT);
	put_text(&c, r->sandbox_id);
	put_u64(&c, r->number);
	put_text(&c, r->session);
	put_text(&c, r->display);
	put_text(&c, r->idempotency_key);
	put_text(&c, r->message);
	put_text(&c, run_state_name(r->state));
	put_int(&c, r->exit_code);
	put_int(&c, r->signal);
	put_int(&c, r->timed_out);
	put_int(&c, r->canceled);
	put_int(&c, r->oom);
	put_int(&c, r->truncated);
	put_int(&c, r->pty);
	put_int(&c, r->merge_stderr);
	put_u64(&c, r->stdout_bytes);
	put_u64(&c, r->stderr_bytes);
	put_u64(&c, r->started_ms);
	put_u64(&c, r->ended_ms);
	put_u64(&c, r->duration_ms);
	put_u64(&c, r->output_max);
	put_blob(&c, r->stdout_data, r->stdout_len);
	put_blob(&c, r->stderr_data, r->stderr_len);
	return store_write(s, c);
}

struct run_walk {
	int (*each)(void *ctx, struct run_row *r);
	void *ctx;
};

static int walk_run(void *ctx, struct cursor *c)
{
	struct run_walk *w = ctx;
	struct run_row row;
	read_run(c, &row);
	int r = w->each(w->ctx, &row);
	run_row_done(&row);
	return r;
}

int store_run_each(struct store *s, const char *sandbox_id, int (*each)(void *ctx, struct run_row *r), void *ctx)
{
	return store_walk(s, "SELECT " RUN_COLUMNS " FROM runs WHERE sandbox_id = ? ORDER BY number", sandbox_id, walk_run,
	                  &(struct run_walk){ each, ctx });
}

int store_run_get(struct store *s, const char *sandbox_id, uint64_t number, struct run_row *ret)
{
	struct cursor c = store_statement(s, ST_RUN_GET);
	put_text(&c, sandbox_id);
	put_u64(&c, number);
	int r = store_get(s, &c);
	if (r == 0)
		read_run(&c, ret);
	store_got(c);
	return r;
}

int store_run_delete(struct store *s, const char *sandbox_id, uint64_t number)
{
	struct cursor c = store_statement(s, ST_RUN_DELETE);
	put_text(&c, sandbox_id);
	put_u64(&c, number);
	int r = store_write(s, c);
	return r == -ENOENT ? 0 : r;
}

/* --- sessions --- */

void session_row_done(struct session_row *r)
{
	free(r->sandbox_id);
	free(r->id);
	*r = (struct session_row){ 0 };
}

int store_session_put(struct store *s, const struct session_row *r)
{
	struct cursor c = store_statement(s, ST_SESSION_PUT);
	put_text(&c, r->sandbox_id);
	put_text(&c, r->id);
	put_int(&c, r->alive);
	put_u64(&c, r->created_ms);
	return store_write(s, c);
}

int store_session_delete(struct store *s, const char *sandbox_id, const char *id)
{
	struct cursor c = store_statement(s, ST_SESSION_DELETE);
	put_text(&c, sandbox_id);
	put_text(&c, id);
	int r = store_write(s, c);
	return r == -ENOENT ? 0 : r;
}

struct session_walk {
	int (*each)(void *ctx, const struct session_row *r);
	void *ctx;
};

static int walk_session(void *ctx, struct cursor *c)
{
	struct session_walk *w = ctx;
	struct session_row row = { 0 };
	row.sandbox_id = get_text(c);
	row.id = get_text(c);
	row.alive = get_bool(c);
	row.created_ms = get_u64(c);
	int r = w->each(w->ctx, &row);
	session_row_done(&row);
	return r;
}

int store_session_each(struct store *s, const char *sandbox_id, int (*each)(void *ctx, const struct session_row *r), void *ctx)
{
	return store_walk(s, "SELECT sandbox_id, id, alive, created_ms FROM sessions WHERE sandbox_id = ? ORDER BY created_ms, id", sandbox_id,
	                  walk_session, &(struct session_walk){ each, ctx });
}

/* --- pools --- */

int store_pool_set(struct store *s, const struct sandbox_spec *spec, size_t size, struct err *e)
{
	auto_free char *json = spec_to_json(spec);
	struct cursor c = store_statement(s, size ? ST_POOL_PUT : ST_POOL_DELETE);
	put_text(&c, json);
	if (size)
		put_u64(&c, size);
	int r = store_write_synced(s, c);
	return r < 0 && r != -ENOENT ? err_sys(e, ERR_UNAVAILABLE, -r, "can't store the pool") : 0;
}

struct pool_walk {
	int (*each)(void *ctx, const struct sandbox_spec *spec, size_t size);
	void *ctx;
};

static int walk_pool(void *ctx, struct cursor *c)
{
	struct pool_walk *w = ctx;
	struct sandbox_spec spec;
	auto_free char *json = get_text(c);
	size_t size = get_u64(c);
	if (!json || spec_from_json(json, &spec) < 0)
		return 0; /* of a later version: not ours to understand */
	int r = w->each(w->ctx, &spec, size);
	spec_done(&spec);
	return r;
}

int store_pool_each(struct store *s, int (*each)(void *ctx, const struct sandbox_spec *spec, size_t size), void *ctx)
{
	return store_walk(s, "SELECT spec, size FROM pools", NULL, walk_pool, &(struct pool_walk){ each, ctx });
}
