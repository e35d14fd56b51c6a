/* What one QEMU is asked to run: plain data, its validation, and the command line it means.
 *
 * The boundary fills in a plan; whoever starts QEMU (the warden) checks it and writes the command line itself, so that nobody else's text
 * reaches QEMU. What each option is for, and what was measured without it, is in docs/internals/vm.md. */
#ifndef CAISSON_WIRE_VMM_H
#define CAISSON_WIRE_VMM_H

#include "base/util.h"

#define VMM_PROGRAM "/usr/bin/qemu-system-x86_64"

/* The numbers under which QEMU finds its descriptors. It opens no path but its firmware's, /dev/urandom and, with KVM, /dev/kvm. */
enum vmm_fd {
	VMM_FD_FIRST = 3,
	VMM_FD_IMAGE = VMM_FD_FIRST, /* file, read-only */
	VMM_FD_DISK,
	VMM_FD_GUEST, /* listening sockets */
	VMM_FD_QMP,
	VMM_FD_RAM,    /* the guest's memory, when it is a file */
	VMM_FD_INITRD,
	VMM_FD_KERNEL, /* uncompressed, with a PVH entry */
	VMM_FD_TAP,    /* a network device's other end, with a vnet header */
	VMM_FD_VOLUMES, /* the line to the server of its volumes: a connected socket */
	VMM_FD_END,
	VMM_FDS = VMM_FD_END - VMM_FD_FIRST,
};
#define VMM_FD_BIT(fd) (1u << ((fd) - VMM_FD_FIRST))

enum vmm_begin {
	VMM_BOOT = 1,
	VMM_INCOMING, /* waits for QMP's migrate-incoming; no kernel */
};

enum vmm_ram {
	VMM_RAM_OWN = 1,
	VMM_RAM_SHARED, /* the file is its memory */
	VMM_RAM_COPIED, /* the file is what it begins with; what it writes is its own */
};

enum { VMM_CPUS_MAX = 64, VMM_MEMORY_MIB_MIN = 128 };

struct vmm_plan {
	uint32_t begin; /* enum vmm_begin */
	uint32_t ram;   /* enum vmm_ram */
	uint32_t kvm;   /* 0 or 1 */
	uint32_t keep_disk; /* 1: the guest's flushes reach the host's disk */
	uint32_t tap;       /* 1: it has a network device */
	uint32_t volumes;   /* 1: its port "volumes" leads somewhere, or did: else it swallows what it gets */
	uint64_t tsc_khz;   /* of the host; without KVM, where the guest must not measure it itself */
	uint64_t cpu_millis;
	uint64_t memory_mib;
};

/* NULL, or what is wrong with it, in plain words. */
const char *vmm_plan_wrong(const struct vmm_plan *p);
/* Which descriptors it takes: VMM_FD_BIT of each. */
uint32_t vmm_plan_fds(const struct vmm_plan *p);
/* NULL-terminated, heap: vmm_argv_free. */
char **vmm_argv(const char *program, const struct vmm_plan *p);
void vmm_argv_free(char **argv);

#endif
