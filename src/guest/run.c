#include "guest/run.h"

#include "guest/launch.h"
#include "guest/session.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum {
	KILL_AGAIN_MS = 50,      /* without cgroups a member may have been missed */
	STARTED_WITHIN_MS = 5,   /* most runs are over by then, and one message wakes the daemon once */
	TERMINAL_DRAIN_MS = 250, /* a terminal whose main process has gone hangs up at once; this is for one that does not */
};

/* --- the table --- */

static struct run **bucket(struct guest *g, uint64_t id)
{
	return &g->runs[id % RUN_BUCKETS];
}

struct run *run_find(struct guest *g, uint64_t id)
{
	for (struct run *r = *bucket(g, id); r; r = r->next)
		if (r->id == id)
			return r;
	return NULL;
}

struct run *run_of_pid(struct guest *g, pid_t pid)
{
	for (size_t i = 0; i < RUN_BUCKETS; i++)
		for (struct run *r = g->runs[i]; r; r = r->next)
			if (r->pid == pid)
				return r;
	return NULL;
}

static void run_free(struct run *r)
{
	struct guest *g = r->g;

	for (struct run **at = bucket(g, r->id); *at; at = &(*at)->next)
		if (*at == r) {
			*at = r->next;
			break;
		}
	if (r->queued_to_send) {
		struct run **at = &g->sending;
		while (*at != r)
			at = &(*at)->next_sending;
		*at = r->next_sending;
		if (!*at)
			g->sending_tail = at;
	}
	timer_stop(&r->limit);
	timer_stop(&r->drain);
	timer_stop(&r->tell);
	watch_close(&g->loop, &r->in.w);
	buf_done(&r->in.bytes);
	window_done(&r->out[0]);
	window_done(&r->out[1]);
	free(r->command);
	g->runs_n--;
	free(r);
}

static void input_ready(struct watch *w, uint32_t events);
static void limit_reached(struct timer *t);
static void drain_timer(struct timer *t);
static void tell_timer(struct timer *t);

static struct run *run_new(struct guest *g, uint64_t id, const struct guest_run_request *req)
{
	struct run *r = xcalloc(1, sizeof *r);

	r->g = g;
	r->id = id;
	r->attached = true;
	r->pty = -EBADF;
	r->in.w = (struct watch){ .fd = -EBADF, .ready = input_ready };
	r->in.limit = GUEST_STDIN_WINDOW;
	r->in.open = req->flags & GUEST_RUN_STDIN_OPEN;
	r->in.eof = !r->in.open;
	r->limit.fire = limit_reached;
	r->drain.fire = drain_timer;
	r->tell.fire = tell_timer;
	r->timeout_ms = req->timeout_ms;
	r->started_ms = now_ms();
	buf_init(&r->in.bytes, GUEST_MESSAGE_MAX + GUEST_STDIN_WINDOW + 1); /* what it begins with, what may follow, a terminal's end of file */
	window_init(&r->out[0]);
	window_init(&r->out[1]);
	r->next = *bucket(g, id);
	*bucket(g, id) = r;
	g->runs_n++;
	return r;
}

/* --- stdin --- */

static void input_done(struct run *r)
{
	struct run_input *in = &r->in;

	watch_close(&r->g->loop, &in->w);
	buf_done(&in->bytes);
}

static void input_write(struct run *r)
{
	struct run_input *in = &r->in;

	while (in->bytes.len && in->w.fd >= 0) {
		ssize_t n = write(in->w.fd, in->bytes.data, in->bytes.len);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) /* nobody reads any more: that is no error, the bytes are just not wanted */
			buf_consume(&in->bytes, in->bytes.len);
		else
			buf_consume(&in->bytes, (size_t)n);
	}
	if (in->bytes.len == 0) {
		buf_done(&in->bytes);
		if (in->eof && r->pty < 0 && !in->hold)
			watch_close(&r->g->loop, &in->w);
	}
	if (in->w.fd >= 0)
		watch_set(&r->g->loop, &in->w, in->bytes.len ? EPOLLOUT : 0);
	uint64_t limit = in->received - MIN(in->received, (uint64_t)in->bytes.len) + GUEST_STDIN_WINDOW;
	if (in->open && limit > in->limit && (limit - in->limit >= GUEST_STDIN_WINDOW / 2 || in->limit == in->received)) {
		in->limit = limit;
		in->tell = true;
		run_tell(r);
	}
}

static void input_ready(struct watch *w, uint32_t events)
{
	(void)events;
	input_write(container_of(w, struct run, in.w));
}

static void input_end(struct run *r)
{
	r->in.open = false;
	r->in.eof = true;
	if (r->pty >= 0)
		(void)buf_addc(&r->in.bytes, 4); /* a terminal's end of file is a character */
}

void run_input_start(struct run *r, int fd)
{
	r->in.w.fd = fd;
	if (r->in.eof && r->pty >= 0)
		input_end(r);
	input_write(r);
}

void run_input_unhold(struct run *r)
{
	r->in.hold = false;
	input_write(r);
}

int run_stdin(struct guest *g, uint64_t id, struct str bytes)
{
	struct run *r = run_find(g, id);

	if (!r || r->state >= RUN_DRAINING || !r->in.open)
		return 0; /* it has ended meanwhile: the daemon will see */
	if (bytes.n > r->in.limit - r->in.received)
		return -EPROTO;
	r->in.received += bytes.n;
	if (buf_add(&r->in.bytes, bytes.p, bytes.n) < 0)
		return -EPROTO;
	if (r->state == RUN_ALIVE)
		input_write(r);
	return 0;
}

void run_stdin_eof(struct guest *g, uint64_t id)
{
	struct run *r = run_find(g, id);

	if (!r || r->state >= RUN_DRAINING || !r->in.open)
		return;
	input_end(r);
	if (r->state == RUN_ALIVE)
		input_write(r);
}

/* --- start --- */

/* Descriptors of a start; all are closed at its end but those that were taken out. */
struct plumbing {
	int child[3], script;
	int in, out, err; /* our ends */
};

static void plumbing_done(struct plumbing *p)
{
	if (p->child[1] == p->child[0])
		p->child[1] = -EBADF; /* a terminal is one descriptor for all three */
	if (p->child[2] == p->child[1] || p->child[2] == p->child[0])
		p->child[2] = -EBADF;
	for (int i = 0; i < 3; i++)
		p->child[i] = close_fd(p->child[i]);
	p->script = close_fd(p->script);
	p->in = close_fd(p->in);
	p->out = close_fd(p->out);
	p->err = close_fd(p->err);
}

/* What most runs need, opened while there was time: two pipes, the reading end ours, and an empty stdin. */
static struct {
	int read, write;
} spare_pipes[2] = { { -EBADF, -EBADF }, { -EBADF, -EBADF } };
static int spare_null = -EBADF;

void run_prepare(void)
{
	int p[2];

	for (size_t i = 0; i < ARRAY_LEN(spare_pipes); i++)
		if (spare_pipes[i].read < 0 && pipe2(p, O_CLOEXEC) == 0) {
			spare_pipes[i].read = p[0];
			spare_pipes[i].write = p[1];
			(void)fcntl(p[0], F_SETFL, O_NONBLOCK); /* of our end, which a new pipe does not refuse */
		}
	if (spare_null < 0)
		spare_null = open("/dev/null", O_RDWR | O_CLOEXEC);
}

static bool take_spare(int *ret_read, int *ret_write)
{
	for (size_t i = 0; i < ARRAY_LEN(spare_pipes); i++)
		if (spare_pipes[i].read >= 0) {
			*ret_read = take_fd(&spare_pipes[i].read);
			*ret_write = take_fd(&spare_pipes[i].write);
			return true;
		}
	return false;
}

static int make_pipe(const struct user *u, int *ret_read, int *ret_write, bool read_is_ours)
{
	int p[2];

	if (read_is_ours && take_spare(ret_read, ret_write)) {
		user_give(u, *ret_read, true);
		return 0;
	}
	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	*ret_read = p[0];
	*ret_write = p[1];
	user_give(u, p[0], true);
	return fcntl(p[read_is_ours ? 0 : 1], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int open_terminal(const struct user *u, const struct guest_run_request *req, struct plumbing *p)
{
	int unlock = 0;
	struct winsize size = { .ws_row = req->rows ? req->rows : 24, .ws_col = req->cols ? req->cols : 80 };

	p->out = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (p->out < 0 || ioctl(p->out, TIOCSPTLCK, &unlock) < 0)
		return -errno;
	int slave = ioctl(p->out, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	p->child[0] = p->child[1] = p->child[2] = slave;
	user_give(u, slave, false); /* its group is tty */
	(void)fchmod(slave, 0620);
	(void)ioctl(p->out, TIOCSWINSZ, &size);
	p->in = fcntl(p->out, F_DUPFD_CLOEXEC, 3);
	return p->in < 0 ? -errno : 0;
}

static int open_pipes(const struct run *r, const struct user *u, const struct guest_run_request *req, struct plumbing *p)
{
	int e;

	if (req->flags & GUEST_RUN_PTY)
		return open_terminal(u, req, p);
	if (r->in.open || r->in.bytes.len) {
		if ((e = make_pipe(u, &p->child[0], &p->in, false)) < 0)
			return e;
	} else if ((p->child[0] = take_fd(&spare_null)) < 0 && (p->child[0] = open("/dev/null", O_RDWR | O_CLOEXEC)) < 0) {
		/* an image without devices: a pipe that is at its end */
		int nobody = -EBADF;
		e = make_pipe(u, &p->child[0], &nobody, false);
		close_fd(nobody);
		if (e < 0)
			return e;
	}
	if ((e = make_pipe(u, &p->out, &p->child[1], true)) < 0)
		return e;
	if (req->flags & GUEST_RUN_MERGE) {
		p->child[2] = p->child[1];
		return 0;
	}
	return make_pipe(u, &p->err, &p->child[2], true);
}

/* Puts the script where the program finds it and its path into argv. */
static int place_script(struct run *r, const struct user *u, struct guest_run_request *req, struct plumbing *p)
{
	char name[48];
	const char *path = "/dev/fd/63";

	if (!req->script.p)
		return 0;
	static_assert(LAUNCH_SCRIPT_FD == 63, "the path above");
	if (!req->script_suffix)
		p->script = script_in_memory(req->script);
	if (p->script < 0) {
		snprintf(name, sizeof name, "script%s", req->script_suffix ? req->script_suffix : "");
		int e = scratch_make(&r->scratch, u, name, req->script);
		if (e < 0)
			return e;
		path = r->scratch.path;
	}
	for (size_t i = 0; i < req->argc; i++)
		if (streq(req->argv[i], "{script}"))
			req->argv[i] = path;
	return 0;
}

/* exec failed: what a shell would say, on the run's own stderr. */
static void say_not_run(struct run *r, const char *program, int errnum, bool merged)
{
	struct window *w = &r->out[merged ? 0 : 1];
	const char *why = errnum == ENOENT && !strchr(program, '/') ? "command not found" : strerror(errnum);

	(void)buf_addf(&w->held, "%.1000s: %s%s", program, why, r->pty >= 0 ? "\r\n" : "\n");
}

static void output_changed(void *ctx);

static void run_launched(struct run *r, pid_t pid, struct plumbing *p)
{
	r->pid = pid;
	r->from[0] = source_new(&r->g->loop, take_fd(&p->out));
	if (p->err >= 0)
		r->from[1] = source_new(&r->g->loop, take_fd(&p->err));
	for (int i = 0; i < 2; i++)
		if (r->from[i])
			source_point(r->from[i], &r->out[i], output_changed, r);
	run_begin(r);
	if (p->in >= 0)
		run_input_start(r, take_fd(&p->in));
}

static void fail_launch(struct run *r, const struct launch *l, const struct guest_run_request *req, int e)
{
	if (l->stage == LAUNCH_CWD && l->cwd)
		run_fail(r, -e, "cannot enter the working directory %.120s: %s", l->cwd, strerror(-e));
	else if (l->stage == LAUNCH_USER)
		run_fail(r, -e, "cannot become user %s: %s", req->user ? req->user : r->g->opt.user, strerror(-e));
	else if (l->stage == LAUNCH_CONFINE)
		run_fail(r, -e, "this sandbox's permissions cannot be kept, so no program is started in it: %s",
			 e == -EOPNOTSUPP || e == -ENOSYS ? "its kernel has no Landlock, or too old a one" : strerror(-e));
	else if (e == -EAGAIN)
		run_fail(r, -e, "the sandbox has reached its limit of processes");
	else
		run_fail(r, -e, "cannot start: %s", strerror(-e));
}

static void start_program(struct run *r, struct guest_run_request *req)
{
	struct guest *g = r->g;
	struct plumbing p = { { -EBADF, -EBADF, -EBADF }, -EBADF, -EBADF, -EBADF, -EBADF };
	struct user u;
	struct err e;
	bool bash;
	int error;

	if (streq(req->argv[0], "{shell}")) /* which one there is only we can see */
		req->argv[0] = session_shell(&bash);
	if (user_find(req->user ? req->user : g->opt.user, &u, &e) < 0) {
		run_fail(r, e.errnum, "%.190s", e.message);
		return;
	}
	if ((error = open_pipes(r, &u, req, &p)) < 0 || (error = place_script(r, &u, req, &p)) < 0) {
		plumbing_done(&p);
		run_fail(r, -error, "cannot prepare the run: %s", strerror(-error));
		return;
	}
	if (req->flags & GUEST_RUN_PTY)
		r->pty = p.in;
	int procs = group_make(&g->groups, &r->group);
	char **env = env_build(g, &u, req->env, &r->group, r->pty >= 0);
	struct launch l = {
		.argv = req->argv,
		.env = (const char *const *)(void *)env,
		.user = &u,
		.cwd = req->cwd,
		.fallback = { g->opt.workdir, u.home },
		.fds = { p.child[0], p.child[1], p.child[2] },
		.extra = p.script,
		.extra_to = LAUNCH_SCRIPT_FD,
		.pty = r->pty >= 0,
		.cgroup_procs = procs,
		.files = g->opt.files,
		.confine = &g->confine,
		.no_new_privs = g->opt.no_new_privs,
	};
	pid_t pid = launch(&l);
	env_free(env);
	if (pid < 0) {
		r->pty = -EBADF;
		fail_launch(r, &l, req, pid);
	} else {
		launch_notify(&l, g, r->id);
		if (l.stage == LAUNCH_EXEC)
			say_not_run(r, req->argv[0], l.errnum, req->flags & (GUEST_RUN_PTY | GUEST_RUN_MERGE));
		run_launched(r, pid, &p);
	}
	plumbing_done(&p);
}

int run_start(struct guest *g, uint64_t id, const struct guest_run_request *request)
{
	struct guest_run_request req = *request;

	if (run_find(g, id) || req.argc == 0 || g->runs_n >= GUEST_RUNS_MAX)
		return -EPROTO;
	struct run *r = run_new(g, id, &req);
	if (req.stdin_bytes.n)
		(void)buf_add(&r->in.bytes, req.stdin_bytes.p, req.stdin_bytes.n);
	if (!req.session) {
		start_program(r, &req);
		return 0;
	}
	struct session *s = session_find(g, req.session);
	if (!s) {
		run_fail(r, ESRCH, "there is no session \"%s\"", req.session);
		return 0;
	}
	r->command = xstrdup(req.argv[0]);
	session_queue(s, r);
	return 0;
}

void run_begin(struct run *r)
{
	r->state = RUN_ALIVE;
	r->started_ms = now_ms();
	if (r->timeout_ms)
		timer_set(&r->g->loop, &r->limit, r->started_ms + MIN(r->timeout_ms, UINT64_MAX / 2));
	if (r->session)
		run_tell(r); /* its turn has come */
	else
		timer_set(&r->g->loop, &r->tell, r->started_ms + STARTED_WITHIN_MS);
}

void run_take(struct guest *g, uint64_t id, uint64_t timeout_ms)
{
	struct run *r = run_find(g, id);

	if (!r || r->state != RUN_ALIVE || r->session)
		return;
	r->timeout_ms = timeout_ms;
	r->started_told = false;
	timer_stop(&r->tell);
	timer_stop(&r->limit);
	run_begin(r);
}

static void tell_timer(struct timer *t)
{
	run_tell(container_of(t, struct run, tell));
}

/* --- kill --- */

static void run_kill(struct run *r, uint32_t why)
{
	struct guest *g = r->g;

	if (r->state > RUN_ALIVE)
		return;
	r->end.flags |= why;
	if (r->session) {
		session_run_kill(r->session, r);
		return;
	}
	(void)group_signal(&g->groups, &r->group, r->pid, 0, SIGKILL);
	timer_set(&g->loop, &r->drain, now_ms() + KILL_AGAIN_MS);
}

static void limit_reached(struct timer *t)
{
	run_kill(container_of(t, struct run, limit), GUEST_END_TIMED_OUT);
}

static void drain_timer(struct timer *t)
{
	struct run *r = container_of(t, struct run, drain);

	if (r->state == RUN_ALIVE)
		run_kill(r, 0);
	else
		run_finish(r);
}

void run_cancel(struct guest *g, uint64_t id)
{
	struct run *r = run_find(g, id);

	if (r)
		run_kill(r, GUEST_END_CANCELED);
}

void run_signal(struct guest *g, uint64_t id, int signo, bool tree)
{
	struct run *r = run_find(g, id);
	pid_t front;

	if (!r || r->state != RUN_ALIVE || signo < 1 || signo > 64)
		return;
	if (r->session) {
		session_run_signal(r->session, r, signo);
	} else if (tree) {
		(void)group_signal(&g->groups, &r->group, r->pid, 0, signo);
	} else if (r->pty >= 0 && ioctl(r->pty, TIOCGPGRP, &front) == 0 && front > 1) {
		(void)kill(-front, signo);
	} else {
		(void)kill(r->pid, signo);
	}
}

void run_resize(struct guest *g, uint64_t id, uint16_t rows, uint16_t cols)
{
	struct run *r = run_find(g, id);
	struct winsize size = { .ws_row = rows, .ws_col = cols };

	if (r && r->pty >= 0)
		(void)ioctl(r->pty, TIOCSWINSZ, &size);
}

/* --- end --- */

void run_set_status(struct run *r, int status)
{
	r->end.signal = WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0;
	r->end.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void run_finish(struct run *r)
{
	struct guest *g = r->g;

	r->state = RUN_ENDED;
	r->end.duration_ms = now_ms() - r->started_ms;
	for (int i = 0; i < 2; i++) {
		r->end.bytes[i] = window_end(&r->out[i]);
		source_abandon(r->from[i]);
		r->from[i] = NULL;
	}
	timer_stop(&r->limit);
	timer_stop(&r->drain);
	timer_stop(&r->tell);
	input_done(r);
	r->pty = -EBADF;
	(void)scratch_remove(&r->scratch);
	group_release(&g->groups, &r->group);
	r->session = NULL;
	if (r->release)
		run_free(r);
	else
		run_tell(r);
}

void run_fail(struct run *r, int errnum, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->text, sizeof r->text, fmt, ap);
	va_end(ap);
	r->end.message = str_of(r->text);
	r->end.flags |= GUEST_END_FAILED;
	r->end.errnum = (uint32_t)errnum;
	run_finish(r);
}

static void output_changed(void *ctx)
{
	struct run *r = ctx;

	if (window_unsent(&r->out[0], 1).n || window_unsent(&r->out[1], 1).n) /* a pipe's end alone is told with the run's */
		run_tell(r);
	if (r->state == RUN_DRAINING && source_drained(r->from[0]) && source_drained(r->from[1]))
		run_finish(r);
}

/* A SIGKILL that nobody here sent, and the kernel counts one more. */
static void note_oom(struct run *r)
{
	struct guest *g = r->g;

	if (!g->in_vm || r->end.signal != SIGKILL || r->end.flags & (GUEST_END_TIMED_OUT | GUEST_END_CANCELED))
		return;
	uint64_t kills = groups_oom_kills(&g->groups);
	if (kills > g->oom_kills)
		r->end.flags |= GUEST_END_OOM;
	g->oom_kills = kills;
}

void run_reaped(struct run *r, int status)
{
	bool terminal = r->pty >= 0;

	run_set_status(r, status);
	note_oom(r);
	r->pid = 0;
	r->state = RUN_DRAINING;
	timer_stop(&r->limit);
	timer_stop(&r->drain);
	if (terminal)
		timer_set(&r->g->loop, &r->drain, now_ms() + TERMINAL_DRAIN_MS);
	source_drain(r->from[0], terminal);
	source_drain(r->from[1], terminal);
	output_changed(r);
}

void run_release(struct guest *g, uint64_t id)
{
	struct run *r = run_find(g, id);

	if (!r)
		return;
	if (r->state == RUN_ENDED) {
		run_free(r);
		return;
	}
	r->release = true;
	r->attached = false;
	for (int i = 0; i < 2; i++) { /* nobody will acknowledge it, so nothing may wait for that */
		window_discard(&r->out[i]);
		source_resume(r->from[i]);
	}
	if (r->session)
		session_run_resume(r->session, r);
	run_kill(r, GUEST_END_CANCELED);
}
