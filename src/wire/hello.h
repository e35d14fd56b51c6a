/* The first bytes of a TLS connection: whose name the client asks for. Pure. */
#ifndef CAISSON_WIRE_HELLO_H
#define CAISSON_WIRE_HELLO_H

#include "base/buf.h"

#define HELLO_MAX 16384 /* of a ClientHello, as we read it */

enum hello_verdict {
	HELLO_MORE, /* so far it is the beginning of one */
	HELLO_DONE,
	HELLO_NOT, /* something else than TLS */
	HELLO_BAD, /* TLS that is not to be believed, or that only some servers take for TLS */
};
struct hello {
	struct str name; /* as sent, a view into `room`; p NULL = none was sent */
	bool encrypted;	 /* the true name may be another one, hidden in an extension (ECH, ESNI) */
	size_t used;	 /* bytes of its records */
};
/* The bytes from the beginning; they may be cut anywhere and spread over records. `room` holds the message put together. */
enum hello_verdict hello_parse(const uint8_t *p, size_t n, uint8_t room[static HELLO_MAX], struct hello *ret);

/* What follows a ClientHello, until it is clear that no other one comes in the open. A server may ask for a second one (HelloRetryRequest, RFC 8446, 4.1.4),
 * and takes the name from that. */
struct hello_records { /* of one direction */
	uint8_t head[5];
	size_t have, left;
};
struct hello_after {
	size_t first; /* bytes of the first hello that are still to pass */
	bool again;   /* the server has asked for a second one */
	struct hello_records up, down;
	uint8_t answer[38];
	size_t n_answer;
	struct buf second; /* as far as it has come */
};
void hello_after_init(struct hello_after *a, const struct hello *first);
void hello_after_done(struct hello_after *a);
/* The client's next bytes: HELLO_MORE = they may pass; HELLO_DONE = with them the second hello is there, and nothing more needs to be followed; HELLO_BAD. */
enum hello_verdict hello_after_client(struct hello_after *a, const uint8_t *p, size_t n, uint8_t room[static HELLO_MAX], struct hello *ret);
/* The server's next bytes. False: there is no second hello, and nothing more needs to be followed. */
bool hello_after_server(struct hello_after *a, const uint8_t *p, size_t n);

#endif
