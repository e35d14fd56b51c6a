/* The `vm` boundary: a virtual machine for every sandbox. docs/internals/vm.md tells what holds it and what does not.
 *
 * A create copies a template (template.h); a start of a sandbox that was stopped boots. With KVM or emulated. */
#ifndef CAISSON_BOUNDARY_VM_VM_H
#define CAISSON_BOUNDARY_VM_VM_H

#include "boundary/boundary.h"
#include "boundary/vm/launch.h"

struct vm_options {
	const char *data;            /* absolute path of a folder that is there; one folder per sandbox is kept in it */
	const char *templates;       /* a folder for them that is this daemon's alone; NULL = DATA/templates */
	const char *kernel, *modules; /* paths, image/vm.h */
	const void *guest;           /* the guest's program */
	size_t guest_len;
	bool kvm;                    /* else emulated */
	const char *no_kvm;          /* why not, in plain words; NULL with kvm */
	bool kvm_only;               /* what does not work with it fails; else all are emulated when a first machine does not come up with it */
	bool tap;                    /* machines get a network device, and sandboxes can have a network */
	struct boundary *volumes;    /* the kind on this host whose volumes machines can have, or NULL; it outlives this one */
	unsigned beat_ms;            /* how often QEMU is asked whether it is there; three times unanswered is its end. 0 = 10,000 */
	struct launcher *launcher;   /* taken, when the boundary could be made */
};

/* All of the options is copied. NULL with e when something in them is not usable here. */
struct boundary *vm_boundary_new(uv_loop_t *loop, const struct vm_options *o, struct err *e);

/* Takes what is not a sandbox's out of a data folder that no boundary uses. */
void vm_data_clean(const char *data);
/* And the sandboxes' as well. */
void vm_data_remove(const char *data);

#endif
