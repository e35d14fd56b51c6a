/* What the files of the opener share. */
#ifndef CAISSON_EGRESS_OPENER_INT_H
#define CAISSON_EGRESS_OPENER_INT_H

#include "egress/opener.h"
#include "egress/place.h"
#include "egress/screen.h"
#include "wire/http.h"
#include "wire/opener.h"

#include <openssl/ssl.h>
#include <utlist.h>

#define CONNS_MAX 2048
#define ROOM	  (64U << 10)  /* of plain bytes that wait for one side; more is not read from the other */
#define OUT_MAX	  (256U << 10) /* a piece and a head may come on top */
#define LEAVES_MAX 64
#define HTTP11	   "http/1.1" /* as TLS calls them (ALPN) */
#define HTTP2	   "h2"

struct conn;
struct side;
struct source { /* what an epoll event leads to */
	enum { FROM_DAEMON, FROM_EDGE, FROM_SIDE } kind;
	int fd;
	struct side *side;
};

struct side { /* one of the two TLS connections */
	struct conn *conn;
	struct source source;
	int fd;
	SSL *ssl;
	struct buf in, out; /* plain */
	bool up;	    /* the handshake is over */
	bool eof;	    /* the peer has said that it sends no more */
	bool broken;	    /* it ended otherwise */
	bool shut;	    /* we have said so */
	bool mute;	    /* nothing can be sent any more; what it has sent may still be read */
};

enum conn_state { CONN_HELLO, CONN_UPSTREAM, CONN_ACCEPT, CONN_OPEN, CONN_LINGER, CONN_DEAD };

struct http1;
struct http2;
struct stream;
struct held; /* a request that waits for somebody's word (methods.c) */
struct request {
	struct str method, target; /* "/path?query", as sent */
};

struct conn {
	struct opener *o;
	enum conn_state state;
	struct side client, server;
	char name[POLICY_NAME_MAX + 1];
	uint16_t port;
	bool plain; /* without TLS: HTTP/1.1, and no secret goes into it */
	unsigned char offered[64]; /* protocols of the client's that we carry, as TLS writes them */
	size_t n_offered;
	bool offers;		   /* it has sent a list at all */
	char protocol[16];	   /* the one chosen, or empty */
	char refusal[160];	   /* why the true host is not spoken to; every request is answered with it */
	struct http1 *http1; /* or: */
	struct http2 *http2;
	uint64_t deadline_ms; /* 0 = none */
	bool queued;
	bool unsure; /* bytes of an answer are kept back (screen.h) */
	bool cut; /* the end is not a proper one: it is not said to be */
	struct conn *prev, *next, *run_next;
};

struct leaf {
	char name[POLICY_NAME_MAX + 1];
	X509 *certificate;
	uint64_t made_ms;
};

struct opener {
	int epoll;
	struct source daemon, edge;
	struct keyring keys;
	struct conn *conns, *run, *dead;
	size_t n_conns;
	struct held *held; /* oldest first */
	size_t n_held;
	uint32_t events_lost;
	uint64_t look_ms; /* at answers that are kept back; 0 = at none */
	size_t kept;	 /* bytes that wait in streams of HTTP/2 */
	unsigned n_wide; /* directions of such connections that have a larger window */
	SSL_CTX *to_client, *to_server;
	X509 *deputy;
	EVP_PKEY *deputy_key, *leaf_key;
	struct leaf leaves[LEAVES_MAX];
	size_t n_leaves, next_leaf;
};

/* opener.c */
void opened_run(struct conn *c);
void opened_queue(struct conn *c); /* to be run soon, by nobody who is in the midst of something */
void opened_kill(struct conn *c);		   /* at once, without a word */
uint64_t opened_unsure(struct conn *c);	   /* some of an answer is kept back: it is looked at after a while. The time of now */
void opened_end(struct conn *c);		   /* after what waits has been sent */
void opened_cut(struct conn *c);		   /* the same, and whoever reads sees that something is missing */
/* Is it the name that this connection was opened for, with its port or without? */
bool opened_for(const struct conn *c, struct str authority);
void opener_tell(struct conn *c, const struct place *p, bool allowed);
void opener_tell_objection(struct conn *c, struct str method, struct str target, const char *reason); /* to a request, whatever secrets it has */

/* tls.c */
int tls_open(struct opener *o);			/* before everything is given up: reads the host's trust store */
int tls_take_keys(struct opener *o);		/* of o->keys */
bool offers(const struct conn *c, const char *protocol); /* does the client? */
int side_open(struct conn *c, struct side *s, bool client);
void side_close(struct side *s);
int side_handshake(struct side *s);		/* 1 = over, 0 = waits, negative = failed */
bool side_hello_seen(const struct side *s);	/* waits for us to let it go on */
bool side_fill(struct side *s);			/* moved? */
bool side_flush(struct side *s);
void side_shut(struct side *s);
const char *tls_reason(struct side *s, char room[static 160]); /* why a handshake failed */

/* http1.c */
struct http1 *http1_new(struct conn *c);
void http1_free(struct http1 *h);
bool http1_run(struct conn *c); /* moved? */
bool http1_idle(struct conn *c, uint64_t now); /* lets go of what is kept back, where nothing has come for a while: moved? */
void http1_answered(struct conn *c, bool allowed, const char *why); /* the request that is held goes on, or is refused */

/* http2.c */
struct http2 *http2_new(struct conn *c);
void http2_free(struct http2 *h);
bool http2_run(struct conn *c); /* moved? */
bool http2_idle(struct conn *c, uint64_t now);
bool http2_sweep(struct http2 *h, uint64_t now); /* time has passed; is there something to run? */

void http2_answered(struct stream *s, bool allowed, const char *why);

/* methods.c */
#define METHODS_WHY_MAX 800
enum methods_say { METHODS_GO, METHODS_DENIED, METHODS_HELD };
/* What becomes of a request, told to the daemon. Denied: `why` is for its client. Held: *at points to it as long as it is (stream: of
 * HTTP/2); whoever has no use for it any more says held_gone. */
enum methods_say methods_judge(struct conn *c, struct stream *s, struct held **at, const struct request *r, char why[static METHODS_WHY_MAX]);
void held_gone(struct held *h); /* accepts NULL */
void methods_gone(struct conn *c); /* of all of its */
void methods_answer(struct opener *o, uint64_t id, bool allowed);
void methods_rejudge(struct opener *o); /* there are other rules */
void methods_sweep(struct opener *o, uint64_t now);

/* Answers of ours. Appended to out, which is to be buf_done. */
void refusal_body(const char *kind, const char *message, struct buf *out);

/* cage.c */
int cage(void);

#endif
