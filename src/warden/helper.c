#include "warden/helper.h"

#include "warden/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ORDERS_BEFORE_TRASH 8

enum { SOCKET = 3, DISKS = 4 }; /* all that the child keeps */

enum order_kind { ORDER_TRASH = 1, ORDER_DISK, ORDER_NAMESPACE, ORDER_GATE, ORDER_LET_GO };
enum { FDS_MAX = 2 }; /* with a message */

struct order {
	enum order_kind kind;
	bool trash;   /* ORDER_LET_GO: something is in it */
	bool journal; /* ORDER_DISK */
	uint64_t mib;
	char name[SPARE_NAME_MAX];
};

struct delivery {
	int32_t rc;
	uint32_t loop;
	struct order order;
};

/* One message with its descriptors, of which the first negative one is the end. */
static bool put(int socket, const void *bytes, size_t n, const int fds[static FDS_MAX], int flags)
{
	const size_t size = fds[0] < 0 ? 0 : fds[1] < 0 ? sizeof(int) : 2 * sizeof(int);
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control = { 0 };
	struct iovec v = { (void *)(uintptr_t)bytes, n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (size) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(size);
		control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(size), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.head), fds, size);
	}
	return sendmsg(socket, &m, flags | MSG_NOSIGNAL) == (ssize_t)n;
}

static ssize_t get(int socket, void *bytes, size_t n, int ret_fds[static FDS_MAX], int flags)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control;
	struct iovec v = { bytes, n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	ssize_t got = recvmsg(socket, &m, flags | MSG_CMSG_CLOEXEC);

	ret_fds[0] = ret_fds[1] = -EBADF;
	if (got < 0)
		return -errno;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fds, CMSG_DATA(c), MIN(c->cmsg_len - CMSG_LEN(0), sizeof(int) * FDS_MAX));
	return got;
}

/* --- in the child --- */

static void deliver(const struct order *o, int rc, unsigned loop, int fd, int second)
{
	const struct delivery d = { .rc = rc, .loop = loop, .order = *o };
	const int fds[FDS_MAX] = { rc == 0 ? fd : -EBADF, rc == 0 ? second : -EBADF };
	(void)put(SOCKET, &d, sizeof d, fds, 0);
}

static void make_disk(struct place *p, const struct order *o)
{
	struct disk d = DISK_INIT;
	struct err e;

	int rc = disk_make_file(p, o->name, o->mib, o->journal, &d, &e);
	deliver(o, rc, d.loop, d.mount, -EBADF);
	disk_close(&d);
}

static void make_namespace(struct place *p, const struct order *o)
{
	auto_fd int fd = netns_new(&p->netns);
	deliver(o, fd < 0 ? fd : 0, 0, fd, -EBADF);
}

static void make_gate(struct place *p, const struct order *o)
{
	auto_fd int inside = netns_new(&p->netns);
	auto_fd int gate = inside < 0 ? inside : gate_new(&p->netns, inside, NULL);
	deliver(o, gate < 0 ? gate : 0, 0, inside, gate);
}

static void obey(struct place *p, const struct order *o, int fd)
{
	switch (o->kind) {
	case ORDER_TRASH:  /* when nothing is waited for */
	case ORDER_LET_GO: /* by the close below */
		break;
	case ORDER_DISK:
		make_disk(p, o);
		break;
	case ORDER_NAMESPACE:
		make_namespace(p, o);
		break;
	case ORDER_GATE:
		make_gate(p, o);
		break;
	}
	close_fd(fd);
}

/* Deleting a file can take a while, and what is ordered may be waited for: so one file at a time in between, and no more than
 * ORDERS_BEFORE_TRASH orders go first. */
static void serve(struct place *p)
{
	struct order o;
	char made[SPARE_NAME_MAX] = "";
	bool trash = true;
	unsigned orders = 0;
	ssize_t n;
	int fds[FDS_MAX];

	p->disks_fd = DISKS;
	for (;;) {
		n = trash && orders >= ORDERS_BEFORE_TRASH ? -EAGAIN : get(SOCKET, &o, sizeof o, fds, trash ? MSG_DONTWAIT : 0);
		if (n == -EAGAIN) {
			trash = disk_remove_trash(DISKS, 1);
			orders = 0;
			continue;
		}
		if (n != (ssize_t)sizeof o)
			break;
		orders++;
		trash |= o.kind == ORDER_TRASH || (o.kind == ORDER_LET_GO && o.trash);
		if (o.kind == ORDER_DISK)
			memcpy(made, o.name, sizeof made);
		obey(p, &o, fds[0]);
	}
	/* The warden is gone, and with it who could use what was delivered last. */
	char *number = strrchr(made, '-');
	if (number) {
		number[1] = '\0';
		disk_remove_spares(DISKS, made);
	}
	(void)disk_remove_trash(DISKS, UINT_MAX);
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
		if (dup2(pair[1], SOCKET) < 0 || dup2(p->disks_fd, DISKS) < 0 || syscall(SYS_close_range, DISKS + 1, ~0u, 0) < 0 ||
		    netns_maker_init(&own.netns) < 0)
			_exit(1);
		serve(&own);
		_exit(0);
	}
	close_fd(pair[1]);
	*h = (struct helper){ .fd = pair[0], .pid = pid };
	return 0;
}

/* --- in the warden --- */

/* A full socket means that it is far behind: the order is dropped, and given again by the next occasion. */
static bool give(struct helper *h, const struct order *o, int fd)
{
	return put(h->fd, o, sizeof *o, (const int[FDS_MAX]){ fd, -EBADF }, MSG_DONTWAIT);
}

void helper_empty_trash(struct helper *h)
{
	const struct order o = { .kind = ORDER_TRASH };
	(void)give(h, &o, -EBADF);
}

bool helper_make_disk(struct helper *h, const char *name, uint64_t mib, bool journal)
{
	struct order o = { .kind = ORDER_DISK, .mib = mib, .journal = journal };

	memcpy(o.name, name, MIN(strlen(name), sizeof o.name - 1));
	bool given = give(h, &o, -EBADF);
	h->disks += given;
	return given;
}

void helper_make_namespace(struct helper *h)
{
	const struct order o = { .kind = ORDER_NAMESPACE };
	h->namespaces += give(h, &o, -EBADF);
}

void helper_make_gate(struct helper *h)
{
	const struct order o = { .kind = ORDER_GATE };
	h->gates += give(h, &o, -EBADF);
}

void helper_let_go(struct helper *h, int fd, bool file)
{
	const struct order o = { .kind = ORDER_LET_GO, .trash = file };

	(void)give(h, &o, fd);
	close_fd(fd); /* if it could not be given, what waits is this */
}

int helper_take(struct helper *h, struct helper_news *ret)
{
	struct delivery d;
	int fds[FDS_MAX];
	ssize_t n = get(h->fd, &d, sizeof d, fds, MSG_DONTWAIT);

	if (n == -EAGAIN || n == -EINTR)
		return -EAGAIN;
	if (n != (ssize_t)sizeof d) {
		h->disks = h->namespaces = h->gates = 0;
		close_fd(fds[0]);
		close_fd(fds[1]);
		return -EPIPE;
	}
	*ret = (struct helper_news){
		.mib = d.order.mib, .journal = d.order.journal, .disk = { .mount = -EBADF, .loop = d.loop }, .namespace = -EBADF, .gate = -EBADF
	};
	memcpy(ret->name, d.order.name, sizeof ret->name);
	if (d.order.kind == ORDER_DISK) {
		ret->kind = HELPER_DISK;
		ret->disk.mount = fds[0];
		h->disks -= h->disks > 0;
	} else if (d.order.kind == ORDER_GATE) {
		ret->kind = HELPER_GATE;
		ret->namespace = fds[0];
		ret->gate = fds[1];
		h->gates -= h->gates > 0;
	} else {
		ret->kind = HELPER_NAMESPACE;
		ret->namespace = fds[0];
		h->namespaces -= h->namespaces > 0;
	}
	if (d.rc < 0)
		return d.rc == -EPIPE || d.rc == -EAGAIN ? -EIO : d.rc;
	return fds[0] < 0 || (ret->kind == HELPER_GATE && fds[1] < 0) ? -EIO : 0;
}

void helper_stop(struct helper *h, bool wait)
{
	h->fd = close_fd(h->fd);
	if (wait && h->pid > 0)
		while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR)
			;
}
