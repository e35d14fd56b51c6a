/* The mount namespace that every sandbox's is copied from: an empty read-only root, and a /proc that lists nobody, without which the
 * kernel refuses a new one to a child user namespace. The sandbox's root is laid over that root, so there is nothing of the host to
 * be cut off: no pivot_root, which looks at every task of the host, and no unmounting, which waits for a grace period. */
#ifndef CAISSON_WARDEN_STAGE_H
#define CAISSON_WARDEN_STAGE_H

#include "base/err.h"

struct stage {
	int own, root; /* to come back: the warden's mount namespace and its root */
	int set;
};
#define STAGE_INIT ((struct stage){ .own = -EBADF, .root = -EBADF, .set = -EBADF })

/* The working directory is / from here on. */
int stage_make(struct stage *s, struct err *e);
void stage_close(struct stage *s);
/* For the moment of a clone, in which no path may be used. */
int stage_enter(const struct stage *s);
/* Without a way back the warden cannot go on: it ends itself. */
void stage_leave(const struct stage *s);

#endif
