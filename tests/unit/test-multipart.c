/* multipart/form-data and URL encoding. Every body is fed whole, byte by byte and in random pieces. */
#include "wire/multipart.h"
#include "wire/urlencode.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

static unsigned seed = 1;

/* "[name|filename|type]bytes" for each part, "." at the end, "!" on an error. */
static char *parse(const char *boundary, struct str body, int split)
{
	struct multipart m;
	struct buf log;
	enum multipart_event e = MULTIPART_MORE;
	bool open = false;

	buf_init(&log, 1 << 20);
	multipart_init(&m, boundary);
	while (body.n && e != MULTIPART_ERROR) {
		seed = seed * 1103515245u + 12345u;
		size_t n = split == 0 ? body.n : split == 1 ? 1 : MIN(body.n, (size_t)(seed >> 16) % 9 + 1);
		char *copy = xmemdup(body.p, n);
		struct str in = { copy, n }, bytes;
		do {
			e = multipart_feed(&m, &in, &bytes);
			if (e == MULTIPART_PART) {
				assert_false(open);
				open = true;
				buf_addf(&log, "[%s|%s|%s]", m.name, m.filename ? m.filename : "-", m.content_type ? m.content_type : "-");
			} else if (e == MULTIPART_BYTES) {
				assert_true(open);
				assert_true(bytes.n > 0);
				buf_add(&log, bytes.p, bytes.n);
			} else if (e == MULTIPART_PART_END) {
				assert_true(open);
				open = false;
				buf_addc(&log, ';');
			} else if (e == MULTIPART_END) {
				buf_addc(&log, '.');
			}
		} while (e != MULTIPART_MORE && e != MULTIPART_ERROR);
		free(copy);
		body.p += n;
		body.n -= n;
	}
	if (e == MULTIPART_ERROR) {
		assert_non_null(m.error);
		buf_addc(&log, '!');
	} else {
		assert_int_equal(multipart_ended(&m), log.len && memchr(log.data, '.', log.len) != NULL && !open);
	}
	multipart_done(&m);
	return buf_take(&log);
}

static void expect(const char *boundary, struct str body, const char *want)
{
	for (int i = 0; i < 12; i++) {
		auto_free char *got = parse(boundary, body, MIN(i, 2));
		if (!streq(got ? got : "", want))
			fail_msg("split %d of <%.*s>\n want %s\n got  %s", i, (int)MIN(body.n, (size_t)300), body.p, want, got ? got : "");
	}
}

#define PART(disposition, data) "--b\r\nContent-Disposition: " disposition "\r\n\r\n" data "\r\n"
#define NAME(params)		PART("form-data; " params, "x") "--b--"

static void test_bodies(void **state)
{
	(void)state;
	expect("b", STR(PART("form-data; name=a", "1") PART("form-data; name=\"c\"; filename=\"f\"", "2") "--b--\r\n"), "[a|-|-]1;[c|f|-]2;.");
	expect("b", STR("\r\n" PART("form-data; name=a", "1") "--b--"), "[a|-|-]1;.");
	expect("b", STR("preamble\r\n" PART("form-data; name=a", "1") "--b--epilogue\r\n--b\r\n"), "[a|-|-]1;.");
	expect("b", STR("--b--"), ".");
	expect("b", STR(PART("form-data; name=a", "") "--b--"), "[a|-|-];.");
	expect("b", STR("--b\r\ncontent-type: text/x\r\nX-Other: y\r\nCONTENT-DISPOSITION:form-data;name=a\r\n\r\n\r\n--b--"), "[a|-|text/x];.");
	expect("b", STR("--b \t\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--b--"), "[a|-|-]1;.");
	/* what nearly is a delimiter is data */
	expect("b", STR(PART("form-data; name=a", "\r\r\n\r\n-\r\n--\r\n--c--b\n--b") "--b--"), "[a|-|-]\r\r\n\r\n-\r\n--\r\n--c--b\n--b;.");
	expect("aab", STR("--aab\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--aa\r\n--aaab\r\n--aab--"), "[a|-|-]\r\n--aa\r\n--aaab;.");
	/* not over yet */
	expect("b", STR(PART("form-data; name=a", "1")), "[a|-|-]1");
	expect("b", STR(PART("form-data; name=a", "1") "--b-"), "[a|-|-]1;");
}

/* What only looks like the beginning of a delimiter does not cut data in pieces. */
static void test_pieces(void **state)
{
	static const char head[] = "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n";
	struct multipart m;
	auto_buf struct buf body;

	(void)state;
	buf_init(&body, 1 << 20);
	buf_addz(&body, head);
	for (int i = 0; i < 10000; i++)
		buf_addz(&body, "\r\n--\r");
	buf_addz(&body, "\r\n--b--");
	multipart_init(&m, "b");
	struct str in = buf_str(&body), bytes = { 0 };
	assert_int_equal(multipart_feed(&m, &in, &bytes), MULTIPART_PART);
	assert_int_equal(multipart_feed(&m, &in, &bytes), MULTIPART_BYTES);
	assert_int_equal(bytes.n, 50000);
	assert_int_equal(multipart_feed(&m, &in, &bytes), MULTIPART_PART_END);
	assert_int_equal(multipart_feed(&m, &in, &bytes), MULTIPART_END);
	multipart_done(&m);
}

static void test_names(void **state)
{
	(void)state;
	expect("b", STR(NAME("name=\"a\\\"b\\\\c\\d\"")), "[a\"b\\c\\d|-|-]x;.");
	expect("b", STR(NAME("name=\"a%22b%0D%0ac%41\"")), "[a\"b\r\nc%41|-|-]x;.");
	expect("b", STR(NAME("name=\"a;b=c\"; filename=\"d;e\"")), "[a;b=c|d;e|-]x;.");
	expect("b", STR(NAME("filename=f ; name= a")), "[ a|f|-]x;.");
	expect("b", STR(NAME("name=a; filename=plain; filename*=UTF-8''na%C3%AFve%20x")), "[a|na\xc3\xafve x|-]x;.");
	expect("b", STR(NAME("filename*=utf-8'en'%e2%82%ac; filename=plain; name=a")), "[a|\xe2\x82\xac|-]x;.");
	expect("b", STR(NAME("name=\"\xc3\xa9\"")), "[\xc3\xa9|-|-]x;.");
	expect("b", STR(NAME("name=\"\"")), "[|-|-]x;.");
}

static void test_refused(void **state)
{
	static const struct str bodies[] = {
		STR("--b\r\n\r\nx\r\n--b--"),
		STR(NAME("nam=a")),
		STR(NAME("name=a; name=b")),
		STR(NAME("name=a; filename=b; filename=c")),
		STR(NAME("name=\"a")),
		STR(NAME("name=\"a\"b")),
		STR(NAME("name")),
		STR(NAME("name=\"\xff\"")),
		STR(NAME("name=a; filename*=latin1''x")),
		STR(NAME("name=a; filename*=UTF-8''%00")),
		STR(NAME("name=a; filename*=UTF-8''%f")),
		STR(PART("attachment; name=a", "x")),
		STR("--b\r\nContent-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\n"),
		STR("--b\r\nno colon\r\n\r\n"),
		STR("--b\r\n folded: x\r\n\r\n"),
		STR("--b\r\nX: a\nY: b\r\n\r\n"),
		STR("--b\r\nX: a\rb\r\n\r\n"),
		STR("--b\r\nX: a\0\r\n\r\n"),
		STR("--bx"),
		STR("--b\n"),
		STR("--b-x"),
		STR("--b\rx"),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++)
		expect("b", bodies[i], "!");
	expect("b", STR(PART("form-data; name=a", "1") "--bc"), "[a|-|-]1;!");
}

static void test_limits(void **state)
{
	static char big[40000];
	size_t n;

	(void)state;
	n = (size_t)snprintf(big, sizeof big, "--b\r\nX: %0*d\r\n\r\n", MULTIPART_MAX_HEAD, 0);
	expect("b", (struct str){ big, n }, "!");
	n = (size_t)snprintf(big, sizeof big, "%0*d\r\n--b--", MULTIPART_MAX_PREAMBLE, 0);
	expect("b", (struct str){ big, n }, "!");
	struct buf many;
	buf_init(&many, 1 << 20);
	for (int i = 0; i <= MULTIPART_MAX_PARTS; i++)
		buf_addz(&many, PART("form-data; name=a", ""));
	auto_free char *got = parse("b", buf_str(&many), 0);
	assert_int_equal(got[strlen(got) - 1], '!');
	buf_done(&many);
}

static void test_boundary(void **state)
{
	static const struct {
		const char *type, *want;
	} cases[] = {
		{ "multipart/form-data; boundary=abc", "abc" },
		{ "Multipart/Form-Data;boundary=\"a b\"; charset=utf-8", "a b" },
		{ "multipart/form-data ; charset=utf-8; BOUNDARY=x", "x" },
		{ "multipart/form-data; boundary=", NULL },
		{ "multipart/form-data; boundary=\"a \"", NULL },
		{ "multipart/form-data; boundary=\"a", NULL },
		{ "multipart/form-data", NULL },
		{ "multipart/form-database; boundary=a", NULL },
		{ "multipart/mixed; boundary=a", NULL },
		{ "multipart/form-data; boundary=\xc3\xa9", NULL },
		{ "multipart/form-data; boundary=01234567890123456789012345678901234567890123456789012345678901234567890", NULL },
		{ "", NULL },
	};
	char got[MULTIPART_MAX_BOUNDARY + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int r = multipart_boundary(str_of(cases[i].type), got);
		assert_int_equal(r == 0, cases[i].want != NULL);
		if (cases[i].want)
			assert_string_equal(got, cases[i].want);
	}
}

static void test_written_is_read(void **state)
{
	char boundary[MULTIPART_RANDOM_BOUNDARY + 1];
	struct buf b;

	(void)state;
	multipart_random_boundary(boundary);
	assert_int_equal(strlen(boundary), MULTIPART_RANDOM_BOUNDARY);
	buf_init(&b, 1 << 16);
	assert_int_equal(multipart_write_part(&b, boundary, true, "a\"b", "x\r\ny", "text/plain"), 0);
	buf_addz(&b, "one");
	assert_int_equal(multipart_write_part(&b, boundary, false, "c", NULL, NULL), 0);
	assert_int_equal(multipart_write_end(&b, boundary, false), 0);
	expect(boundary, buf_str(&b), "[a\"b|x\r\ny|text/plain]one;[c|-|-];.");
	buf_reset(&b);
	multipart_write_end(&b, boundary, true);
	expect(boundary, buf_str(&b), ".");
	buf_done(&b);
}

static void test_url(void **state)
{
	static const struct {
		const char *in;
		int flags;
		const char *want;
	} cases[] = {
		{ "a%20b+c", URL_PERCENT, "a b+c" },   { "a%20b+c", URL_FORM, "a b c" }, { "%2B%2f", URL_FORM, "+/" },
		{ "%c3%A9", URL_PERCENT, "\xc3\xa9" }, { "%2525", URL_PERCENT, "%25" },	 { "", URL_PERCENT, "" },
		{ "%2f", URL_NO_SLASH, NULL },	       { "%00", URL_PERCENT, NULL },	 { "%", URL_PERCENT, NULL },
		{ "%4", URL_PERCENT, NULL },	       { "%4g", URL_PERCENT, NULL },	 { "%ff", URL_PERCENT, NULL },
		{ "%c0%af", URL_PERCENT, NULL },       { "a%", URL_PERCENT, NULL },	 { "%+1", URL_PERCENT, NULL },
	};
	char got[64];
	struct str rest = STR("&a=1&&b&c==x&=v&"), name, value;
	struct buf b;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		ssize_t n = url_decode(str_of(cases[i].in), cases[i].flags, got);
		assert_int_equal(n >= 0, cases[i].want != NULL);
		if (cases[i].want) {
			assert_string_equal(got, cases[i].want);
			assert_int_equal(n, strlen(cases[i].want));
		}
	}
	buf_init(&b, 100);
	while (url_query_next(&rest, &name, &value))
		buf_addf(&b, "%.*s:%.*s,", (int)name.n, name.p, (int)value.n, value.p);
	assert_string_equal(b.data, "a:1,b:,c:=x,:v,");
	buf_reset(&b);
	assert_int_equal(url_encode(&b, STR("a b/\xc3\xa9~\0%"), "/"), 0);
	assert_string_equal(b.data, "a%20b/%C3%A9~%00%25");
	buf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bodies), cmocka_unit_test(test_pieces), cmocka_unit_test(test_names),	cmocka_unit_test(test_refused),
		cmocka_unit_test(test_limits), cmocka_unit_test(test_boundary), cmocka_unit_test(test_written_is_read),
		cmocka_unit_test(test_url),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
