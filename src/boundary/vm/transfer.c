#include "boundary/vm/transfer.h"

#include "boundary/vm/offload.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, BLOCK = 256 * 1024 };

struct transfer {
	struct offload *offload;
	struct transfer_file files[TRANSFER_FILES];
	unsigned at;
	int r; /* 1: it was the last */
	atomic_bool stop; /* nobody wants it any more */
	off_t offset, size;
	EVP_MD_CTX *md; /* of the file at work, or NULL before it */
	transfer_fn done;
	void *ctx;
	char block[BLOCK];
};

static bool all_zero(const char *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static int begin_file(struct transfer *t)
{
	struct transfer_file *f = &t->files[t->at];
	struct stat st;

	if (fstat(f->from, &st) < 0 || (f->to >= 0 && ftruncate(f->to, st.st_size) < 0))
		return -errno;
	t->size = st.st_size;
	t->offset = 0;
	t->md = EVP_MD_CTX_new();
	if (!t->md || EVP_DigestInit_ex(t->md, EVP_sha256(), NULL) != 1)
		abort();
	return 0;
}

static void end_file(struct transfer *t)
{
	unsigned char sum[32];

	EVP_DigestFinal_ex(t->md, sum, NULL);
	EVP_MD_CTX_free(take_ptr(&t->md));
	hex_encode(sum, sizeof sum, t->files[t->at].sum);
	t->at++;
}

static int take_pages(struct transfer *t, size_t n)
{
	const struct transfer_file *f = &t->files[t->at];

	for (size_t i = 0; i < n; i += PAGE) {
		uint64_t where = (uint64_t)t->offset + i;
		size_t size = MIN(n - i, (size_t)PAGE);
		if (all_zero(t->block + i, size))
			continue;
		if (EVP_DigestUpdate(t->md, &where, sizeof where) != 1 || EVP_DigestUpdate(t->md, t->block + i, size) != 1)
			abort();
		if (f->to >= 0 && pwrite(f->to, t->block + i, size, (off_t)where) != (ssize_t)size)
			return errno ? -errno : -EIO;
	}
	return 0;
}

/* 0: there is more. 1: it was the last. */
static int step(struct transfer *t)
{
	int from = t->files[t->at].from, r = t->md ? 0 : begin_file(t);
	off_t data = r < 0 ? -1 : lseek(from, t->offset, SEEK_DATA);

	if (r < 0 || (data < 0 && errno != ENXIO))
		return r < 0 ? r : -errno;
	if (data < 0 || data >= t->size) {
		end_file(t);
		return t->at == TRANSFER_FILES;
	}
	t->offset = data - data % PAGE;
	ssize_t n = pread(from, t->block, MIN((size_t)BLOCK, (size_t)(t->size - t->offset)), t->offset);
	if (n <= 0)
		return n < 0 ? -errno : -EIO;
	r = take_pages(t, (size_t)n);
	t->offset += n;
	return r;
}

int transfer_sum(int fd, char ret_sum[static TRANSFER_SUM + 1])
{
	auto_free struct transfer *t = xcalloc(1, sizeof *t);
	int r = 0;

	t->files[0] = (struct transfer_file){ .from = fd, .to = -EBADF };
	while (r == 0 && t->at == 0)
		r = step(t);
	EVP_MD_CTX_free(t->md);
	if (r >= 0)
		memcpy(ret_sum, t->files[0].sum, TRANSFER_SUM + 1);
	return MIN(r, 0);
}

static int run(void *work, struct err *e)
{
	struct transfer *t = work;

	while (t->r == 0 && !t->stop)
		t->r = step(t);
	return t->r < 0 ? err_sys(e, ERR_UNAVAILABLE, -t->r, "copy a template's files") : 0;
}

static void release(void *work)
{
	struct transfer *t = work;

	for (size_t i = 0; i < TRANSFER_FILES; i++) {
		close_fd(t->files[i].from);
		close_fd(t->files[i].to);
	}
	EVP_MD_CTX_free(t->md);
	free(t);
}

static void on_done(void *ctx, const struct err *e)
{
	struct transfer *t = ctx;

	(void)e; /* cancelled by nobody, so r is set */
	t->done(t->ctx, MIN(t->r, 0), t->files);
}

struct transfer *transfer_new(uv_loop_t *loop, const struct transfer_file files[TRANSFER_FILES], transfer_fn done, void *ctx)
{
	struct transfer *t = xcalloc(1, sizeof *t);

	for (size_t i = 0; i < TRANSFER_FILES; i++) { /* they may be closed here while the thread still has them */
		t->files[i].from = fcntl(files[i].from, F_DUPFD_CLOEXEC, 3);
		t->files[i].to = files[i].to < 0 ? -EBADF : fcntl(files[i].to, F_DUPFD_CLOEXEC, 3);
	}
	t->done = done;
	t->ctx = ctx;
	t->offload = offload_new(loop, run, release, t, on_done, t);
	return t;
}

void transfer_free(struct transfer *t)
{
	if (!t)
		return;
	t->stop = true;
	offload_cancel(t->offload);
}
