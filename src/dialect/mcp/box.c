/* Sandboxes, and links to their ports. */
#include "dialect/mcp/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <utlist.h>

enum { IDLE_MINUTES = 30, MAX_SECONDS = 86400, EXPOSED_SECONDS = 3600 };

/* --- create --- */

/* A sandbox on its way. It outlives the call that asked for it, so that one which nobody waits for any more is deleted. */
struct making {
	struct mcp *m;
	struct session *s;   /* NULL once it has ended */
	struct tool_call *c; /* of create_sandbox; NULL: for the session, or the client has left */
	struct caller caller;
	bool for_session, keep;
	struct making *prev, *next;
};

static void ignore_deleted(void *ctx, const struct err *e)
{
	(void)ctx;
	(void)e;
}

/* Hands the session's new sandbox, or the reason why there is none, to the calls that wait for it. */
static void serve_waiting(struct session *s, const struct err *e)
{
	struct tool_call *c, *next;
	s->making = false;
	DL_FOREACH_SAFE (s->calls, c, next) {
		if (!c->waits)
			continue;
		c->waits = false;
		if (e) {
			tool_fail(c, e);
			continue;
		}
		c->sandbox = xstrdup(s->last);
		c->tool->begin(c);
	}
}

static void on_made(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct making *k = ctx;
	struct tool_call *c = k->c;
	struct session *s = k->s;
	bool wanted = s && (c || k->for_session);
	DL_DELETE(k->m->makings, k);
	if (c)
		c->making = NULL;
	if (!e && !wanted)
		api_sandbox_delete(k->m->api, &k->caller, v->id, ignore_deleted, k->m);
	if (!e && wanted) {
		free(s->last);
		s->last = xstrdup(v->id);
		if (!k->keep)
			session_keep(s, v->id);
	}
	bool for_session = k->for_session;
	free(k);
	if (s && for_session) {
		serve_waiting(s, e);
	} else if (c && e) {
		tool_fail(c, e);
	} else if (c) {
		auto_free char *text = xasprintf("sandbox %s is ready", v->name);
		tool_result(c, text, json_pack("{s:s, s:s, s:s}", "sandbox", v->id, "name", v->name, "boundary", v->boundary));
	}
}

static void make(struct mcp *m, struct session *s, struct tool_call *c, const struct caller *caller, const struct sandbox_spec *spec, bool keep)
{
	struct making *k = xcalloc(1, sizeof *k);
	*k = (struct making){ .m = m, .s = s, .c = c, .caller = *caller, .for_session = !c, .keep = keep };
	DL_APPEND(m->makings, k);
	if (c)
		c->making = k;
	api_sandbox_create(m->api, caller, spec, on_made, k);
}

void making_leave(struct tool_call *c)
{
	if (c->making)
		c->making->c = NULL;
	c->making = NULL;
}

void makings_leave(struct mcp *m, struct session *s)
{
	struct making *k, *next;
	DL_FOREACH_SAFE (m->makings, k, next) {
		if (s && k->s != s)
			continue;
		k->s = NULL;
		if (s)
			continue;
		api_forget(m->api, k);
		DL_DELETE(m->makings, k);
		free(k);
	}
}

/* Nobody calls a clean-up tool by himself, and a client may vanish: every sandbox has its time. */
static void spec_begin(const struct mcp *m, struct sandbox_spec *spec)
{
	spec_init(spec);
	spec->network = m->o.network;
	spec->network_unasked = true;
	pairs_add(&spec->labels, "created-by", "mcp");
	spec->lifetime = (struct lifetime){ .idle_s = IDLE_MINUTES * 60, .max_s = MAX_SECONDS, .delete_after_s = 0 };
}

void make_for_session(struct session *s, struct tool_call *c)
{
	struct sandbox_spec spec;
	spec_begin(c->m, &spec);
	s->making = true;
	make(c->m, s, NULL, &c->caller, &spec, false);
	spec_done(&spec);
}

void tool_create(struct tool_call *c)
{
	const char *name = arg_text(c, "name"), *image = arg_text(c, "image"), *network = arg_text(c, "network");
	struct sandbox_spec spec;
	struct err e = { 0 };
	if (c->s->n_made >= SESSION_MADE_MAX) {
		err_set(&e, ERR_LIMIT, 0, "this session has %d sandboxes: delete one first", SESSION_MADE_MAX);
		tool_fail(c, &e);
		return;
	}
	spec_begin(c->m, &spec);
	if (name)
		spec.name = xstrdup(name);
	if (image) {
		free(spec.image);
		spec.image = xstrdup(image);
	}
	if (network) {
		spec.network = streq(network, "public") ? NETWORK_PUBLIC : NETWORK_NONE;
		spec.network_unasked = false;
	}
	spec.resources.cpus = json_number_value(json_object_get(c->args, "cpus"));
	spec.resources.memory_mib = (uint64_t)arg_int(c, "memory_mib", 0);
	spec.resources.disk_mib = (uint64_t)arg_int(c, "disk_mib", 0);
	spec.lifetime.idle_s = (uint64_t)arg_int(c, "idle_minutes", IDLE_MINUTES) * 60;
	arg_pairs(c, "env", &spec.env);
	make(c->m, c->s, c, &c->caller, &spec, arg_flag(c, "keep"));
	spec_done(&spec);
}

/* --- delete --- */

static void on_deleted(void *ctx, const struct err *e)
{
	struct tool_call *c = ctx;
	bool absent = e && e->kind == ERR_NOT_FOUND;
	if (e && !absent) {
		tool_fail(c, e);
		return;
	}
	if (c->s)
		session_drop(c->s, c->sandbox);
	auto_free char *text = xasprintf(absent ? "there is no sandbox %s" : "sandbox %s is deleted", c->sandbox);
	tool_result(c, text, json_pack("{s:s, s:b}", "sandbox", c->sandbox, "deleted", !absent));
}

void tool_delete(struct tool_call *c)
{
	struct sandbox_view v;
	struct err e = { 0 };
	if (!c->sandbox) {
		err_set(&e, ERR_NOT_FOUND, 0, "this session has no sandbox: say which one");
		tool_fail(c, &e);
		return;
	}
	if (api_sandbox_get(c->m->api, &c->caller, c->sandbox, &v, &e) == 0) { /* sessions know them by id */
		free(c->sandbox);
		c->sandbox = xstrdup(v.id);
	}
	api_sandbox_delete(c->m->api, &c->caller, c->sandbox, on_deleted, c);
}

/* --- ports --- */

/* The Host goes back to the client inside a URL, so only what can be a host is taken. */
static bool host_plausible(struct str host)
{
	if (!host.p || host.n == 0 || host.n > 255)
		return false;
	for (size_t i = 0; i < host.n; i++)
		if (!isalnum((unsigned char)host.p[i]) && !strchr(".-_:[]", host.p[i]))
			return false;
	return true;
}

static char *port_url(const struct tool_call *c, const char *id, unsigned port, const char *token)
{
	struct str host = req_header(c->r, "Host");
	const char *p = c->m->o.preview_path;
	struct buf b;
	buf_init(&b, 4096);
	if (c->m->o.public_url)
		buf_addz(&b, c->m->o.public_url);
	else if (host_plausible(host))
		buf_addf(&b, "http://%.*s", (int)host.n, host.p);
	else
		buf_addz(&b, "http://127.0.0.1:4780");
	for (const char *open; (open = strchr(p, '{')); p = strchr(open, '}') + 1) {
		buf_add(&b, p, (size_t)(open - p));
		if (strncmp(open, "{id}", 4) == 0)
			buf_addz(&b, id);
		else if (strncmp(open, "{port}", 6) == 0)
			buf_addf(&b, "%u", port);
		else
			buf_addz(&b, token);
	}
	buf_addz(&b, p);
	return buf_take(&b);
}

static void on_ports(void *ctx, const struct pairs *values)
{
	struct tool_call *c = ctx;
	char port[16];
	snprintf(port, sizeof port, "%u", (unsigned)arg_int(c, "port", 0));
	for (size_t i = 0; i < values->n; i++)
		c->found |= streq(values->v[i].key, port) || streq(values->v[i].value, port);
}

/* The link is good for this one port, and for a time. */
static void on_ports_end(void *ctx, const struct err *e)
{
	struct tool_call *c = ctx;
	char token[GRANT_TOKEN_SIZE], until[25];
	struct grant_view g;
	struct err why = { 0 };
	unsigned port = (unsigned)arg_int(c, "port", 0);
	uint64_t seconds = (uint64_t)arg_int(c, "expires_s", EXPOSED_SECONDS);
	c->op = NULL;
	if (e) {
		tool_fail(c, e);
		return;
	}
	if (api_grant_create(c->m->api, &c->caller, c->sandbox, GRANT_PORT, (uint16_t)port, seconds, token, &g, &why) < 0) {
		tool_fail(c, &why);
		return;
	}
	format_iso8601(g.expires_ms, until);
	auto_free char *url = port_url(c, g.sandbox, port, token);
	auto_free char *text = xasprintf("%s\nGood until %s.%s", url, until, c->found ? "" : " Nothing listens on that port yet: the link works once a program does.");
	tool_result(c, text, json_pack("{s:s, s:b, s:s}", "url", url, "listening", c->found, "expires_at", until));
}

void tool_expose(struct tool_call *c)
{
	static const struct op_events events = { .on_values = on_ports, .on_end = on_ports_end };
	tool_op(c, &(struct op_spec){ .kind = OP_PORTS }, &events);
}
