#include "warden/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOCKET = 3, DISKS = 4 }; /* all that the child keeps */

struct order {
	uint64_t mib; /* 0 = empty the trash */
	char name[SPARE_NAME_MAX];
};

struct delivery {
	int32_t rc;
	uint32_t loop;
	struct order order;
};

static void deliver(const struct order *o, int rc, const struct disk *d)
{
	struct delivery text = { .rc = rc, .loop = d->loop, .order = *o };
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec v = { &text, sizeof text };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (rc == 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
		control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.head), &d->mount, sizeof(int));
	}
	(void)sendmsg(SOCKET, &m, MSG_NOSIGNAL);
}

static void serve(struct place *p)
{
	struct order o;
	char made[SPARE_NAME_MAX] = "";

	p->disks_fd = DISKS;
	disk_empty_trash(DISKS);
	while (recv(SOCKET, &o, sizeof o, 0) == (ssize_t)sizeof o) {
		struct disk d = DISK_INIT;
		struct err e;
		if (o.mib == 0) {
			disk_empty_trash(DISKS);
			continue;
		}
		memcpy(made, o.name, sizeof made);
		deliver(&o, disk_make_file(p, o.name, o.mib, true, &d, &e), &d);
		disk_close(&d);
	}
	/* The warden is gone, and with it who could use what was delivered last. */
	char *number = strrchr(made, '-');
	if (number) {
		number[1] = '\0';
		disk_remove_spares(DISKS, made);
	}
	disk_empty_trash(DISKS);
}

int helper_start(struct helper *h, const struct place *p, struct err *e)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make a socket pair");
	pid_t pid = fork();
	if (pid < 0) {
		close_fd(pair[0]);
		close_fd(pair[1]);
		return err_sys(e, ERR_UNAVAILABLE, errno, "fork the helper");
	}
	if (pid == 0) {
		struct place own = *p;
		/* Above all the warden's lock and the daemon's socket must not live on here. */
		if (dup2(pair[1], SOCKET) < 0 || dup2(p->disks_fd, DISKS) < 0 || syscall(SYS_close_range, DISKS + 1, ~0u, 0) < 0)
			_exit(1);
		serve(&own);
		_exit(0);
	}
	close_fd(pair[1]);
	*h = (struct helper){ .fd = pair[0], .pid = pid };
	return 0;
}

/* A full socket means that it is far behind: the order is dropped, and given again by the next occasion. */
static bool give(struct helper *h, const struct order *o)
{
	return send(h->fd, o, sizeof *o, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *o;
}

void helper_empty_trash(struct helper *h)
{
	const struct order o = { 0 };
	(void)give(h, &o);
}

void helper_make_disk(struct helper *h, const char *name, uint64_t mib)
{
	struct order o = { .mib = mib };

	memcpy(o.name, name, MIN(strlen(name), sizeof o.name - 1));
	h->making = give(h, &o);
}

int helper_take_disk(struct helper *h, struct helper_disk *ret)
{
	struct delivery text;
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec v = { &text, sizeof text };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	ssize_t n = recvmsg(h->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	h->making = false;
	if (n != (ssize_t)sizeof text)
		return -EPIPE;
	if (text.rc < 0)
		return text.rc == -EPIPE || text.rc == -EAGAIN ? -EIO : text.rc;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_type != SCM_RIGHTS)
		return -EIO;
	*ret = (struct helper_disk){ .mib = text.order.mib, .disk = { .loop = text.loop } };
	memcpy(ret->name, text.order.name, sizeof ret->name);
	memcpy(&ret->disk.mount, CMSG_DATA(c), sizeof(int));
	return 0;
}

void helper_stop(struct helper *h, bool wait)
{
	h->fd = close_fd(h->fd);
	if (wait && h->pid > 0)
		while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR)
			;
}
