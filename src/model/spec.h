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
/* Copies; replaces an equal key. A set of more than SPEC_ENV_MAX pairs, which no validation accepts, is no longer searched
 * for equal keys: a caller's million labels cost a million steps, not their square. */
void pairs_add(struct pairs *p, const char *key, const char *value);
const char *pairs_get(const struct pairs *p, const char *key); /* NULL when absent */
bool pairs_remove(struct pairs *p, const char *key);           /* keeps the order of the rest; false when absent */
void pairs_copy(struct pairs *to, const struct pairs *from);   /* to must be empty */
void pairs_done(struct pairs *p);                              /* empty afterwards, may be used again */

#define RESOURCES_CPUS_DEFAULT 1.0
#define RESOURCES_MEMORY_MIB_DEFAULT 1024U
#define RESOURCES_DISK_MIB_DEFAULT 3072U
#define RESOURCES_PIDS_DEFAULT 512U

/* The ranges, for validation, decoders and the command line alike. The warden has its own, since it trusts no check but its own. */
#define RESOURCES_CPUS_MIN 0.01
#define RESOURCES_CPUS_MAX 1024
#define RESOURCES_MEMORY_MIB_MIN 16
#define RESOURCES_MEMORY_MIB_MAX (1U << 20)
#define RESOURCES_DISK_MIB_MIN 1
#define RESOURCES_DISK_MIB_MAX (16U << 20)
#define RESOURCES_PIDS_MIN 4
#define RESOURCES_PIDS_MAX 1000000

/* Limits of a sandbox. 0 = the default, put in by resources_fill. */
struct resources {
	double cpus; /* cores, may be fractional */
	uint64_t memory_mib;
	uint64_t disk_mib;
	uint64_t pids;
};

/* Puts a default into every field that is 0. The disk of an ephemeral sandbox may live in its memory, so it gets half of that. */
void resources_fill(struct resources *r, bool ephemeral);
int resources_validate(const struct resources *r, struct err *e);

enum network_mode { NETWORK_NONE, NETWORK_PUBLIC, NETWORK_ALLOW };
const char *network_mode_name(enum network_mode m); /* "none" "public" "allow" */
int network_mode_parse(struct str name, enum network_mode *ret);

struct lifetime {
	uint64_t idle_s;        /* 0 = never; no run, file call or preview for so long: idle_action */
	uint64_t max_s;         /* 0 = never; since creation: deleted */
	int64_t delete_after_s; /* after stop; -1 = never, 0 = at once */
};
#define LIFETIME_MAX_S 1000000000000ULL /* far beyond any use; keeps sums of milliseconds away from overflow */
int lifetime_validate(const struct lifetime *l, struct err *e);

#define SPEC_VOLUMES_MAX 8
#define VOLUME_NAME_MAX 128
#define SPEC_VOLUME_PATH_MAX 159 /* bytes; of a subpath, too */

/* A folder of a volume, at a path of the sandbox. */
struct volume_mount {
	char *volume;  /* id or name; in a sandbox that is there: the id */
	char *path;    /* absolute; a folder that is missing is made */
	char *subpath; /* below the volume's own root, made when missing; NULL = all of it */
	bool read_only;
};
struct volume_mounts {
	struct volume_mount *v;
	size_t n;
};
struct volume_mount *volume_mounts_add(struct volume_mounts *m); /* an empty one at the end */
void volume_mounts_copy(struct volume_mounts *to, const struct volume_mounts *from); /* to must be empty */
void volume_mounts_done(struct volume_mounts *m);

/* A port of the sandbox that is reached at an address of this host (model/publish.h). */
struct publication {
	char *address;      /* IPv4 or IPv6; NULL = PUBLISH_ADDRESS_DEFAULT */
	uint16_t host_port; /* 0 = any that is free; in a sandbox that is there: the one that it got */
	uint16_t port;      /* inside */
	bool lost;          /* of a sandbox that is there: after a restart somebody else had it; tried again and again */
};
struct publications {
	struct publication *v;
	size_t n;
};
struct publication *publications_add(struct publications *p); /* an empty one at the end */
void publications_copy(struct publications *to, const struct publications *from); /* to must be empty */
void publications_remove(struct publications *p, size_t i);
void publications_done(struct publications *p);

#define SPEC_NAME_MAX 64      /* also a valid host name label: [a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])? */
#define SNAPSHOT_NAME_MAX 128
#define SPEC_LABELS_MAX 64    /* pairs; key 1..128 bytes, value 0..1024 bytes, UTF-8 without control bytes */
#define SPEC_ENV_MAX 512      /* pairs; name [A-Za-z_][A-Za-z0-9_]*, value without NUL, 128 KiB; 512 KiB all told */
#define SPEC_ENV_VALUE_MAX (128U << 10) /* name, '=', value and a NUL: the kernel's limit on one string of execve */
#define SPEC_ENV_TOTAL_MAX (512U << 10)
#define SPEC_USER_MAX 64
#define SPEC_PATH_MAX 4095
#define SPEC_IMAGE_MAX 512
#define SPEC_HOSTNAME_MAX 64      /* the kernel's limit */
#define SPEC_KEY_MAX 255          /* idempotency key, bytes */
/* What the edge holds a sandbox to; 0 = no other limit than everybody's. */
#define NETWORK_CONNECTIONS_MAX	    8192 /* open at once */
#define NETWORK_CONNECTIONS_RATE_MAX 2000 /* new ones a second, with bursts of some seconds */
#define NETWORK_RATE_MIN	    1024 /* bytes a second */
#define NETWORK_BYTES_MAX	    9007199254740991 /* that every JSON reader takes */
struct network_limits {
	uint64_t bytes_per_second; /* each way, all connections together */
	uint64_t bytes;		   /* both ways, since the edge began or the limit was set */
	uint64_t connections, connections_per_second;
};

#define SPEC_EXTRA_MAX (256U << 10)

enum want { WANT_DEFAULT, WANT_NO, WANT_YES };

struct sandbox_spec {
	char *name;             /* NULL = the id */
	char *image;            /* reference as the caller wrote it; NULL = "default" */
	char *boundary;         /* "process", "vm"; NULL = the server's default */
	char *from_snapshot;    /* name or id of a snapshot that it begins as, or NULL; image, boundary and size of the disk are then its */
	struct resources resources;
	struct pairs env;       /* of every run */
	struct pairs labels;
	char *user;             /* runs' default user; NULL = the image's */
	char *workdir;          /* runs' default directory; NULL = the image's, else the user's home */
	char *hostname;         /* NULL = from the name */
	enum network_mode network;
	bool network_unasked; /* the mode is the server's default, not the caller's word: "none" where the boundary gives no network */
	char **network_allow, **network_deny; /* rules of model/policy.h, NULL-terminated, or NULL */
	struct network_limits network_limits;
	struct pairs secret_env;   /* variable -> name of a secret: it holds the placeholder (model/secret.h) */
	struct pairs secret_files; /* absolute path inside -> name of a secret: the same in a file */
	char **host_answers; /* to "ask host:" of permissions: "allow NAME", "deny NAME" (model/reach.h), or NULL */
	char **permissions; /* rules of model/permission.h, NULL-terminated and not empty, or NULL: programs are not confined */
	struct lifetime lifetime;
	struct volume_mounts volumes;
	struct publications publish;
	enum want sudo;         /* may its user become root inside? By default as its snapshot's could, else yes */
	bool ephemeral;         /* the disk need not outlive a stop (may be kept in memory); stop deletes */
	char *idempotency_key;  /* NULL = none */
	char *extra;            /* opaque text of the dialect that created it (JSON), given back unchanged */
};
void spec_init(struct sandbox_spec *s); /* image "default", resources 0, network none, lives until deleted */
void spec_done(struct sandbox_spec *s); /* all zero afterwards */
void spec_copy(struct sandbox_spec *to, const struct sandbox_spec *from); /* deep; overwrites `to` without freeing it */
/* 0, or ERR_INVALID / ERR_TOO_LARGE. Checks form only: whether the image or the boundary exists is core's to say. */
int spec_validate(const struct sandbox_spec *s, struct err *e);
int spec_check_secrets(const struct sandbox_spec *s, struct err *e); /* a part of that: their names, and no variable twice */
static inline bool spec_sudo(const struct sandbox_spec *s)
{
	return s->sudo != WANT_NO;
}
int env_validate(const struct pairs *env, struct err *e);
int labels_validate(const struct pairs *labels, struct err *e);

bool env_name_valid(struct str name);
bool sandbox_name_valid(struct str name);
bool hostname_valid(struct str name);   /* 1..64 bytes: labels of letters, digits and inner '-', joined by '.' */
bool user_valid(struct str user);       /* name, uid, or uid:gid */
bool snapshot_name_valid(struct str name); /* 1..SNAPSHOT_NAME_MAX of [a-zA-Z0-9._:/@+-], begins with a letter or digit */
bool volume_name_valid(struct str name);   /* 1..128 of [a-zA-Z0-9._-], begins with a letter or digit */
bool session_id_valid(struct str id);   /* 1..128 bytes of UTF-8 without control bytes and '/', not "." or ".." */
/* The host name that a sandbox of this (valid) name gets: '_' and '.' become '-'. */
void hostname_from_name(const char *name, char ret_text[static SPEC_HOSTNAME_MAX + 1]);

/* One command. argv or shell or code: exactly one. */
enum code_language { CODE_NONE, CODE_PYTHON, CODE_JAVASCRIPT, CODE_TYPESCRIPT, CODE_BASH };
int code_language_parse(struct str name, enum code_language *ret); /* -EINVAL when unknown; aliases py, js, ts, node, sh */
const char *code_language_name(enum code_language l);

#define RUN_OUTPUT_MAX_DEFAULT (256ULL << 20) /* bytes kept per stream; more is counted, dropped and said */
#define RUN_STDIN_INLINE_MAX (16U << 20)
#define RUN_ARGV_MAX (128U << 10)  /* one element: the kernel's own limit */
#define RUN_ARGV_TOTAL_MAX (1U << 20) /* all elements with their NULs: leaves the kernel room for the environment */
#define RUN_SCRIPT_MAX (16U << 20) /* shell line or code: fed by file descriptor, so not bound by the above */
#define RUN_TIMEOUT_MAX_MS (LIFETIME_MAX_S * 1000)
#define RUN_OUTPUT_MAX_MAX (1ULL << 40)
#define RUN_DISPLAY_MAX (64U << 10) /* of the derived text */

struct run_spec {
	char **argv;              /* NULL-terminated, or NULL */
	char *shell;              /* a shell script, or NULL */
	char *code;               /* source text, or NULL; language says how */
	enum code_language language;
	char **code_argv;         /* further arguments of the program, NULL-terminated, or NULL */
	struct pairs env;         /* over the sandbox's */
	char *cwd;                /* NULL = the sandbox's; relative: to that; must exist */
	char *user;               /* name or uid[:gid]; NULL = the sandbox's */
	char *session;            /* run inside this session's shell; only with shell, without user and pty */
	uint8_t *stdin_bytes;     /* fed, then end of file; NULL = none */
	size_t stdin_len;
	bool stdin_open;          /* stdin stays open for run_write/run_close_stdin */
	bool pty;
	bool merge_stderr;        /* stderr goes into stdout's stream, in order of arrival */
	uint16_t rows, cols;      /* of the pty; 0 = 24x80 */
	uint64_t timeout_ms;      /* 0 = none */
	uint64_t output_max;      /* 0 = RUN_OUTPUT_MAX_DEFAULT. RUN_OUTPUT_MAX_MAX with a pty: the last 32 MiB at least are kept */
	bool detach;              /* the reply does not wait for the end */
	bool kill_on_disconnect;  /* the caller's leaving cancels the run */
	char *idempotency_key;
	char *display;            /* the command as the caller wrote it, for listings; NULL = derived */
};
void run_spec_init(struct run_spec *r);
void run_spec_done(struct run_spec *r); /* all zero afterwards */
void run_spec_copy(struct run_spec *to, const struct run_spec *from); /* deep; overwrites `to` without freeing it */
int run_spec_validate(const struct run_spec *r, struct err *e);
/* For listings: `display`, else the shell text, the code, or argv with blanks between and quotes where a shell would need
 * them. Cut to RUN_DISPLAY_MAX on a character's edge. Heap, never NULL. */
char *run_spec_display(const struct run_spec *r);

/* NULL-terminated vectors of heap strings (argv). */
char **strv_copy(char *const *v); /* NULL in, NULL out */
bool strv_equal(char *const *a, char *const *b); /* NULL is an empty one */
void strv_free(char **v);         /* accepts NULL */

#endif
