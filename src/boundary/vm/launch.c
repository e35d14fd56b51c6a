#include "boundary/vm/launch.h"

#include "wire/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* Theory of operation. A start becomes a request with a serial and copies of its descriptors, sent at once or when the socket has room.
 * The answer with that serial, which brings the pidfd, ends it. One that meets the kernel still letting go of the same id's last
 * QEMU is asked again. When the socket ends, so does everything that waits. */

enum { RETRY_EVERY_MS = 10, RETRY_FOR_MS = 10000, READ_AT_ONCE = 64 };

struct call {
	struct call *next;
	struct machine_request rq;
	int fds[MACHINE_FDS]; /* copies, until the request will not be sent again */
	size_t n;
	bool sent;
	uint64_t again_at, give_up_at; /* 0 = not */
	launched_fn done; /* of a start */
	swept_fn swept;	  /* of an end */
	told_fn told;	  /* of anything else; all NULL: nobody waits for it */
	void *ctx;
};

struct oom { /* told, and not yet asked for */
	char id[40];
	struct oom *next;
};

struct by_warden {
	struct launcher base;
	uv_poll_t poll;
	uv_timer_t timer; /* runs while a call waits to be asked again */
	int fd, handles;
	uint64_t serial;
	struct call *calls; /* oldest first */
	struct oom *ooms;
	struct err lost; /* kind 0 = not lost */
};

static struct by_warden *of(struct launcher *base)
{
	return container_of(base, struct by_warden, base);
}

static void free_call(struct call *c)
{
	for (size_t i = 0; i < c->n; i++)
		close_fd(c->fds[i]);
	free(c);
}

static void take_out(struct by_warden *b, const struct call *c)
{
	struct call **at = &b->calls;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
}

static bool take_oom(struct by_warden *b, const char *id)
{
	for (struct oom **at = &b->ooms; *at; at = &(*at)->next)
		if (streq((*at)->id, id)) {
			struct oom *one = *at;
			*at = one->next;
			free(one);
			return true;
		}
	return false;
}

/* In no list any more. pidfd is handed on. */
static void end_call(struct by_warden *b, struct call *c, const struct err *e, pid_t pid, int pidfd)
{
	if (c->done)
		c->done(c->ctx, e, pid, pidfd);
	else
		close_fd(pidfd);
	if (c->swept)
		c->swept(c->ctx, take_oom(b, c->rq.id));
	if (c->told)
		c->told(c->ctx, e);
	free_call(c);
}

static void lose(struct by_warden *b, enum err_kind kind, int errnum, const char *what)
{
	if (b->lost.kind)
		return;
	(void)err_set(&b->lost, kind, errnum, "%s", what);
	uv_poll_stop(&b->poll);
	uv_timer_stop(&b->timer);
	while (b->calls) {
		struct call *c = b->calls;
		b->calls = c->next;
		end_call(b, c, &b->lost, 0, -EBADF);
	}
}

static ssize_t send_call(int fd, const struct call *c)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof c->fds)];
	} control = { .head = { .cmsg_len = CMSG_LEN(c->n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec v = { (void *)(uintptr_t)&c->rq, sizeof c->rq };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (c->n) {
		memcpy(CMSG_DATA(&control.head), c->fds, c->n * sizeof(int));
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(c->n * sizeof(int));
	}
	return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void on_socket(uv_poll_t *h, int status, int events);

/* A socket that is broken is seen by reading, where the answers that are still in it have been taken before. */
static void flush(struct by_warden *b)
{
	bool full = false;

	for (struct call *c = b->calls; c && !full; c = c->next) {
		if (c->sent || c->again_at)
			continue;
		ssize_t n = send_call(b->fd, c);
		c->sent = n >= 0;
		full = n < 0;
	}
	uv_poll_start(&b->poll, UV_READABLE | (full ? UV_WRITABLE : 0), on_socket);
}

static void submit(struct by_warden *b, struct call *c, enum machine_op op, const char *id)
{
	if (b->lost.kind) {
		end_call(b, c, &b->lost, 0, -EBADF);
		return;
	}
	c->rq.magic = MACHINE_MAGIC;
	c->rq.op = op;
	c->rq.serial = ++b->serial;
	snprintf(c->rq.id, sizeof c->rq.id, "%s", id);
	struct call **last = &b->calls;
	while (*last)
		last = &(*last)->next;
	*last = c;
	flush(b);
}

static void on_timer(uv_timer_t *t)
{
	struct by_warden *b = t->data;
	uint64_t now = now_ms();
	bool waiting = false;

	for (struct call *c = b->calls; c; c = c->next) {
		if (c->again_at && c->again_at <= now) {
			c->again_at = 0;
			c->sent = false;
			c->rq.serial = ++b->serial;
		}
		waiting |= c->again_at != 0;
	}
	if (!waiting)
		uv_timer_stop(t);
	flush(b);
}

static bool ask_again(struct by_warden *b, struct call *c, const struct warden_answer *a)
{
	uint64_t now = now_ms();

	if (a->kind != ERR_UNAVAILABLE || (a->errnum != EBUSY && !c->swept))
		return false;
	if (!c->give_up_at)
		c->give_up_at = now + RETRY_FOR_MS;
	if (now >= c->give_up_at && !c->swept) /* that what was beside QEMU has ended is said when it is so */
		return false;
	c->again_at = now + RETRY_EVERY_MS;
	if (!uv_is_active((const uv_handle_t *)&b->timer))
		uv_timer_start(&b->timer, on_timer, RETRY_EVERY_MS, RETRY_EVERY_MS);
	return true;
}

static void note_oom(struct by_warden *b, const char *id)
{
	struct oom *one = xcalloc(1, sizeof *one);

	snprintf(one->id, sizeof one->id, "%s", id);
	one->next = b->ooms;
	b->ooms = one;
}

static void on_answer(struct by_warden *b, struct warden_answer *a, int pidfd)
{
	struct call *c = b->calls;
	struct err e;

	a->message[sizeof a->message - 1] = a->id[sizeof a->id - 1] = '\0';
	while (c && c->rq.serial != a->serial)
		c = c->next;
	if (a->op == WARDEN_EXIT && a->oom)
		note_oom(b, a->id);
	if (!c || a->op != WARDEN_ANSWER || (a->kind && ask_again(b, c, a))) { /* an end itself is told by the pidfd */
		close_fd(pidfd);
		return;
	}
	take_out(b, c);
	if (a->kind)
		(void)err_set(&e, a->kind < ERR_KIND_COUNT ? (enum err_kind)a->kind : ERR_INTERNAL, a->errnum, "%s", a->message);
	else if (c->done && pidfd < 0)
		(void)err_set(&e, ERR_INTERNAL, EPROTO, "the warden's answer has no process");
	bool bad = a->kind || (c->done && pidfd < 0);
	if (bad)
		pidfd = close_fd(pidfd);
	end_call(b, c, bad ? &e : NULL, bad ? 0 : (pid_t)a->pids, pidfd);
}

/* 1 = an answer; 0 = none for now; negative = the socket has ended. */
static int take(struct by_warden *b)
{
	struct warden_answer a;
	int pidfd = -EBADF;
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof pidfd)];
	} control;
	struct iovec v = { &a, sizeof a };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof pidfd) };
	ssize_t n = recvmsg(b->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return -EPIPE;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(&pidfd, CMSG_DATA(c), sizeof pidfd);
	if (n != (ssize_t)sizeof a || a.magic != WARDEN_MAGIC) {
		close_fd(pidfd);
		return -EPROTO;
	}
	on_answer(b, &a, pidfd);
	return 1;
}

static void on_socket(uv_poll_t *h, int status, int events)
{
	struct by_warden *b = h->data;
	int r = status < 0 ? -EPIPE : 1;

	(void)events;
	/* A callback may have lost or freed it: the handle is closed only by the loop, so b is still there. */
	for (int i = 0; r > 0 && i < READ_AT_ONCE && !b->lost.kind; i++)
		r = take(b);
	if (b->lost.kind)
		return;
	if (r < 0)
		lose(b, ERR_UNAVAILABLE, -r, "the connection to the warden has ended");
	else
		flush(b);
}

static bool put_text(char *to, size_t size, const char *text)
{
	return snprintf(to, size, "%s", text ? text : "") < (int)size;
}

static int put_volumes(struct machine_request *rq, const struct launch *l, struct err *e)
{
	const struct volume_mounts *m = l->volumes;

	if (l->line)
		memcpy(rq->line, l->line, sizeof rq->line);
	for (size_t i = 0; m && i < m->n; i++) {
		struct warden_volume *v = &rq->volumes[i];
		if (i == ARRAY_LEN(rq->volumes) || !put_text(v->id, sizeof v->id, m->v[i].volume) || !put_text(v->path, sizeof v->path, m->v[i].path) ||
		    !put_text(v->subpath, sizeof v->subpath, m->v[i].subpath))
			return err_set(e, ERR_INVALID, E2BIG, "volumes: too many, or a path is too long");
		v->read_only = m->v[i].read_only;
		rq->volumes_n++;
	}
	return 0;
}

static void by_warden_start(struct launcher *base, const struct launch *l, launched_fn done, void *ctx)
{
	struct by_warden *b = of(base);
	struct call *c = xcalloc(1, sizeof *c);
	uint32_t wanted = MACHINE_GIVEN(&l->plan);
	struct err e;

	c->rq.plan = l->plan;
	c->rq.network = l->network;
	snprintf(c->rq.image_digest, sizeof c->rq.image_digest, "%s", l->image);
	if (put_volumes(&c->rq, l, &e) < 0) {
		free_call(c);
		done(ctx, &e, 0, -EBADF);
		return;
	}
	for (int i = 0; i <= VMM_FDS; i++) {
		if (i < VMM_FDS && !(wanted & 1u << i))
			continue;
		int fd = fcntl(i < VMM_FDS ? l->fds[i] : l->log, F_DUPFD_CLOEXEC, 3);
		if (fd < 0) {
			(void)err_sys(&e, ERR_UNAVAILABLE, errno, "a descriptor for QEMU");
			free_call(c);
			done(ctx, &e, 0, -EBADF);
			return;
		}
		c->fds[c->n++] = fd;
	}
	c->done = done;
	c->ctx = ctx;
	submit(b, c, MACHINE_START, l->id);
}

static void by_warden_kill(struct launcher *base, const char *id, int pidfd)
{
	(void)pidfd; /* another user's process */
	submit(of(base), xcalloc(1, sizeof(struct call)), MACHINE_END, id);
}

static void by_warden_swept(struct launcher *base, const char *id, swept_fn done, void *ctx)
{
	struct call *c = xcalloc(1, sizeof *c);

	c->swept = done;
	c->ctx = ctx;
	submit(of(base), c, MACHINE_END, id);
}

static void by_warden_end(struct launcher *base, const char *id, told_fn done, void *ctx)
{
	struct call *c = xcalloc(1, sizeof *c);

	c->told = done;
	c->ctx = ctx;
	submit(of(base), c, MACHINE_END, id);
}

static void by_warden_network(struct launcher *base, const char *id, bool on, told_fn done, void *ctx)
{
	struct call *c = xcalloc(1, sizeof *c);

	c->rq.network = on;
	c->told = done;
	c->ctx = ctx;
	submit(of(base), c, MACHINE_NETWORK, id);
}

static void by_warden_memory(struct launcher *base, const char *id, int from, int to, told_fn done, void *ctx)
{
	struct call *c = xcalloc(1, sizeof *c);
	struct err e;

	c->told = done;
	c->ctx = ctx;
	for (; c->n < 2; c->n++)
		if ((c->fds[c->n] = fcntl(c->n ? to : from, F_DUPFD_CLOEXEC, 3)) < 0) {
			(void)err_sys(&e, ERR_UNAVAILABLE, errno, "a descriptor of the machine's memory");
			free_call(c);
			done(ctx, &e);
			return;
		}
	submit(of(base), c, MACHINE_MEMORY, id);
}

static void on_closed(uv_handle_t *h)
{
	struct by_warden *b = h->data;

	if (--b->handles)
		return;
	while (b->ooms)
		(void)take_oom(b, b->ooms->id);
	close_fd(b->fd);
	free(b);
}

static void by_warden_free(struct launcher *base)
{
	struct by_warden *b = of(base);

	lose(b, ERR_UNAVAILABLE, ECANCELED, "the boundary is being closed");
	uv_close((uv_handle_t *)&b->poll, on_closed);
	uv_close((uv_handle_t *)&b->timer, on_closed);
}

struct launcher *launcher_warden(uv_loop_t *loop, int fd)
{
	struct by_warden *b = xcalloc(1, sizeof *b);

	b->base = (struct launcher){ .start = by_warden_start, .kill = by_warden_kill, .swept = by_warden_swept, .end = by_warden_end, .network = by_warden_network, .memory = by_warden_memory, .free = by_warden_free };
	b->fd = fd;
	b->handles = 2;
	uv_poll_init(loop, &b->poll, fd);
	uv_timer_init(loop, &b->timer);
	b->poll.data = b->timer.data = b;
	uv_poll_start(&b->poll, UV_READABLE, on_socket);
	return &b->base;
}
