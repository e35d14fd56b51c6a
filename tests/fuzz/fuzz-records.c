/* What the daemon says to the edge (first byte even) and to an opener (odd): a record of a sandbox's policy, or the text of keys and rules. Whatever
 * the bytes are, they are read as a whole or not at all; what is read judges without a fault, and is not kept. For the edge the magic, the
 * name of the sandbox and the length are put in, as a fuzzer would not find them. */
#include "egress/keyring.h"
#include "egress/record.h"

#include <errno.h>

static void check(bool holds)
{
	if (!holds)
		abort();
}

static void judge(const struct policy *p)
{
	const struct policy_host host = { 0 };
	struct addr a;

	check(addr_parse(STR("93.184.216.34"), &a) == 0);
	(void)policy_judge_address(p, &host, &a, 443, POLICY_TCP);
	if (policy_judge_name(p, "api.test", 443, POLICY_TCP))
		check(policy_may_resolve(p, "api.test") && !policy_denies_name(p, "api.test", 443, POLICY_TCP));
}

static void record(const uint8_t *data, size_t size)
{
	struct edge_policy head;
	struct edge_record r;
	char *bytes = xmalloc(size);
	const uint32_t magic = EDGE_MAGIC;

	memcpy(bytes, data, size);
	if (size >= sizeof head) {
		memcpy(&head, bytes, sizeof head);
		if (head.magic == 0) {
			head.magic = magic;
			memcpy(head.id, "01234567-89ab-cdef-0123-456789abcdef", 37);
			head.text_len = (uint32_t)(size - sizeof head);
			memcpy(bytes, &head, sizeof head);
		}
	}
	int rc = edge_record_read(bytes, size, &r);
	check(rc == 0 || rc == -EBADMSG || rc == -EINVAL);
	if (rc == 0) {
		judge(&r.policy);
		judge(&r.asked);
		judge(&r.read);
		check(r.head.n_read || !policy_may_resolve(&r.read, "api.test"));
	}
	if (rc == -EINVAL)
		check(r.policy.mode == NETWORK_NONE && !r.policy.n_allow && !r.asked.n_allow && !r.read.n_allow);
	if (rc != -EBADMSG)
		edge_record_done(&r);
	free(bytes);
}

static void keys(const uint8_t *data, size_t size)
{
	struct keyring k = { 0 };
	struct method_verdict v;

	char *text = xmalloc(size + 1); /* with the NUL behind it that whoever reads such a text puts there */
	memcpy(text, data, size);
	text[size] = '\0';
	if (keyring_parse(text, size, &k) == 0) {
		check((!k.n && !k.rules.n) || (k.certificate && k.signer));
		for (size_t i = 0; i < k.n; i++)
			(void)key_is_for(&k.v[i], "api.test", 443);
		if (method_judge(&k.rules, "api.test", 443, STR("POST"), STR("/v1"), &v))
			check(v.rule || v.reason);
		keyring_done(&k);
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] & 1)
		keys(data + 1, size - 1);
	else
		record(data + 1, size - 1);
	return 0;
}
