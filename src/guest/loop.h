/* The guest's event loop: epoll and timers. A watch or timer belongs to its owner and may be removed or freed from inside
 * any callback; an event that was already fetched for a removed watch is not delivered. */
#ifndef CAISSON_GUEST_LOOP_H
#define CAISSON_GUEST_LOOP_H

#include "base/util.h"

#include <sys/epoll.h>

struct watch {
	int fd; /* unset: -EBADF. Not closed by the loop */
	uint32_t events;
	bool added_;
	void (*ready)(struct watch *w, uint32_t events);
};

struct timer {
	uint64_t at; /* now_ms(); 0 = not set */
	void (*fire)(struct timer *t);
	struct timer *next_, **link_;
};

struct closing {
	int fd;
	bool added;
};

struct loop {
	int epoll;
	struct timer *timers;
	uint64_t earliest; /* never later than the first timer; 0 = no timer */
	struct epoll_event fetched[64];
	int fetched_n;
	struct closing closing[16]; /* by loop_tidy */
	int closing_n;
};

int loop_init(struct loop *l);
/* Waits for events or the next timer and delivers them once. */
void loop_once(struct loop *l);
/* events 0 takes the watch out, so that not even EPOLLHUP wakes the loop. */
void watch_set(struct loop *l, struct watch *w, uint32_t events);
void watch_close(struct loop *l, struct watch *w); /* takes out; the descriptor is closed by loop_tidy, or before */
void loop_tidy(struct loop *l); /* at the end of a turn */
void timer_set(struct loop *l, struct timer *t, uint64_t at);
void timer_stop(struct timer *t);

#endif
