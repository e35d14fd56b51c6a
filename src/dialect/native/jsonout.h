/* Writing JSON into a buffer, safe with any bytes. Pure.
 *
 * Our own and not jansson's, because output and file names come from a sandbox: bytes that are not UTF-8 are told apart here
 * (base64, or U+FFFD), and a large output is written in pieces. Keys are our own literals; in an array the key is NULL. */
#ifndef CAISSON_DIALECT_NATIVE_JSONOUT_H
#define CAISSON_DIALECT_NATIVE_JSONOUT_H

#include "base/buf.h"

struct jout {
	struct buf *b; /* overflow is looked at once at the end */
	bool comma;    /* a value precedes at this level */
};

void jout_object(struct jout *j, const char *key); /* { */
void jout_array(struct jout *j, const char *key);  /* [ */
void jout_end_object(struct jout *j);
void jout_end_array(struct jout *j);
void jout_z(struct jout *j, const char *key, const char *z);        /* NULL = null; not UTF-8 = U+FFFD */
void jout_str(struct jout *j, const char *key, struct str s);       /* the same */
void jout_text(struct jout *j, const char *key, struct str s);      /* "key", or when not UTF-8 "key_base64" instead */
void jout_name(struct jout *j, const char *key, const char *z);     /* "key", and when not UTF-8 "key_base64" too */
void jout_base64(struct jout *j, const char *key, struct str s);    /* "key_base64" */
void jout_u64(struct jout *j, const char *key, uint64_t v);
void jout_i64(struct jout *j, const char *key, int64_t v);
void jout_number(struct jout *j, const char *key, double v);
void jout_bool(struct jout *j, const char *key, bool v);
void jout_null(struct jout *j, const char *key);
void jout_time(struct jout *j, const char *key, uint64_t unix_ms);  /* ISO 8601; 0 = null */

/* The inside of a JSON string, to be written between quotes in pieces. s is a piece of valid UTF-8 (it may cut a character). */
void json_escape(struct buf *b, struct str s);
/* How many bytes at the end of s begin a character that is not complete yet (0..3). */
size_t utf8_unfinished(struct str s);

#endif
