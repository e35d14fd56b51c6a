/* Starts a program as a child of PID 1: the one place that forks into exec. */
#ifndef CAISSON_GUEST_LAUNCH_H
#define CAISSON_GUEST_LAUNCH_H

#include "guest/confine.h"
#include "guest/user.h"

#include <sys/resource.h>

enum { LAUNCH_SCRIPT_FD = 63 }; /* where a script is found by the program: /dev/fd/63 */

struct guest;

enum launch_stage { LAUNCH_OK, LAUNCH_SETUP, LAUNCH_CONFINE, LAUNCH_USER, LAUNCH_CWD, LAUNCH_EXEC };

struct launch {
	const char *const *argv;
	const char *const *env;
	const struct user *user;
	const char *cwd;          /* must exist, may be relative to the default; NULL = that: the first that exists of fallback[] */
	const char *fallback[3];
	const int *dir;           /* a directory to start in, as who runs us may enter it, unless there is a cwd; or NULL. Borrowed */
	int fds[3];               /* become 0, 1, 2; borrowed */
	int extra, extra_to;      /* one more descriptor; unset = none. Borrowed */
	const struct confine *confine; /* what it may use */
	bool no_new_privs;        /* set-id programs give it nothing */
	bool pty;                 /* the first of fds that is a terminal is to be controlled */
	int cgroup_procs;         /* or unset. Borrowed */
	struct rlimit files;      /* RLIMIT_NOFILE of the program: PID 1 has raised its own */
	/* filled in: */
	int report;               /* while it starts: where the child tells us what we can't see */
	bool asked;               /* it is a fork: an exec that fails is not known here, but said by it */
	enum launch_stage stage;  /* where it stopped, LAUNCH_OK = it runs */
	int errnum;
	pid_t pid;                /* when it is not the child itself */
	int listener;             /* of what it executes, the caller's (notify.h); or unset */
	char program[256];        /* what was executed or, with EACCES, refused first; "" when its path is longer */
};

/* What it executes is told from now on, for as long as it lives; for the run's number, or 0. After launch() has given a pid. */
void launch_notify(struct launch *l, struct guest *g, uint64_t run);

/* Returns the pid, also when exec failed (stage LAUNCH_EXEC: the child has exited with 126 or 127 as a shell would);
 * or a negative errno, with stage set when a child got that far, and no child left. */
pid_t launch(struct launch *l);

#endif
