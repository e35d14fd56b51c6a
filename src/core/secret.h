/* The secrets of this server, and which sandbox has which. Private to core, as is what sandboxes are given of them. */
#ifndef CAISSON_CORE_SECRET_H
#define CAISSON_CORE_SECRET_H

#include "core/authority.h"
#include "core/core.h"

struct secrets;
struct secrets *secrets_new(struct store *store, const char *folder); /* reads what is stored */
void secrets_free(struct secrets *t);
void secrets_serve(struct core *c); /* openers ask for their keys from now on */

/* A short text of the server's own, for the store; *ret is text too, and what it was sealed as is bound in. */
int secrets_seal_text(struct core *c, const char *what, const char *plain, char **ret, struct err *e);
int secrets_unseal_text(struct core *c, const char *what, const char *sealed, char **ret, struct err *e);

bool sandbox_is_opened(const struct sandbox *s); /* has secrets, or rules about methods: its TLS is opened for some hosts */
bool spec_is_opened(const struct sandbox_spec *s);
/* All that runs of it get: what programs need to trust the authority, its own environment, placeholders. `env` is empty before. */
void sandbox_env(const struct sandbox *s, struct pairs *env);
/* The edge and the opener what holds now; whenever the sandbox's secrets or rules about methods, or the place where it runs, have changed. */
void secrets_tell(struct sandbox *s);
int secrets_known(struct core *c, const char *tenant, const struct sandbox_spec *spec, struct err *e); /* are all that it names there? */
void secrets_forget_gone(struct core *c, const char *tenant, struct sandbox_spec *spec); /* it names no others behind this */

/* trust.c: puts the authority's certificate where programs inside look for such, and placeholders into files. The sandbox runs.
 * Done at once when none of its TLS is opened. */
void secrets_install(struct sandbox *s, sandbox_done_fn done, void *ctx);
#define TRUST_BUNDLE "/etc/ssl/certs/ca-certificates.crt"
#define TRUST_ANCHOR "/usr/local/share/ca-certificates/caisson.crt"

/* The certificate of this installation; NULL and e when it cannot be had. */
const struct authority *secrets_authority(struct core *c, struct err *e);
/* The placeholder of the tenant's secret of this name or id, or NULL. */
const char *secret_placeholder(struct core *c, const char *tenant, const char *ref);

#endif
