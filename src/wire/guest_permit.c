/* Frames about rules: what was judged, and what waits to be allowed. */
#include "wire/guest_int.h"
#include "wire/permit.h"

#include <errno.h>

enum { VERDICT_HEAD = 8 };

int guest_verdict_put(struct buf *out, uint64_t run, enum guest_verdict_how how, const struct guest_verdict *v)
{
	uint8_t p[VERDICT_HEAD + PERMIT_PATH_MAX + 1];
	size_t n = strlen(v->path) + 1;

	if (n > PERMIT_PATH_MAX + 1)
		return -EINVAL;
	p[0] = v->allowed;
	p[1] = v->kind;
	put_u16(p + 2, v->rule);
	put_u32(p + 4, v->untold);
	memcpy(p + VERDICT_HEAD, v->path, n);
	return guest_frame_put(out, GUEST_VERDICT, (uint8_t)how, run, (struct str){ (const char *)p, VERDICT_HEAD + n });
}

int guest_verdict_get(struct str s, struct guest_verdict *ret)
{
	if (s.n <= VERDICT_HEAD || (uint8_t)s.p[0] > 1 || s.p[1] == 0 || (uint8_t)s.p[1] >= PERMIT_KIND_END)
		return -EPROTO;
	const char *path = s.p + VERDICT_HEAD;
	if (path[0] != '/' || memchr(path, '\0', s.n - VERDICT_HEAD) != s.p + s.n - 1)
		return -EPROTO;
	*ret = (struct guest_verdict){ s.p[0] != 0, (uint8_t)s.p[1], (uint16_t)get_u16(s.p + 2), guest_u32(s.p + 4), path };
	return 0;
}

enum { ASK_HEAD = 14 };

int guest_ask_put(struct buf *out, uint64_t id, const struct guest_ask *a)
{
	uint8_t p[ASK_HEAD + PERMIT_PATH_MAX + 1];
	size_t n = strlen(a->path) + 1;

	if (n > PERMIT_PATH_MAX + 1)
		return -EINVAL;
	put_u64(p, a->run);
	put_u32(p + 8, a->left_ms);
	put_u16(p + 12, a->rule);
	memcpy(p + ASK_HEAD, a->path, n);
	return guest_frame_put(out, GUEST_ASK, 0, id, (struct str){ (const char *)p, ASK_HEAD + n });
}

int guest_ask_get(struct str s, struct guest_ask *ret)
{
	if (s.n <= ASK_HEAD)
		return -EPROTO;
	const char *path = s.p + ASK_HEAD;
	if (path[0] != '/' || s.n > ASK_HEAD + PERMIT_PATH_MAX + 1 || memchr(path, '\0', s.n - ASK_HEAD) != s.p + s.n - 1)
		return -EPROTO;
	*ret = (struct guest_ask){ guest_u64(s.p), guest_u32(s.p + 8), (uint16_t)get_u16(s.p + 12), path };
	return 0;
}
