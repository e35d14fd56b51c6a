#include "client/client.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const kind_names[] = {
	[CAISSON_OK] = "none",
	[CAISSON_ERR_INVALID] = "invalid",
	[CAISSON_ERR_UNAUTHENTICATED] = "unauthenticated",
	[CAISSON_ERR_DENIED] = "denied",
	[CAISSON_ERR_NOT_FOUND] = "not_found",
	[CAISSON_ERR_FILE_NOT_FOUND] = "file_not_found",
	[CAISSON_ERR_FILE_DENIED] = "file_denied",
	[CAISSON_ERR_CONFLICT] = "conflict",
	[CAISSON_ERR_LIMIT] = "limit",
	[CAISSON_ERR_TOO_LARGE] = "too_large",
	[CAISSON_ERR_UNSUPPORTED] = "unsupported",
	[CAISSON_ERR_GONE] = "gone",
	[CAISSON_ERR_TIMEOUT] = "timeout",
	[CAISSON_ERR_UNAVAILABLE] = "unavailable",
	[CAISSON_ERR_BAD_GATEWAY] = "bad_gateway",
	[CAISSON_ERR_INTERNAL] = "internal",
	[CAISSON_ERR_CONNECT] = "connect",
	[CAISSON_ERR_PROTOCOL] = "protocol",
	[CAISSON_ERR_NO_MEMORY] = "no_memory",
	[CAISSON_ERR_STOPPED] = "stopped",
	[CAISSON_ERR_LOCAL] = "local",
};

const char *caisson_error_kind_name(enum caisson_error_kind kind)
{
	return (size_t)kind < ARRAY_LEN(kind_names) ? kind_names[kind] : "internal";
}

int error_set(struct caisson_error *e, enum caisson_error_kind kind, const char *fmt, ...)
{
	if (!e)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(e->message, sizeof e->message, fmt, ap);
	va_end(ap);
	/* "One line" is a promise; what a server or a sandbox sent may hold anything. */
	for (char *p = e->message; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
	e->kind = kind;
	e->http_status = 0;
	return -1;
}

int error_memory(struct caisson_error *e)
{
	return error_set(e, CAISSON_ERR_NO_MEMORY, "out of memory");
}

static enum caisson_error_kind kind_of_name(const char *name)
{
	for (size_t i = CAISSON_ERR_INVALID; i <= CAISSON_ERR_INTERNAL; i++)
		if (streq(name, kind_names[i]))
			return (enum caisson_error_kind)i;
	return CAISSON_OK;
}

/* For an answer that is not in our shape: something between us and the server, or not a caisson at all. */
static enum caisson_error_kind kind_of_status(long status)
{
	switch (status) {
	case 401:
		return CAISSON_ERR_UNAUTHENTICATED;
	case 403:
		return CAISSON_ERR_DENIED;
	case 413:
		return CAISSON_ERR_TOO_LARGE;
	case 502:
	case 503:
	case 504:
		return CAISSON_ERR_UNAVAILABLE;
	default:
		return CAISSON_ERR_PROTOCOL;
	}
}

int error_of_reply(struct caisson_error *e, long status, const char *body, size_t len)
{
	auto_json json_t *o = body && len ? json_loadb(body, len, 0, NULL) : NULL;
	const json_t *inner = json_object_get(o, "error");
	const char *name = json_string_value(json_object_get(inner, "kind"));
	const char *message = json_string_value(json_object_get(inner, "message"));

	if (name && message) {
		enum caisson_error_kind kind = kind_of_name(name);
		error_set(e, kind ? kind : kind_of_status(status), "%s", message);
	} else {
		error_set(e, kind_of_status(status), "HTTP status %ld, without the error of a caisson server: is the address right?", status);
	}
	if (e)
		e->http_status = (int)status;
	return -1;
}
