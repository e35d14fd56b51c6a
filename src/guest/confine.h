/* What programs may execute, read and write, where the daemon has said so: a Landlock ruleset that every one of them enters before its
 * exec, and that it and what it starts never leave. The sandbox's own files ops are not bound by it: they are the API's. */
#ifndef CAISSON_GUEST_CONFINE_H
#define CAISSON_GUEST_CONFINE_H

#include "base/util.h"

struct confine {
	bool on;     /* programs are confined */
	int ruleset; /* with on: or a negative errno, and then none can be started */
};

/* The rules from now on: entries of wire/permit.h. None: programs that are started from now on are not confined. -EPROTO */
int confine_set(struct confine *c, struct str rules);
/* In the child, with nothing but system calls: enters it. 0 or -errno. */
int confine_enter(const struct confine *c);

#endif
