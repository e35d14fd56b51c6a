#include "boundary/vm/offload.h"

#include "boundary/vm/vmdir.h"

struct offload {
	uv_work_t req;
	offload_work_fn run;
	void (*release)(void *work);
	void *work;
	struct err e; /* kind 0 = good */
	offload_done_fn done; /* NULL: cancelled */
	void *ctx;
};

static void on_work(uv_work_t *w)
{
	struct offload *o = w->data;
	struct err e = { 0 };

	if (o->run(o->work, &e) < 0)
		o->e = e;
}

static void on_after(uv_work_t *w, int status)
{
	struct offload *o = w->data;

	if (status < 0)
		(void)err_sys(&o->e, ERR_UNAVAILABLE, -status, "work on a disk");
	if (o->done)
		o->done(o->ctx, o->e.kind ? &o->e : NULL);
	o->release(o->work);
	free(o);
}

struct offload *offload_new(uv_loop_t *loop, offload_work_fn run, void (*release)(void *work), void *work, offload_done_fn done, void *ctx)
{
	struct offload *o = xcalloc(1, sizeof *o);

	*o = (struct offload){ .run = run, .release = release, .work = work, .done = done, .ctx = ctx };
	o->req.data = o;
	(void)uv_queue_work(loop, &o->req, on_work, on_after); /* fails without a callback only */
	return o;
}

void offload_cancel(struct offload *o)
{
	if (!o)
		return;
	o->done = NULL;
	(void)uv_cancel((uv_req_t *)&o->req);
}

/* --- a copy of a disk --- */

struct copy {
	int from, to;
};

static int run_copy(void *work, struct err *e)
{
	const struct copy *c = work;

	return vmdir_fill_disk(c->to, c->from, e);
}

static void release_copy(void *work)
{
	struct copy *c = work;

	close_fd(c->from);
	close_fd(c->to);
	free(c);
}

struct offload *offload_disk_copy(uv_loop_t *loop, int from, int to, offload_done_fn done, void *ctx)
{
	struct copy *c = xcalloc(1, sizeof *c);

	*c = (struct copy){ from, to };
	return offload_new(loop, run_copy, release_copy, c, done, ctx);
}
