#include "model/ceiling.h"
#include "model/publish.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct addr addr(const char *z)
{
	struct addr a;

	if (addr_parse(str_of(z), &a) < 0)
		fail_msg("%s is no address", z);
	return a;
}

static void addresses(void **state)
{
	static const char *const good[] = { "0.0.0.0", "1.2.3.4", "255.255.255.255", "::", "::1", "2001:db8::1", "::ffff:1.2.3.4" };
	static const char *const bad[] = {
		"",	     "1.2.3",	"1.2.3.4.5", "01.2.3.4",      "1.2.3.256", "0x7f.0.0.1", "2130706433", "017700000001", "1.2.3.4 ", " 1.2.3.4",
		"1.2.3.4.", "1..2.3", "1.2.3.-4",  "fe80::1%eth0", ":::",	   "[::1]",	    "::1/64",	    "::12345",      "1:2:3:4:5:6:7:8:9",
	};
	(void)state;
	struct addr a;
	char text[ADDR_TEXT_MAX];
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		assert_int_equal(addr_parse(str_of(good[i]), &a), 0);
		assert_string_equal(addr_format(&a, text), good[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (addr_parse(str_of(bad[i]), &a) != -EINVAL)
			fail_msg("\"%s\" was taken for an address", bad[i]);
	assert_int_equal(addr_parse((struct str){ "::1\0", 4 }, &a), -EINVAL);
}

static void classes(void **state)
{
	static const struct {
		enum addr_class class;
		const char *text;
	} cases[] = {
		{ ADDR_PUBLIC, "1.1.1.1" },	    { ADDR_PUBLIC, "93.184.216.34" },	   { ADDR_PUBLIC, "223.255.255.255" },
		{ ADDR_PUBLIC, "172.15.255.255" },  { ADDR_PUBLIC, "172.32.0.1" },	   { ADDR_PUBLIC, "100.63.255.255" },
		{ ADDR_PUBLIC, "100.128.0.1" },	    { ADDR_PUBLIC, "2606:4700::1111" },	   { ADDR_PUBLIC, "2a00:1450::1" },
		{ ADDR_NEVER, "0.0.0.0" },	    { ADDR_NEVER, "0.1.2.3" },		   { ADDR_NEVER, "127.0.0.1" },
		{ ADDR_NEVER, "127.255.255.255" },  { ADDR_NEVER, "169.254.169.254" },	   { ADDR_NEVER, "169.254.0.1" },
		{ ADDR_NEVER, "224.0.0.1" },	    { ADDR_NEVER, "239.255.255.255" },	   { ADDR_NEVER, "240.0.0.1" },
		{ ADDR_NEVER, "255.255.255.255" },  { ADDR_NEVER, "100.100.100.200" },	   { ADDR_NEVER, "192.0.0.192" },
		{ ADDR_NEVER, "168.63.129.16" },    { ADDR_NEVER, "::" },		   { ADDR_NEVER, "::1" },
		{ ADDR_NEVER, "::127.0.0.1" },	    { ADDR_NEVER, "::ffff:127.0.0.1" },	   { ADDR_NEVER, "::ffff:8.8.8.8" },
		{ ADDR_NEVER, "64:ff9b::a9fe:a9fe" }, { ADDR_NEVER, "64:ff9b:1::1" },	   { ADDR_NEVER, "2002:7f00:1::1" },
		{ ADDR_NEVER, "2001::1" },	    { ADDR_NEVER, "fe80::1" },		   { ADDR_NEVER, "febf::1" },
		{ ADDR_NEVER, "ff02::1" },	    { ADDR_NEVER, "fd00:ec2::254" },	   { ADDR_NEVER, "::ffff:0:127.0.0.1" },
		{ ADDR_PRIVATE, "10.0.0.1" },	    { ADDR_PRIVATE, "172.16.0.1" },	   { ADDR_PRIVATE, "172.31.255.255" },
		{ ADDR_PRIVATE, "192.168.1.1" },    { ADDR_PRIVATE, "100.64.0.1" },	   { ADDR_PRIVATE, "100.127.255.255" },
		{ ADDR_PRIVATE, "192.0.2.1" },	    { ADDR_PRIVATE, "198.18.0.1" },	   { ADDR_PRIVATE, "198.19.255.255" },
		{ ADDR_PRIVATE, "198.51.100.1" },   { ADDR_PRIVATE, "203.0.113.1" },	   { ADDR_PRIVATE, "fc00::1" },
		{ ADDR_PRIVATE, "fd12:3456::1" },   { ADDR_PRIVATE, "fec0::1" },	   { ADDR_PRIVATE, "100::1" },
		{ ADDR_PRIVATE, "4000::1" },	    { ADDR_PRIVATE, "2001:db8::1" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct addr a = addr(cases[i].text);
		if (addr_classify(&a) != cases[i].class)
			fail_msg("%s is of class %d", cases[i].text, (int)addr_classify(&a));
	}
}

static void names(void **state)
{
	static const char *const pairs[][2] = {
		{ "Api.Example.ORG", "api.example.org" }, { "example.org.", "example.org" }, { "_dmarc.x", "_dmarc.x" },
		{ "xn--bcher-kva.example", "xn--bcher-kva.example" }, { "localhost", "localhost" }, { "1.example", "1.example" }, { "0xg.x", "0xg.x" },
	};
	static const char *const bad[] = {
		"", ".", "a..b", ".a", "a..", "-a.b", "a-.b", "a b", "a;b", "b\xc3\xbc" "cher.example", "a/b", "a:b", "1.2.3.4", "2130706433", "0x7f000001",
		"a.0x7f", "a.1", "127.1", "a,b", "a*b", "*", "a@b", "a%62",
	};
	char out[POLICY_NAME_MAX + 1], longest[POLICY_NAME_MAX + 3];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		assert_int_equal(name_canonical(str_of(pairs[i][0]), out), 0);
		assert_string_equal(out, pairs[i][1]);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (name_canonical(str_of(bad[i]), out) != -EINVAL)
			fail_msg("\"%s\" was taken for a name", bad[i]);
	assert_int_equal(name_canonical((struct str){ "a\0b", 3 }, out), -EINVAL);
	memset(longest, 'a', sizeof longest);
	for (size_t i = 63; i < sizeof longest; i += 64)
		longest[i] = '.';
	assert_int_equal(name_canonical((struct str){ longest, 253 }, out), 0);
	assert_int_equal(name_canonical((struct str){ longest, 254 }, out), -EINVAL);
	memset(longest, 'a', sizeof longest);
	assert_int_equal(name_canonical((struct str){ longest, 63 }, out), 0);
	assert_int_equal(name_canonical((struct str){ longest, 64 }, out), -EINVAL);
}

static void rules(void **state)
{
	static const char *const pairs[][2] = {
		{ "API.test:443", "api.test:443" },
		{ "*.PyPI.org.", "*.pypi.org" },
		{ "*:443", "*:443" },
		{ "a.b:80,443,8000-8099", "a.b:80,443,8000-8099" },
		{ "a.b:22/raw", "a.b:22/raw" },
		{ "a.b:123/udp", "a.b:123/udp" },
		{ "10.0.0.0/8:5432", "10.0.0.0/8:5432" },
		{ "1.2.3.4", "1.2.3.4" },
		{ "0.0.0.0/0:123/udp", "0.0.0.0/0:123/udp" },
		{ "2001:DB8::/32", "[2001:db8::]/32" },
		{ "[2606:4700::1]:443", "[2606:4700::1]:443" },
		{ "[fd12::]/16:443", "[fd12::]/16:443" },
		{ "a:7-7", "a:7" },
	};
	static const char *const bad[] = {
		"", "*.", "*a.b", "a.*", "a:", "a:0", "a:65536", "a:1-", "a:2-1", "a:1,", "a:,1", "a:01", "a:1:2", "a:x", "a/raw/udp", "1.2.3.4/raw",
		"10.0.0.1/8", "1.2.3.4/33", "1.2.3.4/08", "127.0.0.1", "127.0.0.0/8", "169.254.169.254:80", "::1", "[::ffff:1.2.3.4]:80", "fe80::/10",
		"a:1,2,3,4,5,6,7,8,9", "[a.b]:443", "[::1", "http://a.b", "a.b/", "a.b/path", "a b", "2130706433", "*.1", "1.2.3.4:",
	};
	struct policy_rule r;
	struct err e;
	char text[POLICY_TEXT_MAX], again[POLICY_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		if (rule_parse(str_of(pairs[i][0]), &r, &e) < 0)
			fail_msg("%s", e.message);
		assert_string_equal(rule_format(&r, text), pairs[i][1]);
		rule_done(&r);
		assert_int_equal(rule_parse(str_of(text), &r, &e), 0);
		assert_string_equal(rule_format(&r, again), text);
		rule_done(&r);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (rule_parse(str_of(bad[i]), &r, &e) == 0)
			fail_msg("\"%s\" was taken for a rule", bad[i]);
		assert_int_equal(e.kind, ERR_INVALID);
	}
}

struct world {
	struct policy p;
	struct policy_host h;
};

static struct world world(enum network_mode mode, const char *allow, const char *deny, const char *lan)
{
	struct world w = { 0 };
	char a[512], d[512];
	char *av[16] = { 0 }, *dv[16] = { 0 }, *save;
	size_t n = 0;
	struct err e;
	struct net net;

	snprintf(a, sizeof a, "%s", allow);
	snprintf(d, sizeof d, "%s", deny);
	for (char *t = strtok_r(a, " ", &save); t; t = strtok_r(NULL, " ", &save))
		av[n++] = t;
	n = 0;
	for (char *t = strtok_r(d, " ", &save); t; t = strtok_r(NULL, " ", &save))
		dv[n++] = t;
	if (policy_parse(mode, av, dv, &w.p, &e) < 0)
		fail_msg("%s", e.message);
	if (*lan) {
		assert_int_equal(net_parse(str_of(lan), &net), 0);
		nets_add(&w.h.lan, &net);
	}
	assert_int_equal(net_parse(STR("93.184.216.34"), &net), 0);
	nets_add(&w.h.own, &net);
	assert_int_equal(net_parse(STR("93.184.216.0/24"), &net), 0);
	nets_add(&w.h.link, &net);
	return w;
}

static void world_done(struct world *w)
{
	policy_done(&w->p);
	nets_done(&w->h.own);
	nets_done(&w->h.link);
	nets_done(&w->h.lan);
}

static int judged(const struct world *w, const char *a, unsigned port, enum policy_proto proto)
{
	struct addr at = addr(a);
	return (int)policy_judge_address(&w->p, &w->h, &at, (uint16_t)port, proto).verdict;
}

static void judge_public(void **state)
{
	struct world w = world(NETWORK_PUBLIC, "10.1.0.0/16:5432 1.1.1.1:25 0.0.0.0/0:123/udp db.lan:80", "9.9.9.9 *.evil.test 8.8.8.8:80", "10.0.0.0/8");

	(void)state;
	assert_int_equal(judged(&w, "1.1.1.1", 443, POLICY_TCP), VERDICT_ALLOW);
	assert_int_equal(judged(&w, "2606:4700::1111", 443, POLICY_TCP), VERDICT_ALLOW);
	assert_int_equal(judged(&w, "1.1.1.1", 443, POLICY_UDP), VERDICT_BY_NAME);
	assert_int_equal(judged(&w, "1.1.1.1", 53, POLICY_UDP), VERDICT_DENY);
	assert_int_equal(judged(&w, "1.1.1.1", 123, POLICY_UDP), VERDICT_ALLOW);
	assert_int_equal(judged(&w, "10.1.2.3", 123, POLICY_UDP), VERDICT_ALLOW); /* opened by the operator, and a rule covers it */
	assert_int_equal(judged(&w, "192.168.1.1", 123, POLICY_UDP), VERDICT_DENY);
	assert_int_equal(judged(&w, "169.254.169.254", 123, POLICY_UDP), VERDICT_DENY);
	assert_int_equal(judged(&w, "1.1.1.1", 25, POLICY_TCP), VERDICT_ALLOW);
	assert_int_equal(judged(&w, "1.0.0.1", 25, POLICY_TCP), VERDICT_DENY);
	assert_int_equal(judged(&w, "1.0.0.1", 853, POLICY_TCP), VERDICT_DENY);
	assert_int_equal(judged(&w, "9.9.9.9", 443, POLICY_TCP), VERDICT_DENY);
	assert_int_equal(judged(&w, "8.8.8.8", 80, POLICY_TCP), VERDICT_DENY);
	assert_int_equal(judged(&w, "8.8.8.8", 443, POLICY_TCP), VERDICT_ALLOW);
	assert_int_equal(judged(&w, "10.1.2.3", 5432, POLICY_TCP), VERDICT_ALLOW);
	assert_int_equal(judged(&w, "10.2.2.3", 5432, POLICY_TCP), VERDICT_BY_NAME);
	assert_int_equal(judged(&w, "192.168.1.1", 80, POLICY_TCP), VERDICT_DENY);
	assert_int_equal(judged(&w, "127.0.0.1", 80, POLICY_TCP), VERDICT_DENY);
	assert_int_equal(judged(&w, "93.184.216.34", 80, POLICY_TCP), VERDICT_DENY); /* this host's */
	assert_int_equal(judged(&w, "93.184.216.35", 80, POLICY_TCP), VERDICT_DENY); /* its neighbour */
	assert_int_equal(judged(&w, "93.184.217.35", 80, POLICY_TCP), VERDICT_ALLOW);
	assert_int_equal(judged(&w, "1.1.1.1", 0, POLICY_TCP), VERDICT_DENY);
	struct addr a = addr("1.1.1.1");
	assert_true(policy_judge_address(&w.p, &w.h, &a, 443, POLICY_TCP).look);
	assert_false(policy_may_resolve(&w.p, "a.evil.test"));
	assert_true(policy_may_resolve(&w.p, "evil.test"));
	assert_true(policy_denies_name(&w.p, "a.evil.test", 443, POLICY_TCP));
	world_done(&w);
}

static void judge_allow(void **state)
{
	struct world w = world(NETWORK_ALLOW, "api.test:443 *.pypi.test git.test:22/raw 1.2.3.0/24:443", "bad.pypi.test x.pypi.test:80", "");

	(void)state;
	assert_int_equal(judged(&w, "1.2.3.4", 443, POLICY_TCP), VERDICT_ALLOW);
	assert_int_equal(judged(&w, "1.2.3.4", 80, POLICY_TCP), VERDICT_BY_NAME);
	assert_int_equal(judged(&w, "5.6.7.8", 443, POLICY_TCP), VERDICT_BY_NAME);
	assert_int_equal(judged(&w, "10.0.0.1", 443, POLICY_TCP), VERDICT_DENY);
	assert_true(policy_may_resolve(&w.p, "api.test"));
	assert_false(policy_may_resolve(&w.p, "x.api.test"));
	assert_true(policy_may_resolve(&w.p, "a.b.pypi.test"));
	assert_false(policy_may_resolve(&w.p, "pypi.test"));
	assert_false(policy_may_resolve(&w.p, "evilpypi.test"));
	assert_false(policy_may_resolve(&w.p, ".pypi.test"));
	assert_false(policy_may_resolve(&w.p, "bad.pypi.test"));
	assert_true(policy_may_resolve(&w.p, "x.pypi.test"));
	assert_null(policy_judge_name(&w.p, "x.pypi.test", 80, POLICY_TCP));
	assert_non_null(policy_judge_name(&w.p, "x.pypi.test", 443, POLICY_TCP));
	assert_null(policy_judge_name(&w.p, "api.test", 80, POLICY_TCP));
	assert_null(policy_judge_name(&w.p, "api.test", 443, POLICY_UDP));
	assert_true(policy_judge_name(&w.p, "git.test", 22, POLICY_TCP)->raw);
	world_done(&w);

	struct world none = world(NETWORK_ALLOW, "", "", "");
	assert_int_equal(judged(&none, "1.1.1.1", 443, POLICY_TCP), VERDICT_BY_NAME);
	assert_null(policy_judge_name(&none.p, "api.test", 443, POLICY_TCP));
	assert_false(policy_may_resolve(&none.p, "api.test"));
	world_done(&none);
}

static void judge_datagrams(void **state)
{
	struct world w = world(NETWORK_PUBLIC, "ntp.test:123/udp *.quic.test/udp 1.2.3.0/24:5000-5010/udp api.test:443", "8.8.8.8:123/udp 9.9.9.9:5000 a.quic.test:7/udp b.quic.test:8", "");

	(void)state;
	assert_int_equal(judged(&w, "1.2.3.4", 5000, POLICY_UDP), VERDICT_ALLOW);
	assert_int_equal(judged(&w, "1.2.3.4", 5011, POLICY_UDP), VERDICT_BY_NAME);
	assert_int_equal(judged(&w, "8.8.8.8", 123, POLICY_UDP), VERDICT_DENY);
	assert_int_equal(judged(&w, "8.8.8.8", 123, POLICY_TCP), VERDICT_ALLOW); /* datagrams alone were denied */
	assert_int_equal(judged(&w, "9.9.9.9", 5000, POLICY_UDP), VERDICT_DENY); /* a denial without a suffix is of both */
	assert_int_equal(judged(&w, "9.9.9.9", 5000, POLICY_TCP), VERDICT_DENY);
	assert_int_equal(judged(&w, "127.0.0.1", 123, POLICY_UDP), VERDICT_DENY);
	assert_int_equal(judged(&w, "224.0.0.251", 5353, POLICY_UDP), VERDICT_DENY);
	assert_non_null(policy_judge_name(&w.p, "ntp.test", 123, POLICY_UDP));
	assert_null(policy_judge_name(&w.p, "ntp.test", 123, POLICY_TCP));
	assert_null(policy_judge_name(&w.p, "api.test", 443, POLICY_UDP));
	assert_null(policy_judge_name(&w.p, "a.quic.test", 7, POLICY_UDP));
	assert_false(policy_denies_name(&w.p, "a.quic.test", 7, POLICY_TCP));
	assert_true(policy_denies_name(&w.p, "b.quic.test", 8, POLICY_TCP));
	assert_true(policy_denies_name(&w.p, "b.quic.test", 8, POLICY_UDP));
	assert_true(policy_has_datagrams(&w.p));
	assert_true(policy_denies_names(&w.p, POLICY_TCP));
	world_done(&w);

	struct world only = world(NETWORK_PUBLIC, "api.test:443", "x.test/udp 10.0.0.0/8/udp 4.4.4.4/udp", "");
	assert_false(policy_denies_names(&only.p, POLICY_TCP)); /* so no connection has to be looked into */
	assert_true(policy_denies_names(&only.p, POLICY_UDP));
	assert_true(policy_may_resolve(&only.p, "x.test"));
	struct addr a = addr("4.4.4.4");
	assert_true(policy_may_answer(&only.p, &only.h, &a));
	assert_false(policy_has_datagrams(&only.p));
	world_done(&only);
}

static void answers(void **state)
{
	struct world w = world(NETWORK_PUBLIC, "", "9.9.9.9 8.8.8.8:80", "10.0.0.0/8");
	static const struct {
		const char *a;
		bool good;
	} cases[] = { { "1.1.1.1", true },  { "127.0.0.1", false },	{ "169.254.169.254", false }, { "192.168.1.1", false }, { "10.1.1.1", true },
		      { "9.9.9.9", false }, { "8.8.8.8", true },	{ "93.184.216.34", false },   { "93.184.216.9", false } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct addr a = addr(cases[i].a);
		assert_int_equal(policy_may_answer(&w.p, &w.h, &a), cases[i].good);
	}
	world_done(&w);
}

static void lists(void **state)
{
	struct policy p;
	struct err e;
	char *one[] = { xstrdup("A.test"), NULL }, *bad[] = { xstrdup("a b"), NULL };
	char *many[POLICY_RULES_MAX + 2];

	(void)state;
	assert_int_equal(policy_check(NETWORK_ALLOW, one, NULL, true, &e), 0);
	assert_string_equal(one[0], "a.test");
	assert_true(policy_check(NETWORK_NONE, one, NULL, false, &e) < 0);
	assert_true(policy_check(NETWORK_PUBLIC, NULL, bad, false, &e) < 0);
	assert_non_null(strstr(e.message, "network.deny"));
	assert_true(policy_parse((enum network_mode)9, NULL, NULL, &p, &e) < 0);
	for (size_t i = 0; i <= POLICY_RULES_MAX; i++)
		many[i] = one[0];
	many[POLICY_RULES_MAX + 1] = NULL;
	assert_true(policy_check(NETWORK_ALLOW, many, NULL, false, &e) < 0);
	assert_int_equal(e.kind, ERR_TOO_LARGE);
	char datagrams[] = "1.2.3.4:53,123/udp", *udp[] = { datagrams, NULL }, questions[] = "1.2.3.4:53/udp", *names[] = { questions, NULL };
	assert_int_equal(policy_check(NETWORK_ALLOW, udp, NULL, false, &e), 0);
	assert_true(policy_check(NETWORK_PUBLIC, names, NULL, false, &e) < 0); /* ours, so not promised */
	assert_int_equal(e.kind, ERR_INVALID);
	assert_int_equal(policy_check(NETWORK_PUBLIC, NULL, names, false, &e), 0);
	static const char *const own[] = { "localhost", "LOCALHOST.:80", "*.localhost", "a.localhost:443/raw" };
	for (size_t i = 0; i < ARRAY_LEN(own); i++) {
		char *allow[] = { xstrdup(own[i]), NULL };
		assert_true(policy_check(NETWORK_ALLOW, allow, NULL, false, &e) < 0);
		assert_non_null(strstr(e.message, "the sandbox itself"));
		assert_int_equal(policy_check(NETWORK_PUBLIC, NULL, allow, false, &e), 0);
		free(allow[0]);
	}
	char other[] = "notlocalhost.test", *fine[] = { other, NULL };
	assert_int_equal(policy_check(NETWORK_ALLOW, fine, NULL, false, &e), 0);
	free(one[0]);
	free(bad[0]);
}

/* Each says what it is that is wrong. */
static void what_is_wrong_with_a_rule(void **state)
{
	static const struct { const char *rule, *says; } cases[] = {
		{ "127.0.0.1", "no sandbox ever reaches" },	 { "[fe80::1]:80", "no sandbox ever reaches" }, { "224.0.0.0/4", "no sandbox ever reaches" },
		{ "169.254.169.254", "no sandbox ever reaches" }, { "::ffff:1.2.3.4", "no sandbox ever reaches" }, { "10.0.0.1/8", "bits behind the prefix" },
		{ "a b", "neither a name nor" },		 { "", "it is empty" },				 { "a.test:0", "each 1 to 65535" },
		{ "a.test:65536", "each 1 to 65535" },
	};
	struct policy_rule r;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_true(rule_parse(str_of(cases[i].rule), &r, &e) < 0);
		if (!strstr(e.message, cases[i].says))
			fail_msg("%s: %s", cases[i].rule, e.message);
	}
	char text[POLICY_TEXT_MAX + 8];
	memset(text, 'a', sizeof text);
	text[sizeof text - 1] = '\0';
	assert_true(rule_parse(str_of(text), &r, &e) < 0);
	assert_non_null(strstr(e.message, "407 bytes; a rule has at most 399"));
}

static void within_a_ceiling(void **state)
{
	static const struct { const char *outer, *inner; bool within; } cases[] = {
		{ "api.test", "api.test:443", true }, { "api.test:443", "api.test", false }, { "api.test:443", "api.test:443", true },
		{ "api.test:1-100", "api.test:5,7-9", true }, { "api.test:1-100", "api.test:5,101", false }, { "api.test", "other.test", false },
		{ "*.x.test", "a.x.test", true }, { "*.x.test", "a.b.x.test", true }, { "*.x.test", "x.test", false }, { "*.x.test", "*.x.test", true },
		{ "*.x.test", "*.a.x.test", true }, { "*.a.x.test", "*.x.test", false }, { "*.x.test", "ax.test", false }, { "*", "a.test", true }, { "*", "*", true },
		{ "a.x.test", "*.x.test", false }, { "*.x.test", "*", false }, { "api.test", "api.test/raw", false }, { "api.test/raw", "api.test", true },
		{ "8.8.0.0/16", "8.8.8.8", true }, { "8.8.0.0/16", "8.8.8.0/24:53", true }, { "8.8.8.0/24", "8.8.0.0/16", false }, { "8.8.8.8", "8.8.8.9", false },
		{ "8.8.8.8", "8.8.8.8/udp", false }, { "8.8.8.8", "api.test", false }, { "*", "8.8.8.8", false }, { "[2600::]/16", "[2600:1::]/32", true },
		{ "[2600::]/16", "8.8.8.8", false },
	};
	(void)state;
	const struct network_limits none = { 0 };
	struct err e;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char *outer[] = { xstrdup(cases[i].outer), NULL }, *inner[] = { xstrdup(cases[i].inner), NULL };
		const struct ceiling c = { .mode = NETWORK_ALLOW, .allow = outer };
		assert_int_equal(ceiling_valid(&c, &e), 0);
		int rc = ceiling_permits(&c, NETWORK_ALLOW, inner, &none, &e);
		if ((rc == 0) != cases[i].within)
			fail_msg("%s within %s: %s", cases[i].inner, cases[i].outer, rc ? e.message : "yes");
		if (rc && (!strstr(e.message, "operator") || e.kind != ERR_DENIED))
			fail_msg("%s", e.message);
		assert_true(ceiling_permits(&c, NETWORK_PUBLIC, NULL, &none, &e) < 0);
		assert_int_equal(ceiling_permits(&c, NETWORK_NONE, NULL, &none, &e), 0);
		free(outer[0]);
		free(inner[0]);
	}
}

static void limits_of_a_ceiling(void **state)
{
	static const char *const bad[] = { "", "bytes", "bytes=", "bytes=0", "bytes=-1", "bytes_per_second=1023", "connections=8193", "what=1", "=1", "bytes=1k" };
	struct ceiling c = { .mode = NETWORK_PUBLIC };
	struct network_limits l = { .bytes = 5 };
	struct err e;

	(void)state;
	assert_int_equal(limit_parse(str_of("bytes_per_second=1024"), &c.limits, &e), 0);
	assert_int_equal(limit_parse(str_of("connections=10"), &c.limits, &e), 0);
	assert_int_equal(c.limits.bytes_per_second, 1024);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(limit_parse(str_of(bad[i]), &c.limits, &e), -EINVAL);
	assert_int_equal(ceiling_permits(&c, NETWORK_PUBLIC, NULL, &l, &e), 0);
	l.connections = 11;
	assert_true(ceiling_permits(&c, NETWORK_PUBLIC, NULL, &l, &e) < 0);
	assert_non_null(strstr(e.message, "network.limits.connections: 11 is more"));
	assert_non_null(strstr(e.message, "(10)"));
	ceiling_limit(&c, &l);
	assert_int_equal(l.connections, 10);
	assert_int_equal(l.bytes_per_second, 1024);
	assert_int_equal(l.bytes, 5);
	assert_int_equal(l.connections_per_second, 0);
	char rule[] = "api.test", *rules[CEILING_DENY_MAX + 2];
	for (size_t i = 0; i < CEILING_DENY_MAX + 1; i++)
		rules[i] = rule;
	rules[CEILING_DENY_MAX + 1] = NULL;
	c.deny = rules;
	assert_true(ceiling_valid(&c, &e) < 0);
	c.deny = NULL;
	c.allow = rules + CEILING_DENY_MAX;
	assert_true(ceiling_valid(&c, &e) < 0); /* of mode public */
}

static void publications(void **state)
{
	static const struct { const char *text, *canonical; } good[] = {
		{ "80", "127.0.0.1:0:80" }, { "8080:80", "127.0.0.1:8080:80" }, { "127.0.0.2:1:65535", "127.0.0.2:1:65535" },
		{ "[::1]:8080:80", "[::1]:8080:80" }, { "0.0.0.0:1:1", "0.0.0.0:1:1" },
	};
	static const char *const bad[] = { "", ":", "0", "65536", "80:", ":80", "::80", "0:80", "8080:0", "-1", "a:80", "1.2.3:1:2", "::1:8080:80",
					   "[127.0.0.1]:1:2", "[::1:1:2", "1.2.3.4:80", "1.2.3.4::80", "80/tcp", "80-81:80-81", " 80", "1:2:3" };
	struct publications list = { 0 };
	char text[PUBLISH_TEXT_MAX];
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct publication *p = publications_add(&list);
		assert_int_equal(publication_parse(str_of(good[i].text), p, &e), 0);
		assert_string_equal(publication_format(p, text), good[i].canonical);
	}
	assert_int_equal(publications_validate(&list, &e), 0);
	*publications_add(&list) = (struct publication){ .host_port = 8080, .port = 81 }; /* on the default address, which has 8080 */
	assert_true(publications_validate(&list, &e) < 0);
	assert_non_null(strstr(e.message, "8080"));
	publications_remove(&list, 1);
	assert_int_equal(publications_validate(&list, &e), 0);
	publications_done(&list);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct publication p = { 0 };
		if (publication_parse(str_of(bad[i]), &p, &e) == 0)
			fail_msg("\"%s\" was taken for a publication", bad[i]);
		assert_null(p.address);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses), cmocka_unit_test(classes),	    cmocka_unit_test(names),   cmocka_unit_test(rules),
		cmocka_unit_test(judge_public), cmocka_unit_test(judge_allow),
		cmocka_unit_test(judge_datagrams), cmocka_unit_test(answers), cmocka_unit_test(lists), cmocka_unit_test(what_is_wrong_with_a_rule),
		cmocka_unit_test(publications), cmocka_unit_test(within_a_ceiling), cmocka_unit_test(limits_of_a_ceiling),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
