#include "wire/hello.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static uint8_t room[HELLO_MAX];

struct bytes {
	uint8_t b[2048];
	size_t n;
};

static void add(struct bytes *to, const void *p, size_t n)
{
	memcpy(to->b + to->n, p, n);
	to->n += n;
}

/* An extension that names a host. */
static struct bytes name_ext(const char *name)
{
	size_t n = strlen(name);
	struct bytes e = { 0 };
	const uint8_t head[] = { 0, 0, 0, (uint8_t)(n + 5), 0, (uint8_t)(n + 3), 0, 0, (uint8_t)n };

	add(&e, head, sizeof head);
	add(&e, name, n);
	return e;
}

/* A hello with these extensions in records of at most `piece` bytes. */
static struct bytes hello(const struct bytes *exts, size_t n_exts, size_t piece)
{
	struct bytes body = { 0 }, all = { 0 }, out = { 0 };
	uint8_t head[34] = { 3, 3 };
	size_t len = 0;

	for (size_t i = 0; i < n_exts; i++)
		len += exts[i].n;
	add(&body, head, sizeof head);
	add(&body, "\x00\x00\x02\x13\x01\x01\x00", 7);
	add(&body, (uint8_t[]){ (uint8_t)(len >> 8), (uint8_t)len }, 2);
	for (size_t i = 0; i < n_exts; i++)
		add(&body, exts[i].b, exts[i].n);
	add(&all, (uint8_t[]){ 1, 0, (uint8_t)(body.n >> 8), (uint8_t)body.n }, 4);
	add(&all, body.b, body.n);
	for (size_t at = 0; at < all.n; at += piece) {
		size_t take = MIN(piece, all.n - at);
		add(&out, (uint8_t[]){ 22, 3, 1, (uint8_t)(take >> 8), (uint8_t)take }, 5);
		add(&out, all.b + at, take);
	}
	return out;
}

static void finds_the_name(void **state)
{
	struct bytes ext = name_ext("Api.Test");
	struct hello h;

	(void)state;
	for (size_t piece = 1; piece < 200; piece += 13) {
		struct bytes b = hello(&ext, 1, piece);
		for (size_t n = 0; n < b.n; n++)
			assert_int_equal(hello_parse(b.b, n, room, &h), HELLO_MORE);
		assert_int_equal(hello_parse(b.b, b.n, room, &h), HELLO_DONE);
		assert_true(str_eqz(h.name, "Api.Test"));
		assert_false(h.encrypted);
	}
}

static void tells_what_is_missing_or_hidden(void **state)
{
	struct bytes exts[2] = { name_ext("a.b"), { .b = { 0xfe, 0x0d, 0, 1, 7 }, .n = 5 } };
	struct hello h;
	struct bytes b = hello(exts, 0, 4096);

	(void)state;
	assert_int_equal(hello_parse(b.b, b.n, room, &h), HELLO_DONE);
	assert_null(h.name.p);
	b = hello(exts, 2, 4096);
	assert_int_equal(hello_parse(b.b, b.n, room, &h), HELLO_DONE);
	assert_true(h.encrypted);
}

static void refuses_what_could_be_read_in_two_ways(void **state)
{
	struct bytes twice[2] = { name_ext("a.b"), name_ext("c.d") }, b;
	struct hello h;

	(void)state;
	b = hello(twice, 2, 4096);
	assert_int_equal(hello_parse(b.b, b.n, room, &h), HELLO_BAD);
	b = hello(twice, 1, 4096);
	b.b[b.n++] = 22; /* something behind the hello, in the same record */
	b.b[4]++;
	assert_int_equal(hello_parse(b.b, b.n, room, &h), HELLO_BAD);
	b = hello(twice, 1, 4096);
	b.b[5] = 2; /* another message */
	assert_int_equal(hello_parse(b.b, b.n, room, &h), HELLO_BAD);
	b = hello(twice, 1, 4096);
	b.b[6] = 0xff; /* of 16 MiB */
	assert_int_equal(hello_parse(b.b, b.n, room, &h), HELLO_BAD);
	b = hello(twice, 1, 20);
	b.b[25] = 23; /* another kind of record in the middle */
	assert_int_equal(hello_parse(b.b, b.n, room, &h), HELLO_BAD);
	b = hello(twice, 1, 4096);
	b.b[5 + 4 + 34 + 7 + 1] = 0xff; /* extensions longer than the message */
	assert_int_equal(hello_parse(b.b, b.n, room, &h), HELLO_BAD);
	assert_int_equal(hello_parse((const uint8_t *)"GET / HTTP/1.1", 14, room, &h), HELLO_NOT);
	assert_int_equal(hello_parse((const uint8_t *)"\x16\x03\x01\x00\x00", 5, room, &h), HELLO_BAD);
}

/* Each as long as it must be to be told from another protocol. */
static void is_not_deceived_by_how_it_begins(void **state)
{
	static const struct {
		uint8_t b[6];
		size_t n;
		enum hello_verdict verdict;
	} heads[] = {
		{ { 22, 0, 1, 0, 200, 1 }, 6, HELLO_BAD },   /* of another version: Go takes it */
		{ { 22, 15, 1, 0, 200, 1 }, 6, HELLO_BAD },
		{ { 22, 16, 1, 0, 200, 1 }, 2, HELLO_NOT },
		{ { 22, 2, 1, 0, 200, 2 }, 6, HELLO_NOT },
		{ { 21, 3, 3, 0, 2, 1 }, 2, HELLO_BAD },     /* behind a warning: Go */
		{ { 21, 1, 0, 0, 2, 1 }, 6, HELLO_BAD },
		{ { 21, 1, 0, 0, 7, 0 }, 6, HELLO_NOT },     /* a length, from its other end */
		{ { 20, 3, 3, 0, 0 }, 2, HELLO_BAD },	     /* behind a change of ciphers: OpenSSL */
		{ { 20, 1, 0, 0, 7 }, 2, HELLO_NOT },
		{ { 24, 3, 3, 0, 1 }, 2, HELLO_BAD },
		{ { 25, 3 }, 1, HELLO_NOT },
		{ { 0x80, 40, 1, 3, 3 }, 4, HELLO_BAD },     /* of SSL 2: OpenSSL */
		{ { 0xc0, 40, 1, 3, 3 }, 4, HELLO_BAD },
		{ { 0x80, 40, 2 }, 3, HELLO_NOT },
		{ { 0x80, 40, 1, 0 }, 4, HELLO_NOT },
		{ { 0xff, 0xfd, 1 }, 1, HELLO_NOT },	     /* telnet */
	};
	struct bytes ext = name_ext("a.b"), b = hello(&ext, 1, 4096);
	struct hello h;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
		for (size_t n = 0; n < heads[i].n; n++)
			assert_int_equal(hello_parse(heads[i].b, n, room, &h), HELLO_MORE);
		for (size_t n = heads[i].n; n <= sizeof heads[i].b; n++)
			assert_int_equal(hello_parse(heads[i].b, n, room, &h), heads[i].verdict);
	}
	b.b[1] = 2; /* all the rest as it should be */
	assert_int_equal(hello_parse(b.b, b.n, room, &h), HELLO_BAD);
}

/* What a server says that wants a second hello, or, with another random, that does not. */
static struct bytes server_says(bool again)
{
	static const uint8_t retry[32] = { 0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
					   0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c };
	struct bytes b = { 0 };

	add(&b, "\x15\x03\x03\x00\x02\x01\x70", 7); /* a warning, as some have */
	add(&b, "\x16\x03\x03\x00\x30\x02\x00\x00\x2c\x03\x03", 11);
	add(&b, retry, sizeof retry);
	b.b[b.n - 1] ^= !again;
	add(&b, "\x00\x13\x01\x00\x00\x00\x00\x00\x00\x00", 10);
	return b;
}

static void follows_to_a_second_hello(void **state)
{
	struct bytes first_ext = name_ext("a.b"), second_ext = name_ext("c.d"), first = hello(&first_ext, 1, 20), up = first, down = server_says(true);
	struct hello h;

	(void)state;
	assert_int_equal(hello_parse(first.b, first.n, room, &h), HELLO_DONE);
	assert_int_equal(h.used, first.n);
	add(&up, "\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x03\x16\x03\x01", 14); /* a change of ciphers, early data */
	struct bytes second = hello(&second_ext, 1, 30);
	for (size_t piece = 1; piece < 300; piece += 7) {
		struct hello_after a;
		struct hello got = { 0 };
		enum hello_verdict v = HELLO_MORE;
		hello_after_init(&a, &h);
		for (size_t at = 0; at < up.n; at += piece)
			assert_int_equal(hello_after_client(&a, up.b + at, MIN(piece, up.n - at), room, &got), HELLO_MORE);
		for (size_t at = 0; at < down.n; at += piece)
			assert_true(hello_after_server(&a, down.b + at, MIN(piece, down.n - at)));
		for (size_t at = 0; at < second.n; at += piece) {
			assert_int_equal(v, HELLO_MORE);
			v = hello_after_client(&a, second.b + at, MIN(piece, second.n - at), room, &got);
		}
		assert_int_equal(v, HELLO_DONE);
		assert_true(str_eqz(got.name, "c.d"));
		hello_after_done(&a);
	}
}

static void ends_without_a_second_hello(void **state)
{
	struct bytes ext = name_ext("a.b"), first = hello(&ext, 1, 4096), down = server_says(false);
	struct hello_after a;
	struct hello h;

	(void)state;
	assert_int_equal(hello_parse(first.b, first.n, room, &h), HELLO_DONE);
	hello_after_init(&a, &h);
	assert_false(hello_after_server(&a, down.b, down.n));
	hello_after_done(&a);
	hello_after_init(&a, &h);
	assert_false(hello_after_server(&a, (const uint8_t *)"HTTP/1.1 400", 12));
	hello_after_done(&a);
	/* one that nobody has asked for yet */
	hello_after_init(&a, &h);
	assert_int_equal(hello_after_client(&a, first.b, first.n, room, &h), HELLO_MORE);
	assert_int_equal(hello_after_client(&a, first.b, 1, room, &h), HELLO_BAD);
	hello_after_done(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(finds_the_name), cmocka_unit_test(tells_what_is_missing_or_hidden),
					    cmocka_unit_test(refuses_what_could_be_read_in_two_ways), cmocka_unit_test(follows_to_a_second_hello), cmocka_unit_test(ends_without_a_second_hello), cmocka_unit_test(is_not_deceived_by_how_it_begins) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
