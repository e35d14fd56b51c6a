/* GET /v1/events: what happens, as server-sent events. Nothing is kept for a client that was away: it is told to list again. */
#include "dialect/native/native_int.h"

#include <inttypes.h>

enum { HEARTBEAT_MS = 15000, BACKLOG_MAX = 1 << 20 };

struct stream {
	uv_timer_t heartbeat; /* a comment now and then, so that proxies and clients see a living connection */
	struct native *n;
	struct request *r;
	struct subscription *sub;
	size_t behind;        /* bytes written since the client last had room */
	bool closed;
};

static void free_stream(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct stream, heartbeat));
}

static void stop(struct stream *s)
{
	if (s->closed)
		return;
	s->closed = true;
	if (s->sub)
		subscription_free(s->sub);
	uv_close((uv_handle_t *)&s->heartbeat, free_stream);
}

static void gone(void *ctx)
{
	stop(ctx);
}

static void on_room(void *ctx)
{
	((struct stream *)ctx)->behind = 0;
}

/* A client that does not read is cut off rather than kept in memory. */
static void emit(struct stream *s, struct str bytes)
{
	if (req_room(s->r))
		s->behind = 0;
	s->behind += bytes.n;
	if (s->behind <= BACKLOG_MAX) {
		req_write(s->r, bytes);
		return;
	}
	req_abort(s->r);
	stop(s);
}

static void on_event(void *ctx, const struct event_view *ev)
{
	struct stream *s = ctx;
	if (s->closed)
		return;
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	buf_addf(&b, "id: %" PRIu64 "\nevent: %s\ndata: ", ev->seq, ev->type);
	struct jout j = { .b = &b };
	encode_event(&j, NULL, ev); /* one line: JSON's escapes leave no line break */
	buf_addz(&b, "\n\n");
	emit(s, buf_str(&b));
}

static void beat(uv_timer_t *t)
{
	emit(container_of(t, struct stream, heartbeat), STR(": alive\n\n"));
}

static void say_reset(struct stream *s, const char *last)
{
	auto_buf struct buf b;
	buf_init(&b, 65536);
	buf_addz(&b, "event: reset\ndata: ");
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	jout_z(&j, "last_event_id", last);
	jout_end_object(&j);
	buf_addz(&b, "\n\n");
	emit(s, buf_str(&b));
}

void native_server_events(struct request *r, void *dialect)
{
	static const struct header no_store = { "Cache-Control", "no-store" };
	struct native *n = dialect;
	struct str h = req_header(r, "Last-Event-ID");
	auto_free char *last = h.p ? xstrndup(h.p, MIN(h.n, (size_t)64)) : NULL; /* ours are short; copied, as the answer begins first */
	struct stream *s = xcalloc(1, sizeof *s);
	s->n = n;
	s->r = r;
	uv_timer_init(n->loop, &s->heartbeat);
	uv_timer_start(&s->heartbeat, beat, HEARTBEAT_MS, HEARTBEAT_MS);
	req_on_gone(r, gone, s);
	req_on_room(r, on_room, s);
	answer_begin(n, r, &no_store, 1, "text/event-stream");
	emit(s, STR(": events\n\n"));
	if (last)
		say_reset(s, last);
	if (!s->closed)
		s->sub = api_subscribe(n->api, req_caller(r), on_event, s);
}
