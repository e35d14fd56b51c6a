#include "wire/permit.h"

#include <errno.h>

int permit_put(struct buf *out, enum permit_kind kind, struct str path)
{
	(void)buf_addc(out, (char)kind);
	(void)buf_add(out, path.p, path.n);
	(void)buf_addc(out, '\0');
	return out->overflow ? -ENOBUFS : 0;
}

int permit_next(struct str *in, enum permit_kind *ret_kind, const char **ret_path)
{
	if (in->n == 0)
		return 0;
	unsigned kind = (unsigned char)in->p[0];
	const char *path = in->p + 1, *end = memchr(path, '\0', in->n - 1);
	if (kind == 0 || kind >= PERMIT_KIND_END || !end || path[0] != '/' || end - path > PERMIT_PATH_MAX)
		return -EPROTO;
	*ret_kind = (enum permit_kind)kind;
	*ret_path = path;
	*in = (struct str){ end + 1, in->n - (size_t)(end + 1 - in->p) };
	return 1;
}
