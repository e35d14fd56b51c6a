/* The process of a QEMU: knowing it again after a restart. */
#ifndef CAISSON_BOUNDARY_VM_VMM_H
#define CAISSON_BOUNDARY_VM_VMM_H

#include "base/err.h"
#include "boundary/vm/launch.h"

/* Text by which vmm_find knows a process that was started by somebody before us: pid, start time, boot. Heap-owned or NULL. */
char *vmm_record(pid_t pid);
/* The pidfd of the process that was recorded, or -ESRCH when it has gone. */
int vmm_find(const char *record, pid_t *ret_pid);

/* Ends a machine that a former daemon had for its own ends, if it runs: dir has the files "vmm" and "id". */
void vmm_end_unfinished(struct launcher *l, int dir);

#endif
