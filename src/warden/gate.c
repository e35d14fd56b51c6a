#include "warden/gate.h"

#include "sys/fs.h"
#include "sys/netlink.h"
#include "warden/tap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTENER 4	   /* the port of the listeners; any would do, nothing else listens in a gate */
#define NAMES_PORT 53
#define BACKLOG	 1024	   /* half-open connections are the edge's memory */
#define BUFFER	 (1 << 20) /* of datagrams, each way */
/* What the gate asks for its neighbour from. An answer comes from whatever address was dialled, which is not one of the link's own, and then
 * the kernel asks from a link-local address or, where there is none, not at all: the sandbox would be found only when it asks itself. */
#define LINK_LOCAL "fe80::1"

/* --- links and addresses --- */

static void add_link_pair(struct nl *m, int inside)
{
	const struct ifinfomsg none = { 0 };

	nl_begin(m, RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &none, sizeof none);
	nl_attr_z(m, IFLA_IFNAME, "gate");
	nl_nest(m, IFLA_LINKINFO);
	nl_attr_z(m, IFLA_INFO_KIND, "veth");
	nl_nest(m, IFLA_INFO_DATA);
	nl_nest(m, VETH_INFO_PEER);
	nl_raw(m, &none, sizeof none); /* the peer is described as by a message of its own */
	nl_attr_z(m, IFLA_IFNAME, "eth0");
	nl_attr_u32(m, IFLA_NET_NS_FD, (uint32_t)inside);
	nl_unnest(m);
	nl_unnest(m);
	nl_unnest(m);
}

/* No address but ours: the kernel would make a link-local one and spend a second asking around for it. */
static void raise_link(struct nl *m, int index)
{
	const struct ifinfomsg up = { .ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP }, same = { .ifi_index = index };
	const uint8_t none = IN6_ADDR_GEN_MODE_NONE;

	nl_begin(m, RTM_NEWLINK, NLM_F_ACK, &same, sizeof same);
	nl_nest(m, IFLA_AF_SPEC);
	nl_nest(m, AF_INET6);
	nl_attr(m, IFLA_INET6_ADDR_GEN_MODE, &none, sizeof none);
	nl_unnest(m);
	nl_unnest(m);
	nl_begin(m, RTM_NEWLINK, NLM_F_ACK, &up, sizeof up);
}

static void add_address(struct nl *m, int index, int family, const char *text, uint8_t prefix)
{
	const struct ifaddrmsg head = { .ifa_family = (uint8_t)family, .ifa_prefixlen = prefix, .ifa_index = (uint32_t)index, .ifa_flags = IFA_F_NODAD };
	uint8_t b[16];

	if (inet_pton(family, text, b) != 1)
		return;
	nl_begin(m, RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, &head, sizeof head);
	nl_attr(m, IFA_LOCAL, b, family == AF_INET ? 4 : 16);
	nl_attr(m, IFA_ADDRESS, b, family == AF_INET ? 4 : 16);
}

/* The default route: to a gateway, or (via NULL) "all of it is me". */
static void add_default(struct nl *m, int index, int family, const char *via)
{
	const struct rtmsg head = { .rtm_family = (uint8_t)family,
				    .rtm_table = RT_TABLE_MAIN,
				    .rtm_protocol = RTPROT_STATIC,
				    .rtm_scope = via ? RT_SCOPE_UNIVERSE : RT_SCOPE_HOST,
				    .rtm_type = via ? RTN_UNICAST : RTN_LOCAL };
	uint8_t b[16];

	nl_begin(m, RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, &head, sizeof head);
	nl_attr_u32(m, RTA_OIF, (uint32_t)index);
	if (via && inet_pton(family, via, b) == 1)
		nl_attr(m, RTA_GATEWAY, b, family == AF_INET ? 4 : 16);
}

/* A host may have IPv6 switched off; then there is none inside. */
static bool has_v6(int proc)
{
	return faccessat(proc, "sys/net/ipv6", F_OK, 0) == 0;
}

static int index_of(const char *name)
{
	char text[16];
	struct ifreq r = { 0 };
	auto_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(text, sizeof text, "%s", name);
	memcpy(r.ifr_name, text, sizeof text);
	if (fd < 0 || ioctl(fd, SIOCGIFINDEX, &r) < 0)
		return -errno;
	return r.ifr_ifindex;
}

/* --- rules --- */

static const struct nfgenmsg inet = { .nfgen_family = NFPROTO_INET };

static void begin_expression(struct nl *m, const char *name)
{
	nl_nest(m, NFTA_LIST_ELEM);
	nl_attr_z(m, NFTA_EXPR_NAME, name);
	nl_nest(m, NFTA_EXPR_DATA);
}

static void end_expression(struct nl *m)
{
	nl_unnest(m);
	nl_unnest(m);
}

static void data(struct nl *m, uint16_t type, const void *p, size_t n)
{
	nl_nest(m, type);
	nl_attr(m, NFTA_DATA_VALUE, p, n);
	nl_unnest(m);
}

static void compare(struct nl *m, enum nft_cmp_ops op, const void *p, size_t n)
{
	begin_expression(m, "cmp");
	nl_attr_be32(m, NFTA_CMP_SREG, NFT_REG_1);
	nl_attr_be32(m, NFTA_CMP_OP, op);
	data(m, NFTA_CMP_DATA, p, n);
	end_expression(m);
}

static void match_meta(struct nl *m, uint32_t key, uint8_t value)
{
	begin_expression(m, "meta");
	nl_attr_be32(m, NFTA_META_KEY, key);
	nl_attr_be32(m, NFTA_META_DREG, NFT_REG_1);
	end_expression(m);
	compare(m, NFT_CMP_EQ, &value, 1);
}

static void match_bytes(struct nl *m, enum nft_cmp_ops op, uint32_t base, uint32_t offset, const void *p, size_t n)
{
	begin_expression(m, "payload");
	nl_attr_be32(m, NFTA_PAYLOAD_DREG, NFT_REG_1);
	nl_attr_be32(m, NFTA_PAYLOAD_BASE, base);
	nl_attr_be32(m, NFTA_PAYLOAD_OFFSET, offset);
	nl_attr_be32(m, NFTA_PAYLOAD_LEN, (uint32_t)n);
	end_expression(m);
	compare(m, op, p, n);
}

static void to_listener(struct nl *m, uint16_t port)
{
	const uint16_t be = htons(port);

	begin_expression(m, "immediate");
	nl_attr_be32(m, NFTA_IMMEDIATE_DREG, NFT_REG_1);
	data(m, NFTA_IMMEDIATE_DATA, &be, sizeof be);
	end_expression(m);
	begin_expression(m, "tproxy"); /* ends the rule when nobody listens */
	nl_attr_be32(m, NFTA_TPROXY_FAMILY, NFPROTO_UNSPEC);
	nl_attr_be32(m, NFTA_TPROXY_REG_PORT, NFT_REG_1);
	end_expression(m);
}

static void begin_rule(struct nl *m)
{
	nl_begin(m, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE, NLM_F_ACK | NLM_F_CREATE | NLM_F_APPEND, &inet, sizeof inet);
	nl_attr_z(m, NFTA_RULE_TABLE, "gate");
	nl_attr_z(m, NFTA_RULE_CHAIN, "arriving");
	nl_nest(m, NFTA_RULE_EXPRESSIONS);
}

static void end_rule(struct nl *m, uint32_t verdict)
{
	begin_expression(m, "immediate");
	nl_attr_be32(m, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	nl_nest(m, NFTA_IMMEDIATE_DATA);
	nl_nest(m, NFTA_DATA_VERDICT);
	nl_attr_be32(m, NFTA_VERDICT_CODE, verdict);
	nl_unnest(m);
	nl_unnest(m);
	end_expression(m);
	nl_unnest(m);
}

static void add_chain(struct nl *m, const char *name, uint32_t hook)
{
	nl_begin(m, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN, NLM_F_ACK | NLM_F_CREATE, &inet, sizeof inet);
	nl_attr_z(m, NFTA_CHAIN_TABLE, "gate");
	nl_attr_z(m, NFTA_CHAIN_NAME, name);
	nl_nest(m, NFTA_CHAIN_HOOK);
	nl_attr_be32(m, NFTA_HOOK_HOOKNUM, hook);
	nl_attr_be32(m, NFTA_HOOK_PRIORITY, (uint32_t)-150);
	nl_unnest(m);
	nl_attr_be32(m, NFTA_CHAIN_POLICY, NF_DROP);
	nl_attr_z(m, NFTA_CHAIN_TYPE, "filter");
}

static void table(struct nl *m, uint16_t message)
{
	nl_begin(m, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | message), NLM_F_ACK | (message == NFT_MSG_NEWTABLE ? NLM_F_CREATE : 0), &inet, sizeof inet);
	nl_attr_z(m, NFTA_TABLE_NAME, "gate");
}

/* All in one step. `again`: there may be rules of before, which they replace. */
static void add_rules(struct nl *m, bool again)
{
	static const uint8_t echo4 = 8, echo6 = 128, solicit = 135, advertise = 136, names[] = { 0, NAMES_PORT };
	const struct nfgenmsg batch = { .res_id = htons(NFNL_SUBSYS_NFTABLES) };
	uint8_t gate4[4], gate6[16], box4[4], box6[16];

	(void)inet_pton(AF_INET, GATE_ADDR4, gate4);
	(void)inet_pton(AF_INET6, GATE_ADDR6, gate6);
	(void)inet_pton(AF_INET, GATE_BOX4, box4);
	(void)inet_pton(AF_INET6, GATE_BOX6, box6);
	nl_begin(m, NFNL_MSG_BATCH_BEGIN, 0, &batch, sizeof batch);
	table(m, NFT_MSG_NEWTABLE);
	if (again) {
		table(m, NFT_MSG_DELTABLE);
		table(m, NFT_MSG_NEWTABLE);
	}
	add_chain(m, "arriving", NF_INET_PRE_ROUTING);
	add_chain(m, "passing", NF_INET_FORWARD);
	begin_rule(m); /* nobody else speaks here */
	match_meta(m, NFT_META_NFPROTO, NFPROTO_IPV4);
	match_bytes(m, NFT_CMP_NEQ, NFT_PAYLOAD_NETWORK_HEADER, 12, box4, sizeof box4);
	end_rule(m, NF_DROP);
	begin_rule(m);
	match_meta(m, NFT_META_NFPROTO, NFPROTO_IPV6);
	match_bytes(m, NFT_CMP_NEQ, NFT_PAYLOAD_NETWORK_HEADER, 8, box6, sizeof box6);
	end_rule(m, NF_DROP);
	begin_rule(m); /* connections: to the listener */
	match_meta(m, NFT_META_L4PROTO, IPPROTO_TCP);
	to_listener(m, LISTENER);
	end_rule(m, NF_ACCEPT);
	begin_rule(m); /* else to the kernel, which answers that nobody listens */
	match_meta(m, NFT_META_L4PROTO, IPPROTO_TCP);
	end_rule(m, NF_ACCEPT);
	begin_rule(m); /* questions: to the name service, whatever the address */
	match_meta(m, NFT_META_L4PROTO, IPPROTO_UDP);
	match_bytes(m, NFT_CMP_EQ, NFT_PAYLOAD_TRANSPORT_HEADER, 2, names, sizeof names);
	end_rule(m, NF_ACCEPT);
	begin_rule(m); /* other datagrams, which have been put together if they came in parts: tproxy sees to that */
	match_meta(m, NFT_META_L4PROTO, IPPROTO_UDP);
	to_listener(m, LISTENER);
	end_rule(m, NF_ACCEPT);
	begin_rule(m);
	match_meta(m, NFT_META_L4PROTO, IPPROTO_UDP);
	end_rule(m, NF_ACCEPT);
	begin_rule(m); /* an echo of the gateway itself and of nobody else, though all addresses are local */
	match_meta(m, NFT_META_NFPROTO, NFPROTO_IPV4);
	match_meta(m, NFT_META_L4PROTO, IPPROTO_ICMP);
	match_bytes(m, NFT_CMP_EQ, NFT_PAYLOAD_TRANSPORT_HEADER, 0, &echo4, 1);
	match_bytes(m, NFT_CMP_EQ, NFT_PAYLOAD_NETWORK_HEADER, 16, gate4, sizeof gate4);
	end_rule(m, NF_ACCEPT);
	begin_rule(m);
	match_meta(m, NFT_META_NFPROTO, NFPROTO_IPV6);
	match_meta(m, NFT_META_L4PROTO, IPPROTO_ICMPV6);
	match_bytes(m, NFT_CMP_EQ, NFT_PAYLOAD_TRANSPORT_HEADER, 0, &echo6, 1);
	match_bytes(m, NFT_CMP_EQ, NFT_PAYLOAD_NETWORK_HEADER, 24, gate6, sizeof gate6);
	end_rule(m, NF_ACCEPT);
	for (int i = 0; i < 2; i++) { /* without neighbour discovery IPv6 looks dead */
		begin_rule(m);
		match_meta(m, NFT_META_NFPROTO, NFPROTO_IPV6);
		match_meta(m, NFT_META_L4PROTO, IPPROTO_ICMPV6);
		match_bytes(m, NFT_CMP_EQ, NFT_PAYLOAD_TRANSPORT_HEADER, 0, i ? &advertise : &solicit, 1);
		end_rule(m, NF_ACCEPT);
	}
	nl_begin(m, NFNL_MSG_BATCH_END, 0, &batch, sizeof batch);
}

/* --- making one --- */

struct making {
	int inside; /* negative: the gate has a tap */
	bool v6;
	const char *step; /* that failed */
	struct nl m;
};

/* A new namespace takes over what the host's administrator has set for the host: these must hold whatever that is. */
static int set_switches(int proc, bool v6)
{
	static const char *const off4[] = { "ip_forward", "conf/all/route_localnet", "conf/default/route_localnet", "conf/all/accept_local",
					    "conf/default/accept_local", "conf/all/proxy_arp", "conf/default/proxy_arp" };
	char path[64];
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_LEN(off4); i++) {
		snprintf(path, sizeof path, "sys/net/ipv4/%s", off4[i]);
		rc = fs_write_at(proc, path, "0");
	}
	if (rc == 0 && v6)
		rc = fs_write_at(proc, "sys/net/ipv6/conf/all/forwarding", "0");
	return rc;
}

/* Parts of datagrams that wait for the others are kernel memory of nobody's: by default 4 MiB in each namespace, of either family. Room for some of
 * the longest is enough. What puts together those of IPv6 comes with the rules, under a kernel that has it as a module. */
static int bound_parts(int proc)
{
	static const struct {
		const char *path, *bytes;
	} wanted[] = {
		{ "sys/net/ipv4/ipfrag_low_thresh", "524288" }, /* never above the other one */
		{ "sys/net/ipv4/ipfrag_high_thresh", "1048576" },
		{ "sys/net/netfilter/nf_conntrack_frag6_low_thresh", "524288" },
		{ "sys/net/netfilter/nf_conntrack_frag6_high_thresh", "1048576" },
	};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_LEN(wanted); i++)
		rc = fs_write_at(proc, wanted[i].path, wanted[i].bytes);
	return rc == -ENOENT ? 0 : rc;
}

static int configure(struct nl *m, int nl, int link, const char *const addr[2], const char *const via[2], bool v6)
{
	int target = via[0] ? link : index_of("lo");

	if (target < 0)
		return target;
	raise_link(m, link);
	add_address(m, link, AF_INET, addr[0], GATE_PREFIX4);
	add_default(m, target, AF_INET, via[0]);
	if (v6) {
		if (!via[1])
			add_address(m, link, AF_INET6, LINK_LOCAL, 128);
		add_address(m, link, AF_INET6, addr[1], GATE_PREFIX6);
		add_default(m, target, AF_INET6, via[1]);
	}
	return nl_talk(nl, m);
}

/* What an earlier gate has left in a sandbox that outlived it. */
static void drop_link(const char *name)
{
	struct ifinfomsg head = { .ifi_index = index_of(name) };
	struct nl *m = xcalloc(1, sizeof *m);
	auto_fd int route = head.ifi_index > 0 ? nl_open(NETLINK_ROUTE) : -EBADF;

	if (route >= 0) {
		nl_begin(m, RTM_DELLINK, NLM_F_ACK, &head, sizeof head);
		(void)nl_talk(route, m);
	}
	free(m);
}

static int fill_gate(void *ctx, int proc)
{
	static const char *const addr[] = { GATE_ADDR4, GATE_ADDR6 }, *const none[] = { NULL, NULL };
	struct making *k = ctx;

	k->v6 = has_v6(proc);
	k->step = "set its switches";
	int rc = set_switches(proc, k->v6);
	k->step = "raise its loopback";
	if (rc == 0)
		rc = netns_loopback_up();
	k->step = "netlink";
	auto_fd int rules = rc < 0 ? rc : nl_open(NETLINK_NETFILTER);
	auto_fd int route = rules < 0 ? rules : nl_open(NETLINK_ROUTE);
	if (route < 0)
		return route;
	nl_init(&k->m);
	/* First of all the rules: there is no moment in which a link is up without them. */
	k->step = "set its rules (kernel modules nf_tables, nft_tproxy)";
	add_rules(&k->m, k->inside < 0);
	rc = nl_talk(rules, &k->m);
	if (rc < 0)
		return rc;
	k->step = "bound its memory for fragments";
	if ((rc = bound_parts(proc)) < 0)
		return rc;
	if (k->inside >= 0) {
		k->step = "make its link (kernel module veth)";
		add_link_pair(&k->m, k->inside);
		if ((rc = nl_talk(route, &k->m)) < 0)
			return rc;
	}
	k->step = "give it addresses";
	int link = index_of(k->inside >= 0 ? "gate" : TAP_NAME);
	return link < 0 ? link : configure(&k->m, route, link, addr, none, k->v6);
}

static int fill_inside(struct netns_maker *m, struct making *k)
{
	static const char *const addr[] = { GATE_BOX4, GATE_BOX6 }, *const via[] = { GATE_ADDR4, GATE_ADDR6 };

	k->step = "give the sandbox its address";
	int rc = netns_enter(k->inside);
	if (rc < 0)
		return rc;
	auto_fd int route = nl_open(NETLINK_ROUTE);
	rc = route < 0 ? route : index_of("eth0");
	if (rc > 0)
		rc = configure(&k->m, route, rc, addr, via, k->v6);
	int back = netns_enter(m->own);
	return rc < 0 ? rc : back;
}

int gate_new(struct netns_maker *m, int inside, struct err *e)
{
	struct making *k = xcalloc(1, sizeof *k);

	k->inside = inside;
	if (netns_enter(inside) == 0)
		drop_link("eth0");
	(void)netns_enter(m->own);
	k->step = "make a namespace";
	auto_fd int gate = netns_make(m, fill_gate, k);
	int rc = gate < 0 ? gate : fill_inside(m, k);
	if (rc < 0)
		(void)err_sys(e, ERR_UNAVAILABLE, -rc, "make a gate to the network: %s", k->step);
	free(k);
	return rc < 0 ? rc : take_fd(&gate);
}

int gate_raise(struct netns_maker *m, int tap, struct err *e)
{
	struct making *k = xcalloc(1, sizeof *k);

	k->inside = -EBADF;
	k->step = "enter its namespace";
	int rc = netns_in(m, tap, fill_gate, k);
	if (rc < 0)
		(void)err_sys(e, ERR_UNAVAILABLE, -rc, "make a gate to the network: %s", k->step);
	free(k);
	return rc;
}

/* Whoever has the tap open would find it gone for good if it was taken away. */
static void lower_tap(void)
{
	struct ifreq r = { .ifr_name = TAP_NAME };
	auto_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0)
		(void)ioctl(fd, SIOCSIFFLAGS, &r);
}

void gate_cut(struct netns_maker *m, int gate)
{
	if (netns_enter(gate) == 0) {
		drop_link("gate");
		lower_tap();
	}
	(void)netns_enter(m->own);
}

/* --- its sockets --- */

static int set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof value) < 0 ? -errno : 0;
}

/* What the edge has to know of a datagram: a question has but an address, others have a port, too. */
static int tell_destination(int fd, int family, uint16_t port)
{
	if (port == NAMES_PORT) /* the address that was asked is the one that must answer */
		return family == AF_INET ? set(fd, SOL_IP, IP_PKTINFO, 1) : set(fd, SOL_IPV6, IPV6_RECVPKTINFO, 1);
	return family == AF_INET ? set(fd, SOL_IP, IP_RECVORIGDSTADDR, 1) : set(fd, SOL_IPV6, IPV6_RECVORIGDSTADDR, 1);
}

static int open_socket(int family, int type, uint16_t port)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	/* Raw ones take packets with their heads, and nothing ever comes to them. */
	auto_fd int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, type == SOCK_RAW ? IPPROTO_RAW : 0);

	if (fd < 0)
		return -errno;
	if (type == SOCK_RAW)
		return take_fd(&fd);
	int rc = set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (rc == 0)
		rc = family == AF_INET ? set(fd, SOL_IP, IP_TRANSPARENT, 1) : set(fd, SOL_IPV6, IPV6_TRANSPARENT, 1);
	if (rc == 0 && family == AF_INET6)
		rc = set(fd, SOL_IPV6, IPV6_V6ONLY, 1);
	if (rc == 0 && type == SOCK_DGRAM)
		rc = tell_destination(fd, family, port);
	const int buffer = type == SOCK_STREAM ? EDGE_GATE_BUFFER : BUFFER;
	if (rc == 0)
		rc = set(fd, SOL_SOCKET, SO_RCVBUF, buffer / 2); /* the kernel doubles it */
	if (rc == 0)
		rc = set(fd, SOL_SOCKET, SO_SNDBUF, buffer / 2);
	if (rc < 0)
		return rc;
	if (bind(fd, family == AF_INET ? (struct sockaddr *)&a4 : (struct sockaddr *)&a6, family == AF_INET ? sizeof a4 : sizeof a6) < 0 ||
	    (type == SOCK_STREAM && listen(fd, BACKLOG) < 0))
		return -errno;
	return take_fd(&fd);
}

int gate_listen(struct netns_maker *m, int gate, int ret_fds[static EDGE_GATE_FDS], struct err *e)
{
	static const struct {
		int family, type;
		uint16_t port;
	} wanted[] = {
		[EDGE_TCP4] = { AF_INET, SOCK_STREAM, LISTENER },   [EDGE_TCP6] = { AF_INET6, SOCK_STREAM, LISTENER },
		[EDGE_DNS4] = { AF_INET, SOCK_DGRAM, NAMES_PORT },  [EDGE_DNS6] = { AF_INET6, SOCK_DGRAM, NAMES_PORT },
		[EDGE_UDP4] = { AF_INET, SOCK_DGRAM, LISTENER },    [EDGE_UDP6] = { AF_INET6, SOCK_DGRAM, LISTENER },
		[EDGE_RAW4] = { AF_INET, SOCK_RAW, 0 },		    [EDGE_RAW6] = { AF_INET6, SOCK_RAW, 0 },
	};
	int n = 0, rc = netns_enter(gate);

	for (; rc == 0 && n < EDGE_GATE_FDS; n++) {
		ret_fds[n] = open_socket(wanted[n].family, wanted[n].type, wanted[n].port);
		if (ret_fds[n] < 0 && wanted[n].family == AF_INET6 && ret_fds[n] == -EAFNOSUPPORT)
			ret_fds[n] = open_socket(AF_INET, SOCK_RAW, 0); /* the edge gets all of them whatever happens; this one hears nothing */
		if (ret_fds[n] < 0) {
			rc = ret_fds[n];
			break;
		}
	}
	int back = netns_enter(m->own);
	if (rc == 0)
		rc = back;
	if (rc < 0) {
		while (n > 0)
			close_fd(ret_fds[--n]);
		return err_sys(e, ERR_UNAVAILABLE, -rc, "open the sockets of a gate");
	}
	return 0;
}

int gate_probe(struct err *e)
{
	struct netns_maker m;
	int fds[EDGE_GATE_FDS], rc = netns_maker_init(&m);

	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "open the network namespace");
	auto_fd int inside = netns_new(&m);
	if (inside < 0) {
		rc = err_sys(e, ERR_UNAVAILABLE, -inside, "make a network namespace");
	} else {
		auto_fd int gate = gate_new(&m, inside, e);
		rc = gate < 0 ? gate : gate_listen(&m, gate, fds, e);
		for (int i = 0; rc == 0 && i < EDGE_GATE_FDS; i++)
			close_fd(fds[i]);
	}
	netns_maker_done(&m);
	return rc;
}
