#include "model/permission.h"
#include "model/reach.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void rules(void **state)
{
	static const struct {
		const char *text, *path; /* path NULL: refused */
		int verdict, kind;       /* or verdict: the kind of the error */
	} cases[] = {
		{ "allow program:/usr/bin/git", "/usr/bin/git", PERMIT_ALLOW, PERMIT_PROGRAM },
		{ "allow read:/", "/", PERMIT_ALLOW, PERMIT_READ },
		{ "allow write:/home/a b", "/home/a b", PERMIT_ALLOW, PERMIT_WRITE },
		{ "deny read:/x", "/x", PERMIT_DENY, PERMIT_READ },
		{ .text = "allow write:home", .verdict = ERR_INVALID },
		{ .text = "allow write:", .verdict = ERR_INVALID },
		{ .text = "allow  read:/x", .verdict = ERR_INVALID },
		{ .text = "allow tool:/x", .verdict = ERR_INVALID },
		{ .text = "ALLOW read:/x", .verdict = ERR_INVALID },
		{ .text = "forbid read:/x", .verdict = ERR_INVALID },
		{ .text = "", .verdict = ERR_INVALID },
		{ .text = "ask read:/x", .verdict = ERR_UNSUPPORTED },
		{ "allow host:example.org:443", "example.org:443", PERMIT_ALLOW, PERMISSION_HOST },
		{ "deny host:10.0.0.0/8", "10.0.0.0/8", PERMIT_DENY, PERMISSION_HOST },
		{ "ask host:*.example.org", "*.example.org", PERMIT_ASK, PERMISSION_HOST },
		{ .text = "ask host:10.0.0.1", .verdict = ERR_UNSUPPORTED },
		{ .text = "allow host:example.org/udp", .verdict = ERR_UNSUPPORTED },
		{ .text = "allow host:a b", .verdict = ERR_INVALID },
		{ .text = "allow host:", .verdict = ERR_INVALID },
		{ "deny method:GET api.test", "GET api.test", PERMIT_DENY, PERMISSION_METHOD },
		{ "ask method:* *.api.test:443/v1", "* *.api.test:443/v1", PERMIT_ASK, PERMISSION_METHOD },
		{ .text = "deny method:GET", .verdict = ERR_INVALID },
		{ .text = "deny method:GET 10.0.0.1", .verdict = ERR_UNSUPPORTED },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct permit p = { 0 };
		struct err e = { 0 };
		int rc = permission_parse(cases[i].text, &p, &e);
		if (cases[i].path) {
			assert_int_equal(rc, 0);
			assert_int_equal(p.verdict, cases[i].verdict);
			assert_int_equal(p.kind, cases[i].kind);
			assert_string_equal(p.path, cases[i].path);
		} else {
			assert_true(rc < 0);
			assert_int_equal(e.kind, cases[i].verdict);
			assert_null(p.path);
		}
	}
}

static void lists(void **state)
{
	char *many[PERMITS_MAX + 2] = { 0 };
	char *none[] = { NULL };
	struct err e;

	(void)state;
	for (size_t i = 0; i < PERMITS_MAX; i++)
		many[i] = (char *)(uintptr_t)"allow read:/x";
	assert_int_equal(permissions_validate(NULL, &e), 0);
	assert_int_equal(permissions_validate(many, &e), 0);
	many[PERMITS_MAX] = many[0];
	assert_true(permissions_validate(many, &e) < 0 && e.kind == ERR_INVALID);
	assert_true(permissions_validate(none, &e) < 0 && e.kind == ERR_INVALID);
}

/* What is reached under a network and rules, as "allow|deny|ask|answered", each with spaces between. */
static const char *reached(enum network_mode mode, char *allow, char *const *rules, char *const *answers, char *ret, size_t size)
{
	char *list[] = { allow, NULL };
	struct sandbox_spec s = { .network = mode, .network_allow = allow ? list : NULL, .permissions = (char **)(uintptr_t)rules, .host_answers = (char **)(uintptr_t)answers };
	struct reach r;
	size_t n = 0;

	reach_of(&s, &r);
	char *const *lists[] = { r.allow, r.deny, r.ask, r.answered };
	n += (size_t)snprintf(ret, size, "%d", (int)r.mode);
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		n += (size_t)snprintf(ret + n, size - n, "|");
		for (char *const *t = lists[i]; t && *t; t++)
			n += (size_t)snprintf(ret + n, size - n, "%s ", *t);
	}
	reach_done(&r);
	return ret;
}

static void hosts(void **state)
{
#define TEXT(t) ((char *)(uintptr_t)(t))
	char *const narrow[] = { TEXT("allow program:/bin"), TEXT("allow host:a.test:443"), TEXT("deny host:b.test"), NULL };
	char *const asks[] = { TEXT("ask host:*.c.test"), NULL }, *const answers[] = { TEXT("allow x.c.test"), TEXT("deny y.c.test"), NULL };
	char out[300];

	(void)state;
	assert_string_equal(reached(NETWORK_NONE, NULL, narrow, NULL, out, sizeof out), "0||||");
	assert_string_equal(reached(NETWORK_PUBLIC, NULL, NULL, NULL, out, sizeof out), "1||||");
	assert_string_equal(reached(NETWORK_PUBLIC, NULL, narrow, NULL, out, sizeof out), "2|a.test:443 |b.test ||");
	assert_string_equal(reached(NETWORK_PUBLIC, TEXT("10.0.0.9:5432"), narrow, NULL, out, sizeof out), "2|10.0.0.9:5432 a.test:443 |b.test ||");
	assert_string_equal(reached(NETWORK_PUBLIC, TEXT("x.test:123/udp"), NULL, NULL, out, sizeof out), "1|x.test:123/udp |||");
	assert_string_equal(reached(NETWORK_PUBLIC, NULL, asks, answers, out, sizeof out), "1||y.c.test |*.c.test |x.c.test ");
	assert_string_equal(reached(NETWORK_ALLOW, TEXT("d.test"), asks, NULL, out, sizeof out), "2|d.test *.c.test ||*.c.test |");
	assert_string_equal(permission_of_guest(narrow, 0), "allow program:/bin");
	assert_null(permission_of_guest(narrow, 1));
	assert_null(permission_of_guest(NULL, 0));
	struct sandbox_spec s = { .network = NETWORK_PUBLIC, .permissions = (char **)(uintptr_t)asks };
	assert_string_equal(reach_asks_for(&s, "x.c.test"), "ask host:*.c.test");
	assert_null(reach_asks_for(&s, "c.test"));
}

static void entries(void **state)
{
	static const struct str bad[] = {
		{ "\1\0/x\0", 5 }, { "\0\1/x\0", 5 }, { "\4\1/x\0", 5 }, { "\1\4/x\0", 5 }, { "\1\1x\0", 4 }, { "\1\1/x", 4 }, { "\1\1", 2 }, { "\1", 1 }, { "\1\1\0", 3 },
	};
	struct buf b;
	struct permit p;

	(void)state;
	buf_init(&b, 100);
	assert_int_equal(permit_put(&b, &(struct permit){ PERMIT_ALLOW, PERMIT_READ, "/a" }), 0);
	assert_int_equal(permit_put(&b, &(struct permit){ PERMIT_DENY, PERMIT_WRITE, "/" }), 0);
	struct str in = buf_str(&b);
	assert_int_equal(permit_next(&in, &p), 1);
	assert_true(p.verdict == PERMIT_ALLOW && p.kind == PERMIT_READ && strcmp(p.path, "/a") == 0);
	assert_int_equal(permit_next(&in, &p), 1);
	assert_true(p.verdict == PERMIT_DENY && p.kind == PERMIT_WRITE && strcmp(p.path, "/") == 0);
	assert_int_equal(permit_next(&in, &p), 0);
	buf_done(&b);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		in = bad[i];
		assert_int_equal(permit_next(&in, &p), -EPROTO);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(rules), cmocka_unit_test(lists), cmocka_unit_test(entries), cmocka_unit_test(hosts) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
