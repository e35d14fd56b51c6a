#include "image/work.h"

#include "image/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STALE_S (24L * 3600)

static int make_folders(const char *path)
{
	auto_free char *p = xstrdup(path);
	for (char *slash = strchr(p + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(p, 0755) < 0 && errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	return mkdir(p, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

int image_folder_open(struct image_store *s, struct err *e)
{
	if (geteuid() != 0)
		return err_set(e, ERR_DENIED, EPERM, "images are made by root: an image's files belong to many users; run this with sudo");
	int r = make_folders(s->folder);
	int fd = r < 0 ? -1 : open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, r < 0 ? -r : errno, "can't use the image folder %s", s->folder);
	return fd;
}

int image_folder_lock(int folder, const char *file, bool wait, struct err *e)
{
	auto_fd int fd = openat(folder, file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't open %s of the image folder", file);
	while (flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) < 0)
		if (errno != EINTR)
			return errno == EWOULDBLOCK ? -EWOULDBLOCK : err_sys(e, ERR_UNAVAILABLE, errno, "can't lock %s of the image folder", file);
	return take_fd(&fd);
}

/* --- work in progress --- */

static bool locked_by_somebody(int folder, const char *name)
{
	auto_fd int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
}

static void clear_stale(int folder)
{
	struct dirent **found = NULL;
	int n = scandirat(folder, ".", &found, NULL, NULL);
	for (int i = 0; i < n; i++) {
		auto_free struct dirent *d = found[i];
		struct stat st;
		if (strncmp(d->d_name, "tmp-", 4) != 0 || fstatat(folder, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (time(NULL) - st.st_mtime > STALE_S && !locked_by_somebody(folder, d->d_name))
			tree_remove(folder, d->d_name, NULL);
	}
	free(found);
}

int work_begin(struct image_store *s, const struct image_options *o, struct work *ret, struct err *e)
{
	struct work w = { .dir = -EBADF, .options = o ? *o : (struct image_options){ 0 } };
	if (!w.options.max_bytes)
		w.options.max_bytes = 32ULL << 30;
	if (!w.options.max_entries)
		w.options.max_entries = 4000000;
	w.folder = image_folder_open(s, e);
	if (w.folder < 0)
		return w.folder;
	clear_stale(w.folder);
	memcpy(w.name, "tmp-", 5);
	random_hex(w.name + 4, 8);
	w.path = xasprintf("%s/%s", s->folder, w.name);
	w.rootfs = xasprintf("%s/image/rootfs", w.path);
	if (mkdirat(w.folder, w.name, 0700) < 0 || (w.dir = openat(w.folder, w.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
	    flock(w.dir, LOCK_EX) < 0 || mkdirat(w.dir, "image", 0755) < 0 || mkdirat(w.dir, "image/rootfs", 0755) < 0) {
		int r = err_sys(e, ERR_UNAVAILABLE, errno, "can't make a folder in %s", s->folder);
		work_end(&w);
		return r;
	}
	*ret = w;
	return 0;
}

void work_end(struct work *w)
{
	tree_remove(w->folder, w->name, NULL);
	close_fd(w->dir);
	close_fd(w->folder);
	free(w->path);
	free(w->rootfs);
	*w = (struct work){ .folder = -EBADF, .dir = -EBADF };
}

void work_say(const struct work *w, const char *fmt, ...)
{
	if (!w->options.progress)
		return;
	char line[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	w->options.progress(w->options.ctx, line);
}

void work_line(void *work, const char *line)
{
	const struct work *w = work;
	if (line[0])
		work_say(w, "  %s", line);
}

/* The folder of the digest takes its place, unless somebody was faster with the same content. */
static int settle(struct work *w, const char *digest, struct err *e)
{
	char name[72];
	image_folder_name(digest, name);
	/* On the disk before it is seen: a crash must not leave a name on half an image. */
	auto_fd int image = openat(w->dir, "image", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (image < 0 || syncfs(image) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't write the image to the disk");
	if (renameat2(w->dir, "image", w->folder, name, RENAME_NOREPLACE) < 0 && errno != EEXIST)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't put image %s in its place", digest);
	return fsync(w->folder) == 0 ? 0 : err_sys(e, ERR_UNAVAILABLE, errno, "can't write the image folder to the disk");
}

int work_commit(struct work *w, const char *name, struct image_config *c, char ret_digest[static 72], struct err *e)
{
	work_say(w, "checking the files and working out the digest");
	auto_fd int root = open(w->rootfs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_fd int image = openat(w->dir, "image", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0 || image < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't open the image's tree");
	auto_free char *config = image_config_text(c);
	struct tree_limits limits = { w->options.max_bytes, w->options.max_entries };
	struct tree_sealed sealed = { 0 };
	int r = tree_seal(root, config, &limits, &sealed, e);
	if (r < 0)
		return r;
	c->privileged = sealed.privileged;
	if (fchown(root, 0, 0) < 0 || fchmod(root, 0700) < 0) /* image.h says why */
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't set the mode of the image's root");
	r = image_json_save(image, sealed.digest, now_unix_ms(), sealed.bytes, c, e);
	auto_fd int lock = r < 0 ? -EBADF : image_folder_lock(w->folder, "lock", true, e);
	if (r == 0 && lock < 0)
		r = lock;
	struct refs refs = { 0 };
	if (r == 0)
		r = settle(w, sealed.digest, e);
	if (r == 0)
		r = refs_load(w->folder, &refs, e);
	if (r == 0) {
		pairs_add(&refs.names, name, sealed.digest);
		r = refs_save(w->folder, &refs, e);
	}
	refs_done(&refs);
	if (r == 0)
		memcpy(ret_digest, sealed.digest, sizeof sealed.digest);
	return r;
}
