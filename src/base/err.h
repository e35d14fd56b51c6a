/* Errors that a person or an API client will read.
 *
 * Fallible functions return 0 or a positive value on success and a negative errno on failure. Where the reason will be
 * shown to somebody, a caller-owned `struct err` comes last; it is written only on failure. Callers add context going
 * up with err_prefix(). The kind is all that a dialect looks at to choose a status code. */
#ifndef CAISSON_BASE_ERR_H
#define CAISSON_BASE_ERR_H

#include "base/util.h"

enum err_kind {
	ERR_NONE = 0,
	ERR_INVALID,         /* the request is malformed or asks for something impossible */
	ERR_UNAUTHENTICATED, /* no key, or not a valid one */
	ERR_DENIED,          /* valid key, not permitted */
	ERR_NOT_FOUND,       /* sandbox, run, session, image ... does not exist */
	ERR_FILE_NOT_FOUND,  /* a path inside a sandbox does not exist (kept apart: clients treat a lost sandbox differently) */
	ERR_FILE_DENIED,     /* a path inside a sandbox may not be used by the sandbox's user */
	ERR_CONFLICT,        /* exists already, or the state does not allow it now */
	ERR_LIMIT,           /* a quota or limit would be exceeded */
	ERR_TOO_LARGE,       /* body, header or value over a fixed bound */
	ERR_UNSUPPORTED,     /* this boundary, image or build cannot do it */
	ERR_GONE,            /* existed, has ended (a finished command that is sent input, a dead session) */
	ERR_TIMEOUT,         /* a time limit of ours ran out */
	ERR_UNAVAILABLE,     /* the host cannot give it now: missing kernel feature, warden gone, disk full */
	ERR_INTERNAL,        /* our fault */
	ERR_KIND_COUNT
};

struct err {
	enum err_kind kind;
	int errnum;        /* positive errno, 0 if none applies */
	char message[504]; /* UTF-8, one line, says what was wrong and what to do */
};

/* Fills e (which may be NULL) and returns -errnum, or -EINVAL when errnum is 0. */
int err_set(struct err *e, enum err_kind kind, int errnum, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* As err_set with ": <strerror(errnum)>" appended. */
int err_sys(struct err *e, enum err_kind kind, int errnum, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Puts "text: " in front of the message. Keeps kind and errno. */
void err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "not_found" and so on: the word of the native API. Never NULL. */
const char *err_kind_name(enum err_kind kind);

/* The kind that best fits an errno that came from an operation on a path inside a sandbox. */
enum err_kind err_kind_of_file_errno(int errnum);

/* A caller's bytes made fit for a message: in double quotes, everything outside printable ASCII (and \" and \\) escaped, cut with
 * "..." after some 60 characters. Returns room->text: err_set(e, ..., "name: %s", str_quote(s, &(struct quoted){ 0 })). */
struct quoted {
	char text[72];
};
const char *str_quote(struct str s, struct quoted *room);

#endif
