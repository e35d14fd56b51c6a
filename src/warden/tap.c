#include "warden/tap.h"

#include "base/util.h"
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Opened in the namespace that it is to be in: the open file, too, belongs to one, and holds it. */
static int open_here(void)
{
	struct ifreq r = { .ifr_name = TAP_NAME, .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	auto_fd int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 || ioctl(fd, TUNSETIFF, &r) < 0)
		return -errno;
	/* The same in all of them: a copy of a machine remembers the gateway of the other one. */
	r.ifr_hwaddr.sa_family = ARPHRD_ETHER;
	memcpy(r.ifr_hwaddr.sa_data, (const uint8_t[6]){ 0x02, 0xca, 0x15, 0x50, 0x97, 0x53 }, 6);
	if (ioctl(fd, SIOCSIFHWADDR, &r) < 0)
		return -errno;
	return take_fd(&fd);
}

int tap_new(struct netns_maker *m, int in, struct err *e)
{
	int rc = netns_enter(in);
	auto_fd int fd = rc < 0 ? rc : open_here();
	int back = netns_enter(m->own);

	if (fd < 0 || back < 0)
		return err_sys(e, ERR_UNAVAILABLE, fd < 0 ? -fd : -back, "make the machine's network device (/dev/net/tun, kernel module tun)");
	return take_fd(&fd);
}

int tap_namespace(int pidfd, int number)
{
	auto_fd int tap = process_fd(pidfd, number);
	int fd = tap < 0 ? tap : ioctl(tap, TUNGETDEVNETNS);

	return fd < 0 && tap >= 0 ? -errno : fd;
}

int tap_probe(struct err *e)
{
	struct netns_maker m;
	int rc = netns_maker_init(&m);

	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "open the network namespace");
	auto_fd int in = netns_new(&m);
	auto_fd int tap = in < 0 ? err_sys(e, ERR_UNAVAILABLE, -in, "make a network namespace") : tap_new(&m, in, e);
	netns_maker_done(&m);
	return tap < 0 ? tap : 0;
}
