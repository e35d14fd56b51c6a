/* Mounts as descriptors: made detached, handed to a sandbox, never visible in anybody's tree before.
 *
 * All return a descriptor or a negative errno; `ret_why` (may be NULL) is the step that failed, a static string. */
#ifndef CAISSON_SYS_MNT_H
#define CAISSON_SYS_MNT_H

#include "base/util.h"

/* A private clone of the tree at path below dirfd, with its owners shifted by the user namespace, read-only, nosuid, nodev.
 * dirfd must be in our own mount namespace. */
int mnt_idmapped(int dirfd, const char *path, int userns_fd, const char **ret_why);

struct mnt_option {
	const char *key, *value; /* value NULL: a flag */
};
/* fsopen .. fsmount with options (NULL key ends) and MOUNT_ATTR_* flags. */
int mnt_new(const char *type, const struct mnt_option *options, uint64_t attrs, const char **ret_why);

/* An overlay of upper and work (directories in one file system) on lower, nosuid and nodev; redirect_dir and metacopy on, which
 * is sound because trusted.* attributes cannot be made inside a sandbox. is_volatile: no sync, not mountable again after a crash. */
int mnt_overlay(int lower_fd, int upper_fd, int work_fd, bool is_volatile, const char **ret_why);
/* For kernels that cannot take detached mounts as layers (before 6.15): all three are attached for a moment to the folders l and u
 * of scratch (an absolute path), where upper and work are folders of that name in the mount disk_fd. */
int mnt_overlay_by_path(const char *scratch, int lower_fd, int disk_fd, bool is_volatile, const char **ret_why);

/* A clone of the tree at path ("" = the descriptor itself), recursive or not. */
int mnt_clone(int dirfd, const char *path, bool recursive);
int mnt_readonly(int mnt_fd, bool recursive);
/* Attaches a detached mount on the directory or file that target_fd is. */
int mnt_attach(int mnt_fd, int target_fd);
/* openat2 without symlinks, below dirfd, on the same mount unless cross. */
int mnt_open_beneath(int dirfd, const char *path, uint64_t flags, bool cross);

#endif
