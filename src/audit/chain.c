/* Lines and their hashes: bytes in, answers out. */
#include "audit/audit_int.h"

#include <openssl/evp.h>
#include <stdio.h>

void chain_hash(const char prev[static AUDIT_HASH_SIZE], struct str body, char ret[static AUDIT_HASH_SIZE])
{
	static EVP_MD *sha256; /* to have it found anew for each line costs ten times the hash */
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	if (!sha256)
		sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	EVP_MD_CTX *c = EVP_MD_CTX_new();
	if (!sha256 || !c || EVP_DigestInit_ex(c, sha256, NULL) != 1 || EVP_DigestUpdate(c, prev, AUDIT_HASH_SIZE - 1) != 1 ||
	    EVP_DigestUpdate(c, body.p, body.n) != 1 || EVP_DigestFinal_ex(c, digest, &n) != 1 || n != (AUDIT_HASH_SIZE - 1) / 2)
		abort(); /* no memory, or an OpenSSL without SHA-256 */
	EVP_MD_CTX_free(c);
	hex_encode(digest, n, ret);
}

static bool skip(struct str *s, const char *literal)
{
	size_t n = strlen(literal);

	if (s->n < n || memcmp(s->p, literal, n) != 0)
		return false;
	s->p += n;
	s->n -= n;
	return true;
}

/* Up to the quote that ends it; a backslash takes the next byte with it. */
static bool take_text(struct str *s, struct str *ret)
{
	size_t i = 0;

	while (i < s->n && s->p[i] != '"')
		i += s->p[i] == '\\' ? 2 : 1;
	if (i >= s->n)
		return false;
	*ret = (struct str){ s->p, i };
	s->p += i + 1;
	s->n -= i + 1;
	return true;
}

static bool is_hash(struct str s)
{
	if (s.n != AUDIT_HASH_SIZE - 1)
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
			return false;
	return true;
}

static bool take_hash(struct str line, struct parsed *p)
{
	const size_t tail = sizeof HASH_KEY - 1 + AUDIT_HASH_SIZE - 1 + 2; /* ,"hash":"...."} */
	struct str end;

	if (line.n < tail)
		return false;
	end = (struct str){ line.p + line.n - tail, tail };
	if (!skip(&end, HASH_KEY) || end.p[end.n - 2] != '"' || end.p[end.n - 1] != '}')
		return false;
	end.n -= 2;
	if (!is_hash(end))
		return false;
	memcpy(p->hash, end.p, end.n);
	p->hash[end.n] = '\0';
	p->body = (struct str){ line.p, line.n - tail };
	return true;
}

bool line_parse(struct str line, struct parsed *ret)
{
	struct parsed p = { 0 };
	struct str at, s = line, digits;

	if (!take_hash(line, &p) || !skip(&s, "{\"seq\":"))
		return false;
	digits = s;
	digits.n = 0;
	while (s.n && *s.p >= '0' && *s.p <= '9') {
		digits.n++;
		s.p++;
		s.n--;
	}
	if (parse_u64(digits, UINT64_MAX, &p.seq) < 0 || !skip(&s, ",\"at\":\"") || !take_text(&s, &at) || !skip(&s, ",\"type\":\"") ||
	    !take_text(&s, &p.type))
		return false;
	if (skip(&s, ",\"tenant\":\"") && !take_text(&s, &p.tenant))
		return false;
	if (str_eqz(p.type, "audit.file") && skip(&s, ",\"prev\":\"") && (!take_text(&s, &p.prev) || !is_hash(p.prev)))
		return false;
	*ret = p;
	return true;
}

struct str line_text(struct str line, const char *key)
{
	char member[64];
	struct str value;

	int n = snprintf(member, sizeof member, ",\"%s\":\"", key);
	const char *at = memmem(line.p, line.n, member, (size_t)n);
	if (!at)
		return (struct str){ 0 };
	struct str rest = { at + n, line.n - (size_t)(at + n - line.p) };
	return take_text(&rest, &value) ? value : (struct str){ 0 };
}

/* --- the head: "FIRST SEQ HASH\n" --- */

static bool take_u64(struct str *s, uint64_t *ret)
{
	const char *blank = memchr(s->p, ' ', s->n);

	if (!blank || parse_u64((struct str){ s->p, (size_t)(blank - s->p) }, UINT64_MAX, ret) < 0)
		return false;
	s->n -= (size_t)(blank + 1 - s->p);
	s->p = blank + 1;
	return true;
}

bool head_parse(struct str s, struct head *ret)
{
	struct head h = { 0 };

	if (s.n == 0 || s.p[s.n - 1] != '\n' || !take_u64(&s, &h.first) || !take_u64(&s, &h.seq))
		return false;
	s.n--;
	if (!is_hash(s))
		return false;
	memcpy(h.hash, s.p, s.n);
	*ret = h;
	return true;
}

size_t head_format(const struct head *h, char ret[static 160])
{
	/* of one length, so that it is overwritten in place */
	return (size_t)snprintf(ret, 160, "%020llu %020llu %s\n", (unsigned long long)h->first, (unsigned long long)h->seq, h->hash);
}
