/* What the host's own network is: its addresses, and who its neighbours are. Followed, since both change while we run. */
#include "egress/edge_int.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define DUMP_BUFFER 65536

static int ask(struct edge *e, int family)
{
	struct {
		struct nlmsghdr h;
		struct rtmsg r;
	} rq = { { sizeof rq, RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, 1, 0 }, { .rtm_family = (unsigned char)family } };

	return send(e->dump, &rq, sizeof rq, 0) < 0 ? -errno : 0;
}

struct route {
	bool gateway;
	struct net dst;
};

static void read_route(const struct rtmsg *r, size_t len, struct route *ret)
{
	const struct rtattr *a = (const struct rtattr *)(const void *)(r + 1);

	*ret = (struct route){ .dst = { .addr = { .family = r->rtm_family == AF_INET ? 4 : 6 }, .prefix = r->rtm_dst_len } };
	for (len -= sizeof *r; len >= sizeof *a && a->rta_len >= sizeof *a && a->rta_len <= len;) {
		size_t n = a->rta_len - sizeof *a, step = (a->rta_len + 3u) & ~3u;
		if (a->rta_type == RTA_DST && n <= 16)
			memcpy(ret->dst.addr.b, a + 1, n);
		if (a->rta_type == RTA_GATEWAY || a->rta_type == RTA_VIA || a->rta_type == RTA_MULTIPATH || a->rta_type == RTA_NH_ID)
			ret->gateway = true;
		if (step >= len)
			break;
		len -= step;
		a = (const struct rtattr *)(const void *)((const char *)a + step);
	}
}

/* Own: whatever this host takes for itself. Links: what it reaches without a gateway, but for a default route through a point-to-point
 * link. */
static void take_route(struct edge *e, struct policy_host *to, bool *v6, const struct rtmsg *r, size_t len)
{
	struct route route;

	(void)e;
	if (r->rtm_family != AF_INET && r->rtm_family != AF_INET6)
		return;
	read_route(r, len, &route);
	if (r->rtm_type == RTN_LOCAL || r->rtm_type == RTN_BROADCAST || r->rtm_type == RTN_ANYCAST || r->rtm_type == RTN_MULTICAST) {
		nets_add(&to->own, &route.dst);
	} else if (r->rtm_type == RTN_UNICAST && r->rtm_dst_len == 0) {
		if (r->rtm_family == AF_INET6)
			*v6 = true;
	} else if (r->rtm_type == RTN_UNICAST && !route.gateway) {
		nets_add(&to->link, &route.dst);
	}
}

static int dump(struct edge *e, struct policy_host *to, bool *v6, int family)
{
	static _Alignas(8) char in[DUMP_BUFFER];
	int rc = ask(e, family);

	while (rc == 0) {
		ssize_t got = recv(e->dump, in, sizeof in, MSG_TRUNC);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 || got > (ssize_t)sizeof in)
			return got < 0 ? -errno : -EMSGSIZE;
		for (size_t at = 0, n = (size_t)got; n - at >= sizeof(struct nlmsghdr);) {
			const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)(in + at);
			if (h->nlmsg_len < sizeof *h || h->nlmsg_len > n - at)
				return -EPROTO;
			if (h->nlmsg_flags & NLM_F_DUMP_INTR)
				rc = -EAGAIN; /* it changed meanwhile: all again, but hear this one out */
			if (h->nlmsg_type == NLMSG_DONE)
				return rc;
			if (h->nlmsg_type == NLMSG_ERROR)
				return -EPROTO;
			if (h->nlmsg_type == RTM_NEWROUTE && h->nlmsg_len >= sizeof *h + sizeof(struct rtmsg))
				take_route(e, to, v6, (const struct rtmsg *)(const void *)(h + 1), h->nlmsg_len - sizeof *h);
			at += (h->nlmsg_len + 3u) & ~3u;
			if (at > n)
				break;
		}
		if (rc == -EAGAIN)
			rc = 0;
	}
	return rc;
}

/* All of it anew, so that nothing can be missed. What cannot be read leaves what there was; a host that goes on refusing is closed. */
static int read_all(struct edge *e)
{
	struct policy_host fresh = { 0 };
	bool v6 = false;
	int rc = dump(e, &fresh, &v6, AF_INET);

	if (rc == 0)
		rc = dump(e, &fresh, &v6, AF_INET6);
	if (rc < 0) {
		nets_done(&fresh.own);
		nets_done(&fresh.link);
		return rc;
	}
	nets_done(&e->net.own);
	nets_done(&e->net.link);
	e->net.own = fresh.own;
	e->net.link = fresh.link;
	e->has_v6 = v6;
	log_info("msg=\"the host's network was read\" own=%zu links=%zu ipv6=%d", e->net.own.n, e->net.link.n, v6);
	return 0;
}

int host_open(struct edge *e)
{
	struct sockaddr_nl a = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_IPV4_ROUTE | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_ROUTE | RTMGRP_IPV6_IFADDR };
	const struct timeval limit = { .tv_sec = 5 };

	e->host = (struct source){ SOURCE_HOST, socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE), NULL };
	e->dump = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (e->host.fd < 0 || e->dump < 0 || bind(e->host.fd, (struct sockaddr *)&a, sizeof a) < 0 ||
	    setsockopt(e->dump, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0)
		return -errno;
	/* Heard of changes before the first reading: none falls between the two. */
	return read_all(e);
}

void host_changed(struct edge *e)
{
	char in[4096];
	ssize_t n;

	while ((n = recv(e->host.fd, in, sizeof in, 0)) > 0 || (n < 0 && (errno == EINTR || errno == ENOBUFS)))
		;
	if (read_all(e) < 0) {
		log_error("msg=\"the host's addresses cannot be read any more: ending, so that nothing is judged by old ones\"");
		e->ending = true;
	}
}
