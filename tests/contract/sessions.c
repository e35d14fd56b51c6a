#include "suite.h"

#include <stdio.h>

static struct drive *d = &suite.d;

static void things_persist(void **state)
{
	(void)state;
	struct err e;
	assert_true(drive_session_open(d, "s", "/tmp", &e));
	assert_true(got_is(drive_in(d, "s", "pwd"), 0, "/tmp\n", ""));
	assert_true(got_is(drive_in(d, "s", "cd /usr; x='a  b'; f() { echo \"f $1\"; }; export Y=7"), 0, "", ""));
	assert_true(got_is(drive_in(d, "s", "pwd; echo \"$x\"; f 3; sh -c 'echo $Y'"), 0, "/usr\na  b\nf 3\n7\n", ""));
	assert_true(got_is(drive_in(d, "s", "echo o; echo 'e' >&2; false"), 1, "o\n", "e\n"));
	assert_true(got_is(drive_in(d, "s", "printf \"it's\\n\"; echo 'two\nlines'\ncat"), 0, "it's\ntwo\nlines\n", ""));
	assert_true(got_is(drive_in(d, "s", ""), 0, "", ""));
	assert_true(got_is(drive_in(d, "s", "# only a comment"), 0, "", ""));
	assert_false(drive_session_open(d, "s", NULL, &e));
	assert_int_equal(e.kind, ERR_CONFLICT);
	assert_true(drive_session_close(d, "s", &e));
	assert_false(drive_session_close(d, "s", &e));
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	assert_false(drive_session_open(d, "s", "/no/such", &e));
	assert_int_equal(e.kind, ERR_INVALID);
}

static void nothing_of_ours_is_inherited(void **state)
{
	(void)state;
	struct err e;
	assert_true(drive_session_open(d, "fds", NULL, &e));
	assert_true(got_is(drive_in(d, "fds", "sh -c 'ls /proc/$$/fd' | tr '\\n' ' '"), 0, "0 1 2 ", ""));
	assert_true(drive_session_close(d, "fds", &e));
}

static void a_syntax_error_is_survived(void **state)
{
	(void)state;
	struct err e;
	assert_true(drive_session_open(d, "syn", NULL, &e));
	struct got_run *r = drive_in(d, "syn", "if then");
	assert_non_null(r);
	assert_int_equal(r->end.exit_code, 2);
	assert_true(r->out[1].len > 0);
	r = drive_in(d, "syn", "echo 'never closed");
	assert_non_null(r);
	assert_true(r->end.exit_code != 0);
	assert_true(got_is(drive_in(d, "syn", "no_such_command_"), 127, "", NULL));
	assert_true(got_is(drive_in(d, "syn", "echo alive"), 0, "alive\n", ""));
	assert_true(drive_session_close(d, "syn", &e));
}

static void exit_ends_it(void **state)
{
	(void)state;
	struct err e;
	assert_true(drive_session_open(d, "ex", NULL, &e));
	d->session_ended = false;
	const char *first[] = { "echo bye; exit 9", NULL }, *second[] = { "echo never", NULL };
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = first, .session = "ex" });
	struct got_run *queued = drive_start(d, &(struct link_run_spec){ .argv = second, .session = "ex" });
	assert_true(drive_until(d, &r->ended));
	assert_true(got_is(r, 9, "bye\n", ""));
	assert_true(r->end.session_ended);
	assert_true(drive_until(d, &queued->ended));
	assert_true(queued->end.failed);
	assert_non_null(strstr(queued->end.message, "status 9"));
	assert_true(drive_until(d, &d->session_ended));
	assert_string_equal(d->session, "ex");
	assert_int_equal(d->session_code, 9);
	r = drive_in(d, "ex", "echo");
	assert_true(r->end.failed);
	assert_true(drive_session_close(d, "ex", &e));
}

static void queue_keeps_order(void **state)
{
	(void)state;
	struct err e;
	struct got_run *r[20];
	assert_true(drive_session_open(d, "q", NULL, &e));
	for (int i = 0; i < 20; i++) {
		char text[100];
		snprintf(text, sizeof text, "n=$((${n:-0}+1)); echo $n; sleep 0.01; [ $n = %d ]", i + 1);
		const char *argv[] = { text, NULL };
		r[i] = drive_start(d, &(struct link_run_spec){ .argv = argv, .session = "q" });
	}
	for (int i = 0; i < 20; i++) {
		char want[20];
		snprintf(want, sizeof want, "%d\n", i + 1);
		assert_true(drive_until(d, &r[i]->ended));
		assert_true(got_is(r[i], 0, want, ""));
		assert_true(i == 0 || r[i]->ended_at > r[i - 1]->ended_at);
	}
	assert_true(drive_session_close(d, "q", &e));
}

static void input_has_an_end(void **state)
{
	(void)state;
	struct err e;
	assert_true(drive_session_open(d, "in", NULL, &e));
	const char *argv[] = { "read a; echo \"got $a\"; cat; echo over", NULL };
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = argv, .session = "in", .stdin_open = true });
	assert_true(drive_until(d, &r->started));
	assert_int_equal(link_run_stdin(d->link, r->id, STR("one\n")), 0);
	for (unsigned i = 0; i < 10 * drive_patience && r->out[0].len < 8; i++)
		drive_for(d, 10);
	assert_true(str_eqz(buf_str(&r->out[0]), "got one\n"));
	assert_int_equal(link_run_stdin(d->link, r->id, STR("two\n")), 0);
	link_run_stdin_eof(d->link, r->id);
	assert_true(drive_until(d, &r->ended));
	assert_true(got_is(r, 0, "got one\ntwo\nover\n", ""));
	/* its end at once, before the shell has even opened it */
	const char *cat[] = { "cat", NULL };
	r = drive_run(d, &(struct link_run_spec){ .argv = cat, .session = "in", .stdin_bytes = STR("given") });
	assert_true(got_is(r, 0, "given", ""));
	assert_true(got_is(drive_in(d, "in", "cat; ls -A /tmp | grep caisson"), 1, "", ""));
	assert_true(drive_session_close(d, "in", &e));
}

static void large_output_and_background(void **state)
{
	(void)state;
	struct err e;
	assert_true(drive_session_open(d, "big", NULL, &e));
	struct got_run *r = drive_in(d, "big", "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2");
	assert_non_null(r);
	assert_int_equal(r->out[0].len, 1000000);
	assert_int_equal(r->out[1].len, 1000000);
	uint64_t start = now_ms();
	char script[64];
	snprintf(script, sizeof script, "(sleep %u; echo late) & echo now", drive_patience);
	assert_true(got_is(drive_in(d, "big", script), 0, "now\n", ""));
	assert_true(now_ms() - start < 900 * drive_patience);
	drive_for(d, 1200 * drive_patience);
	assert_true(got_is(drive_in(d, "big", "echo next"), 0, "next\n", "")); /* "late" came while nothing ran */
	size_t n = 1 << 20;
	auto_buf struct buf text;
	buf_init(&text, 2 << 20);
	buf_addz(&text, "x='");
	while (text.len < n)
		buf_addz(&text, "0123456789abcdef");
	buf_addz(&text, "'; echo ${#x}");
	char want[32];
	snprintf(want, sizeof want, "%zu\n", (text.len - 16));
	assert_true(got_is(drive_in(d, "big", text.data), 0, want, ""));
	assert_true(drive_session_close(d, "big", &e));
}

static void cancel_keeps_the_shell(void **state)
{
	(void)state;
	struct err e;
	assert_true(drive_session_open(d, "can", NULL, &e));
	assert_true(got_is(drive_in(d, "can", "v=kept"), 0, "", ""));
	const char *argv[] = { "echo up; sleep 60", NULL };
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = argv, .session = "can" });
	while (!r->out[0].len)
		drive_for(d, 10);
	link_run_cancel(d->link, r->id);
	assert_true(drive_until(d, &r->ended));
	assert_true(r->end.canceled && !r->end.session_ended);
	assert_int_equal(r->end.signal, 9);
	assert_true(str_eqz(buf_str(&r->out[0]), "up\n"));
	assert_true(got_is(drive_in(d, "can", "echo $v"), 0, "kept\n", ""));
	const char *slow[] = { "sleep 60", NULL };
	r = drive_run(d, &(struct link_run_spec){ .argv = slow, .session = "can", .timeout_ms = 200 });
	assert_true(r->end.timed_out && !r->end.session_ended);
	assert_true(got_is(drive_in(d, "can", "echo $v"), 0, "kept\n", ""));
	/* busy in the shell itself; deaf: then there is no keeping it */
	const char *busy[] = { "while :; do :; done", NULL };
	r = drive_run(d, &(struct link_run_spec){ .argv = busy, .session = "can", .timeout_ms = 200 });
	assert_non_null(r);
	assert_true(r->end.timed_out && !r->end.session_ended);
	assert_true(got_is(drive_in(d, "can", "echo $v"), 0, "kept\n", ""));
	const char *stuck[] = { "trap '' 64; while :; do :; done", NULL };
	r = drive_run(d, &(struct link_run_spec){ .argv = stuck, .session = "can", .timeout_ms = 200 });
	assert_non_null(r);
	assert_true(r->end.timed_out && r->end.session_ended);
	assert_true(drive_session_close(d, "can", &e));
}

#define WORK "{ echo up; sleep 60; }"

/* Cancelled, a command does nothing of what it had still to do: neither behind the point where it was nor, cancelled at once, at all. */
static void cancel_skips_the_rest(void **state)
{
	(void)state;
	static const char *const texts[] = {
		WORK "; echo rest >>/tmp/rest", WORK "\necho rest >>/tmp/rest", "while :; do " WORK "; echo rest >>/tmp/rest; done; echo rest >>/tmp/rest",
		"f() { " WORK "; echo rest >>/tmp/rest; }; f; echo rest >>/tmp/rest", "( " WORK " ); echo rest >>/tmp/rest", WORK " || echo rest >>/tmp/rest",
		"for i in 1 2 3; do until " WORK "; do echo rest >>/tmp/rest; done; done; { echo rest >>/tmp/rest; }", WORK "; exit 3",
	};
	struct err e;
	assert_true(drive_session_open(d, "skip", NULL, &e));
	assert_true(got_is(drive_in(d, "skip", "v=kept"), 0, "", ""));
	for (size_t i = 0; i < ARRAY_LEN(texts) * 2; i++) {
		const char *argv[] = { texts[i / 2], NULL };
		struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = argv, .session = "skip" });
		if (i % 2)
			assert_true(drive_until(d, &r->started));
		while (i % 2 && !r->out[0].len)
			drive_for(d, 2);
		link_run_cancel(d->link, r->id);
		assert_true(drive_until(d, &r->ended));
		assert_true(r->end.canceled && !r->end.session_ended);
		assert_int_equal(r->end.signal, 9);
		assert_true(got_is(drive_in(d, "skip", "echo $v; cat /tmp/rest 2>/dev/null; x=1"), 0, "kept\n", ""));
	}
	/* without our trap the shell goes, rather than on */
	const char *argv[] = { "trap - 64; echo up; sleep 60; echo rest >>/tmp/rest", NULL };
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = argv, .session = "skip" });
	while (!r->out[0].len)
		drive_for(d, 2);
	link_run_cancel(d->link, r->id);
	assert_true(drive_until(d, &r->ended));
	assert_true(r->end.canceled && r->end.session_ended);
	assert_int_equal(r->end.signal, 9);
	assert_true(got_is(drive_sh(d, "cat /tmp/rest"), 1, "", NULL));
	assert_true(drive_session_close(d, "skip", &e));
}

static struct got_run *replace_shell(const char *id, const char *text, bool stdin_open)
{
	struct err e;
	const char *argv[] = { text, NULL };
	assert_true(drive_session_open(d, id, NULL, &e));
	return drive_start(d, &(struct link_run_spec){ .argv = argv, .session = id, .stdin_open = stdin_open });
}

/* `exec program` takes the shell's place: the command lasts as long as the program, and the session with it. */
static void exec_goes_on(void **state)
{
	(void)state;
	struct err e;
	struct got_run *r = replace_shell("x1", "exec true", false);
	assert_true(drive_until(d, &r->ended));
	assert_true(got_is(r, 0, "", ""));
	assert_true(r->end.session_ended && !r->end.canceled);
	assert_true(drive_session_close(d, "x1", &e));

	r = replace_shell("x2", "echo a; exec sh -c 'sleep 0.3; echo b; echo c >&2; exit 7'", false);
	const char *second[] = { "echo never", NULL };
	struct got_run *queued = drive_start(d, &(struct link_run_spec){ .argv = second, .session = "x2" });
	assert_true(drive_until(d, &r->ended));
	assert_true(got_is(r, 7, "a\nb\n", "c\n"));
	assert_true(r->end.session_ended);
	assert_true(drive_until(d, &queued->ended));
	assert_true(queued->end.failed);
	assert_true(drive_session_close(d, "x2", &e));

	r = replace_shell("x3", "exec cat", true);
	assert_true(drive_until(d, &r->started));
	drive_for(d, 100);
	assert_int_equal(link_run_stdin(d->link, r->id, STR("through")), 0);
	link_run_stdin_eof(d->link, r->id);
	assert_true(drive_until(d, &r->ended));
	assert_true(got_is(r, 0, "through", ""));
	assert_true(drive_session_close(d, "x3", &e));

	r = replace_shell("x4", "echo up; exec sleep 60", false);
	while (!r->out[0].len)
		drive_for(d, 10);
	drive_for(d, 100);
	assert_false(r->ended);
	link_run_signal(d->link, r->id, 15, false);
	assert_true(drive_until(d, &r->ended));
	assert_int_equal(r->end.signal, 15);
	assert_true(r->end.session_ended && !r->end.canceled);
	assert_true(drive_session_close(d, "x4", &e));

	r = replace_shell("x5", "echo up; exec sleep 60", false);
	while (!r->out[0].len)
		drive_for(d, 10);
	drive_for(d, 100);
	link_run_cancel(d->link, r->id);
	assert_true(drive_until(d, &r->ended));
	assert_int_equal(r->end.signal, 9);
	assert_true(r->end.session_ended && r->end.canceled);
	assert_true(drive_session_close(d, "x5", &e));

	/* a shell that has closed our pipes ends where its script does, and nobody waits for it for ever */
	r = replace_shell("x6", "for i in /proc/$$/fd/*; do n=${i##*/}; [ $n -lt 3 ] || eval \"exec $n>&-\"; done; echo done", false);
	assert_true(drive_until(d, &r->ended));
	assert_true(drive_session_close(d, "x6", &e));
}

static void survives_a_reconnect(void **state)
{
	(void)state;
	struct err e;
	assert_true(drive_session_open(d, "rec", NULL, &e));
	assert_true(got_is(drive_in(d, "rec", "v=1"), 0, "", ""));
	const char *argv[] = { "sleep 0.3; echo later", NULL };
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = argv, .session = "rec" });
	assert_true(drive_until(d, &r->started));
	assert_true(suite_reconnect());
	assert_true(drive_until(d, &r->ended));
	assert_true(got_is(r, 0, "later\n", ""));
	assert_true(got_is(drive_in(d, "rec", "echo $v; sleep 7781 & sleep 7781 &"), 0, "1\n", ""));
	assert_true(drive_session_close(d, "rec", &e));
	assert_true(got_is(drive_sh(d, "pgrep -f 'sleep 778[1]'"), 1, "", "")); /* its whole tree is gone */
}

const struct CMUnitTest session_tests[] = {
	cmocka_unit_test(things_persist),         cmocka_unit_test(nothing_of_ours_is_inherited),
	cmocka_unit_test(a_syntax_error_is_survived), cmocka_unit_test(exit_ends_it),
	cmocka_unit_test(queue_keeps_order),      cmocka_unit_test(input_has_an_end),
	cmocka_unit_test(large_output_and_background), cmocka_unit_test(cancel_keeps_the_shell),
	cmocka_unit_test(cancel_skips_the_rest),  cmocka_unit_test(exec_goes_on),
	cmocka_unit_test(survives_a_reconnect),
};
const size_t session_tests_n = ARRAY_LEN(session_tests);
