/* The edge: the one process that dials for sandboxes. No privilege, no file, no secret; everything it reads is hostile.
 *
 * Theory of operation. One thread, one epoll loop. The warden hands over the sockets of each sandbox's gate (wire/edge.h), the daemon says
 * what each sandbox may. A connection that a sandbox makes is accepted here with the address it was meant for; policy_judge_address says
 * what becomes of it; it is dialled from the host's own network and copied in both directions. Names are answered here and nowhere else,
 * and an address that was given for a name is remembered with it for as long as the answer said (a pin): under a policy of names only
 * pinned addresses are dialled, and the first bytes must ask for the very name. Nothing is ever looked up a second time.
 *
 * edge.c     the loop, sandboxes, records        flow.c     connections
 * first.c    what first bytes say                name.c     the resolver and the pins
 * host.c     what this host's network is         udp.c      datagrams
 * record.c   what the daemon says                jail.c     giving everything up
 *
 * It ends with the warden's socket; whoever started it starts another. Flows and pins are lost then; gates without it refuse. */
#ifndef CAISSON_EGRESS_EDGE_H
#define CAISSON_EGRESS_EDGE_H

#include "base/log.h"

#include <sys/types.h>

struct edge_options {
	const char *resolvers; /* addresses, separated by commas, of name servers; NULL or "": no name is answered */
	const char *lan;       /* ranges of private addresses that a rule may name, separated by commas; or NULL */
	uid_t uid;	       /* to become; 0 = stay who we are and unjailed (tests) */
	gid_t gid;
	enum log_level log_level;
};

/* The name servers of this host's own /etc/resolv.conf in that form. Heap, perhaps empty. To be called where that file still is: the edge is
 * started from a place without most of the host's mounts. */
char *edge_host_resolvers(void);

/* Serves until the warden's end of its socket closes. Returns an exit status. Both descriptors are taken. */
int edge_main(int warden, int daemon, const struct edge_options *o);

#endif
