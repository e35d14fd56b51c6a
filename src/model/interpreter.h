/* Interpreters: kernels inside a sandbox that keep their variables from one piece of code to the next. Plain data. */
#ifndef CAISSON_MODEL_INTERPRETER_H
#define CAISSON_MODEL_INTERPRETER_H

#include "model/sandbox.h"

#define INTERPRETER_DEFAULT "default" /* id of the one that is there without being made; its kernel starts at first use */
#define EXECUTION_TIMEOUT_MAX_MS (366ULL * 86400 * 1000)

struct interpreter_spec {
	const char *language; /* "python"; NULL = that */
	const char *cwd;      /* NULL = the sandbox's; must exist */
};
struct interpreter_view {
	const char *id, *language;
	const char *cwd;    /* where it began; "" until the kernel has said so */
	bool alive;         /* false: its kernel has ended, its variables are gone */
	bool busy;
	uint64_t created_ms;
};

/* One piece of code. */
struct execution_spec {
	const char *interpreter; /* id; NULL = INTERPRETER_DEFAULT */
	const char *code;
	struct pairs env;        /* set while it runs */
	uint64_t timeout_ms;     /* from its turn on; 0 = none */
	bool stop_on_leave;      /* the asker's leaving interrupts it, or takes it out of the queue */
};
enum execution_end {
	EXECUTION_DONE,        /* also after an error of the code's own */
	EXECUTION_INTERRUPTED, /* because somebody asked for it */
	EXECUTION_TIMED_OUT,
	EXECUTION_LOST,        /* the kernel has ended under it */
};
const char *execution_end_name(enum execution_end end); /* "done" "interrupted" "timed_out" "lost" */

struct form { /* one way to show a result: text as it is, anything else in base64 */
	struct str mime, text;
};
/* In order, on_end last. Text is valid UTF-8 and may contain NULs. */
struct execution_events {
	void (*on_output)(void *ctx, int stream, struct str text);
	/* main: the value of the last expression; else shown by the code itself (display, a plot) */
	void (*on_result)(void *ctx, bool main, const struct form *forms, size_t n);
	void (*on_error)(void *ctx, struct str name, struct str value, struct str traceback);
	void (*on_end)(void *ctx, enum execution_end end, const char *message); /* message: why it was lost, or NULL. Then it is gone */
};

#endif
