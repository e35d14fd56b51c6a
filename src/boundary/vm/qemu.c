#include "boundary/vm/qemu.h"

#include "base/log.h"
#include "boundary/vm/monitor.h"
#include "boundary/vm/vmdir.h"
#include "boundary/vm/vmm.h"
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LOG_SIZE = 4096, BEATS_MISSED = 3, BEATS_NO_ROOM = 5, RESTORE_MS = 60000 };

struct qemu {
	const struct qemu_host *host;
	const struct qemu_events *ev;
	void *ctx;
	char id[40];
	int dir, log, pidfd;
	pid_t pid;
	uv_poll_t poll;
	uv_timer_t beat;
	unsigned handles, unanswered, no_room;
	const char *how; /* it said that it would end, or NULL */
	uint64_t restore_by_ms, beat_at_ms;
	bool launching, restoring, sweeping, killed, freed;
	bool incoming, tap, link; /* of its launch */
	struct monitor *monitor;
	struct err why; /* of a kill of ours; kind 0 = none */
};

struct qemu *qemu_new(const struct qemu_host *h, int dir, const struct qemu_events *ev, void *ctx)
{
	struct qemu *q = xcalloc(1, sizeof *q);

	*q = (struct qemu){ .host = h, .ev = ev, .ctx = ctx, .dir = dir, .log = -EBADF, .pidfd = -EBADF };
	q->poll.data = q->beat.data = q;
	return q;
}

static void release(struct qemu *q)
{
	if (!q->freed || q->handles || q->launching || q->sweeping)
		return;
	close_fd(q->log);
	close_fd(q->pidfd);
	free(q);
}

static void on_closed(uv_handle_t *h)
{
	struct qemu *q = h->data;

	q->handles--;
	release(q);
}

void qemu_free(struct qemu *q)
{
	if (!q)
		return;
	q->freed = true;
	monitor_free(take_ptr(&q->monitor));
	if (q->handles) {
		uv_close((uv_handle_t *)&q->poll, on_closed);
		uv_close((uv_handle_t *)&q->beat, on_closed);
	}
	release(q);
}

pid_t qemu_pid(const struct qemu *q)
{
	return q->pid;
}

void qemu_kill(struct qemu *q)
{
	q->killed = true;
	if (q->pidfd >= 0)
		q->host->launcher->kill(q->host->launcher, q->id, q->pidfd);
}

static void kill_because(struct qemu *q, const char *why)
{
	if (!q->why.kind)
		(void)err_set(&q->why, ERR_UNAVAILABLE, EIO, "%s", why);
	qemu_kill(q);
}

/* --- the monitor --- */

/* What it refuses while it is restored is its end. That of the connection is that of the process, which tells more. */
static void on_restore_told(void *ctx, const struct err *e, const json_t *result)
{
	(void)result;
	if (e && e->errnum != EPIPE && e->errnum != ECANCELED)
		kill_because(ctx, e->message);
}

void qemu_link(struct qemu *q, bool up, qmp_done_fn done, void *ctx)
{
	qemu_call(q, "set_link", json_pack("{s:s, s:b}", "name", "net", "up", up), -EBADF, done, ctx);
}

static void begin_link(struct qemu *q)
{
	if (q->tap)
		qemu_link(q, q->link, on_restore_told, q);
}

static void on_continued(void *ctx, const struct err *e, const json_t *result)
{
	struct qemu *q = ctx;

	if (e)
		on_restore_told(ctx, e, result);
	else if (!q->freed)
		q->ev->restored(q->ctx);
}

struct settling {
	struct qemu *q;
	qmp_done_fn done;
	void *ctx;
};

static void on_settling(void *ctx, const struct err *e, const json_t *result)
{
	struct settling *s = ctx;

	if (!e && streq(json_string_value(json_object_get(result, "status")), "finish-migrate")) {
		qemu_call(s->q, "query-status", NULL, -EBADF, on_settling, s);
		return;
	}
	s->done(s->ctx, e, result);
	free(s);
}

void qemu_settled(struct qemu *q, qmp_done_fn done, void *ctx)
{
	struct settling *s = xcalloc(1, sizeof *s);

	*s = (struct settling){ q, done, ctx };
	qemu_call(q, "query-status", NULL, -EBADF, on_settling, s);
}

struct migration_end {
	struct qemu *q;
	json_t *data;
};

static void on_migration_over(void *ctx, const struct err *e, const json_t *result)
{
	struct migration_end *m = ctx;

	(void)result;
	if (!e && !m->q->freed)
		m->q->ev->event(m->q->ctx, "MIGRATION", m->data);
	json_decref(m->data);
	free(m);
}

/* What a SHUTDOWN says of the end that follows. (A kernel that has crashed restarts the machine, which QEMU takes for its end.) */
static const char *how_it_ends(const char *reason)
{
	if (streq(reason, "guest-shutdown"))
		return "its guest switched it off";
	if (streq(reason, "guest-reset") || streq(reason, "guest-panic"))
		return "its guest restarted it, or its kernel crashed";
	return NULL;
}

static void on_event(void *ctx, const char *name, const json_t *data)
{
	struct qemu *q = ctx;
	const char *status = streq(name, "MIGRATION") ? json_string_value(json_object_get(data, "status")) : NULL;

	if (streq(name, "SHUTDOWN"))
		q->how = how_it_ends(json_string_value(json_object_get(data, "reason")));
	/* one that was saved while it was held comes up so, whatever was said before */
	if (q->restoring && streq(status, "completed")) {
		q->restoring = false;
		if (q->ev->loaded)
			q->ev->loaded(q->ctx);
		begin_link(q); /* what the state says of it was of another machine */
		qemu_call(q, "cont", NULL, -EBADF, on_continued, q);
	} else if (q->ev->event && (streq(status, "completed") || streq(status, "failed"))) {
		struct migration_end *m = xcalloc(1, sizeof *m);
		*m = (struct migration_end){ q, json_deep_copy(data) };
		qemu_settled(q, on_migration_over, m);
	} else if (q->ev->event) {
		q->ev->event(q->ctx, name, data);
	}
}

/* The host had no room for what the guest wrote to its disk. QEMU then holds the machine, keeps what it could not write, and tries that again when
 * the machine is to go on. (Told to the guest instead, it would be an I/O error that costs its file system the journal.) */
static void on_no_room(struct qemu *q)
{
	if (q->ev->may_run && !q->ev->may_run(q->ctx))
		return;
	if (q->no_room++ == 0)
		log_warn("sandbox=%s msg=\"the host has no room for what the machine writes to its disk: it is held\"", q->id);
	if (q->no_room <= BEATS_NO_ROOM) {
		qemu_call(q, "cont", NULL, -EBADF, NULL, NULL);
		return;
	}
	uv_timer_stop(&q->beat);
	kill_because(q, "the host had no room for what the virtual machine wrote to its disk");
}

static void on_beat_answered(void *ctx, const struct err *e, const json_t *result)
{
	struct qemu *q = ctx;
	const char *status = json_string_value(json_object_get(result, "status"));

	if (q->freed || e)
		return;
	q->unanswered = 0;
	if (streq(status, "io-error")) {
		on_no_room(q);
		return;
	}
	q->no_room = 0;
	/* KVM has refused to run it further. QEMU then stays, and answers, and nothing in it will ever move again. */
	if (streq(status, "internal-error")) {
		uv_timer_stop(&q->beat);
		kill_because(q, "KVM has given the virtual machine up (QEMU: internal-error)");
	}
}

static void on_beat(uv_timer_t *t)
{
	struct qemu *q = t->data;

	/* A beat that comes much too late: we did not run, and QEMU likely neither, so it has not had that time. */
	uint64_t since = now_ms() - q->beat_at_ms;
	q->beat_at_ms = now_ms();
	if (since > 2 * q->host->beat_ms)
		q->restore_by_ms += since;
	bool late = q->restoring && now_ms() > q->restore_by_ms;
	if (late || q->unanswered >= BEATS_MISSED) {
		uv_timer_stop(t);
		kill_because(q, late ? "QEMU does not come to an end with its state" : "QEMU does not answer any more");
		return;
	}
	if (q->unanswered++ == 0)
		qemu_call(q, "query-status", NULL, -EBADF, on_beat_answered, q);
}

void qemu_call(struct qemu *q, const char *command, json_t *arguments, int fd, qmp_done_fn done, void *ctx)
{
	struct err e;

	if (q->monitor) {
		monitor_call(q->monitor, command, arguments, fd, done, ctx);
		return;
	}
	json_decref(arguments);
	close_fd(fd);
	(void)err_set(&e, ERR_UNAVAILABLE, ENOTCONN, "there is no connection to QEMU's monitor");
	if (done)
		done(ctx, &e, NULL);
}

/* --- the process --- */

static void on_swept(void *ctx, bool oom)
{
	struct qemu *q = ctx;

	q->sweeping = false;
	if (q->freed) {
		release(q);
		return;
	}
	if (oom)
		(void)err_set(&q->why, ERR_LIMIT, ENOMEM, "the virtual machine ran out of the memory that QEMU may use");
	q->ev->ended(q->ctx, &q->why);
}

static void on_ended(uv_poll_t *h, int status, int events)
{
	struct qemu *q = h->data;
	char text[LOG_SIZE + 1];
	ssize_t n = q->log < 0 ? 0 : pread(q->log, text, LOG_SIZE, 0);
	struct err e = q->why;

	(void)status;
	(void)events;
	uv_poll_stop(h);
	uv_timer_stop(&q->beat);
	process_reap(q->pidfd);
	(void)unlinkat(q->dir, "vmm", 0);
	text[MAX(n, (ssize_t)0)] = '\0';
	if (!e.kind && text[0])
		(void)err_set(&e, ERR_UNAVAILABLE, EIO, "the virtual machine has ended: %s",
			      str_quote((struct str){ text, strcspn(text, "\n") }, &(struct quoted){ 0 }));
	else if (!e.kind)
		(void)err_set(&e, ERR_UNAVAILABLE, EIO, "the virtual machine has ended: %s", q->how ? q->how : "QEMU was killed or crashed");
	q->why = e;
	q->sweeping = true;
	q->host->launcher->swept(q->host->launcher, q->id, on_swept, q);
}

static void watch(struct qemu *q, pid_t pid, int pidfd)
{
	q->pid = pid;
	q->pidfd = pidfd;
	q->handles = 2;
	uv_timer_init(q->host->loop, &q->beat);
	(void)uv_poll_init(q->host->loop, &q->poll, pidfd);
	uv_poll_start(&q->poll, UV_READABLE, on_ended);
	int fd = vmdir_connect(q->dir, "qmp");
	if (fd < 0)
		return;
	q->monitor = monitor_new(q->host->loop, fd, on_event, q);
	q->beat_at_ms = now_ms();
	uv_timer_start(&q->beat, on_beat, q->host->beat_ms, q->host->beat_ms);
}

static void on_launched(void *ctx, const struct err *why, pid_t pid, int pidfd)
{
	struct qemu *q = ctx;

	q->launching = false;
	if (q->freed) {
		if (!why)
			q->host->launcher->kill(q->host->launcher, q->id, pidfd);
		q->pidfd = why ? -EBADF : pidfd;
		release(q);
		return;
	}
	if (why) {
		q->ev->started(q->ctx, why);
		return;
	}
	auto_free char *record = vmm_record(pid);
	watch(q, pid, pidfd);
	if (!record || vmdir_write(q->dir, "vmm", record) < 0)
		kill_because(q, "the virtual machine's process could not be written down");
	else if (!q->monitor)
		kill_because(q, "QEMU's monitor could not be connected to");
	else if (q->killed)
		qemu_kill(q);
	else {
		if (!q->incoming)
			begin_link(q);
		q->ev->started(q->ctx, NULL);
	}
}

void qemu_start(struct qemu *q, struct launch *l)
{
	snprintf(q->id, sizeof q->id, "%s", l->id);
	q->log = memfd_create("log", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (q->log < 0 || ftruncate(q->log, LOG_SIZE) < 0 || fcntl(q->log, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0) {
		struct err e;
		(void)err_sys(&e, ERR_UNAVAILABLE, errno, "make a memory file for QEMU's log");
		q->ev->started(q->ctx, &e);
		return;
	}
	q->incoming = l->plan.begin == VMM_INCOMING;
	q->tap = l->plan.tap;
	q->link = l->network;
	l->log = q->log;
	q->launching = true;
	q->host->launcher->start(q->host->launcher, l, on_launched, q);
}

int qemu_adopt(struct qemu *q, const char *id)
{
	auto_free char *record = vmdir_read(q->dir, "vmm");
	pid_t pid;
	int pidfd = record ? vmm_find(record, &pid) : -ESRCH;

	if (pidfd < 0)
		return pidfd;
	snprintf(q->id, sizeof q->id, "%s", id);
	watch(q, pid, pidfd);
	return 0;
}

json_t *qemu_capabilities(void)
{
	return json_pack("{s:[{s:s, s:b}, {s:s, s:b}]}", "capabilities", "capability", "x-ignore-shared", "state", 1, "capability", "events", "state", 1);
}

void qemu_restore(struct qemu *q, int state)
{
	q->restoring = true;
	q->restore_by_ms = now_ms() + RESTORE_MS;
	qemu_call(q, "migrate-set-capabilities", qemu_capabilities(), -EBADF, on_restore_told, q);
	qemu_call(q, "getfd", json_pack("{s:s}", "fdname", "state"), state, on_restore_told, q);
	qemu_call(q, "migrate-incoming", json_pack("{s:s}", "uri", "fd:state"), -EBADF, on_restore_told, q);
}
