#include "boundary/fake/fake.h"

#include "boundary/fake/place.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uthash.h>

/* A started sandbox: watched by the pidfd of its PID 1. Freed when the watch is closed. */
struct started {
	struct fake *fake;
	char id[40];
	int pidfd;
	uv_poll_t poll;
	boundary_done_fn stopped; /* asked for; told when it has ended */
	void *stopped_ctx;
	bool remove;              /* destroy: the directory goes too */
	UT_hash_handle hh;
};

struct fake {
	struct boundary b;
	uv_loop_t *loop;
	char *dir, *guest;
	struct started *started;
};

static struct fake *fake_of(struct boundary *b)
{
	return container_of(b, struct fake, b);
}

static char *path_of(const struct fake *f, const char *id)
{
	return xasprintf("%s/%s", f->dir, id);
}

static bool id_valid(const char *id)
{
	return strlen(id) == 36 && strspn(id, "0123456789abcdef-") == 36;
}

static struct started *find(const struct fake *f, const char *id)
{
	struct started *s;

	HASH_FIND_STR(f->started, id, s);
	return s;
}

/* --- the end of a process --- */

static void on_poll_closed(uv_handle_t *h)
{
	struct started *s = h->data;

	close_fd(s->pidfd);
	free(s);
}

static void forget(struct started *s)
{
	HASH_DEL(s->fake->started, s);
	uv_poll_stop(&s->poll);
	uv_close((uv_handle_t *)&s->poll, on_poll_closed);
}

static bool ephemeral(const char *dir)
{
	auto_free char *mark = xasprintf("%s/ephemeral", dir);

	return access(mark, F_OK) == 0;
}

static void on_ended(uv_poll_t *h, int status, int events)
{
	struct started *s = h->data;
	struct fake *f = s->fake;
	boundary_done_fn stopped = s->stopped;
	void *ctx = s->stopped_ctx;
	bool remove = s->remove;
	char id[40];

	(void)status;
	(void)events;
	memcpy(id, s->id, sizeof id);
	forget(s);
	if (!stopped) {
		struct boundary_exit x = { .reason = "the guest has ended" };
		if (f->b.on_exit)
			f->b.on_exit(f->b.on_exit_ctx, id, &x);
		return;
	}
	auto_free char *dir = path_of(f, id);
	struct err e;
	int r = remove || ephemeral(dir) ? place_remove(dir, &e) : 0;
	stopped(ctx, r < 0 ? &e : NULL);
}

static int watch(struct fake *f, const char *id, int pidfd)
{
	struct started *s = xcalloc(1, sizeof *s);

	s->fake = f;
	s->pidfd = pidfd;
	s->poll.data = s;
	snprintf(s->id, sizeof s->id, "%s", id);
	if (uv_poll_init(f->loop, &s->poll, pidfd) < 0) {
		close_fd(pidfd);
		free(s);
		return -ENOMEM;
	}
	uv_poll_start(&s->poll, UV_READABLE, on_ended);
	HASH_ADD_STR(f->started, id, s);
	return 0;
}

/* --- the interface --- */

static void fake_list(struct boundary *b, boundary_list_fn done, void *ctx)
{
	struct fake *f = fake_of(b);
	const char **ids = NULL;
	bool *started = NULL;
	size_t n = 0;
	DIR *d = opendir(f->dir);

	for (struct dirent *entry; d && (entry = readdir(d));) {
		if (!id_valid(entry->d_name))
			continue;
		auto_free char *dir = path_of(f, entry->d_name);
		int pidfd = find(f, entry->d_name) ? -1 : place_process(dir);
		if (pidfd >= 0)
			(void)watch(f, entry->d_name, pidfd); /* adopted */
		ids = xreallocarray(ids, n + 1, sizeof *ids);
		started = xreallocarray(started, n + 1, sizeof *started);
		ids[n] = xstrdup(entry->d_name);
		started[n++] = find(f, entry->d_name) != NULL;
	}
	if (d)
		closedir(d);
	done(ctx, NULL, ids, started, n);
	for (size_t i = 0; i < n; i++)
		free((void *)(uintptr_t)ids[i]);
	free(ids);
	free(started);
}

static int start(struct fake *f, const struct boundary_spec *spec, struct err *e)
{
	auto_free char *dir = path_of(f, spec->id);
	struct stat st;

	if (find(f, spec->id))
		return err_set(e, ERR_CONFLICT, EEXIST, "the sandbox is started already");
	if (stat(dir, &st) < 0)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "there is no such sandbox");
	pid_t pid = place_start(dir, f->guest, spec->hostname ? spec->hostname : "fake", e);
	if (pid < 0)
		return pid;
	int pidfd = place_process(dir);
	if (pidfd < 0 || watch(f, spec->id, pidfd) < 0)
		return err_set(e, ERR_UNAVAILABLE, ESRCH, "the guest has ended at once");
	return 0;
}

/* DIR/snapshot-<id> is one, DIR/making-<id> a half-made one. */
static char *snapshot_path(const struct fake *f, const char *prefix, const char *snapshot)
{
	return xasprintf("%s/%s%s", f->dir, prefix, snapshot);
}

static int create(struct fake *f, const struct boundary_spec *spec, struct err *e)
{
	auto_free char *dir = path_of(f, spec->id), *mark = xasprintf("%s/ephemeral", dir);

	if (!id_valid(spec->id) || (spec->from_snapshot && !id_valid(spec->from_snapshot)))
		return err_set(e, ERR_INVALID, EINVAL, "not a sandbox id");
	if (boundary_no_volumes(spec, e) < 0)
		return -EOPNOTSUPP;
	auto_free char *from = spec->from_snapshot ? snapshot_path(f, "snapshot-", spec->from_snapshot) : NULL;
	int r = from ? place_copy(from, dir, e) : place_make(dir, e);
	if (r < 0)
		return r;
	if (spec->ephemeral)
		(void)mkdir(mark, 0700);
	if ((r = start(f, spec, e)) < 0)
		(void)place_remove(dir, NULL);
	return r;
}

static void fake_create(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx)
{
	struct err e;

	done(ctx, create(fake_of(b), spec, &e) < 0 ? &e : NULL);
}

static void fake_start(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx)
{
	struct err e;

	done(ctx, start(fake_of(b), spec, &e) < 0 ? &e : NULL);
}

static void end(struct fake *f, const char *id, bool remove, boundary_done_fn done, void *ctx)
{
	struct started *s = find(f, id);
	auto_free char *dir = path_of(f, id);
	struct err e;

	if (!id_valid(id)) {
		err_set(&e, ERR_INVALID, EINVAL, "not a sandbox id");
		done(ctx, &e);
		return;
	}
	if (s && s->stopped) {
		err_set(&e, ERR_CONFLICT, EBUSY, "the sandbox is being stopped already");
		done(ctx, &e);
		return;
	}
	if (!s) { /* one that a former process has started is watched first, so that its end can be seen */
		int pidfd = place_process(dir);
		if (pidfd >= 0 && watch(f, id, pidfd) == 0)
			s = find(f, id);
	}
	if (!s) {
		done(ctx, (remove || ephemeral(dir)) && place_remove(dir, &e) < 0 ? &e : NULL);
		return;
	}
	s->stopped = done;
	s->stopped_ctx = ctx;
	s->remove = remove;
	(void)syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0);
}

static void fake_stop(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	end(fake_of(b), id, false, done, ctx);
}

static void fake_destroy(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	end(fake_of(b), id, true, done, ctx);
}

static void refuse(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	struct err e;

	(void)b;
	(void)id;
	err_set(&e, ERR_UNSUPPORTED, EOPNOTSUPP, "the fake boundary cannot pause");
	done(ctx, &e);
}

static void fake_usage(struct boundary *b, const char *id, boundary_usage_fn done, void *ctx)
{
	struct fake *f = fake_of(b);
	auto_free char *dir = path_of(f, id);
	struct statvfs v;
	struct usage u = { 0 };
	struct err e;

	if (!find(f, id) || statvfs(dir, &v) < 0) {
		err_set(&e, ERR_NOT_FOUND, ESRCH, "the sandbox is not started");
		done(ctx, &e, NULL);
		return;
	}
	u.disk_bytes = place_bytes(dir);
	u.disk_limit_bytes = (uint64_t)v.f_blocks * v.f_frsize;
	u.inodes_limit = v.f_files;
	u.pids = place_processes(dir);
	done(ctx, NULL, &u);
}

static int take_snapshot(struct fake *f, const char *id, const char *snapshot, uint64_t *ret_bytes, struct err *e)
{
	struct started *s = find(f, id);
	auto_free char *dir = path_of(f, id), *making = snapshot_path(f, "making-", snapshot), *made = snapshot_path(f, "snapshot-", snapshot);

	if (!id_valid(id) || !id_valid(snapshot))
		return err_set(e, ERR_INVALID, EINVAL, "not an id");
	if (access(made, F_OK) == 0)
		return err_set(e, ERR_CONFLICT, EEXIST, "there is a snapshot %s already", snapshot);
	if (s)
		place_hold(dir, true);
	int r = place_copy(dir, making, e);
	if (s)
		place_hold(dir, false);
	if (r == 0 && rename(making, made) < 0)
		r = err_sys(e, ERR_UNAVAILABLE, errno, "keep the snapshot");
	if (r < 0)
		(void)place_remove(making, NULL);
	else
		*ret_bytes = place_bytes(made);
	return r;
}

static void fake_snapshot(struct boundary *b, const char *id, const char *snapshot, bool memory, bool passing, boundary_snapshot_fn done, void *ctx)
{
	struct err e;
	uint64_t bytes = 0;

	(void)passing;
	if (memory)
		err_set(&e, ERR_UNSUPPORTED, EOPNOTSUPP, "the fake boundary keeps disks, not what runs");
	bool good = !memory && take_snapshot(fake_of(b), id, snapshot, &bytes, &e) == 0;
	done(ctx, good ? NULL : &e, bytes);
}

static void fake_drop_snapshot(struct boundary *b, const char *snapshot, boundary_done_fn done, void *ctx)
{
	auto_free char *dir = snapshot_path(fake_of(b), "snapshot-", snapshot);
	struct err e;

	if (!id_valid(snapshot))
		err_set(&e, ERR_INVALID, EINVAL, "not an id");
	done(ctx, id_valid(snapshot) && place_remove(dir, &e) == 0 ? NULL : &e);
}

static void fake_list_snapshots(struct boundary *b, boundary_snapshots_fn done, void *ctx)
{
	struct fake *f = fake_of(b);
	const char **ids = NULL;
	size_t n = 0;
	DIR *d = opendir(f->dir);

	for (struct dirent *entry; d && (entry = readdir(d));) {
		if (strncmp(entry->d_name, "snapshot-", 9) != 0 || !id_valid(entry->d_name + 9))
			continue;
		ids = xreallocarray(ids, n + 1, sizeof *ids);
		ids[n++] = xstrdup(entry->d_name + 9);
	}
	if (d)
		closedir(d);
	done(ctx, NULL, ids, n);
	for (size_t i = 0; i < n; i++)
		free((void *)(uintptr_t)ids[i]);
	free(ids);
}

static int fake_open_guest(struct boundary *b, const char *id, struct err *e)
{
	struct fake *f = fake_of(b);
	auto_free char *dir = path_of(f, id);

	if (!find(f, id))
		return err_set(e, ERR_NOT_FOUND, ESRCH, "the sandbox is not started");
	int fd = place_connect(dir);
	return fd < 0 ? err_sys(e, ERR_UNAVAILABLE, -fd, "cannot connect to the guest") : fd;
}

static void fake_free(struct boundary *b)
{
	struct fake *f = fake_of(b);
	struct started *s, *next;

	HASH_ITER(hh, f->started, s, next)
		forget(s);
	free(f->dir);
	free(f->guest);
	free(f);
}

static int check_nothing(struct boundary *b, const struct resources *r, struct err *e)
{
	(void)b;
	(void)r;
	(void)e;
	return 0; /* without limits */
}

struct boundary *boundary_fake_new(uv_loop_t *loop, const char *dir, const char *guest, struct err *e)
{
	static const struct boundary_ops ops = {
		.name = "fake",
		.caps = BOUNDARY_CAN_SNAPSHOT_DISK | BOUNDARY_MANY_CONNECTIONS,
		.list = fake_list,
		.create = fake_create,
		.start = fake_start,
		.stop = fake_stop,
		.destroy = fake_destroy,
		.pause = refuse,
		.resume = refuse,
		.usage = fake_usage,
		.check = check_nothing,
		.snapshot = fake_snapshot,
		.drop_snapshot = fake_drop_snapshot,
		.list_snapshots = fake_list_snapshots,
		.open_guest = fake_open_guest,
		.free = fake_free,
	};
	struct stat st;

	if (dir[0] != '/' || stat(dir, &st) < 0 || !S_ISDIR(st.st_mode)) {
		err_set(e, ERR_INVALID, ENOTDIR, "%s is not the absolute path of a directory", dir);
		return NULL;
	}
	struct fake *f = xcalloc(1, sizeof *f);
	f->b.ops = &ops;
	f->loop = loop;
	f->dir = xstrdup(dir);
	f->guest = xstrdup(guest);
	return &f->b;
}
