#include "store/schema.h"

#include "base/util.h"

/* Times are unix milliseconds. States are words, so that a person with an SQLite shell can read them. */
static const char schema_1[] =
	/* API keys. Only the SHA-256 of a key is kept. Revoked ones stay: sandboxes name their owner. */
	"CREATE TABLE keys ("
	"  id         TEXT    NOT NULL PRIMARY KEY,"
	"  name       TEXT,"
	"  tenant     TEXT    NOT NULL,"
	"  hash       BLOB    NOT NULL UNIQUE,"
	"  operator   INTEGER NOT NULL,"
	"  revoked    INTEGER NOT NULL,"
	"  created_ms INTEGER NOT NULL,"
	"  used_ms    INTEGER NOT NULL"
	") STRICT;"

	/* One row from create to the end of delete. spec is JSON: what was asked for, with defaults resolved; it is only ever
	 * read as a whole, and new members need no migration. What is searched, unique or changes by itself is a column. */
	"CREATE TABLE sandboxes ("
	"  id              TEXT    NOT NULL PRIMARY KEY,"
	"  tenant          TEXT    NOT NULL,"
	"  name            TEXT    NOT NULL,"
	"  key_id          TEXT,"
	"  preview_token   TEXT,"
	"  state           TEXT    NOT NULL,"
	"  error           TEXT,"
	"  image_digest    TEXT,"
	"  boundary        TEXT,"
	"  user            TEXT,"
	"  idempotency_key TEXT,"
	"  created_ms      INTEGER NOT NULL,"
	"  updated_ms      INTEGER NOT NULL,"
	"  active_ms       INTEGER NOT NULL,"
	"  stopped_ms      INTEGER NOT NULL,"
	"  next_run        INTEGER NOT NULL,"
	"  spec            TEXT    NOT NULL"
	") STRICT;"
	"CREATE UNIQUE INDEX sandboxes_name ON sandboxes (tenant, name);"
	"CREATE UNIQUE INDEX sandboxes_idempotency ON sandboxes (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;"

	/* Runs and the output they had, while it is small (larger output is in files). */
	"CREATE TABLE runs ("
	"  sandbox_id      TEXT    NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,"
	"  number          INTEGER NOT NULL,"
	"  session         TEXT,"
	"  display         TEXT,"
	"  idempotency_key TEXT,"
	"  message         TEXT,"
	"  state           TEXT    NOT NULL,"
	"  exit_code       INTEGER NOT NULL,"
	"  signal          INTEGER NOT NULL,"
	"  timed_out       INTEGER NOT NULL,"
	"  canceled        INTEGER NOT NULL,"
	"  oom             INTEGER NOT NULL,"
	"  truncated       INTEGER NOT NULL,"
	"  pty             INTEGER NOT NULL,"
	"  merge_stderr    INTEGER NOT NULL,"
	"  stdout_bytes    INTEGER NOT NULL,"
	"  stderr_bytes    INTEGER NOT NULL,"
	"  started_ms      INTEGER NOT NULL,"
	"  ended_ms        INTEGER NOT NULL,"
	"  duration_ms     INTEGER NOT NULL,"
	"  output_max      INTEGER NOT NULL,"
	"  stdout_data     BLOB,"
	"  stderr_data     BLOB,"
	"  PRIMARY KEY (sandbox_id, number)"
	") STRICT;"

	"CREATE TABLE sessions ("
	"  sandbox_id TEXT    NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,"
	"  id         TEXT    NOT NULL,"
	"  alive      INTEGER NOT NULL,"
	"  created_ms INTEGER NOT NULL,"
	"  PRIMARY KEY (sandbox_id, id)"
	") STRICT, WITHOUT ROWID;";

static const char schema_2[] =
	/* A snapshot holds no reference to the sandbox it was taken of, which may go before it. spec: the sandbox's, as of then. */
	"CREATE TABLE snapshots ("
	"  id           TEXT    NOT NULL PRIMARY KEY,"
	"  tenant       TEXT    NOT NULL,"
	"  name         TEXT    NOT NULL,"
	"  key_id       TEXT,"
	"  state        TEXT    NOT NULL,"
	"  boundary     TEXT    NOT NULL,"
	"  image_digest TEXT    NOT NULL,"
	"  sandbox_id   TEXT,"
	"  user         TEXT,"
	"  memory       INTEGER NOT NULL,"
	"  bytes        INTEGER NOT NULL,"
	"  created_ms   INTEGER NOT NULL,"
	"  used_ms      INTEGER NOT NULL,"
	"  spec         TEXT    NOT NULL"
	") STRICT;"
	"CREATE UNIQUE INDEX snapshots_name ON snapshots (tenant, name);";

/* What the operator wants kept ready: the specification of such a sandbox, as JSON, and how many. */
static const char schema_3[] =
	"CREATE TABLE pools ("
	"  spec TEXT    NOT NULL PRIMARY KEY,"
	"  size INTEGER NOT NULL"
	") STRICT, WITHOUT ROWID;";

static const char schema_4[] =
	/* What is in a volume is the boundary's. Which sandboxes have it is in their spec. */
	"CREATE TABLE volumes ("
	"  id         TEXT    NOT NULL PRIMARY KEY,"
	"  tenant     TEXT    NOT NULL,"
	"  name       TEXT    NOT NULL,"
	"  key_id     TEXT,"
	"  state      TEXT    NOT NULL,"
	"  boundary   TEXT    NOT NULL,"
	"  size_mib   INTEGER NOT NULL,"
	"  created_ms INTEGER NOT NULL,"
	"  used_ms    INTEGER NOT NULL"
	") STRICT;"
	"CREATE UNIQUE INDEX volumes_name ON volumes (tenant, name);";

/* Secrets: where each may go, as JSON, and the value as the vault sealed it (core/vault.h). authority: the certificate that sandboxes trust
 * and its key, sealed too. */
static const char schema_5[] =
	"CREATE TABLE secrets ("
	"  id          TEXT    NOT NULL PRIMARY KEY,"
	"  tenant      TEXT    NOT NULL,"
	"  name        TEXT    NOT NULL,"
	"  placeholder TEXT    NOT NULL,"
	"  spec        TEXT    NOT NULL,"
	"  sealed      BLOB    NOT NULL,"
	"  created_ms  INTEGER NOT NULL,"
	"  updated_ms  INTEGER NOT NULL"
	") STRICT, WITHOUT ROWID;"
	"CREATE UNIQUE INDEX secrets_name ON secrets (tenant, name);"
	"CREATE TABLE authority ("
	"  one         INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),"
	"  certificate BLOB    NOT NULL,"
	"  sealed      BLOB    NOT NULL"
	") STRICT;";

/* Where the audit log's lines are sent on to. types: words separated by blanks; seq: the last line that was taken. */
static const char schema_6[] =
	"CREATE TABLE webhooks ("
	"  id         TEXT    NOT NULL PRIMARY KEY,"
	"  url        TEXT    NOT NULL,"
	"  secret     TEXT    NOT NULL,"
	"  types      TEXT    NOT NULL,"
	"  created_ms INTEGER NOT NULL,"
	"  seq        INTEGER NOT NULL"
	") STRICT;";


static const char schema_7[] =
	"CREATE TABLE grants ("
	"  id         TEXT    NOT NULL PRIMARY KEY,"
	"  sandbox_id TEXT    NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,"
	"  hash       BLOB    NOT NULL UNIQUE,"
	"  kind       TEXT    NOT NULL,"
	"  port       INTEGER NOT NULL,"
	"  created_ms INTEGER NOT NULL,"
	"  expires_ms INTEGER NOT NULL"
	") STRICT;"
	"CREATE INDEX grants_sandbox ON grants (sandbox_id);";

const char *const store_migrations[] = { schema_1, schema_2, schema_3, schema_4, schema_5, schema_6, schema_7 };
const size_t store_migration_count = ARRAY_LEN(store_migrations);
