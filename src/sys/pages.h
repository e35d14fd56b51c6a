/* What another process has of its own of a file that it maps privately: the pages that it has written to since.
 *
 * How its memory is laid out is that process's to say, and so nobody's word to be trusted: ranges are checked against the file, and
 * more than the file's size is never read. The kernel's own word is which pages are its own (/proc/PID/pagemap). */
#ifndef CAISSON_SYS_PAGES_H
#define CAISSON_SYS_PAGES_H

#include "base/util.h"

#include <stdio.h>
#include <sys/stat.h>

enum { PAGES_RANGES = 64 };

struct pages_range { /* in bytes, whole pages */
	uint64_t start, size, offset;
};

/* A line of /proc/PID/maps. 1: a private mapping of that file, within its size. 0: something else. -EBADMSG: one of it that can't be. */
int pages_line(const char *line, const struct stat *file, struct pages_range *ret);
/* All of such a text, which must not have more than PAGES_RANGES of them, and not more than the file's size together. Their number, or a
 * negative errno. */
int pages_ranges(FILE *maps, const struct stat *file, struct pages_range ret[static PAGES_RANGES]);
/* An entry of /proc/PID/pagemap: a page of the process's own, in memory or swapped out. */
bool pages_own(uint64_t entry);

/* Copies them to where they belong in the file `to`. The process must stand still, and is the one of pidfd, or nothing is to be believed
 * of what has been written. Needs the right to trace it. -ESRCH: it has ended; -ENOENT: it maps no such file. */
int pages_copy(pid_t pid, int pidfd, int file, int to, uint64_t *ret_bytes);

#endif
