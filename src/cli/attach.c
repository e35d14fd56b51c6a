/* Theory of operation: the main thread reads the run's stream and writes stdout and stderr, so a reader that is slow slows the
 * command down. The signal thread (cli/signals.c) and a thread that reads stdin have connections of their own. The stdin
 * thread stops when `stop` becomes readable: it waits for that beside stdin, and the server refuses input of an ended run. */
#include "cli/attach.h"

#include "cli/out.h"
#include "cli/signals.h"
#include "cli/tty.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define KEPT_MAX ((size_t)256 << 20) /* of each stream for --json: the server keeps no more either */
enum { STDIN_GRACE_SECONDS = 3 };

struct attach {
	const char *sandbox;
	bool tty, feeds, json;
	struct caisson *signal_c, *stdin_c;
	char *run; /* set before the threads that read it begin */
	int stop;  /* eventfd */
	pthread_t feeder;
	bool feeding;
	struct buf out, err;
	int write_error; /* positive errno of the descriptor that took no more */
};

static void attach_free(struct attach *a)
{
	caisson_close(a->signal_c);
	caisson_close(a->stdin_c);
	buf_done(&a->out);
	buf_done(&a->err);
	close_fd(a->stop);
	free(a->run);
	free(a);
}

bool attach_args_take(struct args *a, int id, struct attach_args *t)
{
	switch (id) {
	case OPT_RUN_TTY:
		t->tty = true;
		return true;
	case OPT_RUN_INTERACTIVE:
		t->interactive = true;
		return true;
	case OPT_RUN_ENV:
		args_pair(a, "env", true, &t->env);
		return true;
	case OPT_RUN_WORKDIR:
		t->workdir = a->value;
		return true;
	case OPT_RUN_USER:
		t->user = a->value;
		return true;
	case OPT_RUN_TIMEOUT:
		args_duration(a, "timeout", &t->timeout_ms);
		return true;
	default:
		return false;
	}
}

bool attach_wants_stdin(const struct attach_args *t)
{
	struct stat st;

	if (t->interactive || t->tty)
		return true;
	return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

int attach_write(int fd, const void *bytes, size_t n)
{
	const char *p = bytes;

	while (n) {
		ssize_t wrote = write(fd, p, n);
		if (wrote < 0 && errno == EAGAIN) {
			struct pollfd room = { .fd = fd, .events = POLLOUT };
			poll(&room, 1, -1);
		} else if (wrote < 0 && errno != EINTR) {
			return -errno;
		} else if (wrote > 0) {
			p += wrote;
			n -= (size_t)wrote;
		}
	}
	return 0;
}

static int on_output(void *ctx, int stream, const void *bytes, size_t n)
{
	struct attach *a = ctx;

	if (a->json) {
		buf_add(stream == CAISSON_STDERR ? &a->err : &a->out, bytes, n); /* past the bound: dropped, and `truncated` says so */
		return 0;
	}
	int r = attach_write(stream == CAISSON_STDERR ? STDERR_FILENO : STDOUT_FILENO, bytes, n);
	if (r < 0)
		a->write_error = -r;
	return r;
}

/* --- stdin --- */

static ptrdiff_t read_stdin(void *ctx, void *bytes, size_t n)
{
	const struct attach *a = ctx;
	struct pollfd p[] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = a->stop, .events = POLLIN } };

	for (;;) {
		if (poll(p, ARRAY_LEN(p), -1) < 0 && errno != EINTR)
			return -1;
		if (p[1].revents)
			return -1;
		if (!p[0].revents)
			continue;
		ssize_t got = read(STDIN_FILENO, bytes, n);
		if (got >= 0)
			return got;
		if (errno != EINTR && errno != EAGAIN)
			return errno == EIO ? 0 : -1; /* EIO: the terminal has gone */
	}
}

static void *feed(void *ctx)
{
	struct attach *a = ctx;
	struct caisson_error e;

	if (caisson_run_feed(a->stdin_c, a->sandbox, a->run, read_stdin, a, &e) < 0 && e.kind != CAISSON_ERR_GONE &&
	    e.kind != CAISSON_ERR_STOPPED && e.kind != CAISSON_ERR_CONNECT && e.kind != CAISSON_ERR_NOT_FOUND)
		cli_warn("standard input: %s", e.message);
	return NULL;
}

static void on_start(void *ctx, const char *run)
{
	struct attach *a = ctx;

	a->run = xstrdup(run);
	signals_target(a->signal_c, a->sandbox, a->run, a->tty);
	a->feeding = a->feeds && pthread_create(&a->feeder, NULL, feed, a) == 0;
	if (a->feeds && !a->feeding)
		cli_warn("standard input is not passed on: no thread could be made");
}

/* False: the thread is still there (a server that answers nothing), and keeps what it uses. */
static bool stop_feeding(struct attach *a)
{
	const uint64_t one = 1;
	struct timespec until;

	if (!a->feeding)
		return true;
	ssize_t ignored = write(a->stop, &one, sizeof one);
	(void)ignored;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STDIN_GRACE_SECONDS;
	return pthread_timedjoin_np(a->feeder, NULL, &until) == 0;
}

/* --- the end --- */

int attach_exit_code(const struct caisson_run *r)
{
	if (r->truncated)
		cli_warn("more output than the server keeps was produced: some of it is missing");
	if (streq(r->state, "exited")) {
		if (r->timed_out) {
			cli_warn("the time limit was reached after %.1f s: everything the command started was killed", (double)r->duration_ms / 1000);
			return CLI_TIMED_OUT;
		}
		if (r->oom)
			cli_warn("out of memory in the sandbox: raise --memory");
		return r->exit_code & 0xff;
	}
	if (streq(r->state, "failed"))
		return cli_fail("the command was not started: %s", r->message ? r->message : "no reason is known");
	return cli_fail("the sandbox ended while the command ran: %s", r->message ? r->message : "no reason is known");
}

static void put_stream(json_t *o, const char *name, const struct buf *b)
{
	struct str text = { b->data ? b->data : "", b->len };

	if (utf8_valid(text)) {
		json_object_set_new(o, name, json_stringn(text.p, text.n));
		return;
	}
	auto_free char *coded = xmalloc(4 * ((b->len + 2) / 3) + 1), *coded_name = xasprintf("%s_base64", name);
	base64_encode(text.p, text.n, coded);
	json_object_set_new(o, coded_name, json_string(coded));
}

int attach_print_json(const char *sandbox, const struct caisson_run *r, const struct buf *out, const struct buf *err)
{
	json_t *o = out_parse(r->json);

	json_object_set_new(o, "sandbox", json_string(sandbox));
	if (out)
		put_stream(o, "stdout", out);
	if (err)
		put_stream(o, "stderr", err);
	return out_json(o);
}

static int finish(struct attach *a, const struct caisson_run *r, const struct caisson_error *e)
{
	if (!r && a->write_error == EPIPE)
		return CLI_BROKEN_PIPE; /* as the command itself would have ended, had it been written to that pipe */
	if (!r && a->write_error)
		return cli_fail("writing the command's output: %s (the command has been cancelled)", strerror(a->write_error));
	if (!r)
		return cli_fail_error(e);
	if (a->json && attach_print_json(a->sandbox, r, &a->out, &a->err) != 0)
		return CLI_FAILED;
	return attach_exit_code(r);
}

static void set_terminal(struct attach_args *t, struct caisson_run_options *o)
{
	const char *term = getenv("TERM");
	bool given = false;

	for (size_t i = 0; i < t->env.n; i++)
		given |= streq(t->env.v[i].key, "TERM");
	if (!given && term && *term)
		pair_list_add(&t->env, "TERM", strlen("TERM"), term);
	o->pty = true;
	tty_size(&o->rows, &o->cols);
}

static struct attach *attach_new(struct caisson *c, const char *sandbox, const struct attach_args *t, bool json, struct caisson_error *e)
{
	/* On the heap: a stdin thread that hangs in a request outlives attach_run(), and then so must this. */
	struct attach *a = xcalloc(1, sizeof *a);

	*a = (struct attach){ .sandbox = sandbox, .tty = t->tty, .json = json, .feeds = attach_wants_stdin(t) };
	buf_init(&a->out, KEPT_MAX);
	buf_init(&a->err, KEPT_MAX);
	a->stop = eventfd(0, EFD_CLOEXEC);
	if (a->stop < 0 || caisson_clone(c, &a->signal_c, e) < 0 || caisson_clone(c, &a->stdin_c, e) < 0) {
		attach_free(a);
		return NULL;
	}
	return a;
}

int attach_run(struct caisson *c, const char *sandbox, struct attach_args *t, char *const *argv, bool json)
{
	struct caisson_error e = { .message = "no descriptor is left" };
	struct attach *a = attach_new(c, sandbox, t, json, &e);
	struct caisson_run_options o = {
		.argv = (const char *const *)argv, .cwd = t->workdir, .user = t->user, .timeout_ms = t->timeout_ms,
		.on_output = on_output, .on_start = on_start, .ctx = a,
	};
	struct caisson_run *r = NULL;

	if (!a)
		return cli_fail_error(&e);
	o.stdin_open = a->feeds && !t->tty;
	if (t->tty)
		set_terminal(t, &o);
	o.env = t->env.v;
	o.n_env = t->env.n;
	if (t->tty)
		tty_raw(STDIN_FILENO); /* of a stdin that is no terminal there is nothing to set */
	int failed = caisson_run(c, sandbox, &o, &r, &e);
	signals_untarget();
	bool joined = stop_feeding(a);
	tty_restore();
	int code = finish(a, failed < 0 ? NULL : r, &e);
	caisson_run_free(r);
	if (joined)
		attach_free(a);
	return code;
}
