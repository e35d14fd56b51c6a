#include "boundary/vm/monitor.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

struct monitor {
	uv_poll_t poll;
	int fd;
	struct qmp qmp;
};

static void on_closed(uv_handle_t *h)
{
	struct monitor *m = h->data;

	close_fd(m->fd);
	qmp_done(&m->qmp);
	free(m);
}

static void lose(struct monitor *m, int errnum, const char *what)
{
	struct err e;

	uv_poll_stop(&m->poll);
	(void)err_sys(&e, ERR_UNAVAILABLE, errnum, "QEMU's monitor: %s", what);
	qmp_end(&m->qmp, &e);
}

static ssize_t send_with(int fd, struct str s, int passed)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof passed), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { (void *)(uintptr_t)s.p, s.n };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (passed >= 0) {
		memcpy(CMSG_DATA(&control.head), &passed, sizeof passed);
		msg.msg_control = &control;
		msg.msg_controllen = sizeof control.room;
	}
	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void on_poll(uv_poll_t *h, int status, int events);

static void flush(struct monitor *m)
{
	struct str s;
	int fd;
	bool more;

	while ((more = qmp_to_send(&m->qmp, &s, &fd))) {
		ssize_t n = send_with(m->fd, s, fd);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break; /* a broken one is seen by reading */
		qmp_sent(&m->qmp, (size_t)n);
	}
	if (m->qmp.state != QMP_ENDED)
		uv_poll_start(&m->poll, UV_READABLE | (more ? UV_WRITABLE : 0), on_poll);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	struct monitor *m = h->data;
	char block[16384];

	if (status < 0) {
		lose(m, -status, "the connection");
		return;
	}
	ssize_t n = events & UV_READABLE ? recv(m->fd, block, sizeof block, MSG_DONTWAIT) : -(errno = EAGAIN);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		lose(m, n == 0 ? EPIPE : errno, "the connection");
		return;
	}
	if (n > 0 && qmp_feed(&m->qmp, (struct str){ block, (size_t)n }) < 0) {
		uv_poll_stop(&m->poll);
		return;
	}
	flush(m);
}

struct monitor *monitor_new(uv_loop_t *loop, int fd, qmp_event_fn on_event, void *ctx)
{
	struct monitor *m = xcalloc(1, sizeof *m);

	m->fd = fd;
	qmp_init(&m->qmp, on_event, ctx);
	uv_poll_init(loop, &m->poll, fd);
	m->poll.data = m;
	uv_poll_start(&m->poll, UV_READABLE, on_poll);
	return m;
}

void monitor_call(struct monitor *m, const char *command, json_t *arguments, int fd, qmp_done_fn done, void *ctx)
{
	qmp_call(&m->qmp, command, arguments, fd, done, ctx);
	flush(m);
}

void monitor_free(struct monitor *m)
{
	if (!m)
		return;
	lose(m, ECANCELED, "closed");
	uv_close((uv_handle_t *)&m->poll, on_closed);
}
