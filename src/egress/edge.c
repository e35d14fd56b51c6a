#include "egress/edge_int.h"
#include "egress/record.h"

#include "wire/hello.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILES	     (1 << 18) /* a gate takes eight, a connection two */
#define EVENTS	     128
#define SWEEP_MS     250
#define THROTTLE_MS  20 /* between two helpings of a rate of bytes */
#define RECORDS_A_TURN 256
#define EVENTS_RATE  50 /* told to the daemon a second, for each sandbox; more are counted */
#define EVENTS_BURST 500

void bucket_fill(struct bucket *b, double rate, double burst)
{
	uint64_t now = now_ms();

	b->tokens = b->at_ms ? MIN(burst, b->tokens + rate * (double)(now - b->at_ms) / 1000) : burst;
	b->at_ms = now;
}

bool bucket_take(struct bucket *b, double rate, double burst)
{
	bucket_fill(b, rate, burst);
	if (b->tokens < 1)
		return false;
	b->tokens -= 1;
	return true;
}

/* --- descriptors --- */

int edge_watch(struct edge *e, struct source *s, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };
	return epoll_ctl(e->epoll, EPOLL_CTL_ADD, s->fd, &ev) < 0 ? -errno : 0;
}

void edge_unwatch(struct edge *e, struct source *s)
{
	(void)e;
	s->fd = close_fd(s->fd); /* no copy of it exists, so epoll forgets it */
}

socklen_t socket_address(const struct addr *a, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	memset(ret, 0, sizeof *ret);
	memcpy(&a4.sin_addr, a->b, 4);
	memcpy(&a6.sin6_addr, a->b, 16);
	if (a->family == 4)
		memcpy(ret, &a4, sizeof a4);
	else
		memcpy(ret, &a6, sizeof a6);
	return a->family == 4 ? sizeof a4 : sizeof a6;
}

int edge_dial(struct edge *e, const struct addr *a, uint16_t port, int type, bool upstream, int *ret_fd)
{
	struct sockaddr_storage ss;
	socklen_t len = socket_address(a, port, &ss);
	int one = 1, rc = 0;

	if (!upstream && !policy_reachable(&e->net, a))
		return -EACCES;
	auto_fd int fd = socket(a->family == 4 ? AF_INET : AF_INET6, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (a->family == 6)
		(void)setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if (connect(fd, (struct sockaddr *)&ss, len) < 0) {
		if (errno != EINPROGRESS)
			return -errno;
		rc = -EINPROGRESS;
	}
	*ret_fd = take_fd(&fd);
	return rc;
}

/* --- telling --- */

bool edge_tell(struct box *b, enum edge_event_kind kind, bool allowed, unsigned port, struct verdict_text t, const struct flow_end *ended)
{
	struct edge_event ev = { .magic = EDGE_MAGIC, .kind = kind, .allowed = allowed, .port = port, .proto = t.proto };
	struct edge *e = b->edge;
	char addr[ADDR_TEXT_MAX] = "";

	if (t.addr)
		addr_format(t.addr, addr);
	log_debug("sandbox=%s kind=%d allowed=%d addr=%s port=%u name=\"%s\" reason=\"%s\"", b->id, (int)kind, allowed, addr, port, t.name ? t.name : "",
		  t.reason ? t.reason : "");
	if (e->daemon.fd < 0 || !bucket_take(&b->events, EVENTS_RATE, EVENTS_BURST)) {
		b->events_lost++;
		return false;
	}
	snprintf(ev.id, sizeof ev.id, "%s", b->id);
	snprintf(ev.addr, sizeof ev.addr, "%s", addr);
	snprintf(ev.name, sizeof ev.name, "%s", t.name ? t.name : "");
	snprintf(ev.reason, sizeof ev.reason, "%s", t.reason ? t.reason : "");
	ev.lost = b->events_lost;
	if (ended) {
		ev.up_bytes = ended->up_bytes;
		ev.down_bytes = ended->down_bytes;
		ev.duration_ms = now_ms() - ended->started_ms;
	}
	bool sent = send(e->daemon.fd, &ev, sizeof ev, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
	b->events_lost = sent ? 0 : b->events_lost + 1;
	return sent;
}

bool asks_for_name(const struct box *b, const char *name)
{
	return policy_may_resolve(&b->asked, name); /* without rules its mode is NETWORK_NONE */
}

/* --- sandboxes --- */

static struct box *box_get(struct edge *e, const char *id)
{
	struct box *b;

	HASH_FIND_STR(e->boxes, id, b);
	if (b)
		return b;
	b = xcalloc(1, sizeof *b);
	snprintf(b->id, sizeof b->id, "%s", id);
	b->edge = e;
	b->opener = -EBADF;
	for (size_t i = 0; i < EDGE_GATE_FDS; i++)
		b->gate[i].fd = -EBADF;
	HASH_ADD_STR(e->boxes, id, b);
	return b;
}

static void close_gate(struct edge *e, struct box *b)
{
	struct flow *f, *next;

	for (size_t i = 0; i < EDGE_GATE_FDS; i++)
		edge_unwatch(e, &b->gate[i]);
	DL_FOREACH_SAFE (b->flows, f, next)
		flow_kill(f, true);
	udp_drop(b);
	names_drop(b);
	b->has_gate = false;
}

/* Sandboxes live until both the warden and the daemon have done with them; events of this turn may still point at their sockets, so the
 * freeing waits for the sweep. */
static void sweep_boxes(struct edge *e)
{
	struct box *b, *next;

	HASH_ITER (hh, e->boxes, b, next) {
		if (b->has_gate || b->has_policy || b->opened.n_allow || b->flows || b->udp.n || b->lookups)
			continue;
		HASH_DEL(e->boxes, b);
		policy_done(&b->policy);
		policy_done(&b->asked);
		policy_done(&b->read);
		policy_done(&b->opened);
		close_fd(b->opener);
		free(b);
	}
}

static const enum source_kind gate_kinds[EDGE_GATE_FDS] = {
	[EDGE_TCP4] = SOURCE_LISTENER, [EDGE_TCP6] = SOURCE_LISTENER, [EDGE_DNS4] = SOURCE_NAMES, [EDGE_DNS6] = SOURCE_NAMES,
	[EDGE_UDP4] = SOURCE_DATAGRAMS, [EDGE_UDP6] = SOURCE_DATAGRAMS, [EDGE_RAW4] = SOURCE_DATAGRAMS, [EDGE_RAW6] = SOURCE_DATAGRAMS,
};

static void open_gate(struct edge *e, const char *id, const int fds[static EDGE_GATE_FDS])
{
	struct box *b = box_get(e, id);

	if (b->has_gate)
		close_gate(e, b);
	b->has_gate = true;
	for (size_t i = 0; i < EDGE_GATE_FDS; i++) {
		b->gate[i] = (struct source){ gate_kinds[i], fds[i], b };
		if (i != EDGE_RAW4 && i != EDGE_RAW6 && edge_watch(e, &b->gate[i], EPOLLIN) < 0)
			log_warn("sandbox=%s msg=\"a socket of its gate cannot be watched\"", id);
	}
}

/* --- the warden's records --- */

static bool from_warden(struct edge *e)
{
	struct edge_gate g;
	struct iovec iov = { &g, sizeof g };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int) * EDGE_GATE_FDS)];
	} control;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	int fds[EDGE_GATE_FDS];
	size_t n_fds = 0;
	ssize_t n = recvmsg(e->warden.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		return false;
	if (n < 0)
		return true;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			memcpy(fds, CMSG_DATA(c), MIN(n_fds, (size_t)EDGE_GATE_FDS) * sizeof(int));
		}
	bool good = n == sizeof g && g.magic == EDGE_MAGIC && edge_record_id_valid(g.id);
	if (good && g.op == EDGE_GATE_OPEN && n_fds == EDGE_GATE_FDS) {
		open_gate(e, g.id, fds);
		return true;
	}
	for (size_t i = 0; i < n_fds; i++)
		close_fd(fds[i]);
	struct box *b = NULL;
	if (good)
		HASH_FIND_STR(e->boxes, g.id, b);
	if (b && g.op == EDGE_GATE_CLOSE)
		close_gate(e, b);
	return true;
}

/* --- the daemon's records --- */

static void take(struct policy *to, struct policy *from)
{
	policy_done(to);
	*to = *from;
	*from = (struct policy){ 0 };
}

/* What cannot be read reaches nothing. */
static void set_policy(struct edge *e, struct edge_record *r)
{
	struct box *b = box_get(e, r->head.id);
	struct flow *f, *next;

	take(&b->policy, &r->policy);
	take(&b->asked, &r->asked);
	take(&b->read, &r->read);
	b->has_policy = true;
	b->limits = (struct network_limits){ r->head.bytes_per_second, r->head.bytes, r->head.connections, r->head.connections_per_second };
	names_rejudge(b);
	DL_FOREACH_SAFE (b->flows, f, next)
		flow_rejudge(f);
	udp_rejudge(b);
}

/* Which names go to the opener, and where that is. fd is taken. Connections that are open stay what they are;
 * datagrams that would pass by it do not. */
static void set_opened(struct edge *e, struct edge_record *r, int fd)
{
	struct box *b = box_get(e, r->head.id);

	take(&b->opened, &r->policy);
	close_fd(b->opener);
	b->opener = fd;
	udp_rejudge(b);
}

static void forget_policy(struct edge *e, struct edge_record *r)
{
	struct box *b;

	HASH_FIND_STR(e->boxes, r->head.id, b);
	if (!b)
		return;
	set_policy(e, r);
	policy_done(&b->opened);
	b->opener = close_fd(b->opener);
	b->has_policy = false;
}

/* With the descriptor that comes along, or -EBADF. */
static ssize_t receive(int socket, void *bytes, size_t size, int *ret_fd)
{
	struct iovec iov = { bytes, size };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	ssize_t n = recvmsg(socket, &m, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);

	*ret_fd = -EBADF;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
	return n;
}

/* One record; false when there is none. */
static bool from_daemon(struct edge *e)
{
	static _Alignas(8) char in[sizeof(struct edge_policy) + EDGE_POLICY_TEXT_MAX];
	struct edge_record r;
	auto_fd int fd = -EBADF;
	ssize_t n = receive(e->daemon.fd, in, sizeof in, &fd);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		/* The daemon has ended; so does the warden, and with it we. Until then the policies hold. */
		edge_unwatch(e, &e->daemon);
		return false;
	}
	int rc = edge_record_read(in, (size_t)n, &r);
	if (rc == -EBADMSG) {
		log_warn("msg=\"a record that is no policy was ignored\" size=%zd", n);
		return true;
	}
	if (rc < 0)
		log_error("sandbox=%s msg=\"its rules cannot be read: it reaches nothing\"", r.head.id);
	if (r.head.op == EDGE_POLICY_OPEN && rc == 0)
		set_opened(e, &r, take_fd(&fd));
	else if (r.head.op == EDGE_POLICY_FORGET)
		forget_policy(e, &r);
	else /* names to be opened that cannot be read: everything else would pass them by */
		set_policy(e, &r);
	edge_record_done(&r);
	return true;
}

/* --- the loop --- */

/* Before anything new is judged: whoever was told that a policy holds must find it so, whatever order the events come in. */
static void drain_daemon(struct edge *e)
{
	for (int i = 0; i < RECORDS_A_TURN && e->daemon.fd >= 0 && from_daemon(e); i++)
		;
}

static bool dispatch(struct edge *e, struct source *s, uint32_t events)
{
	if (s->fd < 0)
		return true; /* closed by an earlier event of this turn */
	switch (s->kind) {
	case SOURCE_WARDEN:
		return from_warden(e);
	case SOURCE_DAEMON:
		drain_daemon(e);
		break;
	case SOURCE_HOST:
		host_changed(e);
		break;
	case SOURCE_LISTENER:
		drain_daemon(e);
		flow_accept(s->owner, s);
		break;
	case SOURCE_NAMES:
		drain_daemon(e);
		name_ask(s->owner, s);
		break;
	case SOURCE_DATAGRAMS:
		drain_daemon(e);
		udp_take(s->owner, s);
		break;
	case SOURCE_FAR:
		udp_on_far(s->owner);
		break;
	case SOURCE_CLIENT:
		flow_on_client(s->owner, events);
		break;
	case SOURCE_SERVER:
		flow_on_server(s->owner, events);
		break;
	case SOURCE_UPSTREAM:
		name_reply(s->owner);
		break;
	}
	return true;
}

/* Those that used up their turn; whoever is not through goes to the end of the next round. */
static void run_queue(struct edge *e)
{
	struct flow *f = take_ptr(&e->run), *next;

	for (; f; f = next) {
		next = f->run_next;
		f->queued = false;
		if (f->state == FLOW_OPEN)
			flow_run(f);
	}
}

static void bury(struct edge *e)
{
	/* Whoever is queued to run is looked at once more: its time comes first. */
	for (struct flow **at = &e->dead; *at;) {
		struct flow *f = *at;
		if (f->queued) {
			at = &f->wait_next;
			continue;
		}
		*at = f->wait_next;
		flow_free(f);
	}
	lookups_bury(e);
	udp_bury(e);
}

static void run_throttled(struct edge *e)
{
	struct box *b, *next;

	e->throttled = false; /* set again by whoever still has to wait */
	HASH_ITER (hh, e->boxes, b, next)
		if (b->throttled)
			flows_after_throttle(b);
}

static void loop(struct edge *e)
{
	struct epoll_event events[EVENTS];
	uint64_t swept = now_ms(), filled = swept;

	while (!e->ending) {
		int n = epoll_wait(e->epoll, events, EVENTS, e->run ? 0 : e->throttled ? THROTTLE_MS : SWEEP_MS);
		if (n < 0 && errno != EINTR)
			return;
		for (int i = 0; i < n; i++)
			if (!dispatch(e, events[i].data.ptr, events[i].events))
				return;
		run_queue(e);
		uint64_t now = now_ms();
		if (e->throttled && now - filled >= THROTTLE_MS) {
			run_throttled(e);
			filled = now;
		}
		bury(e);
		if (now - swept >= SWEEP_MS) {
			flows_sweep(e, now);
			names_sweep(e, now);
			udp_sweep(e, now);
			hold_sweep(e);
			bury(e);
			sweep_boxes(e);
			swept = now;
		}
	}
}

static int prepare(struct edge *e, const struct edge_options *o)
{
	const struct rlimit many = { FILES, FILES };
	struct rlimit files;

	(void)signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && (files.rlim_max >= FILES || setrlimit(RLIMIT_NOFILE, &many) < 0)) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	e->many_flows = getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur / 4 : 0; /* each has two */
	e->epoll = epoll_create1(EPOLL_CLOEXEC);
	e->buffer = xmalloc(COPY_BUFFER);
	e->room = xmalloc(HELLO_MAX);
	e->reserve = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	hold_prepare(e);
	int rc = e->epoll < 0 ? -errno : nets_parse(o->lan ? o->lan : "", &e->net.lan);
	if (rc == 0)
		rc = resolvers_read(e, o->resolvers);
	if (rc == 0)
		rc = host_open(e);
	if (rc == 0)
		rc = edge_watch(e, &e->warden, EPOLLIN);
	if (rc == 0)
		rc = edge_watch(e, &e->daemon, EPOLLIN);
	if (rc == 0)
		rc = edge_watch(e, &e->host, EPOLLIN);
	return rc == 0 ? jail_edge(o) : rc;
}

int edge_main(int warden, int daemon, const struct edge_options *o)
{
	static struct edge e; /* a process has one; what it holds goes with it */

	log_set_name("edge");
	log_set_level(o->log_level);
	e.warden = (struct source){ SOURCE_WARDEN, warden, NULL };
	e.daemon = (struct source){ SOURCE_DAEMON, daemon, NULL };
	int rc = prepare(&e, o);
	if (rc < 0) {
		log_error("msg=\"cannot start: %s\"", strerror(-rc));
		return 1;
	}
	log_info("msg=ready resolvers=%zu", e.n_resolvers);
	if (send(warden, "+", 1, MSG_NOSIGNAL) != 1) /* to whoever waits for it to be jailed */
		return 1;
	loop(&e);
	return 0;
}
