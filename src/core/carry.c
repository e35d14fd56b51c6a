#include "core/carry.h"

#include "base/log.h"

enum { OUTPUT_MAX = 8 << 20 /* of a stream, in memory for a moment: of a longer one the children have as much of its end, and what comes after the fork */ };

struct carried_run {
	struct run_row row;
	struct buf out[2];
	uint64_t from[2], total[2]; /* offset at which out begins; of the next byte */
	bool stdin_open, keeps_all; /* its output from the beginning */
	struct carried_run *next;
};

struct carried_session {
	char *id;
	uint64_t created_ms;
	struct carried_session *next;
};

struct carried {
	struct carried_run *runs;
	struct carried_session *sessions;
	uint64_t next_run;
};

static void row_copy(struct run_row *to, const struct run_row *from)
{
	*to = *from;
	to->sandbox_id = NULL;
	to->idempotency_key = NULL; /* the parent's callers ask the parent */
	to->session = xstrdup(from->session);
	to->display = xstrdup(from->display);
	to->message = xstrdup(from->message);
	to->stdout_data = to->stderr_data = NULL;
	to->stdout_len = to->stderr_len = 0;
}

static void read_output(struct run *r, int i, struct carried_run *to)
{
	struct spool *sp = &r->out[i];
	uint64_t kept = spool_kept(sp), max = run_is_kernel(r) ? 0 : OUTPUT_MAX, at = MAX(spool_forgotten(sp), kept - MIN(kept, max));
	ssize_t n = 1;

	to->from[i] = at = at / SPOOL_STEP * SPOOL_STEP;
	to->total[i] = spool_total(sp);
	buf_init(&to->out[i], OUTPUT_MAX + SPOOL_STEP);
	for (; at < kept && n > 0; at += (uint64_t)MAX(n, 0))
		n = spool_read(sp, at, (size_t)(kept - at), &to->out[i]);
}

struct carried *carry_take(struct sandbox *s)
{
	struct carried *c = xcalloc(1, sizeof *c);

	s->carrying = true;
	c->next_run = s->row.next_run;
	for (struct run *r = sandbox_next_run(s, NULL); r; r = sandbox_next_run(s, r)) {
		if (run_ended(r) || r->finishing)
			continue;
		struct carried_run *to = xcalloc(1, sizeof *to);
		row_copy(&to->row, &r->row);
		to->stdin_open = r->stdin_open;
		to->keeps_all = !run_is_kernel(r) && !run_keeps_tail(r);
		read_output(r, 0, to);
		read_output(r, 1, to);
		LL_APPEND(c->runs, to);
	}
	for (struct session *ss = s->sessions; ss; ss = ss->hh.next) {
		if (!ss->row.alive)
			continue;
		struct carried_session *to = xcalloc(1, sizeof *to);
		*to = (struct carried_session){ .id = xstrdup(ss->row.id), .created_ms = ss->row.created_ms };
		LL_APPEND(c->sessions, to);
	}
	return c;
}

void carry_release(struct carried *c, struct sandbox *s)
{
	s->carrying = false;
	if (c)
		c->next_run = s->row.next_run; /* what was begun meanwhile is in the children's guests, too, until they are told to end it */
	for (struct run *r = sandbox_next_run(s, NULL); r && s->link; r = sandbox_next_run(s, r))
		for (int i = 0; i < 2 && !run_ended(r); i++)
			if (r->acked[i])
				link_run_ack(s->link, r->number, i + 1, r->acked[i]);
}

static void give_run(const struct carried_run *from, struct sandbox *child)
{
	struct run_row row;

	row_copy(&row, &from->row);
	row.sandbox_id = xstrdup(child->row.id);
	if (store_run_put(child->core->o.store, &row) < 0) {
		log_error("sandbox=%s msg=\"a command of its parent cannot be recorded, and is ended\"", child->row.id);
		run_row_done(&row);
		return;
	}
	struct run *r = run_put(child, &row);
	r->stdin_open = from->stdin_open;
	r->stdin_unknown = !from->stdin_open; /* as its guest will say */
	for (int i = 0; i < 2; i++) {
		/* (What the parent's guest knows to be durable it does not say again, nor does its copy.) */
		if (spool_begin(&r->out[i], from->from[i]) == 0 && spool_append(&r->out[i], buf_str(&from->out[i])) == 0)
			(void)spool_flush(&r->out[i]);
		spool_skip(&r->out[i], from->total[i]);
		r->acked[i] = from->total[i];
		r->row.truncated |= spool_kept(&r->out[i]) < from->total[i] || (from->from[i] && from->keeps_all);
	}
	child->live_runs++;
}

void carry_give(const struct carried *c, struct sandbox *child)
{
	child->row.next_run = MAX(child->row.next_run, c->next_run);
	for (const struct carried_session *ss = c->sessions; ss; ss = ss->next)
		session_put(child, ss->id, ss->created_ms);
	if (c->runs)
		run_make_folder(child);
	for (const struct carried_run *r = c->runs; r; r = r->next)
		give_run(r, child);
	interpreters_adopt(child, true);
}

void carry_free(struct carried *c)
{
	while (c && c->runs) {
		struct carried_run *r = c->runs;
		c->runs = r->next;
		run_row_done(&r->row);
		buf_done(&r->out[0]);
		buf_done(&r->out[1]);
		free(r);
	}
	while (c && c->sessions) {
		struct carried_session *ss = c->sessions;
		c->sessions = ss->next;
		free(ss->id);
		free(ss);
	}
	free(c);
}
