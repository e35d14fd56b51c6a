/* Ops, on PID 1's side: each is a child that becomes the user and does the work (worker.h). PID 1 only carries frames between
 * it and the daemon, and never waits: a child may hang on whatever a path leads to. */
#ifndef CAISSON_GUEST_OP_H
#define CAISSON_GUEST_OP_H

#include "guest/guest.h"

/* -EPROTO: the daemon broke the rules. */
int op_open(struct guest *g, uint64_t id, struct str message);
int op_input(struct guest *g, const struct guest_frame *f); /* OP_DATA, OP_EOF, OP_CREDIT, OP_CANCEL */
/* A connection of its own for one op: takes fd; `rest` is what was read behind the request. */
int op_open_direct(struct guest *g, int fd, uint64_t id, struct str message, struct str rest);
void ops_cancel(struct guest *g);                 /* the connection is gone */
void ops_resume(struct guest *g);                 /* the connection takes bytes again */
bool op_reaped(struct guest *g, pid_t pid);

#endif
