/* What Landlock does not see: a file in memory that is executed (it lies in no folder), a truncation before Linux 6.2, and requests that no
 * filter sees (io_uring, another architecture's entry), which are refused altogether. Judged by numbers and values, never by memory. */
#include "guest/confine.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SET_MODE_FILTER = 1, NEW_LISTENER = 8, UNTIL_KILLED = 32, RET_ALLOW = 0x7fff0000, RET_NOTIFY = 0x7fc00000, RET_ERRNO = 0x00050000 };
enum { LOAD = 0x20, RETURN = 0x06, IF_EQUAL = 0x15, IF_AT_LEAST = 0x35, IF_ANY_BIT = 0x45, AND = 0x54 };
enum { NOEXEC_SEAL = 8 }; /* of memfd_create, Linux 6.3 */
enum { LANDLOCK_TRUNCATE = 3 };
#define X32_BIT 0x40000000u
#ifdef __x86_64__
#define ARCHITECTURE 0xc000003eu
#else
#define ARCHITECTURE 0xc00000b7u
#endif

struct call { /* struct seccomp_data */
	int32_t number;
	uint32_t architecture;
	uint64_t at, args[6];
};

static void put(struct confine *c, uint16_t code, uint32_t k, uint8_t if_true, uint8_t if_false)
{
	assert(c->filter_n < CONFINE_FILTER_MAX);
	c->filter[c->filter_n++] = (struct instruction){ code, if_true, if_false, k };
}

/* The low half: both architectures are little-endian, and the kernel looks at no more of these. */
static void load_arg(struct confine *c, int i)
{
	put(c, LOAD, (uint32_t)(offsetof(struct call, args) + 8 * (size_t)i), 0, 0);
}

static void verdict(struct confine *c, long number, uint32_t what)
{
	put(c, IF_EQUAL, (uint32_t)number, 0, 1);
	put(c, RETURN, what, 0, 0);
}

static void refuse_executable_memory(struct confine *c)
{
	put(c, IF_EQUAL, SYS_memfd_create, 0, 4);
	load_arg(c, 1);
	put(c, IF_ANY_BIT, NOEXEC_SEAL, 1, 0);
	put(c, RETURN, RET_ERRNO | EACCES, 0, 0);
	put(c, RETURN, RET_ALLOW, 0, 0);
}

/* What a process says that its program is, the kernel is to say (hold.c). */
static void refuse_other_program(struct confine *c)
{
	put(c, IF_EQUAL, SYS_prctl, 0, 4);
	load_arg(c, 0);
	put(c, IF_EQUAL, PR_SET_MM, 0, 1);
	put(c, RETURN, RET_ERRNO | EPERM, 0, 0);
	put(c, RETURN, RET_ALLOW, 0, 0);
}

/* Open for reading and yet cut off: the one way that needs no right to write. */
static void refuse_truncation(struct confine *c, long number, int flags_arg)
{
	put(c, IF_EQUAL, (uint32_t)number, 0, 6);
	load_arg(c, flags_arg);
	put(c, IF_ANY_BIT, O_TRUNC, 0, 3);
	put(c, AND, O_ACCMODE, 0, 0);
	put(c, IF_EQUAL, O_RDONLY, 0, 1);
	put(c, RETURN, RET_ERRNO | EACCES, 0, 0);
	put(c, RETURN, RET_ALLOW, 0, 0);
}

/* Notified, but for ours: the secret is in its last two arguments, which no execve looks at, and no program gets to see. */
static void notify_execve(struct confine *c)
{
	verdict(c, SYS_execveat, RET_NOTIFY);
	if (c->asks) { /* whoever it is */
		verdict(c, SYS_execve, RET_NOTIFY);
		return;
	}
	put(c, IF_EQUAL, SYS_execve, 0, 10);
	for (int i = 0; i < 4; i++) {
		put(c, LOAD, (uint32_t)(offsetof(struct call, args) + 32 + 4 * (size_t)i), 0, 0);
		put(c, IF_EQUAL, c->secret[i], 0, (uint8_t)(7 - 2 * i));
	}
	put(c, RETURN, RET_ALLOW, 0, 0);
	put(c, RETURN, RET_NOTIFY, 0, 0);
}

int confine_execve(const struct confine *c, const char *path, const char *const *argv, const char *const *env)
{
	const uint32_t *s = c->secret;

	return (int)syscall(SYS_execve, path, argv, env, 0, (uint64_t)s[1] << 32 | s[0], (uint64_t)s[3] << 32 | s[2]);
}

void confine_filter(struct confine *c, unsigned kinds, int landlock_version)
{
	c->filter_n = 0;
	put(c, LOAD, offsetof(struct call, architecture), 0, 0);
	put(c, IF_EQUAL, ARCHITECTURE, 1, 0);
	put(c, RETURN, RET_ERRNO | ENOSYS, 0, 0);
	put(c, LOAD, offsetof(struct call, number), 0, 0);
#ifdef __x86_64__
	put(c, IF_AT_LEAST, X32_BIT, 0, 1);
	put(c, RETURN, RET_ERRNO | ENOSYS, 0, 0);
#endif
	verdict(c, SYS_io_uring_setup, RET_ERRNO | EPERM);
	if (kinds & 1u << PERMIT_WRITE && landlock_version < LANDLOCK_TRUNCATE) {
		verdict(c, SYS_truncate, RET_ERRNO | EACCES);
		verdict(c, SYS_openat2, RET_ERRNO | ENOSYS); /* its flags are in memory; every libc falls back */
		refuse_truncation(c, SYS_openat, 2);
#ifdef SYS_open
		refuse_truncation(c, SYS_open, 1);
#endif
	}
	if (kinds & 1u << PERMIT_PROGRAM)
		refuse_executable_memory(c);
	if (c->asks)
		refuse_other_program(c);
	if (c->notify)
		notify_execve(c);
	put(c, RETURN, RET_ALLOW, 0, 0);
}

int confine_filter_enter(const struct confine *c)
{
	const struct {
		unsigned short n;
		const struct instruction *v;
	} program = { c->filter_n, c->filter };

	long r = syscall(SYS_seccomp, SET_MODE_FILTER, c->notify ? NEW_LISTENER | UNTIL_KILLED : 0, &program);
	return r < 0 ? -errno : (int)r;
}
