/* Tries to get out, from inside a sandbox: one line per class, "ok NAME" or "FAIL NAME why". Static (musl), so that it runs in any
 * image. Exits with the number of failures. The classes are those of the kernel's surface, of the namespaces and of a network
 * that is loopback only; the host's half of each ("nothing changed outside") is checked by the runner.
 *
 *   probe [HOST-PORT HOST-ABSTRACT-NAME]     a TCP port and an abstract unix socket that listen on the host */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int failures;

void verdict(int ok, const char *name, const char *fmt, ...)
{
	va_list ap;

	if (ok) {
		printf("ok %s\n", name);
	} else {
		printf("FAIL %s ", name);
		va_start(ap, fmt);
		vprintf(fmt, ap);
		va_end(ap);
		printf("\n");
		failures++;
	}
	fflush(stdout);
}

void refused(const char *name, long rc)
{
	verdict(rc < 0, name, "was allowed (%ld)", rc);
	if (rc > 2)
		close((int)rc);
}

int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t n = write(fd, text, strlen(text));
	int e = errno;
	close(fd);
	errno = e;
	return n < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--seccomp") == 0) /* its own child: see memory_program */
		return prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
	probe_calls();
	probe_files();
	probe_processes();
	probe_network(argc > 2 ? atoi(argv[1]) : 0, argc > 2 ? argv[2] : NULL);
	return failures;
}
