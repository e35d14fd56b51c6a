#include "guest/op.h"

#include "guest/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	OPS_MAX = 512,
	GRACE_MS = 2000,             /* for a worker whose daemon has gone to tidy up after itself */
	TO_WORKER_MAX = GUEST_OP_WINDOW + 64 * 1024, /* what credit allows, and the heads: small pieces become large ones meanwhile */
	HIGH = 512 * 1024,           /* the connection holds enough: leave the rest with the workers */
};

struct op {
	struct guest *g;
	struct op *next;
	uint64_t id;
	pid_t pid;           /* 0 = reaped */
	bool direct, ended;  /* ended: the daemon has its OP_END, or wants none */
	struct watch w;      /* our end of the socket pair; direct: the connection, watched for its end only */
	struct buf in, out;  /* from and to the worker */
	size_t tail;         /* see guest_data_put */
	struct timer grace;
};

static struct op *op_by_id(struct guest *g, uint64_t id)
{
	for (struct op *o = g->ops; o; o = o->next)
		if (o->id == id && !o->direct && !o->ended)
			return o;
	return NULL;
}

static void op_free(struct op *o)
{
	for (struct op **at = &o->g->ops; *at; at = &(*at)->next)
		if (*at == o) {
			*at = o->next;
			break;
		}
	timer_stop(&o->grace);
	watch_close(&o->g->loop, &o->w);
	buf_done(&o->in);
	buf_done(&o->out);
	free(o);
}

/* Nothing more is wanted of it. A worker sees its socket closed; one that is stuck is killed after a while. */
static void op_leave(struct op *o)
{
	watch_close(&o->g->loop, &o->w);
	buf_done(&o->in);
	buf_done(&o->out);
	o->ended = true;
	if (o->pid == 0)
		op_free(o);
	else if (!o->grace.at)
		timer_set(&o->g->loop, &o->grace, now_ms() + GRACE_MS);
}

static void grace_over(struct timer *t)
{
	struct op *o = container_of(t, struct op, grace);

	if (o->pid > 0)
		(void)kill(o->pid, SIGKILL);
}

static void tell_end(struct guest *g, uint64_t id, int errnum, const char *text)
{
	struct buf *out = guest_out(g);
	struct guest_result r = { errnum == EAGAIN ? ERR_LIMIT : ERR_INTERNAL, (uint32_t)errnum, str_of(text) };

	if (out)
		(void)guest_result_put(out, GUEST_OP_END, id, &r);
}

/* --- from the worker to the daemon --- */

static bool from_worker(uint8_t type)
{
	return (type >= GUEST_OP_DATA && type <= GUEST_OP_CREDIT) || (type >= GUEST_OP_OPENED && type <= GUEST_OP_END);
}

/* False: it has been left, and perhaps freed. */
static bool forward(struct op *o)
{
	struct buf *out = guest_out(o->g);
	struct guest_frame f;
	ssize_t n = 0;

	while (out && !o->ended && (n = guest_frame_next(buf_str(&o->in), &f)) > 0) {
		if (!from_worker(f.type) || guest_frame_put(out, f.type, f.channel, o->id, f.payload) < 0) {
			n = -EPROTO;
			break;
		}
		buf_consume(&o->in, (size_t)n);
		o->ended = f.type == GUEST_OP_END;
	}
	if (n < 0 && !o->ended) {
		tell_end(o->g, o->id, EIO, "the operation's process was tampered with");
		o->ended = true;
	}
	if (!o->ended)
		return true;
	op_leave(o);
	return false;
}

/* False: it has been left, and perhaps freed (a worker may be reaped before its last words are read). */
static bool read_worker(struct op *o)
{
	char *at = buf_reserve(&o->in, GUEST_PAYLOAD_MAX);
	ssize_t n = at ? read(o->w.fd, at, GUEST_PAYLOAD_MAX) : -1;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n <= 0) {
		tell_end(o->g, o->id, EIO, "the operation's process was killed");
		op_leave(o);
		return false;
	}
	buf_grew(&o->in, (size_t)n);
	return forward(o);
}

static void write_worker(struct op *o)
{
	while (o->out.len) {
		ssize_t n = send(o->w.fd, o->out.data, o->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			if (errno != EAGAIN)
				buf_consume(&o->out, o->out.len); /* gone: reading will say so */
			break;
		}
		buf_consume(&o->out, (size_t)n);
	}
	if (o->out.len == 0)
		buf_done(&o->out);
}

static void op_watch(struct op *o)
{
	struct buf *out = guest_out(o->g);
	uint32_t events = (out && out->len < HIGH ? (uint32_t)EPOLLIN : 0) | (o->out.len ? (uint32_t)EPOLLOUT : 0);

	if (o->w.fd >= 0 && !o->direct)
		watch_set(&o->g->loop, &o->w, events);
}

static void op_ready(struct watch *w, uint32_t events)
{
	struct op *o = container_of(w, struct op, w);
	struct buf *out = guest_out(o->g);

	if (o->direct) {
		op_leave(o); /* the daemon's end of the connection is closed */
		return;
	}
	if (events & EPOLLOUT)
		write_worker(o);
	if (out && out->len < HIGH && events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !read_worker(o))
		return;
	op_watch(o);
}

void ops_resume(struct guest *g)
{
	for (struct op *o = g->ops; o; o = o->next)
		op_watch(o);
}

/* --- from the daemon --- */

int op_input(struct guest *g, const struct guest_frame *f)
{
	struct op *o = op_by_id(g, f->id);

	if (!o)
		return 0; /* has ended meanwhile */
	if (f->type == GUEST_OP_CANCEL) {
		op_leave(o);
		return 0;
	}
	if (o->out.len + GUEST_HEAD + f->payload.n > TO_WORKER_MAX)
		return -EPROTO; /* more than its credit */
	if (f->type == GUEST_OP_DATA) {
		(void)guest_data_put(&o->out, &o->tail, f->type, f->id, f->payload);
	} else {
		(void)guest_frame_put(&o->out, f->type, f->channel, f->id, f->payload);
		o->tail = 0;
	}
	write_worker(o);
	op_watch(o);
	return 0;
}

static struct op *op_new(struct guest *g, uint64_t id, int fd)
{
	struct op *o = xcalloc(1, sizeof *o);

	o->g = g;
	o->id = id;
	o->w = (struct watch){ .fd = fd, .ready = op_ready };
	o->grace.fire = grace_over;
	buf_init(&o->in, 2 * (GUEST_HEAD + GUEST_PAYLOAD_MAX));
	buf_init(&o->out, TO_WORKER_MAX);
	o->next = g->ops;
	g->ops = o;
	return o;
}

static size_t ops_count(const struct guest *g)
{
	size_t n = 0;

	for (struct op *o = g->ops; o; o = o->next)
		n++;
	return n;
}

int op_open(struct guest *g, uint64_t id, struct str message)
{
	struct guest_op_request req;
	int pair[2];

	if (op_by_id(g, id) || guest_op_request_get(message, &req) < 0)
		return -EPROTO;
	if (ops_count(g) >= OPS_MAX) {
		tell_end(g, id, EAGAIN, "too many operations at once in this sandbox");
		return 0;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		tell_end(g, id, errno, "cannot make a socket for the operation");
		return 0;
	}
	/* fork, not vfork: the child goes on in this program. It is small, and no program starts waiting for it */
	pid_t pid = fork();
	if (pid == 0)
		worker_main(&g->opt, pair[1], id, &req, (struct str){ NULL, 0 });
	int e = errno;
	close_fd(pair[1]);
	if (pid < 0) {
		close_fd(pair[0]);
		tell_end(g, id, e, "the sandbox has reached its limit of processes");
		return 0;
	}
	(void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
	struct op *o = op_new(g, id, pair[0]);
	o->pid = pid;
	op_watch(o);
	return 0;
}

int op_open_direct(struct guest *g, int fd, uint64_t id, struct str message, struct str rest)
{
	struct guest_op_request req;
	auto_buf struct buf refusal;

	buf_init(&refusal, 1024);
	if (guest_op_request_get(message, &req) < 0) {
		close_fd(fd);
		return -EPROTO;
	}
	pid_t pid = ops_count(g) < OPS_MAX ? fork() : -1;
	if (pid == 0) {
		(void)fcntl(fd, F_SETFL, 0);
		worker_main(&g->opt, fd, id, &req, rest);
	}
	if (pid < 0) {
		struct guest_result r = { ERR_LIMIT, EAGAIN, STR("the sandbox has reached its limit of processes") };
		(void)guest_result_put(&refusal, GUEST_OP_END, id, &r);
		(void)!send(fd, refusal.data, refusal.len, MSG_NOSIGNAL | MSG_DONTWAIT);
		close_fd(fd);
		return 0;
	}
	struct op *o = op_new(g, id, fd);
	o->pid = pid;
	o->direct = true;
	watch_set(&g->loop, &o->w, EPOLLRDHUP);
	return 0;
}

void ops_cancel(struct guest *g)
{
	for (struct op *o = g->ops, *next; o; o = next) {
		next = o->next;
		if (!o->direct && !o->ended)
			op_leave(o);
	}
}

bool op_reaped(struct guest *g, pid_t pid)
{
	for (struct op *o = g->ops; o; o = o->next) {
		if (o->pid != pid)
			continue;
		o->pid = 0;
		if (o->direct || o->ended)
			op_free(o); /* else its last words are still in the socket */
		return true;
	}
	return false;
}
