/* Ports: what listens inside, a way to speak HTTP or WebSocket with it, and ports of this host that lead there. */
#include "dialect/native/native_int.h"
#include "model/key.h"
#include "model/publish.h"

#include <errno.h>
#include <stdio.h>

/* --- list --- */

struct listing {
	struct native *n;
	struct request *r;
	struct api_op *op;
	uint8_t seen[65536 / 8]; /* so that they come out once each, ascending */
};

static void add_port(struct listing *l, const char *text)
{
	uint64_t port;
	if (text && parse_u64(str_of(text), 65535, &port) == 0 && port > 0)
		l->seen[port / 8] |= (uint8_t)(1U << (port % 8));
}

static void on_values(void *ctx, const struct pairs *values)
{
	for (size_t i = 0; i < values->n; i++)
		if (streq(values->v[i].key, "port"))
			add_port(ctx, values->v[i].value);
		else
			add_port(ctx, values->v[i].key);
}

static void list_end(void *ctx, const struct err *e)
{
	struct listing *l = ctx;
	auto_items struct items ports;
	items_begin(&ports);
	if (e) {
		answer_err(l->n, l->r, e);
		free(l);
		return;
	}
	for (unsigned port = 1; port < 65536; port++) {
		if (!(l->seen[port / 8] & 1U << (port % 8)))
			continue;
		jout_object(&ports.j, NULL);
		jout_u64(&ports.j, "port", port);
		jout_end_object(&ports.j);
	}
	answer_items(l->n, l->r, 200, &ports);
	free(l);
}

static void list_gone(void *ctx)
{
	struct listing *l = ctx;
	api_op_cancel(l->op);
	free(l);
}

static void no_info(void *ctx, const struct file_info *info)
{
	(void)ctx, (void)info;
}

static void no_match(void *ctx, const char *path, uint64_t line, struct str text)
{
	(void)ctx, (void)path, (void)line, (void)text;
}

static void no_values(void *ctx, const struct pairs *values)
{
	(void)ctx, (void)values;
}

static void no_data(void *ctx, struct str bytes)
{
	(void)ctx, (void)bytes;
}

static void nothing(void *ctx)
{
	(void)ctx;
}

void native_port_list(struct request *r, void *dialect)
{
	static const struct op_events events = { no_info, no_match, on_values, nothing, no_data, nothing, nothing, list_end };
	struct native *n = dialect;
	struct err e;
	struct listing *l = xcalloc(1, sizeof *l);
	l->n = n;
	l->r = r;
	l->op = api_op_open(n->api, req_caller(r), req_ref(r), &(struct op_spec){ .kind = OP_PORTS }, &events, l, &e);
	if (!l->op) {
		answer_err(n, r, &e);
		free(l);
		return;
	}
	req_on_gone(r, list_gone, l);
}

/* --- proxy: the server speaks HTTP over the bytes of a connection inside --- */

struct bridge {
	struct api_op *op; /* NULL once it has ended */
	struct proxy *p;
};

static void on_open(void *ctx)
{
	proxy_upstream_open(((struct bridge *)ctx)->p);
}

static void on_data(void *ctx, struct str bytes)
{
	proxy_upstream_data(((struct bridge *)ctx)->p, bytes);
}

static void on_data_end(void *ctx)
{
	proxy_upstream_eof(((struct bridge *)ctx)->p);
}

static void on_room(void *ctx)
{
	proxy_upstream_room(((struct bridge *)ctx)->p);
}

static void on_end(void *ctx, const struct err *e)
{
	struct bridge *b = ctx;
	b->op = NULL;
	if (e)
		proxy_upstream_failed(b->p, e);
	else
		proxy_upstream_eof(b->p);
}

static size_t up_room(void *ctx)
{
	struct bridge *b = ctx;
	return b->op ? api_op_room(b->op) : 0;
}

static void up_write(void *ctx, struct str bytes)
{
	struct bridge *b = ctx;
	if (b->op)
		(void)api_op_write(b->op, bytes); /* the proxy keeps to up_room */
}

static void up_eof(void *ctx)
{
	struct bridge *b = ctx;
	if (b->op)
		api_op_eof(b->op);
}

static void up_pause(void *ctx)
{
	struct bridge *b = ctx;
	if (b->op)
		api_op_pause(b->op);
}

static void up_resume(void *ctx)
{
	struct bridge *b = ctx;
	if (b->op)
		api_op_resume(b->op);
}

static void up_close(void *ctx)
{
	struct bridge *b = ctx;
	if (b->op)
		api_op_cancel(b->op);
	free(b);
}

/* The request's path up to ".../proxy": the program's cookies are for what is below it, not for other sandboxes. */
static char *cookie_scope(const struct request *r)
{
	const char *path = req_path_arg(r, "path");
	struct str target = req_target(r);
	const char *query = memchr(target.p, '?', target.n);
	size_t n = query ? (size_t)(query - target.p) : target.n;
	return xasprintf("%.*s", (int)(n - MIN(path ? strlen(path) : 0, n)), target.p);
}

/* Path and query for the program inside: what followed ".../proxy", as it was sent. */
static char *inner_target(const struct request *r)
{
	const char *path = req_path_arg(r, "path");
	struct str query = req_raw_query(r);
	return xasprintf("/%s%s%.*s", path ? path : "", query.n ? "?" : "", (int)query.n, query.n ? query.p : "");
}

/* The {port} of the path, or an answer. */
static bool path_port(struct native *n, struct request *r, uint16_t *ret)
{
	struct err e;
	uint64_t port;
	if (parse_u64(str_of(req_path_arg(r, "port")), 65535, &port) < 0 || port == 0) {
		err_set(&e, ERR_INVALID, EINVAL, "the port in the path must be 1 to 65535");
		answer_err(n, r, &e);
		return false;
	}
	*ret = (uint16_t)port;
	return true;
}

void native_port_proxy(struct request *r, void *dialect)
{
	static const struct op_events events = { no_info, no_match, no_values, on_open, on_data, on_data_end, on_room, on_end };
	static const struct upstream_ops ops = { up_room, up_write, up_eof, up_pause, up_resume, up_close };
	struct native *n = dialect;
	struct err e;
	uint16_t port;
	if (!path_port(n, r, &port))
		return;
	struct bridge *b = xcalloc(1, sizeof *b);
	b->op = api_op_open(n->api, req_caller(r), req_ref(r), &(struct op_spec){ .kind = OP_CONNECT, .port = port }, &events, b, &e);
	if (!b->op) {
		answer_err(n, r, &e);
		free(b);
		return;
	}
	auto_free char *target = inner_target(r), *scope = cookie_scope(r);
	char host[32];
	snprintf(host, sizeof host, "localhost:%u", port);
	/* Whatever field holds a key of this server is not passed on, and every other one is. */
	struct proxy_options o = { .path = target, .host = host, .is_secret = key_is_in, .cookie_path = scope };
	b->p = req_proxy(r, &o, &ops, b);
}

/* --- published --- */

static const struct field publication_fields[] = {
	{ .name = "port", .kind = FIELD_U16, .offset = offsetof(struct publication, port), .required = true, .min = 1 },
	{ .name = "host_port", .kind = FIELD_U16, .offset = offsetof(struct publication, host_port), .min = 1 },
	{ .name = "address", .kind = FIELD_STRING, .offset = offsetof(struct publication, address) },
	{ 0 },
};

int set_publish(void *into, const char *where, const json_t *v, struct err *e)
{
	struct publications *p = &((struct sandbox_spec *)into)->publish;
	if (!json_is_array(v))
		return err_set(e, ERR_INVALID, EINVAL, "%s must be an array", where);
	if (json_array_size(v) > PUBLISH_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "%s has %zu entries; at most %d are allowed", where, json_array_size(v), PUBLISH_MAX);
	for (size_t i = 0; i < json_array_size(v); i++) {
		if (!json_is_object(json_array_get(v, i)))
			return err_set(e, ERR_INVALID, EINVAL, "%s must be an array of objects", where);
		if (decode_object(json_array_get(v, i), publication_fields, publications_add(p), e) < 0)
			return -EINVAL;
	}
	return 0;
}

static void encode_publication(struct jout *j, const char *key, const struct publication *p)
{
	jout_object(j, key);
	jout_z(j, "address", p->address);
	jout_u64(j, "host_port", p->host_port);
	jout_u64(j, "port", p->port);
	jout_bool(j, "lost", p->lost);
	jout_end_object(j);
}

void encode_publications(struct jout *j, const struct publications *p)
{
	jout_array(j, "publish");
	for (size_t i = 0; i < p->n; i++)
		encode_publication(j, NULL, &p->v[i]);
	jout_end_array(j);
}

void native_port_publish(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct publication wish = { 0 }, got;
	struct err e;
	int rc = decode_body(req_body(r), publication_fields, &wish, &e);
	if (rc >= 0)
		rc = api_port_publish(n->api, req_caller(r), req_ref(r), &wish, &got, &e);
	free(wish.address);
	if (rc < 0) {
		answer_err(n, r, &e);
		return;
	}
	auto_buf struct buf b;
	buf_init(&b, 4096);
	struct jout j = { .b = &b };
	encode_publication(&j, NULL, &got);
	auto_free char *location = xasprintf("/v1/sandboxes/%s/publish/%u", req_ref(r), got.host_port);
	answer_created(n, r, location, &b);
}

void native_port_unpublish(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	uint16_t port;
	if (!path_port(n, r, &port))
		return;
	if (api_port_unpublish(n->api, req_caller(r), req_ref(r), port, &e) < 0)
		answer_err(n, r, &e);
	else
		answer_empty(n, r, 204);
}
