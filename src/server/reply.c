/* Answers. The server alone decides how a body is framed and whether the connection goes on: a handler that tries to, or that
 * would break a head with a line break, gets a 500 instead of a smuggled answer. */
#include "server/internal.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

const char *reply_date(struct server *s)
{
	uint64_t now = now_unix_ms() / 1000;
	struct tm tm;
	time_t t = (time_t)now;

	if (now != s->date_at) { /* formatted once a second */
		gmtime_r(&t, &tm);
		strftime(s->date, sizeof s->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
		s->date_at = now;
	}
	return s->date;
}

static bool has_no_body(int status)
{
	return status < 200 || status == 204 || status == 304;
}

struct buf *reply_head_start(struct request *r, int status)
{
	struct buf *b = &r->server->scratch;

	buf_reset(b);
	buf_addf(b, "HTTP/1.1 %d %s\r\n", status, http_reason(status));
	return b;
}

void reply_head_add(struct buf *b, struct str name, struct str value)
{
	buf_add(b, name.p, name.n);
	buf_add(b, ": ", 2);
	buf_add(b, value.p, value.n);
	buf_add(b, "\r\n", 2);
}

static void add_framing(struct request *r, struct buf *b, int status, int64_t length)
{
	struct answer *a = &r->answer;

	a->silent = has_no_body(status) || streq(r->head->method, "HEAD");
	a->left = a->silent ? 0 : length;
	a->close = r->conn->server->stopping || !r->head->keep_alive || !r->intake.complete;
	if (length >= 0 && !has_no_body(status)) {
		buf_addf(b, "Content-Length: %lld\r\n", (long long)length);
	} else if (!a->silent && r->head->minor == 1) {
		a->chunked = true;
		buf_addz(b, "Transfer-Encoding: chunked\r\n");
	} else if (!a->silent) {
		a->close = true; /* 1.0 knows no chunks: the end is the end */
	}
	if (a->close)
		buf_addz(b, "Connection: close\r\n");
	else if (r->head->minor == 0)
		buf_addf(b, "Connection: keep-alive\r\nKeep-Alive: timeout=%d\r\n", KEEP_ALIVE_S);
	else
		buf_addf(b, "Keep-Alive: timeout=%d\r\n", KEEP_ALIVE_S);
	buf_addz(b, "\r\n");
}

void reply_head_send(struct request *r, struct buf *b, int status, int64_t length, struct str body)
{
	struct answer *a = &r->answer;

	a->begun = true;
	if (!r->conn)
		return;
	if (a->extra.len)
		buf_add(b, a->extra.data, a->extra.len);
	add_framing(r, b, status, length);
	if (body.n == 0 || a->silent) {
		conn_queue(r->conn, buf_str(b));
		return;
	}
	struct iovec iov[] = { const_iov(buf_str(b)), const_iov(body) };
	conn_writev(r->conn, iov, 2);
	a->left = 0;
}

/* --- what handlers give --- */

static bool header_ok(const struct header *h)
{
	static const char *const ours[] = { "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "Date" };
	struct str name = str_of(h->name);

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (str_eq_nocase(name, str_of(ours[i])))
			return false;
	return http_is_token(name) && h->value && http_value_ok(str_of(h->value));
}

static struct buf *head_start(struct request *r, int status, const struct header *h, size_t n_h, const char *content_type)
{
	for (size_t i = 0; i < n_h; i++) {
		if (!header_ok(&h[i])) {
			log_warn("req=%llu msg=\"a handler's header %s can't be sent\"", (unsigned long long)r->id, h[i].name);
			return NULL;
		}
	}
	if (content_type && !http_value_ok(str_of(content_type)))
		return NULL;
	struct buf *b = reply_head_start(r, status);
	buf_addf(b, "Date: %s\r\n", reply_date(r->server));
	if (content_type)
		reply_head_add(b, STR("Content-Type"), str_of(content_type));
	for (size_t i = 0; i < n_h; i++)
		reply_head_add(b, str_of(h[i].name), str_of(h[i].value));
	return b->overflow ? NULL : b;
}

static void end_answer(struct request *r)
{
	r->answer.ended = true;
	if (r->conn)
		conn_post(r->conn);
	else if (r->server)
		task_post(r->server, &r->task);
	else
		request_free(r);
}

static void internal_error(struct request *r)
{
	struct err e;

	err_set(&e, ERR_INTERNAL, 0, "the answer to this request could not be written");
	reply_default(r, 500, &e);
}

void req_reply(struct request *r, int status, const struct header *h, size_t n_h, const char *content_type, struct str body)
{
	if (r->answer.begun)
		return;
	if (!r->conn) {
		r->answer.begun = true;
		end_answer(r);
		return;
	}
	struct buf *b = head_start(r, status, h, n_h, content_type);
	if (!b) {
		internal_error(r);
		return;
	}
	exchange_discard(r); /* an error answered early: if the body is here already, the connection can go on */
	reply_head_send(r, b, status, (int64_t)body.n, body);
	end_answer(r);
}

void req_reply_empty(struct request *r, int status)
{
	req_reply(r, status, NULL, 0, NULL, (struct str){ "", 0 });
}

void req_reply_json(struct request *r, int status, json_t *take)
{
	auto_free char *text = r->conn ? json_dumps(take, JSON_COMPACT | JSON_ENCODE_ANY) : xstrdup("");

	json_decref(take);
	if (text)
		req_reply(r, status, NULL, 0, "application/json", str_of(text));
	else if (!r->answer.begun)
		internal_error(r);
}

void reply_default(struct request *r, int status, const struct err *e)
{
	json_t *error = json_pack("{s:{s:s,s:s}}", "error", "kind", err_kind_name(e->kind), "message", e->message);

	if (!error) /* a message that is not UTF-8 */
		error = json_pack("{s:{s:s,s:s}}", "error", "kind", err_kind_name(e->kind), "message", http_reason(status));
	req_reply_json(r, status, error);
}

void req_begin(struct request *r, int status, const struct header *h, size_t n_h, const char *content_type, int64_t length)
{
	if (r->answer.begun)
		return;
	if (!r->conn) {
		r->answer.begun = true;
		r->answer.left = -1;
		return;
	}
	struct buf *b = head_start(r, status, h, n_h, content_type);
	if (b)
		reply_head_send(r, b, status, length, (struct str){ NULL, 0 });
	else
		conn_break(r->conn); /* a stream has no second chance: its handler goes on until it is told */
}

void req_write(struct request *r, struct str bytes)
{
	struct answer *a = &r->answer;
	char size[24];

	if (!a->begun || a->ended || a->silent || bytes.n == 0 || !r->conn)
		return;
	if (a->left >= 0 && !a->chunked) {
		if (bytes.n > (uint64_t)a->left) { /* more than promised would be read as the next answer */
			log_warn("req=%llu msg=\"a handler wrote more than it promised\"", (unsigned long long)r->id);
			conn_break(r->conn);
			return;
		}
		a->left -= (int64_t)bytes.n;
	}
	struct iovec iov[3];
	int n = 0;
	if (a->chunked)
		iov[n++] = (struct iovec){ size, (size_t)snprintf(size, sizeof size, "%zx\r\n", bytes.n) };
	iov[n++] = const_iov(bytes);
	if (a->chunked)
		iov[n++] = const_iov(STR("\r\n"));
	conn_writev(r->conn, iov, n);
	a->blocked |= r->conn->out.len > OUT_HIGH;
}

bool req_room(const struct request *r)
{
	return !r->conn || r->conn->out.len <= OUT_HIGH;
}

void req_on_room(struct request *r, void (*room)(void *ctx), void *ctx)
{
	r->room = room;
	r->room_ctx = ctx;
}

void req_end(struct request *r)
{
	struct answer *a = &r->answer;

	if (a->ended)
		return;
	if (r->conn && a->chunked)
		conn_write(r->conn, STR("0\r\n\r\n"));
	if (r->conn && !a->chunked && a->left > 0) {
		log_warn("req=%llu msg=\"a handler wrote less than it promised\"", (unsigned long long)r->id);
		req_abort(r);
		return;
	}
	end_answer(r);
}

void req_abort(struct request *r)
{
	if (r->answer.ended)
		return;
	r->gone = NULL; /* the handler knows */
	r->answer.begun = true;
	if (r->conn)
		conn_break(r->conn);
	end_answer(r);
}
