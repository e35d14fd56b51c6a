/* Datagrams of sandboxes, but for questions of names (name.c).
 *
 * All of them come to one socket of the gate, with the address that each was meant for. What goes from a port of the sandbox's to a port of a host
 * is a flow: the first datagram is judged as a connection is, and gets a socket of its own, connected to that host, so that the kernel
 * drops what anybody else sends there. Answers go into the gate as packets from the host's address; which sandbox they are for
 * is which socket they came by. A flow ends when it has been silent, when its policy ends, or when it has to make room for a new one.
 *
 * Nothing is kept back: what is over a rate, or finds no room on its way, is dropped, as datagrams are. What is refused is answered with
 * "nobody listens there", which programs see at once (so QUIC falls back to TCP).
 *
 * What is inside of a datagram is not looked at. So where names, or the opener, decide about a port, none pass there. */
#include "egress/edge_int.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define DATAGRAMS_A_TURN 64
#define BOX_MAX		 256
#define BOX_FEW		 32    /* once half of them all are taken */
#define ALL_MAX		 12288 /* each takes a port of the host's own, of which there are 28,000 by default, and name.c needs some */
#define UNANSWERED_MS	 30000
#define SILENT_MS	 120000
#define GIVES_WAY_MS	 5000
#define NEWS_RATE	 200 /* packets a second that tell a sandbox of what was not taken */
#define TOLD_MS		 10000

/* --- to the sandbox --- */

static bool put(struct box *b, const struct packet_ends *ends, const uint8_t *dest, const uint8_t *packet, size_t n)
{
	struct sockaddr_storage ss;
	struct addr to = { .family = ends->v6 ? 6 : 4 };

	memcpy(to.b, dest, sizeof to.b);
	socklen_t len = socket_address(&to, 0, &ss);
	return sendto(b->gate[ends->v6 ? EDGE_RAW6 : EDGE_RAW4].fd, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&ss, len) >= 0;
}

static void put_datagram(struct udp_flow *f, const uint8_t *bytes, size_t n)
{
	const struct packet_ends *e = &f->ends;
	struct packet_ends back = { .from_port = e->to_port, .to_port = e->from_port, .v6 = e->v6 };
	uint8_t packet[PACKET_MAX];
	size_t at = 0, len;
	const uint32_t id = f->box->udp.next_id++;

	memcpy(back.from, e->to, sizeof back.from);
	memcpy(back.to, e->from, sizeof back.to);
	while ((len = packet_datagram(&back, bytes, n, id, &at, packet)) > 0)
		if (!put(f->box, &back, back.to, packet, len))
			return;
}

/* Why a datagram was not taken, by the error of it. */
static void put_news(struct box *b, const struct packet_ends *ends, int error)
{
	uint8_t packet[PACKET_MAX];
	enum packet_lack lack = error == ECONNREFUSED ? PACKET_NO_PORT : PACKET_NO_HOST;

	if (error != ECONNREFUSED && error != EHOSTUNREACH && error != ENETUNREACH)
		return; /* of a moment only */
	if (bucket_take(&b->udp.news, NEWS_RATE, NEWS_RATE))
		(void)put(b, ends, ends->from, packet, packet_unreachable(ends, lack, packet));
}

/* --- judging --- */

/* What could be inside of such datagrams would have to be looked at. NULL, or why. */
static const char *must_be_seen(struct box *b, const struct addr *a, uint16_t port)
{
	struct pin *p;

	if (opens_port(b, port))
		return "datagrams would pass by the opener of its secrets";
	if (reads_addr(b, a, port) || ((port == 443 || port == 853) && reads_port(b, port)))
		return "datagrams would go unread to a host of rules about methods";
	if ((port == 443 || port == 853) && (b->asked.n_allow || policy_denies_names(&b->policy, POLICY_UDP)))
		return "encrypted datagrams would hide names that there are rules about";
	DL_FOREACH (b->pins, p)
		if (addr_eq(&p->addr, a) && (policy_denies_name(&b->policy, p->name, port, POLICY_UDP) || asks_for_name(b, p->name)))
			return "a name that is denied or asked for leads there, too";
	return NULL;
}

/* NULL, or why not. *name is the name that an open flow goes by, or NULL; set to the one that it goes by from now on. */
static const char *judge(struct box *b, const struct addr *a, uint16_t port, const char **name)
{
	if (!b->has_policy)
		return "no policy";
	struct judgement j = policy_judge_address(&b->policy, &b->edge->net, a, port, POLICY_UDP);
	if (j.verdict == VERDICT_DENY)
		return j.reason;
	const char *reason = must_be_seen(b, a, port);
	if (reason || j.verdict == VERDICT_ALLOW)
		return reason;
	if (*name) /* its pin may have gone since; it goes on, as connections do */
		return policy_judge_name(&b->policy, *name, port, POLICY_UDP) && !asks_for_name(b, *name) ? NULL : j.reason;
	*name = pin_find(b, a, port, POLICY_UDP, NULL, NULL);
	return *name ? NULL : j.reason;
}

static bool told_lately(struct box *b, const struct addr *a, uint16_t port)
{
	struct udp_box *u = &b->udp;
	uint64_t now = now_ms();

	for (size_t i = 0; i < UDP_TOLD; i++)
		if (u->told[i].until_ms > now && u->told[i].port == port && addr_eq(&u->told[i].addr, a))
			return true;
	u->told[u->next_told].addr = *a;
	u->told[u->next_told].port = port;
	u->told[u->next_told].until_ms = now + TOLD_MS;
	u->next_told = (u->next_told + 1) % UDP_TOLD;
	return false;
}

/* --- flows --- */

static void end(struct udp_flow *f)
{
	struct box *b = f->box;
	const struct flow_end counts = { f->up_bytes, f->down_bytes, f->started_ms };

	edge_tell(b, EDGE_CLOSED, true, f->ends.to_port, (struct verdict_text){ &f->addr, f->name, NULL, POLICY_UDP }, &counts);
	edge_unwatch(b->edge, &f->far);
	HASH_DEL(b->udp.by_ends, f);
	DL_DELETE(b->udp.flows, f);
	b->udp.n--;
	b->edge->n_udp--;
	f->next = b->edge->dead_udp; /* events of this turn may point at it */
	b->edge->dead_udp = f;
}

static void cut(struct udp_flow *f, const char *reason)
{
	edge_tell(f->box, EDGE_CONNECT, false, f->ends.to_port, (struct verdict_text){ &f->addr, f->name, reason, POLICY_UDP }, NULL);
	put_news(f->box, &f->ends, ECONNREFUSED);
	end(f);
}

void udp_bury(struct edge *e)
{
	while (e->dead_udp) {
		struct udp_flow *f = e->dead_udp;
		e->dead_udp = f->next;
		free(f->name);
		free(f);
	}
}

bool udp_give_way(struct box *b)
{
	struct udp_flow *f = b->udp.flows;

	if (!f || now_ms() - f->last_ms < GIVES_WAY_MS)
		return false;
	end(f);
	return true;
}

static const char *no_room(struct box *b)
{
	size_t all = b->edge->n_udp;

	if ((b->udp.n >= (all < ALL_MAX / 2 ? BOX_MAX : BOX_FEW) || all >= ALL_MAX) && !udp_give_way(b))
		return "too many flows of datagrams";
	return over_limits(b, b->n_flows - b->n_behind + b->udp.n + 1);
}

/* Returns the socket, or a negative errno with the reason. */
static int dial(struct box *b, const struct addr *a, uint16_t port, const char **ret_reason)
{
	auto_fd int fd = -EBADF;
	int rc = edge_dial(b->edge, a, port, SOCK_DGRAM, false, &fd);

	if (rc < 0) {
		*ret_reason = rc == -EACCES ? "an address that is never reachable" : strerror(-rc);
		return rc;
	}
	if (is_ourselves(fd, a)) {
		*ret_reason = "an address of this host";
		return -EACCES;
	}
	return take_fd(&fd);
}

static struct udp_flow *begin(struct box *b, const struct packet_ends *ends)
{
	struct addr a = { .family = ends->v6 ? 6 : 4 };
	const char *name = NULL;

	memcpy(a.b, ends->to, sizeof a.b);
	const char *reason = judge(b, &a, ends->to_port, &name);
	if (!reason)
		reason = no_room(b);
	int fd = reason ? -ECONNREFUSED : dial(b, &a, ends->to_port, &reason);
	if (fd < 0) {
		if (!told_lately(b, &a, ends->to_port))
			edge_tell(b, EDGE_CONNECT, false, ends->to_port, (struct verdict_text){ &a, name, reason, POLICY_UDP }, NULL);
		put_news(b, ends, fd == -EACCES ? ECONNREFUSED : -fd);
		return NULL;
	}
	struct udp_flow *f = xcalloc(1, sizeof *f);
	*f = (struct udp_flow){ .box = b, .ends = *ends, .far = { SOURCE_FAR, fd, f }, .addr = a, .name = name ? xstrdup(name) : NULL, .started_ms = now_ms() };
	HASH_ADD(hh, b->udp.by_ends, ends, sizeof f->ends, f);
	DL_APPEND(b->udp.flows, f);
	b->udp.n++;
	b->edge->n_udp++;
	if (edge_watch(b->edge, &f->far, EPOLLIN) < 0) {
		cut(f, "out of memory");
		return NULL;
	}
	edge_tell(b, EDGE_CONNECT, true, ends->to_port, (struct verdict_text){ &a, f->name, NULL, POLICY_UDP }, NULL);
	return f;
}

/* One more of this size, in this direction? False: it is dropped, or it was one too many and the flow has ended (then *ret_ended). */
static bool may_pass(struct udp_flow *f, bool up, size_t n, bool *ret_ended)
{
	struct box *b = f->box;
	struct bucket *rate = box_rate(b, up);

	f->last_ms = now_ms();
	DL_DELETE(b->udp.flows, f);
	DL_APPEND(b->udp.flows, f);
	/* A large one may owe: else it would never pass a small rate. */
	if (rate && rate->tokens < 1)
		return false;
	if (box_moved(b, up, n))
		return true;
	cut(f, used_up);
	*ret_ended = true;
	return false;
}

/* --- events --- */

static void pass_up(struct box *b, const struct packet_ends *ends, const uint8_t *bytes, size_t n)
{
	struct udp_flow *f;
	bool ended = false;

	HASH_FIND(hh, b->udp.by_ends, ends, sizeof *ends, f);
	if (!f)
		f = begin(b, ends);
	if (!f || !may_pass(f, true, n, &ended))
		return;
	for (int i = 0; i < 2; i++) {
		if (send(f->far.fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
			f->up_bytes += n;
			return;
		}
		/* What is said here was said of an earlier one, and once said it has made way for this one. */
		put_news(b, ends, errno);
	}
}

static bool read_ends(struct msghdr *m, const struct sockaddr_storage *from, struct packet_ends *ret)
{
	struct sockaddr_storage ss = { 0 };

	*ret = (struct packet_ends){ 0 };
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == SOL_IP && c->cmsg_type == IP_ORIGDSTADDR && c->cmsg_len >= CMSG_LEN(sizeof(struct sockaddr_in)))
			memcpy(&ss, CMSG_DATA(c), sizeof(struct sockaddr_in));
		else if (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_ORIGDSTADDR && c->cmsg_len >= CMSG_LEN(sizeof(struct sockaddr_in6)))
			memcpy(&ss, CMSG_DATA(c), sizeof(struct sockaddr_in6));
	}
	struct addr a = addr_of(from, &ret->from_port), to = addr_of(&ss, &ret->to_port);
	memcpy(ret->from, a.b, sizeof ret->from);
	memcpy(ret->to, to.b, sizeof ret->to);
	ret->v6 = to.family == 6;
	return to.family && to.family == a.family && ret->from_port;
}

void udp_take(struct box *b, struct source *s)
{
	uint8_t *bytes = b->edge->buffer;
	struct packet_ends ends;
	union {
		struct cmsghdr align;
		char room[256];
	} control;

	for (int i = 0; i < DATAGRAMS_A_TURN && s->fd >= 0; i++) {
		struct sockaddr_storage from = { 0 };
		struct iovec iov = { bytes, COPY_BUFFER };
		struct msghdr m = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
				    .msg_controllen = sizeof control };
		ssize_t n = recvmsg(s->fd, &m, MSG_DONTWAIT);
		if (n < 0)
			return;
		if (read_ends(&m, &from, &ends))
			pass_up(b, &ends, bytes, (size_t)n);
	}
}

void udp_on_far(struct udp_flow *f)
{
	uint8_t *bytes = f->box->edge->buffer;
	bool ended = false;

	for (int i = 0; i < DATAGRAMS_A_TURN && !ended; i++) {
		ssize_t n = recv(f->far.fd, bytes, COPY_BUFFER, MSG_DONTWAIT); /* 0 is a datagram without bytes */
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			put_news(f->box, &f->ends, errno);
			continue;
		}
		f->answered = true;
		if (may_pass(f, false, (size_t)n, &ended)) {
			f->down_bytes += (size_t)n;
			put_datagram(f, bytes, (size_t)n);
		}
	}
}

void udp_rejudge(struct box *b)
{
	struct udp_flow *f, *next;

	DL_FOREACH_SAFE (b->udp.flows, f, next) {
		const char *name = f->name, *reason = judge(b, &f->addr, f->ends.to_port, &name);
		if (reason)
			cut(f, reason);
		else if (name && !f->name)
			f->name = xstrdup(name);
	}
}

void udp_drop(struct box *b)
{
	while (b->udp.flows)
		end(b->udp.flows);
}

void udp_sweep(struct edge *e, uint64_t now)
{
	struct box *b, *next_box;
	struct udp_flow *f, *next;

	HASH_ITER (hh, e->boxes, b, next_box)
		DL_FOREACH_SAFE (b->udp.flows, f, next)
			if (now >= f->last_ms + (f->answered ? SILENT_MS : UNANSWERED_MS))
				end(f);
}
