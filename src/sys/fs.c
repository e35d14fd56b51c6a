#include "sys/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int fs_write_at(int dirfd, const char *path, const char *text)
{
	auto_fd int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
	size_t n = strlen(text);

	if (fd < 0)
		return -errno;
	ssize_t w = write(fd, text, n);
	if (w < 0)
		return -errno;
	return (size_t)w == n ? 0 : -EIO;
}

int fs_write_at_f(int dirfd, const char *path, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof text)
		return -E2BIG;
	return fs_write_at(dirfd, path, text);
}

ssize_t fs_read_at(int dirfd, const char *path, char *ret_text, size_t size)
{
	auto_fd int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;

	size_t have = 0;
	while (have < size - 1) {
		ssize_t n = read(fd, ret_text + have, size - 1 - have);
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	ret_text[have] = '\0';
	return (ssize_t)have;
}

int fs_read_u64_at(int dirfd, const char *path, const char *key, uint64_t *ret_value)
{
	char text[4096];
	const char *p = text;
	ssize_t n = fs_read_at(dirfd, path, text, sizeof text);

	if (n < 0)
		return (int)n;
	if (key) {
		size_t len = strlen(key);
		while (p && !(strncmp(p, key, len) == 0 && p[len] == ' ')) {
			p = strchr(p, '\n');
			if (p)
				p++;
		}
		if (!p)
			return -ENODATA;
		p += len + 1;
	}
	if (strncmp(p, "max", 3) == 0) {
		*ret_value = UINT64_MAX;
		return 0;
	}
	if (*p < '0' || *p > '9')
		return -ENODATA;
	*ret_value = strtoull(p, NULL, 10);
	return 0;
}

int fs_open_dir_at(int dirfd, const char *path)
{
	int fd = openat(dirfd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int fs_mkdirs(const char *path, mode_t mode)
{
	auto_free char *copy = xstrdup(path);

	for (char *p = copy + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(copy, mode) < 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	if (mkdir(copy, mode) < 0 && errno != EEXIST)
		return -errno;
	return 0;
}

int fs_remove_tree_at(int dirfd, const char *name)
{
	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR)
		return -errno;
	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0)
		return 0;
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	DIR *dir = fdopendir(fd);
	if (!dir) {
		close_fd(fd);
		return -ENOMEM;
	}
	int rc = 0;
	for (struct dirent *d; rc == 0 && (d = readdir(dir));)
		if (!streq(d->d_name, ".") && !streq(d->d_name, ".."))
			rc = fs_remove_tree_at(fd, d->d_name);
	(void)closedir(dir);
	if (rc == 0 && unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		rc = -errno;
	return rc;
}

int fs_replace_at(int dirfd, const char *name, const void *bytes, size_t n, mode_t mode)
{
	char beside[80];

	if ((size_t)snprintf(beside, sizeof beside, "%s.new", name) >= sizeof beside)
		return -ENAMETOOLONG;
	auto_fd int fd = openat(dirfd, beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	ssize_t w = write(fd, bytes, n);
	if (w < 0 || (size_t)w != n || renameat(dirfd, beside, dirfd, name) < 0) {
		int e = w >= 0 && (size_t)w != n ? ENOSPC : errno;
		(void)unlinkat(dirfd, beside, 0);
		return -e;
	}
	return 0;
}
