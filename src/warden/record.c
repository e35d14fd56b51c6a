#include "warden/record.h"

#include "base/log.h"
#include "sys/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

bool record_id_valid(const char id[static 40])
{
	for (size_t i = 0; i < 36; i++)
		if (!(id[i] >= '0' && id[i] <= '9') && !(id[i] >= 'a' && id[i] <= 'f') && id[i] != '-')
			return false;
	return id[36] == '\0' && id[0] != '-';
}

int record_write(int state_fd, const struct record *r)
{
	return fs_replace_at(state_fd, r->id, r, sizeof *r, 0600);
}

void record_remove(int state_fd, const char *id)
{
	(void)unlinkat(state_fd, id, 0);
}

static int read_one(int state_fd, const char *name, struct record *ret)
{
	auto_fd int fd = openat(state_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (read(fd, ret, sizeof *ret) != (ssize_t)sizeof *ret || ret->magic != RECORD_MAGIC || ret->size != sizeof *ret ||
	    !record_id_valid(ret->id) || !streq(ret->id, name))
		return -EINVAL;
	return 0;
}

int record_each(int state_fd, void (*each)(void *ctx, const struct record *r), void *ctx)
{
	int fd = openat(state_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		close_fd(fd);
		return -EIO;
	}
	for (struct dirent *d; (d = readdir(dir));) {
		struct record r;
		size_t n = strlen(d->d_name);
		if (d->d_name[0] == '.')
			continue;
		if (n > 4 && streq(d->d_name + n - 4, ".new")) { /* a write that a crash cut short */
			(void)unlinkat(state_fd, d->d_name, 0);
			continue;
		}
		if (read_one(state_fd, d->d_name, &r) < 0)
			log_warn("record=%s msg=\"not readable, left alone\"", d->d_name);
		else
			each(ctx, &r);
	}
	(void)closedir(dir);
	return 0;
}
