/* Volumes: what sandboxes share, what outlives them, and what hostile content in one can do. */
#include "suite.h"

#include <stdio.h>

struct outcome {
	bool done, good;
	struct err e;
};

static void on_done(void *ctx, const struct err *e)
{
	struct outcome *o = ctx;

	o->good = !e;
	if (e)
		o->e = *e;
	o->done = true;
}

static bool able(void)
{
	return suite.b->ops->caps & BOUNDARY_CAN_VOLUMES;
}

static void make(char id[static 37], uint64_t mib)
{
	struct outcome o = { 0 };

	random_uuid(id);
	suite.b->ops->make_volume(suite.b, id, mib, on_done, &o);
	assert_true(drive_until(&suite.d, &o.done));
	assert_true(o.good);
}

static void drop(const char *id)
{
	struct err e;
	assert_true(suite_ask(suite.b->ops->drop_volume, id, &e));
}

struct found {
	bool done, there;
	const char *id;
	uint64_t bytes;
};

static void on_volumes(void *ctx, const struct err *e, const char *const *ids, const uint64_t *bytes, size_t n)
{
	struct found *f = ctx;

	assert_null(e);
	for (size_t i = 0; i < n; i++)
		if (streq(ids[i], f->id)) {
			f->there = true;
			f->bytes = bytes[i];
		}
	f->done = true;
}

static struct found look(const char *id)
{
	struct found f = { .id = id };

	suite.b->ops->list_volumes(suite.b, on_volumes, &f);
	assert_true(drive_until(&suite.d, &f.done));
	return f;
}

static struct outcome begin(bool again, const char *id, struct volume_mount *v, size_t n)
{
	struct outcome o = { 0 };
	struct volume_mounts m = { v, n };
	struct boundary_spec spec = suite_spec(id, false);

	spec.volumes = &m;
	(again ? suite.b->ops->start : suite.b->ops->create)(suite.b, &spec, on_done, &o);
	assert_true(drive_until(&suite.d, &o.done));
	if (!o.good)
		fprintf(stderr, "    volumes: %s\n", o.e.message);
	return o;
}

static void create(char id[static 37], char *volume, const char *path, const char *subpath, bool read_only)
{
	union {
		const char *in;
		char *out;
	} p = { path }, sub = { subpath };
	struct volume_mount v = { volume, p.out, sub.out, read_only };

	random_uuid(id);
	assert_true(begin(false, id, &v, 1).good);
}

static void end(const char *id)
{
	struct err e;
	assert_true(suite_ask(suite.b->ops->destroy, id, &e));
}

static bool sh_is(const char *id, const char *script, const char *out)
{
	struct drive d;

	drive_init(&d, &suite.loop);
	assert_true(drive_connect(&d, suite_open_guest(id)));
	bool good = got_is(drive_sh(&d, script), 0, out, "");
	drive_done(&d);
	return good;
}

/* A kind that has none says so, rather than give a sandbox without them. */
static void refused_where_there_are_none(void **state)
{
	(void)state;
	char id[37], volume[37], path[] = "/data";
	struct volume_mount v = { volume, path, NULL, false };

	if (able())
		skip();
	random_uuid(id), random_uuid(volume);
	struct outcome o = begin(false, id, &v, 1);
	assert_false(o.good);
	assert_int_equal(o.e.kind, ERR_UNSUPPORTED);
	end(id);
}

static void shared_and_lasting(void **state)
{
	(void)state;
	char volume[37], one[37], two[37];
	struct err e;

	if (!able())
		skip();
	make(volume, 64);
	create(one, volume, "/data", NULL, false);
	create(two, volume, "/srv/deep/er", NULL, false);
	/* whoever is in a sandbox may write, and owners mean the same everywhere */
	assert_true(sh_is(one, "stat -c '%a %u' /data; echo hello > /data/a; chown 1000:1000 /data/a; ln -s a /data/l; mkdir -m 700 /data/d", "777 0\n"));
	assert_true(sh_is(two, "cd /srv/deep/er; cat l; stat -c '%u:%g' a; stat -c %a d; echo more >> a", "hello\n1000:1000\n700\n"));
	assert_true(sh_is(one, "cat /data/a; ls /data", "hello\nmore\na\nd\nl\n"));
	/* a file of both: locks hold between them */
	assert_true(sh_is(one, "flock -n /data/lock true && echo free", "free\n"));
	/* across stop and start, and over the end of all who have it */
	struct volume_mount v = { volume, (char[]){ "/data" }, NULL, false };
	assert_true(suite_ask(suite.b->ops->stop, one, &e));
	end(two);
	assert_true(begin(true, one, &v, 1).good);
	assert_true(sh_is(one, "cat /data/l", "hello\nmore\n"));
	end(one);
	create(two, volume, "/v", NULL, false);
	assert_true(sh_is(two, "cat /v/a", "hello\nmore\n"));
	end(two);
	assert_true(look(volume).there);
	drop(volume);
	drop(volume); /* twice is no error */
	assert_false(look(volume).there);
	random_uuid(one);
	struct outcome o = begin(false, one, &v, 1);
	assert_false(o.good);
	assert_int_equal(o.e.kind, ERR_NOT_FOUND);
	end(one);
}

static void has_a_size(void **state)
{
	(void)state;
	char volume[37], id[37];

	if (!able())
		skip();
	make(volume, 32);
	uint64_t before = look(volume).bytes;
	create(id, volume, "/data", NULL, false);
	assert_true(sh_is(id, "head -c 5000000 /dev/urandom > /data/some && sync && echo fits", "fits\n"));
	assert_true(sh_is(id, "dd if=/dev/zero of=/data/big bs=1M count=64 2>&1 | grep -c 'No space left'; test $(stat -c %s /data/big) -lt 33554432 && echo bounded",
			  "1\nbounded\n"));
	end(id);
	assert_true(look(volume).bytes > before + 4000000);
	drop(volume);
}

/* What one who has all of it plants where another's subpath is to be. */
static void hostile_subpaths(void **state)
{
	(void)state;
	char volume[37], planter[37], id[37], path[] = "/data";

	if (!able())
		skip();
	make(volume, 32);
	create(planter, volume, "/data", NULL, false);
	assert_true(sh_is(planter, "cd /data; mkdir own; echo secret > own/s; ln -s / root; ln -s ../../../.. up; ln -s /etc etc; ln -s own alias; echo x > file; "
				   "mkfifo fifo; mkdir -p a; ln -s ../own a/b", ""));
	static const char *const bad[] = { "root", "up", "etc", "alias", "file", "file/x", "fifo", "a/b", "root/etc", "../data", "..", ".", "a/../own", "a//b", "a/./b" };
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char sub[64];
		struct volume_mount v = { volume, path, sub, false };
		snprintf(sub, sizeof sub, "%s", bad[i]);
		random_uuid(id);
		struct outcome o = begin(false, id, &v, 1);
		assert_false(o.good);
		assert_int_equal(o.e.kind, ERR_INVALID);
		end(id);
	}
	/* a good one shows that folder and nothing above it, also when it is moved while it is mounted */
	create(id, volume, "/data", "own", false);
	assert_true(sh_is(id, "cat /data/s; ls -a /data; ls /data/.. | grep -c etc", "secret\n.\n..\ns\n1\n"));
	assert_true(sh_is(planter, "mkdir /data/own/in; mv /data/own /data/a/moved", ""));
	assert_true(sh_is(id, "cat /data/s; cd /data/in && cd .. && ls; cd .. && ls | grep -c etc", "secret\nin\ns\n1\n"));
	assert_true(sh_is(planter, "mv /data/a/moved/in /data/out", ""));
	assert_true(sh_is(id, "ls /data; test -e /data/../file || echo apart", "s\napart\n"));
	end(id);
	/* one that is missing is made, for everybody */
	create(id, volume, "/data", "new/deep", false);
	assert_true(sh_is(id, "stat -c %a /data; touch /data/t", "777\n"));
	assert_true(sh_is(planter, "ls /data/new/deep", "t\n"));
	end(id);
	end(planter);
	drop(volume);
}

/* What is in a volume gives nobody a right. */
static void no_devices_and_no_set_user_id(void **state)
{
	(void)state;
	char volume[37], id[37];

	if (!able())
		skip();
	make(volume, 32);
	create(id, volume, "/data", NULL, false);
	assert_true(sh_is(id, "mknod /data/disk b 7 0 2>/dev/null || echo no; mknod /data/null c 1 3 2>/dev/null || echo no", "no\nno\n"));
	assert_true(sh_is(id, "cp /usr/bin/id /data/id; chmod 4755 /data/id; setpriv --reuid=1000 --regid=1000 --clear-groups /data/id -u", "1000\n"));
	assert_true(sh_is(id, "grep ' /data ' /proc/self/mountinfo | grep -c 'nosuid,nodev'; mount -o remount,suid /data 2>/dev/null || echo no; "
			      "umount /data 2>/dev/null || echo no",
			  "1\nno\nno\n"));
	end(id);
	create(id, volume, "/data", NULL, true);
	assert_true(sh_is(id, "ls /data; touch /data/x 2>/dev/null || echo read-only; mount -o remount,rw /data 2>/dev/null || echo no", "id\nread-only\nno\n"));
	end(id);
	drop(volume);
}

/* Where it is to be mounted is said by the caller, but what is there by the disk. */
static void hostile_mount_points(void **state)
{
	(void)state;
	char volume[37], id[37], link[] = "/root/link/x", nested[] = "/data/in", data[] = "/data", file[] = "/etc/hostname";
	struct err e;

	if (!able())
		skip();
	make(volume, 32);
	random_uuid(id);
	struct volume_mount two[] = { { volume, data, NULL, false }, { volume, nested, (char[]){ "sub" }, false } };
	assert_true(begin(false, id, two, 2).good);
	assert_true(sh_is(id, "echo 1 > /data/in/f; cat /data/sub/f; ln -s /etc /root/link", "1\n"));
	assert_true(suite_ask(suite.b->ops->stop, id, &e));
	struct volume_mount through = { volume, link, NULL, false }, on_file = { volume, file, NULL, false };
	struct outcome o = begin(true, id, &through, 1);
	assert_false(o.good);
	assert_int_equal(o.e.kind, ERR_INVALID);
	o = begin(true, id, &on_file, 1);
	assert_false(o.good);
	assert_int_equal(o.e.kind, ERR_INVALID);
	assert_true(begin(true, id, two, 2).good); /* and it has not suffered */
	assert_true(sh_is(id, "cat /data/in/f", "1\n"));
	end(id);
	drop(volume);
}

/* Dropped while somebody has it: that one keeps it until its end, and then nothing is left. */
static void dropped_while_in_use(void **state)
{
	(void)state;
	char volume[37], id[37];

	if (!able())
		skip();
	make(volume, 32);
	create(id, volume, "/data", NULL, false);
	drop(volume);
	assert_false(look(volume).there);
	assert_true(sh_is(id, "echo 1 > /data/f; cat /data/f", "1\n"));
	end(id);
	/* begun and ended over and over: the kernel is met while it lets go */
	make(volume, 32);
	for (int i = 0; i < 10; i++) {
		create(id, volume, "/data", NULL, false);
		assert_true(sh_is(id, "echo x >> /data/log", ""));
		end(id);
	}
	create(id, volume, "/data", NULL, false);
	assert_true(sh_is(id, "wc -l < /data/log", "10\n"));
	end(id);
	drop(volume);
}

const struct CMUnitTest volume_tests[] = {
	cmocka_unit_test(refused_where_there_are_none), cmocka_unit_test(shared_and_lasting),
	cmocka_unit_test(has_a_size),			cmocka_unit_test(hostile_subpaths),
	cmocka_unit_test(no_devices_and_no_set_user_id), cmocka_unit_test(hostile_mount_points),
	cmocka_unit_test(dropped_while_in_use),
};
const size_t volume_tests_n = ARRAY_LEN(volume_tests);
