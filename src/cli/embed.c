#include "cli/embed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { READY_MS = 60000, STOP_MS = 20000, FD_LIFETIME = 3 };

/* The signals that this program holds back or ignores are not for the child to inherit. */
static int attributes(posix_spawnattr_t *at)
{
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(at);
	posix_spawnattr_setsigmask(at, &none);
	posix_spawnattr_setsigdefault(at, &all);
	/* A session of its own: Ctrl-C in the terminal is for the command, not for the server under it. */
	return posix_spawnattr_setflags(at, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
}

static int spawn(struct embedded *s, char *const *argv, int lifetime, int out)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t at;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&files, lifetime, FD_LIFETIME); /* the same number: only close-on-exec is taken off */
	int r = attributes(&at);
	if (r == 0)
		r = posix_spawn(&s->pid, "/proc/self/exe", &files, &at, argv, environ);
	posix_spawnattr_destroy(&at);
	posix_spawn_file_actions_destroy(&files);
	if (r == 0)
		s->pidfd = pidfd_open(s->pid, 0);
	return -r;
}

/* Reads its stdout up to the ready line. 0, or negative: it ended, or took too long. */
static int wait_ready(struct embedded *s)
{
	struct pollfd p = { .fd = s->out, .events = POLLIN };
	uint64_t until = now_ms() + READY_MS;
	char text[1024];
	size_t n = 0;

	while (n + 1 < sizeof text) {
		uint64_t now = now_ms();
		int r = now < until ? poll(&p, 1, (int)(until - now)) : 0;
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return -ETIMEDOUT;
		ssize_t got = read(s->out, text + n, sizeof text - 1 - n);
		if (got <= 0)
			return -EPIPE;
		n += (size_t)got;
		text[n] = '\0';
		if (strncmp(text, "ready", 5) == 0 && strchr(text, '\n'))
			return 0;
	}
	return -EPROTO;
}

static int read_key(struct embedded *s)
{
	auto_free char *path = xasprintf("%s/api-key", s->folder);
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char text[256];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (n <= 0)
		return cli_fail("the server made no key in %s", path);
	text[n] = '\0';
	text[strcspn(text, "\r\n \t")] = '\0';
	s->key = xstrdup(text);
	return 0;
}

static char *make_folder(void)
{
	const char *tmp = getenv("TMPDIR");

	/* A socket's path has room for 107 bytes. */
	char *path = xasprintf("%s/caisson-XXXXXX", tmp && *tmp == '/' && strlen(tmp) < 70 ? tmp : "/tmp");
	if (mkdtemp(path))
		return path;
	free(path);
	return NULL;
}

int embed_start(const char *boundary, struct embedded *ret)
{
	struct embedded s = { .pid = -1, .pidfd = -EBADF, .lifetime = -EBADF, .out = -EBADF };
	int out[2], life[2];

	s.folder = make_folder();
	if (!s.folder)
		return cli_fail("can't make a folder in %s: %s", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", strerror(errno));
	auto_free char *images = cli_images_folder(), *socket = xasprintf("%s/api.sock", s.folder);
	s.url = xasprintf("unix:%s", socket);
	char number[12];
	snprintf(number, sizeof number, "%d", FD_LIFETIME);
	const char *const argv[] = { "caisson", "serve", "--ephemeral", "--socket", socket, "--data", s.folder, "--images", images, "--lifetime-fd",
		                     number, boundary ? "--boundary" : NULL, boundary, NULL };
	if (pipe2(out, O_CLOEXEC) < 0) {
		embed_stop(&s);
		return cli_fail("can't make a pipe: %s", strerror(errno));
	}
	s.out = out[0];
	int r = pipe2(life, O_CLOEXEC) < 0 ? -errno : 0;
	if (r == 0) {
		s.lifetime = life[1];
		r = spawn(&s, (char *const *)(uintptr_t)argv, life[0], out[1]);
		close_fd(life[0]);
	}
	close_fd(out[1]);
	if (r == 0)
		r = wait_ready(&s);
	if (r < 0) {
		embed_stop(&s);
		return cli_fail("a server of its own could not be started (%s): see the messages above, and `caisson doctor`",
		                r == -EPIPE ? "it ended" : strerror(-r));
	}
	r = read_key(&s);
	if (r) {
		embed_stop(&s);
		return r;
	}
	*ret = s;
	return 0;
}

/* Only what is known to be there by name: if the server was killed, mounts of sandboxes may be below. */
static void remove_folder(const char *folder)
{
	static const char *const names[] = { "api.sock", "api-key" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		auto_free char *path = xasprintf("%s/%s", folder, names[i]);
		unlink(path);
	}
	if (rmdir(folder) < 0 && errno != ENOENT)
		cli_warn("the server left %s behind: %s", folder, strerror(errno));
}

void embed_stop(struct embedded *s)
{
	s->lifetime = close_fd(s->lifetime);
	s->out = close_fd(s->out);
	if (s->pid > 0) {
		struct pollfd p = { .fd = s->pidfd, .events = POLLIN };
		if (s->pidfd >= 0 && poll(&p, 1, STOP_MS) == 0) {
			cli_warn("the server did not end in time and was killed");
			pidfd_send_signal(s->pidfd, SIGKILL, NULL, 0);
		}
		while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	s->pidfd = close_fd(s->pidfd);
	s->pid = -1;
	if (s->folder)
		remove_folder(s->folder);
	free(s->folder);
	free(s->url);
	free(s->key);
	*s = (struct embedded){ .pid = -1, .pidfd = -EBADF, .lifetime = -EBADF, .out = -EBADF };
}
