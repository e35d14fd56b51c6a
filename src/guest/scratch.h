/* A private directory of one run inside the sandbox, for a script that must be a real file or a fifo. */
#ifndef CAISSON_GUEST_SCRATCH_H
#define CAISSON_GUEST_SCRATCH_H

#include "guest/user.h"

struct scratch {
	char dir[64], path[112]; /* path: of the one file in it; empty = nothing there */
	struct user user;
};

/* A file with these bytes, or (bytes.p NULL) a fifo whose both-ways, non-blocking descriptor is returned.
 * Owned by the user. Returns 0 or the descriptor, or a negative errno. */
int scratch_make(struct scratch *s, const struct user *u, const char *name, struct str bytes);
/* Removes all of it: at once when only the file is there, else in a child that is the user (returns its pid, else 0). */
pid_t scratch_remove(struct scratch *s);
/* An unlinked file in memory that any user may read by its /dev/fd path. Returns it or a negative errno. */
int script_in_memory(struct str bytes);

#endif
