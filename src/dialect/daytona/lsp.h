/* What language servers say, and how it reads in this API. Pure: all of it is the sandbox's word and may be anything. Private to lsp*.c and
 * its tests. */
#ifndef CAISSON_DIALECT_DAYTONA_LSP_H
#define CAISSON_DIALECT_DAYTONA_LSP_H

#include "dialect/daytona/internal.h"

#define LSP_HEAD_MAX 4096
#define LSP_BODY_MAX (16U << 20)
#define LSP_ITEMS_MAX 20000 /* of one answer */

/* Two protocols with one framing of what the server says ("Content-Length: N", an empty line, N bytes of JSON). */
enum lsp_kind {
	LSP_SERVER,   /* the Language Server Protocol */
	LSP_TSSERVER, /* what the typescript package's own server speaks */
};

/* The message at the front of `in`: 1 and its body, with *ret_n bytes to consume afterwards; 0 when it is not whole yet; -EBADMSG. */
int lsp_next(const struct buf *in, struct str *ret_body, size_t *ret_n);
/* A request as the server wants it on its stdin; takes o. */
void lsp_frame(struct buf *out, enum lsp_kind kind, json_t *take);

/* "file:///a/b" or "file://a/b" (SDKs put a relative path behind file://) as an absolute path below base. Heap; NULL for other schemes. */
char *lsp_path(const char *uri, const char *base);
char *lsp_uri(const char *path); /* heap */

/* A server's result as this API has it: a new value, never NULL. The result may be NULL, null or nonsense. */
json_t *lsp_completions(enum lsp_kind kind, const json_t *result);
/* uri: of the file asked about, or NULL. within: a directory; symbols of files elsewhere (libraries) are left out; NULL = none are. */
json_t *lsp_symbols(enum lsp_kind kind, const json_t *result, const char *uri, const char *within);

#endif
