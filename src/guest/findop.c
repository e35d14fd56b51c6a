#include "guest/fileop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	DEPTH_MAX = 256,
	LINE_MAX_TOLD = 16 * 1024,         /* of a matching line */
	REPLACE_MAX = 64 * 1024 * 1024,    /* file size before and after */
	PROBE = 8192,                      /* a NUL in the first bytes: not text */
};

struct walk {
	struct work *w;
	dev_t dev; /* other file systems (/proc, /sys, /dev) are not entered */
	void (*visit)(struct work *w, int dir, const char *name, const char *path, mode_t mode);
};

static void walk(struct walk *k, int fd, const char *prefix, int depth)
{
	DIR *d = fdopendir(fd);

	if (!d) {
		close_fd(fd);
		return;
	}
	for (struct dirent *entry; (entry = readdir(d));) {
		struct stat st;
		if (streq(entry->d_name, ".") || streq(entry->d_name, "..") ||
		    fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		size_t n = strlen(prefix);
		auto_free char *path = xasprintf(n && prefix[n - 1] == '/' ? "%s%s" : "%s/%s", prefix, entry->d_name);
		if (strlen(path) >= PATH_MAX)
			continue;
		k->visit(k->w, dirfd(d), entry->d_name, path, st.st_mode);
		if (!S_ISDIR(st.st_mode) || st.st_dev != k->dev || depth >= DEPTH_MAX)
			continue;
		int sub = openat(dirfd(d), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		if (sub >= 0)
			walk(k, sub, path, depth + 1);
	}
	closedir(d);
}

/* --- search: names --- */

static void visit_name(struct work *w, int dir, const char *name, const char *path, mode_t mode)
{
	(void)dir;
	(void)mode;
	if (fnmatch(w->req->pattern, name, 0) == 0)
		port_match(&w->port, path, 0, (struct str){ NULL, 0 });
}

/* --- find: text in files --- */

static void tell_lines(struct work *w, const char *path, struct str text)
{
	size_t pattern = strlen(w->req->pattern);
	uint64_t line = 1;
	const char *at = text.p, *end = text.p + text.n, *hit;

	while (at < end && (hit = memmem(at, (size_t)(end - at), w->req->pattern, pattern))) {
		const char *start = at;
		for (const char *nl; (nl = memchr(start, '\n', (size_t)(hit - start))); start = nl + 1)
			line++;
		const char *stop = memchr(hit, '\n', (size_t)(end - hit));
		size_t n = (size_t)((stop ? stop : end) - start);
		port_match(&w->port, path, line, (struct str){ start, MIN(n, (size_t)LINE_MAX_TOLD) });
		if (!stop)
			return;
		at = stop + 1;
		line++;
	}
}

/* The file in memory, by mapping: reading only what is looked at. A file that is cut short meanwhile kills this process with
 * SIGBUS, which is an error of this op and nothing else. */
static void find_in(struct work *w, int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 || (uint64_t)st.st_size > SIZE_MAX / 2 || st.st_blocks == 0)
		return; /* also all holes: nothing written in it, so nothing to find */
	size_t n = (size_t)st.st_size;
	char *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return;
	if (!memchr(p, '\0', MIN(n, (size_t)PROBE)))
		tell_lines(w, path, (struct str){ p, n });
	munmap(p, n);
}

static void visit_text(struct work *w, int dir, const char *name, const char *path, mode_t mode)
{
	if (!S_ISREG(mode))
		return;
	auto_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0)
		find_in(w, fd, path);
}

static int walk_from(struct work *w, struct walk *k, struct err *e)
{
	const char *path = w->req->path;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (!w->req->pattern || !w->req->pattern[0]) {
		close_fd(fd);
		return err_set(e, ERR_INVALID, EINVAL, "a pattern is needed");
	}
	if (fd < 0 || fstat(fd, &st) < 0) {
		int error = errno;
		close_fd(fd);
		return path_error(e, error, "cannot search in", path);
	}
	k->w = w;
	k->dev = st.st_dev;
	if (S_ISDIR(st.st_mode)) {
		walk(k, fd, path, 0);
		return 0;
	}
	if (k->visit == visit_text)
		find_in(w, fd, path);
	close_fd(fd);
	return k->visit == visit_text ? 0 : path_error(e, ENOTDIR, "cannot search in", path);
}

int op_find(struct work *w, struct err *e)
{
	struct walk k = { .visit = visit_text };

	return walk_from(w, &k, e);
}

int op_search(struct work *w, struct err *e)
{
	struct walk k = { .visit = visit_name };

	return walk_from(w, &k, e);
}

/* --- replace --- */

static int load(const char *path, struct buf *b, struct err *e)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return path_error(e, errno, "cannot open", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, EINVAL, "cannot replace in %.200s: it is not a regular file", path);
	for (;;) {
		char *to = buf_reserve(b, GUEST_PAYLOAD_MAX);
		ssize_t n = to ? read(fd, to, GUEST_PAYLOAD_MAX) : -1;
		if (!to)
			return path_error(e, EFBIG, "cannot replace in", path);
		if (n < 0)
			return path_error(e, errno, "cannot read", path);
		if (n == 0)
			return 0;
		buf_grew(b, (size_t)n);
	}
}

static uint64_t replace_all(struct str in, const char *pattern, const char *text, struct buf *out)
{
	size_t pattern_n = strlen(pattern), text_n = strlen(text);
	uint64_t count = 0;

	for (const char *hit; in.n && (hit = memmem(in.p, in.n, pattern, pattern_n)); count++) {
		size_t before = (size_t)(hit - in.p);
		(void)buf_add(out, in.p, before);
		(void)buf_add(out, text, text_n);
		in.p += before + pattern_n;
		in.n -= before + pattern_n;
	}
	(void)buf_add(out, in.p, in.n);
	return count;
}

int op_replace(struct work *w, struct err *e)
{
	const char *path = w->req->path;
	auto_buf struct buf in, out, values;
	struct replacement r = { .fd = -EBADF };
	char number[24];

	buf_init(&in, REPLACE_MAX + GUEST_PAYLOAD_MAX);
	buf_init(&out, REPLACE_MAX);
	buf_init(&values, 256);
	if (!w->req->pattern || !w->req->pattern[0] || !w->req->text)
		return err_set(e, ERR_INVALID, EINVAL, "a pattern and its replacement are needed");
	int result = load(path, &in, e);
	if (result < 0)
		return result;
	uint64_t count = replace_all(buf_str(&in), w->req->pattern, w->req->text, &out);
	if (out.overflow)
		return path_error(e, EFBIG, "cannot replace in", path);
	if (count) {
		if ((result = replacement_open(&r, path, 0644, e)) < 0)
			return result;
		if ((result = write_bytes(r.fd, buf_str(&out))) < 0) {
			replacement_abort(&r);
			return path_error(e, -result, "cannot write", path);
		}
		if ((result = replacement_commit(&r, false, e)) < 0)
			return result;
	}
	snprintf(number, sizeof number, "%llu", (unsigned long long)count);
	(void)guest_value_add(&values, "replacements", number);
	port_values(&w->port, &values);
	return 0;
}
