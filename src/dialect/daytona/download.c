/* Files out: read operations streamed into an answer at the reader's pace. */
#include "dialect/daytona/internal.h"
#include "wire/multipart.h"
#include "wire/urlencode.h"

#include <errno.h>
#include <stdio.h>

struct download {
	struct call call;
	bool bulk;
	char **paths;
	size_t at;
	char boundary[MULTIPART_RANDOM_BOUNDARY + 1];
	struct api_op *op;
	uint64_t size; /* as told before the bytes; 0 = unknown (also of files in /proc) */
	bool head;     /* the current file's head is written */
};

static void download_drop(struct call *c)
{
	struct download *x = container_of(c, struct download, call);
	if (x->op)
		api_op_cancel(x->op);
	texts_free(x->paths);
}

static void next_file(struct download *x);

/* The clients compare the name with the path they asked for, byte for byte: plain for ASCII, and in RFC 5987's form, which
 * is right for all. */
static void add_filename(struct buf *b, const char *path)
{
	buf_addz(b, "; filename=\"");
	for (const char *p = path; *p; p++) {
		if (*p == '"' || *p == '\\')
			buf_addc(b, '\\');
		buf_addc(b, (unsigned char)*p < 0x20 || *p == 0x7f ? '_' : *p);
	}
	buf_addz(b, "\"; filename*=utf-8''");
	url_encode(b, str_of(path), "!#$&+^`|");
}

static void part_head(struct download *x, const char *name, const char *type, uint64_t length)
{
	auto_buf struct buf b;
	buf_init(&b, 64U << 10);
	buf_addf(&b, "%s--%s\r\nContent-Disposition: form-data; name=\"%s\"", x->at ? "\r\n" : "", x->boundary, name);
	add_filename(&b, x->paths[x->at]);
	if (length)
		buf_addf(&b, "\r\nContent-Length: %llu", (unsigned long long)length);
	buf_addf(&b, "\r\nContent-Type: %s\r\n\r\n", type);
	req_write(x->call.r, buf_str(&b));
}

static void file_head(struct download *x)
{
	if (x->head)
		return;
	x->head = true;
	if (x->bulk) {
		part_head(x, "file", "application/octet-stream", x->size);
		return;
	}
	auto_buf struct buf b;
	buf_init(&b, 64U << 10);
	const char *slash = strrchr(x->paths[0], '/');
	buf_addz(&b, "attachment");
	add_filename(&b, slash ? slash + 1 : x->paths[0]);
	/* A file can change while it is read, so its length is not promised. What it holds must not act for us in a browser. */
	const struct header h[] = { { "Content-Disposition", b.data }, { "X-Content-Type-Options", "nosniff" } };
	req_begin(x->call.r, 200, h, ARRAY_LEN(h), "application/octet-stream", -1);
}

static void on_info(void *ctx, const struct file_info *info)
{
	struct download *x = ctx;
	x->size = info->size;
}

static void on_open(void *ctx)
{
	file_head(ctx);
}

static void on_data(void *ctx, struct str bytes)
{
	struct download *x = ctx;
	file_head(x);
	req_write(x->call.r, bytes);
	if (!req_room(x->call.r))
		api_op_pause(x->op);
}

static void on_room(void *ctx)
{
	struct download *x = ctx;
	if (x->op)
		api_op_resume(x->op);
}

static void error_part(struct download *x, const struct err *e)
{
	json_t *o = error_body(e, true);
	auto_free char *text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	part_head(x, "error", "application/json", strlen(text));
	req_write(x->call.r, str_of(text));
}

static void finish(struct download *x, bool whole)
{
	struct request *r = x->call.r;
	if (whole && x->bulk) {
		auto_buf struct buf b;
		buf_init(&b, 256);
		multipart_write_end(&b, x->boundary, false);
		req_write(r, buf_str(&b));
	}
	call_detach(&x->call);
	if (whole)
		req_end(r);
	else
		req_abort(r); /* a cut file must look cut: no last boundary */
	call_free(&x->call);
}

static void file_failed(struct download *x, const struct err *e)
{
	if (x->head) {
		finish(x, false);
	} else if (x->bulk) {
		error_part(x, e);
		x->at++;
		next_file(x);
	} else {
		call_fail(&x->call, e);
	}
}

static void on_end(void *ctx, const struct err *e)
{
	struct download *x = ctx;
	x->op = NULL;
	if (e) {
		file_failed(x, e);
		return;
	}
	file_head(x);
	x->at++;
	next_file(x);
}

static void next_file(struct download *x)
{
	static const struct op_events events = { .on_info = on_info, .on_open = on_open, .on_data = on_data, .on_end = on_end };
	struct err e = { 0 };
	if (!x->paths[x->at]) {
		finish(x, true);
		return;
	}
	x->head = false;
	x->size = 0;
	const struct op_spec spec = { .kind = OP_READ, .path = x->paths[x->at] };
	x->op = api_op_open(x->call.d->api, &x->call.caller, x->call.ref, &spec, &events, x, &e);
	if (!x->op)
		file_failed(x, &e);
}

static void handle_bulk(struct request *r, void *daytona)
{
	struct err e = { 0 };
	struct sandbox_view v;
	char **paths = NULL;
	if (!toolbox_sandbox(daytona, r, &v))
		return;
	json_t *body = body_object(r, &e);
	int rc = body ? want_texts(body, "paths", &paths, &e) : -EINVAL;
	size_t n = json_array_size(json_object_get(body, "paths"));
	json_decref(body);
	if (rc >= 0 && (n == 0 || n > 1000))
		rc = err_set(&e, ERR_INVALID, EINVAL, "paths must name 1 to 1000 files");
	if (rc < 0) {
		texts_free(paths);
		fail(r, &e);
		return;
	}
	struct download *x = call_new(sizeof(*x), daytona, r, download_drop);
	x->bulk = true;
	x->paths = paths;
	multipart_random_boundary(x->boundary);
	char type[128];
	snprintf(type, sizeof(type), "multipart/form-data; boundary=%s", x->boundary);
	req_begin(r, 200, NULL, 0, type, -1);
	req_on_room(r, on_room, x);
	next_file(x);
}

static void handle_one(struct request *r, void *daytona)
{
	struct err e = { 0 };
	struct sandbox_view v;
	const char *path;
	if (!toolbox_sandbox(daytona, r, &v))
		return;
	if (query_required(r, "path", &path, &e) < 0) {
		fail(r, &e);
		return;
	}
	struct download *x = call_new(sizeof(*x), daytona, r, download_drop);
	x->paths = xcalloc(2, sizeof(*x->paths));
	x->paths[0] = xstrdup(path);
	req_on_room(r, on_room, x);
	next_file(x);
}

static const struct route routes[] = {
	{ .method = "POST", .pattern = "/files/bulk-download", .body = BODY_BUFFER, .body_max = 4U << 20, .handle = handle_bulk },
	{ .method = "GET", .pattern = "/files/download", .handle = handle_one },
};
const struct route_table download_routes = { routes, ARRAY_LEN(routes) };
