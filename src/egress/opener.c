#include "egress/opener_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 64
#define SWEEP_MS 250
#define STEPS_A_TURN 64
#define HANDSHAKE_WITHIN_MS 30000
#define LINGER_MS 2000
#define LAST_BYTES_MS 60000 /* for a client that reads slowly, since it last read something */

/* --- descriptors --- */

static int watch(struct opener *o, int fd, uint32_t events, struct source *s)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };
	return epoll_ctl(o->epoll, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static ssize_t receive(int fd, void *bytes, size_t size, int *fds, size_t max, size_t *ret_n)
{
	struct iovec iov = { bytes, size };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int) * 4)];
	} control;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int got[4];
	size_t n_got = 0;

	for (struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			n_got = MIN((c->cmsg_len - CMSG_LEN(0)) / sizeof(int), ARRAY_LEN(got));
			memcpy(got, CMSG_DATA(c), n_got * sizeof(int));
		}
	*ret_n = MIN(n_got, max);
	for (size_t i = 0; i < n_got; i++)
		if (i < max)
			fds[i] = got[i];
		else
			close_fd(got[i]);
	return n;
}

/* --- telling --- */

void opener_tell(struct conn *c, const struct place *p, bool allowed)
{
	struct opener *o = c->o;
	const struct key *k = allowed ? p->placed : p->at_fault;
	const char *question = p->target.n ? memchr(p->target.p, '?', p->target.n) : NULL;
	size_t path = question ? (size_t)(question - p->target.p) : p->target.n;
	struct opener_event ev = { .magic = OPENER_MAGIC, .kind = OPENER_SECRET, .allowed = allowed, .port = c->port, .lost = o->events_lost };

	snprintf(ev.secret, sizeof ev.secret, "%s", k ? k->id : "");
	snprintf(ev.name, sizeof ev.name, "%s", c->name);
	snprintf(ev.method, sizeof ev.method, "%.*s", (int)MIN(p->method.n, sizeof ev.method - 1), p->method.p);
	snprintf(ev.path, sizeof ev.path, "%.*s", (int)MIN(path, sizeof ev.path - 1), p->target.p);
	snprintf(ev.reason, sizeof ev.reason, "%s", allowed ? "" : p->reason);
	if (send(o->daemon.fd, &ev, sizeof ev, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		o->events_lost++;
	else
		o->events_lost = 0;
}

void opener_tell_objection(struct conn *c, struct str method, struct str target, const char *reason)
{
	struct place p = { .method = method, .target = target };

	snprintf(p.reason, sizeof p.reason, "%s", reason);
	opener_tell(c, &p, false);
}

void refusal_body(const char *kind, const char *message, struct buf *out)
{
	/* Both are of our own words and what a certificate's checker says: nothing to escape but quotes. */
	buf_addf(out, "{\"error\":{\"kind\":\"%s\",\"message\":\"", kind);
	for (const char *p = message; *p; p++)
		buf_addc(out, *p == '"' || *p == '\\' || (unsigned char)*p < 0x20 ? '\'' : *p);
	buf_addz(out, "\"}}\n");
}

/* --- connections --- */

bool opened_for(const struct conn *c, struct str authority)
{
	char text[POLICY_NAME_MAX + 1], port[8];
	const char *colon = authority.n ? memchr(authority.p, ':', authority.n) : NULL;
	struct str name = { authority.p, colon ? (size_t)(colon - authority.p) : authority.n };

	snprintf(port, sizeof port, "%u", c->port);
	if (colon && !str_eqz((struct str){ colon + 1, authority.n - name.n - 1 }, port))
		return false;
	return name.n && name_canonical(name, text) == 0 && name.p[name.n - 1] != '.' && streq(text, c->name);
}

static void conn_free(struct conn *c)
{
	http1_free(c->http1);
	http2_free(c->http2);
	free(c);
}

void opened_kill(struct conn *c)
{
	if (c->state == CONN_DEAD)
		return;
	methods_gone(c);
	c->state = CONN_DEAD;
	side_close(&c->client);
	side_close(&c->server);
	DL_DELETE(c->o->conns, c);
	c->o->n_conns--;
	c->next = c->o->dead;
	c->o->dead = c;
}

void opened_end(struct conn *c)
{
	if (c->state == CONN_DEAD || c->state == CONN_LINGER)
		return;
	methods_gone(c);
	c->state = CONN_LINGER;
	c->deadline_ms = now_ms() + LAST_BYTES_MS;
}

void opened_cut(struct conn *c)
{
	c->cut = true;
	opened_end(c);
}

uint64_t opened_unsure(struct conn *c)
{
	uint64_t now = now_ms();

	c->unsure = true;
	if (!c->o->look_ms)
		c->o->look_ms = now + SCREEN_IDLE_MS;
	return now;
}

/* The true host cannot be spoken to: the client is told so in the plainest HTTP it speaks. */
static void refuse_upstream(struct conn *c)
{
	char room[160];

	snprintf(c->refusal, sizeof c->refusal, "%.150s", tls_reason(&c->server, room));
	log_info("name=%s port=%u msg=\"the host cannot be spoken to: %s\"", c->name, c->port, c->refusal);
	snprintf(c->protocol, sizeof c->protocol, "%s", c->offers && !offers(c, HTTP11) ? HTTP2 : HTTP11);
}

static bool step_upstream(struct conn *c)
{
	const unsigned char *chosen;
	unsigned n;
	int rc = side_handshake(&c->server);

	if (rc == 0)
		return false;
	if (rc < 0) {
		refuse_upstream(c);
	} else {
		SSL_get0_alpn_selected(c->server.ssl, &chosen, &n);
		snprintf(c->protocol, sizeof c->protocol, "%.*s", (int)n, chosen ? (const char *)chosen : "");
	}
	c->state = CONN_ACCEPT;
	return true;
}

/* What was judged is what is asked for here: the same bytes, but that is not taken on trust. */
static bool asks_for_name(const struct conn *c)
{
	const char *asked = SSL_get_servername(c->client.ssl, TLSEXT_NAMETYPE_host_name);
	return asked && strcasecmp(asked, c->name) == 0;
}

static bool step_accept(struct conn *c)
{
	int rc = side_handshake(&c->client);

	if (rc == 0)
		return false;
	if (rc < 0 || !asks_for_name(c)) {
		opened_kill(c);
		return false;
	}
	c->state = CONN_OPEN;
	c->deadline_ms = 0;
	if (streq(c->protocol, HTTP2))
		c->http2 = http2_new(c);
	else
		c->http1 = http1_new(c);
	return true;
}

static bool step_hello(struct conn *c)
{
	int rc = side_handshake(&c->client);

	if (rc < 0) {
		opened_kill(c);
		return false;
	}
	if (!side_hello_seen(&c->client))
		return false;
	if (side_open(c, &c->server, false) < 0) {
		opened_kill(c);
		return false;
	}
	c->state = CONN_UPSTREAM;
	return true;
}

static bool step_open(struct conn *c)
{
	bool moved = side_fill(&c->client);

	moved |= side_fill(&c->server);
	if (c->client.broken || c->client.mute) {
		opened_kill(c);
		return false;
	}
	moved |= c->http2 ? http2_run(c) : http1_run(c);
	if (c->state == CONN_DEAD)
		return false;
	moved |= side_flush(&c->client);
	moved |= side_flush(&c->server);
	return moved || c->state != CONN_OPEN;
}

static bool step_linger(struct conn *c)
{
	char drop[4096];
	bool moved = side_flush(&c->client);

	if (moved)
		c->deadline_ms = now_ms() + LAST_BYTES_MS;
	if (c->client.broken || c->client.mute || (c->client.out.len == 0 && c->cut)) {
		opened_kill(c);
		return false;
	}
	if (c->client.out.len == 0 && !c->client.shut) {
		side_shut(&c->client);
		side_close(&c->server);
		c->deadline_ms = now_ms() + LINGER_MS;
	}
	while (c->client.shut) {
		ssize_t n = read(c->client.fd, drop, sizeof drop); /* not even looked at */
		if (n > 0 || (n < 0 && errno == EINTR))
			continue;
		if (n == 0 || errno != EAGAIN)
			opened_kill(c);
		return false;
	}
	return moved;
}

void opened_queue(struct conn *c)
{
	if (c->queued || c->state == CONN_DEAD)
		return;
	c->queued = true;
	c->run_next = c->o->run;
	c->o->run = c;
}

void opened_run(struct conn *c)
{
	static bool (*const steps[])(struct conn *c) = {
		[CONN_HELLO] = step_hello, [CONN_UPSTREAM] = step_upstream, [CONN_ACCEPT] = step_accept, [CONN_OPEN] = step_open, [CONN_LINGER] = step_linger,
	};

	for (int i = 0; i < STEPS_A_TURN; i++)
		if (c->state == CONN_DEAD || !steps[c->state](c))
			return;
	opened_queue(c);
}

static int watch_side(struct opener *o, struct side *s)
{
	s->source = (struct source){ FROM_SIDE, s->fd, s };
	return watch(o, s->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, &s->source);
}

static void begin(struct opener *o, const struct opener_flow *f, int client, int server)
{
	struct conn *c = xcalloc(1, sizeof *c);

	c->o = o;
	c->client.fd = client;
	c->server.fd = server;
	c->client.conn = c->server.conn = c;
	c->port = (uint16_t)f->port;
	c->plain = f->plain;
	c->deadline_ms = now_ms() + HANDSHAKE_WITHIN_MS;
	snprintf(c->name, sizeof c->name, "%.*s", (int)sizeof c->name - 1, f->name);
	DL_APPEND(o->conns, c);
	o->n_conns++;
	if (c->plain && side_open(c, &c->server, false) == 0) {
		c->state = CONN_OPEN;
		c->deadline_ms = 0;
		c->http1 = http1_new(c);
	}
	if (o->n_conns > CONNS_MAX || side_open(c, &c->client, true) < 0 || watch_side(o, &c->client) < 0 || watch_side(o, &c->server) < 0) {
		opened_kill(c);
		return;
	}
	opened_run(c);
}

/* --- records --- */

static void from_edge(struct opener *o)
{
	struct opener_flow f;
	char canonical[POLICY_NAME_MAX + 1];
	int fds[2];
	size_t n_fds;

	for (;;) {
		ssize_t n = receive(o->edge.fd, &f, sizeof f, fds, 2, &n_fds);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			o->edge.fd = close_fd(o->edge.fd); /* there will be another one */
			return;
		}
		f.name[sizeof f.name - 1] = '\0';
		if (n == sizeof f && f.magic == OPENER_MAGIC && n_fds == 2 && name_canonical(str_of(f.name), canonical) == 0 && streq(canonical, f.name)) {
			begin(o, &f, fds[0], fds[1]);
			continue;
		}
		for (size_t i = 0; i < n_fds; i++)
			close_fd(fds[i]);
	}
}

static int read_config(struct opener *o, int fd, size_t size)
{
	struct keyring fresh = { 0 };
	char *text = size <= OPENER_CONFIG_MAX ? xmalloc(size + 1) : NULL;
	size_t have = 0;
	int rc = text ? 0 : -EINVAL;

	while (rc == 0 && have < size) {
		ssize_t n = read(fd, text + have, size - have);
		if (n <= 0)
			rc = -EIO;
		else
			have += (size_t)n;
	}
	if (rc == 0) {
		text[size] = '\0';
		rc = keyring_parse(text, size, &fresh);
	}
	if (text)
		explicit_bzero(text, size);
	free(text);
	if (rc < 0)
		return rc;
	keyring_done(&o->keys);
	o->keys = fresh;
	rc = tls_take_keys(o);
	if (rc == 0)
		methods_rejudge(o);
	return rc;
}

static bool from_daemon(struct opener *o)
{
	struct opener_order order;
	int fd = -EBADF, rc = 0;
	size_t n_fds;

	for (;;) {
		ssize_t n = receive(o->daemon.fd, &order, sizeof order, &fd, 1, &n_fds);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n <= 0)
			return false;
		if (n != sizeof order || order.magic != OPENER_MAGIC || n_fds != (order.op != OPENER_ANSWER))
			return false;
		if (order.op == OPENER_ANSWER) {
			methods_answer(o, order.ask, order.allowed);
		} else if (order.op == OPENER_CONFIG) {
			rc = read_config(o, fd, order.size);
			close_fd(fd);
		} else {
			close_fd(o->edge.fd);
			o->edge = (struct source){ FROM_EDGE, fd, NULL };
			rc = watch(o, fd, EPOLLIN, &o->edge);
		}
		if (rc < 0) { /* it would go on with what no longer holds */
			log_error("msg=\"an order of the daemon's cannot be followed\" errno=%d", -rc);
			return false;
		}
	}
}

/* --- the loop --- */

static void sweep(struct opener *o, uint64_t now)
{
	struct conn *c, *next;

	methods_sweep(o, now);
	DL_FOREACH_SAFE (o->conns, c, next)
		if (c->deadline_ms && now >= c->deadline_ms)
			opened_kill(c);
		else if (c->state == CONN_OPEN && c->http2 && http2_sweep(c->http2, now))
			opened_run(c);
}

/* Answers that go on after a silence. One that lasts as long as the client does not read is none. */
static void look(struct opener *o, uint64_t now)
{
	struct conn *c, *next;

	if (!o->look_ms || now < o->look_ms)
		return;
	o->look_ms = 0;
	DL_FOREACH_SAFE (o->conns, c, next) {
		if (!c->unsure || c->state != CONN_OPEN)
			continue;
		if (!c->server.in.len && !c->client.out.len) {
			c->unsure = false;
			if (c->http2 ? http2_idle(c, now) : http1_idle(c, now))
				opened_queue(c);
		}
		if (c->unsure)
			o->look_ms = now + SCREEN_IDLE_MS;
	}
}

static int patience(const struct opener *o)
{
	uint64_t now = o->look_ms ? now_ms() : 0;

	if (o->run)
		return 0;
	if (o->look_ms)
		return o->look_ms > now ? (int)(o->look_ms - now) : 0;
	return o->conns ? SWEEP_MS : -1;
}

static void bury(struct opener *o)
{
	for (struct conn **at = &o->dead; *at;) {
		struct conn *c = *at;
		if (c->queued) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		conn_free(c);
	}
}

static void run_queue(struct opener *o)
{
	struct conn *c = take_ptr(&o->run), *next;

	for (; c; c = next) {
		next = c->run_next;
		c->queued = false;
		if (c->state != CONN_DEAD)
			opened_run(c);
	}
}

static void loop(struct opener *o)
{
	struct epoll_event events[EVENTS];
	uint64_t swept = now_ms();

	for (;;) {
		int n = epoll_wait(o->epoll, events, EVENTS, patience(o));
		if (n < 0 && errno != EINTR)
			return;
		for (int i = 0; i < n; i++) {
			struct source *s = events[i].data.ptr;
			if (!from_daemon(o)) /* before anything is judged: whoever was told that a rule holds must find it so */
				return;
			if (s->kind == FROM_EDGE && o->edge.fd >= 0)
				from_edge(o);
			if (s->kind == FROM_SIDE && s->side->conn->state != CONN_DEAD)
				opened_run(s->side->conn);
		}
		run_queue(o);
		uint64_t now = now_ms();
		look(o, now);
		if (now - swept >= SWEEP_MS) {
			sweep(o, now);
			swept = now;
		}
		bury(o);
	}
}

int opener_main(int daemon, enum log_level level, bool caged)
{
	static struct opener o; /* a process has one; what it holds goes with it */
	struct rlimit files;

	log_set_name("opener");
	log_set_level(level);
	(void)signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	o.epoll = epoll_create1(EPOLL_CLOEXEC);
	o.daemon = (struct source){ FROM_DAEMON, daemon, NULL };
	o.edge = (struct source){ FROM_EDGE, -EBADF, NULL };
	int rc = tls_open(&o);
	if (rc < 0) {
		log_error("msg=\"no certificates to verify hosts with: is the package ca-certificates there?\"");
		return 1;
	}
	if (o.epoll < 0 || fcntl(daemon, F_SETFL, O_NONBLOCK) < 0 || watch(&o, daemon, EPOLLIN, &o.daemon) < 0 || (caged && (rc = cage()) < 0)) {
		log_error("msg=\"cannot start: %s\"", strerror(rc < 0 ? -rc : errno));
		return 1;
	}
	loop(&o);
	keyring_done(&o.keys);
	return 0;
}
