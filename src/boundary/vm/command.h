/* The command line of one QEMU, as a pure function of what it is given. What each option is for, and what was measured without it, is in
 * docs/internals/vm.md. */
#ifndef CAISSON_BOUNDARY_VM_COMMAND_H
#define CAISSON_BOUNDARY_VM_COMMAND_H

#include "boundary/vm/launch.h"

/* All descriptors are inherited by QEMU, under the numbers of launch.h; it opens no path but its firmware's and /dev/urandom. */
struct vmm_plan {
	const char *program; /* "/usr/bin/qemu-system-x86_64" */
	bool kvm;
	uint64_t tsc_khz;    /* of the host; without KVM, where the guest must not measure it itself */
	unsigned cpus;
	uint64_t memory_mib;
	bool keep_disk;      /* the guest's flushes reach the host's disk */
};

/* NULL-terminated, heap: vmm_argv_free. */
char **vmm_argv(const struct vmm_plan *p);
void vmm_argv_free(char **argv);

#endif
