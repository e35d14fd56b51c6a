/* What the tests of the store share: a store in a folder of its own for each test, and simple rows. Includes cmocka. */
#ifndef CAISSON_TESTS_STORE_PLACE_H
#define CAISSON_TESTS_STORE_PLACE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/store.h"

#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

/* --- a folder for each test --- */

struct place {
	char dir[64], path[80];
};

static inline int place_make(void **state)
{
	struct place *p = xcalloc(1, sizeof *p);
	snprintf(p->dir, sizeof p->dir, "/tmp/caisson-test-store-XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	snprintf(p->path, sizeof p->path, "%s/store.db", p->dir);
	*state = p;
	return 0;
}

static inline int place_remove(void **state)
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

static inline struct store *opened(const struct place *p)
{
	struct store *s = NULL;
	struct err e = { 0 };
	if (store_open(p->path, &s, &e) < 0)
		fail_msg("store_open: %s", e.message);
	return s;
}

static inline void raw_sql(const struct place *p, const char *sql)
{
	sqlite3 *db = NULL;
	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* --- rows --- */

static inline struct sandbox_row sandbox_of(const char *id, const char *name)
{
	struct sandbox_row r = { .id = xstrdup(id), .name = xstrdup(name), .tenant = xstrdup("t"), .state = SANDBOX_CREATING };
	spec_init(&r.spec);
	return r;
}

static inline int put_simple(struct store *s, const char *id, const char *name, struct err *e)
{
	struct sandbox_row r = sandbox_of(id, name);
	int rc = store_sandbox_put(s, &r, e);
	sandbox_row_done(&r);
	return rc;
}

static inline struct run_row run_of(char *sandbox, uint64_t number)
{
	return (struct run_row){ .sandbox_id = sandbox, .number = number, .state = RUN_RUNNING };
}

static inline int count_sandbox(void *ctx, struct sandbox_row *r)
{
	(void)r;
	++*(size_t *)ctx;
	return 0;
}

static inline size_t count_sandboxes(struct store *s)
{
	size_t n = 0;
	assert_int_equal(store_sandbox_each(s, count_sandbox, &n), 0);
	return n;
}

static inline int count_run(void *ctx, struct run_row *r)
{
	(void)r;
	++*(size_t *)ctx;
	return 0;
}

static inline size_t count_runs(struct store *s, const char *id)
{
	size_t n = 0;
	assert_int_equal(store_run_each(s, id, count_run, &n), 0);
	return n;
}

#define PLACED(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

#endif
