/* HTTP/1.1 between the two sides of an opened connection.
 *
 * One request at a time: the next one's head is not looked at before the answer to this one is over, so that it is always clear whose answer
 * the server's bytes are. Bodies are taken apart and put together again as they come; whatever the parser refuses ends the connection.
 * Behind an upgrade that the server has agreed to (101) the bytes pass as they are. Values that come back are starred out. */
#include "egress/opener_int.h"

#include <openssl/evp.h>
#include <stdio.h>

#define SIGNED_BODY_MAX (1U << 20)

struct http1 {
	struct http_parser req, res;
	bool waiting;  /* a request's head has been sent on, and its answer is not over */
	bool req_over; /* nothing more of it comes */
	bool last;     /* the connection ends with this exchange */
	bool upgrade;  /* was asked for */
	bool opaque;   /* and agreed to */
	bool collecting; /* the body is needed before the head can be signed */
	struct held *question; /* the request waits for somebody's word; its head is in req */
	struct buf body;
	struct screen screen; /* of the answer; kept back, and since then nothing came (0 = no) */
	uint64_t unsure_ms;
};

struct http1 *http1_new(struct conn *c)
{
	struct http1 *h = xcalloc(1, sizeof *h);

	(void)c;
	http_init(&h->req, HTTP_REQUEST);
	http_init(&h->res, HTTP_RESPONSE);
	buf_init(&h->body, SIGNED_BODY_MAX);
	screen_init(&h->screen, OUT_MAX);
	return h;
}

void http1_free(struct http1 *h)
{
	if (!h)
		return;
	http_done(&h->req);
	http_done(&h->res);
	buf_done(&h->body);
	screen_done(&h->screen);
	free(h);
}

/* --- answers of ours --- */

static void answer(struct conn *c, int status, const char *kind, const char *message)
{
	auto_buf struct buf body;

	buf_init(&body, 4096);
	refusal_body(kind, message, &body);
	buf_addf(&c->client.out, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nX-Caisson: refused\r\nConnection: close\r\n\r\n",
		 status, http_reason(status), body.len);
	(void)buf_add(&c->client.out, body.data, body.len);
	opened_end(c);
}

static void refuse(struct conn *c, struct place *p)
{
	opener_tell(c, p, false);
	answer(c, p->status, p->status == 403 ? "denied" : "invalid", p->reason);
}

static void object(struct conn *c, int status, const char *kind, struct str method, struct str target, const char *why)
{
	opener_tell_objection(c, method, target, why);
	answer(c, status, kind, why);
}

/* --- requests --- */

/* Why a head is not carried, whatever secrets it has; NULL = it is. */
static const char *objection(const struct conn *c, const struct http_head *h, int *ret_status)
{
	*ret_status = 400;
	if (streq(h->method, "CONNECT") || streq(h->method, "TRACE"))
		return "this method is not carried where TLS is opened or methods are looked at";
	if (h->target.n == 0 || (h->target.p[0] != '/' && !str_eqz(h->target, "*")))
		return "a target that names a host by itself";
	if (http_list_has(h, "Upgrade", "h2c"))
		return "an upgrade that could not be followed";
	*ret_status = 421;
	struct str host = http_get(h, "Host");
	if (!host.p || !opened_for(c, host))
		return "another host than the one that this connection is for";
	return NULL;
}

static void put_head(struct conn *c, const struct http_head *h, const struct place *p, bool without_expect)
{
	struct buf *out = &c->server.out;
	struct str target = p->fresh_target ? str_of(p->fresh_target) : p->target;

	buf_addf(out, "%s ", h->method);
	(void)buf_add(out, target.p, target.n);
	buf_addf(out, " HTTP/1.%d\r\n", h->minor);
	for (size_t i = 0; i < p->n; i++) {
		struct str value = place_value(&p->fields[i]), name = p->fields[i].name;
		if ((without_expect && str_eq_nocase(name, STR("Expect"))) || str_eq_nocase(name, STR("Trailer")))
			continue;
		(void)buf_add(out, name.p, name.n);
		buf_addz(out, ": ");
		(void)buf_add(out, value.p, value.n);
		buf_addz(out, "\r\n");
	}
	buf_addz(out, "\r\n");
}

static void put_chunk(struct buf *out, struct str bytes)
{
	buf_addf(out, "%zx\r\n", bytes.n);
	(void)buf_add(out, bytes.p, bytes.n);
	buf_addz(out, "\r\n");
}

/* Judges the head and sends it on; with the whole body when that was waited for. False: it was refused. */
static bool send_request(struct conn *c, const struct http_head *h)
{
	struct http1 *x = c->http1;
	struct place_field fields[HTTP_MAX_FIELDS];
	struct place p = { .host = c->name, .port = c->port, .plain = c->plain, .method = str_of(h->method), .target = h->target, .fields = fields, .n = h->n_fields };
	unsigned char digest[32];
	char hex[65];

	for (size_t i = 0; i < h->n_fields; i++)
		fields[i] = (struct place_field){ .name = h->fields[i].name, .value = h->fields[i].value };
	bool whole = x->collecting;
	if (whole && EVP_Digest(x->body.data ? x->body.data : "", x->body.len, digest, NULL, EVP_sha256(), NULL) == 1) {
		hex_encode(digest, sizeof digest, hex);
		p.body_hash = str_of(hex);
	}
	enum placed v = place_request(&c->o->keys, &p);
	if (v == PLACE_NEEDS_BODY && whole)
		v = place_refuse(&p, NULL, 500, "the request cannot be signed");
	if (v == PLACE_NEEDS_BODY) {
		x->collecting = true;
		if (h->expect_continue)
			buf_addz(&c->client.out, "HTTP/1.1 100 Continue\r\n\r\n");
	} else if (v == PLACE_REFUSED) {
		refuse(c, &p);
	} else {
		if (p.placed)
			opener_tell(c, &p, true);
		put_head(c, h, &p, whole);
		x->waiting = true;
		x->res.answers_head = streq(h->method, "HEAD");
	}
	place_done(&p);
	if (v == PLACED && whole && x->body.len && h->length == HTTP_CHUNKED)
		put_chunk(&c->server.out, buf_str(&x->body));
	else if (v == PLACED && whole)
		(void)buf_add(&c->server.out, x->body.data, x->body.len);
	return v != PLACE_REFUSED;
}

/* By the rules about methods, before anything of it goes anywhere. */
static void judge_method(struct conn *c, const struct http_head *h)
{
	const struct request r = { str_of(h->method), h->target };
	char why[METHODS_WHY_MAX];

	switch (methods_judge(c, NULL, &c->http1->question, &r, why)) {
	case METHODS_GO:
		(void)send_request(c, h);
		break;
	case METHODS_DENIED:
		answer(c, 403, "denied", why);
		break;
	case METHODS_HELD:
		break;
	}
}

void http1_answered(struct conn *c, bool allowed, const char *why)
{
	if (allowed)
		(void)send_request(c, c->http1->req.head);
	else
		answer(c, 403, "denied", why);
}

static void on_request_head(struct conn *c)
{
	struct http1 *x = c->http1;
	const struct http_head *h = x->req.head;
	int status;
	const char *why = objection(c, h, &status);

	x->req_over = false;
	x->upgrade = http_get(h, "Upgrade").p != NULL;
	x->last = !h->keep_alive;
	if (c->refusal[0])
		answer(c, 502, "unavailable", c->refusal);
	else if (why)
		object(c, status, "denied", str_of(h->method), h->target, why);
	else
		judge_method(c, h);
}

static void on_request_body(struct conn *c, struct str bytes)
{
	struct http1 *x = c->http1;

	if (x->collecting && buf_add(&x->body, bytes.p, bytes.n) < 0)
		answer(c, 413, "too_large", "a body that has to be signed by us has at most 1 MiB");
	else if (!x->collecting && x->req.head->length == HTTP_CHUNKED)
		put_chunk(&c->server.out, bytes);
	else if (!x->collecting)
		(void)buf_add(&c->server.out, bytes.p, bytes.n);
}

static void on_request_end(struct conn *c)
{
	struct http1 *x = c->http1;
	bool chunked = x->req.head->length == HTTP_CHUNKED, sent = !x->collecting || send_request(c, x->req.head);

	if (x->collecting) {
		x->collecting = false;
		buf_done(&x->body);
	}
	if (!sent)
		return;
	if (chunked)
		buf_addz(&c->server.out, "0\r\n\r\n");
	x->req_over = true;
	http_next(&x->req);
}

static bool run_requests(struct conn *c)
{
	struct http1 *x = c->http1;
	bool moved = false;

	/* Also without a byte: the end of a message is an event of its own. */
	while (c->state == CONN_OPEN && !x->opaque && !x->question && !(x->waiting && x->req_over) && c->server.out.len < ROOM) {
		struct str in = buf_str(&c->client.in), body;
		enum http_event ev = http_feed(&x->req, &in, &body);
		size_t used = c->client.in.len - in.n;
		if (ev == HTTP_HEAD)
			on_request_head(c);
		else if (ev == HTTP_BODY)
			on_request_body(c, body);
		else if (ev == HTTP_END)
			on_request_end(c);
		else if (ev == HTTP_ERROR)
			object(c, x->req.error_status, "invalid", STR(""), STR(""), x->req.error);
		buf_consume(&c->client.in, used);
		moved = moved || used || ev != HTTP_MORE;
		if (ev == HTTP_MORE)
			break;
	}
	return moved;
}

/* --- answers --- */

static void put_answer_head(struct conn *c, struct http_head *h)
{
	auto_buf struct buf head;

	buf_init(&head, OUT_MAX);
	buf_addf(&head, "HTTP/1.%d %d ", h->minor, h->status);
	(void)buf_add(&head, h->reason.p, h->reason.n);
	buf_addz(&head, "\r\n");
	for (size_t i = 0; i < h->n_fields; i++) {
		if (str_eq_nocase(h->fields[i].name, STR("Trailer")))
			continue;
		(void)buf_add(&head, h->fields[i].name.p, h->fields[i].name.n);
		buf_addz(&head, ": ");
		(void)buf_add(&head, h->fields[i].value.p, h->fields[i].value.n);
		buf_addz(&head, "\r\n");
	}
	buf_addz(&head, "\r\n");
	screen_mask(&c->o->keys, head.data, head.len);
	(void)buf_add(&c->client.out, head.data, head.len);
}

static void put_answer_bytes(struct conn *c, struct str bytes)
{
	if (bytes.n && c->http1->res.head->length == HTTP_CHUNKED)
		put_chunk(&c->client.out, bytes);
	else if (bytes.n)
		(void)buf_add(&c->client.out, bytes.p, bytes.n);
}

static void on_answer_body(struct conn *c, struct str bytes, enum screen_when when)
{
	struct screen *s = &c->http1->screen;

	put_answer_bytes(c, screen_pass(s, &c->o->keys, bytes, when));
	c->http1->unsure_ms = when == SCREEN_MORE && screen_waits(s) ? opened_unsure(c) : 0;
}

bool http1_idle(struct conn *c, uint64_t now)
{
	struct http1 *x = c->http1;

	if (!x->unsure_ms)
		return false;
	if (now < x->unsure_ms + SCREEN_IDLE_MS) {
		c->unsure = true;
		return false;
	}
	on_answer_body(c, (struct str){ 0 }, SCREEN_IDLE);
	return true;
}

/* Behind what was kept back of it. */
static void cut_answer(struct conn *c)
{
	if (screen_waits(&c->http1->screen))
		on_answer_body(c, (struct str){ 0 }, SCREEN_IDLE);
	opened_cut(c);
}

static void on_answer_end(struct conn *c)
{
	struct http1 *x = c->http1;
	const struct http_head *h = x->res.head;
	int status = h->status;

	on_answer_body(c, (struct str){ 0 }, SCREEN_END);
	if (h->length == HTTP_CHUNKED && !x->res.answers_head && status >= 200 && status != 204 && status != 304)
		buf_addz(&c->client.out, "0\r\n\r\n");
	if (status == 101) {
		x->opaque = true;
		return;
	}
	x->last = x->last || !h->keep_alive;
	bool answers_head = x->res.answers_head;
	http_next(&x->res);
	if (status < 200) { /* the true one is still to come */
		x->res.answers_head = answers_head;
		return;
	}
	/* An answer before the end of the request: what is left of it has no meaning any more. */
	if (x->last || !x->req_over)
		opened_end(c);
	x->waiting = false;
}

static void on_answer_head(struct conn *c)
{
	struct http1 *x = c->http1;

	if (x->res.head->status == 101 && !x->upgrade) {
		answer(c, 502, "unavailable", "the host has switched to another protocol by itself");
		return;
	}
	put_answer_head(c, x->res.head);
}

static bool run_answers(struct conn *c)
{
	struct http1 *x = c->http1;
	bool moved = false;

	while (c->state == CONN_OPEN && !x->opaque && x->waiting && c->client.out.len < ROOM) {
		struct str in = buf_str(&c->server.in), body;
		enum http_event ev = http_feed(&x->res, &in, &body);
		size_t used = c->server.in.len - in.n;
		if (ev == HTTP_HEAD)
			on_answer_head(c);
		else if (ev == HTTP_BODY)
			on_answer_body(c, body, SCREEN_MORE);
		else if (ev == HTTP_END)
			on_answer_end(c);
		else if (ev == HTTP_ERROR)
			cut_answer(c);
		buf_consume(&c->server.in, used);
		moved = moved || used || ev != HTTP_MORE;
		if (ev == HTTP_MORE)
			break;
	}
	return moved;
}

/* --- ends --- */

static bool pass(struct side *from, struct side *to)
{
	size_t n = MIN(from->in.len, ROOM - MIN(to->out.len, ROOM));

	(void)buf_add(&to->out, from->in.data, n);
	buf_consume(&from->in, n);
	return n > 0;
}

static void run_opaque(struct conn *c, bool *moved)
{
	*moved |= pass(&c->client, &c->server);
	*moved |= pass(&c->server, &c->client);
	if (c->server.broken && !c->server.in.len)
		opened_cut(c);
	else if (c->server.eof && !c->server.in.len)
		opened_end(c);
	else if (c->client.eof && !c->client.in.len && !c->server.out.len)
		side_shut(&c->server);
}

/* The server sends no more. */
static void on_server_end(struct conn *c)
{
	struct http1 *x = c->http1;

	if (x->question) {
		answer(c, 503, "unavailable", "the host has closed the connection while the request waited to be allowed: try again");
		return;
	}
	if (!x->waiting) {
		opened_end(c);
		return;
	}
	if (!c->server.eof || http_eof(&x->res) != HTTP_END) {
		cut_answer(c);
		return;
	}
	x->last = true;
	on_answer_end(c);
}

bool http1_run(struct conn *c)
{
	struct http1 *x = c->http1;
	bool moved = run_requests(c);

	moved |= run_answers(c);
	if (c->state != CONN_OPEN)
		return true;
	if (x->opaque) {
		run_opaque(c, &moved);
		return moved;
	}
	if ((c->server.eof || c->server.broken) && !c->server.in.len && !c->refusal[0]) {
		on_server_end(c);
		return true;
	}
	if (c->client.eof && (x->question || (!c->client.in.len && !(x->waiting && x->req_over)))) {
		opened_end(c); /* between requests, or in one: whatever the server has of it is not to be believed */
		return true;
	}
	return moved;
}
