/* What a program that claims to be a language server writes. First byte: which protocol; the rest is its output. */
#include "dialect/daytona/lsp.h"

#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf in;
	struct str body;
	size_t n;
	int rc;
	if (size == 0)
		return 0;
	enum lsp_kind kind = data[0] & 1 ? LSP_SERVER : LSP_TSSERVER;
	buf_init(&in, size + 1);
	buf_add(&in, data + 1, size - 1);
	while ((rc = lsp_next(&in, &body, &n)) == 1) {
		assert(n <= in.len && body.n < n && body.p >= in.data && body.p + body.n == in.data + n);
		json_t *o = json_loadb(body.p, body.n, 0, NULL), *completions = lsp_completions(kind, o);
		json_t *symbols = lsp_symbols(kind, o, "file:///a", "/a"), *all = lsp_symbols(kind, o, "file:///a", NULL);
		assert(json_is_array(json_object_get(completions, "items")) && json_is_boolean(json_object_get(completions, "isIncomplete")));
		assert(json_is_array(symbols) && json_array_size(symbols) <= json_array_size(all) && json_array_size(all) <= LSP_ITEMS_MAX);
		json_decref(all);
		json_decref(symbols);
		json_decref(completions);
		json_decref(o);
		buf_consume(&in, n);
	}
	assert(rc == 0 || rc == -EBADMSG);
	buf_done(&in);
	return 0;
}
