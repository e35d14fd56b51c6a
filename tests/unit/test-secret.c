/* What a secret may say of itself, and that what is sealed opens only as what it was. */
#include "core/vault.h"
#include "model/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char **list(const char *a, const char *b)
{
	char **v = xcalloc(3, sizeof *v);

	v[0] = xstrdup(a);
	v[1] = xstrdup(b);
	return v;
}

static int check(const char *host, const char *header, const char *path, const char *value)
{
	struct secret_spec s = { .name = xstrdup("key"), .value = xstrdup(value), .hosts = list(host, NULL) };
	struct err e = { 0 };

	s.headers = header ? list(header, NULL) : NULL;
	s.paths = path ? list(path, NULL) : NULL;
	int rc = secret_spec_check(&s, true, &e);
	if (rc < 0 && value && *value)
		assert_null(strstr(e.message, value)); /* a message is no place for it */
	secret_spec_done(&s);
	return rc;
}

static void hosts_are_names_with_ports(void **state)
{
	struct secret_spec s = { .name = xstrdup("key"), .hosts = list("API.example.org.", "*.example.org:8443") };
	struct err e;

	(void)state;
	assert_int_equal(secret_spec_check(&s, false, &e), 0);
	assert_string_equal(s.hosts[0], "api.example.org:443");
	assert_string_equal(s.hosts[1], "*.example.org:8443");
	assert_string_equal(s.headers[0], "Authorization");
	assert_true(s.basic);
	secret_spec_done(&s);
	static const char *const wrong[] = { "10.0.0.1", "*", "*.org", "api.example.org/raw", "api.example.org/udp", "[::1]:443", "a b", "" };
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_not_equal(check(wrong[i], NULL, NULL, "v-alue-of-it"), 0);
}

static void what_frames_a_message_is_no_place(void **state)
{
	static const char *const wrong[] = { "Host", "content-length", "Transfer-Encoding", "Connection", "Upgrade", "X: Y", "", "TE", "Expect" };

	(void)state;
	assert_int_equal(check("a.test", "X-Api-Key", "/v1", "v-alue-of-it"), 0);
	assert_int_equal(check("a.test", "*", "/", "v-alue-of-it"), 0);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_not_equal(check("a.test", wrong[i], NULL, "v-alue-of-it"), 0);
}

static void paths_have_one_spelling(void **state)
{
	static const char *const wrong[] = { "v1", "/a//b", "/a/../b", "/a/./b", "/a%2fb", "/a?b", "/a#b", "/a b", "/a;b", "/a\\b", "" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_not_equal(check("a.test", NULL, wrong[i], "v-alue-of-it"), 0);
}

static void values_fit_into_a_field(void **state)
{
	auto_free char *longest = xcalloc(1, SECRET_VALUE_MAX + 2);

	(void)state;
	assert_int_equal(check("a.test", NULL, NULL, "v"), 0);
	assert_int_not_equal(check("a.test", NULL, NULL, "two\r\nX-Evil: lines"), 0);
	assert_int_not_equal(check("a.test", NULL, NULL, "two\nlines"), 0);
	assert_int_not_equal(check("a.test", NULL, NULL, " blank-first"), 0);
	assert_int_not_equal(check("a.test", NULL, NULL, "bell\a"), 0);
	assert_int_not_equal(check("a.test", NULL, NULL, ""), 0);
	assert_int_not_equal(check("a.test", NULL, NULL, NULL), 0);
	memset(longest, 'x', SECRET_VALUE_MAX);
	assert_int_equal(check("a.test", NULL, NULL, longest), 0);
	longest[SECRET_VALUE_MAX] = 'x';
	assert_int_not_equal(check("a.test", NULL, NULL, longest), 0);
}

static void sealed_opens_only_as_what_it_was(void **state)
{
	char folder[] = "/tmp/caisson-vault-XXXXXX";
	struct vault *v = NULL, *other = NULL;
	struct buf sealed, open;
	struct stat st;
	struct err e;

	(void)state;
	assert_non_null(mkdtemp(folder));
	auto_free char *key = xasprintf("%s/secrets.key", folder);
	buf_init(&sealed, 4096);
	buf_init(&open, 4096);
	assert_int_not_equal(vault_open(folder, false, &v, &e), 0); /* something was sealed, and its key is gone */
	assert_int_equal(vault_open(folder, true, &v, &e), 0);
	assert_int_equal(stat(key, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(vault_seal(v, "sec_1", STR("the value"), &sealed, &e), 0);
	assert_null(memmem(sealed.data, sealed.len, "the value", 9));
	assert_int_equal(vault_open(folder, false, &other, &e), 0);
	assert_int_equal(vault_unseal(other, "sec_1", sealed.data, sealed.len, &open, &e), 0);
	assert_true(str_eqz(buf_str(&open), "the value"));
	assert_int_not_equal(vault_unseal(other, "sec_2", sealed.data, sealed.len, &open, &e), 0);
	assert_int_not_equal(vault_unseal(other, "sec_1", sealed.data, sealed.len - 1, &open, &e), 0);
	for (size_t i = 0; i < sealed.len; i++) {
		sealed.data[i] ^= 1;
		assert_int_not_equal(vault_unseal(other, "sec_1", sealed.data, sealed.len, &open, &e), 0);
		sealed.data[i] ^= 1;
	}
	vault_free(other);
	assert_int_equal(chmod(key, 0644), 0);
	assert_int_not_equal(vault_open(folder, true, &other, &e), 0); /* nor is a new one made in its place */
	vault_free(v);
	buf_done(&sealed);
	buf_done(&open);
	assert_int_equal(unlink(key), 0);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hosts_are_names_with_ports),
		cmocka_unit_test(what_frames_a_message_is_no_place),
		cmocka_unit_test(paths_have_one_spelling),
		cmocka_unit_test(values_fit_into_a_field),
		cmocka_unit_test(sealed_opens_only_as_what_it_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
