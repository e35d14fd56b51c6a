/* /v1/secrets. A value goes in and never comes out. */
#include "dialect/native/native_int.h"

#include <errno.h>

#define AT(member) .offset = offsetof(struct secret_spec, member)

static const struct field create_fields[] = {
	{ .name = "name", .kind = FIELD_STRING, AT(name), .required = true },
	{ .name = "value", .kind = FIELD_STRING, AT(value), .required = true },
	{ .name = "description", .kind = FIELD_STRING, AT(description) },
	{ .name = "hosts", .kind = FIELD_STRINGS, AT(hosts), .required = true },
	{ .name = "headers", .kind = FIELD_STRINGS, AT(headers) },
	{ .name = "query", .kind = FIELD_STRINGS, AT(query) },
	{ .name = "basic", .kind = FIELD_BOOL, AT(basic) },
	{ .name = "methods", .kind = FIELD_STRINGS, AT(methods) },
	{ .name = "paths", .kind = FIELD_STRINGS, AT(paths) },
	{ .name = "git", .kind = FIELD_BOOL, AT(git) },
	{ .name = "aws_key_id", .kind = FIELD_STRING, AT(aws_key_id) },
	{ 0 },
};
static const struct field change_fields[] = {
	{ .name = "value", .kind = FIELD_STRING, AT(value) },
	{ .name = "description", .kind = FIELD_STRING, AT(description) },
	{ .name = "hosts", .kind = FIELD_STRINGS, AT(hosts) },
	{ .name = "headers", .kind = FIELD_STRINGS, AT(headers) },
	{ .name = "query", .kind = FIELD_STRINGS, AT(query) },
	{ .name = "methods", .kind = FIELD_STRINGS, AT(methods) },
	{ .name = "paths", .kind = FIELD_STRINGS, AT(paths) },
	{ 0 },
};

static void encode_texts(struct jout *j, const char *key, char *const *v)
{
	jout_array(j, key);
	for (; v && *v; v++)
		jout_z(j, NULL, *v);
	jout_end_array(j);
}

static void encode_secret(struct jout *j, const struct secret_view *v)
{
	const struct secret_spec *s = v->spec;

	jout_object(j, NULL);
	jout_z(j, "id", v->id);
	jout_z(j, "name", s->name);
	jout_z(j, "description", s->description);
	jout_z(j, "placeholder", v->placeholder);
	encode_texts(j, "hosts", s->hosts);
	encode_texts(j, "headers", s->headers);
	encode_texts(j, "query", s->query);
	jout_bool(j, "basic", s->basic);
	encode_texts(j, "methods", s->methods);
	encode_texts(j, "paths", s->paths);
	jout_bool(j, "git", s->git);
	jout_z(j, "aws_key_id", s->aws_key_id);
	jout_time(j, "created_at", v->created_ms);
	jout_time(j, "updated_at", v->updated_ms);
	jout_end_object(j);
}

static void answer_secret(struct native *n, struct request *r, int status, const struct secret_view *v)
{
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	encode_secret(&j, v);
	if (status == 201) {
		auto_free char *location = xasprintf("/v1/secrets/%s", v->id);
		answer_created(n, r, location, &b);
	} else {
		answer_json(n, r, status, &b);
	}
}

void native_secret_create(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct secret_spec s = { 0 };
	struct secret_view v;
	struct err e;

	int rc = decode_body(req_body(r), create_fields, &s, &e);
	if (rc >= 0)
		rc = api_secret_create(n->api, req_caller(r), &s, &v, &e);
	if (rc < 0)
		answer_err(n, r, &e);
	else
		answer_secret(n, r, 201, &v);
	secret_spec_done(&s);
}

static void add_secret(void *ctx, const struct secret_view *v)
{
	encode_secret(ctx, v);
}

void native_secret_list(struct request *r, void *dialect)
{
	struct native *n = dialect;
	auto_items struct items l;
	items_begin(&l);
	api_secret_list(n->api, req_caller(r), add_secret, &l.j);
	answer_items(n, r, 200, &l);
}

void native_secret_get(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct secret_view v;
	struct err e;

	if (api_secret_get(n->api, req_caller(r), req_path_arg(r, "secret"), &v, &e) < 0)
		answer_err(n, r, &e);
	else
		answer_secret(n, r, 200, &v);
}

void native_secret_change(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct secret_spec s = { 0 };
	struct secret_view v;
	struct err e;

	int rc = decode_body(req_body(r), change_fields, &s, &e);
	if (rc >= 0)
		rc = api_secret_change(n->api, req_caller(r), req_path_arg(r, "secret"), &s, &v, &e);
	if (rc < 0)
		answer_err(n, r, &e);
	else
		answer_secret(n, r, 200, &v);
	secret_spec_done(&s);
}

void native_secret_delete(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;

	if (api_secret_delete(n->api, req_caller(r), req_path_arg(r, "secret"), &e) < 0)
		answer_err(n, r, &e);
	else
		answer_empty(n, r, 204);
}
