/* Handing an exchange to an HTTP/1.1 server behind a byte stream (a port inside a sandbox). The upstream is hostile: what it
 * sends goes through the strict parser and is framed anew; what it breaks costs its own exchange.
 *
 *   WAITING -> (upstream open) -> FORWARDING -> (answer complete) -> DONE
 *                                     \-> (101) -> TUNNEL -> DONE
 *
 * FORWARDING: the request's body flows up while there is room (else the client is paused), the answer flows down while the
 * client has room (else the upstream is paused). The answer may be over before the body is; the rest is then discarded.
 * TUNNEL: bytes both ways under the same limits; half-closes are passed on.
 * DONE: ops.close is called from the loop, last, and the proxy is gone. Calls made in between do nothing. */
#include "server/internal.h"

enum state { WAITING, FORWARDING, TUNNEL, DONE };

struct proxy {
	struct server *server;
	enum state state;
	struct request *r; /* until the answer is complete or the client gone */
	struct conn *c;	   /* TUNNEL */
	struct task task;
	struct upstream_ops ops;
	void *ctx;
	struct http_parser parser;
	bool head_asked; /* HEAD: the answer has no body */
	bool upgrade;
	bool client_chunked, client_paused, body_ended;
	bool down_paused; /* the upstream is: the client has no room */
	bool up_eof, eof_passed;
	struct buf up;	  /* for the upstream, beyond its room */
	struct buf extra; /* header lines added to the answer */
	char *cookie_path;
};

static void run_task(struct task *t)
{
	struct proxy *p = container_of(t, struct proxy, task);

	p->ops.close(p->ctx);
	http_done(&p->parser);
	buf_done(&p->up);
	buf_done(&p->extra);
	free(p->cookie_path);
	free(p);
}

static void finish(struct proxy *p)
{
	if (p->state == DONE)
		return;
	p->state = DONE;
	p->r = NULL;
	p->c = NULL;
	task_post(p->server, &p->task);
}

static void client_gone(void *ctx)
{
	finish(ctx);
}

void tunnel_gone(struct proxy *p)
{
	finish(p);
}

/* The upstream's fault: 502 while nothing is out yet, else a cut. */
static void fail(struct proxy *p, const char *why)
{
	struct request *r = p->r;
	struct err e;

	if (p->state == TUNNEL) {
		struct conn *c = p->c;
		c->proxy = NULL;
		conn_break(c);
		c->mode = CONN_LINGER;
		finish(p);
		return;
	}
	finish(p);
	if (!r)
		return;
	req_on_gone(r, NULL, NULL);
	req_on_room(r, NULL, NULL);
	if (r->answer.begun) {
		req_abort(r);
		return;
	}
	err_set(&e, ERR_UNAVAILABLE, 0, "bad answer from the port: %s", why);
	request_refuse(r, 502, &e);
}

/* --- up --- */

static void flush_up(struct proxy *p)
{
	while (p->up.len && p->state != WAITING && p->state != DONE) {
		size_t n = MIN(p->ops.room(p->ctx), p->up.len);
		if (n == 0)
			return;
		p->ops.write(p->ctx, (struct str){ p->up.data, n });
		buf_consume(&p->up, n);
	}
	if (p->up.len == 0)
		buf_reset(&p->up);
}

static void on_body_bytes(void *ctx, struct str bytes)
{
	struct proxy *p = ctx;

	if (p->state == DONE)
		return;
	if (p->client_chunked)
		buf_addf(&p->up, "%zx\r\n", bytes.n);
	buf_add(&p->up, bytes.p, bytes.n);
	if (p->client_chunked)
		buf_add(&p->up, "\r\n", 2);
	flush_up(p);
	if (p->up.len && p->r) {
		p->client_paused = true;
		req_body_pause(p->r);
	}
}

static void on_body_end(void *ctx)
{
	struct proxy *p = ctx;

	p->body_ended = true;
	if (p->state == DONE)
		return;
	if (p->client_chunked)
		buf_addz(&p->up, "0\r\n\r\n");
	flush_up(p);
}

void proxy_upstream_open(struct proxy *p)
{
	static const struct body_events ev = { on_body_bytes, on_body_end };

	if (p->state != WAITING)
		return;
	p->state = FORWARDING;
	flush_up(p);
	if (!p->upgrade && p->r)
		req_read_body(p->r, &ev, p);
}

void proxy_upstream_room(struct proxy *p)
{
	flush_up(p);
	if (p->up.len || p->state == DONE)
		return;
	if (p->state == TUNNEL)
		conn_post(p->c);
	else if (p->client_paused && p->r) {
		p->client_paused = false;
		req_body_resume(p->r);
	}
}

/* --- down --- */

static void on_room(void *ctx)
{
	struct proxy *p = ctx;

	if (p->state != DONE && p->down_paused) {
		p->down_paused = false;
		p->ops.resume(p->ctx);
	}
}

static void begin_answer(struct proxy *p)
{
	struct http_head *h = p->parser.head;
	struct buf *b = reply_head_start(p->r, h->status);

	proxy_copy_answer(b, h, p->cookie_path);
	buf_add(b, p->extra.data, p->extra.len);
	if (!http_get(h, "Date").p)
		buf_addf(b, "Date: %s\r\n", reply_date(p->server));
	/* HEAD and 304 may tell the length that a GET would have; nothing follows. */
	reply_head_send(p->r, b, h->status, h->length >= 0 ? h->length : -1, (struct str){ NULL, 0 });
}

static void begin_tunnel(struct proxy *p)
{
	struct request *r = p->r;
	struct conn *c = r->conn;
	struct http_head *h = p->parser.head;
	struct str asked = http_get(r->head, "Upgrade"), got = http_get(h, "Upgrade");

	if (!p->upgrade || !str_eq_nocase(asked, got) || !http_list_has(h, "Connection", "upgrade")) {
		fail(p, "it switched to a protocol that was not asked for");
		return;
	}
	struct buf *b = reply_head_start(r, 101);
	proxy_copy_answer(b, h, p->cookie_path);
	buf_add(b, p->extra.data, p->extra.len);
	buf_addz(b, "Connection: Upgrade\r\n");
	reply_head_add(b, STR("Upgrade"), got);
	buf_addz(b, "\r\n");
	conn_queue(c, buf_str(b));
	c->request = NULL;
	c->proxy = p;
	c->mode = CONN_TUNNEL;
	http_next(&c->parser);
	p->r = NULL;
	p->c = c;
	p->state = TUNNEL;
	conn_post(c);
	request_release(r);
}

static void end_answer(struct proxy *p)
{
	struct request *r = p->r;

	finish(p);
	req_on_gone(r, NULL, NULL);
	req_on_room(r, NULL, NULL);
	req_end(r);
}

static void take_head(struct proxy *p)
{
	int status = p->parser.head->status;

	if (status == 101)
		begin_tunnel(p);
	else if (status >= 200)
		begin_answer(p);
}

static void take_end(struct proxy *p)
{
	if (p->parser.head->status >= 200) {
		end_answer(p);
		return;
	}
	http_next(&p->parser); /* an interim answer (100, 103): ours to the client are our own */
	p->parser.answers_head = p->head_asked;
}

static void parse_down(struct proxy *p, struct str in)
{
	struct str bytes;

	while (p->state == FORWARDING) {
		switch (http_feed(&p->parser, &in, &bytes)) {
		case HTTP_MORE:
			return;
		case HTTP_HEAD:
			take_head(p);
			break;
		case HTTP_BODY:
			req_write(p->r, bytes);
			break;
		case HTTP_END:
			take_end(p);
			break;
		case HTTP_ERROR:
			fail(p, p->parser.error);
			break;
		}
	}
	if (p->state == TUNNEL)
		conn_write(p->c, in);
}

static bool client_has_room(const struct proxy *p)
{
	return p->state == TUNNEL ? p->c->out.len <= OUT_HIGH : !p->r || req_room(p->r);
}

void proxy_upstream_data(struct proxy *p, struct str bytes)
{
	if (p->state == WAITING) /* it answers before we have asked */
		fail(p, "it spoke first");
	else if (p->state == FORWARDING)
		parse_down(p, bytes);
	else if (p->state == TUNNEL)
		conn_write(p->c, bytes);
	if (p->state != DONE && !p->down_paused && !client_has_room(p)) {
		p->down_paused = true;
		p->ops.pause(p->ctx);
	}
}

void proxy_upstream_eof(struct proxy *p)
{
	if (p->state == TUNNEL) {
		p->up_eof = true;
		conn_post(p->c);
	} else if (p->state != DONE) {
		if (p->parser.head && p->r && p->r->answer.begun && http_eof(&p->parser) == HTTP_END)
			end_answer(p);
		else
			fail(p, "it ended early");
	}
}

void proxy_upstream_failed(struct proxy *p, const struct err *why)
{
	if (p->state != DONE)
		fail(p, why->message);
}

/* --- tunnel, from the connection's side --- */

bool tunnel_step(struct conn *c)
{
	struct proxy *p = c->proxy;
	size_t room = p->up.len ? 0 : p->ops.room(p->ctx), n = MIN(room, c->view.n);

	if (n) {
		p->ops.write(p->ctx, (struct str){ c->view.p, n });
		c->view.p += n;
		c->view.n -= n;
	}
	if (c->out.len < OUT_LOW)
		on_room(p);
	if (c->proxy != p || c->mode != CONN_TUNNEL) /* the stream failed while it was written to or resumed */
		return c->mode == CONN_LINGER;
	if (c->eof && c->view.n == 0 && p->up.len == 0 && !p->eof_passed) {
		p->eof_passed = true;
		p->ops.eof(p->ctx);
	}
	if (p->up_eof && c->out.len == 0 && !c->shut) {
		c->shut = true;
		shutdown(c->fd, SHUT_WR);
	}
	if (c->shut && p->eof_passed) {
		c->broken = true;
		return true;
	}
	return n && c->view.n;
}

bool tunnel_is_half(const struct conn *c)
{
	return c->proxy->up_eof || c->proxy->eof_passed;
}

/* --- beginning --- */

struct proxy *req_proxy(struct request *r, const struct proxy_options *o, const struct upstream_ops *ops, void *ctx)
{
	struct proxy *p = xcalloc(1, sizeof *p);
	const struct http_head *h = r->head;

	p->server = r->server;
	p->ops = *ops;
	p->ctx = ctx;
	p->task.run = run_task;
	http_init(&p->parser, HTTP_RESPONSE);
	p->parser.answers_head = p->head_asked = streq(h->method, "HEAD");
	p->client_chunked = h->length == HTTP_CHUNKED;
	p->upgrade = h->minor == 1 && h->length == 0 && http_list_has(h, "Connection", "upgrade") && http_get(h, "Upgrade").n;
	buf_init(&p->up, SIZE_MAX / 4); /* holds a head or one read of the client: it is paused then */
	buf_init(&p->extra, 16 * 1024);
	proxy_write_request(&p->up, r, o, p->upgrade);
	if (o->cookie_path && http_value_ok(str_of(o->cookie_path))) {
		size_t n = strcspn(o->cookie_path, ";");
		while (n > 1 && o->cookie_path[n - 1] == '/') /* with it, the path itself would be left out */
			n--;
		p->cookie_path = xasprintf("%.*s", (int)n, o->cookie_path);
	}
	for (size_t i = 0; i < o->n_add_headers; i++)
		if (http_is_token(str_of(o->add_headers[i].name)) && http_value_ok(str_of(o->add_headers[i].value)))
			reply_head_add(&p->extra, str_of(o->add_headers[i].name), str_of(o->add_headers[i].value));
	if (!r->conn) { /* the client is gone already */
		request_release(r);
		finish(p);
		return p;
	}
	p->r = r;
	r->owned = true;
	r->intake.mode = BODY_STREAM;
	req_on_gone(r, client_gone, p);
	req_on_room(r, on_room, p);
	return p;
}
