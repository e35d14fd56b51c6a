/* Confines the calling process for child.h. Private to this layer. */
#ifndef CAISSON_IMAGE_JAIL_H
#define CAISSON_IMAGE_JAIL_H

#include "image/child.h"

/* Called in a fresh child of a root process. Returns 0 in a grandchild, which is PID 1 of the jail and has /out (else /)
 * as its directory; the child itself stays behind, waits for it and ends with its status. Negative errno: nothing runs. */
int jail_enter(const struct child_jail *j);

#endif
