#include "egress/keyring.h"

#include <ctype.h>
#include <errno.h>

static void put(struct buf *out, const char *key, const char *value)
{
	if (value) {
		buf_addz(out, key);
		buf_addc(out, '=');
		(void)buf_add(out, value, strlen(value) + 1);
	}
}

static void put_list(struct buf *out, const char *key, char *const *v)
{
	for (; v && *v; v++)
		put(out, key, *v);
}

static void put_base64(struct buf *out, const char *key, struct str bytes)
{
	char *text = xmalloc(4 * ((bytes.n + 2) / 3) + 1);

	base64_encode(bytes.p, bytes.n, text);
	put(out, key, text);
	free_secret(text);
}

void keyring_put_authority(struct buf *out, struct str certificate_der, struct str key_der)
{
	put_base64(out, "certificate", certificate_der);
	put_base64(out, "signer", key_der);
}

void keyring_put_rule(struct buf *out, const char *text)
{
	put(out, "rule", text);
}

void keyring_put(struct buf *out, const char *id, const char *placeholder, const struct secret_spec *spec, const char *value)
{
	put(out, "secret", id);
	put(out, "placeholder", placeholder);
	put(out, "value", value);
	put_list(out, "host", spec->hosts);
	put_list(out, "header", spec->headers);
	put_list(out, "query", spec->query);
	put_list(out, "method", spec->methods);
	put_list(out, "path", spec->paths);
	put(out, "basic", spec->basic ? "1" : NULL);
	put(out, "aws", spec->aws_key_id);
}

static int append(char ***list, const char *text)
{
	size_t n = 0;

	while (*list && (*list)[n])
		n++;
	if (n >= SECRET_LIST_MAX)
		return -EINVAL;
	*list = xreallocarray(*list, n + 2, sizeof **list);
	(*list)[n] = xstrdup(text);
	(*list)[n + 1] = NULL;
	return 0;
}

static int set_once(char **to, const char *text)
{
	if (*to)
		return -EINVAL;
	*to = xstrdup(text);
	return 0;
}

static int begin_key(struct keyring *r, const char *id)
{
	if (r->n >= SECRETS_OF_SANDBOX_MAX || strlen(id) >= SECRET_ID_MAX)
		return -EINVAL;
	r->v = xreallocarray(r->v, r->n + 1, sizeof *r->v);
	r->v[r->n] = (struct key){ 0 };
	memcpy(r->v[r->n].id, id, strlen(id) + 1);
	r->n++;
	return 0;
}

static int take_pair(struct keyring *r, const char *key, const char *value)
{
	struct key *k = r->n ? &r->v[r->n - 1] : NULL;

	if (streq(key, "certificate"))
		return set_once(&r->certificate, value);
	if (streq(key, "signer"))
		return set_once(&r->signer, value);
	if (streq(key, "rule"))
		return method_rules_add(&r->rules, value);
	if (streq(key, "secret"))
		return begin_key(r, value);
	if (!k)
		return -EINVAL;
	if (streq(key, "placeholder"))
		return set_once(&k->placeholder, value);
	if (streq(key, "value"))
		return set_once(&k->spec.value, value);
	if (streq(key, "aws"))
		return set_once(&k->spec.aws_key_id, value);
	if (streq(key, "host"))
		return append(&k->spec.hosts, value);
	if (streq(key, "header"))
		return append(&k->spec.headers, value);
	if (streq(key, "query"))
		return append(&k->spec.query, value);
	if (streq(key, "method"))
		return append(&k->spec.methods, value);
	if (streq(key, "path"))
		return append(&k->spec.paths, value);
	if (!streq(key, "basic"))
		return -EINVAL;
	k->spec.basic = true;
	return 0;
}

/* --- forms --- */

char *query_encoded(const char *value)
{
	struct buf out;

	buf_init(&out, 3 * SECRET_VALUE_MAX + 1);
	for (const char *c = value; *c; c++)
		if (isalnum((unsigned char)*c) || strchr("-._~", *c))
			buf_addc(&out, *c);
		else
			buf_addf(&out, "%%%02X", (unsigned char)*c);
	return buf_take(&out);
}

static void add_form(struct keyring *r, const char *text, size_t n)
{
	r->forms = xreallocarray(r->forms, r->n_forms + 1, sizeof *r->forms);
	r->forms[r->n_forms++] = (struct str){ xstrndup(text, n), n };
	r->longest = MAX(r->longest, n);
}

/* What stands before it in Basic credentials shifts it by none, one or two bytes; what of the code depends on the value alone. */
static void add_coded(struct keyring *r, const char *value, size_t n)
{
	char *plain = xcalloc(n + 2, 1), *coded = xmalloc(4 * ((n + 4) / 3) + 1);

	for (size_t shift = 0; shift < 3; shift++) {
		memcpy(plain + shift, value, n);
		base64_encode(plain, n + shift, coded);
		size_t from = (8 * shift + 5) / 6, to = 8 * (n + shift) / 6;
		add_form(r, coded + from, to - from);
	}
	explicit_bzero(plain, n + 2);
	explicit_bzero(coded, 4 * ((n + 4) / 3) + 1);
	free(plain);
	free(coded);
}

static void make_forms(struct keyring *r)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct secret_spec *spec = &r->v[i].spec;
		size_t n = strlen(spec->value);
		if (n < SECRET_MASK_MIN)
			continue;
		add_form(r, spec->value, n);
		char *encoded = spec->query ? query_encoded(spec->value) : NULL;
		if (encoded && !streq(encoded, spec->value))
			add_form(r, encoded, strlen(encoded));
		free_secret(encoded);
		if (spec->basic)
			add_coded(r, spec->value, n);
	}
}

static int finish_keys(struct keyring *r)
{
	struct err e;

	for (size_t i = 0; i < r->n; i++) {
		struct key *k = &r->v[i];
		if (!k->placeholder || !secret_placeholder_valid(str_of(k->placeholder)) || !k->spec.value || secret_value_check(k->spec.value, &e) < 0 ||
		    policy_parse(NETWORK_ALLOW, k->spec.hosts, NULL, &k->hosts, &e) < 0)
			return -EINVAL;
	}
	make_forms(r);
	return (r->n == 0 && r->rules.n == 0) || (r->certificate && r->signer) ? 0 : -EINVAL;
}

int keyring_parse(const char *text, size_t n, struct keyring *ret)
{
	struct keyring r = { 0 };
	const char *p = text, *end = text + n;
	int rc = n == 0 || end[-1] == '\0' ? 0 : -EINVAL;
	char key[16];

	while (rc == 0 && p < end) {
		const char *equals = strchr(p, '=');
		size_t len = equals ? (size_t)(equals - p) : 0;
		if (!equals || len >= sizeof key) {
			rc = -EINVAL;
			break;
		}
		memcpy(key, p, len);
		key[len] = '\0';
		rc = take_pair(&r, key, equals + 1);
		p += strlen(p) + 1;
	}
	if (rc == 0)
		rc = finish_keys(&r);
	if (rc < 0)
		keyring_done(&r);
	else
		*ret = r;
	return rc;
}

void keyring_done(struct keyring *k)
{
	for (size_t i = 0; i < k->n; i++) {
		free(k->v[i].placeholder);
		secret_spec_done(&k->v[i].spec);
		policy_done(&k->v[i].hosts);
	}
	for (size_t i = 0; i < k->n_forms; i++) {
		explicit_bzero((char *)(uintptr_t)k->forms[i].p, k->forms[i].n);
		free((char *)(uintptr_t)k->forms[i].p);
	}
	free(k->forms);
	method_rules_done(&k->rules);
	free(k->v);
	free(k->certificate);
	free_secret(k->signer);
	*k = (struct keyring){ 0 };
}

bool key_is_for(const struct key *k, const char *name, uint16_t port)
{
	return policy_judge_name(&k->hosts, name, port, POLICY_TCP) != NULL;
}
