#include "boundary/vm/vm.h"

#include "base/log.h"
#include "boundary/vm/ask.h"
#include "boundary/vm/memory.h"
#include "boundary/vm/snapshot.h"
#include "boundary/vm/vmdir.h"
#include "boundary/vm/vm_int.h"
#include "sys/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY_MIN_MIB = 128, DISK_MIN_MIB = 16 /* of less, mke2fs makes no journal */, BEAT_MS = 10000, SPARE_REST_MS = 1000 };

static struct vm *of(struct boundary *b)
{
	return container_of(b, struct vm, base);
}

/* --- create, start --- */

static int write_limits(const struct machine *m)
{
	char text[200];

	snprintf(text, sizeof text, "%llu %llu %llu %llu %.79s", (unsigned long long)m->resources.memory_mib,
		 (unsigned long long)(m->resources.cpus * 1000 + 0.5), (unsigned long long)m->resources.disk_mib,
		 (unsigned long long)m->resources.pids, m->image);
	int r = vmdir_write(m->dir, "limits", text);
	return r == 0 && m->ephemeral ? vmdir_write(m->dir, "ephemeral", "") : r;
}

static int vm_check(struct boundary *b, const struct resources *r, struct err *e)
{
	(void)b;
	if (r->memory_mib < MEMORY_MIN_MIB || r->disk_mib < DISK_MIN_MIB)
		return err_set(e, ERR_UNSUPPORTED, EINVAL, "a virtual machine needs %d MiB of memory and a disk of %d MiB", MEMORY_MIN_MIB, DISK_MIN_MIB);
	return host_has(r->memory_mib, (uint64_t)(r->cpus * 1000 + 0.5), e);
}

static int check_spec(struct vm *v, const struct boundary_spec *s, struct err *e)
{
	const char *hex = strncmp(s->image_digest, "sha256:", 7) == 0 ? s->image_digest + 7 : "";

	if (!vmdir_id_valid(s->id) || strlen(hex) != 64 || strspn(hex, "0123456789abcdef") != 64)
		return err_set(e, ERR_INVALID, EINVAL, "not a sandbox id, or not an image's digest");
	int r = vm_check(&v->base, &s->resources, e);
	return r < 0 || v->volumes ? r : boundary_no_volumes(s, e);
}

/* A machine that goes on has to be the machine that it was. */
static int from_snapshot(const struct vm *v, const struct boundary_spec *s, struct snapshot_meta *ret_meta, const struct memory_files **ret_apart, struct err *e)
{
	struct snapshot_meta meta;
	auto_fd int folder = vm_snapshot_open(v, s->from_snapshot, &meta, e);

	if (folder < 0) {
		if (e->errnum == EBADMSG)
			log_error("sandbox=%s msg=\"%s\"", s->id, e->message);
		return folder;
	}
	if (meta.with_memory && (meta.memory_mib != s->resources.memory_mib || meta.cpus != (unsigned)ceil(s->resources.cpus)))
		return err_set(e, ERR_INVALID, EINVAL, "resources: this snapshot has a machine's memory, of %llu MiB and %u cpus, and that cannot change",
			       (unsigned long long)meta.memory_mib, meta.cpus);
	const struct memory_files *apart = meta.apart ? memory_of(v, s->from_snapshot) : NULL;
	if (meta.apart && !apart)
		return err_set(e, ERR_GONE, ENOENT, "the memory of this fork has gone with the daemon that took it");
	*ret_meta = meta;
	*ret_apart = apart;
	return take_fd(&folder);
}

static int create(struct vm *v, const struct boundary_spec *s, boundary_done_fn done, void *ctx, struct err *e)
{
	int r = check_spec(v, s, e);
	struct snapshot_meta meta;
	const struct memory_files *apart = NULL;
	auto_fd int folder = r == 0 && s->from_snapshot ? from_snapshot(v, s, &meta, &apart, e) : -EBADF;

	if (r == 0 && s->from_snapshot && folder < 0)
		return folder;
	if (r == 0)
		r = vmdir_make(v->data, s->id, e);
	if (r < 0)
		return r;
	int dir = vmdir_open(v->data, s->id);
	if (dir < 0)
		return err_sys(e, ERR_UNAVAILABLE, -dir, "open the sandbox's folder");
	struct machine *m = machine_new(v, s->id, dir);
	machine_take_spec(m, s, s->from_snapshot);
	r = write_limits(m);
	if (r < 0) {
		machine_forget(m);
		(void)vmdir_remove(v->data, s->id, NULL);
		return err_sys(e, ERR_UNAVAILABLE, -r, "write down the sandbox's limits");
	}
	m->remove = true; /* until it has answered, failing leaves nothing */
	m->start = (struct waiting){ done, ctx };
	if (folder >= 0)
		machine_make_from(m, take_fd(&folder), &meta, apart);
	else
		machine_make(m);
	return 0;
}

static void vm_create(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx)
{
	struct err e;

	if (create(of(b), spec, done, ctx, &e) < 0)
		done(ctx, &e);
}

static int start(struct vm *v, const struct boundary_spec *s, bool wake, boundary_done_fn done, void *ctx, struct err *e)
{
	int r = check_spec(v, s, e);

	if (r < 0)
		return r;
	const struct machine *before = machine_find(v, s->id);
	if (before && (!before->unfinished || before->next))
		return err_set(e, ERR_CONFLICT, EBUSY, "the sandbox is started already, or being stopped");
	int dir = vmdir_open(v->data, s->id);
	if (dir < 0)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "there is no such sandbox");
	struct machine *m = machine_new(v, s->id, dir);
	machine_take_spec(m, s, wake);
	m->wakes = wake;
	m->start = (struct waiting){ done, ctx };
	if (!before)
		machine_begin(m); /* may have told its end already */
	return 0;
}

static void vm_start(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx)
{
	struct err e;

	if (start(of(b), spec, false, done, ctx, &e) < 0)
		done(ctx, &e);
}

static void vm_wake(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx)
{
	struct err e;

	if (start(of(b), spec, true, done, ctx, &e) < 0)
		done(ctx, &e);
}

/* --- stop, destroy --- */

static bool is_ephemeral(const struct vm *v, const char *id)
{
	auto_fd int dir = vmdir_open(v->data, id);

	return dir >= 0 && faccessat(dir, "ephemeral", F_OK, 0) == 0;
}

/* What nobody knows a process of. All the same there may be one: of a daemon that was killed before it had written it down. */
struct remains {
	struct vm *vm;
	char id[40];
	bool remove;
	struct waiting w;
};

static void on_remains_ended(void *ctx, const struct err *why)
{
	struct remains *r = ctx;
	struct err e;

	if (!why && !r->remove)
		vmdir_forget_memory(r->vm->data, r->id);
	machine_tell(&r->w, why ? why : r->remove && vmdir_remove(r->vm->data, r->id, &e) < 0 ? &e : NULL);
	free(r);
}

static void end_remains(struct vm *v, const char *id, bool remove, boundary_done_fn done, void *ctx)
{
	struct remains *r = xcalloc(1, sizeof *r);

	*r = (struct remains){ .vm = v, .remove = remove || is_ephemeral(v, id), .w = { done, ctx } };
	snprintf(r->id, sizeof r->id, "%s", id);
	v->qemu.launcher->end(v->qemu.launcher, r->id, on_remains_ended, r);
}

static void stop(struct boundary *b, const char *id, bool remove, boundary_done_fn done, void *ctx)
{
	struct vm *v = of(b);
	struct err e;

	if (!vmdir_id_valid(id)) {
		(void)err_set(&e, ERR_INVALID, EINVAL, "not a sandbox id");
		done(ctx, &e);
		return;
	}
	if (!machine_find(v, id))
		(void)machine_adopt(v, id); /* one that a former daemon has left running */
	struct machine *m = machine_find(v, id);
	if (!m) {
		end_remains(v, id, remove, done, ctx);
		return;
	}
	struct waiting *w = remove ? &m->destroy : &m->stop;
	if (w->done || (!remove && m->destroy.done)) {
		(void)err_set(&e, ERR_CONFLICT, EBUSY, "the sandbox is being stopped already");
		done(ctx, &e);
		return;
	}
	*w = (struct waiting){ done, ctx };
	machine_stop(m);
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

static void vm_list(struct boundary *b, boundary_list_fn done, void *ctx)
{
	struct vm *v = of(b);
	const char **ids = NULL;
	bool *started = NULL;
	size_t n = 0;
	DIR *d = opendir(v->data);

	for (struct dirent *entry; d && (entry = readdir(d));) {
		if (!vmdir_id_valid(entry->d_name))
			continue;
		if (!machine_find(v, entry->d_name))
			(void)machine_adopt(v, entry->d_name);
		ids = xreallocarray(ids, n + 1, sizeof *ids);
		started = xreallocarray(started, n + 1, sizeof *started);
		ids[n] = xstrdup(entry->d_name);
		const struct machine *m = machine_find(v, entry->d_name);
		started[n++] = m && m->state == MACHINE_RUNNING;
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
	struct machine *m = machine_find(v, id);

	if (m && m->state == MACHINE_RUNNING)
		return m;
	(void)err_set(e, ERR_NOT_FOUND, ESRCH, "the sandbox is not started");
	return NULL;
}

struct telling {
	struct machine *m; /* which its monitor does not outlive */
	bool pause;
	struct waiting w;
};

static void on_told(void *ctx, const struct err *e, const json_t *result)
{
	struct telling *t = ctx;

	(void)result;
	if (e)
		t->m->paused = !t->pause;
	machine_tell(&t->w, e);
	free(t);
}

static void hold(struct boundary *b, const char *id, bool pause, boundary_done_fn done, void *ctx)
{
	struct err e;
	struct machine *m = running(of(b), id, &e);

	if (m && m->taking) {
		(void)err_set(&e, ERR_CONFLICT, EBUSY, "a snapshot of the sandbox is being taken");
		m = NULL;
	}
	if (!m) {
		done(ctx, &e);
		return;
	}
	struct telling *t = xcalloc(1, sizeof *t);
	*t = (struct telling){ m, pause, { done, ctx } };
	m->paused = pause; /* from now on, so that nobody else has it run behind this */
	qemu_call(m->qemu, pause ? "stop" : "cont", NULL, -EBADF, on_told, t);
}

static void vm_pause(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	hold(b, id, true, done, ctx);
}

static void vm_resume(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	hold(b, id, false, done, ctx);
}

/* The warden first, whose word it is that nothing passes; then what the guest sees of it. */
struct switching {
	struct vm *v;
	char id[40];
	bool on;
	struct waiting w;
};

static void on_linked(void *ctx, const struct err *e, const json_t *result)
{
	struct switching *s = ctx;

	(void)result;
	machine_tell(&s->w, e);
	free(s);
}

static void on_switched(void *ctx, const struct err *e)
{
	struct switching *s = ctx;
	struct err gone;
	struct machine *m = e ? NULL : running(s->v, s->id, &gone);

	if (m) {
		qemu_link(m->qemu, s->on, on_linked, s);
		return;
	}
	machine_tell(&s->w, e ? e : &gone);
	free(s);
}

static void vm_network(struct boundary *b, const char *id, bool on, boundary_done_fn done, void *ctx)
{
	struct vm *v = of(b);
	struct err e;

	if (!running(v, id, &e)) {
		done(ctx, &e);
		return;
	}
	struct switching *s = xcalloc(1, sizeof *s);
	*s = (struct switching){ .v = v, .on = on, .w = { done, ctx } };
	snprintf(s->id, sizeof s->id, "%s", id);
	v->qemu.launcher->network(v->qemu.launcher, id, on, on_switched, s);
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
		.memory_bytes = resident_bytes(qemu_pid(m->qemu)),
		.memory_limit_bytes = m->resources.memory_mib << 20,
		.cpu_usec = cpu_usec(qemu_pid(m->qemu)),
		.cpu_limit = m->resources.cpus,
		.pids = 1, /* the guest itself; of others only that could tell */
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
	machine_close_client(m);
	auto_fd int fd = vmdir_connect(m->dir, "guest");
	if (fd == -ECONNREFUSED) /* QEMU listens as long as it lives, so its end is being told */
		return err_set(e, ERR_UNAVAILABLE, ESHUTDOWN, "the virtual machine is ending");
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, -fd, "connect to the guest of sandbox %s", id);
	/* who gets this sees a socket and does not know that a serial line is behind it; it takes these whole, being empty */
	if (!m->between && send(fd, ask_zeros, sizeof ask_zeros, MSG_NOSIGNAL) != (ssize_t)sizeof ask_zeros)
		return err_sys(e, ERR_UNAVAILABLE, errno, "write to the guest of sandbox %s", id);
	m->between = false;
	m->client = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return take_fd(&fd);
}

/* They are made, kept and counted by the kind whose they are. */
static void vm_make_volume(struct boundary *b, const char *volume, uint64_t mib, boundary_done_fn done, void *ctx)
{
	struct boundary *keeper = of(b)->volumes;

	keeper->ops->make_volume(keeper, volume, mib, done, ctx);
}

static void vm_drop_volume(struct boundary *b, const char *volume, boundary_done_fn done, void *ctx)
{
	struct boundary *keeper = of(b)->volumes;

	keeper->ops->drop_volume(keeper, volume, done, ctx);
}

static void vm_list_volumes(struct boundary *b, boundary_volumes_fn done, void *ctx)
{
	struct boundary *keeper = of(b)->volumes;

	keeper->ops->list_volumes(keeper, done, ctx);
}

static const char *vm_accelerator(struct boundary *b, const char **ret_why)
{
	const struct templates *t = of(b)->templates;

	*ret_why = templates_settled(t) ? templates_no_kvm(t) : "not tried yet";
	return templates_kvm(t) ? "kvm" : "emulated";
}

/* --- the boundary itself --- */

static void vm_free(struct boundary *b)
{
	struct vm *v = of(b);
	struct machine *m, *next;
	struct err e;

	(void)err_set(&e, ERR_UNAVAILABLE, ECANCELED, "the boundary is being closed");
	v->closing = true;
	vm_snapshots_close(v);
	memories_free(v);
	HASH_ITER(hh, v->machines, m, next) {
		struct waiting start = m->start, stop = m->stop, destroy = m->destroy;
		if (m->state == MACHINE_BOOTING) /* one that nobody will ever set up is of no use to a later daemon */
			qemu_kill(m->qemu);
		machine_forget(m);
		machine_tell(&start, &e);
		machine_tell(&stop, &e);
		machine_tell(&destroy, &e);
	}
	templates_free(v->templates);
	v->qemu.launcher->free(v->qemu.launcher); /* those that are being launched are told, and are killed */
	free(v->data);
	free(v->folder);
	free(v->kernel);
	close_fd(v->initrd);
	free(v);
}

#ifdef __x86_64__
struct instant {
	uint64_t ns, ticks;
};

/* Both clocks at one moment: of several tries the one in which the least time went by, for on a busy host we may lose the processor in between. */
static struct instant instant_now(void)
{
	struct instant best = { 0, 0 };
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 20; i++) {
		struct timespec before, after;
		clock_gettime(CLOCK_MONOTONIC, &before);
		uint64_t ticks = __builtin_ia32_rdtsc();
		clock_gettime(CLOCK_MONOTONIC, &after);
		uint64_t ns = (uint64_t)before.tv_sec * 1000000000 + (uint64_t)before.tv_nsec;
		uint64_t took = (uint64_t)after.tv_sec * 1000000000 + (uint64_t)after.tv_nsec - ns;
		if (took < least) {
			least = took;
			best = (struct instant){ ns, ticks };
		}
	}
	return best;
}
#endif

/* Ticks of the processor's clock in a millisecond. What /proc/cpuinfo says is how fast it runs at the moment, which is something else. */
static uint64_t measure_tsc_khz(void)
{
#ifdef __x86_64__
	struct instant began = instant_now();

	usleep(20000);
	struct instant ended = instant_now();
	return (ended.ticks - began.ticks) * 1000000 / (ended.ns - began.ns);
#else
	return 0;
#endif
}

/* What a ready machine holds until it is wanted is some 40 MiB, besides the second of a processor that making it takes emulated: two of
 * a shape cover a client that asks again at once, where that is a small part of what is free. At most 32 shapes are kept. */
static unsigned spares(void)
{
	char line[128];
	unsigned long long kib = 0;
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %llu", &kib) != 1)
		;
	if (f)
		(void)fclose(f);
	return kib >= 8 << 20 ? 2 : kib >= 2 << 20 ? 1 : 0;
}

struct boundary *vm_boundary_new(uv_loop_t *loop, const struct vm_options *o, struct err *e)
{
	static const struct boundary_ops ops = { /* but for what depends on the host */
		.name = "vm",
		.caps = BOUNDARY_CAN_PAUSE | BOUNDARY_CAN_SUSPEND | BOUNDARY_CAN_SNAPSHOT_DISK | BOUNDARY_CAN_SNAPSHOT_MEMORY | BOUNDARY_STRONG | BOUNDARY_OWN_CLOCK |
			BOUNDARY_GUEST_COUNTS | BOUNDARY_CAN_PERMIT,
		.spare_rest_ms = SPARE_REST_MS,
		.spare_runs = "/bin/true",
		.list = vm_list,
		.create = vm_create,
		.start = vm_start,
		.stop = vm_stop,
		.destroy = vm_destroy,
		.pause = vm_pause,
		.resume = vm_resume,
		.suspend = vm_suspend,
		.wake = vm_wake,
		.usage = vm_usage,
		.check = vm_check,
		.snapshot = vm_snapshot,
		.drop_snapshot = vm_drop_snapshot,
		.list_snapshots = vm_list_snapshots,
		.make_volume = vm_make_volume,
		.drop_volume = vm_drop_volume,
		.list_volumes = vm_list_volumes,
		.network = vm_network,
		.open_guest = vm_open_guest,
		.accelerator = vm_accelerator,
		.free = vm_free,
	};
	int initrd = vmdir_initrd(o->modules, (struct str){ o->guest, o->guest_len }, e);
	if (initrd < 0)
		return NULL;
	struct vm *v = xcalloc(1, sizeof *v);
	*v = (struct vm){ .ops = ops, .tap = o->tap, .volumes = o->volumes, .qemu = { loop, o->launcher, o->beat_ms ? o->beat_ms : BEAT_MS }, .data = xstrdup(o->data),
			  .folder = o->templates ? xstrdup(o->templates) : xasprintf("%s/templates", o->data),
			  .kernel = xstrdup(o->kernel), .initrd = initrd, .tsc_khz = measure_tsc_khz() };
	v->ops.spares = spares();
	v->base.ops = &v->ops;
	const struct template_host host = { .qemu = &v->qemu, .kernel = v->kernel, .folder = v->folder,
					    .initrd = initrd, .kvm = o->kvm, .kvm_only = o->kvm_only, .no_kvm = o->no_kvm, .tap = o->tap, .tsc_khz = v->tsc_khz };
	v->ops.caps |= o->tap ? BOUNDARY_CAN_NETWORK : 0;
	if (o->volumes) {
		v->ops.caps |= BOUNDARY_CAN_VOLUMES;
		v->ops.volumes_of = o->volumes->ops->name;
	}
	vm_snapshots_sweep(v);
	v->templates = templates_new(&host);
	return &v->base;
}

void vm_data_clean(const char *data)
{
	auto_free char *folder = xasprintf("%s/templates", data);

	auto_free char *snapshots = xasprintf("%s/snapshots", data);

	templates_remove(folder);
	(void)rmdir(snapshots);
}

void vm_data_remove(const char *data)
{
	DIR *d = opendir(data);

	for (const struct dirent *entry; d && (entry = readdir(d));)
		if (vmdir_id_valid(entry->d_name))
			(void)vmdir_remove(data, entry->d_name, NULL);
	if (d)
		closedir(d);
	vm_snapshots_remove(data);
	vm_data_clean(data);
}
