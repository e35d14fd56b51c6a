#include "cli/attach.h"
#include "cli/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct sink {
	struct copy *c;
	int fd, error;
};

static int on_bytes(void *ctx, const void *bytes, size_t n)
{
	struct sink *s = ctx;

	s->error = attach_write(s->fd, bytes, n);
	s->c->bytes += s->error ? 0 : n;
	return s->error;
}

/* The remote file's bytes into fd. */
static int fill(struct copy *c, const char *from, int fd, const char *shown)
{
	struct sink s = { c, fd, 0 };
	struct caisson_error e;

	if (caisson_download(c->c, c->sandbox, from, on_bytes, &s, &e) == 0) {
		c->files++;
		return 0;
	}
	if (s.error == -EPIPE && fd == STDOUT_FILENO)
		return CLI_BROKEN_PIPE;
	return s.error ? cli_fail("%s: %s", shown, strerror(-s.error)) : cli_fail_error(&e);
}

/* Written beside and renamed: a link or a file of that name is replaced and never written through. */
static int file_at(struct copy *c, const char *from, int dir, const char *name, uint32_t mode, const char *shown)
{
	char beside[32] = ".caisson-";

	random_hex(beside + strlen(beside), 8);
	auto_fd int fd = openat(dir, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return cli_fail("%s: %s", shown, strerror(errno));
	int r = fill(c, from, fd, shown);
	if (r == 0 && (fchmod(fd, mode & 0777) < 0 || renameat(dir, beside, dir, name) < 0))
		r = cli_fail("%s: %s", shown, strerror(errno));
	if (r)
		unlinkat(dir, beside, 0);
	return r;
}

static int link_at(struct copy *c, const struct caisson_file *f, int dir, unsigned depth, const char *shown)
{
	char beside[32] = ".caisson-";

	if (!f->target || !copy_link_is_safe(f->target, depth)) {
		c->skipped++;
		cli_warn("left out %s: a link to %s leads out of the copied folder", shown, f->target ? f->target : "(nothing)");
		return 0;
	}
	random_hex(beside + strlen(beside), 8);
	if (symlinkat(f->target, dir, beside) < 0 || renameat(dir, beside, dir, f->name) < 0) {
		int error = errno;
		unlinkat(dir, beside, 0);
		return cli_fail("%s: %s", shown, strerror(error));
	}
	c->files++;
	return 0;
}

static int tree(struct copy *c, const char *from, int dir, unsigned depth, const char *shown);

/* A directory of that name, made or there already, but no link to one. */
static int directory_at(struct copy *c, const char *from, int dir, const char *name, uint32_t mode, unsigned depth, const char *shown)
{
	bool made = mkdirat(dir, name, 0700) == 0;

	if (!made && errno != EEXIST)
		return cli_fail("%s: %s", shown, strerror(errno));
	auto_fd int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return cli_fail("%s: is there already and is no directory (%s)", shown, strerror(errno));
	int r = tree(c, from, fd, depth, shown);
	if (r == 0 && made && fchmod(fd, mode & 0777) < 0)
		r = cli_fail("%s: %s", shown, strerror(errno));
	return r;
}

static int entry(struct copy *c, const char *from, const struct caisson_file *f, int dir, unsigned depth, const char *shown_dir)
{
	if (!copy_name_is_safe(f->name))
		return cli_fail("the sandbox names a file \"%s\", which is no file's name: nothing more is copied", f->name);
	auto_free char *path = xasprintf("%s/%s", from, f->name), *shown = xasprintf("%s/%s", shown_dir, f->name);
	if (streq(f->type, "file"))
		return file_at(c, path, dir, f->name, f->mode, shown);
	if (streq(f->type, "directory"))
		return directory_at(c, path, dir, f->name, f->mode, depth + 1, shown);
	if (streq(f->type, "symlink"))
		return link_at(c, f, dir, depth, shown);
	c->skipped++;
	cli_warn("left out %s: it is a %s", shown, f->type);
	return 0;
}

/* What is in the remote directory, into the local one. */
static int tree(struct copy *c, const char *from, int dir, unsigned depth, const char *shown)
{
	struct caisson_file_list *l;
	struct caisson_error e;
	int r = 0;

	if (depth > COPY_DEPTH_MAX)
		return cli_fail("%s: more than %d folders deep", shown, COPY_DEPTH_MAX);
	if (caisson_list_files(c->c, c->sandbox, from, &l, &e) < 0)
		return cli_fail_error(&e);
	for (size_t i = 0; i < l->n && r == 0; i++)
		r = entry(c, from, l->items[i], dir, depth, shown);
	caisson_file_list_free(l);
	return r;
}

/* --- the place that the user named: links in it are the user's own, and followed --- */

static int open_parent(const char *path, char **ret_name)
{
	size_t n = strlen(path);

	while (n && path[n - 1] == '/')
		n--;
	size_t begin = n;
	while (begin && path[begin - 1] != '/')
		begin--;
	auto_free char *parent = begin ? xstrndup(path, begin) : xstrdup(".");
	int fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		*ret_name = xstrndup(path + begin, n - begin);
	return fd;
}

static int directory(struct copy *c, const char *from, const struct caisson_file *f, const char *to, bool into)
{
	auto_free char *base = copy_base_name(from), *name = NULL;

	if (into && base && !copy_means_contents(from)) {
		auto_fd int dir = open(to, O_PATH | O_DIRECTORY | O_CLOEXEC);
		return dir < 0 ? cli_fail("%s: %s", to, strerror(errno)) : directory_at(c, from, dir, base, f->mode, 0, base);
	}
	if (into) {
		auto_fd int dir = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		return dir < 0 ? cli_fail("%s: %s", to, strerror(errno)) : tree(c, from, dir, 0, to);
	}
	auto_fd int parent = open_parent(to, &name);
	return parent < 0 ? cli_fail("%s: %s", to, strerror(errno)) : directory_at(c, from, parent, name, f->mode, 0, to);
}

static int file(struct copy *c, const char *from, const struct caisson_file *f, const char *to, const struct stat *there)
{
	auto_free char *name = NULL;

	if (there && !S_ISDIR(there->st_mode)) { /* as cp: into what is there, be it a device or a link's target */
		auto_fd int fd = open(to, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
		return fd < 0 ? cli_fail("%s: %s", to, strerror(errno)) : fill(c, from, fd, to);
	}
	if (there) {
		name = copy_base_name(from);
		auto_fd int dir = open(to, O_PATH | O_DIRECTORY | O_CLOEXEC);
		return dir < 0 ? cli_fail("%s: %s", to, strerror(errno)) : file_at(c, from, dir, name, f->mode, to);
	}
	auto_fd int parent = open_parent(to, &name);
	if (parent < 0 || !*name || to[strlen(to) - 1] == '/')
		return cli_fail("%s: there is no such directory", to);
	return file_at(c, from, parent, name, f->mode, to);
}

int copy_out(struct copy *c, const char *from, const char *to)
{
	struct caisson_file *f;
	struct caisson_error e;
	struct stat st;
	int r;

	if (caisson_stat(c->c, c->sandbox, from, &f, &e) < 0)
		return cli_fail_error(&e);
	bool exists = stat(to, &st) == 0;
	if (streq(to, "-"))
		r = f->is_dir ? cli_fail("%s is a directory: only a file can be written to stdout", from) : fill(c, from, STDOUT_FILENO, "stdout");
	else if (!f->is_dir)
		r = file(c, from, f, to, exists ? &st : NULL);
	else if (exists && !S_ISDIR(st.st_mode))
		r = cli_fail("%s is a directory and %s is not", from, to);
	else
		r = directory(c, from, f, to, exists);
	caisson_file_free(f);
	return r;
}
