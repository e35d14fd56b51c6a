/* What programs may execute, read and write, where the daemon has said so: a Landlock ruleset and a filter of system calls that every one
 * of them enters before its exec, and that it and what it starts never leave. File operations of the API are not bound by it: they are
 * the owner's. docs/internals/permissions.md */
#ifndef CAISSON_GUEST_CONFINE_H
#define CAISSON_GUEST_CONFINE_H

#include "base/util.h"
#include "wire/permit.h"

struct instruction { /* struct sock_filter of linux/filter.h, which musl's compiler does not find */
	uint16_t code;
	uint8_t if_true, if_false;
	uint32_t k;
};

struct confine_rule {
	enum permit_verdict verdict;
	enum permit_kind kind;
	uint16_t number; /* its place in what was heard, or GUEST_NO_RULE: ours */
	char *path; /* without symlinks, as far as it is there */
};

enum { CONFINE_FILTER_MAX = 64, CONFINE_RULES_MAX = PERMITS_MAX + 32, CONFINE_LOADERS = 4 };

struct confine {
	bool on;     /* programs are confined */
	int ruleset; /* with on: or a negative errno, and then none can be started */
	bool machine; /* nothing else keeps root from the kernel: it gets no capability that would lead around the rules */
	struct instruction filter[CONFINE_FILTER_MAX];
	uint16_t filter_n;
	struct confine_rule rules[CONFINE_RULES_MAX];
	size_t rules_n;
	char *loaders[CONFINE_LOADERS]; /* of the C library, where programs have rules: without symlinks, NULL = not there */
	bool asks;          /* there are programs to ask for (hold.h) */
	bool notify;        /* what is executed is told (notify.h) */
	uint32_t secret[4]; /* with notify: in the unused arguments of an execve of ours (launch.c), so that PID 1 need not ask itself */
	char *heard; /* the entries as they came, against hearing them twice */
	size_t heard_n;
};

/* The rules from now on: entries of wire/permit.h. None: programs that are started from now on are not confined. The same again changes
 * nothing: the paths mean what they meant when nothing ran yet. -EPROTO */
int confine_set(struct confine *c, struct str rules, bool machine);
/* In the child, with nothing but system calls: enters it. A descriptor of the notifications, -EBADF when there are none to come, or in
 * ret_error why it cannot. */
int confine_enter(const struct confine *c, int *ret_error);
/* As the programs' execve, but not told. Only to be used before the child has run anything of the tenant's. */
int confine_execve(const struct confine *c, const char *path, const char *const *argv, const char *const *env);

struct confine_verdict {
	bool allowed;
	bool ask;      /* and then only with somebody's word */
	uint16_t rule; /* that decided, as in struct confine_rule */
};
/* What the rules say of a path without symlinks. A loader, which would run any program that it can read, is denied as a program unless a rule
 * has its own path: Landlock has to allow it, as the kernel executes it with each program. */
struct confine_verdict confine_judge(const struct confine *c, enum permit_kind kind, const char *path);

/* confine_filter.c: fills in the filter. kinds: bits 1 << PERMIT_.. that have a rule. */
void confine_filter(struct confine *c, unsigned kinds, int landlock_version);
int confine_filter_enter(const struct confine *c); /* a descriptor with c->notify, else 0; or -errno */

#endif
