/* The image that is there without anybody having added one, and what every image is made ready for. */
#ifndef CAISSON_CLI_DEFAULT_IMAGE_H
#define CAISSON_CLI_DEFAULT_IMAGE_H

#include "cli/cli.h"
#include "image/build.h"

/* Builds the default image, for every boundary that this machine can give, with progress on stderr, when `image` means it (NULL or
 * "default") and it isn't there yet. 0, or CLI_FAILED after a message. Takes minutes the first time and root; otherwise two small files
 * are read. */
int default_image_ensure(const char *image);

/* What the vm boundary needs of an image, and its kernel. A host that can't have that is told so, and has the process boundary all the same. */
void image_for_machines(struct image_store *s, const char *digest, const struct image_options *o);

/* image_options.progress: to stderr. */
void image_progress(void *ctx, const char *line);

#endif
