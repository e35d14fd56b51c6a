/* The image store: read-only root filesystems, content-addressed, in one folder of the host.
 *
 *   IMAGES/sha256-<hex>/rootfs/      the tree; mode 0700, because the files in it belong to the users of the image, by number:
 *                                    a user of the host with the same number must not reach them. (The root of an overlay
 *                                    has the mode of its upper layer.)
 *   IMAGES/sha256-<hex>/image.json   {"digest","created_ms","size_bytes","user","workdir","env":{},"entrypoint":[],"cmd":[],
 *                                    "privileged":["4755 /usr/bin/sudo"]}: tree.h says why
 *   IMAGES/refs.json                 {"refs":{"default":"sha256:...","debian:12":"sha256:..."},"map":{"python:*":"default"}}
 *   IMAGES/tmp-*                     work in progress; removed when older than a day and not locked
 *
 * The folder is written only by root (CLI image commands, `./dev run`); the daemon reads it. Everything is made beside
 * and renamed, so a reader never sees half. Whoever uses an image holds a shared flock on its folder: removal takes an
 * exclusive one, and says "in use" when it can't. Looking up never blocks for long: two small files are read,
 * or, for what was asked last, looked at. */
#ifndef CAISSON_IMAGE_IMAGE_H
#define CAISSON_IMAGE_IMAGE_H

#include "base/err.h"
#include "model/spec.h"

struct image {
	char digest[72];    /* "sha256:" + 64 hex */
	char *root;         /* absolute path of rootfs */
	char *user;         /* default user of runs, or NULL = root */
	char *workdir;      /* or NULL */
	struct pairs env;   /* of the image: PATH and such */
	char **names;       /* references that point here, NULL-terminated */
	uint64_t size_bytes, created_ms;
	bool stand_in;      /* the operator's table led here from another name */
};
void image_done(struct image *i);

struct image_store;
/* The folder need not exist yet. */
struct image_store *image_store_new(const char *folder);
void image_store_free(struct image_store *s);

/* A reference as users write it: "default", "python:3.12", "debian", "docker.io/library/debian:12.9", "sha256:...".
 * Resolution: exact name, then normalised (default registry and :latest dropped), then the operator's table ("map", with * at
 * the end of a pattern; longest pattern wins). Nothing: ERR_NOT_FOUND with the names that are there. */
int image_resolve(struct image_store *s, const char *ref, struct image *ret, struct err *e);
/* A descriptor that keeps the image from being removed for as long as it is open, or a negative errno and e. */
int image_hold(struct image_store *s, const char *digest, struct err *e);
int image_each(struct image_store *s, void (*each)(void *ctx, const struct image *i), void *ctx, struct err *e);

#endif
