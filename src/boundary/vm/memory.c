#include "boundary/vm/memory.h"

#include "boundary/vm/template_int.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { DEVICES_MAX = 16 << 20, HEAD_MAX = 4096, BLOCK = 256 * 1024, PAGE = 4096 };

struct memory {
	struct memory *next;
	char snapshot[40];
	struct memory_files files;
};

/* "QEVM" and its version, and what sections begin with; as in QEMU's migration/savevm.c. */
static const char magic[] = { 'Q', 'E', 'V', 'M', 0, 0, 0, 3 };
enum { SECTION_END = 0, SECTION_START = 1, SECTION_FULL = 4, SECTION_SUB = 5, SECTION_DESCRIPTION = 6, SECTION_CONFIGURATION = 7, SECTION_FOOTER = 0x7e };

/* Of memory, as in its migration/ram.c: flags in the low bits of an offset. A number of the section that no device has, and the memory's name in
 * wire/vmm.c. */
enum { RAM_SIZES = 0x04, RAM_PAGE = 0x08, RAM_END = 0x10, RAM_SAME_BLOCK = 0x20, RAM_VERSION = 4, RAM_SECTION = 0x43616973 };
#define RAM_NAME "mem"

int memory_new_file(uint64_t mib)
{
	auto_fd int fd = memfd_create("ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd < 0 || ftruncate(fd, (off_t)(mib << 20)) < 0 ? -errno : take_fd(&fd);
}

/* --- the state --- */

static bool begins_well(struct str s)
{
	return s.n > sizeof magic && memcmp(s.p, magic, sizeof magic) == 0 && s.p[sizeof magic] == SECTION_FULL;
}

int memory_devices_begin(int devices)
{
	char first[sizeof magic + 1];

	return pread(devices, first, sizeof first, 0) == (ssize_t)sizeof first && begins_well((struct str){ first, sizeof first }) ? 0 : -EBADMSG;
}

static void put_number(struct buf *to, uint32_t n)
{
	n = htobe32(n);
	(void)buf_add(to, &n, sizeof n);
}

static void put_long(struct buf *to, uint64_t n)
{
	n = htobe64(n);
	(void)buf_add(to, &n, sizeof n);
}

static void put_byte(struct buf *to, char c)
{
	(void)buf_add(to, &c, 1);
}

static void put_short_text(struct buf *to, const char *text)
{
	put_byte(to, (char)strlen(text));
	(void)buf_add(to, text, strlen(text));
}

static void put_configuration(struct buf *to)
{
	static const char machine[] = "microvm"; /* of wire/vmm.c */

	(void)buf_add(to, magic, sizeof magic);
	put_byte(to, SECTION_CONFIGURATION);
	put_number(to, sizeof machine - 1);
	(void)buf_add(to, machine, sizeof machine - 1);
	put_byte(to, SECTION_SUB);
	put_short_text(to, "configuration/capabilities");
	put_number(to, 1); /* its version */
	put_number(to, 1); /* how many; must be those of qemu_capabilities that have to be equal */
	put_short_text(to, "x-ignore-shared");
}

/* Up to its first page. */
static void begin_ram(struct buf *to, uint64_t size)
{
	put_byte(to, SECTION_START);
	put_number(to, RAM_SECTION);
	put_short_text(to, "ram");
	put_number(to, 0); /* there is one */
	put_number(to, RAM_VERSION);
	put_long(to, size | RAM_SIZES);
	put_short_text(to, RAM_NAME);
	put_long(to, size);
	put_long(to, 0); /* its address, for those who share it, which copies don't */
}

static void end_ram(struct buf *to)
{
	put_long(to, RAM_END);
	put_byte(to, SECTION_FOOTER);
	put_number(to, RAM_SECTION);
}

static int write_all(int to, const struct buf *b)
{
	if (b->overflow)
		return -EFBIG;
	ssize_t n = write(to, b->data, b->len);
	return n == (ssize_t)b->len ? 0 : n < 0 ? -errno : -ENOSPC;
}

/* Pages on their way into the state, each behind a head of its own. */
struct pages {
	int to;
	bool begun; /* a page has been put: the others are of the same memory, and do not name it */
	int n;
	struct page_head {
		uint64_t at;
		char name[sizeof RAM_NAME];
	} heads[256];
	struct iovec parts[2 * 256];
};

static int flush(struct pages *p)
{
	size_t want = 0;

	for (int i = 0; i < 2 * p->n; i++)
		want += p->parts[i].iov_len;
	ssize_t n = p->n ? writev(p->to, p->parts, 2 * p->n) : 0;
	p->n = 0;
	return n < 0 ? -errno : (size_t)n == want ? 0 : -ENOSPC;
}

static int put_page(struct pages *p, uint64_t at, char *bytes)
{
	int r = p->n == (int)ARRAY_LEN(p->heads) ? flush(p) : 0;
	struct page_head *head = &p->heads[p->n];

	*head = (struct page_head){ .at = htobe64(at | RAM_PAGE | (p->begun ? RAM_SAME_BLOCK : 0)), .name = { sizeof RAM_NAME - 1 } };
	memcpy(head->name + 1, RAM_NAME, sizeof RAM_NAME - 1);
	p->parts[2 * p->n] = (struct iovec){ head, p->begun ? sizeof head->at : sizeof head->at + sizeof head->name };
	p->parts[2 * p->n + 1] = (struct iovec){ bytes, PAGE };
	p->begun = true;
	p->n++;
	return r;
}

/* Those that are not holes. */
static int put_pages(int to, int from, uint64_t size)
{
	char *map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, from, 0);
	struct pages *p = xcalloc(1, sizeof *p);
	off_t end = 0, data;
	int r = map == MAP_FAILED ? -errno : 0;

	p->to = to;
	while (r == 0 && (data = lseek(from, end, SEEK_DATA)) >= 0) {
		end = lseek(from, data, SEEK_HOLE);
		for (off_t at = data; at < end && r == 0; at += PAGE)
			r = put_page(p, (uint64_t)at, map + at);
	}
	if (r == 0)
		r = flush(p);
	free(p);
	if (map != MAP_FAILED)
		(void)munmap(map, (size_t)size);
	return r;
}

/* changed: whose pages it has, or negative. */
static int write_state(int to, int devices, int changed, uint64_t size)
{
	auto_buf struct buf head, tail;
	struct stat st;

	buf_init(&head, HEAD_MAX);
	buf_init(&tail, DEVICES_MAX + HEAD_MAX);
	if (fstat(devices, &st) < 0)
		return -errno;
	if (st.st_size <= 0 || st.st_size > DEVICES_MAX)
		return -EFBIG;
	/* read once, and looked at then: its writer may have it still */
	auto_free char *text = xmalloc((size_t)st.st_size);
	if (pread(devices, text, (size_t)st.st_size, 0) != st.st_size)
		return -EIO;
	if (!begins_well((struct str){ text, (size_t)st.st_size }) || text[st.st_size - 1] != SECTION_END)
		return -EBADMSG;
	put_configuration(&head);
	if (changed >= 0) {
		begin_ram(&head, size);
		end_ram(&tail);
	}
	(void)buf_add(&tail, text + sizeof magic, (size_t)st.st_size - sizeof magic);
	/* without one QEMU says on its standard error that it has expected it */
	put_byte(&tail, SECTION_DESCRIPTION);
	put_number(&tail, 2);
	(void)buf_add(&tail, "{}", 2);
	int r = write_all(to, &head);
	if (r == 0 && changed >= 0)
		r = put_pages(to, changed, size);
	return r == 0 ? write_all(to, &tail) : r;
}

/* --- the memory --- */

static int copy_part(int to, int from, off_t at, off_t end, char *block)
{
	while (at < end) {
		ssize_t n = pread(from, block, (size_t)MIN(end - at, (off_t)BLOCK), at);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		ssize_t put = pwrite(to, block, (size_t)n, at);
		if (put != n)
			return put < 0 ? -errno : -EIO;
		at += n;
	}
	return 0;
}

/* The holes of `to` from `base`. */
static int fill(int to, int base, off_t size)
{
	auto_free char *block = xmalloc(BLOCK);
	off_t at = 0;
	int r = 0;

	while (r == 0 && at < size) {
		off_t hole = lseek(to, at, SEEK_HOLE);
		off_t data = hole < 0 ? -1 : lseek(base, hole, SEEK_DATA); /* ENXIO: of both, there is no more */
		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		off_t end = lseek(to, data, SEEK_DATA), base_end = lseek(base, data, SEEK_HOLE);
		if (base_end < 0 || (end < 0 && errno != ENXIO))
			return -errno;
		end = end < 0 ? base_end : MIN(end, base_end);
		r = copy_part(to, base, data, end, block); /* none, where `to` has something of its own there */
		at = MAX(end, data);
	}
	return r;
}

int memory_make(int changed, int base, int devices, uint64_t read_in_max, struct memory_files *ret)
{
	auto_fd int state = memfd_create("state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat st;

	if (state < 0 || fstat(changed, &st) < 0)
		return -errno;
	const bool read_in = (uint64_t)st.st_blocks * 512 <= read_in_max;
	int r = write_state(state, devices, read_in ? changed : -EBADF, (uint64_t)st.st_size);
	if (r == 0 && !read_in && (r = fill(changed, base, st.st_size)) == 0)
		r = template_seal(changed);
	if (r == 0)
		r = template_seal(state);
	auto_fd int ram = r < 0 ? -EBADF : fcntl(read_in ? base : changed, F_DUPFD_CLOEXEC, 3);
	if (r == 0 && ram < 0)
		r = -errno;
	if (r == 0)
		*ret = (struct memory_files){ take_fd(&ram), take_fd(&state) };
	return r;
}

void memory_files_close(struct memory_files *f)
{
	f->ram = close_fd(f->ram);
	f->state = close_fd(f->state);
}

/* --- those that are there --- */

static struct memory **find(const struct vm *v, const char *snapshot)
{
	struct memory **at = (struct memory **)(uintptr_t)&v->memories;

	while (*at && !streq((*at)->snapshot, snapshot))
		at = &(*at)->next;
	return at;
}

void memory_keep(struct vm *v, const char *snapshot, struct memory_files *f)
{
	struct memory *m = xcalloc(1, sizeof *m);

	*m = (struct memory){ .next = v->memories, .files = *f };
	*f = (struct memory_files){ -EBADF, -EBADF };
	snprintf(m->snapshot, sizeof m->snapshot, "%s", snapshot);
	v->memories = m;
}

const struct memory_files *memory_of(const struct vm *v, const char *snapshot)
{
	const struct memory *m = *find(v, snapshot);

	return m ? &m->files : NULL;
}

void memory_forget(struct vm *v, const char *snapshot)
{
	struct memory **at = find(v, snapshot), *m = *at;

	if (!m)
		return;
	*at = m->next;
	memory_files_close(&m->files);
	free(m);
}

void memories_free(struct vm *v)
{
	while (v->memories)
		memory_forget(v, v->memories->snapshot);
}
