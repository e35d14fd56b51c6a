/* Volumes: folders that sandboxes share and that outlive them. DATA/disks/volume-<id>.img is an ext4 of its own, whose size is a hard
 * limit; what sandboxes see is below its folder `data`.
 *
 * Theory of operation. The file is bound to one loop device while any sandbox has it, and each sandbox gets an idmapped mount of that one
 * file system, without devices and set-user-id bits. The kernel keeps count: with the last mount the device lets go by itself, and nobody
 * here remembers who has what. Two devices on one file would ruin it, so the file is locked (flock) before it is bound, and the device
 * keeps that lock as long as it keeps the file, also over the death of this process. */
#ifndef CAISSON_WARDEN_VOLUME_H
#define CAISSON_WARDEN_VOLUME_H

#include "warden/place.h"
#include "wire/warden.h"

#define VOLUME_FILES "volume-"

/* "volume-<id>.img" */
void volume_file(char ret[static 64], const char *id);
/* A detached mount of what v asks for, its owners mapped by the user namespace; a subpath that is missing is made. ERR_NOT_FOUND: no
 * such volume; ERR_INVALID: a symlink or a file is in the subpath's way; ERR_UNAVAILABLE with EBUSY: the kernel is still letting go of it. */
int volume_mount(const struct place *p, const struct warden_volume *v, int userns_fd, struct err *e);

#endif
