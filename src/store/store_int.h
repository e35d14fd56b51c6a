/* What the files of the store share. Private to src/store. */
#ifndef CAISSON_STORE_STORE_INT_H
#define CAISSON_STORE_STORE_INT_H

#include "store/store.h"

#include <sqlite3.h>

enum statement {
	ST_BEGIN,
	ST_COMMIT,
	ST_ROLLBACK,
	ST_KEY_ADD,
	ST_KEY_BY_HASH,
	ST_KEY_REVOKE,
	ST_KEY_USED,
	ST_SANDBOX_PUT,
	ST_SANDBOX_STATE,
	ST_SANDBOX_ACTIVE,
	ST_SANDBOX_DELETE,
	ST_SANDBOX_HOLDS_NAME,
	ST_RUN_PUT,
	ST_RUN_GET,
	ST_RUN_DELETE,
	ST_SESSION_PUT,
	ST_SESSION_DELETE,
	ST_SNAPSHOT_PUT,
	ST_SNAPSHOT_DELETE,
	ST_VOLUME_PUT,
	ST_VOLUME_DELETE,
	ST_GRANT_PUT,
	ST_GRANT_DELETE,
	ST_POOL_PUT,
	ST_POOL_DELETE,
	ST_SECRET_PUT,
	ST_SECRET_DELETE,
	ST_AUTHORITY_PUT,
	ST_AUTHORITY_GET,
	ST_WEBHOOK_PUT,
	ST_WEBHOOK_POSITION,
	ST_WEBHOOK_DELETE,
	ST_COUNT
};

struct store {
	sqlite3 *db;
	sqlite3_stmt *statements[ST_COUNT]; /* prepared at first use */
	unsigned depth;                     /* of store_begin */
	int group_error;                    /* first failure in the group that is open; 0 = none */
	int wal_frames;                     /* in the log at the last commit */
	int pushed_frames;                  /* of these, handed to the kernel's write-back */
	int wal_fd;                         /* of the log, for that; or -EBADF */
};

/* In the order read_run takes them. */
#define RUN_COLUMNS                                                                                                                                  \
	"sandbox_id, number, session, display, idempotency_key, message, state, exit_code, signal, timed_out, canceled, oom, truncated, pty,"      \
	" merge_stderr, stdout_bytes, stderr_bytes, started_ms, ended_ms, duration_ms, output_max, stdout_data, stderr_data"

/* Values go in and come out in the order of the SQL text, so neither side counts columns. */
struct cursor {
	sqlite3_stmt *stmt;
	int at;
};
void put_text(struct cursor *c, const char *z); /* NULL = SQL NULL; must stay valid until the write */
void put_u64(struct cursor *c, uint64_t v);
void put_int(struct cursor *c, int v);
void put_blob(struct cursor *c, const void *p, size_t n); /* p NULL = SQL NULL */
char *get_text(struct cursor *c); /* heap; NULL for SQL NULL */
uint64_t get_u64(struct cursor *c);
int get_int(struct cursor *c);
bool get_bool(struct cursor *c);
uint8_t *get_blob(struct cursor *c, size_t *ret_n); /* heap; NULL for SQL NULL, never for an empty blob */

/* The prepared statement, reset, ready for put_*. stmt NULL when it can't be had: store_write then says why. */
struct cursor store_statement(struct store *s, enum statement which);
/* Executes a statement that returns no rows, in the group if one is open. 0, -ENOENT when it changed no row, -EEXIST for a
 * unique constraint (neither is logged), or another failure, logged. */
int store_write(struct store *s, struct cursor c);
/* The same, but synced to the disk when it returns. Ends the part of the group before it. */
int store_write_synced(struct store *s, struct cursor c);
/* Reads one row: 0 (then get_*), -ENOENT, or a failure, logged. store_got ends it in every case. */
int store_get(struct store *s, struct cursor *c);
void store_got(struct cursor c);
/* Runs sql (with at most one text parameter) and calls row for each line. */
int store_walk(struct store *s, const char *sql, const char *parameter, int (*row)(void *ctx, struct cursor *c), void *ctx);
/* Negative errno for an SQLite result code. */
int store_errno(int rc);

/* The JSON of a spec without its idempotency key (a column of its own). Encode: heap, NULL when some text is not UTF-8. */
char *spec_to_json(const struct sandbox_spec *spec);
/* Fills `ret` (to be spec_done) from what is there; unknown members are ignored. -EINVAL: not our JSON; then ret is untouched. */
int spec_from_json(const char *json, struct sandbox_spec *ret);

#endif
