/* What the two files of HTTP/2 share. Theory of operation: http2.c. */
#ifndef CAISSON_EGRESS_HTTP2_INT_H
#define CAISSON_EGRESS_HTTP2_INT_H

#include "egress/opener_int.h"

#include <nghttp2/nghttp2.h>

enum { H2_STREAMS_MAX = 100, H2_FIELDS_MAX = 200, H2_HEAD_MAX = 64 << 10, H2_SIGNED_BODY_MAX = 1 << 20 };

enum end { CLIENT, SERVER };

struct field {
	char *name; /* in lower case */
	char *value;
	size_t value_n;
	bool never; /* to be kept in no table of either side's */
};
struct fields {
	struct field *v;
	size_t n, bytes;
};

struct way { /* of a stream: what comes from one end, for the other one */
	struct buf data;
	struct fields head; /* that is being read, or has to wait */
	bool head_over;	    /* it has been read; what comes now are trailers, */
	struct fields trailers; /* which wait until the data before them is gone */
	bool ended;	    /* no more will come */
	bool deferred;	    /* the other session waits for more of it */
	bool paid;	    /* the windows have got back all of it already */
	bool wide;	    /* has the larger window */
	size_t kept, owed;  /* bytes of the peer's that wait here; those of them that the connection's window has not got back */
	uint64_t bytes;
};

struct stream {
	struct http2 *h;
	int32_t id[2];
	struct way way[2]; /* by where it comes from */
	bool closed[2];	   /* has no stream there: any more, or yet */
	bool sent;	   /* the server may have seen its head */
	bool told;	   /* the client has been given the whole answer */
	uint32_t cut;	   /* it is reset with this when it has got what there is of the answer; 0 = no */
	bool collecting;   /* the body is needed before the head can be signed */
	struct held *question; /* it waits for somebody's word; what comes meanwhile waits in its way, at most a window */
	struct screen screen; /* of the answer; kept back, and since then nothing came (0 = no) */
	uint64_t unsure_ms;
	/* The rest of the request is not needed. When the client is to be told (0: it is needed), what has been thrown away since, has it been asked? */
	uint64_t stop_ms;
	size_t thrown;
	bool asked;
	struct stream *prev, *next;
};

struct http2 {
	struct conn *c;
	nghttp2_session *session[2]; /* towards each end; SERVER: NULL when there is nobody any more */
	bool wide[2];
	struct stream *streams;
	size_t n_streams, n_stopping;
	bool failed;
};

/* http2.c */
ssize_t http2_give(nghttp2_session *to, int32_t id, uint8_t *p, size_t n, uint32_t *flags, nghttp2_data_source *source, void *ctx);
void http2_reset(struct stream *s, enum end e, uint32_t code);
void http2_drop_request(struct stream *s); /* what waits of its body: nobody will take it */

/* http2-head.c */
int fields_add(struct fields *f, struct str name, struct str value, bool never); /* -E2BIG: too much */
void fields_done(struct fields *f);						  /* wipes */
size_t fields_views(const struct fields *f, nghttp2_nv v[static H2_FIELDS_MAX]);
void http2_on_request(struct stream *s); /* its head is complete; again, when it was collecting and its body is */
void http2_on_answer(struct stream *s);
void http2_on_trailers(struct stream *s); /* of an answer */
void http2_refuse(struct stream *s, int status, const char *kind, const char *message);

#endif
