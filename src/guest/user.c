#include "guest/user.h"

#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { DATABASE_MAX = 1024 * 1024, ID_MAX = 0xfffffffeu >> 1, SETTLED_S = 2 };

/* A user database as it was read last. Every run asks, and hardly ever has it changed: then its change time, which nobody
 * can set, says so. But that time goes in steps, so a file that was changed a moment ago is read again. */
struct database {
	const char *path;
	struct buf text;
	struct stat seen;
	bool settled; /* what was seen can be compared with */
};

static struct database passwd_file = { .path = "/etc/passwd" }, group_file = { .path = "/etc/group" };

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* The whole file, or nothing: a fifo or a device under that name must not stop us. */
static void read_whole(struct database *d, const struct timespec *now)
{
	auto_fd int fd = open(d->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat *st = &d->seen;
	struct buf *b = &d->text;

	buf_done(b);
	buf_init(b, DATABASE_MAX);
	d->settled = false;
	if (fd < 0 || fstat(fd, st) < 0 || !S_ISREG(st->st_mode))
		return;
	d->settled = st->st_ctim.tv_sec < now->tv_sec - SETTLED_S;
	for (size_t want = (size_t)MIN(MAX(st->st_size, 0) + 1, DATABASE_MAX);;) { /* one more, to see the end */
		char *to = buf_reserve(b, want);
		ssize_t n = to ? read(fd, to, want) : 0;
		if (n <= 0)
			return;
		buf_grew(b, (size_t)n);
		if ((size_t)n < want)
			return;
		want = 4096;
	}
}

/* Good until the next call. */
static struct str database(struct database *d)
{
	struct timespec now;
	struct stat st;

	clock_gettime(CLOCK_REALTIME, &now); /* before the file is read: what changes meanwhile is newer */
	if (!d->settled || stat(d->path, &st) < 0 || !same(&st, &d->seen))
		read_whole(d, &now);
	return buf_str(&d->text);
}

enum { FIELDS = 7 };

/* Splits the next line at colons; returns the number of fields, -1 at the end. */
static int next_entry(struct str *text, struct str fields[static FIELDS])
{
	if (text->n == 0)
		return -1;
	const char *nl = memchr(text->p, '\n', text->n);
	struct str line = { text->p, nl ? (size_t)(nl - text->p) : text->n };
	text->p += line.n + (nl ? 1 : 0);
	text->n -= line.n + (nl ? 1 : 0);
	int n = 0;
	for (;;) {
		const char *colon = line.n ? memchr(line.p, ':', line.n) : NULL;
		size_t len = colon && n < FIELDS - 1 ? (size_t)(colon - line.p) : line.n;
		fields[n++] = (struct str){ line.p, len };
		if (!colon || n == FIELDS)
			return n;
		line.p += len + 1;
		line.n -= len + 1;
	}
}

static bool parse_id(struct str s, uint32_t *ret)
{
	uint64_t v;

	if (s.n > 10 || parse_u64(s, ID_MAX, &v) < 0)
		return false;
	*ret = (uint32_t)v;
	return true;
}

static void copy(char *to, size_t size, struct str s)
{
	bool fits = s.n < size && !memchr(s.p ? s.p : "", '\0', s.n);

	if (!fits)
		s.n = 0;
	if (s.n)
		memcpy(to, s.p, s.n);
	to[s.n] = '\0';
}

/* By name, or by id when id is given. */
static bool find_passwd(struct str passwd, struct str name, const uint32_t *id, struct user *u)
{
	struct str f[FIELDS];
	int n;

	while ((n = next_entry(&passwd, f)) >= 0) {
		uint32_t uid, gid;
		if (n < FIELDS || !parse_id(f[2], &uid) || !parse_id(f[3], &gid) || f[0].n == 0)
			continue;
		if (id ? uid != *id : !str_eq(f[0], name))
			continue;
		u->uid = uid;
		u->gid = gid;
		copy(u->name, sizeof u->name, f[0]);
		copy(u->home, sizeof u->home, f[5]);
		copy(u->shell, sizeof u->shell, f[6]);
		return true;
	}
	return false;
}

static bool has_member(struct str members, struct str name)
{
	while (members.n) {
		const char *comma = memchr(members.p, ',', members.n);
		struct str one = { members.p, comma ? (size_t)(comma - members.p) : members.n };
		if (str_eq(one, name))
			return true;
		members.p += one.n + (comma ? 1 : 0);
		members.n -= one.n + (comma ? 1 : 0);
	}
	return false;
}

static bool find_group(struct str group, struct str name, gid_t *ret)
{
	struct str f[FIELDS];
	int n;

	while ((n = next_entry(&group, f)) >= 0)
		if (n >= 3 && f[0].n && str_eq(f[0], name) && parse_id(f[2], ret))
			return true;
	return false;
}

static void find_groups(struct str group, struct user *u)
{
	struct str f[FIELDS];
	int n;
	gid_t gid;

	u->groups[0] = u->gid;
	u->ngroups = 1;
	while (u->name[0] && (n = next_entry(&group, f)) >= 0 && u->ngroups < USER_GROUPS_MAX)
		if (n >= 4 && parse_id(f[2], &gid) && gid != u->gid && has_member(f[3], str_of(u->name)))
			u->groups[u->ngroups++] = gid;
}

int user_find(const char *text, struct user *ret, struct err *e)
{
	const char *colon = strchr(text, ':');
	struct str name = { text, colon ? (size_t)(colon - text) : strlen(text) };
	struct user u = { .home = "/", .shell = "/bin/sh" };
	uint32_t id;

	if (name.n == 0 || name.n >= sizeof u.name)
		return err_set(e, ERR_INVALID, EINVAL, "not a user: \"%.80s\"", text);
	struct str passwd = database(&passwd_file), group = database(&group_file);
	if (!find_passwd(passwd, name, NULL, &u)) {
		if (!parse_id(name, &id))
			return err_set(e, ERR_INVALID, ENOENT, "the sandbox has no user \"%.*s\" (see /etc/passwd in it)", (int)name.n, name.p);
		if (!find_passwd(passwd, name, &id, &u)) {
			u.uid = id;
			u.gid = colon || id ? id : 0;
		}
	}
	if (colon) {
		struct str g = str_of(colon + 1);
		if (!find_group(group, g, &u.gid) && !parse_id(g, &u.gid))
			return err_set(e, ERR_INVALID, ENOENT, "the sandbox has no group \"%.80s\" (see /etc/group in it)", colon + 1);
	}
	if (u.home[0] != '/')
		copy(u.home, sizeof u.home, STR("/"));
	if (u.shell[0] != '/')
		copy(u.shell, sizeof u.shell, STR("/bin/sh"));
	find_groups(group, &u);
	*ret = u;
	return 0;
}

int user_id_of(const char *text, bool group, uint32_t *ret)
{
	struct str db = database(group ? &group_file : &passwd_file);
	struct user u;

	if (group ? find_group(db, str_of(text), ret) : find_passwd(db, str_of(text), NULL, &u)) {
		if (!group)
			*ret = u.uid;
		return 0;
	}
	return parse_id(str_of(text), ret) ? 0 : -ENOENT;
}

void user_name_of(uint32_t id, bool group, char ret[static 64])
{
	/* listings ask for the same few ids again and again */
	static struct {
		bool known;
		uint32_t id;
		char name[64];
	} last[2];
	struct str text, f[FIELDS];
	uint32_t v;
	int n;

	if (last[group].known && last[group].id == id) {
		memcpy(ret, last[group].name, 64);
		return;
	}
	text = database(group ? &group_file : &passwd_file);
	snprintf(ret, 64, "%u", id);
	while ((n = next_entry(&text, f)) >= 0)
		if (n >= 3 && parse_id(f[2], &v) && v == id && f[0].n && f[0].n < 64 && !memchr(f[0].p, '\0', f[0].n)) {
			copy(ret, 64, f[0]);
			break;
		}
	last[group].known = true;
	last[group].id = id;
	memcpy(last[group].name, ret, 64);
}

void user_give(const struct user *u, int fd, bool group)
{
	if (u->uid != geteuid() && fchown(fd, u->uid, group ? u->gid : (gid_t)-1) < 0)
		return;
}

int user_become(const struct user *u)
{
	/* libc's own set*id would look for threads to take along; a child that shares our memory must not */
	if (syscall(SYS_setgroups, u->ngroups, u->groups) < 0) {
		/* in a user namespace of one's own making setgroups is refused for ever; staying what one is needs none */
		bool already = geteuid() == u->uid && getegid() == u->gid;
		if (errno != EPERM || !already)
			return -errno;
	}
	if (syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0 || syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
		return -errno;
	return 0;
}
