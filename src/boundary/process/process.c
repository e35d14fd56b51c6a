#include "boundary/process/process.h"

#include "sys/host.h"
#include "wire/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Theory of operation. A call becomes a request with a serial, put on the socket or, when that is full, on the way out. The
 * answer with that serial ends it. A start (or a create, for a volume) that meets the kernel still letting go of the last life's disk or groups is asked
 * again here, so that nobody above has to know of it. When the socket ends, so does everything that waits. */

#define RETRY_EVERY_MS 10
#define RETRY_FOR_MS   10000
#define READ_AT_ONCE   64 /* answers per turn of the loop */

struct call {
	struct call *next, *prev; /* in `calls`: sent, or waiting to be sent again */
	struct call *next_out;
	struct warden_request rq;
	boundary_done_fn done;
	boundary_usage_fn usage;
	boundary_list_fn list;
	boundary_snapshot_fn snapshot;
	boundary_snapshots_fn snapshots;
	boundary_volumes_fn volumes;
	void *ctx;
	uint64_t retry_at, give_up_at; /* 0 = not waiting */
	char **ids;		       /* of a list */
	bool *started;
	uint64_t *bytes;
	size_t n;
};

struct process_boundary {
	struct boundary base;
	uv_poll_t poll;
	uv_timer_t timer; /* runs while a call waits to be asked again */
	int handles;
	int events; /* that the poll handle waits for */
	int fd;
	int sockets; /* RUN/s, or negative until first needed */
	char *run;   /* as the warden tells it, in the answer to the first probe */
	uint64_t serial;
	struct call *calls;
	struct call *out, *out_last; /* not yet on the socket */
	process_lost_fn on_lost;
	void *lost_ctx;
	void (*on_edge)(void *ctx, int fd);
	void *edge_ctx;
	struct err lost; /* kind 0 = not lost */
	bool freed;
};

static struct process_boundary *of(struct boundary *b)
{
	return container_of(b, struct process_boundary, base);
}

static void unlink_call(struct process_boundary *p, struct call *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		p->calls = c->next;
	if (c->next)
		c->next->prev = c->prev;
}

static void link_call(struct process_boundary *p, struct call *c)
{
	c->prev = NULL;
	c->next = p->calls;
	if (p->calls)
		p->calls->prev = c;
	p->calls = c;
}

static void free_call(struct call *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->ids[i]);
	free(c->ids);
	free(c->started);
	free(c->bytes);
	free(c);
}

/* Tells the caller and is gone. The call is in no list any more. */
static void end_call(struct call *c, const struct err *e, const struct usage *u)
{
	if (c->list)
		c->list(c->ctx, e, e ? NULL : (const char *const *)c->ids, e ? NULL : c->started, e ? 0 : c->n);
	else if (c->snapshots)
		c->snapshots(c->ctx, e, e ? NULL : (const char *const *)c->ids, e ? 0 : c->n);
	else if (c->volumes)
		c->volumes(c->ctx, e, e ? NULL : (const char *const *)c->ids, e ? NULL : c->bytes, e ? 0 : c->n);
	else if (c->usage)
		c->usage(c->ctx, e, u);
	else if (c->snapshot)
		c->snapshot(c->ctx, e, e ? 0 : u->disk_bytes);
	else
		c->done(c->ctx, e);
	free_call(c);
}

static void on_socket(uv_poll_t *poll, int status, int events);

static void lose(struct process_boundary *p, const struct err *why)
{
	if (p->lost.kind)
		return;
	p->lost = *why;
	uv_poll_stop(&p->poll);
	uv_timer_stop(&p->timer);
	p->out = p->out_last = NULL; /* all of them are in calls */
	while (p->calls) {
		struct call *c = p->calls;
		unlink_call(p, c);
		end_call(c, &p->lost, NULL);
	}
	if (p->on_lost && !p->freed)
		p->on_lost(p->lost_ctx, &p->lost);
}

static void lose_socket(struct process_boundary *p, int errnum)
{
	struct err e;

	if (errnum)
		(void)err_sys(&e, ERR_UNAVAILABLE, errnum, "the connection to the warden failed");
	else
		(void)err_set(&e, ERR_UNAVAILABLE, EPIPE, "the warden has ended");
	lose(p, &e);
}

/* Saying it again would cost the loop two system calls each time. */
static void listen_for(struct process_boundary *p, int events)
{
	if (events != p->events && uv_poll_start(&p->poll, events, on_socket) == 0)
		p->events = events;
}

/* 0 or a negative errno with which the socket is lost. */
static int flush(struct process_boundary *p)
{
	while (p->out) {
		struct call *c = p->out;
		if (send(p->fd, &c->rq, sizeof c->rq, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN)
				return -errno;
			break;
		}
		p->out = c->next_out;
		if (!p->out)
			p->out_last = NULL;
	}
	listen_for(p, p->out ? UV_READABLE | UV_WRITABLE : UV_READABLE);
	return 0;
}

static void enqueue(struct process_boundary *p, struct call *c)
{
	c->next_out = NULL;
	if (p->out_last)
		p->out_last->next_out = c;
	else
		p->out = c;
	p->out_last = c;
	int rc = flush(p);
	/* The socket's end is told by the loop, where the answers that are still in it have been read before. */
	if (rc < 0)
		listen_for(p, UV_READABLE);
}

static void submit(struct process_boundary *p, struct call *c, enum warden_op op)
{
	if (p->lost.kind) {
		end_call(c, &p->lost, NULL);
		return;
	}
	c->rq.magic = WARDEN_MAGIC;
	c->rq.op = (uint32_t)op;
	c->rq.serial = ++p->serial;
	link_call(p, c);
	enqueue(p, c);
}

/* --- answers --- */

static void add_item(struct call *c, const struct warden_answer *a)
{
	c->ids = xreallocarray(c->ids, c->n + 1, sizeof *c->ids);
	c->started = xreallocarray(c->started, c->n + 1, sizeof *c->started);
	c->bytes = xreallocarray(c->bytes, c->n + 1, sizeof *c->bytes);
	c->bytes[c->n] = a->disk_bytes;
	c->ids[c->n] = xstrndup(a->id, sizeof a->id - 1);
	c->started[c->n++] = a->started;
}

static void fill_usage(struct usage *u, const struct warden_answer *a)
{
	*u = (struct usage){
		.memory_bytes = a->memory_bytes,
		.memory_limit_bytes = a->memory_limit,
		.cpu_usec = a->cpu_usec,
		.cpu_limit = (double)a->cpu_millis / 1000,
		.pids = a->pids,
		.pids_limit = a->pids_limit,
		.disk_bytes = a->disk_bytes,
		.disk_limit_bytes = a->disk_limit,
		.inodes = a->inodes,
		.inodes_limit = a->inodes_limit,
		.oom_kills = a->oom_kills,
	};
}

static void fill_err(struct err *e, const struct warden_answer *a)
{
	e->kind = a->kind < ERR_KIND_COUNT ? (enum err_kind)a->kind : ERR_INTERNAL;
	e->errnum = a->errnum;
	snprintf(e->message, sizeof e->message, "%s", a->message);
}

static void on_timer(uv_timer_t *timer);

/* The kernel has not quite let go of what a start needs. */
static bool ask_again(struct process_boundary *p, struct call *c, const struct err *e)
{
	uint64_t now = now_ms();

	if ((c->rq.op != WARDEN_START && c->rq.op != WARDEN_CREATE) || e->kind != ERR_UNAVAILABLE || e->errnum != EBUSY)
		return false;
	if (!c->give_up_at)
		c->give_up_at = now + RETRY_FOR_MS;
	if (now >= c->give_up_at)
		return false;
	c->retry_at = now + RETRY_EVERY_MS;
	if (!uv_is_active((const uv_handle_t *)&p->timer))
		uv_timer_start(&p->timer, on_timer, RETRY_EVERY_MS, RETRY_EVERY_MS);
	return true;
}

static void on_timer(uv_timer_t *timer)
{
	struct process_boundary *p = timer->data;
	uint64_t now = now_ms();
	bool waiting = false;

	for (struct call *c = p->calls; c; c = c->next) {
		if (!c->retry_at)
			continue;
		if (c->retry_at > now) {
			waiting = true;
			continue;
		}
		c->retry_at = 0;
		c->rq.serial = ++p->serial;
		enqueue(p, c);
	}
	if (!waiting)
		uv_timer_stop(timer);
}

static void on_unasked(struct process_boundary *p, const struct warden_answer *a)
{
	if (a->op == WARDEN_EXIT && p->base.on_exit) {
		struct boundary_exit x = { .oom = a->oom };
		snprintf(x.reason, sizeof x.reason, "%.*s", (int)sizeof x.reason - 1, a->message);
		p->base.on_exit(p->base.on_exit_ctx, a->id, &x);
	} else if (a->op == WARDEN_ANSWER && a->kind) {
		struct err e;
		fill_err(&e, a);
		lose(p, &e);
	}
}

static void on_answer(struct process_boundary *p, struct warden_answer *a)
{
	a->id[sizeof a->id - 1] = '\0';
	a->message[sizeof a->message - 1] = '\0';
	if (a->serial == 0) {
		on_unasked(p, a);
		return;
	}
	struct call *c = p->calls;
	while (c && c->rq.serial != a->serial)
		c = c->next;
	if (!c)
		return;
	if (a->op == WARDEN_ITEM) {
		add_item(c, a);
		return;
	}
	struct err e;
	struct usage u;
	if (a->kind)
		fill_err(&e, a);
	else
		fill_usage(&u, a);
	if (a->kind && ask_again(p, c, &e))
		return;
	if (c->rq.op == WARDEN_PROBE && !a->kind && !p->run)
		p->run = xstrdup(a->message);
	unlink_call(p, c);
	end_call(c, a->kind ? &e : NULL, a->kind ? NULL : &u);
}

/* One record, and the descriptor that comes with it. */
static ssize_t receive(int socket, struct warden_answer *a, int *ret_fd)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec v = { a, sizeof *a };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	ssize_t n = recvmsg(socket, &m, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);

	*ret_fd = -EBADF;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
	return n;
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
	struct process_boundary *p = poll->data;

	if (status < 0) {
		lose_socket(p, -status);
		return;
	}
	for (int i = 0; events & (UV_READABLE | UV_DISCONNECT) && i < READ_AT_ONCE && !p->lost.kind && !p->freed; i++) {
		struct warden_answer a;
		auto_fd int fd = -EBADF;
		ssize_t n = receive(p->fd, &a, &fd);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0) {
			lose_socket(p, n < 0 ? errno : 0);
			return;
		}
		if ((size_t)n != sizeof a || a.magic != WARDEN_MAGIC)
			continue;
		if (a.op == WARDEN_EDGE && fd >= 0 && p->on_edge)
			p->on_edge(p->edge_ctx, take_fd(&fd));
		else if (a.op != WARDEN_EDGE)
			on_answer(p, &a);
	}
	if (p->lost.kind || p->freed)
		return;
	int rc = flush(p);
	if (rc < 0 && rc != -EPIPE && rc != -ECONNRESET)
		lose_socket(p, -rc);
}

/* --- calls --- */

static struct call *new_call(boundary_done_fn done, void *ctx)
{
	struct call *c = xcalloc(1, sizeof *c);

	c->done = done;
	c->ctx = ctx;
	return c;
}

/* Text into a field that must hold it whole: -E2BIG else. */
static int put_text(char *field, size_t size, const char *text)
{
	size_t n = text ? strlen(text) : 0;

	if (n >= size)
		return -E2BIG;
	if (n)
		memcpy(field, text, n);
	return 0;
}

static int put_env(struct warden_request *rq, const struct pairs *env)
{
	size_t at = 0;

	for (size_t i = 0; env && i < env->n; i++) {
		int n = snprintf(rq->env + at, sizeof rq->env - at, "%s=%s", env->v[i].key, env->v[i].value);
		if (n < 0 || (size_t)n >= sizeof rq->env - at)
			return -E2BIG;
		at += (size_t)n + 1;
	}
	rq->env_len = (uint32_t)at;
	return 0;
}

static int put_volumes(struct warden_request *rq, const struct volume_mounts *m)
{
	if (m->n > ARRAY_LEN(rq->volumes))
		return -E2BIG;
	for (size_t i = 0; i < m->n; i++) {
		struct warden_volume *v = &rq->volumes[i];
		if (put_text(v->id, sizeof v->id, m->v[i].volume) < 0 || put_text(v->path, sizeof v->path, m->v[i].path) < 0 ||
		    put_text(v->subpath, sizeof v->subpath, m->v[i].subpath) < 0)
			return -E2BIG;
		v->read_only = m->v[i].read_only;
	}
	rq->volumes_n = (uint32_t)m->n;
	return 0;
}

static int put_spec(struct warden_request *rq, const struct boundary_spec *s, struct err *e)
{
	if (put_text(rq->id, sizeof rq->id, s->id) < 0 || put_text(rq->image_digest, sizeof rq->image_digest, s->image_digest) < 0 ||
	    put_text(rq->hostname, sizeof rq->hostname, s->hostname) < 0)
		return err_set(e, ERR_INVALID, E2BIG, "the id, image digest or hostname is too long");
	if (put_text(rq->user, sizeof rq->user, s->user) < 0 || put_text(rq->workdir, sizeof rq->workdir, s->workdir) < 0)
		return err_set(e, ERR_INVALID, E2BIG, "user (at most %zu bytes) or workdir (%zu) is too long", sizeof rq->user - 1,
			       sizeof rq->workdir - 1);
	if (put_env(rq, s->env) < 0)
		return err_set(e, ERR_INVALID, E2BIG, "the image's environment is larger than %d bytes", BOUNDARY_ENV_MAX);
	if (s->volumes && put_volumes(rq, s->volumes) < 0)
		return err_set(e, ERR_INVALID, E2BIG, "volumes: too many, or a path is too long");
	rq->memory_mib = s->resources.memory_mib;
	rq->disk_mib = s->resources.disk_mib;
	rq->pids = s->resources.pids;
	rq->cpu_millis = (uint64_t)(s->resources.cpus * 1000 + 0.5);
	rq->ephemeral = s->ephemeral;
	rq->network = s->network;
	rq->sudo = s->sudo;
	return 0;
}

static void submit_spec(struct boundary *b, enum warden_op op, const struct boundary_spec *spec, boundary_done_fn done, void *ctx)
{
	struct call *c = new_call(done, ctx);
	struct err e;

	if (put_spec(&c->rq, spec, &e) < 0)
		end_call(c, &e, NULL);
	else
		submit(of(b), c, op);
}

static int put_snapshot(struct warden_request *rq, const char *id, const char *snapshot, struct err *e)
{
	if (put_text(rq->id, sizeof rq->id, id) < 0 || put_text(rq->snapshot, sizeof rq->snapshot, snapshot) < 0)
		return err_set(e, ERR_INVALID, E2BIG, "the id of the sandbox or of the snapshot is too long");
	return 0;
}

static void submit_id(struct boundary *b, enum warden_op op, const char *id, struct call *c)
{
	struct err e;

	if (put_text(c->rq.id, sizeof c->rq.id, id) < 0) {
		(void)err_set(&e, ERR_INVALID, E2BIG, "the id is too long");
		end_call(c, &e, NULL);
		return;
	}
	submit(of(b), c, op);
}

static void process_list(struct boundary *b, boundary_list_fn done, void *ctx)
{
	struct call *c = new_call(NULL, ctx);

	c->list = done;
	submit(of(b), c, WARDEN_LIST);
}

/* A create from a snapshot: its disk is copied, which the warden does in the background, then it is started; and taken away again
 * when that fails. */
struct birth {
	struct process_boundary *p;
	struct warden_request start;
	boundary_done_fn done;
	void *ctx;
	struct err why;
};

static void birth_end(struct birth *x, const struct err *e)
{
	x->done(x->ctx, e);
	free(x);
}

static void on_unmade(void *ctx, const struct err *e)
{
	struct birth *x = ctx;

	(void)e; /* whoever asked for the create hears why that failed; a destroy will be asked for once more */
	birth_end(x, &x->why);
}

static void on_first_start(void *ctx, const struct err *e)
{
	struct birth *x = ctx;

	if (!e) {
		birth_end(x, NULL);
		return;
	}
	x->why = *e;
	struct call *c = new_call(on_unmade, x);
	memcpy(c->rq.id, x->start.id, sizeof c->rq.id);
	submit(x->p, c, WARDEN_DESTROY);
}

static void on_cloned(void *ctx, const struct err *e)
{
	struct birth *x = ctx;

	if (e) {
		birth_end(x, e);
		return;
	}
	struct call *c = new_call(on_first_start, x);
	c->rq = x->start;
	submit(x->p, c, WARDEN_START);
}

static void create_from_snapshot(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx)
{
	struct call *c = new_call(NULL, NULL);
	struct birth *x = xcalloc(1, sizeof *x);
	struct err e;

	*x = (struct birth){ .p = of(b), .done = done, .ctx = ctx };
	x->start.fresh = 1;
	c->done = on_cloned;
	c->ctx = x;
	if (put_spec(&x->start, spec, &e) < 0 || put_snapshot(&c->rq, spec->id, spec->from_snapshot, &e) < 0)
		end_call(c, &e, NULL);
	else
		submit(of(b), c, WARDEN_CLONE);
}

static void process_create(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx)
{
	if (spec->from_snapshot) {
		create_from_snapshot(b, spec, done, ctx);
		return;
	}
	submit_spec(b, WARDEN_CREATE, spec, done, ctx);
}

static void process_start(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx)
{
	submit_spec(b, WARDEN_START, spec, done, ctx);
}

static void process_stop(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	submit_id(b, WARDEN_STOP, id, new_call(done, ctx));
}

static void process_destroy(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	submit_id(b, WARDEN_DESTROY, id, new_call(done, ctx));
}

static void process_pause(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	submit_id(b, WARDEN_PAUSE, id, new_call(done, ctx));
}

static void process_resume(struct boundary *b, const char *id, boundary_done_fn done, void *ctx)
{
	submit_id(b, WARDEN_RESUME, id, new_call(done, ctx));
}

static void process_network(struct boundary *b, const char *id, bool on, boundary_done_fn done, void *ctx)
{
	struct call *c = new_call(done, ctx);

	c->rq.network = on;
	submit_id(b, WARDEN_NETWORK, id, c);
}

static void process_usage(struct boundary *b, const char *id, boundary_usage_fn done, void *ctx)
{
	struct call *c = new_call(NULL, ctx);

	c->usage = done;
	submit_id(b, WARDEN_USAGE, id, c);
}

static int process_check(struct boundary *b, const struct resources *r, struct err *e)
{
	(void)b;
	return host_has(r->memory_mib, (uint64_t)(r->cpus * 1000 + 0.5), e);
}

static void process_resize(struct boundary *b, const char *id, const struct resources *r, boundary_done_fn done, void *ctx)
{
	struct call *c = new_call(done, ctx);

	c->rq.memory_mib = r->memory_mib;
	c->rq.pids = r->pids;
	c->rq.cpu_millis = (uint64_t)(r->cpus * 1000 + 0.5);
	submit_id(b, WARDEN_RESIZE, id, c);
}

static void process_snapshot(struct boundary *b, const char *id, const char *snapshot, bool memory, bool passing, boundary_snapshot_fn done, void *ctx)
{
	struct call *c = new_call(NULL, ctx);
	struct err e;

	(void)passing; /* it costs little as it is */
	c->snapshot = done;
	if (memory)
		(void)err_set(&e, ERR_UNSUPPORTED, EOPNOTSUPP, "the boundary 'process' keeps disks, not what runs: leave memory out");
	if (memory || put_snapshot(&c->rq, id, snapshot, &e) < 0)
		end_call(c, &e, NULL);
	else
		submit(of(b), c, WARDEN_SNAPSHOT);
}

static void process_drop_snapshot(struct boundary *b, const char *snapshot, boundary_done_fn done, void *ctx)
{
	struct call *c = new_call(done, ctx);
	struct err e;

	if (put_snapshot(&c->rq, "", snapshot, &e) < 0)
		end_call(c, &e, NULL);
	else
		submit(of(b), c, WARDEN_DROP_SNAPSHOT);
}

static void process_list_snapshots(struct boundary *b, boundary_snapshots_fn done, void *ctx)
{
	struct call *c = new_call(NULL, ctx);

	c->snapshots = done;
	submit(of(b), c, WARDEN_LIST_SNAPSHOTS);
}

static void process_make_volume(struct boundary *b, const char *volume, uint64_t mib, boundary_done_fn done, void *ctx)
{
	struct call *c = new_call(done, ctx);

	c->rq.disk_mib = mib;
	submit_id(b, WARDEN_MAKE_VOLUME, volume, c);
}

static void process_drop_volume(struct boundary *b, const char *volume, boundary_done_fn done, void *ctx)
{
	submit_id(b, WARDEN_DROP_VOLUME, volume, new_call(done, ctx));
}

static void process_list_volumes(struct boundary *b, boundary_volumes_fn done, void *ctx)
{
	struct call *c = new_call(NULL, ctx);

	c->volumes = done;
	submit(of(b), c, WARDEN_LIST_VOLUMES);
}

static int open_sockets(struct process_boundary *p)
{
	if (!p->run)
		return -ENOTCONN;
	if (p->sockets < 0) {
		auto_free char *path = xasprintf("%s/s", p->run);
		p->sockets = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	return p->sockets < 0 ? -errno : 0;
}

static int process_open_guest(struct boundary *b, const char *id, struct err *e)
{
	struct process_boundary *p = of(b);
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int rc = open_sockets(p);

	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "open the folder of the guests' sockets");
	/* By way of the folder's descriptor: a path may be longer than a socket address. */
	int n = snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s.sock", p->sockets, id);
	if (n < 0 || (size_t)n >= sizeof a.sun_path || strchr(id, '/'))
		return err_set(e, ERR_INVALID, EINVAL, "not a sandbox id");
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make a socket");
	if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "connect to the guest of sandbox %s", id);
	return take_fd(&fd);
}

static void on_closed(uv_handle_t *handle)
{
	struct process_boundary *p = handle->data;

	if (--p->handles > 0)
		return;
	close_fd(p->fd);
	close_fd(p->sockets);
	free(p->run);
	free(p);
}

static void process_free(struct boundary *b)
{
	struct process_boundary *p = of(b);
	struct err e;

	p->freed = true;
	(void)err_set(&e, ERR_UNAVAILABLE, ECANCELED, "the boundary is being closed");
	lose(p, &e);
	/* The warden ends at once, not when the loop gets round to the handles. */
	(void)shutdown(p->fd, SHUT_RDWR);
	uv_close((uv_handle_t *)&p->poll, on_closed);
	uv_close((uv_handle_t *)&p->timer, on_closed);
}

static const struct boundary_ops process_ops = {
	.name = "process",
	.spares = 4,
	.caps = BOUNDARY_CAN_PAUSE | BOUNDARY_CAN_NETWORK | BOUNDARY_CAN_SNAPSHOT_DISK | BOUNDARY_CAN_RESIZE | BOUNDARY_CAN_VOLUMES | BOUNDARY_CAN_PERMIT |
		BOUNDARY_MANY_CONNECTIONS,
	.list = process_list,
	.create = process_create,
	.start = process_start,
	.stop = process_stop,
	.destroy = process_destroy,
	.pause = process_pause,
	.resume = process_resume,
	.usage = process_usage,
	.check = process_check,
	.resize = process_resize,
	.network = process_network,
	.snapshot = process_snapshot,
	.drop_snapshot = process_drop_snapshot,
	.list_snapshots = process_list_snapshots,
	.make_volume = process_make_volume,
	.drop_volume = process_drop_volume,
	.list_volumes = process_list_volumes,
	.open_guest = process_open_guest,
	.free = process_free,
};

static void probed(void *ctx, const struct err *e)
{
	(void)ctx, (void)e; /* the answer was read for its run folder; a refusal comes as the warden's last word */
}

struct boundary *process_boundary_new(uv_loop_t *loop, int fd, process_lost_fn on_lost, void *ctx)
{
	struct process_boundary *p = xcalloc(1, sizeof *p);

	p->base.ops = &process_ops;
	p->fd = fd;
	p->sockets = -EBADF;
	p->on_lost = on_lost;
	p->lost_ctx = ctx;
	p->handles = 2;
	uv_poll_init(loop, &p->poll, fd);
	uv_timer_init(loop, &p->timer);
	p->poll.data = p->timer.data = p;
	process_boundary_probe(&p->base, probed, NULL);
	return &p->base;
}

void process_boundary_on_edge(struct boundary *b, void (*on_edge)(void *ctx, int fd), void *ctx)
{
	of(b)->on_edge = on_edge;
	of(b)->edge_ctx = ctx;
}

void process_boundary_probe(struct boundary *b, boundary_done_fn done, void *ctx)
{
	submit(of(b), new_call(done, ctx), WARDEN_PROBE);
}
