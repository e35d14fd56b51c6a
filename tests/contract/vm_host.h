/* What tests of the vm boundary need of the host: the default image's file system, the kernel, the guest, a folder. */
#ifndef CAISSON_TESTS_VM_HOST_H
#define CAISSON_TESTS_VM_HOST_H

#include "boundary/vm/vm.h"

struct vm_host {
	struct vm_options options; /* all but launcher and data */
	char *digest;              /* of the default image */
	char data[40];             /* a fresh folder */
	const char *images;
	struct boundary *process;  /* of the warden, whose volumes machines have */
	void *private;
};
/* 0; or 77 when this host can't, having said why. */
int vm_host_init(struct vm_host *h);
/* With a warden of its own. Again: another daemon and another warden; the boundary of before has been freed. */
struct boundary *vm_host_open(struct vm_host *h, uv_loop_t *loop, struct err *e);
/* The boundary of vm_host_open, and what is beside it. */
void vm_host_close(struct vm_host *h, struct boundary *b);
/* False, with the place named, when something of a sandbox is left in the folder. */
bool vm_host_done(struct vm_host *h);

#endif
