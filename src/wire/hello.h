/* The first bytes of a TLS connection: whose name the client asks for. Pure. */
#ifndef CAISSON_WIRE_HELLO_H
#define CAISSON_WIRE_HELLO_H

#include "base/util.h"

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
};
/* The bytes from the beginning; they may be cut anywhere and spread over records. `room` holds the message put together. */
enum hello_verdict hello_parse(const uint8_t *p, size_t n, uint8_t room[static HELLO_MAX], struct hello *ret);

#endif
