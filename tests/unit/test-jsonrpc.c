/* Reading and writing of JSON-RPC messages. */
#include "wire/jsonrpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct jsonrpc m;
static struct err e;

static enum jsonrpc_kind read_text(const char *text)
{
	jsonrpc_done(&m);
	e = (struct err){ 0 };
	return jsonrpc_read(str_of(text), &m, &e);
}

static void calls(void **state)
{
	(void)state;
	assert_int_equal(read_text("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"a/b\",\"params\":{\"x\":1}}"), JSONRPC_REQUEST);
	assert_string_equal(m.method, "a/b");
	assert_int_equal(json_integer_value(m.id), 7);
	assert_int_equal(json_integer_value(json_object_get(m.params, "x")), 1);
	assert_int_equal(read_text("{\"jsonrpc\":\"2.0\",\"id\":\"k\",\"method\":\"m\"}"), JSONRPC_REQUEST);
	assert_string_equal(json_string_value(m.id), "k");
	assert_null(m.params);
	assert_int_equal(read_text("{\"jsonrpc\":\"2.0\",\"method\":\"m\"}"), JSONRPC_NOTIFICATION);
	assert_null(m.id);
	assert_int_equal(read_text("{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":null}"), JSONRPC_RESPONSE);
	assert_int_equal(read_text("{\"jsonrpc\":\"2.0\",\"id\":0,\"error\":{}}"), JSONRPC_RESPONSE);
	jsonrpc_done(&m);
}

/* Each with its number; the id comes back where it could be read. */
static void refused(void **state)
{
	static const struct {
		const char *text;
		int code;
		bool has_id;
	} cases[] = {
		{ "", JSONRPC_PARSE_ERROR, false },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"", JSONRPC_PARSE_ERROR, false },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"m\"}", JSONRPC_PARSE_ERROR, false },
		{ "{} {}", JSONRPC_PARSE_ERROR, false },
		{ "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}]", JSONRPC_INVALID_REQUEST, false },
		{ "\"m\"", JSONRPC_PARSE_ERROR, false }, /* only objects and arrays are texts to this parser */
		{ "{}", JSONRPC_INVALID_REQUEST, false },
		{ "{\"id\":1,\"method\":\"m\"}", JSONRPC_INVALID_REQUEST, true },
		{ "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"m\"}", JSONRPC_INVALID_REQUEST, true },
		{ "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}", JSONRPC_INVALID_REQUEST, false },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"m\"}", JSONRPC_INVALID_REQUEST, false },
		{ "{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"m\"}", JSONRPC_INVALID_REQUEST, false },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\"}", JSONRPC_INVALID_REQUEST, true },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":3}", JSONRPC_INVALID_REQUEST, true },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":[1]}", JSONRPC_INVALID_PARAMS, true },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1}", JSONRPC_INVALID_REQUEST, true },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{}}", JSONRPC_INVALID_REQUEST, true },
		{ "{\"jsonrpc\":\"2.0\",\"result\":1}", JSONRPC_INVALID_REQUEST, false },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (read_text(cases[i].text) != JSONRPC_BAD || m.code != cases[i].code || !m.id == cases[i].has_id || !e.message[0])
			fail_msg("%s: code %d, id %d, \"%s\"", cases[i].text, m.code, m.id != NULL, e.message);
	}
	jsonrpc_done(&m);
}

static void answers(void **state)
{
	auto_buf struct buf b;
	(void)state;
	buf_init(&b, 256);
	read_text("{\"jsonrpc\":\"2.0\",\"id\":\"a\\\"b\",\"method\":\"m\"}");
	jsonrpc_write_result(&b, m.id, json_pack("{s:s}", "t", "x\ny"));
	assert_string_equal(b.data, "{\"jsonrpc\":\"2.0\",\"id\":\"a\\\"b\",\"result\":{\"t\":\"x\\ny\"}}");
	buf_reset(&b);
	jsonrpc_write_error(&b, NULL, JSONRPC_PARSE_ERROR, "why", NULL);
	assert_string_equal(b.data, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"why\"}}");
	assert_false(b.overflow);
	char large[512] = { 0 };
	memset(large, 'x', sizeof large - 1);
	jsonrpc_write_result(&b, m.id, json_string(large));
	assert_true(b.overflow);
	jsonrpc_done(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(calls), cmocka_unit_test(refused), cmocka_unit_test(answers) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
