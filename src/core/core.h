/* Core: the sandboxes of this server, their life, their runs and sessions. The api layer's only neighbour below.
 *
 * Data goes one way: an api verb calls a function here; it moves the sandbox's state machine (core/lifecycle.c), which asks
 * the boundary; answers come back through callbacks. All of it on one loop, without threads. Knows no dialect, no HTTP, no
 * kind of boundary by name.
 *
 * Callbacks named *_done_fn are called exactly once, from the loop or before the call returns. */
#ifndef CAISSON_CORE_CORE_H
#define CAISSON_CORE_CORE_H

#include "audit/audit.h"
#include "base/buf.h"
#include "boundary/boundary.h"
#include "core/keys.h"
#include "egress/egress.h"
#include "image/image.h"
#include "model/ceiling.h"
#include "model/event.h"
#include "model/interpreter.h"
#include "model/op.h"
#include "model/sandbox.h"
#include "model/secret.h"
#include "store/store.h"

struct core;
struct sandbox;
struct secret;
struct run;
struct follower;
struct link_op;

#define CORE_SPARES_DEFAULT SIZE_MAX

struct core_options { /* all borrowed; must outlive the core */
	const char *data_dir;          /* spool files go to DATA/runs/<sandbox>/ */
	struct store *store;
	struct image_store *images;
	struct boundary *const *boundaries; /* the usable ones; the first is the default */
	size_t n_boundaries;
	size_t max_sandboxes;          /* 0 = 20,000 */
	struct audit *audit;           /* the log that everything goes into */
	struct egress *egress;         /* told what each sandbox may reach; NULL: none reaches anything */
	const struct ceiling *ceiling; /* of every sandbox's network */
	const struct nets *publish;    /* addresses that ports may be published on */
	size_t spares;                 /* ready sandboxes kept of each shape asked for lately; CORE_SPARES_DEFAULT = as the boundary says */
};
struct core *core_new(uv_loop_t *loop, const struct core_options *o);
/* Adopts what an earlier daemon left: calls done when every sandbox is accounted for. Call once, before anything else. */
void core_start(struct core *c, void (*done)(void *ctx, const struct err *e), void *ctx);
/* Leaves sandboxes running; then core_free. lost: the boundaries may answer nothing any more, and nothing is asked of them. */
void core_close(struct core *c, bool lost, void (*done)(void *ctx), void *ctx);
/* Deletes every sandbox (the end of an embedded server). */
void core_delete_all(struct core *c, void (*done)(void *ctx), void *ctx);
void core_free(struct core *c);
/* The process that makes boundaries is gone: nothing can be started or ended any more. */
struct store *core_store(struct core *c);
struct image_store *core_images(struct core *c);
struct keys *core_keys(struct core *c);
struct boundary *core_boundary(struct core *c, const char *name, struct err *e); /* NULL name = default */
size_t core_count(const struct core *c, const char *tenant, size_t *ret_running); /* tenant NULL: of all */
const struct core_options *core_get_options(const struct core *c);

/* --- the audit log (core/audit.c) --- */
/* Who asks, from now on and until it is said again; NULL: nobody. Lines that are begun meanwhile carry it. */
void core_act_as(struct core *c, const char *key_id);
/* A line about a sandbox (or NULL) of this tenant (NULL: the server itself); audit_text and the like add to it. */
struct audit_line *core_audit_begin(struct core *c, const char *type, const char *tenant, const char *sandbox);
void core_audit_end(struct core *c);
void core_audit_key_refused(struct core *c); /* said once a second */
/* What the edge says of a sandbox (an egress_event_fn, its ctx the core): lines, and when there are too many, their number. */
void core_verdict(void *core, const struct edge_event *ev);
/* Told, from the loop, when there are new lines. */
struct audit_watch;
struct audit_watch *core_audit_watch(struct core *c, void (*grown)(void *ctx), void *ctx);
void audit_watch_free(struct audit_watch *w); /* accepts NULL; also inside its own callback */

/* --- webhooks (core/webhook.c): the log's lines sent on, signed --- */
/* take: url, perhaps secret and types; the rest is filled in. */
int core_webhook_add(struct core *c, struct webhook_row *take, struct webhook_view *ret, struct err *e);
void core_webhook_each(struct core *c, void (*each)(void *ctx, const struct webhook_view *v), void *ctx);
int core_webhook_delete(struct core *c, const char *id, struct err *e);

/* --- finding --- */
struct sandbox *core_find(struct core *c, const char *tenant, const char *ref); /* by id or name; NULL when not this tenant's */
/* In order of creation. Start with NULL. */
struct sandbox *core_next(struct core *c, struct sandbox *prev);
struct sandbox *core_walk(struct core *c, struct sandbox *prev, bool backwards); /* either way */
void sandbox_view(const struct sandbox *s, struct sandbox_view *ret);
const char *sandbox_tenant(const struct sandbox *s);
uint64_t sandbox_seq(const struct sandbox *s); /* grows with each creation; stable: the cursor of lists */

/* --- life (core/lifecycle.c) --- */
typedef void (*sandbox_done_fn)(void *ctx, const struct err *e, struct sandbox *s);
void core_create(struct core *c, const char *tenant, const char *key_id, const struct sandbox_spec *spec, sandbox_done_fn done, void *ctx);
void sandbox_start(struct sandbox *s, sandbox_done_fn done, void *ctx);
void sandbox_stop(struct sandbox *s, sandbox_done_fn done, void *ctx);
void sandbox_pause(struct sandbox *s, sandbox_done_fn done, void *ctx);
void sandbox_suspend(struct sandbox *s, sandbox_done_fn done, void *ctx); /* the same to the disk; sandbox_resume is out of both */
void sandbox_resume(struct sandbox *s, sandbox_done_fn done, void *ctx);
void sandbox_delete(struct sandbox *s, sandbox_done_fn done, void *ctx); /* done's sandbox is NULL */
void sandbox_touch(struct sandbox *s);
int sandbox_set_labels(struct sandbox *s, const struct pairs *labels, struct err *e);
int sandbox_set_env(struct sandbox *s, const struct pairs *set, char *const *unset, struct err *e);
int sandbox_set_lifetime(struct sandbox *s, const struct lifetime *l, struct err *e);
/* What it may reach from now on. Whatever begins after the answer is judged by it; open connections that it may no longer have are
 * cut as soon as the edge gets round to them, within milliseconds. limits NULL: as they are. */
void sandbox_set_network(struct sandbox *s, enum network_mode mode, char *const *allow, char *const *deny, const struct network_limits *limits,
			 sandbox_done_fn done, void *ctx);
/* Which secrets it has from now on: variables and files (absolute paths) -> names. Runs that begin after the answer have the variables. */
void sandbox_set_secrets(struct sandbox *s, const struct pairs *env, const struct pairs *files, sandbox_done_fn done, void *ctx);
/* Other rules about hosts and methods; those about programs and files are to be as they were. rules NULL or empty: none. As with the network's. */
void sandbox_set_permissions(struct sandbox *s, char *const *rules, sandbox_done_fn done, void *ctx);
int sandbox_set_extra(struct sandbox *s, const char *extra, struct err *e);
typedef void (*usage_fn)(void *ctx, const struct err *e, const struct usage *u);
void sandbox_usage(struct sandbox *s, usage_fn done, void *ctx);

/* Other limits; what is 0 stays. A stopped sandbox has them at its next start. The size of the disk cannot change. */
void sandbox_resize(struct sandbox *s, const struct resources *r, sandbox_done_fn done, void *ctx);

/* --- snapshots and forks (core/snapshot.c) --- */
struct snapshot;
#define FORK_MAX 100
typedef void (*snapshot_done_fn)(void *ctx, const struct err *e, struct snapshot *p);
typedef void (*fork_done_fn)(void *ctx, const struct err *e, struct sandbox *const *children, size_t n);
/* Of a running, paused or stopped one, which goes on as it was. name NULL: its id. extra: opaque text that is kept with it, or NULL. */
void sandbox_snapshot(struct sandbox *s, const char *key_id, const char *name, bool memory, const char *extra, snapshot_done_fn done, void *ctx);
/* Children with the parent's files (and, where the boundary can, what runs in it) and its whole specification but the name. All or none. */
void sandbox_fork(struct sandbox *s, const char *key_id, size_t count, const char *name, fork_done_fn done, void *ctx);
struct snapshot *core_find_snapshot(struct core *c, const char *tenant, const char *ref); /* by id or name */
struct snapshot *core_next_snapshot(struct core *c, struct snapshot *prev);               /* in order of creation; start with NULL */
const char *snapshot_tenant(const struct snapshot *p);
void snapshot_view(const struct snapshot *p, struct snapshot_view *ret);
void snapshot_delete(struct snapshot *p, void (*done)(void *ctx, const struct err *e), void *ctx); /* harms no sandbox made from it */
int snapshot_set_extra(struct snapshot *p, const char *extra, struct err *e);

/* --- secrets (core/secret.c) --- */
/* The spec stays the caller's, who should wipe the value. */
int core_secret_create(struct core *c, const char *tenant, const struct secret_spec *spec, struct secret **ret, struct err *e);
/* What is NULL in `with` stays; name, basic, git and aws_key_id do not change. */
int core_secret_change(struct core *c, struct secret *x, const struct secret_spec *with, struct err *e);
/* From every sandbox that has it, at once; its placeholder is worth nothing then. */
int core_secret_delete(struct core *c, struct secret *x, struct err *e);
struct secret *core_find_secret(struct core *c, const char *tenant, const char *ref); /* by name or id */
struct secret *core_next_secret(struct core *c, struct secret *prev);		      /* in order of creation; start with NULL */
const char *secret_tenant(const struct secret *x);
void secret_get_view(const struct secret *x, struct secret_view *ret);

/* --- ready sandboxes (core/pool.c) --- */
/* Keeps `size` sandboxes of this kind ready from now on, also after a restart; 0 = no longer. Only what shapes them counts in spec: image,
 * boundary, resources, ephemeral, user, workdir, and whether it has a network. */
int core_pool_set(struct core *c, const struct sandbox_spec *spec, size_t size, struct err *e);
void core_pool_each(struct core *c, void (*each)(void *ctx, const struct pool_view *v), void *ctx);

/* --- volumes (core/volume.c) --- */
struct volume;
#define VOLUMES_MAX 10000
typedef void (*volume_done_fn)(void *ctx, const struct err *e, struct volume *v);
/* name NULL: its id. size_mib 0 = VOLUME_MIB_DEFAULT. */
void core_volume_create(struct core *c, const char *tenant, const char *key_id, const char *name, uint64_t size_mib, volume_done_fn done, void *ctx);
struct volume *core_find_volume(struct core *c, const char *tenant, const char *ref); /* by id or name */
struct volume *core_next_volume(struct core *c, struct volume *prev);                 /* in order of creation; start with NULL */
const char *volume_tenant(const struct volume *v);
void volume_view(const struct volume *v, struct volume_view *ret);
/* Asks how much each takes; what it cannot learn stays as it was. */
void core_volumes_measure(struct core *c, void (*done)(void *ctx), void *ctx);
/* ERR_CONFLICT while a sandbox has it, running or not. */
void volume_delete(struct volume *v, void (*done)(void *ctx, const struct err *e), void *ctx);

/* --- published ports (core/publish.c): they end with the sandbox --- */
/* *ret: with the address and the port that it got; valid until the next call. */
int sandbox_publish(struct sandbox *s, const struct publication *p, struct publication *ret, struct err *e);
int sandbox_unpublish(struct sandbox *s, uint16_t host_port, struct err *e); /* connections that are there go on */

/* --- grants (core/grant.c) --- */
/* port: 0 for a shell. */
int sandbox_grant(struct sandbox *s, enum grant_kind kind, uint16_t port, uint64_t seconds, char ret_token[static GRANT_TOKEN_SIZE],
                  struct grant_view *ret, struct err *e);
struct sandbox *core_granted(struct core *c, struct str token, enum grant_kind kind, uint16_t port); /* NULL: it opens no such thing */
void sandbox_revoke(struct sandbox *s, enum grant_kind kind, const char *token); /* token NULL: all of the kind */

/* --- runs (core/run.c) --- */
int sandbox_run(struct sandbox *s, const struct run_spec *spec, struct run **ret, struct err *e);
struct run *sandbox_find_run(struct sandbox *s, const char *id);
struct run *sandbox_next_run(struct sandbox *s, struct run *prev); /* in order of start */
void run_view(const struct run *r, struct run_view *ret);
typedef void (*run_done_fn)(void *ctx, const struct err *e, struct run *r);
void run_wait(struct run *r, run_done_fn done, void *ctx);
int run_output(struct run *r, int stream, uint64_t offset, size_t max, struct buf *out, struct err *e);
int run_signal(struct run *r, int signo, bool tree, struct err *e);
int run_cancel(struct run *r, struct err *e);
int run_resize(struct run *r, uint16_t rows, uint16_t cols, struct err *e);
int run_set_display(struct run *r, const char *display, struct err *e); /* kept as the rest of the run is */
ssize_t run_write(struct run *r, struct str bytes, struct err *e);
int run_close_stdin(struct run *r, struct err *e);

struct follower *run_follow(struct run *r, uint64_t stdout_offset, uint64_t stderr_offset, const struct follower_events *ev, void *ctx);
void follower_pause(struct follower *f);
void follower_resume(struct follower *f);
void follower_free(struct follower *f);

/* --- programs that wait to be allowed (core/permission.c) --- */
void sandbox_each_question(struct sandbox *s, void (*each)(void *ctx, const struct question_view *v), void *ctx);
int sandbox_answer(struct sandbox *s, const char *id, bool allowed, struct err *e);

/* --- sessions (core/session.c) --- */
void session_create(struct sandbox *s, const char *id, const char *cwd, const struct pairs *env, sandbox_done_fn done, void *ctx);
void session_delete(struct sandbox *s, const char *id, sandbox_done_fn done, void *ctx);
int session_get(struct sandbox *s, const char *id, struct session_view *ret); /* 0 or -ENOENT */
void session_each(struct sandbox *s, void (*each)(void *ctx, const struct session_view *v), void *ctx);

/* --- interpreters (core/interpreter.c, core/execution.c) --- */
struct interpreter;
struct execution;
typedef void (*interpreter_done_fn)(void *ctx, const struct err *e, struct interpreter *in);
void interpreter_create(struct sandbox *s, const struct interpreter_spec *spec, interpreter_done_fn done, void *ctx); /* answers when it is ready */
struct interpreter *interpreter_find(struct sandbox *s, const char *id);
struct interpreter *interpreter_next(struct sandbox *s, struct interpreter *prev); /* the default one among them, once it was used */
void interpreter_view(const struct interpreter *in, struct interpreter_view *ret);
void interpreter_delete(struct interpreter *in); /* with its process; what runs or waits in it is lost */
int interpreter_interrupt(struct interpreter *in, struct err *e);

/* Queued behind what was asked of that interpreter before. NULL and e when it can't be begun. No event comes before it returns. */
struct execution *sandbox_execute(struct sandbox *s, const struct execution_spec *spec, const struct execution_events *ev, void *ctx, struct err *e);
void execution_pause(struct execution *x);     /* no events until resumed: the code waits when it has said much */
void execution_resume(struct execution *x);
void execution_interrupt(struct execution *x); /* as Ctrl-C does; one that still waits ends at once */
void execution_leave(struct execution *x);     /* no further event; it goes on unless it is stop_on_leave */

/* --- operations inside --- */
/* Defaults of the sandbox filled in; counted as activity. NULL and e when it is not running. */
struct link_op *sandbox_op(struct sandbox *s, const struct op_spec *spec, const struct op_events *ev, void *ctx, struct err *e);

/* --- events --- */
struct subscription;
struct subscription *core_subscribe(struct core *c, const char *tenant /* NULL = all */, void (*on_event)(void *ctx, const struct event_view *ev),
                                    void *ctx);
void subscription_free(struct subscription *s);

#endif
