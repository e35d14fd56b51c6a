#include "core/authority.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>

enum { PAST_DAYS = 30 /* a clone may wake with an old clock */, YEARS_ROOT = 10, DAYS_DEPUTY = 365 };
#define WHAT "authority"
#define DER_MAX 8192

static int failed(struct err *e, const char *what)
{
	return err_set(e, ERR_INTERNAL, EIO, "the certificate authority: %s", what);
}

void authority_done(struct authority *a)
{
	free(a->pem);
	free(a->der);
	free(a->sealed);
	*a = (struct authority){ 0 };
}

/* --- certificates --- */

static bool add_extension(X509 *c, X509V3_CTX *ctx, int nid, const char *value)
{
	X509_EXTENSION *x = X509V3_EXT_conf_nid(NULL, ctx, nid, value);
	bool ok = x && X509_add_ext(c, x, -1) == 1;

	X509_EXTENSION_free(x);
	return ok;
}

/* A certificate of an authority for `key`, signed by issuer_key; issuer NULL: by itself. */
static X509 *certify(EVP_PKEY *key, X509 *issuer, EVP_PKEY *issuer_key, const char *name, const char *basic, const char *constraints, int days)
{
	X509 *c = X509_new();
	X509V3_CTX ctx;
	unsigned char serial[16];
	BIGNUM *number;
	bool ok = c;

	random_bytes(serial, sizeof serial);
	serial[0] = (unsigned char)((serial[0] & 0x3f) | 0x40); /* positive, and always 16 bytes */
	number = BN_bin2bn(serial, sizeof serial, NULL);
	if (ok)
		X509V3_set_ctx(&ctx, issuer ? issuer : c, c, NULL, NULL, 0);
	ok = ok && number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(c)) && X509_set_version(c, X509_VERSION_3) == 1 &&
	     X509_time_adj_ex(X509_getm_notBefore(c), -PAST_DAYS, 0, NULL) && X509_time_adj_ex(X509_getm_notAfter(c), days, 0, NULL) &&
	     X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "O", MBSTRING_UTF8, (const unsigned char *)"Caisson", -1, -1, 0) == 1 &&
	     X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1, 0) == 1 &&
	     X509_set_issuer_name(c, X509_get_subject_name(issuer ? issuer : c)) == 1 && X509_set_pubkey(c, key) == 1 &&
	     add_extension(c, &ctx, NID_basic_constraints, basic) && add_extension(c, &ctx, NID_key_usage, "critical,keyCertSign,cRLSign") &&
	     add_extension(c, &ctx, NID_subject_key_identifier, "hash") &&
	     (!issuer || add_extension(c, &ctx, NID_authority_key_identifier, "keyid:always")) &&
	     (!issuer || add_extension(c, &ctx, NID_ext_key_usage, "serverAuth")) &&
	     (!constraints || add_extension(c, &ctx, NID_name_constraints, constraints)) && X509_sign(c, issuer_key, EVP_sha256()) > 0;
	BN_free(number);
	if (ok)
		return c;
	X509_free(c);
	return NULL;
}

static bool to_der(X509 *c, struct buf *out)
{
	unsigned char *p = NULL;
	int n = i2d_X509(c, &p);
	bool ok = n > 0 && buf_add(out, p, (size_t)n) == 0;

	OPENSSL_free(p);
	return ok;
}

static bool key_to_der(EVP_PKEY *key, struct buf *out)
{
	unsigned char *p = NULL;
	int n = i2d_PrivateKey(key, &p);
	bool ok = n > 0 && buf_add(out, p, (size_t)n) == 0;

	OPENSSL_clear_free(p, n > 0 ? (size_t)n : 0);
	return ok;
}

static X509 *read_certificate(const uint8_t *der, size_t n)
{
	return d2i_X509(NULL, &der, (long)n);
}

/* --- the one of this installation --- */

/* What is asked for again and again, from the certificate alone. */
static int describe(struct authority *a, struct err *e)
{
	X509 *c = read_certificate(a->der, a->der_len);
	BIO *b = BIO_new(BIO_s_mem());
	char *text = NULL;
	int ok = 0;

	if (c && b && PEM_write_bio_X509(b, c) == 1) {
		long n = BIO_get_mem_data(b, &text);
		a->pem = xstrndup(text, (size_t)n);
		snprintf(a->hash, sizeof a->hash, "%08lx", X509_NAME_hash_ex(X509_get_subject_name(c), NULL, NULL, &ok) & 0xffffffffUL);
	}
	BIO_free(b);
	X509_free(c);
	return a->pem && ok ? 0 : failed(e, "its certificate cannot be read");
}

static int make(struct store *s, const struct vault *v, struct authority *a, struct err *e)
{
	auto_buf struct buf der, sealed;
	struct buf plain;
	char digits[9], name[64];

	buf_init(&der, DER_MAX);
	buf_init(&sealed, DER_MAX);
	buf_init_secret(&plain, DER_MAX);
	random_hex(digits, 4);
	snprintf(name, sizeof name, "Caisson local authority %s", digits);
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *c = key ? certify(key, NULL, key, name, "critical,CA:TRUE,pathlen:1", NULL, YEARS_ROOT * 365) : NULL;
	int rc = c && to_der(c, &der) && key_to_der(key, &plain) ? 0 : failed(e, "it cannot be made");
	if (rc == 0)
		rc = vault_seal(v, WHAT, buf_str(&plain), &sealed, e);
	if (rc == 0 && (rc = store_authority_put(s, buf_str(&der), buf_str(&sealed))) < 0)
		rc = err_sys(e, ERR_UNAVAILABLE, -rc, "can't store the certificate authority");
	if (rc == 0)
		*a = (struct authority){ .der = xmemdup(der.data, der.len), .sealed = xmemdup(sealed.data, sealed.len), .der_len = der.len,
					 .sealed_len = sealed.len };
	buf_done(&plain);
	X509_free(c);
	EVP_PKEY_free(key);
	return rc;
}

int authority_open(struct store *s, const struct vault *v, struct authority *ret, struct err *e)
{
	struct authority a = { 0 };
	int rc = store_authority_get(s, &a.der, &a.der_len, &a.sealed, &a.sealed_len);

	if (rc == -ENOENT)
		rc = make(s, v, &a, e);
	else if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "can't read the certificate authority");
	if (rc == 0)
		rc = describe(&a, e);
	if (rc < 0) {
		authority_done(&a);
		return rc;
	}
	*ret = a;
	return 0;
}

/* "critical,permitted;DNS:api.example.org,...,excluded;IP:..." A constraint covers what is below the name, too. Of every name ("*", of a
 * rule about methods) there is none. */
static int constraints_of(char *const *hosts, struct buf *out)
{
	bool all = false;

	buf_addz(out, "critical");
	for (char *const *h = hosts; *h; h++)
		all |= strncmp(*h, "*", 2) == 0 || strncmp(*h, "*:", 2) == 0;
	for (; *hosts && !all; hosts++) {
		const char *name = strncmp(*hosts, "*.", 2) == 0 ? *hosts + 2 : *hosts;
		buf_addf(out, ",permitted;DNS:%.*s", (int)strcspn(name, ":"), name);
	}
	buf_addz(out, ",excluded;IP:0.0.0.0/0.0.0.0,excluded;IP:0:0:0:0:0:0:0:0/0:0:0:0:0:0:0:0");
	return out->overflow ? -ENOBUFS : 0;
}

int authority_deputy(const struct authority *a, const struct vault *v, char *const *hosts, struct buf *ret_certificate, struct buf *ret_key,
		     struct err *e)
{
	struct buf plain;
	auto_buf struct buf constraints;
	const unsigned char *p;
	EVP_PKEY *root = NULL, *key = NULL;
	char digits[9], name[32];
	X509 *issuer = read_certificate(a->der, a->der_len), *c = NULL;

	random_hex(digits, 4);
	snprintf(name, sizeof name, "Caisson deputy %s", digits);
	buf_init_secret(&plain, DER_MAX);
	buf_init(&constraints, 1 << 20);
	int rc = vault_unseal(v, WHAT, a->sealed, a->sealed_len, &plain, e);
	if (rc == 0) {
		p = (const unsigned char *)plain.data;
		root = d2i_AutoPrivateKey(NULL, &p, (long)plain.len);
		key = EVP_EC_gen("P-256");
		if (root && key && issuer && constraints_of(hosts, &constraints) == 0)
			c = certify(key, issuer, root, name, "critical,CA:TRUE,pathlen:0", constraints.data, DAYS_DEPUTY);
		if (!c || !to_der(c, ret_certificate) || !key_to_der(key, ret_key))
			rc = failed(e, "a deputy cannot be made");
	}
	buf_done(&plain);
	X509_free(c);
	X509_free(issuer);
	EVP_PKEY_free(key);
	EVP_PKEY_free(root);
	return rc;
}
