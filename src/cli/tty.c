#include "cli/tty.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* Process-wide by nature: there is one controlling terminal, and a signal handler must find it. */
static struct termios before;
static volatile sig_atomic_t raw_fd = -1;

void tty_restore(void)
{
	int fd = raw_fd;

	if (fd >= 0) {
		raw_fd = -1;
		tcsetattr(fd, TCSADRAIN, &before);
	}
}

static void on_crash(int signo)
{
	tty_restore();
	signal(signo, SIG_DFL);
	raise(signo);
}

static void set_raw(int fd)
{
	struct termios raw = before;

	cfmakeraw(&raw);
	raw.c_cc[VMIN] = 1;
	raw.c_cc[VTIME] = 0;
	tcsetattr(fd, TCSADRAIN, &raw);
}

bool tty_raw(int fd)
{
	static const int crashes[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL };
	static bool registered;

	if (tcgetattr(fd, &before) < 0)
		return false;
	if (!registered) {
		registered = true;
		atexit(tty_restore);
		for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
			signal(crashes[i], on_crash);
	}
	raw_fd = fd;
	set_raw(fd);
	return true;
}

void tty_raw_again(void)
{
	if (raw_fd >= 0)
		set_raw(raw_fd);
}

bool tty_size(uint16_t *ret_rows, uint16_t *ret_cols)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		struct winsize w;
		if (ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 && w.ws_col > 0) {
			*ret_rows = w.ws_row;
			*ret_cols = w.ws_col;
			return true;
		}
	}
	return false;
}
