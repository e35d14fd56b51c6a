/* Snapshots and forks of machines: what ran in one goes on in both, and nobody waits for the disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "vm_own.h"
#include "wire/guest.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

struct taken {
	struct outcome o;
	uint64_t bytes;
};

static void on_snapshot(void *ctx, const struct err *e, uint64_t bytes)
{
	struct taken *t = ctx;

	t->bytes = bytes;
	own_on_done(&t->o, e);
}

/* A copy of a running machine: what ran in it runs in both, each from then on for itself, and nothing random is shared. */
void a_fork_goes_on_with_what_ran(void **state)
{
	(void)state;
	static const char *const ask = "cat /tmp/word; kill -USR1 $(cat /tmp/pid); while [ ! -s /tmp/out ]; do sleep 0.05; done; cat /tmp/out; rm /tmp/out";
	static const char *const runs = "import os, random, signal, time\nseen = 42\ndef tell(*a):\n  global seen\n  seen += 1\n"
					"  open('/tmp/.o', 'w').write('%d %s\\n' % (seen, os.urandom(8).hex()))\n  os.rename('/tmp/.o', '/tmp/out')\n"
					"signal.signal(signal.SIGUSR1, tell)\nopen('/tmp/pid', 'w').write(str(os.getpid()))\nwhile True: time.sleep(60)\n";
	char parent[37], child[37], snapshot[37];
	struct taken t = { 0 };
	struct drive d, of_child;

	random_uuid(parent), random_uuid(child), random_uuid(snapshot);
	assert_true(own_create(parent));
	own_connect_to(&d, parent);
	const char *argv[] = { "sh", "-c", "echo parent > /tmp/word; exec python3 -c \"$0\"", runs, NULL };
	(void)drive_start(&d, &(struct link_run_spec){ .argv = argv });
	assert_true(got_is(drive_sh(&d, "cat /proc/sys/kernel/random/boot_id > /tmp/boot"), 0, "", ""));
	assert_true(got_is(drive_sh(&d, "while [ ! -s /tmp/pid ]; do sleep 0.05; done"), 0, "", ""));
	uint64_t began = now_us();
	own.b->ops->snapshot(own.b, parent, snapshot, true, true, on_snapshot, &t);
	assert_true(own_finished(&t.o));
	fprintf(stderr, "    taken in %llu ms, %llu MiB\n", (unsigned long long)(now_us() - began) / 1000, (unsigned long long)t.bytes >> 20);
	struct got_run *r = drive_sh(&d, ask);
	assert_non_null(r);
	assert_memory_equal(r->out[0].data, "parent\n43 ", 10);
	own.from = snapshot;
	assert_true(own_create(child));
	own.from = NULL;
	own_connect_to(&of_child, child);
	of_child.next_run = 1000; /* the numbers of the parent's runs are known in it */
	struct got_run *c = drive_sh(&of_child, ask);
	assert_non_null(c);
	assert_memory_equal(c->out[0].data, "parent\n43 ", 10);
	assert_string_not_equal(r->out[0].data, c->out[0].data); /* the same count, and other random bytes */
	auto_free char *names = xasprintf("%.8s\n%.8s\n", child, child);
	assert_true(got_is(drive_sh(&of_child, "hostname | cut -c5-12; cut -c1-8 /etc/machine-id"), 0, names, ""));
	/* it has its own boot id, a real one, and namespaces of everybody's can still have a /proc */
	static const char booted[] = "cd /proc/sys/kernel/random; [ $(cat boot_id) != $(cat /tmp/boot) ] && grep -qE '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' boot_id && "
				     "unshare -Ur --mount-proc --pid --fork true";
	assert_true(got_is(drive_sh(&of_child, booted), 0, "", ""));
	r = drive_sh(&d, ask);
	assert_memory_equal(r->out[0].data, "parent\n44 ", 10);
	assert_true(got_is(drive_sh(&d, "cmp /proc/sys/kernel/random/boot_id /tmp/boot"), 0, "", ""));
	drive_done(&of_child);
	drive_done(&d);
	assert_true(own_destroy(parent));
	assert_true(own_destroy(child));
	struct outcome o = { 0 };
	own.b->ops->drop_snapshot(own.b, snapshot, own_on_done, &o);
	assert_true(own_finished(&o));
}

/* Whether its memory and devices are in no file of its folder. */
static bool snapshot_is_apart(const char *snapshot)
{
	auto_free char *path = xasprintf("%s/snapshots/%s/state", own.host.data, snapshot);

	return access(path, F_OK) < 0;
}

/* So many children of a fork of it. Whether its memory was had apart, and how much there is of it. */
static bool fork_of(const char *id, char children[][37], size_t n, uint64_t *ret_bytes)
{
	char snapshot[37];
	struct taken t = { 0 };
	struct outcome o = { 0 };

	random_uuid(snapshot);
	own.b->ops->snapshot(own.b, id, snapshot, true, true, on_snapshot, &t);
	assert_true(own_finished(&t.o));
	bool apart = snapshot_is_apart(snapshot);
	*ret_bytes = t.bytes;
	for (size_t i = 0; i < n; i++) {
		random_uuid(children[i]);
		own.from = snapshot;
		assert_true(own_create(children[i]));
		own.from = NULL;
	}
	own.b->ops->drop_snapshot(own.b, snapshot, own_on_done, &o);
	assert_true(own_finished(&o));
	return apart;
}

static void on_list(void *ctx, const struct err *e, const char *const *ids, const bool *started, size_t n)
{
	(void)e, (void)ids, (void)started;
	*(size_t *)ctx = n;
}

/* As another daemon, which takes over the machines that are there. */
static void reopen(void)
{
	struct drive d;
	size_t n;

	drive_init(&d, &own.loop);
	for (unsigned ms = 0; !own_stored() && ms < 10000; ms += 100) /* there need not be one yet */
		drive_for(&d, 100);
	vm_host_close(&own.host, own.b);
	drive_for(&d, 10); /* or the warden, which begins as a copy of us, would have our end of their monitors, too */
	own_open_boundary();
	own.b->ops->list(own.b, on_list, &n);
}

/* It goes on with what it did, and nothing that it has written is not there. */
static bool goes_on_writing(const char *id, uint32_t first_run)
{
	static const char asks[] = "turn() { cut -d ' ' -f 1 /tmp/turn; }; a=$(turn); n=0; while [ ! -e /tmp/broken ] && [ $(turn) -lt $((a + 3)) ] && [ $n -lt 300 ]; do n=$((n+1)); "
				   "sleep 0.05; done; if [ -e /tmp/broken ]; then cat /tmp/broken; elif [ $n = 300 ]; then echo it stands still; else echo whole; fi";
	struct drive d;

	own_connect_to(&d, id);
	d.next_run = first_run; /* the numbers of those before are known in it */
	bool good = got_is(drive_sh(&d, asks), 0, "whole\n", "");
	drive_done(&d);
	return good;
}

/* Every turn writes to each of its pages, and sees first whether each has what the turn before wrote: a page that a copy lacked, or had of
 * another moment, or that somebody else has written to, is seen in the copy's next turn. */
void a_fork_has_all_that_is_being_written(void **state)
{
	(void)state;
	static const char writes[] = "import os, time\nn = 4000\nb = bytearray(4096 * n)\nturn = 0\nwhile True:\n  for at in (0, 2048, 4095):\n"
				     "    if b[at::4096] != bytes([turn & 255]) * n: open('/tmp/broken', 'w').write('%d at %d' % (turn, at))\n"
				     "  if n == 4000 and os.path.exists('/tmp/more'):\n    n = 18000\n    b = bytearray(4096 * n)\n"
				     "  turn += 1\n  for at in (0, 2048, 4095): b[at::4096] = bytes([turn & 255]) * n\n"
				     "  open('/tmp/.turn', 'w').write('%d %d' % (turn, n))\n  os.rename('/tmp/.turn', '/tmp/turn')\n  time.sleep(0.005)\n";
	char parent[37], child[1][37], grown[2][37], late[1][37];
	uint64_t few, many, whole;
	struct drive d;

	random_uuid(parent);
	assert_true(own_create(parent));
	own_connect_to(&d, parent);
	const char *argv[] = { "sh", "-c", "python3 -c \"$0\" > /dev/null 2>&1 & while [ ! -s /tmp/turn ]; do sleep 0.05; done", writes, NULL };
	assert_true(got_is(drive_run(&d, &(struct link_run_spec){ .argv = argv }), 0, "", ""));
	drive_done(&d);
	assert_true(fork_of(parent, child, 1, &few));
	assert_true(goes_on_writing(parent, 1000));
	own_connect_to(&d, child[0]);
	d.next_run = 1000; /* the numbers of those before are known in it */
	assert_true(got_is(drive_sh(&d, "touch /tmp/more; while grep -q 4000 /tmp/turn; do sleep 0.05; done"), 0, "", ""));
	drive_done(&d);
	/* so much that its children share it */
	assert_true(fork_of(child[0], grown, 2, &many));
	assert_true(many > few + (64 << 20));
	assert_true(own_destroy(parent));
	assert_true(goes_on_writing(child[0], 2000));
	assert_true(own_destroy(child[0]));
	assert_true(goes_on_writing(grown[1], 3000));
	assert_true(goes_on_writing(grown[0], 3000));
	assert_true(own_destroy(grown[1]));
	/* a daemon that comes after us does not know what it began with, and has it read in whole */
	reopen();
	assert_true(goes_on_writing(grown[0], 4000));
	assert_false(fork_of(grown[0], late, 1, &whole));
	assert_true(own_destroy(grown[0]));
	assert_true(goes_on_writing(late[0], 5000));
	assert_true(own_destroy(late[0]));
}

/* What the parent's guest waits for nobody will say to the child's. */
void a_fork_of_one_that_has_heard_half_of_something(void **state)
{
	(void)state;
	static const char bytes[60000];
	char parent[37], child[1][37];
	auto_buf struct buf frame;
	uint64_t size;
	struct drive d;
	struct err e;

	random_uuid(parent);
	assert_true(own_create(parent));
	drive_init(&d, &own.loop);
	int fd = own.b->ops->open_guest(own.b, parent, &e);
	auto_fd int line = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	assert_true(line >= 0 && drive_connect(&d, fd));
	buf_init(&frame, 2 * sizeof bytes);
	assert_int_equal(guest_frame_put(&frame, GUEST_RUN_STDIN, 0, 77, (struct str){ bytes, sizeof bytes }), 0);
	assert_int_equal(send(line, frame.data, 1000, MSG_NOSIGNAL), 1000);
	drive_for(&d, 300);
	assert_true(fork_of(parent, child, 1, &size));
	drive_done(&d);
	assert_true(own_destroy(parent));
	own_connect_to(&d, child[0]);
	assert_true(got_is(drive_sh(&d, "echo here"), 0, "here\n", ""));
	drive_done(&d);
	assert_true(own_destroy(child[0]));
}

/* In place of the host's disk (meson.build wraps the call): while it stands still no answer comes. */
static atomic_bool disk_stands_still, asked_from_the_loop;
static atomic_uint waits_for_disk;
int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
	if (atomic_load(&disk_stands_still) && gettid() == getpid())
		atomic_store(&asked_from_the_loop, true);
	else
		for (atomic_fetch_add(&waits_for_disk, 1); atomic_load(&disk_stands_still);)
			usleep(1000);
	return __real_fsync(fd);
}

/* Whoever waits for a snapshot to be written out waits alone. And what was being rewritten is in it as it was at some moment. */
void a_slow_disk_holds_nobody_up(void **state)
{
	(void)state;
	static const char rewrites[] = "i=0; while :; do i=$((i+1)); yes line-$i | head -c 100000 > /root/new; mv /root/new /root/file; done";
	char parent[37], child[37], snapshot[37];
	struct taken t = { 0 };
	struct drive d, of_child;

	random_uuid(parent), random_uuid(child), random_uuid(snapshot);
	assert_true(own_create(parent));
	own_connect_to(&d, parent);
	(void)drive_start(&d, &(struct link_run_spec){ .argv = (const char *[]){ "sh", "-c", rewrites, NULL } });
	assert_true(got_is(drive_sh(&d, "while [ ! -s /root/file ]; do sleep 0.05; done"), 0, "", ""));
	atomic_store(&waits_for_disk, 0);
	atomic_store(&disk_stands_still, true);
	own.b->ops->snapshot(own.b, parent, snapshot, false, false, on_snapshot, &t);
	for (int i = 0; i < 6000 && !t.o.done && atomic_load(&waits_for_disk) == 0; i++)
		drive_for(&d, 10);
	bool waited = atomic_load(&waits_for_disk) > 0 && !t.o.done;
	bool answered = got_is(drive_sh(&d, "echo fine"), 0, "fine\n", "") && own_create(child) && own_destroy(child);
	bool waits = !t.o.done;
	atomic_store(&disk_stands_still, false);
	assert_true(own_finished(&t.o));
	assert_true(waited && answered && waits);
	assert_false(atomic_load(&asked_from_the_loop));
	own.from = snapshot;
	random_uuid(child);
	assert_true(own_create(child));
	own.from = NULL;
	own_connect_to(&of_child, child);
	assert_true(got_is(drive_sh(&of_child, "wc -c < /root/file; sed '$d' /root/file | sort -u | wc -l; sed '$d' /root/file | sort -u | cut -c1-5"), 0,
			   "100000\n1\nline-\n", ""));
	drive_done(&of_child);
	drive_done(&d);
	assert_true(own_destroy(parent));
	assert_true(own_destroy(child));
	struct outcome o = { 0 };
	own.b->ops->drop_snapshot(own.b, snapshot, own_on_done, &o);
	assert_true(own_finished(&o));
}
