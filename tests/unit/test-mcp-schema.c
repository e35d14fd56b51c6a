/* Arguments against a schema: what is refused, and in which words. */
#include "dialect/mcp/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const char schema_text[] =
	"{\"properties\":{\"a\":{\"type\":\"string\",\"minLength\":1},\"b\":{\"type\":\"string\",\"enum\":[\"x\",\"y\"]},"
	"\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1099511627776},\"r\":{\"type\":\"number\",\"minimum\":0.5,\"maximum\":2},"
	"\"f\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}}},\"required\":[\"a\"]}";

static void arguments(void **state)
{
	static const struct {
		const char *args, *word; /* NULL: fine */
	} cases[] = {
		{ "{\"a\":\"t\"}", NULL },
		{ "{\"a\":\"t\",\"b\":\"y\",\"n\":1,\"r\":2,\"f\":false,\"o\":{\"k\":\"v\"}}", NULL },
		{ "{\"a\":\"t\",\"b\":null,\"n\":null}", NULL },
		{ "{}", "\"a\" is required" },
		{ "{\"a\":null}", "\"a\" is required" },
		{ "{\"a\":\"\"}", "must not be empty" },
		{ "{\"a\":1}", "must be a string" },
		{ "{\"a\":\"t\",\"b\":\"z\"}", "one of \"x\", \"y\"" },
		{ "{\"a\":\"t\",\"n\":0}", "1 to 1099511627776" },
		{ "{\"a\":\"t\",\"n\":1.5}", "an integer" },
		{ "{\"a\":\"t\",\"n\":\"1\"}", "an integer" },
		{ "{\"a\":\"t\",\"r\":0.4}", "0.5 to 2" },
		{ "{\"a\":\"t\",\"f\":\"true\"}", "true or false" },
		{ "{\"a\":\"t\",\"o\":{\"k\":1}}", "object of strings" },
		{ "{\"a\":\"t\",\"o\":[]}", "object of strings" },
		{ "{\"a\":\"t\",\"zz\\u001b\":1}", "zz\\x1b" },
	};
	json_t *schema = json_loads(schema_text, 0, NULL);
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		json_t *args = json_loads(cases[i].args, 0, NULL);
		struct err e = { 0 };
		int rc = schema_check(schema, args, &e);
		if (cases[i].word ? rc >= 0 || !strstr(e.message, cases[i].word) : rc < 0)
			fail_msg("%s: %d, %s", cases[i].args, rc, e.message);
		json_decref(args);
	}
	json_decref(schema);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(arguments) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
