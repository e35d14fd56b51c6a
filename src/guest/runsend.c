/* What runs have to say to the daemon. Each that has something stands once in a queue and gets one frame a turn, so that a
 * run with much output does not delay the others. */
#include "guest/run.h"

#include "guest/session.h"

#include <assert.h>
#include <errno.h>

void run_tell(struct run *r)
{
	struct guest *g = r->g;

	if (r->queued_to_send || !r->attached)
		return;
	r->queued_to_send = true;
	r->next_sending = NULL;
	if (!g->sending)
		g->sending_tail = &g->sending;
	*g->sending_tail = r;
	g->sending_tail = &r->next_sending;
}

static void send_room(struct run *r, struct buf *out)
{
	uint64_t v[2] = { r->in.received, r->in.limit };

	static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the protocol is little endian and so are we");
	(void)guest_frame_put(out, GUEST_RUN_ROOM, 0, r->id, (struct str){ (const char *)v, sizeof v });
	r->in.tell = false;
}

/* Returns whether there is more. */
static bool send_output(struct run *r, int i, struct buf *out)
{
	struct window *w = &r->out[i];
	struct str s = window_unsent(w, GUEST_OUTPUT_MAX);

	if (s.n == 0)
		return false;
	char *to = buf_reserve(out, GUEST_HEAD + 8 + s.n);
	if (!to)
		return true;
	guest_head_put((uint8_t *)to, GUEST_RUN_OUTPUT, (uint8_t)(i + 1), r->id, 8 + s.n);
	memcpy(to + GUEST_HEAD, &w->sent, 8);
	memcpy(to + GUEST_HEAD + 8, s.p, s.n);
	buf_grew(out, GUEST_HEAD + 8 + s.n);
	w->sent += s.n;
	return w->sent < window_end(w);
}

static bool send_some(struct run *r, struct buf *out)
{
	bool failed = r->end.flags & GUEST_END_FAILED, more;

	if (r->in.tell && r->state < RUN_DRAINING)
		send_room(r, out);
	if (!r->started_told && r->state >= RUN_ALIVE && !failed) {
		(void)guest_frame_put(out, GUEST_RUN_STARTED, 0, r->id, (struct str){ NULL, 0 });
		r->started_told = true;
	}
	more = send_output(r, 0, out);
	more |= send_output(r, 1, out);
	if (!more && r->state == RUN_ENDED && !r->end_told) {
		(void)guest_run_end_put(out, r->id, &r->end);
		r->end_told = true;
	}
	return more;
}

void runs_send(struct guest *g, struct buf *out, size_t high)
{
	while (g->sending && out->len < high) {
		struct run *r = g->sending;
		g->sending = r->next_sending;
		r->queued_to_send = false;
		if (r->attached && send_some(r, out))
			run_tell(r);
	}
}

void runs_detach(struct guest *g)
{
	for (size_t i = 0; i < RUN_BUCKETS; i++)
		for (struct run *r = g->runs[i]; r; r = r->next)
			r->attached = r->queued_to_send = false;
	g->sending = NULL;
}

void runs_list(struct guest *g, struct buf *out)
{
	struct guest_known_run *v = xcalloc(g->runs_n, sizeof *v);
	size_t n = 0;

	for (size_t i = 0; i < RUN_BUCKETS; i++)
		for (struct run *r = g->runs[i]; r; r = r->next)
			if (!r->release)
				v[n++] = (struct guest_known_run){ r->id, r->state == RUN_ENDED };
	(void)guest_ready_put(out, v, n);
	free(v);
}

int run_attach(struct guest *g, uint64_t id, uint64_t out, uint64_t err)
{
	struct run *r = run_find(g, id);
	const char *why = NULL;

	if (!r || r->release)
		why = "the sandbox does not know this run";
	else if (window_attach(&r->out[0], out) < 0 || window_attach(&r->out[1], err) < 0)
		why = "output from that offset on is no longer held";
	if (why) {
		struct guest_run_end end = { .flags = GUEST_END_FAILED, .errnum = r ? ERANGE : ESRCH, .message = str_of(why) };
		if (r)
			r->attached = false;
		struct buf *to = guest_out(g);
		return to ? guest_run_end_put(to, id, &end) : 0;
	}
	r->attached = true;
	r->started_told = r->end_told = false;
	r->in.tell = r->in.open;
	run_tell(r);
	return 0;
}

int run_ack(struct guest *g, uint64_t id, int stream, uint64_t offset)
{
	struct run *r = run_find(g, id);

	if (stream != GUEST_STDOUT && stream != GUEST_STDERR)
		return -EPROTO;
	if (!r || r->release)
		return 0; /* released meanwhile */
	int e = window_ack(&r->out[stream - 1], offset);
	if (e < 0)
		return e;
	if (r->session)
		session_run_resume(r->session, r);
	else
		source_resume(r->from[stream - 1]);
	return 0;
}
