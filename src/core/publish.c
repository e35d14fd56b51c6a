/* Ports of sandboxes that are reached at an address of this host.
 *
 * Theory of operation. A published port is a listening socket here, for as long as the sandbox exists: also while it is stopped or paused,
 * when whoever connects is reset at once. Each connection (a visit) is an operation inside (OP_CONNECT), as that of a preview is, so it needs
 * no network of the sandbox's and goes to what listens there on its loopback or on any address. What one side does not take stays with the
 * visit, within an operation's window, and nothing more is read from the other.
 *
 * The sockets are this process's: with it they go, and the next one binds the same addresses and ports again from the sandboxes' records. One
 * that somebody has taken meanwhile is lost until it can be had again. */
#include "base/log.h"
#include "core/core_int.h"
#include "model/publish.h"
#include "wire/guest.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	VISITS_MAX = 128, /* of a sandbox: each is a process inside. More wait to be accepted */
	BACKLOG = 128,
	CHUNK = 64 * 1024,
	OUT_MAX = GUEST_OP_WINDOW + CHUNK, /* what may still come once an operation is told to pause */
	AGAIN_MS = 5000,
};

struct door { /* a listening socket */
	struct sandbox *sandbox; /* NULL: none yet */
	uv_poll_t poll;
	int fd;
	struct publication what;
	struct door *prev, *next;
};

struct visit {
	struct sandbox *sandbox;
	struct link_op *op; /* NULL once it has ended */
	uv_poll_t poll;
	int fd, events;
	struct buf out;       /* for the visitor */
	bool opened;	      /* somebody listens inside */
	bool in_eof, out_eof; /* the visitor, the inside sends no more */
	bool told, hung_up;   /* the visitor knows; its side of the line has been seen to be closed */
	bool closed;
	struct visit *prev, *next;
};

/* --- visits --- */

static void on_visit_closed(uv_handle_t *h)
{
	struct visit *v = h->data;

	buf_done(&v->out);
	free(v);
}

static void visit_close(struct visit *v, bool reset)
{
	const struct linger now = { 1, 0 };

	if (reset)
		(void)setsockopt(v->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	uv_close((uv_handle_t *)&v->poll, on_visit_closed);
	v->fd = close_fd(v->fd); /* polling has stopped with the line above */
}

static void visit_end(struct visit *v, bool reset)
{
	struct sandbox *s = v->sandbox;

	if (v->closed)
		return;
	v->closed = true;
	if (v->op)
		link_op_cancel(take_ptr(&v->op));
	DL_DELETE(s->visits, v);
	s->n_visits--;
	visit_close(v, reset);
	doors_listen(s);
}

static void on_visit(uv_poll_t *h, int status, int events);

/* Polls for what can be used now. */
static void visit_watch(struct visit *v)
{
	bool room = v->op && v->opened && !v->in_eof && link_op_room(v->op) > 0;
	int events = (room ? UV_READABLE : 0) | (v->out.len ? UV_WRITABLE : 0) | (v->hung_up ? 0 : UV_DISCONNECT);

	if (v->closed || events == v->events)
		return;
	v->events = events;
	if (events)
		(void)uv_poll_start(&v->poll, events, on_visit);
	else
		uv_poll_stop(&v->poll);
}

/* False: the visitor has gone, and so has the visit. */
static bool visit_flush(struct visit *v)
{
	while (v->out.len) {
		ssize_t n = send(v->fd, v->out.data, v->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n < 0) {
			visit_end(v, true);
			return false;
		}
		buf_consume(&v->out, (size_t)n);
	}
	buf_reset(&v->out);
	if (v->out_eof && !v->told) {
		v->told = true;
		(void)shutdown(v->fd, SHUT_WR);
	}
	if (!v->op) { /* all of it has been said */
		visit_end(v, false);
		return false;
	}
	link_op_resume(v->op);
	return true;
}

static void on_open(void *ctx)
{
	struct visit *v = ctx;

	v->opened = true;
	visit_watch(v);
}

static void on_data(void *ctx, struct str bytes)
{
	struct visit *v = ctx;

	if (buf_add(&v->out, bytes.p, bytes.n) < 0) { /* more than its window: it does not keep to what it was told */
		visit_end(v, true);
		return;
	}
	if (!visit_flush(v))
		return;
	if (v->out.len)
		link_op_pause(v->op);
	visit_watch(v);
}

static void on_data_end(void *ctx)
{
	struct visit *v = ctx;

	v->out_eof = true;
	if (visit_flush(v))
		visit_watch(v);
}

static void on_room(void *ctx)
{
	visit_watch(ctx);
}

static void on_end(void *ctx, const struct err *e)
{
	struct visit *v = ctx;

	v->op = NULL;
	v->out_eof = true;
	if (e) { /* nobody listens, or it broke: as the visitor would be told by a host of its own */
		log_debug("sandbox=%s msg=\"a visit ended: %s\"", v->sandbox->row.id, e->message);
		visit_end(v, true);
		return;
	}
	if (visit_flush(v))
		visit_watch(v);
}

static void visit_read(struct visit *v)
{
	char bytes[CHUNK];

	for (size_t room; v->op && (room = link_op_room(v->op)) > 0;) {
		ssize_t n = recv(v->fd, bytes, MIN(room, sizeof bytes), MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			visit_end(v, true);
			return;
		}
		if (n == 0) {
			v->in_eof = true;
			link_op_eof(v->op);
			return;
		}
		if (link_op_write(v->op, (struct str){ bytes, (size_t)n }) < 0) {
			visit_end(v, true);
			return;
		}
		if ((size_t)n < sizeof bytes)
			return;
	}
}

static void on_visit(uv_poll_t *h, int status, int events)
{
	struct visit *v = h->data;

	if (status < 0) {
		visit_end(v, true);
		return;
	}
	if (events & UV_DISCONNECT)
		v->hung_up = true; /* what it sent before is still to be read; that it is gone altogether the next write tells */
	if (events & UV_READABLE)
		visit_read(v);
	if (!v->closed && events & UV_WRITABLE && !visit_flush(v))
		return;
	visit_watch(v);
}

static void visit_begin(struct sandbox *s, uint16_t port, int take)
{
	static const struct op_events events = { .on_open = on_open, .on_data = on_data, .on_data_end = on_data_end, .on_room = on_room, .on_end = on_end };
	const int one = 1;
	struct visit *v = xcalloc(1, sizeof *v);
	struct err e;

	*v = (struct visit){ .sandbox = s, .fd = take };
	buf_init(&v->out, OUT_MAX);
	if (uv_poll_init(s->core->loop, &v->poll, take) < 0) {
		close_fd(take);
		free(v);
		return;
	}
	v->poll.data = v;
	v->op = sandbox_op(s, &(struct op_spec){ .kind = OP_CONNECT, .port = port }, &events, v, &e);
	if (!v->op) { /* it does not run */
		v->closed = true;
		visit_close(v, true);
		return;
	}
	(void)setsockopt(take, SOL_TCP, TCP_NODELAY, &one, sizeof one);
	(void)setsockopt(take, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
	DL_APPEND(s->visits, v);
	s->n_visits++;
	visit_watch(v);
}

/* --- doors --- */

static void on_door(uv_poll_t *h, int status, int events)
{
	struct door *d = h->data;
	struct sandbox *s = d->sandbox;

	(void)status, (void)events;
	while (s->n_visits < VISITS_MAX) {
		int fd = accept4(d->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			visit_begin(s, d->what.port, fd);
		} else if (errno == EMFILE || errno == ENFILE) {
			uv_poll_stop(h); /* until the next sweep: it would be told of again and again */
			return;
		} else if (errno != EINTR && errno != ECONNABORTED) {
			return;
		}
	}
	doors_listen(s);
}

void doors_listen(struct sandbox *s)
{
	struct door *d;

	DL_FOREACH (s->doors, d) {
		if (s->n_visits >= VISITS_MAX)
			uv_poll_stop(&d->poll);
		else if (!uv_is_active((uv_handle_t *)&d->poll))
			(void)uv_poll_start(&d->poll, UV_READABLE, on_door);
	}
}

static void on_door_closed(uv_handle_t *h)
{
	struct door *d = h->data;

	free(d->what.address);
	free(d);
}

static void door_close(struct door *d)
{
	uv_close((uv_handle_t *)&d->poll, on_door_closed);
	d->fd = close_fd(d->fd); /* at once: who is told that it is closed may want the port */
}

static int bind_error(const struct publication *p, int errnum, struct err *e)
{
	char text[PUBLISH_TEXT_MAX];

	publication_format(p, text);
	switch (errnum) {
	case EADDRINUSE:
		return err_set(e, ERR_CONFLICT, errnum, "publish: %s: the port %u of that address is taken on this host; give another one, or none for any that is free",
		               text, p->host_port);
	case EACCES:
		return err_set(e, ERR_DENIED, errnum, "publish: %s: the port %u is for privileged programs, which this server is not; give one from 1024 on", text,
		               p->host_port);
	case EADDRNOTAVAIL:
		return err_set(e, ERR_INVALID, errnum, "publish: %s: that is no address of this host", text);
	default:
		return err_sys(e, ERR_UNAVAILABLE, errnum, "publish: %s", text);
	}
}

/* The host port is filled in. */
static int bind_door(struct publication *p, struct err *e)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(p->host_port) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(p->host_port) };
	const int one = 1;
	struct addr a;

	if (addr_parse(str_of(p->address), &a) < 0)
		return err_set(e, ERR_INVALID, EINVAL, "publish: '%.45s' is not an address", p->address);
	memcpy(&a4.sin_addr, a.b, 4);
	memcpy(&a6.sin6_addr, a.b, 16);
	bool v4 = a.family == 4;
	struct sockaddr *to = v4 ? (struct sockaddr *)&a4 : (struct sockaddr *)&a6;
	socklen_t len = v4 ? sizeof a4 : sizeof a6;
	auto_fd int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return bind_error(p, errno, e);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one); /* connections of a former server may still linger */
	if (!v4)
		(void)setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if (bind(fd, to, len) < 0 || listen(fd, BACKLOG) < 0 || getsockname(fd, to, &len) < 0)
		return bind_error(p, errno, e);
	p->host_port = ntohs(v4 ? a4.sin_port : a6.sin6_port);
	return take_fd(&fd);
}

static int permitted(const struct core *c, const struct publication *p, struct err *e)
{
	struct addr a;

	if (addr_parse(str_of(p->address), &a) == 0 && nets_have(c->o.publish, &a))
		return 0;
	if (c->o.publish->n == 0)
		return err_set(e, ERR_DENIED, EPERM, "publish: this server's operator allows no port to be published");
	return err_set(e, ERR_DENIED, EPERM, "publish: this server's operator allows no port to be published on %.45s: give an address of loopback, or none", p->address);
}

/* Fills in what was left open. */
static int door_open(struct core *c, struct publication *p, struct door **ret, struct err *e)
{
	if (!p->address)
		p->address = xstrdup(PUBLISH_ADDRESS_DEFAULT);
	int fd = permitted(c, p, e);
	if (fd == 0)
		fd = bind_door(p, e);
	if (fd < 0)
		return fd;
	struct door *d = xcalloc(1, sizeof *d);
	*d = (struct door){ .fd = fd, .what = *p };
	d->what.address = xstrdup(p->address);
	if (uv_poll_init(c->loop, &d->poll, fd) < 0) {
		close_fd(fd);
		free(d->what.address);
		free(d);
		return err_set(e, ERR_UNAVAILABLE, EMFILE, "publish: the socket cannot be watched");
	}
	d->poll.data = d;
	*ret = d;
	return 0;
}

int doors_open(struct core *c, struct publications *p, struct door **ret, struct err *e)
{
	struct door *list = NULL, *one = NULL;

	for (size_t i = 0; i < p->n; i++) {
		if (door_open(c, &p->v[i], &one, e) < 0) {
			doors_drop(list);
			return -EINVAL;
		}
		DL_APPEND(list, one);
	}
	*ret = list;
	return 0;
}

void doors_drop(struct door *list)
{
	struct door *d, *next;

	DL_FOREACH_SAFE (list, d, next)
		door_close(d);
}

static void say(struct sandbox *s, const char *type, const struct publication *p, const struct err *why)
{
	struct audit_line *l = core_audit_begin(s->core, type, s->row.tenant, s->row.id);

	audit_text(l, "address", p->address);
	audit_u64(l, "host_port", p->host_port);
	audit_u64(l, "port", p->port);
	audit_text(l, "error", why ? why->message : NULL);
	core_audit_end(s->core);
}

static void attach(struct sandbox *s, struct door *d)
{
	d->sandbox = s;
	DL_APPEND(s->doors, d);
	say(s, "port.published", &d->what, NULL);
}

void doors_attach(struct sandbox *s, struct door *list)
{
	struct door *d, *next;

	DL_FOREACH_SAFE (list, d, next) {
		DL_DELETE(list, d);
		attach(s, d);
	}
	doors_listen(s);
}

void doors_restore(struct sandbox *s)
{
	struct door *d;
	struct err e;

	s->doors_tried_ms = now_ms();
	for (size_t i = 0; i < s->row.spec.publish.n; i++) {
		struct publication *p = &s->row.spec.publish.v[i];
		bool there = false;
		DL_FOREACH (s->doors, d)
			there = there || publication_same_place(&d->what, p);
		if (there)
			continue;
		if (door_open(s->core, p, &d, &e) == 0) {
			p->lost = false;
			attach(s, d);
		} else if (!p->lost) { /* said once */
			p->lost = true;
			log_warn("sandbox=%s msg=\"%s\"", s->row.id, e.message);
			say(s, "port.lost", p, &e);
		}
	}
	doors_listen(s);
}

void doors_sweep(struct sandbox *s)
{
	bool lost = false;

	for (size_t i = 0; i < s->row.spec.publish.n; i++)
		lost = lost || s->row.spec.publish.v[i].lost;
	if (lost && now_ms() - s->doors_tried_ms > AGAIN_MS)
		doors_restore(s);
	doors_listen(s);
}

void doors_close(struct sandbox *s)
{
	struct door *list = take_ptr(&s->doors);

	doors_drop(list);
	while (s->visits)
		visit_end(s->visits, true);
}

/* --- verbs --- */

int sandbox_publish(struct sandbox *s, const struct publication *p, struct publication *ret, struct err *e)
{
	struct sandbox_spec changed;
	struct door *d = NULL;

	if (s->row.state == SANDBOX_DELETING)
		return err_set(e, ERR_CONFLICT, EBUSY, "publish: the sandbox is being deleted");
	if (core_audit_ready(s->core, e) < 0)
		return -ENOSPC;
	spec_copy(&changed, &s->row.spec);
	struct publication *fresh = publications_add(&changed.publish);
	*fresh = *p;
	fresh->address = xstrdup(p->address);
	int rc = publications_validate(&changed.publish, e);
	if (rc == 0)
		rc = door_open(s->core, fresh, &d, e);
	if (rc < 0) {
		spec_done(&changed);
		return rc;
	}
	rc = sandbox_replace_spec(s, &changed, e);
	if (rc < 0) {
		door_close(d);
		return rc;
	}
	attach(s, d);
	doors_listen(s);
	*ret = s->row.spec.publish.v[s->row.spec.publish.n - 1];
	return 0;
}

int sandbox_unpublish(struct sandbox *s, uint16_t host_port, struct err *e)
{
	struct sandbox_spec changed;
	struct door *d, *next;

	spec_copy(&changed, &s->row.spec);
	for (size_t i = changed.publish.n; i-- > 0;)
		if (changed.publish.v[i].host_port == host_port)
			publications_remove(&changed.publish, i);
	if (changed.publish.n == s->row.spec.publish.n) {
		spec_done(&changed);
		return err_set(e, ERR_NOT_FOUND, ENOENT, "no port of this sandbox is published at %u of this host", host_port);
	}
	int rc = sandbox_replace_spec(s, &changed, e);
	if (rc < 0)
		return rc;
	DL_FOREACH_SAFE (s->doors, d, next) {
		if (d->what.host_port != host_port)
			continue;
		DL_DELETE(s->doors, d);
		say(s, "port.unpublished", &d->what, NULL);
		door_close(d);
	}
	return 0;
}
