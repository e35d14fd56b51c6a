/* Secrets: the calls of the clients' `secret`, and which a sandbox has. A value goes in and never comes out. */
#include "dialect/daytona/internal.h"

#include <errno.h>

#define PAGE_MAX 1000

static json_t *secret_json(const struct secret_view *v)
{
	json_t *o = json_object(), *hosts = json_array();
	for (size_t i = 0; v->spec->hosts && v->spec->hosts[i]; i++)
		json_array_append_new(hosts, textz_json(v->spec->hosts[i]));
	put(o, "id", textz_json(v->id));
	put(o, "name", textz_json(v->spec->name));
	put(o, "description", textz_json(v->spec->description));
	put(o, "placeholder", textz_json(v->placeholder));
	put(o, "hosts", hosts);
	put(o, "createdAt", time_json(v->created_ms));
	put(o, "updatedAt", time_json(v->updated_ms));
	return o;
}

/* The members that a create and a change share. */
static int decode(const json_t *body, struct secret_spec *s, struct err *e)
{
	const char *name = NULL, *value = NULL, *description = NULL;
	if (want_text(body, "name", &name, e) < 0 || want_text(body, "value", &value, e) < 0 || want_text(body, "description", &description, e) < 0 ||
	    want_texts(body, "hosts", &s->hosts, e) < 0)
		return -EINVAL;
	s->name = xstrdup(name);
	s->value = xstrdup(value);
	s->description = xstrdup(description);
	return 0;
}

static void answer(struct request *r, int status, int rc, const struct secret_view *v, const struct err *e)
{
	if (rc < 0)
		fail(r, e);
	else
		req_reply_json(r, status, secret_json(v));
}

static void handle_make(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct secret_spec s = { 0 };
	struct secret_view v;
	struct err e = { 0 };
	json_t *body = body_object(r, &e);
	int rc = body ? decode(body, &s, &e) : -EINVAL;
	if (rc == 0 && (!s.name || !s.value))
		rc = err_set(&e, ERR_INVALID, EINVAL, "name and value are required");
	/* Anywhere is nowhere in particular: a sandbox could send it to itself. */
	if (rc == 0 && (!s.hosts || !s.hosts[0]))
		rc = err_set(&e, ERR_INVALID, EINVAL, "hosts: say to which hosts the secret may go, such as [\"api.example.com\"]");
	if (rc == 0)
		rc = api_secret_create(d->api, caller_of(r), &s, &v, &e);
	answer(r, 201, rc, &v, &e);
	secret_spec_done(&s);
	json_decref(body);
}

static void handle_one(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct secret_view v;
	struct err e = { 0 };
	int rc = api_secret_get(d->api, caller_of(r), req_path_arg(r, "secret"), &v, &e);
	answer(r, 200, rc, &v, &e);
}

static void handle_change(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct secret_spec s = { 0 };
	struct secret_view v;
	struct err e = { 0 };
	json_t *body = body_object(r, &e);
	int rc = body ? decode(body, &s, &e) : -EINVAL;
	if (rc == 0 && s.name)
		rc = err_set(&e, ERR_INVALID, EINVAL, "name: a secret keeps its name");
	if (rc == 0)
		rc = api_secret_change(d->api, caller_of(r), req_path_arg(r, "secret"), &s, &v, &e);
	answer(r, 200, rc, &v, &e);
	secret_spec_done(&s);
	json_decref(body);
}

static void handle_remove(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	if (api_secret_delete(d->api, caller_of(r), req_path_arg(r, "secret"), &e) < 0)
		fail(r, &e);
	else
		req_reply_empty(r, 204);
}

struct page {
	json_t *items;
	const char *name; /* in the names of those that are shown, or NULL */
	uint64_t skip, limit, matched;
};

static void add_secret(void *ctx, const struct secret_view *v)
{
	struct page *p = ctx;
	if (p->name && !strstr(v->spec->name, p->name))
		return;
	if (p->matched++ >= p->skip && json_array_size(p->items) < p->limit)
		json_array_append_new(p->items, secret_json(v));
}

/* The cursor is the number of those before. */
static void handle_page(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	int64_t limit = 100, skip = 0;
	const char *limit_text = req_query(r, "limit"), *cursor = req_query(r, "cursor"), *name = req_query(r, "name");
	if ((limit_text && *limit_text && parse_int("limit", limit_text, 1, PAGE_MAX, &limit, &e) < 0) ||
	    (cursor && *cursor && parse_int("cursor", cursor, 0, INT64_MAX / 2, &skip, &e) < 0)) {
		fail(r, &e);
		return;
	}
	struct page p = { .items = json_array(), .name = name && *name ? name : NULL, .skip = (uint64_t)skip, .limit = (uint64_t)limit };
	api_secret_list(d->api, caller_of(r), add_secret, &p);
	uint64_t next = p.skip + json_array_size(p.items);
	json_t *o = json_object();
	put(o, "items", p.items);
	put(o, "total", json_integer((json_int_t)p.matched));
	put(o, "nextCursor", next < p.matched ? json_sprintf("%llu", (unsigned long long)next) : json_null());
	req_reply_json(r, 200, o);
}

/* --- of a sandbox --- */

int secrets_decode(const json_t *body, struct pairs *ret, struct err *e)
{
	const json_t *list = NULL;
	int rc = want_array(body, "secrets", &list, e);
	for (size_t i = 0; rc >= 0 && i < json_array_size(list); i++) {
		const char *variable;
		json_t *name;
		if (i >= SECRETS_OF_SANDBOX_MAX)
			return err_set(e, ERR_TOO_LARGE, E2BIG, "secrets: a sandbox has at most %d", SECRETS_OF_SANDBOX_MAX);
		json_object_foreach(json_array_get(list, i), variable, name) {
			if (!json_is_string(name))
				return err_set(e, ERR_INVALID, EINVAL, "secrets must be an array of {VARIABLE: name of a secret}");
			pairs_add(ret, variable, json_string_value(name));
		}
		if (!json_is_object(json_array_get(list, i)))
			return err_set(e, ERR_INVALID, EINVAL, "secrets must be an array of {VARIABLE: name of a secret}");
	}
	return rc;
}

static void on_set(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct call *c = ctx;
	if (e) {
		call_fail(c, e);
		return;
	}
	auto_free char *base = base_url(c->d, c->r);
	call_json(c, 200, sandbox_json(c->d, base, v, false));
}

static void handle_set(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	const struct pairs no_files = { 0 };
	struct pairs env = { 0 };
	struct err e = { 0 };
	json_t *body = body_object(r, &e);
	int rc = body ? secrets_decode(body, &env, &e) : -EINVAL;
	if (rc < 0) {
		fail(r, &e);
	} else {
		struct call *c = call_new(sizeof(*c), d, r, NULL);
		api_sandbox_set_secrets(d->api, &c->caller, c->ref, &env, &no_files, on_set, c);
	}
	pairs_done(&env);
	json_decref(body);
}

static const struct route routes[] = {
	{ .method = "POST", .pattern = "/secret", .body = BODY_BUFFER, .handle = handle_make },
	{ .method = "GET", .pattern = "/secret/paginated", .handle = handle_page },
	{ .method = "GET", .pattern = "/secret/{secret}", .handle = handle_one },
	{ .method = "PATCH", .pattern = "/secret/{secret}", .body = BODY_BUFFER, .handle = handle_change },
	{ .method = "DELETE", .pattern = "/secret/{secret}", .handle = handle_remove },
	{ .method = "PUT", .pattern = "/sandbox/{id}/secrets", .body = BODY_BUFFER, .handle = handle_set },
};
const struct route_table secret_routes = { routes, ARRAY_LEN(routes) };
