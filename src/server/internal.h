/* What the files of this layer share. Theory of operation: docs/internals/http.md.
 *
 * Rules that keep it simple:
 * - One function, conn_run(), moves a connection on. It is called from the loop only: by the poll callback, by a posted task,
 *   by a deadline. What a handler calls (req_*, socket_*, proxy_*) changes state, writes to the socket if it can, and posts
 *   the connection; it never runs another handler's code.
 * - A connection is freed when libuv has closed its handle, so it outlives whatever is on the stack.
 * - A request without connection (conn NULL) belongs to a handler that has not answered yet; all calls on it do nothing. */
#ifndef CAISSON_SERVER_INTERNAL_H
#define CAISSON_SERVER_INTERNAL_H

#include "server/server.h"
#include "wire/http.h"

#include <sys/uio.h>

enum {
	READ_SIZE = 256 * 1024,
	LOCAL_BUFFER = 1024 * 1024, /* asked for unix sockets; the kernel gives less (net.core.wmem_max) */
	HELD_MAX = 16 * 1024,	    /* input kept while nobody wants it, before reading stops */
	OUT_HIGH = 128 * 1024,	    /* queued output over which a source should pause (the socket holds several times that) ... */
	OUT_LOW = 32 * 1024,	    /* ... and under which it may go on */
	DROPPED_BODY_MAX = 1 << 20, /* BODY_NONE: more is 413 */
	DEFAULT_BODY_MAX = 1 << 20,
	LINGER_BYTES = 64 << 20,
	KEEP_ALIVE_S = 75, /* advertised; the idle deadline is a little longer, so that a client never races it */
	MAX_ARGS = 8,	   /* {name}s in a pattern */
	DEFAULT_MAX_CONNECTIONS = 8192,
	HOLDER_MAX = 48,
};

/* Work to be done from the loop, soon. Embedded; posting twice is once. */
struct task {
	struct task *prev, *next;
	bool posted;
	void (*run)(struct task *t);
};
void task_post(struct server *s, struct task *t);
void task_cancel(struct server *s, struct task *t);

/* --- deadlines: per kind one duration, so a list in order of time; one timer for all --- */
enum deadline_kind {
	DEADLINE_NONE,
	DEADLINE_IDLE, /* between requests */
	DEADLINE_HEAD, /* from the first byte of a request to the end of its head */
	DEADLINE_BODY, /* window of the minimum rate */
	DEADLINE_LINGER,
	DEADLINE_PING,	/* WebSocket: silence */
	DEADLINE_CLOSE, /* WebSocket: the peer's close frame */
	DEADLINE_HALF,	/* tunnel: one side has ended */
	DEADLINE_WRITE, /* queued output does not move */
	DEADLINE_COUNT
};
struct deadline {
	struct deadline *prev, *next;
	enum deadline_kind kind;
	uint64_t at;
	struct conn *conn;
};
void deadline_set(struct server *s, struct deadline *d, enum deadline_kind kind); /* no change when it is of that kind already */
void deadline_restart(struct server *s, struct deadline *d);
void deadline_timer_cb(uv_timer_t *t);
void deadline_shorten_for_tests(unsigned divisor); /* all durations; never called outside tests */

struct listener {
	struct listener *prev, *next;
	uv_poll_t poll;
	struct server *server;
	int fd;
	bool polling;
	char *path; /* unix socket */
	dev_t dev;  /* of the socket file: only our own is removed */
	ino_t ino;
};

struct server {
	uv_loop_t *loop;
	const struct dialect **dialects;
	size_t n_dialects;
	bool (*claim)(struct request *r, struct str host, void *ctx);
	void *claim_ctx;
	char **allowed_hosts;
	size_t n_allowed_hosts;

	struct listener *listeners;
	int spare_fd; /* given up to accept and close one connection when descriptors run out */
	struct conn *conns;
	size_t n_conns, max_conns;
	struct request *requests;
	uint64_t n_requests;

	struct task *tasks;
	uv_idle_t idle;	  /* runs while there are tasks */
	uv_timer_t timer; /* earliest deadline */
	uint64_t timer_at;
	struct deadline *deadlines[DEADLINE_COUNT];
	uv_timer_t accept_retry, grace;
	size_t n_handles; /* open libuv handles; the server is freed with the last */
	bool freed;

	bool started, stopping;
	void (*stopped)(void *ctx);
	void *stopped_ctx;
	struct task stop_task;

	char read_buf[READ_SIZE];
	struct buf scratch; /* heads are composed here */
	char date[32];
	uint64_t date_at;
};

enum conn_mode {
	CONN_HTTP,   /* requests and answers */
	CONN_SOCKET, /* WebSocket */
	CONN_TUNNEL, /* bytes both ways: an upgrade that was proxied */
	CONN_LINGER, /* answered for the last time: write the rest, shut, discard until the client closes */
	CONN_CLOSED,
};

struct conn {
	uv_poll_t poll;
	struct server *server;
	struct conn *prev, *next;
	struct task task;
	int fd, mask; /* mask: what is polled for now */
	enum conn_mode mode;
	char holder[HOLDER_MAX]; /* by whose right it is used; "" nobody's */
	bool local;	 /* unix socket */
	bool check_host; /* TCP to a loopback address: what a browser can reach by a rebound name */
	bool running;	 /* inside conn_run */
	bool broken;	 /* reset or write error: to be killed at the next run */
	bool eof;	 /* the client's FIN was read */
	bool hup;	 /* a FIN is known of, behind bytes not read yet */
	bool blocked;	 /* send said EAGAIN: WRITABLE is polled */
	bool shut;	 /* SHUT_WR done */
	struct str view; /* input in hand while running: in the read buffer or in `in` */
	struct buf in, out;
	struct http_parser parser;
	struct request *request;
	struct socket *socket;
	struct proxy *proxy;		/* CONN_TUNNEL */
	uint64_t received, sent;	/* bytes, ever */
	uint64_t read_mark, write_mark; /* of those when the deadline began */
	uint64_t lingered;
	struct deadline read_deadline, write_deadline;
};

void conn_accept(struct server *s, int fd, bool local);
void conn_run(struct conn *c);
void conn_post(struct conn *c);
void conn_kill(struct conn *c);					  /* now; from the loop only */
void conn_break(struct conn *c);				  /* soon; from anywhere */
void conn_writev(struct conn *c, const struct iovec *iov, int n); /* at most 6 */
/* sendmsg only reads what an iovec points to, but its type can't say so. */
static inline struct iovec const_iov(struct str s)
{
	return (struct iovec){ (void *)(uintptr_t)s.p, s.n };
}
static inline void conn_write(struct conn *c, struct str bytes)
{
	struct iovec iov = const_iov(bytes);
	conn_writev(c, &iov, bytes.n > 0);
}
void conn_queue(struct conn *c, struct str bytes); /* goes out with the next write, or when the connection runs */
void conn_linger(struct conn *c);
void conn_use_input(struct conn *c);  /* sets view */
void conn_keep_input(struct conn *c); /* puts what is left of view away */
void conn_wipe_input(struct str piece); /* of a view, that has been taken: it may hold a secret */
void conn_expired(struct conn *c, struct deadline *d);

struct path_arg {
	struct str name;
	const char *value;
};
struct query_pair {
	const char *name, *value;
};
/* Where a body goes. */
struct intake {
	enum body_mode mode;
	size_t max;
	bool wanted; /* somebody takes the bytes now (before that, they are not read) */
	bool paused;
	bool complete; /* the message has been read to its end */
	bool end_told;
	bool expect; /* a 100 Continue is due before the body comes */
	uint64_t n;
	struct buf bytes;
	struct body_events ev;
	void *ctx;
};
struct answer {
	bool begun; /* the head is written */
	bool ended;
	bool chunked, silent; /* silent: HEAD, 204, 304 */
	bool close;	      /* the head said so, or its end is the end of the connection */
	bool blocked;	      /* over OUT_HIGH: room is to be told */
	int64_t left;	      /* of the promised length; -1 = unknown */
	struct buf extra;     /* header lines the server adds */
};
struct request {
	struct server *server;
	struct conn *conn; /* NULL: the client is gone */
	struct request *prev, *next;
	struct task task;
	uint64_t id;
	struct http_head *head;
	bool local;
	bool owned;    /* a handler has it and will answer */
	bool ws_asked; /* Upgrade: websocket */
	bool ws_valid; /* ... and its other fields are right */
	const struct dialect *dialect;
	const struct route *route;
	struct path_arg args[MAX_ARGS];
	size_t n_args;
	char *arg_text;
	struct query_pair *query; /* decoded at first use; query_text holds the strings */
	size_t n_query;
	char *query_text;
	struct intake intake;
	struct answer answer;
	void *data;
	void (*gone)(void *ctx);
	void *gone_ctx;
	void (*room)(void *ctx);
	void *room_ctx;
};

struct request *request_new(struct conn *c, struct http_head *head);
void request_free(struct request *r);
void request_release(struct request *r); /* used up while somebody may still be on the stack: freed by a task */
/* The client is gone: tells the handler, or leaves it the request to answer into nothing. */
void request_detach(struct request *r);
int request_decode_query(struct request *r); /* -EINVAL: broken escapes; the pairs that are sound are there all the same */
void request_refuse(struct request *r, int status, const struct err *e);

bool exchange_step(struct conn *c); /* one event of CONN_HTTP; false: nothing more to do now */
bool exchange_wants_input(const struct conn *c);
bool exchange_discard(struct request *r); /* takes the rest of the body from what is in hand; true: the message is complete */
void exchange_syntax_error(struct conn *c, int status, const char *why);

/* --- router.c: pure --- */
enum route_result { ROUTE_FOUND, ROUTE_NONE, ROUTE_METHOD, ROUTE_BAD_PATH };
int route_check(const struct dialect *d, struct err *e);
const struct dialect *route_dialect(const struct server *s, struct str path, struct str *ret_rest);
/* Fills r->route and r->args; with ROUTE_METHOD ret_allow gets the methods there are. */
enum route_result route_find(struct request *r, const struct dialect *d, struct str rest, struct buf *ret_allow);

/* --- origin.c: what a browser must not be used for --- */
struct str host_without_port(struct str host);
bool origin_check(const struct request *r, int *ret_status, struct err *e);

/* --- reply.c --- */
struct buf *reply_head_start(struct request *r, int status);
void reply_head_add(struct buf *b, struct str name, struct str value);
/* Ends the head; length -1 unknown. Queues it. */
void reply_head_send(struct request *r, struct buf *b, int status, int64_t length, struct str body);
void reply_default(struct request *r, int status, const struct err *e);
const char *reply_date(struct server *s);

/* --- websocket.c --- */
void websocket_inspect(struct request *r); /* sets ws_asked, ws_valid */
void websocket_refuse(struct request *r);
bool socket_step(struct conn *c);
bool socket_wants_input(const struct socket *s);
enum deadline_kind socket_deadline(const struct socket *s);
void socket_silent(struct conn *c); /* DEADLINE_PING is over */
void socket_gone(struct socket *s); /* the connection is; on_close */

/* --- proxy.c --- */
bool tunnel_step(struct conn *c);
bool tunnel_is_half(const struct conn *c);
void tunnel_gone(struct proxy *p);
/* proxy_head.c */
void proxy_write_request(struct buf *to, const struct request *r, const struct proxy_options *o, bool upgrade);
void proxy_copy_answer(struct buf *to, const struct http_head *h, const char *cookie_path);

void listener_pause_all(struct server *s, bool retry_later);
void listener_resume_all(struct server *s);
void listener_close_all(struct server *s);
void server_conn_closed(struct server *s);
void server_unref(struct server *s); /* a libuv handle of the server's is closed */

#endif
