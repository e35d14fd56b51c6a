/* JSON-RPC 2.0, one message at a time, as MCP uses it: no batches, parameters are an object. Pure: text in, a message out and back.
 *
 * A message that is refused says why in the words and the number of the specification, and names the id it answers where that could
 * be read, so that the other side can tell which of its calls failed. */
#ifndef CAISSON_WIRE_JSONRPC_H
#define CAISSON_WIRE_JSONRPC_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>

enum {
	JSONRPC_PARSE_ERROR = -32700,
	JSONRPC_INVALID_REQUEST = -32600,
	JSONRPC_NO_METHOD = -32601,
	JSONRPC_INVALID_PARAMS = -32602,
	JSONRPC_INTERNAL = -32603,
};
enum { JSONRPC_METHOD_MAX = 128, JSONRPC_ID_MAX = 256 }; /* bytes */

enum jsonrpc_kind {
	JSONRPC_BAD,          /* see `code` and the error; `id` when it could be read, else NULL */
	JSONRPC_REQUEST,      /* wants an answer: id, method, params */
	JSONRPC_NOTIFICATION, /* method, params */
	JSONRPC_RESPONSE,     /* to a request of ours: id, and result or error */
};

struct jsonrpc {
	enum jsonrpc_kind kind;
	int code;           /* of BAD */
	const json_t *id;   /* a string or an integer; views into `whole` from here on */
	const char *method;
	const json_t *params; /* an object; NULL when there are none */
	const json_t *result, *error;
	json_t *whole;      /* private */
};

/* Returns the kind. e is filled for BAD only. Always followed by jsonrpc_done. */
enum jsonrpc_kind jsonrpc_read(struct str text, struct jsonrpc *ret, struct err *e);
void jsonrpc_done(struct jsonrpc *m);

/* Append one whole message, without a newline in it. id NULL stands for null. Overflow is looked at in the buffer. */
void jsonrpc_write_result(struct buf *b, const json_t *id, json_t *take_result);
void jsonrpc_write_error(struct buf *b, const json_t *id, int code, const char *message, json_t *take_data /* or NULL */);

#endif
