/* IP packets that are put into a gate: datagrams as if from the host that the sandbox has spoken to, and the news that nobody takes one.
 * Written only, never read: what comes from a sandbox is taken apart by the kernel. */
#ifndef CAISSON_WIRE_PACKET_H
#define CAISSON_WIRE_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACKET_MAX 1500 /* the MTU of a gate's link */

struct packet_ends { /* without holes: it can be compared as bytes */
	uint8_t from[16], to[16]; /* network order; of IPv4 the first four, the others 0 */
	uint16_t from_port, to_port;
	uint32_t v6; /* 0 or 1 */
};

/* A datagram, in as many packets as it takes: each call writes the next one and returns its length, 0 when there is no more. *at is 0 at first. `id`
 * tells its fragments from those of others. */
size_t packet_datagram(const struct packet_ends *ends, const uint8_t *bytes, size_t n, uint32_t id, size_t *at, uint8_t out[static PACKET_MAX]);

enum packet_lack { PACKET_NO_PORT, PACKET_NO_HOST };
/* What answers a datagram `ends` that was not taken (ICMP, from its `to`): returns the length. */
size_t packet_unreachable(const struct packet_ends *ends, enum packet_lack lack, uint8_t out[static PACKET_MAX]);

#endif
