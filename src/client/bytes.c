#include "client/client.h"

int bytes_add(struct bytes *b, const void *p, size_t n)
{
	if (b->failed)
		return -1;
	if (n > b->max || b->n > b->max - n) {
		b->failed = b->over = true;
		return -1;
	}
	if (b->n + n + 1 > b->cap) {
		size_t cap = b->cap ? b->cap : 256;
		while (cap < b->n + n + 1)
			cap = cap > SIZE_MAX / 2 ? SIZE_MAX : cap * 2;
		char *grown = realloc(b->p, cap);
		if (!grown) {
			b->failed = true;
			return -1;
		}
		b->p = grown;
		b->cap = cap;
	}
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
	b->p[b->n] = '\0';
	return 0;
}

int bytes_addz(struct bytes *b, const char *z)
{
	return bytes_add(b, z, strlen(z));
}

int bytes_escape(struct bytes *b, const char *text)
{
	static const char digits[] = "0123456789ABCDEF";

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~", c)) {
			bytes_add(b, text, 1);
		} else {
			const char hex[3] = { '%', digits[c >> 4], digits[c & 15] };
			bytes_add(b, hex, 3);
		}
	}
	return b->failed ? -1 : 0;
}

void bytes_done(struct bytes *b)
{
	free(b->p);
	*b = (struct bytes){ .max = b->max };
}

char *caisson_escape(const char *text)
{
	struct bytes b = { .max = SIZE_MAX / 2 };

	if (bytes_add(&b, "", 0) < 0 || bytes_escape(&b, text) < 0) {
		bytes_done(&b);
		return NULL;
	}
	return b.p;
}
