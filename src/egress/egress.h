/* The daemon's side of the edge: what each sandbox may, and what became of it.
 *
 * Policies are kept here and told to every edge that comes (there is a new one whenever the last has ended), so whoever sets one need not
 * know whether an edge runs. Nothing blocks. */
#ifndef CAISSON_EGRESS_EGRESS_H
#define CAISSON_EGRESS_EGRESS_H

#include "base/buf.h"
#include "model/policy.h"
#include "model/reach.h"
#include "wire/edge.h"
#include "wire/opener.h"

#include <uv.h>

struct egress;
/* Verdicts are told at a bounded rate for each sandbox; ev->lost says how many were not. */
typedef void (*egress_event_fn)(void *ctx, const struct edge_event *ev); /* texts end with a NUL */

struct egress *egress_new(uv_loop_t *loop);
void egress_on_event(struct egress *g, egress_event_fn fn, void *ctx);
/* A new edge; fd (one end of a SOCK_SEQPACKET pair) is taken. */
void egress_attach(struct egress *g, int fd);
/* Copied. Valid rules only (policy_check). */
void egress_set(struct egress *g, const char *id, const struct reach *reach, const struct network_limits *limits);
void egress_forget(struct egress *g, const char *id); /* reaches nothing from now on */
void egress_close(struct egress *g); /* no edge any more: the loop can run out */

/* --- secrets and rules about methods: which names are opened, and by whom (egress/opener.h) --- */
/* The keys of this sandbox, as text of egress/keyring.h, are appended. Asked whenever its opener starts or they have changed; nothing of them is
 * kept here. 0 or a negative errno. */
typedef int (*egress_keys_fn)(void *ctx, const char *id, struct buf *out);
typedef void (*egress_use_fn)(void *ctx, const char *id, const struct opener_event *ev); /* what it has to tell */
void egress_on_keys(struct egress *g, egress_keys_fn keys, egress_use_fn use, void *ctx);
/* TLS to these (rules: names with ports) goes to the sandbox's opener from now on, beside what is sent to hosts that are read (`reads`: there are
 * some; struct reach says which); also called when its keys have changed. None of either: there is no opener. While one should run and does not,
 * those connections are refused. */
void egress_open(struct egress *g, const char *id, char *const *hosts, bool reads);
/* To OPENER_ASK, with its number. Of one that has ended it does nothing. */
void egress_answer(struct egress *g, const char *id, uint64_t ask, bool allowed);
void egress_free(struct egress *g); /* accepts NULL; its memory goes when the loop has run its handle out */

#endif
