/* Signed file URLs: whoever has one may read or write that one file, without a key.
 *
 * The client makes them itself, from the sandbox's signing key: signature = "v1_" + base64url(HMAC-SHA256(key, "v1:files:METHOD:PATH:EXPIRES")).
 * The key is made when it is first asked for and kept in the sandbox's `extra`; a new one ends all URLs of the old. */
#include "dialect/daytona/internal.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <stdio.h>

#define KEY_FIELD "signingKey"
#define PREFIX "v1_"

static void signature_of(const char *key, const char *method, const char *path, const char *expires, char ret_text[static 64])
{
	auto_free char *message = xasprintf("v1:files:%s:%s:%s", method, path, expires);
	unsigned char digest[32]; /* of SHA-256 */
	unsigned n = 0;
	char text[45];
	HMAC(EVP_sha256(), key, (int)strlen(key), (const unsigned char *)message, strlen(message), digest, &n);
	base64_encode(digest, sizeof(digest), text);
	for (char *c = text; *c; c++)
		*c = *c == '+' ? '-' : *c == '/' ? '_' : *c == '=' ? '\0' : *c;
	snprintf(ret_text, 64, PREFIX "%s", text);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);
	return n >= m && memcmp(text + n - m, end, m) == 0;
}

static bool signable(const char *method, const char *pattern)
{
	return (streq(method, "GET") && ends_with(pattern, "/files/download")) || (streq(method, "POST") && ends_with(pattern, "/files/upload-v2"));
}

bool signature_opens(struct daytona *d, struct request *r, const struct route *route, struct caller *ret, struct err *e)
{
	struct err quiet;
	struct caller owner;
	struct sandbox_view v;
	int64_t until;
	char right[64];
	const char *given = req_query(r, "signature"), *path = req_query(r, "path"), *expires = req_query(r, "expires"), *id = req_path_arg(r, "id");
	if (!given || !path || !expires || !signable(req_method(r), route->pattern) || parse_int("expires", expires, 0, INT64_MAX / 1000, &until, &quiet) < 0)
		return false;
	if (api_owner_of(d->api, id, &owner, &quiet) < 0 || api_sandbox_get(d->api, &owner, id, &v, &quiet) < 0)
		return false;
	json_t *extra = extra_load(&v);
	const char *key = json_string_value(json_object_get(extra, KEY_FIELD));
	bool opens = false;
	if (key) {
		signature_of(key, req_method(r), path, expires, right);
		opens = strlen(given) == strlen(right) && CRYPTO_memcmp(given, right, strlen(right)) == 0;
	}
	json_decref(extra);
	if (opens && until && (uint64_t)until * 1000 <= now_unix_ms()) {
		err_set(e, ERR_UNAUTHENTICATED, 0, "this link has expired");
		return false;
	}
	if (opens)
		*ret = owner;
	else
		err_set(e, ERR_UNAUTHENTICATED, 0, "the signature does not fit");
	return opens;
}

static void answer_key(struct request *r, struct daytona *d, bool anew)
{
	struct err e = { 0 };
	struct sandbox_view v;
	if (api_sandbox_get(d->api, caller_of(r), req_path_arg(r, "id"), &v, &e) < 0) {
		fail(r, &e);
		return;
	}
	json_t *extra = extra_load(&v);
	const char *known = json_string_value(json_object_get(extra, KEY_FIELD));
	char key[65];
	if (known && !anew) {
		snprintf(key, sizeof(key), "%s", known);
	} else {
		random_hex(key, 32);
		if (extra_put(d, caller_of(r), &v, KEY_FIELD, json_string(key), &e) < 0) {
			json_decref(extra);
			fail(r, &e);
			return;
		}
	}
	json_decref(extra);
	req_reply_json(r, 200, json_string(key));
}

static void handle_key(struct request *r, void *daytona)
{
	answer_key(r, daytona, false);
}

static void handle_rotate(struct request *r, void *daytona)
{
	answer_key(r, daytona, true);
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/sandbox/{id}/signing-key", .handle = handle_key },
	{ .method = "POST", .pattern = "/sandbox/{id}/signing-key/rotate", .handle = handle_rotate },
};
const struct route_table signed_routes = { routes, ARRAY_LEN(routes) };
