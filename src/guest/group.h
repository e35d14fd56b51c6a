/* The processes that one run or session ever started, as a whole.
 *
 * With a delegated cgroup-v2 directory each gets a child group: exact, whatever setsid, double forks or fork bombs do. Without
 * one the members are found in /proc: descendants, the process group and session of the first process, and an environment
 * variable. That is good for tests and honest programs, no more. */
#ifndef CAISSON_GUEST_GROUP_H
#define CAISSON_GUEST_GROUP_H

#include "base/util.h"

#define GROUP_MARK "CAISSON_GROUP" /* environment variable, only without cgroups */

struct group {
	char name[24];
	bool made; /* as a cgroup */
	int procs; /* made: its cgroup.procs, or unset */
};

struct groups {
	int dir; /* the delegated directory, or unset */
	uint64_t serial; /* names */
	struct group *left; /* of ended runs */
	size_t left_n, tried_n; /* the first tried_n of them were not empty yet */
	struct group spare; /* one that is empty, for the next run; making and removing one costs as much as all else in a start */
};

void groups_init(struct groups *gs, int dir);
/* Before the first run, when there is time: makes the spare one. */
void groups_prepare(struct groups *gs);
/* Returns a descriptor of cgroup.procs for the first process to write "0" to (borrowed), or -EBADF without cgroups. */
int group_make(struct groups *gs, struct group *g);
/* Signals every member but `spare` (0 = none); `first` is the first process. Returns true when none was found.
 * With SIGKILL and nothing spared also what is being forked meanwhile. */
bool group_signal(struct groups *gs, const struct group *g, pid_t first, pid_t spare, int signo);
/* The run is over: the group goes at the next groups_tidy, or when its last process has gone. */
void group_release(struct groups *gs, struct group *g);
/* How many processes the kernel has ended for want of memory, where it says so of the whole directory; else 0. */
uint64_t groups_oom_kills(const struct groups *gs);
/* The group that a process is in now, as a path in the delegated directory. */
bool group_of_process(pid_t pid, char *ret, size_t size);
void groups_tidy(struct groups *gs); /* after the news of ends have been sent */
void groups_sweep(struct groups *gs); /* tries those that were left */

#endif
