#include "sys/netns.h"

#include "base/util.h"
#include "sys/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int netns_enter(int fd)
{
	return setns(fd, CLONE_NEWNET) < 0 ? -errno : 0;
}

static int loopback_up(void)
{
	struct ifreq req = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	auto_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0)
		return -errno;
	return 0;
}

int netns_new(int own_netns_fd)
{
	if (unshare(CLONE_NEWNET) < 0)
		return -errno;
	int rc = loopback_up();
	/* /proc/sys/net shows the namespace of whoever opens it. */
	if (rc == 0)
		rc = fs_write_at(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	if (rc == 0)
		(void)fs_write_at(AT_FDCWD, "/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
	int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (rc == 0 && fd < 0)
		rc = -errno;
	int back = netns_enter(own_netns_fd);
	if (rc == 0)
		rc = back;
	if (rc < 0) {
		close_fd(fd);
		return rc;
	}
	return fd;
}
