#include "guest/stream.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { TURN = 4 }; /* reads before others get their turn */

void window_init(struct window *w)
{
	*w = (struct window){ 0 };
	buf_init(&w->held, GUEST_WINDOW);
}

void window_done(struct window *w)
{
	buf_done(&w->held);
}

int window_ack(struct window *w, uint64_t offset)
{
	if (offset < w->base || offset > window_end(w))
		return -EPROTO;
	buf_consume(&w->held, (size_t)(offset - w->base));
	w->base = offset;
	w->sent = MAX(w->sent, offset);
	if (w->held.len == 0)
		buf_done(&w->held); /* an idle run holds no memory */
	return 0;
}

void window_discard(struct window *w)
{
	w->discard = true;
	(void)window_ack(w, window_end(w));
}

int window_attach(struct window *w, uint64_t offset)
{
	if (offset < w->base || offset > window_end(w))
		return -ERANGE;
	w->sent = offset;
	return 0;
}

struct str window_unsent(const struct window *w, size_t max)
{
	size_t at = (size_t)(w->sent - w->base);

	return (struct str){ w->held.data ? w->held.data + at : NULL, MIN(w->held.len - at, max) };
}

static bool free_me(const struct source *s)
{
	return !s->changed && s->w.fd < 0;
}

static void read_once(struct source *s)
{
	char waste[16384];
	size_t want = s->to ? MIN(window_room(s->to), (size_t)GUEST_PAYLOAD_MAX) : sizeof waste;

	if (s->draining && !s->till_end)
		want = MIN(want, s->left);
	if (want == 0) {
		watch_set(s->loop, &s->w, 0);
		return;
	}
	/* most writes are small: no more memory than needed */
	int there = 0;
	char few[4096];
	bool known = s->to && ioctl(s->w.fd, FIONREAD, &there) == 0 && there > 0;
	if (s->to)
		want = MIN(want, known ? (size_t)there : sizeof few); /* not known: most likely the end, which needs no memory */
	char *at = known ? buf_reserve(&s->to->held, want) : s->to ? few : waste;
	ssize_t n = read(s->w.fd, at, want);
	if (n > 0) {
		if (known)
			buf_grew(&s->to->held, (size_t)n);
		else if (s->to)
			(void)buf_add(&s->to->held, few, (size_t)n); /* want was no more than the room */
		if (s->to && s->to->discard)
			window_discard(s->to);
		if (s->draining && !s->till_end)
			s->left -= (size_t)n;
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		watch_close(s->loop, &s->w); /* EIO is a terminal's end of file */
	} else if (s->draining && !s->till_end) {
		s->left = 0; /* somebody else has read from it */
	}
}

static void source_ready(struct watch *w, uint32_t events)
{
	struct source *s = container_of(w, struct source, w);

	if (events == EPOLLHUP && !s->till_end) /* of a pipe: nothing in it, and no writer */
		watch_close(s->loop, w);
	for (int i = 0; i < TURN && s->w.fd >= 0 && s->w.events; i++) {
		struct buf *b = s->to ? &s->to->held : NULL;
		size_t before = b ? b->len : 0;
		read_once(s);
		if (b && b->len - before < 4096)
			break;
	}
	if (s->changed)
		s->changed(s->ctx);
	else if (free_me(s))
		free(s);
}

struct source *source_new(struct loop *l, int fd)
{
	struct source *s = xcalloc(1, sizeof *s);

	s->w = (struct watch){ .fd = fd, .ready = source_ready };
	s->loop = l;
	return s;
}

void source_point(struct source *s, struct window *to, void (*changed)(void *), void *ctx)
{
	s->to = to;
	s->changed = changed;
	s->ctx = ctx;
	s->draining = s->till_end = false;
	source_resume(s);
}

void source_resume(struct source *s)
{
	if (s && s->w.fd >= 0)
		watch_set(s->loop, &s->w, s->to && window_room(s->to) == 0 ? 0 : EPOLLIN);
}

void source_drain(struct source *s, bool till_end)
{
	int there = 0;

	if (!s || s->w.fd < 0)
		return;
	if (!till_end)
		(void)ioctl(s->w.fd, FIONREAD, &there);
	s->draining = true;
	s->till_end = till_end;
	s->left = (size_t)MAX(there, 0);
	while (!source_drained(s) && (!s->to || window_room(s->to))) {
		size_t before = s->left;
		if (s->till_end) {
			source_resume(s);
			return;
		}
		read_once(s);
		if (s->left == before)
			break;
	}
	source_resume(s);
}

void source_abandon(struct source *s)
{
	if (!s)
		return;
	source_point(s, NULL, NULL, NULL);
	if (free_me(s))
		free(s);
}

void source_free(struct source *s)
{
	if (!s)
		return;
	watch_close(s->loop, &s->w);
	free(s);
}
