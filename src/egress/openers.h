/* The daemon's openers: one process for each sandbox with secrets or rules about methods, kept running while it has any. Private to the daemon's side of egress. */
#ifndef CAISSON_EGRESS_OPENERS_H
#define CAISSON_EGRESS_OPENERS_H

#include "egress/egress.h"

struct openers;
/* started: it runs (anew), and the edge has to be given a way to it. */
struct openers *openers_new(uv_loop_t *loop, void (*started)(void *ctx, const char *id), void *ctx);
void openers_on(struct openers *o, egress_keys_fn keys, egress_use_fn use, void *ctx);
void openers_keep(struct openers *o, const char *id); /* started, or told what its keys are now */
void openers_end(struct openers *o, const char *id);
/* The end of a new pair, whose other end the opener has got: the edge's. Negative: it does not run. */
int openers_edge(struct openers *o, const char *id);
void openers_answer(struct openers *o, const char *id, uint64_t ask, bool allowed);
void openers_free(struct openers *o); /* its memory goes when the loop has run its handles out */

#endif
