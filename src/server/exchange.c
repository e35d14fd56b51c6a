/* One exchange of HTTP: the parser's events become calls of guard, handler and body callbacks; the end of the answer makes the
 * connection ready for the next request, or lingers and closes. */
#include "base/log.h"
#include "server/internal.h"

#include <errno.h>

bool exchange_wants_input(const struct conn *c)
{
	const struct request *r = c->request;

	if (!r)
		return c->out.len == 0; /* the next request waits until the last answer is on its way */
	return !r->intake.complete && r->intake.wanted && !r->intake.paused && !r->answer.ended;
}

/* --- refusing --- */

void exchange_syntax_error(struct conn *c, int status, const char *why)
{
	struct request *r = take_ptr(&c->request);
	bool begun = r && r->answer.begun;

	if (r)
		request_detach(r);
	if (begun) { /* an answer is half out: nothing sensible can follow */
		conn_break(c);
		return;
	}
	auto_buf struct buf b;
	buf_init(&b, 4096);
	buf_addf(&b,
		 "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n"
		 "{\"error\":{\"kind\":\"invalid\",\"message\":\"%s\"}}",
		 status, http_reason(status), reply_date(c->server), strlen(why) + sizeof "{\"error\":{\"kind\":\"invalid\",\"message\":\"\"}}" - 1,
		 why);
	conn_queue(c, buf_str(&b));
	conn_linger(c);
}

static void refuse(struct request *r, int status, enum err_kind kind, const char *message)
{
	struct err e;

	err_set(&e, kind, 0, "%s", message);
	request_refuse(r, status, &e);
}

static void refuse_too_large(struct request *r)
{
	struct err e;

	err_set(&e, ERR_TOO_LARGE, 0, "the body of this request may have at most %zu bytes", r->intake.max);
	request_refuse(r, 413, &e);
}

/* --- from head to handler --- */

static void want_body(struct request *r)
{
	r->intake.wanted = true;
	if (r->intake.expect && r->conn) {
		r->intake.expect = false;
		if (r->conn->view.n == 0 && r->conn->in.len == 0)
			conn_write(r->conn, STR("HTTP/1.1 100 Continue\r\n\r\n"));
	}
	if (r->conn)
		conn_post(r->conn);
}

static void handle(struct request *r)
{
	r->owned = true;
	r->route->handle(r, r->dialect->ctx);
}

static bool claimed(struct request *r)
{
	struct server *s = r->server;

	if (!s->claim || r->head->host.n == 0)
		return false;
	r->intake.mode = BODY_STREAM;
	r->owned = true;
	if (s->claim(r, host_without_port(r->head->host), s->claim_ctx))
		return true;
	r->owned = false;
	return r->answer.begun;
}

/* What a client asks for and we do not have: how one finds out what a new version of an SDK wants. */
static void log_unserved(const struct request *r, int status)
{
	log_info("req=%llu msg=\"no such route\" status=%d method=%.16s path=\"%.*s\"", (unsigned long long)r->id, status, r->head->method,
	         (int)MIN(r->head->path.n, (size_t)300), r->head->path.p);
}

static bool has_empty_part(struct str path)
{
	return path.n > 1 && (path.p[path.n - 1] == '/' || memmem(path.p, path.n, "//", 2));
}

/* False: answered. */
static bool find_route(struct request *r)
{
	struct err e;
	struct str rest;
	int status;

	r->dialect = route_dialect(r->server, r->head->path, &rest);
	if (!origin_check(r, &status, &e)) {
		request_refuse(r, status, &e);
		return false;
	}
	if (!r->dialect) {
		refuse(r, 404, ERR_NOT_FOUND, "no such path");
		return false;
	}
	auto_buf struct buf methods;
	buf_init(&methods, 512);
	switch (route_find(r, r->dialect, rest, &methods)) {
	case ROUTE_FOUND:
		break;
	case ROUTE_NONE:
		log_unserved(r, 404);
		err_set(&e, ERR_NOT_FOUND, 0, "no such path: %.*s%s", (int)MIN(r->head->path.n, (size_t)200), r->head->path.p,
			has_empty_part(r->head->path) ? " (a part of it is empty: is a name or an id missing?)" : "");
		request_refuse(r, 404, &e);
		return false;
	case ROUTE_METHOD:
		log_unserved(r, 405);
		err_set(&e, ERR_INVALID, 0, "%s is not a method of this path; there is %s", r->head->method, methods.data);
		buf_addf(&r->answer.extra, "Allow: %s\r\n", methods.data);
		request_refuse(r, 405, &e);
		return false;
	case ROUTE_BAD_PATH:
		refuse(r, 400, ERR_INVALID, "the path holds a broken escape, an encoded slash or NUL, or bytes that are not UTF-8");
		return false;
	}
	bool raw_tail = r->n_args && r->route->pattern[strlen(r->route->pattern) - 2] == '*';
	if (!raw_tail && request_decode_query(r) < 0) { /* behind a raw tail the query is somebody else's, too */
		refuse(r, 400, ERR_INVALID, "the query holds a broken escape, a NUL, or bytes that are not UTF-8");
		return false;
	}
	return true;
}

static void begin_request(struct request *r)
{
	int64_t length = r->head->length;

	r->intake.expect = r->head->expect_continue;
	r->conn->holder[0] = '\0';
	websocket_inspect(r);
	if (claimed(r) || !find_route(r))
		return;
	r->intake.mode = r->route->body;
	r->intake.max = r->intake.mode == BODY_NONE ? (size_t)DROPPED_BODY_MAX : r->route->body_max ? r->route->body_max : (size_t)DEFAULT_BODY_MAX;
	buf_init_secret(&r->intake.bytes, r->intake.max);
	if (r->dialect->guard && !r->dialect->guard(r, r->route, r->dialect->ctx)) {
		r->owned = true; /* it has answered, or will */
		return;
	}
	if (r->answer.begun)
		return;
	if (r->route->websocket && r->ws_asked && !r->ws_valid) {
		websocket_refuse(r);
		return;
	}
	if (r->intake.mode == BODY_STREAM) {
		handle(r);
		return;
	}
	if (length > 0 && (uint64_t)length > r->intake.max) {
		refuse_too_large(r);
		return;
	}
	want_body(r);
}

static void take_head(struct conn *c)
{
	struct request *r = request_new(c, take_ptr(&c->parser.head));
	struct str none;

	c->request = r;
	/* Without a body the message is complete now: handlers of streams and WebSockets need not wait for an end. */
	if (r->head->length == 0 && http_feed(&c->parser, &c->view, &none) == HTTP_END)
		r->intake.complete = true;
	begin_request(r);
	if (r->intake.complete && r->intake.mode != BODY_STREAM && !r->owned && !r->answer.begun && r->route)
		handle(r);
}

/* --- body --- */

static void take_bytes(struct request *r, struct str bytes)
{
	struct intake *in = &r->intake;

	in->n += bytes.n;
	switch (in->mode) {
	case BODY_NONE:
		if (in->n > in->max)
			refuse_too_large(r);
		break;
	case BODY_BUFFER:
		if (buf_add(&in->bytes, bytes.p, bytes.n) < 0)
			refuse_too_large(r);
		conn_wipe_input(bytes);
		break;
	case BODY_STREAM:
		in->ev.on_bytes(in->ctx, bytes);
		break;
	}
}

static void take_end(struct request *r)
{
	r->intake.complete = true;
	if (r->intake.mode != BODY_STREAM)
		handle(r);
}

bool exchange_discard(struct request *r)
{
	struct conn *c = r->conn;
	struct str bytes;

	if (r->intake.complete || !c)
		return true;
	if (r->intake.expect) /* the client may send the body, or may not: there is no telling where the next request starts */
		return false;
	conn_use_input(c);
	enum http_event e = HTTP_MORE;
	while (c->view.n && (e = http_feed(&c->parser, &c->view, &bytes)) == HTTP_BODY)
		;
	r->intake.complete = e == HTTP_END;
	if (!r->intake.complete && e == HTTP_BODY && http_feed(&c->parser, &c->view, &bytes) == HTTP_END)
		r->intake.complete = true;
	if (!c->running)
		conn_keep_input(c);
	return r->intake.complete;
}

void req_read_body(struct request *r, const struct body_events *ev, void *ctx)
{
	r->intake.ev = *ev;
	r->intake.ctx = ctx;
	want_body(r);
}

void req_body_pause(struct request *r)
{
	r->intake.paused = true;
}

void req_body_resume(struct request *r)
{
	r->intake.paused = false;
	if (r->conn)
		conn_post(r->conn);
}

/* --- steps --- */

/* The answer is queued to its end. */
static void finish(struct conn *c)
{
	struct request *r = take_ptr(&c->request);
	bool close = r->answer.close || !r->intake.complete || c->server->stopping;

	request_free(r);
	if (close)
		conn_linger(c);
	else
		http_next(&c->parser);
}

/* The client has closed its sending side. */
static bool client_is_gone(const struct conn *c)
{
	const struct request *r = c->request;

	if (r)
		return r->intake.complete ? r->gone && !r->answer.ended : c->eof && c->view.n == 0 && exchange_wants_input(c);
	return c->eof && c->view.n == 0 && c->out.len == 0;
}

/* A stream's end is told in a step of its own: it may be paused, or have been read before the handler asked for the body. */
static bool end_is_due(const struct request *r)
{
	const struct intake *in = &r->intake;

	return in->mode == BODY_STREAM && in->complete && in->wanted && !in->paused && !in->end_told;
}

bool exchange_step(struct conn *c)
{
	struct request *r = c->request;
	struct str bytes;

	if (r && r->answer.ended) {
		finish(c);
		return true;
	}
	if ((c->eof || c->hup) && client_is_gone(c)) {
		c->broken = true;
		return true;
	}
	if (r && r->answer.blocked && c->out.len < OUT_LOW) {
		r->answer.blocked = false;
		if (r->room)
			r->room(r->room_ctx);
		return true;
	}
	if (r && end_is_due(r)) {
		r->intake.end_told = true;
		r->intake.ev.on_end(r->intake.ctx);
		return true;
	}
	if (!exchange_wants_input(c))
		return false;
	switch (http_feed(&c->parser, &c->view, &bytes)) {
	case HTTP_MORE:
		c->broken = c->eof; /* wanted more, and there is no more */
		return c->broken;
	case HTTP_HEAD:
		take_head(c);
		return true;
	case HTTP_BODY:
		take_bytes(r, bytes);
		return true;
	case HTTP_END:
		take_end(r);
		return true;
	case HTTP_ERROR:
		exchange_syntax_error(c, c->parser.error_status, c->parser.error);
		return true;
	}
	return false;
}
