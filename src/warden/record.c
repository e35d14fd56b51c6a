#include "warden/record.h"

#include "base/log.h"
#include "sys/fs.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define RECORD_READ_MAX 4096 /* more than any version will need */

static_assert(sizeof(struct record) >= RECORD_SIZE_FIRST && sizeof(struct record) <= RECORD_READ_MAX, "records only grow");

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

int record_parse(const void *bytes, size_t n, struct record *ret)
{
	struct record r = { 0 };

	if (n < RECORD_SIZE_FIRST)
		return -EINVAL;
	memcpy(&r, bytes, MIN(n, sizeof r));
	if (r.magic != RECORD_MAGIC || r.size != n || !record_id_valid(r.id))
		return -EINVAL;
	for (size_t i = sizeof r; i < n; i++)
		if (((const unsigned char *)bytes)[i])
			return -E2BIG;
	r.size = sizeof r; /* as it will be written from now on */
	*ret = r;
	return 0;
}

static int read_one(int state_fd, const char *name, struct record *ret)
{
	unsigned char bytes[RECORD_READ_MAX];
	struct record r;

	auto_fd int fd = openat(state_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, bytes, sizeof bytes);
	int rc = n < 0 ? -errno : record_parse(bytes, (size_t)n, &r);
	if (rc == 0 && !streq(r.id, name))
		rc = -EINVAL;
	if (rc == 0)
		*ret = r;
	return rc;
}

/* One round over the folder; each NULL: only looks for one that is too new, whose name then is in ret_new. */
static int round_of(int state_fd, void (*each)(void *ctx, const struct record *r), void *ctx, char ret_new[static 40])
{
	int fd = openat(state_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int rc = 0;

	if (!dir) {
		close_fd(fd);
		return -EIO;
	}
	for (struct dirent *d; rc != -E2BIG && (d = readdir(dir));) {
		struct record r;
		size_t n = strlen(d->d_name);
		if (d->d_name[0] == '.')
			continue;
		if (n > 4 && streq(d->d_name + n - 4, ".new")) { /* a write that a crash cut short */
			(void)unlinkat(state_fd, d->d_name, 0);
			continue;
		}
		rc = read_one(state_fd, d->d_name, &r);
		if (rc == -E2BIG)
			snprintf(ret_new, 40, "%.39s", d->d_name);
		else if (rc < 0 && each)
			log_warn("record=%s msg=\"not readable, left alone\"", d->d_name);
		else if (rc == 0 && each)
			each(ctx, &r);
	}
	(void)closedir(dir);
	return rc == -E2BIG ? rc : 0;
}

int record_each(int state_fd, void (*each)(void *ctx, const struct record *r), void *ctx, struct err *e)
{
	char new[40];
	int rc = round_of(state_fd, NULL, NULL, new);

	if (rc == -E2BIG)
		return err_set(e, ERR_CONFLICT, E2BIG,
			       "the sandbox %s was made by a later version of caisson: start that one, or end its sandboxes with it", new);
	if (rc == 0)
		rc = round_of(state_fd, each, ctx, new);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "read the records of the sandboxes") : 0;
}
