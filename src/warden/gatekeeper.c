#include "warden/gatekeeper.h"

#include "base/log.h"
#include "sys/process.h"
#include "wire/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READY_WITHIN_MS 5000
#define LIVED_MS	2000 /* one that ends sooner is started again only after AGAIN_MS */
#define AGAIN_MS	1000
#define TAKES_WITHIN_MS 5000	  /* what it is told; it has nothing to wait for itself */
#define SOCKET_BYTES	(4 << 20) /* of what it is told and has not read: some thousand gates */

void gatekeeper_init(struct gatekeeper *k, char *const *command, struct netns_maker *netns)
{
	*k = (struct gatekeeper){ .command = command, .netns = netns, .epoll = -EBADF, .daemon = -EBADF, .edge = -EBADF, .pidfd = -EBADF };
}

static bool put(int socket, const void *bytes, size_t n, const int *fds, size_t n_fds, int flags)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int) * EDGE_GATE_FDS)];
	} control = { 0 };
	union {
		const void *in;
		void *out;
	} p = { bytes };
	struct iovec v = { p.out, n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (n_fds) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int) * n_fds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.head), fds, sizeof(int) * n_fds);
	}
	return sendmsg(socket, &m, MSG_NOSIGNAL | flags) == (ssize_t)n;
}

/* One that does not take what it is told would serve gates that are no more: it goes, and a new one begins. Many gates may be more than
 * fits into its socket at once, and are waited for. */
static void tell_edge(struct gatekeeper *k, const struct edge_gate *g, const int *fds, size_t n_fds)
{
	const uint64_t until = now_ms() + TAKES_WITHIN_MS;

	while (!put(k->edge, g, sizeof *g, fds, n_fds, MSG_DONTWAIT)) {
		struct pollfd p = { .fd = k->edge, .events = POLLOUT };
		const uint64_t now = now_ms();
		if (errno != EAGAIN || now >= until) {
			log_error("msg=\"the edge does not take what it is told\" errno=%d", errno);
			(void)process_signal(k->pidfd, SIGKILL);
			return;
		}
		(void)poll(&p, 1, (int)(until - now));
	}
}

/* In the child. */
static void exec_edge(char *const *command, int warden, int daemon)
{
	static char *const no_env[] = { NULL };
	int high = fcntl(warden, F_DUPFD_CLOEXEC, 20), high_daemon = fcntl(daemon, F_DUPFD_CLOEXEC, 20);

	if (high < 0 || high_daemon < 0 || dup2(high, 3) < 0 || dup2(high_daemon, 4) < 0 || close_range(5, ~0u, 0) < 0)
		return;
	(void)execve("/proc/self/exe", command, no_env);
}

static int start(struct gatekeeper *k, struct err *e)
{
	int ours[2] = { -EBADF, -EBADF }, theirs[2] = { -EBADF, -EBADF };
	const struct warden_answer news = { .magic = WARDEN_MAGIC, .op = WARDEN_EDGE };
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = k };

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ours) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, theirs) < 0) {
		close_fd(ours[0]);
		close_fd(ours[1]);
		return err_sys(e, ERR_UNAVAILABLE, errno, "make sockets for the edge");
	}
	(void)setsockopt(ours[0], SOL_SOCKET, SO_SNDBUFFORCE, &(const int){ SOCKET_BYTES }, sizeof(int));
	pid_t pid = fork();
	if (pid == 0) {
		exec_edge(k->command, ours[1], theirs[1]);
		_exit(127);
	}
	close_fd(ours[1]);
	close_fd(theirs[1]);
	k->pidfd = pid < 0 ? -errno : process_pidfd(pid);
	k->edge = ours[0];
	k->ready = false;
	k->started_ms = now_ms();
	k->again_ms = 0;
	int rc = k->pidfd < 0 ? k->pidfd : epoll_ctl(k->epoll, EPOLL_CTL_ADD, k->pidfd, &ev) < 0 ? -errno : 0;
	/* A daemon that does not read is waited for: it reads its answers by this socket, too. */
	if (rc == 0 && !put(k->daemon, &news, sizeof news, &theirs[0], 1, 0))
		log_warn("msg=\"the daemon was not told of the edge\" errno=%d", errno);
	close_fd(theirs[0]);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "start the edge") : 0;
}

/* It says a word once it has given up its rights. */
static int wait_ready(struct gatekeeper *k, struct err *e)
{
	struct pollfd p = { .fd = k->edge, .events = POLLIN };
	char byte;

	if (k->ready)
		return 0;
	if (poll(&p, 1, READY_WITHIN_MS) == 1 && recv(k->edge, &byte, 1, MSG_DONTWAIT) == 1) {
		k->ready = true;
		return 0;
	}
	return err_set(e, ERR_UNAVAILABLE, ESRCH, "the edge, which carries the sandboxes' connections, did not start; its reason is in the server's log");
}

static void stop(struct gatekeeper *k)
{
	if (k->pidfd >= 0) {
		int status;
		(void)epoll_ctl(k->epoll, EPOLL_CTL_DEL, k->pidfd, NULL);
		(void)process_signal(k->pidfd, SIGKILL);
		(void)process_wait(k->pidfd, &status);
	}
	k->pidfd = close_fd(k->pidfd);
	k->edge = close_fd(k->edge);
}

void gatekeeper_done(struct gatekeeper *k)
{
	stop(k);
	k->command = NULL;
}

void gatekeeper_hand(struct gatekeeper *k, const char *id, int gate)
{
	struct edge_gate g = { .magic = EDGE_MAGIC, .op = EDGE_GATE_OPEN };
	int fds[EDGE_GATE_FDS];
	struct err e;

	if (k->edge < 0)
		return;
	if (gate_listen(k->netns, gate, fds, &e) < 0) {
		log_error("sandbox=%s msg=\"%s\"", id, e.message);
		return;
	}
	snprintf(g.id, sizeof g.id, "%s", id);
	tell_edge(k, &g, fds, EDGE_GATE_FDS);
	for (int i = 0; i < EDGE_GATE_FDS; i++)
		close_fd(fds[i]);
}

int gatekeeper_ready(struct gatekeeper *k, struct err *e)
{
	int rc = 0;

	if (!k->command)
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "this warden gives a sandbox no network");
	if (k->edge < 0) {
		k->hand_all |= k->again_ms != 0; /* one has ended: the other sandboxes' gates are without one */
		rc = start(k, e);
	}
	return rc < 0 ? rc : wait_ready(k, e);
}

void gatekeeper_let_go(struct gatekeeper *k, const char *id, int *gate)
{
	struct edge_gate g = { .magic = EDGE_MAGIC, .op = EDGE_GATE_CLOSE };

	if (*gate < 0)
		return;
	snprintf(g.id, sizeof g.id, "%s", id);
	*gate = close_fd(*gate);
	if (k->edge >= 0)
		tell_edge(k, &g, NULL, 0);
}

void gatekeeper_detach(struct gatekeeper *k, const char *id, int *gate)
{
	if (*gate >= 0)
		gate_cut(k->netns, *gate);
	gatekeeper_let_go(k, id, gate);
}

void gatekeeper_ended(struct gatekeeper *k)
{
	bool soon = now_ms() - k->started_ms >= LIVED_MS;

	log_error("msg=\"the edge has ended: sandboxes have no network until a new one runs\"");
	stop(k);
	k->again_ms = now_ms() + (soon ? 0 : AGAIN_MS);
}

int gatekeeper_due(const struct gatekeeper *k)
{
	uint64_t now = now_ms();

	if (k->edge >= 0 && k->hand_all)
		return 0;
	if (k->edge >= 0 || !k->again_ms)
		return -1;
	return now >= k->again_ms ? 0 : (int)(k->again_ms - now);
}

bool gatekeeper_again(struct gatekeeper *k)
{
	struct err e;

	if (gatekeeper_due(k) != 0)
		return false;
	if (k->edge >= 0) {
		k->hand_all = false;
		return true;
	}
	if (start(k, &e) < 0) {
		log_error("msg=\"%s\"", e.message);
		stop(k);
		k->again_ms = now_ms() + AGAIN_MS;
		return false;
	}
	return true;
}
