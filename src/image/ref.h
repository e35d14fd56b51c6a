/* References: how users name images. Pure functions on text. */
#ifndef CAISSON_IMAGE_REF_H
#define CAISSON_IMAGE_REF_H

#include "base/util.h"

#define IMAGE_REF_MAX 255     /* bytes of a reference, of a name and of a pattern */
#define IMAGE_DIGEST_LEN 71   /* "sha256:" + 64 lower-case hex digits */

bool image_digest_valid(const char *s);

/* May a user give an image this name? Letters, digits and ._-/:@ , starting with a letter or digit, no "//", no "..",
 * not the form of a digest. */
bool image_name_valid(const char *s);

/* A name whose last character may be a star. */
bool image_pattern_valid(const char *s);

/* Drops what container tools add by themselves: the default registry and its "library/", and the tag "latest"; a digest
 * behind a tag ("debian:12@sha256:...") goes too. Heap-owned. */
char *image_ref_normalise(const char *ref);

/* Length of the pattern's literal part when it matches, else -1: the longest wins. */
int image_pattern_match(const char *pattern, const char *name);

#endif
