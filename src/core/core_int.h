/* Private to core/: the structs behind core.h. */
#ifndef CAISSON_CORE_CORE_INT_H
#define CAISSON_CORE_CORE_INT_H

#include "core/core.h"
#include "core/link.h"
#include "core/spool.h"

#include <uthash.h>
#include <utlist.h>

#define RUN_NUMBERS_RESERVED 64
#define RUNS_KEPT 1000               /* ended runs remembered per sandbox; older ones are forgotten with their output */
#define RUN_ROW_OUTPUT_MAX (96U << 10) /* per stream: smaller outputs live in the run's row, larger ones in a file */
#define RUN_ACK_AFTER (64U << 10)    /* unacknowledged bytes after which a stream goes to its file; below the guest's window */
#define FOLLOW_CHUNK (64U << 10)
#define HELLO_TIMEOUT_MS 30000
#define SWEEP_MS 1000
#define SAVE_AFTER_MS 5

struct waiter { /* somebody who is told when a transition is over */
	sandbox_done_fn done;
	void *ctx;
	struct waiter *next;
};

struct run_waiter {
	run_done_fn done;
	void *ctx;
	struct run_waiter *next;
};

struct follower {
	struct run *run;
	const struct follower_events *ev;
	void *ctx;
	uint64_t at[2];      /* next offset of each stream */
	bool paused, dead, busy, queued, told_end;
	struct follower *prev, *next;             /* in run->followers */
	struct follower *ready_prev, *ready_next; /* in core->ready */
};

struct run {
	struct sandbox *sandbox;
	uint64_t number;
	char id[32];             /* "run_<number>": unique in its sandbox */
	struct run_row row;      /* without the output */
	struct spool out[2];
	uint64_t acked[2];
	bool cold;               /* ended, and its output is only in the store or its files */
	bool finishing;          /* its end is known, the reason (oom) still asked for */
	bool stdin_open;
	bool stdin_unknown;      /* it was started by a daemon before this one; the guest has yet to say */
	bool taken;              /* it has an interpreter that was started ahead, which has not answered yet */
	bool unsaved;            /* ended, but not in the store yet */
	bool to_save;            /* in the core's list of these */
	uint64_t link_seq;       /* the connection on which the guest last spoke of it */
	uint64_t used_ms;        /* ended: when somebody last asked (monotonic) */
	struct follower *followers;
	struct run_waiter *waiters;
	struct run *save_prev, *save_next; /* of either list */
	UT_hash_handle hh;       /* by number; iteration is in order of start */
};

struct session {
	struct session_row row;
	UT_hash_handle hh; /* by row.id */
};

struct sandbox {
	struct core *core;
	struct sandbox_row row;
	uint64_t seq;
	struct boundary *boundary;
	struct link *link;         /* NULL while there is none */
	bool hello;                /* the guest has answered on this link */
	uint64_t link_seq;         /* counts the connections */
	unsigned reopened;         /* connections made since the last quiet minute */
	uint64_t reopened_ms;
	uint64_t hello_deadline_ms; /* 0 = none */
	uint64_t generation;       /* of transitions: an answer of an older one is stale */
	unsigned under_way;        /* enum verb of lifecycle.c; 0 = no transition */
	enum sandbox_state suspended_from; /* of a suspend under way */
	struct waiter *waiters;    /* of the transition under way */
	struct run *runs;          /* hash by number */
	struct session *sessions;  /* hash by id */
	struct door *doors;        /* its published ports, and who has come by them (publish.c) */
	struct visit *visits;
	size_t n_visits;
	uint64_t doors_tried_ms;
	struct interpreter *interpreters; /* the same */
	size_t live_runs;
	uint64_t oom_kills;        /* seen so far */
	struct question *questions; /* permission.c */
	struct more *more;         /* what the audit log has not heard one by one; or NULL */
	bool carrying;             /* being forked with its memory: nothing is acknowledged (carry.h) */
	uint64_t shape;            /* which kind of ready sandboxes it is one of (pool.c); 0 = none */
	uint64_t ahead_ms;         /* since when a Python waits in it (ahead.h); 0 = none */
	bool ahead_merged;         /* with its stderr in its stdout */
	uint64_t run_reserved;     /* numbers below are reserved in the store, RUN_NUMBERS_RESERVED at a time */
	uint64_t active_saved_ms;
	bool counted;              /* in core->creating */
	uint64_t told_time_ms;     /* link_tell_time */
	uint64_t answer_by_ms, heard; /* it has said nothing since it had said so many frames; 0 = nothing is waited for */
	unsigned told_again;       /* because it was late; since somebody last had a reason to tell it */
	bool unsaved;              /* its state could not be written down */
	uint64_t delete_again_ms;  /* a failed delete is tried again then (wall clock); 0 = not */
	bool present, present_started; /* what the boundary said at adoption */
	UT_hash_handle hh_id, hh_name;
	char name_key[SPEC_NAME_MAX + 72]; /* tenant '/' name */
};

struct snapshot {
	struct core *core;
	struct snapshot_row row;
	bool transient; /* of a fork: no row, nobody sees it */
	struct carried *carried; /* what goes on in what is made from it, or NULL */
	bool present;   /* what the boundary said at adoption */
	UT_hash_handle hh; /* by row.id; iteration is in order of creation */
};

struct volume {
	struct core *core;
	struct volume_row row;
	struct boundary *boundary; /* NULL: not offered now */
	uint64_t bytes;  /* as the boundary said last */
	bool present;    /* what it said at adoption */
	UT_hash_handle hh; /* by row.id; iteration is in order of creation */
};

struct audit_state; /* audit.c */
struct webhooks;    /* webhook.c */
struct grant;      /* publish.c */
/* Sockets of all of these, or none and the reason; what was left open (address, host port) is filled in. doors_attach takes them. */
int doors_open(struct core *c, struct publications *p, struct door **ret, struct err *e);
void doors_drop(struct door *list);
void doors_attach(struct sandbox *s, struct door *take);
void doors_restore(struct sandbox *s); /* after a restart */
void doors_sweep(struct sandbox *s);
void doors_listen(struct sandbox *s); /* as far as it may have more visitors */
void doors_close(struct sandbox *s);  /* and every connection */

/* grant.c */
struct taking;     /* snapshot.c */
struct door;       /* publish.c */
struct visit;
struct image_hold;

struct subscription {
	struct core *core;
	char *tenant;
	void (*on_event)(void *ctx, const struct event_view *ev);
	void *ctx;
	bool dead;
	struct subscription *prev, *next;
};

struct core {
	uv_loop_t *loop;
	struct core_options o;
	struct keys *keys;
	struct audit_state *audit;
	struct webhooks *webhooks;
	int runs_dir; /* DATA/runs */
	struct sandbox *by_id, *by_name;
	struct snapshot *snapshots;
	struct volume *volumes;
	struct grant *grants;
	struct taking *takings;
	struct image_hold *image_holds;
	uint64_t next_seq, next_event, swept_event, swept_ms;
	size_t running;
	size_t creating;  /* creates that callers are waiting for */
	struct pool *pool;
	struct secrets *secrets;
	struct follower *ready; /* followers with something to deliver */
	struct run *to_save;    /* ended runs that were told and are to be stored */
	uv_idle_t deliver;
	uv_timer_t sweep, save;
	struct subscription *subscriptions;
	bool emitting;
	unsigned handles; /* uv handles not yet closed */
	void (*closed)(void *ctx);
	void *closed_ctx;
	/* adoption */
	size_t lists_pending;
	void (*started)(void *ctx, const struct err *e);
	void *started_ctx;
	/* core_delete_all */
	void (*emptied)(void *ctx);
	void *emptied_ctx;
};

/* core.c */
struct sandbox *core_add(struct core *c, struct sandbox_row *take);
void core_remove(struct sandbox *s); /* frees it */
void core_emit(struct core *c, const char *type, struct sandbox *s, enum sandbox_state old, const struct run *r);

void core_handle_closed(struct core *c); /* one of core->handles */
void core_save_soon(struct core *c);     /* runs_save_ended in a while */
void core_deliver_soon(struct core *c);  /* run_deliver_ready on the loop's next turn */

/* audit.c */
struct audit_state *audit_state_new(struct core *c);
void audit_state_free(struct audit_state *st);
int core_audit_ready(struct core *c, struct err *e); /* for what is new: refused when it could not be recorded */
/* Of its programs; a link_events.on_verdict. */
void audit_permission(void *sandbox, uint64_t run, unsigned how, const struct guest_verdict *v);
bool audit_question(struct sandbox *s, const struct question_view *v); /* false: there are too many to speak of each */
void audit_answer(struct sandbox *s, const struct question_view *v, bool allowed);
/* permission.c; of struct link_events */
void permission_on_ask(void *sandbox, uint64_t id, const struct guest_ask *a);
void permission_on_ask_end(void *sandbox, uint64_t id);
void permission_on_host(struct sandbox *s, const char *name); /* what the edge says */
void permission_on_method(struct sandbox *s, const struct opener_event *ev); /* what the opener says */
void permission_on_method_end(struct sandbox *s, uint64_t id); /* 0: none waits any more */
int sandbox_answer_host(struct sandbox *s, const char *name, bool allowed, struct err *e);
int permissions_kept(const struct core *c, const struct boundary *b, const struct sandbox_spec *spec, struct err *e); /* create.c: would they be? */
void permissions_unheard(struct sandbox *s); /* its guest is not heard any more; what waits there comes again with the next hello */
void permissions_forget(struct sandbox *s);  /* nothing of it waits any more */
void audit_emit(struct core *c, const char *type, struct sandbox *s, enum sandbox_state old, const struct run *r); /* what core_emit tells */
void audit_secret(struct sandbox *s, const struct opener_event *ev); /* what an opener did with one, or would not */
void audit_untold(struct sandbox *s, uint32_t n); /* what was lost on the way here */
void audit_method(struct sandbox *s, const struct opener_event *ev); /* what became of a request */
void audit_say_network(struct audit_line *l, const struct sandbox *s);
void audit_say_secrets(struct audit_line *l, const struct sandbox *s);
void audit_op(struct sandbox *s, const struct op_spec *spec, struct link_op *op); /* its end will be a line */
void audit_asked(struct sandbox *s, const char *type); /* a transition that has no state of its own */
void audit_execution(struct sandbox *s, const struct interpreter *in, const char *code);
void audit_sweep_box(struct sandbox *s);
void audit_sweep(struct core *c);
void audit_forget(struct sandbox *s); /* says what is left to say */
void audit_tell(struct core *c);      /* from the loop: who watches */
void audit_tell_soon(struct core *c);

/* webhook.c */
struct webhooks *webhooks_new(void);
void webhooks_load(struct core *c);
void webhooks_sweep(struct core *c);
void webhooks_stop(struct core *c); /* what is under way ends soon, and then its handle */
void webhooks_free(struct webhooks *all);

/* lifecycle.c */
void lifecycle_boundary_exit(void *ctx, const char *id, const struct boundary_exit *x);
void lifecycle_adopt(struct sandbox *s); /* after a restart, once its boundary has been asked what is there */
void lifecycle_begin_create(struct sandbox *s, sandbox_done_fn done, void *ctx);
void lifecycle_ask_create(struct sandbox *s, const struct boundary_spec *spec);
void lifecycle_await_create(struct sandbox *s, sandbox_done_fn done, void *ctx); /* that is under way already */
void lifecycle_made(struct core *c, const char *id, const struct err *e); /* a claimed one that the boundary was still making */
void lifecycle_tell_time(struct sandbox *s, bool name); /* and its host name, where the guest keeps them itself */
void lifecycle_sweep(struct sandbox *s, uint64_t now_wall_ms);

/* A transition without a state of its own, for what must not be overtaken by another but a delete: its generation, or 0 and e. The
 * sandbox is running, paused or stopped. */
uint64_t lifecycle_hold(struct sandbox *s, const char *what, struct err *e);
void lifecycle_release(struct sandbox *s, uint64_t generation);
/* p: what the sandbox begins as, or NULL; spec.from_snapshot is not looked at. */
void core_create_from(struct core *c, const char *tenant, const char *key_id, const struct sandbox_spec *spec, struct snapshot *p, sandbox_done_fn done,
                      void *ctx);

/* snapshot.c */
void snapshots_load(struct core *c);
void snapshots_adopt(struct core *c, struct boundary *b);
void snapshots_free(struct core *c);
/* What is asked for, with what the snapshot says filled in: *ret, or the reason why that does not go together. */
int snapshot_fill_spec(struct snapshot *p, const struct sandbox_spec *asked, struct sandbox_spec *ret, struct err *e);
void snapshot_used(struct snapshot *p);

/* grant.c */
void grants_load(struct core *c);
void grants_free(struct core *c);
void grants_of_removed(struct sandbox *s);

/* volume.c */
void volumes_load(struct core *c);
void volumes_adopt(struct core *c, struct boundary *b);
void volumes_free(struct core *c);
/* The mounts that a create asks for, by id: or the reason why it cannot have them. */
int volumes_resolve(struct core *c, const char *tenant, const struct boundary *b, const struct volume_mounts *asked, struct volume_mounts *ret,
                    struct err *e);

/* sandbox.c */
/* Applies a changed spec if it is valid and could be stored; consumes `take` either way. */
int sandbox_replace_spec(struct sandbox *s, struct sandbox_spec *take, struct err *e);
int network_permitted(const struct core *c, const struct sandbox_spec *spec, struct err *e); /* by the operator */
void network_tell(struct sandbox *s); /* the edge what it may */

/* pool.c: sandboxes that are ready before anybody asks */
struct pool *pool_new(struct core *c);
void pool_load(struct core *c); /* what the operator wants, from the store */
void pool_free(struct pool *p);
struct claim {
	char id[37];       /* which is its host name, too, until it is told another one */
	struct link *link; /* NULL: the boundary is still making it, and lifecycle_made will be called */
	bool ready;        /* its guest has said hello */
	bool ahead, ahead_merged; /* a Python waits in it, its stderr in its stdout */
	uint64_t shape;    /* also when there is none to claim */
};
/* A sandbox of this shape that is ready, or is being made (spec's id and hostname do not count). False: there is none. Either way the
 * shape has been asked for, and is kept filled for a while. */
bool pool_claim(struct core *c, struct boundary *b, const struct boundary_spec *spec, struct claim *ret);
/* The first thing done in a sandbox of that shape was to run Python code: the next ones have one waiting (ahead.h). */
void pool_wants_ahead(struct core *c, uint64_t shape, bool merge_stderr);
void pool_refill(struct core *c); /* in a quiet moment, or at once when few are left */
void pool_close_handle(struct core *c, uv_close_cb closed); /* after the drain; its handle's data is the core */
bool pool_exit(struct core *c, const char *id, const char *reason); /* false: it is none of the pool */
void pool_sweep(struct core *c);
void pool_excuse(struct core *c, uint64_t ms); /* what is waited for has that much longer */
void pool_drain(struct core *c, void (*done)(void *ctx), void *ctx); /* for good */
/* The same where no boundary would answer: what is ready is left to the next daemon, which ends what it has no record of. */
void pool_abandon(struct core *c);

/* create.c: what a boundary is asked for when it is to make one; all but id and host name. Borrows from all. */
struct boundary_spec shape_of(const struct boundary *b, const struct sandbox_spec *spec, const char *user, const struct image *image);
const char *user_of(const struct sandbox_spec *spec, const struct image *image);
void name_it(struct boundary_spec *b, const struct sandbox *s, char hostname[static SPEC_HOSTNAME_MAX + 1]); /* its id and host name */
/* What a create goes by: as asked, or with what a snapshot says filled in; and the image it stands on. `filled` and the image are the
 * caller's to free, always. */
int resolve_spec(struct core *c, const struct sandbox_spec *asked, struct snapshot *from, struct sandbox_spec *filled,
                 struct boundary **ret_b, struct image *ret_image, struct err *e);

/* run.c */
extern const struct link_events sandbox_link_events;
void runs_load(struct sandbox *s);                   /* from the store, after a restart */
void runs_hello(struct sandbox *s, const struct link_run_state *known, size_t n);
void runs_lost(struct sandbox *s, const char *why);  /* ends every live run */
void runs_free(struct sandbox *s);
void runs_sweep(struct sandbox *s);
void runs_save_ended(struct core *c); /* from the loop */
struct run *run_put(struct sandbox *s, struct run_row *take); /* into the table only */
void run_make_folder(struct sandbox *s); /* of its spools' files */
void run_warm_up(struct run *r); /* an ended run's output is in its spools again */
#define RUN_OUTPUT_MAX_KERNEL (RUN_OUTPUT_MAX_MAX + 1) /* more than a client may ask for: how a kernel's run is known in the store */
int run_start_kernel(struct sandbox *s, const struct run_spec *spec, struct run **ret, struct err *e);
static inline bool run_is_kernel(const struct run *r)
{
	return r->row.output_max == RUN_OUTPUT_MAX_KERNEL;
}
/* A terminal without a limit may be used for months: the last part of what it has shown is kept, at least TERMINAL_KEPT bytes. */
#define TERMINAL_KEPT (32U << 20)
static inline bool run_keeps_tail(const struct run *r)
{
	return r->row.pty && r->row.output_max == RUN_OUTPUT_MAX_MAX;
}
/* What a kernel has said before the offset is heeded: the guest and the disk may forget it. */
void run_forget(struct run *r, uint64_t offset);
static inline bool run_ended(const struct run *r)
{
	return r->row.state >= RUN_EXITED;
}
void run_on_started(void *ctx, uint64_t number);
void run_on_output(void *ctx, uint64_t number, int stream, uint64_t offset, struct str bytes);
void run_on_stdin_room(void *ctx, uint64_t number);
void run_on_end(void *ctx, uint64_t number, const struct link_run_end *end);

/* follow.c */
void run_deliver_ready(struct core *c); /* from the loop */
void followers_wake(struct run *r);     /* there is something new */
void followers_tell_room(struct run *r);
void followers_leave(struct run *r);

/* command.c */
extern const char script_program[]; /* script.py; kernel_blob.S */
struct command {
	char **argv; /* heap, NULL-terminated */
	struct str script; /* borrowed from the spec, or from prefixed */
	const char *script_suffix;
	char *prefixed;    /* heap or NULL: the source with a line of ours in front */
	struct str stdin_bytes;
};
int command_build(const struct run_spec *spec, struct command *ret, struct err *e);
void command_done(struct command *c);

/* interpreter.c */
int interpreter_default(struct sandbox *s, struct interpreter **ret, struct err *e); /* made when there is none */
void interpreters_adopt(struct sandbox *s, bool copied);   /* after a restart, or of its parent in a fork's child; before anybody can ask */
void interpreters_end(struct sandbox *s, const char *why); /* none is known any more; kernels are not ended by it */
size_t interpreters_resting(struct sandbox *s);            /* live runs that are kernels with nothing to do */

/* session.c */
void sessions_load(struct sandbox *s);
void session_put(struct sandbox *s, const char *id, uint64_t created_ms); /* one that lives, also in the store */
void sessions_end(struct sandbox *s); /* the sandbox has stopped: none is left */
void session_on_end(void *ctx, const char *id, int exit_code);

#endif
