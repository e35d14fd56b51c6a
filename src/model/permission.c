#include "model/permission.h"

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

enum { HOST = PERMIT_KIND_END, METHOD };

int permission_parse(const char *text, struct permit *ret, struct err *e)
{
	static const struct word verdicts[] = { { "allow ", PERMIT_ALLOW }, { "ask ", PERMIT_ASK }, { "deny ", PERMIT_DENY } };
	static const struct word kinds[] = { { "program:", PERMIT_PROGRAM }, { "read:", PERMIT_READ }, { "write:", PERMIT_WRITE }, { "host:", HOST }, { "method:", METHOD } };
	const char *path = text;
	int verdict = take(&path, verdicts, ARRAY_LEN(verdicts));
	int kind = verdict < 0 ? -1 : take(&path, kinds, ARRAY_LEN(kinds));

	if (kind < 0)
		return err_set(e, ERR_INVALID, EINVAL, "permissions: %s is no rule; use \"VERDICT KIND:PATH\" with allow, ask or deny, and program, read or write",
		               QUOTE(text));
	if (kind == HOST)
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "permissions: %s: hosts are a matter of the whole sandbox: use network.allow and network.deny",
		               QUOTE(text));
	if (kind == METHOD)
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "permissions: %s: methods are looked at where a secret is used: use the methods of a secret",
		               QUOTE(text));
	if (verdict == PERMIT_ASK && kind != PERMIT_PROGRAM)
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "permissions: %s: only programs can be asked about: allow or deny it", QUOTE(text));
	if (path[0] != '/' || strlen(path) > PERMIT_PATH_MAX)
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
			return err_set(e, ERR_INVALID, EINVAL, "permissions: a rule is not valid UTF-8");
		int rc = permission_parse(rules[i], &p, e);
		if (rc < 0)
			return rc;
	}
	return 0;
}
