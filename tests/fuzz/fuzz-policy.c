/* A rule from a client: what is accepted has one canonical text, which means the same again. */
#include "model/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str text = { (const char *)data, size };
	struct policy_rule r;
	struct err e;
	char once[POLICY_TEXT_MAX], twice[POLICY_TEXT_MAX], name[POLICY_NAME_MAX + 1], again[POLICY_NAME_MAX + 1];

	if (rule_parse(text, &r, &e) == 0) {
		rule_format(&r, once);
		rule_done(&r);
		if (rule_parse(str_of(once), &r, &e) < 0 || strcmp(rule_format(&r, twice), once) != 0)
			abort();
		rule_done(&r);
	}
	if (size && name_canonical(text, name) == 0 && (name_canonical(str_of(name), again) < 0 || strcmp(name, again) != 0))
		abort();
	return 0;
}
