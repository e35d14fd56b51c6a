/* Inside libcaisson: the connection, one HTTP exchange, and decoding of answers. Not installed.
 *
 * Unlike the rest of the tree nothing here aborts when memory is gone: it is a library in somebody else's program, so
 * every allocation can fail with CAISSON_ERR_NO_MEMORY. */
#ifndef CAISSON_CLIENT_CLIENT_H
#define CAISSON_CLIENT_CLIENT_H

#include "caisson.h"

#include "base/util.h"

#include <curl/curl.h>
#include <jansson.h>

struct caisson {
	CURL *curl;              /* keeps its TCP or unix connection open between requests */
	struct curl_slist *auth; /* "Authorization: Bearer ..." or NULL */
	char *url;               /* as shown: "http://..." or "unix:/..." */
	char *base;              /* what paths are appended to; no slash at its end */
	char *socket;            /* path of the unix socket, or NULL */
	char *key;               /* or NULL */
};

/* --- error.c --- */
int error_set(struct caisson_error *e, enum caisson_error_kind kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int error_memory(struct caisson_error *e);
/* Fills e from a refusal of the server: its status and body. */
int error_of_reply(struct caisson_error *e, long status, const char *body, size_t len);

/* --- bytes.c: a growing buffer with a bound --- */
struct bytes {
	char *p; /* NUL-terminated once anything was added */
	size_t n, cap, max;
	bool failed; /* an addition found no memory, or the bound; n stays what it was */
	bool over;   /* it was the bound */
};
int bytes_add(struct bytes *b, const void *p, size_t n);
int bytes_addz(struct bytes *b, const char *z);
int bytes_escape(struct bytes *b, const char *text); /* percent-escapes all but unreserved characters */
void bytes_done(struct bytes *b);
#define auto_bytes __attribute__((cleanup(bytes_done)))

/* --- http.c: one exchange --- */
struct exchange {
	const char *method;
	const char *path;          /* from "/v1/", escaped, with its query */
	const char *content_type;  /* of body or source; NULL = application/json */
	const void *body;          /* or NULL */
	size_t body_len;
	ptrdiff_t (*source)(void *ctx, void *bytes, size_t n); /* instead of body: sent chunked */
	int (*sink)(void *ctx, const void *bytes, size_t n);   /* gets a successful answer's body; NULL: into reply */
	void *ctx;
	size_t reply_max;          /* bound on reply; 0 = 16 MiB */
	long timeout_s;            /* 0 = none */
	/* out: */
	long status;
	struct bytes reply;        /* exchange_done frees */
	bool stopped;              /* source or sink asked to stop */
};
int http_set_up(struct caisson *c); /* c->curl, by c->socket and c->base; -1 = no memory */
int exchange_perform(struct caisson *c, struct exchange *x, struct caisson_error *e);
void exchange_done(struct exchange *x);
#define auto_exchange __attribute__((cleanup(exchange_done)))

/* The same with JSON on both sides. body is consumed (may be NULL: none; a failed construction is told by body_wanted). */
int json_exchange(struct caisson *c, const char *method, const char *path, json_t *take_body, json_t **ret, struct caisson_error *e);


bool url_is_loopback(const char *url);

/* --- decode.c --- */
/* "/v1/sandboxes/{a}" + suffix, escaped. suffix is appended as it is. NULL out of memory. */
char *sandbox_path(const char *sandbox, const char *suffix);
char *run_path(const char *sandbox, const char *run, const char *suffix);
json_t *pairs_json(const struct caisson_pair *v, size_t n); /* {"k":"v"}; NULL out of memory or not UTF-8 */
/* Text of a member, copied; NULL when absent or null. *ok becomes false out of memory. */
char *json_text(const json_t *o, const char *name, bool *ok);
uint64_t json_u64(const json_t *o, const char *name);
int64_t json_i64(const json_t *o, const char *name, int64_t otherwise);
bool json_flag(const json_t *o, const char *name);
int sandbox_decode(json_t *o, struct caisson_sandbox **ret, struct caisson_error *e);
int run_decode(json_t *o, struct caisson_run **ret, struct caisson_error *e); /* with stdout, stderr when there */
int file_decode(json_t *o, struct caisson_file **ret, struct caisson_error *e);

static inline void json_unref(json_t **o)
{
	json_decref(*o);
}
#define auto_json __attribute__((cleanup(json_unref)))

#endif
