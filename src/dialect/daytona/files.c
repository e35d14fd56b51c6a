/* Files inside a sandbox, all but their contents: one operation, one JSON answer. */
#include "dialect/daytona/internal.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

struct file_call {
	struct call call;
	struct api_op *op;
	char *path;   /* of a list */
	json_t *list; /* infos, matches, paths */
	int status;   /* of an answer without a body */
	/* replace: */
	char **files;
	char *pattern, *text;
	size_t at;
	json_t *(*encode)(struct file_call *x); /* NULL: `status` and no body */
};

static void file_drop(struct call *c)
{
	struct file_call *x = container_of(c, struct file_call, call);
	if (x->op)
		api_op_cancel(x->op);
	json_decref(x->list);
	texts_free(x->files);
	free(x->pattern);
	free(x->text);
	free(x->path);
}

static struct file_call *file_call_new(struct daytona *d, struct request *r)
{
	struct file_call *x = call_new(sizeof(*x), d, r, file_drop);
	x->list = json_array();
	x->status = 200;
	return x;
}

/* --- encoding --- */

static void mode_text(const struct file_info *f, char ret[static 11])
{
	static const char type[] = { [FILE_REGULAR] = '-', [FILE_DIRECTORY] = 'd', [FILE_SYMLINK] = 'l', [FILE_FIFO] = 'p',
		                     [FILE_SOCKET] = 's', [FILE_CHAR] = 'c', [FILE_BLOCK] = 'b' };
	static const char bits[] = "rwxrwxrwx";
	ret[0] = type[f->type];
	for (unsigned i = 0; i < 9; i++)
		ret[1 + i] = f->mode & (0400U >> i) ? bits[i] : '-';
	if (f->mode & S_ISUID)
		ret[3] = f->mode & S_IXUSR ? 's' : 'S';
	if (f->mode & S_ISGID)
		ret[6] = f->mode & S_IXGRP ? 's' : 'S';
	if (f->mode & S_ISVTX)
		ret[9] = f->mode & S_IXOTH ? 't' : 'T';
	ret[10] = '\0';
}

/* A path below a directory the client named, as it would name it. */
static char *join(const char *dir, const char *path)
{
	size_t n = strlen(dir);
	if (path[0] == '/' || n == 0 || streq(dir, "."))
		return xstrdup(path);
	return xasprintf("%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", path);
}

static json_t *info_json(const struct file_info *f, const char *dir)
{
	char mode[11], when[64] = "";
	time_t seconds = (time_t)(f->mtime_ms / 1000);
	struct tm tm;
	if (gmtime_r(&seconds, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S +0000 UTC", &tm);
	mode_text(f, mode);
	json_t *o = json_object();
	put(o, "name", textz_json(f->name));
	put(o, "size", json_integer((json_int_t)f->size));
	put(o, "mode", json_string(mode));
	put(o, "permissions", json_sprintf("%04o", f->mode & 07777));
	put(o, "modTime", json_string(when));
	put(o, "modifiedAt", time_json(f->mtime_ms > 0 ? (uint64_t)f->mtime_ms : 0));
	put(o, "isDir", json_boolean(f->is_dir));
	put(o, "owner", json_sprintf("%u", f->uid)); /* ids as text, as clients know them */
	put(o, "group", json_sprintf("%u", f->gid));
	auto_free char *path = dir ? join(dir, f->path) : xstrdup(f->path);
	put(o, "path", textz_json(path));
	return o;
}

/* --- what an operation tells --- */

/* One more entry; a list too long for one answer ends the operation, and the answer says so. */
static void append(struct file_call *x, json_t *take)
{
	if (json_array_size(x->list) < LIST_MAX) {
		json_array_append_new(x->list, take);
		return;
	}
	json_decref(take);
	struct err e;
	err_set(&e, ERR_TOO_LARGE, E2BIG, "more than %d entries: ask for a smaller part", LIST_MAX);
	api_op_cancel(take_ptr(&x->op));
	call_fail(&x->call, &e);
}

static void on_list_info(void *ctx, const struct file_info *info)
{
	struct file_call *x = ctx;
	append(x, info_json(info, x->path));
}

static void on_stat_info(void *ctx, const struct file_info *info)
{
	struct file_call *x = ctx;
	append(x, info_json(info, NULL));
}

static void on_find(void *ctx, const char *path, uint64_t line, struct str text)
{
	struct file_call *x = ctx;
	json_t *o = json_object();
	put(o, "file", textz_json(path));
	put(o, "line", json_integer((json_int_t)line));
	put(o, "content", text_json(text));
	append(x, o);
}

static void on_search(void *ctx, const char *path, uint64_t line, struct str text)
{
	(void)line;
	(void)text;
	struct file_call *x = ctx;
	append(x, textz_json(path));
}

static void on_end(void *ctx, const struct err *e)
{
	struct file_call *x = ctx;
	x->op = NULL;
	if (e)
		call_fail(&x->call, e);
	else if (x->encode)
		call_json(&x->call, 200, x->encode(x));
	else
		call_empty(&x->call, x->status);
}

static void start(struct file_call *x, const struct op_spec *spec, const struct op_events *events)
{
	struct err e = { 0 };
	x->op = api_op_open(x->call.d->api, &x->call.caller, x->call.ref, spec, events, x, &e);
	if (!x->op)
		call_fail(&x->call, &e);
}

static json_t *the_list(struct file_call *x)
{
	return json_incref(x->list);
}

static json_t *the_first(struct file_call *x)
{
	json_t *first = json_array_get(x->list, 0);
	return first ? json_incref(first) : json_object();
}

static json_t *the_files(struct file_call *x)
{
	return json_pack("{s:O}", "files", x->list);
}

/* --- the calls --- */

static const struct op_events plain_events = { .on_end = on_end };

static void handle_list(struct request *r, void *daytona)
{
	static const struct op_events events = { .on_info = on_list_info, .on_end = on_end };
	struct err e = { 0 };
	struct sandbox_view v;
	int64_t depth = 1;
	const char *path = req_query(r, "path"), *text = req_query(r, "depth");
	if (!toolbox_sandbox(daytona, r, &v))
		return;
	if (text && *text && parse_int("depth", text, 1, 100, &depth, &e) < 0) {
		fail(r, &e);
		return;
	}
	struct file_call *x = file_call_new(daytona, r);
	x->path = xstrdup(path && *path ? path : ".");
	x->encode = the_list;
	start(x, &(struct op_spec){ .kind = OP_LIST, .path = x->path, .depth = (uint32_t)depth }, &events);
}

/* Sandbox and required query parameters, or an answer and false. */
static bool ready(struct request *r, struct daytona *d, const char *a, const char **ret_a, const char *b, const char **ret_b)
{
	struct err e = { 0 };
	struct sandbox_view v;
	if (!toolbox_sandbox(d, r, &v))
		return false;
	if (query_required(r, a, ret_a, &e) == 0 && (!b || query_required(r, b, ret_b, &e) == 0))
		return true;
	fail(r, &e);
	return false;
}

static void handle_info(struct request *r, void *daytona)
{
	static const struct op_events events = { .on_info = on_stat_info, .on_end = on_end };
	const char *path;
	if (!ready(r, daytona, "path", &path, NULL, NULL))
		return;
	struct file_call *x = file_call_new(daytona, r);
	x->encode = the_first;
	start(x, &(struct op_spec){ .kind = OP_STAT, .path = path }, &events);
}

static void handle_folder(struct request *r, void *daytona)
{
	struct err e = { 0 };
	const char *path;
	uint32_t mode = 0755;
	if (!ready(r, daytona, "path", &path, NULL, NULL))
		return;
	if (query_mode(r, "mode", &mode, &e) < 0) {
		fail(r, &e);
		return;
	}
	struct file_call *x = file_call_new(daytona, r);
	x->status = 201;
	start(x, &(struct op_spec){ .kind = OP_MKDIR, .path = path, .mode = mode, .has_mode = true, .flags = OP_F_PARENTS }, &plain_events);
}

static void handle_delete(struct request *r, void *daytona)
{
	struct err e = { 0 };
	const char *path, *text = req_query(r, "recursive");
	bool recursive = false;
	if (!ready(r, daytona, "path", &path, NULL, NULL))
		return;
	if (text && *text && parse_bool("recursive", text, &recursive, &e) < 0) {
		fail(r, &e);
		return;
	}
	struct file_call *x = file_call_new(daytona, r);
	x->status = 204;
	start(x, &(struct op_spec){ .kind = OP_REMOVE, .path = path, .flags = recursive ? OP_F_RECURSIVE : 0 }, &plain_events);
}

static void handle_move(struct request *r, void *daytona)
{
	const char *from, *to;
	if (!ready(r, daytona, "source", &from, "destination", &to))
		return;
	struct file_call *x = file_call_new(daytona, r);
	start(x, &(struct op_spec){ .kind = OP_MOVE, .path = from, .path2 = to, .flags = OP_F_EXCLUSIVE }, &plain_events);
}

static void handle_permissions(struct request *r, void *daytona)
{
	struct err e = { 0 };
	const char *path, *owner = req_query(r, "owner"), *group = req_query(r, "group");
	uint32_t mode = 0;
	if (!ready(r, daytona, "path", &path, NULL, NULL))
		return;
	int given = query_mode(r, "mode", &mode, &e);
	owner = owner && *owner ? owner : NULL;
	group = group && *group ? group : NULL;
	if (given == 0 && !owner && !group)
		given = err_set(&e, ERR_INVALID, EINVAL, "give mode, owner or group");
	if (given < 0) {
		fail(r, &e);
		return;
	}
	struct file_call *x = file_call_new(daytona, r);
	start(x, &(struct op_spec){ .kind = OP_CHMOD, .path = path, .mode = mode, .has_mode = given > 0, .owner = owner, .group = group }, &plain_events);
}

static void handle_find(struct request *r, void *daytona)
{
	static const struct op_events events = { .on_match = on_find, .on_end = on_end };
	const char *path, *pattern;
	if (!ready(r, daytona, "path", &path, "pattern", &pattern))
		return;
	struct file_call *x = file_call_new(daytona, r);
	x->encode = the_list;
	start(x, &(struct op_spec){ .kind = OP_FIND, .path = path, .pattern = pattern }, &events);
}

static void handle_search(struct request *r, void *daytona)
{
	static const struct op_events events = { .on_match = on_search, .on_end = on_end };
	const char *path, *pattern;
	if (!ready(r, daytona, "path", &path, "pattern", &pattern))
		return;
	struct file_call *x = file_call_new(daytona, r);
	x->encode = the_files;
	start(x, &(struct op_spec){ .kind = OP_SEARCH, .path = path, .pattern = pattern }, &events);
}

/* --- replace: one file after another, each with its own result --- */

static void replace_next(struct file_call *x);

static void replaced(struct file_call *x, const struct err *e)
{
	json_t *o = json_object();
	put(o, "file", textz_json(x->files[x->at]));
	put(o, "success", json_boolean(!e));
	if (e)
		put(o, "error", textz_json(e->message));
	json_array_append_new(x->list, o);
	x->at++;
}

static void on_replaced(void *ctx, const struct err *e)
{
	struct file_call *x = ctx;
	x->op = NULL;
	replaced(x, e);
	replace_next(x);
}

static void replace_next(struct file_call *x)
{
	static const struct op_events events = { .on_end = on_replaced };
	while (x->files[x->at]) {
		struct err e = { 0 };
		const struct op_spec spec = { .kind = OP_REPLACE, .path = x->files[x->at], .pattern = x->pattern, .text = x->text };
		x->op = api_op_open(x->call.d->api, &x->call.caller, x->call.ref, &spec, &events, x, &e);
		if (x->op)
			return;
		replaced(x, &e);
	}
	call_json(&x->call, 200, json_incref(x->list));
}

static void handle_replace(struct request *r, void *daytona)
{
	struct err e = { 0 };
	struct sandbox_view v;
	const char *pattern = NULL, *text = NULL;
	char **files = NULL;
	if (!toolbox_sandbox(daytona, r, &v))
		return;
	json_t *body = body_object(r, &e);
	int rc = body ? want_texts(body, "files", &files, &e) : -EINVAL;
	if (rc >= 0)
		rc = want_text(body, "pattern", &pattern, &e);
	if (rc >= 0)
		rc = want_text(body, "newValue", &text, &e);
	if (rc >= 0 && (!files || !pattern || !*pattern || !text))
		rc = err_set(&e, ERR_INVALID, EINVAL, "files, pattern and newValue are required");
	if (rc < 0) {
		texts_free(files);
		fail(r, &e);
	} else {
		struct file_call *x = file_call_new(daytona, r);
		x->files = files;
		x->pattern = xstrdup(pattern);
		x->text = xstrdup(text);
		replace_next(x);
	}
	json_decref(body);
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/files", .handle = handle_list },
	{ .method = "GET", .pattern = "/files/", .handle = handle_list },
	{ .method = "DELETE", .pattern = "/files", .handle = handle_delete },
	{ .method = "DELETE", .pattern = "/files/", .handle = handle_delete },
	{ .method = "GET", .pattern = "/files/info", .handle = handle_info },
	{ .method = "POST", .pattern = "/files/folder", .handle = handle_folder },
	{ .method = "POST", .pattern = "/files/move", .handle = handle_move },
	{ .method = "POST", .pattern = "/files/permissions", .handle = handle_permissions },
	{ .method = "GET", .pattern = "/files/find", .handle = handle_find },
	{ .method = "GET", .pattern = "/files/search", .handle = handle_search },
	{ .method = "POST", .pattern = "/files/replace", .body = BODY_BUFFER, .handle = handle_replace },
};
const struct route_table file_routes = { routes, ARRAY_LEN(routes) };
