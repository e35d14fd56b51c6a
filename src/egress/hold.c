/* What the kernel holds for connections: its memory for TCP is one for all, so a sandbox that does not read, or whose hosts do not, must not take it.
 *
 * A connection is weighed by what its sockets may take in and by what they have not got rid of. Both grow only by what we read and write, so weighing
 * it after each turn misses nothing; what has gone since is seen by the sweep. Beyond its sandbox's share it is made narrow: it goes on, with
 * buffers of NARROW. Half of the share is free again: it is made as wide as it was. */
#include "egress/edge_int.h"

#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 /* Linux 5.15: 0 lets the kernel choose sizes again */
#endif
enum { NARROW = 32 << 10 };

void hold_prepare(struct edge *e)
{
	/* The kernel begins to save when a sixteenth of the memory is in use for TCP (tcp_mem). */
	e->held_max = (size_t)sysconf(_SC_PHYS_PAGES) / 32 * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t share(const struct box *b)
{
	const struct edge *e = b->edge;

	return e->held_max / (e->held < e->held_max ? 4 : 4 + HASH_COUNT(e->boxes));
}

static size_t held_by(int fd)
{
	uint32_t m[SK_MEMINFO_VARS] = { 0 };
	socklen_t len = sizeof m;

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_MEMINFO, m, &len) < 0)
		return 0;
	return (size_t)MAX(m[SK_MEMINFO_RCVBUF], m[SK_MEMINFO_RMEM_ALLOC]) + m[SK_MEMINFO_WMEM_QUEUED];
}

/* Not of what leads to the opener and from there: these are pairs, and small. */
static size_t held_now(const struct flow *f)
{
	return (f->behind ? 0 : held_by(f->client.fd)) + (f->handed ? 0 : held_by(f->server.fd));
}

static void set_both(int fd, int bytes)
{
	if (fd < 0)
		return;
	bytes /= 2; /* the kernel doubles it */
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static void set_narrow(struct flow *f, bool narrow)
{
	const int none = 0;

	f->narrow = narrow;
	if (!f->behind)
		set_both(f->client.fd, narrow ? NARROW : EDGE_GATE_BUFFER);
	if (narrow && !f->handed)
		set_both(f->server.fd, NARROW);
	else if (!f->handed && f->server.fd >= 0)
		(void)setsockopt(f->server.fd, SOL_SOCKET, SO_BUF_LOCK, &none, sizeof none);
}

static void count(struct flow *f, size_t held)
{
	f->box->held += held - f->held;
	f->box->edge->held += held - f->held;
	f->held = held;
}

void hold_weigh(struct flow *f)
{
	count(f, held_now(f));
	size_t most = share(f->box);
	if (f->narrow ? f->box->held < most / 2 : f->box->held > most) {
		set_narrow(f, !f->narrow);
		count(f, held_now(f));
	}
}

void hold_join(struct flow *f)
{
	if (f->narrow)
		set_both(f->server.fd, NARROW);
	hold_weigh(f);
}

void hold_forget(struct flow *f)
{
	count(f, 0);
}

void hold_sweep(struct edge *e)
{
	struct box *b, *next;
	struct flow *f;

	HASH_ITER (hh, e->boxes, b, next)
		if (b->held > share(b) / 2)
			DL_FOREACH (b->flows, f)
				hold_weigh(f);
}
