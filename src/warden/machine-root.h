/* The root of every jailed QEMU: a read-only tree that holds its program, the libraries that the loader names, the firmware of the
 * one machine we use, /dev/null, /dev/urandom and, in a tree of its own, /dev/kvm. Every file of it is a mount of the host's own, so
 * an update of QEMU is seen and the page cache is shared. Made when first needed; a machine gets a clone of it. */
#ifndef CAISSON_WARDEN_MACHINE_ROOT_H
#define CAISSON_WARDEN_MACHINE_ROOT_H

#include "warden/place.h"

#include <sys/stat.h>

struct machine_root {
	char *libraries; /* "LD_LIBRARY_PATH=...": where the loader finds them without its cache */
	int tree[2];	 /* attached at RUN/vmm and RUN/vmm-kvm, or negative */
	struct stat program, loader; /* as they were when the trees were made: QEMU, and the loader's cache, which every update of a library renews */
};
#define MACHINE_ROOT_INIT ((struct machine_root){ .tree = { -EBADF, -EBADF } })

/* A detached clone of the tree, or a negative errno with e. */
int machine_root_clone(struct machine_root *r, const struct place *p, bool kvm, struct err *e);
void machine_root_close(struct machine_root *r, const struct place *p, bool empty); /* empty: the folders go as well */

#endif
