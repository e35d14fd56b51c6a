/* Operations inside a sandbox: the api's handle is core's, under another name. */
#include "api/api_int.h"

#include "core/link.h"

static struct link_op *link_of(const struct api_op *op)
{
	return (struct link_op *)(uintptr_t)op;
}

struct api_op *api_op_open(struct api *a, const struct caller *c, const char *ref, const struct op_spec *spec, const struct op_events *ev,
                           void *ctx, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	api_act(a, c);
	struct api_op *op = s ? (struct api_op *)sandbox_op(s, spec, ev, ctx, e) : NULL;
	api_act(a, NULL);
	return op;
}

size_t api_op_room(const struct api_op *op)
{
	return link_op_room(link_of(op));
}

int api_op_write(struct api_op *op, struct str bytes)
{
	return link_op_write(link_of(op), bytes);
}

void api_op_eof(struct api_op *op)
{
	link_op_eof(link_of(op));
}

void api_op_pause(struct api_op *op)
{
	link_op_pause(link_of(op));
}

void api_op_resume(struct api_op *op)
{
	link_op_resume(link_of(op));
}

void api_op_cancel(struct api_op *op)
{
	link_op_cancel(link_of(op));
}
