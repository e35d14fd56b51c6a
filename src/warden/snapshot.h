/* Snapshots of disks: DATA/disks/snapshot-<id>.img, a copy of a sandbox's disk at one moment; and new disks that begin as one.
 *
 * Theory of operation. Copying takes long, so each job is a child of the warden: it holds the sandbox still (cgroup freezer), has its
 * file system written out, copies (a reflink where the host's file system can, else only what holds data), lets it go on, forces the
 * copy to the disk, and gives it its name. A name therefore means a whole snapshot; a half-made one is called making-* and goes at the
 * next start. The warden only waits for the child's pidfd, answers, and lets go of the sandbox if the child died on the way. */
#ifndef CAISSON_WARDEN_SNAPSHOT_H
#define CAISSON_WARDEN_SNAPSHOT_H

#include "warden/serve.h"

/* These answer when the child has ended: return 1, or a negative errno and e. */
int snapshot_take(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e);
/* The disk of a sandbox that does not exist yet; it is a stopped one afterwards, to be started with rq.fresh. */
int snapshot_clone(struct warden *w, const struct warden_request *rq, struct err *e);
int snapshot_drop(struct warden *w, const char *snapshot); /* not there is success */
#define SNAPSHOT_FILES "snapshot-"
/* The file of a volume, as a copy of an empty one; and its end. What is mounted of it goes on. */
int snapshot_make_volume(struct warden *w, const struct warden_request *rq, struct err *e);
int snapshot_drop_volume(struct warden *w, const char *volume); /* not there is success */
/* Of a machine that stands still: the pages of its memory that are no longer those of `base`, the file that it began with, into `to`. Both
 * borrowed, and checked by the caller. The answer (disk_bytes: how much) goes to the machines' door. */
int snapshot_memory(struct warden *w, const struct sandbox *s, uint64_t serial, int base, int to, struct err *e);
/* A WARDEN_ITEM for each file PREFIX<id>.img. */
int snapshot_list(struct warden *w, const char *prefix, uint64_t serial);

/* Is this event's source one of the jobs? Then it has been dealt with. */
bool snapshot_event(struct warden *w, const void *source);
/* Of a sandbox that is being ended: its job, if it has one, fails. */
void snapshot_cancel(struct warden *w, const char *id);
void snapshot_cancel_all(struct warden *w);

#endif
