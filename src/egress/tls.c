/* The two ends of a connection: certificates of our own towards the sandbox, the host's trust store towards the world. */
#include "egress/opener_int.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAST_DAYS = 30 /* a clone may wake with an old clock */, LEAF_DAYS = 30, PIECE = 16384 };
#define LEAF_AGAIN_MS (10ULL * 24 * 3600 * 1000)

/* --- what is carried --- */

static bool is_carried(const unsigned char *p, size_t n)
{
	struct str name = { (const char *)p, n };

	return str_eqz(name, HTTP11) || str_eqz(name, HTTP2);
}

bool offers(const struct conn *c, const char *protocol)
{
	for (size_t at = 0; at < c->n_offered; at += 1U + c->offered[at])
		if (str_eqz((struct str){ (const char *)c->offered + at + 1, c->offered[at] }, protocol))
			return true;
	return false;
}

static void note_offer(struct conn *c, const unsigned char *p, size_t n)
{
	if (n < 2)
		return;
	c->offers = true;
	for (size_t at = 2; at < n && at + 1 + p[at] <= n; at += 1U + p[at])
		if (is_carried(p + at + 1, p[at]) && c->n_offered + 1 + p[at] <= sizeof c->offered) {
			memcpy(c->offered + c->n_offered, p + at, 1U + p[at]);
			c->n_offered += 1U + p[at];
		}
}

/* The first time the client is made to wait: what it may speak is the true host's to choose. */
static int on_hello(SSL *ssl, int *alert, void *arg)
{
	struct side *s = SSL_get_app_data(ssl);
	struct conn *c = s->conn;
	const unsigned char *p;
	size_t n;

	(void)alert;
	(void)arg;
	if (c->state == CONN_ACCEPT)
		return SSL_CLIENT_HELLO_SUCCESS;
	if (!c->offers && SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &p, &n) == 1)
		note_offer(c, p, n);
	return SSL_CLIENT_HELLO_RETRY;
}

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_n, const unsigned char *in, unsigned in_n, void *arg)
{
	struct side *s = SSL_get_app_data(ssl);
	size_t n = strlen(s->conn->protocol);

	(void)arg;
	for (unsigned at = 0; n && at < in_n && at + 1 + in[at] <= in_n; at += 1U + in[at])
		if (in[at] == n && memcmp(in + at + 1, s->conn->protocol, n) == 0) {
			*out = in + at + 1;
			*out_n = in[at];
			return SSL_TLSEXT_ERR_OK;
		}
	return SSL_TLSEXT_ERR_NOACK;
}

/* --- leaves --- */

static bool add_extension(X509 *c, X509V3_CTX *ctx, int nid, const char *value)
{
	X509_EXTENSION *x = X509V3_EXT_conf_nid(NULL, ctx, nid, value);
	bool ok = x && X509_add_ext(c, x, -1) == 1;

	X509_EXTENSION_free(x);
	return ok;
}

static X509 *mint(struct opener *o, const char *name)
{
	X509 *c = X509_new();
	X509V3_CTX ctx;
	unsigned char serial[16];
	char san[POLICY_NAME_MAX + 8];

	random_bytes(serial, sizeof serial);
	serial[0] = (unsigned char)((serial[0] & 0x3f) | 0x40);
	snprintf(san, sizeof san, "DNS:%s", name);
	BIGNUM *number = BN_bin2bn(serial, sizeof serial, NULL);
	if (c)
		X509V3_set_ctx(&ctx, o->deputy, c, NULL, NULL, 0);
	bool ok = c && number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(c)) && X509_set_version(c, X509_VERSION_3) == 1 &&
		  X509_time_adj_ex(X509_getm_notBefore(c), -PAST_DAYS, 0, NULL) && X509_time_adj_ex(X509_getm_notAfter(c), LEAF_DAYS, 0, NULL) &&
		  X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "O", MBSTRING_UTF8, (const unsigned char *)"Caisson", -1, -1, 0) == 1 &&
		  X509_set_issuer_name(c, X509_get_subject_name(o->deputy)) == 1 && X509_set_pubkey(c, o->leaf_key) == 1 &&
		  add_extension(c, &ctx, NID_basic_constraints, "critical,CA:FALSE") && add_extension(c, &ctx, NID_key_usage, "critical,digitalSignature") &&
		  add_extension(c, &ctx, NID_ext_key_usage, "serverAuth") && add_extension(c, &ctx, NID_subject_alt_name, san) &&
		  add_extension(c, &ctx, NID_subject_key_identifier, "hash") && add_extension(c, &ctx, NID_authority_key_identifier, "keyid:always") &&
		  X509_sign(c, o->deputy_key, EVP_sha256()) > 0;
	BN_free(number);
	if (ok)
		return c;
	X509_free(c);
	return NULL;
}

static X509 *leaf_for(struct opener *o, const char *name)
{
	struct leaf *l = NULL;

	for (size_t i = 0; i < o->n_leaves && !l; i++)
		if (streq(o->leaves[i].name, name))
			l = &o->leaves[i];
	if (l && now_ms() - l->made_ms < LEAF_AGAIN_MS)
		return l->certificate;
	X509 *fresh = mint(o, name);
	if (!fresh)
		return NULL;
	if (!l) {
		l = &o->leaves[o->n_leaves < LEAVES_MAX ? o->n_leaves++ : o->next_leaf++ % LEAVES_MAX];
	}
	X509_free(l->certificate);
	snprintf(l->name, sizeof l->name, "%s", name);
	l->certificate = fresh;
	l->made_ms = now_ms();
	return fresh;
}

static int on_certificate(SSL *ssl, void *arg)
{
	struct opener *o = arg;
	struct side *s = SSL_get_app_data(ssl);
	X509 *leaf = o->deputy ? leaf_for(o, s->conn->name) : NULL;

	return leaf && SSL_use_certificate(ssl, leaf) == 1 && SSL_use_PrivateKey(ssl, o->leaf_key) == 1 && SSL_add1_chain_cert(ssl, o->deputy) == 1;
}

static unsigned char *decoded(const char *base64, long *ret_n)
{
	unsigned char *der = xmalloc(strlen(base64) / 4 * 3 + 1);

	*ret_n = base64_decode(str_of(base64), der);
	return der;
}

int tls_take_keys(struct opener *o)
{
	long n = 0;
	const unsigned char *p;

	for (size_t i = 0; i < o->n_leaves; i++)
		X509_free(o->leaves[i].certificate);
	memset(o->leaves, 0, sizeof o->leaves);
	o->n_leaves = o->next_leaf = 0;
	X509_free(take_ptr(&o->deputy));
	EVP_PKEY_free(take_ptr(&o->deputy_key));
	if (!o->keys.certificate || !o->keys.signer)
		return o->keys.n || o->keys.rules.n ? -EINVAL : 0;
	unsigned char *der = decoded(o->keys.certificate, &n);
	p = der;
	o->deputy = n > 0 ? d2i_X509(NULL, &p, n) : NULL;
	free(der);
	der = decoded(o->keys.signer, &n);
	p = der;
	o->deputy_key = n > 0 ? d2i_AutoPrivateKey(NULL, &p, n) : NULL;
	explicit_bzero(der, n > 0 ? (size_t)n : 0);
	free(der);
	return o->deputy && o->deputy_key ? 0 : -EINVAL;
}

/* --- contexts --- */

static const char *const bundles[] = { "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
				       "/etc/ssl/cert.pem" };

/* All of it at once: later no file can be opened. SSL_CERT_FILE is the operator's word, as for every program with OpenSSL. */
static int load_trust(SSL_CTX *ctx)
{
	const char *own = getenv("SSL_CERT_FILE");

	if (own)
		return SSL_CTX_load_verify_file(ctx, own) == 1 ? 0 : -ENOENT;
	for (size_t i = 0; i < ARRAY_LEN(bundles); i++)
		if (access(bundles[i], R_OK) == 0 && SSL_CTX_load_verify_file(ctx, bundles[i]) == 1)
			return 0;
	return -ENOENT;
}

int tls_open(struct opener *o)
{
	const uint64_t options = SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE;
	const long mode = SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS;

	o->to_client = SSL_CTX_new(TLS_server_method());
	o->to_server = SSL_CTX_new(TLS_client_method());
	o->leaf_key = EVP_EC_gen("P-256");
	if (!o->to_client || !o->to_server || !o->leaf_key)
		return -ENOMEM;
	SSL_CTX *both[] = { o->to_client, o->to_server };
	for (size_t i = 0; i < 2; i++) {
		if (SSL_CTX_set_min_proto_version(both[i], TLS1_2_VERSION) != 1)
			return -EINVAL;
		SSL_CTX_set_options(both[i], options);
		SSL_CTX_set_mode(both[i], mode);
		SSL_CTX_set_session_cache_mode(both[i], SSL_SESS_CACHE_OFF); /* a session must not lead to another host */
	}
	SSL_CTX_set_num_tickets(o->to_client, 0);
	SSL_CTX_set_max_early_data(o->to_client, 0);
	SSL_CTX_set_client_hello_cb(o->to_client, on_hello, NULL);
	SSL_CTX_set_cert_cb(o->to_client, on_certificate, o);
	SSL_CTX_set_alpn_select_cb(o->to_client, on_alpn, NULL);
	SSL_CTX_set_verify(o->to_server, SSL_VERIFY_PEER, NULL);
	return load_trust(o->to_server);
}

/* --- a side --- */

int side_open(struct conn *c, struct side *s, bool client)
{
	s->conn = c;
	buf_init(&s->in, ROOM);
	buf_init(&s->out, OUT_MAX);
	if (c->plain) {
		s->up = true;
		return 0;
	}
	s->ssl = SSL_new(client ? c->o->to_client : c->o->to_server);
	if (!s->ssl || SSL_set_fd(s->ssl, s->fd) != 1)
		return -ENOMEM;
	SSL_set_app_data(s->ssl, s);
	if (client) {
		SSL_set_accept_state(s->ssl);
		return 0;
	}
	SSL_set_connect_state(s->ssl);
	SSL_set_hostflags(s->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (SSL_set_tlsext_host_name(s->ssl, c->name) != 1 || SSL_set1_host(s->ssl, c->name) != 1)
		return -EINVAL;
	/* Nobody has asked for a protocol: nor do we. */
	return c->n_offered && SSL_set_alpn_protos(s->ssl, c->offered, (unsigned)c->n_offered) != 0 ? -EINVAL : 0;
}

void side_close(struct side *s)
{
	if (s->ssl)
		SSL_free(take_ptr(&s->ssl));
	if (s->in.data)
		explicit_bzero(s->in.data, s->in.len);
	if (s->out.data)
		explicit_bzero(s->out.data, s->out.len);
	buf_done(&s->in);
	buf_done(&s->out);
	s->fd = close_fd(s->fd);
}

int side_handshake(struct side *s)
{
	ERR_clear_error();
	int rc = SSL_do_handshake(s->ssl);

	if (rc == 1) {
		s->up = true;
		return 1;
	}
	switch (SSL_get_error(s->ssl, rc)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
	case SSL_ERROR_WANT_CLIENT_HELLO_CB:
		return 0;
	default:
		return -EPROTO;
	}
}

bool side_hello_seen(const struct side *s)
{
	return SSL_want_client_hello_cb(s->ssl);
}

const char *tls_reason(struct side *s, char room[static 160])
{
	long verified = SSL_get_verify_result(s->ssl);
	unsigned long code = ERR_peek_last_error();

	if (verified != X509_V_OK)
		snprintf(room, 160, "its certificate is not good: %s", X509_verify_cert_error_string(verified));
	else
		snprintf(room, 160, "TLS with it failed%s%s", code ? ": " : "", code ? ERR_reason_error_string(code) ?: "" : "");
	return room;
}

/* Of a connection without TLS, what SSL_read and SSL_write do: the bytes, or 0 for none now; and the side is marked. */
static int read_plain(struct side *s, char *p)
{
	ssize_t n;

	do
		n = read(s->fd, p, PIECE);
	while (n < 0 && errno == EINTR);
	s->eof = n == 0;
	s->broken = n < 0 && errno != EAGAIN;
	return (int)MAX(n, 0);
}

static int write_plain(struct side *s)
{
	ssize_t n;

	do
		n = send(s->fd, s->out.data, MIN(s->out.len, (size_t)PIECE), MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	s->mute = n < 0 && errno != EAGAIN;
	return (int)MAX(n, 0);
}

bool side_fill(struct side *s)
{
	bool moved = false;

	while (s->up && !s->eof && !s->broken && s->in.len <= ROOM - PIECE) {
		char *p = buf_reserve(&s->in, PIECE);
		ERR_clear_error();
		int n = s->ssl ? SSL_read(s->ssl, p, PIECE) : read_plain(s, p);
		if (n > 0) {
			buf_grew(&s->in, (size_t)n);
			moved = true;
			continue;
		}
		if (!s->ssl)
			return moved || s->eof || s->broken;
		switch (SSL_get_error(s->ssl, n)) {
		case SSL_ERROR_WANT_READ:
		case SSL_ERROR_WANT_WRITE:
			return moved;
		case SSL_ERROR_ZERO_RETURN:
			s->eof = true;
			return true;
		default:
			s->broken = true;
			return true;
		}
	}
	return moved;
}

bool side_flush(struct side *s)
{
	bool moved = false;

	while (s->up && !s->broken && !s->shut && !s->mute && s->out.len) {
		ERR_clear_error();
		int n = s->ssl ? SSL_write(s->ssl, s->out.data, (int)MIN(s->out.len, (size_t)PIECE)) : write_plain(s);
		if (n > 0) {
			buf_consume(&s->out, (size_t)n);
			moved = true;
			continue;
		}
		if (!s->ssl && !s->mute)
			break;
		int error = s->ssl ? SSL_get_error(s->ssl, n) : SSL_ERROR_SYSCALL;
		if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
			break;
		s->mute = true;
		buf_reset(&s->out);
		return true;
	}
	return moved;
}

void side_shut(struct side *s)
{
	if (!s->up || s->shut || s->broken)
		return;
	s->shut = true;
	ERR_clear_error();
	if (s->ssl)
		(void)SSL_shutdown(s->ssl);
	(void)shutdown(s->fd, SHUT_WR);
}
