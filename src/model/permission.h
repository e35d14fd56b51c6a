/* What the programs in a sandbox may use of what is in it: rules as text. Pure.
 *
 * A rule is   allow KIND:PATH
 *   KIND  program (may be executed), read (may be read and listed), write (may be changed, made, removed)
 *   PATH  absolute: a file, or a folder with all below it
 * A kind of which there is a rule is denied wherever none allows it; a kind of which there is none is not looked at. How this is kept, and
 * what is not kept by it: docs/internals/permissions.md. Rules that could not be kept (deny, ask, host, method) are refused. */
#ifndef CAISSON_MODEL_PERMISSION_H
#define CAISSON_MODEL_PERMISSION_H

#include "base/err.h"
#include "base/util.h"
#include "wire/permit.h"

/* 0, ERR_INVALID, or ERR_UNSUPPORTED: a rule that nothing would enforce. The path is a view into text. */
int permission_parse(const char *text, enum permit_kind *ret_kind, struct str *ret_path, struct err *e);
int permissions_validate(char *const *rules, struct err *e); /* NULL-terminated, or NULL */

#endif
