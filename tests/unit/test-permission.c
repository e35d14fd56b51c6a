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
		int kind;                /* or the kind of the error */
	} cases[] = {
		{ "allow program:/usr/bin/git", "/usr/bin/git", PERMIT_PROGRAM },
		{ "allow read:/", "/", PERMIT_READ },
		{ "allow write:/home/a b", "/home/a b", PERMIT_WRITE },
		{ "allow write:home", NULL, ERR_INVALID },
		{ "allow write:", NULL, ERR_INVALID },
		{ "allow  read:/x", NULL, ERR_INVALID },
		{ "allow tool:/x", NULL, ERR_INVALID },
		{ "ALLOW read:/x", NULL, ERR_INVALID },
		{ "", NULL, ERR_INVALID },
		{ "deny read:/x", NULL, ERR_UNSUPPORTED },
		{ "ask program:/usr/bin/git", NULL, ERR_UNSUPPORTED },
		{ "allow host:example.org", NULL, ERR_UNSUPPORTED },
		{ "allow method:GET", NULL, ERR_UNSUPPORTED },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		enum permit_kind kind = PERMIT_KIND_END;
		struct str path = { 0 };
		struct err e = { 0 };
		int rc = permission_parse(cases[i].text, &kind, &path, &e);
		if (cases[i].path) {
			assert_int_equal(rc, 0);
			assert_int_equal(kind, cases[i].kind);
			assert_true(str_eqz(path, cases[i].path));
		} else {
			assert_true(rc < 0);
			assert_int_equal(e.kind, cases[i].kind);
			assert_int_equal(kind, PERMIT_KIND_END);
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
		{ "\0/x\0", 4 }, { "\4/x\0", 4 }, { "\1x\0", 3 }, { "\1/x", 3 }, { "\1", 1 }, { "\1\0", 2 },
	};
	struct buf b;
	enum permit_kind kind;
	const char *path;

	(void)state;
	buf_init(&b, 100);
	assert_int_equal(permit_put(&b, PERMIT_READ, str_of("/a")), 0);
	assert_int_equal(permit_put(&b, PERMIT_WRITE, str_of("/")), 0);
	struct str in = buf_str(&b);
	assert_int_equal(permit_next(&in, &kind, &path), 1);
	assert_true(kind == PERMIT_READ && strcmp(path, "/a") == 0);
	assert_int_equal(permit_next(&in, &kind, &path), 1);
	assert_true(kind == PERMIT_WRITE && strcmp(path, "/") == 0);
	assert_int_equal(permit_next(&in, &kind, &path), 0);
	buf_done(&b);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		in = bad[i];
		assert_int_equal(permit_next(&in, &kind, &path), -EPROTO);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(rules), cmocka_unit_test(lists), cmocka_unit_test(entries) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
