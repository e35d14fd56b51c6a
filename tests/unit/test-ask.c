/* One question to a guest that answers, one to a guest that is silent, and one while nobody ran, neither we nor the guest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "boundary/vm/ask.h"
#include "wire/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static struct told {
	unsigned times;
	struct err e; /* kind 0 = answered */
} told;

static void on_done(void *ctx, const struct err *e)
{
	struct told *t = ctx;

	t->times++;
	if (e)
		t->e = *e;
}

/* The guest's end of the line. */
static int begin(uv_loop_t *loop, uint64_t timeout_ms)
{
	int line[2];

	told = (struct told){ 0 };
	assert_int_equal(uv_loop_init(loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, line), 0);
	(void)ask_new(loop, line[0], &(struct ask_what){ ask_put_sync, GUEST_OP_END, ASK_BETWEEN, timeout_ms }, on_done, &told);
	return line[1];
}

static void say(int fd, struct buf *b)
{
	assert_int_equal(write(fd, b->data, b->len), (ssize_t)b->len);
	buf_done(b);
}

static void answer(uv_loop_t *loop, int fd)
{
	static const char nothing[8] = { GUEST_VERSION };
	struct buf b;

	buf_init(&b, 4096);
	assert_int_equal(guest_frame_put(&b, GUEST_READY, 0, GUEST_HELLO_ID, (struct str){ nothing, sizeof nothing }), 0);
	assert_int_equal(guest_result_put(&b, GUEST_OP_END, 7, &(struct guest_result){ 0 }), 0); /* of nobody's question */
	say(fd, &b);
	uv_run(loop, UV_RUN_ONCE);
	assert_int_equal(told.times, 0);
	buf_init(&b, 4096);
	assert_int_equal(guest_result_put(&b, GUEST_OP_END, ASK_ID, &(struct guest_result){ 0 }), 0);
	say(fd, &b);
}

static void end(uv_loop_t *loop, int fd)
{
	uv_run(loop, UV_RUN_DEFAULT); /* until nothing is open any more */
	assert_int_equal(told.times, 1);
	assert_int_equal(uv_loop_close(loop), 0);
	close(fd);
}

static void it_is_answered(void **state)
{
	(void)state;
	uv_loop_t loop;
	int fd = begin(&loop, 60000);

	answer(&loop, fd);
	end(&loop, fd);
	assert_int_equal(told.e.kind, 0);
}

static void silence_has_an_end(void **state)
{
	(void)state;
	uv_loop_t loop;
	int fd = begin(&loop, 10);

	end(&loop, fd);
	assert_int_equal(told.e.kind, ERR_UNAVAILABLE);
	assert_int_equal(told.e.errnum, ETIMEDOUT);
}

static void time_in_which_nobody_ran_does_not_count(void **state)
{
	(void)state;
	uv_loop_t loop;
	int fd = begin(&loop, 3000);

	usleep(4200000);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(told.times, 0);
	answer(&loop, fd);
	end(&loop, fd);
	assert_int_equal(told.e.kind, 0);
}

static void nor_is_it_waited_for_without_end(void **state)
{
	(void)state;
	uv_loop_t loop;
	int fd = begin(&loop, 1);

	for (int i = 0; i < 2; i++) {
		usleep(1300000);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	end(&loop, fd);
	assert_int_equal(told.e.errnum, ETIMEDOUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_answered),
		cmocka_unit_test(silence_has_an_end),
		cmocka_unit_test(time_in_which_nobody_ran_does_not_count),
		cmocka_unit_test(nor_is_it_waited_for_without_end),
	};

	return cmocka_run_group_tests_name("ask", tests, NULL, NULL);
}
