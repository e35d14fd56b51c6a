/* Confines the calling process for child.h. Private to this layer. */
#ifndef CAISSON_IMAGE_JAIL_H
#define CAISSON_IMAGE_JAIL_H

#include "image/child.h"

/* Called in a fresh child of a root process. Returns 0 in a descendant inside the jail that has /out (else /) as its
 * directory; those between stay behind, wait for it and end with its status. Negative errno: nothing runs. */
int jail_enter(const struct child_jail *j);

#endif
