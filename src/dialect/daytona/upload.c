/* Files in: multipart bodies, and bare ones, streamed into write operations.
 *
 * Theory of operation. Bytes of the body wait in `pending` until the parser takes them; bytes of a file that its operation
 * has no room for wait in `held`. While something is held, or a file is being completed, the body is paused, so both are
 * bounded by what one read of the server brings. pump() goes on from any event: bytes, room, an operation's end, the
 * body's end. A file that fails is noted and the rest of its part dropped; the answer comes after the whole body. */
#include "dialect/daytona/internal.h"
#include "wire/multipart.h"

#include <errno.h>
#include <stdio.h>

#define PENDING_MAX (4U << 20) /* several reads of the server: only a bound against its mistakes */
#define PATH_MAX_BYTES 4096U
#define PATHS_MAX_BYTES (16U << 20) /* of those whose files have not come yet: some clients send all paths first */

enum upload_kind { UPLOAD_BULK, UPLOAD_FORM, UPLOAD_RAW };
enum field { FIELD_NONE, FIELD_PATH, FIELD_FILE };

struct destination {
	uint64_t index;
	char *path;
};
struct upload {
	struct call call;
	enum upload_kind kind;
	struct multipart parser;
	struct buf pending, held, path;
	enum field field;
	uint64_t index;                  /* of the current part */
	struct destination *to;          /* files[i].path so far; path is NULL once the file has come */
	size_t n_to, first_to;           /* first_to: the first that waits */
	size_t to_bytes;
	char *target;                    /* of the file being written; of the only one when not bulk */
	uint64_t bytes;
	struct api_op *op;
	bool completing;                 /* its end was said, the verdict is awaited */
	bool paused, body_ended, broken; /* broken: the body can't be understood, only drained */
	bool wrote;                      /* not bulk: the file was there */
	json_t *files, *errors;
	struct err first_error;
};

static void upload_drop(struct call *c)
{
	struct upload *x = container_of(c, struct upload, call);
	if (x->op)
		api_op_cancel(x->op);
	if (x->kind != UPLOAD_RAW)
		multipart_done(&x->parser);
	buf_done(&x->pending);
	buf_done(&x->held);
	buf_done(&x->path);
	for (size_t i = 0; i < x->n_to; i++)
		free(x->to[i].path);
	free(x->to);
	free(x->target);
	json_decref(x->files);
	json_decref(x->errors);
}

static void pump(struct upload *x);

static void note_error(struct upload *x, const struct err *e)
{
	if (x->first_error.kind == ERR_NONE)
		x->first_error = *e;
	if (json_array_size(x->errors) < 100)
		json_array_append_new(x->errors, textz_json(e->message));
}

static void set_paused(struct upload *x, bool paused)
{
	if (x->paused == paused || x->body_ended)
		return;
	x->paused = paused;
	if (paused)
		req_body_pause(x->call.r);
	else
		req_body_resume(x->call.r);
}

/* --- one file --- */

static void on_flow(void *ctx)
{
	pump(ctx);
}

static void on_op_end(void *ctx, const struct err *e)
{
	struct upload *x = ctx;
	struct err early;
	x->op = NULL;
	if (!e && !x->completing) { /* a guest that says so before it has all of it */
		err_set(&early, ERR_INTERNAL, 0, "the file was ended early");
		e = &early;
	}
	x->completing = false;
	buf_reset(&x->held);
	if (e) {
		struct err copy = *e;
		err_prefix(&copy, "%.256s", x->target);
		note_error(x, &copy);
		x->field = FIELD_NONE;
	} else {
		json_t *o = json_object();
		put(o, "path", textz_json(x->target));
		put(o, "bytes", json_integer((json_int_t)x->bytes));
		json_array_append_new(x->files, o);
		x->wrote = true;
	}
	pump(x);
}

static void file_begin(struct upload *x, const char *path)
{
	static const struct op_events events = { .on_open = on_flow, .on_room = on_flow, .on_end = on_op_end };
	struct err e = { 0 };
	if (path != x->target) {
		free(x->target);
		x->target = xstrdup(path);
	}
	x->bytes = 0;
	const struct op_spec spec = { .kind = OP_WRITE, .path = x->target, .flags = OP_F_PARENTS };
	x->op = api_op_open(x->call.d->api, &x->call.caller, x->call.ref, &spec, &events, x, &e);
	if (!x->op) {
		err_prefix(&e, "%.256s", x->target);
		note_error(x, &e);
		x->field = FIELD_NONE;
	}
}

/* Gives the operation what it has room for; false when something is left. */
static bool give(struct upload *x, struct str *bytes)
{
	size_t n = x->op ? MIN(api_op_room(x->op), bytes->n) : bytes->n;
	if (x->op && n && api_op_write(x->op, (struct str){ bytes->p, n }) < 0)
		n = 0;
	x->bytes += n;
	bytes->p += n;
	bytes->n -= n;
	return bytes->n == 0;
}

static void file_bytes(struct upload *x, struct str bytes)
{
	if (!give(x, &bytes) && buf_add(&x->held, bytes.p, bytes.n) < 0) {
		struct err e;
		err_set(&e, ERR_INTERNAL, 0, "an upload outran its buffer");
		note_error(x, &e);
		x->broken = true;
	}
}

static void file_end(struct upload *x)
{
	if (!x->op)
		return;
	x->completing = true;
	api_op_eof(x->op);
}

/* --- parts --- */

static bool field_name(const char *name, uint64_t *ret_index, enum field *ret)
{
	const char *end = strncmp(name, "files[", 6) == 0 ? strchr(name + 6, ']') : NULL;
	if (!end || parse_u64((struct str){ name + 6, (size_t)(end - name - 6) }, UINT32_MAX, ret_index) < 0)
		return false;
	*ret = streq(end, "].path") ? FIELD_PATH : streq(end, "].file") ? FIELD_FILE : FIELD_NONE;
	return *ret != FIELD_NONE;
}

/* Where the file of this part goes, which is the only one of that path: heap, or NULL. */
static char *take_destination(struct upload *x)
{
	if (x->kind != UPLOAD_BULK)
		return xstrdup(x->target);
	for (size_t i = x->first_to; i < x->n_to; i++) { /* mostly the first one */
		if (x->to[i].index != x->index || !x->to[i].path)
			continue;
		x->to_bytes -= strlen(x->to[i].path);
		char *path = take_ptr(&x->to[i].path);
		while (x->first_to < x->n_to && !x->to[x->first_to].path)
			x->first_to++;
		return path;
	}
	return NULL;
}

static void part_begin(struct upload *x)
{
	x->field = FIELD_NONE;
	if (x->kind == UPLOAD_BULK)
		field_name(x->parser.name, &x->index, &x->field);
	else if (streq(x->parser.name, "file") && !x->wrote)
		x->field = FIELD_FILE;
	buf_reset(&x->path);
	if (x->field != FIELD_FILE)
		return;
	auto_free char *path = take_destination(x);
	if (path) {
		file_begin(x, path);
		return;
	}
	struct err e;
	err_set(&e, ERR_INVALID, EINVAL, "files[%llu].file came without a files[%llu].path before it", (unsigned long long)x->index,
	        (unsigned long long)x->index);
	note_error(x, &e);
	x->field = FIELD_NONE;
}

static void broken(struct upload *x, const char *why)
{
	struct err e;
	err_set(&e, ERR_INVALID, EINVAL, "the multipart body is broken: %s", why);
	note_error(x, &e);
	x->broken = true;
	if (x->op) /* half a file is none */
		api_op_cancel(take_ptr(&x->op));
	x->completing = false;
	buf_reset(&x->held);
	buf_reset(&x->pending);
}

static void path_end(struct upload *x)
{
	struct str path = buf_str(&x->path);
	struct err e;
	if (path.n == 0 || x->path.overflow || memchr(path.p, 0, path.n) || !utf8_valid(path)) {
		err_set(&e, ERR_INVALID, EINVAL, "files[%llu].path must be a path in UTF-8 of 1 to %u bytes", (unsigned long long)x->index, PATH_MAX_BYTES);
		note_error(x, &e);
		return;
	}
	x->to_bytes += path.n;
	if (x->n_to >= LIST_MAX || x->to_bytes > PATHS_MAX_BYTES) {
		broken(x, "too many paths in one upload");
		return;
	}
	x->to = xreallocarray(x->to, x->n_to + 1, sizeof(*x->to));
	x->to[x->n_to++] = (struct destination){ x->index, xstrndup(path.p, path.n) };
}

/* One step of the parser; false when it needs more bytes. */
static bool parse_step(struct upload *x)
{
	struct str in = buf_str(&x->pending), bytes = { 0 };
	enum multipart_event event = multipart_feed(&x->parser, &in, &bytes);
	switch (event) {
	case MULTIPART_PART:
		part_begin(x);
		break;
	case MULTIPART_BYTES:
		if (x->field == FIELD_PATH)
			x->path.overflow |= buf_add(&x->path, bytes.p, bytes.n) < 0;
		else if (x->field == FIELD_FILE)
			file_bytes(x, bytes);
		break;
	case MULTIPART_PART_END:
		if (x->field == FIELD_PATH)
			path_end(x);
		else if (x->field == FIELD_FILE)
			file_end(x);
		x->field = FIELD_NONE;
		break;
	case MULTIPART_ERROR:
		broken(x, x->parser.error);
		return true;
	case MULTIPART_END:
	case MULTIPART_MORE:
	default:
		break;
	}
	if (x->broken)
		return true;
	buf_consume(&x->pending, x->pending.len - in.n);
	return event != MULTIPART_MORE && event != MULTIPART_END;
}

/* --- the whole --- */

static void answer(struct upload *x)
{
	struct request *r = x->call.r;
	if (x->kind == UPLOAD_BULK && json_array_size(x->errors)) {
		json_t *more = json_pack("{s:O, s:O}", "errors", x->errors, "files", x->files);
		struct err e = x->first_error;
		call_detach(&x->call);
		fail_more(r, 400, "BAD_REQUEST", more, "%s", e.message);
		call_free(&x->call);
	} else if (x->kind == UPLOAD_BULK) {
		call_json(&x->call, 200, json_pack("{s:O}", "files", x->files));
	} else if (x->first_error.kind != ERR_NONE) {
		struct err e = x->first_error;
		call_fail(&x->call, &e);
	} else {
		const char *slash = strrchr(x->target, '/');
		json_t *o = json_object();
		put(o, "name", textz_json(slash ? slash + 1 : x->target));
		put(o, "path", textz_json(x->target));
		put(o, "type", json_string("file"));
		call_json(&x->call, 200, o);
	}
}

static void at_end(struct upload *x)
{
	struct err e;
	if (x->kind != UPLOAD_RAW && !x->broken && !multipart_ended(&x->parser))
		broken(x, "it ends before its last boundary");
	if (x->kind == UPLOAD_RAW && x->op) {
		file_end(x);
		return;
	}
	if (x->kind == UPLOAD_FORM && !x->wrote && x->first_error.kind == ERR_NONE) {
		err_set(&e, ERR_INVALID, EINVAL, "the form has no field named file");
		note_error(x, &e);
	}
	answer(x);
}

static void pump(struct upload *x)
{
	for (;;) {
		if (x->completing || x->held.len) {
			struct str held = buf_str(&x->held);
			bool done = !x->completing && give(x, &held);
			buf_consume(&x->held, x->held.len - held.n);
			if (!done) {
				set_paused(x, true);
				return;
			}
		} else if (x->broken) {
			buf_reset(&x->pending);
			break;
		} else if (x->kind == UPLOAD_RAW) {
			if (!x->pending.len)
				break;
			struct str bytes = buf_str(&x->pending);
			file_bytes(x, bytes);
			buf_reset(&x->pending);
		} else if (!parse_step(x)) {
			break;
		}
	}
	if (x->body_ended)
		at_end(x);
	else
		set_paused(x, false);
}

static void on_body_bytes(void *ctx, struct str bytes)
{
	struct upload *x = ctx;
	if (!x->broken && buf_add(&x->pending, bytes.p, bytes.n) < 0)
		broken(x, "it came faster than it was asked for");
	if (!x->paused)
		pump(x);
}

static void on_body_end(void *ctx)
{
	struct upload *x = ctx;
	x->body_ended = true;
	if (!x->paused)
		pump(x);
	else
		x->paused = false; /* the event that is waited for goes on */
}

static void begin(struct request *r, struct daytona *d, enum upload_kind kind, const char *boundary, const char *target)
{
	static const struct body_events events = { .on_bytes = on_body_bytes, .on_end = on_body_end };
	struct upload *x = call_new(sizeof(*x), d, r, upload_drop);
	x->kind = kind;
	if (kind != UPLOAD_RAW)
		multipart_init(&x->parser, boundary);
	buf_init(&x->pending, PENDING_MAX);
	buf_init(&x->held, PENDING_MAX);
	buf_init(&x->path, PATH_MAX_BYTES);
	x->target = xstrdup(target);
	x->files = json_array();
	x->errors = json_array();
	if (kind == UPLOAD_RAW)
		file_begin(x, x->target);
	req_read_body(r, &events, x);
}

static void handle_bulk(struct request *r, void *daytona)
{
	struct err e = { 0 };
	struct sandbox_view v;
	char boundary[MULTIPART_MAX_BOUNDARY + 1];
	if (!toolbox_sandbox(daytona, r, &v))
		return;
	if (multipart_boundary(req_header(r, "Content-Type"), boundary) < 0) {
		err_set(&e, ERR_INVALID, EINVAL, "Content-Type must be multipart/form-data with a boundary");
		fail(r, &e);
		return;
	}
	begin(r, daytona, UPLOAD_BULK, boundary, NULL);
}

static void handle_one(struct request *r, void *daytona)
{
	struct err e = { 0 };
	struct sandbox_view v;
	const char *path;
	char boundary[MULTIPART_MAX_BOUNDARY + 1];
	if (!toolbox_sandbox(daytona, r, &v))
		return;
	if (query_required(r, "path", &path, &e) < 0) {
		fail(r, &e);
		return;
	}
	bool form = multipart_boundary(req_header(r, "Content-Type"), boundary) == 0;
	begin(r, daytona, form ? UPLOAD_FORM : UPLOAD_RAW, boundary, path);
}

static const struct route routes[] = {
	{ .method = "POST", .pattern = "/files/bulk-upload", .body = BODY_STREAM, .handle = handle_bulk },
	{ .method = "POST", .pattern = "/files/upload", .body = BODY_STREAM, .handle = handle_one },
	{ .method = "POST", .pattern = "/files/upload-v2", .body = BODY_STREAM, .handle = handle_one },
};
const struct route_table upload_routes = { routes, ARRAY_LEN(routes) };
