/* Previews: what listens inside a sandbox, reached from outside.
 *
 * Two forms of one URL. By path, {base}/daytona/preview/{id}/{port}/..., works with every resolver and is what clients are
 * given. By host, {port}-{id}.preview.localhost, keeps absolute paths of a page working and gives every sandbox an origin of
 * its own; browsers resolve names under localhost, programs mostly do not. A browser that opens the first on loopback is
 * sent to the second. Whoever stays on the path form gets pages under a `sandbox` content policy: they are not of the
 * server's origin then, so they can neither read its storage nor another sandbox's preview.
 *
 * Who may: a key of the owner's, the sandbox's preview token (header, query, cookie), a signed link, or anybody when the
 * sandbox is public. What proved it never goes in. */
#include "dialect/daytona/internal.h"
#include "model/key.h"
#include "wire/urlencode.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#define TOKEN_HEADER "X-Daytona-Preview-Token"
#define TOKEN_QUERY "DAYTONA_SANDBOX_AUTH_KEY"
#define COOKIE_PREFIX "daytona-sandbox-auth-"
#define UUID_LENGTH 36

/* --- links --- */

/* The sandbox of the path and a port in `*ret_port`, or an answer and false. */
static bool port_of(struct daytona *d, struct request *r, struct sandbox_view *ret, int64_t *ret_port)
{
	struct err e = { 0 };
	const char *ref = req_path_arg(r, "id");
	int rc = parse_int("port", req_path_arg(r, "port"), 1, 65535, ret_port, &e);
	if (rc == 0 && (rc = api_sandbox_get(d->api, caller_of(r), ref, ret, &e)) < 0 && e.kind == ERR_NOT_FOUND)
		sandbox_not_found(&e, ref);
	if (rc < 0)
		fail(r, &e);
	return rc >= 0;
}

/* By path, unless the operator says that names under a domain of his lead here. Some clients keep only host and port of a
 * link and so need that. */
static char *link_url(const struct daytona *d, const struct request *r, const char *id, const char *token, int64_t port)
{
	auto_free char *base = base_url(d, r);
	if (!d->link_by_host)
		return xasprintf("%s" BASE_PATH "/preview/%s%s%s/%d", base, id, token ? "~" : "", token ? token : "", (int)port);
	const char *host = strstr(base, "://"), *colon = host ? strchr(host + 3, ':') : NULL; /* a literal IPv6 base has no domain */
	int scheme = host ? (int)(host - base) : 0;
	return xasprintf("%.*s://%d-%s%s%s.%s%s", scheme ? scheme : 4, scheme ? base : "http", (int)port, id, token ? "-" : "", token ? token : "",
	                 d->preview_domain, colon && base[scheme + 3] != '[' ? colon : "");
}

static void handle_preview_url(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct sandbox_view v = { 0 };
	int64_t port = 0;
	if (!port_of(d, r, &v, &port))
		return;
	auto_free char *url = link_url(d, r, v.id, NULL, port);
	json_t *o = json_object();
	put(o, "sandboxId", json_string(v.id));
	put(o, "url", json_string(url));
	put(o, "token", textz_json(v.preview_token ? v.preview_token : ""));
	req_reply_json(r, 200, o);
}

static void handle_sign(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v = { 0 };
	int64_t port = 0, seconds = 60;
	const char *text = req_query(r, "expiresInSeconds");
	if (!port_of(d, r, &v, &port))
		return;
	if (text && *text && parse_int("expiresInSeconds", text, 1, 86400, &seconds, &e) < 0) {
		fail(r, &e);
		return;
	}
	char token[GRANT_TOKEN_SIZE];
	struct grant_view g;
	auto_free char *id = xstrdup(v.id);
	if (api_grant_create(d->api, caller_of(r), id, GRANT_PORT, (uint16_t)port, (uint64_t)seconds, token, &g, &e) < 0) {
		fail(r, &e);
		return;
	}
	json_t *o = json_object();
	put(o, "sandboxId", json_string(id));
	put(o, "port", json_integer(port));
	put(o, "token", json_string(token));
	auto_free char *url = link_url(d, r, id, token, port);
	put(o, "url", json_string(url));
	req_reply_json(r, 200, o);
}

static void handle_expire(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct err e = { 0 };
	struct sandbox_view v = { 0 };
	int64_t port = 0;
	if (!port_of(d, r, &v, &port))
		return;
	if (api_grant_revoke(d->api, caller_of(r), v.id, GRANT_PORT, req_path_arg(r, "token"), &e) < 0)
		fail(r, &e);
	else
		req_reply_empty(r, 200);
}

/* --- who may --- */

struct visit {
	char id[UUID_LENGTH + 1];
	char token[GRANT_PORT_DIGITS + 1]; /* of a signed link, else "" */
	uint16_t port;
	bool by_host;
};

static bool link_opens(struct daytona *d, const struct visit *w, struct caller *ret)
{
	char id[40];
	struct err quiet;
	return w->token[0] && api_grant_open(d->api, str_of(w->token), GRANT_PORT, w->port, ret, id, &quiet) == 0 && streq(id, w->id);
}

/* The value of our cookie for this sandbox. */
static struct str cookie(struct request *r, const char *name)
{
	struct str h = req_header(r, "Cookie");
	size_t n = strlen(name);
	while (h.n) {
		while (h.n && (*h.p == ' ' || *h.p == ';'))
			h.p++, h.n--;
		const char *end = h.n ? memchr(h.p, ';', h.n) : NULL;
		size_t len = end ? (size_t)(end - h.p) : h.n;
		if (len > n && memcmp(h.p, name, n) == 0 && h.p[n] == '=')
			return (struct str){ h.p + n + 1, len - n - 1 };
		h.p += len;
		h.n -= len;
	}
	return (struct str){ 0 };
}

struct admission {
	struct caller caller;
	bool ours;         /* the Authorization header is a credential of this server */
	bool by_query;     /* so a cookie spares the token in the next links */
};

/* Lets in, or says why not. */
static int admit(struct daytona *d, struct request *r, const struct visit *w, struct admission *ret, struct err *e)
{
	char name[sizeof(COOKIE_PREFIX) + UUID_LENGTH];
	struct str token = req_bearer(r), header = req_header(r, TOKEN_HEADER);
	const char *query = req_query(r, TOKEN_QUERY);
	struct sandbox_view v;
	struct err quiet;
	snprintf(name, sizeof(name), COOKIE_PREFIX "%s", w->id);
	if (token.n) {
		bool key = key_opens(d, r, token, &ret->caller, &quiet) == 0;
		ret->ours = key;
		if (key && api_sandbox_get(d->api, &ret->caller, w->id, &v, &quiet) == 0)
			return 0;
		if (api_authenticate_preview(d->api, w->id, token, &ret->caller, &quiet) == 0) {
			ret->ours = true;
			return 0;
		}
	}
	if (header.n && api_authenticate_preview(d->api, w->id, header, &ret->caller, &quiet) == 0)
		return 0;
	if (query && api_authenticate_preview(d->api, w->id, str_of(query), &ret->caller, &quiet) == 0) {
		ret->by_query = true;
		return 0;
	}
	struct str kept = cookie(r, name);
	if (kept.n && api_authenticate_preview(d->api, w->id, kept, &ret->caller, &quiet) == 0)
		return 0;
	if (link_opens(d, w, &ret->caller))
		return 0;
	if (api_owner_of(d->api, w->id, &ret->caller, &quiet) == 0 && api_sandbox_get(d->api, &ret->caller, w->id, &v, &quiet) == 0) {
		json_t *extra = extra_load(&v);
		bool open = json_is_true(json_object_get(extra, "public"));
		json_decref(extra);
		if (open)
			return 0;
	}
	/* The same for a sandbox that does not exist: ids are not for guessing. */
	return err_set(e, ERR_UNAUTHENTICATED, 0, "this preview is private: send its token in " TOKEN_HEADER ", as query parameter " TOKEN_QUERY
	                                          ", or a key in Authorization");
}

/* --- the way in --- */

struct preview {
	struct proxy *proxy;
	struct api_op *op;
	bool no_more; /* the inside has said that it sends no more */
	char *path, *host, *cookie_name, *set_cookie;
	const char *drop_headers[8], *drop_cookies[2];
	struct header add[2];
};

static void preview_free(struct preview *p)
{
	if (p->op)
		api_op_cancel(p->op);
	free(p->path);
	free(p->host);
	free(p->cookie_name);
	free(p->set_cookie);
	free(p);
}

static void on_open(void *ctx)
{
	struct preview *p = ctx;
	proxy_upstream_open(p->proxy);
}

static void on_data(void *ctx, struct str bytes)
{
	struct preview *p = ctx;
	proxy_upstream_data(p->proxy, bytes);
}

static void on_data_end(void *ctx)
{
	struct preview *p = ctx;
	if (!p->no_more) {
		p->no_more = true;
		proxy_upstream_eof(p->proxy);
	}
}

static void on_room(void *ctx)
{
	struct preview *p = ctx;
	proxy_upstream_room(p->proxy);
}

static void on_end(void *ctx, const struct err *e)
{
	struct preview *p = ctx;
	p->op = NULL;
	if (e)
		proxy_upstream_failed(p->proxy, e);
	else
		on_data_end(p);
}

static size_t up_room(void *ctx)
{
	struct preview *p = ctx;
	return p->op ? api_op_room(p->op) : 0;
}

static void up_write(void *ctx, struct str bytes)
{
	struct preview *p = ctx;
	if (p->op)
		api_op_write(p->op, bytes);
}

static void up_eof(void *ctx)
{
	struct preview *p = ctx;
	if (p->op)
		api_op_eof(p->op);
}

static void up_pause(void *ctx)
{
	struct preview *p = ctx;
	if (p->op)
		api_op_pause(p->op);
}

static void up_resume(void *ctx)
{
	struct preview *p = ctx;
	if (p->op)
		api_op_resume(p->op);
}

static void up_close(void *ctx)
{
	preview_free(ctx);
}

/* The query without our token. */
static void add_query(struct buf *to, struct str query)
{
	struct str name, value;
	char separator = '?';
	while (url_query_next(&query, &name, &value)) {
		char plain[sizeof(TOKEN_QUERY)];
		if (name.n < sizeof(plain) && url_decode(name, URL_FORM, plain) >= 0 && streq(plain, TOKEN_QUERY))
			continue;
		buf_addc(to, separator);
		buf_add(to, name.p, name.n);
		if (value.n || (name.p + name.n < query.p && name.p[name.n] == '=')) {
			buf_addc(to, '=');
			buf_add(to, value.p, value.n);
		}
		separator = '&';
	}
}

static char *path_inside(struct request *r, const char *raw_path, size_t n)
{
	struct buf b;
	buf_init(&b, 64U << 10);
	if (n == 0 || *raw_path != '/')
		buf_addc(&b, '/');
	buf_add(&b, raw_path, n);
	add_query(&b, req_raw_query(r));
	return buf_take(&b);
}

/* By path the server's host is everybody's: cookies of the program inside are for its own preview. `n`: of what follows the port. */
static char *cookie_scope(const struct request *r, const struct visit *w, size_t n)
{
	struct str target = req_target(r);
	const char *query = target.n ? memchr(target.p, '?', target.n) : NULL;
	size_t path = query ? (size_t)(query - target.p) : target.n;
	return w->by_host ? NULL : xasprintf("%.*s", (int)(path - MIN(n, path)), target.p);
}

static void pass(struct daytona *d, struct request *r, const struct visit *w, const struct admission *a, char *take_path, const char *scope)
{
	static const struct op_events events = { .on_open = on_open, .on_data = on_data, .on_data_end = on_data_end, .on_room = on_room, .on_end = on_end };
	static const struct upstream_ops ops = { up_room, up_write, up_eof, up_pause, up_resume, up_close };
	struct err e = { 0 };
	struct preview *p = xcalloc(1, sizeof(*p));
	size_t n = 0, n_add = 0;
	p->path = take_path;
	p->host = xasprintf("localhost:%u", w->port);
	p->cookie_name = xasprintf(COOKIE_PREFIX "%s", w->id);
	p->drop_headers[n++] = TOKEN_HEADER;
	p->drop_headers[n++] = "X-Daytona-Skip-Preview-Warning";
	p->drop_headers[n++] = "X-Daytona-Disable-CORS";
	p->drop_headers[n++] = "X-Daytona-Skip-Last-Activity-Update";
	if (a->ours)
		p->drop_headers[n++] = "Authorization";
	struct str referer = req_header(r, "Referer"); /* of what a page opened with the token in its address asks for */
	if (referer.n && memmem(referer.p, referer.n, TOKEN_QUERY "=", sizeof TOKEN_QUERY))
		p->drop_headers[n++] = "Referer";
	p->drop_cookies[0] = p->cookie_name;
	if (!w->by_host)
		p->add[n_add++] = (struct header){ "Content-Security-Policy", "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts" };
	if (a->by_query) {
		auto_free char *path = w->by_host ? xstrdup("/") : xasprintf(BASE_PATH "/preview/%s/", w->id);
		p->set_cookie = xasprintf("%s=%s; Path=%s; HttpOnly; SameSite=Lax", p->cookie_name, req_query(r, TOKEN_QUERY), path);
		p->add[n_add++] = (struct header){ "Set-Cookie", p->set_cookie };
	}
	p->op = api_op_open(d->api, &a->caller, w->id, &(struct op_spec){ .kind = OP_CONNECT, .port = w->port }, &events, p, &e);
	if (!p->op) {
		preview_free(p);
		if (e.kind == ERR_CONFLICT)
			err_set(&e, ERR_CONFLICT, 0, "sandbox is not running: start it first");
		fail(r, &e);
		return;
	}
	const struct proxy_options o = { .path = p->path, .host = p->host, .drop_headers = p->drop_headers, .drop_cookies = p->drop_cookies,
		                         .is_secret = key_is_in, .cookie_path = scope, .add_headers = p->add, .n_add_headers = n_add };
	p->proxy = req_proxy(r, &o, &ops, p);
}

static void visit(struct daytona *d, struct request *r, const struct visit *w, const char *raw_path, size_t n)
{
	struct admission a = { 0 };
	struct err e = { 0 };
	if (admit(d, r, w, &a, &e) < 0) {
		fail(r, &e);
		return;
	}
	char *path = path_inside(r, raw_path, n);
	auto_free char *scope = cookie_scope(r, w, n);
	if (path)
		pass(d, r, w, &a, path, scope);
	else
		fail_code(r, 414, "URI_TOO_LONG", "the path is too long");
}

/* --- the two forms --- */

static bool uuid_plausible(struct str s)
{
	if (s.n != UUID_LENGTH)
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (!isxdigit((unsigned char)s.p[i]) && s.p[i] != '-')
			return false;
	return true;
}

/* "{id}" or "{id}{separator}{token}". */
static bool parse_place(struct str s, char separator, struct visit *w)
{
	struct str token = { 0 };
	if (s.n == UUID_LENGTH + 1 + GRANT_PORT_DIGITS && s.p[UUID_LENGTH] == separator) {
		token = (struct str){ s.p + UUID_LENGTH + 1, GRANT_PORT_DIGITS };
		s.n = UUID_LENGTH;
	}
	if (!uuid_plausible(s))
		return false;
	memcpy(w->id, s.p, UUID_LENGTH);
	for (size_t i = 0; i < UUID_LENGTH; i++) /* host names come in any case */
		w->id[i] = (char)tolower((unsigned char)w->id[i]);
	if (token.n)
		memcpy(w->token, token.p, GRANT_PORT_DIGITS);
	return true;
}

static bool parse_port(struct str s, struct visit *w)
{
	uint64_t port;
	if (parse_u64(s, 65535, &port) < 0 || port == 0)
		return false;
	w->port = (uint16_t)port;
	return true;
}

/* The host form of a link for a browser that has opened the path form on this machine; NULL when it should stay. */
static char *host_form(const struct daytona *d, struct request *r, const struct visit *w, const char *rest)
{
	static const char *const local[] = { "127.0.0.1", "localhost", "[::1]" };
	struct str host = req_header(r, "Host"), dest = req_header(r, "Sec-Fetch-Dest"), query = req_raw_query(r);
	if (!streq(req_method(r), "GET") || !dest.p || (!str_eqz(dest, "document") && !str_eqz(dest, "iframe")))
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(local); i++) {
		size_t n = strlen(local[i]);
		if (host.n >= n && memcmp(host.p, local[i], n) == 0 && (host.n == n || host.p[n] == ':')) {
			struct str port = { host.p + n, host.n - n };
			return xasprintf("http://%u-%s%s%s.%s%.*s/%s%s%.*s", w->port, w->id, w->token[0] ? "-" : "", w->token, d->preview_domain, (int)port.n,
			                 port.p, rest, query.n ? "?" : "", (int)query.n, query.p ? query.p : "");
		}
	}
	return NULL;
}

static void handle_preview(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct visit w = { .by_host = false };
	const char *rest = req_path_arg(r, "rest");
	if (!parse_place(str_of(req_path_arg(r, "place")), '~', &w) || !parse_port(str_of(req_path_arg(r, "port")), &w)) {
		fail_code(r, 400, "BAD_REQUEST", "a preview's path is /preview/{sandbox id}/{port}/...");
		return;
	}
	auto_free char *elsewhere = host_form(d, r, &w, rest ? rest : "");
	if (elsewhere) {
		const struct header h = { "Location", elsewhere };
		req_reply(r, 307, &h, 1, "text/plain; charset=utf-8", STR(""));
		return;
	}
	visit(d, r, &w, rest ? rest : "", rest ? strlen(rest) : 0);
}

bool daytona_claim_host(struct request *r, struct str host, void *daytona)
{
	struct daytona *d = daytona;
	struct visit w = { .by_host = true };
	size_t domain = strlen(d->preview_domain);
	if (host.n < domain + 2 + UUID_LENGTH || host.p[host.n - domain - 1] != '.' ||
	    !str_eq_nocase((struct str){ host.p + host.n - domain, domain }, str_of(d->preview_domain)))
		return false;
	struct str label = { host.p, host.n - domain - 1 };
	const char *dash = memchr(label.p, '-', label.n);
	if (!dash || !parse_port((struct str){ label.p, (size_t)(dash - label.p) }, &w) ||
	    !parse_place((struct str){ dash + 1, label.n - (size_t)(dash - label.p) - 1 }, '-', &w))
		return false;
	struct str target = req_target(r);
	const char *query = memchr(target.p, '?', target.n);
	visit(d, r, &w, target.p, query ? (size_t)(query - target.p) : target.n);
	return true;
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/sandbox/{id}/ports/{port}/preview-url", .handle = handle_preview_url },
	{ .method = "GET", .pattern = "/sandbox/{id}/ports/{port}/signed-preview-url", .handle = handle_sign },
	{ .method = "POST", .pattern = "/sandbox/{id}/ports/{port}/signed-preview-url/{token}/expire", .handle = handle_expire },
	{ .method = "*", .pattern = "/preview/{place}/{port}", .body = BODY_STREAM, .websocket = true, .handle = handle_preview, .tag = TAG_OPEN },
	{ .method = "*", .pattern = "/preview/{place}/{port}/{rest*}", .body = BODY_STREAM, .websocket = true, .handle = handle_preview, .tag = TAG_OPEN },
};
const struct route_table preview_routes = { routes, ARRAY_LEN(routes) };
