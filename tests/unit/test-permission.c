#include "model/permission.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
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
		{ .text = "allow host:example.org", .verdict = ERR_UNSUPPORTED },
		{ .text = "deny method:GET", .verdict = ERR_UNSUPPORTED },
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
	static const struct CMUnitTest tests[] = { cmocka_unit_test(rules), cmocka_unit_test(lists), cmocka_unit_test(entries) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
