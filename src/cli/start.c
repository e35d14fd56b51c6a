#include "cli/commands.h"
#include "cli/verbs.h"

static int run(struct cli *cli, int argc, char **argv)
{
	return verb_run(cli, argc, argv, caisson_start);
}

const struct command command_start = {
	.name = "start",
	.synopsis = "SANDBOX...",
	.summary = "Boot a stopped sandbox again",
	.help = "Its files are as they were; the processes of before are not there any more.\n",
	.run = run,
};
