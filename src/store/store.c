/* The file, its transactions and its prepared statements. The rows are in rows.c, the tables in schema.c.
 *
 * Theory of operation. WAL with synchronous=NORMAL: a commit is a write() to the log, which the death of the process
 * can't lose, and no fsync. Fsyncs happen when the log is folded into the file (a checkpoint): in store_idle, at close, or
 * at the latest when the log has WAL_FRAMES_MAX pages. So that such an fsync finds little to do, the log is handed to the
 * kernel's write-back while it grows (push_log): measured, that makes a stall of 130 ms one of 50.
 *
 * A group of writes (store_begin .. store_commit) is one transaction, opened by its first write. When one of its writes
 * fails for a reason that is not the row's own, all of the group is rolled back and the rest of it refused, so what is on
 * disk is always a state that some turn ended with. */
#include "store/store_int.h"

#include "base/log.h"
#include "store/schema.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUSY_TIMEOUT_MS 2000   /* the server before us may still be dying */
#define WAL_FRAMES_MAX 8192    /* pages: 32 MiB. SQLite's own 1000 would mean an fsync every hundred sandboxes */
#define WAL_FRAMES_IDLE 256    /* less is not worth an fsync */
#define WAL_FRAMES_PUSH 256    /* after so many the kernel is asked to write them out by itself */
#define CHECK_SIZE_MAX (64LL << 20) /* a larger file is not read through at start: some 100 ms */

static const char *const statements[ST_COUNT] = {
	[ST_BEGIN] = "BEGIN IMMEDIATE",
	[ST_COMMIT] = "COMMIT",
	[ST_ROLLBACK] = "ROLLBACK",
	[ST_KEY_ADD] = "INSERT INTO keys (id, name, tenant, hash, operator, revoked, created_ms, used_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
	[ST_KEY_BY_HASH] = "SELECT id, name, tenant, hash, operator, revoked, created_ms, used_ms FROM keys WHERE hash = ?",
	[ST_KEY_REVOKE] = "UPDATE keys SET revoked = 1 WHERE id = ?",
	[ST_KEY_USED] = "UPDATE keys SET used_ms = ?1 WHERE id = ?2",
	/* Not INSERT OR REPLACE: that deletes the old row first, and the runs would go with it. */
	[ST_SANDBOX_PUT] = "INSERT INTO sandboxes (id, tenant, name, key_id, preview_token, state, error, image_digest, boundary, user,"
			   " idempotency_key, created_ms, updated_ms, active_ms, stopped_ms, next_run, spec)"
			   " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
			   " ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, name = excluded.name, key_id = excluded.key_id,"
			   " preview_token = excluded.preview_token, state = excluded.state, error = excluded.error,"
			   " image_digest = excluded.image_digest, boundary = excluded.boundary,"
			   " user = excluded.user, idempotency_key = excluded.idempotency_key, created_ms = excluded.created_ms,"
			   " updated_ms = excluded.updated_ms, active_ms = excluded.active_ms, stopped_ms = excluded.stopped_ms,"
			   " next_run = excluded.next_run, spec = excluded.spec",
	[ST_SANDBOX_STATE] = "UPDATE sandboxes SET state = ?1, error = ?2, updated_ms = ?3, stopped_ms ="
			     " CASE ?1 WHEN 'stopped' THEN ?3 WHEN 'running' THEN 0 ELSE stopped_ms END WHERE id = ?4",
	[ST_SANDBOX_ACTIVE] = "UPDATE sandboxes SET active_ms = ? WHERE id = ?",
	[ST_SANDBOX_DELETE] = "DELETE FROM sandboxes WHERE id = ?",
	[ST_SANDBOX_HOLDS_NAME] = "SELECT id FROM sandboxes WHERE tenant = ? AND name = ?",
	[ST_RUN_PUT] = "INSERT INTO runs (sandbox_id, number, session, display, idempotency_key, message, state, exit_code, signal, timed_out,"
		       " canceled, oom, truncated, pty, merge_stderr, stdout_bytes, stderr_bytes, started_ms, ended_ms, duration_ms, output_max,"
		       " stdout_data, stderr_data)"
		       " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
		       " ON CONFLICT (sandbox_id, number) DO UPDATE SET session = excluded.session, display = excluded.display,"
		       " idempotency_key = excluded.idempotency_key, message = excluded.message, state = excluded.state,"
		       " exit_code = excluded.exit_code, signal = excluded.signal, timed_out = excluded.timed_out,"
		       " canceled = excluded.canceled, oom = excluded.oom, truncated = excluded.truncated, pty = excluded.pty,"
		       " merge_stderr = excluded.merge_stderr, stdout_bytes = excluded.stdout_bytes, stderr_bytes = excluded.stderr_bytes,"
		       " started_ms = excluded.started_ms, ended_ms = excluded.ended_ms, duration_ms = excluded.duration_ms,"
		       " output_max = excluded.output_max, stdout_data = excluded.stdout_data, stderr_data = excluded.stderr_data",
	[ST_RUN_GET] = "SELECT " RUN_COLUMNS " FROM runs WHERE sandbox_id = ? AND number = ?",
	[ST_RUN_DELETE] = "DELETE FROM runs WHERE sandbox_id = ? AND number = ?",
	[ST_SESSION_PUT] = "INSERT INTO sessions (sandbox_id, id, alive, created_ms) VALUES (?, ?, ?, ?)"
			   " ON CONFLICT (sandbox_id, id) DO UPDATE SET alive = excluded.alive, created_ms = excluded.created_ms",
	[ST_SESSION_DELETE] = "DELETE FROM sessions WHERE sandbox_id = ? AND id = ?",
	[ST_SNAPSHOT_PUT] = "INSERT INTO snapshots (id, tenant, name, key_id, state, boundary, image_digest, sandbox_id, user, memory, bytes, created_ms,"
			    " used_ms, spec) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
			    " ON CONFLICT (id) DO UPDATE SET name = excluded.name, state = excluded.state, bytes = excluded.bytes,"
			    " used_ms = excluded.used_ms, spec = excluded.spec",
	[ST_GRANT_PUT] = "INSERT INTO grants (id, sandbox_id, hash, kind, port, created_ms, expires_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
	[ST_GRANT_DELETE] = "DELETE FROM grants WHERE id = ?",
	[ST_VOLUME_PUT] = "INSERT INTO volumes (id, tenant, name, key_id, state, boundary, size_mib, created_ms, used_ms)"
			  " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
			  " ON CONFLICT (id) DO UPDATE SET state = excluded.state, used_ms = excluded.used_ms",
	[ST_VOLUME_DELETE] = "DELETE FROM volumes WHERE id = ?",
	[ST_SNAPSHOT_DELETE] = "DELETE FROM snapshots WHERE id = ?",
	[ST_POOL_PUT] = "INSERT INTO pools (spec, size) VALUES (?, ?) ON CONFLICT (spec) DO UPDATE SET size = excluded.size",
	[ST_POOL_DELETE] = "DELETE FROM pools WHERE spec = ?",
	[ST_SECRET_PUT] = "INSERT INTO secrets (id, tenant, name, placeholder, spec, sealed, created_ms, updated_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
			  " ON CONFLICT (id) DO UPDATE SET spec = excluded.spec, sealed = excluded.sealed, updated_ms = excluded.updated_ms",
	[ST_SECRET_DELETE] = "DELETE FROM secrets WHERE id = ?",
	[ST_AUTHORITY_PUT] = "INSERT INTO authority (one, certificate, sealed) VALUES (1, ?, ?)",
	[ST_AUTHORITY_GET] = "SELECT certificate, sealed FROM authority",
	[ST_WEBHOOK_PUT] = "INSERT INTO webhooks (id, url, secret, types, created_ms, seq) VALUES (?, ?, ?, ?, ?, ?)",
	[ST_WEBHOOK_POSITION] = "UPDATE webhooks SET seq = ? WHERE id = ?",
	[ST_WEBHOOK_DELETE] = "DELETE FROM webhooks WHERE id = ?",
};

/* --- values --- */

void put_text(struct cursor *c, const char *z)
{
	sqlite3_bind_text(c->stmt, ++c->at, z, -1, SQLITE_STATIC);
}

void put_u64(struct cursor *c, uint64_t v)
{
	sqlite3_bind_int64(c->stmt, ++c->at, (sqlite3_int64)v);
}

void put_int(struct cursor *c, int v)
{
	sqlite3_bind_int(c->stmt, ++c->at, v);
}

void put_blob(struct cursor *c, const void *p, size_t n)
{
	sqlite3_bind_blob64(c->stmt, ++c->at, p, n, SQLITE_STATIC);
}

char *get_text(struct cursor *c)
{
	return xstrdup((const char *)sqlite3_column_text(c->stmt, c->at++));
}

uint64_t get_u64(struct cursor *c)
{
	return (uint64_t)sqlite3_column_int64(c->stmt, c->at++);
}

int get_int(struct cursor *c)
{
	return sqlite3_column_int(c->stmt, c->at++);
}

bool get_bool(struct cursor *c)
{
	return get_int(c) != 0;
}

uint8_t *get_blob(struct cursor *c, size_t *ret_n)
{
	int at = c->at++;
	if (sqlite3_column_type(c->stmt, at) == SQLITE_NULL)
		return NULL;
	const void *p = sqlite3_column_blob(c->stmt, at); /* NULL for an empty one */
	size_t n = (size_t)sqlite3_column_bytes(c->stmt, at);
	uint8_t *copy = xmalloc(n + 1);
	if (n)
		memcpy(copy, p, n);
	*ret_n = n;
	return copy;
}

/* --- statements --- */

int store_errno(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_PERM:
	case SQLITE_AUTH:
		return -EACCES;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EUCLEAN;
	case SQLITE_TOOBIG:
		return -EFBIG;
	case SQLITE_CONSTRAINT:
		return rc == SQLITE_CONSTRAINT_FOREIGNKEY ? -ENOENT : -EEXIST;
	default:
		return -EIO;
	}
}

struct cursor store_statement(struct store *s, enum statement which)
{
	if (!s->statements[which])
		sqlite3_prepare_v3(s->db, statements[which], -1, SQLITE_PREPARE_PERSISTENT, &s->statements[which], NULL);
	return (struct cursor){ s->statements[which], 0 };
}

/* Executes to the end. Bindings are dropped, since the caller's memory behind them is about to go. */
static int step(struct store *s, struct cursor c)
{
	if (!c.stmt)
		return sqlite3_errcode(s->db) ? sqlite3_extended_errcode(s->db) : SQLITE_ERROR;
	int rc = sqlite3_step(c.stmt);
	sqlite3_reset(c.stmt);
	sqlite3_clear_bindings(c.stmt);
	return rc;
}

static int failed(struct store *s, int rc, const char *doing)
{
	int r = store_errno(rc);
	log_error("store: %s failed: %s (%d)", doing, sqlite3_errmsg(s->db), rc);
	if (s->depth > 0) {
		s->group_error = r;
		if (!sqlite3_get_autocommit(s->db)) /* some failures have rolled back already */
			step(s, store_statement(s, ST_ROLLBACK));
	}
	return r;
}

int store_write(struct store *s, struct cursor c)
{
	int rc;
	if (s->group_error)
		return s->group_error;
	if (s->depth > 0 && sqlite3_get_autocommit(s->db)) {
		rc = step(s, store_statement(s, ST_BEGIN));
		if (rc != SQLITE_DONE)
			return failed(s, rc, "begin");
	}
	rc = step(s, c);
	if (rc == SQLITE_DONE)
		return sqlite3_changes(s->db) ? 0 : -ENOENT;
	if (rc == SQLITE_CONSTRAINT_FOREIGNKEY || rc == SQLITE_CONSTRAINT_UNIQUE || rc == SQLITE_CONSTRAINT_PRIMARYKEY)
		return store_errno(rc); /* the row's own trouble; the statement alone is undone */
	return failed(s, rc, "write");
}

int store_get(struct store *s, struct cursor *c)
{
	int rc = c->stmt ? sqlite3_step(c->stmt) : sqlite3_extended_errcode(s->db);
	c->at = 0;
	if (rc == SQLITE_ROW)
		return 0;
	if (rc == SQLITE_DONE)
		return -ENOENT;
	log_error("store: reading failed: %s (%d)", sqlite3_errmsg(s->db), rc);
	return store_errno(rc);
}

void store_got(struct cursor c)
{
	sqlite3_reset(c.stmt);
	if (c.stmt)
		sqlite3_clear_bindings(c.stmt);
}

int store_walk(struct store *s, const char *sql, const char *parameter, int (*row)(void *ctx, struct cursor *c), void *ctx)
{
	/* Prepared anew each time: a walk may be started inside a walk, and walks are rare. */
	struct cursor c = { NULL, 0 };
	int rc = sqlite3_prepare_v2(s->db, sql, -1, &c.stmt, NULL), r = 0;
	if (rc != SQLITE_OK) {
		log_error("store: reading failed: %s (%d)", sqlite3_errmsg(s->db), rc);
		return store_errno(rc);
	}
	if (parameter)
		put_text(&c, parameter);
	while (r == 0 && (rc = sqlite3_step(c.stmt)) == SQLITE_ROW) {
		c.at = 0;
		r = row(ctx, &c);
	}
	if (r == 0 && rc != SQLITE_DONE) {
		r = store_errno(rc);
		log_error("store: reading failed: %s (%d)", sqlite3_errmsg(s->db), rc);
	}
	sqlite3_finalize(c.stmt);
	return r;
}

/* --- groups --- */

static int commit_group(struct store *s)
{
	if (s->group_error || sqlite3_get_autocommit(s->db))
		return s->group_error; /* lost already, or nothing was written */
	int rc = step(s, store_statement(s, ST_COMMIT));
	return rc == SQLITE_DONE ? 0 : failed(s, rc, "commit");
}

void store_begin(struct store *s)
{
	s->depth++;
}

int store_commit(struct store *s)
{
	assert(s->depth > 0);
	if (s->depth > 1) {
		s->depth--;
		return s->group_error;
	}
	int r = commit_group(s);
	s->depth = 0;
	s->group_error = 0;
	return r;
}

int store_write_synced(struct store *s, struct cursor c)
{
	int r = commit_group(s); /* the pragma is refused inside a transaction */
	if (r < 0)
		return r;
	int rc = sqlite3_exec(s->db, "PRAGMA synchronous = FULL", NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		return failed(s, rc, "asking for a synced write");
	unsigned depth = s->depth;
	s->depth = 0; /* a transaction of its own: what comes after it in the group may still fail */
	r = store_write(s, c);
	s->depth = depth;
	rc = sqlite3_exec(s->db, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		log_warn("store: every write is synced from now on: %s", sqlite3_errmsg(s->db));
	return r;
}

static void checkpoint(struct store *s)
{
	int rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	if (rc == SQLITE_OK)
		s->wal_frames = 0;
	else if (rc != SQLITE_BUSY && rc != SQLITE_LOCKED) /* a walk is under way: next time */
		log_error("store: folding the log into the file failed: %s (%d)", sqlite3_errmsg(s->db), rc);
}

/* Starts the write-out of what is in the log and does not wait for it. A hint: failure changes nothing. */
static void push_log(struct store *s)
{
	s->pushed_frames = s->wal_frames;
	if (s->wal_fd < 0) /* SQLite makes the file and keeps it until the end; it has no lock that our close() could drop */
		s->wal_fd = open(sqlite3_filename_wal(sqlite3_db_filename(s->db, "main")), O_RDONLY | O_CLOEXEC);
	if (s->wal_fd >= 0)
		sync_file_range(s->wal_fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

static int after_commit(void *ctx, sqlite3 *db, const char *name, int frames)
{
	struct store *s = ctx;
	(void)db;
	(void)name;
	s->wal_frames = frames;
	if (frames >= WAL_FRAMES_MAX)
		checkpoint(s);
	else if (frames < s->pushed_frames) /* the log has begun anew */
		s->pushed_frames = 0;
	else if (frames - s->pushed_frames >= WAL_FRAMES_PUSH)
		push_log(s);
	return SQLITE_OK;
}

void store_idle(struct store *s)
{
	if (s->depth == 0 && s->wal_frames >= WAL_FRAMES_IDLE)
		checkpoint(s);
}

/* --- open --- */

/* Makes the file, so that it has its mode from the first moment (SQLite gives its log the same), or checks what is there. */
static int prepare_file(const char *path, struct err *e)
{
	struct stat st;
	int made = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (made >= 0) {
		auto_free char *dir = xstrdup(path);
		char *slash = strrchr(dir, '/');
		if (slash)
			slash[slash == dir] = 0;
		auto_fd int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		int r = fchmod(made, 0600) < 0 || fd < 0 || fsync(fd) < 0 ? -errno : 0; /* the name must outlast a power cut too */
		close_fd(made);
		return r < 0 ? err_sys(e, ERR_UNAVAILABLE, -r, "store: can't make %s", path) : 0;
	}
	if (errno != EEXIST)
		return err_sys(e, ERR_UNAVAILABLE, errno, "store: can't make %s", path);
	/* Not opened here: closing a second descriptor of a file drops the locks that SQLite has on it in this process. */
	if (lstat(path, &st) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "store: can't use %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_UNAVAILABLE, EINVAL, "store: %s is not a regular file", path);
	if ((st.st_mode & 0777) != 0600 && chmod(path, 0600) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "store: can't set the mode of %s to 0600", path);
	return 0;
}

static int db_error(struct store *s, const char *path, int rc, struct err *e)
{
	int r = -store_errno(rc);
	if (r == EUCLEAN)
		return err_set(e, ERR_UNAVAILABLE, r, "store: %s is damaged or not a database (%s); move it away or restore a copy", path,
		               sqlite3_errmsg(s->db));
	if (r == EBUSY)
		return err_set(e, ERR_UNAVAILABLE, r, "store: %s is in use by another process; is another server running on this data folder?", path);
	return err_set(e, ERR_UNAVAILABLE, r ? r : EIO, "store: %s: %s (%d)", path, sqlite3_errmsg(s->db), rc);
}

struct answer {
	int64_t number;
	char text[200];
};

static int take_answer(void *ctx, int columns, char **values, char **names)
{
	struct answer *a = ctx;
	(void)names;
	if (columns > 0 && values[0]) {
		a->number = strtoll(values[0], NULL, 10);
		snprintf(a->text, sizeof a->text, "%s", values[0]);
	}
	return 0;
}

static int ask(struct store *s, const char *path, const char *sql, struct answer *ret, struct err *e)
{
	struct answer a = { 0 };
	int rc = sqlite3_exec(s->db, sql, take_answer, &a, NULL);
	if (rc != SQLITE_OK)
		return db_error(s, path, rc, e);
	if (ret)
		*ret = a;
	return 0;
}

static int configure(struct store *s, const char *path, struct err *e)
{
	struct answer mode;
	sqlite3_busy_timeout(s->db, BUSY_TIMEOUT_MS);
	sqlite3_extended_result_codes(s->db, 1);
	sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	/* The exclusive lock is set before the first access, so the index of the log is in memory and needs no shared file. */
	int r = ask(s, path, "PRAGMA locking_mode = EXCLUSIVE", NULL, e);
	if (r == 0)
		r = ask(s, path, "PRAGMA journal_mode = WAL", &mode, e);
	if (r == 0 && !streq(mode.text, "wal"))
		r = err_set(e, ERR_UNAVAILABLE, ENOTSUP, "store: %s: no write-ahead log here (journal mode is %s)", path, mode.text);
	if (r == 0)
		r = ask(s, path, "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864",
		        NULL, e);
	sqlite3_wal_autocheckpoint(s->db, 0);
	sqlite3_wal_hook(s->db, after_commit, s);
	return r;
}

static int check_whole(struct store *s, const char *path, struct err *e)
{
	struct stat st;
	struct answer a;
	if (stat(path, &st) == 0 && st.st_size > CHECK_SIZE_MAX)
		return 0;
	int r = ask(s, path, "PRAGMA quick_check(1)", &a, e);
	if (r == 0 && !streq(a.text, "ok"))
		r = err_set(e, ERR_UNAVAILABLE, EUCLEAN, "store: %s is damaged (%s); move it away or restore a copy", path, a.text);
	return r;
}

static int migrate(struct store *s, const char *path, struct err *e)
{
	struct answer version = { 0 }, application = { 0 }, tables = { 0 };
	int r = ask(s, path, "PRAGMA user_version", &version, e);
	if (r == 0)
		r = ask(s, path, "PRAGMA application_id", &application, e);
	if (r == 0)
		r = ask(s, path, "SELECT count(*) FROM sqlite_schema", &tables, e);
	if (r < 0)
		return r;
	if (application.number != STORE_APPLICATION_ID && (tables.number > 0 || version.number != 0 || application.number != 0))
		return err_set(e, ERR_UNAVAILABLE, EINVAL, "store: %s is the database of another program", path);
	if (version.number < 0 || (uint64_t)version.number > store_migration_count)
		return err_set(e, ERR_UNAVAILABLE, EPROTO, "store: %s has schema %lld, this version knows %zu; use the newer version that wrote it", path,
		               (long long)version.number, store_migration_count);
	for (size_t i = (size_t)version.number; r == 0 && i < store_migration_count; i++) {
		auto_free char *sql = xasprintf("BEGIN IMMEDIATE; %s PRAGMA application_id = %d; PRAGMA user_version = %zu; COMMIT", store_migrations[i],
		                                STORE_APPLICATION_ID, i + 1);
		r = ask(s, path, sql, NULL, e);
		if (r < 0) {
			err_prefix(e, "moving to schema %zu", i + 1);
			sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
		}
	}
	return r;
}

int store_open(const char *path, struct store **ret, struct err *e)
{
	int r = prepare_file(path, e);
	if (r < 0)
		return r;
	struct store *s = xcalloc(1, sizeof *s);
	s->wal_fd = -EBADF;
	int rc = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE, NULL);
	if (rc != SQLITE_OK)
		r = db_error(s, path, rc, e);
	if (r == 0)
		r = configure(s, path, e);
	if (r == 0)
		r = check_whole(s, path, e);
	if (r == 0)
		r = migrate(s, path, e);
	if (r < 0) {
		store_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < ST_COUNT; i++)
		sqlite3_finalize(s->statements[i]);
	sqlite3_close(s->db);
	close_fd(s->wal_fd);
	free(s);
}
