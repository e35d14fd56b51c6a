/* A network that is loopback and nothing else, in IPv4 and IPv6. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Connects within a second: 0, or the errno. */
static int connect_to(int family, int type, const void *address, socklen_t len)
{
	int fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), e = 0;
	socklen_t n = sizeof e;

	if (fd < 0)
		return errno;
	if (connect(fd, address, len) < 0)
		e = errno;
	if (e == EINPROGRESS) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		if (poll(&p, 1, 1000) != 1)
			e = ETIMEDOUT;
		else
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n);
	}
	if (e == 0 && type == SOCK_DGRAM && send(fd, "x", 1, 0) < 0)
		e = errno;
	close(fd);
	return e;
}

static void unreachable4(const char *text, int type, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };
	char name[96];

	inet_pton(AF_INET, text, &a.sin_addr);
	snprintf(name, sizeof name, "%s-%s:%d", type == SOCK_STREAM ? "tcp" : "udp", text, port);
	int e = connect_to(AF_INET, type, &a, sizeof a);
	verdict(e != 0 && e != ETIMEDOUT, name, e ? "no clear refusal" : "connected");
}

static void unreachable6(const char *text, int type, int port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons((unsigned short)port) };
	char name[96];

	inet_pton(AF_INET6, text, &a.sin6_addr);
	snprintf(name, sizeof name, "%s-[%s]:%d", type == SOCK_STREAM ? "tcp" : "udp", text, port);
	int e = connect_to(AF_INET6, type, &a, sizeof a);
	verdict(e != 0 && e != ETIMEDOUT, name, e ? "no clear refusal" : "connected");
}

static void loopback_works(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(80) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	int ok = bind(fd, (void *)&a, sizeof a) == 0 && listen(fd, 1) == 0;
	verdict(ok, "low-port-binds", "%s", strerror(errno));
	verdict(ok && connect_to(AF_INET, SOCK_STREAM, &a, sizeof a) == 0, "loopback", "%s", strerror(errno));
	close(fd);
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback, .sin6_port = htons(8088) };
	fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) { /* a host without IPv6 has none inside */
		ok = bind(fd, (void *)&a6, sizeof a6) == 0 && listen(fd, 1) == 0 && connect_to(AF_INET6, SOCK_STREAM, &a6, sizeof a6) == 0;
		verdict(ok, "loopback-ipv6", "%s", strerror(errno));
		close(fd);
	}
}

static void sockets(void)
{
	static const struct {
		const char *name;
		int family, type, protocol, want;
	} kinds[] = {
		{ "raw-ip", AF_INET, SOCK_RAW, IPPROTO_ICMP, 0 },
		{ "raw-ipv6", AF_INET6, SOCK_RAW, 58, 0 },
		{ "packet", 17, SOCK_RAW, 0x300, EAFNOSUPPORT },
		{ "vsock", 40, SOCK_STREAM, 0, EAFNOSUPPORT },
		{ "bluetooth", 31, SOCK_RAW, 1, EAFNOSUPPORT },
		{ "alg", 38, SOCK_SEQPACKET, 0, EAFNOSUPPORT },
		{ "xdp", 44, SOCK_RAW, 0, EAFNOSUPPORT },
		{ "can", 29, SOCK_RAW, 1, EAFNOSUPPORT },
		{ "netlink-audit", 16, SOCK_RAW, 9, EPROTONOSUPPORT },
		{ "netlink-netfilter", 16, SOCK_RAW, 12, EPROTONOSUPPORT },
		{ "netlink-uevent", 16, SOCK_RAW, 15, EPROTONOSUPPORT },
		{ "netlink-diag", 16, SOCK_RAW, 4, EPROTONOSUPPORT },
	};
	char name[64];

	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		int fd = socket(kinds[i].family, kinds[i].type, kinds[i].protocol);
		snprintf(name, sizeof name, "socket-%s", kinds[i].name);
		verdict(fd < 0 && (!kinds[i].want || errno == kinds[i].want), name, "fd %d errno %d", fd, errno);
		if (fd >= 0)
			close(fd);
	}
}

static void interfaces(void)
{
	struct if_nameindex *list = if_nameindex();
	int n = 0;
	char names[256] = "";

	for (struct if_nameindex *i = list; i && i->if_index; i++) {
		/* tunnels that the kernel makes in every namespace (sit0, tunl0 ...) are down and cannot be raised */
		struct ifreq r = { 0 };
		int fd = socket(AF_INET, SOCK_DGRAM, 0);
		snprintf(r.ifr_name, sizeof r.ifr_name, "%s", i->if_name);
		ioctl(fd, SIOCGIFFLAGS, &r);
		if (r.ifr_flags & IFF_UP && strcmp(i->if_name, "lo") != 0) {
			n++;
			snprintf(names, sizeof names, "%s", i->if_name);
		}
		close(fd);
	}
	if_freenameindex(list);
	verdict(n == 0, "only-loopback", "%d more, as %s", n, names);
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = 0 };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	refused("lower-loopback", ioctl(fd, SIOCSIFFLAGS, &r));
	struct ifreq address = { .ifr_name = "lo" };
	((struct sockaddr_in *)&address.ifr_addr)->sin_family = AF_INET;
	inet_pton(AF_INET, "10.9.8.7", &((struct sockaddr_in *)&address.ifr_addr)->sin_addr);
	refused("set-address", ioctl(fd, SIOCSIFADDR, &address));
	close(fd);
	struct { /* RTM_NEWLINK of a dummy interface */
		unsigned len;
		unsigned short type, flags;
		unsigned seq, pid;
		unsigned char info[16];
	} m = { sizeof m, 16, 0x605, 1, 0, { 0 } };
	int nl = socket(AF_NETLINK, SOCK_RAW, 0);
	char reply[512];
	if (nl >= 0 && send(nl, &m, sizeof m, 0) > 0) {
		ssize_t got = recv(nl, reply, sizeof reply, 0);
		int error = 0;
		if (got >= 20)
			memcpy(&error, reply + 16, 4);
		verdict(error < 0, "netlink-new-link", "error %d", error);
	}
	close(nl);
}

static void host_sockets(int port, const char *abstract)
{
	if (port) {
		unreachable4("127.0.0.1", SOCK_STREAM, port);
		unreachable4("0.0.0.0", SOCK_STREAM, port);
		unreachable6("::1", SOCK_STREAM, port);
		unreachable6("::ffff:127.0.0.1", SOCK_STREAM, port);
	}
	if (abstract) {
		struct sockaddr_un a = { .sun_family = AF_UNIX };
		snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s", abstract);
		int e = connect_to(AF_UNIX, SOCK_STREAM, &a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(abstract)));
		verdict(e == ECONNREFUSED, "abstract-socket-of-host", "errno %d", e);
	}
}

void probe_network(int host_port, const char *host_abstract)
{
	static const char *const v4[] = { "169.254.169.254", "10.0.0.1", "192.168.0.1", "172.16.0.1",	  "100.64.0.1",
					  "1.1.1.1",	     "8.8.8.8",	 "224.0.0.1",	"255.255.255.255" };
	static const char *const v6[] = { "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2606:4700:4700::1111", "fe80::1",
					  "ff02::1" };

	loopback_works();
	sockets();
	interfaces();
	for (unsigned i = 0; i < sizeof v4 / sizeof *v4; i++) {
		unreachable4(v4[i], SOCK_STREAM, 80);
		unreachable4(v4[i], SOCK_DGRAM, 53);
	}
	for (unsigned i = 0; i < sizeof v6 / sizeof *v6; i++) {
		unreachable6(v6[i], SOCK_STREAM, 80);
		unreachable6(v6[i], SOCK_DGRAM, 443);
	}
	host_sockets(host_port, host_abstract);
}
