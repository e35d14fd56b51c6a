#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/store.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- a folder for each test --- */

struct place {
	char dir[64], path[80];
};

static int place_make(void **state)
{
	struct place *p = xcalloc(1, sizeof *p);
	snprintf(p->dir, sizeof p->dir, "/tmp/caisson-test-store-XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	snprintf(p->path, sizeof p->path, "%s/store.db", p->dir);
	*state = p;
	return 0;
}

static int place_remove(void **state)
{
	struct place *p = *state;
	static const char *const suffixes[] = { "", "-wal", "-shm", "-journal" };
	for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
		auto_free char *name = xasprintf("%s%s", p->path, suffixes[i]);
		unlink(name);
	}
	int r = rmdir(p->dir); /* fails when the store left something else behind */
	free(p);
	return r;
}

static struct store *opened(const struct place *p)
{
	struct store *s = NULL;
	struct err e = { 0 };
	if (store_open(p->path, &s, &e) < 0)
		fail_msg("store_open: %s", e.message);
	return s;
}

static void refuses(const struct place *p, int errnum, const char *part)
{
	struct store *s = NULL;
	struct err e = { 0 };
	assert_int_equal(store_open(p->path, &s, &e), -errnum);
	assert_null(s);
	assert_int_equal(e.kind, ERR_UNAVAILABLE);
	if (!strstr(e.message, part) || !strstr(e.message, p->path))
		fail_msg("message is: %s", e.message);
}

static void raw_sql(const struct place *p, const char *sql)
{
	sqlite3 *db = NULL;
	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* --- rows --- */

static struct sandbox_row sandbox_of(const char *id, const char *name)
{
	struct sandbox_row r = { .id = xstrdup(id), .name = xstrdup(name), .tenant = xstrdup("t"), .state = SANDBOX_CREATING };
	spec_init(&r.spec);
	return r;
}

static int put_simple(struct store *s, const char *id, const char *name, struct err *e)
{
	struct sandbox_row r = sandbox_of(id, name);
	int rc = store_sandbox_put(s, &r, e);
	sandbox_row_done(&r);
	return rc;
}

static struct run_row run_of(char *sandbox, uint64_t number)
{
	return (struct run_row){ .sandbox_id = sandbox, .number = number, .state = RUN_RUNNING };
}

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

static size_t count_sandboxes(struct store *s)
{
	struct found f = { 0 };
	assert_int_equal(store_sandbox_each(s, find_sandbox, &f), 0);
	sandbox_row_done(&f.last);
	return f.n;
}

static size_t count_runs(struct store *s, const char *id)
{
	struct found f = { 0 };
	assert_int_equal(store_run_each(s, id, find_run, &f), 0);
	run_row_done(&f.last_run);
	return f.n;
}

/* --- the file --- */

static void makes_a_private_file(void **state)
{
	struct place *p = *state;
	struct stat st;
	mode_t old = umask(0);
	struct store *s = opened(p);
	umask(old);
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	auto_free char *wal = xasprintf("%s-wal", p->path);
	assert_int_equal(stat(wal, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	store_close(s);
	store_close(NULL);
	assert_int_equal(chmod(p->path, 0644), 0);
	s = opened(p);
	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	store_close(s);
}

static void refuses_what_is_not_ours(void **state)
{
	struct place *p = *state;
	struct place none = { .path = "/nonexistent-folder/x.db" };
	refuses(&none, ENOENT, "can't make");

	assert_int_equal(symlink("/dev/null", p->path), 0);
	refuses(p, EINVAL, "not a regular file");
	unlink(p->path);

	int fd = open(p->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(write(fd, "rubbish!", 8), 8);
	close(fd);
	refuses(p, EUCLEAN, "damaged or not a database");
	unlink(p->path);

	raw_sql(p, "CREATE TABLE other (x); INSERT INTO other VALUES (1)");
	refuses(p, EINVAL, "another program");
	unlink(p->path);
}

static void refuses_a_newer_schema(void **state)
{
	struct place *p = *state;
	store_close(opened(p));
	raw_sql(p, "PRAGMA user_version = 99");
	refuses(p, EPROTO, "schema 99, this version knows");
	raw_sql(p, "PRAGMA user_version = 1"); /* nothing was spoilt by the refusal */
	store_close(opened(p));
}

static void refuses_a_damaged_file(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	char id[16];
	for (int i = 0; i < 500; i++) {
		snprintf(id, sizeof id, "id%d", i);
		assert_int_equal(put_simple(s, id, id, NULL), 0);
	}
	store_close(s);
	struct stat st;
	assert_int_equal(stat(p->path, &st), 0);
	assert_true(st.st_size > 20 * 4096);
	char page[4096];
	memset(page, 0x5a, sizeof page);
	int fd = open(p->path, O_WRONLY | O_CLOEXEC);
	for (int i = 10; i < 20; i++)
		assert_int_equal(pwrite(fd, page, sizeof page, i * 4096), sizeof page);
	close(fd);
	refuses(p, EUCLEAN, "damaged");
	assert_int_equal(truncate(p->path, 3 * 4096), 0);
	refuses(p, EUCLEAN, "damaged");
}

static void one_server_at_a_time(void **state)
{
	struct place *p = *state;
	int ready[2], go[2];
	char c;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct store *s;
		if (store_open(p->path, &s, NULL) < 0 || put_simple(s, "a", "a", NULL) < 0)
			_exit(1);
		close(go[1]);
		if (write(ready[1], "x", 1) != 1 || read(go[0], &c, 1) != 0)
			_exit(1);
		_exit(0); /* without store_close, as a crash would */
	}
	close(go[0]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	refuses(p, EBUSY, "in use by another process");
	close(go[1]);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(ready[0]);
	close(ready[1]);
	struct store *s = opened(p); /* the lock went with the process */
	assert_int_equal(count_sandboxes(s), 1);
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
	r.image_root = xstrdup("/images/\xff"); /* a path is bytes */
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
		{ g->error, r.error }, { g->image_digest, r.image_digest }, { g->image_root, r.image_root }, { g->boundary, r.boundary },
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

/* --- groups and failures --- */

static void groups(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	store_begin(s);
	assert_int_equal(store_commit(s), 0); /* nothing in it */
	store_begin(s);
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	store_begin(s);
	assert_int_equal(put_simple(s, "b", "b", NULL), 0);
	assert_int_equal(store_commit(s), 0);
	assert_int_equal(count_sandboxes(s), 2); /* a group sees its own writes */
	store_idle(s);                           /* has no business inside a group */
	assert_int_equal(store_commit(s), 0);
	store_begin(s);
	assert_int_equal(put_simple(s, "c", "c", NULL), 0);
	store_close(s); /* an open group is not kept */
	s = opened(p);
	assert_int_equal(count_sandboxes(s), 2);
	store_close(s);
}

/* A disk that is full, by a limit on the size of files. */
static void a_full_disk_is_reported(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	struct rlimit old, little;
	struct err e = { 0 };
	char big[] = "big";
	assert_int_equal(put_simple(s, "big", "big", NULL), 0);
	uint8_t *data = xcalloc(1, 1 << 20);
	struct run_row r = run_of(big, 1);
	r.stdout_data = data;
	r.stdout_len = 1 << 20;
	fflush(NULL);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	little = (struct rlimit){ 512 << 10, old.rlim_max };

	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	int alone = store_run_put(s, &r);
	store_begin(s);
	int before = put_simple(s, "x", "x", &e);
	int write = store_run_put(s, &r), after = put_simple(s, "y", "y", &e), commit = store_commit(s);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);

	assert_true(alone < 0);
	assert_int_equal(before, 0);
	/* Pages stay in memory until the commit if they fit: then it is the commit that fails. */
	assert_true(commit < 0);
	assert_true(write == 0 || after < 0);
	assert_int_equal(count_sandboxes(s), 1); /* neither x nor y */
	assert_int_equal(count_runs(s, "big"), 0);
	store_begin(s);
	assert_int_equal(store_run_put(s, &r), 0); /* and it goes on when there is room */
	assert_int_equal(store_commit(s), 0);
	store_close(s);
	s = opened(p);
	assert_int_equal(count_runs(s, "big"), 1);
	store_close(s);
	free(data);
}

static void the_log_stays_small(void **state)
{
	struct place *p = *state;
	struct store *s = opened(p);
	struct stat st;
	char a[] = "a";
	auto_free char *wal = xasprintf("%s-wal", p->path);
	assert_int_equal(put_simple(s, "a", "a", NULL), 0);
	auto_free uint8_t *data = xcalloc(1, 256 << 10);
	struct run_row r = run_of(a, 1);
	r.stdout_data = data;
	r.stdout_len = 256 << 10;
	for (int i = 0; i < 400; i++) { /* 100 MiB; equal pages would not be written again */
		memset(data, i, r.stdout_len);
		assert_int_equal(store_run_put(s, &r), 0);
	}
	assert_int_equal(stat(wal, &st), 0);
	assert_in_range(st.st_size, 4 << 20, 40 << 20);
	store_idle(s);
	for (int i = 0; i < 10; i++)
		assert_int_equal(store_run_put(s, &r), 0);
	assert_int_equal(stat(p->path, &st), 0);
	assert_in_range(st.st_size, 256 << 10, 2 << 20); /* the same pages again and again */
	store_close(s);
	assert_int_equal(stat(wal, &st), -1);
}

/* --- kill -9 --- */

#define KILLS 10
#define OUTPUT 3000

/* Writes sandboxes with two runs each, in groups, and tells of each after its commit; every third is deleted again. */
static void write_until_killed(const struct place *p, int ack, uint64_t from)
{
	struct store *s;
	uint8_t data[OUTPUT];
	char id[32];
	if (store_open(p->path, &s, NULL) < 0)
		_exit(1);
	for (uint64_t i = from;; i++) {
		snprintf(id, sizeof id, "box-%llu", (unsigned long long)i);
		memset(data, (int)(i & 0xff), sizeof data);
		struct run_row one = run_of(id, 1), two = run_of(id, 2);
		two.stdout_data = data;
		two.stdout_len = sizeof data;
		store_begin(s);
		if (put_simple(s, id, id, NULL) < 0 || store_run_put(s, &one) < 0 || store_run_put(s, &two) < 0 || store_commit(s) < 0)
			_exit(2);
		if (i % 3 == 0 && store_sandbox_delete(s, id) < 0)
			_exit(3);
		if (i % 50 == 0)
			store_idle(s); /* the fold into the file is a good moment to die as well */
		if (write(ack, &i, sizeof i) != sizeof i)
			_exit(4);
	}
}

struct seen {
	unsigned char *boxes; /* by number */
	uint64_t max;
	struct store *s;
	uint64_t id;
	int runs;
};

static int see_run(void *ctx, struct run_row *r)
{
	struct seen *seen = ctx;
	seen->runs++;
	if (r->number == 2) {
		assert_int_equal(r->stdout_len, OUTPUT);
		for (size_t i = 0; i < OUTPUT; i++)
			assert_int_equal(r->stdout_data[i], seen->id & 0xff);
	}
	return 0;
}

static int see_box(void *ctx, struct sandbox_row *r)
{
	struct seen *seen = ctx;
	assert_int_equal(parse_u64(str_of(r->id + 4), seen->max, &seen->id), 0);
	seen->boxes[seen->id] = 1;
	seen->runs = 0;
	assert_int_equal(store_run_each(seen->s, r->id, see_run, seen), 0);
	assert_int_equal(seen->runs, 2); /* a group is there whole or not at all */
	return 0;
}

static void survives_kill_9(void **state)
{
	struct place *p = *state;
	uint64_t done = 0; /* the highest number that was ever acknowledged */
	unsigned seed = 0;
	random_bytes(&seed, sizeof seed);
	for (int round = 0; round < KILLS; round++) {
		int ack[2];
		assert_int_equal(pipe2(ack, O_CLOEXEC), 0);
		fcntl(ack[1], F_SETPIPE_SZ, 1 << 20);
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			close(ack[0]);
			write_until_killed(p, ack[1], done + 1);
		}
		close(ack[1]);
		uint64_t last = 0;
		assert_int_equal(read(ack[0], &last, sizeof last), sizeof last);
		usleep((unsigned)rand_r(&seed) % 60000);
		assert_int_equal(kill(pid, SIGKILL), 0);
		int status;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status)); /* it did not end by an error of its own */
		uint64_t next;
		while (read(ack[0], &next, sizeof next) == sizeof next)
			last = next;
		close(ack[0]);
		assert_true(last > done);
		done = last;

		struct store *s = opened(p); /* reads it through as well */
		/* One more may be whole without having been acknowledged. */
		struct seen seen = { .boxes = xcalloc(done + 2, 1), .max = done + 1, .s = s };
		assert_int_equal(store_sandbox_each(s, see_box, &seen), 0);
		for (uint64_t i = 1; i <= done; i++)
			if (seen.boxes[i] != (i % 3 != 0))
				fail_msg("round %d: sandbox %llu of %llu is %s", round, (unsigned long long)i, (unsigned long long)done,
				         seen.boxes[i] ? "back from the dead" : "lost");
		char unacknowledged[32];
		snprintf(unacknowledged, sizeof unacknowledged, "box-%llu", (unsigned long long)done + 1);
		assert_int_equal(store_sandbox_delete(s, unacknowledged), 0);
		free(seen.boxes);
		store_close(s);
	}
	print_message("             %llu acknowledged in %d rounds, none lost\n", (unsigned long long)done, KILLS);
}

#define PLACED(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLACED(makes_a_private_file),
		PLACED(refuses_what_is_not_ours),
		PLACED(refuses_a_newer_schema),
		PLACED(refuses_a_damaged_file),
		PLACED(one_server_at_a_time),
		PLACED(keys),
		PLACED(a_key_in_a_group),
		PLACED(a_full_sandbox),
		PLACED(names_and_keys_are_unique),
		PLACED(states_and_times),
		PLACED(damaged_rows_can_be_deleted),
		PLACED(runs),
		PLACED(sessions),
		PLACED(delete_takes_all),
		PLACED(a_walk_may_do_anything),
		PLACED(groups),
		PLACED(a_full_disk_is_reported),
		PLACED(the_log_stays_small),
		PLACED(survives_kill_9),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
