/* The line, and who does what. */
#include "volumes/server_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RETRY_MS = 20, ASK_AGAIN_MS = 1000, ANSWERS_MAX = 4 * FUSE_MESSAGE_MAX };

static int send_answers(struct server *s)
{
	while (s->out.len) {
		ssize_t n = send(s->line, s->out.data, s->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		buf_consume(&s->out, (size_t)n);
	}
	return 0;
}

static int unanswered(struct server *s, const struct fuse_request *r)
{
	uint64_t node, lookups;

	if (r->op == FUSE_OP_INTERRUPT)
		lock_interrupt(s, r->other);
	else if (r->op == FUSE_OP_FORGET)
		node_forget(s, r->node, r->other);
	for (size_t i = 0; r->op == FUSE_OP_BATCH_FORGET && i < fuse_forgets(r); i++) {
		fuse_forget_at(r, i, &node, &lookups);
		node_forget(s, node, lookups);
	}
	return 0;
}

static int do_init(struct server *s, const struct fuse_request *r)
{
	fuse_put_init(&s->out, s->volume, r);
	return 0;
}

static int do_destroy(struct server *s, const struct fuse_request *r)
{
	fuse_put_status(&s->out, s->volume, r->unique, 0);
	return 0;
}

static int (*const table[FUSE_OP_END])(struct server *s, const struct fuse_request *r) = {
	[FUSE_OP_LOOKUP] = tree_do,	 [FUSE_OP_FORGET] = unanswered,	  [FUSE_OP_GETATTR] = tree_do,	    [FUSE_OP_SETATTR] = tree_do,
	[FUSE_OP_READLINK] = tree_do,	 [FUSE_OP_SYMLINK] = tree_do,	  [FUSE_OP_MKNOD] = tree_do,	    [FUSE_OP_MKDIR] = tree_do,
	[FUSE_OP_UNLINK] = tree_do,	 [FUSE_OP_RMDIR] = tree_do,	  [FUSE_OP_RENAME] = tree_do,	    [FUSE_OP_LINK] = tree_do,
	[FUSE_OP_OPEN] = file_do,	 [FUSE_OP_READ] = file_do,	  [FUSE_OP_WRITE] = file_do,	    [FUSE_OP_STATFS] = tree_do,
	[FUSE_OP_RELEASE] = file_do,	 [FUSE_OP_FSYNC] = file_do,	  [FUSE_OP_FLUSH] = file_do,	    [FUSE_OP_INIT] = do_init,
	[FUSE_OP_OPENDIR] = file_do,	 [FUSE_OP_READDIR] = file_do,	  [FUSE_OP_RELEASEDIR] = file_do,   [FUSE_OP_FSYNCDIR] = file_do,
	[FUSE_OP_GETLK] = lock_do,	 [FUSE_OP_SETLK] = lock_do,	  [FUSE_OP_SETLKW] = lock_do,	    [FUSE_OP_CREATE] = tree_do,
	[FUSE_OP_INTERRUPT] = unanswered, [FUSE_OP_DESTROY] = do_destroy, [FUSE_OP_BATCH_FORGET] = unanswered, [FUSE_OP_FALLOCATE] = file_do,
	[FUSE_OP_RENAME2] = tree_do,	 [FUSE_OP_LSEEK] = file_do,
};

/* Before there is no room at all; the machine's kernel keeps what it has looked at for as long as it has memory. */
static void ask_to_forget(struct server *s)
{
	char head[LINE_HEAD];
	uint64_t now;

	if (s->nodes_n < s->nodes_max / 4 * 3 || (now = now_ms()) - s->asked_ms < ASK_AGAIN_MS)
		return;
	s->asked_ms = now;
	line_head_put(head, LINE_FORGET, 0, 0);
	(void)buf_add(&s->out, head, sizeof head);
}

static int answer(struct server *s, const struct line_frame *f)
{
	struct fuse_request r;

	if (f->kind != LINE_MESSAGE || f->volume >= s->volumes)
		return -EPROTO;
	int rc = fuse_request_get(f->payload, &r);
	if (rc == -EPROTO)
		return rc;
	s->volume = f->volume;
	if (rc == 0)
		rc = r.op < FUSE_OP_END && table[r.op] ? table[r.op](s, &r) : -ENOSYS;
	if (rc < 0 && fuse_op_answered(r.op))
		fuse_put_status(&s->out, s->volume, r.unique, -rc);
	ask_to_forget(s);
	return s->out.overflow ? -ENOBUFS : send_answers(s);
}

/* What is there of whole frames. */
static int answer_all(struct server *s, struct buf *in)
{
	struct line_frame f;
	ssize_t n;

	while ((n = line_frame_next(buf_str(in), &f)) > 0) {
		int rc = answer(s, &f);
		if (rc < 0)
			return rc;
		buf_consume(in, (size_t)n);
	}
	return (int)n;
}

/* 1: something has come; 0: it is time to look after those who wait; negative: the end. */
static int receive(struct server *s, struct buf *in)
{
	struct pollfd p = { .fd = s->line, .events = POLLIN };
	int rc = poll(&p, 1, s->waiting_n ? RETRY_MS : -1);
	char *at = rc > 0 ? buf_reserve(in, FUSE_MESSAGE_MAX) : NULL;

	if (rc <= 0)
		return rc < 0 && errno != EINTR ? -errno : 0;
	if (!at)
		return -ENOBUFS;
	ssize_t n = recv(s->line, at, FUSE_MESSAGE_MAX, 0);
	if (n <= 0)
		return n == 0 ? -EPIPE : errno == EINTR ? 0 : -errno;
	buf_grew(in, (size_t)n);
	return 1;
}

static int converse(struct server *s, const char nonce[static LINE_NONCE])
{
	auto_buf struct buf in;
	bool found = false;
	int rc = 0;

	buf_init(&in, 2 * (LINE_HEAD + FUSE_MESSAGE_MAX));
	while (rc >= 0) {
		rc = receive(s, &in);
		if (rc >= 0 && s->waiting_n && now_ms() - s->retried_ms >= RETRY_MS) {
			s->retried_ms = now_ms();
			lock_retry(s);
			rc = MIN(send_answers(s), rc);
		}
		if (rc > 0 && !found) {
			buf_consume(&in, line_noise(buf_str(&in), nonce, &found));
			rc = found ? buf_add(&s->out, nonce, LINE_NONCE) : 0;
			if (found && rc == 0)
				rc = send_answers(s);
		}
		if (rc >= 0 && found)
			rc = answer_all(s, &in);
	}
	return rc == -EPIPE || rc == -ECONNRESET ? 0 : rc;
}

static int add_roots(struct server *s, const int *roots, unsigned n)
{
	struct stat st;
	int rc = 0;

	for (unsigned i = 0; i < n && rc == 0; i++) {
		s->volume = (uint8_t)i;
		int fd = fcntl(roots[i], F_DUPFD_CLOEXEC, VOLUMES_LINE_FD + 1);
		if (fd < 0 || fstat(fd, &st) < 0) {
			rc = -errno;
			close_fd(fd);
		} else {
			rc = node_add(s, fd, &st, &s->roots[i]);
		}
		s->volumes = i + 1;
	}
	return rc;
}

int volumes_serve(int line, const char nonce[static LINE_NONCE], const int *roots, unsigned n, unsigned files_max)
{
	struct server *s = xcalloc(1, sizeof *s);
	int rc = n < 1 || n > VOLUMES_MAX ? -EINVAL : 0;

	s->line = line;
	s->uid = geteuid();
	s->gid = getegid();
	buf_init(&s->out, ANSWERS_MAX);
	s->proc = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (rc == 0 && s->proc < 0)
		rc = -errno;
	if (rc == 0)
		rc = nodes_init(s, files_max);
	if (rc == 0)
		rc = add_roots(s, roots, n);
	if (rc == 0)
		rc = converse(s, nonce);
	while (s->owners_n)
		close_fd(s->owners[--s->owners_n].fd);
	nodes_done(s);
	close_fd(s->proc);
	buf_done(&s->out);
	free(s);
	return rc;
}

static bool read_nonce(const char *hex, char ret[static LINE_NONCE])
{
	for (size_t i = 0; i < LINE_NONCE; i++) {
		unsigned byte;
		if (strspn(hex + 2 * i, "0123456789abcdef") < 2 || sscanf(hex + 2 * i, "%2x", &byte) != 1)
			return false;
		ret[i] = (char)byte;
	}
	return hex[2 * LINE_NONCE] == '\0';
}

int volumes_main(int argc, char **argv)
{
	char nonce[LINE_NONCE], path[] = "/0";
	int roots[VOLUMES_MAX];
	unsigned n = argc == 3 ? (unsigned)(argv[2][0] - '0') : 0;
	struct rlimit files;

	if (n < 1 || n > VOLUMES_MAX || argv[2][1] || !read_nonce(argv[1], nonce) || getrlimit(RLIMIT_NOFILE, &files) < 0)
		return 2;
	(void)umask(0); /* the machine's kernel has applied its own */
	for (unsigned i = 0; i < n; i++) {
		path[1] = (char)('0' + i);
		roots[i] = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (roots[i] < 0)
			return 1;
	}
	return volumes_serve(VOLUMES_LINE_FD, nonce, roots, n, (unsigned)MIN(files.rlim_cur, (rlim_t)VOLUMES_FILES_MAX)) < 0;
}
