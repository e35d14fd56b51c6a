/* HTTP/2 between the two sides of an opened connection.
 *
 * Theory of operation. One session of nghttp2's for each end, and for each stream of the client's one to the server (the protocol is the same at both
 * ends; nothing is translated). Heads are collected, judged and sent on (http2-head.c); data waits in the stream, at most as much of it as
 * the windows we give out allow, and a stream's window is given back only when the other end has taken the bytes: a slow reader stops its own
 * stream and no other. The connection's window is given back at once as long as all streams of this sandbox together keep little, so that
 * one stream that stands does not stop the others; beyond that it too waits. A stream that moves much gets a larger window, up to a
 * number of connections.
 *
 *   begin headers   a stream, closed towards the server
 *   head complete   judged: refused (an answer of ours), held (somebody is asked), to be signed (its body is collected first), or submitted to the server
 *   data, trailers  wait in the way they came, until the other session asks for them (http2_give)
 *   reset           told to the other end with its code; a server's, behind an answer that is complete, says only that no more of the request is needed
 *   closed twice    freed
 *
 * A request that is not needed any more (refused, or answered early) is not stopped at once. RST_STREAM right behind the answer is an error to clients that
 * send first and read then, and a stream of node's that it reaches while the body waits to be written, and before the answer has been read, never
 * closes: node waits for a write that nobody will do. So what still comes is thrown away, its windows given back; after a while, or after so much
 * of it, the client is asked for a sign of life (PING), and its stream is reset (NO_ERROR) when that has come back: by then it has read the answer.
 * A request that ends behind its answer is followed by a PING, too: curl 7.88, which stops sending when it reads a refusal, has then closed its stream
 * without a look at it, and sees that only when something comes.
 *
 * The server's GOAWAY is told to the client. When the server goes, its streams are reset, and what is complete is still given. Nothing is
 * pushed, no CONNECT of either kind is carried. Floods of resets, CONTINUATIONs, acknowledgements and settings are cut by nghttp2's own limits. */
#include "egress/http2_int.h"

#include <endian.h>
#include <errno.h>

#define KEPT_MAX   (32U << 20) /* of all streams of all connections; beyond, connections keep their own window, once */
#define WIDE	   (1 << 20)
#define WIDE_AFTER (256U << 10)
#define WIDE_MAX   64 /* directions of connections */
#define STOP_AFTER_MS 5000
#define STOP_AFTER    (4U << 20)

static enum end end_of(const struct http2 *h, const nghttp2_session *session)
{
	return session == h->session[CLIENT] ? CLIENT : SERVER;
}

static struct stream *stream_of(nghttp2_session *session, int32_t id)
{
	return id > 0 ? nghttp2_session_get_stream_user_data(session, id) : NULL;
}

void http2_reset(struct stream *s, enum end e, uint32_t code)
{
	nghttp2_session *session = s->h->session[e];

	if (session && !s->closed[e] && nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id[e], code) != 0)
		s->h->failed = true;
}

/* --- windows --- */

static void keep(struct stream *s, enum end e, size_t n)
{
	struct way *w = &s->way[e];
	struct opener *o = s->h->c->o;

	w->kept += n;
	o->kept += n;
	if (o->kept <= KEPT_MAX)
		(void)nghttp2_session_consume_connection(s->h->session[e], n);
	else
		w->owed += n;
}

/* The other end has taken n bytes of it, or nobody ever will. */
static void let_go(struct stream *s, enum end e, size_t n)
{
	struct way *w = &s->way[e];
	nghttp2_session *session = s->h->session[e];

	n = MIN(n, w->kept); /* words of our own are not kept for anybody */
	size_t owed = MIN(n, w->owed);
	w->kept -= n;
	w->owed -= owed;
	s->h->c->o->kept -= n;
	if (session && owed)
		(void)nghttp2_session_consume_connection(session, owed);
	if (session && n && !w->paid && !s->closed[e])
		(void)nghttp2_session_consume_stream(session, s->id[e], n);
}

static void widen(struct stream *s, enum end e)
{
	struct http2 *h = s->h;
	struct way *w = &s->way[e];

	if (w->wide || w->bytes < WIDE_AFTER || (!h->wide[e] && h->c->o->n_wide >= WIDE_MAX))
		return;
	if (!h->wide[e]) {
		h->wide[e] = true;
		h->c->o->n_wide++;
		(void)nghttp2_session_set_local_window_size(h->session[e], NGHTTP2_FLAG_NONE, 0, WIDE);
	}
	w->wide = true;
	(void)nghttp2_session_set_local_window_size(h->session[e], NGHTTP2_FLAG_NONE, s->id[e], WIDE);
}

/* --- streams --- */

static struct stream *stream_new(struct http2 *h, int32_t id)
{
	struct stream *s = xcalloc(1, sizeof *s);

	s->h = h;
	s->id[CLIENT] = id;
	s->closed[SERVER] = true;
	for (int e = CLIENT; e <= SERVER; e++)
		buf_init(&s->way[e].data, 2 * WIDE);
	screen_init(&s->screen, 2 * WIDE);
	DL_APPEND(h->streams, s);
	h->n_streams++;
	return s;
}

static void stream_free(struct stream *s)
{
	struct http2 *h = s->h;

	held_gone(s->question);
	for (int e = CLIENT; e <= SERVER; e++) {
		let_go(s, (enum end)e, s->way[e].kept);
		fields_done(&s->way[e].head);
		fields_done(&s->way[e].trailers);
		buf_done(&s->way[e].data);
	}
	screen_done(&s->screen);
	DL_DELETE(h->streams, s);
	h->n_streams--;
	if (s->stop_ms)
		h->n_stopping--;
	free(s);
}

/* --- requests that are not needed any more --- */

void http2_drop_request(struct stream *s)
{
	let_go(s, CLIENT, s->way[CLIENT].kept);
	buf_done(&s->way[CLIENT].data);
}

/* Has the client been told the whole answer before its request was over? */
static void stop_request(struct stream *s)
{
	if (s->stop_ms || !s->told || !s->closed[SERVER] || s->way[CLIENT].ended)
		return;
	s->stop_ms = now_ms() + STOP_AFTER_MS;
	s->h->n_stopping++;
}

static void ask(struct stream *s)
{
	const uint32_t id = htobe32((uint32_t)s->id[CLIENT]);
	uint8_t word[8] = { 0 };

	if (s->asked)
		return;
	s->asked = true;
	memcpy(word, &id, sizeof id);
	if (nghttp2_submit_ping(s->h->session[CLIENT], NGHTTP2_FLAG_NONE, word) != 0)
		s->h->failed = true;
}

/* Whatever word it is: it only ends what was to be ended. */
static void on_sign_of_life(struct http2 *h, const uint8_t word[8])
{
	uint32_t id;

	memcpy(&id, word, sizeof id);
	struct stream *s = stream_of(h->session[CLIENT], (int32_t)be32toh(id));
	if (s && s->asked)
		http2_reset(s, CLIENT, NGHTTP2_NO_ERROR);
}

static void throw_away(struct stream *s, size_t n)
{
	s->thrown += s->stop_ms ? n : 0;
	if (s->thrown > STOP_AFTER)
		ask(s);
}

bool http2_sweep(struct http2 *h, uint64_t now)
{
	struct stream *s;

	if (!h->n_stopping)
		return false;
	DL_FOREACH (h->streams, s)
		if (s->stop_ms && now >= s->stop_ms)
			ask(s);
	return true;
}

/* --- data --- */

ssize_t http2_give(nghttp2_session *to, int32_t id, uint8_t *p, size_t n, uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
	struct stream *s = source->ptr;
	enum end e = end_of(ctx, to) == CLIENT ? SERVER : CLIENT;
	struct way *w = &s->way[e];
	size_t k = MIN(n, w->data.len);

	if (k == 0 && !w->ended) {
		if (e == SERVER && s->cut)
			http2_reset(s, CLIENT, s->cut);
		w->deferred = true;
		return NGHTTP2_ERR_DEFERRED;
	}
	if (k) {
		memcpy(p, w->data.data, k);
		buf_consume(&w->data, k);
		buf_trim(&w->data, 0);
		let_go(s, e, k);
	}
	if (!w->ended || w->data.len)
		return (ssize_t)k;
	*flags |= NGHTTP2_DATA_FLAG_EOF;
	if (w->trailers.n) {
		nghttp2_nv v[H2_FIELDS_MAX];
		*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (nghttp2_submit_trailer(to, id, v, fields_views(&w->trailers, v)) != 0)
			s->h->failed = true;
	}
	return (ssize_t)k;
}

static void wake(struct stream *s, enum end from)
{
	enum end to = from == CLIENT ? SERVER : CLIENT;

	if (!s->way[from].deferred || s->closed[to])
		return;
	s->way[from].deferred = false;
	(void)nghttp2_session_resume_data(s->h->session[to], s->id[to]);
}

static void take_answer(struct stream *s, struct str bytes, enum screen_when when)
{
	struct conn *c = s->h->c;
	struct str sure = screen_pass(&s->screen, &c->o->keys, bytes, when);

	if (s->screen.held.overflow || buf_add(&s->way[SERVER].data, sure.p, sure.n) < 0)
		s->h->failed = true; /* more than the window that we gave */
	s->unsure_ms = when == SCREEN_MORE && screen_waits(&s->screen) ? opened_unsure(c) : 0;
}

/* That the host of one whose client does not take what it has is silent may be the client's doing. */
bool http2_idle(struct conn *c, uint64_t now)
{
	struct stream *s;
	bool moved = false;

	DL_FOREACH (c->http2->streams, s) {
		if (!s->unsure_ms)
			continue;
		if (now < s->unsure_ms + SCREEN_IDLE_MS || s->way[SERVER].data.len) {
			c->unsure = true;
			continue;
		}
		take_answer(s, (struct str){ 0 }, SCREEN_IDLE);
		wake(s, SERVER);
		moved = true;
	}
	return moved;
}

/* Behind what was kept back of it, which was waiting for nothing else. */
static void cut_answer(struct stream *s, uint32_t code)
{
	bool waited = screen_waits(&s->screen) && s->way[SERVER].data.len == 0; /* a client that does not read is not waited for */

	take_answer(s, (struct str){ 0 }, SCREEN_IDLE);
	if (waited && s->way[SERVER].data.len && !s->closed[CLIENT]) {
		s->cut = code;
		wake(s, SERVER);
	} else {
		http2_reset(s, CLIENT, code);
	}
}

/* The server has ended its stream: with its answer, or without. */
static void on_server_left(struct stream *s, uint32_t code)
{
	s->closed[SERVER] = true;
	http2_drop_request(s);
	if (s->way[SERVER].ended)
		stop_request(s);
	else /* half an answer is not to look like a whole one */
		cut_answer(s, !s->sent ? NGHTTP2_REFUSED_STREAM : code ? code : NGHTTP2_CANCEL);
}

static void collect(struct stream *s, struct str bytes)
{
	struct way *w = &s->way[CLIENT];

	w->paid = true;
	(void)nghttp2_session_consume_stream(s->h->session[CLIENT], s->id[CLIENT], bytes.n);
	if (w->data.len + bytes.n > H2_SIGNED_BODY_MAX || buf_add(&w->data, bytes.p, bytes.n) < 0)
		http2_refuse(s, 413, "too_large", "a body that has to be signed by us has at most 1 MiB");
	else if (s->h->c->o->kept > KEPT_MAX)
		http2_refuse(s, 503, "limit", "too many bodies that have to be signed by us at once");
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n, void *ctx)
{
	struct http2 *h = ctx;
	struct stream *s = stream_of(session, id);
	enum end e = end_of(h, session);
	struct str bytes = { (const char *)p, n };

	(void)flags;
	if (!s || (s->closed[!e] && !s->collecting && !s->question)) { /* nobody wants it */
		(void)nghttp2_session_consume(session, id, n);
		if (s && e == CLIENT)
			throw_away(s, n);
		return 0;
	}
	s->way[e].bytes += n;
	keep(s, e, n);
	if (s->collecting)
		collect(s, bytes);
	else if (e == SERVER)
		take_answer(s, bytes, SCREEN_MORE);
	else if (buf_add(&s->way[CLIENT].data, bytes.p, bytes.n) < 0)
		h->failed = true;
	widen(s, e);
	wake(s, e);
	return 0;
}

/* --- frames --- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
	struct http2 *h = ctx;

	if (session != h->session[CLIENT] || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	if (h->n_streams >= 2 * H2_STREAMS_MAX) { /* that the client has left, and the server has not */
		(void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
		return 0;
	}
	struct stream *s = stream_new(h, frame->hd.stream_id);
	return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, s) == 0 ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n, const uint8_t *value, size_t value_n, uint8_t flags,
		     void *ctx)
{
	struct stream *s = stream_of(session, frame->hd.stream_id);
	struct str a = { (const char *)name, n }, b = { (const char *)value, value_n };

	if (!s)
		return 0;
	struct way *w = &s->way[end_of(ctx, session)];
	int rc = fields_add(w->head_over ? &w->trailers : &w->head, a, b, flags & NGHTTP2_NV_FLAG_NO_INDEX);
	return rc < 0 ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

/* Left out silently it would be a head that nobody has sent. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n, const uint8_t *value, size_t value_n,
			     uint8_t flags, void *ctx)
{
	(void)session, (void)frame, (void)name, (void)n, (void)value, (void)value_n, (void)flags, (void)ctx;
	return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static void on_head(struct stream *s, enum end e)
{
	if (e == CLIENT && !s->way[e].head_over)
		http2_on_request(s);
	else if (e == SERVER && !s->way[e].head_over)
		http2_on_answer(s);
	else if (e == SERVER)
		http2_on_trailers(s);
}

static void on_goaway(struct http2 *h, uint32_t code)
{
	nghttp2_session *client = h->session[CLIENT];

	if (nghttp2_submit_goaway(client, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(client), code, NULL, 0) != 0)
		h->failed = true;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
	struct http2 *h = ctx;
	enum end e = end_of(h, session);
	struct stream *s = stream_of(session, frame->hd.stream_id);

	if (frame->hd.type == NGHTTP2_GOAWAY && e == SERVER)
		on_goaway(h, frame->goaway.error_code);
	if (frame->hd.type == NGHTTP2_PING && e == CLIENT && frame->hd.flags & NGHTTP2_FLAG_ACK)
		on_sign_of_life(h, frame->ping.opaque_data);
	if (!s || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
		return 0;
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
		s->way[e].ended = true;
		if (e == SERVER)
			take_answer(s, (struct str){ 0 }, SCREEN_END);
		else if (s->told && nghttp2_submit_ping(session, NGHTTP2_FLAG_NONE, NULL) != 0)
			h->failed = true;
	}
	if (frame->hd.type == NGHTTP2_HEADERS)
		on_head(s, e);
	if (s->way[e].ended && e == CLIENT && s->collecting)
		http2_on_request(s);
	wake(s, e);
	return 0;
}

static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
	struct http2 *h = ctx;
	struct stream *s = stream_of(session, frame->hd.stream_id);

	if (!s)
		return 0;
	if (end_of(h, session) == SERVER)
		s->sent = true;
	else if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
		s->told = true;
		stop_request(s);
	}
	return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
	struct http2 *h = ctx;
	struct stream *s = stream_of(session, id);
	enum end e = end_of(h, session);

	if (!s)
		return 0;
	s->closed[e] = true;
	nghttp2_session_set_stream_user_data(session, id, NULL);
	if (e == SERVER)
		on_server_left(s, code);
	else if (code != NGHTTP2_NO_ERROR || !s->way[CLIENT].ended)
		http2_reset(s, SERVER, code ? code : NGHTTP2_CANCEL);
	if (s->closed[CLIENT] && s->closed[SERVER])
		stream_free(s);
	return 0;
}

/* --- life --- */

static int session_new(struct http2 *h, enum end e)
{
	nghttp2_session_callbacks *cb = NULL;
	nghttp2_option *options = NULL;
	const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, H2_HEAD_MAX },
		{ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 }, /* a client's word only: last, and left out towards one */
	};
	int rc = nghttp2_session_callbacks_new(&cb);

	if (rc == 0)
		rc = nghttp2_option_new(&options);
	if (rc == 0) {
		nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
		nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
		nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_invalid_header);
		nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
		nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_sent);
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
		nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
		nghttp2_option_set_no_auto_window_update(options, 1);
		rc = e == CLIENT ? nghttp2_session_server_new2(&h->session[e], cb, h, options) : nghttp2_session_client_new2(&h->session[e], cb, h, options);
	}
	if (rc == 0)
		rc = nghttp2_submit_settings(h->session[e], NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings) - (e == CLIENT));
	nghttp2_option_del(options);
	nghttp2_session_callbacks_del(cb);
	return rc;
}

struct http2 *http2_new(struct conn *c)
{
	struct http2 *h = xcalloc(1, sizeof *h);

	h->c = c;
	h->failed = session_new(h, CLIENT) != 0 || (!c->refusal[0] && session_new(h, SERVER) != 0);
	return h;
}

void http2_free(struct http2 *h)
{
	struct stream *s, *next;

	if (!h)
		return;
	nghttp2_session_del(take_ptr(&h->session[CLIENT]));
	nghttp2_session_del(take_ptr(&h->session[SERVER]));
	DL_FOREACH_SAFE (h->streams, s, next)
		stream_free(s);
	h->c->o->n_wide -= (unsigned)h->wide[CLIENT] + (unsigned)h->wide[SERVER];
	free(h);
}

static bool take(struct http2 *h, enum end e, struct side *s)
{
	if (!s->in.len || !h->session[e])
		return false;
	ssize_t n = nghttp2_session_mem_recv(h->session[e], (const uint8_t *)s->in.data, s->in.len);
	if (n < 0)
		h->failed = true;
	else
		buf_consume(&s->in, (size_t)n);
	return n > 0;
}

static bool send_out(struct http2 *h, enum end e, struct side *s)
{
	const uint8_t *p;
	bool moved = false;

	while (h->session[e] && s->out.len < ROOM && !s->mute) {
		ssize_t n = nghttp2_session_mem_send(h->session[e], &p);
		if (n < 0)
			h->failed = true;
		if (n <= 0)
			break;
		(void)buf_add(&s->out, p, (size_t)n);
		moved = true;
	}
	return moved;
}

static bool is_over(nghttp2_session *session)
{
	return !nghttp2_session_want_read(session) && !nghttp2_session_want_write(session);
}

/* What of its answers is not complete never will be. */
static void on_server_gone(struct http2 *h)
{
	struct stream *s, *next;

	nghttp2_session_del(take_ptr(&h->session[SERVER]));
	on_goaway(h, NGHTTP2_NO_ERROR);
	DL_FOREACH_SAFE (h->streams, s, next) {
		if (s->question) { /* nothing of it has gone anywhere: it is asked for again on another connection */
			held_gone(s->question);
			http2_reset(s, CLIENT, NGHTTP2_REFUSED_STREAM);
		}
		if (!s->closed[SERVER])
			on_server_left(s, NGHTTP2_INTERNAL_ERROR);
		if (s->closed[CLIENT])
			stream_free(s);
	}
}

bool http2_run(struct conn *c)
{
	struct http2 *h = c->http2;
	struct side *server = &c->server;
	bool moved = take(h, CLIENT, &c->client), heard = take(h, SERVER, server);

	moved |= heard;
	moved |= send_out(h, SERVER, server);
	moved |= send_out(h, CLIENT, &c->client);
	if (h->failed) {
		opened_kill(c);
		return false;
	}
	/* One that takes nothing more may have said why before. */
	bool gone = server->eof || server->broken || (server->mute && !heard);
	if (h->session[SERVER] && (gone || is_over(h->session[SERVER]))) {
		on_server_gone(h);
		return true;
	}
	if (c->client.eof || is_over(h->session[CLIENT]))
		opened_end(c);
	return moved || c->state != CONN_OPEN;
}
