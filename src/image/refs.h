/* The two JSON files of the image folder as data: refs.json (names and the operator's table) and image.json. Private to
 * this layer. Both are written by root only; they are still read with bounds and checked, so a damaged file is an error
 * that names it and never a crash. */
#ifndef CAISSON_IMAGE_REFS_H
#define CAISSON_IMAGE_REFS_H

#include "base/buf.h"
#include "image/image.h"

#define IMAGE_JSON_MAX (4U << 20)

/* A regular file's bytes, appended; too large for the buffer is ERR_INVALID. */
int image_read_file(int dir, const char *name, struct buf *to, struct err *e);

struct refs {
	struct pairs names; /* name -> digest */
	struct pairs map;   /* pattern -> name */
};
void refs_done(struct refs *r);
int refs_load(int folder, struct refs *ret, struct err *e); /* no file: empty */
int refs_save(int folder, const struct refs *r, struct err *e);

/* What an image says about how to run it. NULL-terminated lists, NULL = empty. */
struct image_config {
	char *user, *workdir;
	struct pairs env;
	char **entrypoint, **cmd;
	char **privileged; /* "4755 /usr/bin/sudo": set-id bits that were taken off the tree, see tree.h */
};
void image_config_done(struct image_config *c);
char **strings_copy(const char *const *v); /* NULL in, NULL out */
void strings_free(char **v);

/* Canonical text, the same for equal configurations: part of what the digest covers. Heap-owned. */
char *image_config_text(const struct image_config *c);
/* From the `config` object of an OCI image (User, WorkingDir, Env, Entrypoint, Cmd) or from the recipe's own file. */
int image_config_from_oci(struct str json, struct image_config *ret, struct err *e);
int image_config_from_recipe(struct str json, struct image_config *ret, struct err *e);

int image_json_save(int dir, const char *digest, uint64_t created_ms, uint64_t size, const struct image_config *c, struct err *e);
/* dir: IMAGES/sha256-<hex>. Fills all of ret but root and names. */
int image_json_load(int dir, const char *digest, struct image *ret, struct err *e);
/* Only its list of set-id files: NULL-terminated, heap-owned (strings_free), NULL = none. */
int image_json_privileged(int dir, char ***ret, struct err *e);

/* "sha256:<hex>" as the name of its folder, "sha256-<hex>". */
void image_folder_name(const char *digest, char ret_name[static 72]);

/* Which version of a file was read: every writer renames a new one into place. */
struct file_version {
	uint64_t inode, changed_ns;
};

struct image_store {
	char *folder;
	/* The last answer of image_resolve, good as long as both files are the ones it came from. */
	char *last_ref;
	struct image last;
	struct file_version last_refs, last_image;
};

#endif
