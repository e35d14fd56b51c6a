/* Is the log what was written? Follows the chain through all files, and compares its end with the head. */
#include "audit/audit_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROBLEMS_MAX = 100 };

struct check {
	void (*problem)(void *ctx, const char *what);
	void *ctx;
	struct audit_report *r;
	uint64_t next;		    /* the line that has to come; 0: a part, which begins where it does */
	char hash[AUDIT_HASH_SIZE]; /* of the line before that one; "": it is not known */
	const struct head *head; /* or NULL */
	bool head_met;
	uint64_t expect_seq;
	char expect_hash[AUDIT_HASH_SIZE];
	bool expect_met;
};

static void say(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct check *c, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (c->r->problems++ >= PROBLEMS_MAX)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	c->problem(c->ctx, text);
}

static void compare(struct check *c, const struct parsed *p)
{
	if (c->head && p->seq == c->head->seq) {
		c->head_met = true;
		if (strcmp(p->hash, c->head->hash) != 0)
			say(c, "line %llu is not the one that the head names: the log was written anew", (unsigned long long)p->seq);
	}
	if (c->expect_seq && p->seq == c->expect_seq) {
		c->expect_met = true;
		if (strcmp(p->hash, c->expect_hash) != 0)
			say(c, "line %llu is not the one that was expected: the log was written anew", (unsigned long long)p->seq);
	}
}

static void check_line(struct check *c, const char *name, size_t number, struct str line)
{
	char hash[AUDIT_HASH_SIZE];
	struct parsed p;

	if (!line_parse(line, &p)) {
		say(c, "%s: line %zu of the file is no line of an audit log", name, number);
		return;
	}
	bool follows = c->next && p.seq == c->next, known = follows && c->hash[0];
	if (c->next && p.seq < c->next)
		say(c, "%s: line %llu comes after line %llu: lines were moved or put in", name, (unsigned long long)p.seq, (unsigned long long)c->next - 1);
	else if (c->next && !follows)
		say(c, "%s: lines %llu to %llu are missing", name, (unsigned long long)c->next, (unsigned long long)p.seq - 1);
	if (known && p.prev.p && memcmp(p.prev.p, c->hash, AUDIT_HASH_SIZE - 1) != 0)
		say(c, "%s: the file does not go on from the one before it", name);
	if (!known && p.prev.p) /* the first line that is looked at, or one behind a break: the chain begins anew */
		memcpy(c->hash, p.prev.p, AUDIT_HASH_SIZE - 1);
	if (known || p.prev.p) { /* else a part that begins in the middle: its first line has nothing to be checked against */
		chain_hash(c->hash, p.body, hash);
		if (strcmp(hash, p.hash) != 0)
			say(c, "%s: line %llu was changed, or the one before it", name, (unsigned long long)p.seq);
	} else if (follows) {
		say(c, "%s: line %llu was changed: a file does not begin so", name, (unsigned long long)p.seq);
	}
	if (str_eqz(p.type, "audit.damaged"))
		say(c, "%s: line %llu: a start of the server found damage: %.*s", name, (unsigned long long)p.seq, (int)MIN(line.n, (size_t)300), line.p);
	if (!c->r->first)
		c->r->first = p.seq;
	c->r->last = p.seq;
	c->next = p.seq + 1;
	memcpy(c->hash, p.hash, sizeof c->hash);
	compare(c, &p);
}

static int check_file(struct check *c, int dir, const char *name, bool last, struct err *e)
{
	auto_free char *text = NULL;
	size_t n = 0, number = 0;
	int rc = file_read(dir, name, &text, &n);

	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "cannot read %s", name);
	c->r->files++;
	struct str rest = { text, n };
	while (rest.n) {
		const char *end = memchr(rest.p, '\n', rest.n);
		if (!end) {
			if (!last)
				say(c, "%s: the end of its last line is missing", name);
			break; /* of the last file: being written, or cut short by a kill */
		}
		struct str line = { rest.p, (size_t)(end - rest.p) };
		check_line(c, name, ++number, line);
		rest.p += line.n + 1;
		rest.n -= line.n + 1;
	}
	return 0;
}

static int check_folder(struct check *c, int dir, struct err *e)
{
	struct file_list files = { 0 };
	struct head head;
	int known = head_read(dir, &head); /* before the files, which may grow meanwhile */
	int rc = files_list(dir, &files);

	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "cannot read the folder");
	if (known == 0)
		c->head = &head;
	else if (files.n || known != -ENOENT)
		say(c, "head: %s", known == -ENOENT ? "it is missing, so whether the end of the log is cannot be told" : "it is damaged");
	if (files.n) /* files that were to go may still be there */
		c->next = known == 0 ? MIN(head.first, files.first[0]) : files.first[0];
	if (c->next == 1)
		memcpy(c->hash, ZERO_HASH, sizeof c->hash);
	for (size_t i = 0; rc == 0 && i < files.n; i++) {
		char name[NAME_SIZE];
		file_name(files.first[i], name);
		rc = check_file(c, dir, name, i + 1 == files.n, e);
	}
	files_done(&files);
	if (rc == 0 && known == 0 && !c->head_met)
		say(c, "the end is missing: the log goes to line %llu, and went to line %llu", (unsigned long long)c->r->last,
		    (unsigned long long)head.seq);
	c->head = NULL;
	return rc;
}

static int take_expected(struct check *c, const char *expect, struct err *e)
{
	const char *colon = expect ? strchr(expect, ':') : NULL;

	if (!expect)
		return 0;
	if (!colon || strlen(colon + 1) != AUDIT_HASH_SIZE - 1 ||
	    parse_u64((struct str){ expect, (size_t)(colon - expect) }, UINT64_MAX, &c->expect_seq) < 0 || !c->expect_seq)
		return err_set(e, ERR_INVALID, EINVAL, "expected SEQ:HASH, a line's number and its hash");
	memcpy(c->expect_hash, colon + 1, AUDIT_HASH_SIZE);
	return 0;
}

int audit_verify(const char *path, const char *expect, void (*problem)(void *ctx, const char *what), void *ctx, struct audit_report *ret,
		 struct err *e)
{
	struct audit_report r = { 0 };
	struct check c = { .problem = problem, .ctx = ctx, .r = &r };
	struct stat st;

	int rc = take_expected(&c, expect, e);
	if (rc < 0)
		return rc;
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "cannot open %s", path);
	rc = S_ISDIR(st.st_mode) ? check_folder(&c, fd, e) : check_file(&c, AT_FDCWD, path, false, e);
	if (rc < 0)
		return rc;
	if (!r.last && !r.problems) /* then nothing was checked, which is not to be taken for a log in order */
		return err_set(e, ERR_NOT_FOUND, ENOENT, "no line of an audit log is in %s", path);
	if (c.expect_seq && !c.expect_met)
		say(&c, "line %llu, which was expected, is not there", (unsigned long long)c.expect_seq);
	memcpy(r.hash, c.hash, sizeof r.hash);
	*ret = r;
	return 0;
}
