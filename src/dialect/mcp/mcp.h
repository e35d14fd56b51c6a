/* MCP, the Model Context Protocol, at /mcp: its tools are the verbs of api/api.h in the words of tools.json.
 *
 * Streamable HTTP with JSON answers, sessions, and the revisions that begin with `initialize` (2024-11-05 to 2025-11-25); a client of
 * the revision without sessions is told so and falls back. `caisson mcp` carries the same messages over stdin and stdout to
 * /mcp/sessions/{id}, where the id is the client's own choice. Behaviour: docs/mcp.md. */
#ifndef CAISSON_DIALECT_MCP_MCP_H
#define CAISSON_DIALECT_MCP_MCP_H

#include "api/api.h"
#include "server/server.h"

struct mcp;

struct mcp_options {
	const char *public_url; /* "http://127.0.0.1:4780"; NULL = http:// + the Host of each request */
	/* Path of a link to a port, with {id}, {port} and {token} to be filled in: previews are served elsewhere. */
	const char *preview_path;
	enum network_mode network; /* of sandboxes that do not say */
};

/* Registers its routes. api, server and the strings of o must outlive it. NULL and e when the server refuses the routes. */
struct mcp *mcp_new(struct api *api, struct server *server, const struct mcp_options *o, struct err *e);
void mcp_free(struct mcp *m); /* after the server: the sandboxes of its sessions live until their own time is over */

#endif
