#include "sys/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define HEAD sizeof(struct nlattr) /* a multiple of the alignment already */

void nl_init(struct nl *m)
{
	m->n = m->message = 0;
	m->depth = m->wanted = 0;
	m->overflow = false;
}

static void *reserve(struct nl *m, size_t n)
{
	size_t padded = (n + 3) & ~(size_t)3;

	if (m->overflow || padded > sizeof m->b - m->n) {
		m->overflow = true;
		return NULL;
	}
	void *p = m->b + m->n;
	memset(p, 0, padded);
	m->n += padded;
	return p;
}

/* The message that is being written is as long as what there is of it. */
static void grew(struct nl *m)
{
	uint32_t len = (uint32_t)(m->n - m->message);
	memcpy(m->b + m->message + offsetof(struct nlmsghdr, nlmsg_len), &len, sizeof len);
}

void nl_begin(struct nl *m, uint16_t type, uint16_t flags, const void *head, size_t head_len)
{
	size_t at = m->n;
	struct nlmsghdr *h = reserve(m, sizeof *h);

	if (!h)
		return;
	*h = (struct nlmsghdr){ .nlmsg_type = type, .nlmsg_flags = (uint16_t)(flags | NLM_F_REQUEST), .nlmsg_seq = ++m->seq };
	m->message = at;
	m->depth = 0;
	m->wanted += flags & NLM_F_ACK ? 1 : 0;
	nl_raw(m, head, head_len);
}

void nl_raw(struct nl *m, const void *p, size_t n)
{
	void *to = reserve(m, n);

	if (!to)
		return;
	memcpy(to, p, n);
	grew(m);
}

void nl_attr(struct nl *m, uint16_t type, const void *p, size_t n)
{
	struct nlattr *a = reserve(m, HEAD + n);

	if (!a)
		return;
	a->nla_type = type;
	a->nla_len = (uint16_t)(HEAD + n);
	if (n)
		memcpy(a + 1, p, n);
	grew(m);
}

void nl_attr_z(struct nl *m, uint16_t type, const char *z)
{
	nl_attr(m, type, z, strlen(z) + 1);
}

void nl_attr_u32(struct nl *m, uint16_t type, uint32_t v)
{
	nl_attr(m, type, &v, sizeof v);
}

void nl_attr_be32(struct nl *m, uint16_t type, uint32_t v)
{
	nl_attr_u32(m, type, htonl(v));
}

void nl_nest(struct nl *m, uint16_t type)
{
	if (m->depth == NL_NEST_MAX) {
		m->overflow = true;
		return;
	}
	m->nest[m->depth++] = m->n;
	nl_attr(m, type | NLA_F_NESTED, NULL, 0);
}

void nl_unnest(struct nl *m)
{
	size_t at = m->nest[--m->depth];

	if (!m->overflow) {
		uint16_t len = (uint16_t)(m->n - at);
		memcpy(m->b + at, &len, sizeof len);
	}
}

int nl_open(int protocol)
{
	/* The kernel answers before sendmsg returns; a time limit is there for a kernel that does not. */
	const struct timeval limit = { .tv_sec = 5 };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

	if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0)
		fd = close_fd(fd);
	return fd < 0 ? -errno : fd;
}

int nl_talk(int fd, struct nl *m)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	_Alignas(8) uint8_t in[8192];
	int first = m->overflow ? -EMSGSIZE : 0;
	unsigned wanted = m->wanted;

	if (!first && sendto(fd, m->b, m->n, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0)
		first = -errno;
	nl_init(m);
	while (!first && wanted) {
		ssize_t got = recv(fd, in, sizeof in, 0);
		if (got < 0)
			return errno == EINTR ? -EIO : -errno;
		for (size_t at = 0, n = (size_t)got; n - at >= sizeof(struct nlmsghdr);) {
			struct nlmsghdr h;
			int error;
			memcpy(&h, in + at, sizeof h);
			if (h.nlmsg_len < sizeof h || h.nlmsg_len > n - at)
				return -EPROTO;
			if (h.nlmsg_type == NLMSG_ERROR && h.nlmsg_len >= sizeof h + sizeof error) {
				memcpy(&error, in + at + sizeof h, sizeof error);
				if (!first)
					first = error;
				wanted -= wanted > 0;
			}
			at += (h.nlmsg_len + 3u) & ~3u;
			if (at > n)
				break;
		}
	}
	return first;
}
