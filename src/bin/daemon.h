/* The daemon without its privileges: wires store, images, core, api, server and dialects together over given boundaries and runs
 * the loop until it is told to end. Also used, over the fake boundary, by the unprivileged test server. */
#ifndef CAISSON_BIN_DAEMON_H
#define CAISSON_BIN_DAEMON_H

#include "boundary/boundary.h"
#include "cli/serve.h"

struct daemon;

/* Listens at once (so that it may be called before privileges are dropped); nothing is answered before daemon_run. */
int daemon_new(uv_loop_t *loop, const struct serve_options *o, struct daemon **ret, struct err *e);
/* The boundaries, the first is the default; they are freed by daemon_run. */
void daemon_add_boundary(struct daemon *d, struct boundary *b);
/* A new edge (egress/egress.h), by the daemon's end of its socket. */
void daemon_edge(void *daemon, int fd);
/* The sandboxes can't be managed any more (the warden is gone): ends with an error. */
void daemon_lost(struct daemon *d, const char *why);
/* Adopts, prints "ready ADDRESS", serves; returns the exit code after SIGTERM, SIGINT, the end of lifetime_fd or daemon_lost.
 * state_dir: where the database and the spool files go; key_path: file (made beforehand, or makeable) for the first key. */
int daemon_run(struct daemon *d, const char *state_dir, const char *key_path);
void daemon_free(struct daemon *d);

#endif
