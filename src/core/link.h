/* The daemon's end of one guest connection: turns calls into frames and frames into events. Knows the guest protocol and
 * nothing of sandboxes, states or storage.
 *
 * Not thread-safe; lives on one loop. Callbacks run from the loop only, never from inside a call made here, and may call
 * anything here but link_free (use link_close and free later, or free from on_closed). After on_closed no further
 * callback comes; all ops have got their op_end before it. */
#ifndef CAISSON_CORE_LINK_H
#define CAISSON_CORE_LINK_H

#include "base/err.h"
#include "model/op.h"
#include "model/sandbox.h"

#include <uv.h>

struct link;
struct guest_verdict;
struct guest_ask;

enum { LINK_STDOUT = 1, LINK_STDERR = 2 };

struct link_run_end {
	int exit_code, signal;        /* as in struct run_view */
	bool timed_out, canceled;
	bool oom;                     /* of memory, as the guest of a machine says; elsewhere the boundary knows */
	bool failed;                  /* was never started; message says why (bad cwd, unknown user, dead session ...) */
	int errnum;                   /* with failed: positive errno */
	char message[200];
	uint64_t stdout_bytes, stderr_bytes; /* final totals; all of it has been delivered before this event */
	uint64_t duration_ms;
	bool session_ended;           /* a session's shell went with it (the command was `exit`, or killed it) */
};

struct link_run_state { /* a run the guest knows, told at hello */
	uint64_t run;
	bool ended;
};

struct link_events {
	/* The guest answered: it is up. Runs it knows from before (empty for a fresh one): attach or release each. */
	void (*on_hello)(void *ctx, const struct link_run_state *runs, size_t n);
	void (*on_run_started)(void *ctx, uint64_t run); /* again after an attach */
	/* Bytes at offset of the run's stream, in order, without gaps from what run_attach said. */
	void (*on_run_output)(void *ctx, uint64_t run, int stream, uint64_t offset, struct str bytes);
	void (*on_run_stdin_room)(void *ctx, uint64_t run); /* link_run_stdin_room() became non-zero again; after an attach: it takes stdin */
	void (*on_run_end)(void *ctx, uint64_t run, const struct link_run_end *end);
	void (*on_session_end)(void *ctx, const char *session, int exit_code);
	void (*on_closed)(void *ctx, const struct err *why);
	/* Of the rules (model/permission.h). run 0: it belongs to none; how: enum guest_verdict_how. Paths are a sandbox's text. */
	void (*on_verdict)(void *ctx, uint64_t run, unsigned how, const struct guest_verdict *v);
	void (*on_ask)(void *ctx, uint64_t id, const struct guest_ask *a); /* again after a hello, if it still waits */
	void (*on_ask_end)(void *ctx, uint64_t id);                        /* it needs no answer any more */
	/* The answer to the last link_tell_time took so long that the guest's clock may be late by more than a little. */
	void (*on_told_late)(void *ctx);
};

/* Takes fd (also on failure). Says hello; nothing may be asked before on_hello, except run_start and op_open, which may
 * be sent ahead and are queued by the guest. */
struct link *link_new(uv_loop_t *loop, int fd, const struct link_events *ev, void *ctx);
/* From now on these are told, at once: for a connection that was opened before its owner was known. */
void link_set_events(struct link *l, const struct link_events *ev, void *ctx);
void link_close(struct link *l); /* on_closed will come */
void link_free(struct link *l); /* ops and replies still open are told so first */
bool link_is_open(const struct link *l);

/* To a guest that keeps its own time (BOUNDARY_OWN_CLOCK): what time it is, and its host name unless NULL. Heeded before whatever is asked
 * later; nobody waits for the answer. After on_hello. */
void link_tell_time(struct link *l, const char *hostname);
bool link_is_waited_for(const struct link *l); /* an op or a session's answer is */
/* Has it still to answer such a telling? *ret_heard: how many frames have come from it altogether. */
bool link_is_asked(const struct link *l, uint64_t *ret_heard);

/* What programs that are started from now on may use: valid rules of model/permission.h. Right after link_new. */
void link_permit(struct link *l, char *const *rules);
void link_answer(struct link *l, uint64_t ask, bool allowed);

/* --- runs --- */
/* `env` is the complete environment but for HOME, USER, LOGNAME, SHELL, PATH, which the guest adds from the user's entry
 * and the image when absent; user/cwd NULL: the guest's default. Never fails here: trouble comes as on_run_end(failed).
 * Shell and code have been turned into argv + script by the caller: a script of any length is given to the program
 * as an already open, readable descriptor whose /dev/fd path replaces the argv element that is exactly "{script}"; with
 * script_suffix (".ts") it is a real file with that ending in a private directory, removed when the run ends. */
struct link_run_spec {
	const char *const *argv;  /* NULL-terminated; with session: argv[0] is the shell text */
	struct str script;        /* p NULL = none */
	const char *script_suffix;
	const struct pairs *env;
	const char *cwd, *user, *session;
	bool stdin_open, pty, merge_stderr;
	struct str stdin_bytes;   /* fed first; with !stdin_open then end of file */
	uint16_t rows, cols;
	uint64_t timeout_ms;
};
/* (A closed link ignores the call: on_closed is the answer.) sh, bash and python run a script by its /dev/fd path; node does not, for it
 * wants to resolve it: give it a suffix. */
void link_run_start(struct link *l, uint64_t run, const struct link_run_spec *spec);
/* A run that was started ahead of its time, with its stdin open, begins now: its duration and its time limit count from here, and
 * on_run_started comes again, unless it has ended. */
void link_run_take(struct link *l, uint64_t run, uint64_t timeout_ms);
/* Go on delivering from these offsets (bytes the daemon already has are not sent again). */
void link_run_attach(struct link *l, uint64_t run, uint64_t stdout_offset, uint64_t stderr_offset);
/* The daemon has stream bytes before `offset` safe; the guest may forget them and read on. Cheap; batched. */
void link_run_ack(struct link *l, uint64_t run, int stream, uint64_t offset);
void link_run_release(struct link *l, uint64_t run); /* forget it; of an ended one the guest hears with the next frame or sweep */
void link_sweep(struct link *l); /* now and then: sends what could wait */
size_t link_run_stdin_room(const struct link *l, uint64_t run);
int link_run_stdin(struct link *l, uint64_t run, struct str bytes); /* at most room bytes, else -EAGAIN; -ENOENT unknown */
void link_run_stdin_eof(struct link *l, uint64_t run);
/* tree: every process the run ever started, also those that left its process group or session; else the main process
 * (of a pty: its foreground group). */
void link_run_signal(struct link *l, uint64_t run, int signo, bool tree);
void link_run_cancel(struct link *l, uint64_t run); /* SIGKILL to the tree, ends as canceled */
void link_run_resize(struct link *l, uint64_t run, uint16_t rows, uint16_t cols);

/* --- sessions --- */
struct link_session_spec {
	const char *id;           /* 1..128 bytes */
	const struct pairs *env;
	const char *cwd, *user;
};
typedef void (*link_reply_fn)(void *ctx, const struct err *e);
void link_session_open(struct link *l, const struct link_session_spec *spec, link_reply_fn done, void *ctx);
void link_session_close(struct link *l, const char *id, link_reply_fn done, void *ctx); /* ends its whole tree */

/* --- ops (model/op.h) --- */
struct link_op;
struct link_op *link_op_open(struct link *l, const struct op_spec *spec, const struct op_events *ev, void *ctx);
size_t link_op_room(const struct link_op *op);
int link_op_write(struct link_op *op, struct str bytes); /* at most room, else -EAGAIN */
void link_op_eof(struct link_op *op);
void link_op_pause(struct link_op *op);   /* on_data stops soon: credit is withheld (at most a window more arrives) */
void link_op_resume(struct link_op *op);
void link_op_cancel(struct link_op *op);  /* no further callback; the op is freed */

/* Told once, before on_end, how the op has ended, or that it was cancelled; and how many bytes went in and came out. */
typedef void (*link_op_watch_fn)(void *ctx, uint64_t sent, uint64_t received, const struct err *e, bool canceled);
void link_op_watch(struct link_op *op, link_op_watch_fn fn, void *ctx);

/* The same over a connection of its own (another descriptor of the boundary's open_guest), which the op's process in the sandbox
 * serves itself: for bulk reading and writing. Takes fd, also on failure (NULL: the loop cannot watch it). Belongs to the link
 * like any op and ends with it; the connection is closed with the op. */
struct link_op *link_op_open_direct(struct link *l, int fd, const struct op_spec *spec, const struct op_events *ev, void *ctx);

#endif
