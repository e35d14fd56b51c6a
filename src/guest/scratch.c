#include "guest/scratch.h"

#include "guest/fileop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

static int write_all(int fd, struct str s)
{
	while (s.n) {
		ssize_t n = write(fd, s.p, s.n);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		s.p += n;
		s.n -= (size_t)n;
	}
	return 0;
}

int script_in_memory(struct str bytes)
{
	/* not to be executed itself, nor changed into what may be: rules on programs do not see it (confine.c) */
	auto_fd int fd = memfd_create("script", MFD_CLOEXEC | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = memfd_create("script", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	int r = write_all(fd, bytes);
	if (r < 0)
		return r;
	if (lseek(fd, 0, SEEK_SET) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return -errno;
	return take_fd(&fd);
}

static int fill(int dir, const char *name, const struct user *u, struct str bytes)
{
	auto_fd int fd = -EBADF;

	if (bytes.p) {
		fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0)
			return -errno;
		int r = write_all(fd, bytes);
		if (r < 0)
			return r;
	} else {
		if (mkfifoat(dir, name, 0600) < 0)
			return -errno;
		fd = openat(dir, name, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return -errno;
	}
	if (geteuid() != u->uid && fchown(fd, u->uid, u->gid) < 0)
		return -errno;
	return bytes.p ? 0 : take_fd(&fd);
}

int scratch_make(struct scratch *s, const struct user *u, const char *name, struct str bytes)
{
	static const char *const places[] = { "/tmp", "/var/tmp", "/run" };
	char random[17];
	int r = -ENOENT;

	s->user = *u;
	random_hex(random, 8);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		snprintf(s->dir, sizeof s->dir, "%s/.caisson-%s", places[i], random);
		r = mkdir(s->dir, 0700) < 0 ? -errno : 0; /* fails on a planted name: never somebody else's directory */
		if (r == 0)
			break;
	}
	if (r < 0) {
		s->dir[0] = s->path[0] = '\0';
		return r;
	}
	snprintf(s->path, sizeof s->path, "%s/%s", s->dir, name);
	auto_fd int dir = open(s->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = dir < 0 ? -errno : fill(dir, name, u, bytes);
	/* given to the user last: until then nobody else can put anything in it */
	if (r >= 0 && geteuid() != u->uid && fchown(dir, u->uid, u->gid) < 0) {
		if (!bytes.p)
			(void)close(r);
		r = -errno;
	}
	if (r < 0)
		(void)scratch_remove(s);
	return r;
}

pid_t scratch_remove(struct scratch *s)
{
	if (!s->dir[0])
		return 0;
	/* a tenant may have put a link in the place of its directory: nothing is removed through one */
	auto_fd int dir = open(s->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir >= 0)
		(void)unlinkat(dir, s->path + strlen(s->dir) + 1, 0);
	int r = rmdir(s->dir) < 0 ? errno : 0;
	pid_t pid = 0;
	if (r == ENOTEMPTY || r == EEXIST) {
		/* the program left more there; how much is the tenant's choice, so PID 1 does not walk it */
		pid = fork();
		if (pid == 0) {
			if (user_become(&s->user) < 0)
				_exit(1);
			_exit(remove_tree(AT_FDCWD, s->dir) < 0);
		}
	}
	s->dir[0] = s->path[0] = '\0';
	return MAX(pid, 0);
}
