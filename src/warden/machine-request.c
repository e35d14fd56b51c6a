#include "warden/machine-request.h"

#include "sys/process.h"
#include "warden/machine.h"
#include "warden/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* A message as it came. Its descriptors are ours whatever becomes of it. */
struct message {
	struct machine_request rq;
	ssize_t size;
	int fds[MACHINE_FDS];
	size_t n;
	bool too_many;
};

static void receive(int door, struct message *m)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof m->fds)];
	} control;
	struct iovec v = { &m->rq, sizeof m->rq };
	/* Not the padded size: in that there is room for one more than we have. */
	struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof m->fds) };

	m->n = 0;
	m->size = recvmsg(door, &h, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
	m->too_many = m->size >= 0 && h.msg_flags & MSG_CTRUNC;
	for (struct cmsghdr *c = m->size < 0 ? NULL : CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n && m->n < MACHINE_FDS; i++, m->n++)
			memcpy(&m->fds[m->n], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
}

static bool text_ends(const char *p, size_t size)
{
	return memchr(p, '\0', size) != NULL;
}

/* Gives every descriptor its place, in the order of the enum. */
static int sort(const struct message *m, struct machine_fds *ret, struct err *e)
{
	uint32_t wanted = MACHINE_GIVEN(&m->rq.plan);
	size_t at = 0;

	if (m->too_many || m->n != (size_t)__builtin_popcount(wanted) + 1)
		return err_set(e, ERR_INVALID, EBADF, "not as many descriptors as the plan takes");
	for (int i = 0; i < VMM_FDS; i++)
		ret->vmm[i] = wanted & 1u << i ? m->fds[at++] : -EBADF;
	ret->log = m->fds[at];
	return 0;
}

static int start(struct warden *w, const struct message *m, struct err *e)
{
	const struct machine_request *rq = &m->rq;
	const char *wrong = vmm_plan_wrong(&rq->plan);
	struct sandbox *old = warden_find(w, rq->id);
	struct machine_fds fds;

	if (wrong)
		return err_set(e, ERR_INVALID, EINVAL, "%s", wrong);
	if (rq->network > 1 || (rq->network && !rq->plan.tap))
		return err_set(e, ERR_INVALID, EINVAL, "network: 0 or 1, and 1 only with a tap");
	if (rq->volumes_n && !rq->plan.volumes)
		return err_set(e, ERR_INVALID, EINVAL, "volumes: only with a line to them");
	if (request_volumes_check(rq->volumes, rq->volumes_n, e) < 0)
		return -EINVAL;
	if (!text_ends(rq->image_digest, sizeof rq->image_digest) || !request_digest_valid(rq->image_digest))
		return err_set(e, ERR_INVALID, EINVAL, "image: not a digest");
	if (old && old->record.machine && old->life != LIFE_RUNNING)
		return err_set(e, ERR_UNAVAILABLE, EBUSY, "the machine of before is still ending");
	if (old)
		return err_set(e, ERR_CONFLICT, EEXIST, "%s is there already", rq->id);
	int rc = sort(m, &fds, e);
	if (rc < 0)
		return rc;
	struct sandbox *s = warden_add(w, rq->id);
	rc = machine_start(&w->keeper, &w->machine_root, s, rq, &fds, e);
	if (rc == 0 && (rc = warden_watch(w, s)) < 0)
		(void)err_sys(e, ERR_UNAVAILABLE, -rc, "watch the machine");
	if (rc < 0 && s->life == LIFE_RUNNING) { /* it has begun, and goes the way of all; but nothing would tell of its end */
		int status;
		s->destroying = true;
		warden_kill(w, s);
		(void)process_wait(s->pidfd, &status);
		sandbox_ended(&w->keeper, s);
		warden_sweep(w, s);
		return rc;
	}
	if (rc < 0) {
		warden_forget(w, s);
		return rc;
	}
	struct warden_answer a = { .magic = WARDEN_MAGIC, .op = WARDEN_ANSWER, .serial = rq->serial, .pids = (uint64_t)s->record.pid };
	memcpy(a.id, rq->id, sizeof a.id);
	warden_send_with(w->machines, &a, s->pidfd);
	return 1;
}

static int end(struct warden *w, const struct message *m, struct err *e)
{
	struct sandbox *s = warden_find(w, m->rq.id);
	struct warden_request as_asked = { .op = WARDEN_DESTROY, .serial = m->rq.serial };

	if (!s)
		return 0;
	if (!s->record.machine)
		return err_set(e, ERR_CONFLICT, EINVAL, "%s is no machine", m->rq.id);
	if (s->life != LIFE_RUNNING) { /* by itself or because somebody asked before: it is under way, and will be told as what it is */
		warden_wait(s, &as_asked, 0);
		return 1;
	}
	memcpy(as_asked.id, m->rq.id, sizeof as_asked.id);
	request_destroy(w, s, &as_asked);
	return 1;
}

static int network(struct warden *w, const struct message *m, struct err *e)
{
	struct sandbox *s = warden_find(w, m->rq.id);

	if (m->rq.network > 1)
		return err_set(e, ERR_INVALID, EINVAL, "network: 0 or 1");
	if (!s || !s->record.machine || s->life != LIFE_RUNNING)
		return err_set(e, ERR_NOT_FOUND, ESRCH, "there is no machine %s that runs", m->rq.id);
	return sandbox_network(&w->keeper, s, m->rq.network, e);
}

static int memory(struct warden *w, const struct message *m, struct err *e)
{
	const struct sandbox *s = warden_find(w, m->rq.id);

	if (!s || !s->record.machine || s->life != LIFE_RUNNING)
		return err_set(e, ERR_NOT_FOUND, ESRCH, "there is no machine %s that runs", m->rq.id);
	if (m->too_many || m->n != 2 || !machine_is_memory(m->fds[0], s->record.memory_mib) || !machine_is_memory(m->fds[1], s->record.memory_mib))
		return err_set(e, ERR_INVALID, EBADF, "memory: two memory files of the machine's size");
	return snapshot_memory(w, s, m->rq.serial, m->fds[0], m->fds[1], e);
}

static const struct entry {
	const char *name;
	/* 0 = done, answer it; 1 = answered already or later; negative = failed, e says why */
	int (*handle)(struct warden *w, const struct message *m, struct err *e);
} table[MACHINE_LAST + 1] = {
	[MACHINE_START] = { "machine-start", start },
	[MACHINE_END] = { "machine-end", end },
	[MACHINE_NETWORK] = { "machine-network", network },
	[MACHINE_MEMORY] = { "machine-memory", memory },
};

static void handle(struct warden *w, struct message *m)
{
	struct err e = { 0 };
	const struct machine_request *rq = &m->rq;

	if (m->size != (ssize_t)sizeof *rq || rq->magic != MACHINE_MAGIC || rq->serial == 0) {
		log_warn("msg=\"a message that is no request was ignored\" size=%zd", m->size);
		return;
	}
	const struct entry *entry = rq->op <= MACHINE_LAST ? &table[rq->op] : NULL;
	int rc;
	if (!entry || !entry->handle)
		rc = err_set(&e, ERR_INVALID, EINVAL, "no such request");
	else if (!record_id_valid(rq->id))
		rc = err_set(&e, ERR_INVALID, EINVAL, "id: 36 characters of 0-9, a-f and -");
	else
		rc = entry->handle(w, m, &e);
	log_debug("op=%s result=%d", entry && entry->name ? entry->name : "?", rc);
	if (rc <= 0)
		warden_answer_at(w->machines, rq->serial, record_id_valid(rq->id) ? rq->id : "", rc < 0 ? &e : NULL);
}

bool machine_request_take(struct warden *w)
{
	struct message m = { 0 };

	receive(w->machines, &m);
	if (m.size > 0)
		handle(w, &m);
	for (size_t i = 0; i < m.n; i++)
		close_fd(m.fds[i]);
	return m.size > 0 || (m.size < 0 && (errno == EAGAIN || errno == EINTR));
}
