/* The `vm` boundary: a virtual machine for every sandbox. BEING BUILT: no build for users has it, and serve does not offer it.
 *
 * What works: a machine is booted for every start (no templates yet), with KVM or emulated; core's side is complete but for what is listed
 * in docs/internals/vm.md. QEMU runs as an unprivileged user without network, devices or capabilities, but not yet in a jail of the
 * warden's, so this must run as root. */
#ifndef CAISSON_BOUNDARY_VM_VM_H
#define CAISSON_BOUNDARY_VM_VM_H

#include "boundary/boundary.h"
#include "boundary/vm/launch.h"

struct vm_options {
	const char *data;            /* absolute path of a folder that is there; one folder per sandbox is kept in it */
	const char *kernel, *modules; /* paths, image/vm.h */
	const void *guest;           /* the guest's program */
	size_t guest_len;
	bool kvm;                    /* else emulated */
	struct launcher *launcher;   /* taken, when the boundary could be made */
};

/* All of the options is copied. NULL with e when something in them is not usable here. */
struct boundary *vm_boundary_new(uv_loop_t *loop, const struct vm_options *o, struct err *e);

#endif
