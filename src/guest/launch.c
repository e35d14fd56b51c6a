#include "guest/launch.h"

#include "guest/notify.h"
#include "guest/sftp.h"
#include "wire/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Theory of operation. The child is made by vfork: it shares our memory and we stand still until it has called exec or exit.
 * That is 0.9 ms cheaper than fork, and an error comes back as plain memory. In return the child makes system calls only:
 * no allocation, no stdio, no libc function that keeps state. Order matters: the cgroup and the terminal need PID 1's
 * rights; all descriptors but the program's own are gone before a path of the tenant's choice is followed, so that
 * /proc/self/fd leads nowhere; the directory is entered with the user's rights. */

enum { REPORT_FD = 62 };

static const char *env_value(const char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

static void close_from(unsigned first, unsigned last)
{
	if (syscall(SYS_close_range, first, last, 0) == 0)
		return;
	struct rlimit r; /* a filter or kernel without it */
	unsigned end = getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < 65536 ? (unsigned)r.rlim_cur : 65536;
	for (unsigned fd = first; fd <= last && fd < end; fd++)
		(void)close((int)fd);
}

static int arrange_fds(struct launch *l)
{
	unsigned keep[2], n = 0;

	if (l->asked && (l->report = fcntl(l->report, F_DUPFD_CLOEXEC, LAUNCH_SCRIPT_FD + 1)) < 0) /* out of the others' way */
		return -errno;
	/* PID 1 keeps 0 to 2 occupied, so no source is overwritten before its turn */
	for (int i = 0; i < 3; i++)
		if (dup2(l->fds[i], i) < 0)
			return -errno;
	if (l->extra >= 0) {
		if (l->extra == l->extra_to ? fcntl(l->extra, F_SETFD, 0) < 0 : dup2(l->extra, l->extra_to) < 0)
			return -errno;
		keep[n++] = (unsigned)l->extra_to;
	}
	if (l->asked) { /* until the exec */
		if (dup3(l->report, REPORT_FD, O_CLOEXEC) < 0)
			return -errno;
		l->report = REPORT_FD;
		keep[n++] = REPORT_FD;
	}
	if (n == 2 && keep[0] > keep[1]) {
		keep[1] = keep[0];
		keep[0] = REPORT_FD;
	}
	unsigned first = 3;
	for (unsigned i = 0; i < n; i++) {
		if (keep[i] > first)
			close_from(first, keep[i] - 1);
		first = keep[i] + 1;
	}
	close_from(first, UINT_MAX);
	return 0;
}

static int take_terminal(const struct launch *l)
{
	for (size_t i = 0; i < ARRAY_LEN(l->fds); i++)
		if (ioctl(l->fds[i], TIOCSCTTY, 0) == 0)
			return 0;
		else if (errno != ENOTTY)
			break;
	return -errno;
}

/* The child's descriptors are its own, so it has to give us this one. Whatever it starts has none. */
static int hand_over(int to, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { .bytes = { 0 } };
	struct iovec v = { (int[2]){ LAUNCH_OK, 0 }, 2 * sizeof(int) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	return sendmsg(to, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* A message with no descriptor is the report of somebody who did not get that far: left in said. */
static int take_over(int from, int said[2])
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec v = { said, 2 * sizeof *said };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
	struct cmsghdr *c = recvmsg(from, &m, MSG_CMSG_CLOEXEC) > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	int fd = -EBADF;

	if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	return fd;
}

static int set_up(struct launch *l)
{
	struct rlimit no_core = { 0, 0 };

	if (setsid() < 0)
		return -errno;
	if (l->cgroup_procs >= 0 && write(l->cgroup_procs, "0", 1) < 0)
		return -errno;
	if (l->dir && fchdir(*l->dir) < 0)
		return -errno;
	l->stage = LAUNCH_CONFINE; /* while there is a descriptor of the rules */
	int r, listener = confine_enter(l->confine, &r);
	if (r < 0 || (listener >= 0 && (r = hand_over(l->report, listener)) < 0))
		return r;
	l->stage = LAUNCH_SETUP;
	r = l->pty ? take_terminal(l) : 0;
	if (r == 0)
		r = arrange_fds(l);
	if (r < 0)
		return r;
	if (l->no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	(void)setrlimit(RLIMIT_CORE, &no_core);
	(void)setrlimit(RLIMIT_NOFILE, &l->files);
	umask(022);
	return 0;
}

static int enter_default(const struct launch *l)
{
	for (size_t i = 0; i < ARRAY_LEN(l->fallback); i++)
		if (l->fallback[i] && chdir(l->fallback[i]) == 0)
			return 0;
	return chdir("/") < 0 ? -errno : 0;
}

/* A relative directory is looked for where a program without one starts, as paths of files are. */
static int enter(const struct launch *l)
{
	int r = (l->cwd && l->cwd[0] == '/') || l->dir ? 0 : enter_default(l);
	if (r == 0 && l->cwd)
		r = chdir(l->cwd) < 0 ? -errno : 0;
	return r;
}

static void try_exec(struct launch *l, const char *path, const char **by_sh, bool *refused)
{
	size_t n = strlen(path) + 1;

	if (l->confine->notify && !*refused && n <= sizeof l->program)
		memcpy(l->program, path, n);
	confine_execve(l->confine, path, l->argv, l->env);
	*refused |= errno == EACCES;
	if (errno != ENOEXEC)
		return;
	by_sh[0] = "sh"; /* a script without #! */
	by_sh[1] = path;
	confine_execve(l->confine, "/bin/sh", by_sh, l->env);
}

/* Returns only on failure. */
static int search_and_exec(struct launch *l, const char **by_sh)
{
	const char *name = l->argv[0], *dirs = env_value(l->env, "PATH");
	char path[PATH_MAX];
	size_t len = strlen(name);
	int result = ENOENT;
	bool refused = false;

	if (len == 0)
		return ENOENT;
	if (strchr(name, '/')) {
		try_exec(l, name, by_sh, &refused);
		return errno;
	}
	for (const char *end; dirs; dirs = end ? end + 1 : NULL) {
		end = strchr(dirs, ':');
		size_t n = end ? (size_t)(end - dirs) : strlen(dirs);
		if (n + len + 2 > sizeof path)
			continue;
		memcpy(path, dirs, n);
		if (n)
			path[n++] = '/'; /* an empty element is the current directory */
		memcpy(path + n, name, len + 1);
		try_exec(l, path, by_sh, &refused);
		if (errno == EACCES)
			result = EACCES;
		else if (errno != ENOENT && errno != ENOTDIR)
			return errno;
	}
	return result;
}

/* The SFTP server is this program, and no exec leads there: no rule on programs would allow it. A fork of our memory, which is closed to
 * the tenants (main.c), as those that serve file operations are. Its parent is PID 1, and it gives back nothing but its number. */
static void become_sftp(struct launch *l)
{
	long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0) {
		(void)setsid(); /* whose the first one was has gone */
		_exit(sftp_main());
	}
	l->errnum = pid < 0 ? errno : 0;
	l->pid = (pid_t)MAX(pid, 0L);
	_exit(126); /* seen by nobody if there is one */
}

/* Where programs have to be asked for, the first one may be one of them, and PID 1, who asks, can't wait for its exec. So the child is a fork,
 * which tells how it went up to there, and says itself what went wrong later. */
static void tell_so_far(const struct launch *l, enum launch_stage stage, int errnum)
{
	const int said[2] = { (int)stage, errnum };

	if (l->asked)
		(void)!send(l->report, said, sizeof said, MSG_NOSIGNAL);
}

static void say_not_run(const struct launch *l)
{
	const char *name = l->argv[0];

	if (l->asked)
		dprintf(STDERR_FILENO, "%.1000s: %s\n", name, l->errnum == ENOENT && !strchr(name, '/') ? "command not found" : strerror(l->errnum));
}

static void __attribute__((noreturn, noinline)) child(struct launch *l, const char **by_sh)
{
	sigset_t none;
	int r;

	l->stage = LAUNCH_SETUP;
	if ((r = set_up(l)) < 0)
		goto failed;
	l->stage = LAUNCH_USER;
	if ((r = user_become(l->user)) < 0)
		goto failed;
	l->stage = LAUNCH_CWD;
	if ((r = enter(l)) < 0)
		goto failed;
	l->stage = LAUNCH_EXEC;
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL); /* the child's own; handlers there are none, so exec starts clean */
	tell_so_far(l, LAUNCH_OK, 0);
	if (streq(l->argv[0], GUEST_ARGV0_SFTP) && l->asked)
		_exit(sftp_main());
	if (streq(l->argv[0], GUEST_ARGV0_SFTP))
		become_sftp(l);
	l->errnum = search_and_exec(l, by_sh);
	say_not_run(l);
	_exit(l->errnum == ENOENT || l->errnum == ENOTDIR ? 127 : 126);
failed:
	l->errnum = -r;
	tell_so_far(l, l->stage, -r);
	_exit(125);
}

static pid_t launch_asked(struct launch *l, const char **by_sh)
{
	int pair[2], said[2] = { LAUNCH_OK, 0 };

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	l->report = pair[1];
	pid_t pid = fork();
	int failed = pid < 0 ? errno : 0;
	if (pid == 0)
		child(l, by_sh);
	close_fd(pair[1]);
	if (pid > 0 && (l->listener = take_over(pair[0], said)) >= 0)
		(void)!recv(pair[0], said, sizeof said, 0); /* nothing: it was killed, as its status will say */
	close_fd(pair[0]);
	l->stage = (enum launch_stage)said[0];
	l->errnum = said[1];
	if (pid < 0)
		return -failed;
	if (l->stage == LAUNCH_OK)
		return pid;
	(void)waitpid(pid, NULL, 0);
	l->listener = close_fd(l->listener);
	return -l->errnum;
}

pid_t launch(struct launch *l)
{
	size_t argc = 0;

	while (l->argv[argc])
		argc++;
	const char **by_sh = xcalloc(argc + 2, sizeof *by_sh);
	if (argc > 1)
		memcpy(by_sh + 2, l->argv + 1, (argc - 1) * sizeof *by_sh);
	l->stage = LAUNCH_OK;
	l->errnum = 0;
	l->listener = -EBADF;
	l->asked = l->confine->asks;
	if (l->asked) {
		pid_t forked = launch_asked(l, by_sh);
		free(by_sh);
		return forked;
	}
	int pair[2] = { -EBADF, -EBADF };
	bool paired = !l->confine->notify || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0;
	l->report = pair[1];
	pid_t pid = paired ? vfork() : -1;
	if (pid == 0)
		child(l, by_sh);
	int failed = pid < 0 ? errno : 0;
	free(by_sh);
	close_fd(pair[1]); /* the child is past it: what it had to send is there, or the end */
	if (pid > 0 && pair[0] >= 0)
		l->listener = take_over(pair[0], (int[2]){ 0 });
	close_fd(pair[0]);
	if (pid < 0)
		return -failed;
	if (l->pid) { /* who made it has exited, and is in no table */
		(void)waitpid(pid, NULL, 0);
		pid = l->pid;
	}
	if (l->errnum == 0) {
		l->stage = LAUNCH_OK;
		return pid;
	}
	if (l->stage == LAUNCH_EXEC)
		return pid;
	(void)waitpid(pid, NULL, 0); /* ours alone: it is in no table yet */
	l->listener = close_fd(l->listener);
	return -l->errnum;
}

void launch_notify(struct launch *l, struct guest *g, uint64_t run)
{
	if (l->listener >= 0)
		notify_serve(g, take_fd(&l->listener), run);
	if (l->program[0] && (l->errnum == 0 || l->errnum == EACCES))
		notify_first(g, run, l->program, l->errnum == EACCES);
}
