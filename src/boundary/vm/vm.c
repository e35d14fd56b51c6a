#include "boundary/vm/vm.h"

#include "boundary/vm/ask.h"
#include "boundary/vm/monitor.h"
#include "boundary/vm/place.h"
#include "boundary/vm/vmm.h"
#include "sys/process.h"
#include "wire/guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <uthash.h>

/* Theory of operation. A machine is in the table from the call that begins it until its process has ended and nobody waits.
 *
 *   MAKING (mke2fs runs) -> LAUNCHING -> BOOTING (QEMU runs; SETUP is asked) -> RUNNING <-> the monitor's stop and cont
 *                                                                     | stop: SYNC is asked, its disk is kept
 *   any ------------------------------------------------------------> ENDING (killed) -> out of the table
 *
 * QEMU's serial port takes one connection at a time, and the next when that one closes; since the newest has to win, we keep a copy of
 * what was handed out last and shut that down. What the guest has sent into the old one and was not acknowledged comes again. */

enum { BOOT_MS = 120000, SYNC_MS = 10000 };
enum state { MAKING, LAUNCHING, BOOTING, RUNNING, SYNCING, ENDING };

struct waiting {
	boundary_done_fn done;
	void *ctx;
};

struct vm {
	struct boundary base;
	uv_loop_t *loop;
	struct vm_options o; /* strings ours */
	int initrd;
	uint64_t tsc_khz;
	struct machine *machines;
};

struct machine {
	struct vm *vm;
	UT_hash_handle hh;
	char id[40];
	enum state state;
	int dir, pidfd;
	pid_t pid;
	uv_poll_t poll;
	uv_process_t mkfs;
	unsigned handles;
	struct monitor *monitor;
	struct ask *ask;
	int client;               /* a copy of what open_guest gave last */
	struct waiting start, stop;
	bool remove, ephemeral;
	bool launching;           /* the launcher owes an answer */
	struct err why;           /* of a start that has failed; kind 0 = QEMU has ended by itself */
	struct guest_setup setup; /* strings ours */
	struct resources resources;
	char *image;              /* its digest */
};

static struct vm *of(struct boundary *b)
{
	return container_of(b, struct vm, base);
}

static struct machine *find(const struct vm *v, const char *id)
{
	struct machine *m;

	HASH_FIND_STR(v->machines, id, m);
	return m;
}

static void tell(struct waiting *w, const struct err *e)
{
	struct waiting was = *w;

	*w = (struct waiting){ 0 };
	if (was.done)
		was.done(was.ctx, e);
}

/* --- a machine's life --- */

static struct machine *new_machine(struct vm *v, const char *id, int dir)
{
	struct machine *m = xcalloc(1, sizeof *m);

	m->vm = v;
	m->dir = dir;
	m->pidfd = m->client = -EBADF;
	m->poll.data = m->mkfs.data = m;
	snprintf(m->id, sizeof m->id, "%s", id);
	HASH_ADD_STR(v->machines, id, m);
	return m;
}

static void free_machine(struct machine *m)
{
	for (size_t i = 0; i < m->setup.envc; i++)
		free((void *)(uintptr_t)m->setup.env[i]);
	free((void *)(uintptr_t)m->setup.env);
	free((void *)(uintptr_t)m->setup.hostname);
	free((void *)(uintptr_t)m->setup.machine_id);
	free((void *)(uintptr_t)m->setup.user);
	free((void *)(uintptr_t)m->setup.workdir);
	free(m->image);
	close_fd(m->dir);
	close_fd(m->pidfd);
	free(m);
}

static void on_closed(uv_handle_t *h)
{
	struct machine *m = h->data;

	if (--m->handles == 0)
		free_machine(m);
}

static void let_go(struct machine *m)
{
	if (m->client >= 0)
		(void)shutdown(m->client, SHUT_RDWR);
	m->client = close_fd(m->client);
	ask_free(take_ptr(&m->ask));
	monitor_free(take_ptr(&m->monitor));
}

/* Out of the table; its memory goes when the loop has let go of its handles. */
static void forget(struct machine *m)
{
	HASH_DEL(m->vm->machines, m);
	let_go(m);
	m->handles = 1; /* ours, so that closing one handle at once does not free it under us */
	if (m->pidfd >= 0) {
		m->handles++;
		uv_close((uv_handle_t *)&m->poll, on_closed);
	}
	if (m->mkfs.loop) {
		m->handles++;
		uv_close((uv_handle_t *)&m->mkfs, on_closed);
	}
	if (--m->handles == 0)
		free_machine(m);
}

/* Nothing runs any more: everybody who waits is told. `why`: what a start that has not succeeded failed by. */
static void finish(struct machine *m, const struct err *why)
{
	struct vm *v = m->vm;
	struct waiting start = m->start, stop = m->stop;
	bool remove = m->remove || m->ephemeral, ended_by_itself = !start.done && !stop.done;
	char id[40];
	struct err e;

	memcpy(id, m->id, sizeof id);
	(void)unlinkat(m->dir, "vmm", 0);
	forget(m);
	int r = remove ? place_remove(v->o.data, id, &e) : 0;
	tell(&start, why);
	tell(&stop, r < 0 ? &e : NULL);
	if (ended_by_itself && v->base.on_exit) {
		struct boundary_exit x = { 0 };
		snprintf(x.reason, sizeof x.reason, "%.199s", why->message);
		v->base.on_exit(v->base.on_exit_ctx, id, &x);
	}
}

static void finish_with(struct machine *m, enum err_kind kind, int errnum, const char *what)
{
	struct err e;

	(void)err_set(&e, kind, errnum, "%s", what);
	finish(m, &e);
}

static void kill_it(struct machine *m)
{
	m->state = ENDING;
	let_go(m);
	if (m->pidfd >= 0)
		m->vm->o.launcher->kill(m->vm->o.launcher, m->id, m->pidfd);
	else if (m->mkfs.loop && !m->launching)
		(void)uv_process_kill(&m->mkfs, SIGKILL);
}

static void on_ended(uv_poll_t *h, int status, int events)
{
	struct machine *m = h->data;
	auto_free char *log = place_read(m->dir, "log");
	struct err e = m->why;

	(void)status;
	(void)events;
	uv_poll_stop(h);
	process_reap(m->pidfd);
	if (!e.kind && log && log[0])
		(void)err_set(&e, ERR_UNAVAILABLE, EIO, "the virtual machine has ended: %s",
			      str_quote((struct str){ log, strcspn(log, "\n") }, &(struct quoted){ 0 }));
	else if (!e.kind)
		(void)err_set(&e, ERR_UNAVAILABLE, EIO, "the virtual machine has ended");
	finish(m, &e);
}

static int watch(struct machine *m, pid_t pid, int pidfd)
{
	m->pid = pid;
	m->pidfd = pidfd;
	int r = uv_poll_init(m->vm->loop, &m->poll, pidfd);
	if (r == 0)
		uv_poll_start(&m->poll, UV_READABLE, on_ended);
	int fd = place_connect(m->dir, "qmp");
	if (fd >= 0)
		m->monitor = monitor_new(m->vm->loop, fd, NULL, NULL);
	return r;
}

/* --- start --- */

/* QEMU is there and of no use: its end tells whoever waits for the start. Returns what is going to be said. */
static struct err *give_up(struct machine *m, const struct err *why)
{
	m->why = *why;
	kill_it(m);
	return &m->why;
}

static void put_setup(void *ctx, struct buf *to)
{
	struct machine *m = ctx;
	char seed[64];
	struct timespec now;

	random_bytes(seed, sizeof seed);
	clock_gettime(CLOCK_REALTIME, &now);
	m->setup.seed = (struct str){ seed, sizeof seed };
	m->setup.time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	(void)guest_setup_put(to, ASK_ID, &m->setup);
	m->setup.seed = (struct str){ NULL, 0 };
	explicit_bzero(seed, sizeof seed);
}

static void on_setup(void *ctx, const struct err *e)
{
	struct machine *m = ctx;

	m->ask = NULL;
	if (e) {
		err_prefix(give_up(m, e), "the virtual machine did not become ready");
		return;
	}
	m->remove = false; /* of a create: from now on there is something to keep */
	m->state = RUNNING;
	tell(&m->start, NULL);
}

static void on_launched(void *ctx, const struct err *why, pid_t pid, int pidfd)
{
	struct machine *m = ctx;
	struct err e;

	m->launching = false;
	if (why) {
		finish(m, m->state == ENDING && m->why.kind ? &m->why : why);
		return;
	}
	bool ending = m->state == ENDING;
	auto_free char *record = vmm_record(pid);
	(void)watch(m, pid, pidfd);
	if (ending) {
		kill_it(m);
		return;
	}
	if (!record || place_write(m->dir, "vmm", record) < 0) {
		(void)err_set(&e, ERR_UNAVAILABLE, EIO, "write down the virtual machine's process");
		(void)give_up(m, &e);
		return;
	}
	int fd = place_connect(m->dir, "guest");
	if (fd < 0) {
		(void)err_sys(&e, ERR_UNAVAILABLE, -fd, "connect to the virtual machine's serial port");
		(void)give_up(m, &e);
		return;
	}
	m->state = BOOTING;
	m->ask = ask_new(m->vm->loop, fd, put_setup, GUEST_SETUP_DONE, BOOT_MS, on_setup, m);
}

static void launch_with(struct machine *m, const int fds[static VMM_FDS], int log)
{
	const struct vm *v = m->vm;
	struct launch l = { .id = m->id, .image = m->image, .log = log,
			    .plan = { .begin = VMM_BOOT, .ram = VMM_RAM_OWN, .kvm = v->o.kvm, .keep_disk = !m->ephemeral, .tsc_khz = v->tsc_khz,
				      .cpu_millis = (uint64_t)ceil(m->resources.cpus * 1000), .memory_mib = m->resources.memory_mib } };

	memcpy(l.fds, fds, sizeof l.fds);
	m->launching = true;
	m->state = LAUNCHING;
	v->o.launcher->start(v->o.launcher, &l, on_launched, m);
}

/* Fails only while there is no QEMU yet. */
static int launch(struct machine *m, struct err *e)
{
	auto_fd int kernel = open(m->vm->o.kernel, O_RDONLY | O_CLOEXEC);
	auto_fd int disk = openat(m->dir, "disk", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	auto_fd int log = openat(m->dir, "log", O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	auto_fd int guest = place_listen(m->dir, "guest");
	auto_fd int qmp = place_listen(m->dir, "qmp");

	if (kernel < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "open the kernel %s", m->vm->o.kernel);
	if (disk < 0 || log < 0 || guest < 0 || qmp < 0)
		return err_set(e, ERR_UNAVAILABLE, EIO, "open the sandbox's disk, log or sockets");
	launch_with(m, (const int[VMM_FDS]){ -EBADF, disk, guest, qmp, -EBADF, m->vm->initrd, kernel }, log);
	return 0;
}

static void on_disk_made(uv_process_t *p, int64_t status, int signal)
{
	struct machine *m = p->data;
	struct err e;

	if (m->state == ENDING)
		finish_with(m, ERR_UNAVAILABLE, ECANCELED, "stopped while it was being made");
	else if (status != 0 || signal != 0)
		finish_with(m, ERR_UNAVAILABLE, EIO, "mke2fs could not make the sandbox's disk");
	else if (launch(m, &e) < 0)
		finish(m, &e);
}

static int make_disk(struct machine *m, struct err *e)
{
	auto_free char *path = xasprintf("%s/%s/disk", m->vm->o.data, m->id);
	const char *kept[] = { "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-i", "16384", "-J", "size=4", "-E", "lazy_itable_init=1,nodiscard", path, NULL };
	const char *brief[] = { "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-i", "16384", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard",
				path, NULL };
	char path_env[] = "PATH=/usr/sbin:/sbin:/usr/bin:/bin";
	char *env[] = { path_env, NULL };
	uv_process_options_t o = { .exit_cb = on_disk_made,
				   .file = "mke2fs",
				   .args = (char **)(uintptr_t)(m->ephemeral ? brief : kept),
				   .env = env };
	int r = place_make_disk(m->dir, m->resources.disk_mib, e);

	if (r < 0)
		return r;
	r = uv_spawn(m->vm->loop, &m->mkfs, &o);
	return r < 0 ? err_sys(e, ERR_UNAVAILABLE, -r, "run mke2fs (package e2fsprogs)") : 0;
}

static void take_spec(struct machine *m, const struct boundary_spec *s)
{
	struct guest_setup *to = &m->setup;
	char machine[33];
	size_t n = 0;

	for (const char *p = s->id; *p && n < 32; p++)
		if (*p != '-')
			machine[n++] = *p;
	machine[n] = '\0';
	to->hostname = xstrdup(s->hostname);
	to->machine_id = xstrdup(machine); /* it stays the same over stop and start */
	to->user = xstrdup(s->user);
	to->workdir = xstrdup(s->workdir);
	to->pids = s->resources.pids;
	to->env = xcalloc((s->env ? s->env->n : 0) + 1, sizeof *to->env);
	for (size_t i = 0; s->env && i < s->env->n; i++)
		to->env[to->envc++] = xasprintf("%s=%s", s->env->v[i].key, s->env->v[i].value);
	m->resources = s->resources;
	m->ephemeral = s->ephemeral;
	m->image = xstrdup(s->image_digest);
}

static int write_limits(const struct machine *m)
{
	char text[120];

	snprintf(text, sizeof text, "%llu %llu %llu %llu", (unsigned long long)m->resources.memory_mib,
		 (unsigned long long)(m->resources.cpus * 1000 + 0.5), (unsigned long long)m->resources.disk_mib,
		 (unsigned long long)m->resources.pids);
	int r = place_write(m->dir, "limits", text);
	return r == 0 && m->ephemeral ? place_write(m->dir, "ephemeral", "") : r;
}

static int check_spec(const struct boundary_spec *s, struct err *e)
{
	const char *hex = strncmp(s->image_digest, "sha256:", 7) == 0 ? s->image_digest + 7 : "";

	if (!place_id_valid(s->id) || strlen(hex) != 64 || strspn(hex, "0123456789abcdef") != 64)
		return err_set(e, ERR_INVALID, EINVAL, "not a sandbox id, or not an image's digest");
	if (s->resources.memory_mib < 128)
		return err_set(e, ERR_UNSUPPORTED, EINVAL, "a virtual machine needs 128 MiB of memory");
	return 0;
}

static int create(struct vm *v, const struct boundary_spec *s, boundary_done_fn done, void *ctx, struct err *e)
{
	int r = check_spec(s, e);

	if (r == 0)
		r = place_make(v->o.data, s->id, e);
	if (r < 0)
		return r;
	int dir = place_open(v->o.data, s->id);
	if (dir < 0)
		return err_sys(e, ERR_UNAVAILABLE, -dir, "open the sandbox's folder");
	struct machine *m = new_machine(v, s->id, dir);
	take_spec(m, s);
	m->remove = true; /* until it has answered, failing leaves nothing */
	r = write_limits(m);
	r = r < 0 ? err_sys(e, ERR_UNAVAILABLE, -r, "write down the sandbox's limits") : make_disk(m, e);
	if (r < 0) {
		forget(m);
		(void)place_remove(v->o.data, s->id, NULL);
		return r;
	}
	m->start = (struct waiting){ done, ctx };
	return 0;
}

static void vm_create(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx)
{
	struct err e;

	if (create(of(b), spec, done, ctx, &e) < 0)
		done(ctx, &e);
}

static int start(struct vm *v, const struct boundary_spec *s, boundary_done_fn done, void *ctx, struct err *e)
{
	int r = check_spec(s, e);

	if (r < 0)
		return r;
	if (find(v, s->id))
		return err_set(e, ERR_CONFLICT, EBUSY, "the sandbox is started already, or being stopped");
	int dir = place_open(v->o.data, s->id);
	if (dir < 0)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "there is no such sandbox");
	struct machine *m = new_machine(v, s->id, dir);
	take_spec(m, s);
	m->start = (struct waiting){ done, ctx };
	r = launch(m, e); /* may have told its end already */
	if (r < 0)
		forget(m);
	return r;
}

static void vm_start(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx)
{
	struct err e;

	if (start(of(b), spec, done, ctx, &e) < 0)
		done(ctx, &e);
}

/* --- stop --- */

static void put_sync(void *ctx, struct buf *to)
{
	(void)ctx;
	(void)guest_op_request_put(to, ASK_ID, &(struct guest_op_request){ .kind = GUEST_SYNC, .user = "0:0" });
}

static void on_synced(void *ctx, const struct err *e)
{
	struct machine *m = ctx;

	(void)e; /* a guest that can't is stopped all the same: its disk is then as after a power cut, and has a journal */
	m->ask = NULL;
	kill_it(m);
}

static void begin_stop(struct machine *m)
{
	if (m->state != RUNNING || m->remove || m->ephemeral) {
		kill_it(m);
		return;
	}
	let_go(m);
	int fd = place_connect(m->dir, "guest");
	if (fd < 0) {
		kill_it(m);
		return;
	}
	m->state = SYNCING;
	m->ask = ask_new(m->vm->loop, fd, put_sync, GUEST_OP_END, SYNC_MS, on_synced, m);
}

static int adopt(struct vm *v, const char *id);

static bool is_ephemeral(const struct vm *v, const char *id)
{
	auto_fd int dir = place_open(v->o.data, id);

	return dir >= 0 && faccessat(dir, "ephemeral", F_OK, 0) == 0;
}

static void stop(struct boundary *b, const char *id, bool remove, boundary_done_fn done, void *ctx)
{
	struct vm *v = of(b);
	struct err e;

	if (!place_id_valid(id)) {
		(void)err_set(&e, ERR_INVALID, EINVAL, "not a sandbox id");
		done(ctx, &e);
		return;
	}
	if (!find(v, id))
		(void)adopt(v, id); /* one that a former daemon has left running */
	struct machine *m = find(v, id);
	if (!m) {
		bool gone = remove || is_ephemeral(v, id);
		done(ctx, gone && place_remove(v->o.data, id, &e) < 0 ? &e : NULL);
		return;
	}
	if (m->stop.done) {
		(void)err_set(&e, ERR_CONFLICT, EBUSY, "the sandbox is being stopped already");
		done(ctx, &e);
		return;
	}
	m->stop = (struct waiting){ done, ctx };
	m->remove |= remove;
	if (m->state != ENDING)
		begin_stop(m);
}

static void vm_stop(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	stop(b, id, false, done, ctx);
}

static void vm_destroy(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	stop(b, id, true, done, ctx);
}

/* --- the rest of the interface --- */

static int adopt(struct vm *v, const char *id)
{
	auto_fd int dir = place_open(v->o.data, id);
	auto_free char *record = dir < 0 ? NULL : place_read(dir, "vmm");
	auto_free char *limits = dir < 0 ? NULL : place_read(dir, "limits");
	unsigned long long memory = 0, millis = 0, disk = 0, pids = 0;
	pid_t pid;
	int pidfd = record ? vmm_find(record, &pid) : -ESRCH;

	if (pidfd < 0)
		return pidfd;
	if (limits)
		(void)sscanf(limits, "%llu %llu %llu %llu", &memory, &millis, &disk, &pids);
	struct machine *m = new_machine(v, id, take_fd(&dir));
	m->state = RUNNING;
	m->ephemeral = is_ephemeral(v, id);
	m->resources = (struct resources){ .memory_mib = memory, .cpus = (double)millis / 1000, .disk_mib = disk, .pids = pids };
	(void)watch(m, pid, pidfd);
	return 0;
}

static void vm_list(struct boundary *b, boundary_list_fn done, void *ctx)
{
	struct vm *v = of(b);
	const char **ids = NULL;
	bool *started = NULL;
	size_t n = 0;
	DIR *d = opendir(v->o.data);

	for (struct dirent *entry; d && (entry = readdir(d));) {
		if (!place_id_valid(entry->d_name))
			continue;
		if (!find(v, entry->d_name))
			(void)adopt(v, entry->d_name);
		ids = xreallocarray(ids, n + 1, sizeof *ids);
		started = xreallocarray(started, n + 1, sizeof *started);
		ids[n] = xstrdup(entry->d_name);
		started[n++] = find(v, entry->d_name) != NULL;
	}
	if (d)
		closedir(d);
	done(ctx, NULL, ids, started, n);
	for (size_t i = 0; i < n; i++)
		free((void *)(uintptr_t)ids[i]);
	free(ids);
	free(started);
}

static struct machine *running(struct vm *v, const char *id, struct err *e)
{
	struct machine *m = find(v, id);

	if (m && m->state == RUNNING)
		return m;
	(void)err_set(e, ERR_NOT_FOUND, ESRCH, "the sandbox is not started");
	return NULL;
}

static void on_told(void *ctx, const struct err *e, const json_t *result)
{
	struct waiting *w = ctx;

	(void)result;
	tell(w, e);
	free(w);
}

static void command(struct boundary *b, const char *id, const char *name, boundary_done_fn done, void *ctx)
{
	struct err e;
	struct machine *m = running(of(b), id, &e);

	if (m && !m->monitor) {
		(void)err_set(&e, ERR_UNAVAILABLE, ENOTCONN, "there is no connection to QEMU's monitor");
		m = NULL;
	}
	if (!m) {
		done(ctx, &e);
		return;
	}
	struct waiting *w = xcalloc(1, sizeof *w);
	*w = (struct waiting){ done, ctx };
	monitor_call(m->monitor, name, NULL, -EBADF, on_told, w);
}

static void vm_pause(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	command(b, id, "stop", done, ctx);
}

static void vm_resume(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	command(b, id, "cont", done, ctx);
}

/* Fields 14 and 15 of /proc/PID/stat, ticks, behind a name that may hold anything. */
static uint64_t cpu_usec(pid_t pid)
{
	char path[32], text[1024];
	unsigned long long user = 0, system = 0;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	text[MAX(n, (ssize_t)0)] = '\0';
	const char *at = strrchr(text, ')');
	if (!at || sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
		return 0;
	return (user + system) * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
}

static uint64_t resident_bytes(pid_t pid)
{
	char path[32], text[128];
	unsigned long long pages = 0;

	snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	text[MAX(n, (ssize_t)0)] = '\0';
	return sscanf(text, "%*u %llu", &pages) == 1 ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static void vm_usage(struct boundary *b, const char *id, boundary_usage_fn done, void *ctx)
{
	struct err e;
	struct machine *m = running(of(b), id, &e);
	struct stat st;

	if (!m) {
		done(ctx, &e, NULL);
		return;
	}
	struct usage u = {
		.memory_bytes = resident_bytes(m->pid),
		.memory_limit_bytes = m->resources.memory_mib << 20,
		.cpu_usec = cpu_usec(m->pid),
		.cpu_limit = m->resources.cpus,
		.pids = 1, /* the guest itself; it does not say how many others there are */
		.pids_limit = m->resources.pids,
		.disk_limit_bytes = m->resources.disk_mib << 20,
		.inodes_limit = (m->resources.disk_mib << 20) / 16384,
	};
	if (fstatat(m->dir, "disk", &st, 0) == 0)
		u.disk_bytes = (uint64_t)st.st_blocks * 512;
	done(ctx, NULL, &u);
}

static int vm_open_guest(struct boundary *b, const char *id, struct err *e)
{
	struct machine *m = running(of(b), id, e);

	if (!m)
		return -ESRCH;
	if (m->client >= 0)
		(void)shutdown(m->client, SHUT_RDWR);
	m->client = close_fd(m->client);
	auto_fd int fd = place_connect(m->dir, "guest");
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, -fd, "connect to the guest of sandbox %s", id);
	/* who gets this sees a socket and does not know that a serial line is behind it; it takes these whole, being empty */
	if (send(fd, ask_zeros, sizeof ask_zeros, MSG_NOSIGNAL) != (ssize_t)sizeof ask_zeros)
		return err_sys(e, ERR_UNAVAILABLE, errno, "write to the guest of sandbox %s", id);
	m->client = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return take_fd(&fd);
}

/* --- the boundary itself --- */

static void free_vm(struct vm *v)
{
	free((void *)(uintptr_t)v->o.data);
	free((void *)(uintptr_t)v->o.kernel);
	close_fd(v->initrd);
	free(v);
}

static void vm_free(struct boundary *b)
{
	struct vm *v = of(b);
	struct machine *m, *next;
	struct err e;

	(void)err_set(&e, ERR_UNAVAILABLE, ECANCELED, "the boundary is being closed");
	/* one that nobody will ever set up is of no use to a later daemon */
	HASH_ITER(hh, v->machines, m, next) {
		if (m->state == BOOTING)
			v->o.launcher->kill(v->o.launcher, m->id, m->pidfd);
	}
	v->o.launcher->free(v->o.launcher); /* finishes those that are being launched */
	HASH_ITER(hh, v->machines, m, next) {
		struct waiting start = m->start, stop = m->stop;
		forget(m);
		tell(&start, &e);
		tell(&stop, &e);
	}
	free_vm(v);
}

/* Ticks of the processor's clock in a millisecond. What /proc/cpuinfo says is how fast it runs at the moment, which is something else. */
static uint64_t measure_tsc_khz(void)
{
#ifdef __x86_64__
	uint64_t began = now_us(), ticks = __builtin_ia32_rdtsc();

	usleep(20000);
	ticks = __builtin_ia32_rdtsc() - ticks;
	uint64_t us = now_us() - began;
	return us ? ticks * 1000 / us : 0;
#else
	return 0;
#endif
}

struct boundary *vm_boundary_new(uv_loop_t *loop, const struct vm_options *o, struct err *e)
{
	static const struct boundary_ops ops = {
		.name = "vm",
		.caps = BOUNDARY_CAN_PAUSE | BOUNDARY_STRONG,
		.list = vm_list,
		.create = vm_create,
		.start = vm_start,
		.stop = vm_stop,
		.destroy = vm_destroy,
		.pause = vm_pause,
		.resume = vm_resume,
		.usage = vm_usage,
		.open_guest = vm_open_guest,
		.free = vm_free,
	};
	int initrd = place_initrd(o->modules, (struct str){ o->guest, o->guest_len }, e);
	if (initrd < 0)
		return NULL;
	struct vm *v = xcalloc(1, sizeof *v);
	v->base.ops = &ops;
	v->loop = loop;
	v->o = *o;
	v->o.data = xstrdup(o->data);
	v->o.kernel = xstrdup(o->kernel);
	v->o.modules = NULL;
	v->o.guest = NULL;
	v->initrd = initrd;
	v->tsc_khz = measure_tsc_khz();
	return &v->base;
}
