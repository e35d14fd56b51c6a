/* The image that is there without anybody having added one. */
#ifndef CAISSON_CLI_DEFAULT_IMAGE_H
#define CAISSON_CLI_DEFAULT_IMAGE_H

#include "cli/cli.h"

/* Builds the default image, with progress on stderr, when `image` means it (NULL or "default") and it isn't there yet. 0, or
 * CLI_FAILED after a message. Takes minutes the first time and root; otherwise two small files are read. */
int default_image_ensure(const char *image);

#endif
