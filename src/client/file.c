#include "client/client.h"

#include <stdio.h>

#define FILE_MAX_DEFAULT ((size_t)1 << 30)

/* "/v1/sandboxes/S/files" + verb + "?path=..." + rest. A path that is not UTF-8 goes as base64. */
static char *files_path(const char *sandbox, const char *verb, const char *path, const char *rest)
{
	struct bytes b = { .max = 1 << 20 };
	size_t n = strlen(path);

	bytes_addz(&b, "/v1/sandboxes/");
	bytes_escape(&b, sandbox);
	bytes_addz(&b, "/files");
	bytes_addz(&b, verb);
	if (utf8_valid((struct str){ path, n })) {
		bytes_addz(&b, "?path=");
		bytes_escape(&b, path);
	} else {
		auto_free char *coded = malloc(4 * ((n + 2) / 3) + 1);
		if (coded)
			base64_encode(path, n, coded);
		else
			b.failed = true;
		bytes_addz(&b, "?path_base64=");
		if (coded)
			bytes_escape(&b, coded);
	}
	bytes_addz(&b, rest);
	if (b.failed)
		bytes_done(&b);
	return b.p;
}

static char *write_path(const char *sandbox, const char *path, uint32_t mode)
{
	char rest[40];

	snprintf(rest, sizeof rest, "&parents=true&mode=%04o", (mode ? mode : 0644u) & 07777u);
	return files_path(sandbox, "", path, rest);
}

int caisson_read_file(struct caisson *c, const char *sandbox, const char *path, size_t max, void **ret_bytes, size_t *ret_len,
                      struct caisson_error *e)
{
	auto_free char *p = files_path(sandbox, "", path, "");
	auto_exchange struct exchange x = { .method = "GET", .path = p, .reply_max = max ? max : FILE_MAX_DEFAULT };

	if (!p)
		return error_memory(e);
	if (exchange_perform(c, &x, e) < 0)
		return -1;
	*ret_len = x.reply.n;
	*ret_bytes = take_ptr(&x.reply.p);
	return 0;
}

int caisson_write_file(struct caisson *c, const char *sandbox, const char *path, uint32_t mode, const void *bytes, size_t n,
                       struct caisson_error *e)
{
	auto_free char *p = write_path(sandbox, path, mode);
	auto_exchange struct exchange x = {
		.method = "PUT", .path = p, .content_type = "application/octet-stream", .body = n ? bytes : "", .body_len = n,
	};

	return p ? exchange_perform(c, &x, e) : error_memory(e);
}

/* libcurl hands out 16 KiB at a time, which makes for many small writes to a file. */
struct gather {
	int (*sink)(void *ctx, const void *bytes, size_t n);
	void *ctx;
	char *bytes;
	size_t n;
};

enum { GATHER = 256 * 1024 };

static int pass_on(struct gather *g)
{
	size_t n = g->n;

	g->n = 0;
	return n ? g->sink(g->ctx, g->bytes, n) : 0;
}

static int gather(void *ctx, const void *bytes, size_t n)
{
	struct gather *g = ctx;

	if (g->n + n > GATHER && pass_on(g) != 0)
		return -1;
	if (n > GATHER)
		return g->sink(g->ctx, bytes, n);
	memcpy(g->bytes + g->n, bytes, n);
	g->n += n;
	return 0;
}

int caisson_download(struct caisson *c, const char *sandbox, const char *path, int (*sink)(void *ctx, const void *bytes, size_t n), void *ctx,
                     struct caisson_error *e)
{
	auto_free char *p = files_path(sandbox, "", path, "");
	struct gather g = { sink, ctx, malloc(GATHER), 0 };
	auto_free char *bytes = g.bytes;
	auto_exchange struct exchange x = { .method = "GET", .path = p, .sink = gather, .ctx = &g };

	if (!p || !bytes)
		return error_memory(e);
	int r = exchange_perform(c, &x, e);
	if (r == 0 && pass_on(&g) != 0)
		return error_set(e, CAISSON_ERR_STOPPED, "stopped by the caller");
	return r;
}

int caisson_upload(struct caisson *c, const char *sandbox, const char *path, uint32_t mode, ptrdiff_t (*source)(void *ctx, void *bytes, size_t n),
                   void *ctx, struct caisson_error *e)
{
	auto_free char *p = write_path(sandbox, path, mode);
	auto_exchange struct exchange x = {
		.method = "PUT", .path = p, .content_type = "application/octet-stream", .source = source, .ctx = ctx,
	};

	return p ? exchange_perform(c, &x, e) : error_memory(e);
}

int caisson_stat(struct caisson *c, const char *sandbox, const char *path, struct caisson_file **ret, struct caisson_error *e)
{
	auto_free char *p = files_path(sandbox, "/stat", path, "");
	auto_json json_t *o = NULL;

	if (json_exchange(c, "GET", p, NULL, &o, e) < 0)
		return -1;
	return file_decode(o, ret, e);
}

int caisson_list_files(struct caisson *c, const char *sandbox, const char *path, struct caisson_file_list **ret, struct caisson_error *e)
{
	auto_free char *p = files_path(sandbox, "/list", path, "");
	auto_exchange struct exchange x = { .method = "GET", .path = p, .reply_max = FILE_MAX_DEFAULT }; /* a large directory */

	if (!p)
		return error_memory(e);
	if (exchange_perform(c, &x, e) < 0)
		return -1;
	auto_json json_t *o = json_loadb(x.reply.p, x.reply.n, JSON_ALLOW_NUL, NULL);
	const json_t *items = json_object_get(o, "items");
	if (!json_is_array(items))
		return error_set(e, CAISSON_ERR_PROTOCOL, "the server's answer is not a list of files");
	struct caisson_file_list *l = calloc(1, sizeof *l);
	if (l)
		l->items = calloc(json_array_size(items) + 1, sizeof(struct caisson_file *));
	if (!l || !l->items) {
		free(l);
		return error_memory(e);
	}
	for (size_t i = 0; i < json_array_size(items); i++) {
		if (file_decode(json_array_get(items, i), &l->items[i], e) < 0) {
			caisson_file_list_free(l);
			return -1;
		}
		l->n = i + 1;
	}
	*ret = l;
	return 0;
}

int caisson_mkdir(struct caisson *c, const char *sandbox, const char *path, uint32_t mode, struct caisson_error *e)
{
	auto_free char *p = sandbox_path(sandbox, "/files/mkdir");
	char octal[8];

	snprintf(octal, sizeof octal, "%04o", (mode ? mode : 0755u) & 07777u);
	json_t *body = json_pack("{s:s,s:s,s:b}", "path", path, "mode", octal, "parents", 1);
	if (!body)
		return error_set(e, CAISSON_ERR_INVALID, "the directory's name is not UTF-8 (or memory is gone)");
	return json_exchange(c, "POST", p, body, NULL, e);
}

int caisson_remove(struct caisson *c, const char *sandbox, const char *path, bool recursive, struct caisson_error *e)
{
	auto_free char *p = files_path(sandbox, "", path, recursive ? "&recursive=true" : "");

	return json_exchange(c, "DELETE", p, NULL, NULL, e);
}
