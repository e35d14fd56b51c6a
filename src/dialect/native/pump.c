/* A long answer in pieces: some a turn of the loop, none while the client doesn't take them. */
#include "dialect/native/native_int.h"

enum { STEPS_PER_TURN = 4 };

struct pump {
	uv_idle_t idle; /* runs each turn while there is something to do; first, so that a pointer to it is one to the pump */
	struct request *r;
	struct pump_ops ops;
	void *ctx;
};

static void free_pump(uv_handle_t *h)
{
	free(container_of((uv_idle_t *)h, struct pump, idle));
}

static void finish(struct pump *p)
{
	p->ops.done(p->ctx);
	uv_close((uv_handle_t *)&p->idle, free_pump);
}

static void turn(uv_idle_t *idle)
{
	struct pump *p = container_of(idle, struct pump, idle);
	for (int i = 0; i < STEPS_PER_TURN; i++) {
		if (!req_room(p->r)) {
			uv_idle_stop(idle); /* go_on comes */
			return;
		}
		if (p->ops.step(p->ctx) == PUMP_END) {
			finish(p);
			return;
		}
	}
}

static void go_on(void *ctx)
{
	struct pump *p = ctx;
	if (!uv_is_closing((uv_handle_t *)&p->idle))
		uv_idle_start(&p->idle, turn);
}

static void gone(void *ctx)
{
	finish(ctx);
}

void pump_start(struct native *n, struct request *r, const struct pump_ops *ops, void *ctx)
{
	struct pump *p = xcalloc(1, sizeof *p);
	p->r = r;
	p->ops = *ops;
	p->ctx = ctx;
	uv_idle_init(n->loop, &p->idle);
	uv_idle_start(&p->idle, turn);
	req_on_gone(r, gone, p);
	req_on_room(r, go_on, p);
}
