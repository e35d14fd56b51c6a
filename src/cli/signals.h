/* Signals to this program that are meant for the command in the sandbox: SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, and a
 * changed window size.
 *
 * A thread takes them from the moment of signals_start() on. What comes before the command runs is kept and sent to it
 * once it does; what comes after its end is not needed. Asking again helps against what does not listen: the third SIGINT or
 * SIGTERM cancels the command (SIGKILL to its tree), the fifth ends this program at once - also while no command runs, the third. */
#ifndef CAISSON_CLI_SIGNALS_H
#define CAISSON_CLI_SIGNALS_H

#include "caisson.h"

/* Once per process, before other threads. Returns 0 or a negative errno. */
int signals_start(void);
/* Send to this run from now on, over this connection, which belongs to the signal thread until signals_untarget(). */
void signals_target(struct caisson *c, const char *sandbox, const char *run, bool tty);
void signals_untarget(void);

#endif
