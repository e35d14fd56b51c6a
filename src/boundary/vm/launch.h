/* Starting a QEMU, and ending it: all that the boundary needs somebody with rights for.
 *
 * A launcher gets a plan and descriptors, and answers with a process. The daemon that asks has no rights of its own: it can neither
 * open an image's file system, nor signal a QEMU, which belongs to another user. Hence `image` is a name and not a descriptor, and ending
 * a process is the launcher's. What it hands out is believed; what it is asked for it has to check. */
#ifndef CAISSON_BOUNDARY_VM_LAUNCH_H
#define CAISSON_BOUNDARY_VM_LAUNCH_H

#include "base/err.h"
#include "model/spec.h"
#include "wire/vmm.h"

#include <uv.h>

struct launch {
	const char *id;           /* whose it is: 36 characters [0-9a-f-], one process at a time */
	const char *image;        /* digest, "sha256:..." */
	struct vmm_plan plan;
	/* With plan.volumes: what the server of its volumes has, in that order, at most SPEC_VOLUMES_MAX; and by what their line begins. */
	const struct volume_mounts *volumes;
	const char *line;         /* GUEST_LINE_BYTES */
	bool network;             /* its tap is in a gate; else it carries nothing */
	int fds[VMM_FDS];         /* [number - VMM_FD_FIRST]; negative = there is none. Borrowed, close-on-exec here. IMAGE, TAP and VOLUMES are ignored */
	int log;                  /* its standard error */
};

/* pid and pidfd (the callee's) of a process that runs QEMU. Or e, and there is no process. */
typedef void (*launched_fn)(void *ctx, const struct err *e, pid_t pid, int pidfd);

/* oom: it was ended because its control group had no memory left. */
typedef void (*swept_fn)(void *ctx, bool oom);
typedef void (*told_fn)(void *ctx, const struct err *e);

struct launcher {
	/* Everything in l is borrowed for the call. done is called once, later or before this returns. */
	void (*start)(struct launcher *, const struct launch *l, launched_fn done, void *ctx);
	/* SIGKILL. The pidfd tells when it has ended. Also one that a former daemon had started. */
	void (*kill)(struct launcher *, const char *id, int pidfd);
	/* After its end: done is called when nothing of it is left on the host but what it was given, later or before this returns. */
	void (*swept)(struct launcher *, const char *id, swept_fn done, void *ctx);
	/* Whatever there is of that id: killed and taken away, also what a former daemon had started and not written down. done is called once, when nothing is
	 * left of it, later or before this returns. */
	void (*end)(struct launcher *, const char *id, told_fn done, void *ctx);
	/* Of one that runs and has a tap: from now on in a gate, or not. done is called once, later or before this returns. */
	void (*network)(struct launcher *, const char *id, bool on, told_fn done, void *ctx);
	/* Of one that stands still: the pages of its memory that are no longer those of `base`, the file that it began with, into `to`, of the
	 * same size. Both borrowed. done is called once, later or before this returns. */
	void (*memory)(struct launcher *, const char *id, int base, int to, told_fn done, void *ctx);
	/* Tells those that still wait ECANCELED; the processes go on. */
	void (*free)(struct launcher *);
};

/* By the warden, each in a jail (docs/internals/vm.md). fd: the vm boundary's pair to it (wire/machine.h), taken; the loop is to run once
 * more after free. */
struct launcher *launcher_warden(uv_loop_t *loop, int fd);

#endif
