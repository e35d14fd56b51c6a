/* What `serve` needs for the vm boundary: whether this host can have it, and the boundary itself. */
#ifndef CAISSON_BIN_VM_H
#define CAISSON_BIN_VM_H

#include "boundary/boundary.h"
#include "cli/serve.h"
#include "image/vm.h"

struct vm_parts {
	struct image_vm_kernel kernel;
	char *data;      /* folder of its sandboxes */
	char *templates; /* where templates are kept, when not there */
	int lock;        /* on that */
	bool kvm;        /* there is one that answers; whether it works is found out by trying */
	bool kvm_only;   /* it was asked for: what does not work with it fails */
	char *no_kvm;    /* why there is none; NULL with kvm */
	const char *advice; /* what to do about that; NULL when nobody is to be told */
	bool preferred;  /* the boundary of sandboxes that ask for none */
	bool tap;        /* network devices can be made */
};

/* As root, before the daemon gives that up. Where the host lacks something for it (QEMU, kernel, the image's file system) the server does without
 * it, ret->data NULL, and has said so on stderr if that decided which boundary sandboxes get - unless it was asked for: then a negative errno.
 * (A server that leaves nothing behind has its templates beside the images: the next one finds them. One at a time; another makes
 * its own.) */
int vm_parts_find(const struct serve_options *o, uid_t uid, gid_t gid, struct vm_parts *ret, struct err *e);
void vm_parts_done(struct vm_parts *p);

/* machines: the pair to the warden (wire/machine.h), taken. NULL with e. */
struct boundary *vm_parts_boundary(uv_loop_t *loop, const struct vm_parts *p, int machines, struct boundary *process, struct err *e);

#endif
