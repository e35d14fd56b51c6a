#include "core/keys.h"

#include "model/key.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <uthash.h>

enum { CACHE_MAX = 1024, USED_EVERY_MS = 60000 };

/* Checked keys stay here, so that a request costs a hash and a look-up in memory. */
struct cached {
	unsigned char hash[SHA256_DIGEST_LENGTH];
	struct key_row row;
	UT_hash_handle hh;
};

struct keys {
	struct store *store;
	struct cached *cache;
	EVP_MD *sha256; /* to have it found anew for each request costs ten times the hash */
};

struct keys *keys_new(struct store *store)
{
	struct keys *k = xcalloc(1, sizeof *k);

	k->store = store;
	k->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	return k;
}

static void forget_all(struct keys *k)
{
	struct cached *c, *next;

	HASH_ITER (hh, k->cache, c, next) {
		HASH_DEL(k->cache, c);
		key_row_done(&c->row);
		free(c);
	}
}

void keys_free(struct keys *k)
{
	if (!k)
		return;
	forget_all(k);
	EVP_MD_free(k->sha256);
	free(k);
}

static void hash_of(const struct keys *k, struct str text, unsigned char ret[static SHA256_DIGEST_LENGTH])
{
	int ok = EVP_Digest(text.p, text.n, ret, NULL, k->sha256, NULL);

	if (ok != 1)
		abort(); /* no memory, or an OpenSSL without SHA-256 */
}

/* Looking up by digest is safe against timing: what leaks is about the digest, not the key. */
int keys_check(struct keys *k, struct str text, const struct key_row **ret, struct err *e)
{
	unsigned char hash[SHA256_DIGEST_LENGTH];
	struct cached *c;

	if (text.n == 0)
		return err_set(e, ERR_UNAUTHENTICATED, EACCES, "no API key: send 'Authorization: Bearer KEY'");
	if (text.n > 256)
		return err_set(e, ERR_UNAUTHENTICATED, EACCES, "this API key is not valid here");
	hash_of(k, text, hash);
	HASH_FIND(hh, k->cache, hash, sizeof hash, c);
	if (!c) {
		struct key_row row = { 0 };
		if (store_key_by_hash(k->store, hash, &row) < 0 || row.revoked) {
			key_row_done(&row);
			return err_set(e, ERR_UNAUTHENTICATED, EACCES, "this API key is not valid here");
		}
		if (HASH_COUNT(k->cache) >= CACHE_MAX)
			forget_all(k);
		c = xcalloc(1, sizeof *c);
		memcpy(c->hash, hash, sizeof hash);
		c->row = row;
		HASH_ADD(hh, k->cache, hash, sizeof c->hash, c);
	}
	uint64_t now = now_unix_ms();
	bool first = now - c->row.used_ms > USED_EVERY_MS;
	if (first) {
		c->row.used_ms = now;
		store_key_used(k->store, c->row.id, now);
	}
	*ret = &c->row;
	return first;
}

int keys_create(struct keys *k, const char *name, const char *tenant, bool operator_, char ret_text[static KEY_TEXT_SIZE],
                char ret_id[static KEY_ID_SIZE], struct err *e)
{
	char hex[41], short_hex[13], text[KEY_TEXT_SIZE], id[KEY_ID_SIZE];
	struct key_row row = { .id = id, .operator_ = operator_, .created_ms = now_unix_ms() };

	if (!sandbox_name_valid(str_of(tenant)))
		return err_set(e, ERR_INVALID, EINVAL, "tenant: 1 to %d letters, digits, '-', '_' or '.'", SPEC_NAME_MAX);
	if (strlen(name) > 128 || !utf8_valid(str_of(name)))
		return err_set(e, ERR_INVALID, EINVAL, "name: at most 128 bytes of UTF-8");
	random_hex(hex, 20);
	snprintf(text, sizeof text, KEY_PREFIX "%s", hex);
	random_hex(short_hex, 6);
	snprintf(id, sizeof id, "key_%s", short_hex);
	row.name = xstrdup(name);
	row.tenant = xstrdup(tenant);
	hash_of(k, str_of(text), row.hash);
	int r = store_key_add(k->store, &row, e);
	free(row.name);
	free(row.tenant);
	if (r >= 0) {
		memcpy(ret_text, text, sizeof text);
		memcpy(ret_id, id, sizeof id);
	}
	OPENSSL_cleanse(text, sizeof text);
	return r;
}

int keys_revoke(struct keys *k, const char *id, struct err *e)
{
	forget_all(k);
	return store_key_revoke(k->store, id, e);
}

static int count_one(void *ctx, const struct key_row *row)
{
	size_t *n = ctx;

	*n += !row->revoked;
	return 0;
}

size_t keys_count(struct keys *k)
{
	size_t n = 0;

	store_key_each(k->store, count_one, &n);
	return n;
}
