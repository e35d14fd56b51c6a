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
	char *path; /* without symlinks, as far as it is there */
};

enum { CONFINE_FILTER_MAX = 64, CONFINE_RULES_MAX = PERMITS_MAX + 32 };

struct confine {
	bool on;     /* programs are confined */
	int ruleset; /* with on: or a negative errno, and then none can be started */
	bool machine; /* nothing else keeps root from the kernel: it gets no capability that would lead around the rules */
	struct instruction filter[CONFINE_FILTER_MAX];
	uint16_t filter_n;
	struct confine_rule rules[CONFINE_RULES_MAX];
	size_t rules_n;
	char *heard; /* the entries as they came, against hearing them twice */
	size_t heard_n;
};

/* The rules from now on: entries of wire/permit.h. None: programs that are started from now on are not confined. The same again changes
 * nothing: the paths mean what they meant when nothing ran yet. -EPROTO */
int confine_set(struct confine *c, struct str rules, bool machine);
/* In the child, with nothing but system calls: enters it. 0 or -errno. */
int confine_enter(const struct confine *c);

/* confine_filter.c: fills in the filter. kinds: bits 1 << PERMIT_.. that have a rule. */
void confine_filter(struct confine *c, unsigned kinds, int landlock_version);
int confine_filter_enter(const struct confine *c);

#endif
