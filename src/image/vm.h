/* What the vm boundary boots: a kernel of the distribution's, and images as read-only file systems.
 *
 *   IMAGES/vm/<version>/vmlinux        the kernel, uncompressed; <version> names the package and its revision
 *   IMAGES/vm/<version>/modules.cpio   the modules it needs, modules/NN-NAME.ko in the order in which they are to be loaded
 *   IMAGES/vm/current                  a link to the <version> that new sandboxes use
 *   IMAGES/sha256-<hex>/root.erofs     the image's tree; mode 0600, for the same reason as the tree's own 0700
 *
 * The kernel's package is fetched by apt from the host's own sources, which checks its signature; it is unpacked and never installed,
 * because installing one changes how the host boots. Everything is made beside and renamed into its place. Functions block, run
 * tools of the host, and need root. */
#ifndef CAISSON_IMAGE_VM_H
#define CAISSON_IMAGE_VM_H

#include "image/build.h"

struct image_vm_kernel {
	char *version; /* "6.1.0-57-cloud-amd64_6.1.192-3_amd64" */
	char *vmlinux, *modules; /* absolute paths */
};
void image_vm_kernel_done(struct image_vm_kernel *k);

/* The one that is there: ERR_NOT_FOUND when none is. Needs no root, runs nothing. */
int image_vm_kernel_find(struct image_store *s, struct image_vm_kernel *ret, struct err *e);
/* Whether sandboxes of the default image can be machines: 0, or ERR_NOT_FOUND with what `image build` has yet to prepare. (No default image at
 * all is no hindrance: others may be prepared.) As cheap as the former. */
int image_vm_ready(struct image_store *s, struct err *e);
/* Fetches one when there is none, or with options->force one that is newer. Older versions stay. */
int image_vm_kernel_make(struct image_store *s, const struct image_options *o, struct image_vm_kernel *ret, struct err *e);

/* The path of an image's root.erofs, made when it is not there yet. Heap-owned. */
int image_vm_root(struct image_store *s, const char *digest, const struct image_options *o, char **ret_path, struct err *e);

#endif
