/* Private to api/. */
#ifndef CAISSON_API_API_INT_H
#define CAISSON_API_API_INT_H

#include "api/api.h"
#include "core/core.h"

/* The caller's sandbox of this id or name; NULL and e (ERR_NOT_FOUND, the same for another tenant's) when there is none. */
struct sandbox *api_lookup(struct api *a, const struct caller *c, const char *ref, struct err *e);

#endif
