#include "warden/warden.h"

#include "sys/fs.h"
#include "sys/mnt.h"
#include "sys/process.h"
#include "warden/inside.h"
#include "warden/machine-request.h"
#include "warden/serve.h"
#include "warden/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TICK_MS	   1
#define EVENTS	   64
#define END_ALL_MS 20000
#define FILES_MAX  65536 /* descriptors of one process in a sandbox */

static struct sandbox **bucket(struct warden *w, const char *id)
{
	uint32_t h = 2166136261u;

	for (const char *p = id; *p; p++)
		h = (h ^ (unsigned char)*p) * 16777619u;
	return &w->buckets[h % BUCKETS];
}

struct sandbox *warden_find(struct warden *w, const char *id)
{
	struct sandbox *s = *bucket(w, id);

	while (s && !streq(s->record.id, id))
		s = s->next_in_bucket;
	return s;
}

struct sandbox *warden_add(struct warden *w, const char *id)
{
	struct sandbox **head = bucket(w, id);
	struct sandbox *s = xcalloc(1, sizeof *s);

	snprintf(s->record.id, sizeof s->record.id, "%s", id);
	s->record.magic = RECORD_MAGIC;
	s->record.size = sizeof s->record;
	s->pidfd = s->server = s->mounts = s->gate = -EBADF;
	s->next_in_bucket = *head;
	*head = s;
	w->count++;
	return s;
}

void warden_set_busy(struct warden *w, struct sandbox *s, bool busy)
{
	if (s->busy == busy)
		return;
	s->busy = busy;
	if (busy) {
		s->next_busy = w->busy;
		s->prev_busy = NULL;
		if (w->busy)
			w->busy->prev_busy = s;
		w->busy = s;
		return;
	}
	if (s->prev_busy)
		s->prev_busy->next_busy = s->next_busy;
	else
		w->busy = s->next_busy;
	if (s->next_busy)
		s->next_busy->prev_busy = s->prev_busy;
}

/* Closing it is not enough: a machine's pidfd is open in the daemon as well, and would go on telling of a sandbox that is no more. */
static void unwatch(struct warden *w, const struct sandbox *s)
{
	if (s->pidfd >= 0)
		(void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, s->pidfd, NULL);
}

void warden_forget(struct warden *w, struct sandbox *s)
{
	struct sandbox **at = bucket(w, s->record.id);

	warden_set_busy(w, s, false);
	while (*at != s)
		at = &(*at)->next_in_bucket;
	*at = s->next_in_bucket;
	w->count--;
	while (s->waiters) {
		struct waiter *one = s->waiters;
		s->waiters = one->next;
		free(one);
	}
	unwatch(w, s);
	close_fd(s->pidfd);
	close_fd(s->gate);
	close_fd(s->mounts);
	free(s->making);
	free(s);
}

int warden_watch(struct warden *w, struct sandbox *s)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = s };
	return epoll_ctl(w->epoll, EPOLL_CTL_ADD, s->pidfd, &ev) < 0 ? -errno : 0;
}

void warden_wait(struct sandbox *s, const struct warden_request *rq, uint64_t within_ms)
{
	struct waiter *one = xcalloc(1, sizeof *one);

	*one = (struct waiter){ rq->serial, (enum warden_op)rq->op, within_ms ? now_ms() + within_ms : UINT64_MAX, s->waiters };
	s->waiters = one;
}

void warden_send_with(int door, const struct warden_answer *a, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof fd)];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec v = { (void *)(uintptr_t)a, sizeof *a };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
	}
	/* Blocks while the daemon does not read: it waits for its own answers then. */
	while (sendmsg(door, &m, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

void warden_send(struct warden *w, const struct warden_answer *a)
{
	warden_send_with(w->daemon, a, -EBADF);
}

static void fill_error(struct warden_answer *a, const struct err *e)
{
	a->kind = e->kind;
	a->errnum = e->errnum;
	snprintf(a->message, sizeof a->message, "%.*s", (int)sizeof a->message - 1, e->message);
}

void warden_answer_at(int door, uint64_t serial, const char *id, const struct err *e)
{
	struct warden_answer a = { .magic = WARDEN_MAGIC, .op = WARDEN_ANSWER, .serial = serial };

	snprintf(a.id, sizeof a.id, "%s", id);
	if (e)
		fill_error(&a, e);
	warden_send_with(door, &a, -EBADF);
}

void warden_answer(struct warden *w, uint64_t serial, const char *id, const struct err *e)
{
	warden_answer_at(w->daemon, serial, id, e);
}

static int door_of(const struct warden *w, const struct sandbox *s)
{
	return s->record.machine ? w->machines : w->daemon;
}

void warden_answer_waiters(struct warden *w, struct sandbox *s, const struct err *e)
{
	while (s->waiters) {
		struct waiter *one = s->waiters;
		struct err ended;
		s->waiters = one->next;
		/* A pause that the sandbox's end overtook has not come true. */
		(void)err_set(&ended, ERR_GONE, ESRCH, "the sandbox has ended");
		warden_answer_at(door_of(w, s), one->serial, s->record.id, one->op == WARDEN_PAUSE ? &ended : e);
		free(one);
	}
}

/* It has ended by itself, and nobody has heard yet. */
static void tell_exit(struct warden *w, struct sandbox *s)
{
	struct warden_answer a = { .magic = WARDEN_MAGIC, .op = WARDEN_EXIT, .oom = s->oom };
	const char *what = s->record.machine ? "QEMU" : "the sandbox's first process";

	if (!s->untold)
		return;
	memcpy(a.id, s->record.id, sizeof a.id);
	if (s->oom)
		snprintf(a.message, sizeof a.message, "the sandbox ran out of memory");
	else
		snprintf(a.message, sizeof a.message, "%s ended by itself", what);
	warden_send_with(door_of(w, s), &a, -EBADF);
	s->untold = false;
}

void warden_kill(struct warden *w, struct sandbox *s)
{
	snapshot_cancel(w, s->record.id);
	sandbox_kill(&w->keeper, s);
	if (s->life == LIFE_ENDING)
		warden_set_busy(w, s, true);
}

/* What waits for a disk or a server that does not answer outlives SIGKILL. */
static void tell_if_late(struct warden *w, struct sandbox *s)
{
	struct err e;

	if (!sandbox_end_is_late(&w->keeper, s))
		return;
	(void)err_set(&e, ERR_UNAVAILABLE, ETIMEDOUT, "its processes do not end");
	log_error("sandbox=%s msg=\"%s\"", s->record.id, e.message);
	warden_answer_waiters(w, s, &e);
	tell_exit(w, s);
}

void warden_sweep(struct warden *w, struct sandbox *s)
{
	int rc = sandbox_sweep(&w->keeper, s);
	if (rc < 0) {
		warden_set_busy(w, s, true);
		if (rc == -EBUSY)
			tell_if_late(w, s);
		return;
	}
	warden_set_busy(w, s, false);
	if (!s->destroying) {
		warden_answer_waiters(w, s, NULL);
		tell_exit(w, s);
		return;
	}
	struct err e;
	rc = sandbox_remove(&w->keeper, s);
	if (rc < 0)
		(void)err_sys(&e, ERR_UNAVAILABLE, -rc, "remove the disk");
	tell_exit(w, s);
	warden_answer_waiters(w, s, rc < 0 ? &e : NULL);
	sandbox_let_go(&w->keeper, s);
	warden_forget(w, s);
}

static void on_end(struct warden *w, struct sandbox *s)
{
	s->untold = s->life == LIFE_RUNNING; /* nobody asked for it */
	/* To close it is not enough: the daemon has a copy of a machine's, and the kernel would go on telling of its end. */
	(void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, s->pidfd, NULL);
	snapshot_cancel(w, s->record.id);
	/* Closing alone would not do it: a copy that is being forked may hold the descriptor a moment longer. */
	(void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, s->pidfd, NULL);
	if (s->untold)
		cgroup_kill(&w->groups, s->record.id); /* strays that entered the group but not the pid namespace: none are known */
	unwatch(w, s);
	sandbox_ended(&w->keeper, s);
	s->destroying |= s->record.machine; /* nothing of one is kept */
	warden_sweep(w, s);
}

static void made(struct warden *w, struct sandbox *s, int rc, struct err *e)
{
	warden_set_busy(w, s, false);
	if (rc == 0 && (rc = warden_watch(w, s)) < 0)
		(void)err_sys(e, ERR_UNAVAILABLE, -rc, "watch the sandbox");
	warden_answer_waiters(w, s, rc < 0 ? e : NULL);
	if (rc < 0)
		warden_forget(w, s);
}

/* The helper of disks has said something. Who waits longest comes last in the list, and goes first. */
static void go_on_making(struct warden *w)
{
	struct sandbox *s = w->busy, *prev;

	while (s && s->next_busy)
		s = s->next_busy;
	for (; s; s = prev) {
		struct err e = { 0 };
		prev = s->prev_busy;
		int rc = s->life == LIFE_MAKING ? sandbox_make(&w->keeper, s, &e) : 1;
		if (rc <= 0)
			made(w, s, rc, &e);
	}
}

static void on_event(struct warden *w, void *source)
{
	struct helper *helper = source == &w->disk_helper ? &w->disk_helper : source == &w->space_helper ? &w->space_helper : NULL;

	if (snapshot_event(w, source))
		return;
	if (source == &w->gates) {
		gatekeeper_ended(&w->gates);
		return;
	}
	if (!helper) {
		on_end(w, source);
		return;
	}
	if (!pool_take(&w->pool, helper)) {
		log_error("msg=\"a helper has ended: files stay until the next start, and nothing is made in advance\"");
		(void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, helper->fd, NULL);
	}
	if (helper == &w->disk_helper)
		go_on_making(w);
}

/* A pause is done when everything is frozen; it can be late, never half. */
static void look_after_pause(struct warden *w, struct sandbox *s)
{
	bool frozen = cgroup_is_frozen(&w->groups, s->record.id), waiting = false;
	struct waiter **at = &s->waiters;

	while (*at) {
		struct waiter *one = *at;
		struct err e;
		bool late = now_ms() > one->deadline_ms;
		if (one->op != WARDEN_PAUSE || (!frozen && !late)) {
			waiting |= one->op == WARDEN_PAUSE;
			at = &one->next;
			continue;
		}
		*at = one->next;
		if (!frozen) {
			(void)sandbox_freeze(&w->keeper, s, false);
			(void)err_set(&e, ERR_TIMEOUT, ETIMEDOUT, "the sandbox could not be frozen in time; it goes on");
		}
		warden_answer(w, one->serial, s->record.id, frozen ? NULL : &e);
		free(one);
	}
	if (!waiting)
		warden_set_busy(w, s, false);
}

static void tick(struct warden *w)
{
	struct sandbox *next;

	for (struct sandbox *s = w->busy; s; s = next) {
		next = s->next_busy;
		if (s->life == LIFE_SWEEPING && now_ms() >= s->sweep_next_ms) {
			warden_sweep(w, s);
		} else if (s->life == LIFE_ENDING) {
			sandbox_hurry(&w->keeper, s);
			tell_if_late(w, s);
		} else if (s->life == LIFE_RUNNING) {
			look_after_pause(w, s);
		}
	}
}

/* --- start --- */

/* Does this kernel take detached mounts as the layers of an overlay? Tried, not guessed from a version. */
static bool probe_layers(void)
{
	auto_fd int base = mnt_new("tmpfs", NULL, 0, NULL);

	if (base < 0 || mkdirat(base, "l", 0755) < 0 || mkdirat(base, "u", 0755) < 0 || mkdirat(base, "w", 0755) < 0)
		return false;
	auto_fd int l = fs_open_dir_at(base, "l");
	auto_fd int u = fs_open_dir_at(base, "u");
	auto_fd int work = fs_open_dir_at(base, "w");
	auto_fd int root = mnt_overlay(l, u, work, false, NULL);
	return root >= 0;
}

static int make_scratch(struct place *p, struct err *e)
{
	static const char *const names[] = { "scratch", "scratch/l", "scratch/u" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (mkdirat(p->run_fd, names[i], 0700) < 0 && errno != EEXIST)
			return err_sys(e, ERR_UNAVAILABLE, errno, "make the scratch folders");
	return 0;
}

static void adopt_record(void *ctx, const struct record *r)
{
	struct warden *w = ctx;
	struct sandbox *s = warden_add(w, r->id);

	sandbox_adopt(&w->keeper, s, r);
	if (s->life != LIFE_RUNNING)
		s->destroying |= r->machine;
	if (s->life == LIFE_RUNNING && warden_watch(w, s) < 0)
		log_error("sandbox=%s msg=\"cannot be watched\"", r->id);
	if (s->life == LIFE_SWEEPING)
		warden_set_busy(w, s, true);
}

/* Disks whose records went with a reboot: stopped sandboxes. */
static void adopt_disks(struct warden *w)
{
	int fd = openat(w->place.disks_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		close_fd(fd);
		return;
	}
	for (struct dirent *d; (d = readdir(dir));) {
		char id[40] = { 0 };
		struct stat st;
		if (strlen(d->d_name) != 40 || !streq(d->d_name + 36, ".img"))
			continue;
		memcpy(id, d->d_name, 36);
		if (!record_id_valid(id) || warden_find(w, id) || fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		struct sandbox *s = warden_add(w, id);
		s->record.disk_kind = DISK_FILE;
		s->record.disk_mib = (uint64_t)st.st_size >> 20;
		(void)record_write(w->place.state_fd, &s->record);
	}
	(void)closedir(dir);
}

/* Groups without a record: of a warden that was killed in the middle of something, or whose records are gone, so that what has a disk is a stopped sandbox by
 * now (adopt_disks). Whatever lives in them is nobody's. */
static void adopt_group(void *ctx, const char *name)
{
	struct warden *w = ctx;
	char id[40] = { 0 };

	if (strlen(name) != 36)
		return;
	memcpy(id, name, 36);
	struct sandbox *s = record_id_valid(id) ? warden_find(w, id) : NULL;
	if (!record_id_valid(id) || (s && s->life != LIFE_STOPPED))
		return;
	if (!s) {
		s = warden_add(w, id);
		s->destroying = true;
		s->record.disk_kind = DISK_MEMORY;
	}
	cgroup_kill(&w->groups, id);
	sandbox_await_sweep(s);
	warden_set_busy(w, s, true);
}

static int start(struct warden *w, const struct warden_options *o, struct err *e)
{
	struct epoll_event ev = { .events = EPOLLIN };
	uint64_t last_cap;
	struct rlimit files;
	int rc;

	rc = place_set_up(&w->place, o, e);
	if (rc < 0)
		return rc;
	w->place.layers_by_fd = !o->old_kernel && probe_layers();
	if (!w->place.layers_by_fd && (rc = make_scratch(&w->place, e)) < 0)
		return rc;
	if ((rc = cgroup_detect(&w->groups, e)) < 0 || (rc = cgroup_open(&w->groups, w->place.name, e)) < 0)
		return rc;
	disk_remove_unfinished(w->place.disks_fd);
	if ((rc = helper_start(&w->disk_helper, &w->place, e)) < 0 || (rc = helper_start(&w->space_helper, &w->place, e)) < 0 ||
	    (rc = pool_open(&w->pool, &w->place, &w->disk_helper, &w->space_helper, e)) < 0)
		return rc;
	w->keeper = (struct keeper){ .place = &w->place, .pool = &w->pool, .groups = &w->groups, .gates = &w->gates, .files_max = FILES_MAX };
	if (getrlimit(RLIMIT_NOFILE, &files) == 0)
		w->keeper.files_max = MIN(w->keeper.files_max, (uint64_t)files.rlim_max);
	w->keeper.last_cap = fs_read_u64_at(AT_FDCWD, "/proc/sys/kernel/cap_last_cap", NULL, &last_cap) == 0 ? (int)last_cap : 40;
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event disks = { .events = EPOLLIN, .data.ptr = &w->disk_helper }, spaces = { .events = EPOLLIN, .data.ptr = &w->space_helper };
	struct epoll_event machines = { .events = EPOLLIN, .data.ptr = &w->machines };
	if (w->epoll < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->daemon, &ev) < 0 ||
	    (w->machines >= 0 && epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->machines, &machines) < 0) ||
	    epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->disk_helper.fd, &disks) < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->space_helper.fd, &spaces) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make the event loop");
	gatekeeper_init(&w->gates, o->edge, &w->place.netns);
	w->gates.epoll = w->epoll;
	w->gates.daemon = w->daemon;
	rc = record_each(w->place.state_fd, adopt_record, w, e);
	if (rc < 0)
		return rc;
	adopt_disks(w);
	cgroup_each(&w->groups, adopt_group, w);
	return 0;
}

static void from_vm_boundary(struct warden *w)
{
	if (machine_request_take(w))
		return;
	(void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->machines, NULL);
	w->machines = close_fd(w->machines);
}

/* One message, or the end: false when the daemon is gone. */
static bool from_daemon(struct warden *w)
{
	struct warden_request rq;
	ssize_t n = recv(w->daemon, &rq, sizeof rq, MSG_DONTWAIT | MSG_TRUNC);

	if (n > 0)
		request_handle(w, &rq, (size_t)n);
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* How long the loop may sleep. */
static int sleep_ms(const struct warden *w, bool full)
{
	return w->busy || !full ? TICK_MS : gatekeeper_due(&w->gates);
}

static void serve_gates(struct warden *w)
{
	if (!gatekeeper_again(&w->gates))
		return;
	for (size_t b = 0; b < BUCKETS; b++)
		for (struct sandbox *s = w->buckets[b]; s; s = s->next_in_bucket)
			if (s->gate >= 0)
				gatekeeper_hand(&w->gates, s->record.id, s->gate);
}

static void serve(struct warden *w)
{
	struct epoll_event events[EVENTS];
	bool full = false; /* the pool has been looked after since the last event */

	for (;;) {
		int n = epoll_wait(w->epoll, events, EVENTS, sleep_ms(w, full));
		if (n < 0 && errno != EINTR)
			return;
		/* Ends before requests: a sandbox that a request is about may just have ended. */
		bool request = false, machines = false;
		for (int i = 0; i < n; i++) {
			if (!events[i].data.ptr && events[i].events & EPOLLHUP)
				return; /* what is still in the socket was asked by somebody who is gone: nobody would know of it */
			if (!events[i].data.ptr)
				request = true;
			else if (events[i].data.ptr == &w->machines)
				machines = true;
			else
				on_event(w, events[i].data.ptr);
		}
		if (request && !from_daemon(w))
			return;
		if (machines)
			from_vm_boundary(w);
		serve_gates(w);
		tick(w);
		if (n == 0)
			pool_fill(&w->pool);
		full = n == 0;
	}
}

/* The daemon is gone and nobody will come back for its sandboxes. */
static void end_all(struct warden *w)
{
	struct epoll_event events[EVENTS];
	struct warden_request rq = { .op = WARDEN_DESTROY };
	uint64_t until = now_ms() + END_ALL_MS;

	(void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->daemon, NULL);
	(void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->machines, NULL);
	for (size_t b = 0; b < BUCKETS; b++)
		for (struct sandbox *s = w->buckets[b], *next; s; s = next) {
			next = s->next_in_bucket;
			memcpy(rq.id, s->record.id, sizeof rq.id);
			request_destroy(w, s, &rq);
		}
	while (w->count && now_ms() < until) {
		int n = epoll_wait(w->epoll, events, EVENTS, TICK_MS);
		for (int i = 0; i < n; i++)
			on_event(w, events[i].data.ptr);
		tick(w);
	}
	if (w->count)
		log_error("msg=\"%zu sandboxes could not be ended\"", w->count);
}

static void finish(struct warden *w)
{
	snapshot_cancel_all(w);
	bool empty = w->count == 0, no_more = w->place.options && w->place.options->end_all;

	/* The sandboxes stay; what we hold of them are copies. */
	for (size_t b = 0; b < BUCKETS; b++)
		while (w->buckets[b]) {
			if (w->buckets[b]->slot)
				pool_slot_put(&w->pool, take_ptr(&w->buckets[b]->slot));
			warden_forget(w, w->buckets[b]);
		}
	if (w->pool.place)
		pool_close(&w->pool, empty);
	gatekeeper_done(&w->gates);
	cgroup_close(&w->groups);
	if (empty && w->groups.name[0])
		cgroup_remove_parents(&w->groups);
	if (w->place.run_fd >= 0 && !w->place.layers_by_fd && empty)
		(void)fs_remove_tree_at(w->place.run_fd, "scratch");
	if (w->place.run)
		machine_root_close(&w->machine_root, &w->place, empty);
	helper_stop(&w->space_helper, no_more);
	helper_stop(&w->disk_helper, no_more);
	if (no_more && empty && w->place.disks_fd >= 0)
		disk_remove_rest(w->place.disks_fd);
	place_close(&w->place, empty);
	close_fd(w->machines);
	close_fd(w->epoll);
}

/* The low numbers belong to the sandboxes' children; whatever else the caller has open there may be covered. */
static int lift(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, INSIDE_END);

	close_fd(fd);
	return high < 0 ? -errno : high;
}

int warden_main(int fd, const struct warden_options *options)
{
	struct warden *w = xcalloc(1, sizeof *w);
	struct err e = { 0 };

	log_set_name("warden");
	log_set_level(options->log_level);
	int machines = options->machines > 0 ? lift(options->machines) : -EBADF;
	fd = lift(fd);
	if (fd < 0)
		return 1;
	*w = (struct warden){ .daemon = fd, .machines = machines, .machine_root = MACHINE_ROOT_INIT, .epoll = -EBADF, .disk_helper.fd = -EBADF, .space_helper.fd = -EBADF };
	gatekeeper_init(&w->gates, NULL, NULL);
	w->place.run_fd = -EBADF;
	for (size_t t = 0; t < CGROUP_TREE_COUNT; t++)
		w->groups.parent[t] = -EBADF;
	int rc = start(w, options, &e);
	if (rc == 0) {
		log_info("msg=ready cgroups=\"%s\" sandboxes=%zu layers_by_fd=%d", cgroup_kind_name(w->groups.kind), w->count, w->place.layers_by_fd);
		serve(w);
		if (options->end_all)
			end_all(w);
	} else {
		log_error("msg=\"cannot start: %s\"", e.message);
		err_prefix(&e, "the process boundary cannot work on this host");
		warden_answer(w, 0, "", &e);
	}
	finish(w);
	free(w);
	return rc == 0 ? 0 : 1;
}
