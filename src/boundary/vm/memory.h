/* What the children of a fork begin with: a memory file that all of them map privately, as copies do a template's, and a state that
 * each of them reads. Both are sealed. Where the parent has written little since it began, the file is the one that it began with, and the
 * state has the pages that have changed; else the file is one of their own, and they read no more than devices.
 *
 * QEMU has no command for the devices alone which says so. `xen-save-devices-state` writes them and neither memory nor the section that names
 * the machine and its capabilities, which a QEMU that is to go on from it wants first: that one, and that of the pages, are ours to write. */
#ifndef CAISSON_BOUNDARY_VM_MEMORY_H
#define CAISSON_BOUNDARY_VM_MEMORY_H

#include "base/buf.h"
#include "boundary/vm/vm_int.h"

/* A page costs the same to read in, in each child, as to copy into a file of their own, once; that file is a machine's whole memory. */
#define MEMORY_READ_IN_MAX (UINT64_C(64) << 20)

struct memory_files {
	int ram, state; /* negative = none */
};

int memory_new_file(uint64_t mib); /* or a negative errno */

/* Whether that is what `xen-save-devices-state` writes, by its first bytes: 0 or -EBADMSG */
int memory_devices_begin(int devices);
/* changed: the pages that are no longer those of base, where they belong, and holes. All are borrowed; `changed` may be written to, and sealed.
 * -EBADMSG: the devices are none; -EFBIG. Takes tens of milliseconds: see offload.h. */
int memory_make(int changed, int base, int devices, uint64_t read_in_max, struct memory_files *ret);
void memory_files_close(struct memory_files *f);

/* Those that are there, by the snapshot's id. f is taken. */
void memory_keep(struct vm *v, const char *snapshot, struct memory_files *f);
const struct memory_files *memory_of(const struct vm *v, const char *snapshot); /* or NULL */
void memory_forget(struct vm *v, const char *snapshot); /* also when there is none; who maps it keeps it */
void memories_free(struct vm *v);

#endif
