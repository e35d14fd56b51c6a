/* SSH: a shell, commands and files of a sandbox for whoever has a token for it (api_grant_create, GRANT_SHELL). Listens only where the
 * operator says so. The protocol itself is libssh's. */
#ifndef CAISSON_DIALECT_SSH_SSH_H
#define CAISSON_DIALECT_SSH_SSH_H

#include "api/api.h"

struct ssh_server;

/* listener: a bound TCP socket, taken also on failure. key_path: the host key, made when it is not there. */
struct ssh_server *ssh_server_new(uv_loop_t *loop, struct api *api, int listener, const char *key_path, struct err *e);
void ssh_server_start(struct ssh_server *s); /* listens; before that, nobody is let in */
void ssh_server_free(struct ssh_server *s); /* accepts NULL; cuts every connection, what was begun over them is canceled */

#endif
