/* The log as it is written: files that follow one another, the head beside them. */
#include "audit/audit_int.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_all(int fd, struct str s, uint64_t at)
{
	while (s.n) {
		ssize_t n = pwrite(fd, s.p, s.n, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		s.p += n;
		s.n -= (size_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

/* --- the head --- */

static struct head head_now(const struct audit *a)
{
	struct head h = { .first = a->kept_first, .seq = a->seq };

	memcpy(h.hash, a->hash, sizeof h.hash);
	return h;
}

static int head_write(struct audit *a, const struct head *h)
{
	char text[160];

	size_t n = head_format(h, text);
	auto_fd int fd = openat(a->dir, "head", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	return write_all(fd, (struct str){ text, n }, 0);
}

static int head_write_now(struct audit *a)
{
	struct head h = head_now(a);

	return head_write(a, &h);
}

/* --- appending --- */

/* Takes more of the disk before it is needed, so that its end is known while there still is room for what must be said. */
static void reserve(struct audit *a)
{
	uint64_t want = a->file_len + AUDIT_RESERVE;

	if (want <= a->reserved)
		return;
	if (fallocate(a->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)(a->file_len + AUDIT_EXTEND)) == 0 || errno == EOPNOTSUPP || errno == ENOSYS) {
		a->reserved = a->file_len + AUDIT_EXTEND;
		a->full = 0;
		return;
	}
	if (!a->full)
		log_error("msg=\"no room for the audit log: new work is refused until there is\" errno=%d", errno);
	a->full = errno;
}

/* The line is in a->line.b, without its end. */
static int append(struct audit *a)
{
	struct buf *b = &a->line.b;
	char hash[AUDIT_HASH_SIZE];

	if (b->overflow)
		return -E2BIG;
	chain_hash(a->hash, buf_str(b), hash);
	(void)buf_addf(b, HASH_KEY "%s\"}\n", hash);
	if (b->overflow)
		return -E2BIG;
	int rc = write_all(a->fd, buf_str(b), a->file_len);
	if (rc < 0) { /* perhaps in part: the next line is written over it */
		if (ftruncate(a->fd, (off_t)a->file_len) < 0)
			log_error("msg=\"the audit log cannot be cut back\" errno=%d", errno);
		return rc;
	}
	a->file_len += b->len;
	a->seq++;
	memcpy(a->hash, hash, sizeof hash);
	a->dirty = true;
	return 0;
}

/* A file that is done with: what was taken of the disk and not needed is given back. Some milliseconds. */
static void settle(int fd, uint64_t len)
{
	if (ftruncate(fd, (off_t)len) < 0 || fdatasync(fd) < 0)
		log_error("msg=\"a file of the audit log cannot be synced\" errno=%d", errno);
	close_fd(fd);
}

static int file_begin(struct audit *a)
{
	char name[NAME_SIZE];

	file_name(a->seq + 1, name);
	auto_fd int fd = openat(a->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	int old = a->fd;
	uint64_t len = a->file_len, first = a->file_first, reserved = a->reserved;
	a->fd = fd;
	a->file_len = a->reserved = 0;
	a->file_first = a->seq + 1;
	reserve(a);
	struct audit_line *l = audit_begin(a, "audit.file", NULL);
	audit_text(l, "prev", a->hash);
	int rc = append(a);
	if (rc < 0) { /* the old one goes on */
		(void)unlinkat(a->dir, name, 0);
		a->fd = old;
		a->file_len = len;
		a->file_first = first;
		a->reserved = reserved;
		return rc;
	}
	fd = -EBADF;
	if (old >= 0)
		settle(old, len);
	return 0;
}

static void say_removed(struct audit *a, uint64_t first, uint64_t last)
{
	struct audit_line *l = audit_begin(a, "audit.removed", NULL);

	audit_u64(l, "first", first);
	audit_u64(l, "last", last);
	(void)append(a);
}

/* The oldest files go when there are more bytes than are to be kept. What is said comes first: a file that is missing without it is a loss. */
static void remove_old(struct audit *a)
{
	struct file_list files = { 0 };
	uint64_t total = 0;

	if (!a->keep_bytes || files_list(a->dir, &files) < 0)
		return;
	for (size_t i = files.n; i-- > 0;) {
		struct stat st;
		char name[NAME_SIZE];
		file_name(files.first[i], name);
		if (fstatat(a->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		total += (uint64_t)st.st_size;
		if (total <= a->keep_bytes || files.first[i] == a->file_first || i + 1 == files.n)
			continue;
		say_removed(a, files.first[0], files.first[i + 1] - 1);
		a->kept_first = files.first[i + 1];
		if (head_write_now(a) == 0)
			for (size_t k = 0; k <= i; k++) {
				file_name(files.first[k], name);
				(void)unlinkat(a->dir, name, 0);
			}
		break;
	}
	files_done(&files);
}

static void next_file(struct audit *a)
{
	/* begun from a line that is being put together: that one is set aside */
	struct buf aside = a->line.b;

	a->line.b = (struct buf){ 0 };
	buf_init(&a->line.b, AUDIT_LINE_MAX);
	int rc = file_begin(a);
	if (rc == 0) {
		(void)head_write_now(a);
		remove_old(a);
	} else if (rc != -ENOSPC && rc != -EDQUOT) {
		log_error("msg=\"a new file of the audit log cannot be begun\" errno=%d", -rc);
	}
	buf_done(&a->line.b);
	a->line.b = aside;
}

/* The line says which number it has; when others came between, it gets its own. */
static void renumber(struct audit *a)
{
	struct buf *b = &a->line.b;
	const char *rest = memchr(b->data, ',', b->len);
	auto_free char *copy = xstrndup(rest, b->len - (size_t)(rest - b->data));

	buf_reset(b);
	(void)buf_addf(b, "{\"seq\":%llu%s", (unsigned long long)a->seq + 1, copy);
}

static void say_lost(struct audit *a)
{
	struct buf aside = a->line.b;

	a->line.b = (struct buf){ 0 };
	buf_init(&a->line.b, AUDIT_LINE_MAX);
	struct audit_line *l = audit_begin(a, "audit.lost", NULL);
	audit_u64(l, "lines", a->lost);
	if (append(a) == 0)
		a->lost = 0;
	buf_done(&a->line.b);
	a->line.b = aside;
}

int audit_end(struct audit *a)
{
	uint64_t seq = a->seq;

	if (a->file_len >= a->file_bytes)
		next_file(a);
	if (a->lost)
		say_lost(a);
	if (a->seq != seq)
		renumber(a);
	reserve(a);
	int rc = append(a);
	if (rc < 0) {
		if (!a->lost++)
			log_error("msg=\"a line of the audit log is lost\" errno=%d", -rc);
	}
	return rc;
}

int audit_ready(struct audit *a, struct err *e)
{
	reserve(a);
	if (a->full)
		return err_sys(e, ERR_UNAVAILABLE, a->full, "the audit log cannot be written, so nothing new is begun");
	return 0;
}

int audit_sync_begin(struct audit *a)
{
	if (!a->dirty)
		return -ENOENT;
	int fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return -errno;
	a->dirty = false;
	a->synced = head_now(a);
	return fd;
}

void audit_sync_end(struct audit *a)
{
	a->synced.first = a->kept_first;
	int rc = head_write(a, &a->synced);
	if (rc < 0)
		log_error("msg=\"the head of the audit log cannot be written\" errno=%d", -rc);
}

uint64_t audit_seq(const struct audit *a)
{
	return a->seq;
}

const char *audit_hash(const struct audit *a)
{
	return a->hash;
}

/* --- opening --- */

/* Follows the last file to its end. False: it is not what was written. `reached` becomes true when the head's line was met. */
static bool follow(struct audit *a, struct str text, const struct head *h, bool *reached, const char **ret_why)
{
	struct parsed p;

	*ret_why = "a line was changed";
	for (bool first = true; text.n; first = false) {
		const char *end = memchr(text.p, '\n', text.n);
		if (!end) /* a line that a kill cut short: written over by the next one */
			break;
		struct str line = { text.p, (size_t)(end - text.p) };
		if (!line_parse(line, &p) || (first ? !p.prev.p : p.seq != a->seq + 1))
			return false;
		if (first) {
			memcpy(a->hash, p.prev.p, AUDIT_HASH_SIZE - 1);
			a->seq = p.seq - 1;
		}
		char hash[AUDIT_HASH_SIZE];
		if (first && a->seq == h->seq)
			*reached = strcmp(a->hash, h->hash) == 0;
		chain_hash(a->hash, p.body, hash);
		if (strcmp(hash, p.hash) != 0)
			return false;
		memcpy(a->hash, hash, sizeof hash);
		a->seq = p.seq;
		a->file_len += line.n + 1;
		if (a->seq == h->seq)
			*reached = strcmp(a->hash, h->hash) == 0;
		text.p += line.n + 1;
		text.n -= line.n + 1;
	}
	*ret_why = "its end is missing";
	return *reached;
}

/* A new file, after what the head says was the last line (or what was found, if that is more). */
static int begin_anew(struct audit *a, const struct head *h, uint64_t last_file, const char *why, struct err *e)
{
	if (h && h->seq >= a->seq) {
		a->seq = h->seq;
		memcpy(a->hash, h->hash, sizeof a->hash);
	}
	if (a->seq < last_file) /* a file of that name must not be there */
		a->seq = last_file;
	a->fd = close_fd(a->fd);
	a->file_len = 0;
	int rc = file_begin(a);
	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "cannot begin a file of the audit log");
	if (why) {
		log_error("msg=\"the audit log is damaged: %s\"", why);
		struct audit_line *l = audit_begin(a, "audit.damaged", NULL);
		audit_text(l, "what", why);
		(void)append(a);
	}
	return 0;
}

static int go_on(struct audit *a, const struct head *h, uint64_t first, struct err *e)
{
	auto_free char *text = NULL;
	char name[NAME_SIZE];
	size_t n = 0;
	bool reached = false;
	const char *why;

	file_name(first, name);
	a->fd = openat(a->dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	int rc = a->fd < 0 ? -errno : file_read(a->dir, name, &text, &n);
	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "cannot read the audit log (%s)", name);
	a->file_first = first;
	if (!follow(a, (struct str){ text, n }, h, &reached, &why))
		return begin_anew(a, h, first, why, e);
	if (ftruncate(a->fd, (off_t)a->file_len) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "cannot cut an unfinished line off the audit log");
	return 0;
}

static int load(struct audit *a, struct err *e)
{
	struct file_list files = { 0 };
	struct head h = { .first = 1, .hash = ZERO_HASH };

	int known = head_read(a->dir, &h);
	int rc = files_list(a->dir, &files);
	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "cannot read the folder of the audit log");
	uint64_t last = files.n ? files.first[files.n - 1] : 0;
	files_done(&files);
	a->kept_first = h.first;
	memcpy(a->hash, ZERO_HASH, sizeof a->hash);
	if (last == 0)
		return begin_anew(a, &h, 0, known == 0 ? "its files are gone" : NULL, e);
	if (known < 0) { /* it is written before the second file and with the first: it was taken away */
		a->seq = last;
		return begin_anew(a, NULL, last, "its head is missing", e);
	}
	return go_on(a, &h, last, e);
}

int audit_open(const struct audit_options *o, struct audit **ret, struct err *e)
{
	struct audit *a = xcalloc(1, sizeof *a);

	a->fd = -EBADF;
	a->file_bytes = o->file_bytes ? o->file_bytes : AUDIT_FILE_DEFAULT;
	a->keep_bytes = o->keep_bytes;
	buf_init(&a->line.b, AUDIT_LINE_MAX);
	if (mkdir(o->dir, 0700) < 0 && errno != EEXIST)
		log_error("msg=\"cannot make %s\" errno=%d", o->dir, errno);
	a->dir = open(o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int rc = a->dir < 0 ? err_sys(e, ERR_UNAVAILABLE, errno, "cannot open the folder of the audit log (%s)", o->dir) : load(a, e);
	if (rc == 0 && (rc = head_write_now(a)) < 0)
		rc = err_sys(e, ERR_UNAVAILABLE, -rc, "cannot write the head of the audit log");
	if (rc < 0) {
		audit_close(a);
		return rc;
	}
	*ret = a;
	return 0;
}

void audit_close(struct audit *a)
{
	if (!a)
		return;
	int fd = a->fd < 0 ? -EBADF : audit_sync_begin(a);
	if (fd >= 0) {
		struct stat st;
		settle(fd, a->file_len);
		if (fstat(a->dir, &st) == 0 && st.st_nlink > 0) /* that of a server that leaves nothing may have gone already */
			audit_sync_end(a);
	}
	buf_done(&a->line.b);
	close_fd(a->fd);
	close_fd(a->dir);
	free(a);
}
