/* Theory of operation. PID 1 listens on an abstract socket. Who asks is what the kernel says (SO_PEERCRED: the user id at the time of
 * connect), never what is said on the socket. Only root and the sandbox's ordinary user get further than that; and a process that
 * was confined once more inside (a filter of its own, fewer capabilities to gain) is refused, as a set-id program would be of no use
 * to it.
 *
 *	asker -> RUN_START (ARG.. ENV.. CWD USER, flag 2: a terminal; no ARG: is it permitted?) with descriptors 0, 1, 2, directory
 *	asker -> RUN_SIGNAL*
 *	      <- RUN_END (flag 4 with a text: not started)
 *
 * The command becomes a member of the asker's own group, so a time limit, a cancel or an end of the run takes it along. It goes on
 * when the asker dies alone, as it would with the real one. Whatever the asker sends is a tenant's: descriptors are only handed to
 * the command, never read, written or given away to a user. */
#include "guest/sudo.h"

#include "guest/launch.h"
#include "guest/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

enum { ASKS_MAX = 128, REQUEST_MAX = 4 * 1024 * 1024, STATUS_MAX = 4096 };

struct ask {
	struct guest *g;
	struct ask *next;
	struct watch w;
	struct ucred who;
	int pidfd;          /* of the asker */
	struct buf in;
	struct guest_assembly message;
	int fds[SUDO_FDS];
	size_t fds_n;
	pid_t pid;          /* of the command, once it runs */
};

static void ask_free(struct ask *a)
{
	struct sudo *s = &a->g->sudo;

	for (struct ask **at = &s->asks; *at; at = &(*at)->next)
		if (*at == a) {
			*at = a->next;
			s->n--;
			break;
		}
	watch_close(&a->g->loop, &a->w);
	close_fd(a->pidfd);
	for (size_t i = 0; i < a->fds_n; i++)
		close_fd(a->fds[i]);
	buf_done(&a->in);
	guest_assembly_done(&a->message);
	free(a);
}

static void tell_end(int fd, const struct guest_run_end *end)
{
	auto_buf struct buf b;

	buf_init(&b, GUEST_PAYLOAD_MAX);
	(void)guest_run_end_put(&b, 0, end);
	(void)send(fd, b.data, b.len, MSG_NOSIGNAL | MSG_DONTWAIT); /* into an empty buffer, so it fits */
}

static void __attribute__((format(printf, 3, 4))) refuse(int fd, int errnum, const char *fmt, ...)
{
	char text[GUEST_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	tell_end(fd, &(struct guest_run_end){ .flags = GUEST_END_FAILED, .errnum = (uint32_t)errnum, .message = str_of(text) });
}

/* --- who asks --- */

static bool load(const char *path, char text[static STATUS_MAX])
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, STATUS_MAX - 1);

	text[MAX(n, 0)] = '\0';
	return n > 0;
}

/* The line of /proc/PID/status that begins so, or "". A program's name is its first line and cannot hold a line break. */
static struct str status_line(const char *status, const char *key)
{
	const char *at = strstr(status, key);

	return at && at > status && at[-1] == '\n' ? (struct str){ at, strcspn(at, "\n") } : STR("");
}

static unsigned long filters(const char *status)
{
	static const char key[] = "Seccomp_filters:";
	struct str line = status_line(status, key);

	return line.n ? strtoul(line.p + strlen(key), NULL, 10) : 0;
}

/* Further than everything is here. */
static bool confined(const struct guest *g, pid_t pid)
{
	char path[40], theirs[STATUS_MAX], ours[STATUS_MAX];

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	if (!load(path, theirs) || !load("/proc/self/status", ours))
		return true;
	return !str_eq(status_line(theirs, "CapBnd:"), status_line(ours, "CapBnd:")) || filters(theirs) != filters(ours) + g->confine.on;
}

static bool ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) != 0;
}

/* The name of the asker's group, "" = none is known. */
static bool group_of(pid_t pid, char name[static 24])
{
	char path[40], text[STATUS_MAX];

	snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
	if (!load(path, text))
		return false;
	const char *at = strstr(text, "0::/r");
	if (!at || (at != text && at[-1] != '\n'))
		return false;
	at += strlen("0::/");
	size_t n = strcspn(at, "\n");
	if (n < 2 || n >= 24 || strspn(at + 1, "0123456789") != n - 1)
		return false;
	memcpy(name, at, n);
	name[n] = '\0';
	return true;
}

/* One whose run is being killed must not leave anything behind that comes later. */
static bool being_killed(const struct guest *g, const char *group)
{
	for (size_t i = 0; i < RUN_BUCKETS; i++)
		for (const struct run *r = g->runs[i]; r; r = r->next)
			if (r->group.made && streq(r->group.name, group) &&
			    (r->release || r->end.flags & (GUEST_END_TIMED_OUT | GUEST_END_CANCELED)))
				return true;
	return false;
}

/* The asker's run, or 0. */
static uint64_t run_in_group(const struct ask *a)
{
	char name[24];

	if (a->g->groups.dir < 0 || !group_of(a->who.pid, name))
		return 0;
	for (size_t i = 0; i < RUN_BUCKETS; i++)
		for (const struct run *r = a->g->runs[i]; r; r = r->next)
			if (r->group.made && streq(r->group.name, name))
				return r->id;
	return 0;
}

/* cgroup.procs of the asker's group, or a negative errno; -EBADF where there are no groups. */
static int open_group(const struct ask *a)
{
	char name[24], path[48];

	if (a->g->groups.dir < 0)
		return -EBADF;
	if (!group_of(a->who.pid, name) || being_killed(a->g, name) || ended(a->pidfd))
		return -ESRCH;
	snprintf(path, sizeof path, "%s/cgroup.procs", name);
	int fd = openat(a->g->groups.dir, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static bool permitted(struct guest *g, int fd, const struct ucred *who)
{
	struct user u, ordinary;
	struct err e;
	char id[16];

	if (who->uid == 0)
		return true;
	bool known = user_find(g->opt.user, &ordinary, &e) == 0;
	if (!known || ordinary.uid != who->uid) {
		snprintf(id, sizeof id, "%u", who->uid);
		bool named = user_find(id, &u, &e) == 0 && u.name[0];
		refuse(fd, EACCES, "%s may not use sudo in this sandbox; only root and %s may", named ? u.name : id,
		       known && ordinary.name[0] ? ordinary.name : g->opt.user);
		return false;
	}
	if (!confined(g, who->pid))
		return true;
	refuse(fd, EPERM, "this process has been confined further than its sandbox, and sudo does not undo that");
	return false;
}

/* --- the command --- */

static void start(struct ask *a, const struct guest_run_request *req)
{
	struct guest *g = a->g;
	struct user u;
	struct err e;
	auto_fd int procs = open_group(a);

	if (procs < 0 && procs != -EBADF) {
		refuse(a->w.fd, -procs, "the run that this belongs to is ending");
		return;
	}
	if (user_find(req->user ? req->user : "0:0", &u, &e) < 0) {
		refuse(a->w.fd, e.errnum, "%.300s", e.message);
		return;
	}
	struct launch l = {
		.argv = req->argv,
		.env = req->env,
		.user = &u,
		.cwd = req->cwd,
		.dir = &a->fds[SUDO_FD_DIR],
		.fds = { a->fds[0], a->fds[1], a->fds[2] },
		.extra = -EBADF,
		.pty = req->flags & GUEST_RUN_PTY,
		.confine = &g->confine,
		.cgroup_procs = procs,
		.files = g->opt.files,
	};
	pid_t pid = launch(&l);
	if (pid >= 0)
		launch_notify(&l, g, run_in_group(a));
	if (pid >= 0 && l.stage == LAUNCH_EXEC) {
		(void)waitpid(pid, NULL, 0); /* it has exited, and is in no table yet */
		pid = -l.errnum;
		refuse(a->w.fd, l.errnum, "%.300s: %s", req->argv[0],
		       l.errnum == ENOENT && !strchr(req->argv[0], '/') ? "command not found" : strerror(l.errnum));
	} else if (pid < 0) {
		refuse(a->w.fd, -pid, "%.300s: %s", l.stage == LAUNCH_CWD && l.cwd ? l.cwd : req->argv[0],
		       pid == -EAGAIN ? "the sandbox has reached its limit of processes" : strerror(-pid));
	}
	if (pid > 0)
		a->pid = pid;
	while (a->fds_n) /* the command has its own */
		close_fd(a->fds[--a->fds_n]);
}

/* 0, or -EPROTO: this connection is at its end. */
static int take_request(struct ask *a, struct str message)
{
	struct guest_run_request r;

	if (a->fds_n != SUDO_FDS || guest_run_request_get(message, &r) < 0)
		return -EPROTO;
	int result = r.session || r.script.p || r.stdin_bytes.p || r.flags & ~(uint32_t)GUEST_RUN_PTY ? -EPROTO : 0;
	if (result == 0 && r.argc == 0)
		tell_end(a->w.fd, &(struct guest_run_end){ 0 });
	else if (result == 0)
		start(a, &r);
	guest_run_request_done(&r);
	return result == 0 && a->pid ? 0 : -EPROTO;
}

static int take_frame(struct ask *a, const struct guest_frame *f)
{
	struct str message;
	int got = guest_assembly_feed(&a->message, f, &message);

	if (got <= 0)
		return got < 0 || a->message.bytes.len > REQUEST_MAX ? -EPROTO : 0;
	if (f->type == GUEST_RUN_START && !a->pid)
		return take_request(a, message);
	if (f->type != GUEST_RUN_SIGNAL || !a->pid || message.n != 4)
		return -EPROTO;
	int signo = (int)MIN(guest_u32(message.p), 65u);
	if (signo >= 1 && signo <= 64)
		(void)kill(a->pid, signo);
	return 0;
}

/* -EPIPE at the end. */
static int receive(struct ask *a)
{
	union {
		char bytes[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control;
	char *to = buf_reserve(&a->in, GUEST_HEAD + GUEST_PAYLOAD_MAX);
	struct iovec v = { to, GUEST_HEAD + GUEST_PAYLOAD_MAX };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
	ssize_t n = to ? recvmsg(a->w.fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) : 0;
	bool excess = false;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -EPIPE;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (a->fds_n < SUDO_FDS && !a->pid) {
				a->fds[a->fds_n++] = fd;
			} else {
				close_fd(fd);
				excess = true;
			}
		}
	}
	if (n == 0 || excess || m.msg_flags & MSG_CTRUNC)
		return -EPIPE;
	buf_grew(&a->in, (size_t)n);
	return 0;
}

static void ask_ready(struct watch *w, uint32_t events)
{
	struct ask *a = container_of(w, struct ask, w);
	struct guest_frame f;
	ssize_t n = 0;
	int e = receive(a);

	(void)events;
	while (e == 0 && (n = guest_frame_next(buf_str(&a->in), &f)) > 0) {
		e = take_frame(a, &f);
		buf_consume(&a->in, (size_t)n);
	}
	if (e < 0 || n < 0)
		ask_free(a);
}

/* --- the socket --- */

static int peer_pidfd(int fd, pid_t pid)
{
	int pidfd = -EBADF;
	socklen_t len = sizeof pidfd;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) < 0)
		pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd >= 0)
		(void)fcntl(pidfd, F_SETFD, FD_CLOEXEC);
	return pidfd < 0 ? -errno : pidfd;
}

static void listener_ready(struct watch *w, uint32_t events)
{
	struct guest *g = container_of(w, struct guest, sudo.listener);
	int fd;

	(void)events;
	while ((fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		struct ucred who;
		socklen_t len = sizeof who;
		int pidfd = -EBADF;
		if (g->sudo.n >= ASKS_MAX) {
			refuse(fd, EAGAIN, "too many at once");
		} else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 || who.pid <= 1 || (pidfd = peer_pidfd(fd, who.pid)) < 0) {
			refuse(fd, ESRCH, "whoever asks has gone");
		} else if (permitted(g, fd, &who)) {
			struct ask *a = xcalloc(1, sizeof *a);
			*a = (struct ask){ .g = g, .next = g->sudo.asks, .who = who, .pidfd = pidfd, .w = { .fd = fd, .ready = ask_ready } };
			buf_init(&a->in, 2 * (GUEST_HEAD + GUEST_PAYLOAD_MAX));
			guest_assembly_init(&a->message);
			g->sudo.asks = a;
			g->sudo.n++;
			watch_set(&g->loop, &a->w, EPOLLIN);
			continue;
		}
		close_fd(pidfd);
		close_fd(fd);
	}
}

void sudo_listen(struct guest *g)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(a.sun_path + 1, SUDO_SOCKET, strlen(SUDO_SOCKET));
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(SUDO_SOCKET))) < 0 ||
	    listen(fd, ASKS_MAX) < 0) {
		dprintf(STDERR_FILENO, "caisson-guest: no sudo: %s\n", strerror(errno));
		close_fd(fd);
		return;
	}
	g->sudo.listener = (struct watch){ .fd = fd, .ready = listener_ready };
	watch_set(&g->loop, &g->sudo.listener, EPOLLIN);
}

bool sudo_reaped(struct guest *g, pid_t pid, int status)
{
	for (struct ask *a = g->sudo.asks; a; a = a->next)
		if (a->pid == pid) {
			bool killed = WIFSIGNALED(status);
			tell_end(a->w.fd, &(struct guest_run_end){ .signal = killed ? (uint32_t)WTERMSIG(status) : 0,
			                                           .exit_code = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status) });
			ask_free(a);
			return true;
		}
	return false;
}

/* --- where it is found --- */

static void put_link(const char *program, const char *path, const char *temporary)
{
	char now[64];
	ssize_t n = readlink(path, now, sizeof now);

	if (n == (ssize_t)strlen(program) && memcmp(now, program, (size_t)n) == 0)
		return;
	(void)unlink(temporary);
	if (symlink(program, temporary) == 0 && rename(temporary, path) < 0)
		(void)unlink(temporary);
}

/* In both places: an upgrade of the package puts its own file into the first again, and the second comes first in every PATH. */
void sudo_install(const char *program)
{
	if (access("/usr/bin/sudo", F_OK) < 0)
		return;
	put_link(program, "/usr/bin/sudo", "/usr/bin/.sudo-new");
	if (access("/usr/local/bin/sudo", F_OK) < 0)
		put_link(program, "/usr/local/bin/sudo", "/usr/local/bin/.sudo-new");
}
