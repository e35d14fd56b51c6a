/* Percent-encoding (RFC 3986) and application/x-www-form-urlencoded. */
#ifndef CAISSON_WIRE_URLENCODE_H
#define CAISSON_WIRE_URLENCODE_H

#include "base/buf.h"

enum url_decode {
	URL_PERCENT = 0,
	URL_FORM = 1,	  /* '+' is a blank */
	URL_NO_SLASH = 2, /* an encoded '/' is refused: one path segment */
};

/* Decodes once into ret_text (in.n + 1 bytes at most, NUL behind; may be in.p itself). Returns the length, or -EINVAL for a
 * broken escape, an encoded NUL, or bytes that are no UTF-8. */
ssize_t url_decode(struct str in, int flags, char *ret_text);

/* Walks "a=1&b=2": the next raw pair (value empty without '='; empty pairs are skipped); false at the end. */
bool url_query_next(struct str *rest, struct str *ret_name, struct str *ret_value);

/* Appends `in` with all but unreserved characters and those in `keep` escaped. */
int url_encode(struct buf *to, struct str in, const char *keep);

#endif
