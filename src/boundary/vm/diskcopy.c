#include "boundary/vm/diskcopy.h"

#include "boundary/vm/vmdir.h"

#include <fcntl.h>

struct diskcopy {
	uv_work_t work;
	int from, dir;
	struct err e; /* kind 0 = good */
	diskcopy_fn done; /* NULL: cancelled */
	void *ctx;
};

static void copy(uv_work_t *w)
{
	struct diskcopy *c = w->data;

	(void)vmdir_copy_disk(c->dir, c->from, &c->e);
}

static void after(uv_work_t *w, int status)
{
	struct diskcopy *c = w->data;

	if (status < 0 && !c->e.kind)
		(void)err_sys(&c->e, ERR_UNAVAILABLE, -status, "copy a disk");
	close_fd(c->from);
	close_fd(c->dir);
	if (c->done)
		c->done(c->ctx, c->e.kind ? &c->e : NULL);
	free(c);
}

struct diskcopy *diskcopy_new(uv_loop_t *loop, int from, int dir, diskcopy_fn done, void *ctx)
{
	struct diskcopy *c = xcalloc(1, sizeof *c);

	*c = (struct diskcopy){ .from = from, .dir = fcntl(dir, F_DUPFD_CLOEXEC, 3), .done = done, .ctx = ctx };
	c->work.data = c;
	(void)uv_queue_work(loop, &c->work, copy, after); /* fails without a callback only */
	return c;
}

void diskcopy_cancel(struct diskcopy *c)
{
	if (!c)
		return;
	c->done = NULL;
	(void)uv_cancel((uv_req_t *)&c->work);
}
