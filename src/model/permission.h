/* What the programs in a sandbox may use of what is in it: rules as text. Pure.
 *
 * A rule is   VERDICT KIND:PATH, VERDICT host:TARGET, or VERDICT method:METHODS TARGET[PATH] (model/method.h)
 *   VERDICT  allow, deny; ask (only of programs, hosts and methods): the use waits for an answer
 *   KIND     program (may be executed), read (may be read and listed), write (may be changed, made, removed)
 *   PATH     absolute: a file, or a folder with all below it
 *   TARGET   of model/policy.h; what such a rule means beside the network's policy: model/reach.h
 * Of rules of one kind the one with the longest path counts; of two with the same path, deny before ask before allow. What no rule of a
 * kind names is denied when that kind has an allow rule, else left alone. How this is kept, and what is not kept by it:
 * docs/internals/permissions.md. Rules that could not be kept (ask for files or addresses, methods of addresses) are refused. */
#ifndef CAISSON_MODEL_PERMISSION_H
#define CAISSON_MODEL_PERMISSION_H

#include "base/err.h"
#include "base/util.h"
#include "wire/permit.h"

/* Kinds that no guest hears of: the path is a target; or what follows "method:". */
enum { PERMISSION_HOST = PERMIT_KIND_END, PERMISSION_METHOD };

/* 0, ERR_INVALID, or ERR_UNSUPPORTED: a rule that nothing would enforce. The path is a view into text. */
int permission_parse(const char *text, struct permit *ret, struct err *e);
int permissions_validate(char *const *rules, struct err *e); /* NULL-terminated, or NULL */
/* Those that the guest is told have numbers, in their order. NULL: there is no such one. */
const char *permission_of_guest(char *const *rules, size_t number);

#endif
