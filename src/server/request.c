/* A request: what a handler may ask it, and how it ends. */
#include "server/internal.h"
#include "wire/urlencode.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <utlist.h>

static void run_task(struct task *t)
{
	struct request *r = container_of(t, struct request, task);

	if (r->answer.ended) {
		request_free(r);
		return;
	}
	/* The client is gone, and a handler waits for room to write into nothing, or has only now asked to be told. */
	if (r->gone) {
		void (*gone)(void *ctx) = r->gone;
		r->gone = NULL;
		gone(r->gone_ctx);
		request_free(r);
	} else if (r->room && r->answer.blocked) {
		r->answer.blocked = false;
		r->room(r->room_ctx);
	}
}

struct request *request_new(struct conn *c, struct http_head *head)
{
	struct request *r = xcalloc(1, sizeof *r);

	r->server = c->server;
	r->conn = c;
	r->local = c->local;
	r->id = ++c->server->n_requests;
	r->head = head;
	r->task.run = run_task;
	buf_init(&r->answer.extra, 1024);
	DL_APPEND(c->server->requests, r);
	return r;
}

void request_free(struct request *r)
{
	if (!r)
		return;
	if (r->server) {
		task_cancel(r->server, &r->task);
		DL_DELETE(r->server->requests, r);
	}
	http_head_free(r->head);
	buf_done(&r->intake.bytes);
	buf_done(&r->answer.extra);
	free(r->arg_text);
	free(r->query);
	free(r->query_text);
	free(r->data);
	free(r);
}

void request_release(struct request *r)
{
	r->conn = NULL;
	r->answer.begun = r->answer.ended = true;
	r->gone = NULL;
	r->room = NULL;
	if (r->server)
		task_post(r->server, &r->task);
	else
		request_free(r);
}

void request_detach(struct request *r)
{
	void (*gone)(void *ctx) = r->gone;

	r->conn = NULL;
	r->gone = NULL;
	if (!r->owned || r->answer.ended) {
		request_free(r);
	} else if (gone) {
		gone(r->gone_ctx);
		request_free(r);
	} else if (r->answer.blocked) {
		task_post(r->server, &r->task);
	}
}

void request_refuse(struct request *r, int status, const struct err *e)
{
	if (r->dialect && r->dialect->refuse)
		r->dialect->refuse(r, status, e, r->dialect->ctx);
	if (!r->answer.begun)
		reply_default(r, status, e);
}

/* --- the query --- */

int request_decode_query(struct request *r)
{
	struct str rest = r->head->query, name, value;
	int result = 0;

	if (r->query || rest.n == 0)
		return 0;
	size_t n = 0;
	while (url_query_next(&rest, &name, &value))
		n++;
	rest = r->head->query;
	/* "name=value&" becomes "name\0value\0", a pair without '=' grows by one. */
	char *to = r->query_text = xmalloc(rest.n + 2 * n + 2);
	r->query = xcalloc(n + 1, sizeof *r->query);
	while (url_query_next(&rest, &name, &value)) {
		struct query_pair *q = &r->query[r->n_query];
		ssize_t got = url_decode(name, URL_FORM, to);
		ssize_t got_value = got < 0 ? got : url_decode(value, URL_FORM, to + got + 1);
		if (got_value < 0) {
			result = -EINVAL;
			continue;
		}
		q->name = to;
		q->value = to + got + 1;
		to += got + got_value + 2;
		r->n_query++;
	}
	return result;
}

/* Decoding is a cache: it does not change what the request says. */
static void need_query(const struct request *r)
{
	request_decode_query((struct request *)(uintptr_t)r);
}

const char *req_query(const struct request *r, const char *name)
{
	need_query(r);
	for (size_t i = 0; i < r->n_query; i++)
		if (streq(r->query[i].name, name))
			return r->query[i].value;
	return NULL;
}

void req_query_each(const struct request *r, void (*each)(void *ctx, const char *name, const char *value), void *ctx)
{
	need_query(r);
	for (size_t i = 0; i < r->n_query; i++)
		each(ctx, r->query[i].name, r->query[i].value);
}

struct str req_raw_query(const struct request *r)
{
	return r->head->query;
}

/* --- the rest --- */

const char *req_method(const struct request *r)
{
	return r->head->method;
}

struct str req_target(const struct request *r)
{
	return r->head->target;
}

const char *req_path_arg(const struct request *r, const char *name)
{
	for (size_t i = 0; i < r->n_args; i++)
		if (str_eqz(r->args[i].name, name))
			return r->args[i].value;
	return NULL;
}

struct str req_header(const struct request *r, const char *name)
{
	return http_get(r->head, name);
}

size_t req_header_count(const struct request *r)
{
	return r->head->n_fields;
}

struct str req_bearer(const struct request *r)
{
	struct str h = http_get(r->head, "Authorization");
	size_t n = 0;

	for (size_t i = 0; i < r->head->n_fields; i++)
		n += str_eq_nocase(r->head->fields[i].name, STR("Authorization"));
	if (n != 1 || h.n < 8 || !str_eq_nocase((struct str){ h.p, 6 }, STR("bearer")) || (h.p[6] != ' ' && h.p[6] != '\t'))
		return (struct str){ 0 };
	h.p += 7, h.n -= 7;
	while (h.n && (h.p[0] == ' ' || h.p[0] == '\t'))
		h.p++, h.n--;
	return h;
}

void req_header_at(const struct request *r, size_t i, struct str *ret_name, struct str *ret_value)
{
	*ret_name = r->head->fields[i].name;
	*ret_value = r->head->fields[i].value;
}

struct str req_body(const struct request *r)
{
	return buf_str(&r->intake.bytes);
}

int64_t req_content_length(const struct request *r)
{
	return r->head->length;
}

bool req_is_websocket(const struct request *r)
{
	return r->ws_valid && (!r->route || r->route->websocket);
}

bool req_is_local(const struct request *r)
{
	return r->local;
}

bool req_is_loopback(const struct request *r)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} peer;
	socklen_t n = sizeof peer;

	if (r->local)
		return true;
	if (!r->conn || getpeername(r->conn->fd, &peer.any, &n) < 0)
		return false;
	if (peer.any.sa_family == AF_INET)
		return ntohl(peer.v4.sin_addr.s_addr) >> 24 == 127;
	return peer.any.sa_family == AF_INET6 &&
	       (IN6_IS_ADDR_LOOPBACK(&peer.v6.sin6_addr) || (IN6_IS_ADDR_V4MAPPED(&peer.v6.sin6_addr) && peer.v6.sin6_addr.s6_addr[12] == 127));
}

const struct route *req_route(const struct request *r)
{
	return r->route;
}

uint64_t req_id(const struct request *r)
{
	return r->id;
}

void req_set_data(struct request *r, void *heap)
{
	free(r->data);
	r->data = heap;
}

void req_set_holder(struct request *r, const char *id)
{
	if (r->conn)
		snprintf(r->conn->holder, sizeof r->conn->holder, "%s", id);
}

void *req_data(const struct request *r)
{
	return r->data;
}

void req_on_gone(struct request *r, void (*gone)(void *ctx), void *ctx)
{
	r->gone = gone;
	r->gone_ctx = ctx;
	if (gone && !r->conn && r->server)
		task_post(r->server, &r->task);
}
