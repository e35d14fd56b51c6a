/* Files: every route opens one operation inside the sandbox (model/op.h) and turns its events into one answer.
 *
 * A `struct fileop` lives from the handler to the operation's end or the client's leaving, whichever comes first; the other is
 * then called off. Bytes flow both ways with back-pressure: a slow client pauses the operation, a slow disk pauses the body. */
#include "dialect/native/native_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct fileop {
	struct native *n;
	struct request *r;
	struct api_op *op;
	enum op_kind kind;
	bool begun;          /* READ: the head has been written */
	uint64_t size;       /* READ: of on_info */
	int64_t mtime_ms;
	uint32_t mode;
	struct buf json;     /* STAT LIST FIND SEARCH: the answer so far */
	struct jout j;
	struct buf waiting;  /* WRITE: bytes of the body that the operation had no room for */
	bool body_complete;
};

enum { WAITING_MAX = 4 << 20 };

static void fileop_free(struct fileop *f)
{
	buf_done(&f->json);
	buf_done(&f->waiting);
	free(f);
}

static void fail(struct fileop *f, const struct err *e)
{
	if (f->op)
		api_op_cancel(f->op);
	if (f->begun)
		req_abort(f->r); /* the client sees a broken transfer, never a short file that looks whole */
	else
		answer_err(f->n, f->r, e);
	fileop_free(f);
}

static bool is_list(enum op_kind kind)
{
	return kind == OP_LIST || kind == OP_FIND || kind == OP_SEARCH;
}

/* --- reading --- */

static void begin_bytes(struct fileop *f)
{
	char text[3][24];
	struct header h[] = { { "X-Caisson-Size", text[0] }, { "X-Caisson-Mode", text[1] }, { "X-Caisson-Mtime-Ms", text[2] } };
	snprintf(text[0], sizeof text[0], "%" PRIu64, f->size);
	snprintf(text[1], sizeof text[1], "%04o", f->mode & 07777U);
	snprintf(text[2], sizeof text[2], "%" PRId64, f->mtime_ms);
	f->begun = true;
	answer_begin(f->n, f->r, h, ARRAY_LEN(h), "application/octet-stream");
}

static void on_data(void *ctx, struct str bytes)
{
	struct fileop *f = ctx;
	if (f->kind != OP_READ)
		return;
	if (!f->begun)
		begin_bytes(f);
	req_write(f->r, bytes);
	if (!req_room(f->r))
		api_op_pause(f->op);
}

static void on_client_room(void *ctx)
{
	struct fileop *f = ctx;
	if (f->op)
		api_op_resume(f->op);
}

/* --- one info, or many --- */

static void on_info(void *ctx, const struct file_info *info)
{
	struct fileop *f = ctx;
	if (f->kind == OP_READ) {
		f->size = info->size;
		f->mode = info->mode;
		f->mtime_ms = info->mtime_ms;
	} else if (f->kind == OP_STAT || f->kind == OP_LIST) {
		encode_file(&f->j, NULL, info);
	}
}

static void on_match(void *ctx, const char *path, uint64_t line, struct str text)
{
	struct fileop *f = ctx;
	if (!is_list(f->kind))
		return;
	jout_object(&f->j, NULL);
	jout_name(&f->j, "path", path);
	if (f->kind == OP_FIND) {
		jout_u64(&f->j, "line", line);
		jout_text(&f->j, "text", text);
	}
	jout_end_object(&f->j);
}

/* --- writing --- */

static void push(struct fileop *f)
{
	while (f->waiting.len) {
		size_t n = MIN(f->waiting.len, api_op_room(f->op));
		if (n == 0 || api_op_write(f->op, (struct str){ f->waiting.data, n }) < 0) {
			req_body_pause(f->r);
			return; /* on_room comes */
		}
		buf_consume(&f->waiting, n);
	}
	if (f->body_complete)
		api_op_eof(f->op);
	else
		req_body_resume(f->r);
}

static void on_body(void *ctx, struct str bytes)
{
	struct fileop *f = ctx;
	struct err e;
	size_t n = f->waiting.len ? 0 : MIN(bytes.n, api_op_room(f->op)); /* most go on without being kept */
	if (n && api_op_write(f->op, (struct str){ bytes.p, n }) == 0)
		bytes = (struct str){ bytes.p + n, bytes.n - n };
	if (buf_add(&f->waiting, bytes.p, bytes.n) < 0) {
		err_set(&e, ERR_INTERNAL, ENOBUFS, "the body came faster than it was asked for");
		fail(f, &e);
		return;
	}
	push(f);
}

static void on_body_end(void *ctx)
{
	struct fileop *f = ctx;
	f->body_complete = true;
	push(f);
}

static void on_room(void *ctx)
{
	struct fileop *f = ctx;
	if (f->kind == OP_WRITE && f->waiting.len)
		push(f);
}

/* --- the end --- */

static void on_end(void *ctx, const struct err *e)
{
	struct fileop *f = ctx;
	struct err none;
	f->op = NULL; /* freed by its owner */
	if (e) {
		fail(f, e);
		return;
	}
	if (f->kind == OP_STAT && !f->json.len) {
		err_set(&none, ERR_INTERNAL, EPROTO, "the sandbox gave no answer");
		fail(f, &none);
		return;
	}
	if (f->kind == OP_READ) {
		if (!f->begun)
			begin_bytes(f);
		req_end(f->r);
	} else if (is_list(f->kind)) {
		jout_end_array(&f->j);
		jout_end_object(&f->j);
		answer_json(f->n, f->r, 200, &f->json);
	} else if (f->kind == OP_STAT) {
		answer_json(f->n, f->r, 200, &f->json);
	} else {
		answer_empty(f->n, f->r, 204);
	}
	fileop_free(f);
}

static void on_open(void *ctx)
{
	(void)ctx;
}

static void on_data_end(void *ctx)
{
	(void)ctx;
}

static void on_values(void *ctx, const struct pairs *values)
{
	(void)ctx, (void)values;
}

static void on_gone(void *ctx)
{
	struct fileop *f = ctx;
	if (f->op)
		api_op_cancel(f->op);
	fileop_free(f);
}

/* Opens the operation. Its spec's strings are copied by the api. */
static void run_op(struct native *n, struct request *r, const struct op_spec *spec)
{
	static const struct op_events events = { on_info, on_match, on_values, on_open, on_data, on_data_end, on_room, on_end };
	static const struct body_events body = { on_body, on_body_end };
	struct err e;
	struct fileop *f = xcalloc(1, sizeof *f);
	f->n = n;
	f->r = r;
	f->kind = spec->kind;
	buf_init(&f->json, 64 << 20);
	buf_init(&f->waiting, WAITING_MAX);
	f->j.b = &f->json;
	if (is_list(f->kind)) {
		jout_object(&f->j, NULL);
		jout_array(&f->j, "items");
	}
	f->op = api_op_open(n->api, req_caller(r), req_ref(r), spec, &events, f, &e);
	if (!f->op) {
		fail(f, &e);
		return;
	}
	req_on_gone(r, on_gone, f);
	if (f->kind == OP_READ)
		req_on_room(r, on_client_room, f);
	else if (f->kind == OP_WRITE)
		req_read_body(r, &body, f);
}

/* --- requests --- */

struct file_request {
	char *path, *path_base64, *user, *to, *text, *pattern, *old, *replacement, *owner, *group;
	uint64_t offset, length, depth;
	uint32_t mode;
	bool has_mode, parents, append, exclusive, recursive, overwrite;
};

static void file_request_done(struct file_request *q)
{
	char *all[] = { q->path, q->path_base64, q->user, q->to, q->text, q->pattern, q->old, q->replacement, q->owner, q->group };
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		free(all[i]);
}

static int set_mode(void *into, const char *where, const json_t *v, struct err *e)
{
	struct file_request *q = into;
	q->has_mode = true;
	return decode_mode(where, v, &q->mode, e);
}

#define F_STRING(name_, member) { .name = name_, .kind = FIELD_STRING, .offset = offsetof(struct file_request, member) }
#define F_REQUIRED(name_, member) { .name = name_, .kind = FIELD_STRING, .offset = offsetof(struct file_request, member), .required = true }
#define F_BOOL(name_, member) { .name = name_, .kind = FIELD_BOOL, .offset = offsetof(struct file_request, member) }
#define F_MODE { .name = "mode", .kind = FIELD_CUSTOM, .set = set_mode }
#define F_QUERY_PATH F_STRING("path", path), F_STRING("path_base64", path_base64), F_STRING("user", user)

static int check_path(const char *name, const char *path, struct err *e)
{
	if (!path)
		return 0;
	if (!*path)
		return err_set(e, ERR_INVALID, EINVAL, "\"%s\" is empty; give an absolute path, or one relative to the working directory", name);
	if (strlen(path) > SPEC_PATH_MAX)
		return err_set(e, ERR_INVALID, ENAMETOOLONG, "\"%s\" has %zu bytes; a path has at most %d", name, strlen(path), SPEC_PATH_MAX);
	return 0;
}

static int decode_path_base64(struct file_request *q, struct err *e)
{
	if (q->path)
		return err_set(e, ERR_INVALID, EINVAL, "give one of the query parameters \"path\" and \"path_base64\", not both");
	size_t n = strlen(q->path_base64);
	q->path = xcalloc(n / 4 * 3 + 2, 1);
	ssize_t got = base64_decode((struct str){ q->path_base64, n }, q->path);
	if (got < 0)
		return err_set(e, ERR_INVALID, EINVAL, "query parameter \"path_base64\" is not valid base64");
	q->path[got] = '\0';
	if (memchr(q->path, 0, (size_t)got))
		return err_set(e, ERR_INVALID, EINVAL, "query parameter \"path_base64\" holds a NUL byte, which no path can");
	return 0;
}

static int check_request(struct file_request *q, struct err *e)
{
	if (q->path_base64 && decode_path_base64(q, e) < 0)
		return -EINVAL;
	if (!q->path)
		return err_set(e, ERR_INVALID, EINVAL, "query parameter \"path\" is missing");
	if (check_path("path", q->path, e) < 0 || check_path("to", q->to, e) < 0)
		return -EINVAL;
	if (q->user && !user_valid(str_of(q->user)))
		return err_set(e, ERR_INVALID, EINVAL, "\"user\" must be a name, a uid, or uid:gid");
	struct { const char *name, *value; size_t max; } texts[] = { { "text", q->text, 4096 }, { "pattern", q->pattern, 4096 }, { "old", q->old, 65536 },
		                                                     { "owner", q->owner, 64 }, { "group", q->group, 64 } };
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (texts[i].value && (!*texts[i].value || strlen(texts[i].value) > texts[i].max))
			return err_set(e, ERR_INVALID, EINVAL, "\"%s\" must have 1 to %zu bytes", texts[i].name, texts[i].max);
	if (q->replacement && strlen(q->replacement) > 65536)
		return err_set(e, ERR_INVALID, EINVAL, "\"new\" must have at most 65536 bytes");
	return 0;
}

static struct op_spec spec_of(enum op_kind kind, const struct file_request *q)
{
	uint32_t flags = (q->parents ? OP_F_PARENTS : 0U) | (q->append ? OP_F_APPEND : 0U) | (q->exclusive ? OP_F_EXCLUSIVE : 0U) |
	                 (q->recursive ? OP_F_RECURSIVE : 0U);
	return (struct op_spec){
		.kind = kind,
		.user = q->user,
		.path = q->path,
		.path2 = q->to,
		.pattern = q->text ? q->text : q->pattern ? q->pattern : q->old,
		.text = q->replacement,
		.owner = q->owner,
		.group = q->group,
		.mode = q->mode,
		.has_mode = q->has_mode,
		.depth = (uint32_t)q->depth,
		.flags = flags,
		.offset = q->offset,
		.length = q->length,
	};
}

static void by_query(struct request *r, struct native *n, enum op_kind kind, const struct field *fields)
{
	struct file_request q = { .depth = 1 };
	struct err e;
	int rc = decode_query(r, fields, &q, &e);
	if (rc >= 0)
		rc = check_request(&q, &e);
	if (rc < 0) {
		answer_err(n, r, &e);
	} else {
		struct op_spec spec = spec_of(kind, &q);
		run_op(n, r, &spec);
	}
	file_request_done(&q);
}

static void by_body(struct request *r, struct native *n, enum op_kind kind, const struct field *fields)
{
	struct file_request q = { .overwrite = true };
	struct err e;
	int rc = decode_body(req_body(r), fields, &q, &e);
	if (rc >= 0)
		rc = check_request(&q, &e);
	if (rc >= 0 && kind == OP_CHMOD && !q.has_mode && !q.owner && !q.group)
		rc = err_set(&e, ERR_INVALID, EINVAL, "nothing to change: give \"mode\", \"owner\" or \"group\"");
	if (rc < 0) {
		answer_err(n, r, &e);
	} else {
		q.exclusive = kind == OP_MOVE && !q.overwrite;
		struct op_spec spec = spec_of(kind, &q);
		run_op(n, r, &spec);
	}
	file_request_done(&q);
}

void native_file_read(struct request *r, void *dialect)
{
	static const struct field fields[] = {
		F_QUERY_PATH,
		{ .name = "offset", .kind = FIELD_U64, .offset = offsetof(struct file_request, offset) },
		{ .name = "length", .kind = FIELD_U64, .offset = offsetof(struct file_request, length), .min = 1 },
		{ 0 },
	};
	by_query(r, dialect, OP_READ, fields);
}

void native_file_write(struct request *r, void *dialect)
{
	static const struct field fields[] = { F_QUERY_PATH, F_MODE, F_BOOL("parents", parents), F_BOOL("append", append), F_BOOL("exclusive", exclusive),
		                               { 0 } };
	by_query(r, dialect, OP_WRITE, fields);
}

void native_file_delete(struct request *r, void *dialect)
{
	static const struct field fields[] = { F_QUERY_PATH, F_BOOL("recursive", recursive), { 0 } };
	by_query(r, dialect, OP_REMOVE, fields);
}

void native_file_stat(struct request *r, void *dialect)
{
	static const struct field fields[] = { F_QUERY_PATH, { 0 } };
	by_query(r, dialect, OP_STAT, fields);
}

void native_file_list(struct request *r, void *dialect)
{
	static const struct field fields[] = {
		F_QUERY_PATH,
		{ .name = "depth", .kind = FIELD_U64, .offset = offsetof(struct file_request, depth), .min = 1, .max = 64 },
		{ 0 },
	};
	by_query(r, dialect, OP_LIST, fields);
}

void native_file_find(struct request *r, void *dialect)
{
	static const struct field fields[] = { F_QUERY_PATH, F_REQUIRED("text", text), { 0 } };
	by_query(r, dialect, OP_FIND, fields);
}

void native_file_search(struct request *r, void *dialect)
{
	static const struct field fields[] = { F_QUERY_PATH, F_REQUIRED("pattern", pattern), { 0 } };
	by_query(r, dialect, OP_SEARCH, fields);
}

void native_file_mkdir(struct request *r, void *dialect)
{
	static const struct field fields[] = { F_REQUIRED("path", path), F_MODE, F_BOOL("parents", parents), F_STRING("user", user), { 0 } };
	by_body(r, dialect, OP_MKDIR, fields);
}

void native_file_move(struct request *r, void *dialect)
{
	static const struct field fields[] = { F_REQUIRED("from", path), F_REQUIRED("to", to), F_BOOL("overwrite", overwrite), F_STRING("user", user),
		                               { 0 } };
	by_body(r, dialect, OP_MOVE, fields);
}

void native_file_chmod(struct request *r, void *dialect)
{
	static const struct field fields[] = { F_REQUIRED("path", path), F_MODE, F_STRING("owner", owner), F_STRING("group", group),
		                               F_STRING("user", user), { 0 } };
	by_body(r, dialect, OP_CHMOD, fields);
}

void native_file_replace(struct request *r, void *dialect)
{
	static const struct field fields[] = { F_REQUIRED("path", path), F_REQUIRED("old", old), F_REQUIRED("new", replacement), F_STRING("user", user),
		                               { 0 } };
	by_body(r, dialect, OP_REPLACE, fields);
}
