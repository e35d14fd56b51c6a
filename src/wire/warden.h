/* What the daemon may ask of the warden, and the answers: fixed-size records over a SOCK_SEQPACKET pair, one request and
 * one answer per message, matched by `serial`. Same host, same build: native layout, checked by `magic` and size.
 *
 * The daemon is not trusted by the warden: it re-validates every field (an id is 36 characters [0-9a-f-], an image is named by
 * its digest and looked for in the warden's own folder, numbers are within bounds), and acts only on sandboxes it made itself.
 * Nothing else is parsed by the warden. Text fields end with a NUL and are zero behind it.
 *
 * A record with serial 0 is unasked: WARDEN_EXIT, or a WARDEN_ANSWER with an error: the warden cannot work on this host, says why,
 * and ends. */
#ifndef CAISSON_WIRE_WARDEN_H
#define CAISSON_WIRE_WARDEN_H

#include <stdint.h>

#define WARDEN_MAGIC 0x43574437u /* "CWD7"; changes with any field */
enum warden_op {
	WARDEN_PROBE = 1, /* the answer's message is the run folder: RUN/s/<id>.sock are the guests' sockets */
	WARDEN_LIST,	  /* answers one WARDEN_ITEM per sandbox (same serial), then the final answer */
	WARDEN_CREATE,
	WARDEN_START,
	WARDEN_STOP,
	WARDEN_DESTROY,
	WARDEN_PAUSE,
	WARDEN_RESUME,
	WARDEN_USAGE,
	WARDEN_SNAPSHOT,       /* the answer's disk_bytes: what it takes */
	WARDEN_CLONE,	       /* a new stopped sandbox whose disk is the snapshot's; then WARDEN_START with `fresh` */
	WARDEN_DROP_SNAPSHOT,  /* not there is success */
	WARDEN_RESIZE,	       /* memory_mib, pids, cpu_millis of a running one */
	WARDEN_LIST_SNAPSHOTS, /* as WARDEN_LIST, of snapshots */
	WARDEN_NETWORK,	       /* of a running sandbox: with a gate from now on, or without */
	WARDEN_MAKE_VOLUME,    /* id: the volume's; disk_mib: how much it can hold */
	WARDEN_DROP_VOLUME,    /* not there is success */
	WARDEN_LIST_VOLUMES,   /* as WARDEN_LIST, of volumes; disk_bytes: what one takes */
	WARDEN_LAST_REQUEST = WARDEN_LIST_VOLUMES,
	/* from the warden */
	WARDEN_ITEM,
	WARDEN_EXIT, /* unasked, serial 0: PID 1 of a sandbox has ended by itself */
	WARDEN_ANSWER,
	WARDEN_EDGE, /* unasked, serial 0: with a descriptor, the daemon's end to a new edge (wire/edge.h) */
};

#define WARDEN_VOLUMES_MAX 8
struct warden_volume { /* a folder of a volume, at a path of a sandbox */
	char id[40];
	char path[160];    /* absolute */
	char subpath[160]; /* empty = all of it */
	uint32_t read_only;
};

struct warden_request {
	uint32_t magic, op;
	uint64_t serial; /* not 0 */
	char id[40];
	char snapshot[40];
	char image_digest[80];
	char hostname[64];
	char user[64];					 /* empty = the guest's default */
	char workdir[256];				 /* empty = the guest's default */
	uint64_t memory_mib, disk_mib, pids, cpu_millis; /* cpu_millis: 1000 = one core */
	uint32_t ephemeral;
	uint32_t fresh; /* start: the disk came from a snapshot, and is this sandbox's for the first time */
	uint32_t network; /* 1 = it has a gate (create, start, network) */
	uint32_t volumes_n;
	struct warden_volume volumes[WARDEN_VOLUMES_MAX];
	uint32_t sudo;    /* 1 = the guest starts commands as root for its ordinary user (create, start) */
	uint32_t env_len; /* bytes of env in use */
	char env[4096];	  /* NAME=value NUL NAME=value NUL ... handed on as it is */
};

struct warden_answer {
	uint32_t magic, op;
	uint64_t serial;
	char id[40];
	uint32_t kind; /* enum err_kind; 0 = done */
	int32_t errnum;
	char message[400];
	uint32_t started, oom;
	uint64_t memory_bytes, memory_limit, cpu_usec, cpu_millis, pids, pids_limit, oom_kills;
	uint64_t disk_bytes, disk_limit, inodes, inodes_limit;
};

#endif
