#include "warden/snapshot.h"
#include "warden/volume.h"

#include "sys/fs.h"
#include "sys/loop.h"
#include "sys/mnt.h"
#include "sys/pages.h"
#include "sys/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FREEZE_WITHIN_MS 5000
#define JOBS_MAX	 16 /* children at a time */
#define NAME_MAX_	 64

struct report { /* shared with the child */
	bool done;
	uint64_t bytes;
	struct err e; /* kind 0 = none */
};

struct snapshot_job {
	struct snapshot_job *next;
	uint64_t serial;
	enum warden_op op; /* 0: a machine's memory, asked for at the machines' door */
	char id[40], snapshot[40];
	bool held; /* the sandbox is frozen on the job's account */
	bool canceled;
	int pidfd;
	struct report *report;
};

static void snapshot_file(char ret[static NAME_MAX_], const char *snapshot)
{
	snprintf(ret, NAME_MAX_, "snapshot-%s.img", snapshot);
}

static void disk_file(char ret[static NAME_MAX_], const char *id)
{
	snprintf(ret, NAME_MAX_, "%s.img", id);
}

/* --- in the child --- */

struct work {
	const struct warden *w;
	struct report *report;
	const char *from, *to; /* files in disks_fd */
	uint64_t mib;	       /* not 0: from an empty file system of this size */
	const char *id;	       /* of the sandbox to hold, or NULL */
	bool freeze;	       /* it runs and is not paused */
	unsigned loop;	       /* it is mounted from there, with `mounted` */
	bool mounted;
	const struct sandbox *machine; /* its memory instead: what differs from `base` */
	int base, memory;
};

static int hold(const struct work *k, struct err *e)
{
	struct cgroup_host *groups = (struct cgroup_host *)(uintptr_t)&k->w->groups;
	uint64_t until = now_ms() + FREEZE_WITHIN_MS;
	int rc = cgroup_freeze(groups, k->id, true);

	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "freeze the sandbox");
	while (!cgroup_is_frozen(groups, k->id)) {
		if (now_ms() > until)
			return err_set(e, ERR_TIMEOUT, ETIMEDOUT, "the sandbox could not be frozen in time");
		usleep(200);
	}
	return 0;
}

/* What the kernel has not written yet goes into the file. The same device mounted again is the same file system, so the sandbox's
 * own paths are not needed. */
static int write_out(const struct work *k, int from, struct err *e)
{
	char source[32];
	struct mnt_option options[] = { { "source", source }, { 0 } };

	if (loop_is_bound(k->loop, from) != 1)
		return err_set(e, ERR_UNAVAILABLE, ENODEV, "the sandbox's disk is not on the device that is on record");
	snprintf(source, sizeof source, "/dev/loop%u", k->loop);
	auto_fd int mount = mnt_new("ext4", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, NULL);
	auto_fd int root = mount < 0 ? mount : openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0 || syncfs(root) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "write the sandbox's disk out");
	return 0;
}

static int copy(const struct work *k, int from, int to, struct err *e)
{
	int rc = 0;

	if (k->freeze)
		rc = hold(k, e);
	if (rc == 0 && k->mounted)
		rc = write_out(k, from, e);
	if (rc == 0)
		rc = disk_copy(k->w->place.disks_fd, from, to, e);
	if (k->freeze)
		(void)cgroup_freeze((struct cgroup_host *)(uintptr_t)&k->w->groups, k->id, false);
	return rc;
}

static int work(const struct work *k, struct err *e)
{
	char beside[NAME_MAX_ + 32];
	int disks = k->w->place.disks_fd;
	struct stat st;

	/* For mke2fs, which must not find its file under the number of its output. */
	if (k->mib && (open("/dev/null", O_RDWR) != STDIN_FILENO || dup(STDIN_FILENO) != STDOUT_FILENO))
		return err_sys(e, ERR_UNAVAILABLE, EBADF, "open /dev/null");
	auto_fd int from = k->mib ? disk_template(&k->w->place, k->mib, true, e) : openat(disks, k->from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (from < 0 && k->mib)
		return from;
	if (from < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, errno, "open the disk to copy");
	snprintf(beside, sizeof beside, "making-%d-%s", (int)getpid(), k->to);
	(void)unlinkat(disks, beside, 0);
	auto_fd int to = openat(disks, beside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make the copy of the disk");
	int rc = copy(k, from, to, e);
	/* A snapshot or a volume is kept for later, so it must outlive a power cut; a new sandbox's disk need not. */
	if (rc == 0 && (k->id || k->mib) && fdatasync(to) < 0)
		rc = err_sys(e, ERR_UNAVAILABLE, errno, "write the copy");
	if (rc == 0 && renameat(disks, beside, disks, k->to) < 0)
		rc = err_sys(e, ERR_UNAVAILABLE, errno, "keep the copy of the disk");
	if (rc < 0)
		(void)unlinkat(disks, beside, 0);
	else if (fstat(to, &st) == 0)
		k->report->bytes = (uint64_t)st.st_blocks * 512;
	return rc;
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static int copy_memory(const struct work *k, struct err *e)
{
	const struct sandbox *s = k->machine;
	int rc = pages_copy((pid_t)s->record.pid, s->pidfd, k->base, k->memory, &k->report->bytes);

	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "copy the machine's memory") : 0;
}

/* Of the warden's descriptors only those that the work needs: its lock, its sockets, and what sandboxes that end meanwhile are held
 * by must not live on here. */
static void close_others(const struct work *k)
{
	const struct warden *w = k->w;
	int keep[CGROUP_TREE_COUNT + 5] = { STDERR_FILENO, w->place.disks_fd, k->machine ? k->machine->pidfd : -1, k->machine ? k->base : -1,
					    k->machine ? k->memory : -1 }, from = 0;

	memcpy(keep + 5, w->groups.parent, sizeof w->groups.parent);
	qsort(keep, ARRAY_LEN(keep), sizeof keep[0], by_number);
	for (size_t i = 0; i < ARRAY_LEN(keep); i++) {
		if (keep[i] > from)
			(void)syscall(SYS_close_range, from, keep[i] - 1, 0);
		from = MAX(from, keep[i] + 1);
	}
	(void)syscall(SYS_close_range, from, ~0u, 0);
}

static void __attribute__((noreturn)) child(const struct work *k)
{
	struct err e = { 0 };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	close_others(k);
	if ((k->machine ? copy_memory(k, &e) : work(k, &e)) < 0)
		k->report->e = e;
	k->report->done = true;
	_exit(0);
}

/* --- in the warden --- */

static int start(struct warden *w, const struct warden_request *rq, struct work *k, struct err *e)
{
	unsigned n = 0;

	for (struct snapshot_job *j = w->jobs; j; j = j->next)
		n++;
	if (n >= JOBS_MAX)
		return err_set(e, ERR_UNAVAILABLE, EAGAIN, "%u copies are being made already: try again", n);
	struct report *report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (report == MAP_FAILED)
		return err_sys(e, ERR_UNAVAILABLE, errno, "map memory");
	k->w = w;
	k->report = report;
	pid_t pid = fork();
	if (pid == 0)
		child(k);
	int pidfd = pid < 0 ? -errno : process_pidfd(pid);
	struct snapshot_job *j = xcalloc(1, sizeof *j);
	*j = (struct snapshot_job){ .next = w->jobs, .serial = rq->serial, .op = (enum warden_op)rq->op, .held = k->freeze, .pidfd = pidfd, .report = report };
	memcpy(j->id, rq->id, sizeof j->id);
	memcpy(j->snapshot, rq->snapshot, sizeof j->snapshot);
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = j };
	if (pidfd < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, pidfd, &ev) < 0) {
		int errnum = errno, status;
		if (pid > 0)
			(void)kill(pid, SIGKILL);
		if (pidfd >= 0)
			(void)process_wait(pidfd, &status);
		close_fd(pidfd);
		(void)munmap(report, sizeof *report);
		free(j);
		return err_sys(e, ERR_UNAVAILABLE, errnum, "start a copy");
	}
	w->jobs = j;
	return 1;
}

int snapshot_take(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	char from[NAME_MAX_], to[NAME_MAX_];
	struct work k = { .from = from, .to = to, .id = rq->id };

	if (s->record.disk_kind != DISK_FILE)
		return err_set(e, ERR_UNSUPPORTED, EOPNOTSUPP,
			       "the disk of this sandbox is in its memory (it is ephemeral and small): only one on disk can be kept");
	for (struct snapshot_job *j = w->jobs; j; j = j->next)
		if (streq(j->id, rq->id) || streq(j->snapshot, rq->snapshot))
			if (j->op == WARDEN_SNAPSHOT)
				return err_set(e, ERR_CONFLICT, EBUSY, "a snapshot of this sandbox, or of this name, is being made");
	disk_file(from, rq->id);
	snapshot_file(to, rq->snapshot);
	if (faccessat(w->place.disks_fd, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return err_set(e, ERR_CONFLICT, EEXIST, "there is a snapshot %s already", rq->snapshot);
	k.mounted = s->life == LIFE_RUNNING;
	k.freeze = k.mounted && !s->record.paused;
	k.loop = s->record.loop;
	return start(w, rq, &k, e);
}

int snapshot_clone(struct warden *w, const struct warden_request *rq, struct err *e)
{
	char from[NAME_MAX_], to[NAME_MAX_];
	struct work k = { .from = from, .to = to };

	for (struct snapshot_job *j = w->jobs; j; j = j->next)
		if (streq(j->id, rq->id))
			return err_set(e, ERR_CONFLICT, EBUSY, "a disk of this sandbox is being made");
	snapshot_file(from, rq->snapshot);
	disk_file(to, rq->id);
	return start(w, rq, &k, e);
}

int snapshot_make_volume(struct warden *w, const struct warden_request *rq, struct err *e)
{
	char to[NAME_MAX_];
	struct work k = { .to = to, .mib = rq->disk_mib };

	volume_file(to, rq->id);
	if (faccessat(w->place.disks_fd, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return err_set(e, ERR_CONFLICT, EEXIST, "there is a volume %s already", rq->id);
	int rc = disk_check(&w->place, DISK_FILE, rq->disk_mib, e);
	return rc < 0 ? rc : start(w, rq, &k, e);
}

int snapshot_memory(struct warden *w, const struct sandbox *s, uint64_t serial, int base, int to, struct err *e)
{
	struct work k = { .machine = s, .base = base, .memory = to };
	struct warden_request as_asked = { .serial = serial };

	memcpy(as_asked.id, s->record.id, sizeof as_asked.id);
	return start(w, &as_asked, &k, e);
}

static int drop(struct warden *w, const char *file)
{
	char trash[NAME_MAX_ + 8];
	int disks = w->place.disks_fd;

	snprintf(trash, sizeof trash, "trash-%s", file);
	if (renameat(disks, file, disks, trash) < 0)
		return errno == ENOENT ? 0 : -errno;
	helper_empty_trash(&w->space_helper);
	return 0;
}

int snapshot_drop(struct warden *w, const char *snapshot)
{
	char file[NAME_MAX_];

	snapshot_file(file, snapshot);
	return drop(w, file);
}

int snapshot_drop_volume(struct warden *w, const char *volume)
{
	char file[NAME_MAX_];

	volume_file(file, volume);
	return drop(w, file);
}

int snapshot_list(struct warden *w, const char *prefix, uint64_t serial)
{
	const size_t n = strlen(prefix);

	int fd = openat(w->place.disks_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		close_fd(fd);
		return -errno;
	}
	for (struct dirent *d; (d = readdir(dir));) {
		struct warden_answer a = { .magic = WARDEN_MAGIC, .op = WARDEN_ITEM, .serial = serial };
		struct stat st;
		if (strncmp(d->d_name, prefix, n) != 0 || strlen(d->d_name) != n + 36 + 4 || !streq(d->d_name + n + 36, ".img"))
			continue;
		memcpy(a.id, d->d_name + n, 36);
		if (!record_id_valid(a.id))
			continue;
		if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			a.disk_bytes = (uint64_t)st.st_blocks * 512;
		warden_send(w, &a);
	}
	(void)closedir(dir);
	return 0;
}

/* The new disk is a stopped sandbox's now. Its image is said by the start. */
static void adopt(struct warden *w, const char *id)
{
	char file[NAME_MAX_];
	struct stat st;

	disk_file(file, id);
	if (warden_find(w, id) || fstatat(w->place.disks_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	struct sandbox *s = warden_add(w, id);
	s->record.disk_kind = DISK_FILE;
	s->record.disk_mib = (uint64_t)st.st_size >> 20;
	if (record_write(w->place.state_fd, &s->record) < 0)
		log_warn("sandbox=%s msg=\"record not written\"", id);
}

static void finish(struct warden *w, struct snapshot_job *j)
{
	struct warden_answer a = { .magic = WARDEN_MAGIC, .op = WARDEN_ANSWER, .serial = j->serial, .disk_bytes = j->report->bytes };
	struct sandbox *s = warden_find(w, j->id);
	struct err e = j->report->e;
	char file[NAME_MAX_];

	/* Closing alone would not do it: another child may hold the descriptor a moment longer. */
	(void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, j->pidfd, NULL);
	process_reap(j->pidfd);
	close_fd(j->pidfd);
	if (j->held && s && !s->record.paused) /* again: it may have died before it could */
		(void)cgroup_freeze(&w->groups, j->id, false);
	if (j->canceled)
		(void)err_set(&e, ERR_GONE, ESRCH, "the sandbox has ended meanwhile");
	else if (!j->report->done)
		(void)err_set(&e, ERR_UNAVAILABLE, EIO, "the copy was killed");
	if (e.kind && j->op == WARDEN_SNAPSHOT)
		(void)snapshot_drop(w, j->snapshot); /* canceled after it was whole */
	if (e.kind && j->op == WARDEN_MAKE_VOLUME) {
		volume_file(file, j->id);
		(void)unlinkat(w->place.disks_fd, file, 0);
	}
	if (e.kind && j->op == WARDEN_CLONE) {
		disk_file(file, j->id);
		(void)unlinkat(w->place.disks_fd, file, 0);
	}
	if (!e.kind && j->op == WARDEN_CLONE)
		adopt(w, j->id);
	if (e.kind && j->op)
		disk_remove_making(w->place.disks_fd, j->op == WARDEN_SNAPSHOT ? j->snapshot : j->id);
	(void)munmap(j->report, sizeof *j->report);
	const int door = j->op ? w->daemon : w->machines;
	if (e.kind) {
		warden_answer_at(door, j->serial, j->id, &e);
	} else {
		memcpy(a.id, j->id, sizeof a.id);
		warden_send_with(door, &a, -EBADF);
	}
	free(j);
}

bool snapshot_event(struct warden *w, const void *source)
{
	struct snapshot_job **at = &w->jobs;

	while (*at && *at != source)
		at = &(*at)->next;
	struct snapshot_job *j = *at;
	if (!j)
		return false;
	*at = j->next;
	finish(w, j);
	return true;
}

void snapshot_cancel(struct warden *w, const char *id)
{
	for (struct snapshot_job *j = w->jobs; j; j = j->next)
		if (streq(j->id, id) && !j->canceled) {
			j->canceled = true;
			(void)process_signal(j->pidfd, SIGKILL);
		}
}

void snapshot_cancel_all(struct warden *w)
{
	int status;

	while (w->jobs) {
		struct snapshot_job *j = w->jobs;
		w->jobs = j->next;
		(void)process_signal(j->pidfd, SIGKILL);
		(void)process_wait(j->pidfd, &status);
		if (j->held)
			(void)cgroup_freeze(&w->groups, j->id, false);
		if (j->op)
			disk_remove_making(w->place.disks_fd, j->op == WARDEN_SNAPSHOT ? j->snapshot : j->id);
		close_fd(j->pidfd);
		(void)munmap(j->report, sizeof *j->report);
		free(j);
	}
}
