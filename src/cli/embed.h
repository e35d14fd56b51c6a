/* A server of this program's own, for the life of one command: `caisson run` on a machine where none runs.
 *
 * It is this same program, as a child in a session of its own: `serve --ephemeral --lifetime-fd N`. The other end of that pipe
 * is held here and nowhere else, so whatever ends this program - also SIGKILL - ends the server, which deletes its sandboxes
 * and its data folder. */
#ifndef CAISSON_CLI_EMBED_H
#define CAISSON_CLI_EMBED_H

#include "cli/cli.h"

struct embedded {
	pid_t pid;
	int pidfd, lifetime, out; /* out: its stdout */
	char *folder;             /* its data folder, private, made by us */
	char *url, *key;
};
/* boundary: of sandboxes that ask for none, or NULL for the server's choice. 0 once it answers; CLI_FAILED after a message that says what to do. On failure nothing is left. */
int embed_start(const char *boundary, struct embedded *ret);
/* Waits until it has deleted everything, a bounded time; then it is killed. */
void embed_stop(struct embedded *s);

#endif
