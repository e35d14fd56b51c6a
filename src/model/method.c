#include "model/method.h"

#include <errno.h>

_Static_assert(PERMIT_ALLOW < PERMIT_ASK && PERMIT_ASK < PERMIT_DENY, "the greater verdict wins");

#define QUOTE(text) str_quote(str_of(text), &(struct quoted){ 0 })

/* --- paths --- */

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Something that servers disagree about, escaped or not. ('/' and '.' are what they are when they stand for themselves.) */
static bool is_odd(unsigned char c, bool escaped)
{
	return c < 0x20 || (c == 0x20 && !escaped) || c == 0x7f || strchr("\\;%?#", c) || (escaped ? c == '/' || c == '.' : c >= 0x80);
}

static bool has_odd_segment(const char *path)
{
	for (const char *p = path; (p = strchr(p, '/')); p++) {
		size_t n = strcspn(p + 1, "/");
		if ((n == 0 && p[1]) || (n == 1 && p[1] == '.') || (n == 2 && p[1] == '.' && p[2] == '.'))
			return true;
	}
	return false;
}

char *path_plain(struct str path)
{
	char *plain = xmalloc(path.n + 1);
	size_t n = 0;
	bool good = path.n && path.p[0] == '/';

	for (size_t i = 0; good && i < path.n; i++) {
		bool escaped = path.p[i] == '%';
		int high = escaped && path.n - i > 2 ? hex_digit(path.p[i + 1]) : -1, low = high < 0 ? -1 : hex_digit(path.p[i + 2]);
		unsigned char c = (unsigned char)(low < 0 ? path.p[i] : high << 4 | low);
		good = (!escaped || low >= 0) && !is_odd(c, escaped);
		plain[n++] = (char)c;
		i += escaped ? 2 : 0;
	}
	plain[n] = '\0';
	if (good && !has_odd_segment(plain))
		return plain;
	free(plain);
	return NULL;
}

/* --- rules as text --- */

static int bad(const char *text, const char *what, struct err *e)
{
	return err_set(e, ERR_INVALID, EINVAL, "permissions: %s: %s", QUOTE(text), what);
}

static bool is_capital(struct str name)
{
	for (size_t i = 0; i < name.n; i++)
		if (!((name.p[i] >= 'A' && name.p[i] <= 'Z') || (name.p[i] >= '0' && name.p[i] <= '9') || name.p[i] == '-' || name.p[i] == '_'))
			return false;
	return name.n && name.n <= METHOD_NAME_MAX && name.p[0] >= 'A' && name.p[0] <= 'Z';
}

static int take_names(struct str list, struct method_rule *r, struct err *e)
{
	size_t n = 0;

	if (str_eqz(list, "*"))
		return 0;
	r->names = xcalloc(METHOD_NAMES_MAX + 1, sizeof *r->names);
	for (;;) {
		const char *comma = list.n ? memchr(list.p, ',', list.n) : NULL;
		struct str name = { list.p, comma ? (size_t)(comma - list.p) : list.n };
		if (!is_capital(name))
			return bad(r->text, "methods are written in capitals, with commas between: \"GET,HEAD\"; or \"*\", which is every method", e);
		if (str_eqz(name, "CONNECT") || str_eqz(name, "TRACE"))
			return bad(r->text, "CONNECT and TRACE are carried to no host that a rule about methods names: leave them out", e);
		if (n == METHOD_NAMES_MAX)
			return bad(r->text, "more than 16 methods: make two rules of it", e);
		r->names[n++] = xstrndup(name.p, name.n);
		if (!comma)
			return 0;
		list = (struct str){ comma + 1, list.n - name.n - 1 };
	}
}

static int take_path(struct str path, struct method_rule *r, struct err *e)
{
	bool star = path.p[path.n - 1] == '*';

	path.n -= star;
	if (memchr(path.p, '*', path.n))
		return bad(r->text, "a \"*\" stands at the end of a path only", e);
	r->path = path_plain(path);
	if (!r->path)
		return bad(r->text, "a path has no query, and nothing that could be read in two ways: no \"//\", \"..\", \";\", escaped \"/\" or \".\"", e);
	size_t n = strlen(r->path);
	bool below = path.p[path.n - 1] == '/'; /* "/v1/" and "/v1/<star>" are "/v1" */
	while (n > 1 && below && r->path[n - 1] == '/')
		r->path[--n] = '\0';
	r->open = star && !below;
	return 0;
}

static int take_target(struct str text, struct method_rule *r, struct err *e)
{
	int rc = rule_parse(text, &r->target, e);

	if (rc < 0) {
		err_prefix(e, "permissions: %s", QUOTE(r->text));
		return rc;
	}
	if (!r->target.is_name)
		return err_set(e, ERR_UNSUPPORTED, ENOTSUP, "permissions: %s: methods are looked at in what is sent to names: give a name, or deny the address", QUOTE(r->text));
	return 0;
}

static int parse(const char *text, struct method_rule *r, struct err *e)
{
	static const struct {
		const char *text;
		enum permit_verdict verdict;
	} heads[] = { { "allow method:", PERMIT_ALLOW }, { "ask method:", PERMIT_ASK }, { "deny method:", PERMIT_DENY } };
	size_t n = 0;

	r->text = xstrdup(text);
	if (strlen(text) >= METHOD_RULE_MAX)
		return bad(text, "a rule about methods has at most 511 bytes", e);
	for (size_t i = 0; i < ARRAY_LEN(heads); i++)
		if (strncmp(text, heads[i].text, strlen(heads[i].text)) == 0) {
			r->verdict = heads[i].verdict;
			n = strlen(heads[i].text);
		}
	const char *names = text + n, *space = n ? strchr(names, ' ') : NULL;
	if (!space || !space[1] || space[1] == '/')
		return bad(text, "a rule about methods is \"VERDICT method:METHODS HOST[PATH]\", as in \"deny method:POST,PUT api.example.org/v1\"", e);
	const char *slash = strchr(space, '/'), *host = space + 1;
	int rc = take_names((struct str){ names, (size_t)(space - names) }, r, e);
	if (rc == 0)
		rc = take_target((struct str){ host, slash ? (size_t)(slash - host) : strlen(host) }, r, e);
	return rc == 0 && slash ? take_path(str_of(slash), r, e) : rc;
}

int method_rule_parse(const char *text, struct method_rule *ret, struct err *e)
{
	struct method_rule r = { 0 };
	int rc = parse(text, &r, e);

	if (rc < 0)
		method_rule_done(&r);
	else
		*ret = r;
	return rc;
}

void method_rule_done(struct method_rule *r)
{
	strv_free(r->names);
	rule_done(&r->target);
	free(r->path);
	free(r->text);
	*r = (struct method_rule){ 0 };
}

int method_rules_add(struct method_rules *to, const char *text)
{
	struct method_rule r;
	struct err e;

	if (to->n >= PERMITS_MAX)
		return -E2BIG;
	if (method_rule_parse(text, &r, &e) < 0)
		return -EINVAL;
	to->v = xreallocarray(to->v, to->n + 1, sizeof *to->v);
	to->v[to->n++] = r;
	return 0;
}

void method_rules_done(struct method_rules *r)
{
	for (size_t i = 0; i < r->n; i++)
		method_rule_done(&r->v[i]);
	free(r->v);
	*r = (struct method_rules){ 0 };
}

/* --- judgement --- */

static bool is_about(const struct method_rule *r, const char *host, uint16_t port)
{
	const struct policy one = { .mode = NETWORK_ALLOW, .allow = (struct policy_rule *)(uintptr_t)&r->target, .n_allow = 1 };

	return policy_judge_name(&one, host, port, POLICY_TCP) != NULL;
}

static bool has_name(const struct method_rule *r, struct str method)
{
	for (char *const *n = r->names; n && *n; n++)
		if (str_eqz(method, *n))
			return true;
	return !r->names;
}

/* path NULL: none that could be below another one ("*"). */
static bool has_path(const struct method_rule *r, const char *path)
{
	size_t n = r->path ? strlen(r->path) : 0;

	if (!r->path || !path || strncmp(path, r->path, n) != 0)
		return !r->path;
	return r->open || path[n] == '\0' || path[n] == '/' || r->path[n - 1] == '/';
}

static void take_best(const struct method_rules *r, const char *host, uint16_t port, struct str method, const char *path, struct method_verdict *ret)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct method_rule *one = &r->v[i];
		if (is_about(one, host, port) && has_name(one, method) && has_path(one, path) && (!ret->rule || one->verdict > ret->verdict))
			*ret = (struct method_verdict){ one->verdict, one, NULL };
	}
}

bool method_judge(const struct method_rules *r, const char *host, uint16_t port, struct str method, struct str target, struct method_verdict *ret)
{
	const char *question = target.n ? memchr(target.p, '?', target.n) : NULL;
	struct str path = { target.p, question ? (size_t)(question - target.p) : target.n };
	bool about = false, only = false, paths = false;

	for (size_t i = 0; i < r->n; i++)
		if (is_about(&r->v[i], host, port)) {
			about = true;
			only |= r->v[i].verdict == PERMIT_ALLOW;
			paths |= r->v[i].path != NULL;
		}
	if (!about)
		return false;
	auto_free char *plain = paths ? path_plain(path) : NULL;
	*ret = (struct method_verdict){ only ? PERMIT_DENY : PERMIT_ALLOW, NULL, only ? "no rule allows it" : "no rule names it" };
	if (!is_capital(method))
		*ret = (struct method_verdict){ PERMIT_DENY, NULL, "a method that is not in capitals could be read as another one" };
	else if (paths && !plain && !str_eqz(path, "*"))
		*ret = (struct method_verdict){ PERMIT_DENY, NULL, "the path could be read in two ways, and there are rules about paths" };
	else
		take_best(r, host, port, method, plain, ret);
	return true;
}
