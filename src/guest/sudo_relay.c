/* Theory of operation. A command that PID 1 starts is of no session of ours, so our terminal cannot be the one that controls it. It gets
 * a terminal of its own, whose bytes, size and end we carry over, as sudo itself does for use_pty. Ours is raw meanwhile, so Ctrl-C and
 * the like are characters that the command's terminal makes signals of. In the background we neither read nor change it.
 *
 * In a pipeline (0 is no terminal) ours stays as it is, and the command's leaves the bytes alone.
 *
 * Without a terminal the command has our own descriptors, and signals that we get are handed on. */
#include "guest/sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

static struct termios before; /* of our terminal */

static void copy_size(const struct sudo_relay *r)
{
	struct winsize size;

	if (r->own >= 0 && ioctl(r->own, TIOCGWINSZ, &size) == 0)
		(void)ioctl(r->master, TIOCSWINSZ, &size);
}

int sudo_relay_open(struct sudo_relay *r, int fds[static 3])
{
	int unlock = 0, own = -EBADF;

	for (int i = 0; i < 3 && own < 0; i++)
		if (isatty(fds[i]))
			own = fds[i];
	if (own < 0)
		return 0;
	r->own = fcntl(own, F_DUPFD_CLOEXEC, 3);
	r->input = isatty(fds[0]);
	r->master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (r->own < 0 || r->master < 0 || ioctl(r->master, TIOCSPTLCK, &unlock) < 0 || tcgetattr(r->own, &before) < 0)
		return -errno;
	int slave = ioctl(r->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	struct termios t = before;
	if (!r->input)
		t.c_oflag &= ~(tcflag_t)OPOST; /* once is enough */
	(void)tcsetattr(slave, TCSANOW, &t);
	(void)fcntl(r->master, F_SETFL, O_RDWR | O_NONBLOCK);
	copy_size(r);
	for (int i = 0; i < 3; i++)
		if (isatty(fds[i]))
			fds[i] = slave;
	return 0;
}

/* The terminal is ours to read and change only in the foreground. */
static void take_terminal(struct sudo_relay *r)
{
	struct termios t = before;

	if (!r->input || r->raw || tcgetpgrp(r->own) != getpgrp())
		return;
	r->held = poll(&(struct pollfd){ .fd = r->own, .events = POLLIN }, 1, 0) > 0;
	cfmakeraw(&t);
	r->raw = tcsetattr(r->own, TCSADRAIN, &t) == 0;
}

static void give_terminal_back(struct sudo_relay *r)
{
	if (r->raw)
		(void)tcsetattr(r->own, TCSADRAIN, &before);
	r->raw = false;
}

static void write_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t w = write(fd, p, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return; /* nobody reads it any more */
		p += w;
		n -= (size_t)w;
	}
}

/* What the command writes. False: there will be no more. */
static bool carry_output(int master, int to)
{
	char bytes[16384];
	ssize_t n = read(master, bytes, sizeof bytes);

	if (n > 0)
		write_all(to, bytes, (size_t)n);
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* What is typed: kept while the command does not read, so that its output is not held up. False: there will be no more. */
static bool carry_input(struct sudo_relay *r, struct buf *typed)
{
	char *to = typed->len ? NULL : buf_reserve(typed, 4096);
	ssize_t n = to ? read(0, to, 4096) : 0;

	for (ssize_t i = 0; r->held && i < n; i++)
		if (to[i] == '\0')
			to[i] = (char)before.c_cc[VEOF];
	if (n > 0) {
		r->held = false;
		buf_grew(typed, (size_t)n);
	}
	ssize_t w = typed->len ? write(r->master, typed->data, typed->len) : 0;
	if (w > 0)
		buf_consume(typed, (size_t)w);
	else if (w < 0 && errno != EAGAIN && errno != EINTR)
		return false;
	return !to || n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void hand_on(struct sudo_relay *r, int signals, int guest)
{
	struct signalfd_siginfo i;
	uint8_t frame[GUEST_HEAD + 4] = { 0 };

	if (read(signals, &i, sizeof i) != sizeof i)
		return;
	if (i.ssi_signo == SIGWINCH) {
		copy_size(r);
		return;
	}
	guest_head_put(frame, GUEST_RUN_SIGNAL, 0, 0, 4);
	frame[GUEST_HEAD] = (uint8_t)i.ssi_signo;
	(void)send(guest, frame, sizeof frame, MSG_NOSIGNAL);
	if (i.ssi_signo == SIGTSTP) {
		give_terminal_back(r);
		(void)raise(SIGSTOP);
	}
	take_terminal(r);
}

/* 1: the end has been told. */
static int listen_to(int guest, struct buf *in, int *ret_status)
{
	struct guest_frame f;
	struct guest_run_end end;
	char *to = buf_reserve(in, 1024);
	ssize_t n = to ? read(guest, to, 1024) : -1;

	if (n < 0 && errno == EINTR)
		return 0;
	*ret_status = 127;
	if (n <= 0)
		return 1;
	buf_grew(in, (size_t)n);
	ssize_t got = guest_frame_next(buf_str(in), &f);
	if (got == 0)
		return 0;
	if (got < 0 || f.type != GUEST_RUN_END || guest_run_end_get(f.payload, &end) < 0)
		return 1;
	*ret_status = end.signal ? -(int)end.signal : end.exit_code;
	if (end.flags & GUEST_END_FAILED) {
		fprintf(stderr, "sudo: %.*s\n", (int)end.message.n, end.message.p);
		*ret_status = 1;
	}
	return 1;
}

static int watch_signals(void)
{
	static const int handed_on[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGCONT, SIGWINCH };
	sigset_t s;

	sigemptyset(&s);
	for (size_t i = 0; i < ARRAY_LEN(handed_on); i++)
		sigaddset(&s, handed_on[i]);
	(void)sigprocmask(SIG_BLOCK, &s, NULL);
	(void)signal(SIGTTOU, SIG_IGN);
	return signalfd(-1, &s, SFD_CLOEXEC);
}

int sudo_relay_run(struct sudo_relay *r, int guest)
{
	int signals = watch_signals(), status = 127, out = -EBADF;
	auto_buf struct buf in, typed;

	buf_init(&in, 8192);
	buf_init(&typed, 8192);
	for (int i = 1; i < 3 && out < 0; i++)
		if (isatty(i))
			out = i;
	if (out < 0)
		out = r->own;
	take_terminal(r);
	for (bool input = r->input, output = r->own >= 0;;) {
		struct pollfd p[] = { { .fd = guest, .events = POLLIN },
				      { .fd = signals, .events = POLLIN },
				      { .fd = output ? r->master : -1, .events = (short)(POLLIN | (typed.len ? POLLOUT : 0)) },
				      { .fd = input && r->raw && !typed.len ? 0 : -1, .events = POLLIN } };
		if (poll(p, ARRAY_LEN(p), -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents)
			hand_on(r, signals, guest);
		if (p[2].revents & ~POLLOUT)
			output = carry_output(r->master, out);
		if (p[3].revents || p[2].revents & POLLOUT)
			input = carry_input(r, &typed);
		if (p[0].revents && listen_to(guest, &in, &status))
			break;
	}
	/* what the command had written before its end is there by now */
	for (struct pollfd p = { .fd = r->master, .events = POLLIN }; r->own >= 0 && poll(&p, 1, 0) > 0 && p.revents & POLLIN;)
		if (!carry_output(r->master, out))
			break;
	give_terminal_back(r);
	return status;
}
