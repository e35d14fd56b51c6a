/* What a run is: design.md section 7. */
#include "suite.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

static struct drive *d = &suite.d;

#define ARGV(...) ((const char *[]){ __VA_ARGS__, NULL })

static void exit_codes_and_streams(void **state)
{
	(void)state;
	assert_true(got_is(drive_sh(d, "echo out; echo err >&2; exit 7"), 7, "out\n", "err\n"));
	assert_true(got_is(drive_sh(d, "printf 'no newline'"), 0, "no newline", ""));
	struct got_run *r = drive_sh(d, "kill -9 $$");
	assert_int_equal(r->end.signal, 9);
	assert_int_equal(r->end.exit_code, 137);
	assert_true(r->started);
	assert_true(got_is(drive_run(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "echo a; echo b >&2; echo c"), .merge_stderr = true }), 0,
	                   "a\nb\nc\n", ""));
}

static void missing_programs(void **state)
{
	(void)state;
	struct got_run *r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("no-such-program", "x") });
	assert_true(got_is(r, 127, "", "no-such-program: command not found\n"));
	r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("/no/such") });
	assert_true(got_is(r, 127, "", "/no/such: No such file or directory\n"));
	r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("/etc/passwd") });
	assert_true(got_is(r, 126, "", "/etc/passwd: Permission denied\n"));
	r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("/tmp") });
	assert_int_equal(r->end.exit_code, 126);
	assert_true(got_is(drive_sh(d, "echo 'echo plain $1' > /tmp/script; chmod 755 /tmp/script"), 0, "", ""));
	assert_true(got_is(drive_run(d, &(struct link_run_spec){ .argv = ARGV("/tmp/script", "it") }), 0, "plain it\n", ""));
}

static void bad_place_or_user_is_said(void **state)
{
	(void)state;
	struct got_run *r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("true"), .cwd = "/no/such/dir" });
	assert_true(r->end.failed && !r->started);
	assert_int_equal(r->end.errnum, ENOENT);
	assert_non_null(strstr(r->end.message, "/no/such/dir"));
	r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("true"), .user = "who-is-that" });
	assert_true(r->end.failed);
	assert_non_null(strstr(r->end.message, "who-is-that"));
	r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("true"), .cwd = "/proc/self/fd/4" });
	assert_true(r->end.failed); /* no descriptor of PID 1 is a way in */
	r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("true"), .session = "nobody-opened-it" });
	assert_true(r->end.failed);
}

static void environment_and_directory(void **state)
{
	(void)state;
	struct pairs env = { 0 };
	pairs_add(&env, "A", "one two");
	pairs_add(&env, "HOME", "/elsewhere");
	assert_true(got_is(drive_run(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "echo \"$A|$HOME|$PWD|${PATH:+path}\""), .env = &env, .cwd = "/tmp" }), 0,
	                   "one two|/elsewhere|/tmp|path\n", ""));
	pairs_done(&env);
	assert_true(got_is(drive_sh(d, "ls /proc/self/fd | tr '\\n' ' '; umask"), 0, "0 1 2 3 0022\n", "")); /* 3: ls itself */
	/* the end of a pipe: ls has it as 0-2 too, so look at a program without redirection of its own */
	assert_true(got_is(drive_sh(d, "grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'"), 0, "SigBlk:0000000000000000SigIgn:0000000000000000", ""));
}

static void no_stdin_is_its_end(void **state)
{
	(void)state;
	assert_true(got_is(drive_run(d, &(struct link_run_spec){ .argv = ARGV("cat") }), 0, "", ""));
	assert_true(got_is(drive_run(d, &(struct link_run_spec){ .argv = ARGV("cat"), .stdin_bytes = STR("fed\0x") }), 0, "fed", "") == false);
	struct got_run *r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("wc", "-c"), .stdin_bytes = STR("fed\0x") });
	assert_true(got_is(r, 0, "5\n", ""));
}

static void stdin_in_both_ways(void **state)
{
	(void)state;
	size_t n = 3 << 20;
	auto_free char *big = xmalloc(n);
	for (size_t i = 0; i < n; i++)
		big[i] = (char)('a' + i % 23);
	struct got_run *r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("cat"), .stdin_bytes = { big, n } });
	assert_non_null(r);
	assert_int_equal(r->out[0].len, n);
	assert_memory_equal(r->out[0].data, big, n);
	r = drive_start(d, &(struct link_run_spec){ .argv = ARGV("cat"), .stdin_open = true });
	for (size_t at = 0; at < n;) {
		size_t room = MIN(link_run_stdin_room(d->link, r->id), n - at);
		if (room == 0) {
			r->room = false;
			assert_true(drive_until(d, &r->room));
			continue;
		}
		assert_int_equal(link_run_stdin(d->link, r->id, (struct str){ big + at, room }), 0);
		at += room;
	}
	link_run_stdin_eof(d->link, r->id);
	assert_true(drive_until(d, &r->ended));
	assert_int_equal(r->out[0].len, n);
	assert_memory_equal(r->out[0].data, big, n);
	/* nobody reads it: no harm, and no wait */
	r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("true"), .stdin_bytes = { big, n } });
	assert_true(got_is(r, 0, "", ""));
}

static void thousand_at_once(void **state)
{
	(void)state;
	static struct got_run *r[1000];
	const size_t n = suite_amount(ARRAY_LEN(r));
	uint64_t before = d->ended_n;
	for (size_t i = 0; i < n; i++)
		r[i] = drive_start(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "exit 7") });
	for (size_t i = 0; i < n; i++)
		assert_true(drive_until(d, &r[i]->ended));
	assert_int_equal(d->ended_n - before, n);
	for (size_t i = 0; i < n; i++) {
		assert_true(got_is(r[i], 7, "", ""));
		drive_forget(d, r[i]);
	}
}

static void fifty_megabytes_unharmed(void **state)
{
	(void)state;
	const size_t n = suite_amount(50000000);
	char script[128];
	snprintf(script, sizeof script, "head -c %zu /dev/urandom | tee /tmp/random; sha256sum < /tmp/random >&2; rm /tmp/random", n);
	struct got_run *r = drive_sh(d, script);
	assert_non_null(r);
	assert_int_equal(r->out[0].len, n);
	assert_int_equal(r->out[1].len, 68);
	struct got_run *again = drive_run(d, &(struct link_run_spec){ .argv = ARGV("true") });
	assert_true(got_is(again, 0, "", ""));
	/* hashed inside once more, from what came out: byte for byte the way back */
	again = drive_start(d, &(struct link_run_spec){ .argv = ARGV("sha256sum"), .stdin_open = true });
	for (size_t at = 0; at < r->out[0].len;) {
		size_t room = MIN(link_run_stdin_room(d->link, again->id), r->out[0].len - at);
		if (room == 0) {
			again->room = false;
			assert_true(drive_until(d, &again->room));
			continue;
		}
		assert_int_equal(link_run_stdin(d->link, again->id, (struct str){ r->out[0].data + at, room }), 0);
		at += room;
	}
	link_run_stdin_eof(d->link, again->id);
	assert_true(drive_until(d, &again->ended));
	assert_true(got_is(again, 0, r->out[1].data, ""));
	drive_forget(d, r);
}

/* How many processes with this mark in their arguments live. */
static size_t living(const char *mark)
{
	char script[200];
	/* one program: a pair of them for each process takes an emulated machine most of a minute */
	snprintf(script, sizeof script, "grep -laP '^sleep\\x00%s\\x00' /proc/[0-9]*/cmdline 2>/dev/null | wc -l", mark);
	struct got_run *r = drive_sh(d, script);
	assert_non_null(r);
	assert_int_equal(r->end.exit_code, 0);
	return (size_t)strtoul(r->out[0].data, NULL, 10);
}

static void time_limit_ends_the_tree(void **state)
{
	(void)state;
	uint64_t start = now_ms();
	struct got_run *r = drive_run(d, &(struct link_run_spec){
		.argv = ARGV("sh", "-c", "echo a; echo b >&2; sleep 7771 & setsid sleep 7771 & (setsid sh -c 'sleep 7771 & sleep 7771' &) ; sleep 60"),
		.timeout_ms = 500 });
	assert_non_null(r);
	assert_true(now_ms() - start < 5000 * drive_patience);
	assert_true(r->end.timed_out && !r->end.canceled);
	assert_int_equal(r->end.signal, SIGKILL);
	assert_true(got_is(r, 137, "a\n", "b\n"));
	assert_int_equal(living("7771"), 0);
}

static void cancel_ends_the_tree(void **state)
{
	(void)state;
	/* leaves its parents, session, group, and (where the kind is exact) its environment */
	const char *script = suite.kind->exact_trees ? "(setsid env -i /bin/sh -c 'sleep 7772 & sleep 7772' &) ; echo up; sleep 1000"
	                                              : "(setsid sh -c 'sleep 7772 & sleep 7772' &) ; echo up; sleep 1000";
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", script) });
	assert_true(drive_until(d, &r->started));
	for (unsigned i = 0; i < drive_patience && living("7772") < 2; i++)
		drive_for(d, 300);
	assert_int_equal(living("7772"), 2);
	link_run_cancel(d->link, r->id);
	assert_true(drive_until(d, &r->ended));
	assert_true(r->end.canceled);
	assert_true(got_is(r, 137, "up\n", ""));
	assert_int_equal(living("7772"), 0);
}

static void signals_reach_one_or_all(void **state)
{
	(void)state;
	const char *script = "trap 'echo got; exit 3' TERM; sleep 7773 & echo up; while :; do sleep 0.05; done";
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", script) });
	while (!r->out[0].len)
		drive_for(d, 10);
	link_run_signal(d->link, r->id, SIGTERM, false);
	assert_true(drive_until(d, &r->ended));
	assert_true(got_is(r, 3, "up\ngot\n", ""));
	assert_int_equal(living("7773"), 1); /* a background child outlives its run */
	r = drive_start(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "sleep 7774 & echo up; wait") });
	while (!r->out[0].len)
		drive_for(d, 10);
	link_run_signal(d->link, r->id, SIGTERM, true);
	assert_true(drive_until(d, &r->ended));
	assert_int_equal(r->end.signal, SIGTERM);
	assert_int_equal(living("7774"), 0);
	assert_true(got_is(drive_sh(d, "pkill -f 'sleep 777[3]'"), 0, "", ""));
}

static void background_child_does_not_hold(void **state)
{
	(void)state;
	uint64_t start = now_ms();
	struct got_run *r = drive_sh(d, "(while sleep 0.1; do echo more || exit; done) & echo done");
	assert_non_null(r);
	assert_true(now_ms() - start < 3000 * drive_patience);
	assert_int_equal(r->end.exit_code, 0);
	assert_memory_equal(r->out[0].data, "done\n", 5);
	drive_for(d, 400); /* and is not killed by writing to where nobody reads */
	r = drive_sh(d, "pgrep -f 'sleep 0[.]1' >/dev/null && pkill -f 'sleep 0[.]1'; echo $?");
	assert_true(got_is(r, 0, "0\n", ""));
}

static void slow_reader_stalls_only_itself(void **state)
{
	(void)state;
	struct got_run *slow = drive_start(d, &(struct link_run_spec){ .argv = ARGV("head", "-c", "3000000", "/dev/zero") });
	slow->no_ack = true;
	while (slow->out[0].len < 256 * 1024)
		drive_for(d, 10);
	assert_true(got_is(drive_sh(d, "head -c 2000000 /dev/zero | wc -c"), 0, "2000000\n", ""));
	drive_for(d, 50);
	assert_int_equal(slow->out[0].len, 256 * 1024);
	assert_false(slow->ended);
	slow->no_ack = false;
	link_run_ack(d->link, slow->id, LINK_STDOUT, slow->out[0].len);
	assert_true(drive_until(d, &slow->ended));
	assert_int_equal(slow->out[0].len, 3000000);
}

static void reconnect_loses_nothing(void **state)
{
	(void)state;
	struct got_run *r = drive_start(d, &(struct link_run_spec){
		.argv = ARGV("sh", "-c", "i=0; while [ $i -lt 60000 ]; do echo line $i; i=$((i+1)); done; echo end >&2") });
	struct got_run *done = drive_start(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "echo x; exit 5") });
	for (int i = 0; i < 8 && !r->ended; i++) {
		drive_for(d, 5 + (uint64_t)i * 7);
		assert_true(suite_reconnect());
	}
	assert_true(drive_until(d, &r->ended) && drive_until(d, &done->ended));
	assert_true(got_is(done, 5, "x\n", ""));
	auto_buf struct buf want;
	buf_init(&want, 1 << 20);
	for (int i = 0; i < 60000; i++)
		buf_addf(&want, "line %d\n", i);
	assert_int_equal(r->out[0].len, want.len);
	assert_memory_equal(r->out[0].data, want.data, want.len);
	assert_true(str_eqz(buf_str(&r->out[1]), "end\n"));
}

/* The daemon is away: the run goes on until its windows are full, and all of it is there later. */
static void output_waits_for_the_daemon(void **state)
{
	(void)state;
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "sleep 0.2; head -c 1000000 /dev/zero; echo e >&2; exit 4") });
	drive_until(d, &r->started);
	link_free(take_ptr(&d->link));
	drive_for(d, 600);
	assert_true(drive_connect(d, suite_open_guest(suite.id)));
	assert_true(drive_until(d, &r->ended));
	assert_int_equal(r->end.exit_code, 4);
	assert_int_equal(r->out[0].len, 1000000);
	assert_true(str_eqz(buf_str(&r->out[1]), "e\n"));
}

static void attach_to_the_unknown(void **state)
{
	(void)state;
	struct got_run *r = drive_sh(d, "true");
	link_run_release(d->link, r->id);
	r->ended = false;
	link_run_attach(d->link, r->id, 0, 0);
	assert_true(drive_until(d, &r->ended));
	assert_true(r->end.failed);
}

static void scripts_by_descriptor(void **state)
{
	(void)state;
	size_t n = 1 << 20;
	auto_buf struct buf script;
	buf_init(&script, 4 << 20);
	while (script.len < n)
		buf_addz(&script, "# filling filling filling filling\n");
	size_t fill = script.len;
	buf_addz(&script, "echo shell \"$1\"\n");
	struct str text = buf_str(&script);
	assert_true(got_is(drive_run(d, &(struct link_run_spec){ .argv = ARGV("sh", "{script}", "a"), .script = text }), 0, "shell a\n", ""));
	assert_true(got_is(drive_run(d, &(struct link_run_spec){ .argv = ARGV("bash", "{script}", "a"), .script = text }), 0, "shell a\n", ""));
	buf_init(&script, 4 << 20);
	free((void *)(uintptr_t)text.p);
	(void)fill;
	if (got_is(drive_sh(d, "command -v python3 >/dev/null"), 0, "", "")) {
		struct got_run *r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("python3", "{script}", "a"), .script = STR("import sys\nprint(sys.argv[1])\nraise ValueError(9)\n") });
		assert_int_equal(r->end.exit_code, 1);
		assert_true(str_eqz(buf_str(&r->out[0]), "a\n"));
		assert_non_null(strstr(r->out[1].data, "raise ValueError(9)")); /* the traceback finds the source */
	}
	struct got_run *r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "cat $0; echo $0; touch ${0%/*}/more", "{script}"), .script = STR("text\n"), .script_suffix = ".ts" });
	assert_int_equal(r->end.exit_code, 0);
	assert_non_null(strstr(r->out[0].data, "/script.ts\n"));
	drive_for(d, 100 * drive_patience);
	assert_true(got_is(drive_sh(d, "ls -A /tmp | grep caisson"), 1, "", "")); /* it is gone, with what the program left there */
}

static void terminals(void **state)
{
	(void)state;
	struct got_run *r = drive_run(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "tty; stty size; echo $TERM; echo e >&2"), .pty = true, .rows = 31, .cols = 97 });
	assert_non_null(r);
	assert_int_equal(r->end.exit_code, 0);
	assert_memory_equal(r->out[0].data, "/dev/pts/", 9);
	assert_non_null(strstr(r->out[0].data, "\r\n31 97\r\nxterm-256color\r\ne\r\n"));
	r = drive_start(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "trap 'stty size; exit 6' WINCH; echo up; while :; do sleep 0.05; done"), .pty = true, .stdin_open = true });
	while (!r->out[0].len)
		drive_for(d, 10);
	link_run_resize(d->link, r->id, 50, 60);
	assert_true(drive_until(d, &r->ended));
	assert_int_equal(r->end.exit_code, 6);
	assert_non_null(strstr(r->out[0].data, "50 60"));
	r = drive_start(d, &(struct link_run_spec){ .argv = ARGV("cat"), .pty = true, .stdin_open = true });
	assert_int_equal(link_run_stdin(d->link, r->id, STR("line\n")), 0);
	link_run_stdin_eof(d->link, r->id);
	assert_true(drive_until(d, &r->ended));
	assert_true(got_is(r, 0, "line\r\nline\r\n", ""));
	r = drive_start(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "echo up; exec sleep 60"), .pty = true, .stdin_open = true });
	while (!r->out[0].len)
		drive_for(d, 10);
	assert_int_equal(link_run_stdin(d->link, r->id, STR("\003")), 0); /* ^C */
	assert_true(drive_until(d, &r->ended));
	assert_int_equal(r->end.signal, SIGINT);
}

/* One that was started ahead of its time: its limit and its duration count from when it is taken. */
static void a_run_is_taken_later(void **state)
{
	(void)state;
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = ARGV("cat"), .stdin_open = true });
	assert_true(drive_until(d, &r->started));
	drive_for(d, 700);
	r->started = false;
	uint64_t taken = now_ms();
	link_run_take(d->link, r->id, 0);
	assert_int_equal(link_run_stdin(d->link, r->id, STR("given")), 0);
	link_run_stdin_eof(d->link, r->id);
	assert_true(drive_until(d, &r->ended));
	assert_true(r->started && got_is(r, 0, "given", ""));
	assert_true(r->end.duration_ms <= now_ms() - taken);
	r = drive_start(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "sleep 7784 & cat"), .stdin_open = true });
	assert_true(drive_until(d, &r->started));
	link_run_take(d->link, r->id, 200);
	assert_true(drive_until(d, &r->ended));
	assert_true(r->end.timed_out);
	assert_int_equal(living("7784"), 0);
	link_run_take(d->link, r->id, 1); /* has ended, and is left alone */
	link_run_take(d->link, 123456, 1);
	assert_true(got_is(drive_sh(d, "echo on"), 0, "on\n", ""));
}

static void release_of_a_living_run(void **state)
{
	(void)state;
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "yes & sleep 7775") });
	while (r->out[0].len < 100000)
		drive_for(d, 5);
	drive_forget(d, r);
	drive_for(d, 200 * drive_patience);
	assert_int_equal(living("7775"), 0);
	assert_true(suite_reconnect());
	for (size_t i = 0; i < d->known_n; i++)
		assert_true(d->known[i].ended);
}

const struct CMUnitTest run_tests[] = {
	cmocka_unit_test(exit_codes_and_streams),
	cmocka_unit_test(missing_programs),
	cmocka_unit_test(bad_place_or_user_is_said),
	cmocka_unit_test(environment_and_directory),
	cmocka_unit_test(no_stdin_is_its_end),
	cmocka_unit_test(stdin_in_both_ways),
	cmocka_unit_test(thousand_at_once),
	cmocka_unit_test(fifty_megabytes_unharmed),
	cmocka_unit_test(time_limit_ends_the_tree),
	cmocka_unit_test(cancel_ends_the_tree),
	cmocka_unit_test(signals_reach_one_or_all),
	cmocka_unit_test(background_child_does_not_hold),
	cmocka_unit_test(slow_reader_stalls_only_itself),
	cmocka_unit_test(reconnect_loses_nothing),
	cmocka_unit_test(output_waits_for_the_daemon),
	cmocka_unit_test(attach_to_the_unknown),
	cmocka_unit_test(scripts_by_descriptor),
	cmocka_unit_test(terminals),
	cmocka_unit_test(a_run_is_taken_later),
	cmocka_unit_test(release_of_a_living_run),
};
const size_t run_tests_n = ARRAY_LEN(run_tests);
