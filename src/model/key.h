/* The shape of an API key, for those who must keep keys from where they do not belong. Making and checking: core/keys.h. */
#ifndef CAISSON_MODEL_KEY_H
#define CAISSON_MODEL_KEY_H

#include "base/util.h"

#define KEY_PREFIX "e2b_" /* and KEY_DIGITS hexadecimal digits, which every SDK accepts */
#define KEY_DIGITS 40

/* Does the text hold anything of that shape, valid or not? */
bool key_is_in(struct str text);

#endif
