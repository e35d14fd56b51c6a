/* A growing byte buffer with a bound.
 *
 * The bound is given at init and never exceeded: an append that would go past it changes nothing and returns -ENOBUFS,
 * and the buffer remembers it (`overflow`), so a sequence of appends can be checked once at the end. Consuming from the
 * front is O(1) amortised. A buffer always keeps a NUL behind its bytes (not counted), so text can be read as a C string. */
#ifndef CAISSON_BASE_BUF_H
#define CAISSON_BASE_BUF_H

#include "base/util.h"

#include <stdarg.h>

struct buf {
	char *data;    /* first unconsumed byte, or NULL while nothing was ever stored */
	size_t len;    /* unconsumed bytes */
	size_t max;    /* bound on len */
	bool overflow; /* an append was refused since init or buf_reset */
	bool secret_;  /* private */
	char *base_;   /* private */
	size_t cap_;   /* private */
};

void buf_init(struct buf *b, size_t max);
void buf_init_secret(struct buf *b, size_t max); /* all memory that it ever had is overwritten before it is given back (not what buf_take takes) */
void buf_done(struct buf *b); /* frees; the buffer may be used again as if just initialised */
void buf_reset(struct buf *b); /* empties, keeps the memory (trims it when over 64 KiB) */
void buf_trim(struct buf *b, size_t keep); /* frees the memory of an empty buffer that has more than keep */
#define auto_buf __attribute__((cleanup(buf_done)))

int buf_add(struct buf *b, const void *p, size_t n);
int buf_addz(struct buf *b, const char *z);
int buf_addc(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_vaddf(struct buf *b, const char *fmt, va_list ap);

/* Room for n more bytes; returns where to write them, or NULL (overflow set). Follow with buf_grew. */
char *buf_reserve(struct buf *b, size_t n);
void buf_grew(struct buf *b, size_t n);

void buf_consume(struct buf *b, size_t n); /* drops n <= len bytes from the front */
static inline struct str buf_str(const struct buf *b)
{
	return (struct str){ b->data, b->len };
}
/* The bytes as a heap string owned by the caller; the buffer is empty afterwards. */
char *buf_take(struct buf *b);

#endif
