/* What only the vm boundary has: copies that must differ, a template that none of them may change, and machines that fail in their own ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "vm_own.h"

#include "boundary/vm/vmdir.h"
#include "boundary/vm/vmm.h"
#include "sys/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct own own;
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

void own_open_boundary(void)
{
	struct err e;

	own.b = vm_host_open(&own.host, &own.loop, &e);
	if (!own.b)
		fail_msg("%s", e.message);
	own.b->on_exit = on_exit_seen;
}

void own_on_done(void *ctx, const struct err *e)
{
	struct outcome *o = ctx;

	if (e)
		o->e = *e;
	o->done = true;
}

bool own_finished(struct outcome *o)
{
	struct drive d;

	drive_init(&d, &own.loop);
	if (!drive_until(&d, &o->done))
		abort(); /* it would be told into a stack that is gone */
	if (o->e.kind)
		fprintf(stderr, "    %s\n", o->e.message);
	return !o->e.kind;
}

static bool lasting; /* the next create keeps its disk over a stop */

static struct boundary_spec spec_of(const char *id, char name[static 64])
{
	snprintf(name, 64, "box-%.8s", id);
	return (struct boundary_spec){ .id = id, .image_digest = own.host.digest, .hostname = name, .ephemeral = !lasting, .from_snapshot = own.from,
					     .resources = { .cpus = 1, .memory_mib = 256, .disk_mib = 512, .pids = 256 } };
}

bool own_create(const char *id)
{
	struct outcome o = { 0 };
	char name[64];
	struct boundary_spec s = spec_of(id, name);

	uint64_t began = now_us();
	own.b->ops->create(own.b, &s, own_on_done, &o);
	bool good = own_finished(&o);
	fprintf(stderr, "    created in %llu ms\n", (unsigned long long)(now_us() - began) / 1000);
	return good;
}

bool own_destroy(const char *id)
{
	struct outcome o = { 0 };
	uint64_t began = now_us();

	own.b->ops->destroy(own.b, id, own_on_done, &o);
	bool good = own_finished(&o);
	fprintf(stderr, "    destroyed in %llu ms\n", (unsigned long long)(now_us() - began) / 1000);
	return good;
}

void own_connect_to(struct drive *d, const char *id)
{
	struct err e;
	int fd = own.b->ops->open_guest(own.b, id, &e);

	drive_init(d, &own.loop);
	assert_true(fd >= 0);
	assert_true(drive_connect(d, fd));
}

static pid_t qemu_of(const char *id)
{
	auto_free char *path = xasprintf("%s/%s/vmm", own.host.data, id);
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

	own_connect_to(&d, c->id);
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
		assert_true(own_create(copies[i].id));
	}
	for (size_t i = 0; i < n; i++)
		learn(&copies[i]);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++)
			for (size_t k = 0; k < FACTS; k++)
				assert_string_not_equal(copies[i].facts[k], copies[j].facts[k]);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(kill(qemu_of(copies[i].id), 0), 0); /* they are all still there */
		assert_true(own_destroy(copies[i].id));
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
	assert_true(own_create(one));
	auto_fd int ram = template_memory();
	assert_true(ram >= 0);
	int seals = fcntl(ram, F_GET_SEALS);
	assert_int_equal(seals & (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_true(pwrite(ram, "x", 1, 4096) < 0);
	assert_true(fallocate(ram, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
	/* root in one copy changes what all of them had in memory: what is cached of the image, and its kernel's own */
	own_connect_to(&d, one);
	assert_true(got_is(drive_sh(&d, "echo changed > /etc/hostname; echo 1 > /proc/sys/vm/drop_caches; echo 7 > /proc/sys/vm/swappiness; "
					"head -c 30000000 /dev/urandom > /dev/shm/fill"), 0, "", ""));
	drive_done(&d);
	assert_true(own_create(two));
	own_connect_to(&d, two);
	struct got_run *r = drive_sh(&d, "cat /etc/hostname /proc/sys/vm/swappiness; ls /dev/shm");
	assert_non_null(r);
	assert_null(strstr(r->out[0].data, "changed"));
	assert_non_null(strstr(r->out[0].data, "60\n"));
	assert_null(strstr(r->out[0].data, "fill"));
	drive_done(&d);
	assert_true(own_destroy(one));
	assert_true(own_destroy(two));
}

/* --- what goes wrong --- */

static void a_killed_qemu_is_noticed(void **state)
{
	(void)state;
	char id[37];

	random_uuid(id);
	assert_true(own_create(id));
	ended.seen = false;
	assert_int_equal(kill(qemu_of(id), SIGKILL), 0);
	struct drive d;
	drive_init(&d, &own.loop);
	assert_true(drive_until(&d, &ended.seen));
	assert_string_equal(ended.id, id);
	assert_non_null(strstr(ended.reason, "virtual machine has ended"));
	assert_true(own_destroy(id));
}

/* How long until something is noticed that is asked for now and then. Only where that is the matter: on a busy host QEMU may well be late. */
static void look_every(unsigned ms)
{
	vm_host_close(&own.host, own.b);
	own.host.options.beat_ms = ms;
	own_open_boundary();
}

static void a_hung_qemu_is_noticed(void **state)
{
	(void)state;
	char id[37];
	struct drive d;

	look_every(1000);
	random_uuid(id);
	assert_true(own_create(id));
	ended.seen = false;
	assert_int_equal(kill(qemu_of(id), SIGSTOP), 0);
	drive_init(&d, &own.loop);
	assert_true(drive_until(&d, &ended.seen));
	assert_non_null(strstr(ended.reason, "does not answer"));
	assert_true(own_destroy(id));
	/* and before anybody has noticed it goes away all the same */
	random_uuid(id);
	assert_true(own_create(id));
	assert_int_equal(kill(qemu_of(id), SIGSTOP), 0);
	assert_true(own_destroy(id));
	look_every(0);
}

static void a_dead_guest_is_noticed(void **state)
{
	(void)state;
	char id[37];
	struct drive d;

	random_uuid(id);
	assert_true(own_create(id));
	own_connect_to(&d, id);
	ended.seen = false;
	const char *argv[] = { "sh", "-c", "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger", NULL };
	(void)drive_start(&d, &(struct link_run_spec){ .argv = argv });
	assert_true(drive_until(&d, &ended.seen));
	assert_string_equal(ended.id, id);
	drive_done(&d);
	assert_true(own_destroy(id));
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
	assert_true(own_create(id));
	assert_true(own_create(other));
	own_connect_to(&d, id);
	own_connect_to(&fine, other);
	struct got_run *r = drive_start(&d, &(struct link_run_spec){ .argv = argv });
	assert_true(drive_until(&d, &d.closed));
	assert_false(r->ended);
	assert_true(got_is(drive_sh(&fine, "echo fine"), 0, "fine\n", ""));
	drive_done(&d);
	drive_done(&fine);
	assert_true(own_destroy(id));
	assert_true(own_destroy(other));
}

/* Whether there is a template in the folder, and none that is being made. */
bool own_stored(void)
{
	auto_free char *folder = xasprintf("%s/templates", own.host.data);
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
	auto_free char *folder = xasprintf("%s/templates", own.host.data);
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

	drive_init(&d, &own.loop);
	for (size_t i = 0; i < ARRAY_LEN(harms); i++) {
		char id[37];
		random_uuid(id);
		assert_true(own_create(id));
		assert_true(own_destroy(id));
		while (!own_stored())
			drive_for(&d, 100);
		vm_host_close(&own.host, own.b);
		damage(harms[i].name, harms[i].how);
		own_open_boundary();
	}
	char id[37];
	random_uuid(id);
	assert_true(own_create(id));
	assert_true(own_destroy(id));
}

/* A stopped sandbox starts with what is on its disk, whatever has become of its template; a new one cannot be had then, and that is said. */
static void a_start_needs_no_template(void **state)
{
	(void)state;
	char id[37], other[37], name[64];
	struct drive d;
	struct outcome o = { 0 };
	auto_free char *folder = xasprintf("%s/templates", own.host.data), *aside = xasprintf("%s/templates.aside", own.host.data);

	random_uuid(id), random_uuid(other);
	lasting = true;
	assert_true(own_create(id));
	own_connect_to(&d, id);
	assert_true(got_is(drive_sh(&d, "echo kept > /root/file"), 0, "", ""));
	drive_done(&d);
	own.b->ops->stop(own.b, id, own_on_done, &o);
	assert_true(own_finished(&o));
	drive_init(&d, &own.loop);
	while (!own_stored())
		drive_for(&d, 100);
	vm_host_close(&own.host, own.b);
	assert_int_equal(rename(folder, aside), 0);
	auto_fd int in_its_place = open(folder, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(in_its_place >= 0);
	own_open_boundary();
	struct boundary_spec s = spec_of(id, name);
	o = (struct outcome){ 0 };
	own.b->ops->start(own.b, &s, own_on_done, &o);
	assert_true(own_finished(&o));
	own_connect_to(&d, id);
	assert_true(got_is(drive_sh(&d, "cat /root/file"), 0, "kept\n", ""));
	drive_done(&d);
	struct boundary_spec new = spec_of(other, name);
	o = (struct outcome){ 0 };
	own.b->ops->create(own.b, &new, own_on_done, &o);
	assert_false(own_finished(&o));
	assert_int_equal(o.e.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(o.e.message, "templates"));
	/* and when it can be made again, it is */
	assert_int_equal(unlink(folder), 0);
	assert_int_equal(rename(aside, folder), 0);
	assert_true(own_create(other));
	lasting = false;
	assert_true(own_destroy(other));
	assert_true(own_destroy(id));
}

/* The names of the templates that are stored. */
static size_t count_templates(const char *but)
{
	auto_free char *folder = xasprintf("%s/templates", own.host.data);
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
	auto_free char *folder = xasprintf("%s/templates", own.host.data);
	DIR *d = opendir(folder);

	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d));)
		if (strlen(e->d_name) == TEMPLATE_NAME)
			snprintf(ret, TEMPLATE_NAME + 1, "%s", e->d_name);
	closedir(d);
}

/* The daemon was killed when a machine's process was there and not written down yet: no later one can find it, and with its folder it goes. */
static void one_that_was_not_written_down_goes_too(void **state)
{
	(void)state;
	char id[37];
	pid_t pid;

	random_uuid(id);
	assert_true(own_create(id));
	auto_free char *folder = xasprintf("%s/%s", own.host.data, id);
	auto_fd int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_free char *record = vmdir_read(dir, "vmm");
	assert_non_null(record);
	auto_fd int pidfd = vmm_find(record, &pid);
	assert_true(pidfd >= 0);
	vm_host_close(&own.host, own.b);
	assert_int_equal(unlinkat(dir, "vmm", 0), 0);
	own_open_boundary();
	assert_false(process_ended(pidfd));
	assert_true(own_destroy(id));
	assert_true(process_ended(pidfd));
	assert_int_equal(faccessat(AT_FDCWD, folder, F_OK, 0), -1);
}

/* Which one is being made. */
static bool being_made(char ret[static TEMPLATE_NAME + 1])
{
	auto_free char *folder = xasprintf("%s/templates", own.host.data);
	DIR *d = opendir(folder);
	bool found = false;

	for (const struct dirent *e; d && (e = readdir(d));)
		if (strncmp(e->d_name, ".new-", 5) == 0) {
			snprintf(ret, TEMPLATE_NAME + 1, "%s", e->d_name + 5);
			found = true;
		}
	if (d)
		closedir(d);
	return found;
}

static void replace_kernel(void)
{
	assert_int_equal(utimensat(AT_FDCWD, own.host.options.kernel, NULL, 0), 0);
}

/* The kernel is replaced: another template is made of it, and nobody has to ask for that. It is replaced again while that one is made, which then is
 * nobody's: who waits for it gets a copy of the next. What runs stays as it is. */
static void a_changed_kernel_makes_another_template(void **state)
{
	(void)state;
	char runs[37], id[37], was[TEMPLATE_NAME + 1] = "", second[TEMPLATE_NAME + 1] = "", last[TEMPLATE_NAME + 1] = "";
	struct drive d;

	look_every(1000);
	random_uuid(runs);
	assert_true(own_create(runs));
	drive_init(&d, &own.loop);
	while (!own_stored())
		drive_for(&d, 100);
	first_template(was);
	own_connect_to(&d, runs);
	assert_true(got_is(drive_sh(&d, "echo kept > /root/file"), 0, "", ""));
	drive_done(&d);
	drive_init(&d, &own.loop);
	replace_kernel();
	for (int i = 0; i < 3000 && !being_made(second); i++)
		drive_for(&d, 100);
	assert_true(*second && !streq(second, was));
	replace_kernel();
	random_uuid(id);
	assert_true(own_create(id));
	for (int i = 0; i < 3000 && (!own_stored() || count_templates("") != 1); i++)
		drive_for(&d, 100);
	assert_int_equal(count_templates(""), 1);
	first_template(last);
	assert_true(!streq(last, was) && !streq(last, second));
	own_connect_to(&d, runs);
	assert_true(got_is(drive_sh(&d, "cat /root/file"), 0, "kept\n", ""));
	drive_done(&d);
	assert_true(own_destroy(id));
	assert_true(own_destroy(runs));
}

/* One that a test may change. */
static char *own_kernel(void)
{
	auto_fd int original = open(own.host.options.kernel, O_RDONLY | O_CLOEXEC);
	char *path = xstrdup("/tmp/caisson-kernel-XXXXXX");
	auto_fd int to = mkostemp(path, O_CLOEXEC);

	struct stat st;

	assert_true(original >= 0 && fstat(original, &st) == 0 && to >= 0 && fchmod(to, 0644) == 0); /* QEMU is another user */
	for (off_t at = 0; at < st.st_size;)
		assert_true(sendfile(to, original, &at, (size_t)(st.st_size - at)) > 0); /* also from one file system to another */
	own.host.options.kernel = path;
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
	own_open_boundary();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	struct drive d;

	drive_init(&d, &own.loop);
	vm_host_close(&own.host, own.b);
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
		cmocka_unit_test(one_that_was_not_written_down_goes_too),
		cmocka_unit_test(a_changed_kernel_makes_another_template),
	};
	int rc = vm_host_init(&own.host);

	if (rc != 0)
		return rc;
	auto_free char *kernel = own_kernel();
	drive_patience = 10;
	raise_files();
	uv_loop_init(&own.loop);
	const char *only = getenv("CONTRACT_ONLY");
	if (only)
		cmocka_set_test_filter(only);
	rc = cmocka_run_group_tests_name("vm, its own", tests, set_up, tear_down);
	drive_close(&own.loop);
	(void)unlink(kernel);
	return vm_host_done(&own.host) ? rc : 1;
}
