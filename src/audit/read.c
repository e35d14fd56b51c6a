/* Files of the log, and pages of its lines. */
#include "audit/audit_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_AT_ONCE = 256 << 10, LOOKED_AT_MAX = 4 << 20, FILE_MAX = 1 << 30 };

void file_name(uint64_t first, char ret[static NAME_SIZE])
{
	snprintf(ret, NAME_SIZE, "audit-%020llu.log", (unsigned long long)first);
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int files_list(int dir, struct file_list *ret)
{
	struct file_list f = { 0 };
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		int cause = errno;
		close_fd(fd);
		return -cause;
	}
	for (struct dirent *e; (e = readdir(d));) {
		uint64_t first;
		char name[NAME_SIZE];
		size_t n = strlen(e->d_name);
		if (n != 30 || parse_u64((struct str){ e->d_name + 6, 20 }, UINT64_MAX, &first) < 0)
			continue;
		file_name(first, name);
		if (!streq(name, e->d_name))
			continue;
		f.first = xreallocarray(f.first, f.n + 1, sizeof *f.first);
		f.first[f.n++] = first;
	}
	closedir(d);
	if (f.n)
		qsort(f.first, f.n, sizeof *f.first, by_number);
	*ret = f;
	return 0;
}

void files_done(struct file_list *f)
{
	free(f->first);
	*f = (struct file_list){ 0 };
}

int file_read(int dir, const char *name, char **ret, size_t *ret_n)
{
	struct stat st;
	auto_fd int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size > FILE_MAX)
		return -EFBIG;
	size_t size = (size_t)st.st_size, n = 0;
	auto_free char *text = xmalloc(size + 1);
	while (n < size) {
		ssize_t got = pread(fd, text + n, size - n, (off_t)n);
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		n += (size_t)got;
	}
	text[n] = '\0';
	*ret = take_ptr(&text);
	*ret_n = n;
	return 0;
}

int head_read(int dir, struct head *ret)
{
	auto_free char *text = NULL;
	size_t n;
	int rc = file_read(dir, "head", &text, &n);

	if (rc < 0)
		return rc;
	return head_parse((struct str){ text, n }, ret) ? 0 : -EBADMSG;
}

/* --- pages --- */

struct page {
	struct audit *a;
	const struct audit_filter *f;
	void (*each)(void *ctx, uint64_t seq, struct str line);
	void *ctx;
	uint64_t after;
	size_t limit, given, looked_at;
};

static bool type_matches(struct str type, const char *want)
{
	size_t n = strlen(want);

	return type.n >= n && memcmp(type.p, want, n) == 0 && (type.n == n || type.p[n] == '.');
}

bool audit_type_is(struct str line, const char *type)
{
	struct parsed p;

	return line_parse(line, &p) && type_matches(p.type, type);
}

static bool matches(const struct audit_filter *f, struct str line, const struct parsed *p)
{
	if (f->tenant && !str_eqz(p->tenant, f->tenant))
		return false;
	if (f->type && !type_matches(p->type, f->type))
		return false;
	return !f->sandbox || str_eqz(line_text(line, "sandbox"), f->sandbox);
}

static bool enough(const struct page *g)
{
	return g->given >= g->limit || g->looked_at >= LOOKED_AT_MAX;
}

static void take_line(struct page *g, struct str line)
{
	struct parsed p;

	g->looked_at += line.n;
	if (!line_parse(line, &p) || p.seq <= g->after)
		return;
	g->after = p.seq;
	if (matches(g->f, line, &p)) {
		g->given++;
		g->each(g->ctx, p.seq, line);
	}
}

/* Where to begin in the file that begins with line `first`. */
static uint64_t cursor_of(const struct audit *a, uint64_t first, uint64_t after)
{
	uint64_t at = 0;

	for (size_t i = 0; i < ARRAY_LEN(a->cursors); i++)
		if (a->cursors[i].first == first && a->cursors[i].seq <= after)
			at = MAX(at, a->cursors[i].at);
	return at;
}

static int read_file(struct page *g, uint64_t first)
{
	auto_free char *bytes = xmalloc(READ_AT_ONCE);
	uint64_t at = cursor_of(g->a, first, g->after);
	char name[NAME_SIZE];

	file_name(first, name);
	auto_fd int fd = openat(g->a->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	while (!enough(g)) {
		ssize_t n = pread(fd, bytes, READ_AT_ONCE, (off_t)at);
		if (n < 0)
			return -errno;
		struct str rest = { bytes, (size_t)n };
		const char *end;
		while (!enough(g) && (end = memchr(rest.p, '\n', rest.n))) {
			struct str line = { rest.p, (size_t)(end - rest.p) };
			take_line(g, line);
			rest.p += line.n + 1;
			rest.n -= line.n + 1;
		}
		if (rest.p == bytes) /* no whole line: its end, or none of ours */
			break;
		at += (size_t)(rest.p - bytes);
	}
	g->a->cursors[g->a->next_cursor++ % ARRAY_LEN(g->a->cursors)] = (struct cursor){ .first = first, .seq = g->after, .at = at };
	return 0;
}

int audit_read(struct audit *a, uint64_t after, size_t limit, const struct audit_filter *f, void (*each)(void *ctx, uint64_t seq, struct str line),
	       void *ctx, uint64_t *ret_next, struct err *e)
{
	struct page g = { .a = a, .f = f, .each = each, .ctx = ctx, .after = after, .limit = limit };
	struct file_list files = { 0 };
	int rc = files_list(a->dir, &files);

	for (size_t i = 0; rc == 0 && i < files.n && !enough(&g); i++)
		if (i + 1 == files.n || files.first[i + 1] > g.after + 1)
			rc = read_file(&g, files.first[i]);
	files_done(&files);
	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "the audit log cannot be read");
	*ret_next = g.after;
	return 0;
}
