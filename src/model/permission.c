#include "model/permission.h"

#include "model/method.h"

#include <errno.h>

#define QUOTE(text) str_quote(str_of(text), &(struct quoted){ 0 })

struct word {
	const char *text;
	int value;
};

/* The value of the first word that *at begins with, which is taken off it; or -1. */
static int take(const char **at, const struct word *words, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(words[i].text);
		if (strncmp(*at, words[i].text, len) == 0) {
			*at += len;
			return words[i].value;
		}
	}
	return -1;
}

static int check_host(const char *text, enum permit_verdict verdict, const char *target, struct err *e)
{
	struct policy_rule r;
	int rc = rule_parse(str_of(target), &r, e);

	if (rc < 0) {
		err_prefix(e, "permissions: %s", QUOTE(text));
		return rc;
	}
	bool is_name = r.is_name, udp = r.proto == POLICY_UDP;
	rule_done(&r);
	if (udp)
		return err_set(e, ERR_UNSUPPORTED, EPROTONOSUPPORT, "permissions: %s: rules about hosts are for connections: datagrams are allowed by network.allow", QUOTE(text));
	if (verdict == PERMIT_ASK && !is_name)
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "permissions: %s: only names can be asked about, when they are looked up: allow or deny it", QUOTE(text));
	return 0;
}

static int check_method(const char *text, struct err *e)
{
	struct method_rule r;
	int rc = method_rule_parse(text, &r, e);

	if (rc == 0)
		method_rule_done(&r);
	return rc;
}

int permission_parse(const char *text, struct permit *ret, struct err *e)
{
	static const struct word verdicts[] = { { "allow ", PERMIT_ALLOW }, { "ask ", PERMIT_ASK }, { "deny ", PERMIT_DENY } };
	static const struct word kinds[] = { { "program:", PERMIT_PROGRAM }, { "read:", PERMIT_READ }, { "write:", PERMIT_WRITE }, { "host:", PERMISSION_HOST }, { "method:", PERMISSION_METHOD } };
	const char *path = text;
	int verdict = take(&path, verdicts, ARRAY_LEN(verdicts));
	int kind = verdict < 0 ? -1 : take(&path, kinds, ARRAY_LEN(kinds));

	if (kind < 0)
		return err_set(e, ERR_INVALID, EINVAL, "permissions: %s is no rule; use \"VERDICT KIND:PATH\" with allow, ask or deny, and program, read, write, host or method",
		               QUOTE(text));
	bool of_guest = kind < PERMIT_KIND_END;
	int rc = of_guest ? 0 : kind == PERMISSION_HOST ? check_host(text, (enum permit_verdict)verdict, path, e) : check_method(text, e);
	if (rc < 0)
		return rc;
	if (verdict == PERMIT_ASK && of_guest && kind != PERMIT_PROGRAM)
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "permissions: %s: only programs, hosts and methods can be asked about: allow or deny it", QUOTE(text));
	if (of_guest && (path[0] != '/' || strlen(path) > PERMIT_PATH_MAX))
		return err_set(e, ERR_INVALID, EINVAL, "permissions: %s: give an absolute path of at most %d bytes", QUOTE(text), PERMIT_PATH_MAX);
	*ret = (struct permit){ (enum permit_verdict)verdict, (enum permit_kind)kind, path };
	return 0;
}

int permissions_validate(char *const *rules, struct err *e)
{
	struct permit p;

	if (rules && !rules[0])
		return err_set(e, ERR_INVALID, EINVAL, "permissions: there is no rule in the list: leave it out");
	for (size_t i = 0; rules && rules[i]; i++) {
		if (i == PERMITS_MAX)
			return err_set(e, ERR_INVALID, E2BIG, "permissions: more than %d rules; name a folder instead of what is in it", PERMITS_MAX);
		if (!utf8_valid(str_of(rules[i])))
			return err_set(e, ERR_INVALID, EINVAL, "permissions[%zu]: not valid UTF-8", i);
		int rc = permission_parse(rules[i], &p, e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

const char *permission_of_guest(char *const *rules, size_t number)
{
	struct permit p;
	struct err e;

	for (; rules && *rules; rules++)
		if (permission_parse(*rules, &p, &e) == 0 && p.kind < PERMIT_KIND_END && number-- == 0)
			return *rules;
	return NULL;
}
