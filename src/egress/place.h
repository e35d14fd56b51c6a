/* The head of a request, and the secrets that go into it. Pure: no I/O, no clock.
 *
 * Every placeholder in the head is either replaced or the request is refused: it stands for a secret of this sandbox, the host, method and path are
 * of those that the secret may go to, and it stands where the secret may stand. Nothing is looked for in bodies: there it stays what it is. */
#ifndef CAISSON_EGRESS_PLACE_H
#define CAISSON_EGRESS_PLACE_H

#include "egress/keyring.h"

struct place_field {
	struct str name, value;
	char *fresh; /* heap: what stands there instead; or NULL */
};

struct place {
	/* in */
	const char *host; /* canonical; judged by who accepted the connection */
	uint16_t port;
	bool plain; /* it goes out without TLS: no secret does */
	struct str method, target; /* "/path?query", as sent */
	struct str authority; /* HTTP/2: what goes out in the place of a field Host; p NULL: the field does */
	struct place_field *fields;
	size_t n;
	bool body_unseen; /* there may be one whatever the fields say (HTTP/2) */
	struct str body_hash; /* hex SHA-256 of the whole body when it is known; p NULL = not */
	/* out */
	char *fresh_target;	 /* heap, or NULL */
	const struct key *placed; /* one that was placed; NULL = none */
	int status;		 /* of a refusal */
	char reason[120];
	const struct key *at_fault; /* the secret that a refusal is about, or NULL */
};

enum placed {
	PLACED,		/* go on, with what is fresh */
	PLACE_REFUSED,
	PLACE_NEEDS_BODY, /* it is signed with its body: ask again with body_hash */
};
enum placed place_request(const struct keyring *k, struct place *p);
void place_done(struct place *p); /* wipes what is fresh */

/* sign.c: AWS Signature Version 4, with the secret key in `k`, over the request as it is in p. */
bool sign_is_for(const struct key *k, const struct place *p);
enum placed sign_request(const struct key *k, struct place *p);

/* For both. */
enum placed place_refuse(struct place *p, const struct key *at_fault, int status, const char *reason);
struct place_field *place_find(struct place *p, const char *name, size_t *ret_count);
static inline struct str place_value(const struct place_field *f)
{
	return f->fresh ? str_of(f->fresh) : f->value;
}

#endif
