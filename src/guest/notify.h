/* What programs are executed where they have rules: the kernel says it of each before it does it (a seccomp notification), and PID 1 tells the
 * daemon what the rules say. What they deny is refused here already; but Landlock keeps them (confine.h): who asks could change the path
 * after we have read it, and gains nothing but a wrong line. docs/internals/permissions.md */
#ifndef CAISSON_GUEST_NOTIFY_H
#define CAISSON_GUEST_NOTIFY_H

#include "guest/confine.h"
#include "wire/guest.h"

#include <sys/stat.h>
#include <sys/types.h>

struct guest;
struct run;

/* How hold.c answers, and looks. */
void notify_refuse(int listener, uint64_t notice);
bool notify_continue(int listener, uint64_t notice); /* false: who asked has gone */
bool notify_valid(int listener, uint64_t notice);
bool notify_program(pid_t pid, char *ret_path, struct stat *ret); /* what a process runs; path of PATH_MAX */
bool notify_forked_only(pid_t pid); /* it has executed nothing since it was forked */
/* What there is to say waits or is left out while more than this waits to be sent. */
enum { NOTIFY_OUT_HIGH = 128 * 1024 };
void notify_tell(struct guest *g, uint64_t run, const char *path, const struct confine_verdict *v, enum guest_verdict_how how);

/* Serves the notifications of a run's programs, by the listener that confine_filter_enter gave; takes it. It lasts as long as one of them. */
void notify_serve(struct guest *g, int listener, uint64_t run);
/* The first program of a run, which is not asked about (launch.c): path, and whether the kernel has refused it. */
void notify_first(struct guest *g, uint64_t run, const char *path, bool refused);

#endif
