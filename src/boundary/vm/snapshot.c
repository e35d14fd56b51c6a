#include "boundary/vm/snapshot_int.h"

#include "base/log.h"
#include "boundary/vm/ask.h"
#include "boundary/vm/offload.h"
#include "boundary/vm/vmdir.h"
#include "boundary/vm/vmm.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Theory of operation.
 *
 *   HELD (stopped; its disk is copied, its memory saved; then it goes on) -> [SETTLING (a copy of it is asked to SYNC)] -> KEEPING -> told
 *   a stopped sandbox:  its disk is copied                                                                              -> KEEPING -> told
 *   suspend: its guest is asked to SYNC -> HELD (its memory is saved) -> KEEPING (held still) -> the machine ends -> told
 *
 * Memory is saved apart where that can be: of a fork whose parent began with a file as its memory that we know of. Then QEMU writes its devices,
 * the warden copies the pages that differ from that file, and what children need (memory.h) is made of both when the machine goes on. Else QEMU writes
 * memory and devices into one file: so for snapshots that are kept, and when either of the two refuses.
 *
 * The parts of HELD run at the same time, and it ends with the last of them (join). The machine's end fails it. SETTLING and KEEPING (it is
 * written out and gets its name, or is removed) have all they need. The machine's folder says "held" from before it is stopped
 * until it goes on, for the sake of a daemon that comes after us. */

enum { SETTLE_MS = 60000 };

struct asking { /* the warden, for the memory's pages. Outlives a taking that is cut off */
	struct taking *t;
};

struct taking {
	struct vm *vm;
	struct taking *next;
	struct machine *m; /* while it is held */
	char id[40];
	bool memory, passing, ran;
	bool saving, refused; /* QEMU is at it; memory could not be had apart */
	boundary_snapshot_fn done;
	void *ctx;
	struct waiting suspended; /* instead of done */
	char *path; /* of the unfinished folder */
	int dir, disk;
	int changed, devices, base; /* memory.h: of memory apart, or negative */
	struct asking *asking;
	struct snapshot_meta meta;
	char *image;
	double cpus;
	struct offload *copy, *keeping;
	struct keeping *kept;
	struct qemu *qemu; /* of the copy that settles the disk */
	struct ask *ask;
	bool settled;
	struct err why;
};

/* --- the end of taking one --- */

static void let_machine_go(struct taking *t)
{
	struct machine *m = t->m;

	t->m = NULL;
	if (!m)
		return;
	m->taking = NULL;
	(void)unlinkat(m->dir, "held", 0);
	if (m->state == MACHINE_RUNNING && !m->paused)
		qemu_call(m->qemu, "cont", NULL, -EBADF, NULL, NULL);
}

static void tell(struct taking *t, uint64_t bytes)
{
	struct taking **at = &t->vm->takings;
	boundary_snapshot_fn done = t->done;
	void *ctx = t->ctx;
	struct err why = t->why;
	struct waiting suspended = t->suspended;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	free(t->path);
	free(t->image);
	free(t);
	machine_tell(&suspended, why.kind ? &why : NULL);
	if (done)
		done(ctx, why.kind ? &why : NULL, why.kind ? 0 : bytes);
}

/* Its memory is kept: now the machine may end. */
static void end_machine(struct taking *t)
{
	struct machine *m = t->m;

	if (t->why.kind) { /* of a machine that goes on, or has ended in another way */
		(void)unlinkat(t->kept->machine, "memory", 0);
		let_machine_go(t);
		return;
	}
	t->m = NULL;
	m->taking = NULL;
	machine_end_suspended(m, &t->suspended);
}

static void on_kept(void *ctx, const struct err *e)
{
	struct taking *t = ctx;

	if (e && !t->why.kind)
		t->why = *e;
	if (t->meta.apart && !t->why.kind)
		memory_keep(t->vm, t->id, &t->kept->apart);
	if (t->kept->machine >= 0)
		end_machine(t);
	tell(t, t->kept->bytes);
}

/* All that it holds but its machine and its folder. Not from within a callback of the copy's own monitor. */
static void let_parts_go(struct taking *t)
{
	offload_cancel(take_ptr(&t->copy));
	ask_free(take_ptr(&t->ask));
	qemu_free(take_ptr(&t->qemu));
	if (t->asking)
		t->asking->t = NULL;
	t->disk = close_fd(t->disk);
	t->devices = close_fd(t->devices);
	t->base = close_fd(t->base);
	t->dir = close_fd(t->dir);
}

static void end(struct taking *t, const struct err *why)
{
	struct keeping *k = xcalloc(1, sizeof *k);
	bool suspends = t->suspended.done && !why;

	t->why = why ? *why : (struct err){ 0 };
	*k = (struct keeping){ .dir = take_fd(&t->dir), .changed = take_fd(&t->changed), .devices = take_fd(&t->devices),
			       .base = take_fd(&t->base), .machine = suspends ? fcntl(t->m->dir, F_DUPFD_CLOEXEC, 3) : -EBADF, .apart = { -EBADF, -EBADF }, .good = !why, .passing = t->passing, .memory = t->meta.with_memory, .folder = snapshot_path(t->vm->data, "", ""),
			       .path = xstrdup(t->path), .to = snapshot_path(t->vm->data, "", t->id) };
	snprintf(k->meta, sizeof k->meta, "%d %llu %llu %u %d", SNAPSHOT_META_VERSION, (unsigned long long)t->meta.memory_mib, (unsigned long long)t->meta.disk_mib, t->meta.cpus,
		 t->meta.apart ? 2 : t->meta.with_memory);
	if (!suspends)
		let_machine_go(t);
	let_parts_go(t);
	t->kept = k;
	t->keeping = offload_new(t->vm->qemu.loop, keeping_run, keeping_release, k, on_kept, t);
}

/* --- settling the disk --- */

static void on_settled(void *ctx, const struct err *e)
{
	struct taking *t = ctx;

	t->ask = NULL;
	t->settled = !e;
	if (e)
		t->why = *e;
	qemu_kill(t->qemu);
}

static void on_copy_ended(void *ctx, const struct err *why)
{
	struct taking *t = ctx;
	struct err e = t->why.kind ? t->why : *why;

	err_prefix(&e, "the disk could not be brought to a state of its own");
	end(t, t->settled ? NULL : &e);
}

static void copy_is_of_no_use(struct taking *t, const char *why)
{
	(void)err_set(&t->why, ERR_UNAVAILABLE, EIO, "%s", why);
	qemu_kill(t->qemu);
}

static void on_copy_started(void *ctx, const struct err *e)
{
	struct taking *t = ctx;

	if (e) {
		end(t, e);
		return;
	}
	int state = vmdir_open_file(t->dir, "state", O_RDONLY);
	if (state >= 0)
		qemu_restore(t->qemu, state);
	else
		copy_is_of_no_use(t, "open its state");
}

static void on_copy_restored(void *ctx)
{
	struct taking *t = ctx;
	int fd = vmdir_connect(t->dir, "guest");

	if (fd >= 0)
		t->ask = ask_new(t->vm->qemu.loop, fd, &(struct ask_what){ ask_put_sync, GUEST_OP_END, ASK_PERHAPS_HALF_SAID, SETTLE_MS }, on_settled, t);
	else
		copy_is_of_no_use(t, "open the line to it");
}

static void settle(struct taking *t)
{
	static const struct qemu_events events = { .started = on_copy_started, .ended = on_copy_ended, .restored = on_copy_restored };
	const struct vm *v = t->vm;
	char id[37];
	struct err e;
	auto_fd int disk = vmdir_open_file(t->dir, "disk", O_RDWR), guest = vmdir_listen(t->dir, "guest"), qmp = vmdir_listen(t->dir, "qmp");

	random_uuid(id);
	if (disk < 0 || guest < 0 || qmp < 0 || vmdir_write(t->dir, "id", id) < 0) {
		(void)err_set(&e, ERR_UNAVAILABLE, EIO, "open the snapshot's disk or sockets");
		end(t, &e);
		return;
	}
	struct launch l = { .id = id,
			    .image = t->image,
			    .plan = { .begin = VMM_INCOMING, .ram = VMM_RAM_OWN, .kvm = templates_kvm(v->templates), .tap = v->tap, .volumes = 1, .keep_disk = 1, .tsc_khz = v->tsc_khz,
				      .cpu_millis = (uint64_t)(t->cpus * 1000 + 0.5), .memory_mib = t->meta.memory_mib },
			    .fds = { -EBADF, disk, guest, qmp, -EBADF, -EBADF, -EBADF } };
	t->qemu = qemu_new(&v->qemu, t->dir, &events, t);
	qemu_start(t->qemu, &l); /* t may be gone behind this */
}

/* --- saving and copying --- */

static void join(struct taking *t);

/* What cannot be asked for again: the machine goes on, and there is no snapshot. */
static void fail(struct taking *t, const struct err *why)
{
	if (!t->why.kind)
		t->why = *why;
}

static void on_copied(void *ctx, const struct err *e)
{
	struct taking *t = ctx;

	t->copy = NULL;
	if (e)
		fail(t, e);
	join(t);
}

static void copy_disk(struct taking *t)
{
	int to = vmdir_new_disk(t->dir);
	struct err e;

	if (to >= 0) {
		t->copy = offload_files(t->vm->qemu.loop, &(struct offload_files){ .from = take_fd(&t->disk), .to = to, .memory = -EBADF }, on_copied, t);
		return;
	}
	(void)err_sys(&e, ERR_UNAVAILABLE, -to, "make the snapshot's disk");
	fail(t, &e);
}

/* The end of the connection is that of the process, which is told on its own. */
static bool is_refusal(const struct err *e)
{
	return e && e->errnum != EPIPE && e->errnum != ECANCELED;
}

static void on_told(void *ctx, const struct err *e, const json_t *result)
{
	struct machine *m = ctx;
	struct taking *t = m->taking;

	(void)result;
	if (!t || !t->saving || !is_refusal(e))
		return;
	t->saving = false;
	fail(t, e);
	join(t);
}

void vm_snapshot_event(struct machine *m, const char *name, const json_t *data)
{
	struct taking *t = m->taking;
	const char *status = json_string_value(json_object_get(data, "status"));
	struct err e;

	if (!t || !t->saving || t->changed >= 0 || !streq(name, "MIGRATION") || !status || (!streq(status, "completed") && !streq(status, "failed")))
		return;
	t->saving = false;
	if (streq(status, "failed")) {
		(void)err_set(&e, ERR_UNAVAILABLE, EIO, "QEMU could not save the machine's memory");
		fail(t, &e);
	}
	join(t);
}

/* Memory and devices, by QEMU, into one file. */
static void save_whole(struct taking *t)
{
	struct machine *m = t->m;
	struct qemu *q = m->qemu;
	int state = openat(t->dir, "state", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct err e;

	if (state < 0) {
		(void)err_sys(&e, ERR_UNAVAILABLE, errno, "make the file of the machine's memory");
		fail(t, &e);
		return;
	}
	t->saving = true;
	qemu_call(q, "migrate-set-capabilities", qemu_capabilities(), -EBADF, on_told, m);
	qemu_call(q, "migrate-set-parameters", json_pack("{s:I}", "max-bandwidth", (json_int_t)1 << 36), -EBADF, on_told, m);
	qemu_call(q, "getfd", json_pack("{s:s}", "fdname", "state"), state, on_told, m);
	qemu_call(q, "migrate", json_pack("{s:s}", "uri", "fd:state"), -EBADF, on_told, m);
}

/* It can be had whole still. */
static void refuse_apart(struct taking *t, const char *why)
{
	t->refused = true;
	if (!t->vm->whole_told)
		log_info("msg=\"memory of forks is read in by each of them, since it could not be had apart: %s\"",
			 str_quote((struct str){ why, strlen(why) }, &(struct quoted){ 0 }));
	t->vm->whole_told = true;
}

static void on_devices(void *ctx, const struct err *e, const json_t *result)
{
	struct machine *m = ctx;
	struct taking *t = m->taking;

	(void)result;
	if (!t || !t->saving || (e && !is_refusal(e)))
		return;
	t->saving = false;
	if (e || memory_devices_begin(t->devices) < 0)
		refuse_apart(t, e ? e->message : "QEMU's state of devices does not begin as such a thing");
	join(t);
}

static void on_memory(void *ctx, const struct err *e)
{
	struct asking *a = ctx;
	struct taking *t = a->t;

	free(a);
	if (!t)
		return;
	t->asking = NULL;
	if (e)
		refuse_apart(t, e->message);
	join(t);
}

static void ask_for_memory(struct taking *t)
{
	struct launcher *l = t->vm->qemu.launcher;

	t->asking = xcalloc(1, sizeof *t->asking);
	t->asking->t = t;
	l->memory(l, t->m->id, t->base, t->changed, on_memory, t->asking); /* t may be gone behind this */
}

/* The devices by QEMU, and by the warden the pages that are not those of the file that it began with. What opens a set wants it for
 * writing only, as QEMU does. */
static void save_apart(struct taking *t)
{
	enum { SET = 3 };
	struct machine *m = t->m;
	auto_free char *path = xasprintf("/proc/self/fd/%d", t->devices);
	int devices = open(path, O_WRONLY | O_CLOEXEC);

	if (devices < 0) {
		refuse_apart(t, "no descriptor for the state of its devices");
		join(t);
		return;
	}
	t->saving = true;
	qemu_call(m->qemu, "add-fd", json_pack("{s:i}", "fdset-id", SET), devices, NULL, NULL);
	qemu_call(m->qemu, "xen-save-devices-state", json_pack("{s:s, s:b}", "filename", "/dev/fdset/3", "live", 0), -EBADF, on_devices, m);
	qemu_call(m->qemu, "remove-fd", json_pack("{s:i}", "fdset-id", SET), -EBADF, NULL, NULL);
	ask_for_memory(t);
}

static void on_stopped(void *ctx, const struct err *e, const json_t *result)
{
	struct machine *m = ctx;
	struct taking *t = m->taking;

	(void)result;
	if (!t || !t->saving || (e && !is_refusal(e)))
		return;
	t->saving = false;
	if (e) {
		fail(t, e);
	} else {
		if (!t->suspended.done)
			copy_disk(t);
		if (!t->why.kind && t->changed >= 0) {
			save_apart(t);
			return;
		}
		if (!t->why.kind)
			save_whole(t);
	}
	join(t);
}

/* QEMU saves none a second time that has not run since the first. One that is paused has to, then: for the instant until the next command. */
static void on_looked(void *ctx, const struct err *e, const json_t *result)
{
	struct machine *m = ctx;

	if (!m->taking || !m->taking->saving)
		return;
	if (!e && streq(json_string_value(json_object_get(result, "status")), "postmigrate"))
		qemu_call(m->qemu, "cont", NULL, -EBADF, NULL, NULL);
	qemu_call(m->qemu, "stop", NULL, -EBADF, on_stopped, m);
}

/* Stopped from the start: of an emulated machine that goes on meanwhile QEMU misses pages that change, and copies crash. */
static void save(struct taking *t)
{
	(void)vmdir_write(t->m->dir, "held", t->m->paused ? "paused" : "running");
	t->saving = true;
	qemu_call(t->m->qemu, "query-status", NULL, -EBADF, on_looked, t->m);
}

static void give_up_apart(struct taking *t)
{
	t->refused = false;
	t->changed = close_fd(t->changed);
	t->devices = close_fd(t->devices);
	t->meta.apart = false;
}

/* One of the parts has come to its end: goes on when it was the last. */
static void join(struct taking *t)
{
	if (t->copy || t->saving || t->asking)
		return;
	if (t->refused && t->m && !t->why.kind) {
		give_up_apart(t);
		save_whole(t);
		if (t->saving)
			return;
	}
	struct err why = t->why;
	if (!t->suspended.done)
		let_machine_go(t);
	if (why.kind)
		end(t, &why);
	else if (t->ran && !t->memory)
		settle(t);
	else
		end(t, NULL);
}

void vm_snapshot_machine_gone(struct machine *m)
{
	struct taking *t = m->taking;

	if (!t)
		return;
	m->taking = NULL;
	t->m = NULL;
	t->saving = false; /* its monitor goes with it */
	(void)err_set(&t->why, ERR_GONE, ESRCH, "the sandbox has ended while %s", t->suspended.done ? "its memory was written down" : "the snapshot was taken");
	if (!t->keeping)
		join(t);
}

static int begin(struct vm *v, const char *id, const char *snapshot, bool memory, bool passing, struct taking **ret, struct err *e)
{
	if (!vmdir_id_valid(id) || !vmdir_id_valid(snapshot))
		return err_set(e, ERR_INVALID, EINVAL, "not the id of a sandbox, or not one for a snapshot");
	if (!machine_find(v, id))
		(void)machine_adopt(v, id);
	struct machine *m = machine_find(v, id);
	auto_free char *path = snapshot_path(v->data, "", snapshot), *beside = snapshot_path(v->data, ".new-", snapshot), *folder = snapshot_path(v->data, "", "");
	auto_fd int dir = vmdir_open(v->data, id), disk = dir < 0 ? -ENOENT : vmdir_open_file(dir, "disk", O_RDONLY);
	struct snapshot_meta meta = { 0 };
	char *image = dir < 0 ? NULL : vmdir_limits(dir, &meta.memory_mib, NULL, &meta.disk_mib);

	if (dir < 0 || disk < 0 || !image) {
		free(image);
		return err_set(e, ERR_NOT_FOUND, ENOENT, "there is no such sandbox");
	}
	int r = 0;
	if (m && (m->state != MACHINE_RUNNING || m->taking))
		r = err_set(e, ERR_CONFLICT, EBUSY, "the sandbox is starting or stopping, or another snapshot of it is taken");
	else if ((mkdir(folder, 0700) < 0 && errno != EEXIST) || access(path, F_OK) == 0 || mkdir(beside, 0700) < 0)
		r = access(path, F_OK) == 0 || errno == EEXIST ? err_set(e, ERR_CONFLICT, EEXIST, "there is a snapshot %s already", snapshot) :
								err_sys(e, ERR_UNAVAILABLE, errno, "make a folder for the snapshot");
	if (r < 0) {
		free(image);
		return r;
	}
	struct taking *t = xcalloc(1, sizeof *t);
	*t = (struct taking){ .vm = v, .next = v->takings, .m = m, .memory = memory && m, .passing = passing, .path = take_ptr(&beside), .disk = take_fd(&disk), .meta = meta,
			      .image = image, .ran = m, .cpus = m ? m->resources.cpus : 0 };
	t->meta.cpus = (unsigned)ceil(t->cpus);
	t->meta.with_memory = memory && m; /* of one that is stopped there is none */
	t->dir = open(t->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	t->changed = t->devices = t->base = -EBADF;
	snprintf(t->id, sizeof t->id, "%s", snapshot);
	v->takings = t;
	if (m)
		m->taking = t;
	*ret = t;
	return 0;
}

static void prepare_apart(struct taking *t)
{
	if (!t->memory || !t->passing || t->m->ram_fd < 0)
		return;
	t->base = fcntl(t->m->ram_fd, F_DUPFD_CLOEXEC, 3);
	t->changed = memory_new_file(t->meta.memory_mib);
	t->devices = memfd_create("devices", MFD_CLOEXEC);
	t->meta.apart = t->base >= 0 && t->changed >= 0 && t->devices >= 0;
	if (!t->meta.apart)
		give_up_apart(t);
}

void vm_snapshot(struct boundary *b, const char *id, const char *snapshot, bool memory, bool passing, boundary_snapshot_fn done, void *ctx)
{
	struct vm *v = container_of(b, struct vm, base);
	struct taking *t = NULL;
	struct err e;

	if (begin(v, id, snapshot, memory, passing, &t, &e) < 0) {
		done(ctx, &e, 0);
		return;
	}
	t->done = done;
	t->ctx = ctx;
	if (t->m) {
		prepare_apart(t);
		save(t);
		return;
	}
	copy_disk(t);
	join(t);
}

/* (A guest that can't is suspended all the same.) */
static void on_synced(void *ctx, const struct err *e)
{
	struct machine *m = ctx;

	(void)e;
	m->ask = NULL;
	if (m->taking)
		save(m->taking);
}

/* First of all what it has written goes to its disk: a stop of what is suspended leaves that alone. */
void vm_suspend(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	struct vm *v = container_of(b, struct vm, base);
	struct machine *m = machine_find(v, id);
	struct taking *t = NULL;
	char name[37];
	struct err e;

	random_uuid(name);
	if (!m)
		(void)err_set(&e, ERR_NOT_FOUND, ESRCH, "the sandbox is not started");
	else if (m->ephemeral)
		(void)err_set(&e, ERR_UNSUPPORTED, EOPNOTSUPP, "the disk of an ephemeral sandbox does not outlive its process");
	else if (begin(v, id, name, true, false, &t, &e) == 0) {
		t->suspended = (struct waiting){ done, ctx };
		if (!machine_sync(m, on_synced))
			save(t);
		return;
	}
	done(ctx, &e);
}

/* What a thread is at becomes whole, or not; nobody who comes after us will know it. */
void vm_snapshots_close(struct vm *v)
{
	struct err e;

	(void)err_set(&e, ERR_UNAVAILABLE, ECANCELED, "the boundary is being closed");
	while (v->takings) {
		struct taking *t = v->takings;
		if (t->qemu)
			qemu_kill(t->qemu);
		if (t->keeping)
			offload_cancel(t->keeping);
		else
			snapshot_folder_remove(t->path);
		let_machine_go(t);
		let_parts_go(t);
		t->changed = close_fd(t->changed);
		t->why = e;
		tell(t, 0);
	}
	snapshot_droppings_cancel(v, &e);
}
