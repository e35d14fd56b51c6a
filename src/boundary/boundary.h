/* A boundary: the kind of isolation a sandbox runs behind. The interface that every kind fills in, and all that core knows.
 *
 * Calls do not block. Each answers exactly once through its callback, later or before it returns. A kind never reports
 * success for less than was asked: a limit or feature it cannot give is an error that names the cause (ERR_UNAVAILABLE
 * for the host's lack, ERR_UNSUPPORTED for the kind's).
 *
 * Life of one sandbox as a boundary sees it:  create -> [stop -> start]* -> destroy.
 * `create` makes the disk and starts it; `stop` ends every process and keeps the disk (unless spec.ephemeral); `destroy`
 * removes everything and succeeds also when nothing is there (twice, half-made, after a crash).
 *
 * A started sandbox holds our guest program as PID 1, which answers the guest protocol (docs/protocol/guest.md) on
 * the descriptor of open_guest(). It may be opened again at any time: the newest connection that says hello replaces the one
 * before, and nothing is lost by that. With BOUNDARY_MANY_CONNECTIONS others may be open beside it, each for one op. */
#ifndef CAISSON_BOUNDARY_BOUNDARY_H
#define CAISSON_BOUNDARY_BOUNDARY_H

#include "base/err.h"
#include "model/sandbox.h"

#include <errno.h>
#include <uv.h>

/* What a kind is asked to make. Pointers are borrowed for the call. (What is added here is compared in core/pool.c, too: a ready
 * sandbox must be what was asked for in everything but its name.) */
struct boundary_spec {
	const char *id;          /* sandbox id: 36 characters [0-9a-f-], used in names on the host */
	const char *image_digest;
	const char *hostname;    /* 1..63 characters [a-zA-Z0-9-] */
	struct resources resources; /* no zero in it */
	bool ephemeral;
	bool network; /* it gets a gate, with BOUNDARY_CAN_NETWORK; else nothing but a loopback */
	const struct volume_mounts *volumes; /* by id, with BOUNDARY_CAN_VOLUMES; or NULL */
	bool sudo;    /* its ordinary user (`user`, else the guest's default) may become anybody in it; else nobody gains a right inside */
	/* What the guest is told at its start. user and workdir NULL: the guest's own defaults. */
	const char *user, *workdir;
	const struct pairs *env; /* or NULL; at most BOUNDARY_ENV_MAX bytes, each pair counted as name + value + 2 */
	/* create only: the id of a snapshot that it begins as, or NULL. Image and size of the disk are then the snapshot's. */
	const char *from_snapshot;
};
#define BOUNDARY_ENV_MAX 4096

/* For a kind without volumes, or while it has none to give. */
static inline int boundary_no_volumes(const struct boundary_spec *s, struct err *e)
{
	return s->volumes && s->volumes->n ? err_set(e, ERR_UNSUPPORTED, EOPNOTSUPP, "volumes: this boundary shares no folders") : 0;
}

struct boundary_exit { /* a started sandbox has ended by itself */
	bool oom;            /* of memory */
	char reason[200];    /* plain words */
};

struct boundary;
typedef void (*boundary_done_fn)(void *ctx, const struct err *e); /* e NULL = done */
typedef void (*boundary_usage_fn)(void *ctx, const struct err *e, const struct usage *u);
typedef void (*boundary_list_fn)(void *ctx, const struct err *e, const char *const *ids, const bool *started, size_t n);
typedef void (*boundary_snapshot_fn)(void *ctx, const struct err *e, uint64_t bytes); /* bytes: what it takes on this host */
typedef void (*boundary_snapshots_fn)(void *ctx, const struct err *e, const char *const *ids, size_t n);
typedef void (*boundary_volumes_fn)(void *ctx, const struct err *e, const char *const *ids, const uint64_t *bytes, size_t n);
/* Not called for an end that stop or destroy asked for. */
typedef void (*boundary_exit_fn)(void *ctx, const char *id, const struct boundary_exit *x);

struct boundary_ops {
	const char *name; /* "process" */
	const char *volumes_of; /* the kind whose volumes it uses, by name; NULL: its own, if any. Such a one's make_volume and so on are that kind's */
	unsigned caps;    /* boundary_cap bits */
	unsigned spares;  /* ready sandboxes worth keeping of a shape that is asked for; 0 = they are not worth their memory */
	unsigned spare_rest_ms; /* after one was taken: the making of the next would disturb what it was taken for */
	const char *spare_runs; /* a program that a ready one has run already, for the first run in one takes longer than the next; NULL: it does not */
	/* All sandboxes of this data folder that are there now, whoever made them: for adoption after a restart. */
	void (*list)(struct boundary *b, boundary_list_fn done, void *ctx);
	void (*create)(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx);
	void (*start)(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx);
	void (*stop)(struct boundary *b, const char *id, boundary_done_fn done, void *ctx);
	void (*destroy)(struct boundary *b, const char *id, boundary_done_fn done, void *ctx);
	void (*pause)(struct boundary *b, const char *id, boundary_done_fn done, void *ctx);
	void (*resume)(struct boundary *b, const char *id, boundary_done_fn done, void *ctx);
	/* With BOUNDARY_CAN_SUSPEND (else NULL), of one that is not ephemeral. suspend: of a running or paused sandbox; its memory is kept beside its disk, and
	 * nothing of it runs any more. Failing, it is as it was. stop forgets that memory. wake: it goes on from there, with its id, resources and image as they
	 * were. Failing, it is suspended still, but for ERR_GONE: its memory is not there. */
	void (*suspend)(struct boundary *b, const char *id, boundary_done_fn done, void *ctx);
	void (*wake)(struct boundary *b, const struct boundary_spec *spec, boundary_done_fn done, void *ctx);
	void (*usage)(struct boundary *b, const char *id, boundary_usage_fn done, void *ctx);
	/* Whether a sandbox could be started with these limits (no zero in them): what create and start would say, too. */
	int (*check)(struct boundary *b, const struct resources *r, struct err *e);
	/* New limits of a started sandbox, with BOUNDARY_CAN_RESIZE (else NULL): memory, cpus and pids; disk_mib is not looked at. None of
	 * them changes when one cannot. ERR_CONFLICT: it uses more memory than that. */
	void (*resize)(struct boundary *b, const char *id, const struct resources *r, boundary_done_fn done, void *ctx);
	/* Of a running sandbox, with BOUNDARY_CAN_NETWORK (else NULL): with a gate from now on, or without. */
	void (*network)(struct boundary *b, const char *id, bool on, boundary_done_fn done, void *ctx);
	/* Snapshots, with BOUNDARY_CAN_SNAPSHOT_DISK (else NULL). A snapshot is the state of a sandbox at one moment, kept under an id of
	 * the caller's (36 characters [0-9a-f-]): its disk, and with `memory` (BOUNDARY_CAN_SNAPSHOT_MEMORY) all that runs in it. It is whole
	 * or not there, depends on no sandbox, and no sandbox depends on it: dropping it harms none that was made from it.
	 *
	 * snapshot: of a running, paused or stopped sandbox, which is held still as long as it takes and goes on as it was. It fails when
	 * the sandbox ends or is destroyed meanwhile. `passing`: it is dropped again in a moment, and need not outlive a crash of the host. drop: succeeds also when it is not there. list_snapshots: of this data folder. */
	void (*snapshot)(struct boundary *b, const char *id, const char *snapshot, bool memory, bool passing, boundary_snapshot_fn done, void *ctx);
	void (*drop_snapshot)(struct boundary *b, const char *snapshot, boundary_done_fn done, void *ctx);
	void (*list_snapshots)(struct boundary *b, boundary_snapshots_fn done, void *ctx);
	/* Volumes, with BOUNDARY_CAN_VOLUMES (else NULL), under ids of the caller's. A volume holds at most `mib`, belongs to no sandbox and
	 * outlives them all. drop: succeeds also when it is not there; a sandbox that has it keeps it until its end. list_volumes: of this
	 * data folder, with what each takes on this host. */
	void (*make_volume)(struct boundary *b, const char *volume, uint64_t mib, boundary_done_fn done, void *ctx);
	void (*drop_volume)(struct boundary *b, const char *volume, boundary_done_fn done, void *ctx);
	void (*list_volumes)(struct boundary *b, boundary_volumes_fn done, void *ctx);
	/* A connected stream to PID 1: non-blocking, close-on-exec, owned by the caller. Returns it or a negative errno. */
	int (*open_guest)(struct boundary *b, const char *id, struct err *e);
	/* What the machines run on ("kvm", "emulated"), as far as it is known by now; NULL for a kind that has no such thing. Why it is not the
	 * better one, or that this one is not known to work yet, in plain words, or NULL; it stays as long as the boundary. */
	const char *(*accelerator)(struct boundary *b, const char **ret_why);
	void (*free)(struct boundary *b); /* leaves the sandboxes alone */
};

/* The head of every kind's own struct. */
struct boundary {
	const struct boundary_ops *ops;
	boundary_exit_fn on_exit;
	void *on_exit_ctx;
};

#endif
