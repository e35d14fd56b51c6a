#include "boundary/vm/ask.h"

#include "wire/guest.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

const char ask_zeros[GUEST_PAYLOAD_MAX + GUEST_HEAD];

enum { NOISE_MAX = 4 * 1024 * 1024, CHUNK = 64 * 1024, REQUEST_MAX = 64 * 1024, SOON_MS = 2000,
       STOOD_STILL_MS = 1000 /* a timer that late: we did not run, and the guest likely neither */ };

struct ask {
	uv_poll_t poll;
	uv_timer_t timer;
	int fd, handles;
	bool synced, asked, over, excused;
	uint64_t due_ms;
	size_t noise;
	struct buf in, out;
	struct guest_assembly message;
	struct ask_what what;
	ask_done_fn done;
	void *ctx;
};

static void on_closed(uv_handle_t *h)
{
	struct ask *a = h->data;

	if (--a->handles > 0)
		return;
	close_fd(a->fd);
	buf_done(&a->in);
	buf_done(&a->out);
	guest_assembly_done(&a->message);
	free(a);
}

void ask_free(struct ask *a)
{
	if (!a || a->over)
		return;
	a->over = true;
	(void)shutdown(a->fd, SHUT_RDWR); /* QEMU takes the next one at once, not when the loop gets round to it */
	uv_close((uv_handle_t *)&a->poll, on_closed);
	uv_close((uv_handle_t *)&a->timer, on_closed);
}

static void end(struct ask *a, const struct err *e)
{
	ask_done_fn done = a->done;
	void *ctx = a->ctx;

	ask_free(a);
	done(ctx, e);
}

static void fail(struct ask *a, int errnum, const char *what)
{
	struct err e;

	(void)err_sys(&e, ERR_UNAVAILABLE, errnum, "the virtual machine's guest: %s", what);
	end(a, &e);
}

static void on_poll(uv_poll_t *h, int status, int events);
static void send_what_is_there(struct ask *a);

static void put_hello(struct ask *a, bool led_up)
{
	static const char version[4] = { GUEST_VERSION };

	if (led_up)
		(void)buf_add(&a->out, ask_zeros, sizeof ask_zeros);
	(void)guest_frame_put(&a->out, GUEST_HELLO, 0, GUEST_HELLO_ID, (struct str){ version, sizeof version });
}

static void on_timer(uv_timer_t *t);

static void await_answer(struct ask *a)
{
	a->due_ms = now_ms() + a->what.timeout_ms;
	uv_timer_start(&a->timer, on_timer, a->what.timeout_ms, 0);
}

static void on_timer(uv_timer_t *t)
{
	struct ask *a = t->data;
	struct err e;

	if (now_ms() - a->due_ms > STOOD_STILL_MS && !a->excused) {
		a->excused = true; /* once: it is never waited for without end */
		await_answer(a);
		return;
	}
	(void)err_set(&e, ERR_UNAVAILABLE, ETIMEDOUT, "the virtual machine's guest has not answered within %llu seconds: is this host too busy? Try again",
		      (unsigned long long)a->what.timeout_ms / 1000);
	end(a, &e);
}

/* A first hello that was heard and not answered yet does no harm: what we ask comes behind the second one. */
static void on_soon(uv_timer_t *t)
{
	struct ask *a = t->data;

	await_answer(a);
	if (a->asked)
		return;
	put_hello(a, true);
	send_what_is_there(a);
}

static void send_what_is_there(struct ask *a)
{
	while (a->out.len) {
		ssize_t n = send(a->fd, a->out.data, a->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break; /* a broken one is seen by reading */
		buf_consume(&a->out, (size_t)n);
	}
	uv_poll_start(&a->poll, UV_READABLE | (a->out.len ? UV_WRITABLE : 0), on_poll);
}

/* 1: the answer has been told. */
static int take_frame(struct ask *a, const struct guest_frame *f, struct str message)
{
	struct guest_result r;
	struct err e;

	if (f->type == GUEST_READY && f->id == GUEST_HELLO_ID && !a->asked) {
		a->asked = true;
		a->what.put(a->ctx, &a->out);
		if (a->out.overflow)
			return -ENOBUFS;
		send_what_is_there(a);
		return 0;
	}
	if (!a->asked || f->type != a->what.answer || f->id != ASK_ID)
		return 0; /* of runs and sessions, which are not our business */
	if (f->type == GUEST_RUN_END) {
		end(a, NULL);
		return 1;
	}
	if (guest_result_get(message, &r) < 0)
		return -EPROTO;
	if (r.kind)
		/* what was asked for may have been wrong; anything else that it says of itself is the same to us */
		(void)err_set(&e, r.kind == ERR_INVALID ? ERR_INVALID : ERR_UNAVAILABLE, EIO, "the virtual machine's guest: %s",
			      str_quote(r.text, &(struct quoted){ 0 }));
	end(a, r.kind ? &e : NULL);
	return 1;
}

static int parse(struct ask *a)
{
	struct guest_frame f;
	struct str message;
	ssize_t n;

	if (!a->synced) {
		size_t skip = guest_noise(buf_str(&a->in), GUEST_READY);
		a->noise += skip;
		buf_consume(&a->in, skip);
		if (a->noise > NOISE_MAX)
			return -EPROTO;
		a->synced = a->in.len >= GUEST_HEAD;
	}
	while (a->synced && (n = guest_frame_next(buf_str(&a->in), &f)) != 0) {
		int r = n < 0 ? -EPROTO : guest_assembly_feed(&a->message, &f, &message);
		if (r == 1)
			r = take_frame(a, &f, message);
		if (r != 0)
			return r;
		buf_consume(&a->in, (size_t)n);
	}
	return 0;
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	struct ask *a = h->data;
	char *at = buf_reserve(&a->in, CHUNK);
	ssize_t n = status < 0 || !at ? -1 : 0;

	if (n == 0 && events & UV_READABLE)
		n = recv(a->fd, at, CHUNK, MSG_DONTWAIT);
	else if (n == 0)
		n = -(errno = EAGAIN);
	if (n < 0 && (errno == EAGAIN || errno == EINTR) && status >= 0) {
		send_what_is_there(a);
		return;
	}
	if (n <= 0) {
		fail(a, n < 0 && status >= 0 ? errno : EPIPE, "the connection");
		return;
	}
	buf_grew(&a->in, (size_t)n);
	int r = parse(a);
	if (r < 0)
		fail(a, -r, "not its protocol");
	else if (r == 0)
		send_what_is_there(a);
}

struct ask *ask_new(uv_loop_t *loop, int fd, const struct ask_what *w, ask_done_fn done, void *ctx)
{
	struct ask *a = xcalloc(1, sizeof *a);

	a->fd = fd;
	a->handles = 2;
	a->what = *w;
	a->done = done;
	a->ctx = ctx;
	buf_init(&a->in, 4 * (GUEST_HEAD + GUEST_PAYLOAD_MAX));
	buf_init(&a->out, sizeof ask_zeros + REQUEST_MAX);
	guest_assembly_init(&a->message);
	put_hello(a, w->lead == ASK_HALF_SAID);
	uv_poll_init(loop, &a->poll, fd);
	uv_timer_init(loop, &a->timer);
	a->poll.data = a->timer.data = a;
	if (w->lead == ASK_PERHAPS_HALF_SAID)
		uv_timer_start(&a->timer, on_soon, SOON_MS, 0);
	else
		await_answer(a);
	send_what_is_there(a);
	return a;
}

void ask_put_sync(void *ctx, struct buf *to)
{
	(void)ctx;
	(void)guest_op_request_put(to, ASK_ID, &(struct guest_op_request){ .kind = GUEST_SYNC, .user = "0:0" });
}
