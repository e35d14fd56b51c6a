#include "wire/packet.h"

#include "base/util.h"

#include <assert.h>

enum { ICMP = 1, UDP = 17, FRAGMENT = 44, ICMP6 = 58 };
enum { HEAD4 = 20, HEAD6 = 40, HEAD_FRAGMENT = 8, HEAD_UDP = 8, HEAD_ICMP = 8, HOPS = 64 };
enum { MORE4 = 0x2000, MORE6 = 1 };

static void put16(uint8_t *p, size_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static uint32_t sum(uint32_t so_far, const uint8_t *p, size_t n)
{
	for (; n > 1; p += 2, n -= 2)
		so_far += (uint32_t)p[0] << 8 | p[1];
	return n ? so_far + ((uint32_t)p[0] << 8) : so_far;
}

static uint16_t folded(uint32_t s)
{
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return (uint16_t)~s;
}

/* Of the addresses and lengths that checksums of the layer above hold. At most 64 KiB are added to it: no overflow. */
static uint32_t pseudo(const struct packet_ends *e, unsigned proto, size_t n)
{
	size_t len = e->v6 ? 16 : 4;

	return sum(sum(proto + (uint32_t)(n >> 16) + (uint32_t)(n & 0xffff), e->from, len), e->to, len);
}

/* Returns its length. The kernel fills in the checksum of an IPv4 head, but not of one that is quoted. */
static size_t put_head(uint8_t *p, const struct packet_ends *e, unsigned proto, size_t payload)
{
	memset(p, 0, HEAD6);
	if (e->v6) {
		p[0] = 6 << 4;
		put16(p + 4, payload);
		p[6] = (uint8_t)proto;
		p[7] = HOPS;
		memcpy(p + 8, e->from, 16);
		memcpy(p + 24, e->to, 16);
		return HEAD6;
	}
	p[0] = 4 << 4 | HEAD4 / 4;
	put16(p + 2, HEAD4 + payload);
	p[8] = HOPS;
	p[9] = (uint8_t)proto;
	memcpy(p + 12, e->from, 4);
	memcpy(p + 16, e->to, 4);
	put16(p + 10, folded(sum(0, p, HEAD4)));
	return HEAD4;
}

static void put_udp(uint8_t *p, const struct packet_ends *e, size_t n)
{
	put16(p, e->from_port);
	put16(p + 2, e->to_port);
	put16(p + 4, HEAD_UDP + n);
	put16(p + 6, 0);
}

/* Of the part of a datagram at `at`, `n` bytes long, if it is one of several. Returns the length of all heads. */
static size_t put_fragment(uint8_t *p, const struct packet_ends *e, uint32_t id, size_t at, size_t n, bool more)
{
	size_t head;

	if (!e->v6) {
		head = put_head(p, e, UDP, n);
		put16(p + 4, id & 0xffff ? id & 0xffff : 1); /* with 0 the kernel would choose one for each part */
		put16(p + 6, at / 8 | (more ? MORE4 : 0));
		put16(p + 10, 0);
		put16(p + 10, folded(sum(0, p, HEAD4)));
		return head;
	}
	head = put_head(p, e, FRAGMENT, HEAD_FRAGMENT + n);
	p[head] = UDP;
	p[head + 1] = 0;
	put16(p + head + 2, at | (more ? MORE6 : 0)); /* at is a multiple of 8 */
	put16(p + head + 4, id >> 16);
	put16(p + head + 6, id);
	return head + HEAD_FRAGMENT;
}

size_t packet_datagram(const struct packet_ends *e, const uint8_t *bytes, size_t n, uint32_t id, size_t *at, uint8_t out[static PACKET_MAX])
{
	const size_t total = HEAD_UDP + n, ip = e->v6 ? HEAD6 : HEAD4, room = (PACKET_MAX - ip - (e->v6 ? HEAD_FRAGMENT : 0)) / 8 * 8;
	size_t from = *at, head, len;

	assert(total <= 0xffff - (e->v6 ? 0 : HEAD4));
	if (from >= total)
		return 0;
	if (total <= PACKET_MAX - ip) {
		len = total;
		head = put_head(out, e, UDP, len);
	} else {
		len = MIN(total - from, room);
		head = put_fragment(out, e, id, from, len, from + len < total);
	}
	*at = from + len;
	if (from) {
		memcpy(out + head, bytes + from - HEAD_UDP, len);
		return head + len;
	}
	put_udp(out + head, e, n);
	uint16_t check = folded(sum(sum(pseudo(e, UDP, total), out + head, HEAD_UDP), bytes, n));
	put16(out + head + 6, check ? check : 0xffff); /* 0 would say that there is none */
	if (len > HEAD_UDP)
		memcpy(out + head + HEAD_UDP, bytes, len - HEAD_UDP);
	return head + len;
}

size_t packet_unreachable(const struct packet_ends *e, enum packet_lack lack, uint8_t out[static PACKET_MAX])
{
	static const uint8_t code4[] = { [PACKET_NO_PORT] = 3, [PACKET_NO_HOST] = 1 }, code6[] = { [PACKET_NO_PORT] = 4, [PACKET_NO_HOST] = 3 };
	struct packet_ends back = *e;
	const size_t quoted = (e->v6 ? HEAD6 : HEAD4) + HEAD_UDP, n = HEAD_ICMP + quoted;

	memcpy(back.from, e->to, sizeof back.from);
	memcpy(back.to, e->from, sizeof back.to);
	size_t head = put_head(out, &back, e->v6 ? ICMP6 : ICMP, n);
	uint8_t *icmp = out + head;
	memset(icmp, 0, HEAD_ICMP);
	icmp[0] = e->v6 ? 1 : 3;
	icmp[1] = e->v6 ? code6[lack] : code4[lack];
	/* What a kernel looks at to find the socket that has sent it. */
	put_udp(icmp + HEAD_ICMP + put_head(icmp + HEAD_ICMP, e, UDP, HEAD_UDP), e, 0);
	put16(icmp + 2, folded(sum(e->v6 ? pseudo(&back, ICMP6, n) : 0, icmp, n)));
	return head + n;
}
