/* The guest protocol: what the daemon and PID 1 of a sandbox say to each other. Pure codec, no I/O, shared by both ends.
 *
 * Byte for byte description: docs/protocol/guest.md. Theory of operation:
 *
 * One reliable byte stream (a unix socket, a virtio serial port) carries frames: a 16-byte head {u32 length of payload,
 * u8 type, u8 channel, u16 zero, u64 id}, little endian, then at most GUEST_PAYLOAD_MAX bytes.
 *
 * RUNS outlive a connection. The daemon names a run by a number of its choice (never reused in a sandbox). The guest keeps
 * a run's output in a window per stream until the daemon acknowledges an offset (RUN_ACK: everything before it is safe on
 * the daemon's side) and stops reading the program's pipe while the window is full: nobody's memory grows, nothing is lost.
 * After a reconnect the guest's HELLO lists the runs it knows; the daemon sends RUN_ATTACH with the offsets it has, and
 * output goes on from there. A finished run stays until RUN_RELEASE. Stdin has credit in the other direction.
 *
 * SESSIONS are shells that take commands one after another; such a command is a run with a session id.
 *
 * OPS (files, TCP connections inside, ...) are streams that die with the connection: OP_OPEN with a request, then data
 * and credit both ways, ended by OP_END with an errno and text. They are carried out by a process of the sandbox's
 * user, so a path can do no more than that user could. A connection whose first frame is an OP_OPEN instead of a HELLO
 * carries that one op and nothing else, and is served by that process directly.
 *
 * Requests may be longer than a frame: pieces with GUEST_MORE in `channel`, contiguous on the stream, then one without.
 *
 * Everything the peer sends is hostile: lengths and order are checked here, and a violation ends the connection. */
#ifndef CAISSON_WIRE_GUEST_H
#define CAISSON_WIRE_GUEST_H

#include "base/buf.h"

#define GUEST_VERSION 1
#define GUEST_HELLO_ID 0x314e4f5353494143ull /* "CAISSON1": the id of both HELLOs, so that a serial line can be synchronised */
/* As argv[0] of a run: not a program of the image's, but the SFTP server that the guest itself can be, as the run's user. */
#define GUEST_ARGV0_SFTP "caisson:sftp"
#define GUEST_MORE 1 /* channel of a piece that is not the last */

enum {
	GUEST_HEAD = 16,
	GUEST_PAYLOAD_MAX = 64 * 1024,
	GUEST_OUTPUT_MAX = GUEST_PAYLOAD_MAX - 8, /* bytes of output in one RUN_OUTPUT */
	GUEST_MESSAGE_MAX = 36 * 1024 * 1024,     /* an assembled request: script 16 MiB, stdin 16 MiB, the rest */
	GUEST_ARG_MAX = 128 * 1024,               /* one string of a request: the kernel's own limit for an argument */
	GUEST_ARGS_MAX = 16384,                   /* argv elements, environment entries */
	GUEST_WINDOW = 256 * 1024,                /* unacknowledged output kept per stream of a run */
	GUEST_STDIN_WINDOW = 64 * 1024,
	GUEST_OP_WINDOW = 1024 * 1024,            /* unacknowledged bytes of an op in each direction */
	GUEST_RUNS_MAX = 16384,                   /* known to one guest, ended and unreleased ones included */
	GUEST_SESSION_ID_MAX = 128,
	GUEST_TEXT_MAX = 400,                     /* of an error */
	GUEST_SEED_MIN = 48,                      /* bytes of randomness, the last 16 of them for an id */
	GUEST_SEED_MAX = 512,
};

enum guest_type {
	/* daemon -> guest */
	GUEST_HELLO = 1,
	GUEST_RUN_START,      /* request */
	GUEST_RUN_ATTACH,     /* u64 stdout offset, u64 stderr offset */
	GUEST_RUN_ACK,        /* channel = stream; u64 offset */
	GUEST_RUN_RELEASE,
	GUEST_RUN_STDIN,      /* bytes */
	GUEST_RUN_STDIN_EOF,
	GUEST_RUN_SIGNAL,     /* channel 1 = tree; u32 signal */
	GUEST_RUN_CANCEL,
	GUEST_RUN_RESIZE,     /* u16 rows, u16 columns */
	GUEST_SESSION_OPEN,   /* request; id = serial */
	GUEST_SESSION_CLOSE,  /* request; id = serial */
	GUEST_OP_OPEN,        /* request */
	GUEST_OP_CANCEL,
	GUEST_SETUP,          /* request; id = serial. Only to the guest of a virtual machine */
	GUEST_RUN_TAKE,       /* u64 time limit in ms: the run begins now */
	GUEST_PERMIT,         /* request: entries of wire/permit.h; programs started from now on may do no more */
	GUEST_ANSWER,         /* id = question; u8 1 = allowed */
	/* both ways */
	GUEST_OP_DATA = 24,   /* bytes */
	GUEST_OP_EOF,
	GUEST_OP_CREDIT,      /* u64: the peer may send up to this total */
	/* guest -> daemon */
	GUEST_READY = 32,     /* the guest's hello: u32 version, u32 number of runs in this piece, runs */
	GUEST_RUN_STARTED,
	GUEST_RUN_OUTPUT,     /* channel = stream; u64 offset, bytes */
	GUEST_RUN_ROOM,       /* u64 stdin bytes received, u64 limit */
	GUEST_RUN_END,
	GUEST_SESSION_REPLY,  /* struct guest_result */
	GUEST_SESSION_END,    /* i32 exit code, id */
	GUEST_OP_OPENED,
	GUEST_OP_INFO,
	GUEST_OP_MATCH,
	GUEST_OP_VALUES,
	GUEST_OP_END,         /* struct guest_result */
	GUEST_SETUP_DONE,     /* struct guest_result */
	GUEST_VERDICT,        /* id = run, 0 = it belongs to none; channel = enum guest_verdict_how; struct guest_verdict */
	GUEST_ASK,            /* id = question; struct guest_ask */
	GUEST_ASK_END,        /* id = question: it needs no answer any more */
	GUEST_TYPE_END
};
enum { GUEST_STDOUT = 1, GUEST_STDERR = 2 };

struct guest_frame {
	uint8_t type, channel;
	uint64_t id;
	struct str payload; /* into the input */
};

/* The first frame of `in`: bytes it takes, 0 = more input is needed, -EPROTO = not a frame. */
ssize_t guest_frame_next(struct str in, struct guest_frame *ret);
void guest_head_put(uint8_t to[static GUEST_HEAD], uint8_t type, uint8_t channel, uint64_t id, size_t payload);
int guest_frame_put(struct buf *out, uint8_t type, uint8_t channel, uint64_t id, struct str payload);
/* Data behind what is in `out`: a frame of its own, or more bytes in the last one. *tail: how many bytes at the end of `out` are that one, 0 = another
 * kind of frame. So what a window holds takes about as much room whatever pieces it came in. */
int guest_data_put(struct buf *out, size_t *tail, uint8_t type, uint64_t id, struct str bytes);
/* A request of any length up to GUEST_MESSAGE_MAX, in as many frames as needed. */
int guest_message_put(struct buf *out, uint8_t type, uint64_t id, struct str message);
int guest_u64_put(struct buf *out, uint8_t type, uint8_t channel, uint64_t id, uint64_t value);
/* Bytes of `in` before the head of a hello of `type` (GUEST_HELLO or GUEST_READY) could begin: noise of a former
 * connection on a serial line. */
size_t guest_noise(struct str in, uint8_t type);

/* Puts the pieces of one request together. */
struct guest_assembly {
	struct buf bytes;
	uint64_t id;
	uint8_t type; /* 0 = none under way */
};
void guest_assembly_init(struct guest_assembly *a);
void guest_assembly_done(struct guest_assembly *a);
/* 1: complete, ret_message is valid until the next call; 0: more to come; -EPROTO, -ENOBUFS. Must also be called with
 * frames of other types (gives 1, their payload) so that a broken sequence is seen. */
int guest_assembly_feed(struct guest_assembly *a, const struct guest_frame *f, struct str *ret_message);

static inline uint32_t guest_u32(const char *p)
{
	const unsigned char *b = (const unsigned char *)p;
	return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}
static inline uint64_t guest_u64(const char *p)
{
	return guest_u32(p) | (uint64_t)guest_u32(p + 4) << 32;
}

/* --- requests: all strings are NUL-terminated inside the message and contain no other NUL --- */

enum { GUEST_RUN_STDIN_OPEN = 1, GUEST_RUN_PTY = 2, GUEST_RUN_MERGE = 4, GUEST_RUN_FLAGS = 7 };

/* RUN_START, SESSION_OPEN, SESSION_CLOSE (only `session`). Absent strings are NULL. */
struct guest_run_request {
	const char **argv, **env; /* NULL-terminated arrays; env "NAME=value" */
	size_t argc, envc;
	const char *cwd, *user, *session, *script_suffix;
	struct str script, stdin_bytes; /* p NULL = none */
	uint32_t flags;
	uint16_t rows, cols;
	uint64_t timeout_ms;
};
int guest_run_request_put(struct buf *out, uint8_t type, uint64_t id, const struct guest_run_request *r);
/* Views into message; the arrays are heap: guest_run_request_done. -EPROTO */
int guest_run_request_get(struct str message, struct guest_run_request *ret);
void guest_run_request_done(struct guest_run_request *r);

/* Same order as enum op_kind in model/op.h (checked in core/link). */
enum guest_op {
	GUEST_STAT, GUEST_LIST, GUEST_READ, GUEST_WRITE, GUEST_MKDIR, GUEST_REMOVE, GUEST_MOVE, GUEST_CHMOD, GUEST_FIND,
	GUEST_SEARCH, GUEST_REPLACE, GUEST_CONNECT, GUEST_PORTS, GUEST_USERINFO, GUEST_DISK, GUEST_SYNC, GUEST_OP_COUNT
};
enum { GUEST_F_PARENTS = 1, GUEST_F_APPEND = 2, GUEST_F_EXCLUSIVE = 4, GUEST_F_RECURSIVE = 8, GUEST_F_NOFOLLOW = 16, GUEST_F_ALL = 31 };

struct guest_op_request {
	uint32_t kind, mode, depth, flags;
	bool has_mode;
	uint16_t port;
	uint64_t offset, length;
	const char *user, *cwd, *path, *path2, *pattern, *text, *owner, *group;
};
int guest_op_request_put(struct buf *out, uint64_t id, const struct guest_op_request *r);
int guest_op_request_get(struct str message, struct guest_op_request *ret);

/* Whether a virtual machine has a network device, and whether that leads anywhere. */
enum guest_link { GUEST_LINK_NONE, GUEST_LINK_DOWN, GUEST_LINK_UP };
enum guest_sudo { GUEST_SUDO_AS_IT_IS, GUEST_SUDO_NO, GUEST_SUDO_YES };

enum { GUEST_VOLUMES_MAX = 8, GUEST_LINE_BYTES = 16 };
struct guest_volume {
	const char *path; /* absolute */
	bool read_only;
};

/* SETUP: what makes one virtual machine different from another that was begun from the same memory. Only what is there is changed. */
struct guest_setup {
	const char *hostname, *machine_id; /* machine_id: 32 lower-case hex digits */
	const char *user, *workdir;        /* as main.c of the guest takes them */
	const char **env;                  /* NULL-terminated, "NAME=value" */
	size_t envc;
	struct str seed;                   /* p NULL = none, else GUEST_SEED_MIN to GUEST_SEED_MAX bytes */
	uint64_t time_ns;                  /* wall clock since 1970; 0 = leave it */
	uint64_t pids;                     /* limit on processes; 0 = none */
	enum guest_link link;              /* UP: it is waited for */
	uint8_t mac[6];                    /* of the device, unless NONE */
	enum guest_sudo sudo;              /* may `user` become root; with no, nobody gains a right by set-id programs */
	const char *line;                  /* NULL = volumes stay as they are; else GUEST_LINE_BYTES by which their line begins, and these are all */
	struct guest_volume volumes[GUEST_VOLUMES_MAX]; /* in the server's order */
	size_t volumes_n;
};
int guest_setup_put(struct buf *out, uint64_t id, const struct guest_setup *s);
/* Views into message; env is heap: guest_setup_done. -EPROTO */
int guest_setup_get(struct str message, struct guest_setup *ret);
void guest_setup_done(struct guest_setup *s);

/* --- answers --- */

struct guest_known_run {
	uint64_t run;
	bool ended;
};
/* In as many pieces as needed. */
int guest_ready_put(struct buf *out, const struct guest_known_run *runs, size_t n);
/* An assembled READY; the array is heap. -EPROTO, -EPROTONOSUPPORT (another version). */
int guest_ready_get(struct str message, struct guest_known_run **ret_runs, size_t *ret_n);

enum { GUEST_END_TIMED_OUT = 1, GUEST_END_CANCELED = 2, GUEST_END_FAILED = 4, GUEST_END_SESSION = 8, GUEST_END_OOM = 16, GUEST_END_FLAGS = 31 };
struct guest_run_end {
	int32_t exit_code;
	uint32_t signal, flags, errnum;
	uint64_t bytes[2]; /* stdout, stderr */
	uint64_t duration_ms;
	struct str message;
};
int guest_run_end_put(struct buf *out, uint64_t id, const struct guest_run_end *e);
int guest_run_end_get(struct str payload, struct guest_run_end *ret);

struct guest_result { /* of a session request or an op */
	uint32_t kind;   /* enum err_kind, 0 = done */
	uint32_t errnum;
	struct str text; /* at most GUEST_TEXT_MAX */
};
int guest_result_put(struct buf *out, uint8_t type, uint64_t id, const struct guest_result *r);
int guest_result_get(struct str payload, struct guest_result *ret);

int guest_session_end_put(struct buf *out, int32_t exit_code, const char *session);
int guest_session_end_get(struct str payload, int32_t *ret_exit_code, const char **ret_session);

enum { GUEST_NO_RULE = 0xffff };
enum guest_verdict_how {
	GUEST_BY_RULE,
	GUEST_BY_ANSWER,
	GUEST_BY_TIME,    /* nobody answered */
	GUEST_BY_TROUBLE, /* it could not be made sure of */
	GUEST_BY_CROWD,   /* too many wait already */
	GUEST_UNSEEN,     /* allowed, and the path is only what was asked for */
	GUEST_HOW_END
};
struct guest_verdict { /* what the rules of PERMIT said of something that a program meant to do */
	bool allowed;
	uint8_t kind;    /* enum permit_kind */
	uint16_t rule;   /* which one decided, by its place in PERMIT; GUEST_NO_RULE: that none names it */
	uint32_t untold; /* verdicts before this one that were not told */
	const char *path;
};
int guest_verdict_put(struct buf *out, uint64_t run, enum guest_verdict_how how, const struct guest_verdict *v);
int guest_verdict_get(struct str payload, struct guest_verdict *ret);

struct guest_ask { /* a program that waits to be allowed */
	uint64_t run;     /* or 0 */
	uint32_t left_ms; /* then it is denied */
	uint16_t rule;
	const char *path;
};
int guest_ask_put(struct buf *out, uint64_t id, const struct guest_ask *a);
int guest_ask_get(struct str payload, struct guest_ask *ret);

struct guest_info {
	uint64_t size;
	int64_t mtime_ms;
	uint32_t mode, uid, gid;
	uint8_t type; /* order of enum file_type in model/sandbox.h */
	bool is_dir;
	const char *path, *owner, *group, *target; /* target NULL = none */
};
enum { GUEST_FILE_TYPES = 7 };
int guest_info_put(struct buf *out, uint64_t id, const struct guest_info *i);
int guest_info_get(struct str payload, struct guest_info *ret);

int guest_match_put(struct buf *out, uint64_t id, const char *path, uint64_t line, struct str text);
int guest_match_get(struct str payload, const char **ret_path, uint64_t *ret_line, struct str *ret_text);

/* Named values: put pairs into a buffer, send it as OP_VALUES, take them off one by one (1 = one taken, 0 = end). */
int guest_value_add(struct buf *values, const char *name, const char *value);
int guest_value_next(struct str *values, const char **ret_name, const char **ret_value);

#endif
