/* Theory of operation. A session is one shell that reads its script from a pipe on its standard input: ours to write. A
 * command goes in as
 *
 *	command echo s >&60
 *	command eval '<text>' </dev/null 60>&-
 *	command echo "$?" >&60
 *
 * so cwd, variables and functions stay, a syntax error stays inside the eval, and neither the script pipe nor the status
 * pipe reaches what the command starts. The shell's stdout and stderr are pipes for its whole life. When the status
 * arrives, everything the command wrote in the foreground is in those pipes: what is there then belongs to the command
 * (drained by count, not to the end, which a background child may keep open for ever), and the next one is fed. Output of
 * background children while no command runs is thrown away.
 *
 * A command that may be sent input gets a fifo instead of /dev/null, which has an end of its own as a pipe shared by all
 * commands would not. We hold it open both ways until the shell says "o" on the status pipe: before that, closing it would
 * lose the bytes and leave the shell waiting for a writer.
 *
 * States: IDLE (waits for a command) -> BUSY (a command is fed) -> DRAINING (its status is known, the pipes are being emptied)
 * -> IDLE; from each -> DEAD (the shell is reaped; later commands fail with the reason) until closed.
 *
 * A command that is cancelled must not go on with what follows in its text (`a; b`). Bash is made to skip that by a trap on a
 * signal: the trap turns on a DEBUG trap that refuses every command, and leaves every loop, until the shell is back at one of
 * our own lines. The signal is sent only after the "s", so that it cannot be lost in a line of ours. A shell without such
 * traps, or with ours taken away, ends by the signal.
 *
 * A command may replace the shell (`exec program`). That closes the status pipe, and the script, while the command is
 * under way: then it is not ended but goes on until the process does, which is the end of the session too. If it is
 * still a shell, one that has closed our pipe, it ends where its script does.
 *
 * A shell other than bash may only name descriptors 0 to 9, so there the status pipe is 9. */
#include "guest/session.h"

#include "guest/launch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	STATUS_FD_BASH = 60,
	STATUS_FD_SH = 9,
	SKIP_SIGNAL = 64,     /* SIGRTMAX, by number because not every bash has its name */
	KILL_EVERY_MS = 20,   /* children of a cancelled command, as the shell goes on to the next one of its line */
	KILL_SHELL_MS = 1000, /* then the shell itself is stuck; less would cost a session where the processors are busy */
	SESSIONS_MAX = 1024,
};

/* For bash at its start, see above. `!` makes the DEBUG trap fail, which with extdebug skips the command. */
static const char skip_trap[] =
	"trap 'shopt -s extdebug; trap \"case \\$BASH_COMMAND in *\\\">&60\\\") trap - DEBUG; shopt -u extdebug;; "
	"*) ! break 9999 2>/dev/null; esac\" DEBUG' 64\n";
static_assert(STATUS_FD_BASH == 60 && SKIP_SIGNAL == 64, "the text above");

enum session_state { SESSION_IDLE, SESSION_BUSY, SESSION_DRAINING, SESSION_DEAD };

struct session {
	struct guest *g;
	struct session *next;
	char id[GUEST_SESSION_ID_MAX + 1];
	enum session_state state;
	pid_t pid;
	struct group group;
	struct user user;
	bool bash, closing, last_words; /* last_words: dead, and its last command is being drained */
	bool begun, replaced;           /* the current command: its "s" has come; it is no longer a shell that does it */
	int exit_code;
	uint64_t close_serial, kill_until;
	struct source *from[2];
	struct watch script, status;
	struct buf text;          /* for the shell, not yet written */
	char word[16];            /* of the status pipe */
	size_t word_n;
	struct run *current, *queue, **queue_tail;
	struct timer kill;
};

static void feed_next(struct session *s);

struct session *session_find(struct guest *g, const char *id)
{
	for (struct session *s = g->sessions; s; s = s->next)
		if (!s->closing && streq(s->id, id))
			return s;
	return NULL;
}

struct session *session_of_pid(struct guest *g, pid_t pid)
{
	for (struct session *s = g->sessions; s; s = s->next)
		if (s->pid == pid)
			return s;
	return NULL;
}

static void reply(struct guest *g, uint64_t serial, enum err_kind kind, int errnum, const char *text)
{
	struct buf *out = guest_out(g);
	struct guest_result r = { kind, (uint32_t)errnum, str_of(text) };

	if (out)
		(void)guest_result_put(out, GUEST_SESSION_REPLY, serial, &r);
}

static void session_free(struct session *s)
{
	struct guest *g = s->g;

	for (struct session **at = &g->sessions; *at; at = &(*at)->next)
		if (*at == s) {
			*at = s->next;
			break;
		}
	watch_close(&g->loop, &s->script);
	watch_close(&g->loop, &s->status);
	timer_stop(&s->kill);
	source_abandon(s->from[0]);
	source_abandon(s->from[1]);
	group_release(&g->groups, &s->group);
	buf_done(&s->text);
	free(s);
}

static void kill_shell(struct session *s)
{
	if (s->pid > 0)
		(void)group_signal(&s->g->groups, &s->group, s->pid, 0, SIGKILL);
}

/* --- feeding --- */

/* The shell takes no more of its script: either a command has replaced it, or it will never do another one. */
static void shell_lost(struct session *s)
{
	struct loop *l = &s->g->loop;

	watch_close(l, &s->status);
	watch_close(l, &s->script);
	buf_done(&s->text);
	s->replaced = s->state == SESSION_BUSY;
	if (!s->replaced || s->kill.at)
		kill_shell(s);
}

static void script_write(struct session *s)
{
	while (s->text.len && s->script.fd >= 0) {
		ssize_t n = write(s->script.fd, s->text.data, s->text.len);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			shell_lost(s);
			return;
		}
		buf_consume(&s->text, (size_t)n);
	}
	if (s->text.len == 0)
		buf_done(&s->text);
	if (s->script.fd >= 0)
		watch_set(&s->g->loop, &s->script, s->text.len ? EPOLLOUT : 0);
}

static void script_ready(struct watch *w, uint32_t events)
{
	(void)events;
	script_write(container_of(w, struct session, script));
}

static void add_quoted(struct buf *b, const char *text)
{
	(void)buf_addc(b, '\'');
	for (const char *quote; (quote = strchr(text, '\'')); text = quote + 1) {
		(void)buf_add(b, text, (size_t)(quote - text));
		(void)buf_addz(b, "'\\''");
	}
	(void)buf_addz(b, text);
	(void)buf_addc(b, '\'');
}

static void output_changed(void *ctx)
{
	struct session *s = ctx;
	struct run *r = s->current;

	if (!r)
		return;
	run_tell(r);
	if ((s->state != SESSION_DRAINING && !s->last_words) || !source_drained(s->from[0]) || !source_drained(s->from[1]))
		return;
	for (int i = 0; i < 2; i++)
		source_point(s->from[i], NULL, output_changed, s);
	s->current = NULL;
	run_finish(r);
	if (s->state == SESSION_DRAINING) {
		s->state = SESSION_IDLE;
		feed_next(s);
	} else if (s->closing) {
		session_free(s);
	}
}

static int open_input(struct session *s, struct run *r)
{
	if (!r->in.open && r->in.bytes.len == 0)
		return 0;
	int fd = scratch_make(&r->scratch, &s->user, "input", (struct str){ NULL, 0 });
	if (fd < 0)
		return fd;
	r->in.w.fd = fd;
	r->in.hold = true;
	return 0;
}

static void feed(struct session *s, struct run *r)
{
	int e = open_input(s, r), fd = s->bash ? STATUS_FD_BASH : STATUS_FD_SH;

	if (e < 0) {
		run_fail(r, -e, "cannot make the command's input: %s", strerror(-e));
		feed_next(s);
		return;
	}
	s->state = SESSION_BUSY;
	s->current = r;
	s->begun = false;
	(void)buf_addf(&s->text, "command echo s >&%d\n", fd);
	if (r->in.hold)
		(void)buf_addf(&s->text, "{ command echo o >&%d; ", fd);
	(void)buf_addz(&s->text, "command eval ");
	add_quoted(&s->text, r->command);
	if (r->in.hold)
		(void)buf_addf(&s->text, " %d>&-; } <%s", fd, r->scratch.path);
	else
		(void)buf_addf(&s->text, " </dev/null %d>&-", fd);
	(void)buf_addf(&s->text, "\ncommand echo \"$?\" >&%d\n", fd);
	free(take_ptr(&r->command));
	for (int i = 0; i < 2; i++)
		source_point(s->from[i], &r->out[i], output_changed, s);
	run_begin(r);
	if (r->in.w.fd >= 0)
		run_input_start(r, take_fd(&r->in.w.fd));
	script_write(s);
}

static void feed_next(struct session *s)
{
	struct run *r = s->queue;

	if (s->state != SESSION_IDLE || !r)
		return;
	s->queue = r->next_queued;
	if (!s->queue)
		s->queue_tail = &s->queue;
	feed(s, r);
}

static void fail_dead(struct session *s, struct run *r)
{
	run_fail(r, EPIPE, "the session \"%s\" has ended: its shell exited with status %d", s->id, s->exit_code);
}

void session_queue(struct session *s, struct run *r)
{
	if (s->state == SESSION_DEAD || s->closing) {
		fail_dead(s, r);
		return;
	}
	r->session = s;
	r->next_queued = NULL;
	*s->queue_tail = r;
	s->queue_tail = &r->next_queued;
	feed_next(s);
}

/* --- what comes back --- */

static void command_done(struct session *s, int status)
{
	struct run *r = s->current;

	timer_stop(&s->kill);
	if (r->end.flags & (GUEST_END_TIMED_OUT | GUEST_END_CANCELED))
		status = 128 + SIGKILL;
	r->end.exit_code = status;
	r->end.signal = r->end.flags & (GUEST_END_TIMED_OUT | GUEST_END_CANCELED) ? SIGKILL : 0;
	s->state = SESSION_DRAINING;
	r->state = RUN_DRAINING;
	timer_stop(&r->limit);
	source_drain(s->from[0], false);
	source_drain(s->from[1], false);
	output_changed(s);
}

static void skip_rest(struct session *s)
{
	if (s->pid > 0)
		(void)kill(s->pid, s->bash ? SKIP_SIGNAL : SIGKILL);
}

/* One line of the status pipe. */
static int status_line(struct session *s, struct str line)
{
	uint64_t status;

	if (s->state != SESSION_BUSY)
		return -EPROTO;
	if (str_eqz(line, "s")) {
		s->begun = true;
		if (s->kill.at)
			skip_rest(s); /* it was cancelled before it had begun */
		return 0;
	}
	if (str_eqz(line, "o") && s->current->in.hold) {
		run_input_unhold(s->current);
		return 0;
	}
	if (parse_u64(line, 255, &status) < 0)
		return -EPROTO;
	command_done(s, (int)status);
	return 0;
}

static void status_ready(struct watch *w, uint32_t events)
{
	struct session *s = container_of(w, struct session, status);
	ssize_t n = read(w->fd, s->word + s->word_n, sizeof s->word - s->word_n);
	int e = n > 0 ? 0 : -EPROTO;

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	s->word_n += (size_t)MAX(n, 0);
	for (char *nl; e == 0 && (nl = memchr(s->word, '\n', s->word_n));) {
		char line[sizeof s->word];
		size_t len = (size_t)(nl - s->word);
		memcpy(line, s->word, len);
		s->word_n -= len + 1;
		memmove(s->word, nl + 1, s->word_n);
		e = status_line(s, (struct str){ line, len });
	}
	if (e == 0 && s->word_n < sizeof s->word)
		return;
	if (n != 0)
		kill_shell(s); /* written to by somebody else: there is no telling any more when a command ends */
	shell_lost(s);
}

void session_reaped(struct session *s, int status)
{
	struct guest *g = s->g;
	struct run *r = s->current;
	struct run *queued = take_ptr(&s->queue);

	if (s->kill.at && WIFSIGNALED(status) && WTERMSIG(status) == SKIP_SIGNAL)
		status = SIGKILL; /* it has lost our trap, or has just been replaced: it was cancelled like any other */
	s->pid = 0;
	s->queue_tail = &s->queue;
	s->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	enum session_state was = s->state;
	s->state = SESSION_DEAD;
	timer_stop(&s->kill);
	watch_close(&g->loop, &s->status);
	watch_close(&g->loop, &s->script);
	if (!s->closing) {
		struct buf *out = guest_out(g);
		if (out)
			(void)guest_session_end_put(out, s->exit_code, s->id);
	} else {
		reply(g, s->close_serial, ERR_NONE, 0, "");
	}
	for (struct run *next; queued; queued = next) {
		next = queued->next_queued;
		fail_dead(s, queued);
	}
	if (r) {
		s->last_words = true;
		if (was == SESSION_BUSY) {
			run_set_status(r, status);
			if (s->closing)
				r->end.flags |= GUEST_END_CANCELED;
		}
		r->end.flags |= GUEST_END_SESSION;
		r->state = RUN_DRAINING;
		timer_stop(&r->limit);
		source_drain(s->from[0], false);
		source_drain(s->from[1], false);
		output_changed(s);
	} else if (s->closing) {
		session_free(s);
	}
}

void sessions_tell_ends(struct guest *g)
{
	struct buf *out = guest_out(g);

	for (struct session *s = g->sessions; out && s; s = s->next)
		if (s->state == SESSION_DEAD && !s->closing)
			(void)guest_session_end_put(out, s->exit_code, s->id);
}

/* --- signals --- */

void session_run_resume(struct session *s, struct run *r)
{
	if (s->current != r)
		return;
	source_resume(s->from[0]);
	source_resume(s->from[1]);
}

void session_run_signal(struct session *s, struct run *r, int signo)
{
	if (s->current == r && s->state == SESSION_BUSY)
		(void)group_signal(&s->g->groups, &s->group, s->pid, s->replaced ? 0 : s->pid, signo);
}

static void kill_children(struct timer *t)
{
	struct session *s = container_of(t, struct session, kill);
	uint64_t now = now_ms();

	if (now >= s->kill_until || s->replaced) {
		kill_shell(s);
		return;
	}
	if (s->begun) /* not before the shell knows that it is to skip: it would go on to what follows */
		(void)group_signal(&s->g->groups, &s->group, s->pid, s->pid, SIGKILL);
	timer_set(&s->g->loop, t, now + KILL_EVERY_MS);
}

void session_run_kill(struct session *s, struct run *r)
{
	for (struct run **at = &s->queue; *at; at = &(*at)->next_queued)
		if (*at == r) {
			*at = r->next_queued;
			if (!*at)
				s->queue_tail = at;
			r->end.signal = SIGKILL;
			r->end.exit_code = 128 + SIGKILL;
			run_finish(r);
			return;
		}
	if (s->current != r || s->state != SESSION_BUSY || s->kill.at)
		return;
	s->kill_until = now_ms() + KILL_SHELL_MS;
	if (s->begun && !s->replaced)
		skip_rest(s);
	kill_children(&s->kill);
}

/* --- open and close --- */

const char *session_shell(bool *ret_bash)
{
	static const char *const bashes[] = { "/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash" };

	*ret_bash = true;
	for (size_t i = 0; i < ARRAY_LEN(bashes); i++)
		if (access(bashes[i], X_OK) == 0)
			return bashes[i];
	*ret_bash = false;
	return "/bin/sh";
}

struct ends {
	int in[2], out[2], err[2], status[2];
};

static int open_ends(struct ends *e, const struct user *u)
{
	int *const pipes[] = { e->in, e->out, e->err, e->status };
	static const bool ours_reads[] = { false, true, true, true };

	*e = (struct ends){ { -EBADF, -EBADF }, { -EBADF, -EBADF }, { -EBADF, -EBADF }, { -EBADF, -EBADF } };
	for (size_t i = 0; i < ARRAY_LEN(pipes); i++) {
		if (pipe2(pipes[i], O_CLOEXEC) < 0)
			return -errno;
		user_give(u, pipes[i][0], true);
		int ours = pipes[i][ours_reads[i] ? 0 : 1];
		if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
			return -errno;
	}
	return 0;
}

static void close_ends(struct ends *e)
{
	int *const pipes[] = { e->in, e->out, e->err, e->status };

	for (size_t i = 0; i < ARRAY_LEN(pipes); i++)
		for (int k = 0; k < 2; k++)
			pipes[i][k] = close_fd(pipes[i][k]);
}

static pid_t start_shell(struct session *s, const struct guest_run_request *r, const struct ends *e, struct launch *l)
{
	struct guest *g = s->g;
	const char *argv[] = { session_shell(&s->bash), NULL };
	int procs = group_make(&g->groups, &s->group);
	char **env = env_build(g, &s->user, r->env, &s->group, false);

	*l = (struct launch){
		.argv = argv,
		.env = (const char *const *)(void *)env,
		.user = &s->user,
		.cwd = r->cwd,
		.fallback = { g->opt.workdir, s->user.home },
		.fds = { e->in[0], e->out[1], e->err[1] },
		.extra = e->status[1],
		.extra_to = s->bash ? STATUS_FD_BASH : STATUS_FD_SH,
		.cgroup_procs = procs,
		.files = g->opt.files,
		.confine = &g->confine,
		.no_new_privs = g->opt.no_new_privs,
	};
	pid_t pid = launch(l);
	if (pid >= 0)
		launch_notify(l, g, 0);
	env_free(env);
	return pid;
}

static void fail_open(struct guest *g, uint64_t serial, const struct launch *l, int e)
{
	char text[200];

	if (l->stage == LAUNCH_CWD && l->cwd)
		snprintf(text, sizeof text, "cannot enter the working directory %.120s: %s", l->cwd, strerror(e));
	else
		snprintf(text, sizeof text, "cannot start the session's shell: %s", strerror(e));
	reply(g, serial, l->stage == LAUNCH_CWD ? ERR_INVALID : e == EAGAIN ? ERR_LIMIT : ERR_UNAVAILABLE, e, text);
}

void session_open(struct guest *g, uint64_t serial, const struct guest_run_request *r)
{
	size_t n = 0;
	struct err err;
	struct ends ends;
	struct launch l = { 0 };

	for (struct session *at = g->sessions; at; at = at->next)
		n++;
	if (session_find(g, r->session)) {
		reply(g, serial, ERR_CONFLICT, EEXIST, "the session exists already");
		return;
	}
	if (n >= SESSIONS_MAX) {
		reply(g, serial, ERR_LIMIT, EAGAIN, "too many sessions in this sandbox");
		return;
	}
	struct session *s = xcalloc(1, sizeof *s);
	if (user_find(r->user ? r->user : g->opt.user, &s->user, &err) < 0) {
		reply(g, serial, err.kind, err.errnum, err.message);
		free(s);
		return;
	}
	s->g = g;
	snprintf(s->id, sizeof s->id, "%s", r->session);
	int e = open_ends(&ends, &s->user);
	pid_t pid = e < 0 ? e : start_shell(s, r, &ends, &l);
	if (pid >= 0 && l.stage == LAUNCH_EXEC) {
		(void)waitpid(pid, NULL, 0); /* it has exited, and is in no table yet */
		pid = -l.errnum;
	}
	if (pid < 0) {
		group_release(&g->groups, &s->group);
		close_ends(&ends);
		free(s);
		fail_open(g, serial, &l, -pid);
		return;
	}
	s->pid = pid;
	s->queue_tail = &s->queue;
	s->kill.fire = kill_children;
	s->script = (struct watch){ .fd = take_fd(&ends.in[1]), .ready = script_ready };
	s->status = (struct watch){ .fd = take_fd(&ends.status[0]), .ready = status_ready };
	watch_set(&g->loop, &s->status, EPOLLIN);
	s->from[0] = source_new(&g->loop, take_fd(&ends.out[0]));
	s->from[1] = source_new(&g->loop, take_fd(&ends.err[0]));
	for (int i = 0; i < 2; i++)
		source_point(s->from[i], NULL, output_changed, s);
	close_ends(&ends);
	buf_init(&s->text, SIZE_MAX / 2); /* a command is bounded by GUEST_MESSAGE_MAX, its quoting by four times that */
	if (s->bash)
		(void)buf_addz(&s->text, skip_trap);
	s->next = g->sessions;
	g->sessions = s;
	reply(g, serial, ERR_NONE, 0, "");
}

void session_close(struct guest *g, uint64_t serial, const char *id)
{
	struct session *s = session_find(g, id);

	if (!s || s->closing) {
		reply(g, serial, ERR_NOT_FOUND, ESRCH, "there is no such session");
		return;
	}
	s->closing = true;
	s->close_serial = serial;
	(void)group_signal(&g->groups, &s->group, s->pid, 0, SIGKILL);
	if (s->state != SESSION_DEAD)
		return; /* answered by session_reaped */
	reply(g, serial, ERR_NONE, 0, "");
	if (!s->current)
		session_free(s);
}
