#include "warden/range.h"

#include "sys/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

static bool folder_is_empty(const char *path)
{
	DIR *dir = opendir(path);
	bool empty = true;

	if (!dir)
		return errno == ENOENT;
	for (struct dirent *d; empty && (d = readdir(dir));)
		empty = streq(d->d_name, ".") || streq(d->d_name, "..");
	(void)closedir(dir);
	return empty;
}

/* Locks block n if it is ours (or free, when take is set). 1 = have it. */
static int claim(struct ranges *r, unsigned n, bool take)
{
	char name[8], owner[4096];

	snprintf(name, sizeof name, "%03u", n);
	auto_fd int fd = openat(r->dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (take ? O_CREAT : 0), 0600);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? 0 : -errno;
	ssize_t len = pread(fd, owner, sizeof owner - 1, 0);
	if (len < 0)
		return -errno;
	owner[len] = '\0';
	if (!streq(owner, r->state_folder)) {
		if (!take || (len > 0 && !folder_is_empty(owner)))
			return 0;
		size_t n_bytes = strlen(r->state_folder);
		if (ftruncate(fd, 0) < 0 || pwrite(fd, r->state_folder, n_bytes, 0) != (ssize_t)n_bytes)
			return -EIO;
	}
	r->lock[n] = take_fd(&fd);
	r->used[n] = 0;
	return 1;
}

int ranges_open(struct ranges *r, const char *folder, const char *state_folder, struct err *e)
{
	*r = (struct ranges){ .dir = -EBADF, .state_folder = xstrdup(state_folder) };
	for (unsigned n = 0; n < RANGE_BLOCKS; n++)
		r->lock[n] = -EBADF;
	int rc = fs_mkdirs(folder, 0755);
	if (rc == 0)
		r->dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (rc < 0 || r->dir < 0)
		return err_sys(e, ERR_UNAVAILABLE, rc < 0 ? -rc : errno, "open the folder of uid ranges %s", folder);
	for (unsigned n = 0; n < RANGE_BLOCKS; n++)
		(void)claim(r, n, false);
	return 0;
}

void ranges_close(struct ranges *r, bool empty)
{
	for (unsigned n = 0; n < RANGE_BLOCKS; n++) {
		if (r->lock[n] >= 0 && empty && ftruncate(r->lock[n], 0) < 0)
			continue; /* harmless: the state folder it names is gone */
		r->lock[n] = close_fd(r->lock[n]);
	}
	r->dir = close_fd(r->dir);
	free(take_ptr(&r->state_folder));
}

static int take_from(struct ranges *r, unsigned n, uint32_t *ret_slot)
{
	if (r->lock[n] < 0 || r->used[n] == UINT64_MAX)
		return -ENOENT;
	unsigned bit = (unsigned)__builtin_ctzll(~r->used[n]);
	r->used[n] |= 1ULL << bit;
	*ret_slot = n * RANGE_BLOCK + bit;
	return 0;
}

int range_take(struct ranges *r, uint32_t *ret_slot, struct err *e)
{
	for (unsigned n = 0; n < RANGE_BLOCKS; n++)
		if (take_from(r, n, ret_slot) == 0)
			return 0;
	for (unsigned n = 0; n < RANGE_BLOCKS; n++)
		if (r->lock[n] < 0 && claim(r, n, true) == 1)
			return take_from(r, n, ret_slot);
	return err_set(e, ERR_LIMIT, EAGAIN, "all %u uid ranges of this host are in use", RANGE_SLOTS);
}

int range_take_slot(struct ranges *r, uint32_t slot)
{
	unsigned n = slot / RANGE_BLOCK;
	uint64_t bit = 1ULL << slot % RANGE_BLOCK;

	if (slot >= RANGE_SLOTS || r->lock[n] < 0 || r->used[n] & bit)
		return -EBUSY;
	r->used[n] |= bit;
	return 0;
}

void range_release(struct ranges *r, uint32_t slot)
{
	r->used[slot / RANGE_BLOCK] &= ~(1ULL << slot % RANGE_BLOCK);
}
