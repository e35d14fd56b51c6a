#include "egress/openers.h"

#include "base/buf.h"
#include "base/log.h"
#include "egress/opener.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uthash.h>

#define AGAIN_MS 1000 /* one that has ended is started again at the next of these */
#define READ_AT_ONCE 64

struct keeper;
struct process { /* outlives its keeper until the loop has closed its handles */
	uv_process_t child;
	uv_poll_t poll;
	int fd;
	unsigned open; /* handles */
	struct keeper *keeper;
};

struct keeper {
	char id[40];
	struct openers *o;
	struct process *process; /* NULL: none runs */
	UT_hash_handle hh;
};

struct openers {
	uv_loop_t *loop;
	struct keeper *all;
	uv_timer_t again;
	egress_keys_fn keys;
	egress_use_fn use;
	void *ctx;
	void (*started)(void *ctx, const char *id);
	void *started_ctx;
};

/* --- a process --- */

static void on_handle_closed(uv_handle_t *h)
{
	struct process *p = h->data;

	if (--p->open)
		return;
	close_fd(p->fd);
	free(p);
}

/* It ends with its socket; a child that will not is killed. */
static void let_go(struct keeper *k)
{
	struct process *p = take_ptr(&k->process);

	if (!p)
		return;
	p->keeper = NULL;
	(void)uv_process_kill(&p->child, SIGKILL);
	uv_close((uv_handle_t *)&p->poll, on_handle_closed);
	/* child: closed by on_child_exit, so that it is waited for */
}

/* Whoever waited for an answer has gone with it. */
static void tell_end(struct keeper *k)
{
	const struct opener_event ev = { .magic = OPENER_MAGIC, .kind = OPENER_ASK_END };

	if (k->o->use)
		k->o->use(k->o->ctx, k->id, &ev);
}

static void on_child_exit(uv_process_t *child, int64_t status, int signo)
{
	struct process *p = child->data;
	struct keeper *k = p->keeper;

	if (k) {
		tell_end(k);
		log_error("sandbox=%s msg=\"its opener has ended: what it would open is refused until a new one runs\" status=%lld signal=%d",
			  k->id, (long long)status, signo);
		k->process = NULL;
		p->keeper = NULL;
		uv_close((uv_handle_t *)&p->poll, on_handle_closed);
	}
	uv_close((uv_handle_t *)child, on_handle_closed);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct process *p = poll->data;

	(void)events;
	for (int i = 0; p->keeper && i < READ_AT_ONCE && status >= 0; i++) {
		struct opener_event ev;
		ssize_t n = recv(p->fd, &ev, sizeof ev, MSG_DONTWAIT | MSG_TRUNC);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			uv_poll_stop(poll); /* its end is told by on_child_exit */
			return;
		}
		if (n != (ssize_t)sizeof ev || ev.magic != OPENER_MAGIC)
			continue;
		ev.secret[sizeof ev.secret - 1] = ev.name[sizeof ev.name - 1] = ev.method[sizeof ev.method - 1] = ev.path[sizeof ev.path - 1] =
			ev.reason[sizeof ev.reason - 1] = ev.rule[sizeof ev.rule - 1] = '\0';
		if (p->keeper->o->use)
			p->keeper->o->use(p->keeper->o->ctx, p->keeper->id, &ev);
	}
}

static int send_fd(int socket, const struct opener_order *order, int fd)
{
	struct opener_order copy = *order;
	struct iovec iov = { &copy, sizeof copy };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };

	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	return sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* By a file in memory: it is of any size, and gone when both have closed it. */
static int send_keys(struct keeper *k)
{
	auto_buf struct buf text;
	auto_fd int fd = memfd_create("keys", MFD_CLOEXEC);
	int rc = fd < 0 ? -errno : 0;

	buf_init_secret(&text, OPENER_CONFIG_MAX);
	if (rc == 0)
		rc = k->o->keys ? k->o->keys(k->o->ctx, k->id, &text) : -ENOENT;
	if (rc == 0 && text.overflow)
		rc = -E2BIG;
	if (rc == 0 && (write(fd, text.data ? text.data : "", text.len) != (ssize_t)text.len || lseek(fd, 0, SEEK_SET) < 0))
		rc = -EIO;
	const struct opener_order order = { .magic = OPENER_MAGIC, .op = OPENER_CONFIG, .size = (uint32_t)text.len };
	return rc == 0 ? send_fd(k->process->fd, &order, fd) : rc;
}

static enum log_level level_of_now(void)
{
	enum log_level l = LOG_DEBUG;

	while (l < LOG_ERROR && !log_enabled(l))
		l++;
	return l;
}

static int start(struct keeper *k)
{
	static char name[] = "caisson", command[] = OPENER_COMMAND;
	char level[8];
	char *args[] = { name, command, level, NULL };
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	struct process *p = xcalloc(1, sizeof *p);
	snprintf(level, sizeof level, "%d", (int)level_of_now());
	uv_stdio_container_t stdio[] = { { .flags = UV_IGNORE },
					 { .flags = UV_IGNORE },
					 { .flags = UV_INHERIT_FD, .data.fd = 2 },
					 { .flags = UV_INHERIT_FD, .data.fd = pair[1] } };
	const uv_process_options_t options = { .file = "/proc/self/exe", .args = args, .stdio = stdio, .stdio_count = ARRAY_LEN(stdio),
					       .exit_cb = on_child_exit, .flags = UV_PROCESS_DETACHED };
	p->fd = pair[0];
	p->child.data = p->poll.data = p;
	p->keeper = k;
	p->open = 1;
	(void)fcntl(p->fd, F_SETFL, O_NONBLOCK);
	int rc = uv_spawn(k->o->loop, &p->child, &options);
	close_fd(pair[1]);
	if (rc < 0 || uv_poll_init(k->o->loop, &p->poll, p->fd) < 0) {
		p->keeper = NULL;
		if (rc < 0)
			uv_close((uv_handle_t *)&p->child, on_handle_closed);
		else
			(void)uv_process_kill(&p->child, SIGKILL);
		return rc < 0 ? rc : -ENOMEM;
	}
	p->open = 2;
	(void)uv_poll_start(&p->poll, UV_READABLE | UV_DISCONNECT, on_event);
	k->process = p;
	return 0;
}

/* Runs, with the keys of now; or does not run. */
static void bring_up(struct keeper *k)
{
	bool fresh = !k->process;
	int rc = fresh ? start(k) : 0;

	if (rc == 0)
		rc = send_keys(k);
	if (rc < 0) {
		log_error("sandbox=%s msg=\"its opener does not run: %s\"", k->id, strerror(-rc));
		let_go(k);
		return;
	}
	if (fresh)
		k->o->started(k->o->started_ctx, k->id);
}

/* --- all --- */

static void on_again(uv_timer_t *t)
{
	struct openers *o = t->data;
	struct keeper *k, *next;

	HASH_ITER (hh, o->all, k, next)
		if (!k->process)
			bring_up(k);
}

struct openers *openers_new(uv_loop_t *loop, void (*started)(void *ctx, const char *id), void *ctx)
{
	struct openers *o = xcalloc(1, sizeof *o);

	o->loop = loop;
	o->started = started;
	o->started_ctx = ctx;
	uv_timer_init(loop, &o->again);
	o->again.data = o;
	uv_unref((uv_handle_t *)&o->again);
	return o;
}

void openers_on(struct openers *o, egress_keys_fn keys, egress_use_fn use, void *ctx)
{
	o->keys = keys;
	o->use = use;
	o->ctx = ctx;
}

static struct keeper *find(struct openers *o, const char *id)
{
	struct keeper *k = NULL;

	if (o) /* else everything ends */
		HASH_FIND_STR(o->all, id, k);
	return k;
}

void openers_keep(struct openers *o, const char *id)
{
	struct keeper *k = find(o, id);

	if (!o)
		return;
	if (!k) {
		k = xcalloc(1, sizeof *k);
		k->o = o;
		snprintf(k->id, sizeof k->id, "%s", id);
		HASH_ADD_STR(o->all, id, k);
		uv_timer_start(&o->again, on_again, AGAIN_MS, AGAIN_MS);
	}
	bring_up(k);
}

static void forget(struct openers *o, struct keeper *k)
{
	HASH_DEL(o->all, k);
	let_go(k);
	free(k);
	if (!o->all)
		uv_timer_stop(&o->again);
}

void openers_end(struct openers *o, const char *id)
{
	struct keeper *k = find(o, id);

	if (k)
		forget(o, k);
}

int openers_edge(struct openers *o, const char *id)
{
	const struct opener_order order = { .magic = OPENER_MAGIC, .op = OPENER_EDGE };
	struct keeper *k = find(o, id);
	int pair[2];

	if (!k || !k->process || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -ENOENT;
	int rc = send_fd(k->process->fd, &order, pair[1]);
	close_fd(pair[1]);
	if (rc < 0) {
		close_fd(pair[0]);
		return rc;
	}
	return pair[0];
}

void openers_answer(struct openers *o, const char *id, uint64_t ask, bool allowed)
{
	const struct opener_order order = { .magic = OPENER_MAGIC, .op = OPENER_ANSWER, .allowed = allowed, .ask = ask };
	struct keeper *k = find(o, id);

	if (k && k->process && send(k->process->fd, &order, sizeof order, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		log_error("sandbox=%s msg=\"its opener cannot be told an answer\" errno=%d", id, errno);
}

static void on_timer_closed(uv_handle_t *h)
{
	free(h->data);
}

void openers_free(struct openers *o)
{
	struct keeper *k, *next;

	if (!o)
		return;
	HASH_ITER (hh, o->all, k, next)
		forget(o, k);
	uv_close((uv_handle_t *)&o->again, on_timer_closed);
}
