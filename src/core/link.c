/* Theory of operation. The pump (link_pump.c) turns the descriptor into frames; this file keeps, per run, what the guest may
 * legally say next, and checks it: output comes at exactly the next offset and never further than a window beyond what
 * was acknowledged; totals at the end are the bytes that came. Whatever does not fit closes this link and nothing else.
 *
 * OPENING (hello sent) -> OPEN (the guest's READY came) -> CLOSED (on_closed is being or was called). While the pump winds
 * down the state stays, but link_pump() is NULL and nothing more is sent. */
#include "base/log.h"
#include "core/link_int.h"
#include "model/permission.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

enum { ACK_EVERY = GUEST_WINDOW / 8, TOLD_LATE_MS = 50 };

enum link_state { LINK_OPENING, LINK_OPEN, LINK_CLOSED };

struct stream {
	uint64_t next;          /* offset of the byte that comes next */
	uint64_t acked, told;   /* acknowledged by core; told to the guest */
};

struct link_run {
	uint64_t id;
	struct stream out[2];
	uint64_t stdin_sent, stdin_limit;
	bool attaching;         /* the next ROOM says where stdin stands */
	bool ended;
	UT_hash_handle hh;
};

struct reply {
	uint64_t serial;
	link_reply_fn fn;
	void *ctx;
	bool refused;
	struct reply *next;
};

struct deferral {
	uv_timer_t timer;
	struct link *link; /* NULL: freed meanwhile */
};

struct link {
	uv_loop_t *loop;
	struct pump *pump;       /* NULL when CLOSED */
	enum link_state state;
	const struct link_events *ev;
	void *ctx;
	struct link_run *runs;
	struct link_op *ops;
	struct reply *replies;
	struct deferral *deferral;
	uint64_t *refused;       /* runs that could not be asked for */
	size_t refused_n;
	uint64_t next_op, next_serial;
	bool released_early;     /* frames of a forgotten run may be under way */
	size_t told;             /* link_tell_time: answers that are still to come */
	uint64_t heard;          /* frames */
	uint64_t told_ms;        /* the last of them */
};

struct pump *link_pump(struct link *l)
{
	return l->pump && pump_is_open(l->pump) ? l->pump : NULL;
}

uv_loop_t *link_loop(struct link *l)
{
	return l->loop;
}

bool link_is_open(const struct link *l)
{
	return l->pump && pump_is_open(l->pump);
}

/* --- what ends without the guest --- */

static const struct err *refusal(struct link *l, struct err *e)
{
	if (link_pump(l))
		err_set(e, ERR_TOO_LARGE, E2BIG, "the request is too long");
	else
		err_set(e, ERR_UNAVAILABLE, EPIPE, "there is no connection to the sandbox's guest");
	return e;
}

/* Callbacks may add and remove ops and replies, so each search starts again. */
static struct link_op *refused_op(struct link *l, uint64_t before)
{
	for (struct link_op *op = l->ops; op; op = op->hh.next)
		if (op->refused && op->id < before)
			return op;
	return NULL;
}

static struct reply *take_reply(struct link *l, uint64_t serial, bool refused)
{
	for (struct reply **at = &l->replies; *at; at = &(*at)->next)
		if (refused ? (*at)->refused && (*at)->serial < serial : (*at)->serial == serial) {
			struct reply *r = *at;
			*at = r->next;
			return r;
		}
	return NULL;
}

static void end_refused(struct link *l, const struct err *e)
{
	uint64_t ops = l->next_op, replies = l->next_serial; /* what is asked for meanwhile waits for the next time */

	for (struct link_op *op; (op = refused_op(l, ops));)
		op_end(op, e);
	for (struct reply *r; (r = take_reply(l, replies, true));) {
		r->fn(r->ctx, e);
		free(r);
	}
}

static void on_timer_closed(uv_handle_t *h)
{
	free(h->data);
}

static void on_deferred(uv_timer_t *t)
{
	struct deferral *d = t->data;
	struct link *l = d->link;
	struct err e;

	if (!l)
		return;
	l->deferral = NULL;
	uv_close((uv_handle_t *)t, on_timer_closed);
	uint64_t *runs = take_ptr(&l->refused);
	size_t n = l->refused_n;
	l->refused_n = 0;
	for (size_t i = 0; i < n && link_pump(l); i++) {
		struct link_run_end end = { .failed = true, .errnum = E2BIG, .message = "the command is too long" };
		l->ev->on_run_end(l->ctx, runs[i], &end);
	}
	free(runs);
	end_refused(l, refusal(l, &e));
}

void link_defer(struct link *l)
{
	if (l->deferral)
		return;
	struct deferral *d = xcalloc(1, sizeof *d);
	d->link = l;
	d->timer.data = d;
	uv_timer_init(l->loop, &d->timer);
	uv_timer_start(&d->timer, on_deferred, 0, 0);
	l->deferral = d;
}

/* --- life --- */

static int take_setup_done(struct link *l, const struct guest_frame *f)
{
	struct guest_result g;

	if (l->told == 0 || guest_result_get(f->payload, &g) < 0)
		return -EPROTO;
	l->told--;
	if (g.kind)
		log_warn("msg=\"a guest could not be told the time: %s\"", str_quote(g.text, &(struct quoted){ 0 }));
	else if (l->told == 0 && now_ms() - l->told_ms > TOLD_LATE_MS && l->ev->on_told_late)
		l->ev->on_told_late(l->ctx);
	return 0;
}

static int on_frame(void *ctx, const struct guest_frame *f, struct str message);

static void on_pump_closed(void *ctx, const struct err *why)
{
	struct link *l = ctx;
	struct err e = *why;

	l->pump = NULL;
	l->state = LINK_CLOSED;
	for (struct link_op *op = l->ops; op; op = op->hh.next)
		op->refused = true;
	for (struct reply *r = l->replies; r; r = r->next)
		r->refused = true;
	end_refused(l, &e);
	if (l->ev->on_closed)
		l->ev->on_closed(l->ctx, &e); /* may free l */
}

struct link *link_new(uv_loop_t *loop, int fd, const struct link_events *ev, void *ctx)
{
	static const struct pump_events events = { on_frame, on_pump_closed };
	static const char version[4] = { GUEST_VERSION };
	struct link *l = xcalloc(1, sizeof *l);

	l->loop = loop;
	l->ev = ev;
	l->ctx = ctx;
	l->next_op = l->next_serial = 1;
	l->pump = pump_new(loop, fd, &events, l);
	if (!l->pump) {
		free(l);
		return NULL;
	}
	if (pump_is_line(l->pump)) {
		/* a line that can't be closed: whatever frame a former daemon left half said is filled up, and a head of zeros is
		 * an error after which the guest waits for a hello */
		char *zeros = buf_reserve(pump_out(l->pump), GUEST_PAYLOAD_MAX + GUEST_HEAD);
		memset(zeros, 0, GUEST_PAYLOAD_MAX + GUEST_HEAD);
		buf_grew(pump_out(l->pump), GUEST_PAYLOAD_MAX + GUEST_HEAD);
	}
	(void)guest_frame_put(pump_out(l->pump), GUEST_HELLO, 0, GUEST_HELLO_ID, (struct str){ version, sizeof version });
	pump_kick(l->pump);
	return l;
}

void link_sweep(struct link *l)
{
	if (link_pump(l) && pump_out(l->pump)->len)
		pump_kick(l->pump);
}

void link_permit(struct link *l, char *const *rules)
{
	auto_buf struct buf b = { 0 };
	struct permit p;
	struct err e;

	buf_init(&b, PERMITS_MAX * (PERMIT_PATH_MAX + 3));
	for (; *rules; rules++)
		if (permission_parse(*rules, &p, &e) < 0 || (p.kind < PERMIT_KIND_END && permit_put(&b, &p) < 0)) {
			link_close(l); /* of a store that was tampered with: not heeding one is no choice */
			return;
		}
	if (!link_pump(l))
		return;
	(void)guest_message_put(pump_out(l->pump), GUEST_PERMIT, 0, buf_str(&b));
	pump_kick(l->pump);
}

void link_set_events(struct link *l, const struct link_events *ev, void *ctx)
{
	l->ev = ev;
	l->ctx = ctx;
}

void link_close(struct link *l)
{
	struct err e;

	if (!l->pump)
		return;
	link_sweep(l);
	err_set(&e, ERR_UNAVAILABLE, ECANCELED, "the connection to the sandbox's guest was closed");
	pump_fail(l->pump, &e);
}

static void forget_run(struct link *l, struct link_run *r)
{
	HASH_DEL(l->runs, r);
	free(r);
}

void link_free(struct link *l)
{
	if (!l)
		return;
	/* Nobody may be left waiting: whoever asked for an op or a session is told. */
	struct err e;
	link_sweep(l);
	if (l->pump)
		pump_drop(take_ptr(&l->pump));
	l->state = LINK_CLOSED;
	err_set(&e, ERR_UNAVAILABLE, ECANCELED, "the sandbox has been stopped or deleted");
	for (struct link_op *op = l->ops; op; op = op->hh.next)
		op->refused = true;
	for (struct reply *r = l->replies; r; r = r->next)
		r->refused = true;
	end_refused(l, &e);
	if (l->deferral) {
		l->deferral->link = NULL;
		uv_close((uv_handle_t *)&l->deferral->timer, on_timer_closed);
	}
	while (l->runs)
		forget_run(l, l->runs);
	while (l->ops) {
		struct link_op *op = l->ops;
		HASH_DEL(l->ops, op);
		if (op->pump)
			pump_drop(op->pump);
		free(op);
	}
	for (struct reply *r; (r = l->replies);) {
		l->replies = r->next;
		free(r);
	}
	free(l->refused);
	free(l);
}

void link_op_add(struct link *l, struct link_op *op)
{
	op->link = l;
	op->id = l->next_op++;
	HASH_ADD(hh, l->ops, id, sizeof op->id, op);
}

void link_op_remove(struct link *l, struct link_op *op)
{
	HASH_DEL(l->ops, op);
}

/* --- runs: to the guest --- */

static struct link_run *find_run(const struct link *l, uint64_t id)
{
	struct link_run *r;

	HASH_FIND(hh, l->runs, &id, sizeof id, r);
	return r;
}

static struct link_run *add_run(struct link *l, uint64_t id)
{
	struct link_run *r = find_run(l, id);

	if (!r) {
		r = xcalloc(1, sizeof *r);
		r->id = id;
		HASH_ADD(hh, l->runs, id, sizeof r->id, r);
	}
	return r;
}

/* The environment as the guest wants it: one string each. */
static char **env_strings(const struct pairs *env, size_t *ret_n)
{
	size_t n = env ? env->n : 0;
	char **v = xcalloc(n + 1, sizeof *v);

	for (size_t i = 0; i < n; i++)
		v[i] = xasprintf("%s=%s", env->v[i].key, env->v[i].value);
	*ret_n = n;
	return v;
}

static void free_strings(char **v)
{
	for (size_t i = 0; v[i]; i++)
		free(v[i]);
	free(v);
}

void link_run_start(struct link *l, uint64_t run, const struct link_run_spec *spec)
{
	struct pump *p = link_pump(l);
	size_t argc = 0, envc;

	if (!p)
		return;
	while (spec->argv[argc])
		argc++;
	char **env = env_strings(spec->env, &envc);
	struct guest_run_request req = {
		.argv = (const char **)(uintptr_t)spec->argv,
		.argc = argc,
		.env = (const char **)(void *)env,
		.envc = envc,
		.cwd = spec->cwd,
		.user = spec->user,
		.session = spec->session,
		.script_suffix = spec->script_suffix,
		.script = spec->script,
		.stdin_bytes = spec->stdin_bytes,
		.flags = (spec->stdin_open ? GUEST_RUN_STDIN_OPEN : 0u) | (spec->pty ? GUEST_RUN_PTY : 0u) |
		         (spec->merge_stderr ? GUEST_RUN_MERGE : 0u),
		.rows = spec->rows,
		.cols = spec->cols,
		.timeout_ms = spec->timeout_ms,
	};
	if (guest_run_request_put(pump_out(p), GUEST_RUN_START, run, &req) == 0) {
		struct link_run *r = add_run(l, run);
		r->stdin_limit = spec->stdin_open ? GUEST_STDIN_WINDOW : 0;
	} else {
		l->refused = xreallocarray(l->refused, l->refused_n + 1, sizeof *l->refused);
		l->refused[l->refused_n++] = run;
		link_defer(l);
	}
	free_strings(env);
	pump_kick(p);
}

static void send_plain(struct link *l, uint8_t type, uint8_t channel, uint64_t run, const void *payload, size_t n)
{
	struct pump *p = link_pump(l);

	if (!p)
		return;
	(void)guest_frame_put(pump_out(p), type, channel, run, (struct str){ payload, n });
	pump_kick(p);
}

void link_run_take(struct link *l, uint64_t run, uint64_t timeout_ms)
{
	send_plain(l, GUEST_RUN_TAKE, 0, run, &timeout_ms, sizeof timeout_ms);
}

void link_run_attach(struct link *l, uint64_t run, uint64_t stdout_offset, uint64_t stderr_offset)
{
	uint64_t offsets[2] = { stdout_offset, stderr_offset };

	if (!link_pump(l))
		return;
	struct link_run *r = add_run(l, run);
	for (int i = 0; i < 2; i++)
		r->out[i] = (struct stream){ offsets[i], offsets[i], 0 };
	r->attaching = true;
	r->ended = false;
	send_plain(l, GUEST_RUN_ATTACH, 0, run, offsets, sizeof offsets);
}

void link_run_ack(struct link *l, uint64_t run, int stream, uint64_t offset)
{
	struct link_run *r = find_run(l, run);

	if (!r || (stream != LINK_STDOUT && stream != LINK_STDERR))
		return;
	struct stream *s = &r->out[stream - 1];
	if (offset <= s->acked || offset > s->next)
		return;
	s->acked = offset;
	/* an ended run is about to be released, so only what makes room matters */
	if (!r->ended && s->acked - s->told >= ACK_EVERY) {
		s->told = s->acked;
		send_plain(l, GUEST_RUN_ACK, (uint8_t)stream, run, &s->told, sizeof s->told);
	}
}

void link_run_release(struct link *l, uint64_t run)
{
	struct link_run *r = find_run(l, run);
	bool ended = r && r->ended;

	l->released_early |= r && !ended;
	if (r)
		forget_run(l, r);
	if (!ended)
		send_plain(l, GUEST_RUN_RELEASE, 0, run, NULL, 0);
	else if (link_pump(l)) /* nothing waits for that, and waking the guest takes time from whoever does wait */
		(void)guest_frame_put(pump_out(l->pump), GUEST_RUN_RELEASE, 0, run, (struct str){ NULL, 0 });
}

size_t link_run_stdin_room(const struct link *l, uint64_t run)
{
	const struct link_run *r = find_run(l, run);

	return r && !r->ended && link_is_open(l) ? (size_t)(r->stdin_limit - r->stdin_sent) : 0;
}

int link_run_stdin(struct link *l, uint64_t run, struct str bytes)
{
	struct link_run *r = find_run(l, run);
	struct pump *p = link_pump(l);

	if (!r || r->ended || !p)
		return -ENOENT;
	if (bytes.n > r->stdin_limit - r->stdin_sent)
		return -EAGAIN;
	r->stdin_sent += bytes.n;
	pump_send(p, GUEST_RUN_STDIN, run, bytes);
	return 0;
}

void link_run_stdin_eof(struct link *l, uint64_t run)
{
	struct link_run *r = find_run(l, run);

	if (r)
		r->stdin_limit = r->stdin_sent;
	send_plain(l, GUEST_RUN_STDIN_EOF, 0, run, NULL, 0);
}

void link_run_signal(struct link *l, uint64_t run, int signo, bool tree)
{
	uint32_t v = (uint32_t)signo;

	if (signo > 0 && signo <= 64)
		send_plain(l, GUEST_RUN_SIGNAL, tree, run, &v, sizeof v);
}

void link_run_cancel(struct link *l, uint64_t run)
{
	send_plain(l, GUEST_RUN_CANCEL, 0, run, NULL, 0);
}

void link_run_resize(struct link *l, uint64_t run, uint16_t rows, uint16_t cols)
{
	uint16_t v[2] = { rows, cols };

	send_plain(l, GUEST_RUN_RESIZE, 0, run, v, sizeof v);
}

void link_answer(struct link *l, uint64_t ask, bool allowed)
{
	send_plain(l, GUEST_ANSWER, 0, ask, &(char){ allowed }, 1);
}

/* --- sessions --- */

static void session_request(struct link *l, uint8_t type, const struct guest_run_request *req, link_reply_fn done, void *ctx)
{
	struct pump *p = link_pump(l);
	struct reply *r = xcalloc(1, sizeof *r);

	r->serial = l->next_serial++;
	r->fn = done;
	r->ctx = ctx;
	r->next = l->replies;
	l->replies = r;
	r->refused = !p || guest_run_request_put(pump_out(p), type, r->serial, req) < 0;
	if (p)
		pump_kick(p);
	if (r->refused)
		link_defer(l);
}

void link_session_open(struct link *l, const struct link_session_spec *spec, link_reply_fn done, void *ctx)
{
	size_t n;
	char **env = env_strings(spec->env, &n);
	struct guest_run_request req = { .env = (const char **)(void *)env, .envc = n, .cwd = spec->cwd, .user = spec->user, .session = spec->id };

	session_request(l, GUEST_SESSION_OPEN, &req, done, ctx);
	free_strings(env);
}

void link_session_close(struct link *l, const char *id, link_reply_fn done, void *ctx)
{
	struct guest_run_request req = { .session = id };

	session_request(l, GUEST_SESSION_CLOSE, &req, done, ctx);
}

bool link_is_waited_for(const struct link *l)
{
	return l->ops || l->replies;
}

bool link_is_asked(const struct link *l, uint64_t *ret_heard)
{
	*ret_heard = l->heard;
	return l->told > 0;
}

void link_tell_time(struct link *l, const char *hostname)
{
	struct guest_setup s = { .hostname = hostname };
	struct timespec now;

	if (l->state != LINK_OPEN || !link_is_open(l))
		return;
	l->told_ms = now_ms();
	clock_gettime(CLOCK_REALTIME, &now);
	s.time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	(void)guest_setup_put(pump_out(l->pump), l->next_serial++, &s);
	l->told++;
	pump_kick(l->pump);
}

/* --- from the guest --- */

static int take_ready(struct link *l, const struct guest_frame *f, struct str message)
{
	struct guest_known_run *known;
	size_t n;

	if (f->id != GUEST_HELLO_ID)
		return -EPROTO;
	int r = guest_ready_get(message, &known, &n);
	if (r < 0)
		return r;
	l->state = LINK_OPEN;
	struct link_run_state *runs = xcalloc(n, sizeof *runs);
	for (size_t i = 0; i < n; i++)
		runs[i] = (struct link_run_state){ known[i].run, known[i].ended };
	free(known);
	if (l->ev->on_hello)
		l->ev->on_hello(l->ctx, runs, n);
	free(runs);
	return 0;
}

static int take_output(struct link *l, struct link_run *r, const struct guest_frame *f)
{
	if (f->payload.n < 9 || (f->channel != GUEST_STDOUT && f->channel != GUEST_STDERR))
		return -EPROTO;
	struct stream *s = &r->out[f->channel - 1];
	uint64_t offset = guest_u64(f->payload.p);
	struct str bytes = { f->payload.p + 8, f->payload.n - 8 };
	if (offset != s->next || s->next + bytes.n - s->acked > GUEST_WINDOW)
		return -EPROTO;
	s->next += bytes.n;
	if (l->ev->on_run_output)
		l->ev->on_run_output(l->ctx, r->id, f->channel, offset, bytes);
	return 0;
}

static int take_room(struct link *l, struct link_run *r, struct str payload)
{
	if (payload.n != 16)
		return -EPROTO;
	uint64_t received = guest_u64(payload.p), limit = guest_u64(payload.p + 8);
	if (received > limit || limit - received > GUEST_STDIN_WINDOW)
		return -EPROTO;
	bool attached = r->attaching;
	if (attached) {
		r->attaching = false;
		r->stdin_sent = received;
		r->stdin_limit = received;
	} else if (received > r->stdin_sent || limit < r->stdin_sent || limit - r->stdin_sent > GUEST_STDIN_WINDOW) {
		return -EPROTO;
	}
	bool had_none = r->stdin_limit == r->stdin_sent;
	r->stdin_limit = limit;
	if ((attached || (had_none && limit > r->stdin_sent)) && l->ev->on_run_stdin_room)
		l->ev->on_run_stdin_room(l->ctx, r->id);
	return 0;
}

static int take_run_end(struct link *l, struct link_run *r, struct str payload)
{
	struct guest_run_end g;

	if (guest_run_end_get(payload, &g) < 0)
		return -EPROTO;
	bool failed = g.flags & GUEST_END_FAILED;
	if (!failed && (g.bytes[0] != r->out[0].next || g.bytes[1] != r->out[1].next))
		return -EPROTO;
	struct link_run_end end = {
		.exit_code = g.exit_code,
		.signal = (int)g.signal,
		.timed_out = g.flags & GUEST_END_TIMED_OUT,
		.canceled = g.flags & GUEST_END_CANCELED,
		.oom = g.flags & GUEST_END_OOM,
		.failed = failed,
		.errnum = (int)g.errnum,
		.stdout_bytes = r->out[0].next,
		.stderr_bytes = r->out[1].next,
		.duration_ms = g.duration_ms,
		.session_ended = g.flags & GUEST_END_SESSION,
	};
	clean_text(g.message, end.message, sizeof end.message);
	r->ended = true;
	if (l->ev->on_run_end)
		l->ev->on_run_end(l->ctx, r->id, &end);
	return 0;
}

static int take_run_frame(struct link *l, const struct guest_frame *f)
{
	struct link_run *r = find_run(l, f->id);

	if (!r)
		return l->released_early ? 0 : -EPROTO;
	if (r->ended)
		return -EPROTO;
	switch (f->type) {
	case GUEST_RUN_STARTED:
		if (f->payload.n)
			return -EPROTO;
		if (l->ev->on_run_started)
			l->ev->on_run_started(l->ctx, f->id);
		return 0;
	case GUEST_RUN_OUTPUT:
		return take_output(l, r, f);
	case GUEST_RUN_ROOM:
		return take_room(l, r, f->payload);
	default:
		return take_run_end(l, r, f->payload);
	}
}

static int take_session_reply(struct link *l, const struct guest_frame *f)
{
	struct guest_result g;
	struct reply *r = NULL;
	struct err e;

	if (guest_result_get(f->payload, &g) < 0 || !(r = take_reply(l, f->id, false)))
		return -EPROTO;
	e.kind = g.kind < ERR_KIND_COUNT ? (enum err_kind)g.kind : ERR_INTERNAL;
	e.errnum = (int)g.errnum;
	clean_text(g.text, e.message, sizeof e.message);
	r->fn(r->ctx, g.kind == ERR_NONE ? NULL : &e);
	free(r);
	return 0;
}

static int take_session_end(struct link *l, struct str payload)
{
	int32_t code;
	const char *id;

	if (guest_session_end_get(payload, &code, &id) < 0)
		return -EPROTO;
	if (l->ev->on_session_end)
		l->ev->on_session_end(l->ctx, id, code);
	return 0;
}

static int take_verdict(struct link *l, const struct guest_frame *f)
{
	struct guest_verdict v;

	if (guest_verdict_get(f->payload, &v) < 0 || f->channel >= GUEST_HOW_END)
		return -EPROTO;
	if (l->ev->on_verdict)
		l->ev->on_verdict(l->ctx, f->id, f->channel, &v);
	return 0;
}

static int take_ask(struct link *l, const struct guest_frame *f)
{
	struct guest_ask a;

	if (f->type == GUEST_ASK && guest_ask_get(f->payload, &a) < 0)
		return -EPROTO;
	if (f->type == GUEST_ASK && l->ev->on_ask)
		l->ev->on_ask(l->ctx, f->id, &a);
	if (f->type == GUEST_ASK_END && l->ev->on_ask_end)
		l->ev->on_ask_end(l->ctx, f->id);
	return 0;
}

static int on_frame(void *ctx, const struct guest_frame *f, struct str message)
{
	struct link *l = ctx;

	l->heard++;
	if (l->state == LINK_OPENING)
		return f->type == GUEST_READY ? take_ready(l, f, message) : -EPROTO;
	if (f->type >= GUEST_RUN_STARTED && f->type <= GUEST_RUN_END)
		return take_run_frame(l, f);
	if (f->type == GUEST_SESSION_REPLY)
		return take_session_reply(l, f);
	if (f->type == GUEST_SESSION_END)
		return take_session_end(l, f->payload);
	if (f->type == GUEST_SETUP_DONE)
		return take_setup_done(l, f);
	if (f->type == GUEST_VERDICT)
		return take_verdict(l, f);
	if (f->type == GUEST_ASK || f->type == GUEST_ASK_END)
		return take_ask(l, f);
	if (!op_frame_type(f->type))
		return -EPROTO;
	struct link_op *op;
	HASH_FIND(hh, l->ops, &f->id, sizeof f->id, op);
	if (!op || op->pump) /* cancelled while it was under way */
		return f->id < l->next_op ? 0 : -EPROTO;
	return op_frame(op, f);
}
