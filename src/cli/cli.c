#include "cli/cli.h"

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

const struct command *const cli_commands[] = {
	&command_run, &command_exec, &command_create, &command_ls, &command_cp, &command_logs, &command_stop, &command_start,
	&command_pause, &command_resume, &command_snapshot, &command_fork,
	&command_publish, &command_unpublish, &command_rm, &command_image, &command_key, &command_secret, &command_pool, &command_permissions, &command_audit, &command_webhook, &command_serve, &command_mcp, &command_info, &command_doctor, &command_version, &command_help, NULL,
};

const struct command *cli_find(const struct command *const *table, const char *name)
{
	for (; *table; table++) {
		const char *last = strrchr((*table)->name, ' '); /* "image ls" is found by "ls" */
		if (streq(last ? last + 1 : (*table)->name, name))
			return *table;
	}
	return NULL;
}

static void print_table(const struct command *const *table)
{
	for (; *table; table++)
		printf("  %-12s %s\n", (*table)->name, (*table)->summary);
}

void cli_print_help(const struct command *c)
{
	if (!c) {
		puts("Usage: caisson COMMAND [OPTIONS] ...\n\nSandboxes for code that is not to be trusted: create, run, delete.\n\nCommands:");
		print_table(cli_commands);
		puts("\nOptions of every command:");
		args_print_options(args_common);
		puts("\n`caisson help COMMAND` says more. Example: caisson run -- python3 -c 'print(6*7)'");
		return;
	}
	printf("Usage: caisson %s %s\n\n%s.\n", c->name, c->synopsis, c->summary);
	if (c->subcommands) {
		puts("\nCommands:");
		print_table(c->subcommands);
	}
	puts("\nOptions:");
	args_print_options(c->options);
	args_print_options(args_common);
	if (c->help)
		printf("\n%s", c->help);
}

/* --- where the server is --- */

int cli_connect(const struct cli *cli, struct caisson **ret)
{
	const struct caisson_connect_options o = { .url = cli->url, .data = cli->data };
	struct caisson_error e;

	return caisson_connect(&o, ret, &e) < 0 ? cli_fail_error(&e) : 0;
}

char *cli_absolute(const char *path)
{
	char *real = realpath(path, NULL), cwd[PATH_MAX];

	if (real || *path == '/' || !getcwd(cwd, sizeof cwd))
		return real ? real : xstrdup(path);
	return xasprintf("%s/%s", cwd, path);
}

static const char *given_data(const struct cli *cli)
{
	const char *v = cli->data && *cli->data ? cli->data : getenv("CAISSON_DATA");

	return v && *v ? v : NULL;
}

static char *default_data_folder(void)
{
	const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

	if (geteuid() == 0)
		return xstrdup("/var/lib/caisson");
	return xdg && *xdg == '/' ? xasprintf("%s/caisson", xdg) : xasprintf("%s/.local/share/caisson", home && *home ? home : "");
}

char *cli_data_folder(const struct cli *cli)
{
	const char *given = given_data(cli);

	return given ? cli_absolute(given) : default_data_folder();
}

/* Images are the machine's, not one server's: --data does not move them. */
char *cli_images_folder(void)
{
	const char *images = getenv("CAISSON_IMAGES");

	if (images && *images)
		return cli_absolute(images);
	auto_free char *data = default_data_folder();
	return xasprintf("%s/images", data);
}

char *cli_socket_path(const struct cli *cli)
{
	const char *run = getenv("XDG_RUNTIME_DIR");

	if (!given_data(cli) && geteuid() == 0)
		return xstrdup("/run/caisson/api.sock");
	if (!given_data(cli) && run && *run == '/')
		return xasprintf("%s/caisson/api.sock", run);
	auto_free char *data = cli_data_folder(cli);
	return xasprintf("%s/api.sock", data);
}

/* --- start --- */

/* A program started with a standard descriptor closed would have its next file take that number, and print into it. */
static void open_standard_descriptors(void)
{
	for (int fd = open("/dev/null", O_RDWR | O_CLOEXEC); fd >= 0; fd = dup(fd)) {
		if (fd > STDERR_FILENO) {
			close_fd(fd);
			return;
		}
		(void)fcntl(fd, F_SETFD, 0);
	}
}

static int dispatch(struct cli *cli, const struct command *c, int argc, char **argv)
{
	cli->command = c;
	if (!c->subcommands)
		return c->run(cli, argc, argv);
	auto_args struct args a;
	args_init(&a, cli, argc, argv, true);
	while (args_next(&a) > 0)
		;
	if (a.leave)
		return a.exit_code;
	if (a.n_operands == 0)
		return cli_usage(cli, "%s what?", c->name);
	const struct command *sub = cli_find(c->subcommands, a.operands[0]);
	if (!sub) {
		args_json_ahead(a.n_operands, a.operands, false);
		return cli_usage(cli, "there is no command %s %s", c->name, a.operands[0]);
	}
	return dispatch(cli, sub, a.n_operands, a.operands);
}

int cli_main(int argc, char **argv)
{
	struct cli cli = { 0 };
	auto_args struct args a;

	open_standard_descriptors();
	signal(SIGPIPE, SIG_IGN); /* a reader that left is an error of write(), so that what we made can still be deleted */
	args_init(&a, &cli, argc, argv, true);
	while (args_next(&a) > 0)
		;
	if (a.leave)
		return out_finish(a.exit_code);
	if (a.n_operands == 0) {
		cli_print_help(NULL);
		return out_finish(CLI_USAGE);
	}
	const struct command *c = cli_find(cli_commands, a.operands[0]);
	if (!c) {
		args_json_ahead(a.n_operands, a.operands, false);
		return cli_usage(&cli, "there is no command %s", a.operands[0]);
	}
	return out_finish(dispatch(&cli, c, a.n_operands, a.operands));
}
