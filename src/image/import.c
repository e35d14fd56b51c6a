/* Theory of operation: an archive becomes a tree.
 *
 *   archive --> decompressor (jail) --> pump: counts bytes --> tar (jail) --> /out
 *                                                              `-> names, one a line: counts entries
 *
 * A bomb is caught while it unfolds: the pump stops after so many bytes, and the list of names after so many entries. A
 * name counts for every folder it may bring along: the parts that it does not share with the name before it.
 *
 * An OCI layout (or docker archive) goes through skopeo first, which checks the digests and picks this machine's
 * platform; then every layer is listed under the same limits without unpacking it, and then umoci unpacks them with their
 * whiteouts. skopeo and umoci run in the jail as well, and never touch a network: it has none.
 *
 * What the tree then holds is checked once more by tree_seal(). */
#include "image/child.h"
#include "image/work.h"

#include "base/buf.h"
#include "image/ref.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAYERS_MAX 200
#define HEADER_BYTES 2048 /* of a tar stream for an entry, beside its content: header, padding, a long name */

/* --- tar --- */

struct listing {
	const struct work *work;
	pid_t tar;
	uint64_t entries, max;
	bool over;
	char before[4097], complaint[200];
};

/* Parts of name beyond what it shares with the one before. */
static uint64_t new_parts(const char *before, const char *name)
{
	const char *from = name;
	for (size_t i = 0; name[i] && name[i] == before[i]; i++)
		if (name[i] == '/')
			from = name + i + 1;
	uint64_t n = 1;
	for (const char *p = from; *p; p++)
		n += *p == '/' && p[1];
	return n;
}

static int listing_line(void *ctx, const char *line)
{
	struct listing *l = ctx;
	if (strncmp(line, "tar: ", 5) == 0) {
		if (!l->complaint[0] && !strstr(line, "Exiting with failure") && !strstr(line, "Removing leading"))
			snprintf(l->complaint, sizeof l->complaint, "%s", line + 5);
		return 0;
	}
	if (l->over)
		return 0; /* until the end of file: then tar has let go of the tree */
	uint64_t was = l->entries;
	l->entries += new_parts(l->before, line);
	snprintf(l->before, sizeof l->before, "%s", line);
	if (l->entries / 10000 > was / 10000)
		work_say(l->work, "  %llu files", (unsigned long long)l->entries);
	l->over = l->entries > l->max;
	if (l->over)
		kill(l->tar, SIGKILL);
	return 0;
}

static const char *const *decompressor(const unsigned char *magic, size_t n)
{
	static const char *const gz[] = { "gzip", "-dc", NULL }, *const xz[] = { "xz", "-dc", "--memlimit-decompress=512MiB", NULL };
	static const char *const zst[] = { "zstd", "-dcq", NULL }, *const bz[] = { "bzip2", "-dc", NULL };
	static const struct {
		const char *magic;
		size_t n;
		const char *const *argv;
	} known[] = { { "\x1f\x8b", 2, gz }, { "\xfd" "7zXZ", 5, xz }, { "\x28\xb5\x2f\xfd", 4, zst }, { "BZh", 3, bz } };
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (n >= known[i].n && memcmp(magic, known[i].magic, known[i].n) == 0)
			return known[i].argv;
	return NULL;
}

struct pipeline {
	pid_t unpack, pump, tar; /* 0 = none */
	int names;               /* read end */
};

static const char *const tar_extract[] = {
	"tar", "--extract", "--verbose", "--file=-", "--quoting-style=escape", "--numeric-owner", "--same-owner", "--preserve-permissions",
	"--no-acls", "--no-selinux", "--no-xattrs", "--warning=no-timestamp", "--warning=no-unknown-keyword", "--anchored", "--exclude=dev/*",
	"--exclude=./dev/*", "--exclude=/dev/*", NULL,
};
static const char *const tar_list[] = { "tar", "--list", "--file=-", "--quoting-style=escape", "--warning=no-unknown-keyword", NULL };

static int start_pipeline(const struct work *w, int archive, bool extract, uint64_t stream_max, struct pipeline *ret, struct err *e)
{
	unsigned char magic[8];
	ssize_t n = pread(archive, magic, sizeof magic, 0);
	const char *const *argv = decompressor(magic, n > 0 ? (size_t)n : 0);
	auto_free char *out = xasprintf("%s/image/rootfs", w->path);
	struct child_jail closed = { NULL, NULL }, open_out = { extract ? out : NULL, NULL };
	int a[2] = { -1, -1 }, b[2] = { -1, -1 }, names[2] = { -1, -1 };
	struct pipeline p = { .names = -EBADF };
	int r = argv ? child_pipe(a, e) : 0;
	if (r == 0)
		r = child_pipe(b, e);
	if (r == 0)
		r = child_pipe(names, e);
	if (r == 0 && argv) {
		p.unpack = child_start(&(struct child_spec){ .argv = argv, .jail = &closed, .in = archive, .out = a[1], .mute = true }, e);
		r = p.unpack < 0 ? (int)p.unpack : 0;
	}
	if (r == 0) {
		p.pump = child_pump(argv ? a[0] : archive, b[1], stream_max, e);
		r = p.pump < 0 ? (int)p.pump : 0;
	}
	if (r == 0) {
		p.tar = child_start(&(struct child_spec){ .argv = extract ? tar_extract : tar_list, .jail = &open_out, .in = b[0], .out = names[1],
							  .file_max = w->options.max_bytes }, e);
		r = p.tar < 0 ? (int)p.tar : 0;
	}
	int done[] = { a[0], a[1], b[0], b[1], names[1], r < 0 ? names[0] : -1 };
	for (size_t i = 0; i < ARRAY_LEN(done); i++)
		close_fd(done[i]);
	p.names = names[0];
	if (r == 0)
		*ret = p;
	else { /* with the pipes closed, those that did start end by themselves */
		if (p.unpack > 0)
			child_wait(p.unpack);
		if (p.pump > 0)
			child_wait(p.pump);
	}
	return r;
}

/* Extracts into rootfs, or only lists. bytes and entries are what is left of the limits, and are lowered. */
static int run_tar(const struct work *w, int archive, bool extract, uint64_t *bytes, uint64_t *entries, struct err *e)
{
	if (lseek(archive, 0, SEEK_SET) != 0)
		return err_sys(e, ERR_INVALID, errno, "the archive can't be read from its beginning");
	uint64_t stream_max = *bytes + *entries * HEADER_BYTES + (1 << 20);
	struct pipeline p = { 0 };
	int r = start_pipeline(w, archive, extract, stream_max, &p, e);
	if (r < 0)
		return r;
	struct listing l = { .work = w, .tar = p.tar, .max = *entries };
	child_lines(p.names, listing_line, &l);
	close_fd(p.names);
	int tar = child_wait(p.tar), pump = child_wait(p.pump), unpack = p.unpack ? child_wait(p.unpack) : 0;
	if (l.over)
		return err_set(e, ERR_LIMIT, EFBIG, "the archive has more than %llu files", (unsigned long long)*entries);
	if (pump == CHILD_PUMP_OVER)
		return err_set(e, ERR_LIMIT, EFBIG, "the archive unfolds to more than %llu MiB", (unsigned long long)(stream_max >> 20));
	if (unpack)
		return err_set(e, ERR_INVALID, EBADMSG, "the archive is damaged: it can't be decompressed");
	if (tar == 128 + SIGXFSZ)
		return err_set(e, ERR_LIMIT, EFBIG, "a file of the archive is larger than %llu MiB", (unsigned long long)(w->options.max_bytes >> 20));
	if (tar)
		return err_set(e, ERR_INVALID, EBADMSG, "the archive can't be unpacked: %s", l.complaint[0] ? l.complaint : "tar refused it");
	*entries -= l.entries;
	return 0;
}

static int import_tar(struct work *w, const char *path, struct err *e)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_INVALID, errno, "can't open %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, EINVAL, "%s is not a file; give a tar of a root file system, or oci:DIR for an OCI layout", path);
	work_say(w, "unpacking %s", path);
	uint64_t bytes = w->options.max_bytes, entries = w->options.max_entries;
	int r = run_tar(w, fd, true, &bytes, &entries, e);
	if (r < 0)
		return r;
	auto_free char *sh = xasprintf("%s/usr", w->rootfs);
	auto_free char *bin = xasprintf("%s/bin", w->rootfs);
	if (faccessat(AT_FDCWD, sh, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && faccessat(AT_FDCWD, bin, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, ERR_INVALID, EINVAL, "%s is no root file system: it has neither /bin nor /usr at its top", path);
	return 0;
}

/* --- OCI --- */

static int run_jailed(const struct work *w, const char *const *argv, const char *in, const char *out, const char *what, struct err *e)
{
	static const char *const env[] = { "HOME=/tmp", "TMPDIR=/out", NULL };
	const struct child_jail jail = { .in = in, .out = out };
	struct child_spec s = { .argv = argv, .env = env, .jail = &jail, .in = -1, .out = -1, .file_max = w->options.max_bytes };
	int r = child_run(&s, NULL, NULL, what, e);
	if (r == -EIO && e)
		e->kind = ERR_INVALID; /* the tool ran, so it is the source that is wrong */
	return r;
}

static int load_blob(int layout, const char *name, json_t **ret, struct err *e)
{
	auto_buf struct buf b;
	buf_init(&b, IMAGE_JSON_MAX);
	int r = image_read_file(layout, name, &b, e);
	if (r < 0)
		return r;
	*ret = json_loadb(b.data ? b.data : "", b.len, 0, NULL);
	return *ret ? 0 : err_set(e, ERR_INVALID, EBADMSG, "%s of the image is not valid JSON", name);
}

/* "blobs/sha256/<hex>" of a descriptor. */
static int blob_name(const json_t *descriptor, char ret_name[static 96], struct err *e)
{
	const char *digest = json_string_value(json_object_get(descriptor, "digest"));
	if (!image_digest_valid(digest))
		return err_set(e, ERR_INVALID, EBADMSG, "the image names a blob without a valid sha256 digest");
	snprintf(ret_name, 96, "blobs/sha256/%s", digest + 7);
	return 0;
}

static int scan_layers(const struct work *w, int layout, const json_t *manifest, struct err *e)
{
	const json_t *layers = json_object_get(manifest, "layers");
	uint64_t bytes = w->options.max_bytes, entries = w->options.max_entries;
	if (json_array_size(layers) == 0 || json_array_size(layers) > LAYERS_MAX)
		return err_set(e, ERR_INVALID, EINVAL, "an image must have 1 to %d layers; this has %zu", LAYERS_MAX, json_array_size(layers));
	for (size_t i = 0; i < json_array_size(layers); i++) {
		char name[96];
		int r = blob_name(json_array_get(layers, i), name, e);
		if (r < 0)
			return r;
		work_say(w, "looking through layer %zu of %zu", i + 1, json_array_size(layers));
		auto_fd int fd = openat(layout, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			return err_sys(e, ERR_INVALID, errno, "layer %zu of the image", i + 1);
		r = run_tar(w, fd, false, &bytes, &entries, e);
		if (r < 0) {
			err_prefix(e, "layer %zu", i + 1);
			return r;
		}
	}
	return 0;
}

/* The layout that skopeo wrote: one manifest, its layers within the limits, its configuration. */
static int read_layout(const struct work *w, struct image_config *ret_config, struct err *e)
{
	auto_fd int layout = openat(w->dir, "oci/layout", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (layout < 0)
		return err_sys(e, ERR_INTERNAL, errno, "skopeo left no layout");
	json_t *index = NULL, *manifest = NULL;
	char name[96];
	int r = load_blob(layout, "index.json", &index, e);
	if (r == 0)
		r = blob_name(json_array_get(json_object_get(index, "manifests"), 0), name, e);
	if (r == 0)
		r = load_blob(layout, name, &manifest, e);
	if (r == 0)
		r = scan_layers(w, layout, manifest, e);
	if (r == 0)
		r = blob_name(json_object_get(manifest, "config"), name, e);
	auto_buf struct buf config;
	buf_init(&config, IMAGE_JSON_MAX);
	if (r == 0)
		r = image_read_file(layout, name, &config, e);
	if (r == 0)
		r = image_config_from_oci(buf_str(&config), ret_config, e);
	json_decref(index);
	json_decref(manifest);
	return r;
}

/* skopeo splits what it is given at colons, so no path may have one; the tag has the letters of a name. */
static int split_source(const char *text, char **ret_path, char **ret_tag, struct err *e)
{
	const char *colon = strchr(text, ':');
	if (colon && !image_name_valid(colon + 1))
		return err_set(e, ERR_INVALID, EINVAL, "'%.100s' is no DIR[:TAG]; a path with a colon can't be used here", text);
	auto_free char *path = colon ? xstrndup(text, (size_t)(colon - text)) : xstrdup(text);
	char *real = realpath(path, NULL);
	if (!real)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_INVALID, errno, "can't open %s", path);
	*ret_path = real;
	*ret_tag = colon ? xstrdup(colon) : xstrdup("");
	return 0;
}

/* What `docker save` wrote is a tar as a whole: it has to fit into the limits before skopeo unfolds it. */
static int scan_archive(const struct work *w, const char *path, struct err *e)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	uint64_t bytes = w->options.max_bytes, entries = w->options.max_entries;
	return fd < 0 ? err_sys(e, ERR_INVALID, errno, "can't open %s", path) : run_tar(w, fd, false, &bytes, &entries, e);
}

static int import_oci(struct work *w, const char *text, bool archive, struct image_config *ret_config, struct err *e)
{
	auto_free char *path = NULL, *tag = NULL;
	int r = split_source(text, &path, &tag, e);
	if (r < 0)
		return r;
	assert(path && tag);
	if (archive && (r = scan_archive(w, path, e)) < 0)
		return r;
	if (mkdirat(w->dir, "oci", 0700) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't make a folder in %s", w->path);
	auto_free char *in = xstrdup(path), *out = xasprintf("%s/oci", w->path);
	const char *base = strrchr(path, '/') + 1; /* realpath() made it absolute */
	if (archive)
		in[base - path - 1] = 0;
	auto_free char *from = archive ? xasprintf("docker-archive:/in/%s%s", base, tag) : xasprintf("oci:/in%s", tag);
	const char *const skopeo[] = { "skopeo", "--insecure-policy", "--tmpdir", "/out", "copy", "--quiet", from, "oci:/out/layout:image", NULL };
	work_say(w, "reading %s (skopeo)", path);
	r = run_jailed(w, skopeo, in[0] ? in : "/", out, "can't read the image", e);
	if (r == 0)
		r = read_layout(w, ret_config, e);
	if (r < 0)
		return r;
	static const char *const umoci[] = { "umoci", "raw", "unpack", "--image", "/in:image", "/out/rootfs", NULL };
	auto_free char *layout = xasprintf("%s/oci/layout", w->path), *image = xasprintf("%s/image", w->path);
	work_say(w, "unpacking (umoci)");
	return run_jailed(w, umoci, layout, image, "can't unpack the image", e);
}

int import_source(struct work *w, const char *source, struct image_config *ret_config, struct err *e)
{
	static const char oci[] = "oci:", docker[] = "docker-archive:";
	if (strncmp(source, oci, sizeof oci - 1) == 0)
		return import_oci(w, source + sizeof oci - 1, false, ret_config, e);
	if (strncmp(source, docker, sizeof docker - 1) == 0)
		return import_oci(w, source + sizeof docker - 1, true, ret_config, e);
	return import_tar(w, source, e);
}
