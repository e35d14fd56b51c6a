/* The guest protocol, both ways. The first byte says which: 'd' = bytes of the daemon, through the codec as the guest uses it
 * (what is accepted must survive being said again); else bytes of a hostile guest, through a live link with things under
 * way, whose promises to core are checked. */
#include "core/link.h"
#include "wire/guest.h"
#include "wire/permit.h"

#include <assert.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* --- what the daemon says --- */

static bool same(const char *a, const char *b)
{
	return streq(a, b);
}

static struct str again(struct guest_assembly *a, const struct buf *b)
{
	struct str in = buf_str(b), message = { NULL, 0 };
	struct guest_frame f;
	ssize_t n;

	while ((n = guest_frame_next(in, &f)) > 0) {
		assert(guest_assembly_feed(a, &f, &message) >= 0);
		in.p += n;
		in.n -= (size_t)n;
	}
	assert(n == 0 && in.n == 0);
	return message;
}

static void check_run(const struct guest_frame *f, struct str m)
{
	struct guest_run_request r, r2;
	struct guest_assembly a;
	auto_buf struct buf b;

	buf_init(&b, 2 * GUEST_MESSAGE_MAX);
	if (guest_run_request_get(m, &r) < 0)
		return;
	guest_assembly_init(&a);
	assert(guest_run_request_put(&b, f->type, f->id, &r) == 0);
	assert(guest_run_request_get(again(&a, &b), &r2) == 0);
	assert(r.argc == r2.argc && r.envc == r2.envc && r.flags == r2.flags && r.timeout_ms == r2.timeout_ms);
	for (size_t i = 0; i < r.argc; i++)
		assert(same(r.argv[i], r2.argv[i]));
	for (size_t i = 0; i < r.envc; i++)
		assert(same(r.env[i], r2.env[i]) && strchr(r.env[i], '='));
	assert(same(r.cwd, r2.cwd) && same(r.user, r2.user) && same(r.session, r2.session) && same(r.script_suffix, r2.script_suffix));
	assert(!r.script_suffix || !strchr(r.script_suffix, '/'));
	assert(str_eq(r.script, r2.script) && str_eq(r.stdin_bytes, r2.stdin_bytes));
	guest_run_request_done(&r);
	guest_run_request_done(&r2);
	guest_assembly_done(&a);
}

static void check_op(const struct guest_frame *f, struct str m)
{
	struct guest_op_request r, r2;
	struct guest_assembly a;
	auto_buf struct buf b;

	buf_init(&b, 2 * GUEST_MESSAGE_MAX);
	if (guest_op_request_get(m, &r) < 0)
		return;
	assert(r.kind < GUEST_OP_COUNT && r.mode <= 07777);
	guest_assembly_init(&a);
	assert(guest_op_request_put(&b, f->id, &r) == 0);
	assert(guest_op_request_get(again(&a, &b), &r2) == 0);
	assert(r.kind == r2.kind && r.flags == r2.flags && r.offset == r2.offset && r.length == r2.length && r.port == r2.port);
	assert(same(r.path, r2.path) && same(r.path2, r2.path2) && same(r.pattern, r2.pattern) && same(r.text, r2.text));
	guest_assembly_done(&a);
}

static void check_setup(const struct guest_frame *f, struct str m)
{
	struct guest_setup s, s2;
	struct guest_assembly a;
	auto_buf struct buf b;

	buf_init(&b, 2 * GUEST_MESSAGE_MAX);
	if (guest_setup_get(m, &s) < 0)
		return;
	assert(!s.seed.p || (s.seed.n >= GUEST_SEED_MIN && s.seed.n <= GUEST_SEED_MAX));
	assert(!s.hostname || (s.hostname[0] && strlen(s.hostname) < 64));
	assert(!s.machine_id || strlen(s.machine_id) == 32);
	guest_assembly_init(&a);
	assert(guest_setup_put(&b, f->id, &s) == 0);
	assert(guest_setup_get(again(&a, &b), &s2) == 0);
	assert(s.time_ns == s2.time_ns && s.pids == s2.pids && s.sudo == s2.sudo && s.envc == s2.envc && str_eq(s.seed, s2.seed));
	for (size_t i = 0; i < s.envc; i++)
		assert(same(s.env[i], s2.env[i]) && strchr(s.env[i], '='));
	assert(same(s.hostname, s2.hostname) && same(s.machine_id, s2.machine_id) && same(s.user, s2.user) && same(s.workdir, s2.workdir));
	guest_setup_done(&s);
	guest_setup_done(&s2);
	guest_assembly_done(&a);
}

/* What is taken is said again byte for byte. */
static void check_permit(struct str m)
{
	struct permit p;
	const char *begin = m.p;
	struct buf again;

	buf_init(&again, GUEST_MESSAGE_MAX);
	while (permit_next(&m, &p) > 0)
		assert(p.path[0] == '/' && permit_put(&again, &p) == 0);
	assert(again.len == (size_t)(m.p - begin) && (again.len == 0 || memcmp(again.data, begin, again.len) == 0));
	buf_done(&again);
}

static void check_verdict(const struct guest_frame *f)
{
	struct guest_verdict v, again_v;
	struct guest_frame again_f;
	struct buf again;

	if (guest_verdict_get(f->payload, &v) < 0)
		return;
	buf_init(&again, 2 * GUEST_PAYLOAD_MAX);
	if (guest_verdict_put(&again, f->id, GUEST_BY_RULE, &v) == 0) {
		assert(guest_frame_next(buf_str(&again), &again_f) > 0 && guest_verdict_get(again_f.payload, &again_v) == 0);
		assert(again_v.rule == v.rule && again_v.untold == v.untold && strcmp(again_v.path, v.path) == 0);
	}
	buf_done(&again);
}

static void as_the_guest(struct str in)
{
	struct guest_assembly a;
	struct guest_frame f;
	struct str m;
	ssize_t n;

	assert(guest_noise(in, GUEST_HELLO) <= in.n);
	guest_assembly_init(&a);
	while ((n = guest_frame_next(in, &f)) > 0) {
		int got = guest_assembly_feed(&a, &f, &m);
		if (got < 0)
			break;
		if (got == 1 && (f.type == GUEST_RUN_START || f.type == GUEST_SESSION_OPEN || f.type == GUEST_SESSION_CLOSE))
			check_run(&f, m);
		else if (got == 1 && f.type == GUEST_OP_OPEN)
			check_op(&f, m);
		else if (got == 1 && f.type == GUEST_SETUP)
			check_setup(&f, m);
		else if (got == 1 && f.type == GUEST_VERDICT)
			check_verdict(&f);
		else if (got == 1 && f.type == GUEST_PERMIT)
			check_permit(m);
		in.p += n;
		in.n -= (size_t)n;
	}
	guest_assembly_done(&a);
}

/* --- what a guest says --- */

enum { RUNS = 3, OPS = 3 };

struct world {
	struct link *link;
	uint64_t next[RUNS + 1][2];
	bool run_ended[RUNS + 1], op_ended[OPS], replied, hello, closed;
	struct {
		struct world *w;
		int i;
	} ops[OPS];
};

static void on_hello(void *ctx, const struct link_run_state *runs, size_t n)
{
	struct world *w = ctx;

	assert(!w->hello && !w->closed && (runs || n == 0));
	w->hello = true;
}

static void on_run_started(void *ctx, uint64_t run)
{
	struct world *w = ctx;

	assert(run >= 1 && run <= RUNS && !w->run_ended[run] && !w->closed);
}

static void on_run_output(void *ctx, uint64_t run, int stream, uint64_t offset, struct str bytes)
{
	struct world *w = ctx;

	assert(run >= 1 && run <= RUNS && (stream == 1 || stream == 2) && !w->run_ended[run] && bytes.n && !w->closed);
	assert(offset == w->next[run][stream - 1]);
	w->next[run][stream - 1] += bytes.n;
	if (run == 1)
		link_run_ack(w->link, run, stream, offset + bytes.n);
	else
		assert(w->next[run][stream - 1] <= (run == 3 ? 100 : 0) + GUEST_WINDOW);
}

static void on_run_stdin_room(void *ctx, uint64_t run)
{
	struct world *w = ctx;

	assert(link_run_stdin_room(w->link, run) > 0 && link_run_stdin_room(w->link, run) <= GUEST_STDIN_WINDOW);
	(void)link_run_stdin(w->link, run, STR("x"));
}

static void on_run_end(void *ctx, uint64_t run, const struct link_run_end *e)
{
	struct world *w = ctx;

	assert(run >= 1 && run <= RUNS && !w->run_ended[run] && !w->closed);
	assert(e->stdout_bytes == w->next[run][0] && e->stderr_bytes == w->next[run][1]);
	assert(utf8_valid(str_of(e->message)) && e->exit_code >= 0 && e->exit_code <= 255);
	w->run_ended[run] = true;
}

static void on_session_end(void *ctx, const char *session, int code)
{
	assert(!((struct world *)ctx)->closed && strlen(session) <= GUEST_SESSION_ID_MAX && code >= 0);
}

static void on_closed(void *ctx, const struct err *why)
{
	struct world *w = ctx;

	assert(!w->closed && why->kind != ERR_NONE && utf8_valid(str_of(why->message)) && w->replied);
	for (int i = 0; i < OPS; i++)
		assert(w->op_ended[i]);
	w->closed = true;
}

static void on_verdict(void *ctx, uint64_t run, unsigned how, const struct guest_verdict *v)
{
	(void)run;
	assert(!((struct world *)ctx)->closed && how <= UINT8_MAX && v->path[0] == '/' && v->kind < PERMIT_KIND_END);
}

static void on_ask(void *ctx, uint64_t id, const struct guest_ask *a)
{
	(void)id;
	assert(!((struct world *)ctx)->closed && a->path[0] == '/' && strlen(a->path) <= PERMIT_PATH_MAX);
}

static void on_ask_end(void *ctx, uint64_t id)
{
	(void)id;
	assert(!((struct world *)ctx)->closed);
}

static void on_told_late(void *ctx)
{
	assert(!((struct world *)ctx)->closed);
}

static void on_reply(void *ctx, const struct err *e)
{
	struct world *w = ctx;

	assert(!w->replied && (!e || e->kind < ERR_KIND_COUNT));
	w->replied = true;
}

static void alive(void *ctx)
{
	struct world *w = ((__typeof__(&((struct world *)0)->ops[0]))ctx)->w;

	assert(!w->op_ended[((__typeof__(&((struct world *)0)->ops[0]))ctx)->i] && !w->closed);
}

static void op_info(void *ctx, const struct file_info *i)
{
	alive(ctx);
	assert(i->path && i->name && i->owner && i->group && i->mode <= 07777 && (unsigned)i->type < GUEST_FILE_TYPES);
}

static void op_match(void *ctx, const char *path, uint64_t line, struct str text)
{
	(void)line;
	(void)text;
	alive(ctx);
	assert(path);
}

static void op_values(void *ctx, const struct pairs *v)
{
	alive(ctx);
	for (size_t i = 0; i < v->n; i++)
		assert(v->v[i].key && v->v[i].value);
}

static void op_data(void *ctx, struct str bytes)
{
	alive(ctx);
	assert(bytes.n);
}

static void op_end(void *ctx, const struct err *e)
{
	struct world *w = ((__typeof__(&((struct world *)0)->ops[0]))ctx)->w;

	alive(ctx);
	assert(!e || (e->kind > ERR_NONE && e->kind < ERR_KIND_COUNT && utf8_valid(str_of(e->message))));
	w->op_ended[((__typeof__(&((struct world *)0)->ops[0]))ctx)->i] = true;
}

static void as_the_daemon(struct str in)
{
	static const struct link_events events = {
		.on_hello = on_hello, .on_run_started = on_run_started, .on_run_output = on_run_output, .on_run_stdin_room = on_run_stdin_room,
		.on_run_end = on_run_end, .on_session_end = on_session_end, .on_closed = on_closed,
		.on_verdict = on_verdict, .on_ask = on_ask, .on_ask_end = on_ask_end, .on_told_late = on_told_late,
	};
	static const struct op_events op_events = { op_info, op_match, op_values, alive, op_data, alive, alive, op_end };
	static const char *const argv[] = { "true", NULL };
	struct world w = { 0 };
	uv_loop_t loop;
	int p[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, p) < 0)
		abort();
	uv_loop_init(&loop);
	w.link = link_new(&loop, p[0], &events, &w);
	link_run_start(w.link, 1, &(struct link_run_spec){ .argv = argv, .stdin_open = true });
	link_run_start(w.link, 2, &(struct link_run_spec){ .argv = argv });
	w.next[3][0] = 100;
	link_run_attach(w.link, 3, 100, 0);
	link_session_open(w.link, &(struct link_session_spec){ .id = "s" }, on_reply, &w);
	static const enum op_kind kinds[OPS] = { OP_READ, OP_WRITE, OP_LIST };
	for (int i = 0; i < OPS; i++) {
		w.ops[i].w = &w;
		w.ops[i].i = i;
		(void)link_op_open(w.link, &(struct op_spec){ .kind = kinds[i], .path = "/x" }, &op_events, &w.ops[i]);
	}
	while (in.n && !w.closed) {
		ssize_t n = send(p[1], in.p, in.n, MSG_NOSIGNAL);
		if (n > 0) {
			in.p += n;
			in.n -= (size_t)n;
		}
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	for (int i = 0; i < 3; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	close(p[1]);
	for (int i = 0; i < 1000 && !w.closed; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	assert(w.closed);
	link_free(w.link);
	for (int i = 0; i < 3; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	if (uv_loop_close(&loop) < 0)
		abort(); /* a handle is left */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	struct str in = { (const char *)data + 1, size - 1 };
	if (data[0] == 'd')
		as_the_guest(in);
	else
		as_the_daemon(in);
	return 0;
}
