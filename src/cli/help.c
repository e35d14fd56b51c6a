#include "cli/args.h"
#include "cli/commands.h"

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 0, 2))
		return a.exit_code;
	const struct command *const *table = cli_commands;
	const struct command *c = NULL;
	for (int i = 0; i < a.n_operands; i++) {
		c = table ? cli_find(table, a.operands[i]) : NULL;
		if (!c)
			return cli_usage(cli, "there is no command %s", a.operands[i]);
		table = c->subcommands;
	}
	cli_print_help(c);
	return 0;
}

const struct command command_help = {
	.name = "help",
	.synopsis = "[COMMAND]",
	.summary = "Explain a command",
	.run = run,
};
