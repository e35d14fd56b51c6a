#include "guest/confine.h"

#include "wire/permit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
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
enum { VERSION_MIN = 3 }; /* Linux 6.2: the first that minds truncate */

struct path_beneath {
	uint64_t allowed;
	int32_t parent;
} __attribute__((packed));

static const uint64_t rights[PERMIT_KIND_END] = {
	[PERMIT_PROGRAM] = EXECUTE,
	[PERMIT_READ] = READ_FILE | READ_DIR,
	[PERMIT_WRITE] = WRITE_FILE | TRUNCATE | MAKE_AND_REMOVE | REFER,
};

/* What is not there when the rules are heard is not allowed. */
static int allow(int ruleset, const char *path, uint64_t access)
{
	struct stat st;
	int fd = open(path, O_PATH | O_CLOEXEC);
	int r = 0;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == ENAMETOOLONG ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		r = -errno;
	if (r == 0 && !S_ISDIR(st.st_mode))
		access &= ON_FILES;
	struct path_beneath rule = { access, fd };
	if (r == 0 && access && syscall(NR_ADD_RULE, ruleset, PATH_BENEATH, &rule, 0) < 0)
		r = -errno;
	close(fd);
	return r;
}

/* A program's loader is executed by the kernel with it. Devices (there are only harmless ones) and /proc stay as they were: hardly a
 * program does without /dev/null or /proc/self/fd. */
static int allow_what_programs_need(int ruleset, uint64_t handled)
{
	static const char *const loaders[] = {
		"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1",
	};
	static const char *const open_to_all[] = { "/dev", "/proc" };
	int r = 0;

	if (handled & EXECUTE)
		for (size_t i = 0; i < ARRAY_LEN(loaders) && r == 0; i++)
			r = allow(ruleset, loaders[i], EXECUTE);
	for (size_t i = 0; i < ARRAY_LEN(open_to_all) && r == 0; i++)
		r = allow(ruleset, open_to_all[i], handled & ~(uint64_t)EXECUTE);
	if (r == 0 && !(handled & WRITE_FILE))
		r = allow(ruleset, "/", REFER);
	return r;
}

static int build(struct str rules, uint64_t handled)
{
	enum permit_kind kind;
	const char *path;
	long version = syscall(NR_CREATE_RULESET, NULL, 0, QUERY_VERSION);

	if (version < VERSION_MIN)
		return version < 0 ? -errno : -EOPNOTSUPP;
	handled |= REFER;
	int ruleset = (int)syscall(NR_CREATE_RULESET, &handled, sizeof handled, 0);
	if (ruleset < 0)
		return -errno;
	(void)fcntl(ruleset, F_SETFD, FD_CLOEXEC);
	int r = allow_what_programs_need(ruleset, handled);
	while (r == 0 && permit_next(&rules, &kind, &path) > 0)
		r = allow(ruleset, path, rights[kind]);
	if (r == 0)
		return ruleset;
	close(ruleset);
	return r;
}

int confine_set(struct confine *c, struct str rules)
{
	struct str rest = rules;
	enum permit_kind kind;
	const char *path;
	uint64_t handled = 0;
	size_t n = 0;
	int r;

	for (; (r = permit_next(&rest, &kind, &path)) > 0; n++)
		handled |= rights[kind];
	if (r < 0 || n > PERMITS_MAX)
		return -EPROTO;
	if (c->on && c->ruleset >= 0)
		close(c->ruleset);
	c->on = n > 0;
	c->ruleset = c->on ? build(rules, handled) : -EBADF;
	return 0;
}

int confine_enter(const struct confine *c)
{
	if (c->ruleset < 0)
		return c->ruleset;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(NR_RESTRICT_SELF, c->ruleset, 0) < 0)
		return -errno;
	return 0;
}
