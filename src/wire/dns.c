#include "wire/dns.h"

#include <errno.h>

#define HEADER 12
#define LINKS_MAX 16 /* CNAMEs that are followed */

static unsigned u16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v & 0xffff);
}

static uint8_t lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

/* --- from a sandbox --- */

/* An uncompressed name at `at`: its text, and where it ends. */
static int plain_name(const uint8_t *p, size_t n, size_t at, char ret_text[static DNS_NAME_MAX + 1], size_t *ret_end)
{
	size_t out = 0, start = at;

	for (;;) {
		if (at >= n)
			return -EINVAL;
		size_t len = p[at++];
		if (len == 0)
			break;
		if (len > 63 || len > n - at || at + len - start >= DNS_NAME_MAX)
			return -EINVAL;
		if (out)
			ret_text[out++] = '.';
		for (size_t i = 0; i < len; i++, at++) {
			if (p[at] <= ' ' || p[at] >= 0x7f || p[at] == '.')
				return -EINVAL;
			ret_text[out++] = (char)p[at];
		}
	}
	ret_text[out] = '\0';
	*ret_end = at;
	return 0;
}

int dns_query_parse(const uint8_t *p, size_t n, struct dns_query *ret)
{
	size_t end;

	if (n < HEADER || p[2] & 0x80)
		return -EBADMSG;
	*ret = (struct dns_query){ .id = (uint16_t)u16(p), .recursion = p[2] & 1 };
	if (p[2] & 0x78)
		return -EOPNOTSUPP;
	/* One question and nothing else but perhaps the sender's options, which are not looked at. */
	if (u16(p + 4) != 1 || u16(p + 6) != 0 || u16(p + 8) != 0 || u16(p + 10) > 1 || p[2] & 0x02)
		return -EINVAL;
	if (plain_name(p, n, HEADER, ret->name, &end) < 0 || n - end < 4)
		return -EINVAL;
	if (u16(p + end + 2) != 1)
		return -EOPNOTSUPP;
	ret->type = (uint16_t)u16(p + end);
	ret->question_len = end + 4 - HEADER;
	memcpy(ret->question, p + HEADER, ret->question_len);
	return 0;
}

size_t dns_answer_write(const struct dns_query *q, int rcode, const uint8_t *addrs, size_t n_addrs, size_t addr_len, uint32_t ttl, uint8_t *out,
			size_t size)
{
	size_t at = HEADER + q->question_len, written = 0;

	if (size < at)
		return 0;
	memset(out, 0, HEADER);
	put16(out, q->id);
	out[2] = (uint8_t)(0x80 | (q->recursion ? 1 : 0));
	out[3] = (uint8_t)(0x80 | (rcode & 15));
	put16(out + 4, q->question_len ? 1 : 0);
	memcpy(out + HEADER, q->question, q->question_len);
	for (; written < n_addrs && size - at >= 12 + addr_len; written++) {
		put16(out + at, 0xc000 | HEADER);
		put16(out + at + 2, addr_len == 4 ? DNS_A : DNS_AAAA);
		put16(out + at + 4, 1);
		put32(out + at + 6, ttl);
		put16(out + at + 10, (unsigned)addr_len);
		memcpy(out + at + 12, addrs + written * addr_len, addr_len);
		at += 12 + addr_len;
	}
	put16(out + 6, (unsigned)written);
	if (written < n_addrs)
		out[2] |= 2; /* truncated: to be asked for by a connection */
	return at;
}

/* --- upstream --- */

size_t dns_question_write(uint16_t id, const char *name, uint16_t type, const uint8_t mix[static 32], uint8_t *out, size_t size)
{
	size_t len = strlen(name), at = HEADER, label = at++;

	if (len == 0 || len + 2 > DNS_NAME_MAX || size < HEADER + len + 2 + 4)
		return 0;
	memset(out, 0, HEADER);
	put16(out, id);
	out[2] = 1; /* recursion wanted */
	put16(out + 4, 1);
	for (size_t i = 0; i <= len; i++) {
		uint8_t c = (uint8_t)name[i];
		if (c == '.' || c == '\0') {
			size_t n = at - label - 1;
			if (n == 0 || n > 63)
				return 0;
			out[label] = (uint8_t)n;
			label = at++;
			continue;
		}
		if (lower(c) >= 'a' && lower(c) <= 'z')
			c = mix[i / 8] >> i % 8 & 1 ? lower(c) : (uint8_t)(c & ~0x20);
		out[at++] = c;
	}
	out[label] = 0;
	put16(out + at, type);
	put16(out + at + 2, 1);
	return at + 4;
}

/* A name that may be compressed, in lower case, as labels with their lengths. Pointers may only go backwards, so it ends. */
struct name {
	uint8_t b[DNS_NAME_MAX];
	size_t n;
};

static int any_name(const uint8_t *p, size_t n, size_t at, struct name *ret, size_t *ret_end)
{
	size_t end = 0, lowest = at;

	ret->n = 0;
	for (;;) {
		if (at >= n)
			return -EBADMSG;
		size_t len = p[at];
		if ((len & 0xc0) == 0xc0) {
			if (at + 1 >= n)
				return -EBADMSG;
			size_t to = (len & 0x3f) << 8 | p[at + 1];
			if (!end)
				end = at + 2;
			if (to >= lowest)
				return -EBADMSG;
			at = lowest = to;
			continue;
		}
		if (len > 63 || len >= n - at || ret->n + len + 1 > DNS_NAME_MAX)
			return -EBADMSG;
		for (size_t i = 0; i <= len; i++)
			ret->b[ret->n++] = i ? lower(p[at + i]) : (uint8_t)len;
		at += len + 1;
		if (len == 0)
			break;
	}
	*ret_end = end ? end : at;
	return 0;
}

static bool name_eq(const struct name *a, const struct name *b)
{
	return a->n == b->n && memcmp(a->b, b->b, a->n) == 0;
}

struct record {
	struct name owner;
	unsigned type;
	uint32_t ttl;
	size_t data, len, next;
};

static int read_record(const uint8_t *p, size_t n, size_t at, struct record *r)
{
	int rc = any_name(p, n, at, &r->owner, &at);

	if (rc < 0 || n - at < 10)
		return -EBADMSG;
	r->type = u16(p + at + 2) == 1 ? u16(p + at) : 0;
	r->ttl = (uint32_t)u16(p + at + 4) << 16 | u16(p + at + 6);
	if (r->ttl > INT32_MAX)
		r->ttl = 0; /* RFC 2181, 8 */
	r->len = u16(p + at + 8);
	r->data = at + 10;
	if (r->len > n - r->data)
		return -EBADMSG;
	r->next = r->data + r->len;
	return 0;
}

/* The addresses of one owner, and where its CNAME leads, if it has one. */
static int collect(const uint8_t *p, size_t n, size_t at, unsigned count, unsigned type, const struct name *owner, struct dns_reply *reply,
		   struct name *ret_to, bool *ret_moved)
{
	struct record r;
	size_t len = type == DNS_A ? 4 : 16, end;

	*ret_moved = false;
	for (unsigned i = 0; i < count; i++, at = r.next) {
		if (read_record(p, n, at, &r) < 0)
			return -EBADMSG;
		if (!name_eq(&r.owner, owner))
			continue;
		if (r.type == type && r.len == len && reply->n < DNS_ADDRS_MAX) {
			memcpy(reply->addrs[reply->n++], p + r.data, len);
			reply->ttl = MIN(reply->ttl, r.ttl);
		} else if (r.type == DNS_CNAME && !*ret_moved) {
			if (any_name(p, n, r.data, ret_to, &end) < 0 || end != r.next)
				return -EBADMSG;
			reply->ttl = MIN(reply->ttl, r.ttl);
			*ret_moved = true;
		}
	}
	return 0;
}

int dns_reply_parse(const uint8_t *p, size_t n, const uint8_t *asked, size_t asked_len, struct dns_reply *ret)
{
	struct dns_reply reply = { .ttl = UINT32_MAX };
	struct name owner, to;
	size_t at;
	bool moved = true;

	if (asked_len < HEADER + 6 || n < asked_len || n > DNS_MESSAGE_MAX || !(p[2] & 0x80) || p[2] & 0x78)
		return -EBADMSG;
	if (memcmp(p, asked, 2) != 0 || u16(p + 4) != 1 || memcmp(p + HEADER, asked + HEADER, asked_len - HEADER) != 0)
		return -EBADMSG;
	reply.rcode = p[3] & 15;
	reply.truncated = p[2] & 2;
	if (any_name(asked, asked_len, HEADER, &owner, &at) < 0)
		return -EBADMSG;
	unsigned type = u16(asked + at);
	for (int links = 0; moved && links < LINKS_MAX && !reply.n; links++) {
		if (collect(p, n, asked_len, u16(p + 6), type, &owner, &reply, &to, &moved) < 0)
			return -EBADMSG;
		if (moved)
			owner = to;
	}
	if (reply.ttl == UINT32_MAX)
		reply.ttl = 0;
	*ret = reply;
	return 0;
}
