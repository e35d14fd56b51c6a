#include "guest/group.h"

#include "base/buf.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROUNDS = 20, LEFT_MAX = 65536 };

void groups_init(struct groups *gs, int dir)
{
	*gs = (struct groups){ .dir = dir };
}

static void make(struct groups *gs, struct group *g)
{
	char path[48];

	*g = (struct group){ .procs = -EBADF };
	snprintf(g->name, sizeof g->name, "r%llu", (unsigned long long)++gs->serial);
	if (gs->dir < 0 || (mkdirat(gs->dir, g->name, 0755) < 0 && errno != EEXIST))
		return;
	snprintf(path, sizeof path, "%s/cgroup.procs", g->name);
	g->procs = openat(gs->dir, path, O_RDWR | O_CLOEXEC); /* read to see whether it is empty */
	g->made = g->procs >= 0;
	if (!g->made)
		(void)unlinkat(gs->dir, g->name, AT_REMOVEDIR);
}

void groups_prepare(struct groups *gs)
{
	if (gs->serial == 0)
		make(gs, &gs->spare);
}

int group_make(struct groups *gs, struct group *g)
{
	if (!gs->spare.made)
		make(gs, g);
	else
		*g = gs->spare;
	gs->spare.made = false;
	return g->procs;
}

static bool write_in(struct groups *gs, const struct group *g, const char *file, const char *text)
{
	char path[80];

	snprintf(path, sizeof path, "%s/%s", g->name, file);
	auto_fd int fd = openat(gs->dir, path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, text, strlen(text)) > 0;
}

static void load_at(int dir, const char *path, struct buf *b)
{
	auto_fd int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);

	while (fd >= 0) {
		char *to = buf_reserve(b, 4096);
		ssize_t n = to ? read(fd, to, 4096) : 0;
		if (n <= 0)
			return;
		buf_grew(b, (size_t)n);
	}
}

/* Signals the members listed now; returns how many there were. */
static size_t signal_listed(struct groups *gs, const struct group *g, pid_t spare, int signo)
{
	auto_buf struct buf b;
	char path[48];
	size_t n = 0;

	buf_init(&b, 1024 * 1024);
	snprintf(path, sizeof path, "%s/cgroup.procs", g->name);
	load_at(gs->dir, path, &b);
	for (char *at = b.data, *end; at && *at; at = end + 1) {
		long pid = strtol(at, &end, 10);
		if (end == at || *end != '\n')
			break;
		/* 0 = a process outside our pid namespace, which no run of ours can be */
		if (pid <= 1 || (pid_t)pid == spare || (pid_t)pid == getpid())
			continue;
		n++;
		(void)kill((pid_t)pid, signo);
	}
	return n;
}

/* Members that are held while somebody is asked have a group of their own each, below (hold.c). */
static void kill_held(struct groups *gs, const struct group *g)
{
	int fd = openat(gs->dir, g->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

	for (struct dirent *e; d && (e = readdir(d));) {
		char file[48];
		if (e->d_name[0] != 'h' || snprintf(file, sizeof file, "%.24s/cgroup.kill", e->d_name) >= (int)sizeof file)
			continue;
		(void)write_in(gs, g, file, "1");
	}
	if (d)
		closedir(d);
}

static bool signal_cgroup(struct groups *gs, const struct group *g, pid_t spare, int signo)
{
	size_t found = signal_listed(gs, g, spare, signo == SIGKILL && spare == 0 ? 0 : signo);

	if (signo != SIGKILL)
		return found == 0;
	if (spare == 0 && write_in(gs, g, "cgroup.kill", "1"))
		return found == 0;
	/* sparing one, or a kernel before 5.14: a fork may slip through between reading and killing, so look again */
	for (int i = 0; i < ROUNDS && signal_listed(gs, g, spare, SIGKILL); i++)
		usleep(500);
	kill_held(gs, g);
	return found == 0;
}

bool group_of_process(pid_t pid, char *ret, size_t size)
{
	auto_buf struct buf b;
	char path[40];

	buf_init(&b, 8192);
	snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
	load_at(AT_FDCWD, path, &b);
	if (!b.len || buf_addc(&b, '\0') < 0)
		return false;
	const char *at = strstr(b.data, "0::/"); /* v2's line */
	if (!at || (at != b.data && at[-1] != '\n'))
		return false;
	at += strlen("0::/");
	if (strncmp(at, "runs/", 5) == 0) /* of a machine, where the directory is not the root (vm.c) */
		at += 5;
	size_t n = strcspn(at, "\n");
	if (n < 2 || n >= size || at[0] != 'r' || strspn(at + 1, "0123456789") != n - 1) /* only a run's: none of those is ours to touch else */
		return false;
	memcpy(ret, at, n);
	ret[n] = '\0';
	return true;
}

/* --- without cgroups --- */

struct proc {
	pid_t pid, parent, pgrp, session;
	bool member;
};

static bool read_stat(int proc, const char *name, struct proc *ret)
{
	uint64_t pid;
	auto_buf struct buf b;
	char path[32];
	long v[3]; /* parent, process group, session */

	buf_init(&b, 8192);
	snprintf(path, sizeof path, "%.16s/stat", name);
	load_at(proc, path, &b);
	/* the program's name may contain anything, so count from its closing parenthesis */
	const char *paren = b.data ? strrchr(b.data, ')') : NULL;
	if (!paren || paren[1] != ' ' || !paren[2] || paren[2] == 'Z' || paren[2] == 'X')
		return false;
	const char *at = paren + 3;
	for (size_t i = 0; i < ARRAY_LEN(v); i++) {
		char *end;
		v[i] = strtol(at, &end, 10);
		if (end == at)
			return false;
		at = end;
	}
	if (parse_u64(str_of(name), INT32_MAX, &pid) < 0)
		return false;
	*ret = (struct proc){ .pid = (pid_t)pid, .parent = (pid_t)v[0], .pgrp = (pid_t)v[1], .session = (pid_t)v[2] };
	return ret->pid > 1;
}

static bool has_mark(int proc, const char *name, const char *mark)
{
	auto_buf struct buf b;
	char path[32];

	buf_init(&b, 1024 * 1024);
	snprintf(path, sizeof path, "%.16s/environ", name);
	load_at(proc, path, &b);
	size_t n = strlen(mark) + 1;
	for (const char *at = b.data, *end = b.data + b.len; at && at < end; at += strlen(at) + 1)
		if ((size_t)(end - at) >= n && memcmp(at, mark, n) == 0)
			return true;
	return false;
}

static size_t list_members(const struct group *g, pid_t first, struct proc **ret)
{
	struct proc *v = NULL;
	size_t n = 0;
	char mark[64];
	DIR *d = opendir("/proc");

	if (!d)
		return 0;
	snprintf(mark, sizeof mark, GROUP_MARK "=%s", g->name);
	for (struct dirent *e; (e = readdir(d));) {
		struct proc p;
		if (!isdigit((unsigned char)e->d_name[0]) || !read_stat(dirfd(d), e->d_name, &p) || p.pid == getpid())
			continue;
		p.member = p.pid == first || (first > 0 && (p.pgrp == first || p.session == first)) || has_mark(dirfd(d), e->d_name, mark);
		v = xreallocarray(v, n + 1, sizeof *v);
		v[n++] = p;
	}
	closedir(d);
	for (bool grew = true; grew;) {
		grew = false;
		for (size_t i = 0; i < n; i++)
			for (size_t k = 0; k < n && !v[i].member; k++)
				if (v[k].member && v[i].parent == v[k].pid)
					grew = v[i].member = true;
	}
	*ret = v;
	return n;
}

static size_t signal_found(const struct group *g, pid_t first, pid_t spare, int signo)
{
	struct proc *v = NULL;
	size_t n = list_members(g, first, &v), found = 0;

	for (size_t i = 0; i < n; i++)
		if (v[i].member && v[i].pid != spare) {
			found++;
			(void)kill(v[i].pid, signo);
		}
	free(v);
	return found;
}

bool group_signal(struct groups *gs, const struct group *g, pid_t first, pid_t spare, int signo)
{
	if (g->made)
		return signal_cgroup(gs, g, spare, signo);
	if (signo != SIGKILL)
		return signal_found(g, first, spare, signo) == 0;
	/* first stop what is there until nothing new appears: a killed parent would lose us its children */
	size_t found = 0, before;
	int i = 0;
	do {
		before = found;
		found = signal_found(g, first, spare, SIGSTOP);
	} while (found > before && ++i < ROUNDS);
	for (i = 0; i < ROUNDS && signal_found(g, first, spare, SIGKILL); i++)
		usleep(1000);
	return found == 0;
}

uint64_t groups_oom_kills(const struct groups *gs)
{
	static const char key[] = "\noom_kill ";
	auto_buf struct buf b;

	buf_init(&b, 4096);
	if (gs->dir >= 0)
		load_at(gs->dir, "memory.events", &b);
	if (buf_addc(&b, '\0') < 0)
		return 0;
	const char *at = strstr(b.data, key);
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* --- ends --- */

/* Nobody in it, and no group below it (hold.c). */
static bool is_empty(const struct groups *gs, const struct group *g)
{
	struct stat st;
	char c;

	return g->procs >= 0 && pread(g->procs, &c, 1, 0) == 0 && fstatat(gs->dir, g->name, &st, 0) == 0 && st.st_nlink == 2;
}

/* Removed, or kept as the spare: true when it need not be thought of any more. */
static bool put_away(struct groups *gs, struct group *g)
{
	if (!gs->spare.made && is_empty(gs, g)) {
		gs->spare = *g;
		gs->spare.made = true;
		return true;
	}
	g->procs = close_fd(g->procs);
	return unlinkat(gs->dir, g->name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

void group_release(struct groups *gs, struct group *g)
{
	if (!g->made)
		return;
	g->made = false;
	if (gs->left_n == LEFT_MAX) {
		g->procs = close_fd(g->procs);
		return; /* the boundary removes the whole directory in the end */
	}
	gs->left = xreallocarray(gs->left, gs->left_n + 1, sizeof *gs->left);
	gs->left[gs->left_n++] = *g;
}

static void put_away_from(struct groups *gs, size_t first)
{
	size_t kept = first;

	for (size_t i = first; i < gs->left_n; i++)
		if (!put_away(gs, &gs->left[i]))
			gs->left[kept++] = gs->left[i];
	gs->left_n = gs->tried_n = kept;
}

void groups_tidy(struct groups *gs)
{
	if (gs->left_n > gs->tried_n)
		put_away_from(gs, gs->tried_n);
}

void groups_sweep(struct groups *gs)
{
	put_away_from(gs, 0);
}
