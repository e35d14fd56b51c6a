/* Locks, which hold between all who have the volume.
 *
 * Theory of operation. A lock on the whole file (flock) belongs to what was opened, and that is one descriptor here, too. Record locks belong to
 * a process of the machine: each of these has a descriptor of its own for each file that it has locks on, whose locks the host's kernel keeps
 * apart (F_OFD_*), and which is closed when the process closes the file. A request that has to wait is tried again every few
 * milliseconds: nobody would tell us. */
#include "volumes/server_int.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

static void drop_owner(struct server *s, unsigned i)
{
	close_fd(s->owners[i].fd);
	s->owners[i] = s->owners[--s->owners_n];
}

void lock_flush(struct server *s, uint32_t node, uint64_t owner)
{
	for (unsigned i = s->owners_n; i-- > 0;)
		if (s->owners[i].node == node && s->owners[i].id == owner)
			drop_owner(s, i);
}

void lock_node_gone(struct server *s, uint32_t node)
{
	for (unsigned i = s->owners_n; i-- > 0;)
		if (s->owners[i].node == node)
			drop_owner(s, i);
}

/* Its descriptor, or a negative errno. */
static int owner_of(struct server *s, uint32_t node, uint64_t id)
{
	for (unsigned i = 0; i < s->owners_n; i++)
		if (s->owners[i].node == node && s->owners[i].id == id)
			return s->owners[i].fd;
	if (s->owners_n == LOCKS_MAX)
		return -ENOLCK;
	if (s->nodes[node].type != S_IFREG)
		return -EINVAL;
	int fd = node_open(s, node, O_RDWR);
	if (fd == -EROFS)
		fd = node_open(s, node, O_RDONLY);
	if (fd >= 0)
		s->owners[s->owners_n++] = (struct owner){ node, id, fd };
	return fd;
}

static struct flock record_of(const struct fuse_request *r)
{
	static const short types[] = { F_RDLCK, F_WRLCK, F_UNLCK };

	/* F_RDLCK is 0 on the wire; a length of 0 means up to the end, whatever that becomes */
	return (struct flock){ .l_type = types[r->lock_type], .l_whence = SEEK_SET, .l_start = (off_t)r->lock_first,
			       .l_len = r->lock_last == INT64_MAX ? 0 : (off_t)(r->lock_last - r->lock_first + 1) };
}

static int whole(struct server *s, const struct fuse_request *r)
{
	static const int ops[] = { LOCK_SH, LOCK_EX, LOCK_UN };
	struct handle *h;
	int rc = handle_find(s, r->handle, false, &h);

	return rc < 0 ? rc : flock(h->fd, ops[r->lock_type] | LOCK_NB) < 0 ? -errno : 0;
}

static int records(struct server *s, const struct fuse_request *r)
{
	struct flock f = record_of(r);
	uint32_t node;
	int rc = node_find(s, r->node, &node);
	int fd = rc < 0 ? rc : owner_of(s, node, r->owner);

	if (fd < 0)
		return fd;
	return fcntl(fd, F_OFD_SETLK, &f) == 0 ? 0 : errno == EACCES ? -EAGAIN : -errno;
}

static int set(struct server *s, const struct fuse_request *r)
{
	int rc = r->flags & FUSE_LOCK_WHOLE ? whole(s, r) : records(s, r);

	if (rc == 0)
		fuse_put_status(&s->out, s->volume, r->unique, 0);
	return rc;
}

static int get(struct server *s, const struct fuse_request *r)
{
	struct flock f = record_of(r);
	uint32_t node;
	int rc = node_find(s, r->node, &node);
	int fd = rc < 0 ? rc : owner_of(s, node, r->owner);

	if (fd < 0)
		return fd;
	if (fcntl(fd, F_OFD_GETLK, &f) < 0)
		return -errno;
	const uint32_t type = f.l_type == F_RDLCK ? 0 : f.l_type == F_WRLCK ? 1 : 2;
	const uint64_t first = (uint64_t)f.l_start;
	fuse_put_lock(&s->out, s->volume, r->unique, type, first, f.l_len == 0 ? INT64_MAX : first + (uint64_t)f.l_len - 1);
	return 0;
}

int lock_do(struct server *s, const struct fuse_request *r)
{
	if (r->op == FUSE_OP_GETLK)
		return get(s, r);
	int rc = set(s, r);
	if (rc != -EAGAIN || r->op == FUSE_OP_SETLK)
		return rc;
	if (s->waiting_n == WAITING_MAX)
		return -ENOLCK;
	s->waiting[s->waiting_n++] = (struct waiting){ s->volume, *r };
	return 1;
}

static struct waiting take_waiting(struct server *s, unsigned i)
{
	struct waiting w = s->waiting[i];

	s->waiting_n--;
	for (; i < s->waiting_n; i++) /* the oldest is first */
		s->waiting[i] = s->waiting[i + 1];
	return w;
}

void lock_interrupt(struct server *s, uint64_t unique)
{
	for (unsigned i = 0; i < s->waiting_n; i++)
		if (s->waiting[i].rq.unique == unique && s->waiting[i].volume == s->volume) {
			(void)take_waiting(s, i);
			fuse_put_status(&s->out, s->volume, unique, EINTR);
			return;
		}
}

void lock_retry(struct server *s)
{
	for (unsigned i = 0; i < s->waiting_n;) {
		s->volume = s->waiting[i].volume;
		int rc = set(s, &s->waiting[i].rq);
		if (rc == -EAGAIN) {
			i++;
			continue;
		}
		struct waiting w = take_waiting(s, i);
		if (rc < 0)
			fuse_put_status(&s->out, w.volume, w.rq.unique, -rc);
	}
}
