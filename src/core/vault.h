/* Values at rest: sealed with AES-256-GCM under a key that is a file of the daemon's own (DATA/state/secrets.key, 0600, made at first use),
 * so that the database alone, a copy or a backup of it, gives nothing away. */
#ifndef CAISSON_CORE_VAULT_H
#define CAISSON_CORE_VAULT_H

#include "base/buf.h"
#include "base/err.h"

#define VAULT_OVERHEAD 29 /* version, nonce, tag */

struct vault;
/* may_make false: a missing key file is an error, for something has been sealed with it. */
int vault_open(const char *folder, bool may_make, struct vault **ret, struct err *e);
void vault_free(struct vault *v);
/* `what` is bound in: what was sealed as one thing cannot be opened as another. Appended to out. */
int vault_seal(const struct vault *v, const char *what, struct str plain, struct buf *out, struct err *e);
int vault_unseal(const struct vault *v, const char *what, const void *sealed, size_t n, struct buf *out, struct err *e);

#endif
