/* The HTTP/1.1 server: connections, requests, answers, WebSockets, tunnels. Knows no verb and no dialect.
 *
 * A dialect hands in a table of routes. For each request: head -> route -> the route's guard (authentication, early answer)
 * -> body as the route says -> handler. One request at a time on a connection; pipelined bytes wait.
 *
 * Life of a `struct request`: from the guard until its answer is completely written or the client is gone. The handler may
 * answer later: until it has, it owns an obligation to answer. When the client goes away first, on_gone is called once:
 * the handler drops what it was doing (api_forget), and must not touch the request afterwards. After req_reply*, req_end or
 * on_gone the request may not be touched.
 * Limits, deadlines, refused syntax: docs/internals/http.md. */
#ifndef CAISSON_SERVER_SERVER_H
#define CAISSON_SERVER_SERVER_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <uv.h>

struct server;
struct request;
struct socket;

enum body_mode {
	BODY_NONE,   /* a body is read and dropped (bounded); never parsed */
	BODY_BUFFER, /* given whole to the handler, at most route.body_max (413 beyond) */
	BODY_STREAM, /* the handler gets the head first and sets body callbacks */
};

struct route {
	const char *method;  /* "GET"; "*" any */
	const char *pattern; /* "/v1/sandboxes/{id}/files"; "{name}" one segment; last "{name*}" the raw rest, undecoded; "" the prefix itself */
	enum body_mode body;
	size_t body_max; /* BODY_BUFFER; 0 = 1 MiB */
	bool websocket;	 /* also offered for Upgrade: websocket (request_is_websocket tells) */
	void (*handle)(struct request *r, void *dialect);
	unsigned tag; /* free for the dialect */
};

struct dialect {
	const char *name;
	const struct route *routes;
	size_t n_routes;
	/* Runs after routing, before any body is read. Returns true to go on; false when it has answered (early answer). */
	bool (*guard)(struct request *r, const struct route *route, void *ctx);
	/* The answer for what the server itself refuses under this dialect's prefix: 404 no route, 405, 413, 400 ... */
	void (*refuse)(struct request *r, int status, const struct err *e, void *ctx);
	const char *prefix;    /* "/daytona", "" for native: the longest matching prefix wins; patterns are relative to it */
	bool collapse_slashes; /* "//sandbox" is "/sandbox": for SDKs that are given a base URL with a slash at its end */
	void *ctx;
};

struct server *server_new(uv_loop_t *loop);
/* Tables and strings must outlive the server. */
int server_add_dialect(struct server *s, const struct dialect *d, struct err *e);
/* Every request goes to `claim` before routing (preview hosts), with its Host's name without the port, as sent; it returns true
 * when it took it: it then answers, or hands on with req_proxy, like the handler of a BODY_STREAM route. */
void server_set_host_claim(struct server *s, bool (*claim)(struct request *r, struct str host, void *ctx), void *ctx);
/* "127.0.0.1:4780", "[::1]:0". Port 0 picks one; *ret_port gets the port. */
int server_bind_tcp(const char *address, uint16_t *ret_port, struct err *e); /* a socket that does not listen yet, the caller's */
int server_listen_tcp(struct server *s, const char *address, uint16_t *ret_port, struct err *e);
/* Replaces a dead socket file; mode 0600 & then given to uid/gid -1 = leave. */
int server_listen_unix(struct server *s, const char *path, struct err *e);
/* Begins to accept. Before this, connections wait in the listeners' backlog (the daemon adopts its sandboxes first). */
void server_start(struct server *s);
/* On loopback TCP, requests whose Host is neither an address literal nor localhost nor claimed are refused (421), and so are
 * writing requests and WebSockets from a page of another origin (403): DNS rebinding, cross-site requests. This allows a name
 * in both; "*" allows all. */
void server_allow_host(struct server *s, const char *name);
void server_set_max_connections(struct server *s, size_t n); /* over it, connections wait in the listen queue; default 8192 */
size_t server_connections(const struct server *s);
/* What a right that is no more still holds open ends: requests that are not answered yet, streams, WebSockets, tunnels. Not the request that
 * is being handled just now, nor connections that wait for the next one, which has to show a right again. */
void server_cut(struct server *s, const char *holder);
void server_stop(struct server *s, uint64_t grace_ms, void (*done)(void *ctx), void *ctx); /* no new ones; lets answers finish */
/* After `done` of server_stop; memory goes when the loop has closed the last handle. Handlers that still owe an answer may give it. */
void server_free(struct server *s);

/* --- asking a request --- */
const char *req_method(const struct request *r);
struct str req_target(const struct request *r);			     /* as sent */
const char *req_path_arg(const struct request *r, const char *name); /* decoded {name}; NULL if the pattern has none */
/* First value of a query parameter, form-decoded; NULL when absent. req_query_each: every pair, in order. */
const char *req_query(const struct request *r, const char *name);
void req_query_each(const struct request *r, void (*each)(void *ctx, const char *name, const char *value), void *ctx);
struct str req_raw_query(const struct request *r);
struct str req_header(const struct request *r, const char *name); /* p NULL when absent; first one */
size_t req_header_count(const struct request *r);
/* What follows "Bearer" in the Authorization header; p NULL: there is none, or more than one, and which counts is for nobody to guess. */
struct str req_bearer(const struct request *r);
void req_header_at(const struct request *r, size_t i, struct str *ret_name, struct str *ret_value);
struct str req_body(const struct request *r);	     /* BODY_BUFFER; in the handler and until answered */
int64_t req_content_length(const struct request *r); /* -1 = chunked, 0 = none */
bool req_is_websocket(const struct request *r);
bool req_is_local(const struct request *r);    /* over the unix socket */
bool req_is_loopback(const struct request *r); /* that, or a peer in 127.0.0.0/8 or ::1 */
const struct route *req_route(const struct request *r);
uint64_t req_id(const struct request *r);
/* A slot for the dialect (the guard leaves the caller there); freed with free() when the request ends. */
void req_set_data(struct request *r, void *heap);
void *req_data(const struct request *r);
/* By whose right (a key's id) the request is made, and what its connection becomes: a stream, a WebSocket, a tunnel. */
void req_set_holder(struct request *r, const char *id);
/* gone: the client left before the answer was complete. A client that only closes its sending side while a handler that
 * has set this is still busy counts as gone, too. Without it the handler is not told, and answers into nothing. */
void req_on_gone(struct request *r, void (*gone)(void *ctx), void *ctx);

/* --- body as a stream (BODY_STREAM) --- */
struct body_events {
	void (*on_bytes)(void *ctx, struct str bytes);
	void (*on_end)(void *ctx); /* complete; after this the handler answers */
};
/* Inside the handler or later; until then no body is read, and no 100 Continue sent. Bytes come until paused. An answer given before the end makes the server drain and close. */
void req_read_body(struct request *r, const struct body_events *ev, void *ctx);
void req_body_pause(struct request *r);
void req_body_resume(struct request *r);

/* --- answering: exactly one of --- */
struct header {
	const char *name, *value; /* value must not hold CR or LF (checked: 500) */
};
void req_reply(struct request *r, int status, const struct header *h, size_t n_h, const char *content_type, struct str body);
void req_reply_json(struct request *r, int status, json_t *take); /* consumes take */
void req_reply_empty(struct request *r, int status);
/* Streamed: length -1 = chunked. */
void req_begin(struct request *r, int status, const struct header *h, size_t n_h, const char *content_type, int64_t length);
void req_write(struct request *r, struct str bytes);			 /* queued without bound: look at req_room */
bool req_room(const struct request *r);					 /* false while over 256 KiB are queued */
void req_on_room(struct request *r, void (*room)(void *ctx), void *ctx); /* called when under 64 KiB again */
void req_end(struct request *r);
void req_abort(struct request *r); /* an error after the head: cut without the last chunk */

/* --- WebSocket --- */
struct socket_events {
	void (*on_message)(void *ctx, bool text, struct str bytes); /* whole message, at most max_message */
	void (*on_room)(void *ctx);
	void (*on_close)(void *ctx, int code); /* once, last: 1006 when it broke. The socket is gone after it. */
};
bool req_offers_protocol(const struct request *r, const char *protocol);
/* nth offered subprotocol; p NULL when there are no more */
struct str req_protocol_at(const struct request *r, size_t n);
/* Completes the handshake; the request is used up. protocol NULL = none selected. max_message 0 = 1 MiB. */
struct socket *req_accept_websocket(struct request *r, const char *protocol, size_t max_message, const struct socket_events *ev, void *ctx);
void socket_set_holder(struct socket *s, const char *id); /* as req_set_holder, where messages tell */
void socket_send(struct socket *s, bool text, struct str bytes);
bool socket_room(const struct socket *s); /* false while over 256 KiB are queued */
void socket_pause(struct socket *s);	  /* stop reading; messages of the last 4 KiB read may still come */
void socket_resume(struct socket *s);
void socket_close(struct socket *s, int code, const char *reason); /* flushes what is queued; on_close follows */

/* --- handing the exchange to an upstream HTTP/1.1 server over any byte stream (preview) --- */
/* The stream is given by its operations; the proxy calls them, and the owner calls proxy_upstream_* when things happen. */
struct upstream_ops {
	size_t (*room)(void *ctx);
	void (*write)(void *ctx, struct str bytes); /* at most room */
	void (*eof)(void *ctx);
	void (*pause)(void *ctx);
	void (*resume)(void *ctx);
	void (*close)(void *ctx); /* the proxy is done with it, in any case the last call */
};
struct proxy_options {
	const char *path;		  /* path and query to ask upstream for */
	const char *host;		  /* Host to send */
	const char *const *drop_headers;  /* NULL-terminated: request headers not passed on (credentials of ours) */
	const char *const *drop_cookies;  /* NULL-terminated cookie names cut out of Cookie */
	bool (*is_secret)(struct str value); /* request headers with such a value are not passed on, whatever their name; or NULL */
	const char *cookie_path;	  /* cookies of the answer are for this path and below, whatever it says; or NULL */
	const struct header *add_headers; /* to the answer */
	size_t n_add_headers;
};
struct proxy;
/* Uses up the request: also a WebSocket upgrade and its body. 502 with refuse() when the upstream misbehaves. */
struct proxy *req_proxy(struct request *r, const struct proxy_options *o, const struct upstream_ops *ops, void *ctx);
void proxy_upstream_open(struct proxy *p);
void proxy_upstream_data(struct proxy *p, struct str bytes);
void proxy_upstream_room(struct proxy *p);
void proxy_upstream_eof(struct proxy *p);
void proxy_upstream_failed(struct proxy *p, const struct err *why); /* could not connect, or broke */

#endif
