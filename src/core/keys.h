/* API keys: made, checked, revoked. Only SHA-256 digests are kept, in the store; a key is shown once. */
#ifndef CAISSON_CORE_KEYS_H
#define CAISSON_CORE_KEYS_H

#include "base/err.h"
#include "store/store.h"

#define KEY_TEXT_SIZE 48 /* model/key.h, and a NUL */
#define KEY_ID_SIZE 40

struct keys;
struct keys *keys_new(struct store *store);
void keys_free(struct keys *k);
/* The row of a valid key, valid until the next call here: 0, or 1 at its first use within a minute. ERR_UNAUTHENTICATED otherwise. */
int keys_check(struct keys *k, struct str text, const struct key_row **ret, struct err *e);
int keys_create(struct keys *k, const char *name, const char *tenant, bool operator_, char ret_text[static KEY_TEXT_SIZE],
                char ret_id[static KEY_ID_SIZE], struct err *e);
int keys_revoke(struct keys *k, const char *id, struct err *e);
size_t keys_count(struct keys *k); /* not revoked ones */

#endif
