/* What only the vm boundary has: copies that must differ, a template that none of them may change, and machines that fail in their own ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "drive.h"
#include "vm_host.h"
#include "wire/guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct vm_host host;
static uv_loop_t loop;
static struct boundary *b;
static struct {
	bool seen;
	char id[40], reason[200];
} ended;

static void on_exit_seen(void *ctx, const char *id, const struct boundary_exit *x)
{
	(void)ctx;
	ended.seen = true;
	snprintf(ended.id, sizeof ended.id, "%s", id);
	snprintf(ended.reason, sizeof ended.reason, "%s", x->reason);
}

static void open_boundary(void)
{
	struct err e;

	b = vm_host_open(&host, &loop, &e);
	if (!b)
		fail_msg("%s", e.message);
	b->on_exit = on_exit_seen;
}

struct outcome {
	bool done;
	struct err e; /* kind 0 = good */
};

static void on_done(void *ctx, const struct err *e)
{
	struct outcome *o = ctx;

	if (e)
		o->e = *e;
	o->done = true;
}

static bool finished(struct outcome *o)
{
	struct drive d;

	drive_init(&d, &loop);
	if (!drive_until(&d, &o->done))
		abort(); /* it would be told into a stack that is gone */
	if (o->e.kind)
		fprintf(stderr, "    %s\n", o->e.message);
	return !o->e.kind;
}

static const char *from; /* the snapshot that the next create begins as */
static bool lasting;     /* it keeps its disk over a stop */

static struct boundary_spec spec_of(const char *id, char name[static 64])
{
	snprintf(name, 64, "box-%.8s", id);
	return (struct boundary_spec){ .id = id, .image_digest = host.digest, .hostname = name, .ephemeral = !lasting, .from_snapshot = from,
					     .resources = { .cpus = 1, .memory_mib = 256, .disk_mib = 512, .pids = 256 } };
}

static bool create(const char *id)
{
	struct outcome o = { 0 };
	char name[64];
	struct boundary_spec s = spec_of(id, name);

	uint64_t began = now_us();
	b->ops->create(b, &s, on_done, &o);
	bool good = finished(&o);
	fprintf(stderr, "    created in %llu ms\n", (unsigned long long)(now_us() - began) / 1000);
	return good;
}

static bool destroy(const char *id)
{
	struct outcome o = { 0 };
	uint64_t began = now_us();

	b->ops->destroy(b, id, on_done, &o);
	bool good = finished(&o);
	fprintf(stderr, "    destroyed in %llu ms\n", (unsigned long long)(now_us() - began) / 1000);
	return good;
}

static void connect_to(struct drive *d, const char *id)
{
	struct err e;
	int fd = b->ops->open_guest(b, id, &e);

	drive_init(d, &loop);
	assert_true(fd >= 0);
	assert_true(drive_connect(d, fd));
}

static pid_t qemu_of(const char *id)
{
	auto_free char *path = xasprintf("%s/%s/vmm", host.data, id);
	FILE *f = fopen(path, "re");
	int pid = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &pid), 1);
	(void)fclose(f);
	assert_true(pid > 1);
	return pid;
}

/* --- copies --- */

enum { FACTS = 6, TEMPLATE_NAME = 64 };
static const char facts[] = "cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | od -An -tx1; cat /etc/machine-id; hostname; "
			    "python3 -c 'import uuid, random; print(uuid.uuid4(), random.random())'";

/* By its clock, in milliseconds; negative = it does not say. */
static int64_t time_in(struct drive *d)
{
	struct got_run *r = drive_sh(d, "date +%s%3N");

	return r && r->end.exit_code == 0 ? strtoll(r->out[0].data, NULL, 10) : -1;
}

/* Set at its create; and what was late about that is put right as core does it: told again until it hears in time. */
static void check_clock(struct drive *d, int64_t created)
{
	int64_t there = time_in(d), late = INT64_MAX;

	assert_true(there >= created && there <= (int64_t)now_unix_ms() + 100);
	for (int i = 0; i < 10 && late > 100; i++) {
		link_tell_time(d->link, NULL);
		int64_t before = (int64_t)now_unix_ms();
		there = time_in(d);
		assert_true(there <= (int64_t)now_unix_ms() + 100);
		late = before - there;
	}
	assert_true(late <= 100);
}

struct copy {
	char id[37];
	int64_t created;
	char *facts[FACTS];
};

static void learn(struct copy *c)
{
	struct drive d;
	char *save = NULL;
	size_t k = 0;

	connect_to(&d, c->id);
	struct got_run *r = drive_sh(&d, facts);
	assert_non_null(r);
	assert_int_equal(r->end.exit_code, 0);
	for (char *line = strtok_r(r->out[0].data, "\n", &save); line && k < FACTS; line = strtok_r(NULL, "\n", &save))
		c->facts[k++] = xstrdup(line);
	assert_int_equal(k, FACTS);
	check_clock(&d, c->created);
	drive_done(&d);
}

/* All of them alive at once. */
static void copies_differ(void **state)
{
	(void)state;
	const char *text = getenv("CAISSON_TEST_CLONES");
	const char *all = getenv("CAISSON_TEST_ALL");
	size_t n = text ? strtoul(text, NULL, 10) : all && *all ? 100 : 8;
	struct copy *copies = xcalloc(n, sizeof *copies);

	for (size_t i = 0; i < n; i++) {
		random_uuid(copies[i].id);
		copies[i].created = (int64_t)now_unix_ms();
		assert_true(create(copies[i].id));
	}
	for (size_t i = 0; i < n; i++)
		learn(&copies[i]);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++)
			for (size_t k = 0; k < FACTS; k++)
				assert_string_not_equal(copies[i].facts[k], copies[j].facts[k]);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(kill(qemu_of(copies[i].id), 0), 0); /* they are all still there */
		assert_true(destroy(copies[i].id));
		for (size_t k = 0; k < FACTS; k++)
			free(copies[i].facts[k]);
	}
	free(copies);
}

/* The memory file of the template, as our own process has it. */
static int template_memory(void)
{
	DIR *d = opendir("/proc/self/fd");
	int found = -EBADF;

	for (const struct dirent *e; d && (e = readdir(d));) {
		char path[300], target[64] = "";
		snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
		if (readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "/memfd:ram", 10) == 0)
			found = open(path, O_RDWR | O_CLOEXEC);
	}
	if (d)
		closedir(d);
	return found;
}

static void no_copy_changes_the_template(void **state)
{
	(void)state;
	char one[37], two[37];
	struct drive d;

	random_uuid(one);
	random_uuid(two);
	assert_true(create(one));
	auto_fd int ram = template_memory();
	assert_true(ram >= 0);
	int seals = fcntl(ram, F_GET_SEALS);
	assert_int_equal(seals & (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_true(pwrite(ram, "x", 1, 4096) < 0);
	assert_true(fallocate(ram, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
	/* root in one copy changes what all of them had in memory: what is cached of the image, and its kernel's own */
	connect_to(&d, one);
	assert_true(got_is(drive_sh(&d, "echo changed > /etc/hostname; echo 1 > /proc/sys/vm/drop_caches; echo 7 > /proc/sys/vm/swappiness; "
					"head -c 30000000 /dev/urandom > /dev/shm/fill"), 0, "", ""));
	drive_done(&d);
	assert_true(create(two));
	connect_to(&d, two);
	struct got_run *r = drive_sh(&d, "cat /etc/hostname /proc/sys/vm/swappiness; ls /dev/shm");
	assert_non_null(r);
	assert_null(strstr(r->out[0].data, "changed"));
	assert_non_null(strstr(r->out[0].data, "60\n"));
	assert_null(strstr(r->out[0].data, "fill"));
	drive_done(&d);
	assert_true(destroy(one));
	assert_true(destroy(two));
}

struct taken {
	struct outcome o;
	uint64_t bytes;
};

static void on_snapshot(void *ctx, const struct err *e, uint64_t bytes)
{
	struct taken *t = ctx;

	t->bytes = bytes;
	on_done(&t->o, e);
}

/* A copy of a running machine: what ran in it runs in both, each from then on for itself, and nothing random is shared. */
static void a_fork_goes_on_with_what_ran(void **state)
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
	assert_true(create(parent));
	connect_to(&d, parent);
	const char *argv[] = { "sh", "-c", "echo parent > /tmp/word; exec python3 -c \"$0\"", runs, NULL };
	(void)drive_start(&d, &(struct link_run_spec){ .argv = argv });
	assert_true(got_is(drive_sh(&d, "cat /proc/sys/kernel/random/boot_id > /tmp/boot"), 0, "", ""));
	assert_true(got_is(drive_sh(&d, "while [ ! -s /tmp/pid ]; do sleep 0.05; done"), 0, "", ""));
	uint64_t began = now_us();
	b->ops->snapshot(b, parent, snapshot, true, true, on_snapshot, &t);
	assert_true(finished(&t.o));
	fprintf(stderr, "    taken in %llu ms, %llu MiB\n", (unsigned long long)(now_us() - began) / 1000, (unsigned long long)t.bytes >> 20);
	struct got_run *r = drive_sh(&d, ask);
	assert_non_null(r);
	assert_memory_equal(r->out[0].data, "parent\n43 ", 10);
	from = snapshot;
	assert_true(create(child));
	from = NULL;
	connect_to(&of_child, child);
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
	assert_true(destroy(parent));
	assert_true(destroy(child));
	struct outcome o = { 0 };
	b->ops->drop_snapshot(b, snapshot, on_done, &o);
	assert_true(finished(&o));
}

/* Whether its memory and devices are in no file of its folder. */
static bool snapshot_is_apart(const char *snapshot)
{
	auto_free char *path = xasprintf("%s/snapshots/%s/state", host.data, snapshot);

	return access(path, F_OK) < 0;
}

/* So many children of a fork of it. Whether its memory was had apart, and how much there is of it. */
static bool fork_of(const char *id, char children[][37], size_t n, uint64_t *ret_bytes)
{
	char snapshot[37];
	struct taken t = { 0 };
	struct outcome o = { 0 };

	random_uuid(snapshot);
	b->ops->snapshot(b, id, snapshot, true, true, on_snapshot, &t);
	assert_true(finished(&t.o));
	bool apart = snapshot_is_apart(snapshot);
	*ret_bytes = t.bytes;
	for (size_t i = 0; i < n; i++) {
		random_uuid(children[i]);
		from = snapshot;
		assert_true(create(children[i]));
		from = NULL;
	}
	b->ops->drop_snapshot(b, snapshot, on_done, &o);
	assert_true(finished(&o));
	return apart;
}

static void on_list(void *ctx, const struct err *e, const char *const *ids, const bool *started, size_t n)
{
	(void)e, (void)ids, (void)started;
	*(size_t *)ctx = n;
}

static bool stored(void);

/* As another daemon, which takes over the machines that are there. */
static void reopen(void)
{
	struct drive d;
	size_t n;

	drive_init(&d, &loop);
	for (unsigned ms = 0; !stored() && ms < 10000; ms += 100) /* there need not be one yet */
		drive_for(&d, 100);
	vm_host_close(&host, b);
	drive_for(&d, 10); /* or the warden, which begins as a copy of us, would have our end of their monitors, too */
	open_boundary();
	b->ops->list(b, on_list, &n);
}

/* It goes on with what it did, and nothing that it has written is not there. */
static bool goes_on_writing(const char *id, uint32_t first_run)
{
	static const char asks[] = "turn() { cut -d ' ' -f 1 /tmp/turn; }; a=$(turn); n=0; while [ ! -e /tmp/broken ] && [ $(turn) -lt $((a + 3)) ] && [ $n -lt 300 ]; do n=$((n+1)); "
				   "sleep 0.05; done; if [ -e /tmp/broken ]; then cat /tmp/broken; elif [ $n = 300 ]; then echo it stands still; else echo whole; fi";
	struct drive d;

	connect_to(&d, id);
	d.next_run = first_run; /* the numbers of those before are known in it */
	bool good = got_is(drive_sh(&d, asks), 0, "whole\n", "");
	drive_done(&d);
	return good;
}

/* Every turn writes to each of its pages, and sees first whether each has what the turn before wrote: a page that a copy lacked, or had of
 * another moment, or that somebody else has written to, is seen in the copy's next turn. */
static void a_fork_has_all_that_is_being_written(void **state)
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
	assert_true(create(parent));
	connect_to(&d, parent);
	const char *argv[] = { "sh", "-c", "python3 -c \"$0\" > /dev/null 2>&1 & while [ ! -s /tmp/turn ]; do sleep 0.05; done", writes, NULL };
	assert_true(got_is(drive_run(&d, &(struct link_run_spec){ .argv = argv }), 0, "", ""));
	drive_done(&d);
	assert_true(fork_of(parent, child, 1, &few));
	assert_true(goes_on_writing(parent, 1000));
	connect_to(&d, child[0]);
	d.next_run = 1000; /* the numbers of those before are known in it */
	assert_true(got_is(drive_sh(&d, "touch /tmp/more; while grep -q 4000 /tmp/turn; do sleep 0.05; done"), 0, "", ""));
	drive_done(&d);
	/* so much that its children share it */
	assert_true(fork_of(child[0], grown, 2, &many));
	assert_true(many > few + (64 << 20));
	assert_true(destroy(parent));
	assert_true(goes_on_writing(child[0], 2000));
	assert_true(destroy(child[0]));
	assert_true(goes_on_writing(grown[1], 3000));
	assert_true(goes_on_writing(grown[0], 3000));
	assert_true(destroy(grown[1]));
	/* a daemon that comes after us does not know what it began with, and has it read in whole */
	reopen();
	assert_true(goes_on_writing(grown[0], 4000));
	assert_false(fork_of(grown[0], late, 1, &whole));
	assert_true(destroy(grown[0]));
	assert_true(goes_on_writing(late[0], 5000));
	assert_true(destroy(late[0]));
}

/* What the parent's guest waits for nobody will say to the child's. */
static void a_fork_of_one_that_has_heard_half_of_something(void **state)
{
	(void)state;
	static const char bytes[60000];
	char parent[37], child[1][37];
	auto_buf struct buf frame;
	uint64_t size;
	struct drive d;
	struct err e;

	random_uuid(parent);
	assert_true(create(parent));
	drive_init(&d, &loop);
	int fd = b->ops->open_guest(b, parent, &e);
	auto_fd int line = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	assert_true(line >= 0 && drive_connect(&d, fd));
	buf_init(&frame, 2 * sizeof bytes);
	assert_int_equal(guest_frame_put(&frame, GUEST_RUN_STDIN, 0, 77, (struct str){ bytes, sizeof bytes }), 0);
	assert_int_equal(send(line, frame.data, 1000, MSG_NOSIGNAL), 1000);
	drive_for(&d, 300);
	assert_true(fork_of(parent, child, 1, &size));
	drive_done(&d);
	assert_true(destroy(parent));
	connect_to(&d, child[0]);
	assert_true(got_is(drive_sh(&d, "echo here"), 0, "here\n", ""));
	drive_done(&d);
	assert_true(destroy(child[0]));
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
static void a_slow_disk_holds_nobody_up(void **state)
{
	(void)state;
	static const char rewrites[] = "i=0; while :; do i=$((i+1)); yes line-$i | head -c 100000 > /root/new; mv /root/new /root/file; done";
	char parent[37], child[37], snapshot[37];
	struct taken t = { 0 };
	struct drive d, of_child;

	random_uuid(parent), random_uuid(child), random_uuid(snapshot);
	assert_true(create(parent));
	connect_to(&d, parent);
	(void)drive_start(&d, &(struct link_run_spec){ .argv = (const char *[]){ "sh", "-c", rewrites, NULL } });
	assert_true(got_is(drive_sh(&d, "while [ ! -s /root/file ]; do sleep 0.05; done"), 0, "", ""));
	atomic_store(&waits_for_disk, 0);
	atomic_store(&disk_stands_still, true);
	b->ops->snapshot(b, parent, snapshot, false, false, on_snapshot, &t);
	for (int i = 0; i < 6000 && !t.o.done && atomic_load(&waits_for_disk) == 0; i++)
		drive_for(&d, 10);
	bool waited = atomic_load(&waits_for_disk) > 0 && !t.o.done;
	bool answered = got_is(drive_sh(&d, "echo fine"), 0, "fine\n", "") && create(child) && destroy(child);
	bool waits = !t.o.done;
	atomic_store(&disk_stands_still, false);
	assert_true(finished(&t.o));
	assert_true(waited && answered && waits);
	assert_false(atomic_load(&asked_from_the_loop));
	from = snapshot;
	random_uuid(child);
	assert_true(create(child));
	from = NULL;
	connect_to(&of_child, child);
	assert_true(got_is(drive_sh(&of_child, "wc -c < /root/file; sed '$d' /root/file | sort -u | wc -l; sed '$d' /root/file | sort -u | cut -c1-5"), 0,
			   "100000\n1\nline-\n", ""));
	drive_done(&of_child);
	drive_done(&d);
	assert_true(destroy(parent));
	assert_true(destroy(child));
	struct outcome o = { 0 };
	b->ops->drop_snapshot(b, snapshot, on_done, &o);
	assert_true(finished(&o));
}

/* --- what goes wrong --- */

static void a_killed_qemu_is_noticed(void **state)
{
	(void)state;
	char id[37];

	random_uuid(id);
	assert_true(create(id));
	ended.seen = false;
	assert_int_equal(kill(qemu_of(id), SIGKILL), 0);
	struct drive d;
	drive_init(&d, &loop);
	assert_true(drive_until(&d, &ended.seen));
	assert_string_equal(ended.id, id);
	assert_non_null(strstr(ended.reason, "virtual machine has ended"));
	assert_true(destroy(id));
}

/* How long until something is noticed that is asked for now and then. Only where that is the matter: on a busy host QEMU may well be late. */
static void look_every(unsigned ms)
{
	vm_host_close(&host, b);
	host.options.beat_ms = ms;
	open_boundary();
}

static void a_hung_qemu_is_noticed(void **state)
{
	(void)state;
	char id[37];
	struct drive d;

	look_every(1000);
	random_uuid(id);
	assert_true(create(id));
	ended.seen = false;
	assert_int_equal(kill(qemu_of(id), SIGSTOP), 0);
	drive_init(&d, &loop);
	assert_true(drive_until(&d, &ended.seen));
	assert_non_null(strstr(ended.reason, "does not answer"));
	assert_true(destroy(id));
	/* and before anybody has noticed it goes away all the same */
	random_uuid(id);
	assert_true(create(id));
	assert_int_equal(kill(qemu_of(id), SIGSTOP), 0);
	assert_true(destroy(id));
	look_every(0);
}

static void a_dead_guest_is_noticed(void **state)
{
	(void)state;
	char id[37];
	struct drive d;

	random_uuid(id);
	assert_true(create(id));
	connect_to(&d, id);
	ended.seen = false;
	const char *argv[] = { "sh", "-c", "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger", NULL };
	(void)drive_start(&d, &(struct link_run_spec){ .argv = argv });
	assert_true(drive_until(&d, &ended.seen));
	assert_string_equal(ended.id, id);
	drive_done(&d);
	assert_true(destroy(id));
}

/* Root inside takes the line from PID 1 and fills it with what is no protocol. */
static void a_flooded_line_costs_its_own_sandbox(void **state)
{
	(void)state;
	char id[37], other[37];
	struct drive d, fine;
	const char *flood = "import ctypes, os\nlibc = ctypes.CDLL(None)\np = os.pidfd_open(1)\nfd = libc.syscall(438, p, 3, 0)\n"
			    "assert fd >= 0, fd\nos.set_blocking(fd, True)\nwhile True: os.write(fd, b'\\xff' * 65536)\n";
	const char *argv[] = { "python3", "-c", flood, NULL };

	random_uuid(id);
	random_uuid(other);
	assert_true(create(id));
	assert_true(create(other));
	connect_to(&d, id);
	connect_to(&fine, other);
	struct got_run *r = drive_start(&d, &(struct link_run_spec){ .argv = argv });
	assert_true(drive_until(&d, &d.closed));
	assert_false(r->ended);
	assert_true(got_is(drive_sh(&fine, "echo fine"), 0, "fine\n", ""));
	drive_done(&d);
	drive_done(&fine);
	assert_true(destroy(id));
	assert_true(destroy(other));
}

/* Whether there is a template in the folder, and none that is being made. */
static bool stored(void)
{
	auto_free char *folder = xasprintf("%s/templates", host.data);
	DIR *d = opendir(folder);
	bool whole = false, unfinished = false;

	for (const struct dirent *e; d && (e = readdir(d));) {
		unfinished |= strncmp(e->d_name, ".new-", 5) == 0;
		whole |= e->d_name[0] != '.';
	}
	if (d)
		closedir(d);
	return whole && !unfinished;
}

enum harm { CHANGED, CUT, GONE };

static bool harm_file(const char *path, enum harm how)
{
	auto_fd int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return false;
	off_t at = lseek(fd, 0, SEEK_DATA);
	if (how == CHANGED)
		assert_int_equal(pwrite(fd, "damaged", 7, at + 100), 7);
	else
		assert_int_equal(how == CUT ? ftruncate(fd, at + 100) : unlink(path), 0);
	return true;
}

static void damage(const char *name, enum harm how)
{
	auto_free char *folder = xasprintf("%s/templates", host.data);
	DIR *d = opendir(folder);
	size_t n = 0;

	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		auto_free char *path = xasprintf("%s/%s/%s", folder, e->d_name, name);
		n += harm_file(path, how);
	}
	closedir(d);
	assert_true(n > 0);
}

/* A stored template that was changed, or of which something is missing, is made again, and nobody gets a machine out of it. */
static void a_damaged_template_is_not_used(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		enum harm how;
	} harms[] = { { "ram", CHANGED }, { "state", CHANGED }, { "disk", CHANGED }, { "meta", CHANGED }, { "ram", CUT }, { "state", GONE } };
	struct drive d;

	drive_init(&d, &loop);
	for (size_t i = 0; i < ARRAY_LEN(harms); i++) {
		char id[37];
		random_uuid(id);
		assert_true(create(id));
		assert_true(destroy(id));
		while (!stored())
			drive_for(&d, 100);
		vm_host_close(&host, b);
		damage(harms[i].name, harms[i].how);
		open_boundary();
	}
	char id[37];
	random_uuid(id);
	assert_true(create(id));
	assert_true(destroy(id));
}

/* A stopped sandbox starts with what is on its disk, whatever has become of its template; a new one cannot be had then, and that is said. */
static void a_start_needs_no_template(void **state)
{
	(void)state;
	char id[37], other[37], name[64];
	struct drive d;
	struct outcome o = { 0 };
	auto_free char *folder = xasprintf("%s/templates", host.data), *aside = xasprintf("%s/templates.aside", host.data);

	random_uuid(id), random_uuid(other);
	lasting = true;
	assert_true(create(id));
	connect_to(&d, id);
	assert_true(got_is(drive_sh(&d, "echo kept > /root/file"), 0, "", ""));
	drive_done(&d);
	b->ops->stop(b, id, on_done, &o);
	assert_true(finished(&o));
	drive_init(&d, &loop);
	while (!stored())
		drive_for(&d, 100);
	vm_host_close(&host, b);
	assert_int_equal(rename(folder, aside), 0);
	auto_fd int in_its_place = open(folder, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(in_its_place >= 0);
	open_boundary();
	struct boundary_spec s = spec_of(id, name);
	o = (struct outcome){ 0 };
	b->ops->start(b, &s, on_done, &o);
	assert_true(finished(&o));
	connect_to(&d, id);
	assert_true(got_is(drive_sh(&d, "cat /root/file"), 0, "kept\n", ""));
	drive_done(&d);
	struct boundary_spec new = spec_of(other, name);
	o = (struct outcome){ 0 };
	b->ops->create(b, &new, on_done, &o);
	assert_false(finished(&o));
	assert_int_equal(o.e.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(o.e.message, "templates"));
	/* and when it can be made again, it is */
	assert_int_equal(unlink(folder), 0);
	assert_int_equal(rename(aside, folder), 0);
	assert_true(create(other));
	lasting = false;
	assert_true(destroy(other));
	assert_true(destroy(id));
}

/* The names of the templates that are stored. */
static size_t count_templates(const char *but)
{
	auto_free char *folder = xasprintf("%s/templates", host.data);
	DIR *d = opendir(folder);
	size_t n = 0;

	for (const struct dirent *e; d && (e = readdir(d));)
		n += strlen(e->d_name) == TEMPLATE_NAME && !streq(e->d_name, but);
	if (d)
		closedir(d);
	return n;
}

static void first_template(char ret[static TEMPLATE_NAME + 1])
{
	auto_free char *folder = xasprintf("%s/templates", host.data);
	DIR *d = opendir(folder);

	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d));)
		if (strlen(e->d_name) == TEMPLATE_NAME)
			snprintf(ret, TEMPLATE_NAME + 1, "%s", e->d_name);
	closedir(d);
}

/* The kernel is replaced: another template is made of it, and nobody has to ask for that. */
static void a_changed_kernel_makes_another_template(void **state)
{
	(void)state;
	char id[37], was[TEMPLATE_NAME + 1] = "";
	struct drive d;

	look_every(1000);
	random_uuid(id);
	assert_true(create(id));
	assert_true(destroy(id));
	drive_init(&d, &loop);
	while (!stored())
		drive_for(&d, 100);
	first_template(was);
	assert_int_equal(utimensat(AT_FDCWD, host.options.kernel, NULL, 0), 0);
	for (int i = 0; i < 3000 && count_templates(was) == 0; i++)
		drive_for(&d, 100);
	assert_int_equal(count_templates(was), 1);
	random_uuid(id);
	assert_true(create(id));
	assert_true(destroy(id));
}

/* One that a test may change. */
static char *own_kernel(void)
{
	auto_fd int original = open(host.options.kernel, O_RDONLY | O_CLOEXEC);
	char *path = xstrdup("/tmp/caisson-kernel-XXXXXX");
	auto_fd int to = mkostemp(path, O_CLOEXEC);

	assert_true(original >= 0 && to >= 0 && fchmod(to, 0644) == 0); /* QEMU is another user */
	while (copy_file_range(original, NULL, to, NULL, 1 << 30, 0) > 0)
		;
	host.options.kernel = path;
	return path;
}

/* A hundred machines at once are more descriptors than one is given by itself. */
static void raise_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

static int set_up(void **state)
{
	(void)state;
	open_boundary();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	struct drive d;

	drive_init(&d, &loop);
	vm_host_close(&host, b);
	drive_for(&d, 1);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_differ),
		cmocka_unit_test(no_copy_changes_the_template),
		cmocka_unit_test(a_fork_goes_on_with_what_ran),
		cmocka_unit_test(a_fork_has_all_that_is_being_written),
		cmocka_unit_test(a_fork_of_one_that_has_heard_half_of_something),
		cmocka_unit_test(a_slow_disk_holds_nobody_up),
		cmocka_unit_test(a_killed_qemu_is_noticed),
		cmocka_unit_test(a_hung_qemu_is_noticed),
		cmocka_unit_test(a_dead_guest_is_noticed),
		cmocka_unit_test(a_flooded_line_costs_its_own_sandbox),
		cmocka_unit_test(a_damaged_template_is_not_used),
		cmocka_unit_test(a_start_needs_no_template),
		cmocka_unit_test(a_changed_kernel_makes_another_template),
	};
	int rc = vm_host_init(&host);

	if (rc != 0)
		return rc;
	auto_free char *kernel = own_kernel();
	drive_patience = 10;
	raise_files();
	uv_loop_init(&loop);
	const char *only = getenv("CONTRACT_ONLY");
	if (only)
		cmocka_set_test_filter(only);
	rc = cmocka_run_group_tests_name("vm, its own", tests, set_up, tear_down);
	drive_close(&loop);
	(void)unlink(kernel);
	return vm_host_done(&host) ? rc : 1;
}
