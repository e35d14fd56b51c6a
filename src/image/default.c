/* Theory of operation: the default image.
 *
 *   npm ci          node and its tools, in the exact versions of the lock file, into TMP/recipe/node_modules
 *   mmdebstrap      the packages of images/default/packages from the host's own sources, into TMP/image/rootfs
 *   customize       its hook: users, folders, node, trimming, byte code
 *   work_commit     digest, rename, name
 *
 * npm goes first: it is the quicker one to say that the network is not there. Its own cache and nothing else outlives a
 * failed build, so running it again costs less the second time. */
#include "image/build.h"

#include "base/buf.h"
#include "image/child.h"
#include "image/recipe.h"
#include "image/work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files newer than this get this time, and tools that write a date into a file write this one. */
#define EPOCH "SOURCE_DATE_EPOCH=1735689600"

static int write_file(int dir, const char *name, const void *data, size_t n, mode_t mode, struct err *e)
{
	auto_fd int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (fd < 0 || write(fd, data, n) != (ssize_t)n || fchmod(fd, mode) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't write %s", name);
	return 0;
}

static const struct recipe_file *recipe_find(const char *name)
{
	const struct recipe_file *f = recipe_files;
	while (f->name && !streq(f->name, name))
		f++;
	return f;
}

static int write_recipe(struct work *w, const char *sources, struct err *e)
{
	auto_fd int dir = mkdirat(w->dir, "recipe", 0755) < 0 ? -1 : openat(w->dir, "recipe", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't make a folder in %s", w->path);
	int r = write_file(dir, "sources.list", sources, strlen(sources), 0644, e);
	for (const struct recipe_file *f = recipe_files; f->name && r == 0; f++)
		r = write_file(dir, f->name, f->data, f->len, streq(f->name, "customize") ? 0755 : 0644, e);
	return r;
}

static int fetch_node(struct work *w, struct err *e)
{
	work_say(w, "fetching node and its tools (npm)");
	auto_free char *dir = xasprintf("%s/recipe", w->path);
	static const char *const argv[] = { "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", NULL };
	int r = child_run(&(struct child_spec){ .argv = argv, .dir = dir, .in = -1, .out = -1 }, work_line, w, "npm could not fetch node and its tools", e);
	if (r < 0 && r != -ENOENT && e) {
		struct err cause = *e;
		err_set(e, ERR_UNAVAILABLE, EIO,
			"%.330s. Can this host reach npm's registry? 'npm ping' tells; a proxy or another registry is set with 'npm config set'", cause.message);
	}
	return r;
}

/* "a,b,c" from one name a line with comments. Heap-owned. */
static char *package_list(void)
{
	const struct recipe_file *f = recipe_find("packages");
	auto_free char *text = xstrndup((const char *)f->data, f->len);
	struct buf list;
	buf_init(&list, 65536);
	char *rest = text;
	for (char *line; (line = strsep(&rest, "\n"));)
		if (line[0] && line[0] != '#')
			buf_addf(&list, "%s%s", list.len ? "," : "", line);
	return buf_take(&list);
}

#define APT_OPTIONS_MAX 8
static int bootstrap(struct work *w, const struct host_sources *h, struct err *e)
{
	auto_free char *packages = package_list();
	auto_free char *include = xasprintf("--include=%s", packages);
	auto_free char *hook = xasprintf("--customize-hook=%s/recipe/customize", w->path);
	auto_free char *sources = xasprintf("%s/recipe/sources.list", w->path);
	auto_free char *tools = xasprintf("NODE_TOOLS=%s/recipe", w->path);
	char *opt[APT_OPTIONS_MAX] = { NULL };
	const char *argv[32] = {
		"mmdebstrap", "--mode=root", "--variant=apt", "--format=directory", "--aptopt=APT::Install-Recommends \"false\"",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright", "--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/info/*", "--dpkgopt=path-exclude=/usr/share/locale/*", include, hook,
	};
	size_t n = 12;
	for (size_t i = 0; i < APT_OPTIONS_MAX && h->apt_options && h->apt_options[i]; i++)
		argv[n++] = opt[i] = xasprintf("--aptopt=%s", h->apt_options[i]);
	argv[n++] = h->suite;
	argv[n++] = w->rootfs;
	argv[n++] = sources;
	const char *env[] = { EPOCH, tools, "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", NULL };
	work_say(w, "installing the packages of %s (mmdebstrap)", h->suite);
	int r = child_run(&(struct child_spec){ .argv = argv, .env = env, .in = -1, .out = -1 }, work_line, w, "mmdebstrap could not install the packages", e);
	for (size_t i = 0; i < APT_OPTIONS_MAX; i++)
		free(opt[i]);
	if (r < 0 && r != -ENOENT && e) {
		struct err cause = *e;
		err_set(e, ERR_UNAVAILABLE, EIO, "%.300s. The lines above name the package or source; can this host reach its own package sources? 'apt-get update' tells",
			cause.message);
	}
	return r;
}

/* The names that SDKs send for an image of their own choosing. A stand-in, and documented as one: docs/internals/images.md. */
static const char *const first_patterns[] = { "debian:*", "node:*", "python:*", "ubuntu:*" };

static int start_table(int folder, struct err *e)
{
	auto_fd int lock = image_folder_lock(folder, "lock", true, e);
	if (lock < 0)
		return lock;
	struct refs refs;
	int r = refs_load(folder, &refs, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(first_patterns); i++)
		pairs_add(&refs.map, first_patterns[i], "default");
	r = refs_save(folder, &refs, e);
	refs_done(&refs);
	return r;
}

static int build(struct image_store *s, const struct image_options *o, bool first, char ret_digest[static 72], struct err *e)
{
	struct host_sources h = { 0 };
	int r = host_sources_find(&h, e);
	if (r < 0)
		return r;
	struct work w;
	r = work_begin(s, o, &w, e);
	if (r < 0) {
		host_sources_done(&h);
		return r;
	}
	const struct recipe_file *f = recipe_find("config.json");
	struct image_config c = { 0 };
	r = image_config_from_recipe((struct str){ (const char *)f->data, f->len }, &c, e);
	if (r == 0)
		r = write_recipe(&w, h.list, e);
	if (r == 0)
		r = fetch_node(&w, e);
	if (r == 0)
		r = bootstrap(&w, &h, e);
	if (r == 0)
		r = work_commit(&w, "default", &c, ret_digest, e);
	if (r == 0 && first)
		r = start_table(w.folder, e);
	if (r == 0)
		work_say(&w, "image default is %s", ret_digest);
	image_config_done(&c);
	host_sources_done(&h);
	work_end(&w);
	return r;
}

int image_build_default(struct image_store *s, const struct image_options *o, char ret_digest[static 72], struct err *e)
{
	auto_fd int folder = image_folder_open(s, e);
	if (folder < 0)
		return folder;
	auto_fd int lock = image_folder_lock(folder, "build.lock", false, e);
	if (lock == -EWOULDBLOCK) {
		if (o && o->progress)
			o->progress(o->ctx, "another build of the default image is running; waiting for it");
		lock = image_folder_lock(folder, "build.lock", true, e);
	}
	if (lock < 0)
		return lock;
	struct image there = { 0 };
	struct err why = { 0 };
	int r = image_resolve(s, "default", &there, &why);
	if (r < 0 && r != -ENOENT) {
		if (e)
			*e = why;
		return r;
	}
	bool have = r == 0;
	if (have)
		memcpy(ret_digest, there.digest, sizeof there.digest);
	image_done(&there);
	if (have && !(o && o->force))
		return 0;
	return build(s, o, !have, ret_digest, e);
}
