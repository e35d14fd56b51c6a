/* The edge as a process of its own: the arguments by which the warden starts this program as it. */
#ifndef CAISSON_BIN_EDGE_H
#define CAISSON_BIN_EDGE_H

#define EDGE_COMMAND "edge" /* first argument; for the warden only. Then: resolvers, lan, uid, gid, log level. Sockets are 3 and 4 */

int edge_command(int argc, char **argv);

#endif
