#include "wire/packet.h"

#include "base/util.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const struct packet_ends v4 = { .from = { 8, 8, 8, 8 }, .to = { 10, 97, 83, 2 }, .from_port = 123, .to_port = 40000 };
static const struct packet_ends v6 = { .from = { 0x26, 6, [15] = 1 }, .to = { 0xfd, 0xca, [15] = 2 }, .from_port = 123, .to_port = 40000, .v6 = 1 };

static unsigned u16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

/* Over bytes that hold their own checksum: 0xffff when it is right. Written apart from the one under test. */
static unsigned ones(unsigned s, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		s += i % 2 ? p[i] : (unsigned)p[i] << 8;
		s = (s & 0xffff) + (s >> 16);
	}
	return s;
}

static unsigned with_ends(const struct packet_ends *e, unsigned proto, size_t n)
{
	size_t len = e->v6 ? 16 : 4;
	const uint8_t tail[4] = { (uint8_t)(n >> 8), (uint8_t)n, 0, (uint8_t)proto };

	return ones(ones(ones(0, e->from, len), e->to, len), tail, sizeof tail);
}

/* The packets of a datagram, put together again as a receiver does; checks each head. Returns how many there were. */
static size_t put_together(const struct packet_ends *e, const uint8_t *bytes, size_t n, uint8_t *segment)
{
	uint8_t packet[PACKET_MAX];
	size_t at = 0, len, count = 0, have = 0;
	bool more = true;

	while ((len = packet_datagram(e, bytes, n, 0x10007, &at, packet)) > 0) {
		size_t head = e->v6 ? 40 : 20, offset;
		assert_true(more && len <= PACKET_MAX);
		if (e->v6) {
			bool parts = packet[6] == 44;
			assert_int_equal(packet[0], 0x60);
			assert_int_equal(u16(packet + 4), len - 40);
			assert_memory_equal(packet + 8, e->from, 16);
			assert_memory_equal(packet + 24, e->to, 16);
			assert_int_equal(parts ? packet[40] : packet[6], 17);
			offset = parts ? u16(packet + 42) & 0xfff8 : 0;
			more = parts && packet[43] & 1;
			if (parts)
				assert_int_equal(u16(packet + 44) << 16 | u16(packet + 46), 0x10007);
			head += parts ? 8 : 0;
		} else {
			assert_int_equal(packet[0], 0x45);
			assert_int_equal(u16(packet + 2), len);
			assert_int_equal(ones(0, packet, 20), 0xffff);
			assert_int_equal(packet[9], 17);
			assert_memory_equal(packet + 12, e->from, 4);
			assert_memory_equal(packet + 16, e->to, 4);
			offset = (u16(packet + 6) & 0x1fff) * 8;
			more = u16(packet + 6) & 0x2000;
			if (more || offset)
				assert_int_equal(u16(packet + 4), 7);
		}
		assert_int_equal(offset, have);
		assert_true(!more || (len - head) % 8 == 0);
		memcpy(segment + have, packet + head, len - head);
		have += len - head;
		count++;
	}
	assert_false(more);
	assert_int_equal(have, n + 8);
	return count;
}

static void datagrams(void **state)
{
	static uint8_t bytes[65536], segment[65536];
	const size_t sizes[] = { 0, 1, 2, 511, 1452, 1453, 1472, 1473, 2952, 2953, 9000, 65506, 65507 };

	(void)state;
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
	for (int family = 0; family < 2; family++) {
		const struct packet_ends *e = family ? &v6 : &v4;
		for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
			size_t n = sizes[i], parts = put_together(e, bytes, n, segment);
			assert_int_equal(parts == 1, n + 8 + (family ? 40 : 20) <= PACKET_MAX);
			assert_int_equal(u16(segment), 123);
			assert_int_equal(u16(segment + 2), 40000);
			assert_int_equal(u16(segment + 4), n + 8);
			assert_int_not_equal(u16(segment + 6), 0);
			assert_int_equal(ones(with_ends(e, 17, n + 8), segment, n + 8), 0xffff);
			assert_memory_equal(segment + 8, bytes, n);
		}
	}
	assert_int_equal(put_together(&v6, bytes, 65527, segment), 46); /* the longest of IPv6 */
}

/* One whose sum is 0 is written as 0xffff, since 0 says that there is none. */
static void a_sum_of_nothing(void **state)
{
	uint8_t packet[PACKET_MAX], bytes[2] = { 0, 0 };
	size_t at = 0;

	(void)state;
	assert_int_equal(packet_datagram(&v4, bytes, 2, 0, &at, packet), 30);
	memcpy(bytes, packet + 26, 2); /* the sum of zeros: with these bytes it is 0 */
	at = 0;
	assert_int_equal(packet_datagram(&v4, bytes, 2, 0, &at, packet), 30);
	assert_int_equal(u16(packet + 26), 0xffff);
}

static void news(void **state)
{
	static const uint8_t types[2][2][2] = { { { 3, 3 }, { 3, 1 } }, { { 1, 4 }, { 1, 3 } } };
	uint8_t packet[PACKET_MAX];

	(void)state;
	for (int family = 0; family < 2; family++)
		for (int lack = 0; lack < 2; lack++) {
			const struct packet_ends *e = family ? &v6 : &v4;
			size_t ip = family ? 40 : 20, n = packet_unreachable(e, (enum packet_lack)lack, packet), addr = family ? 16 : 4, at = family ? 8 : 12;
			struct packet_ends back = *e;
			memcpy(back.from, e->to, 16);
			memcpy(back.to, e->from, 16);
			assert_int_equal(n, ip + 8 + ip + 8);
			assert_int_equal(family ? packet[6] : packet[9], family ? 58 : 1);
			assert_memory_equal(packet + at, e->to, addr); /* from whom it was sent to */
			assert_memory_equal(packet + at + addr, e->from, addr);
			assert_memory_equal(packet + ip, types[family][lack], 2);
			assert_int_equal(ones(family ? with_ends(&back, 58, n - ip) : 0, packet + ip, n - ip), 0xffff);
			const uint8_t *quoted = packet + ip + 8; /* the kernel finds the socket by it */
			assert_memory_equal(quoted + at, e->from, addr);
			assert_memory_equal(quoted + at + addr, e->to, addr);
			assert_int_equal(family ? quoted[6] : quoted[9], 17);
			assert_int_equal(u16(quoted + ip), 123);
			assert_int_equal(u16(quoted + ip + 2), 40000);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(datagrams),
		cmocka_unit_test(a_sum_of_nothing),
		cmocka_unit_test(news),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
