/* WebSocket (RFC 6455). wslay does the frames; this file is the handshake, the pump between wslay and the connection, and
 * the end of a conversation.
 *
 * An end comes in one of three ways: the peer's close frame (wslay answers it), ours (socket_close; the peer has
 * DEADLINE_CLOSE to answer), or a broken connection. In each on_close is called exactly once, from the loop. Output goes from
 * wslay straight into the connection's queue, so there is one place that counts it. */
#include "server/internal.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <wslay/wslay.h>

enum { DEFAULT_MAX_MESSAGE = 1 << 20, SILENT_PINGS = 3, CODE_NONE = 1005, CODE_BROKEN = 1006 };

struct socket {
	struct server *server;
	struct conn *conn; /* NULL: gone, on_close is due */
	struct task task;
	wslay_event_context_ptr ws;
	struct socket_events ev;
	void *ctx;
	bool paused;
	bool closing; /* socket_close was called: messages are dropped */
	bool blocked; /* output went over OUT_HIGH */
	unsigned silent_pings;
	uint64_t heard; /* conn->received at the last ping */
	int code;	/* for on_close */
};

/* --- handshake --- */

void websocket_inspect(struct request *r)
{
	const struct http_head *h = r->head;
	struct str key = http_get(h, "Sec-WebSocket-Key");
	unsigned char raw[18];

	r->ws_asked = h->minor == 1 && h->length == 0 && streq(h->method, "GET") && http_list_has(h, "Connection", "upgrade") &&
		      http_list_has(h, "Upgrade", "websocket");
	r->ws_valid = r->ws_asked && str_eqz(http_get(h, "Sec-WebSocket-Version"), "13") && key.n == 24 && base64_decode(key, raw) == 16;
}

void websocket_refuse(struct request *r)
{
	bool version = str_eqz(http_get(r->head, "Sec-WebSocket-Version"), "13");
	struct err e;

	if (!version)
		buf_addz(&r->answer.extra, "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n");
	err_set(&e, ERR_INVALID, 0, version ? "Sec-WebSocket-Key is not 16 bytes in base64" : "only WebSocket version 13 is spoken here");
	request_refuse(r, version ? 400 : 426, &e);
}

struct str req_protocol_at(const struct request *r, size_t n)
{
	const struct http_head *h = r->head;
	struct str item;

	for (size_t i = 0; i < h->n_fields; i++) {
		if (!str_eq_nocase(h->fields[i].name, STR("Sec-WebSocket-Protocol")))
			continue;
		struct str rest = h->fields[i].value;
		while (http_list_next(&rest, &item))
			if (http_is_token(item) && n-- == 0)
				return item;
	}
	return (struct str){ NULL, 0 };
}

bool req_offers_protocol(const struct request *r, const char *protocol)
{
	struct str item;

	for (size_t n = 0; (item = req_protocol_at(r, n)).p; n++)
		if (str_eqz(item, protocol)) /* these are case-sensitive */
			return true;
	return false;
}

static void accept_key(struct str key, char ret_text[29])
{
	static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	char text[24 + sizeof guid];
	unsigned char hash[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	memcpy(text, key.p, 24);
	memcpy(text + 24, guid, sizeof guid - 1);
	if (EVP_Digest(text, 24 + sizeof guid - 1, hash, &n, EVP_sha1(), NULL) != 1 || n != 20)
		abort();
	base64_encode(hash, 20, ret_text);
}

static void write_handshake(struct request *r, const char *protocol)
{
	struct buf *b = reply_head_start(r, 101);
	char key[29];

	accept_key(http_get(r->head, "Sec-WebSocket-Key"), key);
	buf_addf(b, "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n", key);
	if (protocol && http_is_token(str_of(protocol)))
		buf_addf(b, "Sec-WebSocket-Protocol: %s\r\n", protocol);
	buf_addz(b, "\r\n");
	conn_queue(r->conn, buf_str(b));
}

/* --- wslay's callbacks --- */

static ssize_t on_recv(wslay_event_context_ptr ws, uint8_t *to, size_t len, int flags, void *ctx)
{
	struct socket *s = ctx;
	struct str *view = &s->conn->view;
	size_t n = MIN(len, view->n);

	(void)flags;
	if (n == 0 || s->paused) {
		wslay_event_set_error(ws, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	memcpy(to, view->p, n);
	view->p += n;
	view->n -= n;
	return (ssize_t)n;
}

static ssize_t on_send(wslay_event_context_ptr ws, const uint8_t *p, size_t len, int flags, void *ctx)
{
	struct socket *s = ctx;

	(void)ws;
	(void)flags;
	if (s->conn)
		conn_queue(s->conn, (struct str){ (const char *)p, len });
	return (ssize_t)len;
}

static void on_message(wslay_event_context_ptr ws, const struct wslay_event_on_msg_recv_arg *m, void *ctx)
{
	struct socket *s = ctx;

	(void)ws;
	if (s->closing || (m->opcode != WSLAY_TEXT_FRAME && m->opcode != WSLAY_BINARY_FRAME))
		return;
	s->ev.on_message(s->ctx, m->opcode == WSLAY_TEXT_FRAME, (struct str){ (const char *)m->msg, m->msg_length });
}

/* --- life --- */

static void finish(struct socket *s)
{
	void (*on_close)(void *ctx, int code) = s->ev.on_close;

	task_cancel(s->server, &s->task);
	wslay_event_context_free(s->ws);
	if (on_close)
		on_close(s->ctx, s->code);
	free(s);
}

static void run_task(struct task *t)
{
	finish(container_of(t, struct socket, task));
}

void socket_gone(struct socket *s)
{
	s->conn = NULL;
	finish(s);
}

struct socket *req_accept_websocket(struct request *r, const char *protocol, size_t max_message, const struct socket_events *ev, void *ctx)
{
	static const struct wslay_event_callbacks callbacks = {
		.recv_callback = on_recv,
		.send_callback = on_send,
		.on_msg_recv_callback = on_message,
	};
	struct socket *s = xcalloc(1, sizeof *s);
	struct conn *c = r->conn;

	assert(r->ws_valid && !r->answer.begun);
	s->server = r->server;
	s->conn = c;
	s->ev = *ev;
	s->ctx = ctx;
	s->code = CODE_BROKEN;
	s->task.run = run_task;
	if (wslay_event_context_server_init(&s->ws, &callbacks, s) != 0)
		abort();
	wslay_event_config_set_max_recv_msg_length(s->ws, max_message ? max_message : DEFAULT_MAX_MESSAGE);
	if (c) {
		write_handshake(r, protocol);
		c->request = NULL;
		c->socket = s;
		c->mode = CONN_SOCKET;
		http_next(&c->parser); /* its memory; it is not used any more */
		conn_post(c);
	} else {
		task_post(s->server, &s->task);
	}
	request_release(r);
	return s;
}

static void flush(struct socket *s)
{
	if (wslay_event_want_write(s->ws))
		wslay_event_send(s->ws);
	if (s->conn)
		s->blocked |= s->conn->out.len > OUT_HIGH;
}

void socket_send(struct socket *s, bool text, struct str bytes)
{
	struct wslay_event_msg m = {
		.opcode = text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME,
		.msg = (const uint8_t *)bytes.p,
		.msg_length = bytes.n,
	};

	if (!s->conn || s->closing || wslay_event_queue_msg(s->ws, &m) != 0)
		return;
	flush(s);
}

bool socket_room(const struct socket *s)
{
	return !s->conn || s->conn->out.len <= OUT_HIGH;
}

void socket_set_holder(struct socket *s, const char *id)
{
	if (s->conn)
		snprintf(s->conn->holder, sizeof s->conn->holder, "%s", id);
}

void socket_pause(struct socket *s)
{
	s->paused = true;
}

void socket_resume(struct socket *s)
{
	s->paused = false;
	if (s->conn)
		conn_post(s->conn);
}

void socket_close(struct socket *s, int code, const char *reason)
{
	if (!s->conn || s->closing)
		return;
	s->closing = true;
	s->paused = false; /* the peer's close frame may be behind messages that nobody will read */
	size_t n = reason ? MIN(strlen(reason), (size_t)123) : 0;
	wslay_event_queue_close(s->ws, (uint16_t)code, (const uint8_t *)reason, n);
	flush(s);
	conn_post(s->conn);
}

bool socket_wants_input(const struct socket *s)
{
	return !s->paused;
}

enum deadline_kind socket_deadline(const struct socket *s)
{
	return s->closing ? DEADLINE_CLOSE : s->paused ? DEADLINE_NONE : DEADLINE_PING;
}

void socket_silent(struct conn *c)
{
	static const struct wslay_event_msg ping = { .opcode = WSLAY_PING };
	struct socket *s = c->socket;

	if (c->received != s->heard)
		s->silent_pings = 0;
	s->heard = c->received;
	if (s->silent_pings++ >= SILENT_PINGS) {
		c->broken = true;
		return;
	}
	wslay_event_queue_msg(s->ws, &ping);
	flush(s);
}

/* The conversation is over; its last bytes still have to leave. */
static bool end(struct conn *c)
{
	struct socket *s = take_ptr(&c->socket);

	conn_linger(c);
	socket_gone(s);
	return true;
}

bool socket_step(struct conn *c)
{
	struct socket *s = c->socket;
	size_t before = c->view.n;

	if (s->blocked && c->out.len < OUT_LOW) {
		s->blocked = false;
		if (s->ev.on_room && !s->closing)
			s->ev.on_room(s->ctx);
		return true;
	}
	if (c->view.n && !s->paused && wslay_event_get_read_enabled(s->ws) && wslay_event_recv(s->ws) != 0) {
		/* A frame that is none. wslay has queued a close frame without a code for this; the standard wants one. */
		conn_queue(c, STR("\x88\x02\x03\xea"));
		s->code = WSLAY_CODE_PROTOCOL_ERROR;
		return end(c);
	}
	flush(s);
	/* wslay reads no more once a close frame has come, or bad text or a message too big made it queue one itself. */
	if (!wslay_event_get_read_enabled(s->ws) && wslay_event_get_close_sent(s->ws)) {
		bool theirs = wslay_event_get_close_received(s->ws);
		int code = theirs ? wslay_event_get_status_code_received(s->ws) : wslay_event_get_status_code_sent(s->ws);
		s->code = code ? code : CODE_NONE;
		return end(c);
	}
	if (c->eof && c->view.n == 0) {
		c->broken = true;
		return true;
	}
	return before != c->view.n && c->view.n;
}
