/* The life of a tools/call, and what the tools share. */
#include "dialect/mcp/internal.h"
#include "wire/jsonrpc.h"

#include <errno.h>
#include <utlist.h>

const struct tool mcp_tools[] = {
	{ .name = "create_sandbox", .no_sandbox = true, .begin = tool_create },
	{ .name = "run", .begin = tool_run },
	{ .name = "run_code", .begin = tool_run_code },
	{ .name = "read_file", .begin = tool_read },
	{ .name = "write_file", .begin = tool_write },
	{ .name = "list_files", .begin = tool_list },
	{ .name = "expose_port", .begin = tool_expose },
	{ .name = "delete_sandbox", .no_sandbox = true, .begin = tool_delete },
	{ 0 },
};

/* --- arguments: schema_check has seen them --- */

const char *arg_text(const struct tool_call *c, const char *name)
{
	return json_string_value(json_object_get(c->args, name));
}

json_int_t arg_int(const struct tool_call *c, const char *name, json_int_t otherwise)
{
	const json_t *v = json_object_get(c->args, name);
	return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

bool arg_flag(const struct tool_call *c, const char *name)
{
	return json_is_true(json_object_get(c->args, name));
}

void arg_pairs(const struct tool_call *c, const char *name, struct pairs *to)
{
	const char *key;
	json_t *value;
	json_object_foreach (json_object_get(c->args, name), key, value)
		pairs_add(to, key, json_string_value(value));
}

json_t *text_value(struct str s)
{
	size_t n;
	auto_free char *repaired = NULL;
	if (!utf8_valid(s)) {
		repaired = utf8_repaired(s, &n);
		s = (struct str){ repaired, n };
	}
	return json_stringn_nocheck(s.n ? s.p : "", s.n);
}

/* --- the end of a call --- */

static void call_free(struct tool_call *c)
{
	api_forget(c->m->api, c);
	if (c->op)
		api_op_cancel(c->op);
	making_leave(c);
	code_done(&c->code);
	if (c->s)
		DL_DELETE(c->s->calls, c);
	json_decref(c->id);
	json_decref(c->args);
	json_decref(c->list);
	buf_done(&c->data);
	free(c->sandbox);
	free(c->run);
	free(c);
}

/* The client has left. A command goes on, as the protocol wants it: bounded by its time limit. */
static void call_gone(void *ctx)
{
	call_free(ctx);
}

static void answer(struct tool_call *c, json_t *take_result)
{
	struct request *r = c->r;
	auto_buf struct buf b;
	buf_init(&b, MCP_REPLY_MAX);
	jsonrpc_write_result(&b, c->id, take_result);
	if (b.overflow) {
		buf_reset(&b);
		jsonrpc_write_error(&b, c->id, JSONRPC_INTERNAL, "the answer is too long", NULL);
	}
	req_on_gone(r, NULL, NULL);
	call_free(c);
	req_reply(r, 200, NULL, 0, "application/json", buf_str(&b));
}

void tool_content(struct tool_call *c, json_t *take_content, json_t *take_structured)
{
	answer(c, json_pack("{s:o, s:o, s:b}", "content", take_content, "structuredContent", take_structured, "isError", 0));
}

void tool_result(struct tool_call *c, const char *text, json_t *take_structured)
{
	tool_content(c, json_pack("[{s:s, s:o}]", "type", "text", "text", text_value(str_of(text))), take_structured);
}

void tool_fail(struct tool_call *c, const struct err *e)
{
	auto_free char *text = xasprintf("%s: %s", err_kind_name(e->kind), e->message);
	answer(c, json_pack("{s:[{s:s, s:o}], s:b}", "content", "type", "text", "text", text_value(str_of(text)), "isError", 1));
}

void tool_op(struct tool_call *c, const struct op_spec *spec, const struct op_events *ev)
{
	struct err e = { 0 };
	c->op = api_op_open(c->m->api, &c->caller, c->sandbox, spec, ev, c, &e);
	if (!c->op)
		tool_fail(c, &e);
}

/* --- its beginning --- */

static void begin(struct tool_call *c)
{
	const char *given = arg_text(c, "sandbox");
	if (given)
		c->sandbox = xstrdup(given);
	else if (c->s->last)
		c->sandbox = xstrdup(c->s->last);
	if (c->sandbox || c->tool->no_sandbox) {
		c->tool->begin(c);
		return;
	}
	c->waits = true; /* calls of the same turn come at once: they share one */
	if (!c->s->making)
		make_for_session(c->s, c);
}

static const struct tool *find(const char *name)
{
	for (const struct tool *t = mcp_tools; t->name; t++)
		if (streq(t->name, name))
			return t;
	return NULL;
}

static const json_t *schema_of(const struct mcp *m, const char *name)
{
	json_t *t;
	size_t i;
	json_array_foreach (m->tools, i, t)
		if (streq(json_string_value(json_object_get(t, "name")), name))
			return json_object_get(t, "inputSchema");
	return NULL;
}

static void refuse_call(struct request *r, const json_t *id, const char *why)
{
	auto_buf struct buf b;
	buf_init(&b, MCP_REPLY_MAX);
	jsonrpc_write_error(&b, id, JSONRPC_INVALID_PARAMS, why, NULL);
	req_reply(r, 200, NULL, 0, "application/json", buf_str(&b));
}

void tool_start(struct mcp *m, struct request *r, struct session *s, const json_t *id, const json_t *params)
{
	const char *name = json_string_value(json_object_get(params, "name"));
	const json_t *args = json_object_get(params, "arguments");
	const struct tool *tool = name ? find(name) : NULL;
	struct err e = { 0 };
	if (!tool) {
		err_set(&e, ERR_INVALID, EINVAL, "there is no tool %s", str_quote(str_of(name ? name : ""), &(struct quoted){ 0 }));
		refuse_call(r, id, e.message);
		return;
	}
	if (args && !json_is_object(args) && !json_is_null(args)) {
		refuse_call(r, id, "\"arguments\" must be an object");
		return;
	}
	struct tool_call *c = xcalloc(1, sizeof *c);
	*c = (struct tool_call){ .m = m, .r = r, .s = s, .caller = *(const struct caller *)req_data(r), .tool = tool, .id = json_deep_copy(id),
		                 .args = json_is_object(args) ? json_deep_copy(args) : json_object() };
	buf_init(&c->data, MCP_REPLY_MAX);
	code_init(&c->code);
	DL_APPEND(s->calls, c);
	req_on_gone(r, call_gone, c);
	if (schema_check(schema_of(m, name), c->args, &e) < 0)
		tool_fail(c, &e);
	else
		begin(c);
}
