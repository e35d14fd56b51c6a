#include "base/err.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {
	[ERR_NONE] = "none",
	[ERR_INVALID] = "invalid",
	[ERR_UNAUTHENTICATED] = "unauthenticated",
	[ERR_DENIED] = "denied",
	[ERR_NOT_FOUND] = "not_found",
	[ERR_FILE_NOT_FOUND] = "file_not_found",
	[ERR_FILE_DENIED] = "file_denied",
	[ERR_CONFLICT] = "conflict",
	[ERR_LIMIT] = "limit",
	[ERR_TOO_LARGE] = "too_large",
	[ERR_UNSUPPORTED] = "unsupported",
	[ERR_GONE] = "gone",
	[ERR_TIMEOUT] = "timeout",
	[ERR_UNAVAILABLE] = "unavailable",
	[ERR_INTERNAL] = "internal",
};
static_assert(sizeof kind_names / sizeof kind_names[0] == ERR_KIND_COUNT, "a kind without a name");

static int fill(struct err *e, enum err_kind kind, int errnum)
{
	if (e) {
		e->kind = kind;
		e->errnum = errnum;
	}
	return errnum > 0 ? -errnum : -EINVAL;
}

int err_set(struct err *e, enum err_kind kind, int errnum, const char *fmt, ...)
{
	if (e) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(e->message, sizeof e->message, fmt, ap);
		va_end(ap);
	}
	return fill(e, kind, errnum);
}

int err_sys(struct err *e, enum err_kind kind, int errnum, const char *fmt, ...)
{
	if (e) {
		va_list ap;
		va_start(ap, fmt);
		int n = vsnprintf(e->message, sizeof e->message, fmt, ap);
		va_end(ap);
		if (n >= 0 && (size_t)n < sizeof e->message)
			snprintf(e->message + n, sizeof e->message - (size_t)n, ": %s", strerror(errnum));
	}
	return fill(e, kind, errnum);
}

void err_prefix(struct err *e, const char *fmt, ...)
{
	if (!e)
		return;
	char old[sizeof e->message];
	memcpy(old, e->message, sizeof old);
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(e->message, sizeof e->message, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof e->message)
		snprintf(e->message + n, sizeof e->message - (size_t)n, ": %.*s", (int)(sizeof e->message - 3 - (size_t)n), old);
}

const char *err_kind_name(enum err_kind kind)
{
	if ((unsigned)kind >= ERR_KIND_COUNT)
		return "internal";
	return kind_names[kind];
}

enum err_kind err_kind_of_file_errno(int errnum)
{
	switch (errnum) {
	case ENOENT:
		return ERR_FILE_NOT_FOUND;
	case EACCES:
	case EPERM:
	case EROFS:
		return ERR_FILE_DENIED;
	case EEXIST:
	case ENOTEMPTY:
	case EBUSY:
	case ETXTBSY:
		return ERR_CONFLICT;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case EMLINK:
		return ERR_LIMIT;
	case ENOTDIR:
	case EISDIR:
	case ENAMETOOLONG:
	case ELOOP:
	case EINVAL:
	case ENXIO:
	case ENODEV:
	case ESPIPE:
		return ERR_INVALID;
	case EXDEV:
	case EOPNOTSUPP:
		return ERR_UNSUPPORTED;
	default:
		return ERR_INTERNAL;
	}
}

const char *str_quote(struct str s, struct quoted *room)
{
	char *at = room->text;
	/* Room kept back: the longest escape (4), the mark of a cut (3), a quote and the NUL. */
	const char *end = room->text + sizeof room->text - 9;
	*at++ = '"';
	size_t i = 0;
	for (; i < s.n && at <= end; i++) {
		unsigned char c = (unsigned char)s.p[i];
		if (c < 0x20 || c >= 0x7f) {
			*at++ = '\\';
			*at++ = 'x';
			hex_encode(&c, 1, at);
			at += 2;
		} else {
			if (c == '"' || c == '\\')
				*at++ = '\\';
			*at++ = (char)c;
		}
	}
	if (i < s.n) {
		memcpy(at, "...", 3);
		at += 3;
	}
	*at++ = '"';
	*at = 0;
	return room->text;
}
