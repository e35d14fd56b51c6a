/* Programs that somebody has to be asked for. docs/internals/permissions.md has the theory. */
#ifndef CAISSON_GUEST_HOLD_H
#define CAISSON_GUEST_HOLD_H

#include "guest/confine.h"
#include "guest/loop.h"

#include <sys/stat.h>
#include <sys/types.h>

struct guest;

struct holding { /* an execve of which the kernel has notified us */
	struct guest *g;
	int listener;    /* borrowed: hold_forget when it goes */
	uint64_t notice; /* the kernel's number of it */
	pid_t pid;
	uint64_t run;
};

/* Its path says a program that is to be asked for, which is file `what`. */
void hold_ask(const struct holding *h, const char *path, const struct confine_verdict *v, const struct stat *what);
/* Its path says nothing that has to be asked for, or nothing: the kernel goes on with it, and then what has become of it is looked at. With
 * tell the verdict is told, too. */
void hold_check(const struct holding *h, bool tell);
void hold_answer(struct guest *g, uint64_t ask, bool allowed);
void hold_tell_all(struct guest *g); /* a daemon that has just come */
void hold_forget(struct guest *g, int listener);

#endif
