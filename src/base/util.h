/* Small things every layer uses: cleanup attributes, views, checked arithmetic, aborting allocation.
 *
 * Internal allocations abort when memory is gone: the daemon is crash-only and adopts its sandboxes again. A size that a
 * peer can choose goes through base/buf.h, which has a bound and fails as an error. */
#ifndef CAISSON_BASE_UTIL_H
#define CAISSON_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define container_of(p, type, member) ((type *)(void *)((char *)(p) - offsetof(type, member)))

/* A view: bytes owned by somebody else. */
struct str {
	const char *p;
	size_t n;
};
#define STR(literal) ((struct str){ "" literal, sizeof(literal) - 1 })
static inline struct str str_of(const char *z)
{
	return (struct str){ z, z ? strlen(z) : 0 };
}
static inline bool str_eq(struct str a, struct str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool str_eqz(struct str a, const char *z)
{
	return str_eq(a, str_of(z));
}
bool str_eq_nocase(struct str a, struct str b); /* ASCII */
bool streq(const char *a, const char *b);       /* NULL equals only NULL */

/* Decimal digits only, no sign, no blanks: 0, or -EINVAL / -ERANGE (over max). */
int parse_u64(struct str s, uint64_t max, uint64_t *ret_value);

bool utf8_valid(struct str s); /* strict: no surrogates, no overlong forms */
/* A heap copy with U+FFFD for each byte that is not part of a valid character; at most three times as long. Not terminated. */
char *utf8_repaired(struct str s, size_t *ret_n);

void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n);
void *xreallocarray(void *p, size_t n, size_t size);
char *xstrdup(const char *s); /* NULL in, NULL out */
void free_secret(char *text); /* overwritten first; NULL is nothing */
char *xstrndup(const char *s, size_t n);
void *xmemdup(const void *p, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static inline void free_ptr(void *pp)
{
	free(*(void **)pp);
}
void close_fd_ptr(int *fd);
#define auto_free __attribute__((cleanup(free_ptr)))
#define auto_fd __attribute__((cleanup(close_fd_ptr)))

/* Closes unless negative; returns -EBADF, to be assigned back: fd = close_fd(fd). Never retried, errno kept. */
int close_fd(int fd);

#define take_ptr(pp)                 \
	({                           \
		__typeof__(pp) _t = (pp); \
		__typeof__(*_t) _v = *_t; \
		*_t = NULL;          \
		_v;                  \
	})
static inline int take_fd(int *fd)
{
	int v = *fd;
	*fd = -9; /* EBADF */
	return v;
}

uint64_t now_ms(void);      /* CLOCK_MONOTONIC */
uint64_t now_us(void);      /* CLOCK_MONOTONIC */
uint64_t now_unix_ms(void); /* wall clock */

/* ISO 8601 with milliseconds and Z ("2026-01-02T03:04:05.678Z", 24 characters) from unix milliseconds. */
void format_iso8601(uint64_t unix_ms, char ret_text[static 25]);

/* Fills with kernel randomness; aborts if the kernel has none. */
void random_bytes(void *p, size_t n);
/* n random bytes as 2n lower-case hex digits and a NUL. */
void random_hex(char *ret_text, size_t n);
/* A random (version 4) UUID, 36 characters and NUL. */
void random_uuid(char ret_text[static 37]);

void hex_encode(const void *p, size_t n, char *ret_text); /* 2n digits and a NUL */

/* Base64 (RFC 4648, padded). Encode: ret_text has 4*((n+2)/3)+1 bytes. Decode: strict; returns bytes written (at most
 * 3*(n/4)) or -EINVAL. */
void base64_encode(const void *p, size_t n, char *ret_text);
ssize_t base64_decode(struct str text, void *ret_bytes);

#endif
