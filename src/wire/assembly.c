/* Messages of the guest protocol out of their pieces, and finding where a stream begins. */
#include "wire/guest.h"

#include <errno.h>

size_t guest_noise(struct str in, uint8_t type)
{
	uint8_t head[GUEST_HEAD];

	guest_head_put(head, type, 0, GUEST_HELLO_ID, 0);
	for (size_t at = 0; at < in.n; at++) {
		/* length and channel vary, the rest of the head is fixed */
		bool match = true;
		for (size_t i = 4; i < GUEST_HEAD && at + i < in.n && match; i++)
			match = i == 5 || (uint8_t)in.p[at + i] == head[i];
		if (match)
			return at;
	}
	return in.n;
}

void guest_assembly_init(struct guest_assembly *a)
{
	*a = (struct guest_assembly){ 0 };
	buf_init(&a->bytes, GUEST_MESSAGE_MAX);
}

void guest_assembly_done(struct guest_assembly *a)
{
	buf_done(&a->bytes);
	a->type = 0;
}

static bool in_pieces(uint8_t type)
{
	return type == GUEST_RUN_START || type == GUEST_SESSION_OPEN || type == GUEST_SESSION_CLOSE || type == GUEST_OP_OPEN ||
	       type == GUEST_READY || type == GUEST_SETUP || type == GUEST_PERMIT;
}

int guest_assembly_feed(struct guest_assembly *a, const struct guest_frame *f, struct str *ret_message)
{
	if (a->type == 0)
		buf_reset(&a->bytes); /* of the message before */
	else if (a->type != f->type || a->id != f->id)
		return -EPROTO; /* pieces are contiguous */
	if (!in_pieces(f->type)) {
		*ret_message = f->payload;
		return 1;
	}
	if (f->channel > GUEST_MORE || (f->channel == GUEST_MORE && f->payload.n == 0))
		return -EPROTO;
	if (a->type == 0 && f->channel != GUEST_MORE) {
		*ret_message = f->payload;
		return 1;
	}
	if (buf_add(&a->bytes, f->payload.p, f->payload.n) < 0)
		return -ENOBUFS;
	a->type = f->type;
	a->id = f->id;
	if (f->channel == GUEST_MORE)
		return 0;
	a->type = 0;
	*ret_message = buf_str(&a->bytes);
	return 1;
}
