/* Any text as a JSON-RPC message: what is read is of one kind with all that belongs to it, and an answer to it can be read back with
 * the same id. */
#include "wire/jsonrpc.h"

static void check_answer(const struct jsonrpc *m, bool failed)
{
	struct buf b;
	struct jsonrpc back;
	struct err e;

	buf_init(&b, 1 << 20);
	if (failed)
		jsonrpc_write_error(&b, m->id, JSONRPC_INTERNAL, "no", m->params ? json_deep_copy(m->params) : NULL);
	else
		jsonrpc_write_result(&b, m->id, m->params ? json_deep_copy(m->params) : json_object());
	if (b.overflow || memchr(b.data, '\n', b.len))
		abort();
	if (jsonrpc_read(buf_str(&b), &back, &e) != JSONRPC_RESPONSE || !json_equal(back.id, m->id) || !back.error != !failed)
		abort();
	jsonrpc_done(&back);
	buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jsonrpc m;
	struct err e = { 0 };

	if (size > 100000)
		return 0;
	switch (jsonrpc_read((struct str){ (const char *)data, size }, &m, &e)) {
	case JSONRPC_BAD:
		if (m.code == 0 || !e.message[0] || m.method)
			abort();
		break;
	case JSONRPC_REQUEST:
		if (!m.id || !m.method)
			abort();
		check_answer(&m, false);
		check_answer(&m, true);
		break;
	case JSONRPC_NOTIFICATION:
		if (m.id || !m.method)
			abort();
		break;
	case JSONRPC_RESPONSE:
		if (!m.id || !m.result == !m.error || m.method)
			abort();
		break;
	default:
		abort();
	}
	jsonrpc_done(&m);
	return 0;
}
