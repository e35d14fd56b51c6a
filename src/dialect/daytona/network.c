/* What a sandbox may reach, in this API's words: nothing (networkBlockAll), what two comma-separated lists name, else the internet. */
#include "dialect/daytona/internal.h"

#include <errno.h>

static size_t count(char *const *v)
{
	size_t n = 0;

	while (v && v[n])
		n++;
	return n;
}

static void append(char ***list, char *take)
{
	size_t n = count(*list);

	*list = xreallocarray(*list, n + 2, sizeof **list);
	(*list)[n] = take;
	(*list)[n + 1] = NULL;
}

/* 192.168.1.0/16 means what it lies in, here; what is no range stays as it is. */
static char *range_text(struct str text)
{
	const char *slash = memchr(text.p, '/', text.n);
	struct str bits = { slash ? slash + 1 : NULL, slash ? (size_t)(text.p + text.n - slash - 1) : 0 };
	char plain[ADDR_TEXT_MAX];
	uint64_t prefix;
	struct addr a;

	if (!slash || addr_parse((struct str){ text.p, (size_t)(slash - text.p) }, &a) < 0 || parse_u64(bits, a.family == 4 ? 32 : 128, &prefix) < 0)
		return xstrndup(text.p, text.n);
	for (size_t bit = prefix; bit < (a.family == 4 ? 32U : 128U); bit++)
		a.b[bit / 8] &= (uint8_t) ~(0x80u >> bit % 8);
	return xasprintf("%s/%u", addr_format(&a, plain), (unsigned)prefix);
}

/* The items of a comma-separated list. Each must be of its kind: an address range in the one, a name in the other. */
static int add_items(const char *field, const char *text, bool names, char ***list, struct err *e)
{
	struct str rest = str_of(text);
	size_t before = count(*list);

	while (rest.n) {
		const char *comma = memchr(rest.p, ',', rest.n);
		struct str one = { rest.p, comma ? (size_t)(comma - rest.p) : rest.n };
		rest.p += one.n + (comma != NULL);
		rest.n -= one.n + (comma != NULL);
		while (one.n && one.p[0] == ' ') {
			one.p++;
			one.n--;
		}
		while (one.n && one.p[one.n - 1] == ' ')
			one.n--;
		if (one.n == 0)
			continue;
		bool digits = one.p[0] >= '0' && one.p[0] <= '9' && memchr(one.p, '/', one.n);
		if (names == (digits || memchr(one.p, ':', one.n) != NULL))
			return err_set(e, ERR_INVALID, EINVAL, "%s: %s is not %s", field, str_quote(one, &(struct quoted){ 0 }),
				       names ? "a name" : "an address range such as 203.0.113.0/24");
		if (count(*list) >= POLICY_RULES_MAX)
			return err_set(e, ERR_TOO_LARGE, E2BIG, "%s: at most %d entries", field, POLICY_RULES_MAX);
		append(list, names ? xstrndup(one.p, one.n) : range_text(one));
	}
	if (count(*list) == before && strchr(text, ','))
		return err_set(e, ERR_INVALID, EINVAL, "%s: no entry in it", field);
	return 0;
}

static bool is_range(const char *rule)
{
	struct net net;

	return net_parse(str_of(rule), &net) == 0 || rule[0] == '[';
}

static void keep(char *const *before, bool names, char ***list)
{
	for (; before && *before; before++)
		if (is_range(*before) != names)
			append(list, xstrdup(*before));
}

/* As clients of this API give it and take it: one address is a range, too. */
static char *as_range(const char *rule)
{
	size_t n = strlen(rule);
	struct str text = rule[0] == '[' && rule[n - 1] == ']' ? (struct str){ rule + 1, n - 2 } : (struct str){ rule, n };
	struct addr a;

	if (addr_parse(text, &a) < 0)
		return xstrdup(rule);
	return xasprintf("%.*s/%d", (int)text.n, text.p, a.family == 4 ? 32 : 128);
}

static char *joined(char *const *rules, bool names)
{
	auto_buf struct buf b;

	buf_init(&b, POLICY_RULES_MAX * POLICY_TEXT_MAX);
	for (; rules && *rules; rules++)
		if (is_range(*rules) != names) {
			auto_free char *one = names ? xstrdup(*rules) : as_range(*rules);
			buf_addf(&b, "%s%s", b.len ? "," : "", one);
		}
	return b.len ? xstrdup(b.data) : NULL;
}

/* As Daytona's server does it: a list that is not named stays, an empty one is taken away; networkBlockAll false takes that of ranges away, true wins
 * over both lists, and what is named of a list lifts a block. Its names outlive a block. */
int network_decode(const json_t *body, char *const *before, struct network_wish *w, struct err *e)
{
	const char *ranges = NULL, *names = NULL;
	bool block = false;
	int blocked = want_bool(body, "networkBlockAll", &block, e), ranged, named;

	if (blocked < 0 || (ranged = want_text(body, "networkAllowList", &ranges, e)) < 0 || (named = want_text(body, "domainAllowList", &names, e)) < 0)
		return -EINVAL;
	if (!blocked && !ranged && !named)
		return 0;
	w->given = true;
	if (!ranged && !blocked)
		keep(before, false, &w->allow);
	if (add_items("networkAllowList", ranges ? ranges : "", false, &w->allow, e) < 0)
		return -EINVAL;
	if (!named)
		keep(before, true, &w->allow);
	if (add_items("domainAllowList", names ? names : "", true, &w->allow, e) < 0)
		return -EINVAL;
	w->mode = w->allow ? NETWORK_ALLOW : NETWORK_PUBLIC;
	int rc = policy_check(w->mode, w->allow, NULL, false, e);
	if (rc == 0 && block) {
		w->mode = NETWORK_NONE;
		w->behind = joined(w->allow, true);
		strv_free(w->allow);
		w->allow = NULL;
	}
	return rc;
}

void network_wish_done(struct network_wish *w)
{
	strv_free(w->allow);
	free(w->behind);
	*w = (struct network_wish){ 0 };
}

void network_put(json_t *o, const struct sandbox_spec *s, const json_t *extra)
{
	json_t *behind = json_object_get(extra, NETWORK_BEHIND);
	auto_free char *ranges = joined(s->network_allow, false), *names = joined(s->network_allow, true);

	json_object_set_new(o, "networkBlockAll", json_boolean(s->network == NETWORK_NONE));
	if (ranges)
		json_object_set_new(o, "networkAllowList", json_string(ranges));
	if (names)
		json_object_set_new(o, "domainAllowList", json_string(names));
	else if (s->network == NETWORK_NONE && json_is_string(behind))
		json_object_set(o, "domainAllowList", behind);
}

/* --- afterwards --- */

struct change {
	struct call call;
	struct network_wish wish;
};

static void change_drop(struct call *c)
{
	network_wish_done(&((struct change *)(void *)c)->wish);
}

static void on_changed(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct change *x = ctx;

	if (e) {
		call_fail(&x->call, e);
		return;
	}
	auto_free char *base = base_url(x->call.d, x->call.r);
	call_json(&x->call, 200, sandbox_json(x->call.d, base, v, false));
}

/* The names that stand behind a block are written down before it: they mean nothing without one. */
static int change(struct change *x, const json_t *body, struct err *e)
{
	struct sandbox_view v;
	char **before = NULL;
	int rc = api_sandbox_get(x->call.d->api, &x->call.caller, x->call.ref, &v, e);

	if (rc < 0)
		return rc;
	json_t *extra = extra_load(&v), *behind = json_object_get(extra, NETWORK_BEHIND);
	if (v.spec->network == NETWORK_NONE && json_is_string(behind))
		rc = add_items("domainAllowList", json_string_value(behind), true, &before, e);
	else
		before = strv_copy(v.spec->network_allow);
	if (rc == 0)
		rc = network_decode(body, before, &x->wish, e);
	if (rc == 0 && !x->wish.given)
		rc = err_set(e, ERR_INVALID, EINVAL, "give networkBlockAll, networkAllowList or domainAllowList");
	if (rc == 0 && x->wish.mode == NETWORK_NONE && (x->wish.behind || json_is_string(behind)))
		rc = extra_put(x->call.d, &x->call.caller, &v, NETWORK_BEHIND, x->wish.behind ? json_string(x->wish.behind) : json_null(), e);
	strv_free(before);
	json_decref(extra);
	return rc;
}

void handle_network(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	json_t *body = body_object(r, &e);

	if (!body) {
		fail(r, &e);
		return;
	}
	struct change *x = call_new(sizeof *x, d, r, change_drop);
	int rc = change(x, body, &e);
	json_decref(body);
	if (rc < 0)
		call_fail(&x->call, &e);
	else
		api_sandbox_set_network(d->api, &x->call.caller, x->call.ref, x->wish.mode, x->wish.allow, NULL, NULL, on_changed, x);
}
