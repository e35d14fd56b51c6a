/* One program: the CLI, which also is the server (`serve`) and, started by that one only, the warden and the edge. */
#include "bin/edge.h"
#include "bin/opener.h"
#include "bin/warden.h"
#include "cli/cli.h"
#include "egress/opener.h"

#include <string.h>

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], WARDEN_COMMAND) == 0)
		return warden_command(argc - 2, argv + 2);
	if (argc > 1 && strcmp(argv[1], EDGE_COMMAND) == 0)
		return edge_command(argc - 2, argv + 2);
	if (argc > 1 && strcmp(argv[1], OPENER_COMMAND) == 0)
		return opener_command(argc - 2, argv + 2);
	return cli_main(argc, argv);
}
