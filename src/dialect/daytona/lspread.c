/* What language servers say: framing, and answers turned into those of this API. */
#include "dialect/daytona/lsp.h"
#include "wire/urlencode.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <strings.h>

/* --- framing --- */

static int length_of(struct str head, size_t *ret)
{
	static const char field[] = "content-length:";
	uint64_t n;
	bool found = false;
	while (head.n) {
		const char *nl = memchr(head.p, '\n', head.n);
		struct str line = { head.p, nl ? (size_t)(nl - head.p) : head.n };
		head.n -= nl ? line.n + 1 : line.n;
		head.p += nl ? line.n + 1 : line.n;
		if (line.n < sizeof(field) - 1 || strncasecmp(line.p, field, sizeof(field) - 1) != 0)
			continue;
		struct str v = { line.p + sizeof(field) - 1, line.n - (sizeof(field) - 1) };
		for (; v.n && (v.p[0] == ' ' || v.p[0] == '\t'); v.p++, v.n--)
			;
		for (; v.n && isspace((unsigned char)v.p[v.n - 1]); v.n--)
			;
		if (found || parse_u64(v, LSP_BODY_MAX, &n) < 0)
			return -EBADMSG;
		found = true;
		*ret = (size_t)n;
	}
	return found ? 0 : -EBADMSG;
}

int lsp_next(const struct buf *in, struct str *ret_body, size_t *ret_n)
{
	size_t skip = 0, n = 0;
	while (skip < in->len && (in->data[skip] == '\n' || in->data[skip] == '\r')) /* tsserver ends a body with a newline */
		skip++;
	const char *head = in->data + skip, *end = in->len > skip ? memmem(head, MIN(in->len - skip, LSP_HEAD_MAX), "\r\n\r\n", 4) : NULL;
	if (!end)
		return in->len - skip < LSP_HEAD_MAX ? 0 : -EBADMSG;
	size_t head_n = (size_t)(end - head);
	if (length_of((struct str){ head, head_n }, &n) < 0)
		return -EBADMSG;
	if (in->len - skip - head_n - 4 < n)
		return 0;
	*ret_body = (struct str){ end + 4, n };
	*ret_n = skip + head_n + 4 + n;
	return 1;
}

void lsp_frame(struct buf *out, enum lsp_kind kind, json_t *take)
{
	auto_free char *text = json_dumps(take, JSON_COMPACT);
	json_decref(take);
	if (!text)
		return;
	if (kind == LSP_TSSERVER)
		buf_addf(out, "%s\n", text);
	else
		buf_addf(out, "Content-Length: %zu\r\n\r\n%s", strlen(text), text);
}

/* --- names of files --- */

char *lsp_path(const char *uri, const char *base)
{
	if (strncmp(uri, "file://", 7) == 0)
		uri += 7;
	else if (strstr(uri, "://"))
		return NULL;
	return *uri == '/' ? xstrdup(uri) : xasprintf("%s/%s", streq(base, "/") ? "" : base, uri);
}

char *lsp_uri(const char *path)
{
	struct buf b;
	buf_init(&b, 3 * SPEC_PATH_MAX + 16);
	buf_addz(&b, "file://");
	url_encode(&b, str_of(path), "/");
	return buf_take(&b);
}

/* --- small parts --- */

static json_t *position(json_int_t line, json_int_t character)
{
	return json_pack("{s:I, s:I}", "line", MAX(line, 0), "character", MAX(character, 0));
}

/* Of the Language Server Protocol: from 0. Of tsserver: {line, offset} from 1. */
static json_t *position_of(enum lsp_kind kind, const json_t *o)
{
	json_int_t line = json_integer_value(json_object_get(o, "line"));
	json_int_t at = json_integer_value(json_object_get(o, kind == LSP_TSSERVER ? "offset" : "character"));
	return kind == LSP_TSSERVER ? position(line - 1, at - 1) : position(line, at);
}

static json_t *range_of(enum lsp_kind kind, const json_t *o)
{
	return json_pack("{s:o, s:o}", "start", position_of(kind, json_object_get(o, "start")), "end", position_of(kind, json_object_get(o, "end")));
}

static void put_text(json_t *o, const char *key, const json_t *v)
{
	if (json_is_string(v))
		json_object_set(o, key, (json_t *)(uintptr_t)v);
}

/* tsserver's words for kinds, as the numbers of the protocol: of a completion, of a symbol. */
static const struct kind {
	const char *word;
	int item, symbol;
} kinds[] = {
	{ "method", 2, 6 }, { "function", 3, 12 }, { "local function", 3, 12 }, { "constructor", 4, 9 }, { "property", 10, 7 }, { "getter", 10, 7 },
	{ "setter", 10, 7 }, { "accessor", 10, 7 }, { "var", 6, 13 }, { "local var", 6, 13 }, { "let", 6, 13 }, { "parameter", 6, 13 }, { "const", 21, 14 },
	{ "class", 7, 5 }, { "local class", 7, 5 }, { "interface", 8, 11 }, { "type", 7, 5 }, { "module", 9, 2 }, { "external module name", 9, 2 },
	{ "script", 17, 1 }, { "enum", 13, 10 }, { "enum member", 20, 22 }, { "keyword", 14, 13 }, { "primitive type", 14, 13 }, { "alias", 6, 13 },
	{ "type parameter", 25, 26 }, { "directory", 19, 4 }, { "string", 12, 15 }, { "index", 10, 7 }, { "call", 2, 6 }, { "construct", 4, 9 },
};

static int kind_of(const char *word, bool symbol)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (streq(kinds[i].word, word))
			return symbol ? kinds[i].symbol : kinds[i].item;
	return symbol ? 13 : 6;
}

/* --- completions --- */

static json_t *item_of(enum lsp_kind kind, const json_t *from)
{
	const json_t *label = json_object_get(from, kind == LSP_TSSERVER ? "name" : "label"), *text = json_object_get(from, "insertText");
	if (!json_is_string(label))
		return NULL;
	json_t *o = json_object();
	put_text(o, "label", label);
	put_text(o, "sortText", json_object_get(from, "sortText"));
	put_text(o, "filterText", json_object_get(from, "filterText"));
	put_text(o, "insertText", text ? text : json_object_get(json_object_get(from, "textEdit"), "newText"));
	if (kind == LSP_TSSERVER) {
		put(o, "kind", json_integer(kind_of(json_string_value(json_object_get(from, "kind")), false)));
		put_text(o, "detail", json_object_get(from, "kind"));
		return o;
	}
	const json_t *number = json_object_get(from, "kind"), *doc = json_object_get(from, "documentation");
	if (json_is_integer(number))
		put(o, "kind", json_integer(json_integer_value(number)));
	put_text(o, "detail", json_object_get(from, "detail"));
	if (json_is_object(doc))
		json_object_set(o, "documentation", (json_t *)(uintptr_t)doc);
	else if (json_is_string(doc))
		put(o, "documentation", json_pack("{s:s, s:O}", "kind", "plaintext", "value", doc));
	return o;
}

json_t *lsp_completions(enum lsp_kind kind, const json_t *result)
{
	const json_t *from = json_is_array(result) ? result : json_object_get(result, kind == LSP_TSSERVER ? "entries" : "items");
	json_t *items = json_array(), *v;
	bool cut = json_is_true(json_object_get(result, "isIncomplete"));
	size_t i;
	json_array_foreach (from, i, v) {
		json_t *item = item_of(kind, v);
		if (item && json_array_size(items) < LSP_ITEMS_MAX)
			json_array_append_new(items, item);
		else if (item) {
			json_decref(item);
			cut = true;
		}
	}
	return json_pack("{s:b, s:o}", "isIncomplete", cut, "items", items);
}

/* --- symbols --- */

static void add_symbol(json_t *to, int kind, const json_t *name, const char *uri, json_t *take_range)
{
	if (!json_is_string(name) || !uri || json_array_size(to) >= LSP_ITEMS_MAX)
		json_decref(take_range);
	else
		json_array_append_new(to, json_pack("{s:i, s:O, s:{s:o, s:o}}", "kind", kind, "name", name, "location", "uri", textz_json(uri), "range",
		                                    take_range));
}

/* A tree, walked with a list of its own: how deep it goes is the server's choice. */
static void add_tree(json_t *to, enum lsp_kind kind, const json_t *root, const char *uri)
{
	const json_t **open = NULL;
	size_t n = 0, room = 0;
	const char *below = kind == LSP_TSSERVER ? "childItems" : "children";
	for (const json_t *at = root; at; at = n ? open[--n] : NULL) {
		if (json_array_size(to) >= LSP_ITEMS_MAX)
			break;
		const json_t *children = json_object_get(at, below);
		if (kind == LSP_TSSERVER && at != root)
			add_symbol(to, kind_of(json_string_value(json_object_get(at, "kind")), true), json_object_get(at, "text"), uri,
			           range_of(kind, json_array_get(json_object_get(at, "spans"), 0)));
		else if (kind == LSP_SERVER)
			add_symbol(to, (int)json_integer_value(json_object_get(at, "kind")), json_object_get(at, "name"), uri,
			           range_of(kind, json_object_get(at, "range")));
		for (size_t i = json_array_size(children); i-- > 0;) {
			if (n == room)
				open = xreallocarray(open, room = room ? 2 * room : 64, sizeof(*open));
			open[n++] = json_array_get(children, i);
		}
	}
	free(open);
}

static bool is_within(const char *path, const char *dir)
{
	size_t n = strlen(dir);
	return strncmp(path, dir, n) == 0 && (path[n] == '/' || (n && dir[n - 1] == '/')) && !strstr(path + n, "/node_modules/");
}

json_t *lsp_symbols(enum lsp_kind kind, const json_t *result, const char *uri, const char *within)
{
	json_t *list = json_array(), *v;
	size_t i;
	if (kind == LSP_TSSERVER && json_is_object(result))
		add_tree(list, kind, result, uri);
	json_array_foreach (result, i, v) {
		const json_t *location = json_object_get(v, "location");
		if (kind == LSP_TSSERVER) {
			const char *file = json_string_value(json_object_get(v, "file"));
			auto_free char *its = file && (!within || is_within(file, within)) ? lsp_uri(file) : NULL;
			add_symbol(list, kind_of(json_string_value(json_object_get(v, "kind")), true), json_object_get(v, "name"), its, range_of(kind, v));
		} else if (location) {
			add_symbol(list, (int)json_integer_value(json_object_get(v, "kind")), json_object_get(v, "name"),
			           json_string_value(json_object_get(location, "uri")), range_of(kind, json_object_get(location, "range")));
		} else {
			add_tree(list, kind, v, uri);
		}
	}
	return list;
}
