/* The Daytona dialect: the control plane and the in-sandbox ("toolbox") API that the Daytona SDKs speak, over the verbs of
 * api/api.h. What is served and where it differs: docs/daytona.md.
 *
 * Base URL for clients: http://HOST/daytona (DAYTONA_API_URL); the same routes answer under /api as well, which is what
 * SDKs assume when only a host is configured. Previews: /daytona/preview/{id}/{port}/... and the host form
 * {port}-{id}.preview.localhost, which is claimed on the server with server_set_host_claim(). */
#ifndef CAISSON_DIALECT_DAYTONA_DAYTONA_H
#define CAISSON_DIALECT_DAYTONA_DAYTONA_H

#include "api/api.h"
#include "server/server.h"

struct daytona;

struct daytona_options {
	const char *public_url;     /* "http://127.0.0.1:4780", without a trailing slash; NULL = http:// + the Host of each request */
	/* Every name under it leads to this server (wildcard DNS): links to ports are then given by host. NULL: links by path, and
	 * the host form under "preview.localhost", which browsers resolve by themselves. */
	const char *preview_domain;
	enum network_mode network;  /* of sandboxes that do not say */
	const char *ssh;            /* "127.0.0.1:2222", where a token for a shell is taken; NULL = nowhere */
	const char *target;         /* region name shown; NULL = "local" */
};

/* Registers its routes on the server. api and server must outlive it, the server must be stopped before it is freed. NULL
 * and e when the server refuses the routes. o may be NULL. */
struct daytona *daytona_new(uv_loop_t *loop, struct api *api, struct server *server, const struct daytona_options *o, struct err *e);
/* Once, when the sandboxes of an earlier server have been adopted. */
void daytona_started(struct daytona *d);
/* Frees at once what no socket holds; closes the rest. Run the loop until it is idle before closing it. */
void daytona_free(struct daytona *d);

/* For a program with several host-claiming dialects: the claim itself (daytona_new has set it). */
bool daytona_claim_host(struct request *r, struct str host, void *daytona);

#endif
