#include "guest/notify.h"

#include "guest/guest.h"
#include "guest/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ANSWER_CONTINUE = 1 };
enum { NO_MAGIC_LINKS = 0x02, IN_ROOT = 0x10 }; /* linux/openat2.h */

struct question { /* struct seccomp_notif */
	uint64_t id;
	uint32_t pid, flags;
	int32_t number;
	uint32_t architecture;
	uint64_t at, args[6];
};

struct answer { /* struct seccomp_notif_resp */
	uint64_t id;
	int64_t value;
	int32_t error;
	uint32_t flags;
};

#define RECEIVE _IOWR('!', 0, struct question)
#define SEND _IOWR('!', 1, struct answer)
#define STILL_VALID _IOW('!', 2, uint64_t)

struct listener {
	struct guest *g;
	struct watch w;
	uint64_t run;
};

/* --- telling --- */

void notify_tell(struct guest *g, uint64_t run, const char *path, const struct confine_verdict *v, enum guest_verdict_how how)
{
	static uint32_t untold;
	struct buf *out = guest_out(g);
	struct guest_verdict say = { .allowed = v->allowed, .kind = PERMIT_PROGRAM, .rule = v->rule, .untold = untold, .path = path };

	if (!out || out->len > NOTIFY_OUT_HIGH || guest_verdict_put(out, run, how, &say) < 0)
		untold += untold < UINT32_MAX;
	else
		untold = 0;
}

/* --- looking --- */

/* Where the string lies in the asker's memory we look as the asker: its user, and no right of ours. */
static void look_as(uid_t uid, gid_t gid)
{
	(void)setfsgid(gid);
	(void)setfsuid(uid);
}

static bool read_string(uint32_t pid, uint64_t at, char ret[static PATH_MAX])
{
	char name[40];

	snprintf(name, sizeof name, "/proc/%u/mem", pid);
	auto_fd int fd = open(name, O_RDONLY | O_CLOEXEC);
	size_t have = 0;
	while (fd >= 0 && have < PATH_MAX) {
		size_t want = MIN((size_t)PATH_MAX - have, (size_t)(4096 - ((at + have) & 4095))); /* the next page may not be there */
		ssize_t n = pread(fd, ret + have, want, (off_t)(at + have));
		if (n <= 0)
			return false;
		if (memchr(ret + have, '\0', (size_t)n))
			return true;
		have += (size_t)n;
	}
	return false;
}

static int open_name(const char *path)
{
	int fd = open(path, O_PATH | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* A path of the asker's, from a directory of its. Without the links of /proc that only the kernel can follow: whose they are depends on who
 * looks. -ELOOP where there is one. */
static int open_from(const char *dir, const char *path)
{
	const struct {
		uint64_t flags, mode, resolve;
	} how = { O_PATH | O_CLOEXEC, 0, NO_MAGIC_LINKS | (path[0] == '/' ? IN_ROOT : 0) };
	auto_fd int from = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	long fd = from < 0 ? -1 : syscall(SYS_openat2, from, path, &how, sizeof how);

	return fd < 0 ? -errno : (int)fd;
}

/* "/proc/self/exe" and the like are the asker's, not ours. */
static bool own_link(uint32_t pid, const char *path, char *ret, size_t size)
{
	static const struct {
		const char *name, *is;
	} own[] = { { "/proc/self/", "" }, { "/proc/thread-self/", "" }, { "/dev/fd/", "fd/" } };

	for (size_t i = 0; i < ARRAY_LEN(own); i++) {
		size_t n = strlen(own[i].name);
		if (strncmp(path, own[i].name, n) == 0)
			return snprintf(ret, size, "/proc/%u/%s%s", pid, own[i].is, path + n) < (int)size;
	}
	return false;
}

/* The file that the asker means, opened as no more than a name; or -errno. In ret its path, if there is one, as far as it is known. */
static int open_meant(const struct question *q, char ret[static PATH_MAX])
{
	bool at = q->number == SYS_execveat;
	char dir[64], own[PATH_MAX + 64], *path = ret;

	if (!read_string(q->pid, q->args[at ? 1 : 0], path)) {
		path[0] = '\0';
		return -EFAULT;
	}
	if (path[0] == '/')
		snprintf(dir, sizeof dir, "/proc/%u/root", q->pid);
	else if (!at || (int32_t)q->args[0] == AT_FDCWD)
		snprintf(dir, sizeof dir, "/proc/%u/cwd", q->pid);
	else
		snprintf(dir, sizeof dir, "/proc/%u/fd/%d", q->pid, (int32_t)q->args[0]);
	if (!path[0])
		return at ? open_name(dir) : -ENOENT;
	int fd = open_from(dir, path);
	return fd == -ELOOP && own_link(q->pid, path, own, sizeof own) ? open_name(own) : fd;
}

static bool name_of(int fd, char ret[static PATH_MAX])
{
	char link[40];

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, ret, PATH_MAX - 1);
	ret[MAX(n, 0)] = '\0';
	return n > 0 && ret[0] == '/';
}

static bool look_as_process(uint32_t pid)
{
	char name[40];
	struct stat st;

	snprintf(name, sizeof name, "/proc/%u", pid);
	if (stat(name, &st) < 0)
		return false;
	look_as(st.st_uid, st.st_gid);
	return true;
}

enum sight { SEEN, NOTHING /* that could be executed, as the kernel will say */, UNSEEN /* its path, if that, is all we have */ };

static enum sight look(const struct question *q, char ret[static PATH_MAX], struct stat *ret_st)
{
	ret[0] = '\0';
	if (!look_as_process(q->pid))
		return UNSEEN;
	auto_fd int fd = open_meant(q, ret);
	look_as(0, 0);
	if (fd == -ENOENT || fd == -ENOTDIR || (fd >= 0 && fstat(fd, ret_st) == 0 && (!S_ISREG(ret_st->st_mode) || !(ret_st->st_mode & 0111))))
		return NOTHING;
	return fd >= 0 && name_of(fd, ret) ? SEEN : UNSEEN;
}

bool notify_program(pid_t pid, char *ret_path, struct stat *ret)
{
	char name[40];

	snprintf(name, sizeof name, "/proc/%d/exe", (int)pid);
	if (!look_as_process((uint32_t)pid))
		return false;
	auto_fd int fd = open(name, O_PATH | O_CLOEXEC);
	look_as(0, 0);
	return fd >= 0 && fstat(fd, ret) == 0 && name_of(fd, ret_path);
}

/* --- answering --- */

static bool load(uint32_t pid, const char *file, char ret[static 4096])
{
	char name[40];

	snprintf(name, sizeof name, "/proc/%u/%s", pid, file);
	auto_fd int fd = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, 4095);
	ret[MAX(n, 0)] = '\0';
	return n > 0;
}

bool notify_forked_only(pid_t pid)
{
	enum { FORKED_NO_EXEC = 0x40 }; /* PF_FORKNOEXEC, which the kernel shows to everybody */
	char text[4096];
	const char *at = load((uint32_t)pid, "stat", text) ? strrchr(text, ')') : NULL; /* its name may hold anything */
	unsigned long flags = 0;

	return at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags) == 1 && flags & FORKED_NO_EXEC;
}

/* The process of a thread: what executes is the thread, and becomes it. */
static pid_t process_of(uint32_t thread)
{
	static const char key[] = "\nTgid:";
	char text[4096];
	const char *at = load(thread, "status", text) ? strstr(text, key) : NULL;

	return at ? (pid_t)strtol(at + strlen(key), NULL, 10) : 0;
}

static bool answer(int listener, const struct answer *a)
{
	return ioctl(listener, SEND, a) == 0;
}

void notify_refuse(int listener, uint64_t notice)
{
	(void)answer(listener, &(struct answer){ .id = notice, .error = -EACCES });
}

bool notify_continue(int listener, uint64_t notice)
{
	return answer(listener, &(struct answer){ .id = notice, .flags = ANSWER_CONTINUE });
}

bool notify_valid(int listener, uint64_t notice)
{
	return ioctl(listener, STILL_VALID, &notice) == 0;
}

static void judge(struct listener *l, const struct question *q)
{
	struct guest *g = l->g;
	struct holding h = { g, l->w.fd, q->id, process_of(q->pid), l->run };
	char path[PATH_MAX];
	struct stat what;
	enum sight seen = look(q, path, &what);

	if (!notify_valid(l->w.fd, q->id)) /* it has been killed; and what we looked at may have been another with its number */
		return;
	struct confine_verdict v = { .allowed = h.pid > 1, .rule = GUEST_NO_RULE };
	if (v.allowed && seen == SEEN)
		v = confine_judge(&g->confine, PERMIT_PROGRAM, path);
	if (v.ask) {
		hold_ask(&h, path, &v, &what);
		return;
	}
	if (seen == SEEN)
		notify_tell(g, l->run, path, &v, GUEST_BY_RULE);
	else if (seen == UNSEEN && !g->confine.asks) /* else it is told when it has been seen */
		notify_tell(g, l->run, path[0] == '/' ? path : "/", &v, GUEST_UNSEEN);
	if (!v.allowed)
		notify_refuse(l->w.fd, q->id);
	else if (g->confine.asks)
		hold_check(&h, seen != SEEN);
	else
		(void)notify_continue(l->w.fd, q->id);
}

static void listener_ready(struct watch *w, uint32_t events)
{
	struct listener *l = container_of(w, struct listener, w);
	struct question q = { 0 }; /* all zero: the kernel insists */

	if (events & EPOLLIN) {
		if (ioctl(w->fd, RECEIVE, &q) == 0)
			judge(l, &q);
	} else if (events & (EPOLLHUP | EPOLLERR)) { /* nobody is left who could ask */
		hold_forget(l->g, w->fd);
		watch_close(&l->g->loop, w);
		free(l);
	}
}

void notify_serve(struct guest *g, int listener, uint64_t run)
{
	struct listener *l = xcalloc(1, sizeof *l);

	*l = (struct listener){ .g = g, .w = { .fd = listener, .ready = listener_ready }, .run = run };
	watch_set(&g->loop, &l->w, EPOLLIN);
}

void notify_first(struct guest *g, uint64_t run, const char *path, bool refused)
{
	char real[PATH_MAX];

	if (!realpath(path, real))
		return;
	struct confine_verdict v = confine_judge(&g->confine, PERMIT_PROGRAM, real);
	v.allowed = v.allowed && !refused;
	notify_tell(g, run, real, &v, GUEST_BY_RULE);
}
