/* The link against two peers: the real guest, over a socket pair that is its only stream (as a serial port would be), with a
 * cgroup of its own where this host has a writable v2; and a hostile guest made of bytes. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "drive.h"
#include "wire/guest.h"

static uv_loop_t loop;
static struct drive drive, *d = &drive;

/* --- the real guest --- */

static pid_t guest;
static int guest_end = -1; /* our end of its stream, kept open over reconnects */
static char cgroup[128];

static int make_cgroup(void)
{
	static const char *const places[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
	char procs[160];

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		snprintf(cgroup, sizeof cgroup, "%s/caisson-test-link-%d", places[i], (int)getpid());
		snprintf(procs, sizeof procs, "%s/cgroup.procs", cgroup);
		if (mkdir(cgroup, 0755) < 0)
			continue;
		if (access(procs, W_OK) == 0)
			return open(cgroup, O_PATH | O_DIRECTORY | O_CLOEXEC);
		rmdir(cgroup);
	}
	cgroup[0] = '\0';
	return -1;
}

static int start_guest(void **state)
{
	(void)state;
	int p[2], dir = make_cgroup();

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, p), 0);
	guest_end = p[0];
	guest = fork();
	if (guest == 0) {
		if (dir >= 0)
			dir = fcntl(dir, F_DUPFD, 10);
		dup2(p[1], 3);
		if (dir >= 0)
			dup2(dir, 4);
		else
			close(4);
		execl(GUEST_PATH, "caisson-guest", "user=0:0", "env.FROM_IMAGE=yes", (char *)NULL);
		_exit(1);
	}
	close(p[1]);
	close_fd(dir);
	drive_init(d, &loop);
	return drive_connect(d, dup(guest_end)) ? 0 : -1;
}

static int stop_guest(void **state)
{
	(void)state;
	char path[200];

	drive_done(d);
	kill(guest, SIGKILL);
	waitpid(guest, NULL, 0);
	guest_end = close_fd(guest_end);
	if (!cgroup[0])
		return 0;
	snprintf(path, sizeof path, "%s/cgroup.kill", cgroup);
	int fd = open(path, O_WRONLY);
	if (fd >= 0 && write(fd, "1", 1) < 0)
		perror("cgroup.kill");
	close_fd(fd);
	/* The guest keeps one empty group for its next run; whoever made the outer one removes both, as the warden does. */
	auto_free char *inner = xasprintf("find %s -mindepth 1 -type d -exec rmdir {} +", cgroup);
	for (int i = 0; i < 100 && (system(inner) != 0 || rmdir(cgroup) < 0); i++)
		usleep(10000);
	return access(cgroup, F_OK) == 0 ? -1 : 0;
}

static void runs_over_a_stream(void **state)
{
	(void)state;
	assert_true(got_is(drive_sh(d, "echo $FROM_IMAGE; exit 3"), 3, "yes\n", ""));
	struct got_run *r = drive_run(d, &(struct link_run_spec){ .argv = (const char *[]){ "nope", NULL } });
	assert_true(got_is(r, 127, "", NULL));
	for (int i = 0; i < 20; i++)
		drive_start(d, &(struct link_run_spec){ .argv = (const char *[]){ "sh", "-c", "echo x", NULL } });
	for (struct got_run *at = d->runs; at; at = at->hh.next)
		assert_true(drive_until(d, &at->ended));
}

/* A serial port can't be closed: the next hello starts over, in the middle of whatever was being said. */
static void a_new_hello_starts_over(void **state)
{
	(void)state;
	const char *argv[] = { "sh", "-c", "i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done", NULL };
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = argv });
	for (int i = 0; i < 4; i++) {
		drive_for(d, 15);
		link_free(take_ptr(&d->link));
		drive_for(d, 1);
		/* what a dead daemon may have left half said, and the zeros that end it (the link sends them where it sees no socket) */
		static const char half[5 + GUEST_PAYLOAD_MAX + GUEST_HEAD] = "\x10\0\0\0\x06";
		for (size_t at = 0; at < sizeof half;) {
			ssize_t n = send(guest_end, half + at, sizeof half - at, 0);
			at += n > 0 ? (size_t)n : 0;
			char waste[65536]; /* the guest may be waiting for us to read */
			(void)!recv(guest_end, waste, sizeof waste, MSG_DONTWAIT);
		}
		assert_true(drive_connect(d, dup(guest_end)));
	}
	assert_true(drive_until(d, &r->ended));
	assert_int_equal(r->end.exit_code, 0);
	assert_memory_equal(r->out[0].data + r->out[0].len - 11, "line 29999\n", 11);
}

static size_t sleeping(const char *seconds)
{
	char script[100];
	snprintf(script, sizeof script, "pgrep -c -x -f 'sleep %s'", seconds);
	struct got_run *r = drive_sh(d, script);
	return (size_t)strtoul(r->out[0].data, NULL, 10);
}

static void a_cgroup_holds_the_whole_tree(void **state)
{
	(void)state;
	if (!cgroup[0])
		skip();
	const char *argv[] = { "sh", "-c", "(setsid env -i /bin/sh -c 'sleep 9871 & sleep 9871' &); echo up; sleep 9871", NULL };
	struct got_run *r = drive_start(d, &(struct link_run_spec){ .argv = argv });
	while (!r->out[0].len)
		drive_for(d, 10);
	drive_for(d, 200);
	assert_int_equal(sleeping("9871"), 3);
	link_run_cancel(d->link, r->id);
	assert_true(drive_until(d, &r->ended));
	assert_true(got_is(r, 137, "up\n", ""));
	assert_int_equal(sleeping("9871"), 0);
	/* a bomb: bounded here by time only */
	const char *bomb[] = { "sh", "-c", "b() { [ $1 = 0 ] && sleep 9872; b $(($1-1)) & b $(($1-1)) & wait; }; b 6", NULL };
	r = drive_run(d, &(struct link_run_spec){ .argv = bomb, .timeout_ms = 300 });
	assert_true(r->end.timed_out);
	assert_int_equal(sleeping("9872"), 0);
	/* a child that stays keeps its group until it goes */
	assert_true(got_is(drive_sh(d, "sleep 0.3 &"), 0, "", ""));
	drive_for(d, 500);
	auto_free char *list = xasprintf("ls %s | grep -c '^r'", cgroup);
	assert_true(got_is(drive_sh(d, list), 0, "1\n", "")); /* that of the run which asks */
}

static void a_request_too_long_is_an_answer(void **state)
{
	(void)state;
	size_t n = 40 << 20;
	auto_free char *script = xcalloc(n, 1);
	const char *argv[] = { "sh", "{script}", NULL };
	struct got_run *r = drive_run(d, &(struct link_run_spec){ .argv = argv, .script = { script, n } });
	assert_true(r->end.failed);
	assert_true(link_is_open(d->link));
	auto_free char *text = xmalloc(n);
	memset(text, 'x', n);
	text[n - 1] = '\0';
	struct got_op *o = drive_op(d, &(struct op_spec){ .kind = OP_REPLACE, .path = "/x", .pattern = "a", .text = text }, (struct str){ NULL, 0 });
	assert_true(o->failed && o->err.kind == ERR_TOO_LARGE);
	got_op_free(o);
}

static void a_closed_link_answers_everything(void **state)
{
	(void)state;
	struct err e;
	struct got_op *o = drive_op_start(d, &(struct op_spec){ .kind = OP_WRITE, .path = "/tmp/x" }, (struct str){ NULL, 0 });
	link_close(d->link);
	struct got_op *late = drive_op_start(d, &(struct op_spec){ .kind = OP_SYNC }, (struct str){ NULL, 0 });
	assert_true(drive_until(d, &d->closed));
	assert_true(o->ended && o->failed && late->ended && late->failed);
	got_op_free(o);
	got_op_free(late);
	late = drive_op(d, &(struct op_spec){ .kind = OP_SYNC }, (struct str){ NULL, 0 });
	assert_true(late->ended && late->failed && late->err.kind == ERR_UNAVAILABLE);
	got_op_free(late);
	assert_false(drive_session_open(d, "x", NULL, &e));
	assert_int_equal(e.kind, ERR_UNAVAILABLE);
	late = drive_op_start(d, &(struct op_spec){ .kind = OP_SYNC }, (struct str){ NULL, 0 });
	link_op_cancel(late->op);
	got_op_free(late);
	link_free(take_ptr(&d->link));
	drive_for(d, 5);
	assert_true(drive_connect(d, dup(guest_end)));
}

/* --- a hostile guest --- */

struct hostile {
	struct drive d;
	int fd;
	struct buf say;
};

static void hostile_init(struct hostile *h, bool ready)
{
	int p[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, p), 0);
	h->fd = p[1];
	buf_init(&h->say, 8 << 20);
	drive_init(&h->d, &loop);
	if (!ready)
		return (void)(h->d.link = NULL, h->d.known_n = (size_t)p[0]);
	assert_int_equal(guest_ready_put(&h->say, NULL, 0), 0);
	assert_true(send(h->fd, h->say.data, h->say.len, 0) > 0);
	buf_reset(&h->say);
	assert_true(drive_connect(&h->d, p[0]));
}

/* Says it; the link must close with an error and without touching what does not exist. */
static void hostile_says(struct hostile *h)
{
	while (h->say.len && !h->d.closed) {
		ssize_t n = send(h->fd, h->say.data, h->say.len, MSG_NOSIGNAL);
		if (n > 0)
			buf_consume(&h->say, (size_t)n);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	assert_true(drive_until(&h->d, &h->d.closed));
	assert_true(h->d.why.kind != ERR_NONE);
	while (h->d.runs)
		drive_forget(&h->d, h->d.runs);
	link_free(take_ptr(&h->d.link));
	buf_done(&h->say);
	close(h->fd);
	drive_for(&h->d, 1);
}

static void put_output(struct buf *b, uint64_t id, int stream, uint64_t offset, size_t n)
{
	char bytes[GUEST_PAYLOAD_MAX] = { 0 };
	memcpy(bytes, &offset, 8);
	assert_int_equal(guest_frame_put(b, GUEST_RUN_OUTPUT, (uint8_t)stream, id, (struct str){ bytes, 8 + n }), 0);
}

static const char *const any[] = { "true", NULL };

static void lies_about_output(void **state)
{
	(void)state;
	for (int kind = 0; kind < 7; kind++) {
		struct hostile h;
		hostile_init(&h, true);
		struct got_run *r = drive_start(&h.d, &(struct link_run_spec){ .argv = any });
		r->no_ack = true;
		struct guest_run_end e = { .bytes = { 5, 0 } };
		if (kind == 0) /* a gap */
			put_output(&h.say, r->id, 1, 1, 10);
		else if (kind == 1) { /* the same again */
			put_output(&h.say, r->id, 1, 0, 10);
			put_output(&h.say, r->id, 1, 0, 10);
		} else if (kind == 2) /* no such stream */
			put_output(&h.say, r->id, 3, 0, 10);
		else if (kind == 3) /* a run that nobody started */
			put_output(&h.say, 4711, 1, 0, 10);
		else if (kind == 4) { /* more than the window */
			for (uint64_t at = 0; at <= GUEST_WINDOW; at += 32768)
				put_output(&h.say, r->id, 1, at, 32768);
		} else if (kind == 5) /* an end that does not add up */
			assert_int_equal(guest_run_end_put(&h.say, r->id, &e), 0);
		else { /* after the end */
			e.bytes[0] = 0;
			assert_int_equal(guest_run_end_put(&h.say, r->id, &e), 0);
			put_output(&h.say, r->id, 1, 0, 1);
		}
		hostile_says(&h);
	}
}

static void lies_about_ops(void **state)
{
	(void)state;
	for (int kind = 0; kind < 10; kind++) {
		struct hostile h;
		hostile_init(&h, true);
		struct got_op *o = drive_op_start(&h.d, &(struct op_spec){ .kind = OP_READ, .path = "/x" }, (struct str){ NULL, 0 });
		struct str none = { NULL, 0 };
		static const char zeros[GUEST_PAYLOAD_MAX];
		if (kind == 0) /* data before it is open */
			guest_frame_put(&h.say, GUEST_OP_DATA, 0, 1, STR("x"));
		else if (kind == 1) { /* more than credit */
			guest_frame_put(&h.say, GUEST_OP_OPENED, 0, 1, none);
			link_op_pause(o->op);
			for (int i = 0; i <= GUEST_OP_WINDOW / GUEST_PAYLOAD_MAX; i++)
				guest_frame_put(&h.say, GUEST_OP_DATA, 0, 1, (struct str){ zeros, sizeof zeros });
		} else if (kind == 2) /* an op of the future */
			guest_frame_put(&h.say, GUEST_OP_END, 0, 99, STR("\0\0\0\0\0\0\0\0"));
		else if (kind == 3) /* credit beyond the window */
			guest_u64_put(&h.say, GUEST_OP_CREDIT, 0, 1, UINT64_MAX);
		else if (kind == 4) /* and taken back */
			guest_u64_put(&h.say, GUEST_OP_CREDIT, 0, 1, 1);
		else if (kind == 5) /* opened twice */
			for (int i = 0; i < 2; i++)
				guest_frame_put(&h.say, GUEST_OP_OPENED, 0, 1, none);
		else if (kind == 6) /* a broken record */
			guest_frame_put(&h.say, GUEST_OP_INFO, 0, 1, STR("short"));
		else if (kind == 7) /* a reply that nobody waits for */
			guest_result_put(&h.say, GUEST_SESSION_REPLY, 1, &(struct guest_result){ 0 });
		else if (kind == 8) { /* told the time once, answered twice */
			link_tell_time(h.d.link, "name");
			for (int i = 0; i < 2; i++)
				guest_result_put(&h.say, GUEST_SETUP_DONE, 1, &(struct guest_result){ 0 });
		}
		else /* a frame of the daemon's */
			guest_frame_put(&h.say, GUEST_RUN_CANCEL, 0, 1, none);
		hostile_says(&h);
		assert_true(o->ended && o->failed);
		got_op_free(o);
	}
}

static void told_late(void **state)
{
	(void)state;
	struct hostile h;
	hostile_init(&h, true);
	for (uint64_t serial = 1; serial < 3; serial++) {
		link_tell_time(h.d.link, NULL);
		usleep(100000);
		guest_result_put(&h.say, GUEST_SETUP_DONE, serial, &(struct guest_result){ 0 });
		assert_int_equal(send(h.fd, h.say.data, h.say.len, MSG_NOSIGNAL), h.say.len);
		buf_reset(&h.say);
		for (int i = 0; i < 1000 && h.d.told_late < serial; i++)
			drive_for(&h.d, 10);
		assert_int_equal(h.d.told_late, serial);
	}
	guest_result_put(&h.say, GUEST_SETUP_DONE, 3, &(struct guest_result){ 0 }); /* once too often */
	hostile_says(&h);
}

/* A connection of one op, whose other end says everything and goes away without having read what we said (the kernel then calls it
 * reset), while our own reader takes a piece now and then. */
static void last_words_are_heard(void **state)
{
	(void)state;
	static char bytes[100];
	struct hostile h;
	int p[2];
	hostile_init(&h, true);
	drive_for(&h.d, 1);
	memset(bytes, 'x', sizeof bytes);
	for (int cut = 0; cut < 2; cut++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, p), 0);
		struct got_op *o = drive_op_direct_start(&h.d, p[0], &(struct op_spec){ .kind = OP_READ, .path = "/x" }, (struct str){ NULL, 0 });
		uint64_t id = (uint64_t)cut + 1;
		o->slow = true;
		buf_reset(&h.say);
		guest_frame_put(&h.say, GUEST_OP_OPENED, 0, id, (struct str){ NULL, 0 });
		for (int i = 0; i < 50; i++)
			guest_frame_put(&h.say, GUEST_OP_DATA, 0, id, (struct str){ bytes, sizeof bytes });
		if (!cut)
			guest_result_put(&h.say, GUEST_OP_END, id, &(struct guest_result){ 0 });
		assert_int_equal(send(p[1], h.say.data, h.say.len, MSG_NOSIGNAL), h.say.len);
		close(p[1]);
		for (int i = 0; i < 1000 && !o->ended; i++) {
			drive_for(&h.d, 1);
			if (!o->ended)
				link_op_resume(o->op);
		}
		assert_true(o->ended);
		assert_int_equal(o->failed, cut);
		assert_int_equal(o->data.len, 50 * sizeof bytes);
		got_op_free(o);
	}
	buf_reset(&h.say);
	guest_frame_put(&h.say, GUEST_RUN_CANCEL, 0, 1, (struct str){ NULL, 0 });
	hostile_says(&h);
}

static void lies_about_stdin(void **state)
{
	(void)state;
	static const uint64_t rooms[][2] = { { 1, 2 }, { 0, 1ull << 40 }, { 5, 4 }, { 0, UINT64_MAX } };
	for (size_t kind = 0; kind < ARRAY_LEN(rooms); kind++) {
		struct hostile h;
		hostile_init(&h, true);
		struct got_run *r = drive_start(&h.d, &(struct link_run_spec){ .argv = any, .stdin_open = true });
		guest_frame_put(&h.say, GUEST_RUN_ROOM, 0, r->id, (struct str){ (const char *)rooms[kind], 16 });
		hostile_says(&h);
	}
}

static void text_is_made_clean(void **state)
{
	(void)state;
	struct hostile h;
	hostile_init(&h, true);
	struct got_op *o = drive_op_start(&h.d, &(struct op_spec){ .kind = OP_SYNC }, (struct str){ NULL, 0 });
	guest_result_put(&h.say, GUEST_OP_END, 1, &(struct guest_result){ 200, 5, STR("a\x1b[2Jb\xff\xc3\xa9\n") });
	guest_frame_put(&h.say, GUEST_RUN_CANCEL, 0, 1, (struct str){ NULL, 0 });
	hostile_says(&h);
	assert_string_equal(o->err.message, "a?[2Jb?\xc3\xa9?");
	assert_int_equal(o->err.kind, ERR_INTERNAL); /* a kind that does not exist */
	got_op_free(o);
}

static void a_guest_that_is_none(void **state)
{
	(void)state;
	uint64_t start = now_ms();
	struct hostile h;
	hostile_init(&h, false);
	/* noise for ever instead of a hello */
	int fd = (int)h.d.known_n;
	h.d.known_n = 0;
	static const struct link_events events;
	struct link *l = link_new(&loop, fd, &events, NULL);
	assert_non_null(l);
	char noise[65536];
	memset(noise, 0x55, sizeof noise);
	size_t said = 0;
	while (link_is_open(l) && now_ms() - start < 10000) {
		ssize_t n = send(h.fd, noise, sizeof noise, MSG_NOSIGNAL);
		said += n > 0 ? (size_t)n : 0;
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	assert_false(link_is_open(l));
	assert_true(said < 16 << 20);
	drive_for(&h.d, 1);
	link_free(l);
	buf_done(&h.say);
	close(h.fd);
}

int main(void)
{
	const struct CMUnitTest real[] = {
		cmocka_unit_test(runs_over_a_stream),
		cmocka_unit_test(a_new_hello_starts_over),
		cmocka_unit_test(a_cgroup_holds_the_whole_tree),
		cmocka_unit_test(a_request_too_long_is_an_answer),
		cmocka_unit_test(a_closed_link_answers_everything),
	}, hostile[] = {
		cmocka_unit_test(lies_about_output), cmocka_unit_test(lies_about_ops), cmocka_unit_test(lies_about_stdin), cmocka_unit_test(told_late),
		cmocka_unit_test(last_words_are_heard), cmocka_unit_test(text_is_made_clean), cmocka_unit_test(a_guest_that_is_none),
	};
	signal(SIGPIPE, SIG_IGN);
	uv_loop_init(&loop);
	int failed = cmocka_run_group_tests_name("hostile guest", hostile, NULL, NULL);
	failed += cmocka_run_group_tests_name("real guest", real, start_guest, stop_guest);
	uv_run(&loop, UV_RUN_NOWAIT);
	return failed + (uv_loop_close(&loop) < 0);
}
