/* Control groups of the sandboxes: PARENT/caisson/NAME/ID in every hierarchy that is needed.
 *
 * Pure v2: one tree. Hybrid (v1 controllers beside an empty v2): limits in the v1 trees memory, cpu and pids; kill, freeze and
 * cpu time from v2. v1 only: the same with the v1 freezer. The v2 directory of a sandbox is delegated to its root, who may
 * make groups below (the guest makes one per run) but cannot change the limits, which are files that stay ours. */
#ifndef CAISSON_SYS_CGROUP_H
#define CAISSON_SYS_CGROUP_H

#include "base/err.h"
#include "base/util.h"

enum cgroup_kind { CGROUP_NONE, CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 };
const char *cgroup_kind_name(enum cgroup_kind kind);

enum cgroup_tree { CGROUP_TREE_V2, CGROUP_TREE_MEMORY, CGROUP_TREE_CPU, CGROUP_TREE_PIDS, CGROUP_TREE_FREEZER, CGROUP_TREE_COUNT };

struct cgroup_host {
	enum cgroup_kind kind;
	char mount[CGROUP_TREE_COUNT][128]; /* where the tree is mounted; "" = not there */
	int parent[CGROUP_TREE_COUNT];	    /* PARENT/caisson/NAME, or negative */
	char name[64];
};

struct cgroup_limits {
	uint64_t memory_bytes, cpu_millis, pids;
};

struct cgroup_usage {
	uint64_t memory_bytes, cpu_usec, pids, oom_kills;
};

/* What the host has; changes nothing. ERR_UNAVAILABLE when a controller is missing, by name. */
int cgroup_detect(struct cgroup_host *h, struct err *e);
/* Makes the parents. `h` came from cgroup_detect. */
int cgroup_open(struct cgroup_host *h, const char *name, struct err *e);
void cgroup_close(struct cgroup_host *h);
/* Removes the parents that are empty (ours and, when the last of the host, caisson/). */
void cgroup_remove_parents(struct cgroup_host *h);

/* Makes the groups of a sandbox with their limits. *ret_v2 is its directory (O_PATH) or -EBADF without v2. */
int cgroup_make(struct cgroup_host *h, const char *id, const struct cgroup_limits *limits, uid_t owner, int *ret_v2, struct err *e);
/* Other limits for the groups that are there. Nothing changes when one cannot be set: -EBUSY when more memory is in use. */
int cgroup_set_limits(struct cgroup_host *h, const char *id, const struct cgroup_limits *was, const struct cgroup_limits *limits);
/* Puts a process into the v1 groups; v2 is entered by the clone itself. */
int cgroup_enter(struct cgroup_host *h, const char *id, pid_t pid);
void cgroup_kill(struct cgroup_host *h, const char *id); /* best effort, thaws first where a frozen task would not die */
/* For one that is slow to die: throttled tasks die late, and each write walks all groups of the host. */
void cgroup_unthrottle(struct cgroup_host *h, const char *id);
int cgroup_freeze(struct cgroup_host *h, const char *id, bool frozen);
int cgroup_is_frozen(struct cgroup_host *h, const char *id); /* 1, 0 */
/* Counters that cannot be read stay as they are. */
void cgroup_usage(struct cgroup_host *h, const char *id, struct cgroup_usage *u);
uint64_t cgroup_oom_kills(struct cgroup_host *h, const char *id);
/* Page cache of files that stay keeps a removed memory group alive in the kernel. This gives it back, at 2 ms of reclaim. */
void cgroup_drop_cache(struct cgroup_host *h, const char *id);
/* Calls each with the name of every group below the parent: also of those that nobody knows any more. */
void cgroup_each(struct cgroup_host *h, void (*each)(void *ctx, const char *name), void *ctx);
/* 0 (also when not there), or -EBUSY while something is still in it: try again. */
int cgroup_remove(struct cgroup_host *h, const char *id);

#endif
