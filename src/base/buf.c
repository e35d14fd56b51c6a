#include "base/buf.h"

#include <errno.h>
#include <stdio.h>

enum { KEEP = 64 * 1024, FIRST = 256 };

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){ .max = max };
}

void buf_init_secret(struct buf *b, size_t max)
{
	*b = (struct buf){ .max = max, .secret_ = true };
}

static void give_back(struct buf *b)
{
	if (b->secret_ && b->base_)
		explicit_bzero(b->base_, b->cap_);
	free(b->base_);
}

void buf_done(struct buf *b)
{
	give_back(b);
	*b = (struct buf){ .max = b->max, .secret_ = b->secret_ };
}

void buf_reset(struct buf *b)
{
	if (b->cap_ > KEEP) {
		buf_done(b);
		return;
	}
	b->data = b->base_;
	b->len = 0;
	b->overflow = false;
	if (b->data)
		*b->data = '\0';
}

void buf_trim(struct buf *b, size_t keep)
{
	if (b->len == 0 && b->cap_ > keep)
		buf_done(b);
}

char *buf_reserve(struct buf *b, size_t n)
{
	if (n > b->max || b->len > b->max - n || b->len + n == SIZE_MAX) {
		b->overflow = true;
		return NULL;
	}
	size_t used = (size_t)(b->data - b->base_); /* consumed bytes in front */
	size_t need = b->len + n + 1;
	if (used + need > b->cap_) {
		if (need <= b->cap_ && used >= b->len) {
			memmove(b->base_, b->data, b->len + 1);
		} else {
			size_t cap = MAX(need, MAX(b->cap_ + b->cap_ / 2, (size_t)FIRST));
			char *p = xmalloc(cap);
			if (b->len)
				memcpy(p, b->data, b->len);
			give_back(b);
			b->base_ = p;
			b->cap_ = cap;
		}
		b->data = b->base_;
		b->data[b->len] = '\0';
	}
	return b->data + b->len;
}

void buf_grew(struct buf *b, size_t n)
{
	b->len += n;
	b->data[b->len] = '\0';
}

int buf_add(struct buf *b, const void *p, size_t n)
{
	char *to = buf_reserve(b, n);

	if (!to)
		return -ENOBUFS;
	if (n)
		memcpy(to, p, n);
	buf_grew(b, n);
	return 0;
}

int buf_addz(struct buf *b, const char *z)
{
	return buf_add(b, z, strlen(z));
}

int buf_addc(struct buf *b, char c)
{
	return buf_add(b, &c, 1);
}

int buf_vaddf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;

	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		return -EINVAL;
	char *to = buf_reserve(b, (size_t)n);
	if (!to)
		return -ENOBUFS;
	vsnprintf(to, (size_t)n + 1, fmt, ap);
	buf_grew(b, (size_t)n);
	return 0;
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int r = buf_vaddf(b, fmt, ap);
	va_end(ap);
	return r;
}

void buf_consume(struct buf *b, size_t n)
{
	if (n > b->len)
		abort();
	if (n == b->len) {
		b->data = b->base_;
		b->len = 0;
		if (b->data)
			*b->data = '\0';
		return;
	}
	b->data += n;
	b->len -= n;
}

char *buf_take(struct buf *b)
{
	char *p;

	if (b->data && b->data == b->base_)
		p = take_ptr(&b->base_);
	else
		p = xstrndup(b->data, b->len);
	buf_done(b);
	return p;
}
