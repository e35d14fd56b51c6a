/* The boundary `fake`: the real guest on a temporary directory, for tests, without warden, image or limits.
 *
 * It isolates nothing that matters: mount and pid namespaces (so that a path is a path of the sandbox, and that no process is
 * left behind), the host's /usr, its network, no cgroups. Needs root, or a host that lets users make user namespaces; then
 * the only user inside is root. It is never linked into a build for users. */
#ifndef CAISSON_BOUNDARY_FAKE_H
#define CAISSON_BOUNDARY_FAKE_H

#include "boundary/boundary.h"

/* dir: an existing absolute path; one directory per sandbox is kept in it. guest: path of the guest's program. */
struct boundary *boundary_fake_new(uv_loop_t *loop, const char *dir, const char *guest, struct err *e);

#endif
