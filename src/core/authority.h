/* The certificate authority of this installation, which sandboxes with secrets trust.
 *
 * Made when it is first needed; its key is sealed in the store and is opened for the moment of signing only. What opens the connections of a
 * sandbox never has it: each gets a deputy, a certificate and key of its own, good for the hosts of that sandbox's secrets and for no
 * other name (name constraints, which every client checks), so that whoever takes one over can pretend to be nobody but those. */
#ifndef CAISSON_CORE_AUTHORITY_H
#define CAISSON_CORE_AUTHORITY_H

#include "core/vault.h"
#include "store/store.h"

struct authority {
	char *pem;    /* the certificate */
	char hash[9]; /* of its name, as OpenSSL names files in a folder of certificates */
	/* private */
	uint8_t *der, *sealed;
	size_t der_len, sealed_len;
};
int authority_open(struct store *s, const struct vault *v, struct authority *ret, struct err *e); /* made if there is none */
void authority_done(struct authority *a);
/* hosts: rules ("api.example.org:443", "*.example.org", "*"), at least one. Certificate and key are appended in DER. */
int authority_deputy(const struct authority *a, const struct vault *v, char *const *hosts, struct buf *ret_certificate, struct buf *ret_key,
		     struct err *e);

#endif
