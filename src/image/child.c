#include "image/child.h"

#include "base/buf.h"
#include "image/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096 /* longer lines come in pieces */

static void put_env(const char *const *env)
{
	for (; env && *env; env++)
		putenv((char *)(uintptr_t)*env); /* lives until exec */
}

/* In the child: descriptors, limits, jail, exec. Returns the errno that stopped it. */
static int become(const struct child_spec *s)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int in = s->in < 0 ? null : s->in, out = s->out < 0 ? null : s->out;
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(s->mute ? null : out, 2) < 0)
		return errno;
	if (s->file_max && setrlimit(RLIMIT_FSIZE, &(struct rlimit){ s->file_max, s->file_max }) < 0)
		return errno;
	if (s->jail) {
		clearenv();
		putenv((char *)(uintptr_t)"PATH=/usr/sbin:/usr/bin:/sbin:/bin");
		int r = jail_enter(s->jail);
		if (r < 0)
			return -r;
	}
	put_env(s->env);
	if (s->dir && chdir(s->dir) < 0)
		return errno;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	execvp(s->argv[0], (char *const *)(uintptr_t)s->argv);
	return errno;
}

static void die_with_parent(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127); /* it went before the line above */
}

int child_pipe(int ret_fds[2], struct err *e)
{
	return pipe2(ret_fds, O_CLOEXEC) == 0 ? 0 : err_sys(e, ERR_UNAVAILABLE, errno, "can't make a pipe");
}

pid_t child_start(const struct child_spec *s, struct err *e)
{
	int report[2];
	int r = child_pipe(report, e);
	if (r < 0)
		return r;
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid == 0) {
		die_with_parent(parent);
		int cause = become(s);
		ssize_t n = write(report[1], &cause, sizeof cause);
		_exit(n == sizeof cause ? 127 : 126);
	}
	int fork_error = errno, cause = 0;
	close(report[1]);
	auto_fd int from = report[0];
	if (pid < 0)
		return (pid_t)err_sys(e, ERR_UNAVAILABLE, fork_error, "can't start %s", s->argv[0]);
	if (read(from, &cause, sizeof cause) != sizeof cause)
		return pid;
	child_wait(pid);
	if (cause == ENOENT)
		return (pid_t)err_set(e, ERR_UNAVAILABLE, ENOENT, "%s is not installed: install the package that has it (apt-get install %s)", s->argv[0],
				      s->argv[0]);
	return (pid_t)err_sys(e, ERR_UNAVAILABLE, cause, "can't start %s", s->argv[0]);
}

int child_wait(pid_t pid)
{
	int status = 0;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 127;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int write_all(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t w = write(fd, p, n);
		if (w < 0)
			return -errno;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

static int pump(int in, int out, uint64_t max)
{
	static char block[256 << 10];
	bool wanted = true; /* when the reader has had enough, the rest is still read: a damaged or endless end must show */
	for (;;) {
		ssize_t n = read(in, block, sizeof block);
		if (n <= 0)
			return n < 0 ? 1 : 0;
		if ((uint64_t)n > max)
			return CHILD_PUMP_OVER;
		max -= (uint64_t)n;
		wanted = wanted && write_all(out, block, (size_t)n) == 0;
	}
}

pid_t child_pump(int in, int out, uint64_t max, struct err *e)
{
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid == 0) {
		die_with_parent(parent);
		signal(SIGPIPE, SIG_IGN);
		/* Only these two stay: a copy of another pipe's end here would keep its reader waiting for ever. */
		if (dup2(in, 0) < 0 || dup2(out, 1) < 0)
			_exit(1);
		close_range(3, ~0U, 0);
		_exit(pump(0, 1, max));
	}
	return pid < 0 ? (pid_t)err_sys(e, ERR_UNAVAILABLE, errno, "can't start a process") : pid;
}

int child_lines(int fd, int (*each)(void *ctx, const char *line), void *ctx)
{
	char line[LINE_MAX_BYTES + 1], block[16384];
	size_t used = 0;
	int r = 0;
	for (;;) {
		ssize_t n = read(fd, block, sizeof block);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n && r >= 0; i++) {
			bool end = block[i] == '\n' || block[i] == '\r';
			if (!end)
				line[used++] = block[i] ? block[i] : '?';
			if (!end && used < LINE_MAX_BYTES)
				continue;
			line[used] = 0;
			used = 0;
			r = each(ctx, line);
		}
		if (r < 0)
			return r;
	}
	line[used] = 0;
	return used ? each(ctx, line) : 0;
}

struct follow {
	void (*line)(void *ctx, const char *text);
	void *ctx;
	char first_error[200], last[200];
};

/* How the tools that we run begin the line that tells the cause; what follows it is often only their leaving. */
static bool tells_cause(const char *line)
{
	return strncmp(line, "E: ", 3) == 0 || strncmp(line, "npm error ", 10) == 0 || strncmp(line, "npm ERR! ", 9) == 0;
}

static int follow_line(void *ctx, const char *line)
{
	struct follow *f = ctx;
	const char *message = strstr(line, " msg=\""); /* time and level come before it: no news to the reader */
	line = message ? message + 5 : line;
	if (line[strspn(line, " \t")])
		snprintf(f->last, sizeof f->last, "%s", line);
	if (!f->first_error[0] && tells_cause(line))
		snprintf(f->first_error, sizeof f->first_error, "%s", line);
	if (f->line)
		f->line(f->ctx, line);
	return 0;
}

int child_run(const struct child_spec *spec, void (*line)(void *ctx, const char *text), void *ctx, const char *what, struct err *e)
{
	int fds[2];
	int r = child_pipe(fds, e);
	if (r < 0)
		return r;
	struct child_spec s = *spec;
	s.out = fds[1];
	pid_t pid = child_start(&s, e);
	close(fds[1]);
	auto_fd int from = fds[0];
	if (pid < 0) {
		err_prefix(e, "%s", what);
		return (int)pid;
	}
	struct follow f = { .line = line, .ctx = ctx };
	child_lines(from, follow_line, &f);
	int status = child_wait(pid);
	if (status == 0)
		return 0;
	const char *said = f.first_error[0] ? f.first_error : f.last[0] ? f.last : "it said nothing";
	return err_set(e, ERR_UNAVAILABLE, EIO, "%s (%s ended with %d): %s", what, s.argv[0], status, said);
}

static int collect_line(void *ctx, const char *line)
{
	return buf_addf(ctx, "%s\n", line);
}

int child_output(const struct child_spec *spec, size_t max, char **ret_text, const char *what, struct err *e)
{
	int fds[2];
	int r = child_pipe(fds, e);
	if (r < 0)
		return r;
	struct child_spec s = *spec;
	s.out = fds[1];
	s.mute = true;
	pid_t pid = child_start(&s, e);
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		err_prefix(e, "%s", what);
		return (int)pid;
	}
	auto_buf struct buf text;
	buf_init(&text, max);
	r = child_lines(fds[0], collect_line, &text);
	close(fds[0]); /* so that a child with more to say ends by SIGPIPE */
	int status = child_wait(pid);
	if (r == 0 && status == 0)
		*ret_text = text.len ? buf_take(&text) : xstrdup("");
	return r == 0 && status == 0 ? 0 : err_set(e, ERR_UNAVAILABLE, EIO, "%s (%s ended with %d)", what, s.argv[0], status);
}
