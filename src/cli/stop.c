#include "cli/commands.h"
#include "cli/verbs.h"

static int run(struct cli *cli, int argc, char **argv)
{
	return verb_run(cli, argc, argv, caisson_stop);
}

const struct command command_stop = {
	.name = "stop",
	.synopsis = "SANDBOX...",
	.summary = "End every process of a sandbox and keep its files",
	.help = "An ephemeral sandbox is deleted by this. `caisson start` boots it again.\n",
	.run = run,
};
