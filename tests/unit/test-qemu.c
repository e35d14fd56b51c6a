/* A QEMU's monitor as it should not be: one that answers, of a machine that will never move again; one that does not answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "boundary/vm/qemu.h"
#include "boundary/vm/vmdir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BEAT_MS = 300, ANSWERS = 3 };

/* In a child: QEMU as far as its monitor shows. status NULL: it greets and says no more. Ends by itself when it has been asked often. */
static _Noreturn void play(int listener, const char *status)
{
	struct pollfd ready = { .fd = listener, .events = POLLIN };

	(void)poll(&ready, 1, -1);
	int fd = accept(listener, NULL, NULL);
	FILE *f = fdopen(fd, "r");
	char line[4096];

	if (!f)
		_exit(1);
	dprintf(fd, "{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7, \"minor\": 2, \"micro\": 0}}, \"capabilities\": []}}\r\n");
	for (unsigned asked = 0; asked < ANSWERS && fgets(line, sizeof line, f);) {
		const char *id = strstr(line, "\"id\"");
		if (!id || !status)
			continue;
		id += strcspn(id, "0123456789");
		char result[100] = "{}";
		if (strstr(line, "query-status") && ++asked)
			snprintf(result, sizeof result, "{\"status\": \"%s\", \"running\": %s}", status, streq(status, "running") ? "true" : "false");
		dprintf(fd, "{\"return\": %s, \"id\": %lu}\r\n", result, strtoul(id, NULL, 10));
		}
	_exit(0);
}

struct stage {
	struct launcher launcher;
	const char *status;
	bool started, ended;
	struct err why;
};

static void start(struct launcher *l, const struct launch *what, launched_fn done, void *ctx)
{
	struct stage *s = container_of(l, struct stage, launcher);
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		play(what->fds[VMM_FD_QMP - VMM_FD_FIRST], s->status);
	done(ctx, NULL, pid, (int)syscall(SYS_pidfd_open, pid, 0));
}

static void end(struct launcher *l, const char *id, int pidfd)
{
	(void)l, (void)id;
	(void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

static void swept(struct launcher *l, const char *id, swept_fn done, void *ctx)
{
	(void)l, (void)id;
	done(ctx, false);
}

static void on_started(void *ctx, const struct err *e)
{
	((struct stage *)ctx)->started = !e;
}

static void on_ended(void *ctx, const struct err *why)
{
	struct stage *s = ctx;

	s->ended = true;
	s->why = *why;
}

/* Why it ended. */
static struct err see(const char *status)
{
	static const struct qemu_events events = { .started = on_started, .ended = on_ended };
	struct stage s = { .launcher = { .start = start, .kill = end, .swept = swept }, .status = status };
	char path[] = "/tmp/caisson-qemu-XXXXXX";
	uv_loop_t loop;

	assert_non_null(mkdtemp(path));
	auto_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_fd int qmp = vmdir_listen(dir, "qmp");
	assert_true(qmp >= 0);
	uv_loop_init(&loop);
	const struct qemu_host host = { &loop, &s.launcher, BEAT_MS };
	struct qemu *q = qemu_new(&host, dir, &events, &s);
	struct launch l = { .id = "11111111-2222-4333-8444-555555555555", .fds = { -EBADF, -EBADF, -EBADF, qmp, -EBADF, -EBADF, -EBADF } };
	qemu_start(q, &l);
	assert_true(s.started);
	while (!s.ended)
		uv_run(&loop, UV_RUN_ONCE);
	qemu_free(q);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	(void)unlinkat(dir, "qmp", 0);
	(void)unlinkat(dir, "vmm", 0);
	assert_int_equal(rmdir(path), 0);
	return s.why;
}

static void one_that_kvm_gave_up_is_ended(void **state)
{
	(void)state;
	struct err why = see("internal-error");

	assert_non_null(strstr(why.message, "KVM has given the virtual machine up"));
}

static void one_that_does_not_answer_is_ended(void **state)
{
	(void)state;
	struct err why = see(NULL);

	assert_non_null(strstr(why.message, "does not answer"));
}

static void one_that_runs_or_is_paused_is_left_alone(void **state)
{
	(void)state;
	struct err running = see("running"), paused = see("paused");

	assert_string_equal(running.message, "the virtual machine has ended: QEMU was killed or crashed");
	assert_string_equal(paused.message, "the virtual machine has ended: QEMU was killed or crashed");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_kvm_gave_up_is_ended),
		cmocka_unit_test(one_that_does_not_answer_is_ended),
		cmocka_unit_test(one_that_runs_or_is_paused_is_left_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
