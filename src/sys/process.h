/* Processes: the one place that clones, and pid + start time as the name of a process that survives us. */
#ifndef CAISSON_SYS_PROCESS_H
#define CAISSON_SYS_PROCESS_H

#include "base/util.h"

/* clone3 on a stack of the caller's, for a child that shares our memory (CLONE_VM) until it execs.
 *
 * `flags` as for clone3, CLONE_VM and CLONE_PIDFD are added. cgroup_fd >= 0 adds CLONE_INTO_CGROUP. The child runs fn(arg) and must
 * not return from it; it may use only raw system calls and memory that nobody else touches: no malloc, no stdio; errno is
 * shared. The stack must stay until the child has exec'd or ended. `gone` (may be NULL): made non-zero by the caller, zeroed and woken by
 * the kernel at that moment (process_word_wait). Returns the pid (and pidfd), or a negative errno. */
pid_t process_clone(uint64_t flags, int cgroup_fd, void *stack, size_t stack_size, int (*fn)(void *arg), void *arg, uint32_t *gone,
		    int *ret_pidfd);
/* Words in shared memory. wait: until it is no longer `value`, at most so long (negative: for ever); 0 or -ETIMEDOUT. */
int process_word_wait(uint32_t *word, uint32_t value, int timeout_ms);
void process_word_set(uint32_t *word, uint32_t value); /* and wake */

int process_pidfd(pid_t pid);		      /* pidfd_open */
int process_fd(int pidfd, int number);	      /* pidfd_getfd: a copy of one of its descriptors */
int process_signal(int pidfd, int signo);     /* -ESRCH when it has ended */
bool process_ended(int pidfd);		      /* without waiting */
int process_wait(int pidfd, int *ret_status); /* blocks; for our own children: status as waitid si_status, negative for a signal */
void process_reap(int pidfd);		      /* our own ended child, without waiting; somebody else's: nothing */
/* Field 22 of /proc/PID/stat: clock ticks after boot. With the pid it names one process of one boot. */
int process_start_time(pid_t pid, uint64_t *ret_ticks);
/* The kernel's name of this boot (a UUID and NUL). */
int process_boot_id(char ret_text[static 37]);

/* A user namespace that maps 0..count-1 to base.. and has no process in it: what an idmapped mount needs. */
int process_userns(uint32_t base, uint32_t count);

#endif
