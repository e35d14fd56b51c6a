#include "cli/signals.h"

#include "base/util.h"
#include "cli/tty.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int forwarded[] = { SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2 };
enum { CANCEL_AT = 3, GIVE_UP_AT = 5, CANCELED_WITHIN_MS = 5000 };

/* Process-wide, as signals are. Everything but the descriptors is under the lock, which the thread also holds while it
 * sends: so signals_untarget() returns only when nobody uses the connection any more. */
static struct {
	pthread_mutex_t lock;
	int signals, wake;
	struct caisson *c; /* NULL: no target */
	const char *sandbox, *run;
	bool tty;
	uint64_t kept;     /* bit per signal that came before the first target */
	bool had_target;
	int asked;         /* SIGINT and SIGTERM so far */
	uint64_t give_up_ms; /* what was killed has until then to end; 0 = nothing was */
} self = { .lock = PTHREAD_MUTEX_INITIALIZER, .signals = -1, .wake = -1 };

static void resize(void)
{
	uint16_t rows, cols;

	if (self.tty && tty_size(&rows, &cols))
		caisson_run_resize(self.c, self.sandbox, self.run, rows, cols, NULL);
}

/* A terminal sends these to its whole foreground: a shell that waits for a child notices ^C by the child's end. */
static bool is_of_terminals(int signo)
{
	return signo == SIGINT || signo == SIGQUIT || signo == SIGHUP;
}

static void forward(int signo)
{
	/* It may have ended meanwhile: then there is nothing to say. */
	caisson_run_signal(self.c, self.sandbox, self.run, signo, !self.tty && is_of_terminals(signo), NULL);
}

static void give_up(int signo)
{
	tty_restore();
	_exit(128 + signo);
}

static void take(int signo)
{
	if (signo == SIGWINCH || signo == SIGCONT) {
		if (signo == SIGCONT && self.tty)
			tty_raw_again();
		if (self.c)
			resize();
		return;
	}
	if (signo == SIGINT || signo == SIGTERM)
		self.asked++;
	if (self.asked >= (self.c ? GIVE_UP_AT : CANCEL_AT))
		give_up(signo);
	if (!self.c) {
		self.kept |= self.had_target ? 0 : 1ull << signo;
	} else if (self.asked >= CANCEL_AT) {
		self.give_up_ms = now_ms() + CANCELED_WITHIN_MS;
		caisson_run_cancel(self.c, self.sandbox, self.run, NULL);
	} else {
		forward(signo);
	}
}

static void *thread(void *unused)
{
	struct pollfd p[] = { { .fd = self.signals, .events = POLLIN }, { .fd = self.wake, .events = POLLIN } };

	(void)unused;
	for (;;) {
		struct signalfd_siginfo info;
		uint64_t count;
		if (poll(p, ARRAY_LEN(p), self.give_up_ms ? 200 : -1) < 0 && errno != EINTR)
			return NULL;
		pthread_mutex_lock(&self.lock);
		if (self.c && self.give_up_ms && now_ms() > self.give_up_ms) {
			fprintf(stderr, "caisson: the sandbox does not answer; what runs in it was left\n");
			give_up(SIGINT);
		}
		if (read(self.wake, &count, sizeof count) == sizeof count && self.c) {
			resize(); /* the size may have changed since the run was asked for */
			for (size_t i = 0; i < ARRAY_LEN(forwarded); i++)
				if (self.kept & 1ull << forwarded[i])
					forward(forwarded[i]);
			self.kept = 0;
		}
		while (read(self.signals, &info, sizeof info) == sizeof info)
			take((int)info.ssi_signo);
		pthread_mutex_unlock(&self.lock);
	}
}

int signals_start(void)
{
	pthread_t id;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(forwarded); i++)
		sigaddset(&set, forwarded[i]);
	sigaddset(&set, SIGWINCH);
	sigaddset(&set, SIGCONT);
	self.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	self.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (self.signals < 0 || self.wake < 0)
		return -errno;
	int r = pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (r == 0)
		r = pthread_create(&id, NULL, thread, NULL);
	if (r == 0)
		r = pthread_detach(id);
	return -r;
}

void signals_target(struct caisson *c, const char *sandbox, const char *run, bool tty)
{
	const uint64_t one = 1;

	pthread_mutex_lock(&self.lock);
	self.c = c;
	self.sandbox = sandbox;
	self.run = run;
	self.tty = tty;
	self.had_target = true;
	pthread_mutex_unlock(&self.lock);
	ssize_t ignored = write(self.wake, &one, sizeof one);
	(void)ignored;
}

void signals_untarget(void)
{
	pthread_mutex_lock(&self.lock);
	self.c = NULL;
	self.tty = false;
	pthread_mutex_unlock(&self.lock);
}
