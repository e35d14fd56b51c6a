/* Deadlines are absolute: a client that sends one byte a second does not push them away. All of a kind last equally long,
 * so each kind's list is in order of time by itself, and setting one costs a few pointers. The timer is armed for the
 * earliest known and not moved when a deadline goes away: it then fires for nothing, once. */
#include "server/internal.h"

#include <utlist.h>

static unsigned divisor = 1;

static uint64_t duration_ms(enum deadline_kind kind)
{
	static const uint32_t ms[DEADLINE_COUNT] = {
		[DEADLINE_IDLE] = (KEEP_ALIVE_S + 5) * 1000,
		[DEADLINE_HEAD] = 10 * 1000,
		[DEADLINE_BODY] = 30 * 1000,
		[DEADLINE_LINGER] = 2 * 1000,
		[DEADLINE_PING] = 30 * 1000,
		[DEADLINE_CLOSE] = 5 * 1000,
		[DEADLINE_HALF] = 60 * 1000,
		[DEADLINE_WRITE] = 60 * 1000,
	};

	return ms[kind] / divisor;
}

void deadline_shorten_for_tests(unsigned by)
{
	divisor = by;
}

static void arm(struct server *s, uint64_t at)
{
	uint64_t now = uv_now(s->loop);

	if (s->timer_at && s->timer_at <= at)
		return;
	s->timer_at = at;
	uv_timer_start(&s->timer, deadline_timer_cb, at > now ? at - now : 1, 0);
}

void deadline_restart(struct server *s, struct deadline *d)
{
	struct conn *c = d->conn;

	DL_DELETE(s->deadlines[d->kind], d);
	d->at = uv_now(s->loop) + duration_ms(d->kind);
	DL_APPEND(s->deadlines[d->kind], d);
	if (d->kind == DEADLINE_WRITE)
		c->write_mark = c->sent;
	else
		c->read_mark = c->received;
	arm(s, d->at);
}

void deadline_set(struct server *s, struct deadline *d, enum deadline_kind kind)
{
	if (d->kind == kind)
		return;
	if (d->kind != DEADLINE_NONE)
		DL_DELETE(s->deadlines[d->kind], d);
	d->kind = kind;
	if (kind == DEADLINE_NONE)
		return;
	DL_APPEND(s->deadlines[kind], d);
	deadline_restart(s, d);
}

void deadline_timer_cb(uv_timer_t *t)
{
	struct server *s = t->data;
	uint64_t now = uv_now(s->loop), next = UINT64_MAX;

	s->timer_at = 0;
	for (int kind = DEADLINE_NONE + 1; kind < DEADLINE_COUNT; kind++) {
		struct deadline *d;
		while ((d = s->deadlines[kind]) && d->at <= now) {
			conn_expired(d->conn, d);
			if (s->deadlines[kind] == d && d->at <= now) /* whatever it decided, go on */
				deadline_set(s, d, DEADLINE_NONE);
		}
		if (d)
			next = MIN(next, d->at);
	}
	if (next != UINT64_MAX)
		arm(s, next);
}
