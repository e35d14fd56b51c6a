/* PID 1 of a sandbox. Started with
 *   descriptor 3: a listening unix socket, or a stream (a connected socket, a serial port);
 *   descriptor 4: optionally the sandbox's own delegated cgroup-v2 directory;
 *   arguments key=value: user=, workdir=, env.NAME=value, sudo= (see sudo.h), hostname= (for people reading ps).
 * Started as `sudo` inside a sandbox it is that program; as VOLUMES_ARGV0, outside of any, the server of a machine's volumes.
 * As /init of a virtual machine there is none of this, and vm.h says where it comes from.
 * Filter, capabilities and mounts have been dealt with by who started us. Once started it does not end by itself. */
#include "guest/guest.h"

#include "guest/op.h"
#include "guest/run.h"
#include "guest/session.h"
#include "guest/sudo.h"
#include "guest/vm.h"
#include "guest/volumes.h"
#include "volumes/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHANNEL_FD = 3, CGROUP_FD = 4 };

struct child_watch {
	struct watch w;
	struct guest *g;
};

static int fail(const char *what)
{
	int e = errno;

	dprintf(STDERR_FILENO, "caisson-guest: %s: %s\n", what, strerror(e));
	return 1;
}

static void take_options(struct options *o, char **argv)
{
	size_t n = 0;

	while (argv[n])
		n++;
	o->user = "0:0";
	o->env = xcalloc(n + 1, sizeof *o->env);
	for (; *argv; argv++) {
		if (strncmp(*argv, "user=", 5) == 0)
			o->user = *argv + 5;
		else if (strncmp(*argv, "workdir=", 8) == 0)
			o->workdir = *argv + 8;
		else if (strncmp(*argv, "sudo=", 5) == 0)
			o->sudo = *argv + 5;
		else if (strncmp(*argv, "env.", 4) == 0 && (*argv)[4] != '=' && strchr(*argv, '='))
			o->env[o->env_n++] = *argv + 4;
	}
	if (o->user[0] == '\0')
		o->user = "0:0";
	if (o->workdir && o->workdir[0] != '/')
		o->workdir = NULL;
}

/* 0 to 2 stay open on something harmless, so that nothing of ours ever gets such a number. */
static int arrange_descriptors(void)
{
	struct stat st;

	for (int fd = 0; fd < 3; fd++)
		if (fstat(fd, &st) < 0) {
			int null = open("/dev/null", O_RDWR);
			if (null < 0)
				null = open("/", O_PATH | O_DIRECTORY);
			if (null < 0)
				return -errno;
		}
	for (int fd = CHANNEL_FD; fd <= CGROUP_FD; fd++)
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	return 0;
}

static bool is_directory(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

static void raise_file_limit(struct options *o)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return;
	o->files = r;
	r.rlim_cur = r.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &r);
}

void guest_reap(struct guest *g)
{
	int status;
	pid_t pid;
	bool orphan = false;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct run *r = run_of_pid(g, pid);
		struct session *s = r ? NULL : session_of_pid(g, pid);
		if (r)
			run_reaped(r, status);
		else if (s)
			session_reaped(s, status);
		else if (!sudo_reaped(g, pid, status) && !op_reaped(g, pid) && !volumes_reaped(g, pid))
			orphan = true;
	}
	if (orphan)
		groups_sweep(&g->groups);
}

static void child_ready(struct watch *w, uint32_t events)
{
	struct signalfd_siginfo info;

	(void)events;
	/* pending once, whatever it stands for: waitpid tells them all */
	(void)!read(w->fd, &info, sizeof info);
	guest_reap(container_of(w, struct child_watch, w)->g);
}

static int watch_children(struct guest *g, struct child_watch *c)
{
	sigset_t all, child;

	for (int s = 1; s < 65; s++)
		(void)signal(s, SIG_DFL); /* an ignored signal would be inherited by every program */
	sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, NULL) < 0)
		return -errno;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	*c = (struct child_watch){ { .fd = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC), .ready = child_ready }, g };
	if (c->w.fd < 0)
		return -errno;
	watch_set(&g->loop, &c->w, EPOLLIN);
	return 0;
}

static int open_channel(struct guest *g)
{
	int listens = 0;
	socklen_t len = sizeof listens;

	if (getsockopt(CHANNEL_FD, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) < 0 && errno != ENOTSOCK)
		return -errno;
	int flags = fcntl(CHANNEL_FD, F_GETFL);
	if (flags < 0 || fcntl(CHANNEL_FD, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	if (listens)
		conn_listen(g, CHANNEL_FD);
	else
		conn_accept(g, CHANNEL_FD, true);
	return 0;
}

/* Once the daemon has been answered there is time: what a run would otherwise wait for. */
static void prepare(struct guest *g)
{
	static bool prepared;
	struct user u;
	struct err e;

	if (!g->conn || g->bare)
		return;
	run_prepare();
	if (prepared)
		return;
	prepared = true;
	groups_prepare(&g->groups);
	if (g->opt.sudo)
		sudo_install(g->opt.sudo);
	(void)user_find(g->opt.user, &u, &e);
}

int main(int argc, char **argv)
{
	static struct guest g; /* large, and lives as long as the process */
	struct child_watch children;
	const char *step = "";

	if (sudo_is_meant(argv[0]))
		return sudo_main(argc, argv);
	if (argc > 0 && streq(argv[0], VOLUMES_ARGV0))
		return volumes_main(argc, argv);
	/* before anything else: closes /proc/1 to the tenants, also to those with our uid */
	if (prctl(PR_SET_DUMPABLE, 0) < 0)
		return fail("dumpable");
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* when not PID 1, in tests */
	umask(022);
	g.in_vm = g.bare = vm_is_init(argv[0]);
	if (g.in_vm && (errno = -vm_boot(&step)) != 0)
		return fail(step); /* the kernel panics, and QEMU ends */
	g.listener.fd = g.sudo.listener.fd = g.confine.ruleset = -EBADF;
	take_options(&g.opt, argv + 1);
	if ((errno = -arrange_descriptors()) != 0)
		return fail("descriptors");
	raise_file_limit(&g.opt);
	groups_init(&g.groups, is_directory(CGROUP_FD) ? CGROUP_FD : -EBADF);
	if ((errno = -loop_init(&g.loop)) != 0 || (errno = -watch_children(&g, &children)) != 0)
		return fail("event loop");
	if ((errno = -open_channel(&g)) != 0)
		return fail("descriptor 3");
	if (g.opt.sudo)
		sudo_listen(&g);
	if (chdir("/") < 0)
		return fail("/");
	for (;;) {
		loop_once(&g.loop);
		conn_flush(&g);
		loop_tidy(&g.loop);
		groups_tidy(&g.groups);
		prepare(&g);
	}
}
