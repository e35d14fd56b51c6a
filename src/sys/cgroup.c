#include "sys/cgroup.h"

#include "sys/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CPU_PERIOD_USEC 100000
/* Groups that a sandbox may make below its own: more than runs at once, far less than would weigh on the host. */
#define DESCENDANTS_MAX 2048
#define DEPTH_MAX	8

static const char *const controller[CGROUP_TREE_COUNT] = {
	[CGROUP_TREE_V2] = "",	     [CGROUP_TREE_MEMORY] = "memory",	[CGROUP_TREE_CPU] = "cpu",
	[CGROUP_TREE_PIDS] = "pids", [CGROUP_TREE_FREEZER] = "freezer",
};

const char *cgroup_kind_name(enum cgroup_kind kind)
{
	static const char *const names[] = { [CGROUP_NONE] = "none", [CGROUP_V1] = "v1", [CGROUP_HYBRID] = "hybrid v1 and v2", [CGROUP_V2] = "v2" };
	return names[kind];
}

static void find_mounts(struct cgroup_host *h)
{
	struct mntent *m, space;
	char text[4096];
	FILE *f = setmntent("/proc/self/mounts", "re");

	if (!f)
		return;
	while ((m = getmntent_r(f, &space, text, sizeof text))) {
		bool v2 = streq(m->mnt_type, "cgroup2");
		if (!v2 && !streq(m->mnt_type, "cgroup"))
			continue;
		for (int t = 0; t < CGROUP_TREE_COUNT; t++) {
			bool this = t == CGROUP_TREE_V2 ? v2 : !v2 && hasmntopt(m, controller[t]);
			if (this && !h->mount[t][0] && strlen(m->mnt_dir) < sizeof h->mount[t])
				memcpy(h->mount[t], m->mnt_dir, strlen(m->mnt_dir) + 1);
		}
	}
	(void)endmntent(f);
}

static bool v2_has(const struct cgroup_host *h, const char *name)
{
	char path[160], text[512];
	size_t n = strlen(name);

	snprintf(path, sizeof path, "%s/cgroup.controllers", h->mount[CGROUP_TREE_V2]);
	if (fs_read_at(AT_FDCWD, path, text, sizeof text) < 0)
		return false;
	for (const char *p = text; (p = strstr(p, name)); p += n)
		if ((p == text || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\n' || p[n] == '\0'))
			return true;
	return false;
}

int cgroup_detect(struct cgroup_host *h, struct err *e)
{
	*h = (struct cgroup_host){ 0 };
	for (int t = 0; t < CGROUP_TREE_COUNT; t++)
		h->parent[t] = -EBADF;
	find_mounts(h);
	bool v2 = h->mount[CGROUP_TREE_V2][0];
	if (v2 && v2_has(h, "memory") && v2_has(h, "cpu") && v2_has(h, "pids")) {
		h->kind = CGROUP_V2;
		for (int t = CGROUP_TREE_MEMORY; t < CGROUP_TREE_COUNT; t++)
			h->mount[t][0] = '\0';
		return 0;
	}
	for (int t = CGROUP_TREE_MEMORY; t <= CGROUP_TREE_PIDS; t++)
		if (!h->mount[t][0])
			return err_set(e, ERR_UNAVAILABLE, ENOENT,
				       "the cgroup controller \"%s\" is not available: mount cgroup2 with memory, cpu and pids, or the v1 hierarchy",
				       controller[t]);
	if (v2)
		h->mount[CGROUP_TREE_FREEZER][0] = '\0';
	h->kind = v2 ? CGROUP_HYBRID : CGROUP_V1;
	return 0;
}

static int open_parent(struct cgroup_host *h, enum cgroup_tree t, struct err *e)
{
	const char *levels[] = { "caisson", h->name };
	auto_fd int fd = fs_open_dir_at(AT_FDCWD, h->mount[t]);

	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, -fd, "open %s", h->mount[t]);
	for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
		int rc = h->kind == CGROUP_V2 ? fs_write_at(fd, "cgroup.subtree_control", "+memory +cpu +pids") : 0;
		if (rc == -EBUSY) /* only where this is not the host's own root: in a container */
			return err_set(e, ERR_UNAVAILABLE, EBUSY,
				       "processes are in the cgroup at %s itself, so it cannot hand controllers down: put all of them into a group below it first",
				       h->mount[t]);
		if (rc < 0)
			return err_sys(e, ERR_UNAVAILABLE, -rc, "hand the controllers memory, cpu and pids down in %s", h->mount[t]);
		if (mkdirat(fd, levels[i], 0755) < 0 && errno != EEXIST)
			return err_sys(e, ERR_UNAVAILABLE, errno, "make a cgroup in %s", h->mount[t]);
		int next = fs_open_dir_at(fd, levels[i]);
		if (next < 0)
			return err_sys(e, ERR_UNAVAILABLE, -next, "open the cgroup in %s", h->mount[t]);
		close_fd(fd);
		fd = next;
	}
	if (h->kind == CGROUP_V2) {
		int rc = fs_write_at(fd, "cgroup.subtree_control", "+memory +cpu +pids");
		if (rc < 0)
			return err_sys(e, ERR_UNAVAILABLE, -rc, "hand the controllers down in %s/caisson", h->mount[t]);
	}
	h->parent[t] = take_fd(&fd);
	return 0;
}

int cgroup_open(struct cgroup_host *h, const char *name, struct err *e)
{
	snprintf(h->name, sizeof h->name, "%s", name);
	for (int t = 0; t < CGROUP_TREE_COUNT; t++) {
		int rc = h->mount[t][0] ? open_parent(h, (enum cgroup_tree)t, e) : 0;
		if (rc < 0) {
			cgroup_close(h);
			return rc;
		}
	}
	return 0;
}

void cgroup_close(struct cgroup_host *h)
{
	for (int t = 0; t < CGROUP_TREE_COUNT; t++)
		h->parent[t] = close_fd(h->parent[t]);
}

void cgroup_remove_parents(struct cgroup_host *h)
{
	char path[256];

	for (int t = 0; t < CGROUP_TREE_COUNT; t++) {
		if (!h->mount[t][0])
			continue;
		snprintf(path, sizeof path, "%s/caisson/%s", h->mount[t], h->name);
		(void)rmdir(path);
		snprintf(path, sizeof path, "%s/caisson", h->mount[t]);
		(void)rmdir(path); /* fails while another warden has groups */
	}
}

static int set_v2(struct cgroup_host *h, int fd, const struct cgroup_limits *l, uid_t owner)
{
	static const char *const delegated[] = { "", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control" };
	int rc = 0;

	if (h->kind == CGROUP_V2) {
		rc = fs_write_at_f(fd, "memory.max", "%llu", (unsigned long long)l->memory_bytes);
		if (rc == 0)
			rc = fs_write_at_f(fd, "cpu.max", "%llu %d", (unsigned long long)(l->cpu_millis * CPU_PERIOD_USEC / 1000), CPU_PERIOD_USEC);
		if (rc == 0)
			rc = fs_write_at_f(fd, "pids.max", "%llu", (unsigned long long)l->pids);
		if (rc == 0) {
			rc = fs_write_at(fd, "memory.swap.max", "0");
			rc = rc == -ENOENT ? 0 : rc; /* a kernel without swap has no such file */
		}
	}
	if (rc == 0)
		rc = fs_write_at_f(fd, "cgroup.max.descendants", "%d", DESCENDANTS_MAX);
	if (rc == 0)
		rc = fs_write_at_f(fd, "cgroup.max.depth", "%d", DEPTH_MAX);
	for (size_t i = 0; rc == 0 && i < ARRAY_LEN(delegated); i++)
		if (fchownat(fd, delegated[i], owner, owner, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
			rc = -errno;
	return rc;
}

/* What waits in a group's TCP sockets v1 counts beside its memory, and only under a limit; v2 counts it as memory. Kernels may be built without. */
static uint64_t tcp_memory(const struct cgroup_limits *l)
{
	return l->memory_bytes / 4;
}

static int no_such_file(int rc)
{
	return rc == -ENOENT ? 0 : rc;
}

static int set_v1(enum cgroup_tree t, int fd, const struct cgroup_limits *l)
{
	int rc = 0;

	if (t == CGROUP_TREE_MEMORY) {
		rc = fs_write_at_f(fd, "memory.limit_in_bytes", "%llu", (unsigned long long)l->memory_bytes);
		if (rc == 0 && faccessat(fd, "memory.memsw.limit_in_bytes", W_OK, 0) == 0)
			rc = fs_write_at_f(fd, "memory.memsw.limit_in_bytes", "%llu", (unsigned long long)l->memory_bytes);
		else if (rc == 0)
			(void)fs_write_at(fd, "memory.swappiness", "0"); /* the second best where swap is not accounted */
		if (rc == 0)
			rc = no_such_file(fs_write_at_f(fd, "memory.kmem.tcp.limit_in_bytes", "%llu", (unsigned long long)tcp_memory(l)));
	} else if (t == CGROUP_TREE_CPU) {
		/* The period is the kernel's default. Each write walks all groups of the host, so one is enough. */
		rc = fs_write_at_f(fd, "cpu.cfs_quota_us", "%llu", (unsigned long long)(l->cpu_millis * CPU_PERIOD_USEC / 1000));
	} else if (t == CGROUP_TREE_PIDS) {
		rc = fs_write_at_f(fd, "pids.max", "%llu", (unsigned long long)l->pids);
	}
	return rc;
}

int cgroup_make(struct cgroup_host *h, const char *id, const struct cgroup_limits *limits, uid_t owner, int *ret_v2, struct err *e)
{
	int rc = 0, v2 = -EBADF;

	for (int t = 0; t < CGROUP_TREE_COUNT && rc == 0; t++) {
		if (h->parent[t] < 0)
			continue;
		if (mkdirat(h->parent[t], id, 0755) < 0 && errno != EEXIST) {
			rc = err_sys(e, ERR_UNAVAILABLE, errno, "make the cgroup of the sandbox (%s)", controller[t]);
			break;
		}
		int fd = fs_open_dir_at(h->parent[t], id);
		rc = fd < 0 ? fd : t == CGROUP_TREE_V2 ? set_v2(h, fd, limits, owner) : set_v1((enum cgroup_tree)t, fd, limits);
		if (rc < 0)
			(void)err_sys(e, ERR_UNAVAILABLE, -rc, "set the %s limit of the sandbox", controller[t]);
		if (t == CGROUP_TREE_V2)
			v2 = fd;
		else
			close_fd(fd);
	}
	if (rc < 0) {
		close_fd(v2);
		(void)cgroup_remove(h, id);
		return rc;
	}
	*ret_v2 = v2;
	return 0;
}

int cgroup_enter(struct cgroup_host *h, const char *id, pid_t pid)
{
	char path[80];

	for (int t = CGROUP_TREE_MEMORY; t < CGROUP_TREE_COUNT; t++) {
		if (h->parent[t] < 0)
			continue;
		snprintf(path, sizeof path, "%s/cgroup.procs", id);
		int rc = fs_write_at_f(h->parent[t], path, "%d", (int)pid);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int write_in(struct cgroup_host *h, enum cgroup_tree t, const char *id, const char *file, const char *text)
{
	char path[96];

	if (h->parent[t] < 0)
		return -ENOENT;
	snprintf(path, sizeof path, "%s/%s", id, file);
	return fs_write_at(h->parent[t], path, text);
}

/* Without v2 nothing kills a group in one go. PID 1's end takes its whole namespace along, so one round is enough. */
static void kill_listed(struct cgroup_host *h, const char *id)
{
	char path[80], text[4096];

	snprintf(path, sizeof path, "%s/cgroup.procs", id);
	if (fs_read_at(h->parent[CGROUP_TREE_PIDS], path, text, sizeof text) <= 0)
		return;
	for (char *p = text, *end; *p; p = end + 1) {
		long pid = strtol(p, &end, 10);
		if (end == p || *end != '\n')
			return;
		if (pid > 1)
			(void)kill((pid_t)pid, SIGKILL);
	}
}

void cgroup_kill(struct cgroup_host *h, const char *id)
{
	(void)write_in(h, CGROUP_TREE_V2, id, "cgroup.kill", "1");
	(void)write_in(h, CGROUP_TREE_FREEZER, id, "freezer.state", "THAWED");
	if (h->parent[CGROUP_TREE_V2] < 0)
		kill_listed(h, id);
}

void cgroup_unthrottle(struct cgroup_host *h, const char *id)
{
	if (h->kind == CGROUP_V2)
		(void)write_in(h, CGROUP_TREE_V2, id, "cpu.max", "max");
	else
		(void)write_in(h, CGROUP_TREE_CPU, id, "cpu.cfs_quota_us", "-1");
}

/* Of the group that is there. v1 wants memory and memory with swap raised and lowered in opposite orders. */
static int change_limits(struct cgroup_host *h, const char *id, const struct cgroup_limits *l)
{
	const bool v2 = h->kind == CGROUP_V2;
	const enum cgroup_tree memory = v2 ? CGROUP_TREE_V2 : CGROUP_TREE_MEMORY, cpu = v2 ? CGROUP_TREE_V2 : CGROUP_TREE_CPU,
			       pids = v2 ? CGROUP_TREE_V2 : CGROUP_TREE_PIDS;
	char bytes[24], tcp[24], quota[48], count[24];

	snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)l->memory_bytes);
	snprintf(count, sizeof count, "%llu", (unsigned long long)l->pids);
	unsigned long long usec = (unsigned long long)(l->cpu_millis * CPU_PERIOD_USEC / 1000);
	int rc;
	if (v2) {
		snprintf(quota, sizeof quota, "%llu %d", usec, CPU_PERIOD_USEC);
		rc = write_in(h, memory, id, "memory.max", bytes);
	} else {
		snprintf(quota, sizeof quota, "%llu", usec);
		int raised = write_in(h, memory, id, "memory.memsw.limit_in_bytes", bytes);
		rc = write_in(h, memory, id, "memory.limit_in_bytes", bytes);
		if (rc == 0 && raised < 0 && raised != -ENOENT)
			rc = write_in(h, memory, id, "memory.memsw.limit_in_bytes", bytes);
		snprintf(tcp, sizeof tcp, "%llu", (unsigned long long)tcp_memory(l));
		if (rc == 0)
			rc = no_such_file(write_in(h, memory, id, "memory.kmem.tcp.limit_in_bytes", tcp));
	}
	if (rc == 0)
		rc = write_in(h, cpu, id, v2 ? "cpu.max" : "cpu.cfs_quota_us", quota);
	return rc == 0 ? write_in(h, pids, id, "pids.max", count) : rc;
}

int cgroup_set_limits(struct cgroup_host *h, const char *id, const struct cgroup_limits *was, const struct cgroup_limits *limits)
{
	struct cgroup_usage u = { 0 };

	cgroup_usage(h, id, &u);
	if (limits->memory_bytes < was->memory_bytes && u.memory_bytes > limits->memory_bytes)
		return -EBUSY; /* v2 would take it, and end processes */
	int rc = change_limits(h, id, limits);
	if (rc < 0)
		(void)change_limits(h, id, was);
	return rc;
}

int cgroup_freeze(struct cgroup_host *h, const char *id, bool frozen)
{
	if (h->parent[CGROUP_TREE_V2] >= 0)
		return write_in(h, CGROUP_TREE_V2, id, "cgroup.freeze", frozen ? "1" : "0");
	return write_in(h, CGROUP_TREE_FREEZER, id, "freezer.state", frozen ? "FROZEN" : "THAWED");
}

int cgroup_is_frozen(struct cgroup_host *h, const char *id)
{
	char path[96], text[64];
	uint64_t v = 0;

	if (h->parent[CGROUP_TREE_V2] >= 0) {
		snprintf(path, sizeof path, "%s/cgroup.events", id);
		return fs_read_u64_at(h->parent[CGROUP_TREE_V2], path, "frozen", &v) == 0 && v == 1;
	}
	snprintf(path, sizeof path, "%s/freezer.state", id);
	return fs_read_at(h->parent[CGROUP_TREE_FREEZER], path, text, sizeof text) > 0 && strncmp(text, "FROZEN", 6) == 0;
}

static void read_in(struct cgroup_host *h, enum cgroup_tree t, const char *id, const char *file, const char *key, uint64_t *v)
{
	char path[96];

	if (h->parent[t] < 0)
		return;
	snprintf(path, sizeof path, "%s/%s", id, file);
	(void)fs_read_u64_at(h->parent[t], path, key, v);
}

void cgroup_usage(struct cgroup_host *h, const char *id, struct cgroup_usage *u)
{
	read_in(h, CGROUP_TREE_V2, id, "cpu.stat", "usage_usec", &u->cpu_usec); /* v2 counts time with no controller on, too */
	if (h->kind == CGROUP_V2) {
		read_in(h, CGROUP_TREE_V2, id, "memory.current", NULL, &u->memory_bytes);
		read_in(h, CGROUP_TREE_V2, id, "memory.events", "oom_kill", &u->oom_kills);
		read_in(h, CGROUP_TREE_V2, id, "pids.current", NULL, &u->pids);
		return;
	}
	read_in(h, CGROUP_TREE_MEMORY, id, "memory.usage_in_bytes", NULL, &u->memory_bytes);
	read_in(h, CGROUP_TREE_MEMORY, id, "memory.oom_control", "oom_kill", &u->oom_kills);
	read_in(h, CGROUP_TREE_PIDS, id, "pids.current", NULL, &u->pids);
}

uint64_t cgroup_oom_kills(struct cgroup_host *h, const char *id)
{
	uint64_t n = 0;

	if (h->kind == CGROUP_V2)
		read_in(h, CGROUP_TREE_V2, id, "memory.events", "oom_kill", &n);
	else
		read_in(h, CGROUP_TREE_MEMORY, id, "memory.oom_control", "oom_kill", &n);
	return n;
}

void cgroup_each(struct cgroup_host *h, void (*each)(void *ctx, const char *name), void *ctx)
{
	for (int t = 0; t < CGROUP_TREE_COUNT; t++) {
		int fd = h->parent[t] < 0 ? -EBADF : openat(h->parent[t], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		DIR *dir = fd < 0 ? NULL : fdopendir(fd);
		if (!dir) {
			close_fd(fd);
			continue;
		}
		for (struct dirent *d; (d = readdir(dir));)
			if (d->d_type == DT_DIR && d->d_name[0] != '.')
				each(ctx, d->d_name);
		(void)closedir(dir);
	}
}

/* Groups that the sandbox made below its own; a cgroup tree has no symlinks, and its depth is bounded by DEPTH_MAX. */
static int remove_below(int parent, const char *name)
{
	if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno != EBUSY && errno != ENOTEMPTY)
		return -errno;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	DIR *dir = fdopendir(fd);
	if (!dir) {
		close_fd(fd);
		return -ENOMEM;
	}
	for (struct dirent *d; (d = readdir(dir));)
		if (d->d_type == DT_DIR && !streq(d->d_name, ".") && !streq(d->d_name, ".."))
			(void)remove_below(fd, d->d_name);
	(void)closedir(dir);
	return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
}

void cgroup_drop_cache(struct cgroup_host *h, const char *id)
{
	uint64_t bytes = 0;
	char text[24];

	if (h->kind != CGROUP_V2) {
		(void)write_in(h, CGROUP_TREE_MEMORY, id, "memory.force_empty", "0");
		return;
	}
	read_in(h, CGROUP_TREE_V2, id, "memory.current", NULL, &bytes);
	snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
	(void)write_in(h, CGROUP_TREE_V2, id, "memory.reclaim", text); /* Linux 5.19; gives back what it can and says that it was less */
}

int cgroup_remove(struct cgroup_host *h, const char *id)
{
	int rc = 0;

	for (int t = 0; t < CGROUP_TREE_COUNT; t++) {
		if (h->parent[t] < 0)
			continue;
		int one = remove_below(h->parent[t], id);
		if (one < 0)
			rc = one;
	}
	return rc;
}
