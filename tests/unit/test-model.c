#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "model/key.h"
#include "model/op.h"
#include "model/sandbox.h"

#include <math.h>
#include <stdio.h>

/* A heap string of n times c. */
static char *many(char c, size_t n)
{
	char *s = xmalloc(n + 1);
	memset(s, c, n);
	s[n] = 0;
	return s;
}

static void says(const struct err *e, const char *part)
{
	if (!strstr(e->message, part))
		fail_msg("message is: %s; expected in it: %s", e->message, part);
}

static void quoting(void **state)
{
	(void)state;
	struct quoted q;
	assert_string_equal(str_quote(STR("abc"), &q), "\"abc\"");
	assert_string_equal(str_quote(STR(""), &q), "\"\"");
	assert_string_equal(str_quote((struct str){ NULL, 0 }, &q), "\"\"");
	assert_string_equal(str_quote(STR("a\"b\\c\n\x1b\xff"), &q), "\"a\\\"b\\\\c\\x0a\\x1b\\xff\"");
	/* Whatever the bytes, the text stays inside its room and ends in a quote. */
	for (int c = 0; c < 256; c++)
		for (size_t n = 50; n < 80; n++) {
			auto_free char *s = many((char)c, n);
			struct {
				struct quoted q;
				char guard[8];
			} r;
			memset(&r, 'G', sizeof r);
			str_quote((struct str){ s, n }, &r.q);
			size_t len = strnlen(r.q.text, sizeof r.q.text);
			assert_in_range(len, 2, sizeof r.q.text - 1);
			assert_int_equal(r.q.text[len - 1], '"');
			assert_memory_equal(r.guard, "GGGGGGGG", 8);
			bool whole = c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '.' && n <= 63;
			if (whole)
				assert_null(strstr(r.q.text, "..."));
		}
	auto_free char *longer = many('x', 1000);
	assert_non_null(strstr(str_quote(str_of(longer), &q), "...\""));
}

static void pairs(void **state)
{
	(void)state;
	struct pairs p = { 0 }, copy = { 0 };
	assert_null(pairs_get(&p, "a"));
	assert_false(pairs_remove(&p, "a"));
	pairs_add(&p, "a", "1");
	pairs_add(&p, "b", NULL);
	pairs_add(&p, "c", "3");
	pairs_add(&p, "a", "one");
	assert_int_equal(p.n, 3);
	assert_string_equal(pairs_get(&p, "a"), "one");
	assert_string_equal(pairs_get(&p, "b"), "");
	assert_null(pairs_get(&p, "A"));
	pairs_copy(&copy, &p);
	assert_true(pairs_remove(&p, "b"));
	assert_int_equal(p.n, 2);
	assert_string_equal(p.v[0].key, "a");
	assert_string_equal(p.v[1].key, "c");
	assert_int_equal(copy.n, 3);
	assert_ptr_not_equal(copy.v[0].value, p.v[0].value);
	pairs_done(&p);
	assert_int_equal(p.n, 0);
	pairs_add(&p, "again", "x");
	assert_string_equal(pairs_get(&p, "again"), "x");
	pairs_done(&p);
	pairs_done(&copy);
}

static void pairs_grow_and_shrink(void **state)
{
	(void)state;
	struct pairs p = { 0 };
	char key[16];
	for (int i = 0; i < 300; i++) {
		snprintf(key, sizeof key, "k%d", i);
		pairs_add(&p, key, key);
	}
	/* Down over a power of two and up again: the capacity is derived from the count. */
	for (int i = 0; i < 180; i++) {
		snprintf(key, sizeof key, "k%d", i);
		assert_true(pairs_remove(&p, key));
	}
	for (int i = 0; i < 180; i++) {
		snprintf(key, sizeof key, "n%d", i);
		pairs_add(&p, key, key);
	}
	assert_int_equal(p.n, 300);
	assert_string_equal(pairs_get(&p, "k299"), "k299");
	assert_string_equal(pairs_get(&p, "n0"), "n0");
	pairs_done(&p);
}

static void pairs_flood(void **state)
{
	(void)state;
	struct pairs p = { 0 };
	struct err e = { 0 };
	char key[16];
	for (int i = 0; i < 200000; i++) { /* squared, this would take minutes */
		snprintf(key, sizeof key, "k%d", i);
		pairs_add(&p, key, "");
	}
	assert_int_equal(p.n, 200000);
	assert_true(env_validate(&p, &e) < 0);
	assert_int_equal(e.kind, ERR_TOO_LARGE);
	says(&e, "env: 200000 variables; at most 512");
	assert_true(labels_validate(&p, &e) < 0);
	says(&e, "at most 64");
	pairs_done(&p);
}

static void vectors(void **state)
{
	(void)state;
	char *v[] = { (char[]){ "a" }, (char[]){ "" }, NULL };
	assert_null(strv_copy(NULL));
	strv_free(NULL);
	char **copy = strv_copy(v);
	assert_string_equal(copy[0], "a");
	assert_string_equal(copy[1], "");
	assert_null(copy[2]);
	assert_ptr_not_equal(copy[0], v[0]);
	strv_free(copy);
}

static void names_of_states(void **state)
{
	(void)state;
	for (int i = 0; i < SANDBOX_STATE_COUNT; i++) {
		enum sandbox_state s = SANDBOX_STATE_COUNT;
		assert_int_equal(sandbox_state_parse(str_of(sandbox_state_name((enum sandbox_state)i)), &s), 0);
		assert_int_equal(s, i);
	}
	enum sandbox_state s = SANDBOX_PAUSED;
	assert_int_equal(sandbox_state_parse(STR("Running"), &s), -EINVAL);
	assert_int_equal(sandbox_state_parse(STR(""), &s), -EINVAL);
	assert_int_equal(s, SANDBOX_PAUSED);
	assert_string_equal(sandbox_state_name(SANDBOX_STATE_COUNT), "unknown");
	assert_string_equal(sandbox_state_name((enum sandbox_state)-1), "unknown");
	for (int i = 0; i <= RUN_LOST; i++) {
		enum run_state r;
		assert_int_equal(run_state_parse(str_of(run_state_name((enum run_state)i)), &r), 0);
		assert_int_equal(r, i);
	}
	enum run_state r;
	assert_int_equal(run_state_parse(STR("ended"), &r), -EINVAL);
	assert_string_equal(run_state_name((enum run_state)77), "unknown");
	assert_string_equal(file_type_name(FILE_REGULAR), "file");
	assert_string_equal(file_type_name(FILE_BLOCK), "block");
	assert_string_equal(file_type_name((enum file_type)200), "unknown");
	for (int i = 0; i <= NETWORK_ALLOW; i++) {
		enum network_mode m;
		assert_int_equal(network_mode_parse(str_of(network_mode_name((enum network_mode)i)), &m), 0);
		assert_int_equal(m, i);
	}
	enum network_mode m;
	assert_int_equal(network_mode_parse(STR("host"), &m), -EINVAL);
	assert_string_equal(network_mode_name((enum network_mode)9), "unknown");
}

static void languages(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		enum code_language l;
	} good[] = {
		{ "python", CODE_PYTHON },      { "py", CODE_PYTHON },         { "Python", CODE_PYTHON },
		{ "javascript", CODE_JAVASCRIPT }, { "js", CODE_JAVASCRIPT },  { "node", CODE_JAVASCRIPT },
		{ "typescript", CODE_TYPESCRIPT }, { "ts", CODE_TYPESCRIPT },  { "bash", CODE_BASH },
		{ "sh", CODE_BASH },
	};
	enum code_language l;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		assert_int_equal(code_language_parse(str_of(good[i].name), &l), 0);
		assert_int_equal(l, good[i].l);
	}
	for (int i = CODE_PYTHON; i <= CODE_BASH; i++) {
		assert_int_equal(code_language_parse(str_of(code_language_name((enum code_language)i)), &l), 0);
		assert_int_equal(l, i);
	}
	assert_int_equal(code_language_parse(STR("ruby"), &l), -EINVAL);
	assert_int_equal(code_language_parse(STR(""), &l), -EINVAL);
	assert_int_equal(code_language_parse(STR("none"), &l), -EINVAL);
	assert_string_equal(code_language_name(CODE_NONE), "none");
}

static void names(void **state)
{
	(void)state;
	auto_free char *n64 = many('a', 64), *n65 = many('a', 65);
	assert_true(sandbox_name_valid(STR("a")));
	assert_true(sandbox_name_valid(STR("My_box.2-x")));
	assert_true(sandbox_name_valid(str_of(n64)));
	const char *bad[] = { "", "-a", "a-", ".a", "a.", "_", "a b", "a/b", "a\xc3\xa9", "a\n", "..", n65 };
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(sandbox_name_valid(str_of(bad[i])));
	assert_false(sandbox_name_valid((struct str){ "a\0b", 3 }));

	assert_true(hostname_valid(STR("a")));
	assert_true(hostname_valid(STR("a-b.c1")));
	assert_true(hostname_valid(STR("a--b")));
	assert_true(hostname_valid(str_of(n64)));
	const char *bad_host[] = { "", "-a", "a-", ".a", "a.", "a..b", "a-.b", "a.-b", "a_b", "a b", n65 };
	for (size_t i = 0; i < ARRAY_LEN(bad_host); i++)
		assert_false(hostname_valid(str_of(bad_host[i])));

	char host[SPEC_HOSTNAME_MAX + 1];
	hostname_from_name("a_b.C-.d", host);
	assert_string_equal(host, "a-b-C--d");
	assert_true(hostname_valid(str_of(host)));
	hostname_from_name(n65, host);
	assert_string_equal(host, n64);

	assert_true(env_name_valid(STR("PATH")));
	assert_true(env_name_valid(STR("_x9")));
	assert_false(env_name_valid(STR("")));
	assert_false(env_name_valid(STR("9x")));
	assert_false(env_name_valid(STR("A=B")));
	assert_false(env_name_valid(STR("A-B")));
	assert_false(env_name_valid((struct str){ "A\0", 2 }));

	const char *user[] = { "root", "_apt", "www-data", "a.b_c-d", "0", "1000", "1000:1000", "4294967294" };
	for (size_t i = 0; i < ARRAY_LEN(user); i++)
		assert_true(user_valid(str_of(user[i])));
	const char *bad_user[] = { "", "-x", ".x", "a b", "a:b", "1:", ":1", "1:2:3", "1a", "4294967295", "1:4294967295", "../x", "a\n", n65 };
	for (size_t i = 0; i < ARRAY_LEN(bad_user); i++)
		assert_false(user_valid(str_of(bad_user[i])));

	auto_free char *s128 = many('s', 128), *s129 = many('s', 129);
	assert_true(session_id_valid(STR("my session \xc3\xa9")));
	assert_true(session_id_valid(str_of(s128)));
	const char *bad_session[] = { "", ".", "..", "a/b", "a\nb", "\xff", s129 };
	for (size_t i = 0; i < ARRAY_LEN(bad_session); i++)
		assert_false(session_id_valid(str_of(bad_session[i])));
}

static void resource_defaults(void **state)
{
	(void)state;
	struct resources r = { 0 };
	resources_fill(&r, false);
	assert_true(r.cpus == 1.0);
	assert_int_equal(r.memory_mib, 1024);
	assert_int_equal(r.disk_mib, 3072);
	assert_int_equal(r.pids, 512);
	r = (struct resources){ .memory_mib = 300 };
	resources_fill(&r, true);
	assert_int_equal(r.disk_mib, 150);
	r = (struct resources){ .cpus = 0.5, .memory_mib = 17, .disk_mib = 5, .pids = 9 };
	resources_fill(&r, true);
	assert_true(r.cpus == 0.5);
	assert_int_equal(r.memory_mib, 17);
	assert_int_equal(r.disk_mib, 5);
	assert_int_equal(r.pids, 9);
}

static void sandbox_copy(void **state)
{
	(void)state;
	struct sandbox_spec s, c;
	spec_init(&s);
	assert_string_equal(s.image, "default");
	assert_int_equal(s.network, NETWORK_NONE);
	assert_int_equal(s.lifetime.delete_after_s, -1);
	assert_int_equal(spec_validate(&s, NULL), 0);
	s.name = xstrdup("n");
	s.boundary = xstrdup("process");
	s.resources.cpus = 2;
	pairs_add(&s.env, "A", "1");
	pairs_add(&s.labels, "l", "2");
	s.user = xstrdup("u");
	s.workdir = xstrdup("/w");
	s.hostname = xstrdup("h");
	s.network = NETWORK_PUBLIC;
	s.lifetime = (struct lifetime){ 1, 2, 3 };
	s.ephemeral = true;
	s.idempotency_key = xstrdup("k");
	s.extra = xstrdup("{}");
	assert_int_equal(spec_validate(&s, NULL), 0);
	spec_copy(&c, &s);
	spec_done(&s);
	spec_done(&s); /* harmless */
	assert_null(s.image);
	assert_string_equal(c.name, "n");
	assert_string_equal(c.image, "default");
	assert_string_equal(c.boundary, "process");
	assert_true(c.resources.cpus == 2);
	assert_string_equal(pairs_get(&c.env, "A"), "1");
	assert_string_equal(pairs_get(&c.labels, "l"), "2");
	assert_string_equal(c.user, "u");
	assert_string_equal(c.workdir, "/w");
	assert_string_equal(c.hostname, "h");
	assert_int_equal(c.network, NETWORK_PUBLIC);
	assert_int_equal(c.lifetime.idle_s, 1);
	assert_int_equal(c.lifetime.max_s, 2);
	assert_int_equal(c.lifetime.delete_after_s, 3);
	assert_true(c.ephemeral);
	assert_string_equal(c.idempotency_key, "k");
	assert_string_equal(c.extra, "{}");
	spec_done(&c);
}

/* One bad field at a time, set in a fresh spec. */
#define REFUSED(init, done, validate, type, expected_kind, part, ...)     \
	do {                                                              \
		type s;                                                   \
		struct err e = { 0 };                                     \
		init(&s);                                                 \
		__VA_ARGS__;                                              \
		assert_true(validate(&s, &e) < 0);                        \
		assert_int_equal(e.kind, expected_kind);                  \
		says(&e, part);                                           \
		done(&s);                                                 \
	} while (0)
#define REFUSED_SPEC(kind, part, ...) REFUSED(spec_init, spec_done, spec_validate, struct sandbox_spec, kind, part, __VA_ARGS__)

static void set(char **field, const char *value)
{
	free(*field);
	*field = xstrdup(value);
}

static void sandbox_refusals(void **state)
{
	(void)state;
	REFUSED_SPEC(ERR_INVALID, "name: \"a b\"", set(&s.name, "a b"));
	REFUSED_SPEC(ERR_INVALID, "name: \"\"", set(&s.name, ""));
	REFUSED_SPEC(ERR_INVALID, "hostname: \"x_\"", set(&s.hostname, "x_"));
	REFUSED_SPEC(ERR_INVALID, "image: \"\"", set(&s.image, ""));
	REFUSED_SPEC(ERR_INVALID, "image: \"--help\"", set(&s.image, "--help"));
	REFUSED_SPEC(ERR_INVALID, "image: \"a\\x0a\"", set(&s.image, "a\n"));
	REFUSED_SPEC(ERR_INVALID, "...\" is not an image", free(s.image); s.image = many('i', 513));
	REFUSED_SPEC(ERR_INVALID, "boundary: \"VM\"", set(&s.boundary, "VM"));
	REFUSED_SPEC(ERR_INVALID, "boundary: \"../etc\"", set(&s.boundary, "../etc"));
	REFUSED_SPEC(ERR_INVALID, "resources.cpus: nan", s.resources.cpus = NAN);
	REFUSED_SPEC(ERR_INVALID, "resources.cpus: inf", s.resources.cpus = INFINITY);
	REFUSED_SPEC(ERR_INVALID, "resources.cpus: -1", s.resources.cpus = -1);
	REFUSED_SPEC(ERR_INVALID, "resources.cpus: 0.001 is out of range; give 0.01 to 1024", s.resources.cpus = 0.001);
	REFUSED_SPEC(ERR_INVALID, "resources.memory_mib: 15 is out of range; give 16 to 1048576", s.resources.memory_mib = 15);
	REFUSED_SPEC(ERR_INVALID, "resources.memory_mib: 1048577", s.resources.memory_mib = (1 << 20) + 1);
	REFUSED_SPEC(ERR_INVALID, "resources.disk_mib: 16777217", s.resources.disk_mib = (16 << 20) + 1);
	REFUSED_SPEC(ERR_INVALID, "resources.pids: 3 ", s.resources.pids = 3);
	REFUSED_SPEC(ERR_INVALID, "resources.pids: 1000001 ", s.resources.pids = 1000001);
	REFUSED_SPEC(ERR_INVALID, "env: \"A-B\"", pairs_add(&s.env, "A-B", ""));
	REFUSED_SPEC(ERR_INVALID, "the value of \"SECRET\" is not valid UTF-8", pairs_add(&s.env, "SECRET", "hush\xff"));
	REFUSED_SPEC(ERR_INVALID, "labels: the key \"\"", pairs_add(&s.labels, "", ""));
	REFUSED_SPEC(ERR_INVALID, "labels: the key \"a\\x09\"", pairs_add(&s.labels, "a\t", ""));
	REFUSED_SPEC(ERR_INVALID, "labels: the value \"\\xff\" of \"a\"", pairs_add(&s.labels, "a", "\xff"));
	REFUSED_SPEC(ERR_INVALID, "user: \"a:b\"", set(&s.user, "a:b"));
	REFUSED_SPEC(ERR_INVALID, "workdir: \"here\"", set(&s.workdir, "here"));
	REFUSED_SPEC(ERR_TOO_LARGE, "workdir: 4096 bytes", s.workdir = many('/', 4096));
	REFUSED_SPEC(ERR_INVALID, "lifetime.idle_s", s.lifetime.idle_s = UINT64_MAX);
	REFUSED_SPEC(ERR_INVALID, "lifetime.max_s", s.lifetime.max_s = LIFETIME_MAX_S + 1);
	REFUSED_SPEC(ERR_INVALID, "lifetime.delete_after_s: -2", s.lifetime.delete_after_s = -2);
	REFUSED_SPEC(ERR_INVALID, "idempotency_key: \"\"", set(&s.idempotency_key, ""));
	REFUSED_SPEC(ERR_TOO_LARGE, "idempotency_key: 256", s.idempotency_key = many('k', 256));
	REFUSED_SPEC(ERR_INVALID, "network.mode: 7", s.network = (enum network_mode)7);
	REFUSED_SPEC(ERR_INVALID, "extra", set(&s.extra, "\xc0"));
	REFUSED_SPEC(ERR_TOO_LARGE, "extra", s.extra = many('x', SPEC_EXTRA_MAX + 1));
}

static void sandbox_edges(void **state)
{
	(void)state;
	struct sandbox_spec s;
	struct err e = { 0 };
	char key[200];
	spec_init(&s);
	s.resources = (struct resources){ 0.01, 16, 1, 4 };
	assert_int_equal(spec_validate(&s, &e), 0);
	s.resources = (struct resources){ 1024, 1 << 20, 16 << 20, 1000000 };
	s.lifetime = (struct lifetime){ LIFETIME_MAX_S, LIFETIME_MAX_S, (int64_t)LIFETIME_MAX_S };
	assert_int_equal(spec_validate(&s, &e), 0);
	for (int i = 0; i < SPEC_LABELS_MAX; i++) {
		snprintf(key, sizeof key, "%d%0126d", i % 10, i);
		auto_free char *value = many('v', 1024);
		pairs_add(&s.labels, key, value);
	}
	assert_int_equal(spec_validate(&s, &e), 0);
	auto_free char *key128 = many('k', 128), *key129 = many('k', 129), *value1025 = many('v', 1025);
	pairs_remove(&s.labels, s.labels.v[0].key);
	pairs_add(&s.labels, key128, "");
	assert_int_equal(spec_validate(&s, &e), 0);
	pairs_add(&s.labels, key128, value1025);
	assert_true(spec_validate(&s, &e) < 0);
	pairs_remove(&s.labels, key128);
	pairs_add(&s.labels, key129, "");
	assert_true(spec_validate(&s, &e) < 0);
	pairs_done(&s.labels);
	/* "A=" + value + NUL is what execve takes: 131072 bytes in all. */
	auto_free char *most = many('v', SPEC_ENV_VALUE_MAX - 3), *more = many('v', SPEC_ENV_VALUE_MAX - 2);
	pairs_add(&s.env, "A", most);
	assert_int_equal(spec_validate(&s, &e), 0);
	pairs_add(&s.env, "A", more);
	assert_true(spec_validate(&s, &e) < 0);
	assert_int_equal(e.kind, ERR_TOO_LARGE);
	says(&e, "env: \"A\" takes 131073 bytes");
	pairs_add(&s.env, "A", most);
	pairs_add(&s.env, "B", most);
	pairs_add(&s.env, "C", most);
	pairs_add(&s.env, "D", most);
	assert_int_equal(spec_validate(&s, &e), 0);
	pairs_add(&s.env, "E", "");
	assert_true(spec_validate(&s, &e) < 0);
	says(&e, "at most 524288");
	spec_done(&s);
}

static char **argv_of(const char *a, const char *b)
{
	const char *v[] = { a, b, NULL };
	char **copy = xcalloc(3, sizeof *copy);
	for (int i = 0; i < 2; i++)
		copy[i] = xstrdup(v[i]);
	return copy;
}

static void run_copy(void **state)
{
	(void)state;
	struct run_spec r, c;
	run_spec_init(&r);
	r.argv = argv_of("a", "b");
	pairs_add(&r.env, "A", "1");
	r.cwd = xstrdup("sub/dir");
	r.user = xstrdup("0");
	r.stdin_bytes = xmemdup("x\0y", 3);
	r.stdin_len = 3;
	r.stdin_open = r.pty = r.detach = true;
	r.rows = 10;
	r.timeout_ms = 5;
	r.idempotency_key = xstrdup("k");
	r.display = xstrdup("d");
	assert_int_equal(run_spec_validate(&r, NULL), 0);
	run_spec_copy(&c, &r);
	run_spec_done(&r);
	run_spec_done(&r);
	assert_string_equal(c.argv[1], "b");
	assert_null(c.argv[2]);
	assert_string_equal(pairs_get(&c.env, "A"), "1");
	assert_string_equal(c.cwd, "sub/dir");
	assert_string_equal(c.user, "0");
	assert_int_equal(c.stdin_len, 3);
	assert_memory_equal(c.stdin_bytes, "x\0y", 3);
	assert_true(c.stdin_open && c.pty && c.detach && !c.merge_stderr);
	assert_int_equal(c.rows, 10);
	assert_int_equal(c.timeout_ms, 5);
	assert_string_equal(c.idempotency_key, "k");
	assert_string_equal(c.display, "d");
	run_spec_done(&c);

	run_spec_init(&r);
	r.code = xstrdup("print(1)");
	r.language = CODE_PYTHON;
	r.code_argv = argv_of("x", NULL);
	assert_int_equal(run_spec_validate(&r, NULL), 0);
	run_spec_copy(&c, &r);
	run_spec_done(&r);
	assert_string_equal(c.code, "print(1)");
	assert_string_equal(c.code_argv[0], "x");
	assert_null(c.stdin_bytes);
	run_spec_done(&c);

	run_spec_init(&r);
	r.shell = xstrdup("");
	r.session = xstrdup("s");
	assert_int_equal(run_spec_validate(&r, NULL), 0);
	run_spec_copy(&c, &r);
	run_spec_done(&r);
	assert_string_equal(c.shell, "");
	assert_string_equal(c.session, "s");
	run_spec_done(&c);
}

#define REFUSED_RUN(kind, part, ...) REFUSED(run_spec_init, run_spec_done, run_spec_validate, struct run_spec, kind, part, __VA_ARGS__)

static void run_refusals(void **state)
{
	(void)state;
	REFUSED_RUN(ERR_INVALID, "no command is given; give exactly one", (void)0);
	REFUSED_RUN(ERR_INVALID, "more than one command", set(&s.shell, "a"); s.argv = argv_of("a", NULL));
	REFUSED_RUN(ERR_INVALID, "argv: the first element", s.argv = argv_of(NULL, NULL));
	REFUSED_RUN(ERR_INVALID, "argv: the first element", s.argv = argv_of("", NULL));
	REFUSED_RUN(ERR_INVALID, "code_argv", set(&s.shell, "a"); s.code_argv = argv_of("a", NULL));
	REFUSED_RUN(ERR_INVALID, "language: missing", set(&s.code, "a"));
	REFUSED_RUN(ERR_INVALID, "language: missing", set(&s.code, "a"); s.language = (enum code_language)99);
	REFUSED_RUN(ERR_INVALID, "language: python is given without code", set(&s.shell, "a"); s.language = CODE_PYTHON);
	REFUSED_RUN(ERR_TOO_LARGE, "shell: 16777217", s.shell = many('a', RUN_SCRIPT_MAX + 1));
	REFUSED_RUN(ERR_TOO_LARGE, "code: 16777217", s.code = many('a', RUN_SCRIPT_MAX + 1); s.language = CODE_BASH);
	REFUSED_RUN(ERR_INVALID, "session: \"a/b\"", set(&s.shell, "a"); set(&s.session, "a/b"));
	REFUSED_RUN(ERR_INVALID, "session: a session takes a shell command", s.argv = argv_of("a", NULL); set(&s.session, "s"));
	REFUSED_RUN(ERR_INVALID, "user: not allowed", set(&s.shell, "a"); set(&s.session, "s"); set(&s.user, "root"));
	REFUSED_RUN(ERR_INVALID, "pty: not allowed", set(&s.shell, "a"); set(&s.session, "s"); s.pty = true);
	REFUSED_RUN(ERR_INVALID, "env: \"1\"", set(&s.shell, "a"); pairs_add(&s.env, "1", ""));
	REFUSED_RUN(ERR_INVALID, "user: \"no body\"", set(&s.shell, "a"); set(&s.user, "no body"));
	REFUSED_RUN(ERR_INVALID, "cwd: 0 bytes", set(&s.shell, "a"); set(&s.cwd, ""));
	REFUSED_RUN(ERR_INVALID, "cwd: 4096 bytes", set(&s.shell, "a"); s.cwd = many('/', 4096));
	REFUSED_RUN(ERR_TOO_LARGE, "stdin: 16777217", set(&s.shell, "a"); s.stdin_len = RUN_STDIN_INLINE_MAX + 1);
	REFUSED_RUN(ERR_INVALID, "timeout_ms", set(&s.shell, "a"); s.timeout_ms = UINT64_MAX);
	REFUSED_RUN(ERR_INVALID, "output_max", set(&s.shell, "a"); s.output_max = UINT64_MAX);
	REFUSED_RUN(ERR_INVALID, "idempotency_key: \"\\x01\"", set(&s.shell, "a"); set(&s.idempotency_key, "\x01"));
	REFUSED_RUN(ERR_TOO_LARGE, "display", set(&s.shell, "a"); s.display = many('d', RUN_SCRIPT_MAX + 1));
}

static void run_argv_bounds(void **state)
{
	(void)state;
	struct run_spec r;
	struct err e = { 0 };
	run_spec_init(&r);
	r.argv = xcalloc(20, sizeof *r.argv);
	r.argv[0] = xstrdup("x");
	r.argv[1] = many('a', RUN_ARGV_MAX - 1);
	assert_int_equal(run_spec_validate(&r, &e), 0);
	r.argv[2] = many('a', RUN_ARGV_MAX);
	assert_true(run_spec_validate(&r, &e) < 0);
	assert_int_equal(e.kind, ERR_TOO_LARGE);
	says(&e, "argv[2]: 131072 bytes");
	for (int i = 2; i < 9; i++) {
		free(r.argv[i]);
		r.argv[i] = many('a', RUN_ARGV_MAX - 1);
	}
	assert_true(run_spec_validate(&r, &e) < 0);
	says(&e, "take more than 1048576 bytes together");
	run_spec_done(&r);
}

static void display(void **state)
{
	(void)state;
	struct run_spec r;
	run_spec_init(&r);
	auto_free char *nothing = run_spec_display(&r);
	assert_string_equal(nothing, "");
	r.argv = xcalloc(6, sizeof *r.argv);
	const char *words[] = { "ls", "-l", "a b", "it's", "" };
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		r.argv[i] = xstrdup(words[i]);
	auto_free char *argv = run_spec_display(&r);
	assert_string_equal(argv, "ls -l 'a b' 'it'\\''s' ''");
	set(&r.display, "shown");
	auto_free char *given = run_spec_display(&r);
	assert_string_equal(given, "shown");
	run_spec_done(&r);

	/* Cut on a character's edge: two-byte characters at an odd offset. */
	r.shell = xmalloc(RUN_DISPLAY_MAX + 3);
	r.shell[0] = 'x';
	for (size_t i = 1; i < RUN_DISPLAY_MAX + 1; i += 2)
		memcpy(r.shell + i, "\xc3\xa9", 2);
	r.shell[RUN_DISPLAY_MAX + 1] = 0;
	auto_free char *cut = run_spec_display(&r);
	assert_int_equal(strlen(cut), RUN_DISPLAY_MAX - 1);
	assert_true(utf8_valid(str_of(cut)));
	run_spec_done(&r);
	r.shell = many('a', RUN_DISPLAY_MAX);
	auto_free char *exact = run_spec_display(&r);
	assert_int_equal(strlen(exact), RUN_DISPLAY_MAX);
	run_spec_done(&r);
	r.argv = xcalloc(2, sizeof *r.argv);
	r.argv[0] = many('\'', RUN_ARGV_MAX - 1); /* quoting makes it four times longer */
	auto_free char *quoted = run_spec_display(&r);
	assert_int_equal(strlen(quoted), RUN_DISPLAY_MAX);
	run_spec_done(&r);
}

static void keys_in_text(void **state)
{
	(void)state;
	static const char key[] = KEY_PREFIX "0123456789abcdef0123456789abcdef01234567";
	auto_free char *inside = xasprintf("a; b=%s; c", key), *near = xasprintf("%sx%.*s", KEY_PREFIX, KEY_DIGITS - 1, key + 4);
	assert_true(key_is_in(str_of(key)));
	assert_true(key_is_in(str_of(inside)));
	assert_false(key_is_in(str_of(near)));
	assert_false(key_is_in((struct str){ key, sizeof key - 2 }));
	assert_false(key_is_in((struct str){ NULL, 0 }));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quoting),
		cmocka_unit_test(keys_in_text),
		cmocka_unit_test(pairs),
		cmocka_unit_test(pairs_grow_and_shrink),
		cmocka_unit_test(pairs_flood),
		cmocka_unit_test(vectors),
		cmocka_unit_test(names_of_states),
		cmocka_unit_test(languages),
		cmocka_unit_test(names),
		cmocka_unit_test(resource_defaults),
		cmocka_unit_test(sandbox_copy),
		cmocka_unit_test(sandbox_refusals),
		cmocka_unit_test(sandbox_edges),
		cmocka_unit_test(run_copy),
		cmocka_unit_test(run_refusals),
		cmocka_unit_test(run_argv_bounds),
		cmocka_unit_test(display),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
