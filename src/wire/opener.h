/* What an opener (the process that opens the TLS of one sandbox, egress/opener.h) is told, and what it tells. Records on SOCK_SEQPACKET pairs;
 * same host, same build: native layout, checked by magic and size. Text fields end with a NUL.
 *
 * The daemon says what the sandbox's secrets and its rules about methods are, hands over the end of a pair to every new edge, and answers for
 * requests that are held; the edge hands over connections. */
#ifndef CAISSON_WIRE_OPENER_H
#define CAISSON_WIRE_OPENER_H

#include <stdint.h>

#define OPENER_MAGIC 0x434f5032u /* "COP2"; changes with any field */

/* --- daemon to opener; the first two each with one descriptor --- */
enum opener_op {
	OPENER_CONFIG = 1, /* a memory file of `size` bytes: texts of egress/keyring.h; replaces what was before */
	OPENER_EDGE,	   /* the socket of a new edge */
	OPENER_ANSWER,	   /* to the request that `ask` is the number of */
};
#define OPENER_CONFIG_MAX (4U << 20)
struct opener_order {
	uint32_t magic, op, size, allowed;
	uint64_t ask;
};

/* --- edge to opener, with two descriptors: stream sockets to the client and to the server --- */
struct opener_flow {
	uint32_t magic, port, plain; /* plain: without TLS */
	char name[256]; /* that was asked for and judged, in canonical form */
};

/* --- opener to daemon --- */
/* One use of a secret, or one request that rules about methods are for, allowed or refused; one that waits for somebody's word (OPENER_ASK),
 * at most OPENER_ASK_MS, and whose word is not waited for any more (OPENER_ASK_END; `ask` 0: no request's is). */
enum opener_event_kind { OPENER_SECRET = 1, OPENER_METHOD, OPENER_ASK, OPENER_ASK_END };
enum { OPENER_ASK_MS = 120000 };
struct opener_event {
	uint32_t magic, kind, allowed;
	uint32_t port, lost; /* events before this one for which there was no room */
	uint32_t unused;
	uint64_t ask;	     /* the number of the one that waits or waited; else 0 */
	char secret[40];     /* its id; empty: a placeholder of none */
	char name[256];
	char method[24];
	char path[256]; /* without the query; cut */
	char reason[120];
	char rule[512];	     /* that it is by, or empty */
};

#endif
