#include "model/permission.h"

#include <errno.h>

#define QUOTE(text) str_quote(str_of(text), &(struct quoted){ 0 })

static bool take(const char **text, const char *word)
{
	size_t n = strlen(word);

	if (strncmp(*text, word, n) != 0)
		return false;
	*text += n;
	return true;
}

static int take_kind(const char *whole, const char **at, enum permit_kind *ret, struct err *e)
{
	static const struct {
		const char *word;
		enum permit_kind kind;
	} kinds[] = { { "program:", PERMIT_PROGRAM }, { "read:", PERMIT_READ }, { "write:", PERMIT_WRITE } };

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (take(at, kinds[i].word)) {
			*ret = kinds[i].kind;
			return 0;
		}
	if (take(at, "host:"))
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "permissions: %s: hosts are a matter of the whole sandbox: use network.allow and network.deny",
		               QUOTE(whole));
	if (take(at, "method:"))
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "permissions: %s: nothing here looks at the methods of requests", QUOTE(whole));
	return err_set(e, ERR_INVALID, EINVAL, "permissions: %s is no rule; use \"allow program:PATH\", \"allow read:PATH\" or \"allow write:PATH\"",
	               QUOTE(whole));
}

int permission_parse(const char *text, enum permit_kind *ret_kind, struct str *ret_path, struct err *e)
{
	const char *at = text;
	enum permit_kind kind = PERMIT_KIND_END;

	if (take(&at, "deny ") || take(&at, "ask "))
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP,
		               "permissions: %s: only \"allow\" can be enforced, and denies what it does not name: say what is allowed", QUOTE(text));
	if (!take(&at, "allow "))
		return err_set(e, ERR_INVALID, EINVAL, "permissions: %s does not begin with \"allow \"", QUOTE(text));
	int rc = take_kind(text, &at, &kind, e);
	if (rc < 0)
		return rc;
	struct str path = str_of(at);
	if (path.n == 0 || path.p[0] != '/' || path.n > PERMIT_PATH_MAX)
		return err_set(e, ERR_INVALID, EINVAL, "permissions: %s: give an absolute path of at most %d bytes", QUOTE(text), PERMIT_PATH_MAX);
	*ret_kind = kind;
	*ret_path = path;
	return 0;
}

int permissions_validate(char *const *rules, struct err *e)
{
	enum permit_kind kind = PERMIT_KIND_END;
	struct str path;

	if (rules && !rules[0])
		return err_set(e, ERR_INVALID, EINVAL, "permissions: there is no rule in the list: leave it out");
	for (size_t i = 0; rules && rules[i]; i++) {
		if (i == PERMITS_MAX)
			return err_set(e, ERR_INVALID, E2BIG, "permissions: more than %d rules; allow a folder instead of what is in it", PERMITS_MAX);
		if (!utf8_valid(str_of(rules[i])))
			return err_set(e, ERR_INVALID, EINVAL, "permissions: a rule is not valid UTF-8");
		int rc = permission_parse(rules[i], &kind, &path, e);
		if (rc < 0)
			return rc;
	}
	return 0;
}
