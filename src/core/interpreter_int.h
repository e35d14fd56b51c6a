/* Private to core/interpreter.c (kernels: their life) and core/execution.c (what they are given to do and what they say). */
#ifndef CAISSON_CORE_INTERPRETER_INT_H
#define CAISSON_CORE_INTERPRETER_INT_H

#include "core/core_int.h"

#include <jansson.h>

#define KERNEL_LINE_MAX ((8U << 20) + 64) /* kernel.py keeps to 8 MiB */
#define KERNEL_FORGET_AFTER (64U << 10)
#define EXECUTIONS_QUEUED_MAX 256
#define EXECUTIONS_BYTES_MAX (128U << 20) /* of their requests: more than one of RUN_SCRIPT_MAX in JSON's worst escapes */

/* STARTING: until its first word. ASKED: adopted from an earlier daemon, and asked what it is doing; whatever it says before it answers
 * belongs to nobody. IDLE, BUSY: with the first execution of the queue. DEAD: its process has ended. */
enum kernel_state { KERNEL_STARTING, KERNEL_ASKED, KERNEL_IDLE, KERNEL_BUSY, KERNEL_DEAD };

/* How hard the execution under way has been asked to stop; each step is tried for a second. */
enum urgency { CALM, INTERRUPTED_IT, INTERRUPTED_ALL, KILLED };

struct interpreter_waiter {
	interpreter_done_fn done;
	void *ctx;
	struct interpreter_waiter *next;
};

struct interpreter {
	uv_timer_t timer; /* first: freed by its close */
	struct core *core;
	struct sandbox *sandbox; /* NULL: it is only waiting to be freed */
	char *id, *language, *cwd;
	uint64_t created_ms;
	enum kernel_state state;
	enum urgency urgency;
	struct run *run;             /* NULL once it has ended */
	struct follower *follower;
	uint64_t read, forgotten;    /* offsets in its output: heeded; given back to the guest */
	struct buf line, input;      /* said, up to the last newline; to be said to it */
	struct execution *queue;     /* the first is under way when BUSY */
	uint64_t serial;             /* of executions */
	uint64_t asked;              /* number of the question to an adopted one */
	struct interpreter_waiter *waiters; /* for its first word */
	UT_hash_handle hh;           /* by id */
};

struct execution {
	struct interpreter *in;
	uint64_t id;
	char *request;               /* the line for the kernel, until it is sent */
	uint64_t timeout_ms;
	bool stop_on_leave, left, paused, interrupted, timed_out;
	bool struck;                 /* an interrupt has been asked of the kernel */
	const struct execution_events *ev;
	void *ctx;
	struct execution *prev, *next;
};

/* interpreter.c */
void kernel_say(struct interpreter *in, const char *line); /* with its newline */
void kernel_hurry(struct interpreter *in);                 /* the next step of urgency */
void kernel_in(struct interpreter *in, const char *cwd);   /* its directory, as it says */
void kernel_ready(struct interpreter *in);
void kernel_limit(struct interpreter *in, uint64_t ms);    /* 0 = none */
void kernel_calm(struct interpreter *in);                  /* what was under way is over */

/* execution.c */
void executions_next(struct interpreter *in);
void executions_lost(struct interpreter *in, const char *why);
void execution_overdue(struct interpreter *in);
void execution_strike(struct interpreter *in); /* asks the kernel to interrupt what is under way */
void kernel_said(struct interpreter *in, struct str line);

#endif
