/* One command in a sandbox, joined to this program's own stdin, stdout, stderr, signals and terminal: `run` and `exec`. */
#ifndef CAISSON_CLI_ATTACH_H
#define CAISSON_CLI_ATTACH_H

#include "base/buf.h"
#include "cli/args.h"

/* The options that both commands share. */
enum { OPT_RUN_TTY = 6001, OPT_RUN_INTERACTIVE, OPT_RUN_ENV, OPT_RUN_WORKDIR, OPT_RUN_USER, OPT_RUN_TIMEOUT };
#define RUN_OPTIONS                                                                                               \
	{ OPT_RUN_TTY, 't', "tty", NULL, "give the command a terminal, joined to this one" },                     \
	{ OPT_RUN_INTERACTIVE, 'i', "interactive", NULL, "pass stdin on (a pipe or file is passed on anyway)" }, \
	{ OPT_RUN_ENV, 'e', "env", "NAME[=VALUE]", "environment variable; without a value: this one's" },         \
	{ OPT_RUN_WORKDIR, 'w', "workdir", "DIR", "directory to run in" },                                        \
	{ OPT_RUN_USER, 'u', "user", "USER", "user inside: a name, or uid[:gid]" },                               \
	{ OPT_RUN_TIMEOUT, 0, "timeout", "TIME", "time limit, such as 30s; then everything it started is killed" }

struct attach_args {
	bool tty, interactive;
	struct pair_list env;
	const char *workdir, *user;
	uint64_t timeout_ms;
};
bool attach_args_take(struct args *a, int id, struct attach_args *t);
static inline void attach_args_done(struct attach_args *t)
{
	pair_list_done(&t->env);
}
#define auto_attach_args __attribute__((cleanup(attach_args_done)))
/* Whether stdin goes to the command: asked for, or it is a pipe, a file or a socket. */
bool attach_wants_stdin(const struct attach_args *t);

/* Runs argv to its end; signals_start() has been called. Returns the exit code for this program: the command's (128 + n for a
 * signal), 124 when the time limit ended it, 125 after a message when we failed. With json stdout gets one object. */
int attach_run(struct caisson *c, const char *sandbox, struct attach_args *t, char *const *argv, bool json);

/* The code that stands for how a run ended, after a message where it needs one. */
int attach_exit_code(const struct caisson_run *r);
/* Writes all of it, also to a descriptor that doesn't block. 0 or a negative errno. */
int attach_write(int fd, const void *bytes, size_t n);
/* The JSON object that is printed for an ended run: the server's, with its sandbox and output. out, err NULL: without. */
int attach_print_json(const char *sandbox, const struct caisson_run *r, const struct buf *out, const struct buf *err);

#endif
