/* Kinds of error in Daytona's shape: one table, for control plane and toolbox. */
#include "dialect/daytona/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

static const struct {
	int status;
	const char *code;
} kinds[ERR_KIND_COUNT] = {
	[ERR_NONE] = { 500, "INTERNAL_SERVER_ERROR" },
	[ERR_INVALID] = { 400, "BAD_REQUEST" },
	[ERR_UNAUTHENTICATED] = { 401, "UNAUTHORIZED" },
	[ERR_DENIED] = { 403, "FORBIDDEN" },
	[ERR_NOT_FOUND] = { 404, "NOT_FOUND" },
	[ERR_FILE_NOT_FOUND] = { 404, "FILE_NOT_FOUND" },
	[ERR_FILE_DENIED] = { 403, "FILE_ACCESS_DENIED" },
	[ERR_CONFLICT] = { 409, "CONFLICT" },
	[ERR_LIMIT] = { 429, "TOO_MANY_REQUESTS" },
	[ERR_TOO_LARGE] = { 413, "PAYLOAD_TOO_LARGE" },
	[ERR_UNSUPPORTED] = { 422, "UNPROCESSABLE_ENTITY" },
	[ERR_GONE] = { 410, "GONE" },
	[ERR_TIMEOUT] = { 408, "REQUEST_TIMEOUT" },
	[ERR_UNAVAILABLE] = { 503, "SERVICE_UNAVAILABLE" },
	[ERR_INTERNAL] = { 500, "INTERNAL_SERVER_ERROR" },
};

static const struct {
	int status;
	const char *phrase, *code;
} statuses[] = {
	{ 400, "Bad Request", "BAD_REQUEST" },
	{ 401, "Unauthorized", "UNAUTHORIZED" },
	{ 403, "Forbidden", "FORBIDDEN" },
	{ 404, "Not Found", "NOT_FOUND" },
	{ 405, "Method Not Allowed", "METHOD_NOT_ALLOWED" },
	{ 408, "Request Timeout", "REQUEST_TIMEOUT" },
	{ 409, "Conflict", "CONFLICT" },
	{ 410, "Gone", "GONE" },
	{ 413, "Payload Too Large", "PAYLOAD_TOO_LARGE" },
	{ 414, "URI Too Long", "URI_TOO_LONG" },
	{ 422, "Unprocessable Entity", "UNPROCESSABLE_ENTITY" },
	{ 426, "Upgrade Required", "UPGRADE_REQUIRED" },
	{ 429, "Too Many Requests", "TOO_MANY_REQUESTS" },
	{ 431, "Request Header Fields Too Large", "HEADERS_TOO_LARGE" },
	{ 500, "Internal Server Error", "INTERNAL_SERVER_ERROR" },
	{ 502, "Bad Gateway", "BAD_GATEWAY" },
	{ 503, "Service Unavailable", "SERVICE_UNAVAILABLE" },
	{ 507, "Insufficient Storage", "INSUFFICIENT_STORAGE" },
};

int status_of(enum err_kind kind)
{
	return kinds[kind].status;
}

static const char *phrase_of(int status)
{
	for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
		if (statuses[i].status == status)
			return statuses[i].phrase;
	return "Error";
}

static const char *code_of(int status)
{
	for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
		if (statuses[i].status == status)
			return statuses[i].code;
	return status < 500 ? "BAD_REQUEST" : "INTERNAL_SERVER_ERROR";
}

/* An errno says more than the kind where a client can do something about it. */
static void classify(const struct err *e, int *ret_status, const char **ret_code)
{
	*ret_status = kinds[e->kind].status;
	*ret_code = kinds[e->kind].code;
	if (e->errnum == ENOSPC || e->errnum == EDQUOT) {
		*ret_status = 507;
		*ret_code = "INSUFFICIENT_STORAGE";
	} else if (e->errnum == EISDIR || e->errnum == ENOTDIR || e->errnum == ENOTEMPTY || e->errnum == ELOOP || e->errnum == ENAMETOOLONG) {
		*ret_status = 400;
		*ret_code = "INVALID_FILE_PATH";
	}
}

int sandbox_not_found(struct err *e, const char *ref)
{
	return err_set(e, ERR_NOT_FOUND, ENOENT, "sandbox %s not found", ref ? ref : "");
}

static bool about_lost_sandbox(const struct err *e)
{
	return e->kind == ERR_NOT_FOUND && strncmp(e->message, "sandbox ", 8) == 0;
}

/* Integrations take "sandbox ... not found" for "the sandbox is gone" and make a new one. A missing session or file whose
 * name happens to contain the word must not read like that, so its "not found" is said in another way. */
static json_t *message_json(const struct err *e)
{
	char text[sizeof(e->message)];
	memcpy(text, e->message, sizeof(text));
	text[sizeof(text) - 1] = '\0';
	char *word = about_lost_sandbox(e) ? NULL : strcasestr(text, "sandbox");
	char *phrase = word;
	while (phrase && (phrase = strcasestr(phrase, "not found")))
		memcpy(phrase, "is absent", 9);
	return textz_json(text);
}

json_t *error_body(const struct err *e, bool toolbox)
{
	int status;
	const char *code;
	classify(e, &status, &code);
	/* The SDKs, and integrations behind them, tell a lost sandbox from a missing file or session by the source. */
	const char *source = !toolbox ? "DAYTONA_API" : about_lost_sandbox(e) ? "DAYTONA_PROXY" : "DAYTONA_DAEMON";
	json_t *o = json_object();
	put(o, "statusCode", json_integer(status));
	put(o, "error", json_string(phrase_of(status)));
	put(o, "message", message_json(e));
	put(o, "code", json_string(code));
	put(o, "source", json_string(source));
	return o;
}

static void answer(struct request *r, int status, json_t *take)
{
	struct str target = req_target(r);
	const char *query = target.n ? memchr(target.p, '?', target.n) : NULL;
	if (query) /* it may hold a token */
		target.n = (size_t)(query - target.p);
	put(take, "path", text_json(target));
	put(take, "method", textz_json(req_method(r)));
	put(take, "timestamp", time_json(now_unix_ms()));
	req_reply_json(r, status, take);
}

static bool is_toolbox(const struct request *r)
{
	const struct route *route = req_route(r);
	return route && route->tag == TAG_TOOLBOX;
}

void fail(struct request *r, const struct err *e)
{
	json_t *o = error_body(e, is_toolbox(r));
	answer(r, (int)json_integer_value(json_object_get(o, "statusCode")), o);
}

static void vfail(struct request *r, int status, const char *code, json_t *more, const char *fmt, va_list ap)
{
	struct err e = { .kind = ERR_INVALID };
	vsnprintf(e.message, sizeof(e.message), fmt, ap);
	json_t *o = error_body(&e, is_toolbox(r));
	put(o, "statusCode", json_integer(status));
	put(o, "error", json_string(phrase_of(status)));
	put(o, "code", json_string(code));
	if (more)
		json_object_update_missing(o, more);
	json_decref(more);
	answer(r, status, o);
}

void fail_code(struct request *r, int status, const char *code, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vfail(r, status, code, NULL, fmt, ap);
	va_end(ap);
}

void fail_more(struct request *r, int status, const char *code, json_t *take, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vfail(r, status, code, take, fmt, ap);
	va_end(ap);
}

void refuse(struct request *r, int status, const struct err *e, void *daytona)
{
	(void)daytona;
	json_t *o = error_body(e, is_toolbox(r));
	put(o, "statusCode", json_integer(status));
	put(o, "error", json_string(phrase_of(status)));
	put(o, "code", json_string(code_of(status)));
	answer(r, status, o);
}
