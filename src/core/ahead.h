/* A Python that was started before there was anything for it to do: script.py in a ready sandbox, its code not written yet.
 *
 * It is the very program that a run of Python code would start, with the same arguments, environment, directory, user and
 * descriptors, and does the same thing after its start: it waits for its standard input. So a run may take it only if all of
 * these are what it would have had, and as long as nobody has done anything in the sandbox that its start could have seen. */
#ifndef CAISSON_CORE_AHEAD_H
#define CAISSON_CORE_AHEAD_H

#include "core/core_int.h"

enum { AHEAD_RUN = 1 }; /* its number, the first of its sandbox */

void ahead_start(struct link *l, const char *user, bool merge_stderr);
/* Is there one, and does it suit this run (cmd: what that would start; env: with everything of the sandbox's)? Else there is none any
 * more: whatever comes now may change what it has seen. */
bool ahead_take(struct sandbox *s, const struct run_spec *spec, const struct command *cmd, const struct pairs *env);
/* The run that has taken it begins. */
void ahead_run(struct sandbox *s, const struct command *cmd, uint64_t timeout_ms);
/* Something is going to be changed in the sandbox, or it has waited for too long. */
void ahead_drop(struct sandbox *s);
void ahead_drop_for(struct sandbox *s, const struct op_spec *spec); /* if this changes anything */
void ahead_sweep(struct sandbox *s);

#endif
