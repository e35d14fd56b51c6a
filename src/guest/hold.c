/* Theory of operation. A notification is no verdict on a file: whoever asked may change the path after we have read it, and the kernel reads
 * it again. So what counts is what has become of the execve, and until that is known the asker does not run:
 *
 *	ASKING    the call is held; who answers has WAIT_MS. Denied: EACCES.
 *	SETTLING  the asker has been moved to a frozen cgroup of its own, below its run's, and the call goes on. It comes to rest before the
 *	          first instruction of the new program (or, if there is none, before its own next one).
 *	          Then /proc/PID/exe is looked at. What the rules allow, what was answered for, or no new program: it goes back to its run's
 *	          group, and runs.
 *	DOUBTFUL  it is one to be asked for, and nobody was: a script's interpreter, the first program of a run (whose path PID 1 cannot
 *	          read), or somebody who tried. It stays frozen and is asked for. Denied: it is killed.
 *
 *	DYING     it has been killed, and its group is waited for.
 *
 * Whatever goes wrong on the way (no cgroups, no memory, a kernel that says no): the call is denied, or the asker killed.
 *
 * That its program is the same file as before is taken for a call that failed. The file is the kernel's to say: prctl(PR_SET_MM), which
 * could change it, is refused where there is something to ask for (confine_filter.c). */
#include "guest/hold.h"

#include "guest/guest.h"
#include "guest/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

enum { WAIT_MS = 120000 /* permissions.md says it, too */, LOOK_EVERY_MS = 500, SOON_MS = 20, SETTLE_WITHIN_MS = 10000, HOLDS_MAX = 1024, QUESTIONS_MAX = 256 };

enum state { ASKING, SETTLING, DOUBTFUL, DYING };

struct hold {
	struct holding h;
	struct hold *next;
	enum state state;
	uint64_t ask;          /* number of the question, 0 = none was needed */
	char *path;            /* that is asked for */
	struct confine_verdict v;
	struct stat answered;  /* st_ino 0: for nothing */
	struct stat before;    /* its program before the call */
	char back[64], own[80]; /* groups, as paths in the delegated directory; own "" = not made */
	bool tell;             /* what it has become is told */
	bool told;             /* the question is: the buffer may have been full */
	struct timer timer;
	uint64_t until_ms;
};

static struct hold *holds;
static size_t holds_n, questions_n; /* of the holds: those that have a question */
static uint64_t serial, asks;

/* --- the asker's group --- */

static bool write_at(struct guest *g, const char *group, const char *file, const char *text)
{
	char path[120];

	snprintf(path, sizeof path, "%s/%s", group, file);
	auto_fd int fd = openat(g->groups.dir, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && write(fd, text, strlen(text)) > 0;
}

static bool events_say(struct guest *g, const char *group, const char *line)
{
	char path[120], text[256];

	snprintf(path, sizeof path, "%s/cgroup.events", group);
	auto_fd int fd = openat(g->groups.dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
	text[MAX(n, 0)] = '\0';
	return strstr(text, line) != NULL;
}

static bool move_to(struct hold *x, const char *group)
{
	char pid[16];

	snprintf(pid, sizeof pid, "%d", (int)x->h.pid);
	return write_at(x->h.g, group, "cgroup.procs", pid);
}

static bool freeze(struct hold *x)
{
	struct guest *g = x->h.g;

	if (g->groups.dir < 0 || !group_of_process(x->h.pid, x->back, sizeof x->back))
		return false;
	snprintf(x->own, sizeof x->own, "%s/h%llu", x->back, (unsigned long long)++serial);
	if (mkdirat(g->groups.dir, x->own, 0755) < 0) {
		x->own[0] = '\0';
		return false;
	}
	return write_at(g, x->own, "cgroup.freeze", "1") && move_to(x, x->own);
}

/* It alone is in there. */
static void kill_own(const struct hold *x)
{
	if (!write_at(x->h.g, x->own, "cgroup.kill", "1"))
		(void)kill(x->h.pid, SIGKILL);
}

/* --- the table --- */

static void tell_end(struct hold *x)
{
	struct buf *out = guest_out(x->h.g);

	if (!x->ask)
		return;
	if (out)
		(void)guest_frame_put(out, GUEST_ASK_END, 0, x->ask, (struct str){ NULL, 0 });
	x->ask = 0;
	questions_n--;
}

static void hold_end(struct hold *x)
{
	struct guest *g = x->h.g;

	tell_end(x);
	for (struct hold **at = &holds; *at; at = &(*at)->next)
		if (*at == x) {
			*at = x->next;
			break;
		}
	holds_n--;
	timer_stop(&x->timer);
	if (x->own[0])
		(void)unlinkat(g->groups.dir, x->own, AT_REMOVEDIR);
	free(x->path);
	free(x);
}

static void fire(struct timer *t);

static struct hold *hold_new(const struct holding *h, enum state state)
{
	struct hold *x = holds_n < HOLDS_MAX ? xcalloc(1, sizeof *x) : NULL;

	if (!x)
		return NULL;
	x->h = *h;
	x->state = state;
	x->timer.fire = fire;
	x->next = holds;
	holds = x;
	holds_n++;
	return x;
}

static void tell_ask(struct hold *x)
{
	struct buf *out = guest_out(x->h.g);
	uint64_t now = now_ms();
	struct guest_ask a = { .run = x->h.run, .rule = x->v.rule, .left_ms = (uint32_t)(x->until_ms > now ? x->until_ms - now : 0), .path = x->path };

	x->told = out && out->len <= NOTIFY_OUT_HIGH && guest_ask_put(out, x->ask, &a) == 0;
}

static void ask(struct hold *x, const char *path, const struct confine_verdict *v)
{
	/* A number never comes again, also after a restart: a late answer is for nothing else. */
	while (!asks && getrandom(&asks, sizeof asks, 0) != (ssize_t)sizeof asks)
		;
	x->path = xstrdup(path);
	x->v = *v;
	x->ask = asks++;
	questions_n++;
	x->until_ms = now_ms() + WAIT_MS;
	timer_set(&x->h.g->loop, &x->timer, now_ms() + LOOK_EVERY_MS);
	tell_ask(x);
}

/* --- ways out --- */

static void kill_and_wait(struct hold *x)
{
	kill_own(x);
	tell_end(x);
	x->state = DYING;
	x->until_ms = UINT64_MAX;
	timer_set(&x->h.g->loop, &x->timer, now_ms() + SOON_MS);
}

static void tell_denied(const struct holding *h, const char *path, uint16_t rule, enum guest_verdict_how how)
{
	notify_tell(h->g, h->run, path ? path : "/", &(struct confine_verdict){ .allowed = false, .rule = rule }, how);
}

static void deny(struct hold *x, enum guest_verdict_how how)
{
	tell_denied(&x->h, x->path, x->v.rule, how);
	if (x->state != ASKING) {
		kill_and_wait(x);
		return;
	}
	notify_refuse(x->h.listener, x->h.notice);
	hold_end(x);
}

static void let_go(struct hold *x)
{
	if (!move_to(x, x->back)) {
		deny(x, GUEST_BY_TROUBLE);
		return;
	}
	hold_end(x);
}

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_ino && a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/* It stands still, and we see what it is. */
static void settled(struct hold *x)
{
	char path[PATH_MAX];
	struct stat now;

	if (notify_forked_only(x->h.pid)) { /* no exec has come of it */
		let_go(x);
		return;
	}
	if (!notify_program(x->h.pid, path, &now)) {
		deny(x, GUEST_BY_TROUBLE);
		return;
	}
	struct confine_verdict v = confine_judge(&x->h.g->confine, PERMIT_PROGRAM, path);
	bool unchanged = same(&now, &x->before), answered = same(&now, &x->answered);
	if (unchanged || answered || (v.allowed && !v.ask)) {
		if (x->tell && !unchanged)
			notify_tell(x->h.g, x->h.run, path, &v, GUEST_BY_RULE);
		let_go(x);
	} else if (v.ask && !x->ask && questions_n < QUESTIONS_MAX) {
		x->state = DOUBTFUL;
		ask(x, path, &v);
	} else { /* or it was asked for one, and is another */
		bool crowd = v.ask && !x->ask;
		x->v = v;
		free(x->path);
		x->path = xstrdup(path);
		deny(x, crowd ? GUEST_BY_CROWD : GUEST_BY_TROUBLE);
	}
}

static void settle(struct hold *x)
{
	char path[PATH_MAX];

	x->state = ASKING; /* until the call goes on, it can be refused */
	if (!notify_program(x->h.pid, path, &x->before))
		x->before = (struct stat){ 0 }; /* the first of a run, closed to us until its exec */
	if (!freeze(x)) {
		deny(x, GUEST_BY_TROUBLE);
		return;
	}
	x->state = SETTLING;
	x->until_ms = now_ms() + SETTLE_WITHIN_MS;
	if (!notify_continue(x->h.listener, x->h.notice)) { /* it has been killed, or so it will be */
		kill_and_wait(x);
		return;
	}
	timer_set(&x->h.g->loop, &x->timer, now_ms() + 1);
}

static void fire(struct timer *t)
{
	struct hold *x = container_of(t, struct hold, timer);
	struct guest *g = x->h.g;
	uint64_t now = now_ms();
	bool gone = x->state == ASKING ? !notify_valid(x->h.listener, x->h.notice) : !events_say(g, x->own, "populated 1");

	if (gone) {
		hold_end(x);
	} else if (x->state == SETTLING && events_say(g, x->own, "frozen 1")) {
		settled(x);
	} else if (now >= x->until_ms) {
		deny(x, x->state == SETTLING ? GUEST_BY_TROUBLE : GUEST_BY_TIME);
	} else {
		if (x->ask && x->state != SETTLING && !x->told)
			tell_ask(x);
		timer_set(&g->loop, &x->timer, now + (x->state == SETTLING ? 1 : x->state == DYING ? SOON_MS : LOOK_EVERY_MS));
	}
}

/* --- from outside --- */

void hold_ask(const struct holding *h, const char *path, const struct confine_verdict *v, const struct stat *what)
{
	struct hold *x = questions_n < QUESTIONS_MAX ? hold_new(h, ASKING) : NULL;

	if (!x) {
		tell_denied(h, path, v->rule, GUEST_BY_CROWD);
		notify_refuse(h->listener, h->notice);
		return;
	}
	x->answered = *what;
	ask(x, path, v);
}

void hold_check(const struct holding *h, bool tell)
{
	struct hold *x = hold_new(h, ASKING);

	if (!x) {
		tell_denied(h, NULL, GUEST_NO_RULE, GUEST_BY_CROWD);
		notify_refuse(h->listener, h->notice);
		return;
	}
	x->tell = tell;
	settle(x);
}

void hold_answer(struct guest *g, uint64_t number, bool allowed)
{
	struct hold *x = holds;

	while (x && (x->ask != number || x->state == SETTLING || x->state == DYING || x->h.g != g))
		x = x->next;
	if (!x || !number) /* it has ended meanwhile */
		return;
	if (!allowed) {
		deny(x, GUEST_BY_ANSWER);
		return;
	}
	struct confine_verdict v = { .allowed = true, .rule = x->v.rule };
	notify_tell(x->h.g, x->h.run, x->path, &v, GUEST_BY_ANSWER);
	timer_stop(&x->timer);
	if (x->state == DOUBTFUL)
		let_go(x);
	else
		settle(x);
}

void hold_tell_all(struct guest *g)
{
	for (struct hold *x = holds; x; x = x->next)
		if (x->ask && x->state != SETTLING && x->h.g == g)
			tell_ask(x);
}

/* Nobody is left who could run the program. A group of its own is seen to be empty before it is removed. */
void hold_forget(struct guest *g, int listener)
{
	for (struct hold *x = holds, *next; x; x = next) {
		next = x->next;
		if (x->h.g == g && x->h.listener == listener && x->state == ASKING)
			hold_end(x);
	}
}
