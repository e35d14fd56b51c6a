/* Wiring of the dialect: one table of routes out of the areas' tables, and the guard in front of them. */
#include "dialect/daytona/build.h"

#include <stdio.h>

/* Toolbox routes are served below both generations of base path; the older one is on the control plane's host. */
static const char *const toolbox_bases[] = { "/toolbox/{id}", "/toolbox/{id}/toolbox" };
static const char *const prefixes[] = { BASE_PATH, "/api" };

static const struct route_table *const control_tables[] = { &catalog_routes, &snapshot_routes, &build_routes, &storage_routes, &sandbox_routes,
	                                                    &preview_routes, &events_routes,
	                                                    &signed_routes,  &telemetry_routes, &volume_routes, &ssh_routes, &secret_routes };
static const struct route_table *const toolbox_tables[] = { &process_routes,  &session_routes, &pty_routes, &file_routes,
	                                                    &upload_routes, &download_routes, &box_routes, &git_routes, &interpreter_routes, &lsp_routes };

int key_opens(struct daytona *d, struct request *r, struct str key, struct caller *ret, struct err *e)
{
	int rc = api_authenticate(d->api, key, ret, e);

	if (rc == 0)
		req_set_holder(r, ret->key_id);
	return rc;
}

/* Clients that cannot set headers (browsers) and holders of a preview link reach the inside of that one sandbox by its token. */
static bool token_opens(struct daytona *d, struct request *r, struct caller *ret)
{
	struct err quiet;
	const char *id = req_path_arg(r, "id"), *query = req_query(r, "DAYTONA_SANDBOX_AUTH_KEY");
	struct str header = req_header(r, "X-Daytona-Preview-Token");
	if (header.n && api_authenticate_preview(d->api, id, header, ret, &quiet) == 0)
		return true;
	return query && (api_authenticate_preview(d->api, id, str_of(query), ret, &quiet) == 0 ||
	                 key_opens(d, r, str_of(query), ret, &quiet) == 0);
}

static bool guard(struct request *r, const struct route *route, void *ctx)
{
	struct daytona *d = ctx;
	struct caller caller = { 0 };
	struct err e = { 0 };
	if (route->tag == TAG_OPEN)
		return true;
	struct str key = req_bearer(r);
	int rc = key.n ? key_opens(d, r, key, &caller, &e) :
	                 err_set(&e, ERR_UNAUTHENTICATED, 0, "a key is needed: Authorization: Bearer <key>");
	if (rc < 0 && !(route->tag == TAG_TOOLBOX && (token_opens(d, r, &caller) || signature_opens(d, r, route, &caller, &e)))) {
		fail(r, &e);
		return false;
	}
	req_set_data(r, xmemdup(&caller, sizeof(caller)));
	return true;
}

static void add_table(struct daytona *d, const struct route_table *t, const char *base, unsigned tag)
{
	d->routes = xreallocarray(d->routes, d->n_routes + t->n, sizeof(*d->routes));
	d->patterns = xreallocarray(d->patterns, d->n_patterns + t->n, sizeof(*d->patterns));
	for (size_t i = 0; i < t->n; i++) {
		struct route *route = &d->routes[d->n_routes++];
		*route = t->routes[i];
		if (base) {
			route->pattern = d->patterns[d->n_patterns++] = xasprintf("%s%s", base, t->routes[i].pattern);
			route->tag = tag;
		}
	}
}

struct daytona *daytona_new(uv_loop_t *loop, struct api *api, struct server *server, const struct daytona_options *o, struct err *e)
{
	struct daytona *d = xcalloc(1, sizeof(*d));
	d->loop = loop;
	d->api = api;
	d->server = server;
	d->public_url = xstrdup(o ? o->public_url : NULL);
	d->preview_domain = xstrdup(o && o->preview_domain ? o->preview_domain : "preview.localhost");
	d->link_by_host = o && o->preview_domain;
	d->network = o ? o->network : NETWORK_NONE;
	d->ssh = xstrdup(o ? o->ssh : NULL);
	d->target = xstrdup(o && o->target ? o->target : "local");
	events_init(d);
	for (size_t i = 0; i < ARRAY_LEN(control_tables); i++)
		add_table(d, control_tables[i], NULL, TAG_CONTROL);
	for (size_t b = 0; b < ARRAY_LEN(toolbox_bases); b++)
		for (size_t i = 0; i < ARRAY_LEN(toolbox_tables); i++)
			add_table(d, toolbox_tables[i], toolbox_bases[b], TAG_TOOLBOX);
	for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
		d->dialects[i] = (struct dialect){ .name = "daytona", .routes = d->routes, .n_routes = d->n_routes, .guard = guard, .refuse = refuse,
			                           .prefix = prefixes[i], .collapse_slashes = true, .ctx = d };
		if (server_add_dialect(server, &d->dialects[i], e) < 0) {
			daytona_free(d);
			return NULL;
		}
	}
	server_set_host_claim(server, daytona_claim_host, d);
	return d;
}

void daytona_started(struct daytona *d)
{
	builds_resume(d);
}

void daytona_free(struct daytona *d)
{
	if (!d)
		return;
	builds_done(d);
	entrypoints_done(d);
	storage_done(d);
	events_done(d);
	language_servers_done(d);
	for (size_t i = 0; i < d->n_patterns; i++)
		free(d->patterns[i]);
	free(d->patterns);
	free(d->routes);
	free(d->public_url);
	free(d->preview_domain);
	free(d->target);
	free(d->ssh);
	free(d);
}
