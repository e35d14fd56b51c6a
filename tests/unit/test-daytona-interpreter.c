/* The interpreter's calls of the Daytona dialect, over an api in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "daytona-server.h"
#include "daytona-socket.h"

static void test_contexts(void **state)
{
	(void)state;
	make_box();
	assert_int_equal(in_box("GET", "/process/interpreter/context", NULL), 200);
	assert_int_equal(json_array_size(json_object_get(last.json, "contexts")), 0); /* the default one is not shown */
	assert_int_equal(in_box("POST", "/process/interpreter/context", "{\"cwd\":\"/tmp\"}"), 200);
	char path[128];
	snprintf(path, sizeof(path), "/process/interpreter/context/%s", text("id"));
	assert_string_equal(text("cwd"), "/tmp");
	assert_string_equal(text("language"), "python");
	assert_string_equal(text("createdAt"), "1970-01-01T00:00:01.000Z");
	assert_true(json_is_true(json_object_get(last.json, "active")));
	assert_int_equal(in_box("POST", "/process/interpreter/context", NULL), 200); /* some clients send no body */
	assert_int_equal(in_box("GET", "/process/interpreter/context", NULL), 200);
	assert_int_equal(json_array_size(json_object_get(last.json, "contexts")), 2);
	assert_int_equal(in_box("DELETE", path, NULL), 200);
	assert_int_equal(in_box("DELETE", path, NULL), 404);
	assert_int_equal(number("statusCode"), 404);
	assert_int_equal(in_box("DELETE", "/process/interpreter/context/default", NULL), 400);
	assert_int_equal(in_box("POST", "/process/interpreter/context", "{\"cwd\":1}"), 400);
	assert_int_equal(in_box("POST", "/process/interpreter/context", "[]"), 400);
	assert_int_equal(in_box("POST", "/process/interpreter/context", "{\"language\":\"cobol\"}"), 422);
	assert_int_equal(in_box("GET", "/process/interpreter/execute", NULL), 426);
}

/* Sends the first message and returns all that comes back, one message a line, and the close frame's code and reason. */
static int play(const char *first, struct buf *all, char ret_reason[static 130])
{
	char path[256];
	snprintf(path, sizeof(path), "/daytona%s/process/interpreter/execute", tool);
	int fd = ws_open(path, KEY_HEADER), op, code = -1;
	assert_int_equal(last.status, 101);
	ws_send(fd, 1, first);
	buf_done(all);
	buf_init(all, 1 << 20);
	while ((op = ws_next(fd, all)) == 1)
		buf_addc(all, '\n');
	assert_int_equal(op, 8);
	char *end = all->len ? memrchr(all->data, '\n', all->len) : NULL;
	size_t at = end ? (size_t)(end + 1 - all->data) : 0;
	assert_true(all->len - at >= 2);
	code = (unsigned char)all->data[at] << 8 | (unsigned char)all->data[at + 1];
	snprintf(ret_reason, 130, "%.*s", (int)(all->len - at - 2), all->data + at + 2);
	all->data[at] = '\0';
	close(fd);
	return code;
}

#define END "{\"type\":\"control\",\"text\":\"completed\",\"name\":\"\",\"value\":\"\",\"traceback\":\"\"}\n"

static void test_code(void **state)
{
	(void)state;
	struct buf b = { 0 };
	char reason[130];
	buf_init(&b, 1024);
	make_box();
	assert_int_equal(play("{\"code\":\"out hi\\n\"}", &b, reason), 1000);
	assert_string_equal(b.data, "{\"type\":\"stdout\",\"text\":\"hi\\n\",\"name\":\"\",\"value\":\"\",\"traceback\":\"\"}\n" END);
	assert_int_equal(play("{\"code\":\"err e\",\"contextId\":\"\",\"envs\":{\"A\":\"1\"},\"timeout\":5}", &b, reason), 1000);
	assert_string_equal(b.data, "{\"type\":\"stderr\",\"text\":\"e\",\"name\":\"\",\"value\":\"\",\"traceback\":\"\"}\n" END);
	assert_int_equal(play("{\"code\":\"fail\",\"timeout\":null}", &b, reason), 1000);
	assert_string_equal(b.data, "{\"type\":\"error\",\"text\":\"\",\"name\":\"ValueError\",\"value\":\"b\\u0000d\",\"traceback\":\"Traceback (most recent call "
	                            "last):\\n\"}\n" END);
	assert_int_equal(play("{\"code\":\"result\"}", &b, reason), 1000);
	assert_string_equal(b.data, "{\"type\":\"result\",\"main\":true,\"data\":{\"image/png\":\"iVBO\"}}\n" END);
	assert_int_equal(play("{\"code\":\"late\"}", &b, reason), 4008);
	assert_string_equal(b.data, "");
	assert_int_equal(play("{\"code\":\"die\"}", &b, reason), 1011);
	assert_string_equal(reason, "the kernel was ended by signal 9");
	buf_done(&b);
}

static void test_bad_code(void **state)
{
	(void)state;
	struct buf b = { 0 };
	char reason[130];
	buf_init(&b, 1024);
	make_box();
	assert_int_equal(play("no json", &b, reason), 1002);
	assert_int_equal(play("[]", &b, reason), 1002);
	assert_int_equal(play("{}", &b, reason), 1008);
	assert_string_equal(reason, "code is required");
	assert_int_equal(play("{\"code\":1}", &b, reason), 1008);
	assert_int_equal(play("{\"code\":\"out x\",\"timeout\":-1}", &b, reason), 1008);
	assert_int_equal(play("{\"code\":\"out x\",\"envs\":{\"A\":1}}", &b, reason), 1008);
	assert_int_equal(play("{\"code\":\"out x\",\"contextId\":\"nobody\"}", &b, reason), 1008);
	assert_string_equal(reason, "no interpreter 'nobody' is there");
	/* A reason is cut to what a close frame holds, on a character's edge. */
	auto_buf struct buf long_id;
	buf_init(&long_id, 400);
	buf_addz(&long_id, "{\"code\":\"out x\",\"contextId\":\"");
	for (int i = 0; i < 60; i++)
		buf_addz(&long_id, "\xc3\xa9");
	buf_addz(&long_id, "\"}");
	assert_int_equal(play(long_id.data, &b, reason), 1008);
	assert_true(strlen(reason) <= 123 && strlen(reason) >= 121);
	assert_true(utf8_valid(str_of(reason)));
	buf_done(&b);
}

/* The client leaves while its code runs: the execution is given back (teardown counts). */
static void test_leaving(void **state)
{
	(void)state;
	char path[256];
	make_box();
	snprintf(path, sizeof(path), "/daytona%s/process/interpreter/execute", tool);
	int fd = ws_open(path, KEY_HEADER);
	ws_send(fd, 1, "{\"code\":\"slow\"}");
	usleep(50000);
	close(fd);
	fd = ws_open(path, KEY_HEADER); /* and one that never says what it wants */
	close(fd);
	assert_int_equal(in_box("GET", "/process/interpreter/context", NULL), 200);
	usleep(400000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_contexts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_code, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_code, setup, teardown),
		cmocka_unit_test_setup_teardown(test_leaving, setup, teardown),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	buf_done(&last.head);
	buf_done(&last.body);
	json_decref(last.json);
	return rc;
}
