#include "boundary/vm/offload.h"

#include "boundary/vm/vmdir.h"

#include <errno.h>

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

/* --- what a machine goes on from --- */

static int check(const struct offload_files *f, int fd, const char *sum, const char *what, struct err *e)
{
	char is[TRANSFER_SUM + 1];
	int r = sum[0] ? transfer_sum(fd, is) : 0;

	if (r < 0)
		return err_sys(e, ERR_UNAVAILABLE, -r, "%s: read its %s", f->whose, what);
	return !sum[0] || streq(is, sum) ? 0 : err_set(e, ERR_UNAVAILABLE, EBADMSG, "%s is damaged: its %s is not what was written", f->whose, what);
}

/* The copy is looked at, not what it is of. */
static int run_files(void *work, struct err *e)
{
	const struct offload_files *f = work;
	int r = f->to < 0 ? 0 : vmdir_fill_disk(f->to, f->from, e);

	if (r == 0)
		r = check(f, f->to, f->disk_sum, "disk", e);
	return r == 0 ? check(f, f->memory, f->memory_sum, "memory", e) : r;
}

static void release_files(void *work)
{
	struct offload_files *f = work;

	close_fd(f->from);
	close_fd(f->to);
	close_fd(f->memory);
	free(f);
}

struct offload *offload_files(uv_loop_t *loop, const struct offload_files *f, offload_done_fn done, void *ctx)
{
	struct offload_files *copy = xcalloc(1, sizeof *copy);

	*copy = *f;
	return offload_new(loop, run_files, release_files, copy, done, ctx);
}
