#include "bin/edge.h"

#include "egress/edge.h"

#include <stdio.h>
#include <sys/prctl.h>

enum { WARDEN_SOCKET = 3, DAEMON_SOCKET = 4, ARGC = 5 };

int edge_command(int argc, char **argv)
{
	uint64_t uid, gid, level;

	if (argc != ARGC || parse_u64(str_of(argv[2]), UINT32_MAX, &uid) < 0 || parse_u64(str_of(argv[3]), UINT32_MAX, &gid) < 0 || uid == 0 ||
	    parse_u64(str_of(argv[4]), LOG_ERROR, &level) < 0) {
		fprintf(stderr, "caisson: '" EDGE_COMMAND "' is started by the warden only\n");
		return 2;
	}
	const struct edge_options o = {
		.resolvers = argv[0],
		.lan = argv[1],
		.uid = (uid_t)uid,
		.gid = (gid_t)gid,
		.log_level = (enum log_level)level,
	};
	(void)prctl(PR_SET_NAME, "caisson-edge");
	return edge_main(WARDEN_SOCKET, DAEMON_SOCKET, &o);
}
