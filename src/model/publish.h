/* Ports of a sandbox that are reached at an address of this host: as text, as data, and its validation. Pure.
 *
 * As text:  [ADDRESS:][HOST_PORT:]PORT   "80", "8080:80", "127.0.0.2:8080:80", "[::1]:8080:80" */
#ifndef CAISSON_MODEL_PUBLISH_H
#define CAISSON_MODEL_PUBLISH_H

#include "base/err.h"
#include "model/policy.h"

#define PUBLISH_MAX 32 /* of one sandbox */
#define PUBLISH_ADDRESS_DEFAULT "127.0.0.1"
#define PUBLISH_TEXT_MAX 64 /* with its NUL */

/* ERR_INVALID, with the text in the message. What is left out is 0 or PUBLISH_ADDRESS_DEFAULT. ret->address is heap. */
int publication_parse(struct str text, struct publication *ret, struct err *e);
const char *publication_format(const struct publication *p, char ret_text[static PUBLISH_TEXT_MAX]); /* returns ret_text */
bool publication_same_place(const struct publication *a, const struct publication *b); /* address and host port; valid ones */
/* Form only: whether the address is this host's, and the port free, is core's to find out. */
int publications_validate(const struct publications *p, struct err *e);

#endif
