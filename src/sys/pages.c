#include "sys/pages.h"

#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, ENTRIES = 4096, BLOCK = 64 * PAGE };
#define IN_MEMORY  (UINT64_C(1) << 63)
#define SWAPPED	   (UINT64_C(1) << 62)
#define OF_A_FILE  (UINT64_C(1) << 61) /* or shared */

int pages_line(const char *line, const struct stat *file, struct pages_range *ret)
{
	uint64_t start, end, offset, inode;
	unsigned major, minor;
	char rights[5];
	const uint64_t size = (uint64_t)file->st_size;

	/* the name behind it is the process's choice */
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &start, &end, rights, &offset, &major, &minor, &inode) != 7)
		return -EBADMSG;
	if (inode != file->st_ino || makedev(major, minor) != file->st_dev || rights[3] != 'p')
		return 0;
	if (start % PAGE || end % PAGE || offset % PAGE || end <= start || offset > size || end - start > size - offset)
		return -EBADMSG;
	*ret = (struct pages_range){ start, end - start, offset };
	return 1;
}

int pages_ranges(FILE *maps, const struct stat *file, struct pages_range ret[static PAGES_RANGES])
{
	char *line = NULL;
	size_t room = 0;
	uint64_t sum = 0;
	int n = 0;

	while (n >= 0 && getline(&line, &room, maps) > 0) {
		struct pages_range one;
		int r = pages_line(line, file, &one);
		if (r > 0 && (n == PAGES_RANGES || one.size > (uint64_t)file->st_size - sum))
			r = -E2BIG;
		if (r > 0) {
			sum += one.size;
			ret[n++] = one;
		}
		n = r < 0 ? r : n;
	}
	free(line);
	return n;
}

bool pages_own(uint64_t entry)
{
	return entry & SWAPPED || (entry & IN_MEMORY && !(entry & OF_A_FILE));
}

static int copy_run(pid_t pid, uint64_t from, size_t size, int to, uint64_t at, char *block)
{
	while (size) {
		size_t want = MIN(size, (size_t)BLOCK);
		struct iovec here = { block, want }, there = { (void *)(uintptr_t)from, want };
		ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);
		if (n < 0)
			return -errno;
		if ((size_t)n != want)
			return -EFAULT;
		n = pwrite(to, block, want, (off_t)at);
		if (n != (ssize_t)want)
			return n < 0 ? -errno : -EIO;
		from += want;
		at += want;
		size -= want;
	}
	return 0;
}

struct copying {
	pid_t pid;
	int pagemap, to;
	uint64_t *bytes;
	uint64_t entries[ENTRIES];
	char block[BLOCK];
};

static int copy_range(struct copying *c, const struct pages_range *range)
{
	const uint64_t pages = range->size / PAGE;
	int r = 0;

	for (uint64_t first = 0; first < pages && r == 0; first += ENTRIES) {
		size_t n = (size_t)MIN(pages - first, (uint64_t)ENTRIES);
		ssize_t got = pread(c->pagemap, c->entries, n * sizeof c->entries[0], (off_t)((range->start / PAGE + first) * sizeof c->entries[0]));
		if (got != (ssize_t)(n * sizeof c->entries[0]))
			return got < 0 ? -errno : -EIO;
		for (size_t i = 0, end; i < n && r == 0; i = end + 1) {
			for (end = i; end < n && pages_own(c->entries[end]); end++)
				;
			uint64_t at = (first + i) * PAGE;
			r = copy_run(c->pid, range->start + at, (end - i) * PAGE, c->to, range->offset + at, c->block);
			*c->bytes += (end - i) * PAGE;
		}
	}
	return r;
}

int pages_copy(pid_t pid, int pidfd, int file, int to, uint64_t *ret_bytes)
{
	struct pages_range ranges[PAGES_RANGES];
	char path[32];
	struct stat st;
	uint64_t bytes = 0;

	if (fstat(file, &st) < 0)
		return -errno;
	snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
	FILE *maps = fopen(path, "re");
	int n = maps ? pages_ranges(maps, &st, ranges) : -errno;
	if (maps)
		(void)fclose(maps);
	snprintf(path, sizeof path, "/proc/%d/pagemap", (int)pid);
	auto_fd int pagemap = n < 0 ? -EBADF : open(path, O_RDONLY | O_CLOEXEC);
	int r = n < 0 ? n : pagemap < 0 ? -errno : n == 0 ? -ENOENT : 0;
	struct copying *c = xcalloc(1, sizeof *c);
	*c = (struct copying){ .pid = pid, .pagemap = pagemap, .to = to, .bytes = &bytes };
	for (int i = 0; i < n && r == 0; i++)
		r = copy_range(c, &ranges[i]);
	free(c);
	/* while it lives its number is nobody else's, so all that was read was its own */
	if (process_ended(pidfd))
		return -ESRCH;
	if (r == 0)
		*ret_bytes = bytes;
	return r;
}
