/* Programs that wait to be allowed. */
#include "api/api_int.h"

#include <errno.h>

int api_question_list(struct api *a, const struct caller *c, const char *ref, void (*each)(void *ctx, const struct question_view *v), void *ctx, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	if (!s)
		return -ENOENT;
	sandbox_each_question(s, each, ctx);
	return 0;
}

int api_question_answer(struct api *a, const struct caller *c, const char *ref, const char *id, bool allowed, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	if (!s)
		return -ENOENT;
	api_act(a, c);
	int rc = sandbox_answer(s, id, allowed, e);
	api_act(a, NULL);
	return rc;
}
