/* Carries messages between our kernel's file systems and the port. To the port one message at a time; from the port always, whatever
 * else waits: writing to the kernel does not block, so the server can always get rid of its answers and take the next request. */
#include "guest/volumes.h"
#include "wire/fuse.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

static_assert((int)GUEST_LINE_BYTES == (int)LINE_NONCE, "the line begins with what SETUP brings");

enum { PATIENCE_MS = 20000, PAUSE_MS = 2 };

struct relay {
	struct relay_ends ends;
	bool live[GUEST_VOLUMES_MAX]; /* mounted */
	const char *nonce;
	bool found;
	uint64_t began_ms;
	struct buf in, out;
};

/* What it may forget is whatever nothing uses. A process of its own does it: it may take a while. */
static void make_kernel_forget(void)
{
	if (fork() != 0)
		return;
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	_exit(fd < 0 || write(fd, "2", 1) != 1);
}

static int take_frames(struct relay *r)
{
	struct line_frame f;
	ssize_t n;

	if (!r->found)
		buf_consume(&r->in, line_noise(buf_str(&r->in), r->nonce, &r->found));
	while (r->found && (n = line_frame_next(buf_str(&r->in), &f)) != 0) {
		if (n < 0 || (f.kind == LINE_MESSAGE && f.volume >= r->ends.n))
			return -EPROTO;
		if (f.kind == LINE_FORGET)
			make_kernel_forget();
		else if (r->live[f.volume]) /* whoever asked may have gone meanwhile: then it is refused, and that is all */
			(void)!write(r->ends.fuse[f.volume], f.payload.p, f.payload.n);
		buf_consume(&r->in, (size_t)n);
	}
	return 0;
}

static int from_port(struct relay *r)
{
	char *at = buf_reserve(&r->in, FUSE_MESSAGE_MAX);
	ssize_t n = at ? read(r->ends.port, at, FUSE_MESSAGE_MAX) : -1;

	if (!at)
		return -ENOBUFS;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	buf_grew(&r->in, (size_t)n);
	return take_frames(r);
}

static int to_port(struct relay *r)
{
	ssize_t n = write(r->ends.port, r->out.data, r->out.len);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	buf_consume(&r->out, (size_t)n);
	return 0;
}

static void from_kernel(struct relay *r, unsigned i)
{
	char *at = buf_reserve(&r->out, LINE_HEAD + FUSE_MESSAGE_MAX);
	ssize_t n = read(r->ends.fuse[i], at + LINE_HEAD, FUSE_MESSAGE_MAX);

	if (n > 0) {
		line_head_put(at, LINE_MESSAGE, (uint8_t)i, (uint32_t)n);
		buf_grew(&r->out, LINE_HEAD + (size_t)n);
	} else if (n < 0 && errno == ENODEV) {
		r->live[i] = false; /* somebody has unmounted it */
	}
}

static void from_control(struct relay *r)
{
	char number;

	if (read(r->ends.control, &number, 1) != 1)
		r->ends.control = close_fd(r->ends.control);
	else if ((uint8_t)number < r->ends.n)
		r->live[(uint8_t)number] = true;
}

/* 0, or it is over. The driver may tell of an end that is none while the server begins (docs/internals/vm.md). */
static int turn(struct relay *r)
{
	struct pollfd p[2 + GUEST_VOLUMES_MAX] = { { .fd = r->ends.port, .events = (short)(POLLIN | (r->out.len ? POLLOUT : 0)) },
						   { .fd = r->ends.control, .events = POLLIN } };
	int rc = 0;

	for (unsigned i = 0; i < r->ends.n; i++)
		p[2 + i] = (struct pollfd){ .fd = r->live[i] && r->found && !r->out.len ? r->ends.fuse[i] : -1, .events = POLLIN };
	if (poll(p, 2 + r->ends.n, -1) < 0)
		return errno == EINTR ? 0 : -errno;
	if (p[0].revents & POLLIN)
		rc = from_port(r);
	if (rc == 0 && p[0].revents & POLLHUP) {
		if (r->found || now_ms() - r->began_ms > PATIENCE_MS)
			return -EPIPE;
		(void)poll(NULL, 0, PAUSE_MS);
	}
	if (rc == 0 && p[0].revents & POLLOUT)
		rc = to_port(r);
	if (p[1].revents)
		from_control(r);
	for (unsigned i = 0; rc == 0 && i < r->ends.n; i++) {
		if (p[2 + i].revents & POLLERR)
			r->live[i] = false;
		else if (p[2 + i].revents & POLLIN && !r->out.len)
			from_kernel(r, i);
	}
	return rc;
}

void relay_run(const struct relay_ends *ends, const char nonce[static GUEST_LINE_BYTES])
{
	struct relay r = { .ends = *ends, .nonce = nonce, .began_ms = now_ms() };

	(void)signal(SIGCHLD, SIG_IGN);
	buf_init(&r.in, 2 * (LINE_HEAD + FUSE_MESSAGE_MAX));
	buf_init(&r.out, LINE_HEAD + FUSE_MESSAGE_MAX);
	(void)buf_add(&r.out, nonce, GUEST_LINE_BYTES);
	while (turn(&r) == 0)
		;
}
