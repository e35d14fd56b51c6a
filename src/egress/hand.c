/* Handing a connection to the opener of its sandbox.
 *
 * The client's bytes are judged as ever, and the server has been dialled. Then the connection becomes two: from the client to the opener, and
 * from the opener to the server, over a pair of sockets each, so that all bytes still pass here, with all their limits, and the opener
 * has no socket of any network. Either ends by itself when the opener lets go of it, or dies. */
#include "egress/edge_int.h"
#include "wire/opener.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static bool names_port(const struct policy *p, uint16_t port)
{
	for (size_t i = 0; i < p->n_allow; i++) {
		const struct policy_rule *r = &p->allow[i];
		if (r->n_ports == 0)
			return true;
		for (size_t k = 0; k < r->n_ports; k++)
			if (port >= r->ports[k].low && port <= r->ports[k].high)
				return true;
	}
	return false;
}

bool opens_name(const struct box *b, const char *name, uint16_t port)
{
	return policy_judge_name(&b->opened, name, port, POLICY_TCP) || reads_name(b, name, port);
}

bool opens_port(const struct box *b, uint16_t port)
{
	return names_port(&b->opened, port);
}

bool reads_name(const struct box *b, const char *name, uint16_t port)
{
	return policy_judge_name(&b->read, name, port, POLICY_TCP) != NULL;
}

bool reads_port(const struct box *b, uint16_t port)
{
	return names_port(&b->read, port);
}

bool reads_addr(struct box *b, const struct addr *a, uint16_t port)
{
	return b->read.n_allow && pin_of_rules(b, a, port, &b->read);
}

static bool send_flow(int socket, const struct opener_flow *of, const int fds[2])
{
	struct opener_flow copy = *of;
	struct iovec iov = { &copy, sizeof copy };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };

	memcpy(CMSG_DATA(&control.head), fds, 2 * sizeof(int));
	return sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof copy;
}

/* Both pairs, or none. */
static bool make_pairs(int client[2], int server[2])
{
	const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

	if (socketpair(AF_UNIX, type, 0, client) < 0)
		return false;
	if (socketpair(AF_UNIX, type, 0, server) == 0)
		return true;
	close_fd(client[0]);
	close_fd(client[1]);
	return false;
}

bool flow_hand_over(struct flow *f)
{
	struct box *b = f->box;
	struct opener_flow of = { .magic = OPENER_MAGIC, .port = f->port, .plain = f->plain };
	const uint32_t events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
	int client[2], server[2];

	f->to_open = false;
	f->handed = true;
	/* A server that has spoken before the client does not speak TLS, and what it said has been told already. */
	if (b->opener < 0 || f->down.bytes || f->down.ended || !make_pairs(client, server))
		return false;
	snprintf(of.name, sizeof of.name, "%s", f->name);
	bool sent = send_flow(b->opener, &of, (const int[]){ client[1], server[1] });
	close_fd(client[1]);
	close_fd(server[1]);
	if (!sent) {
		close_fd(client[0]);
		close_fd(server[0]);
		return false;
	}
	struct flow *g = flow_behind(f, server[0]);
	struct epoll_event moved = { .events = events, .data.ptr = &g->server };
	f->server.fd = client[0];
	if (epoll_ctl(b->edge->epoll, EPOLL_CTL_MOD, g->server.fd, &moved) < 0 || edge_watch(b->edge, &g->client, events) < 0 ||
	    edge_watch(b->edge, &f->server, events) < 0) {
		flow_kill(g, true);
		return false;
	}
	f->up.writable = f->down.readable = true;
	return true;
}
