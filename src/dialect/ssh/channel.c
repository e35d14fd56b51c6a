/* A channel: one run of the sandbox, with or without a terminal. */
#include "dialect/ssh/internal.h"

#include "base/log.h"
#include "wire/guest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

#define INPUT_MAX (64U << 10) /* held for the run; the rest waits in libssh, and so in the client */
#define ENV_MAX 32
#define OUT_MAX (1U << 20) /* more than a follower hands over at once */
#define AHEAD_MAX (4U << 20) /* more than libssh's window lets a client send ahead; it takes what comes beyond, too */
#define THROWN_MAX (1U << 20) /* said to nobody, by one that passes over SIGPIPE */

/* --- output --- */

/* As a pipe does whose reader is gone. */
static void throw_away(struct chan *c, size_t n)
{
	struct peer *p = c->peer;
	struct err e;

	if (c->thrown == 0)
		(void)api_run_signal(p->server->api, &p->caller, p->sandbox, c->run, SIGPIPE, true, &e);
	if (c->thrown <= THROWN_MAX && c->thrown + n > THROWN_MAX)
		(void)api_run_cancel(p->server->api, &p->caller, p->sandbox, c->run, &e);
	c->thrown += n;
}

static void throw_rest(struct chan *c)
{
	if (c->out[0].len) {
		throw_away(c, c->out[0].len);
		buf_reset(&c->out[0]);
	}
}

static bool writes_still(const struct chan *c)
{
	return lib.ssh_get_poll_flags(c->peer->session) & SSH_WRITE_PENDING;
}

/* What the window has room for; the rest stays. A window may be of any size, so nothing goes to libssh while it still has what the socket
 * has not taken: its memory is ours. False: the connection is broken. */
static bool push(struct chan *c, int stream)
{
	struct buf *b = &c->out[stream - 1];

	/* libssh may read messages meanwhile, the one that nobody reads this any more among them: what it writes from must stay. */
	while (b->len && !(stream == 1 && c->unread)) {
		c->blocked = writes_still(c);
		if (c->blocked)
			return true;
		uint32_t room = lib.ssh_channel_window_size(c->raw);
		uint32_t n = (uint32_t)MIN(b->len, (size_t)room);
		if (n == 0)
			return true;
		c->pushing = true;
		int took = stream == 1 ? lib.ssh_channel_write(c->raw, b->data, n) : lib.ssh_channel_write_stderr(c->raw, b->data, n);
		c->pushing = false;
		if (took < 0)
			return false;
		if (took == 0)
			return true;
		buf_consume(b, (size_t)took);
	}
	if (stream == 1 && c->unread)
		throw_rest(c);
	return true;
}

static void say(struct chan *c, const char *text)
{
	(void)buf_addz(&c->out[1], text);
}

/* The end of the run reaches the client behind the last byte of its output. */
static void finish(struct chan *c)
{
	static const struct {
		int signo;
		const char *name;
	} names[] = { { SIGABRT, "ABRT" }, { SIGALRM, "ALRM" }, { SIGFPE, "FPE" },   { SIGHUP, "HUP" },   { SIGILL, "ILL" },   { SIGINT, "INT" },
		      { SIGKILL, "KILL" }, { SIGPIPE, "PIPE" }, { SIGQUIT, "QUIT" }, { SIGSEGV, "SEGV" }, { SIGTERM, "TERM" }, { SIGUSR1, "USR1" },
		      { SIGUSR2, "USR2" } };
	const char *name = NULL;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (names[i].signo == c->signo)
			name = names[i].name;
	c->over = true;
	if (name)
		(void)lib.ssh_channel_request_send_exit_signal(c->raw, name, 0, "", "");
	else
		(void)lib.ssh_channel_request_send_exit_status(c->raw, c->signo ? 128 + c->signo : c->exit_code);
	(void)lib.ssh_channel_send_eof(c->raw);
	(void)lib.ssh_channel_close(c->raw);
}

void chan_flush(struct chan *c)
{
	c->blocked = false;
	if (c->over)
		return;
	if (!push(c, 1) || !push(c, 2)) {
		c->over = true;
		return;
	}
	if (c->out[0].len || c->out[1].len)
		return;
	if (c->ended)
		finish(c);
	else if (c->paused && c->follower) {
		c->paused = false;
		follower_resume(c->follower);
	}
}

void chan_unread(struct chan *c)
{
	c->unread = true;
	if (!c->pushing)
		throw_rest(c);
}

static void on_output(void *ctx, int stream, uint64_t offset, struct str bytes)
{
	struct chan *c = ctx;

	(void)offset;
	if (c->over || stream < 1 || stream > 2)
		return;
	if (stream == 1 && c->unread) {
		throw_away(c, bytes.n);
		return;
	}
	if (buf_add(&c->out[stream - 1], bytes.p, bytes.n) < 0)
		c->over = true;
	/* Until it has gone: peer_settle resumes when it could. */
	c->paused = true;
	follower_pause(c->follower);
	peer_settle(c->peer);
}

static void on_end(void *ctx, const struct run_view *v)
{
	struct chan *c = ctx;

	c->ended = true;
	c->exit_code = v->state == RUN_EXITED ? v->exit_code : 255;
	c->signo = v->state == RUN_EXITED ? v->signal : 0;
	if (v->state != RUN_EXITED)
		say(c, v->message && *v->message ? v->message : "the sandbox has gone away");
	peer_settle(c->peer);
}

/* --- input --- */

static void feed(struct chan *c)
{
	struct peer *p = c->peer;
	struct err e;

	while (c->run && c->input.len) {
		ssize_t n = api_run_write(p->server->api, &p->caller, p->sandbox, c->run, buf_str(&c->input), &e);
		if (n < 0) /* it reads no more, or has ended */
			buf_reset(&c->input);
		if (n <= 0)
			break;
		buf_consume(&c->input, (size_t)n);
	}
	if (c->run && !c->input.len && !c->held && c->eof && !c->spec.pty)
		(void)api_run_close_stdin(p->server->api, &p->caller, p->sandbox, c->run, &e);
}

static int on_data(ssh_session session, ssh_channel raw, void *data, uint32_t len, int is_stderr, void *ctx)
{
	struct chan *c = ctx;
	size_t room = INPUT_MAX - MIN(c->input.len, INPUT_MAX), n = MIN((size_t)len, room);

	(void)session, (void)raw;
	if (is_stderr || c->ended)
		return (int)len;
	if (len > AHEAD_MAX) { /* it has sent what it had no window for */
		c->peer->over = true;
		return (int)len;
	}
	(void)buf_add(&c->input, data, n);
	c->held = n < len;
	feed(c);
	return (int)n;
}

/* All of it at once, and only when the last of it has gone in: at each read libssh opens its window anew, whatever it still holds, so a command
 * that reads slowly would have it hold more and more. */
void chan_take(struct chan *c)
{
	while (c->held && !c->over && !c->input.len) {
		int n = lib.ssh_channel_poll(c->raw, 0);
		auto_free char *bytes = n > 0 ? xmalloc((size_t)n) : NULL;

		n = n > 0 ? lib.ssh_channel_read_nonblocking(c->raw, bytes, (uint32_t)n, 0) : n;
		if (n > 0 && !c->ended)
			(void)buf_add(&c->input, bytes, (size_t)n);
		c->held = n > 0 && lib.ssh_channel_poll(c->raw, 0) > 0; /* more may have come in between */
		feed(c);
	}
}

bool chan_could_go_on(const struct chan *c)
{
	return !c->over && ((c->blocked && !writes_still(c)) || (c->held && !c->input.len));
}

static void on_stdin_room(void *ctx)
{
	struct chan *c = ctx;

	feed(c);
	if (c->held)
		peer_settle(c->peer);
}

static void on_eof(ssh_session session, ssh_channel raw, void *ctx)
{
	struct chan *c = ctx;

	(void)session, (void)raw;
	c->eof = true;
	feed(c);
}

static void on_close(ssh_session session, ssh_channel raw, void *ctx)
{
	struct chan *c = ctx;

	(void)session, (void)raw;
	c->over = true;
}

/* --- what is asked of it --- */

static void on_started(void *ctx, const struct err *e, const struct run_view *v)
{
	static const struct follower_events events = { .on_output = on_output, .on_stdin_room = on_stdin_room, .on_end = on_end };
	struct chan *c = ctx;
	struct peer *p = c->peer;
	struct err why;

	if (!e) {
		c->run = xstrdup(v->id);
		c->follower = api_run_follow(p->server->api, &p->caller, p->sandbox, c->run, 0, 0, &events, c, &why);
		e = c->follower ? NULL : &why;
	}
	if (e) {
		say(c, e->message);
		say(c, "\r\n");
		c->ended = true;
		c->exit_code = 255;
	} else {
		feed(c);
	}
	peer_settle(p);
}

/* One command a channel, as the protocol says. */
static int start(struct chan *c)
{
	struct peer *p = c->peer;

	if (c->asked)
		return -1;
	c->asked = true;
	c->spec.stdin_open = true;
	c->spec.detach = true;
	c->spec.output_max = c->spec.pty ? RUN_OUTPUT_MAX_MAX : 0;
	api_run_start(p->server->api, &p->caller, p->sandbox, &c->spec, on_started, c);
	return 0;
}

static int on_shell(ssh_session session, ssh_channel raw, void *ctx)
{
	/* What a person would get: her shell, else bash, else sh; never one that only says no. */
	static const char interactive[] = "for s in \"$SHELL\" /bin/bash /bin/sh; do case $s in ''|*/nologin|*/false) ;; *) [ -x \"$s\" ] && "
					  "exec \"$s\" -l ;; esac; done; exit 127";
	struct chan *c = ctx;

	(void)session, (void)raw;
	if (c->asked)
		return -1;
	c->spec.argv = xcalloc(4, sizeof(char *));
	c->spec.argv[0] = xstrdup("/bin/sh");
	c->spec.argv[1] = xstrdup("-c");
	c->spec.argv[2] = xstrdup(interactive);
	return start(c);
}

static int on_exec(ssh_session session, ssh_channel raw, const char *command, void *ctx)
{
	struct chan *c = ctx;

	(void)session, (void)raw;
	if (c->asked || strlen(command) > RUN_SCRIPT_MAX || !utf8_valid(str_of(command)))
		return -1;
	c->spec.shell = xstrdup(command);
	return start(c);
}

static int on_subsystem(ssh_session session, ssh_channel raw, const char *name, void *ctx)
{
	struct chan *c = ctx;

	(void)session, (void)raw;
	if (c->asked || !streq(name, "sftp"))
		return -1;
	c->spec.argv = xcalloc(2, sizeof(char *));
	c->spec.argv[0] = xstrdup(GUEST_ARGV0_SFTP);
	c->spec.display = xstrdup("sftp");
	return start(c);
}

static uint16_t cells(int n)
{
	return (uint16_t)MIN(MAX(n, 1), 1000);
}

static int on_pty(ssh_session session, ssh_channel raw, const char *term, int width, int height, int pxwidth, int pxheight, void *ctx)
{
	struct chan *c = ctx;

	(void)session, (void)raw, (void)pxwidth, (void)pxheight;
	if (c->asked)
		return -1;
	c->spec.pty = true;
	c->spec.cols = cells(width);
	c->spec.rows = cells(height);
	if (strlen(term) < 64 && utf8_valid(str_of(term)))
		pairs_add(&c->spec.env, "TERM", *term ? term : "xterm-256color");
	return 0;
}

static int on_resize(ssh_session session, ssh_channel raw, int width, int height, int pxwidth, int pxheight, void *ctx)
{
	struct chan *c = ctx;
	struct peer *p = c->peer;
	struct err e;

	(void)session, (void)raw, (void)pxwidth, (void)pxheight;
	c->spec.cols = cells(width);
	c->spec.rows = cells(height);
	if (c->run)
		(void)api_run_resize(p->server->api, &p->caller, p->sandbox, c->run, c->spec.rows, c->spec.cols, &e);
	return 0;
}

static int on_env(ssh_session session, ssh_channel raw, const char *name, const char *value, void *ctx)
{
	struct chan *c = ctx;

	(void)session, (void)raw;
	if (c->asked || c->spec.env.n >= ENV_MAX || !env_name_valid(str_of(name)) || strlen(value) > 4096 || !utf8_valid(str_of(value)))
		return -1;
	pairs_add(&c->spec.env, name, value);
	return 0;
}

static void on_signal(ssh_session session, ssh_channel raw, const char *name, void *ctx)
{
	static const struct {
		const char *name;
		int signo;
	} names[] = { { "HUP", SIGHUP }, { "INT", SIGINT }, { "KILL", SIGKILL }, { "QUIT", SIGQUIT }, { "TERM", SIGTERM }, { "USR1", SIGUSR1 }, { "USR2", SIGUSR2 } };
	struct chan *c = ctx;
	struct peer *p = c->peer;
	struct err e;

	(void)session, (void)raw;
	for (size_t i = 0; i < ARRAY_LEN(names) && c->run; i++)
		if (streq(names[i].name, name))
			(void)api_run_signal(p->server->api, &p->caller, p->sandbox, c->run, names[i].signo, false, &e);
}

/* --- life --- */

ssh_channel chan_open(struct peer *p)
{
	struct chan *c = xcalloc(1, sizeof *c);

	c->peer = p;
	c->raw = lib.ssh_channel_new(p->session);
	if (!c->raw) {
		free(c);
		return NULL;
	}
	run_spec_init(&c->spec);
	buf_init(&c->input, INPUT_MAX + AHEAD_MAX);
	for (size_t i = 0; i < ARRAY_LEN(c->out); i++)
		buf_init(&c->out[i], OUT_MAX);
	c->events = (struct ssh_channel_callbacks_struct){
		.userdata = c,
		.channel_data_function = on_data,
		.channel_eof_function = on_eof,
		.channel_close_function = on_close,
		.channel_signal_function = on_signal,
		.channel_pty_request_function = on_pty,
		.channel_shell_request_function = on_shell,
		.channel_pty_window_change_function = on_resize,
		.channel_exec_request_function = on_exec,
		.channel_env_request_function = on_env,
		.channel_subsystem_request_function = on_subsystem,
	};
	ssh_callbacks_init(&c->events);
	(void)lib.ssh_set_channel_callbacks(c->raw, &c->events);
	c->next = p->channels;
	p->channels = c;
	p->n_channels++;
	return c->raw;
}

void chan_free(struct chan *c)
{
	struct peer *p = c->peer;
	struct err e;

	api_forget(p->server->api, c);
	if (c->follower)
		follower_free(c->follower);
	/* As a terminal does that is hung up, only more thoroughly: nobody would ever see it again. */
	if (c->run && !c->ended)
		(void)api_run_cancel(p->server->api, &p->caller, p->sandbox, c->run, &e);
	(void)lib.ssh_remove_channel_callbacks(c->raw, &c->events);
	lib.ssh_channel_free(c->raw);
	buf_done(&c->input);
	for (size_t i = 0; i < ARRAY_LEN(c->out); i++)
		buf_done(&c->out[i]);
	run_spec_done(&c->spec);
	free(c->run);
	free(c);
	p->n_channels--;
}
