#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 0, 0))
		return a.exit_code;
	if (cli->json)
		return out_json(json_pack("{s:s}", "version", caisson_version()));
	printf("caisson %s\n", caisson_version());
	return 0;
}

const struct command command_version = {
	.name = "version",
	.synopsis = "",
	.summary = "Print the version of this program",
	.run = run,
};
