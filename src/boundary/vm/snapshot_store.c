#include "boundary/vm/snapshot_int.h"

#include "boundary/vm/offload.h"
#include "boundary/vm/vmdir.h"
#include "boundary/vm/vmm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first are those of a whole one. */
enum { KEPT_FILES = 3 };
static const char *const files[] = { "meta", "disk", "state", "guest", "qmp", "vmm", "id", "meta.new", "vmm.new", "id.new" };

char *snapshot_path(const char *data, const char *prefix, const char *snapshot)
{
	return xasprintf("%s/snapshots/%s%s", data, prefix, snapshot);
}

void snapshot_folder_remove(const char *path)
{
	auto_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	for (size_t i = 0; dir >= 0 && i < ARRAY_LEN(files); i++) /* meta first: from then on it is none */
		(void)unlinkat(dir, files[i], 0);
	if (dir >= 0)
		(void)rmdir(path);
}

/* --- the last step --- */

static uint64_t bytes_in(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
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

static int write_out(int dir)
{
	for (size_t i = 0; i < KEPT_FILES; i++) {
		auto_fd int fd = vmdir_open_file(dir, files[i], O_RDONLY);
		if (fd < 0 && fd != -ENOENT)
			return fd;
		if (fd >= 0 && fsync(fd) < 0)
			return -errno;
	}
	return fsync(dir) < 0 ? -errno : 0;
}

/* "-": there is no such file. */
static int sum_of(int dir, const char *name, char ret[static TRANSFER_SUM + 1])
{
	auto_fd int fd = vmdir_open_file(dir, name, O_RDONLY);

	snprintf(ret, TRANSFER_SUM + 1, "-");
	return fd == -ENOENT ? 0 : fd < 0 ? fd : transfer_sum(fd, ret);
}

/* Of what is to last, with sums. */
static int write_meta(const struct keeping *k)
{
	char disk[TRANSFER_SUM + 1] = "-", state[TRANSFER_SUM + 1] = "-";
	int r = k->passing ? 0 : sum_of(k->dir, "disk", disk);

	if (r == 0 && !k->passing)
		r = sum_of(k->dir, "state", state);
	auto_free char *text = xasprintf("%s %s %s", k->meta, disk, state);
	return r == 0 ? vmdir_write(k->dir, "meta", text) : r;
}

static int put_in_place(struct keeping *k)
{
	for (size_t i = k->memory ? KEPT_FILES : KEPT_FILES - 1; i < ARRAY_LEN(files); i++) /* what was for the taking only */
		(void)unlinkat(k->dir, files[i], 0);
	int r = k->changed < 0 ? 0 : memory_make(k->changed, k->base, k->devices, MEMORY_READ_IN_MAX, &k->apart);

	if (r == 0)
		r = write_meta(k);
	if (r == 0 && !k->passing)
		r = write_out(k->dir);
	if (r == 0 && rename(k->path, k->to) < 0)
		r = -errno;
	auto_fd int folder = r < 0 || k->passing ? -EBADF : open(k->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return folder >= 0 && fsync(folder) < 0 ? -errno : r;
}

static int put_beside_disk(struct keeping *k)
{
	auto_fd int state = vmdir_open_file(k->dir, "state", O_RDONLY);
	char sum[TRANSFER_SUM + 1];
	int r = state < 0 ? state : transfer_sum(state, sum);

	if (r == 0)
		r = vmdir_write(k->machine, "memory.sum", sum);
	if (r == 0)
		r = fsync(state) < 0 || renameat(k->dir, "state", k->machine, "memory") < 0 || fsync(k->machine) < 0 ? -errno : 0;

	snapshot_folder_remove(k->path);
	return r;
}

int keeping_run(void *work, struct err *e)
{
	struct keeping *k = work;
	int r = !k->good ? 0 : k->machine >= 0 ? put_beside_disk(k) : put_in_place(k);

	k->bytes = bytes_of(k->dir) + bytes_in(k->apart.state) + bytes_in(k->changed); /* which is there still where it is their memory */
	if (!k->good || r < 0)
		snapshot_folder_remove(faccessat(AT_FDCWD, k->path, F_OK, 0) == 0 ? k->path : k->to);
	return r < 0 ? err_sys(e, ERR_UNAVAILABLE, -r, k->machine >= 0 ? "keep the machine's memory" : "put the snapshot in its place") : 0;
}

void keeping_release(void *work)
{
	struct keeping *k = work;

	close_fd(k->dir);
	close_fd(k->machine);
	close_fd(k->changed);
	close_fd(k->devices);
	close_fd(k->base);
	memory_files_close(&k->apart);
	free(k->folder);
	free(k->path);
	free(k->to);
	free(k);
}

/* --- those that are there --- */

int vm_snapshot_open(const struct vm *v, const char *snapshot, struct snapshot_meta *ret, struct err *e)
{
	auto_free char *path = snapshot_path(v->data, "", snapshot);
	auto_fd int dir = vmdir_id_valid(snapshot) ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -EINVAL;
	auto_free char *text = dir < 0 ? NULL : vmdir_read(dir, "meta");
	unsigned long long memory, disk;
	unsigned cpus;
	int version, with;
	struct snapshot_meta meta = { 0 };

	if (!text)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "there is no such snapshot");
	int n = sscanf(text, "%d %llu %llu %u %d %64s %64s", &version, &memory, &disk, &cpus, &with, meta.disk_sum, meta.memory_sum);
	if (n < 5 || version < 1 || version > SNAPSHOT_META_VERSION || with < 0 || with > 2 || (version >= SNAPSHOT_META_WITH_SUMS && n != 7))
		return err_set(e, ERR_UNAVAILABLE, EBADMSG, "snapshot %s is damaged: what it was taken of cannot be read", snapshot);
	if (with && version < SNAPSHOT_META_WITH_MEMORY)
		return err_set(e, ERR_UNSUPPORTED, EBADMSG, "the snapshot's memory is of a machine that an earlier version of this program made, with other devices");
	for (char *sums[] = { meta.disk_sum, meta.memory_sum }, **s = sums; s < sums + ARRAY_LEN(sums); s++)
		if (streq(*s, "-"))
			**s = '\0';
	snprintf(meta.id, sizeof meta.id, "%s", snapshot);
	meta.memory_mib = memory;
	meta.disk_mib = disk;
	meta.cpus = cpus;
	meta.with_memory = with > 0;
	meta.apart = with == 2;
	*ret = meta;
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

	snapshot_folder_remove(path);
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
	memory_forget(v, snapshot);
	*d = (struct dropping){ v, v->droppings, NULL, done, ctx };
	v->droppings = d;
	d->work = offload_new(v->qemu.loop, run_drop, free, snapshot_path(v->data, "", snapshot), on_dropped, d);
}

void snapshot_droppings_cancel(struct vm *v, const struct err *e)
{
	while (v->droppings) {
		offload_cancel(v->droppings->work);
		on_dropped(v->droppings, e);
	}
}

void vm_list_snapshots(struct boundary *b, boundary_snapshots_fn done, void *ctx)
{
	const struct vm *v = container_of(b, struct vm, base);
	auto_free char *folder = snapshot_path(v->data, "", "");
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
	auto_free char *folder = snapshot_path(v->data, "", "");
	DIR *d = opendir(folder);

	for (const struct dirent *entry; d && (entry = readdir(d));) {
		auto_free char *path = xasprintf("%s%s", folder, entry->d_name);
		auto_fd int dir = vmdir_id_valid(entry->d_name) || strncmp(entry->d_name, ".new-", 5) == 0 ?
					  open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) :
					  -EINVAL;
		if (dir < 0 || (entry->d_name[0] != '.' && faccessat(dir, "meta", F_OK, 0) == 0))
			continue;
		vmm_end_unfinished(v->qemu.launcher, dir);
		snapshot_folder_remove(path);
	}
	if (d)
		closedir(d);
}

void vm_snapshots_remove(const char *data)
{
	auto_free char *folder = snapshot_path(data, "", "");
	DIR *d = opendir(folder);

	for (const struct dirent *entry; d && (entry = readdir(d));) {
		auto_free char *path = xasprintf("%s%s", folder, entry->d_name);
		if (vmdir_id_valid(entry->d_name) || entry->d_name[0] == '.')
			snapshot_folder_remove(path);
	}
	if (d)
		closedir(d);
	(void)rmdir(folder);
}
