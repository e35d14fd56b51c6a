#include "core/spool.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

void spool_init(struct spool *s, int dirfd, const char *name, uint64_t max)
{
	*s = (struct spool){ .dirfd = dirfd, .name = xstrdup(name), .fd = -EBADF, .max = max };
	buf_init(&s->mem, SPOOL_MEMORY);
}

void spool_done(struct spool *s)
{
	s->fd = close_fd(s->fd);
	buf_done(&s->mem);
	free(s->name);
	s->name = NULL;
	s->kept = s->total = s->forgotten = 0;
}

void spool_remove(struct spool *s)
{
	s->fd = close_fd(s->fd);
	buf_done(&s->mem);
	s->kept = s->total = s->forgotten = 0;
	/* Also when this spool never opened it: an earlier process may have left it. */
	if (s->name)
		unlinkat(s->dirfd, s->name, 0);
}

/* Writes at offset; *ret_done says how far it came, also on failure. */
static int write_at(int fd, const char *p, size_t n, uint64_t offset, size_t *ret_done)
{
	size_t done = 0;
	int r = 0;
	while (done < n && r == 0) {
		ssize_t k = pwrite(fd, p + done, n - done, (off_t)(offset + done));
		if (k > 0)
			done += (size_t)k;
		else if (k == 0)
			r = -EIO;
		else if (errno != EINTR)
			r = -errno;
	}
	*ret_done = done;
	return r;
}

/* From memory into the file, whole or not at all. */
static int move_to_file(struct spool *s)
{
	int fd = openat(s->dirfd, s->name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	size_t done;
	int r = write_at(fd, s->mem.data, s->mem.len, 0, &done);
	if (r < 0) {
		close_fd(fd);
		unlinkat(s->dirfd, s->name, 0);
		return r;
	}
	s->fd = fd;
	buf_done(&s->mem);
	return 0;
}

int spool_append(struct spool *s, struct str bytes)
{
	/* Once something is missing nothing more is kept: what is kept has no holes. */
	size_t n = s->kept == s->total ? (size_t)MIN((uint64_t)bytes.n, s->max - s->kept) : 0, done = 0;
	int r = 0;
	s->total += bytes.n;
	if (n == 0)
		return 0;
	if (s->fd < 0 && s->mem.len + n > SPOOL_MEMORY)
		r = move_to_file(s);
	if (s->fd < 0) {
		done = MIN(n, SPOOL_MEMORY - s->mem.len); /* less than n only when there is no file to be had */
		buf_add(&s->mem, bytes.p, done);
	} else {
		r = write_at(s->fd, bytes.p, n, s->kept, &done);
	}
	s->kept += done;
	return r;
}

int spool_begin(struct spool *s, uint64_t offset)
{
	assert(s->total == 0 && s->fd < 0 && offset % SPOOL_STEP == 0);
	if (offset == 0)
		return 0;
	int r = move_to_file(s);
	if (r == 0 && ftruncate(s->fd, (off_t)offset) < 0)
		r = -errno;
	s->total = offset;
	if (r == 0)
		s->kept = s->forgotten = offset;
	return r;
}

void spool_skip(struct spool *s, uint64_t offset)
{
	s->total = MAX(s->total, offset);
}

uint64_t spool_total(const struct spool *s)
{
	return s->total;
}

uint64_t spool_kept(const struct spool *s)
{
	return s->kept;
}

ssize_t spool_read(struct spool *s, uint64_t offset, size_t max, struct buf *out)
{
	if (offset >= s->kept || max == 0)
		return 0;
	size_t n = (size_t)MIN((uint64_t)max, s->kept - offset), done = 0;
	char *to = buf_reserve(out, n);
	if (!to)
		return -ENOBUFS;
	if (s->fd < 0) {
		memcpy(to, s->mem.data + offset, n);
		done = n;
	}
	while (done < n) {
		ssize_t k = pread(s->fd, to + done, n - done, (off_t)(offset + done));
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k < 0 ? -errno : -EIO; /* an end here means that somebody has cut the file */
		done += (size_t)k;
	}
	buf_grew(out, n);
	return (ssize_t)n;
}

int spool_flush(struct spool *s)
{
	return s->fd >= 0 || s->kept == 0 ? 0 : move_to_file(s);
}

int spool_forget(struct spool *s, uint64_t offset)
{
	int r = spool_flush(s);
	offset = MIN(offset, s->kept) / SPOOL_STEP * SPOOL_STEP;
	if (r < 0 || s->fd < 0 || offset <= s->forgotten)
		return r;
	/* The size stays: it is how the offsets outlive this process. */
	if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->forgotten, (off_t)(offset - s->forgotten)) < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	s->forgotten = offset;
	return 0;
}

uint64_t spool_forgotten(const struct spool *s)
{
	return s->forgotten;
}

int spool_load(struct spool *s)
{
	struct stat st;
	assert(s->total == 0 && s->fd < 0);
	auto_fd int fd = openat(s->dirfd, s->name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	s->kept = s->total = MIN((uint64_t)st.st_size, s->max);
	off_t data = lseek(fd, 0, SEEK_DATA); /* a hole at the start is what was forgotten: we leave no other */
	s->forgotten = data > 0 ? MIN((uint64_t)data, s->kept) : data < 0 && errno == ENXIO ? s->kept : 0;
	s->fd = take_fd(&fd);
	return 0;
}

struct str spool_memory(const struct spool *s)
{
	if (s->fd >= 0)
		return (struct str){ NULL, 0 };
	return (struct str){ s->mem.len ? s->mem.data : "", s->mem.len };
}
