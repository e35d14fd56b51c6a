#include "dialect/native/decode.h"

#include "base/buf.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>

enum { WHERE = 160 };

static const char *type_name(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "an array";
	case JSON_STRING:
		return "a string";
	case JSON_INTEGER:
		return "an integer";
	case JSON_REAL:
		return "a number with a fraction";
	case JSON_TRUE:
	case JSON_FALSE:
		return "a boolean";
	case JSON_NULL:
		return "null (leave the field out instead)";
	}
	return "something else";
}

static int wrong_type(const char *where, const char *want, const json_t *got, struct err *e)
{
	return err_set(e, ERR_INVALID, EINVAL, "%s must be %s, and is %s", where, want, type_name(got));
}

/* A name of the client's for a message: cut, at a character. */
static void quote(const char *name, size_t max, char ret_text[static WHERE])
{
	size_t n = strnlen(name, max + 1);
	if (n > max)
		for (n = max; n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80;)
			n--;
	snprintf(ret_text, WHERE, "%.*s%s", (int)n, name, name[n] ? "..." : "");
	for (char *p = ret_text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
}

static int unknown(const char *what, const char *prefix, const char *name, const struct field *fields, struct err *e)
{
	char text[WHERE];
	auto_buf struct buf known;
	buf_init(&known, 300);
	for (const struct field *f = fields; f->name; f++)
		buf_addf(&known, "%s%s", known.len ? ", " : "", f->name);
	quote(name, 80, text);
	if (!known.len)
		return err_set(e, ERR_INVALID, EINVAL, "unknown %s \"%s%s\": none is known here", what, prefix, text);
	return err_set(e, ERR_INVALID, EINVAL, "unknown %s \"%s%s\"; known here: %s%s", what, prefix, text, known.data, known.overflow ? ", ..." : "");
}

/* 1.0 is an integer to JSON Schema, so also here. */
static bool whole_number(const json_t *v, int64_t *ret)
{
	if (json_is_integer(v)) {
		*ret = json_integer_value(v);
		return true;
	}
	double d = json_is_real(v) ? json_real_value(v) : 0.5;
	if (d != floor(d) || fabs(d) > 9007199254740992.0)
		return false;
	*ret = (int64_t)d;
	return true;
}

/* Of an integer. */
static double max_of(const struct field *f)
{
	return f->max != 0 ? f->max : f->kind == FIELD_U16 ? UINT16_MAX : 9.2e18;
}

static int out_of_range(const char *where, const char *got, double min, double max, struct err *e)
{
	return err_set(e, ERR_INVALID, ERANGE, "%s is %s, and must be %.10g to %.10g", where, got, min, max);
}

static int set_integer(const struct field *f, void *at, const char *where, const json_t *v, struct err *e)
{
	int64_t n;
	char text[32];
	if (!whole_number(v, &n))
		return wrong_type(where, "an integer", v, e);
	if ((double)n < f->min || (double)n > max_of(f)) {
		snprintf(text, sizeof text, "%" PRId64, n);
		return out_of_range(where, text, f->min, max_of(f), e);
	}
	if (f->kind == FIELD_U16)
		*(uint16_t *)at = (uint16_t)n;
	else if (f->kind == FIELD_U64)
		*(uint64_t *)at = (uint64_t)n;
	else
		*(int64_t *)at = n;
	return 0;
}

static int set_number(const struct field *f, void *at, const char *where, const json_t *v, struct err *e)
{
	char text[32];
	if (!json_is_number(v))
		return wrong_type(where, "a number", v, e);
	double d = json_number_value(v);
	if (d < f->min || (f->max != 0 && d > f->max)) {
		snprintf(text, sizeof text, "%.10g", d);
		return out_of_range(where, text, f->min, f->max, e);
	}
	*(double *)at = d;
	return 0;
}

static int set_strings(void *at, const char *where, const json_t *v, struct err *e)
{
	char ***to = at;
	size_t n = json_array_size(v);
	if (!json_is_array(v))
		return wrong_type(where, "an array of strings", v, e);
	for (size_t i = 0; i < n; i++)
		if (!json_is_string(json_array_get(v, i)))
			return err_set(e, ERR_INVALID, EINVAL, "%s: element %zu must be a string, and is %s", where, i, type_name(json_array_get(v, i)));
	*to = xcalloc(n + 1, sizeof **to);
	for (size_t i = 0; i < n; i++)
		(*to)[i] = xstrdup(json_string_value(json_array_get(v, i)));
	return 0;
}

static int set_pairs(void *at, const char *where, const json_t *v, struct err *e)
{
	const char *key;
	json_t *value;
	if (!json_is_object(v))
		return wrong_type(where, "an object of strings", v, e);
	if (json_object_size(v) > SPEC_ENV_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "%s has %zu entries; at most %d are allowed", where, json_object_size(v), SPEC_ENV_MAX);
	json_object_foreach((json_t *)(uintptr_t)v, key, value) {
		char name[WHERE];
		quote(key, 80, name);
		if (!json_is_string(value))
			return err_set(e, ERR_INVALID, EINVAL, "%s: the value of \"%s\" must be a string, and is %s", where, name, type_name(value));
		pairs_add(at, key, json_string_value(value));
	}
	return 0;
}

static int decode_fields(const json_t *object, const char *what, const char *prefix, const struct field *fields, void *into, struct err *e);

static int set_field(const struct field *f, const char *what, const char *prefix, const json_t *v, void *into, struct err *e)
{
	char where[WHERE], deeper[WHERE];
	void *at = (char *)into + f->offset;
	snprintf(where, sizeof where, "%s \"%s%s\"", what, prefix, f->name);
	switch (f->kind) {
	case FIELD_STRING:
		if (!json_is_string(v))
			return wrong_type(where, "a string", v, e);
		free(*(char **)at); /* a default of the struct's init */
		*(char **)at = xstrdup(json_string_value(v));
		return 0;
	case FIELD_BOOL:
		if (!json_is_boolean(v))
			return wrong_type(where, "true or false", v, e);
		*(bool *)at = json_is_true(v);
		return 0;
	case FIELD_U64:
	case FIELD_I64:
	case FIELD_U16:
		return set_integer(f, at, where, v, e);
	case FIELD_NUMBER:
		return set_number(f, at, where, v, e);
	case FIELD_STRINGS:
		return set_strings(at, where, v, e);
	case FIELD_PAIRS:
		return set_pairs(at, where, v, e);
	case FIELD_OBJECT:
		if (!json_is_object(v))
			return wrong_type(where, "an object", v, e);
		snprintf(deeper, sizeof deeper, "%s%s.", prefix, f->name);
		return decode_fields(v, what, deeper, f->sub, at, e);
	case FIELD_CUSTOM:
		return f->set(into, where, v, e);
	}
	return -EINVAL;
}

static int decode_fields(const json_t *object, const char *what, const char *prefix, const struct field *fields, void *into, struct err *e)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)object, key, value) {
		const struct field *f = fields;
		while (f->name && strcmp(f->name, key) != 0)
			f++;
		if (!f->name)
			return unknown(what, prefix, key, fields, e);
		int rc = set_field(f, what, prefix, value, into, e);
		if (rc < 0)
			return rc;
	}
	for (const struct field *f = fields; f->name; f++)
		if (f->required && !json_object_get(object, f->name))
			return err_set(e, ERR_INVALID, EINVAL, "%s \"%s%s\" is missing", what, prefix, f->name);
	return 0;
}

json_t *decode_json(struct str text, struct err *e)
{
	json_error_t why;
	json_t *root = json_loadb(text.n ? text.p : "", text.n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
	if (!root)
		err_set(e, ERR_INVALID, EINVAL, "the body is not valid JSON: %s (line %d, column %d)", why.text, why.line, why.column);
	return root;
}

int decode_object(const json_t *object, const struct field *fields, void *into, struct err *e)
{
	return decode_fields(object, "field", "", fields, into, e);
}

int decode_one(const struct field *field, const json_t *value, void *into, struct err *e)
{
	return set_field(field, "field", "", value, into, e);
}

int decode_body(struct str body, const struct field *fields, void *into, struct err *e)
{
	json_t *root = body.n ? decode_json(body, e) : json_object();
	if (!root)
		return -EINVAL;
	int rc = json_is_object(root) ? decode_object(root, fields, into, e)
	                              : err_set(e, ERR_INVALID, EINVAL, "the body must be a JSON object, and is %s", type_name(root));
	json_decref(root);
	return rc;
}

/* --- query: each parameter becomes the JSON value that its field wants, then the same table decodes it --- */

struct query {
	const struct field *fields;
	json_t *object;
	int rc;
	struct err *e;
};

static json_t *query_value(const struct field *f, const char *value, struct err *e)
{
	switch (f->kind) {
	case FIELD_BOOL:
		if (streq(value, "true") || streq(value, "1") || !*value)
			return json_true();
		if (streq(value, "false") || streq(value, "0"))
			return json_false();
		err_set(e, ERR_INVALID, EINVAL, "query parameter \"%s\" must be true or false", f->name);
		return NULL;
	case FIELD_U64:
	case FIELD_I64:
	case FIELD_U16: {
		uint64_t n;
		if (parse_u64(str_of(value), INT64_MAX, &n) == 0)
			return json_integer((json_int_t)n);
		err_set(e, ERR_INVALID, EINVAL, "query parameter \"%s\" must be a whole number from %.10g to %.10g, of decimal digits", f->name,
			MAX(f->min, 0.0), max_of(f));
		return NULL;
	}
	case FIELD_STRING:
	case FIELD_STRINGS:
	case FIELD_CUSTOM:
	case FIELD_NUMBER:
	case FIELD_PAIRS:
	case FIELD_OBJECT:
		break;
	}
	json_t *v = json_string(value);
	if (!v)
		err_set(e, ERR_INVALID, EINVAL, "query parameter \"%s\" is not valid UTF-8", f->name);
	return v;
}

static void query_pair(void *ctx, const char *name, const char *value)
{
	struct query *q = ctx;
	const struct field *f = q->fields;
	if (q->rc < 0)
		return;
	while (f->name && strcmp(f->name, name) != 0)
		f++;
	if (!f->name) {
		q->rc = utf8_valid(str_of(name)) ? unknown("query parameter", "", name, q->fields, q->e)
		                                 : err_set(q->e, ERR_INVALID, EINVAL, "the name of a query parameter is not valid UTF-8");
		return;
	}
	json_t *before = json_object_get(q->object, name), *v = query_value(f, value, q->e);
	if (!v) {
		q->rc = -EINVAL;
	} else if (f->kind == FIELD_STRINGS) {
		if (!before)
			json_object_set_new(q->object, name, before = json_array());
		json_array_append_new(before, v);
	} else if (before) {
		json_decref(v);
		q->rc = err_set(q->e, ERR_INVALID, EINVAL, "query parameter \"%s\" is given twice", f->name);
	} else {
		json_object_set_new(q->object, name, v);
	}
}

int decode_query(const struct request *r, const struct field *fields, void *into, struct err *e)
{
	struct query q = { .fields = fields, .object = json_object(), .e = e };
	req_query_each(r, query_pair, &q);
	if (q.rc == 0)
		q.rc = decode_fields(q.object, "query parameter", "", fields, into, e);
	json_decref(q.object);
	return q.rc;
}

/* --- words --- */

int decode_mode(const char *where, const json_t *value, uint32_t *ret, struct err *e)
{
	const char *text = json_string_value(value);
	if (!text)
		return wrong_type(where, "a string of octal digits (\"0755\")", value, e);
	size_t n = strlen(text);
	uint32_t mode = 0;
	for (const char *p = text; *p >= '0' && *p <= '7' && p < text + 5; p++, n--)
		mode = mode * 8 + (uint32_t)(*p - '0');
	if (n != 0 || strlen(text) < 3 || strlen(text) > 4)
		return err_set(e, ERR_INVALID, EINVAL, "%s must be three or four octal digits, as in \"0755\"", where);
	*ret = mode;
	return 0;
}

static const struct {
	const char *name; /* with SIG */
	int number;
} signals[] = {
	{ "SIGHUP", SIGHUP },   { "SIGINT", SIGINT },   { "SIGQUIT", SIGQUIT }, { "SIGILL", SIGILL },     { "SIGTRAP", SIGTRAP },
	{ "SIGABRT", SIGABRT }, { "SIGBUS", SIGBUS },   { "SIGFPE", SIGFPE },   { "SIGKILL", SIGKILL },   { "SIGUSR1", SIGUSR1 },
	{ "SIGSEGV", SIGSEGV }, { "SIGUSR2", SIGUSR2 }, { "SIGPIPE", SIGPIPE }, { "SIGALRM", SIGALRM },   { "SIGTERM", SIGTERM },
	{ "SIGCHLD", SIGCHLD }, { "SIGCONT", SIGCONT }, { "SIGSTOP", SIGSTOP }, { "SIGTSTP", SIGTSTP },   { "SIGTTIN", SIGTTIN },
	{ "SIGTTOU", SIGTTOU }, { "SIGURG", SIGURG },   { "SIGXCPU", SIGXCPU }, { "SIGXFSZ", SIGXFSZ },   { "SIGVTALRM", SIGVTALRM },
	{ "SIGPROF", SIGPROF }, { "SIGIO", SIGIO },     { "SIGPWR", SIGPWR },   { "SIGWINCH", SIGWINCH }, { "SIGSYS", SIGSYS },
};

const char *signal_name(int signo)
{
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		if (signals[i].number == signo)
			return signals[i].name;
	return NULL;
}

int decode_signal(const char *where, const json_t *value, int *ret, struct err *e)
{
	const char *name = json_string_value(value);
	int64_t n;
	if (name) {
		for (size_t i = 0; i < ARRAY_LEN(signals); i++)
			if (streq(name, signals[i].name) || streq(name, signals[i].name + 3)) {
				*ret = signals[i].number;
				return 0;
			}
		char text[WHERE];
		quote(name, 40, text);
		return err_set(e, ERR_INVALID, EINVAL, "%s: \"%s\" is not a signal; give a name like TERM or SIGTERM, or a number", where, text);
	}
	if (!whole_number(value, &n))
		return wrong_type(where, "the name or the number of a signal", value, e);
	if (n < 1 || n > 64)
		return err_set(e, ERR_INVALID, ERANGE, "%s is %" PRId64 ", and must be 1 to 64", where, n);
	*ret = (int)n;
	return 0;
}
