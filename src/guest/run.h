/* Runs: one command each, with its output windows, its stdin and its end. */
#ifndef CAISSON_GUEST_RUN_H
#define CAISSON_GUEST_RUN_H

#include "guest/guest.h"
#include "guest/scratch.h"
#include "guest/stream.h"

/* QUEUED (in a session) -> ALIVE -> DRAINING (the main process is reaped, the pipes are being emptied) -> ENDED */
enum run_state { RUN_QUEUED, RUN_ALIVE, RUN_DRAINING, RUN_ENDED };

struct run_input {
	struct watch w;        /* writing end, or unset */
	struct buf bytes;      /* received, not yet written */
	uint64_t received, limit;
	bool open;             /* the daemon may send; else only what came with the request */
	bool eof;              /* close (of a terminal: send ^D) behind the bytes */
	bool tell;             /* the limit has moved */
	bool hold;             /* must not be closed yet */
};

struct run {
	struct guest *g;
	uint64_t id;
	struct run *next;               /* of its bucket */
	struct run *next_sending;
	enum run_state state;
	bool attached, queued_to_send, started_told, end_told, release;
	pid_t pid;
	struct group group;
	struct window out[2];
	struct source *from[2];         /* own pipes; a session's are in the session */
	struct run_input in;
	int pty;                        /* master, borrowed from in.w / from[0]; or unset */
	struct timer limit, drain;      /* time limit; end of patience with a terminal, or next kill */
	struct timer tell;              /* there is nothing to say but that it has started, and that can wait so long */
	struct scratch scratch;
	uint64_t started_ms;
	uint64_t timeout_ms;
	struct guest_run_end end;       /* message points into text */
	char text[200];
	struct session *session;
	struct run *next_queued;        /* in the session */
	char *command;                  /* of the session, until it is fed */
};

struct run *run_find(struct guest *g, uint64_t id);
struct run *run_of_pid(struct guest *g, pid_t pid);
/* Requests of the daemon; -EPROTO = it broke the rules. */
int run_start(struct guest *g, uint64_t id, const struct guest_run_request *r);
void run_prepare(void); /* while there is time: what the next run will need whatever it is */
void run_take(struct guest *g, uint64_t id, uint64_t timeout_ms); /* it begins only now */
int run_attach(struct guest *g, uint64_t id, uint64_t out, uint64_t err);
int run_ack(struct guest *g, uint64_t id, int stream, uint64_t offset);
int run_stdin(struct guest *g, uint64_t id, struct str bytes);
void run_stdin_eof(struct guest *g, uint64_t id);
void run_signal(struct guest *g, uint64_t id, int signo, bool tree);
void run_cancel(struct guest *g, uint64_t id);
void run_resize(struct guest *g, uint64_t id, uint16_t rows, uint16_t cols);
void run_release(struct guest *g, uint64_t id);

void run_reaped(struct run *r, int status);
void runs_detach(struct guest *g);  /* the connection is gone */
void runs_list(struct guest *g, struct buf *out);
/* Puts what there is to say into out while it holds less than `high` bytes. */
void runs_send(struct guest *g, struct buf *out, size_t high);

/* --- for session.c --- */
void run_tell(struct run *r);                       /* something to send */
void run_fail(struct run *r, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4), nonnull(3)));
void run_begin(struct run *r);                      /* QUEUED -> ALIVE, sets the time limit */
void run_finish(struct run *r);                     /* -> ENDED; end holds how */
void run_set_status(struct run *r, int status);     /* of wait() */
void run_input_start(struct run *r, int fd);        /* takes fd */
void run_input_unhold(struct run *r);               /* may be closed from now on */

/* env.c: the environment of a program as one array (free each string and the array by env_free). */
char **env_build(const struct guest *g, const struct user *u, const char *const *env, const struct group *mark, bool pty);
void env_free(char **env);

#endif
