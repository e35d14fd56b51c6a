/* AWS Signature Version 4. A client inside signs with the placeholder as its key; what it signed is signed anew with the key itself, which so
 * never leaves. The canonical request is made of the request as it goes out, by the list of fields that the client signed. */
#include "egress/place.h"
#include "wire/http.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>

#define ALGORITHM "AWS4-HMAC-SHA256"
#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
enum { HASH = 32, PARAMETERS_MAX = 256 };

struct claim { /* of the field Authorization */
	struct str key_id, scope, date, region, service; /* scope: date/region/service/aws4_request */
	struct str signed_fields, signature;
};

/* "Name=value" in a comma list. */
static struct str part(struct str list, const char *name)
{
	size_t n = strlen(name);

	while (list.n) {
		const char *comma = memchr(list.p, ',', list.n);
		struct str one = http_trim((struct str){ list.p, comma ? (size_t)(comma - list.p) : list.n });
		if (one.n > n && memcmp(one.p, name, n) == 0 && one.p[n] == '=')
			return (struct str){ one.p + n + 1, one.n - n - 1 };
		size_t used = comma ? (size_t)(comma - list.p) + 1 : list.n;
		list.p += used;
		list.n -= used;
	}
	return (struct str){ 0 };
}

static struct str segment(struct str *rest)
{
	const char *slash = memchr(rest->p, '/', rest->n);
	struct str one = { rest->p, slash ? (size_t)(slash - rest->p) : rest->n };

	rest->p += one.n + (slash != NULL);
	rest->n -= one.n + (slash != NULL);
	return one;
}

static bool read_claim(struct str authorization, struct claim *ret)
{
	const size_t head = sizeof ALGORITHM;

	if (authorization.n <= head || memcmp(authorization.p, ALGORITHM " ", head) != 0)
		return false;
	struct str list = { authorization.p + head, authorization.n - head };
	struct str credential = part(list, "Credential");
	ret->signed_fields = part(list, "SignedHeaders");
	ret->signature = part(list, "Signature");
	if (!credential.p || !ret->signed_fields.p || ret->signature.n != 2 * HASH)
		return false;
	ret->key_id = segment(&credential);
	ret->scope = credential;
	ret->date = segment(&credential);
	ret->region = segment(&credential);
	ret->service = segment(&credential);
	return str_eqz(credential, "aws4_request") && ret->date.n == 8 && ret->region.n && ret->service.n;
}

bool sign_is_for(const struct key *k, const struct place *p)
{
	struct claim c;

	for (size_t i = 0; i < p->n; i++)
		if (str_eq_nocase(p->fields[i].name, STR("Authorization")) && read_claim(p->fields[i].value, &c))
			return str_eqz(c.key_id, k->spec.aws_key_id);
	return false;
}

/* --- the canonical request --- */

/* S3 takes a path as it is; everybody else encodes it once more. */
static void add_path(struct buf *out, struct str path, struct str service)
{
	bool again = !str_eqz(service, "s3") && !str_eqz(service, "s3-object-lambda") && !str_eqz(service, "s3-outposts") && !str_eqz(service, "s3express");

	for (size_t i = 0; i < path.n; i++) {
		unsigned char c = (unsigned char)path.p[i];
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || memchr("-._~/", c, 5);
		if (plain || !again)
			buf_addc(out, (char)c);
		else
			buf_addf(out, "%%%02X", c);
	}
}

static int by_bytes(const void *a, const void *b)
{
	const struct str *x = a, *y = b;
	/* Name first, then value: '=' must count as the end of the name. */
	const char *ex = memchr(x->p, '=', x->n), *ey = memchr(y->p, '=', y->n);
	size_t nx = ex ? (size_t)(ex - x->p) : x->n, ny = ey ? (size_t)(ey - y->p) : y->n;
	int c = memcmp(x->p, y->p, MIN(nx, ny));

	if (c == 0 && nx != ny)
		c = nx < ny ? -1 : 1;
	if (c == 0)
		c = memcmp(x->p, y->p, MIN(x->n, y->n));
	return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

static bool add_query(struct buf *out, struct str query)
{
	struct str v[PARAMETERS_MAX];
	size_t n = 0;

	while (query.n) {
		const char *amp = memchr(query.p, '&', query.n);
		struct str one = { query.p, amp ? (size_t)(amp - query.p) : query.n };
		if (one.n && n >= PARAMETERS_MAX)
			return false;
		if (one.n)
			v[n++] = one;
		query.p += one.n + (amp != NULL);
		query.n -= one.n + (amp != NULL);
	}
	if (n)
		qsort(v, n, sizeof *v, by_bytes);
	for (size_t i = 0; i < n; i++) {
		if (i)
			buf_addc(out, '&');
		(void)buf_add(out, v[i].p, v[i].n);
		if (!memchr(v[i].p, '=', v[i].n))
			buf_addc(out, '=');
	}
	return true;
}

/* Values without blanks around them, and one blank for many. */
static void add_value(struct buf *out, struct str v)
{
	v = http_trim(v);
	for (size_t i = 0; i < v.n; i++)
		if (v.p[i] != ' ' || i == 0 || v.p[i - 1] != ' ')
			buf_addc(out, v.p[i]);
}

/* What is signed of a field, as one of HTTP/1.1 has it. False: it is not there. */
static bool add_field(struct buf *out, const struct place *p, struct str name)
{
	struct str between = str_eq_nocase(name, STR("cookie")) ? STR("; ") : STR(","); /* RFC 9113, 8.2.3 */
	bool found = false;

	if (p->authority.p && str_eq_nocase(name, STR("host"))) {
		add_value(out, p->authority);
		return true;
	}
	for (size_t i = 0; i < p->n; i++) {
		if (!str_eq_nocase(p->fields[i].name, name))
			continue;
		if (found)
			(void)buf_add(out, between.p, between.n);
		add_value(out, place_value(&p->fields[i]));
		found = true;
	}
	return found;
}

/* False: a signed field that is not there. */
static bool add_fields(struct buf *out, const struct place *p, struct str names)
{
	while (names.n) {
		const char *end = memchr(names.p, ';', names.n);
		struct str one = { names.p, end ? (size_t)(end - names.p) : names.n };
		(void)buf_add(out, one.p, one.n);
		buf_addc(out, ':');
		if (!add_field(out, p, one))
			return false;
		buf_addc(out, '\n');
		names.p += one.n + (end != NULL);
		names.n -= one.n + (end != NULL);
	}
	return true;
}

/* --- the signature --- */

static bool hmac(const void *key, size_t n, struct str data, unsigned char ret[static HASH])
{
	unsigned len = 0;
	return HMAC(EVP_sha256(), key, (int)n, (const unsigned char *)data.p, data.n, ret, &len) && len == HASH;
}

static bool sha256_hex(struct str data, char ret[static 2 * HASH + 1])
{
	unsigned char h[HASH];

	if (EVP_Digest(data.p, data.n, h, NULL, EVP_sha256(), NULL) != 1)
		return false;
	hex_encode(h, HASH, ret);
	return true;
}

static bool sign(const char *secret, const struct claim *c, struct str text, char ret[static 2 * HASH + 1])
{
	unsigned char a[HASH], b[HASH];
	char *first = xasprintf("AWS4%s", secret);
	bool ok = hmac(first, strlen(first), c->date, a) && hmac(a, HASH, c->region, b) && hmac(b, HASH, c->service, a) &&
		  hmac(a, HASH, STR("aws4_request"), b) && hmac(b, HASH, text, a);

	if (ok)
		hex_encode(a, HASH, ret);
	explicit_bzero(first, strlen(first));
	explicit_bzero(a, sizeof a);
	explicit_bzero(b, sizeof b);
	free(first);
	return ok;
}

/* What the body hashes to, as far as it can be known here. */
static enum placed body_hash(const struct key *k, struct place *p, struct str *ret)
{
	const struct place_field *f = place_find(p, "x-amz-content-sha256", NULL), *length = place_find(p, "Content-Length", NULL);

	if (f && f->value.n >= 10 && memcmp(f->value.p, "STREAMING-", 10) == 0 && !str_eqz(f->value, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"))
		return place_refuse(p, k, 400, "a body that is signed piece by piece cannot be signed anew; turn chunked signing off");
	if (f)
		*ret = f->value;
	else if (p->body_hash.p)
		*ret = p->body_hash;
	else if (!p->body_unseen && !place_find(p, "Transfer-Encoding", NULL) && (!length || str_eqz(length->value, "0")))
		*ret = STR(EMPTY_HASH);
	else
		return PLACE_NEEDS_BODY;
	return PLACED;
}

static bool canonical(struct buf *out, struct place *p, const struct claim *c, struct str hash)
{
	struct str target = p->fresh_target ? str_of(p->fresh_target) : p->target;
	const char *question = memchr(target.p, '?', target.n);
	size_t n = question ? (size_t)(question - target.p) : target.n;
	struct str query = question ? (struct str){ question + 1, target.n - n - 1 } : (struct str){ 0 };

	(void)buf_add(out, p->method.p, p->method.n);
	buf_addc(out, '\n');
	add_path(out, (struct str){ target.p, n }, c->service);
	buf_addc(out, '\n');
	bool ok = add_query(out, query);
	buf_addc(out, '\n');
	ok = ok && add_fields(out, p, c->signed_fields);
	buf_addc(out, '\n');
	(void)buf_add(out, c->signed_fields.p, c->signed_fields.n);
	buf_addc(out, '\n');
	(void)buf_add(out, hash.p, hash.n);
	return ok && !out->overflow;
}

enum placed sign_request(const struct key *k, struct place *p)
{
	size_t count = 0;
	struct place_field *f = place_find(p, "Authorization", &count), *date = place_find(p, "X-Amz-Date", NULL);
	char digest[2 * HASH + 1], signature[2 * HASH + 1];
	struct claim c;
	struct str hash = { 0 };
	auto_buf struct buf text;

	buf_init(&text, 256 << 10);
	if (count != 1 || !date || !read_claim(f->value, &c))
		return place_refuse(p, k, 400, "a signed request needs one Authorization and X-Amz-Date");
	enum placed v = body_hash(k, p, &hash);
	if (v != PLACED)
		return v;
	if (!canonical(&text, p, &c, hash) || !sha256_hex(buf_str(&text), digest))
		return place_refuse(p, k, 400, "the request cannot be signed: a signed field is missing, or it is too long");
	buf_reset(&text);
	buf_addf(&text, ALGORITHM "\n%.*s\n%.*s\n%s", (int)date->value.n, date->value.p, (int)c.scope.n, c.scope.p, digest);
	if (text.overflow || !sign(k->spec.value, &c, buf_str(&text), signature))
		return place_refuse(p, k, 500, "the request cannot be signed");
	f->fresh = xasprintf(ALGORITHM " Credential=%.*s/%.*s, SignedHeaders=%.*s, Signature=%s", (int)c.key_id.n, c.key_id.p, (int)c.scope.n, c.scope.p,
			     (int)c.signed_fields.n, c.signed_fields.p, signature);
	p->placed = k;
	return PLACED;
}
