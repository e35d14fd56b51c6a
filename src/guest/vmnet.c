#include "guest/vmnet.h"

#include "base/util.h"
#include "wire/edge.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEVICE "eth0"
enum { LINK_WITHIN_MS = 5000 };

struct in6_request { /* struct in6_ifreq of linux/ipv6.h, which is out of reach of musl's compiler */
	struct in6_addr address;
	uint32_t prefix;
	int index;
};

static struct ifreq request(void)
{
	return (struct ifreq){ .ifr_name = DEVICE };
}

static int switch_to(const char *family, const char *name, char value)
{
	char path[100];

	snprintf(path, sizeof path, "/proc/sys/net/%s/conf/" DEVICE "/%s", family, name);
	auto_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 || write(fd, &value, 1) != 1 ? -errno : 0;
}

static void put_address4(struct sockaddr *to, const char *text)
{
	struct sockaddr_in a = { .sin_family = AF_INET };

	if (text)
		(void)inet_pton(AF_INET, text, &a.sin_addr);
	memcpy(to, &a, sizeof a);
}

static int begin_v4(int s)
{
	struct ifreq r = request();
	struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY };
	struct sockaddr_in mask = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(~0u << (32 - GATE_PREFIX4)) };

	put_address4(&r.ifr_addr, GATE_BOX4);
	if (ioctl(s, SIOCSIFADDR, &r) < 0)
		return -errno;
	memcpy(&r.ifr_netmask, &mask, sizeof mask);
	if (ioctl(s, SIOCSIFNETMASK, &r) < 0)
		return -errno;
	put_address4(&route.rt_dst, NULL);
	put_address4(&route.rt_genmask, NULL);
	put_address4(&route.rt_gateway, GATE_ADDR4);
	return ioctl(s, SIOCADDRT, &route) < 0 ? -errno : 0;
}

static int begin_v6(int index)
{
	struct in6_request r = { .prefix = GATE_PREFIX6, .index = index };
	struct in6_rtmsg route = { .rtmsg_flags = RTF_UP | RTF_GATEWAY, .rtmsg_metric = 1024, .rtmsg_ifindex = index };
	auto_fd int s = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0)
		return -errno;
	(void)inet_pton(AF_INET6, GATE_BOX6, &r.address);
	(void)inet_pton(AF_INET6, GATE_ADDR6, &route.rtmsg_gateway);
	return ioctl(s, SIOCSIFADDR, &r) < 0 || ioctl(s, SIOCADDRT, &route) < 0 ? -errno : 0;
}

int vmnet_begin(void)
{
	struct ifreq r = request();
	auto_fd int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0)
		return -errno;
	if (ioctl(s, SIOCGIFINDEX, &r) < 0)
		return errno == ENODEV ? 0 : -errno;
	int index = r.ifr_ifindex;
	bool v6 = access("/proc/sys/net/ipv6", F_OK) == 0;
	/* No address but ours, nobody to be asked whether it is free, no advice. */
	int rc = v6 ? switch_to("ipv6", "addr_gen_mode", '1') : 0;
	if (rc == 0 && v6 && (rc = switch_to("ipv6", "accept_dad", '0')) == 0)
		rc = switch_to("ipv6", "accept_ra", '0');
	r.ifr_flags = IFF_UP | IFF_BROADCAST | IFF_MULTICAST;
	if (rc == 0 && ioctl(s, SIOCSIFFLAGS, &r) < 0)
		rc = -errno;
	if (rc == 0)
		rc = begin_v4(s);
	if (rc == 0 && v6)
		rc = begin_v6(index);
	/* Without a link there is no way out, and that is said at once. */
	if (rc == 0)
		rc = switch_to("ipv4", "ignore_routes_with_linkdown", '1');
	if (rc == 0 && v6)
		rc = switch_to("ipv6", "ignore_routes_with_linkdown", '1');
	return rc;
}

/* The kernel hears of the link by an interrupt, and acts on it a little later: what runs first must not come before that. The second call takes
 * the lock under which it acts. */
static void await_link(int s)
{
	struct ifreq r = request();

	for (uint64_t end = now_ms() + LINK_WITHIN_MS; now_ms() < end; usleep(1000)) {
		if (ioctl(s, SIOCGIFFLAGS, &r) < 0 || !(r.ifr_flags & IFF_UP))
			return;
		if (r.ifr_flags & IFF_RUNNING)
			break;
	}
	(void)ioctl(s, SIOCSIFFLAGS, &r);
}

int vmnet_set(enum guest_link link, const uint8_t mac[static 6], bool first)
{
	struct ifreq r = request();
	auto_fd int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0)
		return -errno;
	r.ifr_hwaddr.sa_family = ARPHRD_ETHER;
	memcpy(r.ifr_hwaddr.sa_data, mac, 6);
	if (ioctl(s, SIOCSIFHWADDR, &r) < 0 && (first || errno != ENODEV))
		return -errno;
	if (link == GUEST_LINK_UP)
		await_link(s);
	return 0;
}
