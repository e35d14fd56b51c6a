#include "boundary/vm/snapshot.h"

#include "boundary/vm/ask.h"
#include "boundary/vm/offload.h"
#include "boundary/vm/vmdir.h"
#include "boundary/vm/vmm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Theory of operation.
 *
 *   SAVING (stopped; QEMU writes its memory) -> COPYING (its disk; then it goes on) -> [SETTLING (a copy of it is asked to SYNC)] -> KEEPING -> told
 *   a stopped sandbox:                          COPYING                                                                             -> KEEPING -> told
 *
 * The machine's end fails what is SAVING or COPYING. SETTLING and KEEPING (it is written out and gets its name, or is removed) have all
 * they need. The machine's folder says "held" from before it is stopped
 * until it goes on, for the sake of a daemon that comes after us. */

enum {
	SETTLE_MS = 60000,
	META_VERSION = 2, /* of a snapshot: 1 was before machines had the port of volumes, so that its memory is of no use */
};

struct taking {
	struct vm *vm;
	struct taking *next;
	struct machine *m; /* while it is held */
	char id[40];
	bool memory, passing, saved;
	boundary_snapshot_fn done;
	void *ctx;
	char *path; /* of the unfinished folder */
	int dir, disk;
	struct snapshot_meta meta;
	char *image;
	double cpus;
	struct offload *copy, *keeping;
	const struct keeping *kept;
	struct qemu *qemu; /* of the copy that settles the disk */
	struct ask *ask;
	bool settled;
	struct err why;
};

/* The first are those of a whole one. */
enum { KEPT_FILES = 3 };
static const char *const files[] = { "meta", "disk", "state", "guest", "qmp", "vmm", "id", "meta.new", "vmm.new", "id.new" };

static char *path_of(const char *data, const char *prefix, const char *snapshot)
{
	return xasprintf("%s/snapshots/%s%s", data, prefix, snapshot);
}

static void remove_folder(const char *path)
{
	auto_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	for (size_t i = 0; dir >= 0 && i < ARRAY_LEN(files); i++) /* meta first: from then on it is none */
		(void)unlinkat(dir, files[i], 0);
	if (dir >= 0)
		(void)rmdir(path);
}

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

static uint64_t bytes_of(int dir)
{
	struct stat st;
	uint64_t n = 0;

	for (size_t i = 1; i < KEPT_FILES; i++)
		if (fstatat(dir, files[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			n += (uint64_t)st.st_blocks * 512;
	return n;
}

/* The last step, and the one that waits for the disk: a thread's. */
struct keeping {
	int dir;
	bool good, passing, memory; /* not good: it is removed */
	char *folder, *path, *to, meta[200];
	uint64_t bytes; /* result */
};

static int write_out(int dir)
{
	for (size_t i = 0; i < KEPT_FILES; i++) {
		auto_fd int fd = openat(dir, files[i], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0 ? fsync(fd) < 0 : errno != ENOENT)
			return -errno;
	}
	return fsync(dir) < 0 ? -errno : 0;
}

static int put_in_place(const struct keeping *k)
{
	for (size_t i = k->memory ? KEPT_FILES : KEPT_FILES - 1; i < ARRAY_LEN(files); i++) /* what was for the taking only */
		(void)unlinkat(k->dir, files[i], 0);
	int r = vmdir_write(k->dir, "meta", k->meta);

	if (r == 0 && !k->passing)
		r = write_out(k->dir);
	if (r == 0 && rename(k->path, k->to) < 0)
		r = -errno;
	auto_fd int folder = r < 0 || k->passing ? -EBADF : open(k->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return folder >= 0 && fsync(folder) < 0 ? -errno : r;
}

static int run_keeping(void *work, struct err *e)
{
	struct keeping *k = work;
	int r = k->good ? put_in_place(k) : 0;

	k->bytes = bytes_of(k->dir);
	if (!k->good || r < 0)
		remove_folder(faccessat(AT_FDCWD, k->path, F_OK, 0) == 0 ? k->path : k->to);
	return r < 0 ? err_sys(e, ERR_UNAVAILABLE, -r, "put the snapshot in its place") : 0;
}

static void release_keeping(void *work)
{
	struct keeping *k = work;

	close_fd(k->dir);
	free(k->folder);
	free(k->path);
	free(k->to);
	free(k);
}

static void tell(struct taking *t, uint64_t bytes)
{
	struct taking **at = &t->vm->takings;
	boundary_snapshot_fn done = t->done;
	void *ctx = t->ctx;
	struct err why = t->why;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	free(t->path);
	free(t->image);
	free(t);
	done(ctx, why.kind ? &why : NULL, why.kind ? 0 : bytes);
}

static void on_kept(void *ctx, const struct err *e)
{
	struct taking *t = ctx;

	if (e && !t->why.kind)
		t->why = *e;
	tell(t, t->kept->bytes);
}

/* All that it holds but its folder. Not from within a callback of the copy's own monitor. */
static void let_all_go(struct taking *t)
{
	let_machine_go(t);
	offload_cancel(take_ptr(&t->copy));
	ask_free(take_ptr(&t->ask));
	qemu_free(take_ptr(&t->qemu));
	t->disk = close_fd(t->disk);
	t->dir = close_fd(t->dir);
}

static void end(struct taking *t, const struct err *why)
{
	struct keeping *k = xcalloc(1, sizeof *k);

	t->why = why ? *why : (struct err){ 0 };
	*k = (struct keeping){ .dir = take_fd(&t->dir), .good = !why, .passing = t->passing, .memory = t->meta.with_memory, .folder = path_of(t->vm->data, "", ""),
			       .path = xstrdup(t->path), .to = path_of(t->vm->data, "", t->id) };
	snprintf(k->meta, sizeof k->meta, "%d %llu %llu %u %d", META_VERSION, (unsigned long long)t->meta.memory_mib, (unsigned long long)t->meta.disk_mib, t->meta.cpus,
		 t->meta.with_memory);
	let_all_go(t);
	t->kept = k;
	t->keeping = offload_new(t->vm->qemu.loop, run_keeping, release_keeping, k, on_kept, t);
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
	int state = openat(t->dir, "state", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
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
		t->ask = ask_new(t->vm->qemu.loop, fd, &(struct ask_what){ ask_put_sync, GUEST_OP_END, false, SETTLE_MS }, on_settled, t);
	else
		copy_is_of_no_use(t, "open the line to it");
}

static void settle(struct taking *t)
{
	static const struct qemu_events events = { on_copy_started, on_copy_ended, NULL, on_copy_restored };
	const struct vm *v = t->vm;
	char id[37];
	struct err e;
	auto_fd int disk = openat(t->dir, "disk", O_RDWR | O_NOFOLLOW | O_CLOEXEC), guest = vmdir_listen(t->dir, "guest"), qmp = vmdir_listen(t->dir, "qmp");

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

static void on_copied(void *ctx, const struct err *e)
{
	struct taking *t = ctx;

	t->copy = NULL;
	bool running = t->saved, lost = running && !t->m;
	let_machine_go(t);
	if (e || lost)
		end(t, lost ? &t->why : e);
	else if (running && !t->memory)
		settle(t);
	else
		end(t, NULL);
}

static void copy_disk(struct taking *t)
{
	int to = vmdir_new_disk(t->dir);
	struct err e;

	if (to >= 0) {
		t->copy = offload_disk_copy(t->vm->qemu.loop, take_fd(&t->disk), to, on_copied, t);
		return;
	}
	(void)err_sys(&e, ERR_UNAVAILABLE, -to, "make the snapshot's disk");
	end(t, &e);
}

static void fail_saving(struct taking *t, const char *what)
{
	struct err e;

	(void)err_set(&e, ERR_UNAVAILABLE, EIO, "%s", what);
	end(t, &e);
}

static void on_told(void *ctx, const struct err *e, const json_t *result)
{
	struct machine *m = ctx;

	(void)result;
	/* the end of the connection is that of the process, which is told on its own */
	if (e && e->errnum != EPIPE && e->errnum != ECANCELED && m->taking && !m->taking->saved)
		fail_saving(m->taking, e->message);
}

void vm_snapshot_event(struct machine *m, const char *name, const json_t *data)
{
	struct taking *t = m->taking;
	const char *status = json_string_value(json_object_get(data, "status"));

	if (!t || t->saved || !streq(name, "MIGRATION") || !status)
		return;
	if (streq(status, "completed")) {
		t->saved = true;
		copy_disk(t);
	} else if (streq(status, "failed")) {
		fail_saving(t, "QEMU could not save the machine's memory");
	}
}

/* Stopped from the start: of an emulated machine that goes on meanwhile QEMU misses pages that change, and copies crash. */
static void save(struct taking *t, int state)
{
	struct machine *m = t->m;
	struct qemu *q = m->qemu;

	(void)vmdir_write(m->dir, "held", m->paused ? "paused" : "running");
	qemu_call(q, "migrate-set-capabilities", qemu_capabilities(), -EBADF, on_told, m);
	qemu_call(q, "stop", NULL, -EBADF, on_told, m);
	qemu_call(q, "migrate-set-parameters", json_pack("{s:I}", "max-bandwidth", (json_int_t)1 << 36), -EBADF, on_told, m);
	qemu_call(q, "getfd", json_pack("{s:s}", "fdname", "state"), state, on_told, m);
	qemu_call(q, "migrate", json_pack("{s:s}", "uri", "fd:state"), -EBADF, on_told, m);
}

void vm_snapshot_machine_gone(struct machine *m)
{
	struct taking *t = m->taking;

	if (!t)
		return;
	m->taking = NULL;
	t->m = NULL;
	(void)err_set(&t->why, ERR_GONE, ESRCH, "the sandbox has ended while the snapshot was taken");
	if (!t->copy)
		end(t, &t->why);
}

static int begin(struct vm *v, const char *id, const char *snapshot, bool memory, bool passing, struct taking **ret, struct err *e)
{
	if (!vmdir_id_valid(id) || !vmdir_id_valid(snapshot))
		return err_set(e, ERR_INVALID, EINVAL, "not the id of a sandbox, or not one for a snapshot");
	if (!machine_find(v, id))
		(void)machine_adopt(v, id);
	struct machine *m = machine_find(v, id);
	auto_free char *path = path_of(v->data, "", snapshot), *beside = path_of(v->data, ".new-", snapshot), *folder = path_of(v->data, "", "");
	auto_fd int dir = vmdir_open(v->data, id), disk = dir < 0 ? -ENOENT : openat(dir, "disk", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
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
			      .image = image, .cpus = m ? m->resources.cpus : 0 };
	t->meta.cpus = (unsigned)ceil(t->cpus);
	t->meta.with_memory = memory && m; /* of one that is stopped there is none */
	t->dir = open(t->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	snprintf(t->id, sizeof t->id, "%s", snapshot);
	v->takings = t;
	if (m)
		m->taking = t;
	*ret = t;
	return 0;
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
	if (!t->m) {
		copy_disk(t);
		return;
	}
	int state = openat(t->dir, "state", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (state >= 0) {
		save(t, state);
		return;
	}
	(void)err_sys(&e, ERR_UNAVAILABLE, errno, "make the file of the machine's memory");
	end(t, &e);
}

/* --- those that are there --- */

int vm_snapshot_open(const struct vm *v, const char *snapshot, struct snapshot_meta *ret, struct err *e)
{
	auto_free char *path = path_of(v->data, "", snapshot);
	auto_fd int dir = vmdir_id_valid(snapshot) ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -EINVAL;
	auto_free char *text = dir < 0 ? NULL : vmdir_read(dir, "meta");
	unsigned long long memory, disk;
	unsigned cpus;
	int version, with;

	if (!text)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "there is no such snapshot");
	if (sscanf(text, "%d %llu %llu %u %d", &version, &memory, &disk, &cpus, &with) != 5 || version < 1 || version > META_VERSION)
		return err_set(e, ERR_UNAVAILABLE, EBADMSG, "the snapshot is damaged");
	if (with && version < META_VERSION)
		return err_set(e, ERR_UNSUPPORTED, EBADMSG, "the snapshot's memory is of a machine that an earlier version of this program made, with other devices");
	*ret = (struct snapshot_meta){ memory, disk, cpus, with };
	return take_fd(&dir);
}

struct dropping {
	struct vm *vm;
	struct dropping *next;
	struct offload *work;
	boundary_done_fn done;
	void *ctx;
};

static int run_drop(void *work, struct err *e)
{
	const char *path = work;

	remove_folder(path);
	return access(path, F_OK) == 0 ? err_set(e, ERR_UNAVAILABLE, EIO, "the snapshot's folder could not be removed") : 0;
}

static void on_dropped(void *ctx, const struct err *e)
{
	struct dropping *d = ctx, **at = &d->vm->droppings;
	struct dropping was = *d;

	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	free(d);
	was.done(was.ctx, e);
}

void vm_drop_snapshot(struct boundary *b, const char *snapshot, boundary_done_fn done, void *ctx)
{
	struct vm *v = container_of(b, struct vm, base);
	struct err e;

	if (!vmdir_id_valid(snapshot)) {
		(void)err_set(&e, ERR_INVALID, EINVAL, "not the id of a snapshot");
		done(ctx, &e);
		return;
	}
	struct dropping *d = xcalloc(1, sizeof *d);
	*d = (struct dropping){ v, v->droppings, NULL, done, ctx };
	v->droppings = d;
	d->work = offload_new(v->qemu.loop, run_drop, free, path_of(v->data, "", snapshot), on_dropped, d);
}

void vm_list_snapshots(struct boundary *b, boundary_snapshots_fn done, void *ctx)
{
	const struct vm *v = container_of(b, struct vm, base);
	auto_free char *folder = path_of(v->data, "", "");
	DIR *d = opendir(folder);
	char **ids = NULL;
	size_t n = 0;

	for (const struct dirent *entry; d && (entry = readdir(d));) {
		if (!vmdir_id_valid(entry->d_name))
			continue;
		ids = xreallocarray(ids, n + 1, sizeof *ids);
		ids[n++] = xstrdup(entry->d_name);
	}
	if (d)
		closedir(d);
	done(ctx, NULL, (const char *const *)ids, n);
	for (size_t i = 0; i < n; i++)
		free(ids[i]);
	free(ids);
}

void vm_snapshots_sweep(struct vm *v)
{
	auto_free char *folder = path_of(v->data, "", "");
	DIR *d = opendir(folder);

	for (const struct dirent *entry; d && (entry = readdir(d));) {
		auto_free char *path = xasprintf("%s%s", folder, entry->d_name);
		auto_fd int dir = vmdir_id_valid(entry->d_name) || strncmp(entry->d_name, ".new-", 5) == 0 ?
					  open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) :
					  -EINVAL;
		if (dir < 0 || (entry->d_name[0] != '.' && faccessat(dir, "meta", F_OK, 0) == 0))
			continue;
		vmm_end_unfinished(v->qemu.launcher, dir);
		remove_folder(path);
	}
	if (d)
		closedir(d);
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
			remove_folder(t->path);
		let_all_go(t);
		t->why = e;
		tell(t, 0);
	}
	while (v->droppings) {
		offload_cancel(v->droppings->work);
		on_dropped(v->droppings, &e);
	}
}

void vm_snapshots_remove(const char *data)
{
	auto_free char *folder = path_of(data, "", "");
	DIR *d = opendir(folder);

	for (const struct dirent *entry; d && (entry = readdir(d));) {
		auto_free char *path = xasprintf("%s%s", folder, entry->d_name);
		if (vmdir_id_valid(entry->d_name) || entry->d_name[0] == '.')
			remove_folder(path);
	}
	if (d)
		closedir(d);
	(void)rmdir(folder);
}
