/* The resolver of the sandboxes, and what it has told them.
 *
 * A question is judged by its name before anything leaves the host: a name that may not be asked is answered "no such name" here, so it
 * cannot carry data out. Only A and AAAA are looked up; every other type of an allowed name has no records. The answer is addresses
 * alone, under the name asked for, and never one that could not be dialled: what a stranger's name server says about our network is
 * not passed on. A name that somebody has to be asked for waits here. */
#include "base/buf.h"
#include "egress/edge_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUESTIONS_A_TURN 64
#define QUESTIONS_RATE	 100 /* a second */
#define QUESTIONS_BURST	 500
#define LOOKUPS_ALL_MAX	 8192
#define QUESTION_MAX	 300 /* bytes of one of ours */
#define TRY_MS		 2000
#define TRIES		 4
#define PIN_MIN_S	 60
#define TTL_MAX_S	 300
#define PIN_GRACE_MS	 5000
#define HELD_MAX	 64 /* questions of a sandbox that wait for somebody's word */

struct stream { /* a question by a connection */
	size_t sent, n;
	uint8_t out[2 + QUESTION_MAX], in[2 + DNS_MESSAGE_MAX];
};

struct lookup {
	struct box *box;
	struct source upstream;
	struct stream *stream; /* NULL: it is asked by a datagram */
	struct asker asker;
	struct dns_query query;
	char name[POLICY_NAME_MAX + 1];
	uint8_t asked[QUESTION_MAX];
	size_t asked_len;
	unsigned tries;
	uint64_t deadline_ms;
	bool held, told; /* its name is asked for; the daemon knows */
	bool dead;
	struct lookup *prev, *next;
};

/* --- pins --- */

static void pin_free(struct box *b, struct pin *p)
{
	DL_DELETE(b->pins, p);
	b->n_pins--;
	free(p->name);
	free(p);
}

static void pin_add(struct box *b, const char *name, const struct addr *a, uint32_t ttl)
{
	uint64_t until = now_ms() + (uint64_t)MAX(ttl, (uint32_t)PIN_MIN_S) * 1000 + PIN_GRACE_MS;
	struct pin *p, *first_over = b->pins;

	DL_FOREACH (b->pins, p) {
		if (addr_eq(&p->addr, a) && streq(p->name, name)) {
			p->until_ms = MAX(p->until_ms, until);
			return;
		}
		if (p->until_ms < first_over->until_ms)
			first_over = p;
	}
	if (b->n_pins >= PINS_MAX)
		pin_free(b, first_over);
	p = xcalloc(1, sizeof *p);
	*p = (struct pin){ .name = xstrdup(name), .addr = *a, .until_ms = until };
	DL_PREPEND(b->pins, p);
	b->n_pins++;
}

const char *pin_find(struct box *b, const struct addr *a, uint16_t port, enum policy_proto proto, const char *name, bool *ret_raw)
{
	const char *found = NULL;
	uint64_t now = now_ms();
	struct pin *p;

	DL_FOREACH (b->pins, p) {
		if (p->until_ms < now || !addr_eq(&p->addr, a) || (name && !streq(p->name, name)))
			continue;
		const struct policy_rule *r = policy_judge_name(&b->policy, p->name, port, proto);
		if (!r)
			continue;
		if (r->raw && ret_raw)
			*ret_raw = true;
		if (r->raw || !found)
			found = p->name;
		if (r->raw)
			break;
	}
	return found;
}

bool pin_of_name(struct box *b, const struct addr *a, const char *name)
{
	uint64_t now = now_ms();
	struct pin *p;

	DL_FOREACH (b->pins, p)
		if (p->until_ms >= now && addr_eq(&p->addr, a) && streq(p->name, name))
			return true;
	return false;
}

bool pin_of_rules(struct box *b, const struct addr *a, uint16_t port, const struct policy *rules)
{
	struct pin *p;

	/* Also one whose time is over, as long as it is here. */
	DL_FOREACH (b->pins, p)
		if (addr_eq(&p->addr, a) && policy_judge_name(rules, p->name, port, POLICY_TCP))
			return true;
	return false;
}

static void held_rejudge(struct box *b);

void names_rejudge(struct box *b)
{
	struct pin *p, *next;

	held_rejudge(b);
	DL_FOREACH_SAFE (b->pins, p, next)
		if (!policy_may_resolve(&b->policy, p->name) || asks_for_name(b, p->name) || !policy_may_answer(&b->policy, &b->edge->net, &p->addr))
			pin_free(b, p);
}

/* --- lookups --- */

static void lookup_end(struct lookup *l)
{
	struct edge *e = l->box->edge;

	if (l->dead)
		return;
	l->dead = true;
	if (l->asker.flow)
		ask_waits(l->asker.flow, NULL);
	edge_unwatch(e, &l->upstream);
	DL_DELETE(l->box->lookups, l);
	l->box->n_lookups--;
	e->n_lookups--;
	l->next = e->dead_lookups;
	e->dead_lookups = l;
}

void lookups_bury(struct edge *e)
{
	while (e->dead_lookups) {
		struct lookup *l = e->dead_lookups;
		e->dead_lookups = l->next;
		free(l->stream);
		free(l);
	}
}

void names_drop(struct box *b)
{
	while (b->lookups)
		lookup_end(b->lookups);
	while (b->pins)
		pin_free(b, b->pins);
}

void name_forget(struct lookup *l)
{
	lookup_end(l);
}

/* From the address that was asked. */
static void send_datagram(const struct asker *to, const uint8_t *p, size_t n)
{
	const union {
		const uint8_t *in;
		uint8_t *out;
	} bytes = { p };
	union {
		const struct sockaddr_storage *in;
		struct sockaddr_storage *out;
	} name = { &to->from };
	struct iovec iov = { bytes.out, n };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	} control = { 0 };
	struct msghdr m = { .msg_name = name.out, .msg_namelen = to->from_len, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control };
	struct in_pktinfo i4 = { 0 };
	struct in6_pktinfo i6 = { 0 };
	bool v4 = to->to.family == 4;

	memcpy(&i4.ipi_spec_dst, to->to.b, 4);
	memcpy(&i6.ipi6_addr, to->to.b, 16);
	m.msg_controllen = v4 ? CMSG_SPACE(sizeof i4) : CMSG_SPACE(sizeof i6);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = v4 ? SOL_IP : SOL_IPV6;
	c->cmsg_type = v4 ? IP_PKTINFO : IPV6_PKTINFO;
	c->cmsg_len = v4 ? CMSG_LEN(sizeof i4) : CMSG_LEN(sizeof i6);
	if (v4)
		memcpy(CMSG_DATA(c), &i4, sizeof i4);
	else
		memcpy(CMSG_DATA(c), &i6, sizeof i6);
	(void)sendmsg(to->names->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL); /* lost as datagrams are: it is asked again */
}

static void answer(const struct asker *to, const struct dns_query *q, int rcode, const uint8_t *addrs, size_t n, uint32_t ttl)
{
	uint8_t out[DNS_TCP_MAX];
	size_t len = dns_answer_write(q, rcode, addrs, n, q->type == DNS_AAAA ? 16 : 4, ttl, out, to->flow ? sizeof out : DNS_UDP_MAX);

	if (len && to->flow)
		ask_answer(to->flow, out, len);
	else if (len)
		send_datagram(to, out, len);
}

/* Whoever asked may have another question. */
static void finish(struct lookup *l, int rcode, const uint8_t *addrs, size_t n, uint32_t ttl)
{
	struct flow *f = l->asker.flow;

	answer(&l->asker, &l->query, rcode, addrs, n, ttl);
	lookup_end(l);
	if (f)
		ask_run(f);
}

static void fail(struct lookup *l)
{
	finish(l, DNS_FAILED, NULL, 0, 0);
}

/* Asks the next server, by a socket and a port of its own. */
static void try_upstream(struct lookup *l)
{
	struct edge *e = l->box->edge;
	uint8_t mix[32];
	uint16_t id;

	edge_unwatch(e, &l->upstream);
	free(take_ptr(&l->stream));
	for (; l->tries < TRIES && e->n_resolvers; l->tries++) {
		const struct addr *server = &e->resolvers[l->tries % e->n_resolvers];
		int fd = -EBADF;
		if (edge_dial(e, server, 53, SOCK_DGRAM, true, &fd) < 0)
			continue;
		random_bytes(&id, sizeof id);
		random_bytes(mix, sizeof mix);
		l->upstream = (struct source){ SOURCE_UPSTREAM, fd, l };
		l->asked_len = dns_question_write(id, l->name, l->query.type, mix, l->asked, sizeof l->asked);
		if (l->asked_len == 0 || edge_watch(e, &l->upstream, EPOLLIN) < 0 ||
		    send(fd, l->asked, l->asked_len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
			edge_unwatch(e, &l->upstream);
			continue;
		}
		l->tries++;
		l->deadline_ms = now_ms() + TRY_MS;
		return;
	}
	fail(l);
}

/* The same question to the same server, by a connection: its answer was longer than a datagram. */
static void try_by_stream(struct lookup *l)
{
	struct edge *e = l->box->edge;
	const struct addr *server = &e->resolvers[(l->tries - 1) % e->n_resolvers];
	int fd = -EBADF, rc;

	edge_unwatch(e, &l->upstream);
	rc = edge_dial(e, server, 53, SOCK_STREAM, true, &fd);
	l->upstream = (struct source){ SOURCE_UPSTREAM, fd, l };
	if ((rc < 0 && rc != -EINPROGRESS) || edge_watch(e, &l->upstream, EPOLLIN | EPOLLOUT | EPOLLET) < 0) {
		try_upstream(l);
		return;
	}
	l->stream = xcalloc(1, sizeof *l->stream);
	l->stream->out[0] = (uint8_t)(l->asked_len >> 8);
	l->stream->out[1] = (uint8_t)l->asked_len;
	memcpy(l->stream->out + 2, l->asked, l->asked_len);
	l->deadline_ms = now_ms() + TRY_MS;
}

static struct lookup *lookup_new(struct box *b, const struct asker *a, const struct dns_query *q, const char *name)
{
	struct edge *e = b->edge;

	if (b->n_lookups >= LOOKUPS_MAX || e->n_lookups >= LOOKUPS_ALL_MAX) {
		answer(a, q, DNS_FAILED, NULL, 0, 0);
		return NULL;
	}
	struct lookup *l = xcalloc(1, sizeof *l);
	*l = (struct lookup){ .box = b, .upstream = { SOURCE_UPSTREAM, -EBADF, l }, .asker = *a, .query = *q };
	snprintf(l->name, sizeof l->name, "%s", name);
	if (a->flow)
		ask_waits(a->flow, l);
	DL_APPEND(b->lookups, l);
	b->n_lookups++;
	e->n_lookups++;
	return l;
}

/* A host without IPv6 could not dial such an address, and the client would find out only after it has connected. */
static bool has_records(const struct box *b, const struct dns_query *q)
{
	return q->type == DNS_A || (q->type == DNS_AAAA && b->edge->has_v6);
}

/* --- names that somebody is asked for --- */

/* Nothing has left the host yet, and nothing does until a policy answers for the name. Clients ask again and again meanwhile. */
static void hold(struct box *b, const struct asker *a, const struct dns_query *q, const char *name)
{
	struct lookup *l;
	size_t held = 0;
	bool told = false;

	DL_FOREACH (b->lookups, l) {
		if (!l->held)
			continue;
		held++;
		if (!streq(l->name, name))
			continue;
		told |= l->told;
		if (l->query.id == q->id && l->query.type == q->type && !a->flow && !l->asker.flow && l->asker.from_len == a->from_len && memcmp(&l->asker.from, &a->from, a->from_len) == 0)
			return;
	}
	if (held >= HELD_MAX) {
		answer(a, q, DNS_FAILED, NULL, 0, 0);
		return;
	}
	if (!(l = lookup_new(b, a, q, name)))
		return;
	l->held = true;
	l->deadline_ms = now_ms() + EDGE_ASK_MS;
	l->told = told || edge_tell(b, EDGE_ASK, false, 0, (struct verdict_text){ .name = l->name }, NULL);
}

static void refuse_held(struct lookup *l, const char *reason)
{
	if (l->told)
		edge_tell(l->box, EDGE_NAME, false, 0, (struct verdict_text){ .name = l->name, .reason = reason }, NULL);
	finish(l, DNS_NO_NAME, NULL, 0, 0);
}

static struct lookup *next_answered(struct box *b)
{
	struct lookup *l;

	DL_FOREACH (b->lookups, l)
		if (l->held && (!policy_may_resolve(&b->policy, l->name) || !asks_for_name(b, l->name)))
			return l;
	return NULL;
}

/* From the start again after each: who asked may have a next question, or go. */
static void held_rejudge(struct box *b)
{
	for (struct lookup *l; (l = next_answered(b));) {
		if (!policy_may_resolve(&b->policy, l->name)) {
			refuse_held(l, "no rule allows the name");
			continue;
		}
		l->held = false;
		if (has_records(b, &l->query))
			try_upstream(l);
		else
			finish(l, DNS_OK, NULL, 0, 0);
	}
}

static void judge_question(struct box *b, const struct asker *a, const struct dns_query *q)
{
	char name[POLICY_NAME_MAX + 1];
	const char *reason = NULL;

	if (name_canonical(str_of(q->name), name) < 0) {
		reason = "not a name";
		name[0] = '\0';
	} else if (!b->has_policy || !policy_may_resolve(&b->policy, name)) {
		reason = "no rule allows the name";
	}
	if (reason) {
		edge_tell(b, EDGE_NAME, false, 0, (struct verdict_text){ .name = name[0] ? name : q->name, .reason = reason }, NULL);
		answer(a, q, DNS_NO_NAME, NULL, 0, 0);
		return;
	}
	if (asks_for_name(b, name)) {
		hold(b, a, q, name);
		return;
	}
	if (!has_records(b, q)) {
		answer(a, q, DNS_OK, NULL, 0, 0);
		return;
	}
	struct lookup *l = lookup_new(b, a, q, name);
	if (l)
		try_upstream(l);
}

bool name_take(struct box *b, const struct asker *a, const uint8_t *p, size_t n)
{
	struct dns_query q;
	int rc = dns_query_parse(p, n, &q);

	if (rc == -EBADMSG || !bucket_take(&b->questions, QUESTIONS_RATE, QUESTIONS_BURST))
		return false;
	if (rc < 0)
		answer(a, &q, rc == -EOPNOTSUPP ? DNS_NOT_DONE : DNS_FORMAT, NULL, 0, 0);
	else
		judge_question(b, a, &q);
	return true;
}

void name_ask(struct box *b, struct source *s)
{
	uint8_t in[1500];
	union {
		struct cmsghdr align;
		char room[256];
	} control;

	for (int i = 0; i < QUESTIONS_A_TURN && s->fd >= 0; i++) {
		struct asker a = { .names = s };
		struct iovec iov = { in, sizeof in };
		struct msghdr m = { .msg_name = &a.from, .msg_namelen = sizeof a.from, .msg_iov = &iov, .msg_iovlen = 1,
				    .msg_control = &control, .msg_controllen = sizeof control };
		ssize_t n = recvmsg(s->fd, &m, MSG_DONTWAIT);
		if (n < 0)
			return;
		a.from_len = m.msg_namelen;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
			struct in_pktinfo i4;
			struct in6_pktinfo i6;
			if (c->cmsg_level == SOL_IP && c->cmsg_type == IP_PKTINFO && c->cmsg_len >= CMSG_LEN(sizeof i4)) {
				memcpy(&i4, CMSG_DATA(c), sizeof i4);
				a.to.family = 4;
				memcpy(a.to.b, &i4.ipi_addr, 4);
			} else if (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_PKTINFO && c->cmsg_len >= CMSG_LEN(sizeof i6)) {
				memcpy(&i6, CMSG_DATA(c), sizeof i6);
				a.to.family = 6;
				memcpy(a.to.b, &i6.ipi6_addr, 16);
			}
		}
		if (a.to.family && !(m.msg_flags & MSG_TRUNC))
			(void)name_take(b, &a, in, (size_t)n);
	}
}

static void take_reply(struct lookup *l, const struct dns_reply *r)
{
	struct box *b = l->box;
	size_t len = l->query.type == DNS_AAAA ? 16 : 4, n = 0;
	uint8_t good[DNS_ADDRS_MAX * 16];

	if (r->rcode != DNS_OK && r->rcode != DNS_NO_NAME) {
		try_upstream(l);
		return;
	}
	uint32_t ttl = MIN(r->ttl, (uint32_t)TTL_MAX_S);
	bool may = b->has_policy && policy_may_resolve(&b->policy, l->name); /* it may have changed since the question */
	for (size_t i = 0; may && i < r->n; i++) {
		struct addr a = { .family = len == 4 ? 4 : 6 };
		memcpy(a.b, r->addrs[i], len);
		if (!policy_may_answer(&b->policy, &b->edge->net, &a)) {
			edge_tell(b, EDGE_NAME, false, 0, (struct verdict_text){ .addr = &a, .name = l->name, .reason = "the name leads to an address that is not reachable" }, NULL);
			continue;
		}
		memcpy(good + n++ * len, a.b, len);
		pin_add(b, l->name, &a, ttl);
	}
	finish(l, may ? r->rcode : DNS_NO_NAME, good, n, ttl);
}

/* 1: the whole answer is there, 0: later, negative: there will be none. */
static int run_stream(struct lookup *l)
{
	struct stream *s = l->stream;

	while (s->sent < 2 + l->asked_len) {
		ssize_t n = send(l->upstream.fd, s->out + s->sent, 2 + l->asked_len - s->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		s->sent += (size_t)n;
	}
	return ask_read(l->upstream.fd, s->in, DNS_MESSAGE_MAX, &s->n);
}

static void stream_reply(struct lookup *l)
{
	struct dns_reply r;
	int rc = run_stream(l);

	if (rc == 0)
		return;
	if (rc > 0 && dns_reply_parse(l->stream->in + 2, l->stream->n - 2, l->asked, l->asked_len, &r) == 0)
		take_reply(l, &r);
	else
		try_upstream(l);
}

void name_reply(struct lookup *l)
{
	uint8_t in[DNS_MESSAGE_MAX];
	struct dns_reply r;

	if (l->stream) {
		stream_reply(l);
		return;
	}
	while (!l->dead && l->upstream.fd >= 0) {
		ssize_t n = recv(l->upstream.fd, in, sizeof in, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) { /* nobody serves there */
			try_upstream(l);
			return;
		}
		/* What is not the answer to this very question is nothing. */
		if (dns_reply_parse(in, (size_t)n, l->asked, l->asked_len, &r) == 0) {
			if (r.truncated)
				try_by_stream(l);
			else
				take_reply(l, &r);
			return;
		}
	}
}

static struct lookup *next_overdue(struct box *b, uint64_t now)
{
	struct lookup *l;

	DL_FOREACH (b->lookups, l)
		if (now >= l->deadline_ms)
			return l;
	return NULL;
}

void names_sweep(struct edge *e, uint64_t now)
{
	struct box *b, *next_box;
	struct pin *p, *next;

	HASH_ITER (hh, e->boxes, b, next_box) {
		/* From the start again after each, as above; each is over, or has a later time. */
		for (struct lookup *l; (l = next_overdue(b, now));)
			if (l->held)
				refuse_held(l, "nobody answered in time");
			else
				try_upstream(l);
		DL_FOREACH_SAFE (b->pins, p, next)
			if (p->until_ms < now)
				pin_free(b, p);
	}
}

/* --- whom we ask --- */

static void add_resolver(struct edge *e, struct str text)
{
	struct addr a;

	if (e->n_resolvers < RESOLVERS_MAX && addr_parse(text, &a) == 0)
		e->resolvers[e->n_resolvers++] = a;
}

int resolvers_read(struct edge *e, const char *text)
{
	if (!text || !*text)
		return 0; /* none: no name is answered */
	for (const char *p = text; *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ','))
		add_resolver(e, (struct str){ p, strcspn(p, ",") });
	return e->n_resolvers ? 0 : -EINVAL;
}

/* "nameserver ADDRESS" lines. */
char *edge_host_resolvers(void)
{
	char text[8192], *save;
	auto_buf struct buf b;
	auto_fd int fd = open("/etc/resolv.conf", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	struct addr a;

	buf_init(&b, sizeof text);
	text[MAX(n, 0)] = '\0';
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, "nameserver", 10) != 0)
			continue;
		const char *p = line + 10 + strspn(line + 10, " \t");
		int len = (int)strcspn(p, " \t\r%");
		if (addr_parse((struct str){ p, (size_t)len }, &a) == 0)
			buf_addf(&b, "%s%.*s", b.len ? "," : "", len, p);
	}
	char *list = buf_take(&b);
	return list ? list : xstrdup("");
}
