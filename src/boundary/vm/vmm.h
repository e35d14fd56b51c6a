/* The process of a QEMU: starting it with as little as possible, and knowing it again after a restart. */
#ifndef CAISSON_BOUNDARY_VM_VMM_H
#define CAISSON_BOUNDARY_VM_VMM_H

#include "base/err.h"

struct vmm_start {
	char *const *argv;
	const int *fds; /* the descriptors that stay open in it; close-on-exec here */
	size_t fds_n;
	int log;        /* its standard error */
	uid_t uid;      /* whom it runs as; 0 = as we do */
	gid_t gid;
};

/* Returns its pid, and a pidfd; it is our child. An exec that fails is an error here. As root also: namespaces of its own for network,
 * mounts, IPC and names, and a /dev that has null, urandom and, when it is asked for, kvm. */
pid_t vmm_start(const struct vmm_start *s, bool kvm, int *ret_pidfd, struct err *e);

/* Text by which vmm_find knows a process that was started by somebody before us: pid, start time, boot. Heap-owned or NULL. */
char *vmm_record(pid_t pid);
/* The pidfd of the process that was recorded, or -ESRCH when it has gone. */
int vmm_find(const char *record, pid_t *ret_pid);

#endif
