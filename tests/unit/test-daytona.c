/* The Daytona dialect on a real server, over an api in memory: control plane, processes, sessions, terminals, events. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daytona-server.h"
#include "daytona-socket.h"
#include "dialect/daytona/dockerfile.h"

/* --- control plane --- */

static void test_key_needed(void **state)
{
	(void)state;
	ask_raw("GET", "/daytona/sandbox", "", NULL, 0);
	assert_int_equal(last.status, 401);
	assert_string_equal(text("code"), "UNAUTHORIZED");
	assert_string_equal(text("source"), "DAYTONA_API");
	assert_int_equal(number("statusCode"), 401);
	ask_raw("GET", "/daytona/sandbox", "Authorization: Bearer nope\r\n", NULL, 0);
	assert_int_equal(last.status, 401);
	ask_raw("GET", "/daytona/config", "", NULL, 0);
	assert_int_equal(last.status, 200);
	assert_true(json_is_object(json_object_get(last.json, "oidc")));
	assert_true(json_is_false(json_object_get(last.json, "maintananceMode")));
	assert_int_equal(ask("GET", "/nothing-here", NULL), 404);
	assert_string_equal(text("code"), "NOT_FOUND");
	ask_raw("GET", "/api//sandbox", KEY_HEADER, NULL, 0);
	assert_int_equal(last.status, 200);
}

static void test_create(void **state)
{
	(void)state;
	assert_int_equal(ask("POST", "/sandbox",
	                     "{\"name\":\"box1\",\"snapshot\":\"debian:12\",\"user\":\"root\",\"env\":{\"A\":\"\\u00e9\"},\"labels\":{\"k\":\"v\"},\"public\":true,"
	                     "\"target\":\"eu\",\"cpu\":2,\"memory\":4,\"disk\":8.0,\"gpu\":0,\"spot\":false,\"autoStopInterval\":5,\"autoArchiveInterval\":60,"
	                     "\"autoDeleteInterval\":0,\"ttlMinutes\":90,\"volumes\":[],\"networkBlockAll\":true,\"unknownField\":{\"x\":1},\"snapshotX\":null}"),
	                 200);
	assert_string_equal(text("name"), "box1");
	assert_string_equal(text("state"), "started");
	assert_string_equal(text("snapshot"), "debian:12");
	assert_string_equal(text("target"), "eu");
	assert_int_equal(number("cpu"), 2);
	assert_int_equal(number("memory"), 4);
	assert_int_equal(number("disk"), 8);
	assert_int_equal(number("autoStopInterval"), 5);
	assert_int_equal(number("autoArchiveInterval"), 60);
	assert_int_equal(number("autoDeleteInterval"), 0);
	assert_true(json_is_true(json_object_get(last.json, "public")));
	assert_true(json_is_true(json_object_get(last.json, "networkBlockAll")));
	assert_true(json_is_false(json_object_get(last.json, "kvm")));
	assert_string_equal(text("createdAt"), "2026-01-01T00:00:00.000Z");
	assert_string_equal(text("autoDestroyAt"), "2026-01-01T01:30:00.000Z");
	assert_string_equal(json_string_value(json_object_get(json_object_get(last.json, "env"), "A")), "\xc3\xa9");
	char url[128];
	snprintf(url, sizeof(url), "http://127.0.0.1:%u/daytona/toolbox", port);
	assert_string_equal(text("toolboxProxyUrl"), url);
	assert_int_equal(ask("POST", "/sandbox", "{\"name\":\"box1\"}"), 409);
	assert_int_equal(ask("GET", "/sandbox/box1", NULL), 200);
	assert_int_equal(ask("DELETE", "/sandbox/box1", NULL), 200);
	assert_string_equal(text("state"), "destroyed");
	assert_int_equal(ask("GET", "/sandbox/box1", NULL), 404);
	assert_string_equal(text("message"), "sandbox box1 not found");
	assert_int_equal(ask("DELETE", "/sandbox/box1", NULL), 404);
	ask_raw("POST", "/daytona/sandbox", KEY_HEADER "Content-Type: application/x-www-form-urlencoded\r\n", "", 0);
	assert_int_equal(last.status, 200); /* no body: all defaults */
	assert_int_equal(number("autoStopInterval"), 15);
	assert_int_equal(number("autoDeleteInterval"), -1);
}

static void test_create_refused(void **state)
{
	(void)state;
	static const struct {
		const char *body;
		int status;
		const char *says;
	} cases[] = {
		{ "{\"name\":5}", 400, "name must be a string" },
		{ "{\"env\":[]}", 400, "env must be" },
		{ "{\"env\":{\"A\":1}}", 400, "env.A must be a string" },
		{ "{\"env\":{\"9\":\"x\"}}", 400, "env" },
		{ "{\"labels\":\"x\"}", 400, "labels must be" },
		{ "{\"public\":1}", 400, "public must be" },
		{ "{\"cpu\":\"2\"}", 400, "cpu must be a number" },
		{ "{\"memory\":-1}", 400, "memory must be between" },
		{ "{\"memory\":1e300}", 400, "memory must be between" },
		{ "{\"autoStopInterval\":-1}", 400, "autoStopInterval must be between" },
		{ "{\"autoStopInterval\":1.5}", 400, "autoStopInterval must be a whole number" },
		{ "{\"autoDeleteInterval\":\"x\"}", 400, "autoDeleteInterval" },
		{ "{\"ttlMinutes\":true}", 400, "ttlMinutes" },
		{ "{\"volumes\":[{\"volumeId\":\"v\"}]}", 400, "volumes must be" },
		{ "{\"volumes\":[3]}", 400, "volumes must be" },
		{ "{\"volumes\":[{\"volumeId\":\"v\",\"mountPath\":\"data\"}]}", 400, "volumes" },
		{ "{\"volumes\":[{\"volumeId\":\"v\",\"mountPath\":\"/proc/x\"}]}", 400, "nothing can be mounted" },
		{ "{\"volumes\":[{\"volumeId\":\"v\",\"mountPath\":\"/a/../b\"}]}", 400, "no path to mount on" },
		{ "{\"volumes\":[{\"volumeId\":\"../v\",\"mountPath\":\"/a\"}]}", 400, "name or id" },
		{ "{\"volumes\":[{\"volumeId\":\"v\",\"mountPath\":\"/a\",\"subpath\":\"../x\"}]}", 400, "subpath" },
		{ "{\"volumes\":[{\"volumeId\":\"v\",\"mountPath\":\"/a\"},{\"volumeId\":\"w\",\"mountPath\":\"/a/\"}]}", 400, "two of them" },
		{ "{\"volumes\":{}}", 400, "volumes must be an array" },
		{ "{\"secrets\":[{\"A\":3}]}", 400, "secrets must be" },
		{ "{\"secrets\":[3]}", 400, "secrets must be" },
		{ "{\"secrets\":{}}", 400, "secrets must be an array" },
		{ "{\"networkAllowList\":\"10.0.0.1/33\"}", 400, "network.allow" },
		{ "{\"networkAllowList\":\"a.test\"}", 400, "networkAllowList" },
		{ "{\"domainAllowList\":\"10.0.0.0/8\"}", 400, "domainAllowList" },
		{ "{\"domainAllowList\":\",\"}", 400, "domainAllowList" },
		{ "{\"gpu\":1}", 422, "gpu" },
		{ "{\"kvm\":true}", 422, "kvm" },
		{ "{\"autoPauseInterval\":5}", 422, "autoPauseInterval" },
		{ "{\"snapshot\":\"nowhere:1\"}", 400, "nowhere:1" },
		{ "{\"snapshot\":\"default\",\"buildInfo\":{\"dockerfileContent\":\"FROM default\\n\"}}", 400, "not both" },
		{ "{\"buildInfo\":{}}", 400, "dockerfileContent is required" },
		{ "{\"buildInfo\":3}", 400, "buildInfo must be" },
		{ "{\"buildInfo\":{\"dockerfileContent\":\"FROM default\\nSHELL [\\\"x\\\"]\\n\"}}", 422, "SHELL" },
		{ "{\"buildInfo\":{\"dockerfileContent\":\"FROM default\\nCOPY a /b\\n\"}}", 400, "contextHashes" },
		{ "{\"buildInfo\":{\"dockerfileContent\":\"FROM default\",\"contextHashes\":{}}}", 400, "contextHashes" },
		{ "{\"name\":\"a\\u0000b\"}", 400, "JSON" },
		{ "{\"name\":\"\xff\"}", 400, "JSON" },
		{ "{", 400, "JSON" },
		{ "[]", 400, "object" },
		{ "{\"a\":1,\"a\":2}", 400, "JSON" },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (ask("POST", "/sandbox", cases[i].body) != cases[i].status || !strstr(text("message"), cases[i].says))
			fail_msg("%s: %d %s", cases[i].body, last.status, text("message"));
	}
}

static void test_image(void **state)
{
	(void)state;
	assert_int_equal(ask("POST", "/sandbox", "{\"buildInfo\":{\"dockerfileContent\":\"FROM debian:12\\nENV X='y z'\\nWORKDIR /app\\n\"},\"env\":{\"Y\":\"1\"}}"), 200);
	assert_string_equal(text("snapshot"), "debian:12");
	const json_t *env = json_object_get(last.json, "env");
	assert_string_equal(json_string_value(json_object_get(env, "X")), "y z");
	assert_string_equal(json_string_value(json_object_get(env, "Y")), "1");
	const json_t *build = json_object_get(last.json, "buildInfo");
	assert_string_equal(json_string_value(json_object_get(build, "snapshotRef")), "debian:12");
	assert_non_null(json_object_get(build, "createdAt"));
}

static void test_dockerfile(void **state)
{
	(void)state;
	static const struct {
		const char *text, *image;
		enum err_kind kind;
	} cases[] = {
		{ "FROM debian:12.9\n", "debian:12.9", ERR_NONE },
		{ "# comment\n\nfrom --platform=linux/amd64 python:3.12 AS base", "python:3.12", ERR_NONE },
		{ "FROM a\nUSER bob\nLABEL x=y\nEXPOSE 80\nCMD [\"sleep\", \"infinity\"]\n", "a", ERR_NONE },
		{ "FROM a\nENTRYPOINT tail -f /dev/null\nCMD [\"/bin/bash\"]\n", "a", ERR_NONE },
		{ "FROM a\nENV A=1 \\\n # in between\n\n B=\"2 3\"\nENV C the rest\nENV D \"in quotes\"  \\$\nENV E='$A'\n", "a", ERR_NONE },
		{ "FROM a\nCMD [\"nginx\"]\n", "a", ERR_NONE },
		{ "FROM a\nARG V=1\nRUN x --y=$V\nCOPY --chown=u:g a b /c/\nADD d /e\n", "a", ERR_NONE },
		{ "ARG V=3.12\nFROM p:${V}\nWORKDIR /a\nWORKDIR b\nENV P=/x:$PATH:\\$x\n", "p:3.12", ERR_NONE },
		{ "FROM a\nRUN --mount=type=cache x\n", NULL, ERR_UNSUPPORTED },
		{ "FROM a\nRUN <<E\n", NULL, ERR_UNSUPPORTED },
		{ "FROM a\nCOPY --from=b c d\n", NULL, ERR_UNSUPPORTED },
		{ "FROM a\nADD http://x/y /z\n", NULL, ERR_UNSUPPORTED },
		{ "FROM a\nCOPY x\n", NULL, ERR_INVALID },
		{ "FROM a\nENV 1=2\n", NULL, ERR_INVALID },
		{ "FROM a\nFROM b\n", NULL, ERR_UNSUPPORTED },
		{ "RUN x\n", NULL, ERR_INVALID },
		{ "FROM\n", NULL, ERR_INVALID },
		{ "", NULL, ERR_INVALID },
		{ "FROM a\nENV X='y\n", NULL, ERR_INVALID },
		{ "FROM a\nWORKDIR rel\n", NULL, ERR_INVALID },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct dockerfile f = { 0 };
		struct err e = { 0 };
		int rc = dockerfile_parse(str_of(cases[i].text), &f, &e);
		if ((rc < 0 ? e.kind : ERR_NONE) != cases[i].kind || (rc == 0 && !streq(f.image, cases[i].image)))
			fail_msg("%s: %d %s", cases[i].text, rc, e.message);
		if (i == 4) {
			assert_string_equal(pairs_get(&f.env, "A"), "1");
			assert_string_equal(pairs_get(&f.env, "B"), "2 3");
			assert_string_equal(pairs_get(&f.env, "C"), "the rest");
			assert_string_equal(pairs_get(&f.env, "D"), "in quotes  $");
			assert_string_equal(pairs_get(&f.env, "E"), "$A");
			assert_false(f.needs_build);
		}
		if (i == 6) {
			assert_int_equal(f.n_steps, 4);
			assert_true(f.needs_build && f.needs_context);
			assert_string_equal(f.steps[1].text, "x --y=$V");
			assert_string_equal(f.steps[2].chown, "u:g");
			assert_string_equal(f.steps[2].argv[2], "/c/");
		}
		if (i == 7) {
			assert_string_equal(f.workdir, "/a/b");
			assert_true(f.needs_build && !f.needs_context);
		}
		dockerfile_done(&f);
	}
}

static void test_dockerfile_command(void **state)
{
	(void)state;
	static const struct {
		const char *text, *is; /* with '|' between the arguments; NULL: none */
	} cases[] = {
		{ "", NULL },
		{ "CMD [\"nginx\"]", "nginx" },
		{ "CMD nginx -g x", "/bin/sh|-c|nginx -g x" },
		{ "CMD [\"sleep\", \"infinity\"]", NULL },
		{ "ENTRYPOINT [\"/bin/bash\"]", NULL },
		{ "ENTRYPOINT [\"python3\", \"/a.py\"]\nCMD [\"--port\", \"80\"]", "python3|/a.py|--port|80" },
		{ "CMD [\"sleep\", \"infinity\"]\nENTRYPOINT [\"tini\", \"--\"]", "tini|--|sleep|infinity" },
		{ "ENTRYPOINT serve it\nCMD [\"x\"]", "/bin/sh|-c|serve it" },
		{ "ENTRYPOINT [\"run\"]\nCMD a b", "run|/bin/sh|-c|a b" },
		{ "CMD [\"a\"]\nCMD [\"b\"]", "b" },
		{ "ENTRYPOINT text\nENTRYPOINT [\"e\"]\nCMD [\"c\"]", "e|c" },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct dockerfile f = { 0 };
		struct err e = { 0 };
		auto_free char *text = xasprintf("FROM a\n%s\n", cases[i].text);
		assert_int_equal(dockerfile_parse(str_of(text), &f, &e), 0);
		auto_buf struct buf got;
		buf_init(&got, 1000);
		char **command = dockerfile_command(&f);
		for (size_t k = 0; command && command[k]; k++)
			buf_addf(&got, "%s%s", k ? "|" : "", command[k]);
		if (!command != !cases[i].is || (command && !streq(got.data, cases[i].is)))
			fail_msg("%s: %s", cases[i].text, command ? got.data : "none");
		strv_free(command);
		dockerfile_done(&f);
	}
}

/* What an image runs by itself is a run, and the commands of the session "entrypoint". */
static void test_entrypoint(void **state)
{
	(void)state;
	static const struct fake_command commands[] = { { .text = "serve --all", .out = "listening\n", .err = "" } };
	fake_set_commands(commands, 1);
	assert_int_equal(ask("POST", "/sandbox", "{\"buildInfo\":{\"dockerfileContent\":\"FROM default\\nENTRYPOINT [\\\"serve\\\"]\\nCMD [\\\"--all\\\"]\\n\"}}"), 200);
	assert_string_equal(fake_last_run(api)->argv[1], "--all");
	char path[128], id[40];
	snprintf(id, sizeof id, "%s", text("id"));
	snprintf(path, sizeof path, "/toolbox/%s/process/session/entrypoint", id);
	assert_int_equal(ask("GET", path, NULL), 200);
	assert_string_equal(text("sessionId"), "entrypoint");
	const json_t *commands_json = json_object_get(last.json, "commands");
	assert_int_equal(json_array_size(commands_json), 1);
	char run[32];
	snprintf(run, sizeof run, "%s", json_string_value(json_object_get(json_array_get(commands_json, 0), "id")));
	snprintf(path, sizeof path, "/daytona/toolbox/%s/process/session/entrypoint/logs", id);
	ask_raw("GET", path, KEY_HEADER "X-Daytona-SDK-Version: 0.200.0\r\n", NULL, 0);
	assert_string_equal(text("stdout"), "listening\n");
	snprintf(path, sizeof path, "/toolbox/%s/process/session/entrypoint/command/%s", id, run);
	assert_int_equal(ask("GET", path, NULL), 200);
	snprintf(path, sizeof path, "/toolbox/%s/process/session/entrypoint/command/run_999", id);
	assert_int_equal(ask("GET", path, NULL), 404);
	fake_set_commands(NULL, 0);
}

static void test_dockerfile_expansion(void **state)
{
	(void)state;
	static const struct {
		const char *text, *is;
	} cases[] = {
		{ "a$X-b", "a1-b" },	{ "${X}2", "12" },	     { "\\$X", "$X" },	 { "$NOBODY.", "." },	{ "${Y:-word}", "word" }, { "${X:-word}", "1" },
		{ "${X:+set}", "set" }, { "${Y:+set}", "" }, { "$Z", "two" }, { "${X", "${X" },    { "$", "$" },		  { "100%", "100%" },
	};
	struct pairs first = { 0 }, second = { 0 };
	pairs_add(&first, "X", "1");
	pairs_add(&second, "X", "hidden");
	pairs_add(&second, "Z", "two");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_free char *got = dockerfile_expand(cases[i].text, &first, &second);
		assert_string_equal(got, cases[i].is);
	}
	pairs_done(&first);
	pairs_done(&second);
}

static void test_lists(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(ask("POST", "/sandbox", i ? "{\"labels\":{\"set\":\"l\"}}" : "{\"labels\":{\"set\":\"l\"},\"public\":true}"), 200);
	assert_int_equal(ask("GET", "/sandbox?labels=%7B%22set%22%3A%22l%22%7D&limit=2", NULL), 200);
	assert_int_equal(json_array_size(json_object_get(last.json, "items")), 2);
	assert_null(json_object_get(json_array_get(json_object_get(last.json, "items"), 0), "env"));
	char next[256];
	snprintf(next, sizeof(next), "/sandbox?labels=%%7B%%22set%%22%%3A%%22l%%22%%7D&limit=2&cursor=%s", text("nextCursor"));
	assert_int_equal(ask("GET", next, NULL), 200);
	assert_int_equal(json_array_size(json_object_get(last.json, "items")), 1);
	assert_true(json_is_null(json_object_get(last.json, "nextCursor")));
	static const struct {
		const char *query;
		size_t n;
	} filters[] = { { "isPublic=true", 1 },	   { "isPublic=false", 2 },  { "states=archived", 0 },	       { "states=started&states=archived", 3 },
		        { "minCpu=1000", 0 },	   { "maxMemoryGiB=1e9", 3 }, { "regionIds=mars", 0 },	       { "regionIds=local&regionIds=x", 3 },
		        { "snapshots=default", 3 }, { "snapshots=x", 0 },      { "createdAtAfter=2027-01-01T00:00:00.000Z", 0 },
		        { "createdAtBefore=2027-01-01T00:00:00.000Z", 3 },     { "isRecoverable=true", 0 },    { "sort=createdAt&order=asc", 3 } };
	for (size_t i = 0; i < ARRAY_LEN(filters); i++) {
		char path[256];
		snprintf(path, sizeof(path), "/sandbox?labels=%%7B%%22set%%22%%3A%%22l%%22%%7D&%s", filters[i].query);
		assert_int_equal(ask("GET", path, NULL), 200);
		if (json_array_size(json_object_get(last.json, "items")) != filters[i].n)
			fail_msg("%s: %zu", filters[i].query, json_array_size(json_object_get(last.json, "items")));
	}
	static const char *const bad[] = { "limit=0", "limit=201", "limit=x", "states=odd", "labels=x", "labels=%5B%5D", "labels=%7B%22a%22%3A1%7D", "isPublic=1",
		                           "minCpu=z", "sort=name", "order=up", "createdAtAfter=yesterday", "isPublic=%ff" };
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char path[256];
		snprintf(path, sizeof(path), "/sandbox?%s", bad[i]);
		if (ask("GET", path, NULL) != 400)
			fail_msg("%s: %d", bad[i], last.status);
	}
	assert_int_equal(ask("GET", "/sandbox/paginated?page=2&limit=2&labels=%7B%22set%22%3A%22l%22%7D", NULL), 200);
	assert_int_equal(number("total"), 3);
	assert_int_equal(number("totalPages"), 2);
	assert_int_equal(number("page"), 2);
	assert_int_equal(json_array_size(json_object_get(last.json, "items")), 1);
	assert_non_null(json_object_get(json_array_get(json_object_get(last.json, "items"), 0), "env"));
	assert_int_equal(ask("GET", "/snapshots", NULL), 200);
	assert_int_equal(number("total"), 2);
	assert_int_equal(ask("GET", "/snapshots/default", NULL), 200);
	assert_string_equal(text("state"), "active");
	assert_int_equal(ask("GET", "/snapshots/none", NULL), 404);
	assert_int_equal(ask("POST", "/snapshots", "{\"name\":\"x\"}"), 400);
	assert_int_equal(ask("POST", "/snapshots", "{\"name\":\"a b\",\"imageName\":\"default\"}"), 400);
	assert_int_equal(ask("POST", "/snapshots", "{\"name\":\"x\",\"imageName\":\"default\",\"buildInfo\":{\"dockerfileContent\":\"FROM a\"}}"), 400);
	assert_int_equal(ask("GET", "/volumes", NULL), 200);
	assert_int_equal(ask("GET", "/secret/paginated", NULL), 200);
	assert_int_equal(number("total"), 0);
	assert_int_equal(ask("GET", "/secret/paginated?limit=0", NULL), 400);
	assert_int_equal(ask("POST", "/secret", "{\"name\":\"s\"}"), 400);
	assert_int_equal(ask("POST", "/secret", "{\"name\":\"s\",\"value\":\"v\"}"), 400); /* to anywhere */
	assert_int_equal(ask("POST", "/secret", "{\"name\":\"s\",\"value\":\"v\",\"hosts\":[\"a.test\"]}"), 507);
	assert_int_equal(ask("GET", "/secret/s", NULL), 404);
	assert_int_equal(ask("PATCH", "/secret/s", "{\"name\":\"t\"}"), 400);
	assert_int_equal(ask("DELETE", "/secret/s", NULL), 404);
	assert_int_equal(ask("GET", "/warm-pools", NULL), 200);
	assert_int_equal(ask("POST", "/warm-pools", "{\"snapshot\":\"x\",\"pool\":1}"), 422);
	assert_int_equal(ask("POST", "/volumes", "{}"), 400);
	assert_int_equal(ask("GET", "/volumes/by-name/x", NULL), 404);
	assert_int_equal(ask("POST", "/volumes", "{\"name\":\"x\"}"), 200);
	assert_string_equal(text("state"), "ready");
	assert_int_equal(ask("GET", "/volumes/by-name/x", NULL), 200);
	assert_string_equal(text("name"), "x");
	auto_free char *path = xasprintf("/volumes/%s", text("id"));
	assert_int_equal(ask("GET", path, NULL), 200);
	assert_int_equal(ask("POST", "/sandbox", "{\"volumes\":[{\"volumeId\":\"x\",\"mountPath\":\"/data/\",\"subpath\":\"a/b/\"}]}"), 200);
	const json_t *mount = json_array_get(json_object_get(last.json, "volumes"), 0);
	assert_string_equal(json_string_value(json_object_get(mount, "mountPath")), "/data");
	assert_string_equal(json_string_value(json_object_get(mount, "subpath")), "a/b");
	assert_int_equal(ask("DELETE", path, NULL), 200);
	assert_int_equal(ask("GET", path, NULL), 404);
}

static void test_changes(void **state)
{
	(void)state;
	char path[128];
	make_box();
#define AT(suffix) (snprintf(path, sizeof(path), "/sandbox/%s%s", box, suffix), path)
	assert_int_equal(ask("PUT", AT("/labels"), "{\"labels\":{\"a\":\"b\"}}"), 200);
	assert_string_equal(json_string_value(json_object_get(json_object_get(last.json, "labels"), "a")), "b");
	assert_int_equal(ask("PUT", AT("/labels"), "{}"), 400);
	assert_int_equal(ask("POST", AT("/autostop/30"), NULL), 200);
	assert_int_equal(number("autoStopInterval"), 30);
	assert_int_equal(ask("POST", AT("/autodelete/-1"), NULL), 200);
	assert_int_equal(number("autoDeleteInterval"), -1);
	assert_int_equal(ask("POST", AT("/autoarchive/9"), NULL), 200);
	assert_int_equal(number("autoArchiveInterval"), 9);
	assert_int_equal(ask("POST", AT("/autostop/-1"), NULL), 400);
	assert_int_equal(ask("POST", AT("/autostop/x"), NULL), 400);
	assert_int_equal(ask("POST", AT("/autopause/1"), NULL), 422);
	assert_int_equal(ask("POST", AT("/ttl/5"), NULL), 200);
	assert_int_equal(ask("POST", AT("/public/true"), NULL), 200);
	assert_true(json_is_true(json_object_get(last.json, "public")));
	assert_int_equal(number("autoArchiveInterval"), 9); /* the other settings stay */
	assert_int_equal(ask("POST", AT("/public/maybe"), NULL), 400);
	assert_int_equal(ask("POST", AT("/last-activity"), "{}"), 201);
	assert_int_equal(ask("GET", AT("/toolbox-proxy-url"), NULL), 200);
	assert_non_null(strstr(text("url"), "/daytona/toolbox"));
	assert_int_equal(ask("POST", AT("/stop?force=false"), NULL), 200);
	assert_string_equal(text("state"), "stopped");
	assert_int_equal(in_box("POST", "/process/execute", "{\"command\":\"x\"}"), 409);
	assert_non_null(strstr(text("message"), "sandbox is not running"));
	assert_int_equal(ask("POST", AT("/start"), NULL), 200);
	assert_string_equal(text("state"), "started");
	assert_int_equal(ask("POST", AT("/pause"), NULL), 422);
	assert_int_equal(ask("POST", AT("/archive"), NULL), 400);
	assert_int_equal(ask("POST", AT("/recover"), NULL), 400);
	assert_int_equal(ask("POST", AT("/stop?force=false"), NULL), 200);
	assert_int_equal(ask("POST", AT("/archive"), NULL), 200);
	assert_string_equal(text("state"), "archived");
	assert_int_equal(ask("POST", AT("/start"), NULL), 200);
	assert_string_equal(text("state"), "started");
	assert_int_equal(ask("POST", AT("/stop?force=false"), NULL), 200);
	assert_string_equal(text("state"), "stopped");
	assert_int_equal(ask("POST", AT("/start"), NULL), 200);
	assert_int_equal(ask("POST", AT("/resize"), "{\"cpu\":2,\"memory\":3}"), 200);
	assert_int_equal(number("cpu"), 2);
	assert_int_equal(number("memory"), 3);
	assert_int_equal(ask("POST", AT("/resize"), "{\"memory\":\"3\"}"), 400);
	assert_int_equal(ask("POST", "/sandbox/nobody/resize", "{}"), 404);
	assert_int_equal(ask("POST", AT("/fork"), "{}"), 200);
	assert_int_equal(ask("POST", "/sandbox/nobody/fork", "{}"), 404);
	assert_int_equal(ask("POST", AT("/snapshot"), "{}"), 400);
	assert_int_equal(ask("POST", AT("/snapshot"), "{\"name\":\"s\",\"includeMemory\":true}"), 422);
	assert_int_equal(ask("POST", AT("/snapshot"), "{\"name\":\"snap:1\"}"), 200);
	assert_string_equal(text("id"), box);
	assert_int_equal(ask("GET", "/snapshots/snap:1", NULL), 200);
	assert_string_equal(text("state"), "active");
	assert_string_equal(text("sourceSandboxId"), box);
	assert_int_equal(number("cpu"), 2);
	assert_int_equal(number("mem"), 2);
	assert_int_equal(ask("POST", "/snapshots/snap:1/deactivate", NULL), 204);
	assert_int_equal(ask("POST", "/sandbox", "{\"snapshot\":\"snap:1\"}"), 400);
	assert_non_null(strstr(text("message"), "inactive"));
	assert_int_equal(ask("POST", "/snapshots/snap:1/activate", NULL), 200);
	assert_string_equal(text("state"), "active");
	assert_int_equal(ask("POST", "/sandbox", "{\"snapshot\":\"snap:1\"}"), 200);
	assert_string_equal(text("snapshot"), "snap:1");
	assert_int_equal(ask("DELETE", "/snapshots/snap:1", NULL), 200);
	assert_int_equal(ask("GET", "/snapshots/snap:1", NULL), 404);
	assert_int_equal(ask("POST", "/snapshots/snap:1/deactivate", NULL), 404);
	assert_int_equal(ask("POST", "/snapshots/default/activate", NULL), 200);
	assert_int_equal(ask("POST", "/snapshots/default/deactivate", NULL), 403);
#undef AT
}

/* --- processes --- */

/* Each change, and what there is then: "-" blocked, "*" the internet, else ranges;names. */
static void test_network(void **state)
{
	static const struct {
		const char *change, *then;
	} steps[] = {
		{ "{\"networkAllowList\":\"10.0.0.0/8\",\"domainAllowList\":\"a.test, *.b.test\"}", "10.0.0.0/8;a.test,*.b.test" },
		{ "{\"domainAllowList\":\"c.test\"}", "10.0.0.0/8;c.test" },
		{ "{\"networkAllowList\":\"192.168.1.0/16\"}", "192.168.0.0/16;c.test" },
		{ "{\"networkAllowList\":\"93.184.216.34/32,2606:2800::34/128\"}", "93.184.216.34/32,2606:2800::34/128;c.test" },
		{ "{\"networkAllowList\":\"\"}", ";c.test" },
		{ "{\"networkAllowList\":\"10.0.0.0/8\"}", "10.0.0.0/8;c.test" },
		{ "{\"networkBlockAll\":false}", ";c.test" },
		{ "{\"domainAllowList\":\" \"}", "*" },
		{ "{\"networkAllowList\":\"10.0.0.0/8\",\"domainAllowList\":\"a.test\"}", "10.0.0.0/8;a.test" },
		{ "{\"networkBlockAll\":true}", "-;a.test" },
		{ "{\"networkBlockAll\":false}", ";a.test" },
		{ "{\"networkBlockAll\":true,\"networkAllowList\":\"10.0.0.0/8\"}", "-;a.test" },
		{ "{\"networkAllowList\":\"10.0.0.0/8\"}", "10.0.0.0/8;a.test" },
		{ "{\"networkBlockAll\":true,\"domainAllowList\":\"\"}", "-" },
		{ "{\"networkBlockAll\":true}", "-" },
		{ "{\"domainAllowList\":\"b.test\"}", ";b.test" },
		{ "{\"networkBlockAll\":true,\"domainAllowList\":\"a b\"}", NULL },
		{ "{\"networkBlockAll\":null}", NULL },
		{ "{}", NULL },
	};
	char now[200];

	(void)state;
	assert_int_equal(ask("POST", "/sandbox", "{\"name\":\"net\",\"networkBlockAll\":true,\"domainAllowList\":\"z.test\"}"), 200);
	assert_string_equal(text("domainAllowList"), "z.test");
	assert_int_equal(ask("POST", "/sandbox/net/network-settings", "{\"networkBlockAll\":false}"), 200);
	assert_string_equal(text("domainAllowList"), "z.test");
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		assert_int_equal(ask("POST", "/sandbox/net/network-settings", steps[i].change), steps[i].then ? 200 : 400);
		if (!steps[i].then)
			continue;
		bool blocked = json_is_true(json_object_get(last.json, "networkBlockAll"));
		const char *ranges = json_string_value(json_object_get(last.json, "networkAllowList"));
		const char *names = json_string_value(json_object_get(last.json, "domainAllowList"));
		snprintf(now, sizeof now, "%s%s%s%s", blocked ? "-" : !ranges && !names ? "*" : "", ranges ? ranges : "", ranges || names ? ";" : "", names ? names : "");
		assert_string_equal(now, steps[i].then);
	}
	assert_int_equal(ask("GET", "/sandbox/net", NULL), 200);
	assert_string_equal(text("domainAllowList"), "b.test");
	assert_int_equal(ask("DELETE", "/sandbox/net", NULL), 200);
}

static void test_execute(void **state)
{
	(void)state;
	static const struct fake_command commands[] = {
		{ .text = "slow", .out = "so far\n", .err = "", .timed_out = true },
		{ .text = "lost", .out = "", .err = "", .lost = true },
		{ .text = "nocwd", .out = "", .err = "", .failed = true },
		{ .text = "hungry", .out = "x", .err = "", .code = 137, .oom = true },
		{ .text = "bytes", .out = "a\xff\xc3\xa9\xe2\x82z", .err = "", .code = 3 },
		{ .text = "plot", .out = "before\ndtn_artifact_k39fd2:{\"type\":\"chart\",\"value\":{\"title\":\"t\"}}\nafter\ndtn_artifact_k39fd2:junk\n", .err = "" },
	};
	fake_set_commands(commands, ARRAY_LEN(commands));
	make_box();
	assert_int_equal(in_box("POST", "/process/execute", "{\"command\":\"echo hi\",\"cwd\":\"/usr\",\"envs\":{\"A\":\"b\"},\"timeout\":7}"), 200);
	assert_string_equal(text("result"), "echo hi");
	assert_int_equal(number("exitCode"), 0);
	assert_int_equal(fake_last_run(api)->timeout_ms, 7000);
	assert_true(fake_last_run(api)->merge_stderr);
	assert_string_equal(fake_last_run(api)->cwd, "/usr");
	assert_string_equal(pairs_get(&fake_last_run(api)->env, "A"), "b");
	char path[128];
	snprintf(path, sizeof(path), "/toolbox/%s/toolbox/process/execute", box);
	assert_int_equal(ask("POST", path, "{\"command\":\"old path\"}"), 200);
	assert_int_equal(in_box("POST", "/process/execute", "{\"command\":\"slow\",\"timeout\":1}"), 408);
	assert_string_equal(text("code"), "PROCESS_EXECUTION_TIMEOUT");
	assert_string_equal(text("source"), "DAYTONA_DAEMON");
	assert_string_equal(text("result"), "so far\n");
	assert_int_equal(in_box("POST", "/process/execute", "{\"command\":\"lost\"}"), 410);
	assert_int_equal(in_box("POST", "/process/execute", "{\"command\":\"nocwd\"}"), 200);
	assert_int_equal(number("exitCode"), -1);
	assert_string_equal(text("result"), "no such directory");
	assert_int_equal(in_box("POST", "/process/execute", "{\"command\":\"hungry\"}"), 200);
	assert_int_equal(number("exitCode"), 137);
	assert_non_null(strstr(text("result"), "out of memory"));
	assert_int_equal(in_box("POST", "/process/execute", "{\"command\":\"bytes\"}"), 200);
	assert_string_equal(text("result"), "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbdz");
	static const char *const bad[] = { "{}", "{\"command\":\" \\n\"}", "{\"command\":1}", "{\"command\":\"x\",\"timeout\":-1}", "{\"command\":\"x\",\"envs\":{\"1\":\"\"}}",
		                           "{\"command\":\"x\",\"cwd\":[]}", "{\"command\":\"x\",\"timeout\":\"9\"}" };
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (in_box("POST", "/process/execute", bad[i]) != 400)
			fail_msg("%s: %d", bad[i], last.status);
	assert_int_equal(in_box("POST", "/process/code-run", "{\"code\":\"plot\",\"language\":\"python\",\"argv\":[\"a b\"]}"), 200);
	assert_string_equal(text("result"), "before\nafter\ndtn_artifact_k39fd2:junk\n");
	const json_t *charts = json_object_get(json_object_get(last.json, "artifacts"), "charts");
	assert_string_equal(json_string_value(json_object_get(json_array_get(charts, 0), "title")), "t");
	assert_int_equal(in_box("POST", "/process/code-run", "{\"code\":\"x\",\"language\":\"cobol\"}"), 400);
	assert_int_equal(in_box("POST", "/process/code-run", "{\"code\":\"x\",\"language\":\"python\",\"argv\":[1]}"), 400);
	assert_int_equal(ask("POST", "/toolbox/none/process/execute", "{\"command\":\"x\"}"), 404);
	assert_string_equal(text("message"), "sandbox none not found");
	assert_string_equal(text("source"), "DAYTONA_PROXY");
	fake_set_commands(NULL, 0);
}

static void ask_as(const char *version, const char *path)
{
	char headers[256], target[512];
	snprintf(headers, sizeof(headers), KEY_HEADER "X-Daytona-SDK-Version: %s\r\n", version);
	snprintf(target, sizeof(target), "/daytona%s%s", tool, path);
	ask_raw("GET", target, headers, NULL, 0);
}

static void test_sessions(void **state)
{
	(void)state;
	static const struct fake_command commands[] = { { .text = "both", .out = "out\n", .err = "err\n", .code = 4 } };
	fake_set_commands(commands, 1);
	make_box();
	assert_int_equal(in_box("POST", "/process/session", "{\"sessionId\":\"my sandbox\"}"), 201);
	assert_int_equal(in_box("POST", "/process/session", "{\"sessionId\":\"my sandbox\"}"), 409);
	assert_int_equal(in_box("POST", "/process/session", "{\"sessionId\":\"entrypoint\"}"), 400);
	assert_int_equal(in_box("POST", "/process/session", "{}"), 400);
	assert_int_equal(in_box("POST", "/process/session/my%20sandbox/exec", "{\"command\":\"both\"}"), 200);
	assert_string_equal(text("stdout"), "out\n");
	assert_string_equal(text("stderr"), "err\n");
	assert_int_equal(number("exitCode"), 4);
	assert_int_equal(in_box("POST", "/process/session/my%20sandbox/exec", "{\"command\":\"both\",\"runAsync\":true}"), 202);
	char id[32], path[256];
	snprintf(id, sizeof(id), "%s", text("cmdId"));
	assert_true(fake_last_run(api)->stdin_open);
	snprintf(path, sizeof(path), "/process/session/my%%20sandbox/command/%s", id);
	assert_int_equal(in_box("GET", path, NULL), 200);
	assert_null(json_object_get(last.json, "exitCode"));
	assert_string_equal(text("command"), "both");
	snprintf(path, sizeof(path), "/process/session/my%%20sandbox/command/%s/input", id);
	assert_int_equal(in_box("POST", path, "{\"data\":\"more than three bytes\"}"), 204);
	assert_int_equal(in_box("POST", path, "{}"), 400);
	snprintf(path, sizeof(path), "/process/session/my%%20sandbox/command/%s/logs", id);
	ask_as("0.167.0", path);
	assert_string_equal(text("stdout"), "out\n");
	assert_string_equal(text("stderr"), "err\n");
	assert_string_equal(text("output"), "out\nerr\n");
	ask_as("0.166.9", path);
	assert_memory_equal(last.body.data, "\1\1\1out\n\2\2\2err\n", 14);
	assert_int_equal(last.body.len, 14);
	assert_non_null(strcasestr(last.head.data, "content-type: text/plain"));
	assert_int_equal(in_box("GET", path, NULL), 200);
	assert_memory_equal(last.body.data, "out\nerr\n", 8);
	assert_int_equal(in_box("GET", "/process/session/my%20sandbox", NULL), 200);
	assert_int_equal(json_array_size(json_object_get(last.json, "commands")), 2);
	assert_int_equal(in_box("GET", "/process/session", NULL), 200);
	assert_int_equal(json_array_size(last.json), 1);
	assert_int_equal(in_box("GET", "/process/session/entrypoint", NULL), 200);
	assert_int_equal(in_box("GET", "/process/session/entrypoint/logs", NULL), 200);
	assert_int_equal(in_box("GET", "/process/session/x-sandbox", NULL), 404);
	assert_string_equal(text("code"), "PROCESS_NOT_FOUND");
	const char *word = strcasestr(text("message"), "sandbox"); /* nothing but a lost sandbox may read like one */
	assert_true(!word || !strcasestr(word, "not found"));
	assert_int_equal(in_box("GET", "/process/session/my%20sandbox/command/run_999", NULL), 404);
	assert_int_equal(in_box("GET", "/process/session/other/command/run_1", NULL), 404);
	assert_int_equal(in_box("POST", "/process/session", "{\"sessionId\":\"dead\"}"), 201);
	assert_int_equal(in_box("POST", "/process/session/dead/exec", "{\"command\":\"x\"}"), 410);
	assert_string_equal(text("code"), "SESSION_ENDED");
	assert_int_equal(in_box("DELETE", "/process/session/dead", NULL), 204);
	assert_int_equal(in_box("DELETE", "/process/session/my%20sandbox", NULL), 204);
	assert_int_equal(in_box("DELETE", "/process/session/my%20sandbox", NULL), 404);
	fake_set_commands(NULL, 0);
}

/* --- WebSockets --- */

static void test_log_stream(void **state)
{
	(void)state;
	static const struct fake_command commands[] = { { .text = "both", .out = "out\n", .err = "err\n", .code = 4 } };
	fake_set_commands(commands, 1);
	make_box();
	char path[256];
	assert_int_equal(in_box("POST", "/process/session", "{\"sessionId\":\"w\"}"), 201);
	assert_int_equal(in_box("POST", "/process/session/w/exec", "{\"command\":\"both\",\"runAsync\":true}"), 202);
	snprintf(path, sizeof(path), "/daytona%s/process/session/w/command/%s/logs?follow=true", tool, text("cmdId"));
	int fd = ws_open(path, "");
	assert_int_equal(last.status, 401);
	close(fd);
	strcat(path, "&DAYTONA_SANDBOX_AUTH_KEY=" FAKE_TOKEN); /* as a browser does */
	fd = ws_open(path, "Sec-WebSocket-Protocol: X-Daytona-SDK-Version~0.218.0\r\n");
	assert_int_equal(last.status, 101);
	assert_non_null(strcasestr(last.head.data, "X-Daytona-SDK-Version~0.218.0"));
	struct buf all, end;
	buf_init(&all, 65536);
	buf_init(&end, 65536);
	assert_int_equal(ws_next(fd, &all), 2);
	assert_memory_equal(all.data, "\1\1\1out\n", 7); /* the marker and its bytes in one message */
	assert_int_equal(ws_next(fd, &all), 2);
	assert_int_equal(ws_next(fd, &end), 8);
	assert_memory_equal(all.data, "\1\1\1out\n\2\2\2err\n", 14);
	assert_memory_equal(end.data, "\x03\xe8", 2);
	buf_done(&all);
	buf_done(&end);
	close(fd);
	fake_set_commands(NULL, 0);
}

static void test_terminal(void **state)
{
	(void)state;
	make_box();
	char path[256];
	snprintf(path, sizeof(path), "/daytona%s/process/pty/create-connect?id=p1&cols=100&rows=30&cwd=%%2Ftmp", tool);
	int fd = ws_open(path, KEY_HEADER "Sec-WebSocket-Protocol: X-Daytona-Pty-Envs~eyJGT08iOiJiYXI_fiJ9, X-Daytona-Pty-Exit-Control\r\n");
	assert_int_equal(last.status, 101);
	assert_non_null(strcasestr(last.head.data, "sec-websocket-protocol: X-Daytona-Pty-Exit-Control\r\n"));
	struct buf b;
	buf_init(&b, 65536);
	assert_int_equal(ws_next(fd, &b), 1);
	assert_non_null(strstr(b.data, "\"connected\""));
	const struct run_spec *spec = fake_last_run(api);
	assert_int_equal(spec->cols, 100);
	assert_int_equal(spec->rows, 30);
	assert_string_equal(pairs_get(&spec->env, "FOO"), "bar?~");
	assert_string_equal(pairs_get(&spec->env, "TERM"), "xterm-256color");
	assert_int_equal(in_box("GET", "/process/pty", NULL), 200);
	assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(last.json, "sessions"), 0), "id")), "p1");
	assert_int_equal(in_box("GET", "/process/pty/p1", NULL), 200);
	assert_int_equal(number("cols"), 100);
	assert_true(json_is_true(json_object_get(last.json, "active")));
	assert_int_equal(in_box("POST", "/process/pty/p1/resize", "{\"cols\":120,\"rows\":40}"), 200);
	assert_int_equal(number("rows"), 40);
	assert_int_equal(fake_last_run(api)->cols, 120);
	assert_int_equal(in_box("GET", "/process/pty/p1", NULL), 200); /* the present size, not that of the beginning */
	assert_int_equal(number("cols"), 120);
	assert_int_equal(number("rows"), 40);
	assert_int_equal(in_box("POST", "/process/pty/p1/resize", "{\"cols\":0,\"rows\":40}"), 400);
	assert_int_equal(in_box("POST", "/process/pty", "{\"id\":\"p1\"}"), 409);
	ws_send(fd, 2, "echo hi; exit\n");
	int op;
	do {
		buf_reset(&b);
	} while ((op = ws_next(fd, &b)) == 2); /* output */
	assert_int_equal(op, 1);
	assert_non_null(strstr(b.data, "\"exited\""));
	buf_reset(&b);
	assert_int_equal(ws_next(fd, &b), 8);
	assert_memory_equal(b.data, "\x03\xe8{\"exitCode\":0}", 16);
	buf_done(&b);
	close(fd);
	assert_int_equal(in_box("GET", "/process/pty/p1", NULL), 404);
	assert_int_equal(in_box("POST", "/process/pty", "{\"id\":\"p2\",\"lazyStart\":true}"), 201);
	assert_int_equal(in_box("DELETE", "/process/pty/p2", NULL), 200);
	assert_int_equal(in_box("DELETE", "/process/pty/p2", NULL), 404);
	assert_int_equal(in_box("POST", "/process/pty", "{\"id\":\"\"}"), 400);
	assert_int_equal(in_box("GET", "/process/pty/create-connect?id=x", NULL), 426);
}

static void test_events(void **state)
{
	(void)state;
	make_box();
	struct buf b;
	buf_init(&b, 1 << 20);
	int fd = ws_open("/daytona/socket.io/?EIO=4&transport=websocket", "");
	assert_int_equal(last.status, 101);
	assert_int_equal(ws_next(fd, &b), 1);
	assert_memory_equal(b.data, "0{\"sid\":\"", 9);
	ws_send(fd, 1, "40{\"token\":\"wrong\"}");
	buf_reset(&b);
	assert_int_equal(ws_next(fd, &b), 1);
	assert_string_equal(b.data, "44{\"message\":\"Unauthorized\"}");
	ws_send(fd, 1, "40{\"token\":\"" FAKE_KEY "\"}");
	buf_reset(&b);
	assert_int_equal(ws_next(fd, &b), 1);
	assert_memory_equal(b.data, "40{\"sid\":\"", 10);
	ws_send(fd, 1, "2");
	buf_reset(&b);
	assert_int_equal(ws_next(fd, &b), 1);
	assert_string_equal(b.data, "3");
	char path[128];
	snprintf(path, sizeof(path), "/sandbox/%s/stop", box);
	assert_int_equal(ask("POST", path, NULL), 200);
	buf_reset(&b);
	assert_int_equal(ws_next(fd, &b), 1);
	assert_memory_equal(b.data, "42[\"sandbox.state.updated\",", 27);
	json_t *event = json_loads(b.data + 2, 0, NULL), *payload = json_array_get(event, 1);
	assert_string_equal(json_string_value(json_object_get(payload, "newState")), "stopped");
	assert_string_equal(json_string_value(json_object_get(payload, "oldState")), "started");
	assert_string_equal(json_string_value(json_object_get(json_object_get(payload, "sandbox"), "id")), box);
	json_decref(event);
	snprintf(path, sizeof(path), "/sandbox/%s", box);
	assert_int_equal(ask("DELETE", path, NULL), 200);
	buf_reset(&b);
	assert_int_equal(ws_next(fd, &b), 1);
	assert_non_null(strstr(b.data, "\"newState\":\"destroyed\""));
	ws_send(fd, 2, "binary");
	buf_reset(&b);
	assert_int_equal(ws_next(fd, &b), 8);
	close(fd);
	ask_raw("GET", "/daytona/socket.io/?EIO=4&transport=polling", "", NULL, 0);
	assert_int_equal(last.status, 400);
	buf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_key_needed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_create, setup, teardown),
		cmocka_unit_test_setup_teardown(test_create_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_image, setup, teardown),
		cmocka_unit_test(test_dockerfile), cmocka_unit_test(test_dockerfile_command), cmocka_unit_test(test_dockerfile_expansion),
		cmocka_unit_test_setup_teardown(test_entrypoint, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lists, setup, teardown),
		cmocka_unit_test_setup_teardown(test_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_network, setup, teardown),
		cmocka_unit_test_setup_teardown(test_execute, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sessions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_log_stream, setup, teardown),
		cmocka_unit_test_setup_teardown(test_terminal, setup, teardown),
		cmocka_unit_test_setup_teardown(test_events, setup, teardown),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	buf_done(&last.head);
	buf_done(&last.body);
	json_decref(last.json);
	return rc;
}
