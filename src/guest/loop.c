#include "guest/loop.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

int loop_init(struct loop *l)
{
	*l = (struct loop){ .epoll = epoll_create1(EPOLL_CLOEXEC) };
	return l->epoll < 0 ? -errno : 0;
}

void watch_set(struct loop *l, struct watch *w, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = w };

	if (events == 0) {
		if (w->added_)
			(void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
		w->added_ = false;
		for (int i = 0; i < l->fetched_n; i++)
			if (l->fetched[i].data.ptr == w)
				l->fetched[i].data.ptr = NULL;
	} else if (!w->added_) {
		w->added_ = epoll_ctl(l->epoll, EPOLL_CTL_ADD, w->fd, &e) == 0;
	} else if (w->events != events) {
		(void)epoll_ctl(l->epoll, EPOLL_CTL_MOD, w->fd, &e);
	}
	w->events = events;
}

/* Leaving epoll and closing can wait until what there is to say has been said. */
void watch_close(struct loop *l, struct watch *w)
{
	if (w->fd < 0)
		return;
	for (int i = 0; i < l->fetched_n; i++)
		if (l->fetched[i].data.ptr == w)
			l->fetched[i].data.ptr = NULL;
	if (l->closing_n == (int)ARRAY_LEN(l->closing))
		loop_tidy(l);
	l->closing[l->closing_n++] = (struct closing){ w->fd, w->added_ };
	w->fd = -EBADF;
	w->events = 0;
	w->added_ = false;
}

void loop_tidy(struct loop *l)
{
	while (l->closing_n) {
		struct closing c = l->closing[--l->closing_n];
		if (c.added) /* a child may have a copy, so closing alone would not take it out */
			(void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, c.fd, NULL);
		(void)close(c.fd);
	}
}

void timer_stop(struct timer *t)
{
	if (t->at == 0)
		return;
	*t->link_ = t->next_;
	if (t->next_)
		t->next_->link_ = t->link_;
	t->at = 0;
}

void timer_set(struct loop *l, struct timer *t, uint64_t at)
{
	timer_stop(t);
	t->at = at ? at : 1;
	t->next_ = l->timers;
	t->link_ = &l->timers;
	if (t->next_)
		t->next_->link_ = &t->next_;
	l->timers = t;
	if (l->earliest == 0 || t->at < l->earliest)
		l->earliest = t->at;
}

/* One at a time and from the start again, because a callback may free any timer. */
static struct timer *due(struct loop *l, uint64_t now)
{
	l->earliest = 0;
	for (struct timer *t = l->timers; t; t = t->next_) {
		if (t->at <= now)
			return t;
		if (l->earliest == 0 || t->at < l->earliest)
			l->earliest = t->at;
	}
	return NULL;
}

void loop_once(struct loop *l)
{
	int wait = -1;

	if (!l->timers)
		l->earliest = 0; /* of one that was stopped */
	if (l->earliest) {
		uint64_t now = now_ms();
		wait = l->earliest <= now ? 0 : (int)MIN(l->earliest - now, (uint64_t)INT_MAX);
	}
	int n = epoll_wait(l->epoll, l->fetched, (int)ARRAY_LEN(l->fetched), wait);
	l->fetched_n = MAX(n, 0);
	for (int i = 0; i < l->fetched_n; i++) {
		struct watch *w = l->fetched[i].data.ptr;
		uint32_t events = l->fetched[i].events;
		l->fetched[i].data.ptr = NULL;
		if (w)
			w->ready(w, events);
	}
	l->fetched_n = 0;
	uint64_t now = now_ms();
	if (l->earliest == 0 || l->earliest > now)
		return;
	for (struct timer *t; (t = due(l, now));) {
		timer_stop(t);
		t->fire(t);
	}
}
