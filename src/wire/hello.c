#include "wire/hello.h"

/* RFC 8446 4.1.2 and 5.1, RFC 6066 3. */
enum { RECORD_FIRST = 20, RECORD_CIPHERS = RECORD_FIRST, RECORD_ALERT, RECORD_HANDSHAKE, RECORD_DATA, RECORD_LAST, CLIENT_HELLO = 1, SERVER_HELLO = 2, SEALED_MORE = 256, WARNING = 1, RECORD_MAX = 16384, EXT_NAME = 0, EXT_ECH = 0xfe0d, EXT_ESNI = 0xffce };

struct cursor {
	const uint8_t *p;
	size_t n;
};

static bool take(struct cursor *c, size_t n, struct cursor *ret)
{
	if (n > c->n)
		return false;
	if (ret)
		*ret = (struct cursor){ c->p, n };
	c->p += n;
	c->n -= n;
	return true;
}

static bool number(struct cursor *c, size_t bytes, size_t *ret)
{
	struct cursor at;

	if (!take(c, bytes, &at))
		return false;
	*ret = 0;
	for (size_t i = 0; i < bytes; i++)
		*ret = *ret << 8 | at.p[i];
	return true;
}

/* A length of so many bytes, and what it spans. */
static bool vector(struct cursor *c, size_t bytes, struct cursor *ret)
{
	size_t n;
	return number(c, bytes, &n) && take(c, n, ret);
}

static bool server_name(struct cursor ext, struct hello *h)
{
	struct cursor list, name;
	size_t type;

	/* Exactly one name of the one type there is. */
	if (h->name.p || !vector(&ext, 2, &list) || ext.n || !number(&list, 1, &type) || type != 0 || !vector(&list, 2, &name) || list.n || name.n == 0)
		return false;
	h->name = (struct str){ (const char *)name.p, name.n };
	return true;
}

static bool client_hello(struct cursor c, struct hello *h)
{
	struct cursor part, exts, ext;
	size_t type;

	if (!take(&c, 2 + 32, NULL) || !vector(&c, 1, &part) || part.n > 32 || !vector(&c, 2, &part) || part.n < 2 || !vector(&c, 1, &part))
		return false;
	if (c.n == 0)
		return true; /* no extensions: as old as TLS 1.0 */
	if (!vector(&c, 2, &exts) || c.n)
		return false;
	while (exts.n) {
		if (!number(&exts, 2, &type) || !vector(&exts, 2, &ext))
			return false;
		if (type == EXT_NAME && !server_name(ext, h))
			return false;
		if (type == EXT_ECH || type == EXT_ESNI)
			h->encrypted = true;
	}
	return true;
}

/* A ClientHello of SSL 2 (RFC 5246, E.2): two bytes of length, the kind, the version that is asked for. No server takes more than 24 KiB. */
static enum hello_verdict old_head(const uint8_t *p, size_t n)
{
	if (p[0] >= 0xe0 || (n > 2 && p[2] != CLIENT_HELLO) || (n > 3 && p[3] != 3))
		return HELLO_NOT;
	return n > 3 ? HELLO_BAD : HELLO_MORE;
}

/* How it begins: HELLO_DONE = as a hello should. Servers take more than that: OpenSSL one in the form of SSL 2, or behind an empty change of
 * ciphers, Go one of any version below 16, or behind a warning. What those read is not another protocol. */
static enum hello_verdict head(const uint8_t *p, size_t n)
{
	if (n == 0)
		return HELLO_MORE;
	if (p[0] & 0x80)
		return old_head(p, n);
	if (p[0] < RECORD_FIRST || p[0] > RECORD_LAST)
		return HELLO_NOT;
	if (n == 1)
		return HELLO_MORE;
	if (p[1] == 3)
		return p[0] == RECORD_HANDSHAKE ? HELLO_DONE : HELLO_BAD;
	if (p[1] >= 16 || (p[0] != RECORD_HANDSHAKE && p[0] != RECORD_ALERT))
		return HELLO_NOT;
	if (n > 5)
		return p[5] == (p[0] == RECORD_ALERT ? WARNING : CLIENT_HELLO) ? HELLO_BAD : HELLO_NOT;
	return HELLO_MORE;
}

enum hello_verdict hello_parse(const uint8_t *p, size_t n, uint8_t room[static HELLO_MAX], struct hello *ret)
{
	enum hello_verdict begins = head(p, n);
	struct hello h = { 0 };
	size_t have = 0, at = 0;

	if (begins != HELLO_DONE)
		return begins;
	while (at < n) {
		if (p[at] != RECORD_HANDSHAKE || (n - at > 1 && p[at + 1] != 3))
			return HELLO_BAD;
		if (n - at < 5)
			return HELLO_MORE;
		size_t len = (size_t)p[at + 3] << 8 | p[at + 4];
		if (len == 0 || len > RECORD_MAX)
			return HELLO_BAD;
		size_t there = MIN(len, n - at - 5);
		if (there > HELLO_MAX - have)
			return HELLO_BAD;
		memcpy(room + have, p + at + 5, there);
		have += there;
		at += 5 + len;
		if (have > 0 && room[0] != CLIENT_HELLO)
			return HELLO_BAD;
		if (have < 4)
			continue;
		size_t size = (size_t)room[1] << 16 | (size_t)room[2] << 8 | room[3];
		if (size > HELLO_MAX - 4)
			return HELLO_BAD;
		if (have < 4 + size)
			continue;
		if (have > 4 + size || !client_hello((struct cursor){ room + 4, size }, &h))
			return HELLO_BAD; /* nothing may follow a ClientHello that nobody has answered yet */
		h.used = at;
		*ret = h;
		return HELLO_DONE;
	}
	return HELLO_MORE;
}

/* --- behind it --- */

/* One step of a record's head, or as much of its contents as there is; returns the bytes, 0 for what is no record. *ret_contents: the latter. */
static size_t record_step(struct hello_records *r, const uint8_t *p, size_t n, bool *ret_contents)
{
	size_t take = MIN(r->left, n);

	*ret_contents = take > 0;
	r->left -= take;
	if (take)
		return take;
	r->head[r->have++] = p[0];
	if (r->have == 2 && p[0] != 3)
		return 0;
	if (r->have == sizeof r->head) {
		r->have = 0;
		r->left = (size_t)r->head[3] << 8 | r->head[4];
	}
	return r->left > RECORD_MAX + SEALED_MORE ? 0 : 1;
}

static bool at_record(const struct hello_records *r)
{
	return !r->have && !r->left;
}

void hello_after_init(struct hello_after *a, const struct hello *first)
{
	*a = (struct hello_after){ .first = first->used };
	buf_init(&a->second, HELLO_MAX);
}

void hello_after_done(struct hello_after *a)
{
	buf_done(&a->second);
}

enum hello_verdict hello_after_client(struct hello_after *a, const uint8_t *p, size_t n, uint8_t room[static HELLO_MAX], struct hello *ret)
{
	size_t at = MIN(a->first, n), step;
	bool contents;

	a->first -= at;
	for (; at < n && !a->second.len; at += step) {
		if (at_record(&a->up) && p[at] == RECORD_HANDSHAKE && a->again)
			break;
		/* Data sent early, and what makes it look like an older TLS: a server that asks again skips both. A hello before it has asked
		 * would be read by one that does. */
		if (at_record(&a->up) && p[at] != RECORD_CIPHERS && p[at] != RECORD_ALERT && p[at] != RECORD_DATA)
			return HELLO_BAD;
		if ((step = record_step(&a->up, p + at, n - at, &contents)) == 0)
			return HELLO_BAD;
	}
	if (at == n)
		return HELLO_MORE;
	if (buf_add(&a->second, p + at, n - at) < 0)
		return HELLO_BAD;
	enum hello_verdict v = hello_parse((const uint8_t *)a->second.data, a->second.len, room, ret);
	return v == HELLO_NOT ? HELLO_BAD : v;
}

bool hello_after_server(struct hello_after *a, const uint8_t *p, size_t n)
{
	static const uint8_t retry[32] = { 0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
					   0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c };
	bool contents;

	for (size_t at = 0, step; at < n && !a->again; at += step) {
		if (at_record(&a->down) && p[at] != RECORD_HANDSHAKE && p[at] != RECORD_ALERT)
			return false;
		if ((step = record_step(&a->down, p + at, n - at, &contents)) == 0)
			return false;
		if (!contents || a->down.head[0] != RECORD_HANDSHAKE)
			continue;
		size_t take = MIN(step, sizeof a->answer - a->n_answer);
		memcpy(a->answer + a->n_answer, p + at, take);
		a->n_answer += take;
		if (a->answer[0] != SERVER_HELLO)
			return false;
		if (a->n_answer < sizeof a->answer)
			continue;
		if (memcmp(a->answer + 6, retry, sizeof retry) != 0)
			return false;
		a->again = true;
	}
	return true;
}
