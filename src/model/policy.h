/* What a sandbox may reach: rules as text, as data, and the judgement. Pure: no I/O, no clock, no name is ever resolved here.
 *
 * A rule is   TARGET[:PORTS][/udp][/raw]
 *   TARGET  a name ("api.example.org"), a wildcard ("*.example.org", which does not cover example.org itself; "*" is every name),
 *           an address, or an address range ("10.1.0.0/16", "[fd12::]/16" or "fd12::/16" without ports)
 *   PORTS   "443", "80,443", "8000-8099"; none = every port
 *   /udp    datagrams instead of connections; in a deny list: datagrams alone, where a rule without it means both. What is inside of them
 *           is not looked at. Port 53 is the sandbox's own name service for every address
 *   /raw    the name is not looked for in the first bytes of the connection: for protocols that are neither TLS nor HTTP. Addresses
 *           need no such word, nothing is looked for there
 * Everything has one canonical text, which is what is stored and compared. An IPv4 address inside an IPv6 one (mapped, NAT64, 6to4,
 * Teredo) is never accepted and never reachable: what it means depends on who reads it.
 *
 * Order of judgement: never-reachable addresses, deny list, private addresses (only those that the operator has opened, and only by
 * a rule), allow list, mode. A missing rule denies. */
#ifndef CAISSON_MODEL_POLICY_H
#define CAISSON_MODEL_POLICY_H

#include "model/spec.h"

#define POLICY_RULES_MAX 256 /* in each list of a sandbox's own */
#define POLICY_OPERATOR_MAX 64 /* that its operator adds to one (model/ceiling.h) */
#define POLICY_NAME_MAX 253
#define POLICY_PORTS_MAX 8 /* ranges in one rule */
#define POLICY_TEXT_MAX 400 /* of a rule, with its NUL */

/* --- addresses --- */

struct addr {
	uint8_t family; /* 4 or 6 */
	uint8_t b[16];	/* network order; 4 or 16 of them */
};
#define ADDR_TEXT_MAX 46
/* Four decimal numbers without leading zeros, or an IPv6 address without a zone. No other spelling: 0x7f.1 and 017700000001 are not
 * addresses. 0 or -EINVAL. */
int addr_parse(struct str text, struct addr *ret);
const char *addr_format(const struct addr *a, char ret_text[static ADDR_TEXT_MAX]); /* returns ret_text */
bool addr_eq(const struct addr *a, const struct addr *b);

struct net {
	struct addr addr; /* the bits behind the prefix are zero */
	uint8_t prefix;
};
bool net_has(const struct net *n, const struct addr *a);
int net_parse(struct str text, struct net *ret); /* "10.0.0.0/8", or an address; bits behind the prefix: -EINVAL */

struct nets {
	struct net *v;
	size_t n;
};
bool nets_have(const struct nets *s, const struct addr *a);
void nets_add(struct nets *s, const struct net *n);
void nets_done(struct nets *s);
int nets_parse(const char *text, struct nets *to); /* separated by commas; added. -EINVAL: one is none */

enum addr_class {
	ADDR_PUBLIC,
	ADDR_PRIVATE, /* of somebody's own network, or set aside: only what the operator opens */
	ADDR_NEVER,   /* this host, links, metadata services, groups, addresses in disguise */
};
enum addr_class addr_classify(const struct addr *a);

/* --- names --- */

/* The one form in which names are compared: lower case, no dot at the end. Labels of letters, digits, '-' and '_', none empty, none
 * beginning or ending with '-'; the last one is no number (such a "name" is an address to some). 0 or -EINVAL. */
int name_canonical(struct str name, char ret_name[static POLICY_NAME_MAX + 1]);

/* --- rules --- */

enum policy_proto { POLICY_TCP, POLICY_UDP };

struct policy_rule {
	bool is_name, wildcard, raw;
	enum policy_proto proto;
	char *name;	/* of a wildcard: what follows "*."; "" is everything */
	struct net net; /* when it is no name */
	struct {
		uint16_t low, high;
	} ports[POLICY_PORTS_MAX];
	uint8_t n_ports; /* 0 = all */
};
int rule_parse(struct str text, struct policy_rule *ret, struct err *e); /* ERR_INVALID; ret->name is heap */
void rule_done(struct policy_rule *r);
const char *rule_format(const struct policy_rule *r, char ret_text[static POLICY_TEXT_MAX]);

struct policy {
	enum network_mode mode;
	struct policy_rule *allow, *deny;
	size_t n_allow, n_deny;
};
/* The lists may be NULL. */
int policy_parse(enum network_mode mode, char *const *allow, char *const *deny, struct policy *ret, struct err *e);
void policy_done(struct policy *p);
/* Form, and sense: no lists with "none". Replaces each text by its canonical one when asked to. */
int policy_check(enum network_mode mode, char **allow, char **deny, bool canonicalise, struct err *e);

/* --- judgement --- */

/* What the machine's own network looks like; kept by who asks. */
struct policy_host {
	struct nets own;  /* addresses of this host, and whatever else is local to it */
	struct nets link; /* its links: neighbours, however public their addresses */
	struct nets lan;  /* opened by the operator */
};

enum verdict {
	VERDICT_DENY,
	VERDICT_ALLOW,
	VERDICT_BY_NAME, /* if one of the names that this address was given for has a rule: policy_judge_name */
};
struct judgement {
	enum verdict verdict;
	const char *reason; /* of a denial: static */
	bool look;	    /* allowed, but names are denied: the first bytes must not be for one of them */
};
struct judgement policy_judge_address(const struct policy *p, const struct policy_host *h, const struct addr *a, uint16_t port,
				      enum policy_proto proto);
/* Could any policy reach it? The last lock before a dial. */
bool policy_reachable(const struct policy_host *h, const struct addr *a);
/* May this address be an answer to somebody in a sandbox? (A name that leads to the host or its neighbours is no answer.) */
bool policy_may_answer(const struct policy *p, const struct policy_host *h, const struct addr *a);

/* May this (canonical) name be asked for? */
bool policy_may_resolve(const struct policy *p, const char *name);
/* The rule under which a connection to this name and port goes, after an address was judged; NULL = none. */
const struct policy_rule *policy_judge_name(const struct policy *p, const char *name, uint16_t port, enum policy_proto proto);
/* Is the name itself denied on this port? */
bool policy_denies_name(const struct policy *p, const char *name, uint16_t port, enum policy_proto proto);
bool policy_denies_names(const struct policy *p, enum policy_proto proto); /* some: what hides them cannot be let through */
bool policy_has_datagrams(const struct policy *p); /* a rule allows some */

#endif
