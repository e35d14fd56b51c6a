/* Connections of sandboxes.
 *
 *   FIRST   accepted; what it goes to depends on its first bytes, which are waited for
 *   ASK     accepted on port 53: questions of names are read and answered here (ask.c); there is no other side
 *   DIAL    judged; the other side has been asked
 *   OPEN    both sides are there; bytes are copied
 *   DRAIN   both have ended; one has not taken its last bytes yet, which the kernel would keep on nobody's account
 *   DEAD    closed; freed at the end of the turn
 *
 * accepted -> FIRST -> DIAL -> OPEN (-> DRAIN) -> DEAD; what needs no look at its bytes skips FIRST; accepted -> ASK -> DEAD; any -> DEAD. A connection that may go anywhere
 * but to some names (unjudged) is opened first, since the server may have to speak first, and its client's bytes are held until they are
 * judged.
 *
 * Bytes are read into one buffer that all share and written at once; what the other side does not take stays with the connection,
 * and nothing more is read until it is gone. Sockets are edge-triggered: a side is asked until it says EAGAIN. */
#include "egress/edge_int.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_A_TURN	64
#define BYTES_A_TURN	(1U << 20)
#define NEW_FLOWS_RATE	NETWORK_CONNECTIONS_RATE_MAX
#define NEW_FLOWS_BURST 8000

struct addr addr_of(const struct sockaddr_storage *ss, uint16_t *ret_port)
{
	struct sockaddr_in a4;
	struct sockaddr_in6 a6;
	struct addr a = { 0 };

	if (ss->ss_family == AF_INET) {
		memcpy(&a4, ss, sizeof a4);
		a.family = 4;
		memcpy(a.b, &a4.sin_addr, 4);
		*ret_port = ntohs(a4.sin_port);
	} else if (ss->ss_family == AF_INET6) {
		memcpy(&a6, ss, sizeof a6);
		a.family = 6;
		memcpy(a.b, &a6.sin6_addr, 16);
		*ret_port = ntohs(a6.sin6_port);
	} else {
		*ret_port = 0;
	}
	return a;
}

static void reset_on_close(int fd)
{
	const struct linger now = { 1, 0 };
	if (fd >= 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static void set_options(int fd)
{
	const int one = 1;
	(void)setsockopt(fd, SOL_TCP, TCP_NODELAY, &one, sizeof one); /* the sender has decided already what goes together */
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
}

static void enter_state(struct flow *f, enum flow_state state, uint64_t within_ms)
{
	struct edge *e = f->box->edge;
	bool was = f->state < FLOW_OPEN, will = state < FLOW_OPEN;

	if (was && f->deadline_ms)
		DL_DELETE2(e->waiting, f, wait_prev, wait_next);
	f->state = state; /* those before FLOW_OPEN have an end */
	f->deadline_ms = will ? now_ms() + within_ms : 0;
	if (will)
		DL_APPEND2(e->waiting, f, wait_prev, wait_next);
}

void flow_free(struct flow *f)
{
	first_done(f);
	free(f->up.rest);
	free(f->down.rest);
	free(f->name);
	free(f->ask);
	free(f);
}

void flow_kill(struct flow *f, bool reset)
{
	struct box *b = f->box;
	struct edge *e = b->edge;

	if (f->state == FLOW_DEAD)
		return;
	if ((f->state == FLOW_OPEN || f->state == FLOW_DRAIN) && !f->behind)
		edge_tell(b, EDGE_CLOSED, true, f->port, (struct verdict_text){ &f->addr, f->name, NULL, POLICY_TCP },
			  &(struct flow_end){ f->up.bytes, f->down.bytes, f->started_ms });
	enter_state(f, FLOW_DEAD, 0);
	if (f->ask && ask_lookup(f))
		name_forget(ask_lookup(f));
	if (reset) {
		reset_on_close(f->client.fd);
		reset_on_close(f->server.fd);
	}
	hold_forget(f);
	edge_unwatch(e, &f->client);
	edge_unwatch(e, &f->server);
	b->kept -= f->up.rest_len + f->down.rest_len;
	DL_DELETE(b->flows, f);
	b->n_flows--;
	e->n_flows--;
	b->n_behind -= f->behind;
	f->wait_next = e->dead;
	e->dead = f;
}

static void refuse(struct flow *f, const char *reason)
{
	edge_tell(f->box, EDGE_CONNECT, false, f->port, (struct verdict_text){ &f->addr, f->name, reason, POLICY_TCP }, NULL);
	flow_kill(f, true);
}

const char used_up[] = "the bytes it may move are used up";

/* --- judging --- */

static void dial(struct flow *f)
{
	struct edge *e = f->box->edge;
	int fd = -EBADF, rc = edge_dial(e, &f->addr, f->port, SOCK_STREAM, false, &fd);

	if (rc < 0 && rc != -EINPROGRESS) {
		refuse(f, rc == -EACCES ? "an address that is never reachable" : strerror(-rc));
		return;
	}
	f->server = (struct source){ SOURCE_SERVER, fd, f };
	set_options(fd);
	enter_state(f, FLOW_DIAL, DIAL_WITHIN_MS);
	if (edge_watch(e, &f->server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) < 0)
		refuse(f, "out of memory");
}

/* Looks at what there is of the client's first bytes, which stay where they are. */
static enum first look(struct flow *f, const char **ret_reason)
{
	uint8_t *p = f->box->edge->buffer;
	ssize_t n = recv(f->client.fd, p, FIRST_MAX, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return FIRST_WAIT;
	if (n <= 0) {
		*ret_reason = NULL; /* it has gone; there is nothing to tell */
		return FIRST_REFUSE;
	}
	return first_judge(f, p, (size_t)n, ret_reason);
}

static void look_and_dial(struct flow *f)
{
	const char *reason = NULL;

	switch (look(f, &reason)) {
	case FIRST_WAIT:
		break;
	case FIRST_PASS:
		f->unjudged = false;
		dial(f);
		break;
	case FIRST_REFUSE:
		if (reason)
			refuse(f, reason);
		else
			flow_kill(f, true);
		break;
	}
}

/* What is to become of it, by its address. NULL, or why not. */
static const char *judge(struct flow *f)
{
	struct box *b = f->box;
	bool raw = false;

	if (!b->has_policy)
		return "no policy";
	struct judgement j = policy_judge_address(&b->policy, &b->edge->net, &f->addr, f->port, POLICY_TCP);
	f->by_name = j.verdict == VERDICT_BY_NAME;
	if (j.verdict == VERDICT_ALLOW && b->policy.mode == NETWORK_PUBLIC && b->asked.n_allow && f->port == 853)
		return "encrypted name service would hide names that are asked for";
	f->unjudged = j.look || f->by_name || b->asked.n_allow || opens_port(b, f->port) || reads_port(b, f->port);
	if (j.verdict == VERDICT_DENY)
		return j.reason;
	if (!f->by_name)
		return NULL;
	const char *name = pin_find(b, &f->addr, f->port, POLICY_TCP, NULL, &raw);
	if (!name)
		return j.reason;
	if (raw && !reads_addr(b, &f->addr, f->port)) {
		f->unjudged = false;
		f->name = xstrdup(name);
	}
	return NULL;
}

const char *over_limits(struct box *b, size_t open)
{
	uint64_t rate = b->limits.connections_per_second, own = b->limits.connections;
	uint64_t most = b->edge->n_flows < b->edge->many_flows ? FLOWS_MAX : FLOWS_FAIR;

	if (open > (own ? MIN(own, most) : most) && !udp_give_way(b))
		return "too many connections";
	if (!bucket_take(&b->new_flows, rate ? (double)rate : NEW_FLOWS_RATE, rate ? (double)rate : NEW_FLOWS_BURST))
		return "too many new connections a second";
	return b->limits.bytes && b->moved >= b->limits.bytes ? used_up : NULL;
}

struct flow *flow_behind(struct flow *f, int fd)
{
	struct flow *g = xcalloc(1, sizeof *g);

	*g = (struct flow){ .box = f->box, .client = { SOURCE_CLIENT, fd, g }, .server = { SOURCE_SERVER, f->server.fd, g }, .addr = f->addr, .port = f->port,
			    .by_name = f->by_name, .name = xstrdup(f->name), .started_ms = f->started_ms, .behind = true };
	g->up = (struct half){ .from = &g->client, .to = &g->server, .readable = true, .writable = true };
	g->down = (struct half){ .from = &g->server, .to = &g->client, .readable = true, .writable = true };
	DL_APPEND(f->box->flows, g);
	f->box->n_flows++;
	f->box->n_behind++;
	f->box->edge->n_flows++;
	g->state = FLOW_OPEN;
	g->queued = true;
	g->run_next = f->box->edge->run;
	f->box->edge->run = g;
	return g;
}

static void begin(struct box *b, int fd)
{
	struct flow *f = xcalloc(1, sizeof *f);
	struct sockaddr_storage ss;
	socklen_t len = sizeof ss;

	*f = (struct flow){ .box = b, .client = { SOURCE_CLIENT, fd, f }, .server = { SOURCE_SERVER, -EBADF, f }, .started_ms = now_ms() };
	f->up = (struct half){ .from = &f->client, .to = &f->server };
	f->down = (struct half){ .from = &f->server, .to = &f->client };
	DL_APPEND(b->flows, f);
	b->n_flows++;
	b->edge->n_flows++;
	enter_state(f, FLOW_FIRST, FIRST_WITHIN_MS);
	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0) {
		flow_kill(f, true);
		return;
	}
	f->addr = addr_of(&ss, &f->port);
	const char *reason = over_limits(b, b->n_flows - b->n_behind + b->udp.n);
	bool asks = f->port == 53; /* of whatever address: every resolver is ours */
	if (!reason && !asks)
		reason = judge(f);
	if (reason) {
		refuse(f, reason);
		return;
	}
	set_options(fd);
	hold_weigh(f);
	if (edge_watch(b->edge, &f->client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) < 0) {
		refuse(f, "out of memory");
		return;
	}
	if (asks) {
		ask_begin(f);
		flow_ask_again(f);
		ask_run(f);
	} else if (f->unjudged && f->by_name) {
		look_and_dial(f);
	} else {
		dial(f);
	}
}

void flow_ask_again(struct flow *f)
{
	enter_state(f, FLOW_ASK, FIRST_WITHIN_MS);
}

/* Left in the backlog it would be told of again and again. */
static void refuse_one(struct edge *e, struct source *listener)
{
	static struct bucket lines;

	if (bucket_take(&lines, 0.1, 1))
		log_error("msg=\"out of file descriptors: connections are refused\"");
	e->reserve = close_fd(e->reserve);
	int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	reset_on_close(fd);
	close_fd(fd);
	e->reserve = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

void flow_accept(struct box *b, struct source *listener)
{
	struct edge *e = b->edge;

	for (int i = 0; i < ACCEPTS_A_TURN && listener->fd >= 0; i++) {
		int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			begin(b, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE) {
			refuse_one(e, listener);
			break;
		}
		if (errno != EINTR && errno != ECONNABORTED)
			break;
	}
}

/* --- copying --- */

/* True while the client's bytes may go on. */
static bool judged(struct flow *f)
{
	const char *reason = NULL;

	if (!f->unjudged)
		return true;
	switch (look(f, &reason)) {
	case FIRST_WAIT:
		f->up.readable = false; /* more of it is told by the next edge */
		return false;
	case FIRST_PASS:
		f->unjudged = false;
		return true;
	case FIRST_REFUSE:
		if (reason)
			refuse(f, reason);
		else
			flow_kill(f, true);
		return false;
	}
	return false;
}

/* What was read and not taken yet. 1 = all gone, 0 = later, negative = broken. */
static int write_rest(struct flow *f, struct half *h)
{
	while (h->rest_len) {
		ssize_t n = send(h->to->fd, h->rest + h->rest_at, h->rest_len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			h->writable = false;
			return 0;
		}
		if (n < 0)
			return -errno;
		h->rest_at += (size_t)n;
		h->rest_len -= (size_t)n;
		f->box->kept -= (size_t)n;
	}
	free(take_ptr(&h->rest));
	h->rest_at = 0;
	return 1;
}

/* Allowed bytes: on their way, or kept. */
static int pass_on(struct flow *f, struct half *h, const uint8_t *p, size_t n)
{
	size_t sent = 0;

	h->bytes += n;
	while (sent < n) {
		ssize_t k = send(h->to->fd, p + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno != EAGAIN)
			return -errno;
		if (k < 0) {
			h->writable = false;
			h->rest = xmemdup(p + sent, n - sent);
			h->rest_len = n - sent;
			f->box->kept += h->rest_len;
			return 0;
		}
		sent += (size_t)k;
	}
	return 0;
}

/* The bytes of one direction of HTTP or TLS that is followed. Negative: refused or broken. */
static int inspect(struct flow *f, struct half *h, const uint8_t *p, size_t n)
{
	const char *reason = NULL;

	if (h == &f->down) {
		f->up.readable = f->up.readable || f->hold; /* what it says lets the client's bytes go on */
		first_server_says(f, p, n);
		return 0;
	}
	if (first_follow(f, p, n, &reason) == FIRST_PASS)
		return 0;
	refuse(f, reason ? reason : "refused");
	return -EACCES;
}

struct bucket *box_rate(struct box *b, bool up)
{
	struct bucket *k = up ? &b->up_bytes : &b->down_bytes;
	double rate = (double)b->limits.bytes_per_second;

	if (rate <= 0)
		return NULL;
	bucket_fill(k, rate, MAX(rate / 10, 1024.0));
	return k;
}

bool box_moved(struct box *b, bool up, size_t n)
{
	b->moved += n;
	if (b->limits.bytes_per_second)
		(up ? &b->up_bytes : &b->down_bytes)->tokens -= (double)n;
	return !b->limits.bytes || b->moved <= b->limits.bytes;
}

/* How much may be read now; 0: the sandbox's rate is used up for this moment. */
static size_t may_read(struct flow *f, const struct half *h)
{
	struct box *b = f->box;
	struct bucket *rate = f->behind ? NULL : box_rate(b, h == &f->up);
	/* A sandbox that does not read must not fill our memory by a thousand connections. */
	size_t n = b->kept > KEPT_MAX ? KEPT_LITTLE : COPY_BUFFER;

	if (f->behind)
		return n;
	if (b->limits.bytes)
		n = (size_t)MIN((uint64_t)n, b->limits.bytes > b->moved ? b->limits.bytes - b->moved : 1);
	if (rate) {
		n = MIN(n, (size_t)MAX(rate->tokens, 0.0));
		if (n == 0)
			b->throttled = b->edge->throttled = true;
	}
	return n;
}

/* Counts what was read. False: that was more than the sandbox may have altogether, and the connection has ended. */
static bool may_pass(struct flow *f, const struct half *h, size_t n)
{
	if (f->behind || box_moved(f->box, h == &f->up, n))
		return true;
	refuse(f, used_up);
	return false;
}

void flows_after_throttle(struct box *b)
{
	size_t n = b->n_flows;

	b->throttled = false;
	for (size_t i = 0; i <= n && b->flows; i++) { /* the first of the last time is not the first of this one */
		struct flow *f = b->flows;
		DL_DELETE(b->flows, f);
		DL_APPEND(b->flows, f);
		if (i > 0 && f->state == FLOW_OPEN)
			flow_run(f);
	}
}

/* One direction, until there is nothing to do or its turn is used up (1). 0 = waits, negative = broken or refused. */
static int copy(struct flow *f, struct half *h)
{
	uint8_t *buffer = f->box->edge->buffer;
	size_t moved = 0;

	while (moved < BYTES_A_TURN) {
		if (h->rest_len) {
			int rc = write_rest(f, h);
			if (rc <= 0)
				return rc;
		}
		if (h->ended) {
			if (!h->told) {
				h->told = true;
				(void)shutdown(h->to->fd, SHUT_WR);
			}
			return 0;
		}
		if (!h->readable || (h == &f->up && f->hold))
			return 0;
		if (h == &f->up && !judged(f))
			return f->state == FLOW_DEAD ? -EACCES : 0;
		if (f->to_open && !flow_hand_over(f)) {
			refuse(f, "what is sent to this host cannot be opened: the opener does not run, or the host speaks first");
			return -EACCES;
		}
		size_t want = may_read(f, h);
		if (want == 0)
			return 0;
		ssize_t n = recv(h->from->fd, buffer, want, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			h->readable = false;
			return 0;
		}
		if (n < 0)
			return -errno;
		if (n == 0) {
			h->ended = true;
			continue;
		}
		moved += (size_t)n;
		if (!may_pass(f, h, (size_t)n))
			return -EACCES;
		int rc = f->http || f->tls ? inspect(f, h, buffer, (size_t)n) : 0;
		if (rc == 0)
			rc = pass_on(f, h, buffer, (size_t)n);
		if (rc < 0)
			return rc;
	}
	return 1;
}

static size_t owed_to(int fd)
{
	int n = 0;

	return ioctl(fd, SIOCOUTQ, &n) == 0 && n > 1 ? (size_t)n : 0; /* one is the end itself */
}

/* Until both sides have what is theirs. */
static void drain(struct flow *f)
{
	size_t owed = owed_to(f->client.fd) + owed_to(f->server.fd);

	if (owed == 0) {
		flow_kill(f, false);
	} else if (f->state != FLOW_DRAIN || owed < f->owed) {
		f->owed = owed;
		enter_state(f, FLOW_DRAIN, DRAIN_WITHIN_MS);
		hold_weigh(f);
	}
}

void flow_run(struct flow *f)
{
	struct edge *e = f->box->edge;
	int down = copy(f, &f->down), up = f->state == FLOW_DEAD ? -EACCES : copy(f, &f->up);

	if (f->state == FLOW_DEAD)
		return;
	if (up < 0 || down < 0) {
		flow_kill(f, true);
		return;
	}
	if (f->up.told && f->down.told) {
		drain(f);
		return;
	}
	hold_weigh(f);
	/* The answer to an upgrade lets the client's bytes go on. */
	bool again = up > 0 || down > 0 || (f->up.readable && !f->hold && !f->up.rest_len && !f->up.ended && !f->box->throttled);
	if (again && !f->queued) {
		f->queued = true;
		f->run_next = e->run;
		e->run = f;
	}
}

/* --- events --- */

void flow_on_client(struct flow *f, uint32_t events)
{
	if (f->state == FLOW_DEAD)
		return;
	if (events & EPOLLERR) {
		flow_kill(f, true);
		return;
	}
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP))
		f->up.readable = true;
	if (events & EPOLLOUT)
		f->down.writable = true;
	if (f->state == FLOW_ASK && f->up.readable)
		ask_run(f);
	else if (f->state == FLOW_FIRST && f->up.readable)
		look_and_dial(f);
	else if (f->state == FLOW_OPEN)
		flow_run(f);
	else if (f->state == FLOW_DRAIN)
		drain(f);
}

/* The host itself, by whatever way: the kernel chooses the very address as the source then. */
bool is_ourselves(int fd, const struct addr *a)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof ss;
	uint16_t port;

	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return true;
	struct addr own = addr_of(&ss, &port);
	return addr_eq(&own, a);
}

static void connected(struct flow *f)
{
	int error = 0;
	socklen_t len = sizeof error;
	struct sockaddr_storage ss;
	socklen_t peer_len = sizeof ss;
	uint16_t port;

	if (getsockopt(f->server.fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (error) {
		edge_tell(f->box, EDGE_CONNECT, true, f->port, (struct verdict_text){ &f->addr, f->name, strerror(error), POLICY_TCP }, NULL);
		flow_kill(f, true);
		return;
	}
	if (getpeername(f->server.fd, (struct sockaddr *)&ss, &peer_len) < 0)
		return; /* not yet */
	struct addr peer = addr_of(&ss, &port);
	if (!addr_eq(&peer, &f->addr) || port != f->port || is_ourselves(f->server.fd, &f->addr)) {
		refuse(f, "an address of this host");
		return;
	}
	hold_join(f);
	enter_state(f, FLOW_OPEN, 0);
	edge_tell(f->box, EDGE_CONNECT, true, f->port, (struct verdict_text){ &f->addr, f->name, NULL, POLICY_TCP }, NULL);
	f->up.readable = f->down.readable = f->up.writable = f->down.writable = true;
	flow_run(f);
}

void flow_on_server(struct flow *f, uint32_t events)
{
	if (f->state == FLOW_DIAL && events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
		connected(f);
		return;
	}
	if (f->state == FLOW_DRAIN && events & EPOLLERR)
		flow_kill(f, true);
	else if (f->state == FLOW_DRAIN)
		drain(f);
	if (f->state != FLOW_OPEN)
		return;
	if (events & EPOLLERR) {
		f->down.readable = true; /* what it sent before it broke is the client's */
		(void)copy(f, &f->down);
		flow_kill(f, true);
		return;
	}
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP))
		f->down.readable = true;
	if (events & EPOLLOUT)
		f->up.writable = true;
	flow_run(f);
}

/* --- changes and deadlines --- */

void flow_rejudge(struct flow *f)
{
	struct box *b = f->box;

	if (f->state == FLOW_DEAD)
		return;
	if (!b->has_policy) {
		refuse(f, "no policy");
		return;
	}
	if (f->state == FLOW_ASK)
		return; /* each question is judged when it comes */
	struct judgement j = policy_judge_address(&b->policy, &b->edge->net, &f->addr, f->port, POLICY_TCP);
	const char *reason = j.verdict == VERDICT_DENY ? j.reason : NULL;
	/* One that went by a name goes on by it; one that did not cannot be asked any more. */
	if (!reason && j.verdict == VERDICT_BY_NAME && f->state != FLOW_FIRST &&
	    (!f->name || !policy_judge_name(&b->policy, f->name, f->port, POLICY_TCP)))
		reason = "the policy has changed";
	if (!reason && f->name && (policy_denies_name(&b->policy, f->name, f->port, POLICY_TCP) || asks_for_name(b, f->name)))
		reason = "the policy has changed";
	if (!reason && f->name && !f->handed && !f->behind && !f->to_open && !f->unjudged && reads_name(b, f->name, f->port))
		reason = "the policy has changed"; /* what it sends would go unread */
	if (!reason && (j.look || b->asked.n_allow || reads_port(b, f->port)) && !f->by_name && !f->name && f->state == FLOW_OPEN && !f->unjudged)
		reason = "the policy has changed"; /* whom it is for is not known, and now it matters */
	if (f->state == FLOW_DIAL && !f->by_name && !f->name)
		f->unjudged = f->unjudged || j.look || b->asked.n_allow || reads_port(b, f->port);
	if (reason) {
		refuse(f, reason);
		return;
	}
	if (f->state == FLOW_FIRST)
		f->by_name = j.verdict == VERDICT_BY_NAME;
}

void flows_sweep(struct edge *e, uint64_t now)
{
	struct flow *f, *next;

	DL_FOREACH_SAFE2 (e->waiting, f, next, wait_next) {
		if (f->state == FLOW_DRAIN)
			drain(f);
		if (f->state == FLOW_DEAD || now < f->deadline_ms)
			continue;
		if (f->state == FLOW_FIRST)
			refuse(f, "nothing that names a host was sent");
		else
			flow_kill(f, f->state != FLOW_ASK);
	}
}
