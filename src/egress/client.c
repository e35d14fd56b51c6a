#include "egress/egress.h"

#include "base/buf.h"
#include "base/log.h"
#include "egress/openers.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uthash.h>
#include <utlist.h>

#define READ_AT_ONCE 64

struct told { /* a sandbox's policy as one record, or which names of its are opened */
	char key[44]; /* the id, with "/o" behind it for the latter */
	char id[40];
	bool opened;
	struct buf record;
	bool forget; /* to be said once, then freed */
	bool queued;
	struct told *prev, *next; /* in egress->out */
	UT_hash_handle hh;
};

struct connection { /* outlives its egress until the loop has closed its handle */
	uv_poll_t poll;
	int fd, events;
	struct egress *egress; /* NULL: closed */
};

struct egress {
	uv_loop_t *loop;
	struct connection *edge; /* NULL while there is none */
	struct told *all, *out;
	struct openers *openers;
	egress_event_fn on_event;
	void *ctx;
};

static void on_opener(void *ctx, const char *id);

struct egress *egress_new(uv_loop_t *loop)
{
	struct egress *g = xcalloc(1, sizeof *g);

	g->loop = loop;
	g->openers = openers_new(loop, on_opener, g);
	return g;
}

void egress_on_event(struct egress *g, egress_event_fn fn, void *ctx)
{
	g->on_event = fn;
	g->ctx = ctx;
}

static void told_free(struct egress *g, struct told *t)
{
	if (t->queued)
		DL_DELETE(g->out, t);
	HASH_DEL(g->all, t);
	buf_done(&t->record);
	free(t);
}

static void on_closed(uv_handle_t *h)
{
	struct connection *c = h->data;

	close_fd(c->fd);
	free(c);
}

/* Forgetting is done with: the next edge never hears of those. */
static void drop_edge(struct egress *g)
{
	struct connection *c = take_ptr(&g->edge);
	struct told *t, *next;

	if (!c)
		return;
	c->egress = NULL;
	uv_close((uv_handle_t *)&c->poll, on_closed);
	HASH_ITER (hh, g->all, t, next)
		if (t->forget)
			told_free(g, t);
}

static void on_socket(uv_poll_t *poll, int status, int events);

/* What goes with the record: for names that are opened, the way to their opener. */
static ssize_t send_told(struct egress *g, struct told *t)
{
	auto_fd int fd = t->opened ? openers_edge(g->openers, t->id) : -EBADF;
	struct iovec iov = { t->record.data, t->record.len };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
	}
	return sendmsg(g->edge->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void flush(struct egress *g)
{
	struct connection *c = g->edge;

	while (c && g->out) {
		struct told *t = g->out;
		ssize_t n = send_told(g, t);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			if (errno != EPIPE && errno != ECONNRESET)
				log_error("sandbox=%s msg=\"its policy cannot be told to the edge\" errno=%d", t->id, errno);
			drop_edge(g);
			return;
		}
		DL_DELETE(g->out, t);
		t->queued = false;
		if (t->forget)
			told_free(g, t);
	}
	int events = UV_READABLE | (g->out ? UV_WRITABLE : 0);
	if (c && events != c->events && uv_poll_start(&c->poll, events, on_socket) == 0)
		c->events = events;
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
	struct connection *c = poll->data;

	for (int i = 0; c->egress && i < READ_AT_ONCE && (status < 0 || events & (UV_READABLE | UV_DISCONNECT)); i++) {
		struct edge_event ev;
		ssize_t n = recv(c->fd, &ev, sizeof ev, MSG_DONTWAIT | MSG_TRUNC);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0) {
			drop_edge(c->egress);
			return;
		}
		if ((size_t)n != sizeof ev || ev.magic != EDGE_MAGIC)
			continue;
		ev.id[sizeof ev.id - 1] = ev.addr[sizeof ev.addr - 1] = ev.name[sizeof ev.name - 1] = ev.reason[sizeof ev.reason - 1] = '\0';
		if (c->egress->on_event)
			c->egress->on_event(c->egress->ctx, &ev);
	}
	if (c->egress)
		flush(c->egress);
}

static void enqueue(struct egress *g, struct told *t)
{
	if (!t->queued) {
		DL_APPEND(g->out, t);
		t->queued = true;
	}
}

void egress_attach(struct egress *g, int fd)
{
	struct connection *c = xcalloc(1, sizeof *c);
	struct told *t, *next;

	drop_edge(g);
	*c = (struct connection){ .fd = fd, .egress = g };
	c->poll.data = c;
	if (uv_poll_init(g->loop, &c->poll, fd) < 0) {
		log_error("msg=\"the edge's socket cannot be watched: sandboxes reach nothing\"");
		close_fd(fd);
		free(c);
		return;
	}
	g->edge = c;
	HASH_ITER (hh, g->all, t, next)
		enqueue(g, t);
	flush(g);
}

static struct told *get(struct egress *g, const char *id, bool opened)
{
	char key[44];
	struct told *t;

	snprintf(key, sizeof key, "%.40s%s", id, opened ? "/o" : "");
	HASH_FIND_STR(g->all, key, t);
	if (t)
		return t;
	t = xcalloc(1, sizeof *t);
	snprintf(t->id, sizeof t->id, "%s", id);
	memcpy(t->key, key, sizeof key);
	t->opened = opened;
	buf_init(&t->record, sizeof(struct edge_policy) + EDGE_POLICY_TEXT_MAX);
	HASH_ADD_STR(g->all, key, t);
	return t;
}

static uint32_t add_rules(struct buf *b, char *const *rules)
{
	uint32_t n = 0;

	for (; rules && rules[n]; n++)
		(void)buf_add(b, rules[n], strlen(rules[n]) + 1);
	return n;
}

static void put(struct egress *g, struct told *t, enum edge_policy_op op, const struct reach *reach, const struct network_limits *limits)
{
	struct edge_policy head = { .magic = EDGE_MAGIC, .op = op, .mode = (uint32_t)reach->mode };

	if (limits) {
		head.bytes_per_second = limits->bytes_per_second;
		head.bytes = limits->bytes;
		head.connections = (uint32_t)MIN(limits->connections, (uint64_t)UINT32_MAX);
		head.connections_per_second = (uint32_t)MIN(limits->connections_per_second, (uint64_t)UINT32_MAX);
	}
	buf_reset(&t->record);
	(void)buf_add(&t->record, &head, sizeof head);
	head.n_allow = add_rules(&t->record, reach->allow);
	head.n_deny = add_rules(&t->record, reach->deny);
	head.n_ask = add_rules(&t->record, reach->ask);
	head.n_answered = add_rules(&t->record, reach->answered);
	head.n_read = add_rules(&t->record, reach->read);
	if (t->record.overflow) { /* no valid policy is as long */
		log_error("sandbox=%s msg=\"its policy is too long: it reaches nothing\"", t->id);
		buf_reset(&t->record);
		(void)buf_add(&t->record, &head, sizeof head);
		head.mode = NETWORK_NONE;
		head.n_allow = head.n_deny = head.n_ask = head.n_answered = head.n_read = 0;
	}
	memcpy(head.id, t->id, sizeof head.id);
	head.text_len = (uint32_t)(t->record.len - sizeof head);
	memcpy(t->record.data, &head, sizeof head);
	enqueue(g, t);
	flush(g);
}

void egress_set(struct egress *g, const char *id, const struct reach *reach, const struct network_limits *limits)
{
	struct told *t = get(g, id, false);

	t->forget = false;
	put(g, t, EDGE_POLICY_SET, reach, limits);
}

static struct told *opened_of(struct egress *g, const char *id)
{
	char key[44];
	struct told *t;

	snprintf(key, sizeof key, "%.40s/o", id);
	HASH_FIND_STR(g->all, key, t);
	return t;
}

void egress_forget(struct egress *g, const char *id)
{
	struct told *t;

	openers_end(g->openers, id);
	HASH_FIND_STR(g->all, id, t);
	struct told *opened = opened_of(g, id);
	if (opened)
		told_free(g, opened); /* the edge forgets both by one word */
	if (!t)
		return;
	if (!g->edge) {
		told_free(g, t);
		return;
	}
	t->forget = true;
	put(g, t, EDGE_POLICY_FORGET, &(struct reach){ .mode = NETWORK_NONE }, NULL);
}

void egress_close(struct egress *g)
{
	drop_edge(g);
	openers_free(take_ptr(&g->openers));
}

/* --- secrets --- */

void egress_on_keys(struct egress *g, egress_keys_fn keys, egress_use_fn use, void *ctx)
{
	openers_on(g->openers, keys, use, ctx);
}

/* It runs anew: the edge has to be given its socket. */
static void on_opener(void *ctx, const char *id)
{
	struct egress *g = ctx;
	struct told *t = opened_of(g, id);

	if (t && t->record.len) {
		enqueue(g, t);
		flush(g);
	}
}

static void close_opened(struct egress *g, const char *id)
{
	struct told *t = opened_of(g, id);

	openers_end(g->openers, id);
	if (t)
		put(g, t, EDGE_POLICY_OPEN, &(struct reach){ .mode = NETWORK_ALLOW }, NULL);
}

void egress_open(struct egress *g, const char *id, char *const *hosts, bool reads)
{
	if ((!hosts || !hosts[0]) && !reads) {
		close_opened(g, id);
		return;
	}
	/* The opener has its keys before the edge hands it anything that they are for. */
	openers_keep(g->openers, id);
	put(g, get(g, id, true), EDGE_POLICY_OPEN, &(struct reach){ .mode = NETWORK_ALLOW, .allow = (char **)(uintptr_t)hosts }, NULL);
}

void egress_answer(struct egress *g, const char *id, uint64_t ask, bool allowed)
{
	openers_answer(g->openers, id, ask, allowed);
}

void egress_free(struct egress *g)
{
	struct told *t, *next;

	if (!g)
		return;
	drop_edge(g);
	openers_free(g->openers);
	HASH_ITER (hh, g->all, t, next)
		told_free(g, t);
	free(g);
}
