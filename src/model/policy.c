#include "model/policy.h"

#include "base/buf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#define NAMES_PORT 53

/* --- addresses --- */

static int parse_v4(struct str s, uint8_t b[4])
{
	size_t at = 0;

	for (int i = 0; i < 4; i++) {
		size_t start = at;
		while (at < s.n && s.p[at] >= '0' && s.p[at] <= '9')
			at++;
		uint64_t v;
		struct str part = { s.p + start, at - start };
		if (part.n == 0 || part.n > 3 || (part.n > 1 && part.p[0] == '0') || parse_u64(part, 255, &v) < 0)
			return -EINVAL;
		b[i] = (uint8_t)v;
		if (i < 3 && (at >= s.n || s.p[at++] != '.'))
			return -EINVAL;
	}
	return at == s.n ? 0 : -EINVAL;
}

int addr_parse(struct str s, struct addr *ret)
{
	struct addr a = { 0 };
	char z[ADDR_TEXT_MAX];

	if (!s.p || s.n == 0 || s.n >= sizeof z)
		return -EINVAL;
	if (!memchr(s.p, ':', s.n)) {
		a.family = 4;
		if (parse_v4(s, a.b) < 0)
			return -EINVAL;
		*ret = a;
		return 0;
	}
	if (memchr(s.p, '\0', s.n))
		return -EINVAL;
	memcpy(z, s.p, s.n);
	z[s.n] = '\0';
	a.family = 6;
	if (inet_pton(AF_INET6, z, a.b) != 1)
		return -EINVAL;
	*ret = a;
	return 0;
}

const char *addr_format(const struct addr *a, char ret_text[static ADDR_TEXT_MAX])
{
	if (!inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->b, ret_text, ADDR_TEXT_MAX))
		ret_text[0] = '\0';
	return ret_text;
}

static size_t addr_len(const struct addr *a)
{
	return a->family == 4 ? 4 : 16;
}

bool addr_eq(const struct addr *a, const struct addr *b)
{
	return a->family == b->family && memcmp(a->b, b->b, addr_len(a)) == 0;
}

bool net_has(const struct net *n, const struct addr *a)
{
	size_t whole = n->prefix / 8, rest = n->prefix % 8;

	if (n->addr.family != a->family || memcmp(n->addr.b, a->b, whole) != 0)
		return false;
	return rest == 0 || ((n->addr.b[whole] ^ a->b[whole]) & (0xff00u >> rest) & 0xff) == 0;
}

int net_parse(struct str s, struct net *ret)
{
	const char *slash = memchr(s.p, '/', s.n);
	struct str text = slash ? (struct str){ s.p, (size_t)(slash - s.p) } : s;
	struct net n;
	uint64_t prefix;

	if (addr_parse(text, &n.addr) < 0)
		return -EINVAL;
	prefix = addr_len(&n.addr) * 8;
	if (slash) {
		struct str bits = { slash + 1, (size_t)(s.p + s.n - slash - 1) };
		if ((bits.n > 1 && bits.p[0] == '0') || parse_u64(bits, prefix, &prefix) < 0)
			return -EINVAL;
	}
	n.prefix = (uint8_t)prefix;
	for (size_t bit = n.prefix; bit < addr_len(&n.addr) * 8; bit++)
		if (n.addr.b[bit / 8] & (0x80u >> bit % 8))
			return -EINVAL;
	*ret = n;
	return 0;
}

bool nets_have(const struct nets *s, const struct addr *a)
{
	for (size_t i = 0; i < s->n; i++)
		if (net_has(&s->v[i], a))
			return true;
	return false;
}

int nets_parse(const char *text, struct nets *to)
{
	struct str rest = str_of(text);

	while (rest.n) {
		const char *comma = memchr(rest.p, ',', rest.n);
		struct str one = { rest.p, comma ? (size_t)(comma - rest.p) : rest.n };
		struct net n;
		if (net_parse(one, &n) < 0)
			return -EINVAL;
		nets_add(to, &n);
		rest.p += one.n + (comma != NULL);
		rest.n -= one.n + (comma != NULL);
	}
	return 0;
}

void nets_add(struct nets *s, const struct net *n)
{
	if ((s->n & (s->n - 1)) == 0)
		s->v = xreallocarray(s->v, s->n ? s->n * 2 : 1, sizeof *s->v);
	s->v[s->n++] = *n;
}

void nets_done(struct nets *s)
{
	free(s->v);
	*s = (struct nets){ 0 };
}

/* Sources: the IANA special-purpose registries (RFC 6890 and what it was updated by); metadata addresses as the clouds document
 * them. Longest prefixes need not be looked for: NEVER wins over PRIVATE, and whatever IPv6 is not 2000::/3 is not public. */
static const struct {
	enum addr_class class;
	uint8_t prefix;
	uint8_t b[4];
} special4[] = {
	{ ADDR_NEVER, 8, { 0 } },
	{ ADDR_NEVER, 8, { 127 } },
	{ ADDR_NEVER, 16, { 169, 254 } },
	{ ADDR_NEVER, 4, { 224 } },
	{ ADDR_NEVER, 4, { 240 } },
	{ ADDR_NEVER, 32, { 100, 100, 100, 200 } }, /* metadata */
	{ ADDR_NEVER, 32, { 192, 0, 0, 192 } },	    /* metadata */
	{ ADDR_NEVER, 32, { 168, 63, 129, 16 } },   /* metadata */
	{ ADDR_PRIVATE, 8, { 10 } },
	{ ADDR_PRIVATE, 12, { 172, 16 } },
	{ ADDR_PRIVATE, 16, { 192, 168 } },
	{ ADDR_PRIVATE, 10, { 100, 64 } },
	{ ADDR_PRIVATE, 24, { 192, 0, 0 } },
	{ ADDR_PRIVATE, 24, { 192, 0, 2 } },
	{ ADDR_PRIVATE, 24, { 192, 88, 99 } },
	{ ADDR_PRIVATE, 15, { 198, 18 } },
	{ ADDR_PRIVATE, 24, { 198, 51, 100 } },
	{ ADDR_PRIVATE, 24, { 203, 0, 113 } },
};
static const struct {
	enum addr_class class;
	uint8_t prefix;
	uint8_t b[16];
} special6[] = {
	{ ADDR_NEVER, 96, { 0 } }, /* ::, ::1, and IPv4 addresses in the oldest disguise */
	{ ADDR_NEVER, 96, { [10] = 0xff, 0xff } },
	{ ADDR_NEVER, 96, { [8] = 0xff, 0xff } },	     /* ::ffff:0:a.b.c.d */
	{ ADDR_NEVER, 96, { 0x00, 0x64, 0xff, 0x9b } },	     /* NAT64 */
	{ ADDR_NEVER, 48, { 0x00, 0x64, 0xff, 0x9b, 0, 1 } }, /* NAT64 of one's own */
	{ ADDR_NEVER, 16, { 0x20, 0x02 } },		     /* 6to4 */
	{ ADDR_NEVER, 32, { 0x20, 0x01 } },		     /* Teredo */
	{ ADDR_NEVER, 10, { 0xfe, 0x80 } },
	{ ADDR_NEVER, 8, { 0xff } },
	{ ADDR_NEVER, 128, { 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54 } }, /* metadata: fd00:ec2::254 */
	{ ADDR_NEVER, 128, { 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54 } }, /* metadata: fd20:ce::254 */
	{ ADDR_PRIVATE, 32, { 0x20, 0x01, 0x0d, 0xb8 } },
	{ ADDR_PRIVATE, 20, { 0x3f, 0xff } },
	{ ADDR_PRIVATE, 23, { 0x20, 0x01 } },
};

enum addr_class addr_classify(const struct addr *a)
{
	static const struct net global = { { 6, { 0x20 } }, 3 };
	enum addr_class class = a->family == 6 && !net_has(&global, a) ? ADDR_PRIVATE : ADDR_PUBLIC;
	struct net n = { .addr = { .family = a->family } };

	for (size_t i = 0; a->family == 4 && i < ARRAY_LEN(special4); i++) {
		memcpy(n.addr.b, special4[i].b, 4);
		n.prefix = special4[i].prefix;
		if (net_has(&n, a))
			class = MAX(class, special4[i].class);
	}
	for (size_t i = 0; a->family == 6 && i < ARRAY_LEN(special6); i++) {
		memcpy(n.addr.b, special6[i].b, 16);
		n.prefix = special6[i].prefix;
		if (net_has(&n, a))
			class = MAX(class, special6[i].class);
	}
	return a->family == 4 || a->family == 6 ? class : ADDR_NEVER;
}

/* --- names --- */

static bool name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Digits only, or 0x and hexadecimal digits: an address to inet_aton. */
static bool is_number(const char *label, size_t n)
{
	if (n > 1 && label[0] == '0' && label[1] == 'x')
		return strspn(label + 2, "0123456789abcdef") == n - 2;
	return strspn(label, "0123456789") >= n;
}

int name_canonical(struct str s, char ret_name[static POLICY_NAME_MAX + 1])
{
	char out[POLICY_NAME_MAX + 1];
	size_t label = 0;

	if (s.n > 0 && s.p[s.n - 1] == '.')
		s.n--;
	if (s.n == 0 || s.n > POLICY_NAME_MAX)
		return -EINVAL;
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];
		out[i] = c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
	}
	out[s.n] = '\0';
	for (size_t i = 0; i <= s.n; i++) {
		if (i < s.n && out[i] != '.') {
			if (!name_char(out[i]))
				return -EINVAL;
			continue;
		}
		size_t n = i - label;
		if (n == 0 || n > 63 || out[label] == '-' || out[i - 1] == '-' || (i == s.n && is_number(out + label, n)))
			return -EINVAL;
		label = i + 1;
	}
	memcpy(ret_name, out, s.n + 1);
	return 0;
}

/* --- rules --- */

static int bad_rule(struct err *e, struct str text, const char *why)
{
	return err_set(e, ERR_INVALID, EINVAL, "%s: %s; a rule is NAME, *.NAME, ADDRESS or ADDRESS/BITS, then perhaps :PORTS, /udp, /raw",
		       str_quote(text, &(struct quoted){ 0 }), why);
}

static bool take_suffix(struct str *s, const char *suffix)
{
	size_t n = strlen(suffix);

	if (s->n <= n || memcmp(s->p + s->n - n, suffix, n) != 0)
		return false;
	s->n -= n;
	return true;
}

static int parse_port(struct str s, uint16_t *ret)
{
	uint64_t v;

	if (s.n > 5 || (s.n > 1 && s.p[0] == '0') || parse_u64(s, 65535, &v) < 0 || v == 0)
		return -EINVAL;
	*ret = (uint16_t)v;
	return 0;
}

static int parse_ports(struct str s, struct policy_rule *r)
{
	while (s.n > 0) {
		const char *comma = memchr(s.p, ',', s.n);
		struct str one = { s.p, comma ? (size_t)(comma - s.p) : s.n };
		const char *dash = memchr(one.p, '-', one.n);
		struct str low = { one.p, dash ? (size_t)(dash - one.p) : one.n };
		uint16_t from, to;
		if (r->n_ports == POLICY_PORTS_MAX || parse_port(low, &from) < 0)
			return -EINVAL;
		to = from;
		if (dash && (parse_port((struct str){ dash + 1, (size_t)(one.p + one.n - dash - 1) }, &to) < 0 || to < from))
			return -EINVAL;
		r->ports[r->n_ports].low = from;
		r->ports[r->n_ports++].high = to;
		if (comma && one.n + 1 == s.n)
			return -EINVAL; /* nothing behind the comma */
		s.p += one.n + (comma != NULL);
		s.n -= one.n + (comma != NULL);
	}
	return r->n_ports ? 0 : -EINVAL;
}

/* Where the target ends: "[v6]/bits:ports", "v6/bits" (many colons, no ports), "anything:ports". */
static int split_target(struct str text, struct str *target, struct str *ports, char room[static 64])
{
	const char *last = memrchr(text.p, ':', text.n), *first = memchr(text.p, ':', text.n);

	*target = text;
	*ports = (struct str){ 0 };
	if (text.n && text.p[0] == '[') {
		const char *close = memchr(text.p, ']', text.n);
		const char *colon = close ? memchr(close, ':', (size_t)(text.p + text.n - close)) : NULL;
		if (!close)
			return -EINVAL;
		size_t inner = (size_t)(close - text.p) - 1, end = colon ? (size_t)(colon - text.p) : text.n, tail = end - inner - 2;
		if (inner + tail >= 64 || !memchr(text.p + 1, ':', inner))
			return -EINVAL;
		memcpy(room, text.p + 1, inner);
		memcpy(room + inner, close + 1, tail);
		*target = (struct str){ room, inner + tail };
		if (colon)
			*ports = (struct str){ colon, (size_t)(text.p + text.n - colon) };
	} else if (last && last == first) {
		*target = (struct str){ text.p, (size_t)(last - text.p) };
		*ports = (struct str){ last, (size_t)(text.p + text.n - last) };
	}
	return 0;
}

#define NO_TARGET "neither a name nor an address range (bits behind the prefix must be 0, IPv4 is not written as IPv6)"

/* NULL, or what is wrong. */
static const char *parse_target(struct str target, struct policy_rule *r)
{
	char name[POLICY_NAME_MAX + 1] = "";

	/* A rule that could never take effect is a mistake. (0.0.0.0/0 and ::/0 begin with such an address and mean all others.) */
	if (net_parse(target, &r->net) == 0)
		return r->net.prefix >= 4 && addr_classify(&r->net.addr) == ADDR_NEVER
			       ? "an address that no sandbox ever reaches (loopback, link-local, multicast, metadata, IPv4 written as IPv6): leave the rule out"
			       : NULL;
	r->is_name = true;
	r->wildcard = target.n && target.p[0] == '*';
	if (r->wildcard && target.n > 1 && (target.n < 3 || target.p[1] != '.'))
		return NO_TARGET;
	if (r->wildcard)
		target = target.n > 1 ? (struct str){ target.p + 2, target.n - 2 } : (struct str){ 0 };
	if ((target.n || !r->wildcard) && name_canonical(target, name) < 0)
		return NO_TARGET;
	r->name = xstrdup(name);
	return NULL;
}

int rule_parse(struct str text, struct policy_rule *ret, struct err *e)
{
	struct policy_rule r = { 0 };
	struct str rest = text, target, ports;
	char room[64];

	if (!text.p || text.n == 0)
		return bad_rule(e, text, "it is empty");
	if (text.n >= POLICY_TEXT_MAX)
		return err_set(e, ERR_INVALID, E2BIG, "%s: %zu bytes; a rule has at most %d", str_quote(text, &(struct quoted){ 0 }), text.n, POLICY_TEXT_MAX - 1);
	r.raw = take_suffix(&rest, "/raw");
	r.proto = take_suffix(&rest, "/udp") ? POLICY_UDP : POLICY_TCP;
	const char *why = split_target(rest, &target, &ports, room) < 0 ? NO_TARGET : parse_target(target, &r);
	if (why)
		return bad_rule(e, text, why);
	if (ports.n && parse_ports((struct str){ ports.p + 1, ports.n - 1 }, &r) < 0) {
		rule_done(&r);
		return bad_rule(e, text, "the ports are not of the form 443, 80,443 or 8000-8099 (at most 8 of them, each 1 to 65535)");
	}
	if (r.raw && (!r.is_name || r.proto == POLICY_UDP)) {
		rule_done(&r);
		return bad_rule(e, text, "/raw is for names, and for connections only");
	}
	*ret = r;
	return 0;
}

void rule_done(struct policy_rule *r)
{
	free(r->name);
	*r = (struct policy_rule){ 0 };
}

const char *rule_format(const struct policy_rule *r, char ret_text[static POLICY_TEXT_MAX])
{
	char addr[ADDR_TEXT_MAX];
	size_t at = 0;
	const size_t size = POLICY_TEXT_MAX;
	bool v6 = r->net.addr.family == 6;

	/* Never cut: a name of 253, eight ranges of twelve, suffixes. */
	if (r->is_name)
		at += (size_t)snprintf(ret_text, size, "%s%s", r->wildcard ? r->name[0] ? "*." : "*" : "", r->name);
	else
		at += (size_t)snprintf(ret_text, size, v6 ? "[%s]" : "%s", addr_format(&r->net.addr, addr));
	if (!r->is_name && r->net.prefix != addr_len(&r->net.addr) * 8)
		at += (size_t)snprintf(ret_text + at, size - at, "/%u", r->net.prefix);
	for (size_t i = 0; i < r->n_ports; i++) {
		at += (size_t)snprintf(ret_text + at, size - at, "%c%u", i ? ',' : ':', r->ports[i].low);
		if (r->ports[i].high != r->ports[i].low)
			at += (size_t)snprintf(ret_text + at, size - at, "-%u", r->ports[i].high);
	}
	snprintf(ret_text + at, size - at, "%s%s", r->proto == POLICY_UDP ? "/udp" : "", r->raw ? "/raw" : "");
	return ret_text;
}

static int too_many(const char *field, size_t n, struct err *e)
{
	return err_set(e, ERR_TOO_LARGE, E2BIG, "network.%s: %zu rules; at most %d are allowed", field, n, POLICY_RULES_MAX);
}

static int parse_list(const char *field, char *const *texts, struct policy_rule **ret, size_t *ret_n, struct err *e)
{
	size_t n = 0;

	while (texts && texts[n])
		n++;
	if (n > POLICY_RULES_MAX + POLICY_OPERATOR_MAX)
		return too_many(field, n, e);
	*ret = n ? xcalloc(n, sizeof **ret) : NULL;
	for (*ret_n = 0; *ret_n < n; (*ret_n)++) {
		int rc = rule_parse(str_of(texts[*ret_n]), &(*ret)[*ret_n], e);
		if (rc < 0) {
			err_prefix(e, "network.%s", field);
			return rc;
		}
	}
	return 0;
}

void policy_done(struct policy *p)
{
	for (size_t i = 0; i < p->n_allow; i++)
		rule_done(&p->allow[i]);
	for (size_t i = 0; i < p->n_deny; i++)
		rule_done(&p->deny[i]);
	free(p->allow);
	free(p->deny);
	*p = (struct policy){ 0 };
}

int policy_parse(enum network_mode mode, char *const *allow, char *const *deny, struct policy *ret, struct err *e)
{
	struct policy p = { .mode = mode };

	if ((unsigned)mode > NETWORK_ALLOW)
		return err_set(e, ERR_INVALID, EINVAL, "network.mode: %u is not a mode; give \"none\", \"public\" or \"allow\"", (unsigned)mode);
	if (mode == NETWORK_NONE && ((allow && allow[0]) || (deny && deny[0])))
		return err_set(e, ERR_INVALID, EINVAL, "network: rules are given with mode \"none\", where nothing can be reached; give \"allow\" or \"public\"");
	int rc = parse_list("allow", allow, &p.allow, &p.n_allow, e);
	if (rc == 0)
		rc = parse_list("deny", deny, &p.deny, &p.n_deny, e);
	if (rc < 0) {
		policy_done(&p);
		return rc;
	}
	*ret = p;
	return 0;
}

static void canonical_list(char **texts, const struct policy_rule *rules)
{
	char text[POLICY_TEXT_MAX];

	for (size_t i = 0; texts && texts[i]; i++) {
		free(texts[i]);
		texts[i] = xstrdup(rule_format(&rules[i], text));
	}
}

/* A rule that could never take effect: those datagrams are questions to us, whatever their address. */
static bool only_names_service(const struct policy_rule *r)
{
	for (size_t i = 0; i < r->n_ports; i++)
		if (r->ports[i].low != NAMES_PORT || r->ports[i].high != NAMES_PORT)
			return false;
	return r->proto == POLICY_UDP && r->n_ports > 0;
}

/* RFC 6761: such names are the sandbox itself to every resolver. */
static bool is_localhost(const struct policy_rule *r)
{
	static const char last[] = "localhost";
	size_t n = r->is_name ? strlen(r->name) : 0, k = sizeof last - 1;

	return n >= k && streq(r->name + n - k, last) && (n == k || r->name[n - k - 1] == '.');
}

int policy_check(enum network_mode mode, char **allow, char **deny, bool canonicalise, struct err *e)
{
	struct policy p;
	int rc = policy_parse(mode, allow, deny, &p, e);

	if (rc < 0)
		return rc;
	if (p.n_allow > POLICY_RULES_MAX || p.n_deny > POLICY_RULES_MAX) {
		rc = p.n_allow > POLICY_RULES_MAX ? too_many("allow", p.n_allow, e) : too_many("deny", p.n_deny, e);
		policy_done(&p);
		return rc;
	}
	for (size_t i = 0; i < p.n_allow; i++) {
		const char *why = only_names_service(&p.allow[i]) ? "port 53 of every address is the sandbox's own name service" :
				  is_localhost(&p.allow[i]) ? "\"localhost\" is the sandbox itself, and no other machine ever" : NULL;
		if (why) {
			policy_done(&p);
			return err_set(e, ERR_INVALID, EINVAL, "network.allow[%zu]: %s: leave the rule out", i, why);
		}
	}
	if (canonicalise) {
		canonical_list(allow, p.allow);
		canonical_list(deny, p.deny);
	}
	policy_done(&p);
	return 0;
}

/* --- judgement --- */

static bool rule_port(const struct policy_rule *r, uint16_t port)
{
	for (size_t i = 0; i < r->n_ports; i++)
		if (port >= r->ports[i].low && port <= r->ports[i].high)
			return true;
	return r->n_ports == 0;
}

static bool rule_name(const struct policy_rule *r, const char *name)
{
	if (!r->is_name)
		return false;
	if (!r->wildcard)
		return streq(r->name, name);
	size_t n = strlen(name), tail = strlen(r->name);
	return tail == 0 || (n > tail + 1 && name[n - tail - 1] == '.' && streq(name + n - tail, r->name));
}

static const struct policy_rule *find_net(const struct policy_rule *rules, size_t n, const struct addr *a, uint16_t port, enum policy_proto proto)
{
	for (size_t i = 0; i < n; i++)
		if (!rules[i].is_name && rules[i].proto == proto && rule_port(&rules[i], port) && net_has(&rules[i].net, a))
			return &rules[i];
	return NULL;
}

/* A denial means every protocol, unless it says datagrams. */
static bool denies(const struct policy_rule *r, enum policy_proto proto)
{
	return r->proto == POLICY_TCP || proto == POLICY_UDP;
}

bool policy_denies_names(const struct policy *p, enum policy_proto proto)
{
	for (size_t i = 0; i < p->n_deny; i++)
		if (p->deny[i].is_name && denies(&p->deny[i], proto))
			return true;
	return false;
}

bool policy_has_datagrams(const struct policy *p)
{
	for (size_t i = 0; i < p->n_allow; i++)
		if (p->allow[i].proto == POLICY_UDP)
			return true;
	return false;
}

/* NULL, or why no rule of a sandbox's own can open it. */
static const char *closed_to_all(const struct policy_host *h, const struct addr *a, bool *ret_private)
{
	enum addr_class class = addr_classify(a);

	if (class == ADDR_NEVER)
		return "an address that is never reachable";
	if (nets_have(&h->own, a))
		return "an address of this host";
	*ret_private = class == ADDR_PRIVATE || nets_have(&h->link, a);
	if (*ret_private && !nets_have(&h->lan, a))
		return "an address of a private network";
	return NULL;
}

static struct judgement denied(const char *reason)
{
	return (struct judgement){ VERDICT_DENY, reason, false };
}

struct judgement policy_judge_address(const struct policy *p, const struct policy_host *h, const struct addr *a, uint16_t port,
				      enum policy_proto proto)
{
	static const struct judgement allowed = { VERDICT_ALLOW, NULL, false };
	bool is_private = false;

	if (p->mode == NETWORK_NONE || port == 0)
		return denied("no network");
	const char *closed = closed_to_all(h, a, &is_private);
	if (closed)
		return denied(closed);
	if (proto == POLICY_UDP && port == NAMES_PORT)
		return denied("port 53 is the sandbox's own name service");
	if (find_net(p->deny, p->n_deny, a, port, proto) || find_net(p->deny, p->n_deny, a, port, POLICY_TCP))
		return denied("an address of the deny list");
	if (find_net(p->allow, p->n_allow, a, port, proto))
		return allowed;
	if (p->mode == NETWORK_PUBLIC && !is_private && proto == POLICY_TCP) {
		bool look = policy_denies_names(p, proto);
		if (port == 25)
			return denied("port 25 needs a rule");
		if (look && port == 853)
			return denied("encrypted name service would hide names that are denied");
		return (struct judgement){ VERDICT_ALLOW, NULL, look };
	}
	return (struct judgement){ VERDICT_BY_NAME, proto == POLICY_UDP ? "datagrams need a rule" : "no rule allows it", false };
}

bool policy_reachable(const struct policy_host *h, const struct addr *a)
{
	bool is_private;
	return closed_to_all(h, a, &is_private) == NULL;
}

bool policy_may_answer(const struct policy *p, const struct policy_host *h, const struct addr *a)
{
	if (!policy_reachable(h, a))
		return false;
	for (size_t i = 0; i < p->n_deny; i++)
		if (!p->deny[i].is_name && p->deny[i].n_ports == 0 && denies(&p->deny[i], POLICY_TCP) && net_has(&p->deny[i].net, a))
			return false;
	return true;
}

bool policy_denies_name(const struct policy *p, const char *name, uint16_t port, enum policy_proto proto)
{
	for (size_t i = 0; i < p->n_deny; i++)
		if (denies(&p->deny[i], proto) && rule_name(&p->deny[i], name) && rule_port(&p->deny[i], port))
			return true;
	return false;
}

bool policy_may_resolve(const struct policy *p, const char *name)
{
	if (p->mode == NETWORK_NONE)
		return false;
	for (size_t i = 0; i < p->n_deny; i++)
		if (p->deny[i].n_ports == 0 && denies(&p->deny[i], POLICY_TCP) && rule_name(&p->deny[i], name))
			return false;
	if (p->mode == NETWORK_PUBLIC)
		return true;
	for (size_t i = 0; i < p->n_allow; i++)
		if (rule_name(&p->allow[i], name))
			return true;
	return false;
}

const struct policy_rule *policy_judge_name(const struct policy *p, const char *name, uint16_t port, enum policy_proto proto)
{
	const struct policy_rule *found = NULL;

	if (policy_denies_name(p, name, port, proto))
		return NULL;
	/* A rule that asks for less comes first: one without /raw does not take away what another one with it gives. */
	for (size_t i = 0; i < p->n_allow; i++)
		if (p->allow[i].proto == proto && rule_name(&p->allow[i], name) && rule_port(&p->allow[i], port)) {
			if (p->allow[i].raw)
				return &p->allow[i];
			if (!found)
				found = &p->allow[i];
		}
	return found;
}
