/* Theory of operation. Landlock only allows, with all below; it has no exceptions. So a folder that holds a denied place is not allowed
 * itself, but each of its entries but that one is, down to the denied place. What is made there later is covered by no rule, and so
 * denied: doubt closes. Rules are of files, not of names, so a place keeps its verdict when it is moved. */
#include "guest/confine.h"

#include "wire/guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/landlock.h, which musl's compiler does not find; the numbers are the same on every architecture. */
enum { NR_CREATE_RULESET = 444, NR_ADD_RULE = 445, NR_RESTRICT_SELF = 446, QUERY_VERSION = 1, PATH_BENEATH = 1 };
enum {
	EXECUTE = 1 << 0,
	WRITE_FILE = 1 << 1,
	READ_FILE = 1 << 2,
	READ_DIR = 1 << 3,
	REFER = 1 << 13, /* move or link between folders; denied everywhere unless it is handled and allowed */
	TRUNCATE = 1 << 14,
	MAKE_AND_REMOVE = 0x1ff0, /* REMOVE_DIR (bit 4) to MAKE_SYM (bit 12) */
	ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE,
};
enum { VERSION_MIN = 2, WITH_TRUNCATE = 3 }; /* Linux 5.19, 6.2 */
enum { ENTRIES_MAX = 32768 };

struct path_beneath {
	uint64_t allowed;
	int32_t parent;
} __attribute__((packed));

struct making { /* of a ruleset */
	const struct confine *c;
	int ruleset;
	uint64_t handled;
	size_t entries;
};

static const uint64_t rights[PERMIT_KIND_END] = {
	[PERMIT_PROGRAM] = EXECUTE,
	[PERMIT_READ] = READ_FILE | READ_DIR,
	[PERMIT_WRITE] = WRITE_FILE | TRUNCATE | MAKE_AND_REMOVE | REFER,
};

/* --- the rules as paths --- */

/* path is folder, or below it. */
static bool within(const char *path, const char *folder)
{
	size_t n = streq(folder, "/") ? 0 : strlen(folder);

	return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Without symlinks. What is not there yet is what is there of it, and the rest as it stands; -ELOOP where a symlink leads to nothing. */
static int resolve(const char *path, char ret[static PATH_MAX])
{
	char head[PATH_MAX], rest[PATH_MAX] = "", joined[PATH_MAX];
	struct stat st;

	if (strlen(path) >= sizeof head)
		return -ENAMETOOLONG;
	memcpy(head, path, strlen(path) + 1);
	while (!realpath(head, ret)) {
		if (errno != ENOENT && errno != ENOTDIR)
			return -errno;
		if (lstat(head, &st) == 0 && S_ISLNK(st.st_mode))
			return -ELOOP;
		char *slash = strrchr(head, '/');
		if (!slash || streq(slash, "/..") || streq(slash, "/."))
			return -ENOENT;
		if (slash[1]) { /* not a second or last slash */
			if (snprintf(joined, sizeof joined, "%s%s", slash, rest) >= (int)sizeof joined)
				return -ENAMETOOLONG;
			memcpy(rest, joined, sizeof rest);
		}
		*slash = '\0';
		if (slash == head)
			memcpy(head, "/", 2);
	}
	size_t n = streq(ret, "/") && rest[0] ? 0 : strlen(ret);
	if (n + strlen(rest) >= PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(ret + n, rest, strlen(rest) + 1);
	return 0;
}

/* What cannot be resolved is not allowed; but that it is to be denied cannot be left out. */
static int add_rule(struct confine *c, const struct permit *p, size_t number)
{
	char path[PATH_MAX];
	int r = resolve(p->path, path);

	if (r < 0)
		return p->verdict == PERMIT_DENY ? r : 0;
	if (c->rules_n == CONFINE_RULES_MAX)
		return -E2BIG;
	c->rules[c->rules_n++] = (struct confine_rule){ p->verdict, p->kind, (uint16_t)number, xstrdup(path) };
	return 0;
}

static bool denied(const struct confine *c, enum permit_kind kind, const char *path)
{
	for (size_t i = 0; i < c->rules_n; i++)
		if (c->rules[i].verdict == PERMIT_DENY && c->rules[i].kind == kind && streq(c->rules[i].path, path))
			return true;
	return false;
}

static bool holds_denied(const struct confine *c, enum permit_kind kind, const char *folder)
{
	for (size_t i = 0; i < c->rules_n; i++)
		if (c->rules[i].verdict == PERMIT_DENY && c->rules[i].kind == kind && within(c->rules[i].path, folder))
			return true;
	return false;
}

static bool is_loader(const struct confine *c, const char *path)
{
	for (size_t i = 0; i < ARRAY_LEN(c->loaders); i++)
		if (c->loaders[i] && streq(c->loaders[i], path))
			return true;
	return false;
}

struct confine_verdict confine_judge(const struct confine *c, enum permit_kind kind, const char *path)
{
	const struct confine_rule *best = NULL;
	bool named = false;

	for (size_t i = 0; i < c->rules_n; i++) {
		const struct confine_rule *r = &c->rules[i];
		if (r->kind != kind)
			continue;
		named |= r->verdict == PERMIT_ALLOW;
		size_t n = strlen(r->path), most = best ? strlen(best->path) : 0;
		if (within(path, r->path) && (!best || n > most || (n == most && r->verdict > best->verdict)))
			best = r;
	}
	if (kind == PERMIT_PROGRAM && is_loader(c, path) && !(best && streq(best->path, path)))
		return (struct confine_verdict){ .allowed = false, .rule = GUEST_NO_RULE };
	if (!best)
		return (struct confine_verdict){ .allowed = !named, .rule = GUEST_NO_RULE };
	return (struct confine_verdict){ best->verdict != PERMIT_DENY, best->verdict == PERMIT_ASK, best->number };
}

/* --- the ruleset --- */

static int add(struct making *m, const char *path, uint64_t access)
{
	struct stat st;
	auto_fd int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	access &= m->handled;
	if (!S_ISDIR(st.st_mode))
		access &= ON_FILES;
	struct path_beneath rule = { access, fd };
	if (!access || S_ISLNK(st.st_mode))
		return 0;
	if (++m->entries > ENTRIES_MAX)
		return -E2BIG;
	return syscall(NR_ADD_RULE, m->ruleset, PATH_BENEATH, &rule, 0) < 0 ? -errno : 0;
}

static int grant(struct making *m, enum permit_kind kind, const char *path);

static int grant_entries(struct making *m, enum permit_kind kind, const char *folder)
{
	char path[PATH_MAX];
	DIR *d = opendir(folder);
	int r = 0;

	if (!d)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno; /* a denied place that is not there, nor the folder that it would be in */
	for (struct dirent *e; r == 0 && (e = readdir(d));) {
		if (streq(e->d_name, ".") || streq(e->d_name, ".."))
			continue;
		int n = snprintf(path, sizeof path, "%s/%s", streq(folder, "/") ? "" : folder, e->d_name);
		r = n < (int)sizeof path ? grant(m, kind, path) : -ENAMETOOLONG;
	}
	closedir(d);
	return r;
}

/* A path with all below it, but for what is denied there. Names may be listed on the way. */
static int grant(struct making *m, enum permit_kind kind, const char *path)
{
	if (denied(m->c, kind, path))
		return 0;
	if (!holds_denied(m->c, kind, path))
		return add(m, path, rights[kind]);
	int r = add(m, path, rights[kind] & READ_DIR);
	return r < 0 ? r : grant_entries(m, kind, path);
}

static int grant_kind(struct making *m, enum permit_kind kind)
{
	bool named = false; /* only what is named is allowed */
	int r = 0;

	for (size_t i = 0; i < m->c->rules_n && r == 0; i++) {
		const struct confine_rule *rule = &m->c->rules[i];
		if (rule->kind != kind || rule->verdict == PERMIT_DENY)
			continue;
		named |= rule->verdict == PERMIT_ALLOW;
		r = grant(m, kind, rule->path);
	}
	return r < 0 || named ? r : grant(m, kind, "/");
}

/* A program's loader is executed by the kernel with it. Hardly a program does without the harmless devices, or reading /proc. */
static int grant_what_programs_need(struct making *m)
{
	static const char *const devices[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm" };
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(m->c->loaders) && r == 0; i++)
		if (m->c->loaders[i])
			r = add(m, m->c->loaders[i], EXECUTE);
	for (size_t i = 0; i < ARRAY_LEN(devices) && r == 0; i++)
		r = add(m, devices[i], ~(uint64_t)EXECUTE);
	if (r == 0)
		r = add(m, "/proc", READ_FILE | READ_DIR);
	if (r == 0)
		r = add(m, "/dev", READ_DIR);
	if (r == 0)
		r = add(m, "/dev/.sudo", READ_FILE);
	return r < 0 || m->handled & WRITE_FILE ? r : add(m, "/", REFER);
}

static int build(const struct confine *c, unsigned kinds, int version)
{
	struct making m = { .c = c, .handled = REFER };
	int r = 0;

	for (enum permit_kind k = PERMIT_PROGRAM; k < PERMIT_KIND_END; k++)
		if (kinds & 1u << k)
			m.handled |= rights[k];
	if (version < WITH_TRUNCATE)
		m.handled &= ~(uint64_t)TRUNCATE; /* the filter does that, confine_filter.c */
	m.ruleset = (int)syscall(NR_CREATE_RULESET, &m.handled, sizeof m.handled, 0);
	if (m.ruleset < 0)
		return -errno;
	(void)fcntl(m.ruleset, F_SETFD, FD_CLOEXEC);
	r = grant_what_programs_need(&m);
	for (enum permit_kind k = PERMIT_PROGRAM; k < PERMIT_KIND_END && r == 0; k++)
		if (kinds & 1u << k)
			r = grant_kind(&m, k);
	if (r == 0)
		return m.ruleset;
	close(m.ruleset);
	return r;
}

/* --- from the daemon --- */

static void forget(struct confine *c)
{
	if (c->on && c->ruleset >= 0)
		close(c->ruleset);
	for (size_t i = 0; i < c->rules_n; i++)
		free(c->rules[i].path);
	for (size_t i = 0; i < ARRAY_LEN(c->loaders); i++)
		free(c->loaders[i]);
	free(c->heard);
	*c = (struct confine){ .ruleset = -EBADF };
}

/* Root of a machine could ask its kernel to run something for it, or go to the disk itself. */
static int guard_machine(struct confine *c)
{
	static const struct permit also[] = {
		{ PERMIT_DENY, PERMIT_WRITE, "/sys" },
		{ PERMIT_DENY, PERMIT_WRITE, "/proc" },
		{ PERMIT_DENY, PERMIT_WRITE, "/dev" },
		{ PERMIT_DENY, PERMIT_READ, "/dev" },
	};
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(also) && r == 0; i++)
		r = add_rule(c, &also[i], GUEST_NO_RULE);
	return r;
}

static void find_loaders(struct confine *c)
{
	static const char *const names[CONFINE_LOADERS] = {
		"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1",
	};
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (resolve(names[i], path) == 0)
			c->loaders[i] = xstrdup(path);
}

static int make(struct confine *c, struct str rules, bool machine)
{
	long version = syscall(NR_CREATE_RULESET, NULL, 0, QUERY_VERSION);
	struct permit p;
	unsigned kinds = 0;
	int r = version < 0 ? -errno : version < VERSION_MIN ? -EOPNOTSUPP : 0;

	c->machine = machine;
	for (size_t i = 0; r == 0 && permit_next(&rules, &p) > 0; i++)
		r = add_rule(c, &p, i);
	if (r == 0 && machine)
		r = guard_machine(c);
	for (size_t i = 0; i < c->rules_n; i++) {
		kinds |= 1u << c->rules[i].kind;
		c->asks |= c->rules[i].verdict == PERMIT_ASK;
	}
	if (r < 0)
		return r;
	c->notify = kinds & 1u << PERMIT_PROGRAM;
	if (c->notify)
		find_loaders(c);
	if (c->notify && getrandom(c->secret, sizeof c->secret, 0) != (ssize_t)sizeof c->secret)
		return -EIO;
	confine_filter(c, kinds, (int)version);
	return build(c, kinds, (int)version);
}

int confine_set(struct confine *c, struct str rules, bool machine)
{
	struct str rest = rules;
	struct permit p;
	size_t n = 0;
	int r;

	if (c->on && rules.n == c->heard_n && memcmp(rules.p, c->heard, rules.n) == 0)
		return 0;
	while ((r = permit_next(&rest, &p)) > 0)
		n++;
	if (r < 0 || n > PERMITS_MAX)
		return -EPROTO;
	forget(c);
	if (n == 0)
		return 0;
	c->on = true;
	c->heard = xcalloc(1, rules.n);
	c->heard_n = rules.n;
	memcpy(c->heard, rules.p, rules.n);
	c->ruleset = make(c, rules, machine);
	return 0;
}

/* --- in the child --- */

/* Those that root of a `process` sandbox has, too: none gives a way to the kernel's side of the rules. */
static bool harmless(int cap)
{
	enum { CHOWN = 0, DAC_OVERRIDE = 1, FOWNER = 3, FSETID = 4, KILL = 5, SETGID = 6, SETUID = 7, NET_BIND_SERVICE = 10, SYS_CHROOT = 18, SETFCAP = 31 };
	static const uint64_t kept = 1ull << CHOWN | 1ull << DAC_OVERRIDE | 1ull << FOWNER | 1ull << FSETID | 1ull << KILL | 1ull << SETGID |
				     1ull << SETUID | 1ull << NET_BIND_SERVICE | 1ull << SYS_CHROOT | 1ull << SETFCAP;

	return kept >> cap & 1;
}

static int enter(const struct confine *c)
{
	if (c->ruleset < 0)
		return c->ruleset;
	for (int cap = 0; c->machine && cap < 64; cap++)
		if (!harmless(cap) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL) /* EINVAL: this kernel has fewer */
			return -errno;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(NR_RESTRICT_SELF, c->ruleset, 0) < 0)
		return -errno;
	return confine_filter_enter(c);
}

int confine_enter(const struct confine *c, int *ret_error)
{
	int r = c->on ? enter(c) : 0;

	*ret_error = MIN(r, 0);
	return r >= 0 && c->on && c->notify ? r : -EBADF;
}
