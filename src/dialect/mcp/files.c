/* Files: read, write, list. */
#include "dialect/mcp/internal.h"

#include <errno.h>

enum { READ_BYTES = 256 << 10, ENTRIES_MAX = 1000 };

/* --- read --- */

static void on_read_info(void *ctx, const struct file_info *f)
{
	struct tool_call *c = ctx;
	c->size = (json_int_t)f->size;
}

static void on_read_data(void *ctx, struct str bytes)
{
	struct tool_call *c = ctx;
	buf_add(&c->data, bytes.p, bytes.n); /* what was asked for is less than its bound */
}

/* By its first bytes: what the name says is the sandbox's word. */
static const char *picture_type(struct str s)
{
	static const struct {
		const char *type, *magic;
		size_t n;
	} kinds[] = {
		{ "image/png", "\x89PNG\r\n\x1a\n", 8 },
		{ "image/jpeg", "\xff\xd8\xff", 3 },
		{ "image/gif", "GIF8", 4 },
	};
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (s.n > kinds[i].n && memcmp(s.p, kinds[i].magic, kinds[i].n) == 0)
			return kinds[i].type;
	return s.n > 12 && memcmp(s.p, "RIFF", 4) == 0 && memcmp(s.p + 8, "WEBP", 4) == 0 ? "image/webp" : NULL;
}

static char *base64_of(struct str s)
{
	char *text = xmalloc(4 * ((s.n + 2) / 3) + 1);
	base64_encode(s.p, s.n, text);
	return text;
}

static void on_read_end(void *ctx, const struct err *e)
{
	struct tool_call *c = ctx;
	struct str bytes = { c->data.len ? c->data.data : "", c->data.len };
	c->op = NULL;
	if (e) {
		tool_fail(c, e);
		return;
	}
	json_int_t offset = arg_int(c, "offset", 0), end = offset + (json_int_t)bytes.n;
	bool whole = offset == 0 && end >= c->size, text = utf8_valid(bytes) && !memchr(bytes.p, 0, bytes.n);
	const char *picture = whole ? picture_type(bytes) : NULL;
	auto_free char *base64 = text ? NULL : base64_of(bytes);
	json_t *s = json_pack("{s:s, s:I, s:I, s:I, s:b}", "path", arg_text(c, "path"), "size", MAX(c->size, end), "offset", offset, "bytes",
	                      (json_int_t)bytes.n, "more", end < c->size);
	json_t *content;
	if (picture) {
		content = json_pack("[{s:s, s:s, s:s}]", "type", "image", "data", base64, "mimeType", picture);
	} else {
		json_t *value = text ? text_value(bytes) : json_string(base64);
		json_object_set(s, text ? "text" : "base64", value);
		content = json_pack("[{s:s, s:o}]", "type", "text", "text", value);
	}
	tool_content(c, content, s);
}

void tool_read(struct tool_call *c)
{
	static const struct op_events events = { .on_info = on_read_info, .on_data = on_read_data, .on_end = on_read_end };
	const struct op_spec spec = { .kind = OP_READ, .path = arg_text(c, "path"), .offset = (uint64_t)arg_int(c, "offset", 0),
		                      .length = (uint64_t)arg_int(c, "length", READ_BYTES) };
	tool_op(c, &spec, &events);
}

/* --- write --- */

static void pump(struct tool_call *c)
{
	while (c->op && c->sent < c->data.len) {
		size_t n = MIN(api_op_room(c->op), c->data.len - c->sent);
		if (n == 0)
			return;
		if (api_op_write(c->op, (struct str){ c->data.data + c->sent, n }) < 0)
			return; /* on_room comes again, or the end */
		c->sent += n;
	}
	if (c->op && !c->found) {
		c->found = true;
		api_op_eof(c->op);
	}
}

static void on_write_room(void *ctx)
{
	pump(ctx);
}

static void on_write_end(void *ctx, const struct err *e)
{
	struct tool_call *c = ctx;
	c->op = NULL;
	if (e) {
		tool_fail(c, e);
		return;
	}
	auto_free char *text = xasprintf("wrote %zu bytes to %s", c->data.len, arg_text(c, "path"));
	tool_result(c, text, json_pack("{s:s, s:I}", "path", arg_text(c, "path"), "bytes", (json_int_t)c->data.len));
}

static int take_content(struct tool_call *c, struct err *e)
{
	const char *text = arg_text(c, "text"), *base64 = arg_text(c, "base64");
	if (!text == !base64)
		return err_set(e, ERR_INVALID, EINVAL, "give either \"text\" or \"base64\"");
	if (text)
		return buf_add(&c->data, text, strlen(text));
	size_t n = strlen(base64);
	auto_free char *bytes = xmalloc(3 * (n / 4) + 3);
	ssize_t got = base64_decode((struct str){ base64, n }, bytes);
	if (got < 0)
		return err_set(e, ERR_INVALID, EINVAL, "argument \"base64\" is not base64 (RFC 4648, padded)");
	return buf_add(&c->data, bytes, (size_t)got);
}

void tool_write(struct tool_call *c)
{
	static const struct op_events events = { .on_open = on_write_room, .on_room = on_write_room, .on_end = on_write_end };
	struct err e = { 0 };
	bool executable = arg_flag(c, "executable");
	c->data.max = MCP_BODY_MAX;
	if (take_content(c, &e) < 0) {
		tool_fail(c, &e);
		return;
	}
	const struct op_spec spec = { .kind = OP_WRITE, .path = arg_text(c, "path"), .mode = executable ? 0755 : 0, .has_mode = executable,
		                      .flags = OP_F_PARENTS | (arg_flag(c, "append") ? OP_F_APPEND : 0U) };
	tool_op(c, &spec, &events);
}

/* --- list --- */

static void on_entry(void *ctx, const struct file_info *f)
{
	struct tool_call *c = ctx;
	char when[25];
	if (json_array_size(c->list) >= ENTRIES_MAX) {
		c->cut = true;
		return;
	}
	format_iso8601(f->mtime_ms > 0 ? (uint64_t)f->mtime_ms : 0, when);
	json_array_append_new(c->list, json_pack("{s:o, s:s, s:I, s:s}", "path", text_value(str_of(f->path)), "type", file_type_name(f->type), "size",
	                                         (json_int_t)f->size, "modified", when));
	buf_addf(&c->data, "%s%s\n", f->path, f->type == FILE_DIRECTORY ? "/" : "");
}

static void on_list_end(void *ctx, const struct err *e)
{
	struct tool_call *c = ctx;
	const char *path = arg_text(c, "path");
	c->op = NULL;
	if (e) {
		tool_fail(c, e);
		return;
	}
	if (c->cut)
		buf_addf(&c->data, "[only %d entries are shown: list a smaller part]\n", ENTRIES_MAX);
	else if (!c->data.len)
		buf_addz(&c->data, "[empty]\n");
	json_t *s = json_pack("{s:s, s:O, s:b}", "path", path ? path : ".", "entries", c->list, "cut", c->cut);
	tool_content(c, json_pack("[{s:s, s:o}]", "type", "text", "text", text_value(buf_str(&c->data))), s);
}

void tool_list(struct tool_call *c)
{
	static const struct op_events events = { .on_info = on_entry, .on_end = on_list_end };
	const char *path = arg_text(c, "path");
	c->list = json_array();
	tool_op(c, &(struct op_spec){ .kind = OP_LIST, .path = path ? path : ".", .depth = (uint32_t)arg_int(c, "depth", 1) }, &events);
}
