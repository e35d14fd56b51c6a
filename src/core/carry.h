/* What goes on in the children of a fork with memory: the parent's commands and sessions as of the fork, so that each child knows
 * its copies by the same names, from the same offsets of their output; the interpreters of those that are their kernels, too. */
#ifndef CAISSON_CORE_CARRY_H
#define CAISSON_CORE_CARRY_H

#include "core/core_int.h"

struct carried;
/* Before the sandbox is held still. From here until carry_release nothing that its guest says is acknowledged, so that what the children's
 * guests hold joins on to what is kept here. */
struct carried *carry_take(struct sandbox *s);
void carry_release(struct carried *c, struct sandbox *s); /* c: what was taken of it, or NULL */
/* Into a child that has been stored, before its guest is heard. */
void carry_give(const struct carried *c, struct sandbox *child);
void carry_free(struct carried *c); /* accepts NULL */

#endif
