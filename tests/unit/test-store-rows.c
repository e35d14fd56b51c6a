/* The rows of the store: every verb, what is unique, what goes with what. */
#include "store-place.h"

#include <errno.h>

struct found {
	size_t n;
	uint64_t sum; /* of run numbers */
	struct sandbox_row last;
	struct run_row last_run;
	char session[32];
	struct store *nested;
};

static int find_sandbox(void *ctx, struct sandbox_row *r)
{
	struct found *f = ctx;
	sandbox_row_done(&f->last);
	f->last = *r;
	*r = (struct sandbox_row){ 0 }; /* taken, as the header allows */
	f->n++;
	return 0;
}

static int find_run(void *ctx, struct run_row *r)
{
	struct found *f = ctx;
	f->n++;
	f->sum += r->number;
	run_row_done(&f->last_run);
	f->last_run = *r;
	*r = (struct run_row){ 0 };
	return 0;
}

static int find_session(void *ctx, const struct session_row *r)
{
	struct found *f = ctx;
	snprintf(f->session, sizeof f->session, "%s:%d:%llu", r->id, r->alive, (unsigned long long)r->created_ms);
	f->n++;
	return 0;
}

/* --- snapshots --- */

static int find_snapshot(void *ctx, struct snapshot_row *r)
{
	struct snapshot_row *last = ctx;
	snapshot_row_done(last);
	*last = *r;
	*r = (struct snapshot_row){ 0 };
	return 0;
}

static struct snapshot_row snapshot_of(const char *id, const char *tenant, const char *name)
{
	struct snapshot_row r = { .id = xstrdup(id), .tenant = xstrdup(tenant), .name = xstrdup(name), .key_id = xstrdup("key_1"),
				  .state = SNAPSHOT_READY, .boundary = xstrdup("fake"), .image_digest = xstrdup("sha256:x"),
				  .sandbox_id = xstrdup("gone"), .user = xstrdup("u"), .memory = true, .bytes = 7, .created_ms = 8, .used_ms = 9 };
	spec_init(&r.spec);
	r.spec.workdir = xstrdup("/w");
	r.spec.from_snapshot = xstrdup("before");
	return r;
}

static void snapshots(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	struct snapshot_row a = snapshot_of("a", "t", "n"), b = snapshot_of("b", "t", "n"), c = snapshot_of("c", "other", "n"), got = { 0 };
	struct err e = { 0 };

	assert_int_equal(store_snapshot_put(s, &a, &e), 0);
	assert_true(store_snapshot_put(s, &b, &e) < 0); /* a name is a tenant's own */
	assert_int_equal(e.kind, ERR_CONFLICT);
	assert_int_equal(store_snapshot_put(s, &c, &e), 0);
	assert_int_equal(store_snapshot_delete(s, "c"), 0);
	assert_int_equal(store_snapshot_delete(s, "c"), 0);
	a.state = SNAPSHOT_DELETING;
	a.bytes = 70;
	assert_int_equal(store_snapshot_put(s, &a, &e), 0);
	store_close(s);
	s = opened(p);
	assert_int_equal(store_snapshot_each(s, find_snapshot, &got), 0);
	assert_string_equal(got.id, "a");
	assert_string_equal(got.sandbox_id, "gone");
	assert_string_equal(got.spec.workdir, "/w");
	assert_string_equal(got.spec.from_snapshot, "before");
	assert_int_equal(got.state, SNAPSHOT_DELETING);
	assert_int_equal(got.bytes, 70);
	assert_int_equal(got.used_ms, 9);
	assert_true(got.memory);
	snapshot_row_done(&a);
	snapshot_row_done(&b);
	snapshot_row_done(&c);
	snapshot_row_done(&got);
	store_close(s);
}

/* --- keys --- */

static int count_key(void *ctx, const struct key_row *k)
{
	struct key_row *last = ctx;
	last->created_ms += k->created_ms;
	last->revoked |= k->revoked;
	return k->created_ms == 999 ? -ECANCELED : 0;
}

static void keys(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	struct err e = { 0 };
	char id[] = "key_1", id2[] = "key_2", name[] = "first", tenant[] = "main";
	struct key_row k = { .id = id, .name = name, .tenant = tenant, .operator_ = true, .created_ms = 11, .used_ms = 0 }, got;
	memset(k.hash, 7, sizeof k.hash);
	assert_int_equal(store_key_by_hash(s, k.hash, &got), -ENOENT);
	assert_int_equal(store_key_add(s, &k, &e), 0);
	assert_int_equal(store_key_add(s, &k, &e), -EEXIST);
	assert_int_equal(e.kind, ERR_CONFLICT);
	k.id = id2; /* same hash */
	assert_int_equal(store_key_add(s, &k, &e), -EEXIST);
	k.hash[31] = 8;
	k.name = NULL;
	k.operator_ = false;
	k.created_ms = 22;
	assert_int_equal(store_key_add(s, &k, &e), 0);
	assert_int_equal(store_key_used(s, "key_1", 55), 0);
	assert_int_equal(store_key_used(s, "key_9", 55), -ENOENT);
	assert_int_equal(store_key_revoke(s, "key_2", &e), 0);
	assert_int_equal(store_key_revoke(s, "key_9", &e), -ENOENT);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	store_close(s);

	s = opened(p);
	assert_int_equal(store_key_by_hash(s, k.hash, &got), 0);
	assert_string_equal(got.id, "key_2");
	assert_null(got.name);
	assert_string_equal(got.tenant, "main");
	assert_memory_equal(got.hash, k.hash, 32);
	assert_true(got.revoked && !got.operator_);
	key_row_done(&got);
	k.hash[31] = 7;
	assert_int_equal(store_key_by_hash(s, k.hash, &got), 0);
	assert_string_equal(got.name, "first");
	assert_true(got.operator_ && !got.revoked);
	assert_int_equal(got.created_ms, 11);
	assert_int_equal(got.used_ms, 55);
	key_row_done(&got);
	struct key_row all = { 0 };
	assert_int_equal(store_key_each(s, count_key, &all), 0);
	assert_int_equal(all.created_ms, 33);
	assert_true(all.revoked);
	char id3[] = "key_3";
	k.id = id3;
	k.hash[0] = 1;
	k.created_ms = 999;
	assert_int_equal(store_key_add(s, &k, &e), 0);
	assert_int_equal(store_key_each(s, count_key, &all), -ECANCELED);
	store_close(s);
}

static void a_key_in_a_group(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	struct err e = { 0 };
	char id[] = "k", tenant[] = "t";
	struct key_row k = { .id = id, .tenant = tenant }, got;
	store_begin(s);
	assert_int_equal(put_simple(s, "a", "a", &e), 0);
	assert_int_equal(store_key_add(s, &k, &e), 0);
	assert_int_equal(put_simple(s, "b", "b", &e), 0);
	assert_int_equal(store_commit(s), 0);
	store_close(s);
	s = opened(p);
	assert_int_equal(count_sandboxes(s), 2);
	assert_int_equal(store_key_by_hash(s, k.hash, &got), 0);
	key_row_done(&got);
	store_close(s);
}

/* --- sandboxes --- */

static void a_full_sandbox(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	struct err e = { 0 };
	struct sandbox_row r = sandbox_of("id-1", "box");
	r.key_id = xstrdup("key_1");
	r.preview_token = xstrdup("tok");
	r.state = SANDBOX_RUNNING;
	r.error = xstrdup("none \xf0\x9f\x98\x80");
	r.image_digest = xstrdup("sha256:00");
	r.boundary = xstrdup("process");
	r.user = xstrdup("root");
	r.created_ms = 1;
	r.updated_ms = 2;
	r.active_ms = 3;
	r.stopped_ms = 4;
	r.next_run = UINT64_MAX;
	r.spec.name = xstrdup("box");
	r.spec.boundary = xstrdup("vm");
	r.spec.resources = (struct resources){ 0.1, 1 << 20, 5, 6 };
	pairs_add(&r.spec.env, "B", "two \"quoted\"\n");
	pairs_add(&r.spec.env, "A", "");
	pairs_add(&r.spec.labels, "k\xc3\xa9", "v");
	r.spec.user = xstrdup("0");
	r.spec.workdir = xstrdup("/w");
	r.spec.hostname = xstrdup("h");
	r.spec.network = NETWORK_ALLOW;
	r.spec.network_allow = strv_copy((char *[]){ (char *)(uintptr_t)"a.test:443", (char *)(uintptr_t)"*.b", NULL });
	r.spec.network_deny = strv_copy((char *[]){ (char *)(uintptr_t)"c.b", NULL });
	r.spec.lifetime = (struct lifetime){ 10, 20, -1 };
	r.spec.ephemeral = true;
	r.spec.idempotency_key = xstrdup("idem");
	r.spec.extra = xstrdup("{\"a\":[1,2]}");
	assert_int_equal(store_sandbox_put(s, &r, &e), 0);
	store_close(s);

	s = opened(p);
	struct found f = { 0 };
	assert_int_equal(store_sandbox_each(s, find_sandbox, &f), 0);
	assert_int_equal(f.n, 1);
	const struct sandbox_row *g = &f.last;
	const char *pairs[][2] = {
		{ g->id, r.id }, { g->name, r.name }, { g->tenant, r.tenant }, { g->key_id, r.key_id }, { g->preview_token, r.preview_token },
		{ g->error, r.error }, { g->image_digest, r.image_digest }, { g->boundary, r.boundary },
		{ g->user, r.user }, { g->spec.name, r.spec.name }, { g->spec.image, r.spec.image }, { g->spec.boundary, r.spec.boundary },
		{ g->spec.user, r.spec.user }, { g->spec.workdir, r.spec.workdir }, { g->spec.hostname, r.spec.hostname },
		{ g->spec.idempotency_key, r.spec.idempotency_key }, { g->spec.extra, r.spec.extra },
	};
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
		assert_string_equal(pairs[i][0], pairs[i][1]);
	assert_int_equal(g->state, SANDBOX_RUNNING);
	assert_int_equal(g->created_ms, 1);
	assert_int_equal(g->updated_ms, 2);
	assert_int_equal(g->active_ms, 3);
	assert_int_equal(g->stopped_ms, 4);
	assert_true(g->next_run == UINT64_MAX);
	assert_memory_equal(&g->spec.resources, &r.spec.resources, sizeof r.spec.resources);
	assert_memory_equal(&g->spec.lifetime, &r.spec.lifetime, sizeof r.spec.lifetime);
	assert_int_equal(g->spec.network, NETWORK_ALLOW);
	assert_string_equal(g->spec.network_allow[1], "*.b");
	assert_null(g->spec.network_allow[2]);
	assert_string_equal(g->spec.network_deny[0], "c.b");
	assert_true(g->spec.ephemeral);
	assert_int_equal(g->spec.env.n, 2);
	assert_string_equal(g->spec.env.v[0].key, "B"); /* the order is kept */
	assert_string_equal(g->spec.env.v[0].value, "two \"quoted\"\n");
	assert_string_equal(g->spec.env.v[1].value, "");
	assert_string_equal(pairs_get(&g->spec.labels, "k\xc3\xa9"), "v");
	sandbox_row_done(&f.last);

	pairs_add(&r.spec.env, "BAD", "\xff");
	assert_int_equal(store_sandbox_put(s, &r, &e), -EILSEQ);
	assert_int_equal(e.kind, ERR_INVALID);
	sandbox_row_done(&r);
	store_close(s);
}

static void names_and_keys_are_unique(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	struct err e = { 0 };
	assert_int_equal(put_simple(s, "a", "box", &e), 0);
	assert_int_equal(put_simple(s, "a", "box", &e), 0); /* itself again */
	assert_int_equal(put_simple(s, "b", "box", &e), -EEXIST);
	assert_int_equal(e.kind, ERR_CONFLICT);
	assert_non_null(strstr(e.message, "name: a sandbox with the name \"box\" exists"));

	struct sandbox_row r = sandbox_of("b", "box");
	free(r.tenant);
	r.tenant = xstrdup("another");
	r.spec.idempotency_key = xstrdup("key");
	assert_int_equal(store_sandbox_put(s, &r, &e), 0); /* same name, another tenant */
	free(r.id);
	free(r.name);
	r.id = xstrdup("c");
	r.name = xstrdup("third");
	assert_int_equal(store_sandbox_put(s, &r, &e), -EEXIST);
	assert_int_equal(e.kind, ERR_CONFLICT);
	assert_non_null(strstr(e.message, "idempotency_key: \"key\" belongs"));
	free(r.tenant);
	r.tenant = xstrdup("t");
	assert_int_equal(store_sandbox_put(s, &r, &e), 0); /* same key, another tenant */

	assert_int_equal(put_simple(s, "c", "box", &e), -EEXIST); /* a rename onto a taken name */
	assert_int_equal(count_sandboxes(s), 3);
	assert_int_equal(store_sandbox_delete(s, "a"), 0);
	assert_int_equal(put_simple(s, "d", "box", &e), 0); /* free again */

	/* A refused row does not spoil its group. */
	store_begin(s);
	assert_int_equal(put_simple(s, "e", "box", &e), -EEXIST);
	assert_int_equal(put_simple(s, "e", "e", &e), 0);
	assert_int_equal(store_commit(s), 0);
	assert_int_equal(count_sandboxes(s), 4);
	sandbox_row_done(&r);
	store_close(s);
}

static void states_and_times(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	struct found f = { 0 };
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	assert_int_equal(store_sandbox_state(s, "a", SANDBOX_STOPPED, NULL, 50), 0);
	assert_int_equal(store_sandbox_active(s, "a", 60), 0);
	assert_int_equal(store_sandbox_each(s, find_sandbox, &f), 0);
	assert_int_equal(f.last.state, SANDBOX_STOPPED);
	assert_int_equal(f.last.stopped_ms, 50);
	assert_int_equal(f.last.updated_ms, 50);
	assert_int_equal(f.last.active_ms, 60);
	assert_null(f.last.error);
	assert_int_equal(store_sandbox_state(s, "a", SANDBOX_ERROR, "why", 70), 0);
	assert_int_equal(store_sandbox_each(s, find_sandbox, &f), 0);
	assert_int_equal(f.last.state, SANDBOX_ERROR);
	assert_string_equal(f.last.error, "why");
	assert_int_equal(f.last.stopped_ms, 50);
	assert_int_equal(store_sandbox_state(s, "a", SANDBOX_RUNNING, NULL, 80), 0);
	assert_int_equal(store_sandbox_each(s, find_sandbox, &f), 0);
	assert_int_equal(f.last.stopped_ms, 0);
	assert_int_equal(f.last.updated_ms, 80);
	assert_null(f.last.error);
	assert_int_equal(store_sandbox_state(s, "x", SANDBOX_RUNNING, NULL, 80), -ENOENT);
	assert_int_equal(store_sandbox_active(s, "x", 80), -ENOENT);
	sandbox_row_done(&f.last);
	store_close(s);
}

static void damaged_rows_can_be_deleted(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	static const char *const ruin[] = {
		"UPDATE sandboxes SET state = 'dreaming'",
		"UPDATE sandboxes SET spec = 'not json'",
		"UPDATE sandboxes SET spec = '[]'",
		"UPDATE sandboxes SET spec = '{\"network\":\"wide-open\"}'",
	};
	for (size_t i = 0; i < ARRAY_LEN(ruin); i++) {
		assert_int_equal(put_simple(s, "a", "a", NULL), 0);
		store_close(s);
		raw_sql(p, ruin[i]);
		s = opened(p);
		struct found f = { 0 };
		assert_int_equal(store_sandbox_each(s, find_sandbox, &f), 0);
		assert_int_equal(f.n, 1);
		assert_int_equal(f.last.state, SANDBOX_ERROR);
		assert_non_null(f.last.error);
		assert_string_equal(f.last.spec.image, "default");
		sandbox_row_done(&f.last);
		assert_int_equal(store_sandbox_delete(s, "a"), 0);
		assert_int_equal(count_sandboxes(s), 0);
	}
	/* What a later version adds to a spec is no damage. */
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	store_close(s);
	raw_sql(p, "UPDATE sandboxes SET spec = '{\"image\":\"i\",\"future\":{\"x\":1},\"pids\":\"many\"}'");
	s = opened(p);
	struct found f = { 0 };
	assert_int_equal(store_sandbox_each(s, find_sandbox, &f), 0);
	assert_int_equal(f.last.state, SANDBOX_CREATING);
	assert_string_equal(f.last.spec.image, "i");
	assert_int_equal(f.last.spec.lifetime.delete_after_s, -1);
	sandbox_row_done(&f.last);
	store_close(s);
}

/* --- runs and sessions --- */

static void runs(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	char sandbox[] = "a", session[] = "se", display[] = "ls -l", key[] = "idem", message[] = "m";
	uint8_t out[] = { 0, 1, 0xff, 0 }, none[] = { 0 };
	struct run_row r = run_of(sandbox, 7);
	assert_int_equal(store_run_put(s, &r), -ENOENT); /* no such sandbox */
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	assert_int_equal(store_run_put(s, &r), 0);
	r = (struct run_row){ sandbox, 7, session, display, key, message, RUN_EXITED, 137, 9, true, true, true, true, true, true, 1ULL << 40, 2, 3, 4, 5,
		              6, out, none, sizeof out, 0 };
	assert_int_equal(store_run_put(s, &r), 0); /* replaces */
	store_close(s);
	s = opened(p);
	struct found f = { 0 };
	assert_int_equal(store_run_each(s, "a", find_run, &f), 0);
	assert_int_equal(f.n, 1);
	struct run_row *g = &f.last_run;
	assert_int_equal(g->number, 7);
	assert_string_equal(g->session, "se");
	assert_string_equal(g->display, "ls -l");
	assert_string_equal(g->idempotency_key, "idem");
	assert_string_equal(g->message, "m");
	assert_int_equal(g->state, RUN_EXITED);
	assert_int_equal(g->exit_code, 137);
	assert_int_equal(g->signal, 9);
	assert_true(g->timed_out && g->canceled && g->oom && g->truncated && g->pty && g->merge_stderr);
	assert_true(g->stdout_bytes == 1ULL << 40);
	assert_int_equal(g->stderr_bytes, 2);
	assert_int_equal(g->started_ms, 3);
	assert_int_equal(g->ended_ms, 4);
	assert_int_equal(g->duration_ms, 5);
	assert_int_equal(g->output_max, 6);
	assert_int_equal(g->stdout_len, 4);
	assert_memory_equal(g->stdout_data, out, 4);
	assert_non_null(g->stderr_data); /* empty, which is not the same as absent */
	assert_int_equal(g->stderr_len, 0);
	r = run_of(sandbox, 3);
	assert_int_equal(store_run_put(s, &r), 0);
	assert_int_equal(store_run_each(s, "a", find_run, &f), 0); /* 3 first, 7 last */
	assert_int_equal(f.last_run.number, 7);
	struct run_row got;
	assert_int_equal(store_run_get(s, "a", 3, &got), 0);
	assert_int_equal(got.number, 3);
	assert_int_equal(got.state, RUN_RUNNING);
	run_row_done(&got);
	assert_int_equal(store_run_delete(s, "a", 7), 0);
	assert_int_equal(store_run_delete(s, "a", 7), 0);
	assert_int_equal(store_run_get(s, "a", 7, &got), -ENOENT);
	assert_int_equal(store_run_each(s, "a", find_run, &f), 0);
	assert_int_equal(f.last_run.number, 3);
	assert_null(f.last_run.stdout_data);
	run_row_done(&f.last_run);
	assert_int_equal(count_runs(s, "b"), 0);
	store_close(s);
	raw_sql(p, "UPDATE runs SET state = 'odd'");
	s = opened(p);
	assert_int_equal(store_run_each(s, "a", find_run, &f), 0);
	assert_int_equal(f.last_run.state, RUN_LOST);
	run_row_done(&f.last_run);
	store_close(s);
}

static void sessions(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	char sandbox[] = "a", id[] = "se", id2[] = "tt";
	struct session_row r = { sandbox, id, true, 5 };
	struct found f = { 0 };
	assert_int_equal(store_session_put(s, &r), -ENOENT);
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	assert_int_equal(store_session_put(s, &r), 0);
	r.alive = false;
	assert_int_equal(store_session_put(s, &r), 0);
	assert_int_equal(store_session_each(s, "a", find_session, &f), 0);
	assert_int_equal(f.n, 1);
	assert_string_equal(f.session, "se:0:5");
	r.id = id2;
	assert_int_equal(store_session_put(s, &r), 0);
	assert_int_equal(store_session_delete(s, "a", "se"), 0);
	assert_int_equal(store_session_delete(s, "a", "se"), 0);
	f.n = 0;
	assert_int_equal(store_session_each(s, "a", find_session, &f), 0);
	assert_int_equal(f.n, 1);
	assert_string_equal(f.session, "tt:0:5");
	store_close(s);
}

static void delete_takes_all(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	char a[] = "a", b[] = "b", id[] = "se";
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	assert_int_equal(put_simple(s, "b", "b", NULL), 0);
	for (uint64_t i = 1; i <= 5; i++) {
		struct run_row ra = run_of(a, i), rb = run_of(b, i);
		assert_int_equal(store_run_put(s, &ra), 0);
		assert_int_equal(store_run_put(s, &rb), 0);
	}
	struct session_row sa = { a, id, true, 1 };
	assert_int_equal(store_session_put(s, &sa), 0);
	assert_int_equal(put_simple(s, "a", "renamed", NULL), 0); /* replacing the row keeps its runs */
	assert_int_equal(count_runs(s, "a"), 5);
	assert_int_equal(store_sandbox_delete(s, "a"), 0);
	assert_int_equal(store_sandbox_delete(s, "a"), 0);
	struct found f = { 0 };
	assert_int_equal(count_runs(s, "a"), 0);
	assert_int_equal(store_session_each(s, "a", find_session, &f), 0);
	assert_int_equal(f.n, 0);
	assert_int_equal(count_runs(s, "b"), 5);
	assert_int_equal(count_sandboxes(s), 1);
	store_close(s);
}

static int walk_and_write(void *ctx, struct sandbox_row *r)
{
	struct found *f = ctx;
	f->n++;
	f->sum += count_runs(f->nested, r->id) + count_sandboxes(f->nested); /* a walk in a walk, of the same kind too */
	return store_sandbox_delete(f->nested, r->id);
}

static void a_walk_may_do_anything(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	char a[] = "a";
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	assert_int_equal(put_simple(s, "b", "b", NULL), 0);
	assert_int_equal(put_simple(s, "c", "c", NULL), 0);
	struct run_row r = run_of(a, 1);
	assert_int_equal(store_run_put(s, &r), 0);
	struct found f = { .nested = s };
	assert_int_equal(store_sandbox_each(s, walk_and_write, &f), 0);
	assert_int_equal(f.n, 3);
	assert_int_equal(f.sum, 1 + 3 + 2 + 1);
	assert_int_equal(count_sandboxes(s), 0);
	store_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLACED(keys),
		PLACED(a_key_in_a_group),
		PLACED(a_full_sandbox),
		PLACED(names_and_keys_are_unique),
		PLACED(states_and_times),
		PLACED(damaged_rows_can_be_deleted),
		PLACED(snapshots),
		PLACED(runs),
		PLACED(sessions),
		PLACED(delete_takes_all),
		PLACED(a_walk_may_do_anything),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
