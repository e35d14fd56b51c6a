/* The program's front: one file per command, each exporting one const struct command; the table is in cli.c.
 *
 * A command parses its own arguments (cli/args.h), talks to a server through libcaisson only, and returns the program's
 * exit code. Exit codes: 0 done; 125 we failed; 2 wrong usage; `run` and `exec` otherwise pass on the command's own. */
#ifndef CAISSON_CLI_CLI_H
#define CAISSON_CLI_CLI_H

#include "base/err.h"
#include "base/util.h"
#include "caisson.h"

enum { CLI_FAILED = 125, CLI_USAGE = 2, CLI_TIMED_OUT = 124, CLI_BROKEN_PIPE = 141 };

struct option_spec; /* cli/args.h */

struct cli;
struct command {
	const char *name;      /* "run"; of a subcommand "image ls" */
	const char *synopsis;  /* what follows the name: "[OPTIONS] [--] COMMAND [ARG...]" */
	const char *summary;   /* one line for the list of commands */
	const char *help;      /* further text of `help NAME`, whole lines; or NULL */
	const struct option_spec *options; /* ended by an entry without id; the common ones are added. Or NULL */
	int (*run)(struct cli *cli, int argc, char **argv); /* argv[0] is the command's name */
	const struct command *const *subcommands; /* NULL-terminated, instead of run */
};

/* What the common options say. */
struct cli {
	const struct command *command; /* the one that runs, or NULL before it is known */
	bool json;
	const char *url, *data;
};

int cli_main(int argc, char **argv);
extern const struct command *const cli_commands[]; /* NULL-terminated */
/* Looks a name up in such a table; NULL when it isn't there. */
const struct command *cli_find(const struct command *const *table, const char *name);
void cli_print_help(const struct command *c); /* NULL: the overview */

/* --- messages on stderr: "caisson: ...", with --json {"error":{"kind","message"}} for failures. What is not printable is escaped. --- */
void cli_set_json_errors(bool on);
void cli_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Returns CLI_FAILED, for `return cli_fail(...)`. */
int cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int cli_fail_error(const struct caisson_error *e); /* adds what to do about it, where the kind says so */
int cli_fail_err(const struct err *e);
/* Adds a line that points to the command's help; returns CLI_USAGE. */
int cli_usage(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* --- the server --- */
/* Connects as --url, --data and the environment say. 0, or CLI_FAILED after a message. */
int cli_connect(const struct cli *cli, struct caisson **ret);
static inline void caisson_close_ptr(struct caisson **c)
{
	caisson_close(*c);
}
#define auto_caisson __attribute__((cleanup(caisson_close_ptr)))

/* Where a server on this machine keeps its things, as --data and the environment say; heap strings, absolute. */
char *cli_data_folder(const struct cli *cli);
char *cli_images_folder(void);
char *cli_socket_path(const struct cli *cli);
char *cli_absolute(const char *path); /* need not exist */

#endif
