/* DNS messages as our resolver needs them: one question from a sandbox, one to an upstream server, addresses back. Pure.
 *
 * Strict on purpose: what a sandbox asks must be one plain question without compression, and what an upstream answers must repeat the
 * question byte for byte (id and mixed case are what an off-path forger has to guess). Record types other than A and AAAA are never
 * asked upstream: their contents are a channel. */
#ifndef CAISSON_WIRE_DNS_H
#define CAISSON_WIRE_DNS_H

#include "base/util.h"

enum { DNS_A = 1, DNS_CNAME = 5, DNS_AAAA = 28 };
enum { DNS_OK = 0, DNS_FORMAT = 1, DNS_FAILED = 2, DNS_NO_NAME = 3, DNS_NOT_DONE = 4, DNS_REFUSED = 5 };

#define DNS_NAME_MAX 255     /* on the wire, with all length bytes */
#define DNS_MESSAGE_MAX 4096 /* that we read */
#define DNS_UDP_MAX 512	     /* that we write */
#define DNS_TCP_MAX 2048     /* the same by a connection: all that there may be of an answer */
#define DNS_ADDRS_MAX 32

struct dns_query {
	uint16_t id, type;
	bool recursion;
	char name[DNS_NAME_MAX + 1]; /* text without a dot at the end, case as asked; "" is the root */
	uint8_t question[DNS_NAME_MAX + 4];
	size_t question_len;
};
/* 0; -EBADMSG: not a query, no answer is due; -EINVAL: answer with DNS_FORMAT (id is set); -EOPNOTSUPP: the same with DNS_NOT_DONE. A
 * name with a byte that is no printable character, or with a dot inside a label, is -EINVAL. */
int dns_query_parse(const uint8_t *p, size_t n, struct dns_query *ret);
/* The answer: nothing but these addresses (4 or 16 bytes each, one after the other) under the name that was asked for. What does not fit in
 * `size` is left out and the answer says so; returns the length, at most size. */
size_t dns_answer_write(const struct dns_query *q, int rcode, const uint8_t *addrs, size_t n_addrs, size_t addr_len, uint32_t ttl, uint8_t *out,
			size_t size);

/* A question for an upstream server: `name` as text, its letters' case taken from `mix` (a bit each). 0 when the name cannot be one. */
size_t dns_question_write(uint16_t id, const char *name, uint16_t type, const uint8_t mix[static 32], uint8_t *out, size_t size);

struct dns_reply {
	int rcode;
	bool truncated;
	uint32_t ttl; /* the shortest on the way */
	size_t n;
	uint8_t addrs[DNS_ADDRS_MAX][16];
};
/* The answer to the message `asked` (as written above): CNAMEs followed from the asked name on. 0, or -EBADMSG when it is not one. */
int dns_reply_parse(const uint8_t *p, size_t n, const uint8_t *asked, size_t asked_len, struct dns_reply *ret);

#endif
