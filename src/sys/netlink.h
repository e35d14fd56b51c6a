/* Netlink messages by hand: a few fixed ones are all we send, and no library has to be linked into the privileged process for that.
 *
 * Messages are put one behind the other into a fixed buffer; what does not fit is remembered and fails the talk. */
#ifndef CAISSON_SYS_NETLINK_H
#define CAISSON_SYS_NETLINK_H

#include "base/util.h"

#define NL_NEST_MAX 8

struct nl {
	_Alignas(8) uint8_t b[8192];
	size_t n, message, nest[NL_NEST_MAX];
	unsigned depth, wanted; /* answers */
	uint32_t seq;
	bool overflow;
};

void nl_init(struct nl *m);
/* Begins a message; `flags` beside NLM_F_REQUEST. With NLM_F_ACK the talk waits for its answer. `head` is what its type begins with. */
void nl_begin(struct nl *m, uint16_t type, uint16_t flags, const void *head, size_t head_len);
void nl_raw(struct nl *m, const void *p, size_t n); /* bytes that have no attribute's head */
void nl_attr(struct nl *m, uint16_t type, const void *p, size_t n);
void nl_attr_z(struct nl *m, uint16_t type, const char *z); /* with its NUL */
void nl_attr_u32(struct nl *m, uint16_t type, uint32_t v);
void nl_attr_be32(struct nl *m, uint16_t type, uint32_t v);
void nl_nest(struct nl *m, uint16_t type); /* attributes up to nl_unnest are inside it */
void nl_unnest(struct nl *m);

int nl_open(int protocol); /* a descriptor; close-on-exec */
/* Sends everything and waits for the answers: 0, or the first error. The buffer is empty afterwards. */
int nl_talk(int fd, struct nl *m);

#endif
