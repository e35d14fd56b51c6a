#include "base/log.h"
#include "boundary/vm/ask.h"
#include "boundary/vm/memory.h"
#include "boundary/vm/offload.h"
#include "boundary/vm/snapshot.h"
#include "boundary/vm/vmdir.h"
#include "boundary/vm/vm_int.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Theory of operation. A machine is in the table from the call that begins it until its process has ended and nobody waits.
 *
 *   create: WAITING (for the template) -> LAUNCHING -> BOOTING (it is restored, and asked SETUP) -> RUNNING
 *   start:                                LAUNCHING -> BOOTING (it boots, and is asked SETUP)    -> RUNNING
 *   wake:                                 LAUNCHING -> BOOTING (its memory is read, and it is asked SETUP) -> RUNNING
 *   suspend: RUNNING (held by a taking, snapshot.c) -> ENDING (killed) -> out of the table
 *   stop:    RUNNING -> SYNCING (its disk is kept) -> ENDING (killed) -> out of the table
 *   destroy: any -> ENDING -> out of the table
 *
 * The guest answers SETUP when it has its own randomness, clock and names; nobody else has spoken to it by then.
 *
 * QEMU's serial port takes one connection at a time, and the next when that one closes; since the newest has to win, we keep a copy of
 * what was handed out last and shut that down. What the guest has sent into the old one and was not acknowledged comes again. */

enum { BOOT_MS = 120000, RESTORE_MS = 60000, SYNC_MS = 10000 };

struct machine *machine_find(const struct vm *v, const char *id)
{
	struct machine *m;

	HASH_FIND_STR(v->machines, id, m);
	return m;
}

void machine_tell(struct waiting *w, const struct err *e)
{
	struct waiting was = *w;

	*w = (struct waiting){ 0 };
	if (was.done)
		was.done(was.ctx, e);
}

struct machine *machine_new(struct vm *v, const char *id, int dir)
{
	struct machine *m = xcalloc(1, sizeof *m);

	m->vm = v;
	m->dir = dir;
	m->client = m->state_fd = m->ram_fd = -EBADF;
	snprintf(m->id, sizeof m->id, "%s", id);
	struct machine *before = machine_find(v, id);
	if (before)
		before->next = m;
	else
		HASH_ADD_STR(v->machines, id, m);
	return m;
}

void machine_close_client(struct machine *m)
{
	if (m->client >= 0)
		(void)shutdown(m->client, SHUT_RDWR);
	m->client = close_fd(m->client);
}

static void let_go(struct machine *m)
{
	machine_close_client(m);
	ask_free(take_ptr(&m->ask));
	if (m->state == MACHINE_WAITING)
		templates_cancel(m->vm->templates, m);
	offload_cancel(take_ptr(&m->copy));
	vm_snapshot_machine_gone(m);
}

static void machine_free(struct machine *m)
{
	if (m->next) {
		struct err e;
		(void)err_set(&e, ERR_UNAVAILABLE, ECANCELED, "the boundary is being closed");
		machine_tell(&m->next->start, &e);
		machine_free(m->next);
	}
	let_go(m);
	qemu_free(take_ptr(&m->qemu));
	for (size_t i = 0; i < m->setup.envc; i++)
		free((void *)(uintptr_t)m->setup.env[i]);
	free((void *)(uintptr_t)m->setup.env);
	free((void *)(uintptr_t)m->setup.hostname);
	free((void *)(uintptr_t)m->setup.machine_id);
	free((void *)(uintptr_t)m->setup.user);
	free((void *)(uintptr_t)m->setup.workdir);
	free(m->image);
	volume_mounts_done(&m->volumes);
	close_fd(m->state_fd);
	close_fd(m->ram_fd);
	close_fd(m->dir);
	free(m);
}

void machine_forget(struct machine *m)
{
	HASH_DEL(m->vm->machines, m);
	machine_free(m);
}

/* Nothing runs any more: everybody who waits is told. `why`: what a start that has not succeeded failed by. */
static void finish(struct machine *m, const struct err *why)
{
	struct vm *v = m->vm;
	struct waiting start = m->start, stop = m->stop, destroy = m->destroy;
	struct machine *next = take_ptr(&m->next);
	bool remove = m->remove || m->ephemeral, ended_by_itself = !start.done && !stop.done && !destroy.done && !m->unfinished;
	char id[40];
	struct err e, copy = *why;

	memcpy(id, m->id, sizeof id);
	machine_forget(m);
	int r = remove ? vmdir_remove(v->data, id, &e) : 0;
	machine_tell(&start, &copy);
	machine_tell(&stop, r < 0 ? &e : NULL);
	machine_tell(&destroy, r < 0 ? &e : NULL);
	if (next && remove) {
		machine_tell(&next->start, why);
		machine_free(next);
	} else if (next) {
		HASH_ADD_STR(v->machines, id, next);
		machine_begin(next);
	}
	if (ended_by_itself && v->base.on_exit) {
		struct boundary_exit x = { .oom = copy.kind == ERR_LIMIT && copy.errnum == ENOMEM };
		snprintf(x.reason, sizeof x.reason, "%.199s", copy.message);
		v->base.on_exit(v->base.on_exit_ctx, id, &x);
	}
}

static void end(struct machine *m)
{
	struct err e;

	let_go(m);
	m->state = MACHINE_ENDING;
	if (!m->why.kind)
		(void)err_set(&m->why, ERR_UNAVAILABLE, ECANCELED, "stopped while it was being made");
	if (m->qemu) {
		qemu_kill(m->qemu);
		return;
	}
	e = m->why;
	finish(m, &e);
}

/* QEMU is there and of no use: its end tells whoever waits for the start. */
static void give_up(struct machine *m, const struct err *why, const char *context)
{
	m->why = *why;
	if (why->kind != ERR_INVALID) /* what was asked for is at fault, not the machine */
		err_prefix(&m->why, "%s", context);
	if (m->template[0] && why->kind != ERR_INVALID) {
		log_warn("sandbox=%s key=%.12s msg=\"%s; its template is not used again\"", m->id, m->template, m->why.message);
		templates_doubt(m->vm->templates, m->template);
	}
	end(m);
}

static void on_ended(void *ctx, const struct err *why)
{
	struct machine *m = ctx;

	if (m->state < MACHINE_RUNNING) /* by itself: not what give_up or a stop has done */
		give_up(m, why, "the virtual machine did not become ready");
	finish(m, m->why.kind ? &m->why : why);
}

/* --- start --- */

static void put_setup(void *ctx, struct buf *to)
{
	struct machine *m = ctx;
	char seed[80];
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
		give_up(m, e, "the virtual machine did not become ready");
		return;
	}
	m->remove = false; /* of a create: from now on there is something to keep */
	m->template[0] = '\0';
	m->between = true;
	m->state = MACHINE_RUNNING;
	(void)vmdir_write(m->dir, "ready", "");
	machine_tell(&m->start, NULL);
}

static void set_up(struct machine *m, enum ask_lead lead, uint64_t timeout_ms)
{
	int fd = vmdir_connect(m->dir, "guest");
	struct err e;

	if (fd >= 0) {
		m->ask = ask_new(m->vm->qemu.loop, fd, &(struct ask_what){ put_setup, GUEST_SETUP_DONE, lead, timeout_ms }, on_setup, m);
		return;
	}
	(void)err_sys(&e, ERR_UNAVAILABLE, -fd, "connect to the virtual machine's serial port");
	give_up(m, &e, "the virtual machine did not become ready");
}

static void on_restored(void *ctx)
{
	struct machine *m = ctx;

	if (m->state == MACHINE_BOOTING) /* a snapshot's guest may have been told half of something */
		set_up(m, m->template[0] ? ASK_BETWEEN : ASK_PERHAPS_HALF_SAID, RESTORE_MS);
}

static void on_started(void *ctx, const struct err *e)
{
	struct machine *m = ctx;

	if (e) {
		finish(m, e);
		return;
	}
	m->state = MACHINE_BOOTING;
	if (m->state_fd >= 0)
		qemu_restore(m->qemu, take_fd(&m->state_fd));
	else
		set_up(m, ASK_HALF_SAID, BOOT_MS);
}

static void on_event(void *ctx, const char *name, const json_t *data)
{
	vm_snapshot_event(ctx, name, data);
}

/* Of one that was suspended. From now on its disk is no longer what that memory belongs to, so a later daemon takes it as it is, too: it has been set up
 * before. (But for its volumes, which it could not reach.) */
static void on_loaded(void *ctx)
{
	struct machine *m = ctx;

	if (faccessat(m->dir, "memory", F_OK, 0) < 0)
		return;
	if (!m->volumes.n)
		(void)vmdir_write(m->dir, "ready", ""); /* first: with both of them it has not run */
	(void)unlinkat(m->dir, "memory", 0);
}

static bool may_run(void *ctx)
{
	const struct machine *m = ctx;

	return !m->paused && !m->taking;
}

static const struct qemu_events events = { .started = on_started, .ended = on_ended, .event = on_event, .may_run = may_run, .loaded = on_loaded,
					   .restored = on_restored };

static int launch(struct machine *m, enum vmm_begin begin, int ram, int kernel, struct err *e)
{
	const struct vm *v = m->vm;
	const struct vmm_plan plan = {
		.begin = begin,
		.ram = ram < 0 ? VMM_RAM_OWN : VMM_RAM_COPIED,
		.kvm = templates_kvm(v->templates),
		.tap = v->tap,
		.volumes = m->setup.line != NULL,
		.keep_disk = !m->ephemeral,
		.tsc_khz = v->tsc_khz,
		.cpu_millis = (uint64_t)(m->resources.cpus * 1000 + 0.5),
		.memory_mib = m->resources.memory_mib,
	};
	auto_fd int disk = vmdir_open_file(m->dir, "disk", O_RDWR);
	auto_fd int guest = vmdir_listen(m->dir, "guest");
	auto_fd int qmp = vmdir_listen(m->dir, "qmp");

	if (disk < 0 || guest < 0 || qmp < 0)
		return err_set(e, ERR_UNAVAILABLE, EIO, "open the sandbox's disk or sockets");
	struct launch l = { .id = m->id, .image = m->image, .plan = plan, .network = m->network, .volumes = &m->volumes, .line = m->line,
			    .fds = { -EBADF, disk, guest, qmp, ram, begin == VMM_BOOT ? v->initrd : -EBADF, kernel } };
	(void)unlinkat(m->dir, "ready", 0);
	m->state = MACHINE_LAUNCHING;
	m->qemu = qemu_new(&v->qemu, m->dir, &events, m);
	qemu_start(m->qemu, &l); /* m may be gone behind this */
	return 0;
}

static int begin(struct machine *m, struct err *e);

static void on_files(void *ctx, const struct err *why)
{
	struct machine *m = ctx;
	struct err e;

	m->copy = NULL;
	if (why && why->errnum == EBADMSG)
		log_error("sandbox=%s msg=\"%s\"", m->id, why->message);
	if (why)
		finish(m, why);
	else if (begin(m, &e) < 0)
		finish(m, &e);
}

/* With an offset of its own. */
static int open_again(int fd)
{
	auto_free char *path = xasprintf("/proc/self/fd/%d", fd);

	return open(path, O_RDONLY | O_CLOEXEC);
}

/* from: taken; negative = what the machine is to begin as is not whole. meta: of a snapshot, or NULL. */
static void copy_disk(struct machine *m, int from, const struct snapshot_meta *meta)
{
	struct offload_files f = { .from = from, .to = from < 0 ? -EBADF : vmdir_new_disk(m->dir), .memory = -EBADF };
	struct err e;

	if (meta) {
		snprintf(f.whose, sizeof f.whose, "snapshot %s", meta->id);
		memcpy(f.disk_sum, meta->disk_sum, sizeof f.disk_sum);
		memcpy(f.memory_sum, meta->memory_sum, sizeof f.memory_sum);
	}
	if (f.to >= 0) {
		f.memory = f.memory_sum[0] ? open_again(m->state_fd) : -EBADF;
		m->copy = offload_files(m->vm->qemu.loop, &f, on_files, m);
		return;
	}
	(void)err_set(&e, ERR_UNAVAILABLE, EIO, from < 0 ? "what it begins as is damaged: its disk or its memory is missing" : "make the sandbox's disk");
	close_fd(from);
	finish(m, &e);
}

static void on_template(void *ctx, const struct err *why, const struct template *t)
{
	struct machine *m = ctx;

	m->state = MACHINE_LAUNCHING; /* it waits for no template any more */
	if (why) {
		finish(m, why);
		return;
	}
	m->state_fd = open_again(t->files.fds[TEMPLATE_STATE]);
	m->ram_fd = fcntl(t->files.fds[TEMPLATE_RAM], F_DUPFD_CLOEXEC, 3);
	snprintf(m->template, sizeof m->template, "%s", t->key);
	copy_disk(m, m->state_fd >= 0 && m->ram_fd >= 0 ? fcntl(t->files.fds[TEMPLATE_DISK], F_DUPFD_CLOEXEC, 3) : -EBADF, NULL);
}

static void want_template(struct machine *m, template_fn done)
{
	const struct template_need need = { .image = m->image,
					    .cpus = (unsigned)ceil(m->resources.cpus),
					    .memory_mib = m->resources.memory_mib,
					    .disk_mib = m->resources.disk_mib };

	m->state = MACHINE_WAITING;
	templates_get(m->vm->templates, &need, done, m);
}

void machine_make(struct machine *m)
{
	want_template(m, on_template);
}

static int begin_now(struct machine *m, struct err *e)
{
	if (m->state_fd >= 0)
		return launch(m, VMM_INCOMING, m->ram_fd, -EBADF, e);
	(void)unlinkat(m->dir, "memory", 0); /* there is none, or it is not what it goes on from */
	auto_fd int kernel = open(m->vm->kernel, O_RDONLY | O_CLOEXEC);

	if (kernel < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "open the kernel %s", m->vm->kernel);
	return launch(m, VMM_BOOT, -EBADF, kernel, e);
}

static void on_settled(void *ctx, const struct err *why, const struct template *t)
{
	struct machine *m = ctx;
	struct err e;

	(void)t;
	m->state = MACHINE_LAUNCHING; /* it waits for no template any more */
	if (why || begin_now(m, &e) < 0)
		finish(m, why ? why : &e);
}

/* Where state_fd is, else from its own disk. */
static int begin(struct machine *m, struct err *e)
{
	if (templates_settled(m->vm->templates))
		return begin_now(m, e);
	want_template(m, on_settled); /* whether KVM works is found out by that */
	return 0;
}

/* Of one that is suspended. (There is no sum where an earlier version did it.) */
static void look_at_memory(struct machine *m)
{
	auto_free char *sum = vmdir_read(m->dir, "memory.sum");
	struct offload_files f = { .from = -EBADF, .to = -EBADF, .memory = open_again(m->state_fd), .whose = "what it was suspended as" };

	snprintf(f.memory_sum, sizeof f.memory_sum, "%s", sum ? sum : "");
	m->copy = offload_files(m->vm->qemu.loop, &f, on_files, m);
}

static void start(struct machine *m)
{
	struct err e = { 0 };

	if (m->wakes)
		m->state_fd = vmdir_open_file(m->dir, "memory", O_RDONLY);
	if (m->wakes && m->state_fd < 0)
		(void)err_set(&e, ERR_GONE, ENOENT, "its memory is not there any more: stop the sandbox, and start it from its disk");
	if (!e.kind && m->wakes)
		look_at_memory(m);
	else if (e.kind || begin(m, &e) < 0)
		finish(m, &e);
}

struct clearing {
	struct vm *vm;
	char id[40];
};

static void on_clear(void *ctx, const struct err *why)
{
	struct clearing *c = ctx;
	struct machine *m = machine_find(c->vm, c->id);

	free(c);
	if (!m || !m->clearing)
		return;
	m->clearing = false;
	if (why)
		finish(m, why);
	else
		start(m);
}

void machine_begin(struct machine *m)
{
	struct clearing *c = xcalloc(1, sizeof *c);

	*c = (struct clearing){ .vm = m->vm };
	memcpy(c->id, m->id, sizeof c->id);
	m->clearing = true;
	m->vm->qemu.launcher->end(m->vm->qemu.launcher, c->id, on_clear, c); /* m may be gone behind this */
}

void machine_make_from(struct machine *m, int folder, const struct snapshot_meta *meta, const struct memory_files *apart)
{
	auto_fd int from = folder;
	auto_fd int disk = vmdir_open_file(from, "disk", O_RDONLY);
	bool whole = true;

	m->state = MACHINE_WAITING;
	if (apart) {
		m->state_fd = open_again(apart->state);
		m->ram_fd = fcntl(apart->ram, F_DUPFD_CLOEXEC, 3);
		whole = m->state_fd >= 0 && m->ram_fd >= 0;
	} else if (meta->with_memory) {
		m->state_fd = vmdir_open_file(from, "state", O_RDONLY);
		whole = m->state_fd >= 0;
	}
	copy_disk(m, whole ? take_fd(&disk) : -EBADF, meta);
}

/* Of its network device: the same over stop and start. "Locally administered", and of one station. */
static void make_address(const char *id, uint8_t ret[static 6])
{
	uint64_t h = 14695981039346656037u;

	for (; *id; id++)
		h = (h ^ (unsigned char)*id) * 1099511628211u;
	for (size_t i = 0; i < 6; i++)
		ret[i] = (uint8_t)(h >> (8 * i + 8));
	ret[0] = (uint8_t)((ret[0] & 0xfc) | 2);
}

/* Whatever was mounted in the machine that it is a copy of is told to go; else there is nothing to tell a machine without volumes. */
static void take_volumes(struct machine *m, const struct volume_mounts *volumes, bool is_copy)
{
	struct guest_setup *to = &m->setup;

	if (volumes)
		volume_mounts_copy(&m->volumes, volumes);
	for (size_t i = 0; i < m->volumes.n && i < ARRAY_LEN(to->volumes); i++)
		to->volumes[to->volumes_n++] = (struct guest_volume){ m->volumes.v[i].path, m->volumes.v[i].read_only };
	if (!to->volumes_n && !is_copy)
		return;
	random_bytes(m->line, sizeof m->line);
	to->line = m->line;
}

void machine_take_spec(struct machine *m, const struct boundary_spec *s, bool goes_on)
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
	to->sudo = s->sudo ? GUEST_SUDO_YES : GUEST_SUDO_NO;
	to->env = xcalloc((s->env ? s->env->n : 0) + 1, sizeof *to->env);
	for (size_t i = 0; s->env && i < s->env->n; i++)
		to->env[to->envc++] = xasprintf("%s=%s", s->env->v[i].key, s->env->v[i].value);
	m->resources = s->resources;
	m->ephemeral = s->ephemeral;
	m->network = s->network;
	to->link = m->vm->tap ? s->network ? GUEST_LINK_UP : GUEST_LINK_DOWN : GUEST_LINK_NONE;
	make_address(s->id, to->mac);
	m->image = xstrdup(s->image_digest);
	take_volumes(m, s->volumes, goes_on);
}

/* --- stop --- */

bool machine_sync(struct machine *m, boundary_done_fn done)
{
	machine_close_client(m);
	int fd = vmdir_connect(m->dir, "guest");
	if (fd < 0)
		return false;
	if (m->paused)
		qemu_call(m->qemu, "cont", NULL, -EBADF, NULL, NULL);
	m->ask = ask_new(m->vm->qemu.loop, fd, &(struct ask_what){ ask_put_sync, GUEST_OP_END, m->between ? ASK_BETWEEN : ASK_HALF_SAID, SYNC_MS }, done, m);
	m->between = false;
	return true;
}

static void on_synced(void *ctx, const struct err *e)
{
	struct machine *m = ctx;

	(void)e; /* a guest that can't is stopped all the same: its disk is then as after a power cut, and has a journal */
	m->ask = NULL;
	end(m);
}

void machine_stop(struct machine *m)
{
	m->remove |= m->destroy.done != NULL;
	if (m->state == MACHINE_ENDING)
		return;
	if (m->state != MACHINE_RUNNING || m->remove || m->ephemeral || !machine_sync(m, on_synced))
		end(m);
	else
		m->state = MACHINE_SYNCING;
}

void machine_end_suspended(struct machine *m, struct waiting *told)
{
	m->stop = *told;
	*told = (struct waiting){ 0 };
	(void)unlinkat(m->dir, "held", 0);
	end(m);
}

/* --- adoption --- */

static void on_status(void *ctx, const struct err *e, const json_t *result)
{
	struct machine *m = ctx;

	if (!e)
		m->paused = streq(json_string_value(json_object_get(result, "status")), "paused");
}

static void on_may_go_on(void *ctx, const struct err *e, const json_t *result)
{
	struct machine *m = ctx;

	(void)result;
	if (!e && !m->paused)
		qemu_call(m->qemu, "cont", NULL, -EBADF, NULL, NULL);
}

/* A snapshot that was cut off has left it held. */
static void go_on(struct machine *m)
{
	auto_free char *held = vmdir_read(m->dir, "held");

	(void)unlinkat(m->dir, "held", 0);
	m->paused = streq(held, "paused");
	if (held) /* its end would hold the machine again */
		qemu_call(m->qemu, "migrate_cancel", NULL, -EBADF, NULL, NULL);
	if (streq(held, "running"))
		qemu_settled(m->qemu, on_may_go_on, m);
	else if (!held)
		qemu_call(m->qemu, "query-status", NULL, -EBADF, on_status, m);
}

/* Nobody knows how far it had come; or it has been suspended, for where there is a "memory" the machine has not run since. */
static void end_unfinished(struct machine *m)
{
	m->unfinished = true;
	end(m);
}

int machine_adopt(struct vm *v, const char *id)
{
	auto_fd int dir = v->closing ? -ESHUTDOWN : vmdir_open(v->data, id);
	uint64_t memory = 0, millis = 0, disk = 0;

	if (dir < 0)
		return dir;
	auto_free char *image = vmdir_limits(dir, &memory, &millis, &disk);
	struct machine *m = machine_new(v, id, take_fd(&dir));
	m->state = MACHINE_RUNNING;
	m->ephemeral = faccessat(m->dir, "ephemeral", F_OK, 0) == 0;
	m->resources = (struct resources){ .memory_mib = memory, .cpus = (double)millis / 1000, .disk_mib = disk };
	m->image = take_ptr(&image);
	m->qemu = qemu_new(&v->qemu, m->dir, &events, m);
	int r = qemu_adopt(m->qemu, id);
	if (r < 0)
		machine_forget(m);
	else if (faccessat(m->dir, "ready", F_OK, 0) < 0 || faccessat(m->dir, "memory", F_OK, 0) == 0)
		end_unfinished(m);
	else
		go_on(m);
	return r;
}
