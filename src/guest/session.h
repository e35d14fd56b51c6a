/* Sessions: shells that are fed one command after another. See session.c for how. */
#ifndef CAISSON_GUEST_SESSION_H
#define CAISSON_GUEST_SESSION_H

#include "guest/run.h"

void session_open(struct guest *g, uint64_t serial, const struct guest_run_request *r);
void session_close(struct guest *g, uint64_t serial, const char *id);
struct session *session_find(struct guest *g, const char *id);
struct session *session_of_pid(struct guest *g, pid_t pid);
void session_reaped(struct session *s, int status);
/* The run (QUEUED, command and input set up) goes to the end of the session's queue. */
void session_queue(struct session *s, struct run *r);
void session_run_resume(struct session *s, struct run *r); /* a window has room again */
void session_run_signal(struct session *s, struct run *r, int signo);
void session_run_kill(struct session *s, struct run *r);   /* flags of r->end are set */
/* The shell of this image: bash where it has one, else sh. */
const char *session_shell(bool *ret_bash);
void sessions_tell_ends(struct guest *g);                  /* to a new connection */

#endif
