/* The program's front: one file per command, each exporting one const struct command; the table is in cli.c.
 *
 * A command parses its own arguments (cli/args.h), talks to a server through libcaisson only, and returns the program's
 * exit code. Exit codes: 0 done; 125 we failed; 2 wrong usage; `run` and `exec` otherwise pass on the command's own. */
#ifndef CAISSON_CLI_CLI_H
#define CAISSON_CLI_CLI_H

#include "base/err.h"
#include "base/util.h"
#include "caisson.h"

enum { EXIT_OURS = 125, EXIT_USAGE = 2 };

struct option_spec; /* cli/args.h */

struct cli;
struct command {
	const char *name;      /* "run"; of a subcommand "image ls" */
	const char *synopsis;  /* what follows the name: "[options] [--] COMMAND [ARG...]" */
	const char *summary;   /* one line for the list of commands */
	const char *help;      /* further text of `help NAME`, whole lines */
	const struct option_spec *options; /* ended by an entry without name; the common ones are added */
	int (*run)(struct cli *cli, int argc, char **argv); /* argv[0] is the command's name */
	const struct command *const *subcommands; /* NULL-terminated, instead of run */
};

/* What the common options say. */
struct cli {
	const struct command *command; /* the one that runs */
	bool json;
	const char *url, *data;
};

int cli_main(int argc, char **argv);
extern const struct command *const cli_commands[]; /* NULL-terminated */

/* --- messages: "caisson: ..." on stderr --- */
void warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* As warn, and returns EXIT_OURS, for `return fail(...)`. */
int fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Adds what to do about it, where the kind says so. */
int fail_error(const struct caisson_error *e);
int fail_err(const struct err *e);
/* Adds a line that points to the command's help; returns EXIT_USAGE. */
int usage(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void print_help(const struct command *c);

/* Connects as --url, --data and the environment say. 0, or EXIT_OURS after a message. */
int cli_connect(struct cli *cli, struct caisson **ret);
static inline void caisson_close_ptr(struct caisson **c)
{
	caisson_close(*c);
}
#define auto_caisson __attribute__((cleanup(caisson_close_ptr)))

/* The data folder and the images folder that a server here would use; heap strings. */
char *cli_data_folder(const struct cli *cli);
char *cli_images_folder(const struct cli *cli);
char *cli_socket_path(const struct cli *cli);

#endif
