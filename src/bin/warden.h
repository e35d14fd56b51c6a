/* The warden as a process of its own: how `serve` starts it, and what it does before and after warden_main(). */
#ifndef CAISSON_BIN_WARDEN_H
#define CAISSON_BIN_WARDEN_H

#include "cli/serve.h"

#include <sys/types.h>

#define WARDEN_COMMAND "warden" /* first argument; for `serve` only */

/* In the child of a fork: becomes the warden over `fd`, and `machines` (the vm boundary's, or negative), keeping `lock` open. Returns only on failure. */
void warden_exec(const struct serve_options *o, int fd, int machines, int lock, uid_t uid, gid_t gid);
/* The other side of the exec. */
int warden_command(int argc, char **argv);

#endif
