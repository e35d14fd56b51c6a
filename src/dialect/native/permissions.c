/* Programs, hosts and requests that wait to be allowed, and their answers. */
#include "dialect/native/native_int.h"

#include <errno.h>

static void add_question(void *ctx, const struct question_view *v)
{
	struct jout *j = ctx;

	jout_object(j, NULL);
	jout_z(j, "id", v->id);
	jout_z(j, "run", v->run);
	jout_z(j, "kind", v->method ? "method" : v->host ? "host" : "program");
	if (v->method)
		jout_z(j, "method", v->method);
	if (v->host)
		jout_z(j, "host", v->host);
	if (v->path)
		jout_z(j, "path", v->path);
	jout_z(j, "rule", v->rule);
	jout_time(j, "asked_at", v->asked_ms);
	jout_time(j, "denied_at", v->until_ms);
	jout_end_object(j);
}

void native_permission_list(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	auto_items struct items l;

	items_begin(&l);
	if (api_question_list(n->api, req_caller(r), req_ref(r), add_question, &l.j, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	answer_items(n, r, 200, &l);
}

struct verdict_body {
	char *verdict;
};

static const struct field verdict_fields[] = {
	{ .name = "verdict", .kind = FIELD_STRING, .offset = offsetof(struct verdict_body, verdict) },
	{ 0 },
};

void native_permission_answer(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct verdict_body body = { 0 };
	struct err e;
	int rc = decode_body(req_body(r), verdict_fields, &body, &e);

	if (rc == 0 && (!body.verdict || (!streq(body.verdict, "allow") && !streq(body.verdict, "deny"))))
		rc = err_set(&e, ERR_INVALID, EINVAL, "field \"verdict\" must be \"allow\" or \"deny\"");
	if (rc == 0)
		rc = api_question_answer(n->api, req_caller(r), req_ref(r), req_path_arg(r, "permission"), streq(body.verdict, "allow"), &e);
	if (rc < 0)
		answer_err(n, r, &e);
	else
		answer_empty(n, r, 204);
	free(body.verdict);
}
