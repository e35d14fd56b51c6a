/* The daemon's side of the edge: what each sandbox may, and what became of it.
 *
 * Policies are kept here and told to every edge that comes (there is a new one whenever the last has ended), so whoever sets one need not
 * know whether an edge runs. Nothing blocks. */
#ifndef CAISSON_EGRESS_EGRESS_H
#define CAISSON_EGRESS_EGRESS_H

#include "model/policy.h"
#include "wire/edge.h"

#include <uv.h>

struct egress;
/* Verdicts are told at a bounded rate for each sandbox; ev->lost says how many were not. */
typedef void (*egress_event_fn)(void *ctx, const struct edge_event *ev); /* texts end with a NUL */

struct egress *egress_new(uv_loop_t *loop);
void egress_on_event(struct egress *g, egress_event_fn fn, void *ctx);
/* A new edge; fd (one end of a SOCK_SEQPACKET pair) is taken. */
void egress_attach(struct egress *g, int fd);
/* The lists may be NULL; they are copied. Valid ones only (policy_check). */
void egress_set(struct egress *g, const char *id, enum network_mode mode, char *const *allow, char *const *deny,
		const struct network_limits *limits);
void egress_forget(struct egress *g, const char *id); /* reaches nothing from now on */
void egress_close(struct egress *g); /* no edge any more: the loop can run out */
void egress_free(struct egress *g); /* accepts NULL; its memory goes when the loop has run its handle out */

#endif
