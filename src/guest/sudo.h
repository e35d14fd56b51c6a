/* sudo where set-id programs give nothing (no_new_privs): the program asks PID 1, which has the right, to start the command. */
#ifndef CAISSON_GUEST_SUDO_H
#define CAISSON_GUEST_SUDO_H

#include "guest/guest.h"

/* Abstract, so nobody inside can take it away or put another one in its place, and nobody outside the sandbox's network namespace
 * can reach it. */
#define SUDO_SOCKET "caisson-sudo"

/* What a request comes with by SCM_RIGHTS: the command's 0, 1, 2 and its directory. */
enum { SUDO_FD_DIR = 3, SUDO_FDS };

/* Says so on stderr and goes on when it cannot. */
void sudo_listen(struct guest *g);
/* Puts `program` in the place of the image's sudo, if it has one. */
void sudo_install(const char *program);
/* True: it was a command of ours. */
bool sudo_reaped(struct guest *g, pid_t pid, int status);

/* The program `sudo` itself: sudo_client.c */
bool sudo_is_meant(const char *argv0);
int sudo_main(int argc, char **argv);

/* sudo_relay.c: the terminal of a command. */
struct sudo_relay {
	int own;     /* the asker's terminal, or unset: the command gets our descriptors as they are */
	int master;
	bool raw, input;
	bool held;   /* what was typed before it was raw is still to be read: an end of file in it is a zero there */
};
/* Makes one if any of 0 to 2 is a terminal; fds[] (0 to 2 of the command) are replaced where they were. 0 or -errno. */
int sudo_relay_open(struct sudo_relay *r, int fds[static 3]);
/* Until the guest has told the end (returns its status as an exit code, negative: a signal's number) or has gone (127). */
int sudo_relay_run(struct sudo_relay *r, int guest);

#endif
