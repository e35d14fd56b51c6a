/* What a machine's relay may send to the server of its volumes: bytes of the line. Whole and in pieces they must be the same frames, and whatever
 * a request points at must be inside its message and, of names, one name of a folder. */
#include "wire/fuse.h"

#include <errno.h>

static void check_name(struct str name, struct str in)
{
	if (!name.p)
		return;
	if (name.p < in.p || name.p + name.n >= in.p + in.n || name.p[name.n] || memchr(name.p, '\0', name.n) || name.n == 0)
		abort();
}

static void check_request(struct str message)
{
	struct fuse_request r;
	uint64_t node, lookups;
	int rc = fuse_request_get(message, &r);

	if (rc == -EPROTO)
		return;
	if (message.n < FUSE_IN_HEAD)
		abort();
	if (rc < 0)
		return;
	check_name(r.name, message);
	check_name(r.name2, message);
	if (r.name.p && (memchr(r.name.p, '/', r.name.n) || r.name.n > FUSE_NAME_MAX || str_eqz(r.name, ".") || str_eqz(r.name, "..")))
		abort();
	if (r.data.p && (r.data.p < message.p || r.data.p + r.data.n > message.p + message.n))
		abort();
	if ((r.op == FUSE_OP_READ || r.op == FUSE_OP_READDIR || r.op == FUSE_OP_WRITE) && r.size > FUSE_DATA_MAX)
		abort();
	for (size_t i = 0; r.op == FUSE_OP_BATCH_FORGET && i < fuse_forgets(&r); i++)
		fuse_forget_at(&r, i, &node, &lookups);
}

static size_t frames(struct str bytes, bool look)
{
	struct line_frame f;
	size_t count = 0;
	ssize_t n;

	while ((n = line_frame_next(bytes, &f)) > 0) {
		if (look && f.kind == LINE_MESSAGE)
			check_request((struct str){ f.payload.p, f.payload.n });
		bytes.p += n;
		bytes.n -= (size_t)n;
		count++;
	}
	return n < 0 ? count + 1000000 : count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct str all = { (const char *)data, size };
	char nonce[LINE_NONCE] = "0123456789abcdef";
	auto_buf struct buf in;
	bool found;
	size_t pieces = 0;
	ssize_t n = 0;
	struct line_frame f;

	if (line_noise(all, nonce, &found) > size)
		abort();
	check_request(all);
	buf_init(&in, 2 * FUSE_MESSAGE_MAX);
	for (size_t i = 0; i < size && n >= 0; i++) {
		if (buf_add(&in, data + i, 1) < 0)
			return 0;
		while ((n = line_frame_next(buf_str(&in), &f)) > 0) {
			buf_consume(&in, (size_t)n);
			pieces++;
		}
	}
	if (frames(all, true) != (n < 0 ? pieces + 1000000 : pieces))
		abort();
	return 0;
}
