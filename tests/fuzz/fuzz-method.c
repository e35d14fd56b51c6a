/* A rule about methods from a client, and a request that it judges: "RULE LF METHOD LF TARGET". The rule parses to what its own text parses to,
 * what it denies is not allowed by another spelling of the same path, and whatever the request is, it gets a verdict. */
#include "model/method.h"
#include "model/permission.h"

#include <stdio.h>

static void check(bool holds)
{
	if (!holds)
		abort();
}

static enum permit_verdict judge(const struct method_rules *r, const char *host, struct str method, struct str target)
{
	struct method_verdict v = { 0 };

	check(method_judge(r, host, 443, method, target, &v));
	check(v.verdict >= PERMIT_ALLOW && v.verdict <= PERMIT_DENY && (v.rule || v.reason));
	return v.verdict;
}

/* Every letter of the path escaped: to a server it is the same, so it is here, or it is denied. */
static void respell(const struct method_rules *r, const char *host, struct str method, struct str target, enum permit_verdict v)
{
	char *text = xmalloc(3 * target.n + 1);
	size_t n = 0;

	for (size_t i = 0; i < target.n; i++) {
		bool letter = (target.p[i] >= 'g' && target.p[i] <= 'z');
		n += (size_t)snprintf(text + n, 4, letter ? "%%%02x" : "%c", (unsigned char)target.p[i]);
	}
	enum permit_verdict again = judge(r, host, method, (struct str){ text, n });
	check(again == v || again == PERMIT_DENY);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = xstrndup((const char *)data, size), *method = strchr(text, '\n'), *target = method ? strchr(method + 1, '\n') : NULL;
	struct method_rules rules = { 0 };
	struct permit p;
	struct err e;

	if (target) {
		*method++ = *target++ = '\0';
		bool good = method_rules_add(&rules, text) == 0;
		check(good == (permission_parse(text, &p, &e) == 0 && (int)p.kind == PERMISSION_METHOD));
		if (good) {
			const struct policy_rule *t = &rules.v[0].target;
			char *host = xasprintf("%s%s", t->wildcard ? "a." : "", t->name[0] ? t->name : "test");
			rules.v[0].target.n_ports = 0;
			respell(&rules, host, str_of(method), str_of(target), judge(&rules, host, str_of(method), str_of(target)));
			free(host);
		}
		method_rules_done(&rules);
	}
	free(text);
	return 0;
}
