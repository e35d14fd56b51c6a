#include "model/secret.h"

#include "wire/http.h"

#include <ctype.h>
#include <errno.h>

#define PLACEHOLDER_PREFIX "caisson-placeholder-"
#define PLACEHOLDER_DIGITS 64

void secret_spec_done(struct secret_spec *s)
{
	free(s->name);
	free(s->description);
	free_secret(s->value);
	strv_free(s->hosts);
	strv_free(s->headers);
	strv_free(s->query);
	strv_free(s->methods);
	strv_free(s->paths);
	free(s->aws_key_id);
	*s = (struct secret_spec){ 0 };
}

void secret_spec_copy(struct secret_spec *to, const struct secret_spec *from)
{
	*to = (struct secret_spec){
		.name = xstrdup(from->name),
		.description = xstrdup(from->description),
		.hosts = strv_copy(from->hosts),
		.headers = strv_copy(from->headers),
		.query = strv_copy(from->query),
		.methods = strv_copy(from->methods),
		.paths = strv_copy(from->paths),
		.basic = from->basic,
		.git = from->git,
		.aws_key_id = xstrdup(from->aws_key_id),
	};
}

bool secret_placeholder_valid(struct str s)
{
	const size_t head = sizeof PLACEHOLDER_PREFIX - 1;

	if (s.n != head + PLACEHOLDER_DIGITS || memcmp(s.p, PLACEHOLDER_PREFIX, head) != 0)
		return false;
	for (size_t i = head; i < s.n; i++)
		if (!memchr("0123456789abcdef", s.p[i], 16))
			return false;
	return true;
}

/* --- validation --- */

static int bad(struct err *e, const char *field, const char *value, const char *what)
{
	return err_set(e, ERR_INVALID, EINVAL, "%s: %s: %s", field, str_quote(str_of(value), &(struct quoted){ 0 }), what);
}

int secret_value_check(const char *value, struct err *e)
{
	struct str v = str_of(value);

	if (v.n == 0)
		return err_set(e, ERR_INVALID, EINVAL, "value: it is empty; give 1 to %d bytes", SECRET_VALUE_MAX);
	if (v.n > SECRET_VALUE_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "value: %zu bytes; at most %d are allowed", v.n, SECRET_VALUE_MAX);
	/* It goes into the head of a request: a line break in it would be a second field. The message does not quote it. */
	if (!http_value_ok(v) || http_trim(v).n != v.n)
		return err_set(e, ERR_INVALID, EINVAL, "value: line breaks, other control characters and blanks at its ends are not allowed");
	return 0;
}

/* To its canonical text, which has a port. */
static int check_host(char **host, struct err *e)
{
	struct policy_rule r = { 0 };
	char text[POLICY_TEXT_MAX];

	int rc = rule_parse(str_of(*host), &r, e);
	if (rc < 0) {
		err_prefix(e, "hosts");
		return rc;
	}
	if (!r.is_name || r.raw || r.proto != POLICY_TCP)
		rc = bad(e, "hosts", *host, "a name is needed, perhaps with a port: TLS proves names");
	else if (r.wildcard && !strchr(r.name, '.'))
		rc = bad(e, "hosts", *host, "so many hosts are not meant to get one secret; at least \"*.example.org\"");
	if (rc == 0 && r.n_ports == 0) {
		r.n_ports = 1;
		r.ports[0].low = r.ports[0].high = 443;
	}
	if (rc == 0) {
		free(*host);
		*host = xstrdup(rule_format(&r, text));
	}
	rule_done(&r);
	return rc;
}

/* What frames a message or leads it elsewhere is nobody's to fill in. */
static bool header_usable(struct str name)
{
	static const char *const ours[] = { "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect",
					    "keep-alive", "proxy-authorization", "proxy-connection" };

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (str_eq_nocase(name, str_of(ours[i])))
			return false;
	return http_is_token(name);
}

static int check_header(char **name, struct err *e)
{
	if (streq(*name, "*") || header_usable(str_of(*name)))
		return 0;
	return bad(e, "headers", *name, http_is_token(str_of(*name)) ? "it frames or leads a message; give another field, such as X-Api-Key"
								     : "not the name of a field; give one such as X-Api-Key, or \"*\" for all");
}

#define QUERY_FORM "not the name of a parameter; give letters, digits, '_', '-', '.' and '~'"

static int check_query(char **name, struct err *e)
{
	for (const char *p = *name; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("_-.~", *p))
			return bad(e, "query", *name, QUERY_FORM);
	return **name ? 0 : bad(e, "query", *name, QUERY_FORM);
}

static int check_method(char **name, struct err *e)
{
	for (char *p = *name; *p; p++)
		*p = (char)toupper((unsigned char)*p);
	if (!http_is_token(str_of(*name)) || strlen(*name) > HTTP_MAX_METHOD || streq(*name, "CONNECT") || streq(*name, "TRACE"))
		return err_set(e, ERR_INVALID, EINVAL, "methods: %s: not a method that is carried; give one such as GET, of at most %d letters, but not CONNECT or TRACE",
			       str_quote(str_of(*name), &(struct quoted){ 0 }), HTTP_MAX_METHOD);
	return 0;
}

/* Only what has one spelling: a prefix that can be written in two ways is compared wrongly in one of them. */
static int check_path(char **path, struct err *e)
{
	const char *p = *path;

	if (*p != '/' || strstr(p, "//") || strstr(p, "/./") || strstr(p, "/../"))
		return bad(e, "paths", p, "give an absolute path without empty, '.' and '..' segments");
	for (; *p; p++)
		if (!isgraph((unsigned char)*p) || strchr("?#%\\;", *p))
			return bad(e, "paths", *path, "give printable ASCII without '?', '#', '%', ';' and '\\'");
	return 0;
}

static int check_list(const char *field, char **v, int (*check)(char **one, struct err *e), struct err *e)
{
	size_t n = 0;

	while (v && v[n])
		n++;
	if (n > SECRET_LIST_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "%s: %zu entries; at most %d are allowed", field, n, SECRET_LIST_MAX);
	for (size_t i = 0; i < n; i++) {
		if (strlen(v[i]) > SECRET_TEXT_MAX)
			return err_set(e, ERR_TOO_LARGE, E2BIG, "%s[%zu]: %zu bytes; at most %d are allowed", field, i, strlen(v[i]), SECRET_TEXT_MAX);
		int rc = check(&v[i], e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static char **one_text(const char *text)
{
	char **v = xcalloc(2, sizeof *v);

	v[0] = xstrdup(text);
	return v;
}

static bool acts_on_terminal(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (((unsigned char)s.p[i] < 0x20 && s.p[i] != '\n' && s.p[i] != '\t') || s.p[i] == 0x7f)
			return true;
	return false;
}

static int check_words(struct secret_spec *s, struct err *e)
{
	if (!s->name || !sandbox_name_valid(str_of(s->name)))
		return err_set(e, ERR_INVALID, EINVAL, "name: %s is not a secret's name; use 1 to %d letters, digits, '_', '.' and '-', with a letter or digit at both ends",
			       str_quote(str_of(s->name ? s->name : ""), &(struct quoted){ 0 }), SPEC_NAME_MAX);
	struct str d = str_of(s->description);
	if (d.n > SECRET_DESCRIPTION_MAX || (d.n && !utf8_valid(d)) || acts_on_terminal(d))
		return err_set(e, ERR_INVALID, EINVAL, "description: %zu bytes; give at most %d of UTF-8 without control characters but line breaks and tabs", d.n, SECRET_DESCRIPTION_MAX);
	if (!s->aws_key_id)
		return 0;
	size_t n = strlen(s->aws_key_id);
	bool good = n >= 4 && n <= 128;
	for (const char *p = s->aws_key_id; *p; p++)
		good = good && isalnum((unsigned char)*p);
	return good ? 0 : bad(e, "aws_key_id", s->aws_key_id, "not the id of an access key; give 4 to 128 letters and digits, such as AKIAIOSFODNN7EXAMPLE");
}

int secret_spec_check(struct secret_spec *s, bool need_value, struct err *e)
{
	int rc = check_words(s, e);

	if (rc == 0 && (s->value || need_value))
		rc = s->value ? secret_value_check(s->value, e) : err_set(e, ERR_INVALID, EINVAL, "value: it is missing; give 1 to %d bytes", SECRET_VALUE_MAX);
	if (rc == 0 && (!s->hosts || !s->hosts[0]))
		rc = err_set(e, ERR_INVALID, EINVAL, "hosts: name at least one; a secret that may go nowhere is of no use");
	if (rc < 0 || (rc = check_list("hosts", s->hosts, check_host, e)) < 0 || (rc = check_list("headers", s->headers, check_header, e)) < 0 ||
	    (rc = check_list("query", s->query, check_query, e)) < 0 || (rc = check_list("methods", s->methods, check_method, e)) < 0 ||
	    (rc = check_list("paths", s->paths, check_path, e)) < 0)
		return rc;
	s->basic = s->basic || s->git;
	bool somewhere = s->basic || s->aws_key_id || (s->headers && s->headers[0]) || (s->query && s->query[0]);
	if (!somewhere) {
		strv_free(s->headers);
		s->headers = one_text("Authorization");
		s->basic = true;
	}
	return 0;
}
