/* A new image while it is being made: a locked folder in the store, and its way in. Private to this layer. */
#ifndef CAISSON_IMAGE_WORK_H
#define CAISSON_IMAGE_WORK_H

#include "image/build.h"
#include "image/refs.h"

struct work {
	int folder;      /* IMAGES */
	int dir;         /* IMAGES/tmp-<random>, mode 0700, exclusive lock held: nobody else reaches what is in it */
	char name[24];   /* "tmp-<random>" */
	char *path;      /* its absolute path */
	char *rootfs;    /* path/image/rootfs, made empty by work_begin */
	struct image_options options; /* no zero limits in it */
};

/* Also clears away what builds that were killed left behind more than a day ago. */
int work_begin(struct image_store *s, const struct image_options *o, struct work *ret, struct err *e);
void work_say(const struct work *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void work_line(void *work, const char *line); /* a tool's line, for child_run */

/* Seals rootfs, gives it its digest and its place, and names it. Equal content that is there already is used as it is. */
int work_commit(struct work *w, const char *name, struct image_config *c, char ret_digest[static 72], struct err *e);
void work_end(struct work *w); /* always: removes the folder unless committed */

/* Exclusive lock on a file of the store, for as long as the descriptor is open. */
int image_folder_lock(int folder, const char *file, bool wait, struct err *e);
int image_folder_open(struct image_store *s, struct err *e); /* makes the folder */

/* sources.c: the host's package sources that are the distribution's own, as one-line entries; the base suite; options for apt
 * (proxy and such) that hold on this host. Heap-owned. */
struct host_sources {
	char *list, *suite;
	char **apt_options;
};
int host_sources_find(struct host_sources *ret, struct err *e);
void host_sources_done(struct host_sources *h);

/* import.c */
int import_source(struct work *w, const char *source, struct image_config *ret_config, struct err *e);

#endif
