#include "image/build.h"

#include "image/ref.h"
#include "image/tree.h"
#include "image/work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

int image_add(struct image_store *s, const char *name, const char *source, const struct image_options *o, char ret_digest[static 72], struct err *e)
{
	if (!image_name_valid(name))
		return err_set(e, ERR_INVALID, EINVAL, "not a name for an image: '%.100s' (letters, digits and ._-/:@, beginning with a letter or digit)", name);
	struct work w;
	int r = work_begin(s, o, &w, e);
	if (r < 0)
		return r;
	struct image_config c = { 0 };
	r = import_source(&w, source, &c, e);
	if (r == 0)
		r = work_commit(&w, name, &c, ret_digest, e);
	image_config_done(&c);
	work_end(&w);
	return r;
}

/* --- names --- */

/* refs.json under its lock: change() edits, then it is written. */
static int change_refs(struct image_store *s, int (*change)(void *ctx, int folder, struct refs *r, struct err *e), void *ctx, struct err *e)
{
	auto_fd int folder = image_folder_open(s, e);
	if (folder < 0)
		return folder;
	auto_fd int lock = image_folder_lock(folder, "lock", true, e);
	if (lock < 0)
		return lock;
	struct refs refs;
	int r = refs_load(folder, &refs, e);
	if (r < 0)
		return r;
	r = change(ctx, folder, &refs, e);
	refs_done(&refs);
	return r;
}

struct naming {
	struct image_store *store;
	const char *what, *to; /* tag: name, digest. map: pattern, name or NULL. remove: reference, NULL */
};

static int do_tag(void *ctx, int folder, struct refs *r, struct err *e)
{
	const struct naming *n = ctx;
	pairs_add(&r->names, n->what, n->to);
	return refs_save(folder, r, e);
}

int image_tag(struct image_store *s, const char *ref, const char *name, struct err *e)
{
	if (!image_name_valid(name))
		return err_set(e, ERR_INVALID, EINVAL, "not a name for an image: '%.100s'", name);
	struct image i = { 0 };
	int r = image_resolve(s, ref, &i, e);
	if (r == 0)
		r = change_refs(s, do_tag, &(struct naming){ s, name, i.digest }, e);
	image_done(&i);
	return r;
}

static int do_map(void *ctx, int folder, struct refs *r, struct err *e)
{
	const struct naming *n = ctx;
	if (!n->to && !pairs_remove(&r->map, n->what))
		return err_set(e, ERR_NOT_FOUND, ENOENT, "the table has no line '%.100s'", n->what);
	if (n->to && !pairs_get(&r->names, n->to))
		return err_set(e, ERR_NOT_FOUND, ENOENT, "no image has the name '%.100s'", n->to);
	if (n->to)
		pairs_add(&r->map, n->what, n->to);
	return refs_save(folder, r, e);
}

int image_map(struct image_store *s, const char *pattern, const char *name, struct err *e)
{
	if (!image_pattern_valid(pattern))
		return err_set(e, ERR_INVALID, EINVAL, "not a pattern: '%.100s' (a name, or the beginning of one and a star)", pattern);
	return change_refs(s, do_map, &(struct naming){ s, pattern, name }, e);
}

int image_map_each(struct image_store *s, void (*each)(void *ctx, const char *pattern, const char *name), void *ctx, struct err *e)
{
	auto_fd int folder = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return errno == ENOENT ? 0 : err_sys(e, ERR_UNAVAILABLE, errno, "can't open the image folder %s", s->folder);
	struct refs refs;
	int r = refs_load(folder, &refs, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < refs.map.n; i++)
		each(ctx, refs.map.v[i].key, refs.map.v[i].value);
	refs_done(&refs);
	return 0;
}

/* --- removal --- */

static size_t names_on(const struct refs *r, const char *digest)
{
	size_t n = 0;
	for (size_t i = 0; i < r->names.n; i++)
		n += streq(r->names.v[i].value, digest);
	return n;
}

static void drop_names_on(struct refs *r, const char *digest)
{
	for (size_t i = r->names.n; i-- > 0;)
		if (streq(r->names.v[i].value, digest))
			pairs_remove(&r->names, r->names.v[i].key);
}

/* Renamed away first, so that nobody finds half an image; whoever looks for it from now on gets "not found". */
static int remove_files(int folder, const char *digest, struct refs *r, struct err *e)
{
	char name[72], aside[24] = "tmp-";
	image_folder_name(digest, name);
	random_hex(aside + 4, 8);
	auto_fd int dir = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 && errno != ENOENT)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't open image %s", digest);
	if (dir >= 0 && flock(dir, LOCK_EX | LOCK_NB) < 0)
		return err_set(e, ERR_CONFLICT, EBUSY, "image %s is in use: delete the sandboxes made from it first (a server lets ready ones go a minute after"
			       " the last create; 'caisson pool ls' shows them)", digest);
	if (dir >= 0 && renameat(folder, name, folder, aside) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't remove image %s", digest);
	int saved = refs_save(folder, r, e);
	int removed = dir >= 0 ? tree_remove(folder, aside, saved < 0 ? NULL : e) : 0;
	return saved < 0 ? saved : removed;
}

static int do_remove(void *ctx, int folder, struct refs *r, struct err *e)
{
	const struct naming *n = ctx;
	struct image i = { 0 };
	bool by_digest = image_digest_valid(n->what);
	auto_free char *digest = xstrdup(by_digest ? n->what : pairs_get(&r->names, n->what));
	/* Only a name of its own can be removed: a stand-in's name is somebody else's. */
	if (!digest)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "no image has the name '%.100s'", n->what);
	if (by_digest && names_on(r, digest) == 0) {
		int found = image_resolve(n->store, digest, &i, e);
		image_done(&i);
		if (found < 0)
			return found;
	}
	if (by_digest)
		drop_names_on(r, digest);
	else
		pairs_remove(&r->names, n->what);
	return names_on(r, digest) == 0 ? remove_files(folder, digest, r, e) : refs_save(folder, r, e);
}

int image_remove(struct image_store *s, const char *ref, struct err *e)
{
	return change_refs(s, do_remove, &(struct naming){ s, ref, NULL }, e);
}
