/* What language servers say, turned into what this API says; and the calls where no server runs. */
#include "dialect/daytona/lsp.h" /* before cmocka.h, which has a macro named fail */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daytona-server.h"

static int next(const char *bytes, struct str *body, size_t *n)
{
	struct buf b;
	buf_init(&b, 100000);
	buf_addz(&b, bytes);
	int rc = lsp_next(&b, body, n);
	if (rc == 1) /* offsets only: the buffer goes */
		body->p = bytes + (body->p - b.data);
	buf_done(&b);
	return rc;
}

static void test_framing(void **state)
{
	(void)state;
	struct str body;
	size_t n;
	assert_int_equal(next("Content-Length: 2\r\n\r\n{}rest", &body, &n), 1);
	assert_true(str_eqz(body, "{}"));
	assert_int_equal(n, 23);
	assert_int_equal(next("\n\r\ncontent-LENGTH:  3 \r\nContent-Type: a; b\r\n\r\nabc", &body, &n), 1);
	assert_true(str_eqz(body, "abc"));
	static const char *const parts[] = { "", "\n", "Content-", "Content-Length: 5\r\n", "Content-Length: 5\r\n\r\n", "Content-Length: 5\r\n\r\nabcd" };
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		assert_int_equal(next(parts[i], &body, &n), 0);
	static const char *const bad[] = { "\r\n\r\n", "Length: 2\r\n\r\n{}", "Content-Length: -2\r\n\r\n{}", "Content-Length: 2x\r\n\r\n{}", "Content-Length:\r\n\r\n{}",
		                           "Content-Length: 99999999\r\n\r\n", "Content-Length: 18446744073709551617\r\n\r\n",
		                           "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" };
	for (size_t i = 1; i < ARRAY_LEN(bad); i++)
		assert_int_equal(next(bad[i], &body, &n), -EBADMSG);
	auto_free char *junk = xmalloc(LSP_HEAD_MAX + 2);
	memset(junk, 'x', LSP_HEAD_MAX + 1);
	junk[LSP_HEAD_MAX + 1] = '\0';
	assert_int_equal(next(junk, &body, &n), -EBADMSG);
}

static void test_paths(void **state)
{
	(void)state;
	static const char *const cases[][3] = {
		{ "file:///a/b", "/home", "/a/b" }, { "file://a/b c", "/home", "/home/a/b c" }, { "a", "/", "/a" }, { "/x", "/home", "/x" }, { "http://a/b", "/home", NULL },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_free char *path = lsp_path(cases[i][0], cases[i][1]);
		assert_true(streq(path, cases[i][2]));
	}
	auto_free char *uri = lsp_uri("/a b/\xc3\xa9%#?.py");
	assert_string_equal(uri, "file:///a%20b/%C3%A9%25%23%3F.py");
}

static void becomes(json_t *take, const char *expected)
{
	auto_free char *text = json_dumps(take, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(take);
	assert_string_equal(text, expected);
}

static json_t *parsed(const char *text)
{
	static json_t *last_one;
	json_decref(last_one);
	return last_one = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
}

#define EMPTY "{\"isIncomplete\":false,\"items\":[]}"
#define RANGE "{\"start\":{\"line\":0,\"character\":4},\"end\":{\"line\":2,\"character\":1}}"
#define SORTED "{\"end\":{\"character\":1,\"line\":2},\"start\":{\"character\":4,\"line\":0}}"
#define SPAN "{\"start\":{\"line\":1,\"offset\":5},\"end\":{\"line\":3,\"offset\":2}}"

static void test_answers(void **state)
{
	(void)state;
	static const char *const nothing[] = { NULL, "null", "1", "\"x\"", "{}", "[]", "[null,1,{}]" };
	for (size_t i = 0; i < ARRAY_LEN(nothing); i++)
		for (int kind = 0; kind < 2; kind++) {
			becomes(lsp_completions((enum lsp_kind)kind, parsed(nothing[i])), EMPTY);
			becomes(lsp_symbols((enum lsp_kind)kind, parsed(nothing[i]), "file:///a", NULL), "[]");
		}
	becomes(lsp_completions(LSP_SERVER, parsed("{\"isIncomplete\":true,\"items\":[{\"label\":\"a\",\"kind\":3,\"detail\":\"d\",\"documentation\":\"w\",\"data\":1,"
	                                           "\"textEdit\":{\"newText\":\"a()\"}},{\"label\":5},{\"label\":\"b\",\"documentation\":{\"kind\":\"markdown\",\"value\":\"v\"}}]}")),
	        "{\"isIncomplete\":true,\"items\":[{\"detail\":\"d\",\"documentation\":{\"kind\":\"plaintext\",\"value\":\"w\"},\"insertText\":\"a()\",\"kind\":3,"
	        "\"label\":\"a\"},{\"documentation\":{\"kind\":\"markdown\",\"value\":\"v\"},\"label\":\"b\"}]}");
	becomes(lsp_completions(LSP_TSSERVER, parsed("{\"entries\":[{\"name\":\"move\",\"kind\":\"method\",\"sortText\":\"1\"},{\"name\":\"q\",\"kind\":\"?\"}]}")),
	        "{\"isIncomplete\":false,\"items\":[{\"detail\":\"method\",\"kind\":2,\"label\":\"move\",\"sortText\":\"1\"},{\"detail\":\"?\",\"kind\":6,\"label\":\"q\"}]}");
	/* A tree, and a flat list. */
	becomes(lsp_symbols(LSP_SERVER, parsed("[{\"name\":\"A\",\"kind\":5,\"range\":" RANGE ",\"children\":[{\"name\":\"m\",\"kind\":6,\"range\":" RANGE "}]},"
	                                       "{\"name\":\"v\",\"kind\":13,\"location\":{\"uri\":\"file:///b\",\"range\":" RANGE "}}]"), "file:///a", NULL),
	        "[{\"kind\":5,\"location\":{\"range\":" SORTED ",\"uri\":\"file:///a\"},\"name\":\"A\"},{\"kind\":6,\"location\":{\"range\":" SORTED
	        ",\"uri\":\"file:///a\"},\"name\":\"m\"},{\"kind\":13,\"location\":{\"range\":" SORTED ",\"uri\":\"file:///b\"},\"name\":\"v\"}]");
	becomes(lsp_symbols(LSP_TSSERVER, parsed("{\"text\":\"<global>\",\"kind\":\"script\",\"childItems\":[{\"text\":\"S\",\"kind\":\"class\",\"spans\":[" SPAN "]}]}"),
	                    "file:///a", NULL),
	        "[{\"kind\":5,\"location\":{\"range\":" SORTED ",\"uri\":\"file:///a\"},\"name\":\"S\"}]");
	static const char found[] = "[{\"name\":\"f\",\"kind\":\"function\",\"file\":\"/p/a b.ts\",\"start\":{\"line\":1,\"offset\":5},\"end\":{\"line\":3,\"offset\":2}},"
				    "{\"name\":\"g\",\"kind\":\"function\",\"file\":\"/pp/a.ts\"},{\"name\":\"h\",\"kind\":\"const\",\"file\":\"/p/node_modules/x.ts\"}]";
	becomes(lsp_symbols(LSP_TSSERVER, parsed(found), NULL, "/p"), "[{\"kind\":12,\"location\":{\"range\":" SORTED ",\"uri\":\"file:///p/a%20b.ts\"},\"name\":\"f\"}]");
	parsed(NULL);
}

static void test_not_started(void **state)
{
	(void)state;
	static const char target[] = "{\"languageId\":\"python\",\"pathToProject\":\"p\",\"uri\":\"file:///p/a.py\",\"position\":{\"line\":1,\"character\":2}}";
	make_box();
	assert_int_equal(in_box("POST", "/lsp/completions", target), 400);
	assert_string_equal(text("code"), "LSP_SERVER_NOT_INITIALIZED");
	assert_string_equal(text("source"), "DAYTONA_DAEMON");
	assert_int_equal(number("statusCode"), 400);
	assert_int_equal(in_box("POST", "/lsp/did-open", target), 400);
	assert_int_equal(in_box("POST", "/lsp/stop", target), 400);
	assert_string_equal(text("code"), "LSP_SERVER_NOT_INITIALIZED");
	assert_int_equal(in_box("GET", "/lsp/workspacesymbols?query=a&languageId=python&pathToProject=p", NULL), 400);
	static const char *const bad[] = { "{}", "[]", "{\"languageId\":\"cobol\",\"pathToProject\":\"p\"}", "{\"languageId\":\"python\"}", "{\"languageId\":\"python\",\"pathToProject\":\"\"}",
		                           "{\"languageId\":1,\"pathToProject\":\"p\"}" };
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(in_box("POST", "/lsp/start", bad[i]), 400);
		assert_string_equal(text("code"), "BAD_REQUEST");
	}
	assert_int_equal(in_box("POST", "/lsp/completions", "{\"languageId\":\"python\",\"pathToProject\":\"p\",\"uri\":\"u\",\"position\":{\"line\":-1}}"), 400);
	assert_int_equal(in_box("GET", "/lsp/document-symbols?languageId=python&pathToProject=p", NULL), 400);
	assert_string_equal(text("code"), "BAD_REQUEST");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_framing),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_answers),
		cmocka_unit_test_setup_teardown(test_not_started, setup, teardown),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	buf_done(&last.head);
	buf_done(&last.body);
	json_decref(last.json);
	return rc;
}
