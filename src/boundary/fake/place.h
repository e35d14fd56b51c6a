/* The directory of one fake sandbox, and the process that becomes its PID 1. */
#ifndef CAISSON_BOUNDARY_FAKE_PLACE_H
#define CAISSON_BOUNDARY_FAKE_PLACE_H

#include "base/err.h"
#include "base/util.h"

#include <sys/types.h>

/* Makes DIR/root as an empty sandbox sees it. 0 or -errno */
int place_make(const char *dir, struct err *e);
/* Another place with the same root, whose sandbox is not running or is held still by the caller. All or nothing. */
int place_copy(const char *from, const char *to, struct err *e);
int place_remove(const char *dir, struct err *e); /* also when nothing is there */
uint64_t place_bytes(const char *dir);
/* Starts the guest on DIR/root with DIR/sock as its descriptor 3 and writes DIR/pid. Returns the pid or a negative errno. */
pid_t place_start(const char *dir, const char *guest, const char *hostname, struct err *e);
int place_connect(const char *dir);               /* a descriptor or -errno */
/* A pidfd of the PID 1 that DIR/pid names, if it is still that process; else -ESRCH. */
int place_process(const char *dir);
size_t place_processes(const char *dir);          /* how many run in it */
void place_hold(const char *dir, bool held);      /* stops them all, or lets them go on */

#endif
