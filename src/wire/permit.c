#include "wire/permit.h"

#include <errno.h>

enum { HEAD = 2 };

int permit_put(struct buf *out, const struct permit *p)
{
	(void)buf_addc(out, (char)p->verdict);
	(void)buf_addc(out, (char)p->kind);
	(void)buf_add(out, p->path, strlen(p->path) + 1);
	return out->overflow ? -ENOBUFS : 0;
}

int permit_next(struct str *in, struct permit *ret)
{
	if (in->n == 0)
		return 0;
	if (in->n <= HEAD)
		return -EPROTO;
	unsigned verdict = (unsigned char)in->p[0], kind = (unsigned char)in->p[1];
	const char *path = in->p + HEAD, *end = memchr(path, '\0', in->n - HEAD);
	if (verdict == 0 || verdict >= PERMIT_VERDICT_END || kind == 0 || kind >= PERMIT_KIND_END)
		return -EPROTO;
	if (!end || path[0] != '/' || end - path > PERMIT_PATH_MAX)
		return -EPROTO;
	*ret = (struct permit){ (enum permit_verdict)verdict, (enum permit_kind)kind, path };
	*in = (struct str){ end + 1, in->n - (size_t)(end + 1 - in->p) };
	return 1;
}
