/* Machines: QEMUs that the warden starts for the vm boundary, each in a jail of its own.
 *
 * A machine is a sandbox of the warden's (sandbox.h) in everything but what it is made of: it has a record, a uid range, cgroups, a
 * pidfd, and goes the same way to its end. It keeps nothing: when its process has ended, it is gone. Its disk and its memory are the
 * vm boundary's files, of which it has the descriptors. What holds it is said in docs/internals/vm.md. */
#ifndef CAISSON_WARDEN_MACHINE_H
#define CAISSON_WARDEN_MACHINE_H

#include "warden/machine-root.h"
#include "warden/sandbox.h"
#include "wire/machine.h"

/* What its descriptors are: [number - VMM_FD_FIRST], and the log; negative = not there. */
struct machine_fds {
	int vmm[VMM_FDS];
	int log;
};

/* Is it a memory file of that size? Seals exist for those only. */
bool machine_is_memory(int fd, uint64_t mib);

/* Starts it: s is new. fds are borrowed; the image is opened here. What rq says has been checked but for the host's limits. */
int machine_start(struct keeper *k, struct machine_root *root, struct sandbox *s, const struct machine_request *rq, const struct machine_fds *fds,
		  struct err *e);

#endif
