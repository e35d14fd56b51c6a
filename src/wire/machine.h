/* What the vm boundary asks of the warden: to start a QEMU in its jail, to end it, whether its network device leads anywhere, and
 * what it has in its memory. Records over a SOCK_SEQPACKET pair of their
 * own, one request and one answer (struct warden_answer) per message, matched by `serial`; checked as those of wire/warden.h are. What
 * is a machine's here does not exist on the other pair, and the other way round.
 *
 * Descriptors come along with a MACHINE_START: those that its plan takes (vmm_plan_fds) but the image, which the warden looks for by
 * its digest, and the tap and the line of the volumes, which it makes, in the order of enum vmm_fd; then QEMU's standard error. They must be what they are said to be: the RAM and the log
 * memory files, sockets unix streams that listen, the rest plain files. With its answer comes the pidfd.
 *
 * MACHINE_MEMORY copies what a machine that stands still has written to its memory since it began; with it come the file that it began
 * with, and the one of the same size that gets those pages, where they belong. It is the machine's word that it stands still, and nobody else's
 * loss if it does not.
 *
 * MACHINE_END is answered when nothing is left of the machine, also when there is none. A QEMU that has ended by itself is told
 * unasked, as WARDEN_EXIT with serial 0, when nothing is left of it. */
#ifndef CAISSON_WIRE_MACHINE_H
#define CAISSON_WIRE_MACHINE_H

#include "wire/vmm.h"
#include "wire/warden.h"

#define MACHINE_MAGIC 0x434d4134u /* "CMA4"; changes with any field */
enum machine_op { MACHINE_START = 1, MACHINE_END, MACHINE_NETWORK, MACHINE_MEMORY, MACHINE_LAST = MACHINE_MEMORY };

/* Those of a plan that whoever asks has to give. */
#define MACHINE_GIVEN(plan) (vmm_plan_fds(plan) & ~(VMM_FD_BIT(VMM_FD_IMAGE) | VMM_FD_BIT(VMM_FD_TAP) | VMM_FD_BIT(VMM_FD_VOLUMES)))
enum { MACHINE_FDS = VMM_FDS - 2 }; /* the log instead of the image, the tap and the line */

struct machine_request {
	uint32_t magic, op;
	uint64_t serial; /* not 0 */
	char id[40];
	uint32_t network; /* of MACHINE_START and MACHINE_NETWORK: 1 = its tap is in a gate, else it carries nothing */
	uint32_t volumes_n; /* with plan.volumes; none: its line has no other end, which is told to whoever has still something on it */
	/* of MACHINE_START */
	char image_digest[80];
	char line[16]; /* by which the line of its volumes begins */
	struct vmm_plan plan;
	struct warden_volume volumes[WARDEN_VOLUMES_MAX]; /* in the server's order; their paths are the guest's business */
};

#endif
