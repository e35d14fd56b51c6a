/* The schema, as numbered migrations. Private to the store. */
#ifndef CAISSON_STORE_SCHEMA_H
#define CAISSON_STORE_SCHEMA_H

#include <stddef.h>

/* Migration i takes a file of version i (PRAGMA user_version) to i + 1. One that was ever released is never changed: a
 * change is a new one at the end. */
extern const char *const store_migrations[];
extern const size_t store_migration_count;

/* PRAGMA application_id: tells our file from any other SQLite file. "CAIS". */
#define STORE_APPLICATION_ID 0x43414953

#endif
