/* Making images, and the names they go by. For the command line and `./dev`, as root; the daemon never calls these.
 *
 * All work happens in IMAGES/tmp-<random>, locked while in use, and becomes visible by one rename; a failure or a kill at any
 * moment leaves the store as it was. Functions block, for minutes if need be, and run tools of the host as children.
 * Two builds of the default image don't run at once: the second waits for the first and then has nothing to do. */
#ifndef CAISSON_IMAGE_BUILD_H
#define CAISSON_IMAGE_BUILD_H

#include "image/image.h"

/* One line of progress, in words for a person. May be NULL where it is taken. */
typedef void (*image_progress_fn)(void *ctx, const char *line);

struct image_options {
	image_progress_fn progress;
	void *ctx;
	uint64_t max_bytes;   /* of an image's files; 0 = 32 GiB */
	uint64_t max_entries; /* 0 = 4 million */
	bool force;           /* build: also when the image is there already */
};

/* Builds `default` with mmdebstrap from the host's own Debian (or Ubuntu) package sources, the recipe of images/default.
 * Does nothing when there is one, unless forced. At the first build the table of stand-ins gets its start:
 * python:* debian:* ubuntu:* node:* -> default. */
int image_build_default(struct image_store *s, const struct image_options *o, char ret_digest[static 72], struct err *e);

/* Adds an image as `name` (replacing what had that name). source:
 *   FILE           a root file system as tar, or compressed with gzip, xz, zstd or bzip2
 *   oci:DIR[:TAG]  an OCI layout
 *   docker-archive:FILE[:REF]   what `docker save` writes
 * Nothing of the source is trusted: see child.h and tree.h. */
int image_add(struct image_store *s, const char *name, const char *source, const struct image_options *o, char ret_digest[static 72], struct err *e);

/* Removes the name, and the files when it was the last one; a digest removes the image with all its names. ERR_CONFLICT while
 * a sandbox uses the files: nothing is changed then. */
int image_remove(struct image_store *s, const char *ref, struct err *e);

/* Another name for an image that is there. */
int image_tag(struct image_store *s, const char *ref, const char *name, struct err *e);

/* The operator's table: pattern (a name, or its beginning and a star) stands for name. name NULL takes the line out. */
int image_map(struct image_store *s, const char *pattern, const char *name, struct err *e);
int image_map_each(struct image_store *s, void (*each)(void *ctx, const char *pattern, const char *name), void *ctx, struct err *e);

#endif
