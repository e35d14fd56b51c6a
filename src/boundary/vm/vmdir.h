/* What a sandbox of the vm boundary has on the host: DATA/<id>/, 0700, ours.
 *
 *   disk        its ext4, a sparse file
 *   guest, qmp  sockets on which QEMU listens
 *   vmm         the process (vmm.h), while it runs
 *   limits      "memory_mib cpu_millis disk_mib pids image"
 *   memory      memory and devices of a machine that is suspended; gone when it runs again
 *   memory.sum  its hash (transfer.h)
 *   held        there while a snapshot holds it still: "running" or "paused", as it will be again
 *   ready       there if the guest has been set up since that process began
 *   ephemeral   there if the disk goes with the process
 *
 * and in DATA/templates what template.h says. */
#ifndef CAISSON_BOUNDARY_VM_VMDIR_H
#define CAISSON_BOUNDARY_VM_VMDIR_H

#include "base/err.h"

bool vmdir_id_valid(const char *id);
int vmdir_make(const char *data, const char *id, struct err *e); /* ERR_CONFLICT when it is there */
/* A descriptor of it, or a negative errno. */
int vmdir_open(const char *data, const char *id);
int vmdir_remove(const char *data, const char *id, struct err *e); /* also when there is nothing */
void vmdir_forget_memory(const char *data, const char *id);        /* the same */

int vmdir_new_disk(int dir);                          /* the empty file, open for writing; or a negative errno */
int vmdir_fill_disk(int to, int from, struct err *e); /* with a sparse copy. May wait for a disk: see offload.h */
/* A file that is one: neither a link nor what an open could wait for. As openat, or a negative errno (EBADMSG). */
int vmdir_open_file(int dir, const char *name, int mode);
/* In place of whatever was there under the name. A socket that listens; one that is connected, non-blocking; or a negative errno. */
int vmdir_listen(int dir, const char *name);
int vmdir_connect(int dir, const char *name);
int vmdir_write(int dir, const char *name, const char *text);
char *vmdir_read(int dir, const char *name); /* at most 4 KiB; NULL = can't */

/* The file "limits": the digest of its image, heap, or NULL. The pointers may be NULL. */
char *vmdir_limits(int dir, uint64_t *ret_memory_mib, uint64_t *ret_cpu_millis, uint64_t *ret_disk_mib);

/* A sealed memory file: the archive at modules_path, and behind it the guest as /init. */
int vmdir_initrd(const char *modules_path, struct str guest, struct err *e);

#endif
