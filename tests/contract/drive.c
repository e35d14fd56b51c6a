#include "drive.h"

#include <errno.h>
#include <stdio.h>

unsigned drive_patience = 1;

/* --- events --- */

static void on_hello(void *ctx, const struct link_run_state *runs, size_t n)
{
	struct drive *d = ctx;

	d->known_n = MIN(n, ARRAY_LEN(d->known));
	for (size_t i = 0; i < d->known_n; i++)
		d->known[i] = runs[i];
	d->hello = true;
}

static struct got_run *find(struct drive *d, uint64_t id)
{
	struct got_run *r;

	HASH_FIND(hh, d->runs, &id, sizeof id, r);
	if (!r)
		abort(); /* the link invents runs */
	return r;
}

static void on_run_started(void *ctx, uint64_t run)
{
	find(ctx, run)->started = true;
}

static void on_run_output(void *ctx, uint64_t run, int stream, uint64_t offset, struct str bytes)
{
	struct drive *d = ctx;
	struct got_run *r = find(d, run);

	if (offset != r->out[stream - 1].len || buf_add(&r->out[stream - 1], bytes.p, bytes.n) < 0)
		abort(); /* a gap, or more than any test makes */
	if (!r->no_ack)
		link_run_ack(d->link, run, stream, offset + bytes.n);
}

static void on_room(void *ctx, uint64_t run)
{
	find(ctx, run)->room = true;
}

static void on_run_end(void *ctx, uint64_t run, const struct link_run_end *end)
{
	struct drive *d = ctx;
	struct got_run *r = find(d, run);

	r->end = *end;
	r->ended = true;
	r->ended_at = ++d->events;
	d->ended_n++;
}

static void on_session_end(void *ctx, const char *session, int code)
{
	struct drive *d = ctx;

	snprintf(d->session, sizeof d->session, "%s", session);
	d->session_code = code;
	d->session_ended = true;
}

static void on_closed(void *ctx, const struct err *why)
{
	struct drive *d = ctx;

	d->why = *why;
	d->closed = true;
}

static void on_told_late(void *ctx)
{
	struct drive *d = ctx;

	d->told_late++;
}

static const struct link_events events = {
	.on_hello = on_hello,
	.on_run_started = on_run_started,
	.on_run_output = on_run_output,
	.on_run_stdin_room = on_room,
	.on_run_end = on_run_end,
	.on_session_end = on_session_end,
	.on_closed = on_closed,
	.on_told_late = on_told_late,
};

/* --- turning the loop --- */

static void on_time(uv_timer_t *t)
{
	*(bool *)t->data = true;
}

static void turn(struct drive *d, const bool *flag, uint64_t ms)
{
	bool late = false, closed = false;
	uv_timer_t t;

	uv_timer_init(d->loop, &t);
	t.data = &late;
	uv_timer_start(&t, on_time, ms, 10); /* again and again: one that fires before the loop waits would leave it waiting */
	while (!late && !(flag && *flag))
		uv_run(d->loop, UV_RUN_ONCE);
	t.data = &closed;
	uv_close((uv_handle_t *)&t, (uv_close_cb)(void *)on_time);
	while (!closed)
		uv_run(d->loop, UV_RUN_NOWAIT);
}

bool drive_until(struct drive *d, const bool *flag)
{
	if (!*flag)
		turn(d, flag, (uint64_t)DRIVE_PATIENCE_MS * drive_patience);
	return *flag;
}

void drive_for(struct drive *d, uint64_t ms)
{
	turn(d, NULL, ms);
}

void drive_close(uv_loop_t *loop)
{
	uint64_t end = now_ms() + (uint64_t)DRIVE_PATIENCE_MS * drive_patience;

	while (uv_loop_close(loop) == UV_EBUSY && now_ms() < end) {
		(void)uv_run(loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
}

/* --- connections --- */

void drive_init(struct drive *d, uv_loop_t *loop)
{
	memset(d, 0, sizeof *d);
	d->loop = loop;
}

bool drive_connect(struct drive *d, int fd)
{
	struct got_run *r, *next;

	d->hello = d->closed = false;
	d->link = link_new(d->loop, fd, &events, d);
	if (!d->link || !drive_until(d, &d->hello))
		return false;
	HASH_ITER(hh, d->runs, r, next)
		if (!r->ended)
			link_run_attach(d->link, r->id, r->out[0].len, r->out[1].len);
	return true;
}

void drive_disconnect(struct drive *d)
{
	if (!d->link)
		return;
	link_close(d->link);
	drive_until(d, &d->closed);
	link_free(take_ptr(&d->link));
}

void drive_forget(struct drive *d, struct got_run *r)
{
	if (d->link)
		link_run_release(d->link, r->id);
	HASH_DEL(d->runs, r);
	buf_done(&r->out[0]);
	buf_done(&r->out[1]);
	free(r);
}

void drive_done(struct drive *d)
{
	while (d->runs)
		drive_forget(d, d->runs);
	drive_disconnect(d);
	drive_for(d, 1);
}

/* --- runs --- */

struct got_run *drive_start(struct drive *d, const struct link_run_spec *spec)
{
	struct got_run *r = xcalloc(1, sizeof *r);

	r->id = ++d->next_run;
	buf_init(&r->out[0], 128 << 20);
	buf_init(&r->out[1], 128 << 20);
	HASH_ADD(hh, d->runs, id, sizeof r->id, r);
	link_run_start(d->link, r->id, spec);
	return r;
}

struct got_run *drive_run(struct drive *d, const struct link_run_spec *spec)
{
	struct got_run *r = drive_start(d, spec);

	return drive_until(d, &r->ended) ? r : NULL;
}

struct got_run *drive_sh(struct drive *d, const char *script)
{
	const char *argv[] = { "sh", "-c", script, NULL };

	return drive_run(d, &(struct link_run_spec){ .argv = argv });
}

struct got_run *drive_in(struct drive *d, const char *session, const char *command)
{
	const char *argv[] = { command, NULL };

	return drive_run(d, &(struct link_run_spec){ .argv = argv, .session = session });
}

static bool is(const struct buf *b, const char *text)
{
	return str_eqz(buf_str(b), text);
}

bool got_is(const struct got_run *r, int exit_code, const char *out, const char *err)
{
	if (r && r->ended && !r->end.failed && r->end.exit_code == exit_code && is(&r->out[0], out) && (!err || is(&r->out[1], err)))
		return true;
	if (!r)
		fprintf(stderr, "    the run did not end\n");
	else
		fprintf(stderr, "    exit %d signal %d failed %d (%s) stdout [%.300s] stderr [%.300s]\n", r->end.exit_code, r->end.signal,
		        r->end.failed, r->end.message, r->out[0].data ? r->out[0].data : "", r->out[1].data ? r->out[1].data : "");
	return false;
}

/* --- sessions --- */

struct answer {
	bool done, good;
	struct err *err;
};

static void on_answer(void *ctx, const struct err *e)
{
	struct answer *a = ctx;

	a->done = true;
	a->good = !e;
	if (e && a->err)
		*a->err = *e;
}

bool drive_session_open(struct drive *d, const char *id, const char *cwd, struct err *ret)
{
	struct answer a = { .err = ret };

	link_session_open(d->link, &(struct link_session_spec){ .id = id, .cwd = cwd }, on_answer, &a);
	return drive_until(d, &a.done) && a.good;
}

bool drive_session_close(struct drive *d, const char *id, struct err *ret)
{
	struct answer a = { .err = ret };

	link_session_close(d->link, id, on_answer, &a);
	return drive_until(d, &a.done) && a.good;
}

/* --- ops --- */

static void feed(struct got_op *o)
{
	while (o->feed && o->input.n) {
		size_t n = MIN(link_op_room(o->op), o->input.n);
		if (n == 0)
			return;
		if (o->piece)
			n = MIN(n, o->piece);
		if (link_op_write(o->op, (struct str){ o->input.p, n }) < 0)
			abort();
		o->input.p += n;
		o->input.n -= n;
	}
	if (o->feed)
		link_op_eof(o->op);
	o->feed = false;
}

static void op_on_info(void *ctx, const struct file_info *i)
{
	struct got_op *o = ctx;

	if (o->infos_n == ARRAY_LEN(o->infos))
		return;
	struct got_info *g = &o->infos[o->infos_n++];
	snprintf(g->path, sizeof g->path, "%s", i->path);
	snprintf(g->target, sizeof g->target, "%s", i->target ? i->target : "");
	g->type = i->type;
	g->is_dir = i->is_dir;
	g->size = i->size;
	g->mode = i->mode;
}

static void op_on_match(void *ctx, const char *path, uint64_t line, struct str text)
{
	struct got_op *o = ctx;

	if (o->matches_n < ARRAY_LEN(o->matches)) {
		snprintf(o->matches[o->matches_n].path, sizeof o->matches[0].path, "%s", path);
		snprintf(o->matches[o->matches_n].text, sizeof o->matches[0].text, "%.*s", (int)text.n, text.p ? text.p : "");
		o->matches[o->matches_n].line = line;
	}
	o->matches_n++;
}

static void op_on_values(void *ctx, const struct pairs *v)
{
	struct got_op *o = ctx;

	for (size_t i = 0; i < v->n; i++)
		pairs_add(&o->values, v->v[i].key, v->v[i].value);
}

static void op_on_open(void *ctx)
{
	struct got_op *o = ctx;

	o->opened = true;
	feed(o);
}

static void op_on_data(void *ctx, struct str bytes)
{
	struct got_op *o = ctx;

	if (buf_add(&o->data, bytes.p, bytes.n) < 0)
		abort();
	if (o->slow)
		link_op_pause(o->op);
}

static void op_on_data_end(void *ctx)
{
	((struct got_op *)ctx)->data_ended = true;
}

static void op_on_room(void *ctx)
{
	feed(ctx);
}

static void op_on_end(void *ctx, const struct err *e)
{
	struct got_op *o = ctx;

	o->ended = true;
	o->failed = e;
	if (e)
		o->err = *e;
}

static const struct op_events op_events = {
	.on_info = op_on_info,
	.on_match = op_on_match,
	.on_values = op_on_values,
	.on_open = op_on_open,
	.on_data = op_on_data,
	.on_data_end = op_on_data_end,
	.on_room = op_on_room,
	.on_end = op_on_end,
};

static struct got_op *op_new(struct str input)
{
	struct got_op *o = xcalloc(1, sizeof *o);

	o->input = input;
	o->feed = input.p;
	buf_init(&o->data, 256 << 20);
	return o;
}

struct got_op *drive_op_start(struct drive *d, const struct op_spec *spec, struct str input)
{
	struct got_op *o = op_new(input);

	o->op = link_op_open(d->link, spec, &op_events, o);
	return o;
}

struct got_op *drive_op(struct drive *d, const struct op_spec *spec, struct str input)
{
	struct got_op *o = drive_op_start(d, spec, input);

	drive_until(d, &o->ended);
	return o;
}

struct got_op *drive_op_direct_start(struct drive *d, int fd, const struct op_spec *spec, struct str input)
{
	struct got_op *o = op_new(input);

	o->op = link_op_open_direct(d->link, fd, spec, &op_events, o);
	return o;
}

struct got_op *drive_op_direct(struct drive *d, int fd, const struct op_spec *spec, struct str input)
{
	struct got_op *o = drive_op_direct_start(d, fd, spec, input);

	drive_until(d, &o->ended);
	return o;
}

void got_op_free(struct got_op *o)
{
	buf_done(&o->data);
	pairs_done(&o->values);
	free(o);
}

bool op_ok(struct got_op *o)
{
	bool good = o->ended && !o->failed;

	if (!good)
		fprintf(stderr, "    op: ended %d, %s\n", o->ended, o->err.message);
	got_op_free(o);
	return good;
}

int op_errno(struct got_op *o)
{
	int n = o->ended && o->failed ? o->err.errnum : 0;

	got_op_free(o);
	return n;
}
