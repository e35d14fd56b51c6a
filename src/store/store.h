/* All SQL of the daemon: what must survive a kill -9, in one SQLite file (WAL, synchronous=NORMAL: safe against the death
 * of the process; against power loss the last moments may be missing, and then the sandboxes are gone as well. Keys are
 * written with synchronous=FULL).
 *
 * Blocking, but only for a local write without fsync (with one when the log is folded into the file, see store_idle).
 * One connection, one thread, and one process: the file is held with an exclusive lock, so a second server on the same
 * file is refused. Rows are handed out as plain structs with heap strings (x_done frees) that are valid during the
 * callback; a callback may call anything here; what it returns other than 0 ends the walk and is returned.
 *
 * Writes return 0 or a negative errno: -ENOSPC (disk full), -EIO, -EUCLEAN (the file is damaged) and so on, and have then
 * been logged. -ENOENT (no such row) is not logged. docs/internals/store.md has the figures and the reasons. */
#ifndef CAISSON_STORE_STORE_H
#define CAISSON_STORE_STORE_H

#include "base/err.h"
#include "model/sandbox.h"
#include "model/secret.h"

struct store;
/* Opens or makes the file (mode 0600), migrates. Refuses a newer schema, a damaged file, a file of another program, and
 * a file that another process has open. */
int store_open(const char *path, struct store **ret, struct err *e);
void store_close(struct store *s);
/* Groups the writes of one turn of the loop; nests. The outermost commit makes them durable together; when one of them or
 * the commit fails, none of the group is kept, the rest of it is refused, and store_commit says so: only after its 0 may
 * anything be acknowledged. (A refused row - conflict, missing parent - does not spoil its group.) A write of a key ends
 * the part of the group before it. A group without writes costs nothing. */
void store_begin(struct store *s);
int store_commit(struct store *s);
/* For a moment without work: folds the write-ahead log into the file when there is enough of it. Fsyncs: milliseconds. */
void store_idle(struct store *s);

/* --- keys: only the SHA-256 of a key is kept --- */
struct key_row {
	char *id, *name, *tenant;
	unsigned char hash[32];
	bool operator_, revoked;
	uint64_t created_ms, used_ms;
};
void key_row_done(struct key_row *k);
int store_key_add(struct store *s, const struct key_row *k, struct err *e); /* ERR_CONFLICT: id or hash is there already */
int store_key_by_hash(struct store *s, const unsigned char hash[32], struct key_row *ret); /* 0 or -ENOENT */
int store_key_each(struct store *s, int (*each)(void *ctx, const struct key_row *k), void *ctx);
int store_key_revoke(struct store *s, const char *id, struct err *e); /* ERR_NOT_FOUND */
int store_key_used(struct store *s, const char *id, uint64_t at_ms);

/* --- sandboxes: a row from create to the end of delete --- */
struct sandbox_row {
	char *id, *name, *tenant, *key_id, *preview_token;
	enum sandbox_state state;
	char *error;
	char *image_digest, *boundary, *user;
	struct sandbox_spec spec;
	uint64_t created_ms, updated_ms, active_ms, stopped_ms;
	uint64_t next_run; /* numbers below are used up */
};
/* A row that is damaged (unknown state, unreadable spec) is handed out in state ERROR with the reason, so that it can still
 * be deleted; its spec then holds defaults. */
void sandbox_row_done(struct sandbox_row *r);
/* Insert or replace. ERR_CONFLICT when another sandbox of the tenant has the name or the idempotency key. */
int store_sandbox_put(struct store *s, const struct sandbox_row *r, struct err *e);
/* Entering STOPPED sets stopped_ms to at_ms, entering RUNNING sets it to 0. */
int store_sandbox_state(struct store *s, const char *id, enum sandbox_state state, const char *error, uint64_t at_ms);
int store_sandbox_active(struct store *s, const char *id, uint64_t at_ms);
int store_sandbox_delete(struct store *s, const char *id); /* with its runs and sessions; 0 when there is none */
/* each may take the row: copy the struct and leave an empty one behind. A non-zero result ends the walk. */
int store_sandbox_each(struct store *s, int (*each)(void *ctx, struct sandbox_row *r), void *ctx);

/* --- snapshots --- */
struct snapshot_row {
	char *id, *tenant, *name, *key_id;
	enum snapshot_state state;
	char *boundary, *image_digest;
	char *sandbox_id; /* what it was taken of; may be gone */
	char *user;       /* effective default user of that */
	bool memory;
	uint64_t bytes, created_ms, used_ms; /* used: last create from it; 0 = never */
	struct sandbox_spec spec; /* of the sandbox, as of then; extra is the snapshot's own */
};
void snapshot_row_done(struct snapshot_row *r);
int store_snapshot_put(struct store *s, const struct snapshot_row *r, struct err *e); /* insert or replace; ERR_CONFLICT: the name */
int store_snapshot_delete(struct store *s, const char *id); /* 0 when there is none */
int store_snapshot_each(struct store *s, int (*each)(void *ctx, struct snapshot_row *r), void *ctx); /* may take, too */

/* --- volumes --- */
struct volume_row {
	char *id, *tenant, *name, *key_id;
	enum volume_state state;
	char *boundary;
	uint64_t size_mib, created_ms, used_ms; /* used: last create with it; 0 = never */
};
void volume_row_done(struct volume_row *r);
int store_volume_put(struct store *s, const struct volume_row *r, struct err *e); /* insert or replace; ERR_CONFLICT: the name */
int store_volume_delete(struct store *s, const char *id); /* 0 when there is none */
int store_volume_each(struct store *s, int (*each)(void *ctx, struct volume_row *r), void *ctx); /* may take, too */

/* --- grants: only the SHA-256 of a token is kept --- */
struct grant_row {
	char *id, *sandbox_id;
	unsigned char hash[32];
	enum grant_kind kind;
	uint16_t port;
	uint64_t created_ms, expires_ms;
};
void grant_row_done(struct grant_row *r);
int store_grant_put(struct store *s, const struct grant_row *r); /* -ENOENT: no such sandbox, with which it would go */
int store_grant_delete(struct store *s, const char *id);         /* 0 when there is none */
int store_grant_each(struct store *s, int (*each)(void *ctx, struct grant_row *r), void *ctx); /* may take, too */

/* --- runs --- */
struct run_row {
	char *sandbox_id;
	uint64_t number;         /* unique in the sandbox; the guest's id of it */
	char *session, *display, *idempotency_key, *message;
	enum run_state state;
	int exit_code, signal;
	bool timed_out, canceled, oom, truncated, pty, merge_stderr;
	uint64_t stdout_bytes, stderr_bytes, started_ms, ended_ms, duration_ms, output_max;
	/* The output itself while it is small; the rest is in spool files (core/output.h). NULL = none or in files. */
	uint8_t *stdout_data, *stderr_data;
	size_t stdout_len, stderr_len;
};
void run_row_done(struct run_row *r);
int store_run_put(struct store *s, const struct run_row *r); /* insert or replace; -ENOENT: no such sandbox */
int store_run_each(struct store *s, const char *sandbox_id, int (*each)(void *ctx, struct run_row *r), void *ctx); /* may take, too */
int store_run_get(struct store *s, const char *sandbox_id, uint64_t number, struct run_row *ret); /* 0 or -ENOENT */
int store_run_delete(struct store *s, const char *sandbox_id, uint64_t number);

/* --- sessions --- */
struct session_row {
	char *sandbox_id, *id;
	bool alive;
	uint64_t created_ms;
};
void session_row_done(struct session_row *r);
int store_session_put(struct store *s, const struct session_row *r); /* insert or replace; -ENOENT: no such sandbox */
int store_session_delete(struct store *s, const char *sandbox_id, const char *id);
int store_session_each(struct store *s, const char *sandbox_id, int (*each)(void *ctx, const struct session_row *r), void *ctx);

/* --- webhooks --- */
struct webhook_row {
	char *id, *url, *secret;
	char **types; /* NULL-terminated or NULL */
	uint64_t created_ms, seq;
};
void webhook_row_done(struct webhook_row *r);
int store_webhook_put(struct store *s, const struct webhook_row *r);
int store_webhook_position(struct store *s, const char *id, uint64_t seq);
int store_webhook_delete(struct store *s, const char *id);
int store_webhook_each(struct store *s, int (*each)(void *ctx, struct webhook_row *r), void *ctx); /* may take, too */

/* --- pools: what the operator wants kept ready, by specification --- */
int store_pool_set(struct store *s, const struct sandbox_spec *spec, size_t size, struct err *e); /* 0 forgets it */
int store_pool_each(struct store *s, int (*each)(void *ctx, const struct sandbox_spec *spec, size_t size), void *ctx);

/* --- secrets: the values are sealed before they come here --- */
struct secret_row {
	char *id, *tenant, *placeholder;
	struct secret_spec spec; /* without the value */
	uint8_t *sealed;
	size_t sealed_len;
	uint64_t created_ms, updated_ms;
};
void secret_row_done(struct secret_row *r);
int store_secret_put(struct store *s, const struct secret_row *r, struct err *e); /* insert or replace; ERR_CONFLICT: the name */
int store_secret_delete(struct store *s, const char *id);
int store_secret_each(struct store *s, int (*each)(void *ctx, struct secret_row *r), void *ctx); /* may take, too */
/* The one certificate authority of this installation: certificate (DER) and sealed key. -ENOENT: there is none yet. */
int store_authority_get(struct store *s, uint8_t **ret_certificate, size_t *ret_n, uint8_t **ret_sealed, size_t *ret_sealed_n);
int store_authority_put(struct store *s, struct str certificate, struct str sealed);

#endif
