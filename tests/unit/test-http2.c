/* Every request over HTTP/2 ends. A client and a host, each a session of nghttp2's, speak through an opened connection; what passes between them is cut
 * at random places, stands at random times in pipes of random size, and the opener runs only when a socket would have woken it. A seed makes a run:
 * the one that failed is printed, and HTTP2_SEED=n runs it alone. HTTP2_RUNS says how many. */
#include "../opened.h"

#include <nghttp2/nghttp2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <cmocka.h>

enum { ASKED_MAX = 12, TURNS_MAX = 1000000, FULL = 16384, RUNS = 100 };

enum judged { PLAIN, WITH_SECRET, REFUSED, SIGNED, TOO_LARGE_TO_SIGN, N_JUDGED };
enum answer {
	WHEN_OVER,   /* when the whole request is there */
	AT_ONCE,     /* beside the request */
	EARLY,	     /* at once, and then the request is stopped */
	ONLY_A_HEAD, /* that is the end, too */
	BROKEN,	     /* reset in the middle */
	HALF,	     /* the same, as if all were well */
	NEVER,
	N_ANSWERS
};
enum body { WHOLE, IDLE /* its end is never sent */, ENDLESS, N_BODIES };

struct asked { /* what a request is to be, and what has become of it */
	enum judged judged;
	enum answer answer;
	enum body body;
	size_t body_n, answer_n;
	bool trailers, expects, given_up;
	bool held, denied; /* until somebody says yes, or no */
	uint64_t question; /* that waits */
	int32_t id[2]; /* at the client's, at the host's */
	/* what each end has seen: [CLIENT] of the answer, [SERVER] of the request */
	struct seen {
		size_t got, gave, debt;
		int status;
		bool complete, trailers, closed, waits;
		uint32_t code;
	} at[2];
	bool may_send;	 /* its body */
	bool body_over;	 /* has been sent */
	size_t ended_at; /* reads of the client's when the answer was complete */
};

enum { CLIENT, SERVER };

struct peer {
	struct run *run;
	int end;
	nghttp2_session *session;
	struct buf out, up, down; /* not yet in the pipe; the pipes, to the opener and from it */
	size_t room;		  /* in each of them */
	size_t reads;
};

struct run {
	struct opener o;
	int daemon; /* its end */
	struct conn *c;
	struct peer peer[2];
	struct asked v[ASKED_MAX];
	size_t n, submitted;
	uint32_t dice;
	bool event, skipped;
	bool disturbed, gone; /* the host goes at some time; has gone */
	bool swept;
};

/* --- dice --- */

static uint32_t roll(struct run *r)
{
	r->dice ^= r->dice << 13;
	r->dice ^= r->dice >> 17;
	r->dice ^= r->dice << 5;
	return r->dice;
}

static size_t below(struct run *r, size_t n)
{
	return roll(r) % n;
}

static bool one_in(struct run *r, size_t n)
{
	return below(r, n) == 0;
}

/* Not now, perhaps: whoever finds nothing to do then is not done. */
static bool later(struct run *r)
{
	bool yes = one_in(r, 3);

	r->skipped |= yes;
	return yes;
}

/* --- the two ends --- */

static struct asked *asked_of(struct peer *p, int32_t id)
{
	struct run *r = p->run;

	for (size_t i = 0; id && i < r->submitted; i++)
		if (r->v[i].id[p->end] == id)
			return &r->v[i];
	return NULL;
}

static uint8_t byte_at(const struct peer *from, size_t i)
{
	return (uint8_t)((from->end == CLIENT ? 'a' : 'A') + i % 23);
}

static size_t to_give(const struct peer *p, const struct asked *a)
{
	if (p->end == CLIENT)
		return a->body == ENDLESS ? SIZE_MAX : a->body_n;
	return a->answer == BROKEN || a->answer == HALF ? a->answer_n / 2 : a->answer_n;
}

static nghttp2_nv nv(const char *name, const char *value)
{
	return (nghttp2_nv){ (uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE };
}

static ssize_t give(nghttp2_session *session, int32_t id, uint8_t *b, size_t n, uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
	struct peer *p = ctx;
	struct asked *a = source->ptr;
	struct seen *s = &a->at[p->end];
	size_t left = to_give(p, a) - s->gave, some = 1 + below(p->run, n), k = MIN(left, some);
	bool ends = p->end == CLIENT ? a->body == WHOLE : a->answer != BROKEN && a->answer != HALF;

	if ((p->end == CLIENT && !a->may_send) || (left == 0 && !ends)) {
		s->waits = true;
		return NGHTTP2_ERR_DEFERRED;
	}
	for (size_t i = 0; i < k; i++)
		b[i] = byte_at(p, s->gave + i);
	s->gave += k;
	if (k < left || !ends)
		return (ssize_t)k;
	*flags |= NGHTTP2_DATA_FLAG_EOF;
	if (a->trailers) {
		const nghttp2_nv trailer = nv("x-end", "yes");
		*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
		assert_int_equal(nghttp2_submit_trailer(session, id, &trailer, 1), 0);
	}
	return (ssize_t)k;
}

static void respond(struct peer *host, struct asked *a)
{
	const nghttp2_data_provider body = { .source.ptr = a, .read_callback = give };
	const nghttp2_nv interim = nv(":status", "103"), head = nv(":status", "200");

	if (one_in(host->run, 4))
		assert_int_equal(nghttp2_submit_headers(host->session, 0, a->id[SERVER], NULL, &interim, 1, NULL), 0);
	assert_int_equal(nghttp2_submit_response(host->session, a->id[SERVER], &head, 1, a->answer == ONLY_A_HEAD ? NULL : &body), 0);
}

static void go_on(struct peer *client, struct asked *a)
{
	a->may_send = true;
	if (a->at[CLIENT].waits)
		(void)nghttp2_session_resume_data(client->session, a->id[CLIENT]);
	a->at[CLIENT].waits = false;
}

static bool is_refused(const struct asked *a)
{
	return a->judged == REFUSED || a->judged == TOO_LARGE_TO_SIGN || a->denied;
}

static struct asked *by_path(struct run *r, const char *path)
{
	return &r->v[strtoul(strrchr(path, '/') + 1, NULL, 10)];
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n, const uint8_t *value, size_t value_n, uint8_t flags,
		     void *ctx)
{
	struct peer *p = ctx;
	struct run *r = p->run;
	char text[80];

	(void)session, (void)flags;
	snprintf(text, sizeof text, "%.*s=%.*s", (int)n, (const char *)name, (int)value_n, (const char *)value);
	if (p->end == SERVER && strncmp(text, ":path=/v1/", 10) == 0) {
		struct asked *a = by_path(r, text + 6);
		assert_false(is_refused(a) || a->question);
		a->id[SERVER] = frame->hd.stream_id;
	}
	assert_false(p->end == SERVER && strncmp(text, "expect", 6) == 0); /* the opener has met it */
	struct asked *a = asked_of(p, frame->hd.stream_id);
	if (a && p->end == CLIENT && strncmp(text, ":status=", 8) == 0)
		a->at[CLIENT].status = (int)strtol(text + 8, NULL, 10);
	if (a && strcmp(text, "x-end=yes") == 0)
		a->at[p->end].trailers = true;
	return 0;
}

static void on_complete(struct peer *p, struct asked *a)
{
	a->at[p->end].complete = true;
	if (p->end == CLIENT)
		a->ended_at = p->reads;
	else if (a->answer == WHEN_OVER || a->answer == ONLY_A_HEAD)
		respond(p, a);
}

/* As node reads it: one that comes with the end of the answer, while some of the request waits to be written, is the last that is ever heard of it. */
static void on_stop(struct peer *client, const struct asked *a, uint32_t code)
{
	if (code != NGHTTP2_NO_ERROR || a->given_up)
		return;
	assert_true(a->at[CLIENT].complete);
	assert_true(client->reads > a->ended_at);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
	struct peer *p = ctx;
	struct asked *a = asked_of(p, frame->hd.stream_id);

	(void)session;
	if (!a)
		return 0;
	if (frame->hd.type == NGHTTP2_RST_STREAM && p->end == CLIENT)
		on_stop(p, a, frame->rst_stream.error_code);
	if (frame->hd.type == NGHTTP2_HEADERS && p->end == CLIENT && a->at[CLIENT].status == 100)
		go_on(p, a);
	if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST &&
	    (a->answer == AT_ONCE || a->answer == EARLY || a->answer == BROKEN || a->answer == HALF))
		respond(p, a);
	if (frame->hd.type <= NGHTTP2_HEADERS && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		on_complete(p, a);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *b, size_t n, void *ctx)
{
	struct peer *p = ctx;
	struct asked *a = asked_of(p, id);

	(void)session, (void)flags;
	assert_non_null(a);
	struct seen *s = &a->at[p->end];
	for (size_t i = 0; i < n && (p->end == SERVER || s->status == 200); i++) /* a refusal has words of its own */
		assert_int_equal(b[i], byte_at(&p->run->peer[!p->end], s->got + i));
	s->got += n;
	s->debt += n;
	return 0;
}

static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
	struct peer *p = ctx;
	struct asked *a = asked_of(p, frame->hd.stream_id);

	if (!a || frame->hd.type > NGHTTP2_HEADERS)
		return 0;
	struct seen *s = &a->at[p->end];
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM && p->end == CLIENT)
		a->body_over = true;
	else if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM && a->answer == EARLY && !a->at[SERVER].complete)
		assert_int_equal(nghttp2_submit_rst_stream(session, 0, a->id[SERVER], NGHTTP2_NO_ERROR), 0);
	else if (p->end == SERVER && (a->answer == BROKEN || a->answer == HALF) && s->gave == to_give(p, a) && frame->hd.type == NGHTTP2_DATA)
		assert_int_equal(nghttp2_submit_rst_stream(session, 0, a->id[SERVER], a->answer == HALF ? NGHTTP2_NO_ERROR : NGHTTP2_INTERNAL_ERROR), 0);
	return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
	struct peer *p = ctx;
	struct asked *a = asked_of(p, id);

	if (!a)
		return 0;
	if (a->at[p->end].debt)
		(void)nghttp2_session_consume_connection(session, a->at[p->end].debt);
	a->at[p->end].debt = 0;
	a->at[p->end].closed = true;
	a->at[p->end].code = code;
	return 0;
}

static void peer_init(struct run *r, int end)
{
	struct peer *p = &r->peer[end];
	nghttp2_session_callbacks *cb;
	nghttp2_option *options;

	*p = (struct peer){ .run = r, .end = end, .room = 256 + below(r, one_in(r, 2) ? 4000 : 200000) };
	buf_init(&p->out, 1 << 20);
	buf_init(&p->up, 1 << 20);
	buf_init(&p->down, 1 << 20);
	assert_int_equal(nghttp2_session_callbacks_new(&cb), 0);
	assert_int_equal(nghttp2_option_new(&options), 0);
	nghttp2_option_set_no_auto_window_update(options, 1);
	nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
	nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_sent);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
	assert_int_equal((end == CLIENT ? nghttp2_session_client_new2 : nghttp2_session_server_new2)(&p->session, cb, p, options), 0);
	const nghttp2_settings_entry few = { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1 + (uint32_t)below(r, 4) };
	assert_int_equal(nghttp2_submit_settings(p->session, 0, &few, end == SERVER && one_in(r, 3)), 0);
	nghttp2_option_del(options);
	nghttp2_session_callbacks_del(cb);
}

static void peer_done(struct peer *p)
{
	nghttp2_session_del(p->session);
	buf_done(&p->out);
	buf_done(&p->up);
	buf_done(&p->down);
}

static bool peer_sends(struct peer *p)
{
	const uint8_t *b;
	ssize_t n = 0;

	if (p->out.len == 0 && (n = nghttp2_session_mem_send(p->session, &b)) > 0)
		(void)buf_add(&p->out, b, (size_t)n);
	assert_true(n >= 0);
	size_t k = MIN(p->out.len, p->room - MIN(p->up.len, p->room));
	if (k) {
		k = 1 + below(p->run, k);
		(void)buf_add(&p->up, p->out.data, k);
		buf_consume(&p->out, k);
		p->run->event = true;
	}
	return k || n > 0;
}

static bool peer_reads(struct peer *p)
{
	size_t k = p->down.len ? 1 + below(p->run, p->down.len) : 0;

	if (!k)
		return false;
	p->reads++;
	assert_int_equal(nghttp2_session_mem_recv(p->session, (const uint8_t *)p->down.data, k), k);
	buf_consume(&p->down, k);
	p->run->event = true;
	return true;
}

/* Its program takes what has come. */
static bool peer_takes(struct peer *p)
{
	bool moved = false;

	for (size_t i = 0; i < p->run->submitted; i++) {
		struct asked *a = &p->run->v[i];
		struct seen *s = &a->at[p->end];
		if (!s->debt || later(p->run))
			continue;
		assert_int_equal(nghttp2_session_consume(p->session, a->id[p->end], s->debt), 0);
		s->debt = 0;
		moved = true;
	}
	return moved;
}

/* --- the opener --- */

static bool fill(struct side *s, struct buf *pipe)
{
	bool moved = false;

	while (pipe->len && s->in.len <= ROOM - FULL) {
		size_t n = MIN(pipe->len, (size_t)FULL);
		assert_int_equal(buf_add(&s->in, pipe->data, n), 0);
		buf_consume(pipe, n);
		moved = true;
	}
	return moved;
}

static bool flush(struct side *s, struct peer *p)
{
	size_t n = s->mute ? 0 : MIN(s->out.len, p->room - MIN(p->down.len, p->room));

	assert_false(s->out.overflow);
	if (p->end == SERVER && p->run->gone && s->out.len) {
		s->mute = true;
		buf_reset(&s->out);
		return true;
	}
	(void)buf_add(&p->down, s->out.data, n);
	buf_consume(&s->out, n);
	return n > 0;
}

/* As opener.c does it: until nothing moves any more. */
static void opener_runs(struct run *r)
{
	struct conn *c = r->c;
	bool moved = true;

	for (int i = 0; moved && c->state == CONN_OPEN; i++) {
		assert_true(i < 10000);
		moved = fill(&c->client, &r->peer[CLIENT].up);
		moved |= fill(&c->server, &r->peer[SERVER].up);
		if (r->gone && !r->peer[SERVER].up.len && !c->server.eof)
			moved = c->server.eof = true;
		moved |= http2_run(c);
		assert_true(c->state != CONN_DEAD);
		moved |= flush(&c->client, &r->peer[CLIENT]);
		moved |= flush(&c->server, &r->peer[SERVER]);
	}
	if (c->state == CONN_LINGER)
		(void)flush(&c->client, &r->peer[CLIENT]);
}

/* Somebody answers, sooner or later. */
static bool daemon_runs(struct run *r, bool now)
{
	struct opener_event ev;
	bool moved = false;

	while (recv(r->daemon, &ev, sizeof ev, MSG_DONTWAIT) > 0) {
		struct asked *a = by_path(r, ev.path);
		assert_true(a->held || ev.kind != OPENER_ASK);
		if (ev.ask)
			a->question = ev.kind == OPENER_ASK ? ev.ask : 0;
		moved = true;
	}
	for (size_t i = 0; i < r->submitted; i++) {
		struct asked *a = &r->v[i];
		if (!a->question || !(now || one_in(r, 20)))
			continue;
		uint64_t question = a->question;
		a->question = 0;
		methods_answer(&r->o, question, !a->denied);
		r->event = moved = true;
	}
	return moved;
}

/* --- a run --- */

static void plan(struct run *r)
{
	r->n = 1 + below(r, ASKED_MAX);
	r->disturbed = one_in(r, 5);
	for (size_t i = 0; i < r->n; i++) {
		struct asked *a = &r->v[i];
		a->judged = (enum judged)below(r, N_JUDGED);
		a->answer = (enum answer)below(r, N_ANSWERS);
		a->held = a->judged != REFUSED && one_in(r, 3);
		a->denied = a->held && one_in(r, 3);
		bool stopped = is_refused(a) || (a->answer == EARLY && a->judged != SIGNED);
		a->body = stopped ? (enum body)below(r, N_BODIES) : WHOLE;
		a->body_n = one_in(r, 4) ? below(r, 20) : below(r, 300000);
		if (a->judged == TOO_LARGE_TO_SIGN) {
			a->body = a->body == IDLE ? ENDLESS : a->body;
			a->body_n = (1 << 20) + 1 + below(r, 200000);
		}
		a->answer_n = 2 + below(r, one_in(r, 4) ? 20 : 300000);
		a->trailers = one_in(r, 3);
		a->expects = a->judged == SIGNED && one_in(r, 2);
		a->may_send = !a->expects;
	}
}

static void submit(struct run *r)
{
	static const char aws[] = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261130/eu-west-1/dynamodb/aws4_request, SignedHeaders=x-amz-date, "
				  "Signature=0000000000000000000000000000000000000000000000000000000000000000";
	static const char bearer[] = "Bearer " OPENED_PLACEHOLDER;
	size_t i = r->submitted, n = 4;
	struct asked *a = &r->v[i];
	const nghttp2_data_provider body = { .source.ptr = a, .read_callback = give };
	char path[32];
	nghttp2_nv v[8] = { nv(":method", a->held ? "POST" : "PUT"), nv(":scheme", "https"), nv(":authority", "api.test") };

	snprintf(path, sizeof path, "/%s/%zu", a->judged == REFUSED ? "v2" : a->held ? "v1/ask" : "v1", i);
	v[3] = nv(":path", path);
	if (a->judged == SIGNED || a->judged == TOO_LARGE_TO_SIGN) {
		v[n++] = nv("x-amz-date", "20261130T010203Z");
		v[n++] = nv("authorization", aws);
	} else if (a->judged != PLAIN) {
		v[n++] = nv("authorization", bearer);
	}
	if (a->expects)
		v[n++] = nv("expect", "100-continue");
	bool none = a->body == WHOLE && a->body_n == 0 && !a->trailers && !a->expects;
	a->body_over = none;
	a->id[CLIENT] = nghttp2_submit_request(r->peer[CLIENT].session, NULL, v, n, none ? NULL : &body, NULL);
	assert_true(a->id[CLIENT] > 0);
	r->submitted++;
}

static bool turn(struct run *r)
{
	bool moved = false;

	r->skipped = false;
	if (r->submitted < r->n && r->c->state == CONN_OPEN && (r->submitted == 0 || !later(r))) {
		submit(r);
		moved = true;
	}
	if (r->disturbed && !r->gone && one_in(r, 200)) {
		if (one_in(r, 2))
			assert_int_equal(nghttp2_submit_goaway(r->peer[SERVER].session, 0, nghttp2_session_get_last_proc_stream_id(r->peer[SERVER].session), 0,
							       NULL, 0), 0);
		else
			r->gone = r->event = true;
	}
	for (int e = CLIENT; e <= SERVER; e++) {
		struct peer *p = &r->peer[e];
		if (e == SERVER && r->gone)
			continue;
		moved |= !later(r) && peer_sends(p);
		moved |= !later(r) && peer_reads(p);
		moved |= peer_takes(p);
	}
	moved |= daemon_runs(r, false);
	if (r->c->state == CONN_OPEN && one_in(r, 50) && http2_idle(r->c, UINT64_MAX))
		r->event = moved = true;
	if (r->event && !later(r)) {
		r->event = false;
		opener_runs(r);
		moved = true;
	}
	return moved || r->skipped;
}

/* Nothing moves: time passes, or the client has had enough. */
static bool nudge(struct run *r)
{
	bool moved = false;

	if (daemon_runs(r, true))
		return true;
	if (r->c->state == CONN_OPEN && !r->swept && http2_sweep(r->c->http2, UINT64_MAX)) {
		r->swept = r->event = true;
		return true;
	}
	for (size_t i = 0; i < r->submitted; i++) {
		struct asked *a = &r->v[i];
		if (a->at[CLIENT].closed || a->given_up || a->answer != NEVER)
			continue;
		a->given_up = true;
		(void)nghttp2_submit_rst_stream(r->peer[CLIENT].session, 0, a->id[CLIENT], NGHTTP2_CANCEL);
		moved = true;
	}
	r->swept = false;
	return moved;
}

static void check(const struct run *r, const struct asked *a)
{
	const struct seen *client = &a->at[CLIENT], *host = &a->at[SERVER];
	bool refused = is_refused(a);

	assert_true(client->closed); /* this is what all is about */
	if (refused && !client->complete)
		assert_true(r->disturbed);
	if (client->complete && refused)
		assert_int_equal(client->status, a->judged == REFUSED || a->denied ? 403 : 413);
	if (client->complete && !refused && a->answer != ONLY_A_HEAD)
		assert_int_equal(client->got, a->answer_n);
	if (r->disturbed)
		return;
	assert_true(refused || host->closed || a->given_up); /* that one may have stood behind others, and never have been sent */
	if (refused || a->answer <= ONLY_A_HEAD) {
		assert_true(client->complete);
		assert_int_equal(client->code, NGHTTP2_NO_ERROR);
		assert_int_equal(client->trailers, a->trailers && !refused && a->answer != ONLY_A_HEAD);
	} else {
		assert_false(client->complete);
		assert_int_equal(client->code, a->answer == BROKEN ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_CANCEL);
	}
	if (!refused && (a->answer == WHEN_OVER || a->answer == AT_ONCE || a->answer == ONLY_A_HEAD)) {
		assert_int_equal(host->got, a->body_n);
		assert_true(host->complete && host->trailers == a->trailers);
	}
	/* Whoever was refused or answered early could send all of it, unless there was no end of it, or it was never called for. */
	if (client->complete && a->body == WHOLE && !(a->denied && a->expects))
		assert_true(a->body_over);
}

static struct run r; /* large; and what failed is told from it */

static void one(uint32_t seed)
{
	int i = 0, pair[2];

	memset(&r, 0, sizeof r);
	r.dice = seed * 2654435761U + 1;
	for (int k = 0; k < 8; k++)
		(void)roll(&r);
	assert_true(opened_keys(&r.o.keys));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	r.o.daemon.fd = pair[0];
	r.daemon = pair[1];
	r.c = opened_begin(&r.o, true);
	peer_init(&r, CLIENT);
	peer_init(&r, SERVER);
	plan(&r);
	r.event = true;
	while ((turn(&r) || nudge(&r)) && i < TURNS_MAX)
		i++;
	assert_true(i < TURNS_MAX);
	for (size_t k = 0; k < r.submitted; k++)
		check(&r, &r.v[k]);
	assert_true(r.submitted == r.n || r.c->state != CONN_OPEN);
	r.o.run = NULL;
	opened_free(r.c);
	close_fd(r.o.daemon.fd);
	close_fd(r.daemon);
	assert_true(r.o.n_held == 0 && r.o.kept == 0 && r.o.n_wide == 0 && r.o.n_conns == 0);
	keyring_done(&r.o.keys);
	peer_done(&r.peer[CLIENT]);
	peer_done(&r.peer[SERVER]);
}

static uint32_t number(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);

	return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static uint32_t running;

static void every_request_ends(void **state)
{
	uint32_t only = number("HTTP2_SEED", 0), runs = number("HTTP2_RUNS", RUNS);

	(void)state;
	for (running = only ? only : 1; running <= (only ? only : runs); running++)
		one(running);
	running = 0;
}

/* What has become of a run that failed. */
static void say(void)
{
	fprintf(stderr, "state %d %s%s\n", (int)r.c->state, r.disturbed ? "disturbed " : "", r.gone ? "gone" : "");
	for (int e = CLIENT; e <= SERVER; e++)
		fprintf(stderr, "  room %zu out %zu up %zu down %zu\n", r.peer[e].room, r.peer[e].out.len, r.peer[e].up.len, r.peer[e].down.len);
	for (size_t i = 0; i < r.submitted; i++) {
		const struct asked *a = &r.v[i];
		fprintf(stderr, "  %zu judged %d answer %d body %d of %zu, answer of %zu%s%s%s%s%s\n", i, a->judged, a->answer, a->body, a->body_n, a->answer_n,
			a->trailers ? ", trailers" : "", a->expects ? ", expects" : "", a->held ? ", held" : "", a->denied ? ", denied" : "", a->given_up ? ", given up" : "");
		for (int e = CLIENT; e <= SERVER; e++)
			fprintf(stderr, "    id %d got %zu gave %zu status %d code %u%s%s\n", a->id[e], a->at[e].got, a->at[e].gave, a->at[e].status, a->at[e].code,
				a->at[e].complete ? ", complete" : "", a->at[e].closed ? ", closed" : "");
	}
}

static int say_seed(void **state)
{
	(void)state;
	if (running) {
		fprintf(stderr, "HTTP2_SEED=%u\n", running);
		say();
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(every_request_ends, say_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
