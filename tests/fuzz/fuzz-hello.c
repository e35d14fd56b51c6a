/* The first bytes of a connection: a verdict other than "more" must not change when more bytes come. */
#include "wire/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t room[HELLO_MAX];
	struct hello h = { 0 };
	enum hello_verdict last = HELLO_MORE;

	for (size_t n = size > 600 ? size - 600 : 0; n <= size; n++) {
		uint8_t *copy = xmemdup(data, n);
		enum hello_verdict v = hello_parse(copy, n, room, &h);
		if (v == HELLO_DONE && h.name.p && ((const uint8_t *)h.name.p < room || (const uint8_t *)h.name.p + h.name.n > room + sizeof room))
			abort();
		free(copy);
		if (last == HELLO_NOT && v != HELLO_NOT)
			abort();
		last = v;
	}
	return 0;
}
