#include "model/method.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void texts(void **state)
{
	static const struct {
		const char *text;
		int kind; /* of the error; 0 = it is good */
		const char *path;
	} cases[] = {
		{ "deny method:POST api.test", 0, NULL },
		{ "allow method:GET,HEAD *.api.test:443,8000-8099/v1/", 0, "/v1" },
		{ "ask method:* *", 0, NULL },
		{ "ask method:M-SEARCH api.test/", 0, "/" },
		{ "ask method:GET api.test/*", 0, "/" },
		{ "ask method:GET API.test/a%20b*", 0, "/a b" },
		{ "ask method:GET api.test/v1/*", 0, "/v1" },
		{ "ask method:GET api.test/%C3%a9", 0, "/\xc3\xa9" },
		{ "ask method:GET api.test/raw", 0, "/raw" },
		{ "deny method:", ERR_INVALID, NULL },
		{ "deny method:POST", ERR_INVALID, NULL },
		{ "deny method:POST ", ERR_INVALID, NULL },
		{ "deny method:POST /v1", ERR_INVALID, NULL },
		{ "deny method: api.test", ERR_INVALID, NULL },
		{ "deny method:POST  api.test", ERR_INVALID, NULL },
		{ "deny method:POST, PUT api.test", ERR_INVALID, NULL },
		{ "deny method:POST,,PUT api.test", ERR_INVALID, NULL },
		{ "deny method:POST,* api.test", ERR_INVALID, NULL },
		{ "deny method:Post api.test", ERR_INVALID, NULL },
		{ "deny method:ABCDEFGHIJKLMNOPQRSTUVWX api.test", ERR_INVALID, NULL },
		{ "deny method:A,B,C,D,E,F,G,H,I,J,K,L,M,N,O,P,Q api.test", ERR_INVALID, NULL },
		{ "allow method:TRACE api.test", ERR_INVALID, NULL },
		{ "deny method:POST api.test:0", ERR_INVALID, NULL },
		{ "deny method:POST api..test", ERR_INVALID, NULL },
		{ "deny method:POST 10.0.0.1/x", ERR_UNSUPPORTED, NULL },
		{ "deny method:POST [2001:db8::1]/x", ERR_UNSUPPORTED, NULL },
		{ "deny method:POST api.test/a?b", ERR_INVALID, NULL },
		{ "deny method:POST api.test/a#b", ERR_INVALID, NULL },
		{ "deny method:POST api.test/a b", ERR_INVALID, NULL },
		{ "deny method:POST api.test/a%", ERR_INVALID, NULL },
		{ "deny method:POST api.test/a%2", ERR_INVALID, NULL },
		{ "deny method:POST api.test/%00", ERR_INVALID, NULL },
		{ "deny method:POST api.test/%2e", ERR_INVALID, NULL },
		{ "deny method:POST api.test/a//b", ERR_INVALID, NULL },
		{ "deny method:POST api.test/a/./b", ERR_INVALID, NULL },
		{ "deny method:POST api.test/a/..", ERR_INVALID, NULL },
		{ "deny method:POST api.test/a;b", ERR_INVALID, NULL },
		{ "deny method:POST api.test/**", ERR_INVALID, NULL },
		{ "permit method:POST api.test", ERR_INVALID, NULL },
		{ "", ERR_INVALID, NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct method_rule r = { 0 };
		struct err e = { 0 };
		int rc = method_rule_parse(cases[i].text, &r, &e);
		if ((rc == 0) != (cases[i].kind == 0) || (rc < 0 && (int)e.kind != cases[i].kind))
			fail_msg("%s: %d %s", cases[i].text, rc, e.message);
		if (rc == 0 && (!r.path != !cases[i].path || (r.path && strcmp(r.path, cases[i].path) != 0)))
			fail_msg("%s: %s", cases[i].text, r.path);
		method_rule_done(&r);
	}
}

/* The verdict of rules (separated by '|') as a letter: - nothing is about it, a, q (ask), d. */
static char judged(const char *rules, const char *host, uint16_t port, const char *method, const char *target)
{
	char copy[2048], *save;
	struct method_rules r = { 0 };
	struct method_verdict v;

	snprintf(copy, sizeof copy, "%s", rules);
	for (char *one = strtok_r(copy, "|", &save); one; one = strtok_r(NULL, "|", &save))
		assert_int_equal(method_rules_add(&r, one), 0);
	bool about = method_judge(&r, host, port, str_of(method), str_of(target), &v);
	if (about)
		assert_true(v.rule || v.reason);
	method_rules_done(&r);
	return about ? " aqd"[v.verdict] : '-';
}

static void verdicts(void **state)
{
	static const char only[] = "allow method:GET,HEAD *.x.test|allow method:POST a.x.test/new", some[] = "deny method:POST a.test|ask method:* a.test:80/v1*|allow method:* b.test";
	static const char paths[] = "deny method:* a.test/private";
	static const struct {
		const char *rules, *host, *method, *target;
		char verdict;
		uint16_t port;
	} cases[] = {
		{ only, "a.x.test", "GET", "/", 'a', 443 },	    { only, "x.test", "GET", "/", '-', 443 },
		{ only, "a.x.test", "POST", "/", 'd', 443 },	    { only, "a.x.test", "POST", "/new?a=/", 'a', 443 },
		{ only, "b.x.test", "POST", "/new", 'd', 443 },	    { only, "a.x.test", "get", "/", 'd', 443 },
		{ only, "a.x.test", "GE", "/", 'd', 443 },	    { only, "a.x.test", "", "/", 'd', 443 },
		{ only, "b.x.test", "GET", "//", 'a', 443 },	    { only, "a.x.test", "GET", "//", 'd', 443 },
		{ only, "a.x.test", "OPTIONS", "*", 'd', 443 },	    { some, "a.test", "GET", "/v10", 'q', 80 },
		{ some, "a.test", "POST", "/v1", 'd', 80 },	    { some, "a.test", "POST", "/", 'd', 81 },
		{ some, "a.test", "GET", "/v1", 'a', 81 },	    { some, "a.test", "Post", "/", 'd', 81 },
		{ some, "b.test", "BREW", "/", 'a', 1 },	    { some, "c.test", "POST", "/", '-', 1 },
		{ paths, "a.test", "GET", "/private", 'd', 443 },   { paths, "a.test", "GET", "/private/x", 'd', 443 },
		{ paths, "a.test", "GET", "/privates", 'a', 443 },  { paths, "a.test", "GET", "/%70rivate", 'd', 443 },
		{ paths, "a.test", "GET", "/x/../private", 'd', 443 }, { paths, "a.test", "GET", "/x/%2e%2e/y", 'd', 443 },
		{ paths, "a.test", "GET", "/x%2fy", 'd', 443 },	    { paths, "a.test", "GET", "/x\\y", 'd', 443 },
		{ paths, "a.test", "GET", "/x;y", 'd', 443 },	    { paths, "a.test", "GET", "/x%zz", 'd', 443 },
		{ paths, "a.test", "GET", "/%2570rivate", 'd', 443 }, { paths, "a.test", "GET", "/x/", 'a', 443 },
		{ paths, "a.test", "GET", "/x#/private", 'd', 443 }, { paths, "a.test", "GET", "/x\xc3\xa9", 'd', 443 },
		{ paths, "a.test", "GET", "/?/private", 'a', 443 }, { paths, "a.test", "OPTIONS", "*", 'a', 443 },
		{ paths, "a.test", "GET", "", 'd', 443 },	    { paths, "a.test", "GET", "private", 'd', 443 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char v = judged(cases[i].rules, cases[i].host, cases[i].port, cases[i].method, cases[i].target);
		if (v != cases[i].verdict)
			fail_msg("%s %s%s: %c", cases[i].method, cases[i].host, cases[i].target, v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts),
		cmocka_unit_test(verdicts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
