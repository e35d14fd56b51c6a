/* What a caller asks for: the specification of a sandbox, and of one run in it. Plain data and its validation; no I/O.
 *
 * Every dialect decodes into these structs, and core reads nothing else. Strings are heap-owned by the struct; NULL means
 * "not given". spec_init() fills in defaults, spec_done() frees. Validation names the offending field in its message. */
#ifndef CAISSON_MODEL_SPEC_H
#define CAISSON_MODEL_SPEC_H

#include "base/err.h"
#include "base/util.h"

struct pair { /* one environment variable or label */
	char *key, *value;
};
struct pairs {
	struct pair *v;
	size_t n;
};
void pairs_add(struct pairs *p, const char *key, const char *value); /* copies; replaces an equal key */
const char *pairs_get(const struct pairs *p, const char *key);       /* NULL when absent */
void pairs_copy(struct pairs *to, const struct pairs *from);         /* to must be empty */
void pairs_done(struct pairs *p);

/* Limits of a sandbox. 0 = the default of spec_init. */
struct resources {
	double cpus;         /* cores, may be fractional; 0.01 .. 1024 */
	uint64_t memory_mib; /* 16 .. 1 TiB */
	uint64_t disk_mib;   /* 1 .. 16 TiB */
	uint64_t pids;       /* 4 .. 1,000,000 */
};

enum network_mode { NETWORK_NONE, NETWORK_PUBLIC, NETWORK_ALLOW };
const char *network_mode_name(enum network_mode m);

struct lifetime {
	uint64_t idle_s;        /* 0 = never; no run, file call or preview for so long: idle_action */
	uint64_t max_s;         /* 0 = never; since creation: deleted */
	int64_t delete_after_s; /* after stop; -1 = never, 0 = at once */
};

#define SPEC_NAME_MAX 64      /* also a valid host name label: [a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])? */
#define SPEC_LABELS_MAX 64    /* pairs; key 1..128 bytes, value 0..1024 bytes, UTF-8 without control bytes */
#define SPEC_ENV_MAX 512      /* pairs; name [A-Za-z_][A-Za-z0-9_]*, value without NUL, 128 KiB; 512 KiB all told */
#define SPEC_USER_MAX 64

struct sandbox_spec {
	char *name;             /* NULL = the id */
	char *image;            /* reference as the caller wrote it; NULL = "default" */
	char *boundary;         /* "process", "vm"; NULL = the server's default */
	struct resources resources;
	struct pairs env;       /* of every run */
	struct pairs labels;
	char *user;             /* runs' default user; NULL = the image's */
	char *workdir;          /* runs' default directory; NULL = the image's, else the user's home */
	char *hostname;         /* NULL = from the name */
	enum network_mode network;
	struct lifetime lifetime;
	bool ephemeral;         /* the disk need not outlive a stop (may be kept in memory); stop deletes */
	char *idempotency_key;  /* NULL = none */
	char *extra;            /* opaque text of the dialect that created it (JSON), given back unchanged */
};
void spec_init(struct sandbox_spec *s);
void spec_done(struct sandbox_spec *s);
int spec_validate(const struct sandbox_spec *s, struct err *e);

bool env_name_valid(struct str name);
bool sandbox_name_valid(struct str name);

/* One command. argv or shell or code: exactly one. */
enum code_language { CODE_NONE, CODE_PYTHON, CODE_JAVASCRIPT, CODE_TYPESCRIPT, CODE_BASH };
int code_language_parse(struct str name, enum code_language *ret); /* -EINVAL when unknown; aliases py, js, ts, node, sh */
const char *code_language_name(enum code_language l);

#define RUN_OUTPUT_MAX_DEFAULT (256ULL << 20) /* bytes kept per stream; more is counted, dropped and said */
#define RUN_STDIN_INLINE_MAX (16U << 20)
#define RUN_ARGV_MAX (128U << 10)  /* one element: the kernel's own limit */
#define RUN_SCRIPT_MAX (16U << 20) /* shell line or code: fed by file descriptor, so not bound by the above */

struct run_spec {
	char **argv;              /* NULL-terminated, or NULL */
	char *shell;              /* a shell script, or NULL */
	char *code;               /* source text, or NULL; language says how */
	enum code_language language;
	char **code_argv;         /* further arguments of the program, NULL-terminated, or NULL */
	struct pairs env;         /* over the sandbox's */
	char *cwd;                /* NULL = the sandbox's; must exist */
	char *user;               /* name or uid[:gid]; NULL = the sandbox's */
	char *session;            /* run inside this session's shell; only with shell, without user and stdin_open */
	uint8_t *stdin_bytes;     /* fed, then end of file; NULL = none */
	size_t stdin_len;
	bool stdin_open;          /* stdin stays open for run_write/run_close_stdin */
	bool pty;
	bool merge_stderr;        /* stderr goes into stdout's stream, in order of arrival */
	uint16_t rows, cols;      /* of the pty; 0 = 24x80 */
	uint64_t timeout_ms;      /* 0 = none */
	uint64_t output_max;      /* 0 = RUN_OUTPUT_MAX_DEFAULT */
	bool detach;              /* the reply does not wait for the end */
	bool kill_on_disconnect;  /* the caller's leaving cancels the run */
	char *idempotency_key;
	char *display;            /* the command as the caller wrote it, for listings; NULL = derived */
};
void run_spec_init(struct run_spec *r);
void run_spec_done(struct run_spec *r);
int run_spec_validate(const struct run_spec *r, struct err *e);

#endif
