/* What is in a packaged Linux kernel, as bytes: the ELF file inside a bzImage, and what a module depends on. Private to this layer.
 * Pure: no files. The bytes come from a signed package, and are still read with bounds. */
#ifndef CAISSON_IMAGE_KERNEL_H
#define CAISSON_IMAGE_KERNEL_H

#include "base/util.h"

/* The compressed kernel in a bzImage: a view into it, and the program that unpacks it from standard input ("xz", "zstd", ...; always with
 * -dc). -EINVAL: no bzImage, -EOPNOTSUPP: compressed in a way that is not known here. */
int kernel_payload(struct str bzimage, struct str *ret_payload, const char **ret_program);

/* Whether an uncompressed x86-64 kernel can be entered the way QEMU's microvm does it (PVH, since Linux 4.21 with CONFIG_PVH). */
bool kernel_has_pvh(struct str vmlinux);

/* "virtio-rng.ko.xz" -> "virtio_rng", the name by which others depend on it; false: not the file of a module. */
bool kernel_module_name(const char *file, char ret_name[static 64]);
/* The line "depends=" of an unpacked module ("virtio,virtio_ring"), heap-owned; "" when it has none. */
char *kernel_module_depends(struct str module);

#endif
