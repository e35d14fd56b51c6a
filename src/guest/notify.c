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

enum { OUT_HIGH = 128 * 1024, ANSWER_CONTINUE = 1 };

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

	if (!out || out->len > OUT_HIGH || guest_verdict_put(out, run, how, &say) < 0)
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

/* The file that the asker means, opened as no more than a name; or -errno. */
static int open_meant(const struct question *q)
{
	bool at = q->number == SYS_execveat;
	char path[PATH_MAX], whole[PATH_MAX + 64];

	if (!read_string(q->pid, q->args[at ? 1 : 0], path))
		return -EFAULT;
	if (path[0] == '/')
		snprintf(whole, sizeof whole, "/proc/%u/root%s", q->pid, path);
	else if (!at || (int32_t)q->args[0] == AT_FDCWD)
		snprintf(whole, sizeof whole, "/proc/%u/cwd/%s", q->pid, path);
	else
		snprintf(whole, sizeof whole, "/proc/%u/fd/%d%s%s", q->pid, (int32_t)q->args[0], path[0] ? "/" : "", path);
	int fd = open(whole, O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
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

/* False: there is nothing that could be executed, as the kernel will say; or we may not see it. */
static bool look(const struct question *q, char ret[static PATH_MAX], struct stat *ret_st)
{
	if (!look_as_process(q->pid))
		return false;
	auto_fd int fd = open_meant(q);
	look_as(0, 0);
	return fd >= 0 && fstat(fd, ret_st) == 0 && S_ISREG(ret_st->st_mode) && ret_st->st_mode & 0111 && name_of(fd, ret);
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
	bool seen = look(q, path, &what);

	if (!notify_valid(l->w.fd, q->id) || h.pid <= 1)
		return;
	struct confine_verdict v = seen ? confine_judge(&g->confine, PERMIT_PROGRAM, path) : (struct confine_verdict){ .allowed = true };
	if (v.ask) {
		hold_ask(&h, path, &v, &what);
		return;
	}
	if (seen)
		notify_tell(g, l->run, path, &v, GUEST_BY_RULE);
	if (!v.allowed)
		notify_refuse(l->w.fd, q->id);
	else if (g->confine.asks)
		hold_check(&h, !seen);
	else
		(void)notify_continue(l->w.fd, q->id);
}

static void listener_ready(struct watch *w, uint32_t events)
{
	struct listener *l = container_of(w, struct listener, w);
	struct question q = { 0 }; /* the kernel insists */

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
