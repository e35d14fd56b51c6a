/* State events for the SDKs: the few frames of Engine.IO 4 and Socket.IO that they speak, over a WebSocket.
 *
 * Open packet first; then the client's CONNECT with its key, which is answered with a session or with a refusal; then
 * events of its tenant, and a ping every PING_MS. A client that has not connected, or has not answered a ping, by the next
 * tick is closed, and so is one that does not read: it will come back and ask for the states. */
#include "dialect/daytona/internal.h"

#include <stdio.h>

#define PING_MS 25000

struct events {
	uv_timer_t timer;
	struct daytona *d;
	struct listener *first;
};
struct listener {
	struct listener *prev, *next;
	struct daytona *d;
	struct socket *socket;
	struct subscription *subscription;
	char *base; /* URL under which this client sees us */
	bool connected, awaits_pong, closing, fresh;
};

static void close_listener(struct listener *l, int code, const char *why)
{
	if (l->subscription)
		subscription_free(take_ptr(&l->subscription));
	if (!l->closing) {
		l->closing = true;
		socket_close(l->socket, code, why);
	}
}

static void send_text(struct listener *l, const char *text)
{
	if (l->closing)
		return;
	if (socket_room(l->socket))
		socket_send(l->socket, true, str_of(text));
	else
		close_listener(l, 1013, "too slow");
}

/* `prefix` + JSON; consumes it. */
static void send_packet(struct listener *l, const char *prefix, json_t *take)
{
	auto_free char *json = json_dumps(take, JSON_COMPACT);
	json_decref(take);
	auto_free char *text = xasprintf("%s%s", prefix, json ? json : "{}");
	send_text(l, text);
}

static void on_event(void *ctx, const struct event_view *ev)
{
	struct listener *l = ctx;
	if (!ev->sandbox)
		return;
	if (streq(ev->type, "sandbox.created")) {
		send_packet(l, "42", json_pack("[s, o]", "sandbox.created", sandbox_json(l->d, l->base, ev->sandbox, false)));
		return;
	}
	bool deleted = streq(ev->type, "sandbox.deleted");
	if (!deleted && !streq(ev->type, "sandbox.state"))
		return;
	struct sandbox_view v = *ev->sandbox;
	if (deleted)
		v.state = SANDBOX_DELETED;
	send_packet(l, "42",
	            json_pack("[s, {s:o, s:s, s:s}]", "sandbox.state.updated", "sandbox", sandbox_json(l->d, l->base, &v, false), "oldState",
	                      sandbox_state_word(deleted ? SANDBOX_DELETING : ev->old_state), "newState", sandbox_state_word(v.state)));
}

static json_t *session_json(void)
{
	char sid[21];
	random_hex(sid, 10);
	return json_pack("{s:s}", "sid", sid);
}

static void connect_packet(struct listener *l, struct str body)
{
	struct caller caller;
	struct err e;
	json_t *o = body.n ? json_loadb(body.p, body.n, JSON_REJECT_DUPLICATES, NULL) : NULL;
	const char *token = json_string_value(json_object_get(o, "token"));
	bool ok = token && !l->connected && api_authenticate(l->d->api, str_of(token), &caller, &e) == 0;
	json_decref(o);
	if (!ok) {
		send_packet(l, "44", json_pack("{s:s}", "message", "Unauthorized"));
		return;
	}
	l->connected = true;
	socket_set_holder(l->socket, caller.key_id);
	l->subscription = api_subscribe(l->d->api, &caller, on_event, l);
	send_packet(l, "40", session_json());
}

static void on_message(void *ctx, bool text, struct str bytes)
{
	struct listener *l = ctx;
	if (l->closing) /* also: the dialect is gone */
		return;
	if (!text || bytes.n == 0) {
		close_listener(l, 1003, "text frames only");
		return;
	}
	if (str_eq(bytes, STR("3")))
		l->awaits_pong = false;
	else if (str_eq(bytes, STR("2")))
		send_text(l, "3");
	else if (str_eq(bytes, STR("1")) || (bytes.n >= 2 && memcmp(bytes.p, "41", 2) == 0))
		close_listener(l, 1000, "");
	else if (bytes.n >= 2 && memcmp(bytes.p, "40", 2) == 0)
		connect_packet(l, (struct str){ bytes.p + 2, bytes.n - 2 });
	/* Events from clients have no meaning here. */
}

static void on_close(void *ctx, int code)
{
	(void)code;
	struct listener *l = ctx;
	if (l->subscription)
		subscription_free(l->subscription);
	if (l->prev)
		l->prev->next = l->next;
	else if (l->d)
		l->d->events->first = l->next;
	if (l->next)
		l->next->prev = l->prev;
	free(l->base);
	free(l);
}

static void on_tick(uv_timer_t *t)
{
	struct events *hub = t->data;
	for (struct listener *l = hub->first, *next; l; l = next) {
		next = l->next;
		if (l->closing)
			continue;
		if (l->awaits_pong || (!l->connected && !l->fresh)) {
			close_listener(l, 1001, "no answer");
			continue;
		}
		/* One that came just before the tick gets a whole interval to connect. */
		l->fresh = false;
		l->awaits_pong = l->connected;
		send_text(l, "2");
	}
}

static void handle_socket(struct request *r, void *daytona)
{
	static const struct socket_events events = { .on_message = on_message, .on_close = on_close };
	struct daytona *d = daytona;
	if (!req_is_websocket(r)) {
		req_reply_json(r, 400, json_pack("{s:i, s:s}", "code", 0, "message", "Transport unknown: only websocket is served"));
		return;
	}
	struct listener *l = xcalloc(1, sizeof(*l));
	l->d = d;
	l->fresh = true;
	l->base = base_url(d, r);
	l->socket = req_accept_websocket(r, NULL, 64U << 10, &events, l);
	if (!l->socket) {
		free(l->base);
		free(l);
		return;
	}
	l->next = d->events->first;
	if (l->next)
		l->next->prev = l;
	d->events->first = l;
	json_t *open = session_json();
	put(open, "upgrades", json_array());
	put(open, "pingInterval", json_integer(PING_MS));
	put(open, "pingTimeout", json_integer(20000));
	put(open, "maxPayload", json_integer(1000000));
	send_packet(l, "0", open);
}

static void on_timer_closed(uv_handle_t *h)
{
	free(h->data);
}

void events_init(struct daytona *d)
{
	struct events *hub = xcalloc(1, sizeof(*hub));
	hub->d = d;
	d->events = hub;
	uv_timer_init(d->loop, &hub->timer);
	hub->timer.data = hub;
	uv_timer_start(&hub->timer, on_tick, PING_MS, PING_MS);
	uv_unref((uv_handle_t *)&hub->timer);
}

void events_done(struct daytona *d)
{
	struct events *hub = d->events;
	d->events = NULL;
	for (struct listener *l = hub->first, *next; l; l = next) { /* they end with their sockets */
		next = l->next;
		close_listener(l, 1001, "the server ends");
		l->prev = l->next = NULL;
		l->d = NULL;
	}
	uv_close((uv_handle_t *)&hub->timer, on_timer_closed);
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/socket.io/", .websocket = true, .handle = handle_socket, .tag = TAG_OPEN },
	{ .method = "GET", .pattern = "/socket.io", .websocket = true, .handle = handle_socket, .tag = TAG_OPEN },
};
const struct route_table events_routes = { routes, ARRAY_LEN(routes) };
