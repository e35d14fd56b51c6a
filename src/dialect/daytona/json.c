/* Strict reading and careful writing of JSON, path and query values. */
#include "dialect/daytona/internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#define PAIRS_MAX 1024 /* more than any verb takes; adding one is linear in their number */

void put(json_t *object, const char *key, json_t *take)
{
	if (take)
		json_object_set_new(object, key, take);
}

json_t *text_json(struct str s)
{
	if (s.n == 0)
		return json_string("");
	if (utf8_valid(s))
		return json_stringn_nocheck(s.p, s.n);
	size_t n;
	auto_free char *text = utf8_repaired(s, &n);
	return json_stringn_nocheck(text, n);
}

json_t *textz_json(const char *z)
{
	return z ? text_json(str_of(z)) : json_null();
}

json_t *time_json(uint64_t unix_ms)
{
	char text[25];
	format_iso8601(unix_ms, text);
	return json_string(text);
}

json_t *number_json(double v)
{
	if (v >= -9e15 && v <= 9e15 && v == floor(v))
		return json_integer((json_int_t)v);
	return json_real(v);
}

json_t *pairs_json(const struct pairs *p)
{
	json_t *o = json_object();
	for (size_t i = 0; i < p->n; i++)
		put(o, p->v[i].key, textz_json(p->v[i].value));
	return o;
}

json_t *body_object(const struct request *r, struct err *e)
{
	struct str body = req_body(r);
	if (body.n == 0)
		return json_object();
	json_error_t why;
	json_t *o = json_loadb(body.p, body.n, JSON_REJECT_DUPLICATES, &why);
	if (!o) {
		err_set(e, ERR_INVALID, EINVAL, "the body is not valid JSON: %s (line %d, column %d)", why.text, why.line, why.column);
		return NULL;
	}
	if (!json_is_object(o)) {
		json_decref(o);
		err_set(e, ERR_INVALID, EINVAL, "the body must be a JSON object");
		return NULL;
	}
	return o;
}

static const json_t *member(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	return v && !json_is_null(v) ? v : NULL;
}

static int wrong(struct err *e, const char *key, const char *want)
{
	return err_set(e, ERR_INVALID, EINVAL, "%s must be %s", key, want);
}

int want_text(const json_t *o, const char *key, const char **ret, struct err *e)
{
	const json_t *v = member(o, key);
	if (!v)
		return 0;
	if (!json_is_string(v))
		return wrong(e, key, "a string");
	*ret = json_string_value(v);
	return 1;
}

int want_bool(const json_t *o, const char *key, bool *ret, struct err *e)
{
	const json_t *v = member(o, key);
	if (!v)
		return 0;
	if (!json_is_boolean(v))
		return wrong(e, key, "true or false");
	*ret = json_is_true(v);
	return 1;
}

int want_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *ret, struct err *e)
{
	const json_t *v = member(o, key);
	if (!v)
		return 0;
	/* JavaScript and Python may write a whole number as 5.0. */
	double d = json_is_number(v) ? json_number_value(v) : 0.5;
	if (d != floor(d))
		return wrong(e, key, "a whole number");
	if (d < (double)min || d > (double)max)
		return err_set(e, ERR_INVALID, ERANGE, "%s must be between %lld and %lld", key, (long long)min, (long long)max);
	*ret = (int64_t)d;
	return 1;
}

int want_number(const json_t *o, const char *key, double min, double max, double *ret, struct err *e)
{
	const json_t *v = member(o, key);
	if (!v)
		return 0;
	if (!json_is_number(v))
		return wrong(e, key, "a number");
	double d = json_number_value(v);
	if (!(d >= min && d <= max))
		return err_set(e, ERR_INVALID, ERANGE, "%s must be between %g and %g", key, min, max);
	*ret = d;
	return 1;
}

int want_pairs(const json_t *o, const char *key, struct pairs *ret, struct err *e)
{
	const json_t *v = member(o, key);
	if (!v)
		return 0;
	if (!json_is_object(v))
		return wrong(e, key, "an object of strings");
	if (json_object_size(v) > PAIRS_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "%s has more than %d members", key, PAIRS_MAX);
	const char *name;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)v, name, value) {
		if (!json_is_string(value))
			return err_set(e, ERR_INVALID, EINVAL, "%s.%.64s must be a string", key, name);
		pairs_add(ret, name, json_string_value(value));
	}
	return 1;
}

int want_array(const json_t *o, const char *key, const json_t **ret, struct err *e)
{
	const json_t *v = member(o, key);
	if (!v)
		return 0;
	if (!json_is_array(v))
		return wrong(e, key, "an array");
	*ret = v;
	return 1;
}

int want_texts(const json_t *o, const char *key, char ***ret, struct err *e)
{
	const json_t *v = NULL;
	int rc = want_array(o, key, &v, e);
	if (rc <= 0)
		return rc;
	size_t n = json_array_size(v);
	char **texts = xcalloc(n + 1, sizeof(*texts));
	for (size_t i = 0; i < n; i++) {
		const json_t *item = json_array_get(v, i);
		if (!json_is_string(item)) {
			texts_free(texts);
			return wrong(e, key, "an array of strings");
		}
		texts[i] = xstrdup(json_string_value(item));
	}
	*ret = texts;
	return 1;
}

void texts_free(char **v)
{
	for (size_t i = 0; v && v[i]; i++)
		free(v[i]);
	free(v);
}

int parse_int(const char *field, const char *text, int64_t min, int64_t max, int64_t *ret, struct err *e)
{
	bool negative = *text == '-';
	uint64_t value;
	if (parse_u64(str_of(text + negative), INT64_MAX, &value) < 0)
		return wrong(e, field, "a whole number");
	int64_t v = negative ? -(int64_t)value : (int64_t)value;
	if (v < min || v > max)
		return err_set(e, ERR_INVALID, ERANGE, "%s must be between %lld and %lld", field, (long long)min, (long long)max);
	*ret = v;
	return 0;
}

int parse_bool(const char *field, const char *text, bool *ret, struct err *e)
{
	if (!streq(text, "true") && !streq(text, "false"))
		return wrong(e, field, "true or false");
	*ret = streq(text, "true");
	return 0;
}

int query_mode(const struct request *r, const char *name, uint32_t *ret, struct err *e)
{
	const char *text = req_query(r, name);
	if (!text || !*text)
		return 0;
	uint32_t mode = 0;
	size_t i;
	for (i = 0; text[i] >= '0' && text[i] <= '7' && i < 6; i++)
		mode = mode * 8 + (uint32_t)(text[i] - '0');
	if (text[i] || mode > 07777)
		return err_set(e, ERR_INVALID, EINVAL, "%s must be octal permission bits such as 644 or 0755", name);
	*ret = mode;
	return 1;
}

int query_required(const struct request *r, const char *name, const char **ret, struct err *e)
{
	const char *text = req_query(r, name);
	if (!text || !*text)
		return err_set(e, ERR_INVALID, EINVAL, "query parameter %s is required", name);
	*ret = text;
	return 0;
}
