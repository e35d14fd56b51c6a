/* Files between this machine and a sandbox, one tree at a time.
 *
 * Out of a sandbox every name is hostile: the local side is walked by directory descriptors, one component at a time and
 * without following links; a name with a slash, "." or ".." is refused; a symbolic link is made only when it can't lead out of
 * the copied tree; set-user-id and set-group-id bits stay behind. */
#ifndef CAISSON_CLI_COPY_H
#define CAISSON_CLI_COPY_H

#include "caisson.h"

struct copy {
	struct caisson *c;
	const char *sandbox;
	uint64_t files, bytes, skipped;
};
enum { COPY_DEPTH_MAX = 256 };

/* 0, or the exit code after a message. What exists already is replaced; directories are merged. `to` is, as with cp, the new
 * name, or an existing directory to put it into; "from/." means what is in the directory. "-" is stdout or stdin. */
int copy_out(struct copy *c, const char *from, const char *to);
int copy_in(struct copy *c, const char *from, const char *to);

/* The last component of a path that a user typed; NULL when it has none that names something ("/", ".", ".."). Heap. */
char *copy_base_name(const char *path);
/* Whether it ends in "/." (or is "."): what is in it, not itself. */
bool copy_means_contents(const char *path);

/* Whether a name that a sandbox gave is one component of a path. */
bool copy_name_is_safe(const char *name);
/* Whether a link with this target, `depth` directories below the top of the copied tree, stays in the tree: relative, at most
 * `depth` times ".." and those all at the front. ("a/../.." may leave by way of a link named a.) */
bool copy_link_is_safe(const char *target, unsigned depth);

#endif
