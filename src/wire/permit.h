/* What the programs of a sandbox may use, as the daemon tells the guest (GUEST_PERMIT): entries {u8 verdict, u8 kind, absolute path, NUL},
 * one after another. Pure codec, shared by both ends; docs/protocol/guest.md. */
#ifndef CAISSON_WIRE_PERMIT_H
#define CAISSON_WIRE_PERMIT_H

#include "base/buf.h"

enum permit_kind { PERMIT_PROGRAM = 1, PERMIT_READ, PERMIT_WRITE, PERMIT_KIND_END };
enum permit_verdict { PERMIT_ALLOW = 1, PERMIT_ASK, PERMIT_DENY, PERMIT_VERDICT_END };
enum { PERMITS_MAX = 64, PERMIT_PATH_MAX = 4095 };

struct permit {
	enum permit_verdict verdict;
	enum permit_kind kind;
	const char *path; /* absolute; NUL-terminated, in the input */
};

/* 0 or -ENOBUFS. */
int permit_put(struct buf *out, const struct permit *p);
/* Takes one entry off *in: 1, 0 = that was the last, -EPROTO. */
int permit_next(struct str *in, struct permit *ret);

#endif
