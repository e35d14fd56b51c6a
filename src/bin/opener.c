#include "bin/opener.h"

#include "egress/opener.h"

#include <stdio.h>
#include <sys/prctl.h>

enum { DAEMON_SOCKET = 3, ARGC = 1 };

int opener_command(int argc, char **argv)
{
	uint64_t level;

	if (argc != ARGC || parse_u64(str_of(argv[0]), LOG_ERROR, &level) < 0) {
		fprintf(stderr, "caisson: '" OPENER_COMMAND "' is started by the daemon only\n");
		return 2;
	}
	(void)prctl(PR_SET_NAME, "caisson-opener");
	return opener_main(DAEMON_SOCKET, (enum log_level)level, true);
}
