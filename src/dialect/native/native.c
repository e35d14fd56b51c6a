/* The native dialect's routes, and who may use them.
 *
 * Every request passes guard() before its body is read: the key, and query parameters nobody asked for. The handlers then
 * decode, call one verb of api.h and encode; what waits for something is a struct of its own, forgotten when the client leaves. */
#include "dialect/native/native_int.h"
#include "model/key.h"

#include <errno.h>
#include <stdio.h>

#define SANDBOX "/v1/sandboxes/{id}"
#define RUN SANDBOX "/runs/{run}"
#define INTERPRETER SANDBOX "/interpreters/{interpreter}"
#define FILES SANDBOX "/files"

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/healthz", .handle = native_server_health, .tag = ROUTE_OPEN },
	{ .method = "GET", .pattern = "/metrics", .handle = native_server_metrics, .tag = ROUTE_OPEN },
	{ .method = "GET", .pattern = "/v1/info", .handle = native_server_info_get },
	{ .method = "GET", .pattern = "/v1/events", .handle = native_server_events },

	{ .method = "POST", .pattern = "/v1/sandboxes", .body = BODY_BUFFER, .body_max = 4 << 20, .handle = native_sandbox_create },
	{ .method = "GET", .pattern = "/v1/sandboxes", .handle = native_sandbox_list, .tag = ROUTE_QUERY },
	{ .method = "GET", .pattern = SANDBOX, .handle = native_sandbox_get },
	{ .method = "PATCH", .pattern = SANDBOX, .body = BODY_BUFFER, .body_max = 4 << 20, .handle = native_sandbox_update },
	{ .method = "DELETE", .pattern = SANDBOX, .handle = native_sandbox_delete },
	{ .method = "POST", .pattern = SANDBOX "/start", .handle = native_sandbox_start },
	{ .method = "POST", .pattern = SANDBOX "/stop", .handle = native_sandbox_stop },
	{ .method = "POST", .pattern = SANDBOX "/pause", .handle = native_sandbox_pause },
	{ .method = "POST", .pattern = SANDBOX "/suspend", .handle = native_sandbox_suspend },
	{ .method = "POST", .pattern = SANDBOX "/resume", .handle = native_sandbox_resume },
	{ .method = "POST", .pattern = SANDBOX "/fork", .body = BODY_BUFFER, .handle = native_sandbox_fork },
	{ .method = "POST", .pattern = SANDBOX "/resize", .body = BODY_BUFFER, .handle = native_sandbox_resize },
	{ .method = "POST", .pattern = SANDBOX "/touch", .handle = native_sandbox_touch },
	{ .method = "GET", .pattern = SANDBOX "/usage", .handle = native_sandbox_usage },

	/* 64 MiB: 16 MiB of script, 16 MiB of stdin in base64, an environment, and room for JSON's escapes */
	{ .method = "POST", .pattern = SANDBOX "/runs", .body = BODY_BUFFER, .body_max = 64 << 20, .handle = native_run_create, .tag = ROUTE_QUERY },
	{ .method = "GET", .pattern = SANDBOX "/runs", .handle = native_run_list, .tag = ROUTE_QUERY },
	{ .method = "GET", .pattern = RUN, .handle = native_run_get, .tag = ROUTE_QUERY },
	{ .method = "DELETE", .pattern = RUN, .handle = native_run_cancel },
	{ .method = "GET", .pattern = RUN "/output", .handle = native_run_output, .tag = ROUTE_QUERY },
	{ .method = "GET", .pattern = RUN "/events", .handle = native_run_events, .tag = ROUTE_QUERY },
	{ .method = "GET", .pattern = RUN "/attach", .websocket = true, .handle = native_run_attach, .tag = ROUTE_QUERY },
	{ .method = "POST", .pattern = RUN "/stdin", .body = BODY_STREAM, .handle = native_run_stdin, .tag = ROUTE_QUERY },
	{ .method = "POST", .pattern = RUN "/signal", .body = BODY_BUFFER, .handle = native_run_signal },
	{ .method = "POST", .pattern = RUN "/resize", .body = BODY_BUFFER, .handle = native_run_resize },

	{ .method = "POST", .pattern = SANDBOX "/sessions", .body = BODY_BUFFER, .body_max = 4 << 20, .handle = native_session_create },
	{ .method = "GET", .pattern = SANDBOX "/sessions", .handle = native_session_list },
	{ .method = "GET", .pattern = SANDBOX "/sessions/{session}", .handle = native_session_get },
	{ .method = "DELETE", .pattern = SANDBOX "/sessions/{session}", .handle = native_session_delete },

	{ .method = "POST", .pattern = SANDBOX "/interpreters", .body = BODY_BUFFER, .handle = native_interpreter_create },
	{ .method = "GET", .pattern = SANDBOX "/interpreters", .handle = native_interpreter_list },
	{ .method = "GET", .pattern = INTERPRETER, .handle = native_interpreter_get },
	{ .method = "DELETE", .pattern = INTERPRETER, .handle = native_interpreter_delete },
	{ .method = "POST", .pattern = INTERPRETER "/interrupt", .handle = native_interpreter_interrupt },
	{ .method = "POST", .pattern = INTERPRETER "/execute", .body = BODY_BUFFER, .body_max = 64 << 20, .handle = native_interpreter_execute, .tag = ROUTE_QUERY },

	{ .method = "GET", .pattern = FILES, .handle = native_file_read, .tag = ROUTE_QUERY },
	{ .method = "PUT", .pattern = FILES, .body = BODY_STREAM, .handle = native_file_write, .tag = ROUTE_QUERY },
	{ .method = "DELETE", .pattern = FILES, .handle = native_file_delete, .tag = ROUTE_QUERY },
	{ .method = "GET", .pattern = FILES "/stat", .handle = native_file_stat, .tag = ROUTE_QUERY },
	{ .method = "GET", .pattern = FILES "/list", .handle = native_file_list, .tag = ROUTE_QUERY },
	{ .method = "GET", .pattern = FILES "/find", .handle = native_file_find, .tag = ROUTE_QUERY },
	{ .method = "GET", .pattern = FILES "/search", .handle = native_file_search, .tag = ROUTE_QUERY },
	{ .method = "POST", .pattern = FILES "/mkdir", .body = BODY_BUFFER, .handle = native_file_mkdir },
	{ .method = "POST", .pattern = FILES "/move", .body = BODY_BUFFER, .handle = native_file_move },
	{ .method = "POST", .pattern = FILES "/chmod", .body = BODY_BUFFER, .handle = native_file_chmod },
	{ .method = "POST", .pattern = FILES "/replace", .body = BODY_BUFFER, .handle = native_file_replace },

	{ .method = "GET", .pattern = SANDBOX "/permissions", .handle = native_permission_list },
	{ .method = "POST", .pattern = SANDBOX "/permissions/{permission}", .body = BODY_BUFFER, .handle = native_permission_answer },

	{ .method = "GET", .pattern = SANDBOX "/ports", .handle = native_port_list },
	{ .method = "POST", .pattern = SANDBOX "/publish", .body = BODY_BUFFER, .handle = native_port_publish },
	{ .method = "DELETE", .pattern = SANDBOX "/publish/{port}", .handle = native_port_unpublish },
	{ .method = "*", .pattern = SANDBOX "/ports/{port}/proxy", .body = BODY_STREAM, .websocket = true, .handle = native_port_proxy, .tag = ROUTE_PROXY },
	{ .method = "*", .pattern = SANDBOX "/ports/{port}/proxy/{path*}", .body = BODY_STREAM, .websocket = true, .handle = native_port_proxy,
	  .tag = ROUTE_PROXY },

	{ .method = "POST", .pattern = "/v1/snapshots", .body = BODY_BUFFER, .handle = native_snapshot_create },
	{ .method = "GET", .pattern = "/v1/snapshots", .handle = native_snapshot_list, .tag = ROUTE_QUERY },
	{ .method = "GET", .pattern = "/v1/snapshots/{snapshot*}", .handle = native_snapshot_get },
	{ .method = "DELETE", .pattern = "/v1/snapshots/{snapshot*}", .handle = native_snapshot_delete },
	{ .method = "POST", .pattern = "/v1/volumes", .body = BODY_BUFFER, .handle = native_volume_create },
	{ .method = "GET", .pattern = "/v1/volumes", .handle = native_volume_list },
	{ .method = "GET", .pattern = "/v1/volumes/{volume}", .handle = native_volume_get },
	{ .method = "DELETE", .pattern = "/v1/volumes/{volume}", .handle = native_volume_delete },
	{ .method = "GET", .pattern = "/v1/images", .handle = native_image_list },
	{ .method = "GET", .pattern = "/v1/pools", .handle = native_pool_list },
	{ .method = "PUT", .pattern = "/v1/pools", .body = BODY_BUFFER, .handle = native_pool_set },
	{ .method = "GET", .pattern = "/v1/images/{image*}", .handle = native_image_get },
	{ .method = "DELETE", .pattern = "/v1/images/{image*}", .handle = native_image_delete },
	{ .method = "POST", .pattern = "/v1/secrets", .body = BODY_BUFFER, .handle = native_secret_create },
	{ .method = "GET", .pattern = "/v1/secrets", .handle = native_secret_list },
	{ .method = "GET", .pattern = "/v1/secrets/{secret}", .handle = native_secret_get },
	{ .method = "PATCH", .pattern = "/v1/secrets/{secret}", .body = BODY_BUFFER, .handle = native_secret_change },
	{ .method = "DELETE", .pattern = "/v1/secrets/{secret}", .handle = native_secret_delete },
	{ .method = "GET", .pattern = "/v1/audit", .handle = native_audit_list, .tag = ROUTE_QUERY },
	{ .method = "GET", .pattern = "/v1/audit/stream", .handle = native_audit_stream, .tag = ROUTE_QUERY },
	{ .method = "POST", .pattern = "/v1/webhooks", .body = BODY_BUFFER, .handle = native_webhook_create },
	{ .method = "GET", .pattern = "/v1/webhooks", .handle = native_webhook_list },
	{ .method = "DELETE", .pattern = "/v1/webhooks/{webhook}", .handle = native_webhook_delete },
	{ .method = "POST", .pattern = "/v1/keys", .body = BODY_BUFFER, .handle = native_key_create },
	{ .method = "GET", .pattern = "/v1/keys", .handle = native_key_list },
	{ .method = "DELETE", .pattern = "/v1/keys/{key}", .handle = native_key_revoke },
};

/* --- who may --- */

/* The key of the request; p NULL when there is none. Of a request for a program inside either field may be that program's own, whose keys
 * do not look like ours. */
static struct str find_key(const struct request *r, unsigned tag)
{
	struct str key = req_header(r, "X-API-Key"), bearer = req_bearer(r);
	if (tag & ROUTE_PROXY)
		return key_is_in(key) ? key : key_is_in(bearer) ? bearer : (struct str){ NULL, 0 };
	return key.p ? key : bearer;
}

static void look_for_key(void *ctx, const char *name, const char *value)
{
	static const char *const names[] = { "key", "api_key", "api-key", "apikey", "x-api-key", "token", "access_token", "authorization" };
	(void)value;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (str_eq_nocase(str_of(name), str_of(names[i])))
			*(bool *)ctx = true;
}

static int authenticate(struct native *n, const struct request *r, unsigned tag, struct caller *ret, struct err *e)
{
	bool in_query = false;
	struct str key = find_key(r, tag);
	if (!(tag & ROUTE_PROXY)) /* there the query is the program's */
		req_query_each(r, look_for_key, &in_query);
	if (in_query)
		return err_set(e, ERR_UNAUTHENTICATED, EACCES,
		               "a key in the query string is not accepted, since addresses end up in logs; send the header \"Authorization: Bearer KEY\"");
	if (key.p)
		return api_authenticate(n->api, key, ret, e);
	if (!(tag & ROUTE_PROXY) && req_header(r, "Authorization").p)
		return err_set(e, ERR_UNAUTHENTICATED, EACCES, "there must be one Authorization header, of the form \"Bearer KEY\"");
	return err_set(e, ERR_UNAUTHENTICATED, EACCES, "a key is needed: send the header \"Authorization: Bearer KEY\" or \"X-API-Key: KEY\"");
}

static bool guard(struct request *r, const struct route *route, void *ctx)
{
	static const struct field nothing[] = { { 0 } };
	struct native *n = ctx;
	struct caller caller = { 0 };
	struct err e;
	bool open = (route->tag & ROUTE_OPEN) && req_is_loopback(r) && !find_key(r, route->tag).p;
	if (!open && authenticate(n, r, route->tag, &caller, &e) < 0) {
		answer_err(n, r, &e);
		return false;
	}
	if (!(route->tag & (ROUTE_QUERY | ROUTE_PROXY)) && decode_query(r, nothing, NULL, &e) < 0) {
		answer_err(n, r, &e);
		return false;
	}
	req_set_data(r, xmemdup(&caller, sizeof caller));
	req_set_holder(r, caller.key_id);
	return true;
}

const struct caller *req_caller(const struct request *r)
{
	return req_data(r);
}

const char *req_ref(const struct request *r)
{
	return req_path_arg(r, "id");
}

/* --- answers --- */

static const int statuses[ERR_KIND_COUNT] = {
	[ERR_INVALID] = 400,   [ERR_UNAUTHENTICATED] = 401, [ERR_DENIED] = 403,   [ERR_NOT_FOUND] = 404,    [ERR_FILE_NOT_FOUND] = 404,
	[ERR_FILE_DENIED] = 403, [ERR_CONFLICT] = 409,      [ERR_LIMIT] = 422,    [ERR_TOO_LARGE] = 413,    [ERR_UNSUPPORTED] = 422,
	[ERR_GONE] = 410,      [ERR_TIMEOUT] = 504,         [ERR_UNAVAILABLE] = 503, [ERR_INTERNAL] = 500,
};

int err_status(enum err_kind kind)
{
	int status = (unsigned)kind < ERR_KIND_COUNT ? statuses[kind] : 0;
	return status ? status : 500;
}

void jout_error(struct buf *b, const char *kind, const char *message)
{
	struct jout j = { .b = b };
	jout_object(&j, NULL);
	jout_object(&j, "error");
	jout_z(&j, "kind", kind);
	jout_z(&j, "message", message);
	jout_end_object(&j);
	jout_end_object(&j);
}

static void count(struct native *n, int status)
{
	if (status >= 100 && status < 600)
		n->answers[status / 100]++;
}

static void answer_error(struct native *n, struct request *r, int status, const char *kind, const char *message)
{
	static const struct header challenge = { "WWW-Authenticate", "Bearer realm=\"caisson\"" };
	auto_buf struct buf b;
	buf_init(&b, 8192);
	jout_error(&b, kind, message);
	count(n, status);
	req_reply(r, status, &challenge, status == 401, "application/json", buf_str(&b));
}

void answer_err(struct native *n, struct request *r, const struct err *e)
{
	answer_error(n, r, err_status(e->kind), err_kind_name(e->kind), e->message);
}

/* What the server refuses by itself. Its kinds can't say all that a status can. */
static void refuse(struct request *r, int status, const struct err *e, void *ctx)
{
	const char *kind = err_kind_name(e->kind);
	if (status == 502)
		kind = "bad_gateway";
	else if (status == 401)
		kind = "unauthenticated";
	answer_error(ctx, r, status, kind, e->message);
}

void answer_json(struct native *n, struct request *r, int status, const struct buf *json)
{
	if (json->overflow) {
		struct err e;
		err_set(&e, ERR_TOO_LARGE, ENOBUFS, "the answer would be over %u MiB; ask for less of it", JSON_REPLY_MAX >> 20);
		answer_err(n, r, &e);
		return;
	}
	count(n, status);
	req_reply(r, status, NULL, 0, "application/json", buf_str(json));
}

void items_begin(struct items *l)
{
	buf_init(&l->b, JSON_REPLY_MAX);
	l->j = (struct jout){ .b = &l->b };
	jout_object(&l->j, NULL);
	jout_array(&l->j, "items");
}

void items_done(struct items *l)
{
	buf_done(&l->b);
}

void answer_items(struct native *n, struct request *r, int status, struct items *l)
{
	jout_end_array(&l->j);
	jout_end_object(&l->j);
	answer_json(n, r, status, &l->b);
}

void answer_created(struct native *n, struct request *r, const char *location, const struct buf *json)
{
	struct header h = { "Location", location };
	count(n, 201);
	req_reply(r, 201, &h, 1, "application/json", buf_str(json));
}

void answer_empty(struct native *n, struct request *r, int status)
{
	count(n, status);
	req_reply_empty(r, status);
}

void answer_begin(struct native *n, struct request *r, const struct header *h, size_t n_h, const char *type)
{
	count(n, 200);
	req_begin(r, 200, h, n_h, type, -1);
}

/* --- waiting --- */

static void pending_gone(void *ctx)
{
	struct pending *p = ctx;
	api_forget(p->n->api, p);
	free(p);
}

struct pending *pending_new(struct native *n, struct request *r)
{
	struct pending *p = xcalloc(1, sizeof *p);
	*p = (struct pending){ n, r };
	req_on_gone(r, pending_gone, p);
	return p;
}

struct native *pending_take(struct pending *p, struct request **ret)
{
	struct native *n = p->n;
	*ret = p->r;
	free(p);
	return n;
}

void native_set_network(struct native *n, enum network_mode mode)
{
	n->network = mode;
}

struct run_ref run_ref_of(const struct request *r, const char *run)
{
	return (struct run_ref){ *req_caller(r), xstrdup(req_ref(r)), xstrdup(run ? run : req_path_arg(r, "run")) };
}

void run_ref_done(struct run_ref *ref)
{
	free(ref->sandbox);
	free(ref->run);
}

/* --- life --- */

struct native *native_new(uv_loop_t *loop, struct api *api, struct server *server)
{
	struct native *n = xcalloc(1, sizeof *n);
	*n = (struct native){ .loop = loop, .api = api, .server = server, .started_ms = now_unix_ms() };
	n->dialect = (struct dialect){ .name = "native", .routes = routes, .n_routes = ARRAY_LEN(routes), .guard = guard, .refuse = refuse,
		                       .prefix = "", .ctx = n };
	struct err e;
	if (server_add_dialect(server, &n->dialect, &e) < 0) {
		free(n);
		return NULL;
	}
	return n;
}

void native_free(struct native *n)
{
	free(n);
}
