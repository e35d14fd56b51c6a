/* Arguments against a tool's schema: one place where a wrong one is said, in words that a model can act on. */
#include "dialect/mcp/internal.h"

#include <errno.h>

static int bad_type(const char *name, const char *want, struct err *e)
{
	return err_set(e, ERR_INVALID, EINVAL, "argument \"%s\" must be %s", name, want);
}

static int check_text(const char *name, const json_t *schema, const json_t *v, struct err *e)
{
	const json_t *choices = json_object_get(schema, "enum"), *choice;
	auto_buf struct buf all;
	size_t i;

	buf_init(&all, 400);
	if (!json_is_string(v))
		return bad_type(name, "a string", e);
	if ((json_int_t)json_string_length(v) < json_integer_value(json_object_get(schema, "minLength")))
		return err_set(e, ERR_INVALID, EINVAL, "argument \"%s\" must not be empty", name);
	json_array_foreach (choices, i, choice) {
		if (json_equal(choice, v))
			return 0;
		buf_addf(&all, "%s\"%s\"", i ? ", " : "", json_string_value(choice));
	}
	return choices ? err_set(e, ERR_INVALID, EINVAL, "argument \"%s\" must be one of %s", name, all.data) : 0;
}

static int check_number(const char *name, const json_t *schema, const json_t *v, bool whole, struct err *e)
{
	double n = json_number_value(v), min = json_number_value(json_object_get(schema, "minimum")),
	       max = json_number_value(json_object_get(schema, "maximum"));

	if (!json_is_number(v) || (whole && !json_is_integer(v)))
		return bad_type(name, whole ? "an integer" : "a number", e);
	return n < min || n > max ? err_set(e, ERR_INVALID, ERANGE, "argument \"%s\" must be %.15g to %.15g", name, min, max) : 0;
}

static int check_texts(const char *name, const json_t *v, struct err *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return bad_type(name, "an object of strings", e);
	json_object_foreach ((json_t *)(uintptr_t)v, key, value)
		if (!json_is_string(value))
			return bad_type(name, "an object of strings", e);
	return 0;
}

static int check_one(const char *name, const json_t *schema, const json_t *v, struct err *e)
{
	const char *type = json_string_value(json_object_get(schema, "type"));

	if (streq(type, "string"))
		return check_text(name, schema, v, e);
	if (streq(type, "integer") || streq(type, "number"))
		return check_number(name, schema, v, streq(type, "integer"), e);
	if (streq(type, "boolean"))
		return json_is_boolean(v) ? 0 : bad_type(name, "true or false", e);
	return check_texts(name, v, e);
}

static int unknown(const char *name, const json_t *known, struct err *e)
{
	struct quoted q;
	auto_buf struct buf all;
	const char *key;
	json_t *value;

	buf_init(&all, 300);
	json_object_foreach ((json_t *)(uintptr_t)known, key, value)
		buf_addf(&all, "%s%s", all.len ? ", " : "", key);
	return err_set(e, ERR_INVALID, EINVAL, "there is no argument %s; there are: %s", str_quote(str_of(name), &q), all.data);
}

int schema_check(const json_t *schema, const json_t *args, struct err *e)
{
	const json_t *known = json_object_get(schema, "properties"), *required = json_object_get(schema, "required"), *name;
	const char *key;
	json_t *value;
	size_t i;

	json_object_foreach ((json_t *)(uintptr_t)args, key, value) {
		const json_t *one = json_object_get(known, key);
		int rc = !one ? unknown(key, known, e) : json_is_null(value) ? 0 : check_one(key, one, value, e); /* null: left out */
		if (rc < 0)
			return rc;
	}
	json_array_foreach (required, i, name) {
		const json_t *v = json_object_get(args, json_string_value(name));
		if (!v || json_is_null(v))
			return err_set(e, ERR_INVALID, EINVAL, "argument \"%s\" is required", json_string_value(name));
	}
	return 0;
}
