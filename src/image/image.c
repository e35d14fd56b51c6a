#include "image/image.h"

#include "base/buf.h"
#include "image/ref.h"
#include "image/refs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

void image_done(struct image *i)
{
	free(i->root);
	free(i->user);
	free(i->workdir);
	pairs_done(&i->env);
	strings_free(i->names);
	*i = (struct image){ 0 };
}

struct image_store *image_store_new(const char *folder)
{
	struct image_store *s = xcalloc(1, sizeof *s);
	s->folder = xstrdup(folder);
	return s;
}

void image_store_free(struct image_store *s)
{
	if (!s)
		return;
	image_done(&s->last);
	free(s->last_ref);
	free(s->folder);
	free(s);
}

static char **names_of(const struct refs *refs, const char *digest)
{
	char **v = xcalloc(refs->names.n + 1, sizeof *v);
	size_t n = 0;
	for (size_t i = 0; i < refs->names.n; i++)
		if (streq(refs->names.v[i].value, digest))
			v[n++] = xstrdup(refs->names.v[i].key);
	return v;
}

static int load(struct image_store *s, int folder, const struct refs *refs, const char *digest, struct image *ret, struct err *e)
{
	char name[72];
	image_folder_name(digest, name);
	auto_fd int dir = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, errno, "image %s", digest);
	struct image i = { 0 };
	int r = image_json_load(dir, digest, &i, e);
	if (r < 0)
		return r;
	i.root = xasprintf("%s/%s/rootfs", s->folder, name);
	i.names = names_of(refs, digest);
	*ret = i;
	return 0;
}

/* What ref means: itself, its normal form, or what the table says, which makes it a stand-in. NULL: nothing. */
static const char *lookup(const struct refs *refs, const char *ref, bool *ret_stand_in)
{
	*ret_stand_in = false;
	const char *digest = pairs_get(&refs->names, ref);
	if (digest)
		return digest;
	auto_free char *normal = image_ref_normalise(ref);
	digest = pairs_get(&refs->names, normal);
	if (digest)
		return digest;
	int best = -1;
	const char *to = NULL;
	/* "debian" means "debian:latest" to everybody who writes it, so a pattern "debian:*" covers it too. */
	auto_free char *tagged = strchr(normal, ':') ? NULL : xasprintf("%s:latest", normal);
	for (size_t i = 0; i < refs->map.n; i++) {
		int n = image_pattern_match(refs->map.v[i].key, normal);
		if (n < 0 && tagged)
			n = image_pattern_match(refs->map.v[i].key, tagged);
		if (n > best) {
			best = n;
			to = refs->map.v[i].value;
		}
	}
	*ret_stand_in = to;
	return to ? pairs_get(&refs->names, to) : NULL;
}

static int not_found(const struct refs *refs, const char *ref, struct err *e)
{
	if (refs->names.n == 0)
		return err_set(e, ERR_NOT_FOUND, ENOENT,
			       "no image '%.200s': there is none on this host yet; make one with 'caisson image build'", ref);
	auto_buf struct buf b;
	buf_init(&b, 200);
	for (size_t i = 0; i < refs->names.n && !b.overflow; i++)
		buf_addf(&b, "%s%s", i ? ", " : "", refs->names.v[i].key);
	return err_set(e, ERR_NOT_FOUND, ENOENT, "no image '%.100s'; there are: %s%s. 'caisson image map' gives it a stand-in", ref, b.data ? b.data : "",
		       b.overflow ? ", ..." : "");
}

static int open_folder(const struct image_store *s)
{
	return open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void image_copy(struct image *to, const struct image *from)
{
	*to = *from;
	to->root = xstrdup(from->root);
	to->user = xstrdup(from->user);
	to->workdir = xstrdup(from->workdir);
	to->names = strv_copy(from->names);
	to->env = (struct pairs){ 0 };
	pairs_copy(&to->env, &from->env);
}

static bool version_of(const char *folder, const char *name, const char *file, struct file_version *ret)
{
	char path[PATH_MAX];
	struct stat st;

	if ((size_t)snprintf(path, sizeof path, "%s/%s/%s", folder, name, file) >= sizeof path || stat(path, &st) < 0)
		return false;
	*ret = (struct file_version){ st.st_ino, (uint64_t)st.st_ctim.tv_sec * 1000000000U + (uint64_t)st.st_ctim.tv_nsec };
	return true;
}

static bool versions_of(const struct image_store *s, const char *digest, struct file_version ret[static 2])
{
	char name[72];

	image_folder_name(digest, name);
	return version_of(s->folder, ".", "refs.json", &ret[0]) && version_of(s->folder, name, "image.json", &ret[1]);
}

static bool from_last(struct image_store *s, const char *ref, struct image *ret)
{
	struct file_version now[2];

	if (!s->last_ref || !streq(s->last_ref, ref) || !versions_of(s, s->last.digest, now) ||
	    memcmp(&now[0], &s->last_refs, sizeof now[0]) != 0 || memcmp(&now[1], &s->last_image, sizeof now[1]) != 0)
		return false;
	image_copy(ret, &s->last);
	return true;
}

/* refs_before: its version when nothing had been read yet, so that a change in between is noticed the next time. */
static void keep_last(struct image_store *s, const char *ref, const struct image *found, const struct file_version *refs_before)
{
	struct file_version now[2];

	image_done(&s->last);
	free(take_ptr(&s->last_ref));
	if (!versions_of(s, found->digest, now) || memcmp(&now[0], refs_before, sizeof *refs_before) != 0)
		return;
	image_copy(&s->last, found);
	s->last_ref = xstrdup(ref);
	s->last_refs = now[0];
	s->last_image = now[1];
}

int image_resolve(struct image_store *s, const char *ref, struct image *ret, struct err *e)
{
	struct file_version refs_before = { 0 };

	if (!ref || !*ref)
		ref = "default";
	if (from_last(s, ref, ret))
		return 0;
	(void)version_of(s->folder, ".", "refs.json", &refs_before);
	if (!image_digest_valid(ref) && !image_name_valid(ref))
		return err_set(e, ERR_INVALID, EINVAL, "not an image reference: '%.100s'", ref);
	struct refs refs = { 0 };
	auto_fd int folder = open_folder(s);
	if (folder < 0 && errno != ENOENT)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't open the image folder %s", s->folder);
	if (folder < 0)
		return not_found(&refs, ref, e);
	int r = refs_load(folder, &refs, e);
	if (r < 0)
		return r;
	bool stand_in = false;
	const char *digest = image_digest_valid(ref) ? ref : lookup(&refs, ref, &stand_in);
	r = digest ? load(s, folder, &refs, digest, ret, e) : not_found(&refs, ref, e);
	if (r == -ENOENT && digest)
		not_found(&refs, ref, e);
	if (r == 0) {
		ret->stand_in = stand_in;
		keep_last(s, ref, ret, &refs_before);
	}
	refs_done(&refs);
	return r;
}

int image_hold(struct image_store *s, const char *digest, struct err *e)
{
	char name[80];

	snprintf(name, sizeof name, "%.72s", digest);
	if (!image_digest_valid(digest))
		return err_set(e, ERR_INVALID, EINVAL, "not a digest: '%.80s'", digest);
	name[6] = '-';
	auto_fd int folder = open_folder(s);
	auto_fd int fd = folder < 0 ? -1 : openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, errno, "hold the image %s", digest);
	return take_fd(&fd);
}

int image_each(struct image_store *s, void (*each)(void *ctx, const struct image *i), void *ctx, struct err *e)
{
	auto_fd int folder = open_folder(s);
	if (folder < 0)
		return errno == ENOENT ? 0 : err_sys(e, ERR_UNAVAILABLE, errno, "can't open the image folder %s", s->folder);
	struct refs refs;
	int r = refs_load(folder, &refs, e);
	if (r < 0)
		return r;
	struct dirent **found = NULL;
	int n = scandirat(folder, ".", &found, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		auto_free struct dirent *d = found[i];
		auto_free char *digest = xstrdup(d->d_name);
		if (strlen(digest) == IMAGE_DIGEST_LEN)
			digest[6] = ':';
		struct image image = { 0 };
		/* One that is being removed, or is damaged, must not hide the others. */
		if (strncmp(d->d_name, "sha256-", 7) != 0 || !image_digest_valid(digest) || load(s, folder, &refs, digest, &image, NULL) < 0)
			continue;
		each(ctx, &image);
		image_done(&image);
	}
	free(found);
	refs_done(&refs);
	return n < 0 ? err_sys(e, ERR_UNAVAILABLE, errno, "can't list the image folder") : 0;
}
