#include "cli/cli.h"
#include "cli/copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct source {
	struct copy *c;
	int fd, error;
};

static ptrdiff_t on_room(void *ctx, void *bytes, size_t n)
{
	struct source *s = ctx;
	ssize_t got;

	do
		got = read(s->fd, bytes, n);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		s->error = errno;
	else
		s->c->bytes += (uint64_t)got;
	return got;
}

static int file(struct copy *c, int fd, uint32_t mode, const char *to, const char *shown)
{
	struct source s = { c, fd, 0 };
	struct caisson_error e;

	if (caisson_upload(c->c, c->sandbox, to, mode & 0777, on_room, &s, &e) == 0) {
		c->files++;
		return 0;
	}
	return s.error ? cli_fail("%s: %s", shown, strerror(s.error)) : cli_fail_error(&e);
}

/* The file API makes no links: `ln` of the sandbox's image does. */
static int make_link(struct copy *c, int dir, const char *name, const char *to, const char *shown)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
	struct caisson_run *r;
	struct caisson_error e;

	if (n < 0)
		return cli_fail("%s: %s", shown, strerror(errno));
	target[n] = '\0';
	const struct caisson_run_options o = {
		.argv = (const char *const[]){ "ln", "-sfn", "--", target, to, NULL }, .timeout_ms = 10000,
	};
	if (caisson_run(c->c, c->sandbox, &o, &r, &e) < 0)
		return cli_fail_error(&e);
	if (r->exit_code != 0) {
		c->skipped++;
		cli_warn("left out the link %s: %.*s", shown, (int)strcspn((char *)r->err, "\n"), (char *)r->err);
	} else {
		c->files++;
	}
	caisson_run_free(r);
	return 0;
}

static int tree(struct copy *c, int fd, const char *to, unsigned depth, const char *shown);

static int entry(struct copy *c, int dir, const char *name, const char *to_dir, unsigned depth, const char *shown_dir)
{
	auto_free char *to = xasprintf("%s/%s", to_dir, name), *shown = xasprintf("%s/%s", shown_dir, name);
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return cli_fail("%s: %s", shown, strerror(errno));
	if (S_ISLNK(st.st_mode))
		return make_link(c, dir, name, to, shown);
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
		c->skipped++;
		cli_warn("left out %s: it is neither a file nor a directory nor a link", shown);
		return 0;
	}
	auto_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return cli_fail("%s: %s", shown, strerror(errno));
	return S_ISDIR(st.st_mode) ? tree(c, fd, to, depth + 1, shown) : file(c, fd, st.st_mode, to, shown);
}

/* The directory fd, as `to`. */
static int tree(struct copy *c, int fd, const char *to, unsigned depth, const char *shown)
{
	struct caisson_error e;
	struct stat st;
	int r = 0;

	if (depth > COPY_DEPTH_MAX)
		return cli_fail("%s: more than %d folders deep", shown, COPY_DEPTH_MAX);
	if (fstat(fd, &st) < 0)
		return cli_fail("%s: %s", shown, strerror(errno));
	if (caisson_mkdir(c->c, c->sandbox, to, st.st_mode & 0777, &e) < 0)
		return cli_fail_error(&e);
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3); /* closedir() closes it; fd is the caller's */
	DIR *d = own < 0 ? NULL : fdopendir(own);
	if (!d) {
		close_fd(own);
		return cli_fail("%s: %s", shown, strerror(errno));
	}
	for (struct dirent *n; r == 0 && (errno = 0, n = readdir(d));)
		if (!streq(n->d_name, ".") && !streq(n->d_name, ".."))
			r = entry(c, fd, n->d_name, to, depth, shown);
	if (r == 0 && errno)
		r = cli_fail("%s: %s", shown, strerror(errno));
	closedir(d);
	return r;
}

/* Where it goes: `to`, or into it when it is a directory. NULL after a message. */
static char *place(struct copy *c, const char *from, const char *to, bool contents)
{
	struct caisson_file *there;
	struct caisson_error e;
	auto_free char *base = copy_base_name(from);
	bool into = to[strlen(to) - 1] == '/';

	if (caisson_stat(c->c, c->sandbox, to, &there, &e) == 0) {
		into = there->is_dir;
		caisson_file_free(there);
	} else if (e.kind != CAISSON_ERR_FILE_NOT_FOUND) {
		cli_fail_error(&e);
		return NULL;
	}
	if (!into || contents)
		return xstrdup(to);
	if (!base) {
		cli_fail("%s: give the name that it is to have in the sandbox", from);
		return NULL;
	}
	return xasprintf("%s%s%s", to, to[strlen(to) - 1] == '/' ? "" : "/", base);
}

int copy_in(struct copy *c, const char *from, const char *to)
{
	struct stat st;
	bool is_stdin = streq(from, "-");
	auto_fd int fd = is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(from, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0 || fstat(fd, &st) < 0)
		return cli_fail("%s: %s", from, strerror(errno));
	if (is_stdin)
		return file(c, fd, 0644, to, "stdin");
	bool contents = S_ISDIR(st.st_mode) && copy_means_contents(from);
	auto_free char *at = place(c, from, to, contents);
	if (!at)
		return CLI_FAILED;
	return S_ISDIR(st.st_mode) ? tree(c, fd, at, 0, from) : file(c, fd, st.st_mode, at, from);
}
