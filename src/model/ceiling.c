#include "model/ceiling.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

static const struct {
	const char *name;
	size_t offset;
	uint64_t min, max; /* as dialects take them */
} limits_table[] = {
	{ "bytes_per_second", offsetof(struct network_limits, bytes_per_second), NETWORK_RATE_MIN, NETWORK_BYTES_MAX },
	{ "bytes", offsetof(struct network_limits, bytes), 1, NETWORK_BYTES_MAX },
	{ "connections", offsetof(struct network_limits, connections), 1, NETWORK_CONNECTIONS_MAX },
	{ "connections_per_second", offsetof(struct network_limits, connections_per_second), 1, NETWORK_CONNECTIONS_RATE_MAX },
};

static uint64_t *limit_at(struct network_limits *l, size_t i)
{
	return (uint64_t *)(void *)((char *)l + limits_table[i].offset);
}

int limit_parse(struct str text, struct network_limits *to, struct err *e)
{
	const char *equals = text.n ? memchr(text.p, '=', text.n) : NULL;
	struct str name = { text.p, equals ? (size_t)(equals - text.p) : text.n };
	uint64_t value;

	for (size_t i = 0; equals && i < ARRAY_LEN(limits_table); i++) {
		if (!str_eqz(name, limits_table[i].name))
			continue;
		if (parse_u64((struct str){ equals + 1, text.n - name.n - 1 }, limits_table[i].max, &value) < 0 || value < limits_table[i].min)
			return err_set(e, ERR_INVALID, EINVAL, "%s: expected a number from %" PRIu64 " to %" PRIu64, limits_table[i].name, limits_table[i].min,
				       limits_table[i].max);
		*limit_at(to, i) = value;
		return 0;
	}
	return err_set(e, ERR_INVALID, EINVAL, "%s: expected bytes_per_second=N, bytes=N, connections=N or connections_per_second=N",
		       str_quote(text, &(struct quoted){ 0 }));
}

int ceiling_valid(const struct ceiling *c, struct err *e)
{
	struct policy p;
	size_t n = 0;

	while (c->deny && c->deny[n])
		n++;
	if (n > CEILING_DENY_MAX)
		return err_set(e, ERR_INVALID, E2BIG, "--network-deny: at most %d rules", CEILING_DENY_MAX);
	if (c->allow && c->mode != NETWORK_ALLOW)
		return err_set(e, ERR_INVALID, EINVAL, "--network-allow goes with --network-max allow");
	int rc = policy_parse(NETWORK_ALLOW, c->allow, c->deny, &p, e);
	if (rc == 0)
		policy_done(&p);
	return rc;
}

static bool ports_within(const struct policy_rule *outer, const struct policy_rule *inner)
{
	if (outer->n_ports == 0)
		return true;
	for (size_t i = 0; i < inner->n_ports; i++) {
		bool within = false;
		for (size_t k = 0; k < outer->n_ports; k++)
			within = within || (inner->ports[i].low >= outer->ports[k].low && inner->ports[i].high <= outer->ports[k].high);
		if (!within)
			return false;
	}
	return inner->n_ports > 0;
}

static bool ends_in(const char *name, const char *tail)
{
	size_t n = strlen(name), k = strlen(tail);

	return k == 0 || (n > k + 1 && name[n - k - 1] == '.' && streq(name + n - k, tail));
}

static bool name_within(const struct policy_rule *outer, const struct policy_rule *inner)
{
	if (inner->raw && !outer->raw)
		return false;
	if (!outer->wildcard)
		return !inner->wildcard && streq(inner->name, outer->name);
	return ends_in(inner->name, outer->name) || (inner->wildcard && streq(inner->name, outer->name));
}

/* Nothing of the inner one lies outside. A name is not within a range: where it leads is not known yet. */
static bool rule_within(const struct policy_rule *outer, const struct policy_rule *inner)
{
	if (outer->proto != inner->proto || outer->is_name != inner->is_name || !ports_within(outer, inner))
		return false;
	return outer->is_name ? name_within(outer, inner) : outer->net.prefix <= inner->net.prefix && net_has(&outer->net, &inner->net.addr);
}

static int rules_within(const struct ceiling *c, char *const *allow, struct err *e)
{
	struct policy outer = { 0 }, inner = { 0 };
	char text[POLICY_TEXT_MAX];
	int rc = policy_parse(NETWORK_ALLOW, c->allow, NULL, &outer, e);

	if (rc == 0)
		rc = policy_parse(NETWORK_ALLOW, allow, NULL, &inner, e);
	for (size_t i = 0; rc == 0 && i < inner.n_allow; i++) {
		bool within = false;
		for (size_t k = 0; k < outer.n_allow; k++)
			within = within || rule_within(&outer.allow[k], &inner.allow[i]);
		if (!within)
			rc = err_set(e, ERR_DENIED, EPERM, "network.allow[%zu]: %.120s is more than this server's operator allows (%.120s%s)", i,
				     rule_format(&inner.allow[i], text), c->allow[0], c->allow[1] ? ", ..." : "");
	}
	policy_done(&outer);
	policy_done(&inner);
	return rc;
}

int ceiling_permits(const struct ceiling *c, enum network_mode mode, char *const *allow, const struct network_limits *limits, struct err *e)
{
	static const int rank[] = { [NETWORK_NONE] = 0, [NETWORK_ALLOW] = 1, [NETWORK_PUBLIC] = 2 };
	struct network_limits asked = *limits, most = c->limits;

	if (rank[mode] > rank[c->mode])
		return err_set(e, ERR_DENIED, EPERM, "network.mode: \"%s\" is more than this server's operator allows (\"%s\")", network_mode_name(mode),
			       network_mode_name(c->mode));
	for (size_t i = 0; i < ARRAY_LEN(limits_table); i++) {
		uint64_t want = *limit_at(&asked, i), max = *limit_at(&most, i);
		if (max && want > max)
			return err_set(e, ERR_DENIED, EPERM, "network.limits.%s: %" PRIu64 " is more than this server's operator allows (%" PRIu64 ")",
				       limits_table[i].name, want, max);
	}
	return mode == NETWORK_ALLOW && c->allow ? rules_within(c, allow, e) : 0;
}

void ceiling_limit(const struct ceiling *c, struct network_limits *limits)
{
	struct network_limits most = c->limits;

	for (size_t i = 0; i < ARRAY_LEN(limits_table); i++) {
		uint64_t *have = limit_at(limits, i), max = *limit_at(&most, i);
		if (max && (*have == 0 || *have > max))
			*have = max;
	}
}
