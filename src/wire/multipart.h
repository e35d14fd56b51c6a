/* multipart/form-data (RFC 7578): a push parser and a writer. Pure: bytes in, events out.
 *
 * multipart_feed() takes bytes from the front of *in and returns one event at a time; what a body means does not depend on how
 * its bytes were split. Nothing but what may be the start of a delimiter is held back. Part sizes are unbounded (they are
 * streamed); heads, names and the number of parts are bounded. */
#ifndef CAISSON_WIRE_MULTIPART_H
#define CAISSON_WIRE_MULTIPART_H

#include "base/buf.h"

enum multipart_event {
	MULTIPART_MORE,
	MULTIPART_PART,	 /* multipart.name, .filename, .content_type tell of the part that begins */
	MULTIPART_BYTES, /* *ret_bytes: its next bytes; valid until the next call */
	MULTIPART_PART_END,
	MULTIPART_END,	 /* the closing delimiter; what follows is ignored */
	MULTIPART_ERROR, /* multipart.error says why; stays so */
};

enum {
	MULTIPART_MAX_BOUNDARY = 70, /* RFC 2046, 5.1.1 */
	MULTIPART_MAX_HEAD = 8 * 1024,
	MULTIPART_MAX_PREAMBLE = 8 * 1024,
	MULTIPART_MAX_PARTS = 10000,
	MULTIPART_RANDOM_BOUNDARY = 40, /* bytes, without the NUL */
};

struct multipart {
	const char *error;
	/* Of the current part: UTF-8, without NUL; filename and content_type NULL when not given. Valid until the next part. */
	char *name, *filename, *content_type;

	int state_;
	char delimiter_[4 + MULTIPART_MAX_BOUNDARY + 1]; /* CR LF - - boundary */
	size_t delimiter_len_, matched_, preamble_;
	unsigned n_parts_;
	bool cr_;
	struct buf head_;
};

/* Takes the boundary out of a Content-Type value. -EINVAL: not multipart/form-data, or no usable boundary. */
int multipart_boundary(struct str content_type, char ret_boundary[static MULTIPART_MAX_BOUNDARY + 1]);

void multipart_init(struct multipart *m, const char *boundary);
void multipart_done(struct multipart *m);
enum multipart_event multipart_feed(struct multipart *m, struct str *in, struct str *ret_bytes);
bool multipart_ended(const struct multipart *m); /* the closing delimiter has come: check at the end of the body */

/* --- writing --- */
void multipart_random_boundary(char ret_boundary[static MULTIPART_RANDOM_BOUNDARY + 1]);
/* Everything in front of a part's bytes. filename and content_type may be NULL. `first`: no part came before. */
int multipart_write_part(struct buf *to, const char *boundary, bool first, const char *name, const char *filename, const char *content_type);
int multipart_write_end(struct buf *to, const char *boundary, bool empty);

#endif
