#include "guest/volumes.h"

#include "guest/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif
enum { RELAY_FDS = 60000 }; /* where a relay puts its descriptors: beyond all of PID 1's */

/* Not by a path, which a tenant may lead elsewhere. */
static void take_off(int root)
{
	char path[40];

	snprintf(path, sizeof path, "/proc/self/fd/%d", root);
	(void)umount2(path, MNT_DETACH);
	(void)close(root);
}

static void end_all(struct volumes *v)
{
	/* First the relay: with it the file systems are cut off, and nobody can wait in them. */
	if (v->relay > 0) {
		(void)kill(v->relay, SIGKILL);
		while (waitpid(v->relay, NULL, 0) < 0 && errno == EINTR)
			;
	}
	v->relay = 0;
	while (v->n)
		take_off(v->roots[--v->n]);
}

bool volumes_reaped(struct guest *g, pid_t pid)
{
	if (g->volumes.relay != pid)
		return false;
	g->volumes.relay = 0;
	return true;
}

static int move(int *fd)
{
	*fd = fcntl(*fd, F_DUPFD, RELAY_FDS);
	return *fd < 0 ? -errno : 0;
}

static _Noreturn void become_relay(struct relay_ends *ends, const char *nonce)
{
	int r = move(&ends->port) | move(&ends->control);

	for (unsigned i = 0; i < ends->n; i++)
		r |= move(&ends->fuse[i]);
	if (r == 0) {
		(void)syscall(SYS_close_range, 3, RELAY_FDS - 1, 0);
		(void)prctl(PR_SET_NAME, "volumes");
		(void)prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0); /* our memory must not wait for what only we can write back */
		int oom = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
		if (oom >= 0 && write(oom, "-1000", 5) == 5)
			(void)close(oom);
		relay_run(ends, nonce);
	}
	_exit(0);
}

/* The folder at this path, made if it is missing; no symlink is followed. */
static int open_folder(const char *path)
{
	char name[256];
	int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	for (const char *p = path + 1; fd >= 0 && *p;) {
		size_t n = strcspn(p, "/");
		if (n == 0 || n >= sizeof name) {
			(void)close(fd);
			return -EINVAL;
		}
		memcpy(name, p, n);
		name[n] = '\0';
		int next = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0 && errno == ENOENT && mkdirat(fd, name, 0755) == 0)
			next = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		int e = errno;
		(void)close(fd);
		errno = e;
		fd = next;
		p += n + (p[n] == '/');
	}
	return fd < 0 ? -errno : fd;
}

/* Returns the root of what is mounted then, from which the server has answered once. The relay is the only one left who has the device: if it
 * ends, nobody waits in the file system, and above all not we. */
static int mount_one(int *fuse, int control, unsigned i, const struct guest_volume *volume)
{
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOATIME | (volume->read_only ? MS_RDONLY : 0);
	const char number = (char)i;
	char options[120], at[40];
	struct stat st;
	auto_fd int folder = open_folder(volume->path);

	if (folder < 0)
		return folder;
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other", *fuse);
	snprintf(at, sizeof at, "/proc/self/fd/%d", folder);
	if (mount("volume", at, "fuse", flags, options) < 0)
		return -errno;
	*fuse = close_fd(*fuse);
	int root = open_folder(volume->path);
	if (root >= 0 && (write(control, &number, 1) != 1 || fstat(root, &st) < 0)) {
		int e = errno;
		take_off(root);
		return -e;
	}
	return root;
}

static int open_fuse(void)
{
	enum { MISC_MAJOR = 10, FUSE_MINOR = 229 };
	static const char path[] = "/dev/.fuse"; /* for a moment */
	int fd = mknod(path, S_IFCHR | 0600, makedev(MISC_MAJOR, FUSE_MINOR)) < 0 ? -1 : open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	int e = errno;

	(void)unlink(path);
	return fd < 0 ? -e : fd;
}

/* Everything that a relay needs. What is open is closed by the caller. */
static int open_ends(unsigned n, struct relay_ends *ends, int *ret_control)
{
	int pair[2];

	ends->port = vm_volumes_port();
	if (ends->port < 0)
		return ends->port;
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	ends->control = pair[0];
	*ret_control = pair[1];
	for (ends->n = 0; ends->n < n; ends->n++) {
		ends->fuse[ends->n] = open_fuse();
		if (ends->fuse[ends->n] < 0)
			return ends->fuse[ends->n];
	}
	return 0;
}

static void close_ends(struct relay_ends *ends)
{
	close_fd(ends->port);
	close_fd(ends->control);
	for (unsigned i = 0; i < ends->n; i++)
		close_fd(ends->fuse[i]);
}

static int mount_all(struct volumes *v, const struct guest_setup *s, struct relay_ends *ends, int control, struct err *e)
{
	for (unsigned i = 0; i < s->volumes_n; i++) {
		int root = mount_one(&ends->fuse[i], control, i, &s->volumes[i]);
		if (root == -ELOOP || root == -ENOTDIR)
			return err_set(e, ERR_INVALID, -root, "volumes: %s has a symlink or a file in its way", s->volumes[i].path);
		if (root < 0)
			return err_sys(e, ERR_UNAVAILABLE, -root, "volumes: mount the one at %s", s->volumes[i].path);
		v->roots[v->n++] = root;
	}
	return 0;
}

int volumes_set(struct guest *g, const struct guest_setup *s, struct err *e)
{
	struct volumes *v = &g->volumes;
	struct relay_ends ends = { .port = -EBADF, .control = -EBADF };
	auto_fd int control = -EBADF;

	end_all(v);
	if (!s->volumes_n)
		return 0;
	int r = open_ends((unsigned)s->volumes_n, &ends, &control);
	if (r == 0 && (v->relay = fork()) == 0) {
		(void)close(control);
		become_relay(&ends, s->line);
	}
	if (r == 0 && v->relay < 0)
		r = -errno;
	if (r < 0)
		(void)err_sys(e, ERR_UNAVAILABLE, -r, "volumes: begin to carry them");
	else
		r = mount_all(v, s, &ends, control, e);
	close_ends(&ends);
	if (r < 0)
		end_all(v);
	return r;
}
