#include "wire/jsonrpc.h"

#include <errno.h>

static enum jsonrpc_kind bad(struct jsonrpc *m, int code, struct err *e, const char *why)
{
	m->kind = JSONRPC_BAD;
	m->code = code;
	m->method = NULL;
	m->params = m->result = m->error = NULL;
	err_set(e, ERR_INVALID, EINVAL, "%s", why);
	return m->kind;
}

/* MCP forbids the null id that JSON-RPC allows, and fractions cannot be told back exactly. */
static bool id_usable(const json_t *id)
{
	return json_is_integer(id) || (json_is_string(id) && json_string_length(id) <= JSONRPC_ID_MAX);
}

static enum jsonrpc_kind read_response(struct jsonrpc *m, struct err *e)
{
	m->result = json_object_get(m->whole, "result");
	m->error = json_object_get(m->whole, "error");
	if (!m->id || !m->result == !m->error)
		return bad(m, JSONRPC_INVALID_REQUEST, e, "a message has a method, or an id with either a result or an error");
	return m->kind = JSONRPC_RESPONSE;
}

static enum jsonrpc_kind read_call(struct jsonrpc *m, const json_t *method, struct err *e)
{
	if (!json_is_string(method) || json_string_length(method) == 0 || json_string_length(method) > JSONRPC_METHOD_MAX)
		return bad(m, JSONRPC_INVALID_REQUEST, e, "\"method\" must be a string of 1 to 128 bytes");
	m->method = json_string_value(method);
	m->params = json_object_get(m->whole, "params");
	if (m->params && !json_is_object(m->params))
		return bad(m, JSONRPC_INVALID_PARAMS, e, "\"params\" must be an object");
	return m->kind = m->id ? JSONRPC_REQUEST : JSONRPC_NOTIFICATION;
}

enum jsonrpc_kind jsonrpc_read(struct str text, struct jsonrpc *ret, struct err *e)
{
	json_error_t why;

	*ret = (struct jsonrpc){ .kind = JSONRPC_BAD };
	ret->whole = json_loadb(text.p ? text.p : "", text.n, JSON_REJECT_DUPLICATES, &why);
	if (!ret->whole) {
		bad(ret, JSONRPC_PARSE_ERROR, e, "");
		err_set(e, ERR_INVALID, EINVAL, "not JSON: %s", str_quote(str_of(why.text), &(struct quoted){ 0 }));
		return JSONRPC_BAD;
	}
	if (json_is_array(ret->whole))
		return bad(ret, JSONRPC_INVALID_REQUEST, e, "batches are not taken: send one message at a time");
	if (!json_is_object(ret->whole))
		return bad(ret, JSONRPC_INVALID_REQUEST, e, "a message is an object");
	const json_t *id = json_object_get(ret->whole, "id"), *method = json_object_get(ret->whole, "method");
	if (id && id_usable(id))
		ret->id = id;
	if (!streq(json_string_value(json_object_get(ret->whole, "jsonrpc")), "2.0"))
		return bad(ret, JSONRPC_INVALID_REQUEST, e, "\"jsonrpc\" must be \"2.0\"");
	if (id && !ret->id)
		return bad(ret, JSONRPC_INVALID_REQUEST, e, "\"id\" must be an integer or a string of at most 256 bytes");
	return method ? read_call(ret, method, e) : read_response(ret, e);
}

void jsonrpc_done(struct jsonrpc *m)
{
	json_decref(m->whole);
	*m = (struct jsonrpc){ .kind = JSONRPC_BAD };
}

static int append(const char *p, size_t n, void *b)
{
	return buf_add(b, p, n);
}

/* `member` with its value, in the frame of an answer. json_dump writes escapes for what must not stand in a line of text. */
static void write_answer(struct buf *b, const json_t *id, const char *member, json_t *take)
{
	buf_addz(b, "{\"jsonrpc\":\"2.0\",\"id\":");
	if (id)
		json_dump_callback(id, append, b, JSON_COMPACT | JSON_ENCODE_ANY);
	else
		buf_addz(b, "null");
	buf_addf(b, ",\"%s\":", member);
	if (!take || json_dump_callback(take, append, b, JSON_COMPACT | JSON_ENCODE_ANY) < 0)
		b->overflow = true;
	buf_addc(b, '}');
	json_decref(take);
}

void jsonrpc_write_result(struct buf *b, const json_t *id, json_t *take_result)
{
	write_answer(b, id, "result", take_result);
}

void jsonrpc_write_error(struct buf *b, const json_t *id, int code, const char *message, json_t *take_data)
{
	json_t *o = json_object();
	json_object_set_new(o, "code", json_integer(code));
	json_object_set_new(o, "message", json_string(message));
	if (take_data)
		json_object_set_new(o, "data", take_data);
	write_answer(b, id, "error", o);
}
