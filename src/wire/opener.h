/* What an opener (the process that opens the TLS of one sandbox, egress/opener.h) is told, and what it tells. Records on SOCK_SEQPACKET pairs;
 * same host, same build: native layout, checked by magic and size. Text fields end with a NUL.
 *
 * The daemon says what the sandbox's secrets are and hands over the end of a pair to every new edge; the edge hands over connections. */
#ifndef CAISSON_WIRE_OPENER_H
#define CAISSON_WIRE_OPENER_H

#include <stdint.h>

#define OPENER_MAGIC 0x434f5031u /* "COP1"; changes with any field */

/* --- daemon to opener, each with one descriptor --- */
enum opener_op {
	OPENER_CONFIG = 1, /* a memory file of `size` bytes: texts of egress/keyring.h; replaces what was before */
	OPENER_EDGE,	   /* the socket of a new edge */
};
#define OPENER_CONFIG_MAX (4U << 20)
struct opener_order {
	uint32_t magic, op, size, unused;
};

/* --- edge to opener, with two descriptors: stream sockets to the client and to the server --- */
struct opener_flow {
	uint32_t magic, port;
	char name[256]; /* that was asked for and judged, in canonical form */
};

/* --- opener to daemon --- */
struct opener_event { /* one use of a secret, allowed or refused */
	uint32_t magic, allowed;
	uint32_t port, lost; /* events before this one for which there was no room */
	char secret[40];     /* its id; empty: a placeholder of none */
	char name[256];
	char method[24];
	char path[256]; /* without the query; cut */
	char reason[120];
};

#endif
