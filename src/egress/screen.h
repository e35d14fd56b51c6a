/* What comes back: values are starred out of it, as they are and as they were sent (in a query, in Basic authentication). Pure.
 *
 * A value may come in pieces, so of what is not over the end is kept back that could belong to one, and how much that is does not depend on the
 * values: whoever sees for what bytes others wait has found the beginning of one, and then the next byte of it. It is kept until more comes, up to
 * the last byte that no value holds (a line's end: events and lines of JSON pass at once), or until nothing has come for a while. Then all goes but what
 * half a value ends in, and is remembered, so that the rest of a value that was cut just there is still starred out. */
#ifndef CAISSON_EGRESS_SCREEN_H
#define CAISSON_EGRESS_SCREEN_H

#include "egress/keyring.h"

#define SCREEN_IDLE_MS 1000

struct screen { /* of one answer */
	struct buf held;
	size_t told; /* of them: gone on already */
	size_t drop; /* of them: not needed any more, once the view of the last call is not */
};
enum screen_when { SCREEN_MORE, SCREEN_IDLE, SCREEN_END };

void screen_init(struct screen *s, size_t max);
void screen_done(struct screen *s); /* wipes */
/* What may go on now, with `bytes` taken in: a view until the next call. More than max: held.overflow. */
struct str screen_pass(struct screen *s, const struct keyring *k, struct str bytes, enum screen_when when);
bool screen_waits(const struct screen *s); /* something is kept back */

/* All of it at once: a head, a field. */
void screen_mask(const struct keyring *k, char *bytes, size_t n);

#endif
