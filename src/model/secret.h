/* A secret: a value, and where it may go. Plain data and its validation.
 *
 * A sandbox that has one is given a placeholder, a random text that means nothing anywhere else. On its way out a request that holds the
 * placeholder where the secret may go gets the value in its place (egress/place.h); everywhere else it stays what it is. */
#ifndef CAISSON_MODEL_SECRET_H
#define CAISSON_MODEL_SECRET_H

#include "model/policy.h"

#define SECRET_VALUE_MAX 16384	    /* bytes; it has to fit into the head of a request */
#define SECRET_MASK_MIN 8	    /* shorter ones are not looked for in answers: they would be found everywhere */
#define SECRET_DESCRIPTION_MAX 1024
#define SECRET_LIST_MAX 32	    /* entries of each list */
#define SECRET_TEXT_MAX 256	    /* of an entry */
#define SECRET_ID_MAX 40
#define SECRETS_OF_SANDBOX_MAX 32
#define SECRET_PLACEHOLDER_SIZE 85  /* "caisson-placeholder-", 64 hex digits and a NUL */

struct secret_spec {
	char *name;	   /* as a sandbox's: 1 to 64 letters, digits, '_', '.', '-' */
	char *description; /* or NULL */
	char *value;	   /* NULL where it is not told */
	/* NULL-terminated, or NULL */
	char **hosts;	/* "api.example.org", "*.example.org:8443"; without a port: 443 */
	char **headers; /* fields in which it may stand; "*" is any */
	char **query;	/* parameters of the query */
	char **methods; /* none = all */
	char **paths;	/* beginnings, by whole segments; none = all */
	bool basic;	/* as name or password of Basic authentication */
	bool git;	/* programs of git inside give it by themselves (implies basic) */
	char *aws_key_id; /* it is the secret key of this access key: requests are signed with it (AWS Signature Version 4) */
};
void secret_spec_done(struct secret_spec *s); /* wipes the value; all zero afterwards */
void secret_spec_copy(struct secret_spec *to, const struct secret_spec *from); /* deep, without the value */
/* Form and sense. Hosts are brought to their canonical form with a port; one that says nothing of where in a request gets "Authorization" and
 * basic. The value may be absent unless it is needed. */
int secret_spec_check(struct secret_spec *s, bool need_value, struct err *e);
int secret_value_check(const char *value, struct err *e);

bool secret_placeholder_valid(struct str s);

struct secret_view {
	const char *id, *placeholder;
	const struct secret_spec *spec; /* without the value, which nobody is told */
	uint64_t created_ms, updated_ms;
};

#endif
