#include "model/reach.h"

#include "model/method.h"
#include "model/permission.h"

#include <errno.h>

static size_t count(char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	return n;
}

static void append(char ***list, const char *text)
{
	size_t n = count(*list);

	*list = xreallocarray(*list, n + 2, sizeof **list);
	(*list)[n] = xstrdup(text);
	(*list)[n + 1] = NULL;
}

/* The target of a rule about hosts with this verdict, or NULL. */
static const char *host_rule(const char *text, enum permit_verdict verdict)
{
	struct permit p;
	struct err e;

	return permission_parse(text, &p, &e) == 0 && (int)p.kind == PERMISSION_HOST && p.verdict == verdict ? p.path : NULL;
}

static size_t add_hosts(char ***list, char *const *permissions, enum permit_verdict verdict)
{
	size_t n = 0;

	for (; permissions && *permissions; permissions++) {
		const char *target = host_rule(*permissions, verdict);
		if (!target)
			continue;
		if (list)
			append(list, target);
		n++;
	}
	return n;
}

static void add_answers(char ***list, char *const *answers, const char *verdict)
{
	size_t n = strlen(verdict);

	for (; answers && *answers; answers++)
		if (strncmp(*answers, verdict, n) == 0)
			append(list, *answers + n);
}

void reach_of(const struct sandbox_spec *s, struct reach *ret)
{
	struct reach r = { .mode = s->network };
	bool named = add_hosts(NULL, s->permissions, PERMIT_ALLOW) > 0;

	*ret = r;
	if (named && r.mode == NETWORK_ALLOW) /* what reach_check refuses: of a snapshot's rules and another network */
		ret->mode = r.mode = NETWORK_NONE;
	if (r.mode == NETWORK_NONE)
		return;
	if (named && r.mode == NETWORK_PUBLIC)
		r.mode = NETWORK_ALLOW;
	r.allow = strv_copy(s->network_allow);
	if (s->network == NETWORK_PUBLIC)
		(void)add_hosts(&r.allow, s->permissions, PERMIT_ALLOW);
	(void)add_hosts(&r.ask, s->permissions, PERMIT_ASK);
	if (r.mode == NETWORK_ALLOW)
		(void)add_hosts(&r.allow, s->permissions, PERMIT_ASK);
	r.deny = strv_copy(s->network_deny);
	(void)add_hosts(&r.deny, s->permissions, PERMIT_DENY);
	add_answers(&r.deny, s->host_answers, "deny ");
	add_answers(&r.answered, s->host_answers, "allow ");
	reach_read(s->permissions, &r.read);
	*ret = r;
}

void reach_done(struct reach *r)
{
	strv_free(r->allow);
	strv_free(r->deny);
	strv_free(r->ask);
	strv_free(r->answered);
	strv_free(r->read);
	*r = (struct reach){ 0 };
}

int reach_check(const struct sandbox_spec *s, struct err *e)
{
	size_t allows = add_hosts(NULL, s->permissions, PERMIT_ALLOW), denies = add_hosts(NULL, s->permissions, PERMIT_DENY);
	size_t asks = add_hosts(NULL, s->permissions, PERMIT_ASK), answers = asks ? HOST_ANSWERS_MAX : 0;

	if (allows && s->network == NETWORK_ALLOW)
		return err_set(e, ERR_INVALID, EINVAL, "permissions: \"allow host:\" beside network.mode \"allow\", which has a list of its own: use one of them");
	if (count(s->network_allow) + allows + asks > POLICY_RULES_MAX || count(s->network_deny) + denies + answers > POLICY_RULES_MAX)
		return err_set(e, ERR_INVALID, E2BIG, "permissions: more than %d rules about hosts, together with those of the network", POLICY_RULES_MAX);
	return 0;
}

bool reach_has_hosts(char *const *permissions)
{
	for (enum permit_verdict v = PERMIT_ALLOW; v < PERMIT_VERDICT_END; v++)
		if (add_hosts(NULL, permissions, v))
			return true;
	return reach_has_methods(permissions);
}

bool reach_has_methods(char *const *permissions)
{
	struct method_rule r;
	struct err e;
	bool has = false;

	for (; permissions && *permissions && !has; permissions++)
		if ((has = method_rule_parse(*permissions, &r, &e) == 0))
			method_rule_done(&r);
	return has;
}

void reach_read(char *const *permissions, char ***list)
{
	char target[POLICY_TEXT_MAX];
	struct method_rule r;
	struct err e;

	for (; permissions && *permissions; permissions++) {
		if (method_rule_parse(*permissions, &r, &e) < 0)
			continue;
		rule_format(&r.target, target);
		method_rule_done(&r);
		bool known = false;
		for (char *const *one = *list; one && *one && !known; one++)
			known = streq(*one, target);
		if (!known)
			append(list, target);
	}
}

bool reach_asks(char *const *permissions)
{
	return add_hosts(NULL, permissions, PERMIT_ASK) > 0;
}

const char *reach_asks_for(const struct sandbox_spec *s, const char *name)
{
	const char *found = NULL;

	for (size_t i = 0; s->permissions && s->permissions[i] && !found; i++) {
		const char *target = host_rule(s->permissions[i], PERMIT_ASK);
		char *copy = target ? xstrdup(target) : NULL, *one[] = { copy, NULL };
		struct policy p;
		struct err e;
		if (copy && policy_parse(NETWORK_ALLOW, one, NULL, &p, &e) == 0) {
			found = policy_may_resolve(&p, name) ? s->permissions[i] : NULL;
			policy_done(&p);
		}
		free(copy);
	}
	return found;
}

void reach_answer(struct sandbox_spec *s, const char *name, bool allowed)
{
	auto_free char *text = xasprintf("%s %s", allowed ? "allow" : "deny", name);

	append(&s->host_answers, text);
}
