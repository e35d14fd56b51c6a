/* The Daytona dialect on a real server, over an api in memory: files both ways, previews, clients that leave, junk. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daytona-server.h"

static int setup_domain(void **state)
{
	static const struct daytona_options domain = { .public_url = "https://box.example:8443", .preview_domain = "p.example" };
	options = &domain;
	int rc = setup(state);
	options = NULL;
	return rc;
}

/* --- files --- */

static void test_files(void **state)
{
	(void)state;
	make_box();
	assert_int_equal(in_box("GET", "/files/info?path=/d/x", NULL), 200);
	assert_string_equal(text("mode"), "-rw-r-----");
	assert_string_equal(text("permissions"), "0640");
	assert_string_equal(text("owner"), "1000");
	assert_string_equal(text("modifiedAt"), "2026-01-01T00:00:00.000Z");
	assert_int_equal(number("size"), 3);
	assert_int_equal(in_box("GET", "/files/info", NULL), 400);
	assert_int_equal(in_box("GET", "/files/info?path=/sandbox/none", NULL), 404);
	assert_string_equal(text("code"), "FILE_NOT_FOUND");
	assert_string_equal(text("source"), "DAYTONA_DAEMON");
	assert_int_equal(in_box("GET", "/files?path=/d", NULL), 200);
	assert_string_equal(json_string_value(json_object_get(json_array_get(last.json, 0), "path")), "/d/x");
	assert_int_equal(in_box("GET", "/files/?depth=2", NULL), 200);
	assert_int_equal(in_box("GET", "/files?depth=x", NULL), 400);
	assert_int_equal(in_box("POST", "/files/folder?path=/d&mode=0755", NULL), 201);
	assert_int_equal(in_box("POST", "/files/folder?path=/d&mode=9", NULL), 400);
	assert_int_equal(in_box("DELETE", "/files?path=/d&recursive=true", NULL), 204);
	assert_int_equal(in_box("DELETE", "/files?path=/bad&recursive=false", NULL), 400);
	assert_string_equal(text("code"), "INVALID_FILE_PATH");
	assert_int_equal(in_box("POST", "/files/move?source=/a&destination=/b", NULL), 200);
	assert_int_equal(in_box("POST", "/files/move?source=/bad&destination=/b", NULL), 409);
	assert_int_equal(in_box("POST", "/files/move?source=/a", NULL), 400);
	assert_int_equal(in_box("POST", "/files/permissions?path=/a&mode=644&owner=root", NULL), 200);
	assert_int_equal(in_box("POST", "/files/permissions?path=/a", NULL), 400);
	assert_int_equal(in_box("GET", "/files/find?path=/d&pattern=a", NULL), 200);
	assert_string_equal(json_string_value(json_object_get(json_array_get(last.json, 0), "content")), "a \xef\xbf\xbd b");
	assert_int_equal(in_box("GET", "/files/search?path=/d&pattern=*.py", NULL), 200);
	assert_string_equal(json_string_value(json_array_get(json_object_get(last.json, "files"), 0)), "/d/x.py");
	assert_int_equal(in_box("POST", "/files/replace", "{\"files\":[\"/a\",\"/bad\"],\"pattern\":\"x\",\"newValue\":\"\"}"), 200);
	assert_true(json_is_true(json_object_get(json_array_get(last.json, 0), "success")));
	assert_true(json_is_false(json_object_get(json_array_get(last.json, 1), "success")));
	assert_int_equal(in_box("POST", "/files/replace", "{\"files\":\"/a\",\"pattern\":\"x\",\"newValue\":\"\"}"), 400);
	assert_int_equal(in_box("GET", "/work-dir", NULL), 200);
	assert_string_equal(text("dir"), "/work");
	assert_int_equal(in_box("GET", "/user-home-dir", NULL), 200);
	assert_string_equal(text("dir"), "/home/daytona");
	assert_int_equal(in_box("GET", "/port", NULL), 200);
	assert_int_equal(json_array_size(json_object_get(last.json, "ports")), 1);
	assert_int_equal(in_box("GET", "/port/8000/in-use", NULL), 200);
	assert_true(json_is_true(json_object_get(last.json, "isInUse")));
	assert_int_equal(in_box("GET", "/port/0/in-use", NULL), 400);
	assert_int_equal(in_box("GET", "/system/metrics", NULL), 200);
	assert_int_equal(number("memTotal"), 1000);
	assert_int_equal(in_box("GET", "/version", NULL), 200);
	assert_int_equal(in_box("POST", "/env", "{\"set\":{\"N\":\"1\"},\"unset\":[\"A\"]}"), 200);
	assert_int_equal(in_box("POST", "/env", "{\"set\":[]}"), 400);
	assert_int_equal(in_box("POST", "/computeruse/start", "{}"), 422);
	assert_non_null(strstr(text("message"), "xvfb"));
}

struct part {
	const char *name;
	const void *data;
	size_t n;
};

/* Sends a form in pieces of `piece` bytes, chunked as Node does. */
static void upload(const char *path, const struct part *parts, size_t n, size_t piece, bool ended)
{
	struct buf body, all;
	buf_init(&body, 64 << 20);
	buf_init(&all, 64 << 20);
	for (size_t i = 0; i < n; i++) {
		buf_addf(&body, "--BOUND\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"x\"\r\n\r\n", parts[i].name);
		buf_add(&body, parts[i].data, parts[i].n);
		buf_addz(&body, "\r\n");
	}
	if (ended)
		buf_addz(&body, "--BOUND--\r\n");
	buf_addf(&all, "POST /daytona%s%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" KEY_HEADER "Content-Type: multipart/form-data; boundary=BOUND\r\n"
		       "Transfer-Encoding: chunked\r\n\r\n",
	         tool, path);
	for (size_t at = 0; at < body.len; at += piece) {
		size_t k = MIN(piece, body.len - at);
		buf_addf(&all, "%zx\r\n", k);
		buf_add(&all, body.data + at, k);
		buf_addz(&all, "\r\n");
	}
	buf_addz(&all, "0\r\n\r\n");
	int fd = dial();
	send_all(fd, all.data, all.len);
	read_reply(fd);
	close(fd);
	buf_done(&body);
	buf_done(&all);
}

static void test_upload(void **state)
{
	(void)state;
	make_box();
	static char big[300000];
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 2654435761U >> 13);
	memcpy(big + 1000, "\r\n--BOUN\r\n--BOUNX", 17);
	const struct part in_turn[] = { { "files[0].path", "/up/big", 7 }, { "files[0].file", big, sizeof(big) }, { "files[1].path", "/up/\xc3\xa9", 6 }, { "files[1].file", "", 0 } };
	const struct part paths_first[] = { { "files[0].path", "/p/0", 4 }, { "files[1].path", "/p/1", 4 }, { "files[0].file", "zero", 4 }, { "files[1].file", "one", 3 } };
	static const size_t pieces[] = { 1 << 20, 4096, 997 };
	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
		upload("/files/bulk-upload", in_turn, ARRAY_LEN(in_turn), pieces[i], true);
		assert_int_equal(last.status, 200);
		assert_int_equal(json_array_size(json_object_get(last.json, "files")), 2);
		assert_int_equal(json_integer_value(json_object_get(json_array_get(json_object_get(last.json, "files"), 0), "bytes")), sizeof(big));
		assert_int_equal(fake_file(api, "/up/big")->data.len, sizeof(big));
		assert_memory_equal(fake_file(api, "/up/big")->data.data, big, sizeof(big));
		assert_int_equal(fake_file(api, "/up/\xc3\xa9")->data.len, 0);
		fake_put_file(api, "/up/big", "", 0);
	}
	upload("/files/bulk-upload", paths_first, ARRAY_LEN(paths_first), 1, true);
	assert_int_equal(last.status, 200);
	assert_memory_equal(fake_file(api, "/p/1")->data.data, "one", 3);
	const struct part orphan[] = { { "files[3].file", "x", 1 }, { "files[0].path", "/ok", 3 }, { "files[0].file", "ok", 2 } };
	upload("/files/bulk-upload", orphan, 3, 50, true);
	assert_int_equal(last.status, 400);
	assert_non_null(strstr(text("message"), "files[3]"));
	assert_int_equal(json_array_size(json_object_get(last.json, "errors")), 1);
	assert_int_equal(json_array_size(json_object_get(last.json, "files")), 1);
	const struct part forbidden[] = { { "files[0].path", "/forbidden/x", 12 }, { "files[0].file", big, sizeof(big) }, { "files[1].path", "/ok2", 4 }, { "files[1].file", "k", 1 } };
	upload("/files/bulk-upload", forbidden, 4, 5000, true);
	assert_int_equal(last.status, 400);
	assert_non_null(strstr(text("message"), "permission denied"));
	assert_non_null(fake_file(api, "/ok2"));
	const struct part cut[] = { { "files[0].path", "/cut", 4 }, { "files[0].file", big, 50000 } };
	upload("/files/bulk-upload", cut, 2, 5000, false);
	assert_int_equal(last.status, 400);
	assert_null(fake_file(api, "/cut"));
	const struct part nul[] = { { "files[0].path", "/a\0b", 4 }, { "files[0].file", "x", 1 } };
	upload("/files/bulk-upload", nul, 2, 500, true);
	assert_int_equal(last.status, 400);
	const struct part again[] = { { "files[0].path", "/once", 5 }, { "files[0].file", "first", 5 }, { "files[0].file", "second", 6 } };
	upload("/files/bulk-upload", again, 3, 500, true);
	assert_int_equal(last.status, 400);
	assert_memory_equal(fake_file(api, "/once")->data.data, "first", 5);
	static struct part many[6000]; /* paths that no file comes for, of more bytes than are kept */
	static char long_path[4000];
	memset(long_path, 'p', sizeof(long_path));
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		many[i] = (struct part){ "files[0].path", long_path, sizeof(long_path) };
	upload("/files/bulk-upload", many, ARRAY_LEN(many), 1 << 20, true);
	assert_int_equal(last.status, 400);
	assert_non_null(strstr(text("message"), "too many paths"));
	const struct part one[] = { { "other", "x", 1 }, { "file", "single", 6 } };
	upload("/files/upload-v2?path=/v2/f.txt", one, 2, 3, true);
	assert_int_equal(last.status, 200);
	assert_string_equal(text("name"), "f.txt");
	assert_memory_equal(fake_file(api, "/v2/f.txt")->data.data, "single", 6);
	upload("/files/upload?path=/v2/g", one, 1, 3, true);
	assert_int_equal(last.status, 400);
	assert_int_equal(in_box("POST", "/files/upload-v2?path=/v2/raw", "raw bytes"), 200);
	assert_memory_equal(fake_file(api, "/v2/raw")->data.data, "raw bytes", 9);
	assert_int_equal(in_box("POST", "/files/bulk-upload", "x"), 400);
}

static void test_download(void **state)
{
	(void)state;
	make_box();
	static char big[500000];
	memset(big, 'b', sizeof(big));
	fake_put_file(api, "/big", big, sizeof(big));
	fake_put_file(api, "/\xc3\xa9 \"q\"", "hi\n", 3);
	assert_int_equal(in_box("POST", "/files/bulk-download", "{\"paths\":[\"/big\",\"/none\",\"/\xc3\xa9 \\\"q\\\"\"]}"), 200);
	char *type = strcasestr(last.head.data, "content-type: multipart/form-data; boundary=");
	assert_non_null(type);
	char boundary[100];
	assert_int_equal(sscanf(type + 44, "%70[^\r\n]", boundary), 1);
	struct buf want;
	buf_init(&want, 1 << 20);
	buf_addf(&want, "--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/big\"; filename*=utf-8''%%2Fbig\r\nContent-Length: 500000\r\n"
			"Content-Type: application/octet-stream\r\n\r\n",
	         boundary);
	buf_add(&want, big, sizeof(big));
	buf_addf(&want, "\r\n--%s\r\nContent-Disposition: form-data; name=\"error\"; filename=\"/none\"; filename*=utf-8''%%2Fnone\r\n", boundary);
	assert_true(last.body.len > want.len);
	assert_memory_equal(last.body.data, want.data, want.len);
	const char *tail = last.body.data + want.len;
	assert_non_null(strstr(tail, "\"code\":\"FILE_NOT_FOUND\""));
	buf_reset(&want);
	buf_addf(&want, "\r\n--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/\xc3\xa9 \\\"q\\\"\"; filename*=utf-8''%%2F%%C3%%A9%%20%%22q%%22\r\n"
			"Content-Length: 3\r\nContent-Type: application/octet-stream\r\n\r\nhi\n\r\n--%s--\r\n",
	         boundary, boundary);
	assert_string_equal(last.body.data + last.body.len - want.len, want.data);
	buf_done(&want);
	assert_int_equal(in_box("POST", "/files/bulk-download", "{\"paths\":[]}"), 400);
	assert_int_equal(in_box("POST", "/files/bulk-download", "{\"paths\":[1]}"), 400);
	assert_int_equal(in_box("GET", "/files/download?path=/big", NULL), 200);
	assert_int_equal(last.body.len, sizeof(big));
	assert_int_equal(in_box("GET", "/files/download?path=/none", NULL), 404);
}

/* A client that leaves in the middle: everything is given back (teardown counts). */
static void test_leaving(void **state)
{
	(void)state;
	make_box();
	static const char *const requests[][2] = {
		{ "POST", "/process/execute HTTP/1.1\r\nHost: 127.0.0.1\r\n" KEY_HEADER "Content-Length: 19\r\n\r\n{\"command\":\"x    \"}" },
		{ "POST", "/files/bulk-download HTTP/1.1\r\nHost: 127.0.0.1\r\n" KEY_HEADER "Content-Length: 18\r\n\r\n{\"paths\":[\"/big\"]}" },
		{ "POST", "/files/bulk-upload HTTP/1.1\r\nHost: 127.0.0.1\r\n" KEY_HEADER "Content-Type: multipart/form-data; boundary=B\r\nContent-Length: 100000\r\n\r\n"
			  "--B\r\nContent-Disposition: form-data; name=\"files[0].path\"\r\n\r\n/l\r\n--B\r\nContent-Disposition: form-data; name=\"files[0].file\"\r\n\r\nabc" },
		{ "GET", "/files/info?path=/x HTTP/1.1\r\nHost: 127.0.0.1\r\n" KEY_HEADER "\r\n" },
	};
	for (size_t i = 0; i < 4 * ARRAY_LEN(requests); i++) {
		char text_[1024];
		int fd = dial();
		int n = snprintf(text_, sizeof(text_), "%s /daytona%s%s", requests[i % ARRAY_LEN(requests)][0], tool, requests[i % ARRAY_LEN(requests)][1]);
		send_all(fd, text_, (size_t)n);
		usleep((useconds_t)(i * 300));
		close(fd);
	}
	usleep(50000);
	assert_int_equal(fake_pending(api), 0);
}

/* --- previews --- */

static void visit(const char *path, const char *headers)
{
	char target[512];
	snprintf(target, sizeof(target), "/daytona/preview/%s%s", box, path);
	ask_raw("GET", target, headers, NULL, 0);
}

static void test_preview(void **state)
{
	(void)state;
	make_box();
	char path[256], want[256];
	snprintf(path, sizeof(path), "/sandbox/%s/ports/8000/preview-url", box);
	assert_int_equal(ask("GET", path, NULL), 200);
	snprintf(want, sizeof(want), "http://127.0.0.1:%u/daytona/preview/%s/8000", port, box);
	assert_string_equal(text("url"), want);
	assert_string_equal(text("token"), FAKE_TOKEN);
	snprintf(path, sizeof(path), "/sandbox/%s/ports/0/preview-url", box);
	assert_int_equal(ask("GET", path, NULL), 400);
	visit("/8000/", "");
	assert_int_equal(last.status, 401);
	visit("/8000/", "X-Daytona-Preview-Token: wrong\r\n");
	assert_int_equal(last.status, 401);
	visit("/8000/a%20b/?x=1&DAYTONA_SANDBOX_AUTH_KEY=" FAKE_TOKEN "&y=", "Cookie: a=b\r\n");
	assert_int_equal(last.status, 200);
	assert_string_equal(last.body.data, "inside");
	assert_non_null(strcasestr(last.head.data, "set-cookie: daytona-sandbox-auth-"));
	assert_non_null(strcasestr(last.head.data, "content-security-policy: sandbox"));
	assert_memory_equal(fake_seen_head(api), "GET /a%20b/?x=1&y= HTTP/1.1\r\n", 29);
	assert_non_null(strcasestr(fake_seen_head(api), "host: localhost:8000"));
	snprintf(path, sizeof(path), "X-Daytona-Preview-Token: " FAKE_TOKEN "\r\nAuthorization: Basic app\r\nCookie: a=b; daytona-sandbox-auth-%s=" FAKE_TOKEN "; c=d\r\n", box);
	visit("/8000", path);
	assert_int_equal(last.status, 200);
	assert_null(strstr(fake_seen_head(api), FAKE_TOKEN));
	assert_non_null(strstr(fake_seen_head(api), "Basic app"));
	assert_non_null(strstr(fake_seen_head(api), "c=d"));
	visit("/8000/x", KEY_HEADER);
	assert_int_equal(last.status, 200);
	assert_null(strstr(fake_seen_head(api), FAKE_KEY));
	snprintf(path, sizeof(path), "Cookie: daytona-sandbox-auth-%s=" FAKE_TOKEN "\r\n", box);
	visit("/8000/", path);
	assert_int_equal(last.status, 200);
	visit("/1/", KEY_HEADER);
	assert_int_equal(last.status, 502);
	visit("/99999/", KEY_HEADER);
	assert_int_equal(last.status, 400);
	ask_raw("GET", "/daytona/preview/00000000-0000-0000-0000-000000000000/80/", "", NULL, 0);
	assert_int_equal(last.status, 401);
	/* a browser goes to an origin of its own */
	visit("/8000/p?q=1", "Sec-Fetch-Dest: document\r\n");
	assert_int_equal(last.status, 307);
	snprintf(want, sizeof(want), "location: http://8000-%s.preview.localhost:%u/p?q=1\r\n", box, port);
	assert_non_null(strcasestr(last.head.data, want));
	snprintf(path, sizeof(path), "Host: 8000-%s.preview.localhost:%u\r\nX-Daytona-Preview-Token: " FAKE_TOKEN "\r\n", box, port);
	ask_raw("GET", "/daytona/sandbox", path, NULL, 0);
	assert_int_equal(last.status, 200);
	assert_string_equal(last.body.data, "inside");
	assert_memory_equal(fake_seen_head(api), "GET /daytona/sandbox HTTP/1.1\r\n", 31);
	assert_null(strcasestr(last.head.data, "content-security-policy"));
	/* public: anybody */
	snprintf(path, sizeof(path), "/sandbox/%s/public/true", box);
	assert_int_equal(ask("POST", path, NULL), 200);
	visit("/8000/", "");
	assert_int_equal(last.status, 200);
}

static void test_signed_preview(void **state)
{
	(void)state;
	make_box();
	char path[256], token[32], link[256];
	snprintf(path, sizeof(path), "/sandbox/%s/ports/8000/signed-preview-url?expiresInSeconds=90", box);
	assert_int_equal(ask("GET", path, NULL), 200);
	snprintf(token, sizeof(token), "%s", text("token"));
	snprintf(link, sizeof(link), "%s/x", strstr(text("url"), "/daytona/"));
	ask_raw("GET", link, "", NULL, 0);
	assert_int_equal(last.status, 200);
	snprintf(path, sizeof(path), "/daytona/preview/%s~%s/8001/", box, token); /* another port */
	ask_raw("GET", path, "", NULL, 0);
	assert_int_equal(last.status, 401);
	snprintf(path, sizeof(path), "/daytona/preview/%s~00000000000000000000/8000/", box);
	ask_raw("GET", path, "", NULL, 0);
	assert_int_equal(last.status, 401);
	snprintf(path, sizeof(path), "Host: 8000-%s-%s.preview.localhost:%u\r\n", box, token, port);
	ask_raw("GET", "/", path, NULL, 0);
	assert_int_equal(last.status, 200);
	snprintf(path, sizeof(path), "/sandbox/%s/ports/8000/signed-preview-url/%s/expire", box, token);
	assert_int_equal(ask("POST", path, NULL), 200);
	ask_raw("GET", link, "", NULL, 0);
	assert_int_equal(last.status, 401);
	snprintf(path, sizeof(path), "/sandbox/%s/ports/8000/signed-preview-url?expiresInSeconds=0", box);
	assert_int_equal(ask("GET", path, NULL), 400);
}

static void test_preview_domain(void **state)
{
	(void)state;
	make_box();
	char path[256], want[256];
	assert_string_equal(text("toolboxProxyUrl"), "https://box.example:8443/daytona/toolbox");
	snprintf(path, sizeof(path), "/sandbox/%s/ports/8000/preview-url", box);
	assert_int_equal(ask("GET", path, NULL), 200);
	snprintf(want, sizeof(want), "https://8000-%s.p.example:8443", box);
	assert_string_equal(text("url"), want);
	snprintf(path, sizeof(path), "/sandbox/%s/ports/8000/signed-preview-url", box);
	assert_int_equal(ask("GET", path, NULL), 200);
	snprintf(want, sizeof(want), "https://8000-%s-%s.p.example:8443", box, text("token"));
	assert_string_equal(text("url"), want);
	snprintf(path, sizeof(path), "Host: 8000-%s-%s.P.example\r\n", box, text("token"));
	ask_raw("GET", "/", path, NULL, 0);
	assert_int_equal(last.status, 200);
	assert_string_equal(last.body.data, "inside");
}

/* --- anything at all --- */

static void test_junk(void **state)
{
	(void)state;
	static const char *const paths[] = { "/process/execute", "/process/code-run", "/process/session", "/process/pty", "/files/replace", "/files/bulk-download", "/env" };
	static const char *const bits[] = { "{", "}", "[", "]", "\"command\"", ":", ",", "\"code\"", "null", "1e400", "-0", "\"\\ud800\"", "\"\xc3\xa9\"", "\xff", "true", "\"files\"",
		                            "\"id\"", "\"x\"", "\"envs\"", "\"paths\"", "\"set\"", "\"sessionId\"" };
	unsigned seed = 7;
	make_box();
	for (int i = 0; i < 400; i++) {
		char body[400] = "";
		seed = seed * 1103515245 + 12345;
		int n = (int)(seed >> 16) % 12;
		for (int k = 0; k < n; k++) {
			seed = seed * 1103515245 + 12345;
			strcat(body, bits[(seed >> 16) % ARRAY_LEN(bits)]);
		}
		int status = in_box("POST", paths[(size_t)i % ARRAY_LEN(paths)], body);
		if (status >= 500 || status < 200)
			fail_msg("%s %s: %d", paths[(size_t)i % ARRAY_LEN(paths)], body, status);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_upload, setup, teardown),
		cmocka_unit_test_setup_teardown(test_download, setup, teardown),
		cmocka_unit_test_setup_teardown(test_leaving, setup, teardown),
		cmocka_unit_test_setup_teardown(test_preview, setup, teardown),
		cmocka_unit_test_setup_teardown(test_signed_preview, setup, teardown),
		cmocka_unit_test_setup_teardown(test_preview_domain, setup_domain, teardown),
		cmocka_unit_test_setup_teardown(test_junk, setup, teardown),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	buf_done(&last.head);
	buf_done(&last.body);
	json_decref(last.json);
	return rc;
}
