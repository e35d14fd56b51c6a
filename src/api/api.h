/* The verbs: the only door to core, for every dialect alike. One function a verb, typed request in, typed reply out.
 *
 * Authentication and tenancy live here: every verb takes a caller, and a sandbox of another tenant is "not found". A
 * sandbox is named by id or name (`ref`). Synchronous verbs return 0 or a negative errno and fill `e`. Asynchronous ones
 * answer through `done` exactly once, from the loop or before they return; when the asker goes away first, it calls
 * api_forget(ctx) with the same ctx: then nothing is called any more (the work itself goes on).
 * Views are valid during the callback only. Strings in specs are copied; specs stay the caller's. */
#ifndef CAISSON_API_API_H
#define CAISSON_API_API_H

#include "base/buf.h"
#include "base/err.h"
#include "model/event.h"
#include "model/interpreter.h"
#include "model/op.h"
#include "model/policy.h"
#include "model/sandbox.h"
#include "model/secret.h"

#include <uv.h>

struct api;
struct core;

struct caller {
	char key_id[40];
	char tenant[64];
	bool operator_; /* may manage keys and images, and see every tenant's sandboxes when asked */
};

struct api *api_new(uv_loop_t *loop, struct core *core);
void api_free(struct api *a);
void api_forget(struct api *a, void *ctx);

/* --- keys --- */
int api_authenticate(struct api *a, struct str key, struct caller *ret, struct err *e);
/* The caller that may use this sandbox by its preview token (constant-time compare). */
int api_authenticate_preview(struct api *a, const char *ref, struct str token, struct caller *ret, struct err *e);
/* The owner of this sandbox, with no proof of anything: only for what the sandbox's own settings open to whoever has a link
 * (a public preview, a signed URL whose signature was checked). ref must be an id: a name belongs to a tenant. */
int api_owner_of(struct api *a, const char *id, struct caller *ret, struct err *e);
struct key_view {
	const char *id, *name, *tenant;
	bool operator_, revoked;
	uint64_t created_ms, used_ms;
};
int api_key_create(struct api *a, const struct caller *c, const char *name, const char *tenant, bool operator_, char ret_key[static 48],
                   char ret_id[static 40], struct err *e);
int api_key_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct key_view *k), void *ctx, struct err *e);
int api_key_revoke(struct api *a, const struct caller *c, const char *id, struct err *e);
void api_on_key_revoked(struct api *a, void (*revoked)(void *ctx, const char *key_id), void *ctx); /* what the key still holds open is to end */

/* --- sandboxes --- */
typedef void (*api_sandbox_fn)(void *ctx, const struct err *e, const struct sandbox_view *v);
typedef void (*api_done_fn)(void *ctx, const struct err *e);
/* Answers when it is running (or with the reason why not). */
void api_sandbox_create(struct api *a, const struct caller *c, const struct sandbox_spec *spec, api_sandbox_fn done, void *ctx);
int api_sandbox_get(struct api *a, const struct caller *c, const char *ref, struct sandbox_view *ret, struct err *e);
struct sandbox_query {
	struct pairs labels;         /* all must match */
	unsigned states;             /* bit per sandbox_state; 0 = all but DELETED */
	const char *id_prefix, *name_prefix;
	const char *cursor;          /* from *ret_next */
	size_t limit;                /* 0 = 100; at most 1000 */
	bool newest_first;
	uint64_t skip;               /* for page-numbered dialects */
};
/* Calls each for a page; *ret_next gets a heap cursor or NULL, *ret_total (may be NULL) the number of all matches. */
int api_sandbox_list(struct api *a, const struct caller *c, const struct sandbox_query *q,
                     void (*each)(void *ctx, const struct sandbox_view *v), void *ctx, char **ret_next, uint64_t *ret_total, struct err *e);
/* Every tenant's, with its owner: for what a dialect ends after a restart. No sandbox may be changed by `each`. */
void api_sandbox_each(struct api *a, void (*each)(void *ctx, const struct caller *owner, const struct sandbox_view *v), void *ctx);
void api_sandbox_start(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx);
void api_sandbox_stop(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx);
void api_sandbox_pause(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx);
void api_sandbox_suspend(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx);
void api_sandbox_resume(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx);
/* Other limits; what is 0 stays. */
void api_sandbox_resize(struct api *a, const struct caller *c, const char *ref, const struct resources *r, api_sandbox_fn done, void *ctx);
/* Also when it does not exist (then e is ERR_NOT_FOUND: a dialect may call that success). */
void api_sandbox_delete(struct api *a, const struct caller *c, const char *ref, api_done_fn done, void *ctx);
int api_sandbox_set_labels(struct api *a, const struct caller *c, const char *ref, const struct pairs *labels, struct err *e);
int api_sandbox_set_env(struct api *a, const struct caller *c, const char *ref, const struct pairs *set, char *const *unset, struct err *e);
int api_sandbox_set_lifetime(struct api *a, const struct caller *c, const char *ref, const struct lifetime *l, struct err *e);
int api_sandbox_set_extra(struct api *a, const struct caller *c, const char *ref, const char *extra, struct err *e);
/* What it may reach; the lists may be NULL (model/policy.h); limits NULL: as they are. As sandbox_set_network of core says. */
void api_sandbox_set_network(struct api *a, const struct caller *c, const char *ref, enum network_mode mode, char *const *allow,
                             char *const *deny, const struct network_limits *limits, api_sandbox_fn done, void *ctx);
/* Its rules about hosts and methods, beside those about programs and files that it has. */
void api_sandbox_set_permissions(struct api *a, const struct caller *c, const char *ref, char *const *rules, api_sandbox_fn done, void *ctx);
/* Which secrets it has: variables and files (absolute paths) -> names of the caller's secrets. It runs. */
void api_sandbox_set_secrets(struct api *a, const struct caller *c, const char *ref, const struct pairs *env, const struct pairs *files,
                             api_sandbox_fn done, void *ctx);
int api_sandbox_touch(struct api *a, const struct caller *c, const char *ref, struct err *e); /* counts as activity */
typedef void (*api_usage_fn)(void *ctx, const struct err *e, const struct usage *u);
void api_sandbox_usage(struct api *a, const struct caller *c, const char *ref, api_usage_fn done, void *ctx);

/* --- snapshots and forks --- */
typedef void (*api_snapshot_fn)(void *ctx, const struct err *e, const struct snapshot_view *v);
typedef void (*api_fork_fn)(void *ctx, const struct err *e, const struct sandbox_view *children, size_t n);
/* Of a running, paused or stopped sandbox, which goes on as it was. name NULL: its id. extra: text of the dialect's, or NULL.
 * A create names one in spec.from_snapshot. */
void api_snapshot_create(struct api *a, const struct caller *c, const char *ref, const char *name, bool memory, const char *extra, api_snapshot_fn done,
                         void *ctx);
int api_snapshot_get(struct api *a, const struct caller *c, const char *ref, struct snapshot_view *ret, struct err *e); /* by id or name */
void api_snapshot_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct snapshot_view *v), void *ctx); /* oldest first */
int api_snapshot_set_extra(struct api *a, const struct caller *c, const char *ref, const char *extra, struct err *e);
void api_snapshot_delete(struct api *a, const struct caller *c, const char *ref, api_done_fn done, void *ctx);
/* `count` children (1 to 100) that begin with the files of the parent, or none and the reason. name: of a single one, or NULL. */
void api_sandbox_fork(struct api *a, const struct caller *c, const char *ref, size_t count, const char *name, api_fork_fn done, void *ctx);

/* --- volumes: folders that sandboxes share and that outlive them; a create names them in spec.volumes --- */
typedef void (*api_volume_fn)(void *ctx, const struct err *e, const struct volume_view *v);
/* name NULL: its id; size_mib 0: VOLUME_MIB_DEFAULT. */
void api_volume_create(struct api *a, const struct caller *c, const char *name, uint64_t size_mib, api_volume_fn done, void *ctx);
int api_volume_get(struct api *a, const struct caller *c, const char *ref, struct volume_view *ret, struct err *e); /* by id or name */
void api_volume_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct volume_view *v), void *ctx); /* oldest first */
/* Asks what each takes, for the used_bytes of the views after it. Never fails: what is not learned stays as it was. */
void api_volume_measure(struct api *a, api_done_fn done, void *ctx);
/* ERR_CONFLICT while a sandbox has it, running or not. */
void api_volume_delete(struct api *a, const struct caller *c, const char *ref, api_done_fn done, void *ctx);

/* --- secrets: the caller's tenant's; nobody is ever told a value --- */
/* The spec stays the caller's (secret_spec_done wipes it). Views are valid until the next call. */
int api_secret_create(struct api *a, const struct caller *c, const struct secret_spec *spec, struct secret_view *ret, struct err *e);
int api_secret_get(struct api *a, const struct caller *c, const char *ref, struct secret_view *ret, struct err *e); /* by name or id */
/* What is NULL in `with` stays; name, basic, git and aws_key_id do not change. */
int api_secret_change(struct api *a, const struct caller *c, const char *ref, const struct secret_spec *with, struct secret_view *ret, struct err *e);
int api_secret_delete(struct api *a, const struct caller *c, const char *ref, struct err *e); /* from every sandbox that has it, too */
void api_secret_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct secret_view *v), void *ctx); /* oldest first */
/* --- published ports: reached at an address of this host, by whoever can connect there, as long as the sandbox exists --- */
/* *ret: with the address and the port that it got; valid until the next call. */
int api_port_publish(struct api *a, const struct caller *c, const char *ref, const struct publication *p, struct publication *ret, struct err *e);
int api_port_unpublish(struct api *a, const struct caller *c, const char *ref, uint16_t host_port, struct err *e);

/* --- grants: a token that opens one port, or a shell, of one sandbox for a time --- */
int api_grant_create(struct api *a, const struct caller *c, const char *ref, enum grant_kind kind, uint16_t port, uint64_t seconds,
                     char ret_token[static GRANT_TOKEN_SIZE], struct grant_view *ret, struct err *e);
/* Whose it is, by the token alone: it was made for just this kind and port. ERR_UNAUTHENTICATED else. */
int api_grant_open(struct api *a, struct str token, enum grant_kind kind, uint16_t port, struct caller *ret, char ret_sandbox[static 40], struct err *e);
/* token NULL: all of the kind. One that is not there is gone already. */
int api_grant_revoke(struct api *a, const struct caller *c, const char *ref, enum grant_kind kind, const char *token, struct err *e);

/* --- build contexts (api/context.c): archives that come before a build, in parts, kept by the hash of their content --- */
#define API_CONTEXT_PARTS_MAX 10000
/* upload: 32 random hex digits of the caller's for one archive; part 1, 2, ...: a descriptor to write it to, the caller's. */
int api_context_put(struct api *a, const char *upload, unsigned part, struct err *e);
int api_context_commit(struct api *a, const struct caller *c, const char *hash, const char *upload, struct err *e); /* hash: 32 hex digits */
void api_context_abort(struct api *a, const char *upload);
/* To read that part; -ENOENT: there are no more, or no such archive. */
int api_context_open(struct api *a, const struct caller *c, const char *hash, unsigned part, struct err *e);

/* --- runs --- */
typedef void (*api_run_fn)(void *ctx, const struct err *e, const struct run_view *r);
/* Answers as soon as the run has its id (state QUEUED or RUNNING): everything else by the calls below. */
void api_run_start(struct api *a, const struct caller *c, const char *ref, const struct run_spec *spec, api_run_fn done, void *ctx);
int api_run_get(struct api *a, const struct caller *c, const char *ref, const char *run, struct run_view *ret, struct err *e);
int api_run_list(struct api *a, const struct caller *c, const char *ref, const char *session /* NULL = all */,
                 void (*each)(void *ctx, const struct run_view *r), void *ctx, struct err *e);
/* Answers once the run has ended (at once when it has). */
void api_run_wait(struct api *a, const struct caller *c, const char *ref, const char *run, api_run_fn done, void *ctx);
/* The bytes of one stream in [offset, offset+max) that are there now; appended to out. */
int api_run_output(struct api *a, const struct caller *c, const char *ref, const char *run, int stream, uint64_t offset, size_t max,
                   struct buf *out, struct err *e);
int api_run_cancel(struct api *a, const struct caller *c, const char *ref, const char *run, struct err *e);
int api_run_signal(struct api *a, const struct caller *c, const char *ref, const char *run, int signo, bool tree, struct err *e);
int api_run_resize(struct api *a, const struct caller *c, const char *ref, const char *run, uint16_t rows, uint16_t cols, struct err *e);
/* Another text for listings: dialects keep there what they know of a run. */
int api_run_set_display(struct api *a, const struct caller *c, const char *ref, const char *run, const char *display, struct err *e);
/* Takes at most what there is room for and returns that number of bytes (0 = wait for on_room of the follower, or retry);
 * ERR_GONE when the run has ended or its stdin is closed. */
ssize_t api_run_write(struct api *a, const struct caller *c, const char *ref, const char *run, struct str bytes, struct err *e);
int api_run_close_stdin(struct api *a, const struct caller *c, const char *ref, const char *run, struct err *e);

/* A follower is told of output from given offsets on, of everything, in order, until the end; then freed by its owner. */
struct follower;
struct follower *api_run_follow(struct api *a, const struct caller *c, const char *ref, const char *run, uint64_t stdout_offset,
                                uint64_t stderr_offset, const struct follower_events *ev, void *ctx, struct err *e);
void follower_pause(struct follower *f);  /* no on_output until resumed; nothing is lost */
void follower_resume(struct follower *f);
void follower_free(struct follower *f);   /* no further callback; allowed inside one */

/* --- sessions --- */
void api_session_create(struct api *a, const struct caller *c, const char *ref, const char *id, const char *cwd, const struct pairs *env,
                        api_done_fn done, void *ctx); /* ERR_CONFLICT when it exists */
int api_session_list(struct api *a, const struct caller *c, const char *ref, void (*each)(void *ctx, const struct session_view *s), void *ctx,
                     struct err *e);
int api_session_get(struct api *a, const struct caller *c, const char *ref, const char *id, struct session_view *ret, struct err *e);
void api_session_delete(struct api *a, const struct caller *c, const char *ref, const char *id, api_done_fn done, void *ctx);

/* --- interpreters: kernels that keep their variables between pieces of code (model/interpreter.h) --- */
typedef void (*api_interpreter_fn)(void *ctx, const struct err *e, const struct interpreter_view *v);
/* Answers when its kernel is ready. One whose asker has gone by then is deleted. */
void api_interpreter_create(struct api *a, const struct caller *c, const char *ref, const struct interpreter_spec *spec, api_interpreter_fn done,
                            void *ctx);
/* The default one is listed, too, once it was used. */
int api_interpreter_list(struct api *a, const struct caller *c, const char *ref, void (*each)(void *ctx, const struct interpreter_view *v),
                         void *ctx, struct err *e);
int api_interpreter_get(struct api *a, const struct caller *c, const char *ref, const char *id, struct interpreter_view *ret, struct err *e);
int api_interpreter_delete(struct api *a, const struct caller *c, const char *ref, const char *id, struct err *e); /* with its process */
int api_interpreter_interrupt(struct api *a, const struct caller *c, const char *ref, const char *id, struct err *e);
/* Queued behind what that interpreter was given before. No event comes before it returns; on_end comes once, and then the execution is
 * gone, unless it was left before. NULL and e when it can't be begun. */
struct execution;
struct execution *api_execute(struct api *a, const struct caller *c, const char *ref, const struct execution_spec *spec,
                              const struct execution_events *ev, void *ctx, struct err *e);
void execution_pause(struct execution *x);     /* no events until resumed: the code waits when it has said much */
void execution_resume(struct execution *x);
void execution_interrupt(struct execution *x); /* as Ctrl-C does; one that still waits ends at once */
void execution_leave(struct execution *x);     /* no further event; it goes on unless it is stop_on_leave */

/* --- programs that wait to be allowed --- */
int api_question_list(struct api *a, const struct caller *c, const char *ref, void (*each)(void *ctx, const struct question_view *v), void *ctx, struct err *e);
int api_question_answer(struct api *a, const struct caller *c, const char *ref, const char *id, bool allowed, struct err *e);

/* --- files, ports: operations inside --- */
struct api_op;
/* NULL and e when it can't be begun (no such sandbox, not running). The spec's user and cwd default to the sandbox's. */
struct api_op *api_op_open(struct api *a, const struct caller *c, const char *ref, const struct op_spec *spec, const struct op_events *ev,
                           void *ctx, struct err *e);
size_t api_op_room(const struct api_op *op);
int api_op_write(struct api_op *op, struct str bytes); /* at most room, else -EAGAIN */
void api_op_eof(struct api_op *op);
void api_op_pause(struct api_op *op);
void api_op_resume(struct api_op *op);
void api_op_cancel(struct api_op *op); /* no further callback; freed. After on_end the op is already gone. */

/* --- images, server --- */
struct image_view {
	const char *digest;            /* sha256:<64 hex> */
	const char *const *names;      /* NULL-terminated references that point to it */
	uint64_t size_bytes, created_ms;
	const char *user, *workdir;    /* or NULL */
	bool stand_in;                 /* got by another name, which the operator's table maps to it */
};
int api_image_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct image_view *v), void *ctx, struct err *e);
int api_image_get(struct api *a, const struct caller *c, const char *ref, struct image_view *ret, struct err *e);
int api_image_remove(struct api *a, const struct caller *c, const char *ref, struct err *e);

/* Ready sandboxes, by kind: operator's (core/core.h says what counts in spec). */
int api_pool_set(struct api *a, const struct caller *c, const struct sandbox_spec *spec, size_t size, struct err *e);
int api_pool_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct pool_view *v), void *ctx, struct err *e);

struct server_info {
	const char *version;
	const char *default_boundary;
	const char *const *boundaries; /* NULL-terminated, usable ones */
	unsigned caps;                 /* of the default one */
	const char *accelerator;       /* as in sandbox_view, of the boundary that has machines, or NULL */
	const char *accelerator_reason; /* why it is not KVM, or that KVM has not been tried yet; or NULL */
	uint64_t sandboxes, running;   /* that the caller may know of: its tenant's, an operator's all */
	const struct resources *defaults;
};
int api_info(struct api *a, const struct caller *c, struct server_info *ret); /* c NULL: the server itself asks */

/* --- the audit log (audit/audit.h): an operator sees every line, others those of their tenant --- */
struct audit_query {
	uint64_t after;      /* only lines behind this one */
	size_t limit;        /* 0 = 100; at most 1000 */
	const char *type;    /* only these: "run", "run.started"; or NULL */
	const char *sandbox; /* only of this one: its id, or while it is there its name; or NULL */
};
/* Calls each for a page of lines as they are in the log. *ret_next: to go on after; when it is the head's, that was all. */
int api_audit_read(struct api *a, const struct caller *c, const struct audit_query *q, void (*each)(void *ctx, uint64_t seq, struct str line), void *ctx,
		   uint64_t *ret_next, struct err *e);
uint64_t api_audit_head(struct api *a, const char **ret_hash); /* number and hash of the last line */
struct audit_watch;
struct audit_watch *api_audit_watch(struct api *a, void (*grown)(void *ctx), void *ctx); /* told, from the loop, when there are new lines */
void audit_watch_free(struct audit_watch *w); /* accepts NULL; also inside its own callback */

/* Receivers of the log's lines: operator's. types NULL or empty: all; secret NULL: one is made (ret says it, until the next call). */
int api_webhook_create(struct api *a, const struct caller *c, const char *url, const char *secret, char *const *types, struct webhook_view *ret,
		       struct err *e);
int api_webhook_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct webhook_view *v), void *ctx, struct err *e);
int api_webhook_delete(struct api *a, const struct caller *c, const char *id, struct err *e);

/* --- events --- */
struct subscription;
struct subscription *api_subscribe(struct api *a, const struct caller *c, void (*on_event)(void *ctx, const struct event_view *ev), void *ctx);
void subscription_free(struct subscription *s); /* allowed inside on_event */

#endif
