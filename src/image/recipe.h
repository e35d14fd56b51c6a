/* The files of images/default, embedded when the program was built (scripts/embed). Private to this layer. */
#ifndef CAISSON_IMAGE_RECIPE_H
#define CAISSON_IMAGE_RECIPE_H

#include <stddef.h>

struct recipe_file {
	const char *name;
	const unsigned char *data;
	size_t len;
};
extern const struct recipe_file recipe_files[]; /* ends with a NULL name */

#endif
