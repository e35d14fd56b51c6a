/* A query of a sandbox, and a reply of whoever can send to our port. First byte: which. What is accepted can be written again. */
#include "wire/dns.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t mix[32] = { 0xff, 0xff, 0xff, 0xff };
	uint8_t asked[300], out[DNS_UDP_MAX], addrs[DNS_ADDRS_MAX * 16] = { 0 };
	struct dns_query q;
	struct dns_reply r;

	if (size == 0)
		return 0;
	if (data[0] % 2 == 0) {
		int rc = dns_query_parse(data + 1, size - 1, &q);
		if (rc == -EBADMSG)
			return 0;
		if (dns_answer_write(&q, DNS_OK, addrs, DNS_ADDRS_MAX, data[0] & 2 ? 4 : 16, 60, out, sizeof out) > sizeof out)
			abort();
		if (rc == 0 && q.name[0] && dns_question_write(q.id, q.name, q.type, mix, asked, sizeof asked) == 0)
			abort();
		return 0;
	}
	size_t n = dns_question_write(0, "api.test", data[0] & 2 ? DNS_A : DNS_AAAA, mix, asked, sizeof asked);
	uint8_t reply[DNS_MESSAGE_MAX + 64];
	size_t tail = MIN(size - 1, (size_t)DNS_MESSAGE_MAX);
	/* A reply that repeats the question is what is wanted; a fuzzer would not find the rest otherwise. */
	memcpy(reply, asked, n);
	reply[2] = 0x81;
	reply[7] = data[0] >> 2;
	memcpy(reply + n, data + 1, MIN(tail, sizeof reply - n));
	if (dns_reply_parse(reply, n + MIN(tail, sizeof reply - n), asked, n, &r) == 0 && r.n > DNS_ADDRS_MAX)
		abort();
	(void)dns_reply_parse(data + 1, size - 1, asked, n, &r);
	return 0;
}
