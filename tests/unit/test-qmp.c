#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "wire/qmp.h"

#define GREETING "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}, \"package\": \"Debian\"}, \"capabilities\": [\"oob\"]}}\r\n"

struct got {
	int calls, good;
	struct err e;
	char result[100];
};

static char events[500];

static void on_event(void *ctx, const char *name, const json_t *data)
{
	size_t n = strlen(events);

	(void)ctx;
	snprintf(events + n, sizeof events - n, "%s/%zu ", name, json_object_size(data));
}

static void on_done(void *ctx, const struct err *e, const json_t *result)
{
	struct got *g = ctx;

	g->calls++;
	assert_true(!e != !result);
	if (e) {
		g->e = *e;
		return;
	}
	g->good++;
	auto_free char *text = json_dumps(result, JSON_COMPACT | JSON_ENCODE_ANY);
	snprintf(g->result, sizeof g->result, "%s", text);
}

static int feed(struct qmp *q, const char *text)
{
	return qmp_feed(q, str_of(text));
}

/* Sends one whole command and gives back its text. */
static const char *sent(struct qmp *q, int *ret_fd)
{
	static char line[1000];
	struct str s;
	int fd;

	line[0] = '\0';
	if (!qmp_to_send(q, &s, &fd))
		return line;
	snprintf(line, sizeof line, "%.*s", (int)s.n, s.p);
	if (ret_fd)
		*ret_fd = fd;
	qmp_sent(q, s.n);
	return line;
}

static void open_up(struct qmp *q)
{
	events[0] = '\0';
	qmp_init(q, on_event, NULL);
	assert_string_equal(sent(q, NULL), "");
	assert_int_equal(feed(q, GREETING), 0);
	assert_int_equal(q->state, QMP_NEGOTIATING);
	assert_string_equal(sent(q, NULL), "{\"execute\":\"qmp_capabilities\",\"id\":1}\n");
	assert_int_equal(feed(q, "{\"return\": {}, \"id\": 1}\r\n"), 0);
	assert_int_equal(q->state, QMP_OPEN);
}

static void greeting_and_version(void **state)
{
	(void)state;
	struct qmp q;

	open_up(&q);
	assert_int_equal(q.version[0], 7);
	assert_int_equal(q.version[1], 2);
	assert_int_equal(q.version[2], 22);
	qmp_done(&q);
}

static void what_is_asked_early_waits(void **state)
{
	(void)state;
	struct qmp q;
	struct got g = { 0 };

	qmp_init(&q, on_event, NULL);
	qmp_call(&q, "query-status", NULL, -1, on_done, &g);
	assert_string_equal(sent(&q, NULL), "");
	assert_int_equal(feed(&q, GREETING), 0);
	assert_string_equal(sent(&q, NULL), "{\"execute\":\"qmp_capabilities\",\"id\":2}\n");
	assert_string_equal(sent(&q, NULL), "");
	assert_int_equal(feed(&q, "{\"id\": 2, \"return\": {}}\n"), 0);
	assert_string_equal(sent(&q, NULL), "{\"execute\":\"query-status\",\"id\":1}\n");
	assert_int_equal(feed(&q, "{\"id\": 1, \"return\": {\"status\": \"running\"}}\n"), 0);
	assert_int_equal(g.good, 1);
	assert_string_equal(g.result, "{\"status\":\"running\"}");
	qmp_done(&q);
}

static void answers_come_in_order_with_events_between(void **state)
{
	(void)state;
	struct qmp q;
	struct got a = { 0 }, b = { 0 };

	open_up(&q);
	qmp_call(&q, "migrate-incoming", json_pack("{s:s}", "uri", "fd:state"), -1, on_done, &a);
	qmp_call(&q, "cont", NULL, -1, on_done, &b);
	assert_string_equal(sent(&q, NULL), "{\"execute\":\"migrate-incoming\",\"id\":2,\"arguments\":{\"uri\":\"fd:state\"}}\n");
	assert_int_equal(feed(&q, "{\"timestamp\": {\"seconds\": 1}, \"event\": \"MIGRATION\", \"data\": {\"status\": \"setup\"}}\r\n"
				  "{\"return\": {}, \"id\": 2}\r\n{\"event\": \"RESUME\"}\r\n"),
			 0);
	assert_int_equal(a.good, 1);
	assert_string_equal(events, "MIGRATION/1 RESUME/0 ");
	assert_string_equal(sent(&q, NULL), "{\"execute\":\"cont\",\"id\":3}\n");
	assert_int_equal(feed(&q, "{\"id\": 3, \"error\": {\"class\": \"GenericError\", \"desc\": \"it\\u001b is\\u00e4\"}}\n"), 0);
	assert_int_equal(b.calls, 1);
	assert_int_equal(b.e.kind, ERR_UNAVAILABLE);
	assert_int_equal(b.e.errnum, EIO);
	assert_string_equal(b.e.message, "QEMU refuses: it? is??"); /* nothing of a terminal's */
	qmp_done(&q);
}

static void an_unknown_command_is_told_apart(void **state)
{
	(void)state;
	struct qmp q;
	struct got g = { 0 };

	open_up(&q);
	qmp_call(&q, "x-new", NULL, -1, on_done, &g);
	(void)sent(&q, NULL);
	assert_int_equal(feed(&q, "{\"id\":2,\"error\":{\"class\":\"CommandNotFound\",\"desc\":\"no\"}}\n"), 0);
	assert_int_equal(g.e.errnum, ENOENT);
	qmp_done(&q);
}

static void a_descriptor_travels_once(void **state)
{
	(void)state;
	struct qmp q;
	struct str s;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), got;

	open_up(&q);
	qmp_call(&q, "getfd", json_pack("{s:s}", "fdname", "state"), fd, NULL, NULL);
	assert_true(qmp_to_send(&q, &s, &got));
	assert_int_equal(got, fd);
	qmp_sent(&q, 0); /* the socket was full */
	assert_true(qmp_to_send(&q, &s, &got));
	assert_int_equal(got, fd);
	qmp_sent(&q, 5);
	assert_true(fcntl(fd, F_GETFD) < 0); /* closed */
	size_t left = s.n - 5;
	assert_true(qmp_to_send(&q, &s, &got));
	assert_int_equal(s.n, left);
	assert_true(got < 0);
	qmp_sent(&q, s.n);
	assert_false(qmp_to_send(&q, &s, &got));
	assert_int_equal(feed(&q, "{\"id\":2,\"return\":{}}\n"), 0);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	qmp_call(&q, "getfd", NULL, fd, NULL, NULL);
	qmp_done(&q);
	assert_true(fcntl(fd, F_GETFD) < 0); /* not sent, closed all the same */
}

static void call_again(void *ctx, const struct err *e, const json_t *result)
{
	struct qmp *q = ctx;

	(void)result;
	assert_non_null(e);
	qmp_call(q, "again", NULL, -1, NULL, NULL);
}

static void the_end_fails_every_call(void **state)
{
	(void)state;
	struct qmp q;
	struct got a = { 0 }, b = { 0 }, late = { 0 };
	struct err why;

	open_up(&q);
	qmp_call(&q, "one", NULL, -1, on_done, &a);
	(void)sent(&q, NULL);
	qmp_call(&q, "two", NULL, open("/dev/null", O_RDONLY | O_CLOEXEC), on_done, &b);
	qmp_call(&q, "three", NULL, -1, call_again, &q);
	(void)err_set(&why, ERR_UNAVAILABLE, EPIPE, "QEMU has ended");
	qmp_end(&q, &why);
	assert_int_equal(a.calls, 1);
	assert_int_equal(b.calls, 1);
	assert_int_equal(b.e.errnum, EPIPE);
	qmp_call(&q, "late", NULL, -1, on_done, &late);
	assert_int_equal(late.calls, 1);
	assert_string_equal(late.e.message, "QEMU has ended");
	qmp_end(&q, &why);
	assert_int_equal(a.calls, 1);
	assert_int_equal(feed(&q, "{}"), -EPROTO);
	qmp_done(&q);
}

static void refused_capabilities_end_it(void **state)
{
	(void)state;
	struct qmp q;
	struct got g = { 0 };

	qmp_init(&q, on_event, NULL);
	qmp_call(&q, "one", NULL, -1, on_done, &g);
	assert_int_equal(feed(&q, GREETING), 0);
	(void)sent(&q, NULL);
	assert_int_equal(feed(&q, "{\"id\":2,\"error\":{\"class\":\"GenericError\",\"desc\":\"no\"}}\n"), -EPROTO);
	assert_int_equal(q.state, QMP_ENDED);
	assert_int_equal(g.calls, 1);
	qmp_done(&q);
}

/* Each after the greeting and one command that is under way. */
static void violations_end_it(void **state)
{
	(void)state;
	static const char *const lines[] = {
		"nonsense\n", "[]\n", "{}\n", "{\"return\":{}}\n", "{\"return\":{},\"id\":3}\n", "{\"return\":{},\"id\":\"2\"}\n", "{\"return\":{},\"id\":1}\n",
		"{\"return\":{},\"error\":{},\"id\":2}\n", "{\"error\":1,\"id\":2}\n", "{\"event\":1}\n", "{\"event\":\"\"}\n", "{\"event\":\"X\",\"data\":3}\n",
		"{\"event\":\"X\",\"event\":\"Y\"}\n", "{\"return\":{},\"id\":2}{}\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		struct qmp q;
		struct got g = { 0 };
		open_up(&q);
		qmp_call(&q, "one", NULL, -1, on_done, &g);
		(void)sent(&q, NULL);
		assert_int_equal(feed(&q, lines[i]), -EPROTO);
		assert_int_equal(q.state, QMP_ENDED);
		assert_int_equal(g.calls, 1);
		assert_int_equal(g.e.errnum, EPROTO);
		qmp_done(&q);
	}
}

static void an_answer_before_the_question_is_a_violation(void **state)
{
	(void)state;
	struct qmp q;
	struct got g = { 0 };

	open_up(&q);
	qmp_call(&q, "one", NULL, -1, on_done, &g);
	assert_int_equal(feed(&q, "{\"return\":{},\"id\":2}\n"), -EPROTO);
	assert_int_equal(g.good, 0);
	assert_int_equal(g.calls, 1);
	qmp_done(&q);
}

static void broken_greetings(void **state)
{
	(void)state;
	static const char *const lines[] = { "{\"QMP\":{}}\n", "{\"return\":{},\"id\":1}\n",
					     "{\"QMP\":{\"version\":{\"qemu\":{\"major\":-7,\"minor\":2,\"micro\":0}}}}\n" };

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		struct qmp q;
		qmp_init(&q, on_event, NULL);
		assert_int_equal(feed(&q, lines[i]), -EPROTO);
		qmp_done(&q);
	}
}

static void a_line_has_a_bound(void **state)
{
	(void)state;
	struct qmp q;
	auto_free char *zeros = xmalloc(QMP_LINE_MAX);

	memset(zeros, '0', QMP_LINE_MAX);
	open_up(&q);
	assert_int_equal(qmp_feed(&q, (struct str){ zeros, QMP_LINE_MAX }), 0);
	assert_int_equal(feed(&q, "0"), -EPROTO);
	qmp_done(&q);
	memset(zeros, '[', QMP_LINE_MAX); /* depth: the parser's own bound */
	zeros[QMP_LINE_MAX - 1] = '\n';
	open_up(&q);
	assert_int_equal(qmp_feed(&q, (struct str){ zeros, QMP_LINE_MAX }), -EPROTO);
	qmp_done(&q);
}

static void a_command_has_a_bound(void **state)
{
	(void)state;
	struct qmp q;
	struct got g = { 0 };
	auto_free char *text = xmalloc(QMP_SEND_MAX + 1);

	memset(text, 'x', QMP_SEND_MAX);
	text[QMP_SEND_MAX] = '\0';
	open_up(&q);
	qmp_call(&q, "getfd", json_pack("{s:s}", "fdname", text), -1, on_done, &g);
	assert_int_equal(g.e.kind, ERR_INVALID);
	assert_string_equal(sent(&q, NULL), "");
	qmp_done(&q);
}

static void byte_by_byte(void **state)
{
	(void)state;
	struct qmp q;
	struct got g = { 0 };
	static const char text[] = "{\"event\":\"STOP\",\"data\":{}}\r\n\r\n{\"return\":[1],\"id\":2}\r\n";

	open_up(&q);
	qmp_call(&q, "stop", NULL, -1, on_done, &g);
	(void)sent(&q, NULL);
	for (const char *p = text; *p; p++)
		assert_int_equal(qmp_feed(&q, (struct str){ p, 1 }), 0);
	assert_string_equal(events, "STOP/0 ");
	assert_string_equal(g.result, "[1]");
	qmp_done(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greeting_and_version),
		cmocka_unit_test(what_is_asked_early_waits),
		cmocka_unit_test(answers_come_in_order_with_events_between),
		cmocka_unit_test(an_unknown_command_is_told_apart),
		cmocka_unit_test(a_descriptor_travels_once),
		cmocka_unit_test(the_end_fails_every_call),
		cmocka_unit_test(refused_capabilities_end_it),
		cmocka_unit_test(violations_end_it),
		cmocka_unit_test(an_answer_before_the_question_is_a_violation),
		cmocka_unit_test(broken_greetings),
		cmocka_unit_test(a_line_has_a_bound),
		cmocka_unit_test(a_command_has_a_bound),
		cmocka_unit_test(byte_by_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
