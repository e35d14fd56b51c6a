/* The native dialect: /v1/..., /healthz, /metrics. docs/openapi.yaml is its contract; docs/api.md a guide. */
#ifndef CAISSON_DIALECT_NATIVE_NATIVE_H
#define CAISSON_DIALECT_NATIVE_NATIVE_H

#include "api/api.h"
#include "server/server.h"

struct native;
/* Registers itself with the server; NULL when that fails (a route is wrong: our bug). Outlives neither api nor server: free it
 * after the server has been freed, so that no request of it is left. */
struct native *native_new(uv_loop_t *loop, struct api *api, struct server *server);
void native_set_network(struct native *n, enum network_mode mode); /* of sandboxes that do not say; at first "none" */
void native_free(struct native *n);

#endif
