/* The least that can be PID 1: for tests of the boundary without the real guest. Static, musl.
 *
 * Listens on descriptor 3. A connection carries "UID\nCOMMAND" and a NUL, then the command's input; it runs by /bin/sh with the
 * connection as input and output, and the last line is "exit N". Descriptor 4 is the sandbox's cgroup, if there is one: every command gets a group of
 * its own below, as the real guest does. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void own_group(int number)
{
	char path[64];
	struct stat st;

	if (fstat(4, &st) < 0)
		return;
	snprintf(path, sizeof path, "run-%d", number);
	if (mkdirat(4, path, 0755) < 0) {
		dprintf(1, "no group: %s\n", strerror(errno));
		return;
	}
	snprintf(path, sizeof path, "run-%d/cgroup.procs", number);
	int fd = openat(4, path, O_WRONLY);
	if (fd < 0 || write(fd, "0", 1) != 1)
		dprintf(1, "group not entered: %s\n", strerror(errno));
	close(fd);
	snprintf(path, sizeof path, "run-%d/cgroup.kill", number);
	if (faccessat(4, path, W_OK, 0) < 0)
		dprintf(1, "group cannot be killed: %s\n", strerror(errno));
}

static void serve(int fd, int number)
{
	static char text[65536];
	size_t n = 0;

	while (n < sizeof text - 1 && read(fd, text + n, 1) == 1 && text[n] != '\0')
		n++;
	text[n] = '\0';
	char *command = strchr(text, '\n');
	if (!command)
		_exit(1);
	*command++ = '\0';
	pid_t pid = fork();
	if (pid == 0) {
		uid_t uid = (uid_t)atoi(text);
		dup2(fd, 0);
		dup2(fd, 1);
		dup2(fd, 2);
		own_group(number);
		close(3);
		close(4);
		if (fd > 2)
			close(fd);
		if (chdir("/") < 0 || (uid && (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0)))
			_exit(125);
		setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	int status = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	dprintf(fd, "\nexit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	_exit(0);
}

int main(void)
{
	int number = 0;

	signal(SIGCHLD, SIG_IGN);
	fcntl(3, F_SETFL, 0);
	for (;;) {
		int fd = accept(3, NULL, NULL);
		if (fd < 0)
			continue;
		number++;
		if (fork() == 0) {
			signal(SIGCHLD, SIG_DFL);
			serve(fd, number);
		}
		close(fd);
	}
}
