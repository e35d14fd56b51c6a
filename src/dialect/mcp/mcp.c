/* The protocol: who may, sessions, the methods that need no sandbox. See internal.h for how a tool is called. */
#include "dialect/mcp/internal.h"
#include "wire/jsonrpc.h"

#include <errno.h>
#include <utlist.h>

#define SESSIONS_MAX 256 /* of one tenant; over it, the one that was not used for the longest time ends */
#define SESSION_HEADER "Mcp-Session-Id"
#define VERSION_HEADER "MCP-Protocol-Version"
#define UNSUPPORTED_VERSION (-32022)

/* Newest first: what a client gets that asks for one we do not know. */
static const char *const versions[] = { "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" };

static const char instructions[] =
	"Tools to run commands and code in Linux sandboxes. A sandbox is made at the first use; files stay in it between calls. Nothing that is "
	"done there touches the user's machine, and the sandboxes of this session are deleted when it ends: hand over results before.";

static const unsigned char tools_json[] = {
#include "tools.inc"
};

/* --- answers --- */

static void reply_buf(struct request *r, int status, struct buf *b, const char *session)
{
	const struct header h = { SESSION_HEADER, session };
	req_reply(r, status, &h, session != NULL, "application/json", buf_str(b));
}

static void reply_result(struct request *r, const json_t *id, json_t *take, const char *session)
{
	auto_buf struct buf b;
	buf_init(&b, MCP_REPLY_MAX);
	jsonrpc_write_result(&b, id, take);
	reply_buf(r, 200, &b, session);
}

static void reply_error(struct request *r, int status, const json_t *id, int code, const char *message, json_t *take_data)
{
	auto_buf struct buf b;
	buf_init(&b, MCP_REPLY_MAX);
	jsonrpc_write_error(&b, id, code, message, take_data);
	reply_buf(r, status, &b, NULL);
}

/* What the server refuses by itself, in the same form. */
static void refuse(struct request *r, int status, const struct err *e, void *ctx)
{
	(void)ctx;
	reply_error(r, status, NULL, JSONRPC_INVALID_REQUEST, e->message, NULL);
}

/* --- who may --- */

static struct str find_key(const struct request *r)
{
	struct str key = req_bearer(r);
	return key.p ? key : req_header(r, "X-API-Key");
}

static bool guard(struct request *r, const struct route *route, void *ctx)
{
	static const struct header challenge = { "WWW-Authenticate", "Bearer realm=\"caisson\"" };
	struct mcp *m = ctx;
	struct caller caller = { 0 };
	struct err e = { 0 };
	struct str key = find_key(r);
	(void)route;
	int rc = key.n ? api_authenticate(m->api, key, &caller, &e) :
	                 err_set(&e, ERR_UNAUTHENTICATED, EACCES, "a key is needed: send the header \"Authorization: Bearer KEY\"");
	if (rc >= 0) {
		req_set_data(r, xmemdup(&caller, sizeof caller));
		req_set_holder(r, caller.key_id);
		return true;
	}
	auto_buf struct buf b;
	buf_init(&b, 4096);
	jsonrpc_write_error(&b, NULL, JSONRPC_INVALID_REQUEST, e.message, NULL);
	req_reply(r, e.kind == ERR_UNAUTHENTICATED ? 401 : 403, &challenge, e.kind == ERR_UNAUTHENTICATED, "application/json", buf_str(&b));
	return false;
}

static const struct caller *caller_of(const struct request *r)
{
	return req_data(r);
}

/* --- sessions --- */

void session_keep(struct session *s, const char *sandbox)
{
	s->made = xreallocarray(s->made, s->n_made + 1, sizeof *s->made);
	s->made[s->n_made++] = xstrdup(sandbox);
}

void session_drop(struct session *s, const char *sandbox)
{
	for (size_t i = 0; i < s->n_made; i++) {
		if (!streq(s->made[i], sandbox))
			continue;
		free(s->made[i]);
		memmove(&s->made[i], &s->made[i + 1], (s->n_made - i - 1) * sizeof *s->made);
		s->n_made--;
		break;
	}
	if (streq(s->last, sandbox)) {
		free(s->last);
		s->last = s->n_made ? xstrdup(s->made[s->n_made - 1]) : NULL;
	}
}

static void session_free(struct mcp *m, struct session *s)
{
	HASH_DEL(m->sessions, s);
	for (size_t i = 0; i < s->n_made; i++)
		free(s->made[i]);
	free(s->made);
	free(s->last);
	free(s);
}

static void ignore_deleted(void *ctx, const struct err *e)
{
	(void)ctx;
	(void)e; /* it may be gone already; and its time is bounded */
}

/* Its sandboxes go with it, so calls under way in them fail by themselves; those that wait for one are told here. */
static void session_end(struct mcp *m, struct session *s)
{
	struct tool_call *c, *next;
	struct caller caller = { 0 };
	struct err e = { 0 };
	memcpy(caller.tenant, s->tenant, sizeof caller.tenant);
	err_set(&e, ERR_GONE, 0, "the session has ended");
	makings_leave(m, s);
	DL_FOREACH_SAFE (s->calls, c, next) {
		if (c->waits) {
			tool_fail(c, &e);
			continue;
		}
		DL_DELETE(s->calls, c);
		c->s = NULL;
	}
	for (size_t i = s->n_made; i-- > 0;)
		api_sandbox_delete(m->api, &caller, s->made[i], ignore_deleted, m);
	session_free(m, s);
}

static void make_room(struct mcp *m, const char *tenant)
{
	struct session *s, *next, *oldest = NULL;
	size_t n = 0;
	HASH_ITER (hh, m->sessions, s, next) {
		if (!streq(s->tenant, tenant))
			continue;
		n++;
		if (!s->calls && (!oldest || s->used_ms < oldest->used_ms))
			oldest = s;
	}
	if (n >= SESSIONS_MAX && oldest)
		session_end(m, oldest);
}

static struct session *session_new(struct mcp *m, const struct caller *caller, const char *id)
{
	make_room(m, caller->tenant);
	struct session *s = xcalloc(1, sizeof *s);
	if (id)
		memcpy(s->id, id, strlen(id));
	else
		random_hex(s->id, 16);
	memcpy(s->tenant, caller->tenant, sizeof s->tenant);
	s->used_ms = now_ms();
	HASH_ADD_STR(m->sessions, id, s);
	return s;
}

/* Another tenant's is none. */
static struct session *session_find(struct mcp *m, const struct caller *caller, const char *id)
{
	struct session *s;
	HASH_FIND_STR(m->sessions, id, s);
	if (!s || !streq(s->tenant, caller->tenant))
		return NULL;
	s->used_ms = now_ms();
	return s;
}

/* The session that the request names in its path or its header: heap, NULL when it names none. */
static char *session_name(const struct request *r)
{
	const char *path = req_path_arg(r, "session");
	struct str h = req_header(r, SESSION_HEADER);
	return path ? xstrdup(path) : h.p ? xstrndup(h.p, h.n) : NULL;
}

/* --- methods --- */

static void initialize(struct mcp *m, struct request *r, const struct jsonrpc *msg)
{
	const char *asked = json_string_value(json_object_get(msg->params, "protocolVersion")), *version = versions[0];
	const char *own = req_path_arg(r, "session");
	struct server_info info = { 0 };
	struct session *s;
	if (!asked) {
		reply_error(r, 200, msg->id, JSONRPC_INVALID_PARAMS, "\"protocolVersion\" is required", NULL);
		return;
	}
	if (own && (strlen(own) < 32 || strlen(own) > 64 || strspn(own, "0123456789abcdef") != strlen(own))) {
		reply_error(r, 400, msg->id, JSONRPC_INVALID_REQUEST, "a session id of one's own is 32 to 64 random hex digits", NULL);
		return;
	}
	if (own)
		HASH_FIND_STR(m->sessions, own, s);
	if (own && s) {
		reply_error(r, 400, msg->id, JSONRPC_INVALID_REQUEST, "this session has begun already", NULL);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(versions); i++)
		if (streq(asked, versions[i]))
			version = versions[i];
	s = session_new(m, caller_of(r), own);
	(void)api_info(m->api, caller_of(r), &info);
	json_t *result = json_pack("{s:s, s:{s:{}}, s:{s:s, s:s, s:s}, s:s}", "protocolVersion", version, "capabilities", "tools", "serverInfo", "name",
	                           "caisson", "title", "Caisson sandboxes", "version", info.version ? info.version : "0", "instructions", instructions);
	reply_result(r, msg->id, result, s->id);
}

static void request(struct mcp *m, struct request *r, struct session *s, const struct jsonrpc *msg)
{
	if (streq(msg->method, "ping")) {
		reply_result(r, msg->id, json_object(), NULL);
	} else if (streq(msg->method, "tools/list")) {
		reply_result(r, msg->id, json_pack("{s:O}", "tools", m->tools), NULL);
	} else if (streq(msg->method, "tools/call")) {
		tool_start(m, r, s, msg->id, msg->params);
	} else {
		struct err e = { 0 };
		err_set(&e, ERR_INVALID, 0, "there is no method %s", str_quote(str_of(msg->method), &(struct quoted){ 0 }));
		reply_error(r, 200, msg->id, JSONRPC_NO_METHOD, e.message, NULL);
	}
}

/* A call that is given up: its command ends, and its answer, which nobody waits for, says so. */
static void cancelled(struct mcp *m, struct session *s, const json_t *id)
{
	struct tool_call *c;
	struct err e;
	DL_FOREACH (s->calls, c) {
		if (!json_equal(c->id, id))
			continue;
		if (c->run)
			(void)api_run_cancel(m->api, &c->caller, c->sandbox, c->run, &e); /* it may just have ended */
		else if (c->code.execution)
			execution_interrupt(c->code.execution);
		return;
	}
}

/* The revision of every message after `initialize`. The one without sessions is refused in the words that make a client fall back. */
static bool version_served(struct request *r, const json_t *id)
{
	struct str v = req_header(r, VERSION_HEADER);
	json_t *all = json_array();
	for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
		if (!v.p || str_eqz(v, versions[i])) {
			json_decref(all);
			return true;
		}
		json_array_append_new(all, json_string(versions[i]));
	}
	reply_error(r, 400, id, UNSUPPORTED_VERSION, "Unsupported protocol version", json_pack("{s:o, s:o}", "supported", all, "requested", text_value(v)));
	return false;
}

static void dispatch(struct mcp *m, struct request *r, const struct jsonrpc *msg)
{
	auto_free char *name = session_name(r);
	struct session *s = name ? session_find(m, caller_of(r), name) : NULL;
	if (msg->kind == JSONRPC_REQUEST && streq(msg->method, "initialize")) {
		initialize(m, r, msg);
	} else if (msg->kind == JSONRPC_REQUEST && streq(msg->method, "server/discover")) {
		/* How clients find out whether a server is of the revision without sessions: this answer makes them initialize. */
		reply_error(r, 200, msg->id, JSONRPC_NO_METHOD, "Method not found", NULL);
	} else if (!version_served(r, msg->id)) {
		return;
	} else if (!s) {
		reply_error(r, name ? 404 : 400, msg->id, JSONRPC_INVALID_REQUEST,
		            name ? "there is no such session (any more): initialize again" : "no " SESSION_HEADER " header: begin with initialize", NULL);
	} else if (msg->kind == JSONRPC_REQUEST) {
		request(m, r, s, msg);
	} else {
		if (msg->kind == JSONRPC_NOTIFICATION && streq(msg->method, "notifications/cancelled"))
			cancelled(m, s, json_object_get(msg->params, "requestId"));
		req_reply_empty(r, 202);
	}
}

static void handle_post(struct request *r, void *ctx)
{
	struct jsonrpc msg;
	struct err e = { 0 };
	if (jsonrpc_read(req_body(r), &msg, &e) == JSONRPC_BAD)
		reply_error(r, 400, msg.id, msg.code, e.message, NULL);
	else
		dispatch(ctx, r, &msg);
	jsonrpc_done(&msg);
}

static void handle_delete(struct request *r, void *ctx)
{
	struct mcp *m = ctx;
	auto_free char *name = session_name(r);
	struct session *s = name ? session_find(m, caller_of(r), name) : NULL;
	if (!s) {
		reply_error(r, name ? 404 : 400, NULL, JSONRPC_INVALID_REQUEST, name ? "there is no such session" : "no " SESSION_HEADER " header", NULL);
		return;
	}
	session_end(m, s);
	req_reply_empty(r, 204);
}

static const struct route routes[] = {
	{ .method = "POST", .pattern = "", .body = BODY_BUFFER, .body_max = MCP_BODY_MAX, .handle = handle_post },
	{ .method = "POST", .pattern = "/", .body = BODY_BUFFER, .body_max = MCP_BODY_MAX, .handle = handle_post },
	{ .method = "POST", .pattern = "/sessions/{session}", .body = BODY_BUFFER, .body_max = MCP_BODY_MAX, .handle = handle_post },
	{ .method = "DELETE", .pattern = "", .handle = handle_delete },
	{ .method = "DELETE", .pattern = "/", .handle = handle_delete },
	{ .method = "DELETE", .pattern = "/sessions/{session}", .handle = handle_delete },
};

/* --- life --- */

struct mcp *mcp_new(struct api *api, struct server *server, const struct mcp_options *o, struct err *e)
{
	struct mcp *m = xcalloc(1, sizeof *m);
	m->api = api;
	m->o = *o;
	m->tools = json_loadb((const char *)tools_json, sizeof tools_json, JSON_REJECT_DUPLICATES, NULL);
	m->dialect = (struct dialect){ .name = "mcp", .routes = routes, .n_routes = ARRAY_LEN(routes), .guard = guard, .refuse = refuse, .prefix = "/mcp",
		                       .ctx = m };
	if (!m->tools)
		err_set(e, ERR_INTERNAL, EINVAL, "tools.json is not JSON");
	if (!m->tools || server_add_dialect(server, &m->dialect, e) < 0) {
		mcp_free(m);
		return NULL;
	}
	return m;
}

void mcp_free(struct mcp *m)
{
	struct session *s, *next;
	if (!m)
		return;
	makings_leave(m, NULL);
	HASH_ITER (hh, m->sessions, s, next)
		session_free(m, s);
	api_forget(m->api, m);
	json_decref(m->tools);
	free(m);
}
