/* Rules about the methods of HTTP requests: as text, as data, and the judgement. Pure.
 *
 * A rule is   VERDICT method:METHODS TARGET[PATH]     "deny method:POST,PUT api.example.org", "ask method:DELETE *.example.org:443/v1"
 *   VERDICT  allow, ask, deny
 *   METHODS  names in capitals, separated by commas; or "*", every method
 *   TARGET   a name or a wildcard of model/policy.h, with ports or (every port) without; no address: what is asked of an address names no host
 *   PATH     absolute: that path and all below it, or, with a "*" at its end, whatever begins so. None = every path. Queries are not looked at
 *
 * A request is of a rule when method, host, port and path are. A denial wins, then a question, then what is allowed. A host that an allow rule
 * names gets what rules allow and nothing else; any other one gets what no rule names. They only ever take away: whether the host is
 * reached at all is the network's policy.
 *
 * Paths are compared without their escapes, and one that two servers could read in two ways is denied where a rule about the host has a path. */
#ifndef CAISSON_MODEL_METHOD_H
#define CAISSON_MODEL_METHOD_H

#include "model/policy.h"
#include "wire/permit.h"

enum { METHOD_NAMES_MAX = 16, METHOD_NAME_MAX = 23, METHOD_RULE_MAX = 512 /* of the text, with its NUL */ };

struct method_rule {
	enum permit_verdict verdict;
	char **names; /* NULL = every method */
	struct policy_rule target;
	char *path; /* without escapes; NULL = every path */
	bool open;  /* whatever begins with it */
	char *text;
};
struct method_rules {
	struct method_rule *v;
	size_t n;
};
/* 0, ERR_INVALID, or ERR_UNSUPPORTED: a rule that nothing would enforce. */
int method_rule_parse(const char *text, struct method_rule *ret, struct err *e);
void method_rule_done(struct method_rule *r);
int method_rules_add(struct method_rules *to, const char *text); /* -EINVAL, -E2BIG: more than PERMITS_MAX */
void method_rules_done(struct method_rules *r);

struct method_verdict {
	enum permit_verdict verdict;
	const struct method_rule *rule; /* that it is by, or NULL: by none */
	const char *reason;		/* static; when it is by none */
};
/* False: no rule is about this (canonical) host and port. */
bool method_judge(const struct method_rules *r, const char *host, uint16_t port, struct str method, struct str target, struct method_verdict *ret);

/* A path of a request without its escapes, heap; NULL: servers could read it in two ways. */
char *path_plain(struct str path);

#endif
