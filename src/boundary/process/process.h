/* The `process` boundary: namespaces, on the shared kernel. The daemon's side, without privilege: asks the warden.
 *
 * What it gives and what not: docs/internals/process.md. */
#ifndef CAISSON_BOUNDARY_PROCESS_PROCESS_H
#define CAISSON_BOUNDARY_PROCESS_PROCESS_H

#include "boundary/boundary.h"

/* The warden is gone, or says that it cannot work here. Every pending call has failed before this with ERR_UNAVAILABLE, and so
 * will every later one; the sandboxes that run go on, and can be had again through a new warden and a new boundary. */
typedef void (*process_lost_fn)(void *ctx, const struct err *why);

/* fd: one end of a SOCK_SEQPACKET pair whose other end a warden serves; taken. on_exit is set by the caller in the struct's head.
 * `free` closes the socket, which ends the warden and leaves the sandboxes; pending calls fail before it returns. */
struct boundary *process_boundary_new(uv_loop_t *loop, int fd, process_lost_fn on_lost, void *ctx);

/* Told of each new edge (wire/edge.h): fd, the daemon's end of its socket, is the callee's. Without this nobody says what sandboxes may,
 * and they reach nothing. */
void process_boundary_on_edge(struct boundary *b, void (*on_edge)(void *ctx, int fd), void *ctx);

/* Asks whether the warden is there and has not refused the host: done with NULL, or on_lost's reason. */
void process_boundary_probe(struct boundary *b, boundary_done_fn done, void *ctx);

#endif
