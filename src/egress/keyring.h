/* What an opener holds: the secrets of its sandbox, its rules about methods, and what it signs certificates with. Pure.
 *
 * As text: "key=value" and a NUL, one after the other. "certificate" and "signer" (base64 of DER) stand once; "rule" is one of
 * model/method.h; "secret" (an id) begins a secret,
 * and what follows is of it: placeholder, value, host, header, query, method, path (these may be repeated), basic, aws. */
#ifndef CAISSON_EGRESS_KEYRING_H
#define CAISSON_EGRESS_KEYRING_H

#include "base/buf.h"
#include "model/method.h"
#include "model/secret.h"

struct key {
	char id[SECRET_ID_MAX];
	char *placeholder;
	struct secret_spec spec; /* with the value */
	struct policy hosts;	 /* spec.hosts as rules */
};
struct keyring {
	struct key *v;
	size_t n;
	char *certificate, *signer; /* base64 */
	struct method_rules rules;
	/* Heap: what a value looks like where it may come back (screen.h), and the length of the longest of them. Of short ones (SECRET_MASK_MIN) there are none. */
	struct str *forms;
	size_t n_forms, longest;
};
void keyring_put_authority(struct buf *out, struct str certificate_der, struct str key_der);
void keyring_put_rule(struct buf *out, const char *text);
void keyring_put(struct buf *out, const char *id, const char *placeholder, const struct secret_spec *spec, const char *value);
int keyring_parse(const char *text, size_t n, struct keyring *ret); /* 0 or -EINVAL */
void keyring_done(struct keyring *k);				    /* wipes */
char *query_encoded(const char *value); /* as it stands in a query; heap */
bool key_is_for(const struct key *k, const char *name, uint16_t port);

#endif
