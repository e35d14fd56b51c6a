/* libcaisson: sandboxes from C. Create one, run something in it, delete it.
 *
 *   struct caisson *c;
 *   struct caisson_error e;
 *   if (caisson_connect(NULL, &c, &e) < 0) { fprintf(stderr, "%s\n", e.message); return 1; }
 *
 * Build with `cc prog.c $(pkg-config --cflags --libs libcaisson)`; a complete program is examples/c/run.c.
 *
 * RETURNS. Every function that can fail returns 0 on success and -1 on failure; it then fills the caller's
 * `struct caisson_error` (which may be NULL). Out-parameters (`ret_...`) are untouched on failure. A command that fails is
 * not an error: its exit code is part of the result.
 * OWNERSHIP. What comes out through `ret_...` is the caller's and has its own free function, which accepts NULL. Strings and
 * arrays that go in are borrowed for the call.
 * BLOCKING. Every call that talks to the server blocks until its answer is there. There is no time limit but the one that
 * the call names (connecting, signalling, resizing and cancelling give up after 10 seconds).
 * THREADS. A connection may be used by one thread at a time; different connections are independent. While one thread is
 * inside caisson_run(), another one feeds, signals or cancels the same run through a connection of its own.
 * The library writes nothing to stdio, never exits, installs no signal handler (SIGPIPE is not raised by it), and keeps
 * no global but libcurl's.
 * TEXT. Names, messages and paths are UTF-8. Whatever came out of a sandbox (output, file names, symlink targets) is
 * hostile: escape it before a terminal, check it before the host's file system.
 * ZERO MEANS DEFAULT. Option structs are to be zeroed first: `struct caisson_run_options o = { .shell = "ls" };`. */
#ifndef CAISSON_H
#define CAISSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CAISSON_API __attribute__((visibility("default")))
#else
#define CAISSON_API
#endif

CAISSON_API const char *caisson_version(void); /* of the library: "0.1.0" */

/* --- errors --- */

enum caisson_error_kind {
	CAISSON_OK = 0,
	CAISSON_ERR_INVALID,         /* the request is malformed or asks for something impossible */
	CAISSON_ERR_UNAUTHENTICATED, /* no key, or not a valid one */
	CAISSON_ERR_DENIED,          /* valid key, not permitted */
	CAISSON_ERR_NOT_FOUND,       /* sandbox, run, image ... does not exist */
	CAISSON_ERR_FILE_NOT_FOUND,  /* a path inside a sandbox does not exist */
	CAISSON_ERR_FILE_DENIED,     /* a path inside a sandbox may not be used by the sandbox's user */
	CAISSON_ERR_CONFLICT,        /* exists already, or the state does not allow it now */
	CAISSON_ERR_LIMIT,           /* a quota or limit would be exceeded */
	CAISSON_ERR_TOO_LARGE,       /* over a fixed bound */
	CAISSON_ERR_UNSUPPORTED,     /* this boundary, image or server cannot do it */
	CAISSON_ERR_GONE,            /* existed, has ended */
	CAISSON_ERR_TIMEOUT,         /* a time limit of the server ran out */
	CAISSON_ERR_UNAVAILABLE,     /* the host cannot give it now */
	CAISSON_ERR_BAD_GATEWAY,     /* a proxied port of a sandbox does not answer */
	CAISSON_ERR_INTERNAL,        /* the server's fault */
	/* said by the library, not by a server: */
	CAISSON_ERR_CONNECT,         /* no server there, or the connection broke */
	CAISSON_ERR_PROTOCOL,        /* the answer is not one of a caisson server */
	CAISSON_ERR_NO_MEMORY,
	CAISSON_ERR_STOPPED,         /* a callback of the caller asked to stop */
	CAISSON_ERR_LOCAL,           /* something on this side failed: a file, the environment */
};
struct caisson_error {
	enum caisson_error_kind kind;
	int http_status;   /* of the server's refusal, else 0 */
	char message[504]; /* one line, says what was wrong and what to do */
};
/* "not_found" and so on: the word of the HTTP API. Never NULL. */
CAISSON_API const char *caisson_error_kind_name(enum caisson_error_kind kind);

/* --- connection --- */

struct caisson; /* a connection: opaque */

struct caisson_connect_options {
	const char *url;  /* "http://host:port", "https://...", or "unix:/path/of/api.sock". NULL: the socket of `data` when that
	                   * is given, else CAISSON_URL, else the default data folder's socket */
	const char *key;  /* NULL: `api-key` in `data` when that is given, else CAISSON_API_KEY, else the data folder's `api-key`
	                   * (which is sent to a server on this machine only) */
	const char *data; /* the server's data folder. NULL: CAISSON_DATA, else /var/lib/caisson for root and
	                   * $XDG_DATA_HOME/caisson (~/.local/share/caisson) otherwise. Of the default folder the socket is
	                   * looked for in /run/caisson (root) or $XDG_RUNTIME_DIR/caisson first */
};
/* Finds server and key, and asks the server whether it is there (one small request, no key needed). `o` may be NULL. */
CAISSON_API int caisson_connect(const struct caisson_connect_options *o, struct caisson **ret, struct caisson_error *e);
/* A second connection to the same server with the same key, for another thread. No request is made. */
CAISSON_API int caisson_clone(const struct caisson *c, struct caisson **ret, struct caisson_error *e);
CAISSON_API void caisson_close(struct caisson *c);
/* Where it goes: "http://..." or "unix:/...". Valid as long as the connection. */
CAISSON_API const char *caisson_url(const struct caisson *c);

/* Any request of docs/openapi.yaml that has no function here. `path` begins with "/v1/", `body` is JSON text or NULL.
 * *ret_json (may be NULL) gets the answer's text, NUL-terminated, for free(); "" when the answer has no body. */
CAISSON_API int caisson_request(struct caisson *c, const char *method, const char *path, const char *body, char **ret_json,
                                struct caisson_error *e);
/* A GET whose answer is handed on as it comes; a non-zero return of on_bytes ends it, and 0 is returned. */
CAISSON_API int caisson_stream(struct caisson *c, const char *path, int (*on_bytes)(void *ctx, const void *bytes, size_t n), void *ctx,
                               struct caisson_error *e);
/* Escapes text for one segment or query value of such a path. For free(); NULL when memory is gone. */
CAISSON_API char *caisson_escape(const char *text);

/* --- sandboxes --- */

struct caisson_pair {
	const char *key, *value;
};

struct caisson_publication { /* a port of the sandbox that is reached at an address of the server's host */
	const char *address; /* NULL: 127.0.0.1 */
	uint16_t host_port;  /* 0: any that is free */
	uint16_t port;       /* inside */
};

struct caisson_create_options {
	const char *name;      /* NULL: the id */
	const char *image;     /* NULL: "default" */
	const char *boundary;  /* "process", "vm"; NULL: the server's default */
	double cpus;           /* cores, may be fractional; 0: the server's default, as below */
	uint64_t memory_mib, disk_mib, pids;
	const char *network;   /* "none", "public", "allow"; NULL: the server's default, or "allow" when there are rules */
	const char *const *network_allow; /* rules such as "api.example.org:443"; NULL-terminated, or NULL */
	const char *const *network_deny;
	const char *const *permissions;   /* rules such as "allow program:/usr/bin"; NULL-terminated, or NULL */
	const struct caisson_pair *secret_env, *secret_files; /* variable or absolute path -> name of a secret: it holds a placeholder */
	size_t n_secret_env, n_secret_files;
	const char *user, *workdir, *hostname; /* of runs; NULL: the image's */
	const struct caisson_pair *env;        /* of every run */
	size_t n_env;
	const struct caisson_pair *labels;
	size_t n_labels;
	uint64_t idle_s;       /* without use for so long: stopped; 0: never */
	uint64_t max_s;        /* since creation: deleted; 0: never */
	bool no_sudo;          /* the user may not become root inside */
	bool ephemeral;        /* the disk goes with a stop: a stop deletes the sandbox */
	const char *idempotency_key; /* the same key again gives the same sandbox */
	const struct caisson_publication *publish;
	size_t n_publish;
	const char *from_snapshot; /* name or id of a snapshot that it begins as; image, boundary and size of the disk are then its. Or NULL */
};

struct caisson_sandbox {
	char *id, *name;
	char *state;           /* "creating" "running" "paused" "stopping" "stopped" "starting" "deleting" "deleted" "error" "suspending" "suspended" "resuming" */
	char *error;           /* the reason, in state "error"; else NULL */
	char *image, *boundary;
	char *created_at;      /* ISO 8601, UTC */
	double cpus;
	uint64_t memory_mib, disk_mib, pids;
	struct caisson_pair *labels;
	size_t n_labels;
	char *json;            /* the whole object as the server sent it, on one line */
};
CAISSON_API void caisson_sandbox_free(struct caisson_sandbox *s);

/* A sandbox is named by its id or its name everywhere. create answers when it is running. */
CAISSON_API int caisson_create(struct caisson *c, const struct caisson_create_options *o, struct caisson_sandbox **ret,
                               struct caisson_error *e);
CAISSON_API int caisson_get(struct caisson *c, const char *sandbox, struct caisson_sandbox **ret, struct caisson_error *e);
/* Deleting what does not exist is success. Everything in it ends and its files are gone when this returns. */
CAISSON_API int caisson_delete(struct caisson *c, const char *sandbox, struct caisson_error *e);
/* Ends every process and keeps the disk (of an ephemeral one: deletes it); start boots it again. `ret` may be NULL. */
CAISSON_API int caisson_stop(struct caisson *c, const char *sandbox, struct caisson_sandbox **ret, struct caisson_error *e);
CAISSON_API int caisson_start(struct caisson *c, const char *sandbox, struct caisson_sandbox **ret, struct caisson_error *e);

struct caisson_sandbox_list {
	struct caisson_sandbox **items;
	size_t n;
	char *next; /* the cursor of the next page, or NULL */
};
CAISSON_API void caisson_sandbox_list_free(struct caisson_sandbox_list *l);
/* One page. `labels`: all must match. `cursor` NULL: from the start. `limit` 0: the server's own (100). */
CAISSON_API int caisson_list(struct caisson *c, const struct caisson_pair *labels, size_t n_labels, const char *cursor, size_t limit,
                             struct caisson_sandbox_list **ret, struct caisson_error *e);

/* --- runs --- */

enum { CAISSON_STDOUT = 1, CAISSON_STDERR = 2 };

struct caisson_run_options {
	/* exactly one of these three: */
	const char *const *argv;   /* NULL-terminated */
	const char *shell;         /* a shell script */
	const char *code;          /* source text in `language`: "python", "javascript", "typescript", "bash" */
	const char *language;
	const struct caisson_pair *env; /* over the sandbox's */
	size_t n_env;
	const char *cwd, *user;    /* NULL: the sandbox's */
	uint64_t timeout_ms;       /* 0: none. Afterwards the whole process tree is ended, the output so far is kept */
	uint64_t output_max;       /* bytes kept per stream; 0: the server's default (256 MiB). More is dropped and said */
	const void *stdin_bytes;   /* fed to the command, then end of file. Neither: end of file at once */
	size_t stdin_len;
	bool stdin_open;           /* after stdin_bytes stdin stays open: caisson_run_write, _feed, _close_stdin */
	bool pty;                  /* a terminal of rows x cols (0: 24 x 80); all output is on stdout then */
	uint16_t rows, cols;
	bool keep_running;         /* caisson_run: the command goes on when this caller leaves (dies, loses the connection) */
	const char *idempotency_key;
	/* Streaming: called as bytes come, in order per stream, binary. A non-zero return stops: the run is cancelled and
	 * caisson_run fails with CAISSON_ERR_STOPPED. With it set, out and err of the result stay empty. */
	int (*on_output)(void *ctx, int stream, const void *bytes, size_t n);
	/* The command has been accepted and has this id. */
	void (*on_start)(void *ctx, const char *run);
	void *ctx;
};

struct caisson_run {
	char *id;
	char *state;               /* "queued" "running" "exited" "failed" "lost" */
	bool ended;
	int exit_code;             /* 126, 127 as in a shell: not executable, no such program; 128 + signal; -1 while not ended */
	int signal;                /* that ended it, or 0 */
	bool timed_out, canceled, oom;
	bool truncated;            /* more output than output_max */
	char *message;             /* why it "failed" to start or was "lost"; else NULL */
	uint64_t duration_ms;
	uint64_t out_bytes, err_bytes; /* produced */
	uint8_t *out, *err;        /* buffered output with a NUL behind it; never NULL */
	size_t out_len, err_len;
	char *json;                /* the object as the server sent it, on one line, without the output */
};
CAISSON_API void caisson_run_free(struct caisson_run *r);

/* Runs a command to its end. Without on_output the result holds the output. */
CAISSON_API int caisson_run(struct caisson *c, const char *sandbox, const struct caisson_run_options *o, struct caisson_run **ret,
                            struct caisson_error *e);
/* Starts a command and returns at once with its id; on_output and on_start are not used. */
CAISSON_API int caisson_run_detached(struct caisson *c, const char *sandbox, const struct caisson_run_options *o,
                                     struct caisson_run **ret, struct caisson_error *e);
/* Output of a run from these offsets on, through on_output (see above; stopping leaves the run alone), until it has ended
 * (follow), else as far as it is there now. */
CAISSON_API int caisson_run_follow(struct caisson *c, const char *sandbox, const char *run, uint64_t out_offset, uint64_t err_offset,
                                   bool follow, int (*on_output)(void *ctx, int stream, const void *bytes, size_t n), void *ctx,
                                   struct caisson_run **ret, struct caisson_error *e);
CAISSON_API int caisson_run_get(struct caisson *c, const char *sandbox, const char *run, struct caisson_run **ret,
                                struct caisson_error *e);
/* stdin of a run started with stdin_open: blocks until all is taken. CAISSON_ERR_GONE: it reads no more. */
CAISSON_API int caisson_run_write(struct caisson *c, const char *sandbox, const char *run, const void *bytes, size_t n,
                                  struct caisson_error *e);
/* The same from `source` (see caisson_upload), sent as it comes, then end of file. A source that waits holds up the call. */
CAISSON_API int caisson_run_feed(struct caisson *c, const char *sandbox, const char *run,
                                 ptrdiff_t (*source)(void *ctx, void *bytes, size_t n), void *ctx, struct caisson_error *e);
CAISSON_API int caisson_run_close_stdin(struct caisson *c, const char *sandbox, const char *run, struct caisson_error *e);
/* `signo` in Linux numbering. To the command's main process (of a pty: the process group in front); `tree`: to everything that
 * the command started. */
CAISSON_API int caisson_run_signal(struct caisson *c, const char *sandbox, const char *run, int signo, bool tree,
                                   struct caisson_error *e);
CAISSON_API int caisson_run_resize(struct caisson *c, const char *sandbox, const char *run, uint16_t rows, uint16_t cols,
                                   struct caisson_error *e);
/* Ends the whole process tree; the run's output stays. */
CAISSON_API int caisson_run_cancel(struct caisson *c, const char *sandbox, const char *run, struct caisson_error *e);

/* --- files: paths are absolute, or relative to the sandbox's work directory --- */

struct caisson_file {
	char *path, *name;         /* raw bytes: whatever a file may be called. path is relative to a listed directory */
	char *type;                /* "file" "directory" "symlink" "fifo" "socket" "char" "block": of the entry itself */
	bool is_dir;               /* after following a symlink */
	uint64_t size;
	uint32_t mode;             /* permission bits */
	uint32_t uid, gid;
	char *owner, *group;       /* names inside */
	int64_t mtime_ms;          /* since 1970 */
	char *target;              /* of a symlink; else NULL */
	char *json;
};
struct caisson_file_list {
	struct caisson_file **items;
	size_t n;
};
CAISSON_API void caisson_file_free(struct caisson_file *f);
CAISSON_API void caisson_file_list_free(struct caisson_file_list *l);

/* The whole file in memory, with a NUL behind it, for free(). max 0: 1 GiB; a longer one is CAISSON_ERR_TOO_LARGE. */
CAISSON_API int caisson_read_file(struct caisson *c, const char *sandbox, const char *path, size_t max, void **ret_bytes,
                                  size_t *ret_len, struct caisson_error *e);
/* Replaces or makes the file (and its missing parents), atomically. mode 0: 0644. */
CAISSON_API int caisson_write_file(struct caisson *c, const char *sandbox, const char *path, uint32_t mode, const void *bytes, size_t n,
                                   struct caisson_error *e);
/* The same for any size: bytes are handed to `sink` (non-zero return: stop) or asked from `source`, which fills at most n
 * bytes and returns how many, 0 at the end, -1 to stop (then the file in the sandbox stays as it was). */
CAISSON_API int caisson_download(struct caisson *c, const char *sandbox, const char *path,
                                 int (*sink)(void *ctx, const void *bytes, size_t n), void *ctx, struct caisson_error *e);
CAISSON_API int caisson_upload(struct caisson *c, const char *sandbox, const char *path, uint32_t mode,
                               ptrdiff_t (*source)(void *ctx, void *bytes, size_t n), void *ctx, struct caisson_error *e);
CAISSON_API int caisson_stat(struct caisson *c, const char *sandbox, const char *path, struct caisson_file **ret,
                             struct caisson_error *e);
CAISSON_API int caisson_list_files(struct caisson *c, const char *sandbox, const char *path, struct caisson_file_list **ret,
                                   struct caisson_error *e);
/* With missing parents; an existing directory is success. mode 0: 0755. */
CAISSON_API int caisson_mkdir(struct caisson *c, const char *sandbox, const char *path, uint32_t mode, struct caisson_error *e);
/* A directory only with `recursive`. */
CAISSON_API int caisson_remove(struct caisson *c, const char *sandbox, const char *path, bool recursive, struct caisson_error *e);

#ifdef __cplusplus
}
#endif

#endif
