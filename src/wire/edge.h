/* What the edge (the process that dials for sandboxes) is told, and what it tells. Records on SOCK_SEQPACKET pairs; same host, same build:
 * native layout, checked by magic and size. Text fields end with a NUL.
 *
 * The warden says which gates there are and hands over their sockets; the daemon says what each sandbox may. A gate without a
 * policy reaches nothing, a policy without a gate does nothing: the order in which the two arrive does not matter. */
#ifndef CAISSON_WIRE_EDGE_H
#define CAISSON_WIRE_EDGE_H

#include <stdint.h>

#define EDGE_MAGIC 0x43454735u /* "CEG5"; changes with any field */

/* Where a sandbox finds its gate; the same for all, since none sees another's. */
#define GATE_ADDR4 "10.97.83.1"
#define GATE_BOX4 "10.97.83.2"
#define GATE_PREFIX4 30
#define GATE_ADDR6 "fdca:1550:9753::1"
#define GATE_BOX6 "fdca:1550:9753::2"
#define GATE_PREFIX6 126 /* no more neighbours than there are: the kernel's table of them is one for the whole host */

/* --- warden to edge --- */
enum edge_gate_op { EDGE_GATE_OPEN = 1, EDGE_GATE_CLOSE };
/* With EDGE_GATE_OPEN, in this order: listeners; what questions come to, and all other datagrams; what takes whole packets for the sandbox. */
#define EDGE_GATE_BUFFER (256 << 10) /* bytes that the kernel keeps of a connection in a gate, each way */
enum { EDGE_TCP4, EDGE_TCP6, EDGE_DNS4, EDGE_DNS6, EDGE_UDP4, EDGE_UDP6, EDGE_RAW4, EDGE_RAW6, EDGE_GATE_FDS };
struct edge_gate {
	uint32_t magic, op;
	char id[40];
};

/* --- daemon to edge --- */
/* EDGE_POLICY_OPEN: the allow list is the hosts whose TLS is not carried but handed to the sandbox's opener (wire/opener.h), whose socket
 * comes with it; without any, nothing is handed over. What is sent to hosts that are to be read (n_read, of EDGE_POLICY_SET) goes to the opener by TLS
 * and without, or nowhere. */
enum edge_policy_op { EDGE_POLICY_SET = 1, EDGE_POLICY_FORGET, EDGE_POLICY_OPEN };
#define EDGE_POLICY_TEXT_MAX (128U << 10)
struct edge_policy { /* followed by text_len bytes: the rules of model/policy.h (and names answered for), each with its NUL, in the order of their numbers */
	uint32_t magic, op;
	char id[40];
	uint32_t mode; /* enum network_mode */
	uint32_t n_allow, n_deny, n_ask, n_answered, n_read, text_len; /* of struct reach (model/reach.h) */
	uint32_t connections, connections_per_second; /* limits; 0 = none of its own */
	uint64_t bytes_per_second, bytes;
};

/* --- edge to daemon --- */
enum edge_event_kind { EDGE_CONNECT = 1, EDGE_NAME, EDGE_CLOSED, EDGE_ASK };
/* EDGE_ASK: questions of a name wait until a policy answers for it, at most so long. */
enum { EDGE_ASK_MS = 120000 };
struct edge_event { /* one verdict, or (EDGE_CLOSED) the end of a connection that was allowed, or EDGE_ASK */
	uint32_t magic, kind;
	char id[40];
	uint32_t allowed;
	uint32_t proto; /* enum policy_proto */
	uint32_t port;
	uint32_t lost; /* events before this one for which there was no room */
	char addr[46];
	char name[254]; /* or empty */
	char reason[120];
	uint64_t up_bytes, down_bytes, duration_ms; /* of EDGE_CLOSED; of datagrams without their heads */
};

#endif
