/* Rows of secrets, and of the authority. No value is seen here: only what the vault made of it. */
#include "store/store_int.h"

#include <errno.h>
#include <jansson.h>

void secret_row_done(struct secret_row *r)
{
	free(r->id);
	free(r->tenant);
	free(r->placeholder);
	secret_spec_done(&r->spec);
	free(r->sealed);
	*r = (struct secret_row){ 0 };
}

/* --- where it may go, as JSON --- */

static const struct {
	const char *key;
	size_t offset;
} lists[] = {
	{ "hosts", offsetof(struct secret_spec, hosts) },     { "headers", offsetof(struct secret_spec, headers) },
	{ "query", offsetof(struct secret_spec, query) },     { "methods", offsetof(struct secret_spec, methods) },
	{ "paths", offsetof(struct secret_spec, paths) },
};

static char ***list_at(struct secret_spec *s, size_t i)
{
	return (char ***)(void *)((char *)s + lists[i].offset);
}

static char *to_json(const struct secret_spec *spec)
{
	struct secret_spec copy = *spec; /* to be read only */
	json_t *o = json_pack("{s:s,s:s?,s:s?,s:b,s:b}", "name", spec->name, "description", spec->description, "aws_key_id", spec->aws_key_id,
			      "basic", (int)spec->basic, "git", (int)spec->git);
	bool ok = o;

	for (size_t i = 0; ok && i < ARRAY_LEN(lists); i++) {
		json_t *list = json_array();
		for (char *const *v = *list_at(&copy, i); v && *v; v++)
			ok = ok && json_array_append_new(list, json_string(*v)) == 0;
		ok = json_object_set_new(o, lists[i].key, list) == 0 && ok;
	}
	char *text = ok ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

static char **get_list(const json_t *list)
{
	size_t n = json_array_size(list);
	char **v = n ? xcalloc(n + 1, sizeof *v) : NULL;

	for (size_t i = 0; i < n; i++) {
		const char *text = json_string_value(json_array_get(list, i));
		v[i] = xstrdup(text ? text : "");
	}
	return v;
}

/* A list that is not one is no reason to let the secret go further than it may: then it is not taken at all. */
static int from_json(const char *json, struct secret_spec *ret)
{
	json_t *o = json_loads(json ? json : "", JSON_REJECT_DUPLICATES, NULL);
	int rc = json_is_object(o) ? 0 : -EINVAL;

	for (size_t i = 0; rc == 0 && i < ARRAY_LEN(lists); i++) {
		const json_t *list = json_object_get(o, lists[i].key);
		rc = json_is_array(list) ? 0 : -EINVAL;
		*list_at(ret, i) = get_list(list);
	}
	ret->name = xstrdup(json_string_value(json_object_get(o, "name")));
	ret->description = xstrdup(json_string_value(json_object_get(o, "description")));
	ret->aws_key_id = xstrdup(json_string_value(json_object_get(o, "aws_key_id")));
	ret->basic = json_is_true(json_object_get(o, "basic"));
	ret->git = json_is_true(json_object_get(o, "git"));
	json_decref(o);
	return rc == 0 && ret->name ? 0 : -EINVAL;
}

/* --- rows --- */

int store_secret_put(struct store *s, const struct secret_row *r, struct err *e)
{
	auto_free char *spec = to_json(&r->spec);

	if (!spec)
		return err_set(e, ERR_INVALID, EILSEQ, "the secret holds text that is not UTF-8");
	struct cursor c = store_statement(s, ST_SECRET_PUT);
	put_text(&c, r->id);
	put_text(&c, r->tenant);
	put_text(&c, r->spec.name);
	put_text(&c, r->placeholder);
	put_text(&c, spec);
	put_blob(&c, r->sealed, r->sealed_len);
	put_u64(&c, r->created_ms);
	put_u64(&c, r->updated_ms);
	int rc = store_write_synced(s, c);
	if (rc == -EEXIST)
		return err_set(e, ERR_CONFLICT, EEXIST, "name: a secret '%s' exists already", r->spec.name);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "can't store the secret") : 0;
}

int store_secret_delete(struct store *s, const char *id)
{
	struct cursor c = store_statement(s, ST_SECRET_DELETE);

	put_text(&c, id);
	int r = store_write_synced(s, c);
	return r == -ENOENT ? 0 : r;
}

struct secret_walk {
	int (*each)(void *ctx, struct secret_row *r);
	void *ctx;
};

static int walk_secret(void *ctx, struct cursor *c)
{
	struct secret_walk *w = ctx;
	struct secret_row row = { 0 };
	int rc = 0;

	row.id = get_text(c);
	row.tenant = get_text(c);
	row.placeholder = get_text(c);
	auto_free char *spec = get_text(c);
	row.sealed = get_blob(c, &row.sealed_len);
	row.created_ms = get_u64(c);
	row.updated_ms = get_u64(c);
	if (from_json(spec, &row.spec) == 0) /* else of a later version: not ours to understand */
		rc = w->each(w->ctx, &row);
	secret_row_done(&row);
	return rc;
}

int store_secret_each(struct store *s, int (*each)(void *ctx, struct secret_row *r), void *ctx)
{
	return store_walk(s, "SELECT id, tenant, placeholder, spec, sealed, created_ms, updated_ms FROM secrets ORDER BY created_ms, id", NULL, walk_secret,
			  &(struct secret_walk){ each, ctx });
}

int store_authority_get(struct store *s, uint8_t **ret_certificate, size_t *ret_n, uint8_t **ret_sealed, size_t *ret_sealed_n)
{
	struct cursor c = store_statement(s, ST_AUTHORITY_GET);
	int rc = store_get(s, &c);

	if (rc == 0) {
		*ret_certificate = get_blob(&c, ret_n);
		*ret_sealed = get_blob(&c, ret_sealed_n);
	}
	store_got(c);
	return rc;
}

int store_authority_put(struct store *s, struct str certificate, struct str sealed)
{
	struct cursor c = store_statement(s, ST_AUTHORITY_PUT);

	put_blob(&c, certificate.p, certificate.n);
	put_blob(&c, sealed.p, sealed.n);
	return store_write_synced(s, c);
}
