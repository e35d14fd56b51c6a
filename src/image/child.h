/* Tools of the host that the image layer runs: mmdebstrap, npm, tar, skopeo, umoci. Private to this layer.
 *
 * Arguments are a list, never a shell line. A child that reads something hostile (an archive) runs in a jail: namespaces of
 * its own for mounts, processes, network, IPC; a root made of the host's /usr (read-only), an empty /tmp, one folder that
 * it may write (/out, with no devices and no set-id) and perhaps one that it may read (/in); of root's capabilities only those
 * that unpacking needs. Whatever the archive makes of the tool, it can write to /out and no further. */
#ifndef CAISSON_IMAGE_CHILD_H
#define CAISSON_IMAGE_CHILD_H

#include "base/err.h"
#include "base/util.h"

struct child_jail {
	const char *out; /* absolute path on the host, or NULL */
	const char *in;  /* the same */
};

struct child_spec {
	const char *const *argv;      /* NULL-terminated; argv[0] is looked up in PATH */
	const char *const *env;       /* "NAME=value" over our own, or NULL. In a jail: all there is, beside PATH */
	const char *dir;              /* working directory, or NULL */
	const struct child_jail *jail;
	int in, out;                  /* standard input, and both outputs; -1 = /dev/null. They stay the caller's */
	bool mute;                    /* standard error to /dev/null: out carries data */
	uint64_t file_max;            /* bytes of one file it may write; 0 = no bound */
};

/* Returns the pid. A program that can't be started is an error here and not an exit status: ERR_UNAVAILABLE, with -ENOENT
 * when it is not installed. The child gets SIGKILL when we end. */
pid_t child_start(const struct child_spec *s, struct err *e);
int child_wait(pid_t pid); /* its exit status, or 128 + signal */

/* Copies in to out until the end in a process of its own; it ends with status 0, or 77 after max bytes with more to come. */
pid_t child_pump(int in, int out, uint64_t max, struct err *e);
#define CHILD_PUMP_OVER 77

/* Each line of fd (without its end; longer ones in pieces of 4 KiB) until the end of file. `each` returns < 0 to stop. */
int child_lines(int fd, int (*each)(void *ctx, const char *line), void *ctx);

int child_pipe(int ret_fds[2], struct err *e);

/* Runs one to its end. Its lines go to `line` as progress (NULL: nowhere); when it fails, the error ends with the first one
 * that tells a cause, else the last. `what` begins the message: "npm could not fetch the node tools". */
int child_run(const struct child_spec *s, void (*line)(void *ctx, const char *text), void *ctx, const char *what, struct err *e);

/* The same, and its standard output (at most max bytes) as text. Heap-owned. */
int child_output(const struct child_spec *s, size_t max, char **ret_text, const char *what, struct err *e);

#endif
