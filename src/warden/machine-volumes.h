/* The server of a machine's volumes: a process beside its QEMU, in a jail of its own that is made as a sandbox's is. Its root holds the folders
 * that the machine may have and an empty /proc, nothing else; the mounts are the same as those of a sandbox of the process boundary: idmapped
 * by the machine's range of uids, without devices and set-user-id, read-only where that was asked for. It shares the machine's groups and so
 * its limits and its end. */
#ifndef CAISSON_WARDEN_MACHINE_VOLUMES_H
#define CAISSON_WARDEN_MACHINE_VOLUMES_H

#include "warden/sandbox.h"
#include "wire/machine.h"

/* Starts it, and sets s->server. The machine has its slot and its groups; group: as for sandbox_clone. *ret_line is QEMU's end of the line.
 * Without any volumes there is no server, and that line has ended. */
int machine_volumes_start(struct keeper *k, struct sandbox *s, const struct machine_request *rq, int group, int *ret_line, struct err *e);
/* Ends it and waits for that; for a machine that did not come to be. */
void machine_volumes_end(struct sandbox *s);

#endif
