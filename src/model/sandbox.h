/* What the server says about a sandbox, a run, a session, a file: plain data handed out by the api layer.
 *
 * A view is valid only inside the call that hands it out; copy what must live longer. */
#ifndef CAISSON_MODEL_SANDBOX_H
#define CAISSON_MODEL_SANDBOX_H

#include "model/spec.h"

enum sandbox_state {
	SANDBOX_CREATING,
	SANDBOX_RUNNING,
	SANDBOX_PAUSED,
	SANDBOX_STOPPING,
	SANDBOX_STOPPED,
	SANDBOX_STARTING,
	SANDBOX_DELETING,
	SANDBOX_DELETED,
	SANDBOX_ERROR,
	SANDBOX_SUSPENDING, /* its memory is being written down */
	SANDBOX_SUSPENDED,
	SANDBOX_RESUMING,   /* out of that */
	SANDBOX_STATE_COUNT
};
const char *sandbox_state_name(enum sandbox_state s); /* "creating" and so on; never NULL */
int sandbox_state_parse(struct str name, enum sandbox_state *ret);

/* What a kind of boundary can do, as bits. */
enum boundary_cap {
	BOUNDARY_CAN_PAUSE = 1 << 0,
	BOUNDARY_CAN_SNAPSHOT_DISK = 1 << 1,
	BOUNDARY_CAN_SNAPSHOT_MEMORY = 1 << 2,
	BOUNDARY_STRONG = 1 << 3, /* a separate kernel */
	BOUNDARY_MANY_CONNECTIONS = 1 << 4, /* open_guest gives a connection of its own each time; else a new one replaces the last */
	BOUNDARY_CAN_NETWORK = 1 << 5,
	BOUNDARY_CAN_RESIZE = 1 << 6, /* limits of a started one */
	BOUNDARY_OWN_CLOCK = 1 << 7,  /* its guest keeps time and host name itself, and takes them from us (link_tell_time) */
	BOUNDARY_CAN_PERMIT = 1 << 10, /* its guest confines programs to what rules name (model/permission.h) */
	BOUNDARY_CAN_VOLUMES = 1 << 8, /* folders that several sandboxes share and that outlive them */
	BOUNDARY_CAN_SUSPEND = 1 << 11, /* pause with the memory on the disk, and no process */
	BOUNDARY_GUEST_COUNTS = 1 << 9, /* only its guest can tell how many processes and files there are (OP_DISK) */
};

enum snapshot_state { SNAPSHOT_CREATING, SNAPSHOT_READY, SNAPSHOT_DELETING };
const char *snapshot_state_name(enum snapshot_state s); /* "creating" "ready" "deleting" */
int snapshot_state_parse(struct str name, enum snapshot_state *ret);

struct snapshot_view {
	const char *id;      /* UUID */
	const char *name;    /* the id when none was given */
	enum snapshot_state state;
	const char *sandbox; /* id of the one it was taken of, which may be gone */
	const char *boundary, *image_digest;
	const struct sandbox_spec *spec; /* what a sandbox made from it has, as of then; extra is the dialect's about the snapshot */
	const char *user;
	const char *owner;   /* id of the key that took it */
	bool memory;         /* also what was running */
	uint64_t bytes;      /* that it takes on the host */
	uint64_t created_ms, used_ms; /* used: last create from it, 0 = never */
};

enum volume_state { VOLUME_CREATING, VOLUME_READY, VOLUME_DELETING };
const char *volume_state_name(enum volume_state s); /* "creating" "ready" "deleting" */
int volume_state_parse(struct str name, enum volume_state *ret);

#define VOLUME_MIB_DEFAULT 4096U
#define VOLUME_MIB_MIN 16U
#define VOLUME_MIB_MAX (16U << 20)
struct volume_view {
	const char *id;   /* UUID */
	const char *name; /* the id when none was given */
	enum volume_state state;
	const char *owner;    /* id of the key that made it */
	uint64_t size_mib;    /* how much it can hold */
	uint64_t used_bytes;  /* what it takes on the host, as last asked */
	size_t sandboxes;     /* that have it now */
	uint64_t created_ms, used_ms; /* used: last create with it, 0 = never */
};

/* A token that opens one thing of one sandbox for a time. */
enum grant_kind { GRANT_SHELL, GRANT_PORT };
const char *grant_kind_name(enum grant_kind k); /* "shell" "port" */
int grant_kind_parse(struct str name, enum grant_kind *ret);
#define GRANT_TOKEN_SIZE 41 /* 40 hex digits and a NUL */
#define GRANT_PORT_DIGITS 20 /* of a port's: with it, an id and a port fit into a host label of 63 */
#define GRANT_SECONDS_MAX (366 * 86400)
struct grant_view {
	const char *id, *sandbox;
	enum grant_kind kind;
	uint16_t port; /* 0 for a shell */
	uint64_t created_ms, expires_ms;
};

struct sandbox_view {
	const char *id;    /* UUID */
	const char *name;
	enum sandbox_state state;
	const char *error; /* why, in state ERROR; else NULL */
	const char *image_digest;
	const char *boundary; /* resolved name */
	const char *accelerator; /* what its machine runs on, "kvm" or "emulated"; NULL for a boundary without machines */
	const struct sandbox_spec *spec; /* with defaults resolved */
	const char *user;    /* effective default user */
	const char *owner;   /* id of the key that created it */
	const char *preview_token;
	uint64_t created_ms, updated_ms, active_ms; /* unix milliseconds */
};

/* Ready sandboxes of one kind. */
#define POOL_SIZE_MAX 10000
struct pool_view {
	const char *image_digest, *boundary, *user, *workdir; /* workdir: or NULL. An image that is not there: as it was asked for */
	const struct resources *resources;
	bool ephemeral, sudo;
	bool network;       /* they have one; what it reaches is said at the create */
	const char *error;  /* why the last one did not come up, or NULL */
	size_t size, ready; /* wanted now; there now */
	size_t standing;    /* of these, by the operator's wish: without it they go when nobody asks for them */
};

/* A receiver of the audit log's lines. */
struct webhook_view {
	const char *id, *secret;
	const char *url;    /* without what it holds of a name and a password */
	char *const *types; /* NULL or empty: all */
	uint64_t created_ms, seq, failures;
	const char *error;  /* of the last try, or NULL */
};

enum run_state { RUN_QUEUED, RUN_RUNNING, RUN_EXITED, RUN_FAILED /* never started: see message */, RUN_LOST /* sandbox ended */ };
const char *run_state_name(enum run_state s); /* "queued" "running" "exited" "failed" "lost" */
int run_state_parse(struct str name, enum run_state *ret);

struct run_view {
	const char *id;          /* run_... */
	const char *session;     /* or NULL */
	const char *display;
	enum run_state state;
	int exit_code;           /* valid when EXITED and signal == 0; 126/127 as in a shell */
	int signal;              /* 0, or the signal that ended it; exit_code is then 128 + signal */
	bool timed_out, canceled, oom, truncated, pty;
	const char *message;     /* reason in plain words for FAILED/LOST, or NULL */
	uint64_t stdout_bytes, stderr_bytes; /* produced so far (with truncation: more than can be read back) */
	uint64_t started_ms, ended_ms;       /* unix ms; ended 0 while running */
	uint64_t duration_ms;
};
static inline bool run_view_ended(const struct run_view *r)
{
	return r->state >= RUN_EXITED;
}

struct question_view {    /* a program, a look-up of a host's name, or a request to a host, that waits to be allowed */
	char id[24];
	const char *run;  /* or NULL: it belongs to none that is known */
	const char *path, *host; /* one of them; of a request both, and */
	const char *method;
	const char *rule;
	uint64_t asked_ms, until_ms; /* unix; then it is denied */
};

struct session_view {
	const char *id;   /* chosen by the caller */
	bool alive;
	uint64_t created_ms;
};

enum file_type { FILE_REGULAR, FILE_DIRECTORY, FILE_SYMLINK, FILE_FIFO, FILE_SOCKET, FILE_CHAR, FILE_BLOCK };
const char *file_type_name(enum file_type t); /* "file" "directory" "symlink" "fifo" "socket" "char" "block" */

struct file_info {
	const char *path;        /* as asked, or relative to the listed directory */
	const char *name;        /* last component */
	enum file_type type;     /* of the entry itself */
	bool is_dir;             /* after following a symlink */
	uint64_t size;
	uint32_t mode;           /* permission bits incl. setuid, setgid, sticky */
	uint32_t uid, gid;       /* as seen inside */
	const char *owner, *group; /* names inside, or decimal ids */
	int64_t mtime_ms;        /* unix */
	const char *target;      /* of a symlink, or NULL */
};

struct usage {
	uint64_t memory_bytes, memory_limit_bytes;
	uint64_t cpu_usec;       /* consumed since start */
	double cpu_limit;        /* cores */
	uint64_t pids, pids_limit;
	uint64_t disk_bytes, disk_limit_bytes;
	uint64_t inodes, inodes_limit;
	uint64_t oom_kills;
};

#endif
