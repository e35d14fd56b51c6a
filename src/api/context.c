/* Build contexts: archives that a client uploads before a build, kept by their content's name in DATA/contexts, a tenant's own.
 *
 *   up-<upload>-<part>          being uploaded; goes after a day
 *   <tenant>-<hash>.<part>      part 1, 2, ... of a whole one
 *
 * A part is a file of its own, so nothing is copied to put them together. Blocking, but only for local writes without fsync: what is
 * lost in a power cut is uploaded again. */
#include "api/api_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTEXTS_MAX  (4ULL << 30) /* bytes of all; beyond it the oldest go */
#define UPLOAD_OLD_S  86400

static bool hex(const char *text, size_t n)
{
	return strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

static int folder(struct api *a, struct err *e)
{
	auto_free char *path = xasprintf("%s/contexts", core_get_options(a->core)->data_dir);

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make the folder of build contexts");
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, ERR_UNAVAILABLE, errno, "open the folder of build contexts") : fd;
}

#define FILE_NAME 96
static int part_name(char ret[static FILE_NAME], const struct caller *c, const char *hash, unsigned part, struct err *e)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];

	if (!hex(hash, 32))
		return err_set(e, ERR_INVALID, EINVAL, "a build context is named by 32 hexadecimal digits");
	(void)SHA256((const unsigned char *)c->tenant, strlen(c->tenant), digest);
	snprintf(ret, FILE_NAME, "%02x%02x%02x%02x%02x%02x%02x%02x-%s.%u", digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6],
	         digest[7], hash, part);
	return 0;
}

/* Makes room: uploads that nobody finished, and beyond the bound whatever is oldest. */
static void tidy(int dir)
{
	struct stat st;

	for (;;) {
		char oldest[256] = "";
		uint64_t total = 0;
		time_t when = 0;
		int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		DIR *d = copy < 0 ? NULL : fdopendir(copy);
		if (!d) {
			close_fd(copy);
			return;
		}
		for (struct dirent *entry; (entry = readdir(d));) {
			if (fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
				continue;
			if (strncmp(entry->d_name, "up-", 3) == 0 && st.st_mtime + UPLOAD_OLD_S < (time_t)(now_unix_ms() / 1000)) {
				(void)unlinkat(dir, entry->d_name, 0);
				continue;
			}
			total += (uint64_t)st.st_size;
			if (!oldest[0] || st.st_mtime < when) {
				when = st.st_mtime;
				snprintf(oldest, sizeof oldest, "%s", entry->d_name);
			}
		}
		(void)closedir(d);
		if (total <= CONTEXTS_MAX || !oldest[0] || unlinkat(dir, oldest, 0) < 0)
			return;
	}
}

static int upload_name(char ret[static FILE_NAME], const char *upload, unsigned part, struct err *e)
{
	if (!hex(upload, 32) || part < 1 || part > API_CONTEXT_PARTS_MAX)
		return err_set(e, ERR_INVALID, EINVAL, "not an upload of a build context");
	snprintf(ret, FILE_NAME, "up-%s-%u", upload, part);
	return 0;
}

int api_context_put(struct api *a, const char *upload, unsigned part, struct err *e)
{
	char name[FILE_NAME];

	if (upload_name(name, upload, part, e) < 0)
		return -EINVAL;
	auto_fd int dir = folder(a, e);
	if (dir < 0)
		return dir;
	tidy(dir);
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? err_sys(e, ERR_UNAVAILABLE, errno, "keep a build context") : fd;
}

int api_context_commit(struct api *a, const struct caller *c, const char *hash, const char *upload, struct err *e)
{
	char from[FILE_NAME], to[FILE_NAME];
	unsigned kept = 0;

	if (part_name(to, c, hash, 1, e) < 0 || upload_name(from, upload, 1, e) < 0)
		return -EINVAL;
	auto_fd int dir = folder(a, e);
	if (dir < 0)
		return dir;
	for (unsigned part = 1; part <= API_CONTEXT_PARTS_MAX; part++) {
		(void)upload_name(from, upload, part, e);
		(void)part_name(to, c, hash, kept + 1, e);
		if (renameat(dir, from, dir, to) == 0)
			kept++;
		else if (errno != ENOENT)
			return err_sys(e, ERR_UNAVAILABLE, errno, "keep a build context");
		else
			break;
	}
	(void)part_name(to, c, hash, kept + 1, e); /* of a longer one of before */
	(void)unlinkat(dir, to, 0);
	return kept ? 0 : err_set(e, ERR_NOT_FOUND, ENOENT, "nothing was uploaded");
}

void api_context_abort(struct api *a, const char *upload)
{
	char name[FILE_NAME];
	struct err e;

	auto_fd int dir = folder(a, &e);
	for (unsigned part = 1; dir >= 0 && part <= API_CONTEXT_PARTS_MAX && upload_name(name, upload, part, &e) == 0; part++)
		if (unlinkat(dir, name, 0) < 0)
			break;
}

int api_context_open(struct api *a, const struct caller *c, const char *hash, unsigned part, struct err *e)
{
	char name[FILE_NAME];

	if (part_name(name, c, hash, part, e) < 0)
		return -EINVAL;
	auto_fd int dir = folder(a, e);
	if (dir < 0)
		return dir;
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, errno, "the build context %s", hash);
	return fd;
}
