#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

struct suite suite;

struct outcome {
	bool done, good;
	struct err *e;
};

static void on_done(void *ctx, const struct err *e)
{
	struct outcome *o = ctx;

	o->done = true;
	o->good = !e;
	if (e && o->e)
		*o->e = *e;
}

/* Of the environment: a host that is slow as a whole is asked for less. */
static unsigned long number_of(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);
	return text ? strtoul(text, NULL, 10) : otherwise;
}

struct boundary_spec suite_spec(const char *id, bool ephemeral)
{
	return (struct boundary_spec){
		.id = id,
		.image_digest = suite.kind->image_digest,
		.hostname = "contract",
		.resources = { .cpus = (double)number_of("CONTRACT_CPUS", 2), .memory_mib = number_of("CONTRACT_MEMORY", 1024), .disk_mib = 1024, .pids = 4096 },
		.ephemeral = ephemeral,
	};
}

bool suite_create(const char *id, bool ephemeral, struct err *e)
{
	struct outcome o = { .e = e };
	struct boundary_spec spec = suite_spec(id, ephemeral);

	suite.b->ops->create(suite.b, &spec, on_done, &o);
	return drive_until(&suite.d, &o.done) && o.good;
}

bool suite_create_for(const char *id, const char *user, bool sudo, struct err *e)
{
	struct outcome o = { .e = e };
	struct boundary_spec spec = suite_spec(id, true);

	spec.user = user;
	spec.sudo = sudo;
	suite.b->ops->create(suite.b, &spec, on_done, &o);
	return drive_until(&suite.d, &o.done) && o.good;
}

bool suite_create_from(const char *id, const char *snapshot, bool ephemeral, struct err *e)
{
	struct outcome o = { .e = e };
	struct boundary_spec spec = suite_spec(id, ephemeral);

	spec.from_snapshot = snapshot;
	suite.b->ops->create(suite.b, &spec, on_done, &o);
	return drive_until(&suite.d, &o.done) && o.good;
}

bool suite_start(const char *id, struct err *e)
{
	struct outcome o = { .e = e };
	struct boundary_spec spec = suite_spec(id, false);

	suite.b->ops->start(suite.b, &spec, on_done, &o);
	return drive_until(&suite.d, &o.done) && o.good;
}

bool suite_ask(void (*op)(struct boundary *, const char *, boundary_done_fn, void *), const char *id, struct err *e)
{
	struct outcome o = { .e = e };

	op(suite.b, id, on_done, &o);
	return drive_until(&suite.d, &o.done) && o.good;
}

int suite_open_guest(const char *id)
{
	struct err e;
	int fd = suite.b->ops->open_guest(suite.b, id, &e);

	if (fd < 0)
		fprintf(stderr, "    open_guest: %s\n", e.message);
	return fd;
}

size_t suite_amount(size_t whole)
{
	const char *all = getenv("CAISSON_TEST_ALL");

	return drive_patience == 1 || (all && *all) ? whole : whole / 5;
}

bool suite_reconnect(void)
{
	link_free(take_ptr(&suite.d.link));
	return drive_connect(&suite.d, suite_open_guest(suite.id));
}

/* --- life of a sandbox --- */

static void stop_keeps_the_disk(void **state)
{
	(void)state;
	char id[37];
	struct err e;
	struct drive d;

	random_uuid(id);
	assert_true(suite_create(id, false, &e));
	drive_init(&d, &suite.loop);
	assert_true(drive_connect(&d, suite_open_guest(id)));
	assert_true(got_is(drive_sh(&d, "echo kept > /root/file; sleep 1000 >/dev/null 2>&1 &"), 0, "", ""));
	drive_done(&d);
	assert_true(suite_ask(suite.b->ops->stop, id, &e));
	assert_true(suite.b->ops->open_guest(suite.b, id, &e) < 0);
	assert_true(suite_start(id, &e));
	drive_init(&d, &suite.loop);
	assert_true(drive_connect(&d, suite_open_guest(id)));
	assert_int_equal(d.known_n, 0);
	assert_true(got_is(drive_sh(&d, "cat /root/file"), 0, "kept\n", ""));
	drive_done(&d);
	assert_true(suite_ask(suite.b->ops->destroy, id, &e));
	assert_true(suite_ask(suite.b->ops->destroy, id, &e)); /* twice is no error */
	assert_false(suite_start(id, &e));
}

static void destroy_of_nothing_succeeds(void **state)
{
	(void)state;
	char id[37];
	struct err e;

	random_uuid(id);
	assert_true(suite_ask(suite.b->ops->destroy, id, &e));
}

static void same_id_twice_is_refused(void **state)
{
	(void)state;
	struct err e = { 0 };

	assert_false(suite_create(suite.id, false, &e));
	assert_int_equal(e.kind, ERR_CONFLICT);
}

/* Disks of sizes that were never asked for take longest to make. */
static void destroyed_while_being_made(void **state)
{
	(void)state;
	char ids[4][37];
	struct outcome made[4] = { 0 };
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		random_uuid(ids[i]);
		struct boundary_spec spec = suite_spec(ids[i], false);
		spec.resources.disk_mib = 200 + i / 2;
		suite.b->ops->create(suite.b, &spec, on_done, &made[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(ids); i += 2)
		assert_true(suite_ask(suite.b->ops->destroy, ids[i], &e));
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		assert_true(drive_until(&suite.d, &made[i].done));
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		if (i % 2)
			assert_true(made[i].good);
		else
			assert_false(suite_start(ids[i], &e)); /* whether it was made or not, it is gone */
		assert_true(suite_ask(suite.b->ops->destroy, ids[i], &e));
	}
}

static struct {
	bool exited;
	char id[40];
} seen;

static void on_exit_seen(void *ctx, const char *id, const struct boundary_exit *x)
{
	(void)ctx;
	(void)x;
	snprintf(seen.id, sizeof seen.id, "%s", id);
	seen.exited = true;
}

struct listing {
	bool done, found, started;
	const char *id;
};

static void on_list(void *ctx, const struct err *e, const char *const *ids, const bool *started, size_t n)
{
	struct listing *l = ctx;

	assert_null(e);
	for (size_t i = 0; i < n; i++)
		if (streq(ids[i], l->id)) {
			l->found = true;
			l->started = started[i];
		}
	l->done = true;
}

/* A new daemon finds what the former one has left running, its commands and their output. */
static void is_adopted_by_a_new_daemon(void **state)
{
	(void)state;
	char id[37];
	struct err e;
	struct drive d;
	const char *skip, *argv[] = { "sh", "-c", "echo before; sleep 0.5; echo after", NULL };

	random_uuid(id);
	assert_true(suite_create(id, false, &e));
	drive_init(&d, &suite.loop);
	assert_true(drive_connect(&d, suite_open_guest(id)));
	struct got_run *r = drive_start(&d, &(struct link_run_spec){ .argv = argv });
	assert_true(drive_until(&d, &r->started));
	link_free(take_ptr(&d.link));
	suite.kind->close(suite.b);
	drive_for(&suite.d, 1);
	suite.b = suite.kind->open(&suite.loop, &skip);
	assert_non_null(suite.b);
	struct listing l = { .id = id };
	suite.b->ops->list(suite.b, on_list, &l);
	assert_true(drive_until(&d, &l.done));
	assert_true(l.found && l.started);
	assert_true(drive_connect(&d, suite_open_guest(id)));
	assert_int_equal(d.known_n, 1);
	assert_true(drive_until(&d, &r->ended));
	assert_true(got_is(r, 0, "before\nafter\n", ""));
	drive_done(&d);
	assert_true(suite_ask(suite.b->ops->destroy, id, &e));
	assert_true(suite_reconnect());
}

struct used {
	bool done, good;
	struct usage u;
};

static void on_usage(void *ctx, const struct err *e, const struct usage *u)
{
	struct used *s = ctx;

	s->good = !e;
	if (u)
		s->u = *u;
	s->done = true;
}

static void usage_is_told(void **state)
{
	(void)state;
	struct used s = { 0 };

	suite.b->ops->usage(suite.b, suite.id, on_usage, &s);
	assert_true(drive_until(&suite.d, &s.done));
	assert_true(s.good);
	assert_true(s.u.pids >= 1);
	assert_true(s.u.disk_limit_bytes > 0);
}

const struct CMUnitTest life_tests[] = {
	cmocka_unit_test(stop_keeps_the_disk),
	cmocka_unit_test(destroy_of_nothing_succeeds),
	cmocka_unit_test(same_id_twice_is_refused),
	cmocka_unit_test(is_adopted_by_a_new_daemon),
	cmocka_unit_test(usage_is_told),
	cmocka_unit_test(destroyed_while_being_made),
};
const size_t life_tests_n = ARRAY_LEN(life_tests);

/* --- main --- */

static int set_up(void **state)
{
	(void)state;
	struct err e;

	random_uuid(suite.id);
	drive_init(&suite.d, &suite.loop);
	if (!suite_create(suite.id, false, &e)) {
		fprintf(stderr, "create: %s\n", e.message);
		return -1;
	}
	return drive_connect(&suite.d, suite_open_guest(suite.id)) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	struct err e;

	drive_done(&suite.d);
	return suite_ask(suite.b->ops->destroy, suite.id, &e) ? 0 : -1;
}

/* CONTRACT_WITHOUT: names, comma-separated, of what would take too long on this host. */
static bool left_out(const char *name)
{
	const char *list = getenv("CONTRACT_WITHOUT");
	size_t n = strlen(name);

	for (const char *at = list; at && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
		if (strcspn(at, ",") == n && strncmp(at, name, n) == 0)
			return true;
	return false;
}

int contract_run(const struct contract_kind *kind)
{
	struct CMUnitTest all[128];
	const struct {
		const struct CMUnitTest *v;
		size_t n;
	} parts[] = { { run_tests, run_tests_n },
		      { session_tests, session_tests_n },
		      { file_tests, file_tests_n },
		      { life_tests, life_tests_n },
		      { snapshot_tests, snapshot_tests_n },
		      { volume_tests, volume_tests_n },
		      { sudo_tests, sudo_tests_n } };
	const char *skip = NULL;
	size_t n = 0;

	suite.kind = kind;
	drive_patience = (unsigned)number_of("CONTRACT_PATIENCE", kind->patience ? kind->patience : 1);
	uv_loop_init(&suite.loop);
	suite.b = kind->open(&suite.loop, &skip);
	if (!suite.b) {
		fprintf(stderr, "skipped: %s\n", skip ? skip : "no boundary");
		return 77;
	}
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		for (size_t k = 0; k < parts[i].n; k++)
			if (!left_out(parts[i].v[k].name))
				all[n++] = parts[i].v[k];
	const char *only = getenv("CONTRACT_ONLY"); /* a cmocka pattern: one test while working on it */
	if (only)
		cmocka_set_test_filter(only);
	suite.b->on_exit = on_exit_seen;
	/* the array's length is only known now, so not by the macro */
	int failed = _cmocka_run_group_tests(kind->name, all, n, set_up, tear_down);
	kind->close(suite.b);
	drive_for(&suite.d, 1);
	drive_close(&suite.loop);
	if (kind->done)
		kind->done();
	return failed;
}
