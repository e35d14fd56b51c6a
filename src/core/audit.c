/* What goes into the audit log: everything that core_emit tells, who asked for it, what sandboxes reached.
 *
 * A line that a caller is told about is written before the caller is told. What a sandbox can cause by itself - connections, questions
 * of names, visitors of its ports - is bounded: so many lines a second for each sandbox and for all of them, and what is over it is
 * counted and said in one line ("network.more") every ten seconds, and before the sandbox's last line.
 *
 * Who asks: the api says it around each call (core_act_as), so what begins within the call carries the key. What happens later, by
 * itself, carries none. */
#include "base/log.h"
#include "core/core_int.h"
#include "model/permission.h"
#include "wire/guest.h"
#include "wire/permit.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include <utlist.h>

#define BOX_RATE   5.0 /* lines a second of a sandbox's own doing */
#define BOX_BURST  100.0
#define ALL_RATE   300.0
#define ALL_BURST  3000.0
enum { MORE_EVERY_MS = 10000, SYNC_WITHIN_MS = 5000, COMMAND_MAX = 512 };

struct more { /* what was not written one by one */
	double tokens, ask_tokens;
	uint64_t at_ms, ask_at_ms, said_ms;
	uint64_t allowed, denied, closed, visits, untold, up_bytes, down_bytes;
};

struct audit_watch {
	struct core *core;
	void (*grown)(void *ctx);
	void *ctx;
	struct audit_watch *prev, *next;
};

struct audit_state {
	struct audit_watch *watches;
	char actor[KEY_ID_SIZE];
	double tokens; /* of what sandboxes cause, all together */
	uint64_t at_ms;
	uint64_t refused, refused_said_ms;
	uint64_t synced_ms, seq_seen;
	bool grown, syncing;
	int sync_fd;
	uv_work_t sync;
};

struct audit_state *audit_state_new(struct core *c)
{
	struct audit_state *st = xcalloc(1, sizeof *st);

	st->sync.data = c;
	st->tokens = ALL_BURST;
	return st;
}

void audit_state_free(struct audit_state *st)
{
	free(st);
}

void core_act_as(struct core *c, const char *key_id)
{
	snprintf(c->audit->actor, sizeof c->audit->actor, "%s", key_id ? key_id : "");
}

/* --- writing --- */

struct audit_line *core_audit_begin(struct core *c, const char *type, const char *tenant, const char *sandbox)
{
	struct audit_line *l = audit_begin(c->o.audit, type, tenant);

	audit_text(l, "sandbox", sandbox);
	audit_text(l, "key", c->audit->actor[0] ? c->audit->actor : NULL);
	return l;
}

void core_audit_end(struct core *c)
{
	(void)audit_end(c->o.audit); /* what is lost is counted there, and said */
	if (c->audit->watches)
		audit_tell_soon(c);
}

void audit_tell_soon(struct core *c)
{
	c->audit->grown = true;
	core_deliver_soon(c);
}

int core_audit_ready(struct core *c, struct err *e)
{
	return audit_ready(c->o.audit, e);
}

static void say_run(struct audit_line *l, const struct run *r, bool ended)
{
	const struct run_row *w = &r->row;

	audit_text(l, "run", r->id);
	if (!ended) {
		char command[COMMAND_MAX];
		snprintf(command, sizeof command, "%s", w->display ? w->display : "");
		audit_text(l, "session", w->session);
		audit_text(l, "command", command);
		audit_flag(l, "pty", w->pty);
		return;
	}
	audit_text(l, "state", run_state_name(w->state));
	audit_u64(l, "exit_code", (uint64_t)w->exit_code);
	if (w->signal)
		audit_u64(l, "signal", (uint64_t)w->signal);
	audit_flag(l, "timed_out", w->timed_out);
	audit_flag(l, "canceled", w->canceled);
	audit_flag(l, "oom", w->oom);
	audit_u64(l, "stdout_bytes", w->stdout_bytes);
	audit_u64(l, "stderr_bytes", w->stderr_bytes);
	audit_u64(l, "duration_ms", w->duration_ms);
}

void audit_asked(struct sandbox *s, const char *type)
{
	core_audit_begin(s->core, type, s->row.tenant, s->row.id);
	core_audit_end(s->core);
}

void audit_execution(struct sandbox *s, const struct interpreter *in, const char *code)
{
	struct interpreter_view v;
	char command[COMMAND_MAX];

	interpreter_view(in, &v);
	snprintf(command, sizeof command, "%s", code);
	struct audit_line *l = core_audit_begin(s->core, "execution.started", s->row.tenant, s->row.id);
	audit_text(l, "interpreter", v.id);
	audit_text(l, "command", command);
	core_audit_end(s->core);
}

void audit_say_network(struct audit_line *l, const struct sandbox *s)
{
	audit_text(l, "network", network_mode_name(s->row.spec.network));
	audit_texts(l, "allow", s->row.spec.network_allow);
	audit_texts(l, "deny", s->row.spec.network_deny);
}

/* Which secrets a sandbox may use, and as what: "API_KEY=name". Never a value. */
void audit_say_secrets(struct audit_line *l, const struct sandbox *s)
{
	const struct pairs *given[] = { &s->row.spec.secret_env, &s->row.spec.secret_files };
	char **texts = xcalloc(given[0]->n + given[1]->n + 1, sizeof *texts);
	size_t n = 0;

	for (size_t g = 0; g < ARRAY_LEN(given); g++)
		for (size_t i = 0; i < given[g]->n; i++)
			texts[n++] = xasprintf("%s=%s", given[g]->v[i].key, given[g]->v[i].value);
	audit_texts(l, "secrets", n ? texts : NULL);
	strv_free(texts);
}

void audit_emit(struct core *c, const char *type, struct sandbox *s, enum sandbox_state old, const struct run *r)
{
	bool state = streq(type, "sandbox.state");

	if (streq(type, "permission.asked")) /* has its own line */
		return;
	if (streq(type, "sandbox.deleted"))
		audit_forget(s);
	struct audit_line *l = core_audit_begin(c, type, s->row.tenant, s->row.id);
	if (r) {
		say_run(l, r, streq(type, "run.ended"));
	} else if (state) {
		audit_text(l, "from", sandbox_state_name(old));
		audit_text(l, "to", sandbox_state_name(s->row.state));
		audit_text(l, "error", s->row.error);
	} else if (streq(type, "sandbox.created")) {
		audit_text(l, "name", s->row.name);
		audit_text(l, "image", s->row.image_digest);
		audit_text(l, "boundary", s->row.boundary);
		audit_text(l, "snapshot", s->row.spec.from_snapshot);
		audit_say_network(l, s);
		audit_say_secrets(l, s);
		audit_texts(l, "permissions", s->row.spec.permissions);
	}
	core_audit_end(c);
}

/* --- what sandboxes cause --- */

static bool take(double *tokens, uint64_t *at_ms, double rate, double burst)
{
	uint64_t now = now_ms();

	*tokens = *at_ms ? MIN(burst, *tokens + rate * (double)(now - *at_ms) / 1000) : burst;
	*at_ms = now;
	if (*tokens < 1)
		return false;
	*tokens -= 1;
	return true;
}

static struct more *more_of(struct sandbox *s)
{
	if (!s->more)
		s->more = xcalloc(1, sizeof *s->more);
	return s->more;
}

/* One more line of its own doing? */
static bool may_say(struct sandbox *s)
{
	struct audit_state *st = s->core->audit;
	struct more *m = more_of(s);

	return take(&m->tokens, &m->at_ms, BOX_RATE, BOX_BURST) && take(&st->tokens, &st->at_ms, ALL_RATE, ALL_BURST);
}

/* A place of its own: a build of a thousand programs is not to hide the one that waits for somebody. */
static bool may_ask(struct sandbox *s)
{
	struct more *m = more_of(s);

	return take(&m->ask_tokens, &m->ask_at_ms, BOX_RATE, BOX_BURST);
}

static bool anything(const struct more *m)
{
	return m->allowed || m->denied || m->closed || m->visits || m->untold;
}

static void say_more(struct sandbox *s)
{
	struct more *m = s->more;

	struct audit_line *l = audit_begin(s->core->o.audit, "network.more", s->row.tenant);
	audit_text(l, "sandbox", s->row.id);
	audit_u64(l, "allowed", m->allowed);
	audit_u64(l, "denied", m->denied);
	audit_u64(l, "closed", m->closed);
	audit_u64(l, "visits", m->visits);
	audit_u64(l, "untold", m->untold);
	audit_u64(l, "up_bytes", m->up_bytes);
	audit_u64(l, "down_bytes", m->down_bytes);
	core_audit_end(s->core);
	*m = (struct more){ .tokens = m->tokens, .at_ms = m->at_ms, .ask_tokens = m->ask_tokens, .ask_at_ms = m->ask_at_ms, .said_ms = now_ms() };
}

void audit_sweep_box(struct sandbox *s)
{
	if (s->more && anything(s->more) && now_ms() - s->more->said_ms >= MORE_EVERY_MS)
		say_more(s);
}

void audit_forget(struct sandbox *s)
{
	if (s->more && anything(s->more))
		say_more(s);
	free(take_ptr(&s->more));
}

static const char *verdict_type(const struct edge_event *ev)
{
	if (ev->kind == EDGE_CLOSED)
		return "network.closed";
	if (!ev->allowed)
		return "network.denied";
	return ev->kind == EDGE_NAME ? "network.resolved" : "network.allowed";
}

static void count_verdict(struct more *m, const struct edge_event *ev)
{
	if (ev->kind == EDGE_CLOSED) {
		m->closed++;
		m->up_bytes += ev->up_bytes;
		m->down_bytes += ev->down_bytes;
	} else if (ev->allowed) {
		m->allowed++;
	} else {
		m->denied++;
	}
}

void core_verdict(void *core, const struct edge_event *ev)
{
	struct core *c = core;
	struct sandbox *s = core_find(c, NULL, ev->id);

	log_debug("sandbox=%s verdict=%s addr=%s port=%u name=\"%s\" reason=\"%s\"", ev->id, verdict_type(ev), ev->addr, ev->port, ev->name, ev->reason);
	if (!s) /* deleted, or of the pool */
		return;
	more_of(s)->untold += ev->lost;
	if (ev->kind == EDGE_ASK) {
		permission_on_host(s, ev->name);
		return;
	}
	if (!may_say(s)) {
		count_verdict(s->more, ev);
		return;
	}
	struct audit_line *l = audit_begin(c->o.audit, verdict_type(ev), s->row.tenant);
	audit_text(l, "sandbox", s->row.id);
	audit_text(l, "name", ev->name[0] ? ev->name : NULL);
	audit_text(l, "address", ev->addr[0] ? ev->addr : NULL);
	if (ev->port)
		audit_u64(l, "port", ev->port);
	audit_text(l, "protocol", ev->kind == EDGE_NAME ? "dns" : ev->proto == POLICY_UDP ? "udp" : "tcp");
	audit_text(l, "reason", ev->reason[0] ? ev->reason : NULL);
	if (ev->kind == EDGE_CLOSED) {
		audit_u64(l, "up_bytes", ev->up_bytes);
		audit_u64(l, "down_bytes", ev->down_bytes);
		audit_u64(l, "duration_ms", ev->duration_ms);
	}
	core_audit_end(c);
}

/* One more line of this kind of its doing; NULL: it is counted. */
static struct audit_line *begin_verdict(struct sandbox *s, bool asked, bool allowed, const char *type_allowed, const char *type_denied)
{
	if (asked ? may_ask(s) : may_say(s))
		return audit_begin(s->core->o.audit, allowed ? type_allowed : type_denied, s->row.tenant);
	if (allowed)
		s->more->allowed++;
	else
		s->more->denied++;
	return NULL;
}

void audit_untold(struct sandbox *s, uint32_t n)
{
	if (n)
		more_of(s)->untold += n;
}

void audit_secret(struct sandbox *s, const struct opener_event *ev)
{
	log_debug("sandbox=%s secret=%s allowed=%u name=\"%s\" port=%u reason=\"%s\"", s->row.id, ev->secret, ev->allowed, ev->name, ev->port, ev->reason);
	struct audit_line *l = begin_verdict(s, false, ev->allowed, "secret.used", "secret.denied");
	if (!l)
		return;
	audit_text(l, "sandbox", s->row.id);
	audit_text(l, "id", ev->secret[0] ? ev->secret : NULL);
	audit_text(l, "name", ev->name);
	audit_u64(l, "port", ev->port);
	audit_text(l, "method", ev->method);
	audit_text(l, "path", ev->path);
	audit_text(l, "reason", ev->reason[0] ? ev->reason : NULL);
	core_audit_end(s->core);
}

/* One whose word was waited for is not lost among the others. */
void audit_method(struct sandbox *s, const struct opener_event *ev)
{
	struct audit_line *l = begin_verdict(s, ev->ask, ev->allowed, "permission.allowed", "permission.denied");
	if (!l)
		return;
	audit_text(l, "sandbox", s->row.id);
	audit_text(l, "kind", "method");
	audit_text(l, "method", ev->method);
	audit_text(l, "name", ev->name);
	audit_u64(l, "port", ev->port);
	audit_text(l, "path", ev->path);
	audit_text(l, "rule", ev->rule[0] ? ev->rule : NULL);
	audit_text(l, "reason", ev->reason[0] ? ev->reason : NULL);
	core_audit_end(s->core);
}

void audit_permission(void *sandbox, uint64_t run, unsigned how, const struct guest_verdict *v)
{
	static const char *const hows[GUEST_HOW_END] = { [GUEST_BY_ANSWER] = "as it was answered", [GUEST_BY_TIME] = "nobody answered in time",
							 [GUEST_BY_TROUBLE] = "what was to be executed could not be made sure of",
							 [GUEST_BY_CROWD] = "too many programs wait for an answer",
							 [GUEST_UNSEEN] = "what its path leads to could not be seen: only the kernel has judged it" };
	static const char *const kinds[PERMIT_KIND_END] = { [PERMIT_PROGRAM] = "program", [PERMIT_READ] = "read", [PERMIT_WRITE] = "write" };
	struct sandbox *s = sandbox;
	const char *rule = permission_of_guest(s->row.spec.permissions, v->rule);
	char id[32];

	more_of(s)->untold += v->untold;
	struct audit_line *l = begin_verdict(s, how == GUEST_BY_ANSWER || how == GUEST_BY_TIME, v->allowed, "permission.allowed", "permission.denied");
	if (!l)
		return;
	snprintf(id, sizeof id, "run_%llu", (unsigned long long)run);
	audit_text(l, "sandbox", s->row.id);
	audit_text(l, "run", run ? id : NULL);
	audit_text(l, "kind", kinds[v->kind]);
	audit_text(l, "path", v->path);
	audit_text(l, "rule", rule);
	audit_text(l, "reason", hows[how] ? hows[how] : rule ? NULL : v->allowed ? "no rule names it" : "no rule allows it");
	core_audit_end(s->core);
}

static void say_question(struct audit_line *l, const struct question_view *v)
{
	audit_text(l, "id", v->id);
	audit_text(l, "run", v->run);
	audit_text(l, "kind", v->method ? "method" : v->host ? "host" : "program");
	audit_text(l, "method", v->method);
	audit_text(l, "path", v->path);
	audit_text(l, "name", v->host);
	audit_text(l, "rule", v->rule);
}

bool audit_question(struct sandbox *s, const struct question_view *v)
{
	if (!may_ask(s)) {
		s->more->untold++;
		return false;
	}
	struct audit_line *l = audit_begin(s->core->o.audit, "permission.asked", s->row.tenant);
	audit_text(l, "sandbox", s->row.id);
	say_question(l, v);
	core_audit_end(s->core);
	return true;
}

void audit_answer(struct sandbox *s, const struct question_view *v, bool allowed)
{
	struct audit_line *l = core_audit_begin(s->core, "permission.answered", s->row.tenant, s->row.id);
	say_question(l, v);
	audit_text(l, "verdict", allowed ? "allow" : "deny");
	core_audit_end(s->core);
}

/* --- operations inside --- */

struct transfer { /* an operation whose end is a line */
	struct core *core;
	const char *type;
	char tenant[64], sandbox[40], key[KEY_ID_SIZE];
	char *path, *path2;
};

static void on_op_end(void *ctx, uint64_t sent, uint64_t received, const struct err *e, bool canceled)
{
	struct transfer *t = ctx;

	struct audit_line *l = audit_begin(t->core->o.audit, t->type, t->tenant);
	audit_text(l, "sandbox", t->sandbox);
	audit_text(l, "key", t->key[0] ? t->key : NULL);
	audit_text(l, "path", t->path);
	audit_text(l, "to", t->path2);
	if (streq(t->type, "file.read"))
		audit_u64(l, "bytes", received);
	else if (streq(t->type, "file.write"))
		audit_u64(l, "bytes", sent);
	audit_text(l, "error", e ? e->message : NULL);
	audit_flag(l, "canceled", canceled);
	core_audit_end(t->core);
	free(t->path);
	free(t->path2);
	free(t);
}

void audit_op(struct sandbox *s, const struct op_spec *spec, struct link_op *op)
{
	static const char *const types[] = {
		[OP_READ] = "file.read", [OP_WRITE] = "file.write", [OP_MKDIR] = "file.mkdir", [OP_REMOVE] = "file.delete",
		[OP_MOVE] = "file.move", [OP_CHMOD] = "file.chmod", [OP_REPLACE] = "file.replace",
	};

	if (spec->kind == OP_CONNECT) {
		if (may_say(s)) {
			audit_u64(core_audit_begin(s->core, "port.connect", s->row.tenant, s->row.id), "port", spec->port);
			core_audit_end(s->core);
		} else {
			s->more->visits++;
		}
		return;
	}
	if (spec->unasked || (size_t)spec->kind >= ARRAY_LEN(types) || !types[spec->kind])
		return;
	struct transfer *t = xcalloc(1, sizeof *t);
	*t = (struct transfer){ .core = s->core, .type = types[spec->kind], .path = xstrdup(spec->path), .path2 = xstrdup(spec->path2) };
	snprintf(t->tenant, sizeof t->tenant, "%s", s->row.tenant);
	snprintf(t->sandbox, sizeof t->sandbox, "%s", s->row.id);
	snprintf(t->key, sizeof t->key, "%s", s->core->audit->actor);
	link_op_watch(op, on_op_end, t);
}

/* --- keys --- */

void core_audit_key_refused(struct core *c)
{
	struct audit_state *st = c->audit;

	st->refused++;
	if (now_ms() - st->refused_said_ms < SWEEP_MS)
		return;
	audit_u64(audit_begin(c->o.audit, "key.refused", NULL), "times", st->refused);
	st->refused = 0;
	st->refused_said_ms = now_ms();
	core_audit_end(c);
}

/* --- time, and who follows --- */

static void sync_file(uv_work_t *w)
{
	struct core *c = w->data;

	(void)fdatasync(c->audit->sync_fd);
}

static void on_synced(uv_work_t *w, int status)
{
	struct core *c = w->data;

	(void)status;
	c->audit->sync_fd = close_fd(c->audit->sync_fd);
	c->audit->syncing = false;
	audit_sync_end(c->o.audit);
	core_handle_closed(c);
}

void audit_sweep(struct core *c)
{
	struct audit_state *st = c->audit;
	uint64_t seq = audit_seq(c->o.audit), now = now_ms();
	bool quiet = seq == st->seq_seen;

	if (st->refused && now - st->refused_said_ms >= SWEEP_MS) {
		audit_u64(audit_begin(c->o.audit, "key.refused", NULL), "times", st->refused);
		st->refused = 0;
		st->refused_said_ms = now;
		core_audit_end(c);
	}
	st->seq_seen = seq;
	if (st->syncing || (!quiet && now - st->synced_ms < SYNC_WITHIN_MS))
		return;
	st->sync_fd = audit_sync_begin(c->o.audit);
	if (st->sync_fd < 0)
		return;
	st->synced_ms = now;
	st->syncing = true;
	c->handles++;
	if (uv_queue_work(c->loop, &st->sync, sync_file, on_synced) < 0)
		on_synced(&st->sync, 0);
}

struct audit_watch *core_audit_watch(struct core *c, void (*grown)(void *ctx), void *ctx)
{
	struct audit_watch *w = xcalloc(1, sizeof *w);

	*w = (struct audit_watch){ .core = c, .grown = grown, .ctx = ctx };
	DL_APPEND(c->audit->watches, w);
	return w;
}

void audit_watch_free(struct audit_watch *w)
{
	if (!w)
		return;
	DL_DELETE(w->core->audit->watches, w);
	free(w);
}

void audit_tell(struct core *c)
{
	struct audit_watch *w, *next;

	if (!c->audit->grown)
		return;
	c->audit->grown = false;
	DL_FOREACH_SAFE (c->audit->watches, w, next)
		w->grown(w->ctx); /* may free itself, never another */
}
