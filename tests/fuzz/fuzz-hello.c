/* The first bytes of a connection: a verdict other than "more" must not change when more bytes come. */
#include "wire/hello.h"

/* Behind one: in turns from the client and from the server, in pieces whose length stands before them. */
static void behind(const uint8_t *data, size_t size, uint8_t *room)
{
	struct hello h = { 0 };
	struct hello_after a;

	hello_after_init(&a, &h);
	for (size_t at = 0; at < size;) {
		size_t n = MIN((size_t)(data[at] & 127), size - at - 1);
		uint8_t *copy = xmemdup(data + at + 1, n);
		bool client = data[at] & 128, more = client ? hello_after_client(&a, copy, n, room, &h) == HELLO_MORE : hello_after_server(&a, copy, n);
		free(copy);
		at += 1 + n;
		if (!more)
			break;
	}
	hello_after_done(&a);
}

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
	behind(data, size, room);
	return 0;
}
