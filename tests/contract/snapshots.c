/* Snapshots: what is kept, what a child sees, what is left. */
#include "suite.h"

#include <stdio.h>
#include <unistd.h>

struct taken {
	bool done, good;
	uint64_t bytes;
	struct err e;
};

static void on_snapshot(void *ctx, const struct err *e, uint64_t bytes)
{
	struct taken *t = ctx;

	t->good = !e;
	t->bytes = bytes;
	if (e) {
		t->e = *e;
		fprintf(stderr, "    snapshot: %s\n", e->message);
	}
	t->done = true;
}

static struct taken take(const char *id, const char *snapshot, bool memory)
{
	struct taken t = { 0 };

	suite.b->ops->snapshot(suite.b, id, snapshot, memory, false, on_snapshot, &t);
	assert_true(drive_until(&suite.d, &t.done));
	return t;
}

struct found {
	bool done, there;
	size_t n;
	const char *id;
};

static void on_snapshots(void *ctx, const struct err *e, const char *const *ids, size_t n)
{
	struct found *f = ctx;

	assert_null(e);
	f->n = n;
	for (size_t i = 0; i < n; i++)
		f->there |= streq(ids[i], f->id);
	f->done = true;
}

static bool is_there(const char *snapshot, size_t *ret_n)
{
	struct found f = { .id = snapshot };

	suite.b->ops->list_snapshots(suite.b, on_snapshots, &f);
	assert_true(drive_until(&suite.d, &f.done));
	if (ret_n)
		*ret_n = f.n;
	return f.there;
}

static bool able(void)
{
	return suite.b->ops->caps & BOUNDARY_CAN_SNAPSHOT_DISK;
}

static void connect_to(struct drive *d, const char *id)
{
	drive_init(d, &suite.loop);
	assert_true(drive_connect(d, suite_open_guest(id)));
}

static bool sh_is(const char *id, const char *script, const char *out)
{
	struct drive d;

	connect_to(&d, id);
	bool good = got_is(drive_sh(&d, script), 0, out, "");
	drive_done(&d);
	return good;
}

/* Files written a moment ago are in it; later ones are not; parent, children and snapshot change nothing of each other. */
static void holds_the_disk_of_one_moment(void **state)
{
	(void)state;
	char parent[37], child[37], second[37], snapshot[37];
	struct err e;

	if (!able())
		skip();
	random_uuid(parent), random_uuid(child), random_uuid(second), random_uuid(snapshot);
	assert_true(suite_create(parent, false, &e));
	assert_true(sh_is(parent, "echo before > /root/a; head -c 3000000 /dev/zero | tr '\\0' x > /root/big; ln -s a /root/link; mkdir -p /root/d; "
				  "chmod 750 /root/d; printf '#!/bin/sh\\necho ran\\n' > /root/d/run; chmod 755 /root/d/run", ""));
	struct taken t = take(parent, snapshot, false);
	assert_true(t.good);
	assert_true(t.bytes > 0);
	assert_true(is_there(snapshot, NULL));
	/* the parent has gone on */
	assert_true(sh_is(parent, "echo after > /root/a; rm /root/big; cat /root/a", "after\n"));
	assert_true(suite_create_from(child, snapshot, false, &e));
	assert_true(suite_create_from(second, snapshot, false, &e));
	assert_true(sh_is(child, "cat /root/link; wc -c < /root/big; tr -d x < /root/big | wc -c; stat -c %a /root/d; /root/d/run",
			  "before\n3000000\n0\n750\nran\n"));
	assert_true(sh_is(child, "echo child > /root/a; rm /root/big; touch /root/only-child", ""));
	assert_true(sh_is(second, "cat /root/a; ls /root; test -e /root/only-child || echo apart", "before\na\nbig\nd\nlink\napart\n"));
	assert_true(sh_is(parent, "cat /root/a; test -e /root/only-child || echo apart", "after\napart\n"));
	/* the snapshot may go while they live, and the parent while they live */
	assert_true(suite_ask(suite.b->ops->drop_snapshot, snapshot, &e));
	assert_true(suite_ask(suite.b->ops->drop_snapshot, snapshot, &e)); /* twice is no error */
	assert_false(is_there(snapshot, NULL));
	assert_true(suite_ask(suite.b->ops->destroy, parent, &e));
	assert_true(sh_is(second, "cat /root/a", "before\n"));
	/* a child is like any other: its disk outlives a stop */
	assert_true(suite_ask(suite.b->ops->stop, child, &e));
	assert_true(suite_start(child, &e));
	assert_true(sh_is(child, "cat /root/a", "child\n"));
	assert_false(suite_create_from(parent, snapshot, false, &e));
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	assert_true(suite_ask(suite.b->ops->destroy, child, &e));
	assert_true(suite_ask(suite.b->ops->destroy, second, &e));
}

static void of_a_stopped_and_of_a_paused_one(void **state)
{
	(void)state;
	char parent[37], child[37], stopped[37], paused[37];
	struct err e;

	if (!able())
		skip();
	random_uuid(parent), random_uuid(child), random_uuid(stopped), random_uuid(paused);
	assert_true(suite_create(parent, false, &e));
	assert_true(sh_is(parent, "echo 1 > /root/n", ""));
	if (suite.b->ops->caps & BOUNDARY_CAN_PAUSE) {
		assert_true(suite_ask(suite.b->ops->pause, parent, &e));
		assert_true(take(parent, stopped, false).good);
		assert_true(suite_ask(suite.b->ops->drop_snapshot, stopped, &e));
		assert_true(take(parent, paused, false).good); /* the second, too */
		assert_true(suite_ask(suite.b->ops->resume, parent, &e)); /* it was paused still */
		assert_true(sh_is(parent, "cat /root/n", "1\n"));
		assert_true(suite_ask(suite.b->ops->drop_snapshot, paused, &e));
	}
	assert_true(suite_ask(suite.b->ops->stop, parent, &e));
	assert_true(take(parent, stopped, false).good);
	assert_true(suite_create_from(child, stopped, true, &e)); /* an ephemeral child of a lasting one */
	assert_true(sh_is(child, "cat /root/n", "1\n"));
	assert_true(suite_ask(suite.b->ops->stop, child, &e));
	assert_false(suite_start(child, &e));
	assert_true(suite_start(parent, &e));
	assert_true(suite_ask(suite.b->ops->destroy, child, &e));
	assert_true(suite_ask(suite.b->ops->destroy, parent, &e));
	assert_true(suite_ask(suite.b->ops->drop_snapshot, stopped, &e));
}

/* What a running command writes all the while is cut somewhere, and the command notices nothing. */
static void of_one_that_writes(void **state)
{
	(void)state;
	char parent[37], child[37], snapshot[37];
	const char *argv[] = { "sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done | tee /root/log >/dev/null; wc -l < /root/log", NULL };
	struct drive d;
	struct err e;

	if (!able())
		skip();
	random_uuid(parent), random_uuid(child), random_uuid(snapshot);
	assert_true(suite_create(parent, false, &e));
	connect_to(&d, parent);
	struct got_run *r = drive_start(&d, &(struct link_run_spec){ .argv = argv });
	assert_true(drive_until(&d, &r->started));
	assert_true(take(parent, snapshot, false).good);
	assert_true(drive_until(&d, &r->ended));
	assert_true(got_is(r, 0, "3000\n", ""));
	drive_done(&d);
	assert_true(suite_create_from(child, snapshot, false, &e));
	/* a prefix of what was written: whole lines but the last */
	assert_true(sh_is(child, "touch /root/log; n=$(wc -l < /root/log); head -n $n /root/log > /tmp/a; "
				 "seq 0 $((n-1)) > /tmp/b; cmp /tmp/a /tmp/b && echo prefix",
			  "prefix\n"));
	assert_true(suite_ask(suite.b->ops->destroy, child, &e));
	assert_true(suite_ask(suite.b->ops->destroy, parent, &e));
	assert_true(suite_ask(suite.b->ops->drop_snapshot, snapshot, &e));
}

/* A file that is written anew and renamed over the old one all the while is one or the other in every snapshot, never a part or a mixture. */
static void of_one_that_rewrites(void **state)
{
	(void)state;
	enum { SHOTS = 3 };
	char parent[37], child[37], snapshots[SHOTS][37];
	static const char rewrites[] = "i=0; while [ ! -e /root/stop ]; do i=$((i+1)); yes line-$i | head -c 100000 > /root/new; mv /root/new /root/file; done";
	struct drive d;
	struct err e;

	if (!able())
		skip();
	random_uuid(parent);
	assert_true(suite_create(parent, false, &e));
	connect_to(&d, parent);
	struct got_run *r = drive_start(&d, &(struct link_run_spec){ .argv = (const char *[]){ "sh", "-c", rewrites, NULL } });
	assert_true(got_is(drive_sh(&d, "while [ ! -s /root/file ]; do sleep 0.05; done"), 0, "", ""));
	for (size_t i = 0; i < SHOTS; i++) {
		random_uuid(snapshots[i]);
		assert_true(take(parent, snapshots[i], false).good);
	}
	assert_true(got_is(drive_sh(&d, "touch /root/stop"), 0, "", ""));
	assert_true(drive_until(&d, &r->ended));
	drive_done(&d);
	assert_true(suite_ask(suite.b->ops->destroy, parent, &e));
	for (size_t i = 0; i < SHOTS; i++) {
		random_uuid(child);
		assert_true(suite_create_from(child, snapshots[i], true, &e));
		assert_true(sh_is(child, "wc -c < /root/file; sed '$d' /root/file | sort -u | wc -l; sed '$d' /root/file | sort -u | cut -c1-5", "100000\n1\nline-\n"));
		assert_true(suite_ask(suite.b->ops->destroy, child, &e));
		assert_true(suite_ask(suite.b->ops->drop_snapshot, snapshots[i], &e));
	}
}

/* A snapshot of a snapshot's child, and what is refused. */
static void trees_and_refusals(void **state)
{
	(void)state;
	char parent[37], child[37], grandchild[37], first[37], second[37], nobody[37];
	struct err e;

	if (!able())
		skip();
	random_uuid(parent), random_uuid(child), random_uuid(grandchild), random_uuid(first), random_uuid(second), random_uuid(nobody);
	assert_true(suite_create(parent, false, &e));
	assert_true(sh_is(parent, "echo 1 >> /root/log", ""));
	assert_true(take(parent, first, false).good);
	struct taken t = take(parent, first, false); /* its id is taken */
	assert_false(t.good);
	assert_int_equal(t.e.kind, ERR_CONFLICT);
	t = take(nobody, second, false);
	assert_false(t.good);
	assert_int_equal(t.e.kind, ERR_NOT_FOUND);
	t = take(parent, "../../etc/passwd", false);
	assert_false(t.good);
	assert_int_equal(t.e.kind, ERR_INVALID);
	if (!(suite.b->ops->caps & BOUNDARY_CAN_SNAPSHOT_MEMORY)) {
		t = take(parent, second, true);
		assert_false(t.good);
		assert_int_equal(t.e.kind, ERR_UNSUPPORTED);
	}
	assert_false(is_there(second, NULL));
	assert_true(suite_create_from(child, first, false, &e));
	assert_true(sh_is(child, "echo 2 >> /root/log", ""));
	assert_true(take(child, second, false).good);
	assert_true(suite_ask(suite.b->ops->destroy, parent, &e));
	assert_true(suite_ask(suite.b->ops->destroy, child, &e));
	assert_true(suite_ask(suite.b->ops->drop_snapshot, first, &e));
	assert_true(suite_create_from(grandchild, second, false, &e));
	assert_true(sh_is(grandchild, "cat /root/log", "1\n2\n"));
	assert_true(suite_ask(suite.b->ops->destroy, grandchild, &e));
	assert_true(suite_ask(suite.b->ops->drop_snapshot, second, &e));
}

/* Destroyed while the snapshot is made: one of the two is told, and nothing half is left. */
static void destroyed_meanwhile(void **state)
{
	(void)state;
	char parent[37], snapshot[37];
	struct err e;
	size_t n;

	if (!able())
		skip();
	for (int i = 0; i < 4; i++) {
		struct taken t = { 0 };
		random_uuid(parent), random_uuid(snapshot);
		assert_true(suite_create(parent, false, &e));
		assert_true(sh_is(parent, "head -c 20000000 /dev/urandom > /root/big", ""));
		suite.b->ops->snapshot(suite.b, parent, snapshot, false, false, on_snapshot, &t);
		drive_for(&suite.d, (uint64_t)i * 8 + 1);
		assert_true(suite_ask(suite.b->ops->destroy, parent, &e));
		assert_true(drive_until(&suite.d, &t.done));
		assert_int_equal(is_there(snapshot, NULL), t.good);
		assert_true(suite_ask(suite.b->ops->drop_snapshot, snapshot, &e));
		assert_false(is_there(snapshot, &n));
		assert_int_equal(n, 0);
	}
}

const struct CMUnitTest snapshot_tests[] = {
	cmocka_unit_test(holds_the_disk_of_one_moment), cmocka_unit_test(of_a_stopped_and_of_a_paused_one), cmocka_unit_test(of_one_that_writes),
	cmocka_unit_test(of_one_that_rewrites),
	cmocka_unit_test(trees_and_refusals),		cmocka_unit_test(destroyed_meanwhile),
};
const size_t snapshot_tests_n = ARRAY_LEN(snapshot_tests);
