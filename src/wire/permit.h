/* What the programs of a sandbox may use, as the daemon tells the guest (GUEST_PERMIT): entries {u8 kind, absolute path, NUL}, one after
 * another. Pure codec, shared by both ends; docs/protocol/guest.md. */
#ifndef CAISSON_WIRE_PERMIT_H
#define CAISSON_WIRE_PERMIT_H

#include "base/buf.h"

enum permit_kind { PERMIT_PROGRAM = 1, PERMIT_READ, PERMIT_WRITE, PERMIT_KIND_END };
enum { PERMITS_MAX = 64, PERMIT_PATH_MAX = 4095 };

/* 0 or -ENOBUFS. path is absolute, without NUL. */
int permit_put(struct buf *out, enum permit_kind kind, struct str path);
/* Takes one entry off *in: 1, 0 = that was the last, -EPROTO. The path is NUL-terminated, in the input. */
int permit_next(struct str *in, enum permit_kind *ret_kind, const char **ret_path);

#endif
