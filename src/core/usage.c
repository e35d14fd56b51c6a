/* What a sandbox uses. Behind a boundary that cannot look into it (BOUNDARY_GUEST_COUNTS) its guest is asked for what there is to count, and
 * believed as far as its own sandbox goes: it can lie about that, and be silent, and then the boundary's figures have to do. */
#include "core/core_int.h"

#include <errno.h>
#include <stdio.h>

enum { PATIENCE_MS = 5000 };

struct asking {
	struct usage usage;
	usage_fn done;
	void *ctx;
	struct link_op *op;
	uv_timer_t timer;
};

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

static void answer(struct asking *a)
{
	a->done(a->ctx, NULL, &a->usage);
	uv_close((uv_handle_t *)&a->timer, on_closed);
}

static void on_late(uv_timer_t *t)
{
	struct asking *a = t->data;

	link_op_cancel(a->op);
	answer(a);
}

static void take(const struct pairs *values, const char *name, uint64_t *to)
{
	const char *text = pairs_get(values, name);
	uint64_t n;

	if (text && parse_u64(str_of(text), INT64_MAX, &n) == 0)
		*to = n;
}

static void on_values(void *ctx, const struct pairs *values)
{
	struct usage *u = &((struct asking *)ctx)->usage;
	uint64_t processes = u->pids - 1, total = 0, left = 0;

	take(values, "processes", &processes);
	take(values, "inodes_total", &total);
	take(values, "inodes_free", &left);
	u->pids = processes + 1; /* the guest itself */
	if (left <= total)
		u->inodes = total - left;
}

static void on_end(void *ctx, const struct err *e)
{
	(void)e; /* there is an answer without it */
	answer(ctx);
}

static void ask_guest(struct link *l, uv_loop_t *loop, const struct usage *u, usage_fn done, void *ctx)
{
	static const struct op_events events = { .on_values = on_values, .on_end = on_end };
	struct asking *a = xcalloc(1, sizeof *a);

	*a = (struct asking){ .usage = *u, .done = done, .ctx = ctx };
	uv_timer_init(loop, &a->timer);
	a->timer.data = a;
	uv_timer_start(&a->timer, on_late, PATIENCE_MS, 0);
	a->op = link_op_open(l, &(struct op_spec){ .kind = OP_DISK, .user = "0:0", .cwd = "/" }, &events, a);
}

struct question {
	struct core *core;
	char id[40];
	usage_fn done;
	void *ctx;
};

static void on_usage(void *ctx, const struct err *e, const struct usage *u)
{
	struct question q = *(struct question *)ctx;
	const struct sandbox *s = core_find(q.core, NULL, q.id);

	free(ctx);
	if (!e && s && s->row.state == SANDBOX_RUNNING && s->link && link_is_open(s->link))
		ask_guest(s->link, q.core->loop, u, q.done, q.ctx);
	else
		q.done(q.ctx, e, u);
}

void sandbox_usage(struct sandbox *s, usage_fn done, void *ctx)
{
	struct err e;

	if (!s->boundary) {
		err_set(&e, ERR_UNAVAILABLE, ENOSYS, "the boundary '%s' is not offered by this server now", s->row.boundary);
		done(ctx, &e, NULL);
	} else if (!(s->boundary->ops->caps & BOUNDARY_GUEST_COUNTS)) {
		s->boundary->ops->usage(s->boundary, s->row.id, done, ctx);
	} else {
		struct question *q = xcalloc(1, sizeof *q);
		*q = (struct question){ .core = s->core, .done = done, .ctx = ctx };
		snprintf(q->id, sizeof q->id, "%s", s->row.id);
		s->boundary->ops->usage(s->boundary, s->row.id, on_usage, q);
	}
}
