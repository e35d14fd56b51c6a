/* The audit log: pages, and a stream that goes on. Lines are handed out as they are in the log, so that their hashes can be checked. */
#include "dialect/native/native_int.h"

#include <errno.h>
#include <inttypes.h>

enum { HEARTBEAT_MS = 15000, PIECE_LINES = 200 };
#define JSON_INTEGER_MAX 9007199254740991.0 /* that every JSON reader takes */

struct query {
	uint64_t after, limit;
	char *type, *sandbox;
	bool follow;
};

static const struct field page_fields[] = {
	{ .name = "after", .kind = FIELD_U64, .offset = offsetof(struct query, after), .max = JSON_INTEGER_MAX },
	{ .name = "limit", .kind = FIELD_U64, .offset = offsetof(struct query, limit), .min = 1, .max = 1000 },
	{ .name = "type", .kind = FIELD_STRING, .offset = offsetof(struct query, type) },
	{ .name = "sandbox", .kind = FIELD_STRING, .offset = offsetof(struct query, sandbox) },
	{ 0 },
};

static const struct field stream_fields[] = {
	{ .name = "after", .kind = FIELD_U64, .offset = offsetof(struct query, after), .max = JSON_INTEGER_MAX },
	{ .name = "type", .kind = FIELD_STRING, .offset = offsetof(struct query, type) },
	{ .name = "sandbox", .kind = FIELD_STRING, .offset = offsetof(struct query, sandbox) },
	{ .name = "follow", .kind = FIELD_BOOL, .offset = offsetof(struct query, follow) },
	{ 0 },
};

static void query_done(struct query *q)
{
	free(q->type);
	free(q->sandbox);
}

/* --- a page --- */

struct page {
	struct buf b;
	bool any;
};

static void add_line(void *ctx, uint64_t seq, struct str line)
{
	struct page *p = ctx;

	(void)seq;
	(void)buf_addz(&p->b, p->any ? "," : "");
	(void)buf_add(&p->b, line.p, line.n);
	p->any = true;
}

void native_audit_list(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct query q = { 0 };
	struct page p = { 0 };
	uint64_t next = 0;
	const char *hash;
	struct err e;

	buf_init(&p.b, JSON_REPLY_MAX);
	(void)buf_addz(&p.b, "{\"items\":[");
	int rc = decode_query(r, page_fields, &q, &e);
	if (rc >= 0) {
		const struct audit_query ask = { q.after, (size_t)q.limit, q.type, q.sandbox };
		rc = api_audit_read(n->api, req_caller(r), &ask, add_line, &p, &next, &e);
	}
	query_done(&q);
	if (rc < 0) {
		answer_err(n, r, &e);
	} else {
		uint64_t head = api_audit_head(n->api, &hash);
		(void)buf_addz(&p.b, "],\"next\":");
		if (next < head)
			(void)buf_addf(&p.b, "%" PRIu64, next);
		else
			(void)buf_addz(&p.b, "null");
		(void)buf_addf(&p.b, ",\"head\":{\"seq\":%" PRIu64 ",\"hash\":\"%s\"}}", head, hash);
		answer_json(n, r, 200, &p.b);
	}
	buf_done(&p.b);
}

/* --- a stream: a line each, or server-sent events --- */

struct stream {
	uv_timer_t timer; /* a heartbeat while there is nothing; at once, when there is more than a piece */
	struct native *n;
	struct request *r;
	struct caller caller;
	struct query q;
	struct audit_watch *watch;
	bool sse, closed;
};

static void free_stream(uv_handle_t *h)
{
	struct stream *s = container_of((uv_timer_t *)h, struct stream, timer);

	query_done(&s->q);
	free(s);
}

static void stop(struct stream *s)
{
	if (s->closed)
		return;
	s->closed = true;
	audit_watch_free(take_ptr(&s->watch));
	uv_close((uv_handle_t *)&s->timer, free_stream);
}

static void gone(void *ctx)
{
	stop(ctx);
}

static void send_line(void *ctx, uint64_t seq, struct str line)
{
	struct stream *s = ctx;
	auto_buf struct buf b;

	buf_init(&b, line.n + 256);
	if (s->sse)
		(void)buf_addf(&b, "id: %" PRIu64 "\ndata: ", seq);
	(void)buf_add(&b, line.p, line.n);
	(void)buf_addz(&b, s->sse ? "\n\n" : "\n");
	req_write(s->r, buf_str(&b));
}

static void on_timer(uv_timer_t *t);

/* A piece at a time, as long as the client takes it. */
static void go_on(struct stream *s)
{
	const struct audit_query ask = { s->q.after, PIECE_LINES, s->q.type, s->q.sandbox };
	const char *hash;
	struct err e;

	if (s->closed || !req_room(s->r))
		return;
	uint64_t head = api_audit_head(s->n->api, &hash);
	if (s->q.after < head && api_audit_read(s->n->api, &s->caller, &ask, send_line, s, &s->q.after, &e) < 0) {
		req_abort(s->r);
		stop(s);
		return;
	}
	if (s->q.after >= head && !s->q.follow) {
		req_end(s->r);
		stop(s);
		return;
	}
	uv_timer_start(&s->timer, on_timer, s->q.after < head ? 0 : HEARTBEAT_MS, 0);
}

static void on_timer(uv_timer_t *t)
{
	struct stream *s = container_of(t, struct stream, timer);
	const char *hash;

	if (s->q.after >= api_audit_head(s->n->api, &hash)) /* so that proxies and clients see a living connection */
		req_write(s->r, s->sse ? STR(": alive\n\n") : STR("\n"));
	go_on(s);
}

static void on_grown(void *ctx)
{
	go_on(ctx);
}

static void on_room(void *ctx)
{
	go_on(ctx);
}

void native_audit_stream(struct request *r, void *dialect)
{
	static const struct header no_store = { "Cache-Control", "no-store" };
	struct native *n = dialect;
	struct str accept = req_header(r, "Accept"), last = req_header(r, "Last-Event-ID");
	struct stream *s = xcalloc(1, sizeof *s);
	struct err e;

	*s = (struct stream){ .n = n, .r = r, .caller = *req_caller(r) };
	s->sse = accept.p && memmem(accept.p, accept.n, "text/event-stream", 17);
	int rc = decode_query(r, stream_fields, &s->q, &e);
	if (rc >= 0 && last.p && parse_u64(last, UINT64_MAX, &s->q.after) < 0) /* a client that comes back: nothing is left out */
		rc = err_set(&e, ERR_INVALID, EINVAL, "Last-Event-ID: the number of a line");
	if (rc < 0) {
		query_done(&s->q);
		free(s);
		answer_err(n, r, &e);
		return;
	}
	s->q.follow = s->q.follow || s->sse;
	uv_timer_init(n->loop, &s->timer);
	if (s->q.follow)
		s->watch = api_audit_watch(n->api, on_grown, s);
	req_on_gone(r, gone, s);
	req_on_room(r, on_room, s);
	answer_begin(n, r, &no_store, 1, s->sse ? "text/event-stream" : "application/x-ndjson");
	uv_timer_start(&s->timer, on_timer, 0, 0); /* the answer must not end inside the handler's own call */
}

/* --- webhooks --- */

struct webhook_body {
	char *url, *secret;
	char **types;
};

static const struct field webhook_fields[] = {
	{ .name = "url", .kind = FIELD_STRING, .offset = offsetof(struct webhook_body, url), .required = true },
	{ .name = "secret", .kind = FIELD_STRING, .offset = offsetof(struct webhook_body, secret) },
	{ .name = "types", .kind = FIELD_STRINGS, .offset = offsetof(struct webhook_body, types) },
	{ 0 },
};

/* The secret is shown once, to whoever makes it. */
static void encode_webhook(struct jout *j, const struct webhook_view *v, bool secret)
{
	jout_object(j, NULL);
	jout_z(j, "id", v->id);
	jout_z(j, "url", v->url);
	if (secret)
		jout_z(j, "secret", v->secret);
	jout_array(j, "types");
	for (char *const *t = v->types; t && *t; t++)
		jout_z(j, NULL, *t);
	jout_end_array(j);
	jout_time(j, "created_at", v->created_ms);
	jout_u64(j, "seq", v->seq);
	jout_u64(j, "failures", v->failures);
	jout_z(j, "error", v->error);
	jout_end_object(j);
}

void native_webhook_create(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct webhook_body w = { 0 };
	struct webhook_view v;
	struct err e;

	int rc = decode_body(req_body(r), webhook_fields, &w, &e);
	if (rc >= 0)
		rc = api_webhook_create(n->api, req_caller(r), w.url, w.secret, w.types, &v, &e);
	if (rc < 0) {
		answer_err(n, r, &e);
	} else {
		auto_buf struct buf b;
		buf_init_secret(&b, 1 << 20);
		struct jout j = { .b = &b };
		encode_webhook(&j, &v, true);
		answer_json(n, r, 201, &b);
	}
	free(w.url);
	free_secret(w.secret);
	strv_free(w.types);
}

static void add_webhook(void *ctx, const struct webhook_view *v)
{
	encode_webhook(ctx, v, false);
}

void native_webhook_list(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	auto_items struct items l;
	items_begin(&l);
	if (api_webhook_list(n->api, req_caller(r), add_webhook, &l.j, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	answer_items(n, r, 200, &l);
}

void native_webhook_delete(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;

	if (api_webhook_delete(n->api, req_caller(r), req_path_arg(r, "webhook"), &e) < 0)
		answer_err(n, r, &e);
	else
		answer_empty(n, r, 204);
}
