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
	return 0;
}

int network_decode(const json_t *body, struct network_wish *w, struct err *e)
{
	const char *ranges = NULL, *names = NULL;
	bool block = false;
	int rc = want_bool(body, "networkBlockAll", &block, e), ranged, named;

	if (rc < 0 || (ranged = want_text(body, "networkAllowList", &ranges, e)) < 0 || (named = want_text(body, "domainAllowList", &names, e)) < 0)
		return -EINVAL;
	bool lists = (ranges && *ranges) || (names && *names);
	if (rc == 0 && !lists && !ranged && !named)
		return 0;
	w->given = true;
	if (block) {
		w->mode = NETWORK_NONE;
		return 0;
	}
	w->mode = lists ? NETWORK_ALLOW : NETWORK_PUBLIC;
	if (add_items("networkAllowList", ranges ? ranges : "", false, &w->allow, e) < 0 ||
	    add_items("domainAllowList", names ? names : "", true, &w->allow, e) < 0)
		return -EINVAL;
	if (lists && !w->allow) /* nothing but commas */
		return err_set(e, ERR_INVALID, EINVAL, "networkAllowList, domainAllowList: no entry in them");
	return policy_check(w->mode, w->allow, NULL, false, e);
}

void network_put(json_t *o, const struct sandbox_spec *s)
{
	auto_buf struct buf ranges, names;
	struct net net;

	buf_init(&ranges, POLICY_RULES_MAX * POLICY_TEXT_MAX);
	buf_init(&names, POLICY_RULES_MAX * POLICY_TEXT_MAX);
	for (char *const *r = s->network_allow; r && *r; r++) {
		struct buf *to = net_parse(str_of(*r), &net) == 0 || (*r)[0] == '[' ? &ranges : &names;
		buf_addf(to, "%s%s", to->len ? "," : "", *r);
	}
	json_object_set_new(o, "networkBlockAll", json_boolean(s->network == NETWORK_NONE));
	if (ranges.len)
		json_object_set_new(o, "networkAllowList", json_string(ranges.data));
	if (names.len)
		json_object_set_new(o, "domainAllowList", json_string(names.data));
}

/* --- afterwards --- */

struct change {
	struct call call;
	struct network_wish wish;
};

static void change_drop(struct call *c)
{
	strv_free(((struct change *)(void *)c)->wish.allow);
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
	int rc = network_decode(body, &x->wish, &e);
	json_decref(body);
	if (rc == 0 && !x->wish.given)
		rc = err_set(&e, ERR_INVALID, EINVAL, "give networkBlockAll, networkAllowList or domainAllowList");
	if (rc < 0)
		call_fail(&x->call, &e);
	else
		api_sandbox_set_network(d->api, &x->call.caller, x->call.ref, x->wish.mode, x->wish.allow, NULL, NULL, on_changed, x);
}
