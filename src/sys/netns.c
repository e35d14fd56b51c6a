#include "sys/netns.h"

#include "base/util.h"
#include "sys/fs.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

int netns_enter(int fd)
{
	return setns(fd, CLONE_NEWNET) < 0 ? -errno : 0;
}

int netns_loopback_up(void)
{
	struct ifreq req = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	auto_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0)
		return -errno;
	return 0;
}

/* /proc/sys/net shows the namespace of whoever opens it, by a directory entry of the same name for every namespace: one /proc used for
 * thousands of them gets slower with each. */
#define PROC_USES 64

int netns_maker_init(struct netns_maker *m)
{
	*m = (struct netns_maker){ .own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), .proc = -EBADF };
	return m->own < 0 ? -errno : 0;
}

void netns_maker_done(struct netns_maker *m)
{
	m->own = close_fd(m->own);
	m->proc = close_fd(m->proc);
}

static int fresh_proc(struct netns_maker *m)
{
	if (m->proc >= 0 && m->uses++ < PROC_USES)
		return 0;
	close_fd(m->proc);
	m->uses = 0;
	m->proc = mnt_new("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, NULL);
	return m->proc < 0 ? m->proc : 0;
}

int netns_make(struct netns_maker *m, int (*fill)(void *ctx, int proc), void *ctx)
{
	int rc = fresh_proc(m);

	if (rc < 0)
		return rc;
	if (unshare(CLONE_NEWNET) < 0)
		return -errno;
	rc = fill(ctx, m->proc);
	int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (rc == 0 && fd < 0)
		rc = -errno;
	int back = netns_enter(m->own);
	if (rc == 0)
		rc = back;
	if (rc < 0) {
		close_fd(fd);
		return rc;
	}
	return fd;
}

int netns_in(struct netns_maker *m, int fd, int (*fill)(void *ctx, int proc), void *ctx)
{
	int rc = fresh_proc(m);

	if (rc == 0)
		rc = netns_enter(fd);
	if (rc < 0)
		return rc;
	rc = fill(ctx, m->proc);
	int back = netns_enter(m->own);
	return rc < 0 ? rc : back;
}

static int fill_plain(void *ctx, int proc)
{
	(void)ctx;
	int rc = netns_loopback_up();
	if (rc == 0)
		rc = fs_write_at(proc, "sys/net/ipv4/ip_unprivileged_port_start", "0");
	if (rc == 0)
		(void)fs_write_at(proc, "sys/net/ipv4/ping_group_range", "0 2147483647");
	/* Nobody in there is far away: a megabyte for a connection is plenty, where the kernel would give some tens to each. */
	if (rc == 0)
		rc = fs_write_at(proc, "sys/net/ipv4/tcp_rmem", "4096 131072 1048576");
	if (rc == 0)
		rc = fs_write_at(proc, "sys/net/ipv4/tcp_wmem", "4096 16384 1048576");
	return rc;
}

int netns_new(struct netns_maker *m)
{
	return netns_make(m, fill_plain, NULL);
}
