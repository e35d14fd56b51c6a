#include "wire/dns.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1
#define HEAD "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"

static void queries(void **state)
{
	struct dns_query q;

	(void)state;
	assert_int_equal(dns_query_parse(BYTES(HEAD "\x03" "Api\x04test\x00\x00\x01\x00\x01"), &q), 0);
	assert_string_equal(q.name, "Api.test");
	assert_int_equal(q.type, DNS_A);
	assert_int_equal(q.id, 0x1234);
	assert_true(q.recursion);
	/* with EDNS options */
	assert_int_equal(dns_query_parse(BYTES("\x12\x34\x01\x20\x00\x01\x00\x00\x00\x00\x00\x01\x01" "a\x00\x00\x1c\x00\x01\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"), &q), 0);
	assert_int_equal(q.type, DNS_AAAA);
	static const struct {
		int rc;
		const char *bytes;
		size_t n;
	} bad[] = {
#define BAD(rc, text) { rc, text, sizeof(text) - 1 }
		BAD(-EBADMSG, "\x12\x34\x01"),
		BAD(-EBADMSG, "\x12\x34\x81\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01" "a\x00\x00\x01\x00\x01"),
		BAD(-EOPNOTSUPP, "\x12\x34\x29\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01" "a\x00\x00\x01\x00\x01"),
		BAD(-EINVAL, "\x12\x34\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00\x01" "a\x00\x00\x01\x00\x01"),
		BAD(-EINVAL, HEAD),
		BAD(-EINVAL, HEAD "\x01" "a"),
		BAD(-EINVAL, HEAD "\x01" "a\x00\x00\x01\x00"),
		BAD(-EINVAL, HEAD "\x03" "a.b\x00\x00\x01\x00\x01"),
		BAD(-EINVAL, HEAD "\x03" "a\x00" "b\x00\x00\x01\x00\x01"),
		BAD(-EINVAL, HEAD "\x03" "a b\x00\x00\x01\x00\x01"),
		BAD(-EINVAL, HEAD "\x02\xc3\xa4\x00\x00\x01\x00\x01"),
		BAD(-EINVAL, HEAD "\xc0\x0c\x00\x01\x00\x01"),
		BAD(-EINVAL, HEAD "\x40" "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\x00\x00\x01\x00\x01"),
		BAD(-EOPNOTSUPP, HEAD "\x01" "a\x00\x00\x01\x00\x03"),
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (dns_query_parse((const uint8_t *)bad[i].bytes, bad[i].n, &q) != bad[i].rc)
			fail_msg("case %zu", i);
	uint8_t longest[12 + 5 * 64 + 8] = HEAD;
	for (size_t at = 12; at < 12 + 5 * 64; at++)
		longest[at] = (at - 12) % 64 ? 'a' : 63;
	assert_int_equal(dns_query_parse(longest, sizeof longest, &q), -EINVAL);
}

static void answer(void **state)
{
	struct dns_query q;
	uint8_t out[DNS_UDP_MAX], many[64 * 4] = { 0 };
	const uint8_t addrs[] = { 1, 2, 3, 4, 5, 6, 7, 8 };

	(void)state;
	assert_int_equal(dns_query_parse(BYTES(HEAD "\x01" "a\x00\x00\x01\x00\x01"), &q), 0);
	size_t n = dns_answer_write(&q, DNS_OK, addrs, 2, 4, 60, out, sizeof out);
	static const char want[] = "\x12\x34\x81\x80\x00\x01\x00\x02\x00\x00\x00\x00\x01" "a\x00\x00\x01\x00\x01"
				   "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x01\x02\x03\x04"
				   "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x05\x06\x07\x08";
	assert_int_equal(n, sizeof want - 1);
	assert_memory_equal(out, want, n);
	n = dns_answer_write(&q, DNS_OK, many, 64, 4, 60, out, sizeof out);
	assert_true(n <= sizeof out && out[7] < 64 && out[7] > 20);
	assert_int_equal(out[2], 0x83); /* truncated */
	uint8_t all[DNS_TCP_MAX];
	assert_true(dns_answer_write(&q, DNS_OK, many, DNS_ADDRS_MAX, 4, 60, all, sizeof all) > 0);
	assert_int_equal(all[2], 0x81);
	assert_int_equal(all[7], DNS_ADDRS_MAX);
	assert_int_equal(dns_answer_write(&q, DNS_NO_NAME, NULL, 0, 4, 0, out, sizeof out), 19);
	assert_int_equal(out[3], 0x83);
}

static const uint8_t zero[32];
#define ASKED "\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03" "API\x04TEST\x00\x00\x01\x00\x01"
#define ANSWERED(n) "\x00\x07\x81\x80\x00\x01\x00" n "\x00\x00\x00\x00\x03" "API\x04TEST\x00\x00\x01\x00\x01"
#define A_OF(owner, addr) owner "\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04" addr

static int reply(const char *bytes, size_t n, struct dns_reply *r)
{
	return dns_reply_parse((const uint8_t *)bytes, n, BYTES(ASKED), r);
}
#define REPLY(text, r) reply(text, sizeof(text) - 1, r)

static void replies(void **state)
{
	struct dns_reply r;
	uint8_t out[300];

	(void)state;
	assert_int_equal(dns_question_write(7, "api.test", DNS_A, zero, out, sizeof out), sizeof ASKED - 1);
	assert_memory_equal(out, ASKED, sizeof ASKED - 1);
	assert_int_equal(dns_question_write(7, "", DNS_A, zero, out, sizeof out), 0);
	assert_int_equal(dns_question_write(7, "a..b", DNS_A, zero, out, sizeof out), 0);

	assert_int_equal(REPLY(ANSWERED("\x01") A_OF("\xc0\x0c", "\x01\x02\x03\x04"), &r), 0);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.ttl, 60);
	assert_memory_equal(r.addrs[0], "\x01\x02\x03\x04", 4);
	/* a chain, out of order; an address of somebody else is not taken */
	assert_int_equal(REPLY(ANSWERED("\x03") A_OF("\x01" "b\x00", "\x09\x09\x09\x09") "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x0a\x00\x03\x01" "B\x00"
			       A_OF("\x01" "c\x00", "\x08\x08\x08\x08"), &r), 0);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.ttl, 10);
	assert_int_equal(r.addrs[0][0], 9);
	/* a circle ends */
	assert_int_equal(REPLY(ANSWERED("\x01") "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x0a\x00\x02\xc0\x0c", &r), 0);
	assert_int_equal(r.n, 0);
	/* a pointer to itself, ahead, a cut record, a length beyond the end */
	assert_int_equal(REPLY(ANSWERED("\x01") A_OF("\xc0\x1a", "\x01\x02\x03\x04"), &r), -EBADMSG);
	assert_int_equal(REPLY(ANSWERED("\x01") A_OF("\xc0\xff", "\x01\x02\x03\x04"), &r), -EBADMSG);
	assert_int_equal(REPLY(ANSWERED("\x01") "\xc0\x0c\x00\x01", &r), -EBADMSG);
	assert_int_equal(REPLY(ANSWERED("\x01") "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\xff\xff\x01\x02\x03\x04", &r), -EBADMSG);
	/* another id, another case, no answer, truncated, no such name */
	assert_int_equal(REPLY("\x00\x08\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00\x03" "API\x04TEST\x00\x00\x01\x00\x01", &r), -EBADMSG);
	assert_int_equal(REPLY("\x00\x07\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00\x03" "api\x04TEST\x00\x00\x01\x00\x01", &r), -EBADMSG);
	assert_int_equal(REPLY(ASKED, &r), -EBADMSG);
	assert_int_equal(REPLY("\x00\x07\x83\x80\x00\x01\x00\x00\x00\x00\x00\x00\x03" "API\x04TEST\x00\x00\x01\x00\x01", &r), 0);
	assert_true(r.truncated);
	assert_int_equal(REPLY("\x00\x07\x81\x83\x00\x01\x00\x00\x00\x00\x00\x00\x03" "API\x04TEST\x00\x00\x01\x00\x01", &r), 0);
	assert_int_equal(r.rcode, DNS_NO_NAME);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(queries), cmocka_unit_test(answer), cmocka_unit_test(replies) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
