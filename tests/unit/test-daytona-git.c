/* The git calls: which commands they become, what is read from them, and what is said when one fails. */
#include "dialect/daytona/git.h" /* before cmocka.h, which has a macro named fail */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/wait.h>

#include "daytona-server.h"

#define HASH "0123456789abcdef0123456789abcdef01234567"

/* --- commands --- */

/* The arguments of a run, with '|' between them. */
static const char *line_before(size_t back)
{
	static char line[4096];
	char *const *argv = fake_run_before(api, back)->argv;
	size_t n = 0;
	line[0] = '\0';
	for (size_t i = 0; argv && argv[i]; i++)
		n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%s", i ? "|" : "", argv[i]);
	return line;
}

static void test_commands(void **state)
{
	(void)state;
	static const struct fake_command commands[] = { { .text = "rev-parse --verify", .out = HASH "\n", .err = "" },
		                                        { .text = "set-url", .out = "", .err = "error: No such remote 'o'\n", .code = 2 } };
	static const struct {
		const char *method, *path, *body;
		int status;
		const char *before, *line; /* the command before the last one, or NULL; the last */
	} cases[] = {
		{ "POST", "/git/clone", "{\"url\":\"u;x\",\"path\":\"-p\",\"branch\":\"\"}", 200, NULL, "git|clone|--quiet|--origin=origin|--|u;x|-p" },
		{ "POST", "/git/clone", "{\"url\":\"u\",\"path\":\"p\",\"branch\":\"b\",\"commit_id\":\"c\",\"depth\":3,\"insecure_skip_tls\":true}", 200,
		  "git|-c|http.sslVerify=false|-C|p|fetch|--quiet|--no-recurse-submodules|--depth=3|--|origin|c",
		  "git|-c|http.sslVerify=false|-C|p|checkout|--quiet|--detach|c|--" },
		{ "POST", "/git/init", "{\"path\":\"p\",\"bare\":true,\"initial_branch\":\"b\"}", 201, NULL, "git|init|--quiet|--bare|--initial-branch|b|--|p" },
		{ "POST", "/git/branches", "{\"path\":\"/r\",\"name\":\"n\"}", 201, NULL, "git|branch|--|n" },
		{ "DELETE", "/git/branches", "{\"path\":\"/r\",\"name\":\"n\"}", 204, NULL, "git|branch|-D|--|n" },
		{ "POST", "/git/checkout", "{\"path\":\"/r\",\"branch\":\"n\"}", 200, NULL, "git|checkout|--quiet|n|--" },
		{ "POST", "/git/add", "{\"path\":\"/r\",\"files\":[\"-a\",\"b c\"]}", 200, NULL, "git|add|--|-a|b c" },
		{ "POST", "/git/commit", "{\"path\":\"/r\",\"message\":\"-m\",\"author\":\"A B\",\"email\":\"a@b\",\"allow_empty\":true}", 200,
		  "git|-c|user.name=A B|-c|user.email=a@b|commit|--quiet|--file=-|--allow-empty", "git|rev-parse|--verify|HEAD" },
		{ "POST", "/git/reset", "{\"path\":\"/r\"}", 200, NULL, "git|reset|--quiet|--mixed|HEAD|--" },
		{ "POST", "/git/reset", "{\"path\":\"/r\",\"mode\":\"hard\",\"target\":\"t\",\"files\":[]}", 200, NULL, "git|reset|--quiet|--hard|t|--" },
		{ "POST", "/git/reset", "{\"path\":\"/r\",\"target\":\"t\",\"files\":[\"-f\"]}", 200, NULL, "git|reset|--quiet|t|--|-f" },
		{ "POST", "/git/restore", "{\"path\":\"/r\",\"files\":[\"f\"],\"staged\":true,\"worktree\":true,\"source\":\"s\"}", 200, NULL,
		  "git|restore|--quiet|--staged|--worktree|--source|s|--|f" },
		{ "POST", "/git/push", "{\"path\":\"/r\"}", 200, NULL, "git|-c|push.default=current|push|--quiet|--recurse-submodules=no" },
		{ "POST", "/git/push", "{\"path\":\"/r\",\"branch\":\"b\",\"set_upstream\":true}", 200, NULL,
		  "git|-c|push.default=current|push|--quiet|--recurse-submodules=no|--set-upstream|--|origin|b" },
		{ "POST", "/git/pull", "{\"path\":\"/r\",\"branch\":\"b\",\"remote\":\"m\"}", 200, NULL, "git|pull|--quiet|--no-edit|--no-recurse-submodules|--|m|b" },
		{ "POST", "/git/remotes", "{\"path\":\"/r\",\"name\":\"o\",\"url\":\"u\",\"overwrite\":true}", 201, "git|remote|set-url|--|o|u", "git|remote|add|--|o|u" },
		{ "POST", "/git/remotes", "{\"path\":\"/r\",\"name\":\"n\",\"url\":\"u\",\"fetch\":true}", 201, "git|remote|add|--|n|u", "git|fetch|--quiet|--|n" },
		{ "POST", "/git/config", "{\"key\":\"k\",\"value\":\"-v\",\"path\":\"\"}", 200, NULL, "git|config|--global|--replace-all|--|k|-v" },
		{ "POST", "/git/config/user", "{\"name\":\"n\",\"email\":\"e\",\"scope\":\"local\",\"path\":\"/r\"}", 200,
		  "git|config|--local|--replace-all|--|user.name|n", "git|config|--local|--replace-all|--|user.email|e" },
		{ "POST", "/git/credentials", "{\"username\":\"u\",\"password\":\"p\"}", 200,
		  "git|config|--global|--replace-all|--|credential.helper|store|^store$", "git|credential-store|store" },
	};
	fake_set_commands(commands, ARRAY_LEN(commands));
	make_box();
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (in_box(cases[i].method, cases[i].path, cases[i].body) != cases[i].status || !streq(line_before(0), cases[i].line) ||
		    (cases[i].before && !streq(line_before(1), cases[i].before)))
			fail_msg("%s %s: %d %s, %s", cases[i].path, cases[i].body, last.status, text("message"), line_before(0));
		const struct run_spec *s = fake_last_run(api);
		bool has_repository = strstr(cases[i].body, "/r") != NULL;
		assert_string_equal(s->cwd ? s->cwd : "(none)", has_repository ? "/r" : "(none)");
		assert_null(s->shell);
		assert_null(s->user);
		assert_string_equal(pairs_get(&s->env, "LC_ALL"), "C");
		assert_string_equal(pairs_get(&s->env, "GIT_TERMINAL_PROMPT"), "0");
	}
	const struct run_spec *s = fake_last_run(api);
	static const char stored[] = "protocol=https\nhost=github.com\nusername=u\npassword=p\n\n";
	assert_int_equal(s->stdin_len, sizeof(stored) - 1);
	assert_memory_equal(s->stdin_bytes, stored, sizeof(stored) - 1);
	assert_int_equal(in_box("POST", "/git/commit", "{\"path\":\"/r\",\"message\":\"-m\",\"author\":\"A\",\"email\":\"a\"}"), 200);
	assert_string_equal(text("hash"), HASH);
	assert_memory_equal(fake_run_before(api, 1)->stdin_bytes, "-m", 2);
	fake_set_commands(NULL, 0);
}

static void test_refused(void **state)
{
	(void)state;
	static const struct {
		const char *method, *path, *body;
	} cases[] = {
		{ "POST", "/git/clone", "{}" },
		{ "POST", "/git/clone", "{\"url\":\"--upload-pack=x\",\"path\":\"p\"}" },
		{ "POST", "/git/clone", "{\"url\":\"u\",\"path\":\"p\",\"branch\":\"-b\"}" },
		{ "POST", "/git/clone", "{\"url\":\"u\",\"path\":\"p\",\"commit_id\":\"-c\"}" },
		{ "POST", "/git/clone", "{\"url\":\"u\",\"path\":\"p\",\"depth\":-1}" },
		{ "POST", "/git/clone", "{\"url\":\"u\",\"path\":\"p\",\"password\":\"a\\nurl=x\"}" },
		{ "POST", "/git/clone", "{\"url\":\"u\",\"path\":\"p\",\"username\":5}" },
		{ "POST", "/git/init", "{\"path\":\"\"}" },
		{ "POST", "/git/init", "{\"path\":\"p\",\"initial_branch\":\"-x\"}" },
		{ "GET", "/git/status", NULL },
		{ "GET", "/git/branches?path=", NULL },
		{ "POST", "/git/branches", "{\"path\":\"/r\",\"name\":\"-D\"}" },
		{ "DELETE", "/git/branches", "{\"path\":\"/r\"}" },
		{ "POST", "/git/checkout", "{\"path\":\"/r\",\"branch\":\"-\"}" },
		{ "POST", "/git/add", "{\"path\":\"/r\",\"files\":[]}" },
		{ "POST", "/git/add", "{\"path\":\"/r\",\"files\":[1]}" },
		{ "POST", "/git/add", "{\"files\":[\"a\"]}" },
		{ "POST", "/git/commit", "{\"path\":\"/r\",\"message\":\"\",\"author\":\"a\",\"email\":\"b\"}" },
		{ "POST", "/git/reset", "{\"path\":\"/r\",\"mode\":\"other\"}" },
		{ "POST", "/git/reset", "{\"path\":\"/r\",\"target\":\"--hard\"}" },
		{ "POST", "/git/reset", "{\"path\":\"/r\",\"mode\":\"hard\",\"files\":[\"a\"]}" },
		{ "POST", "/git/restore", "{\"path\":\"/r\",\"files\":[\"a\"],\"source\":\"-s\"}" },
		{ "POST", "/git/push", "{\"path\":\"/r\",\"remote\":\"--receive-pack=x\"}" },
		{ "POST", "/git/pull", "{\"path\":\"/r\",\"branch\":\"--upload-pack=x\"}" },
		{ "POST", "/git/remotes", "{\"path\":\"/r\",\"name\":\"n\",\"url\":\"-u\"}" },
		{ "POST", "/git/config", "{\"key\":\"k\",\"value\":\"v\",\"scope\":\"other\"}" },
		{ "POST", "/git/config", "{\"key\":\"k\",\"value\":\"v\",\"scope\":\"local\"}" },
		{ "POST", "/git/config", "{\"key\":\"--edit\",\"value\":\"v\"}" },
		{ "GET", "/git/config?scope=global", NULL },
		{ "GET", "/git/config?key=--list", NULL },
		{ "POST", "/git/credentials", "{\"username\":\"u\",\"password\":\"p\",\"host\":\"a\\nb\"}" },
	};
	make_box();
	assert_int_equal(in_box("POST", "/process/execute", "{\"command\":\"mark\"}"), 200);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (in_box(cases[i].method, cases[i].path, cases[i].body) != 400)
			fail_msg("%s %s: %d %s", cases[i].path, cases[i].body, last.status, text("message"));
	assert_string_equal(fake_last_run(api)->shell, "mark"); /* nothing was run */
	assert_int_equal(in_box("POST", "/git/other", "{}"), 404);
}

static void test_secrets(void **state)
{
	(void)state;
	static const struct fake_command commands[] = {
		{ .text = "clone", .out = "", .code = 128,
		  .err = "fatal: Authentication failed for 'https://bob:S3cret@h/x' S3cret\nhint: S3cret\nhint: more\nlast https://h/a@b\n" },
	};
	fake_set_commands(commands, ARRAY_LEN(commands));
	make_box();
	assert_int_equal(in_box("POST", "/git/clone", "{\"url\":\"https://h/x\",\"path\":\"p\",\"username\":\"bob\",\"password\":\"S3cret\"}"), 401);
	assert_string_equal(text("code"), "GIT_AUTH_FAILED");
	assert_string_equal(text("source"), "DAYTONA_DAEMON");
	assert_int_equal(number("statusCode"), 401);
	assert_string_equal(text("message"), "git clone: fatal: Authentication failed for 'https://***@h/x' ***\nlast https://h/a@b");
	const struct run_spec *s = fake_last_run(api);
	assert_string_equal(s->display, "git clone");
	assert_null(strstr(line_before(0), "S3cret"));
	assert_null(strstr(line_before(0), "bob"));
	assert_string_equal(s->argv[2], "credential.helper=");
	assert_int_equal(strncmp(s->argv[4], "credential.helper=!f() {", 24), 0);
	assert_string_equal(pairs_get(&s->env, "CAISSON_GIT_USERNAME"), "bob");
	assert_string_equal(pairs_get(&s->env, "CAISSON_GIT_PASSWORD"), "S3cret");
	assert_string_equal(pairs_get(&s->env, "CAISSON_GIT_ORIGIN"), "https://h");
	fake_set_commands(NULL, 0);
}

static void test_origin(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{ "https://h/x", "https://h" },
		{ "http://u:p@h:8080/a/b.git", "http://h:8080" },
		{ "https://u@x@h", "https://h" },
		{ "https://h?q@evil", "https://h" },
		{ "https://h#@evil", "https://h" },
		{ "https://[::1]:80/x", "https://[::1]:80" },
		{ "/srv/x", NULL }, { "git@h:x", NULL }, { "://h", NULL }, { "https://", NULL }, { "https:///x", NULL }, { "", NULL },
		{ "https://h%2eevil/x", NULL }, { "https://h\\@evil/x", NULL }, { "https://h\n/x", NULL },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_free char *origin = git_origin(str_of(cases[i][0]));
		if (!streq(origin, cases[i][1]))
			fail_msg("%s: %s", cases[i][0], origin ? origin : "(none)");
	}
}

/* Asks the helper of the last command as git does; what it prints goes to `out`. */
static void ask_helper(const char *verb, const char *question, char out[static 256])
{
	const struct run_spec *s = fake_last_run(api);
	const char *helper = NULL;
	int in[2], from[2];
	for (size_t i = 0; s->argv[i]; i++)
		if (strncmp(s->argv[i], "credential.helper=!", 19) == 0)
			helper = s->argv[i] + 19;
	assert_non_null(helper);
	auto_free char *line = xasprintf("%s %s", helper, verb);
	assert_int_equal(pipe(in) + pipe(from), 0);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(in[0], 0);
		dup2(from[1], 1);
		close(in[1]);
		for (size_t i = 0; i < s->env.n; i++)
			setenv(s->env.v[i].key, s->env.v[i].value, 1);
		execl("/bin/sh", "sh", "-c", line, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(from[1]);
	assert_int_equal(write(in[1], question, strlen(question)), strlen(question));
	close(in[1]);
	size_t n = 0;
	for (ssize_t k; n < 255 && (k = read(from[0], out + n, 255 - n)) > 0;)
		n += (size_t)k;
	out[n] = '\0';
	close(from[0]);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_helper(void **state)
{
	(void)state;
	static const char mine[] = "username=bob\npassword=S3=c 'r\"et$x\n";
	char out[256];
	make_box();
	assert_int_equal(in_box("POST", "/git/clone", "{\"url\":\"https://a@h:81/x\",\"path\":\"p\",\"username\":\"bob\",\"password\":\"S3=c 'r\\\"et$x\"}"), 200);
	ask_helper("get", "protocol=https\nhost=h:81\n\n", out);
	assert_string_equal(out, mine);
	ask_helper("get", "capability[]=authtype\nwwwauth[]=Basic realm=\"host=x\"\nhost=h:81\npath=x\nprotocol=https", out);
	assert_string_equal(out, ""); /* no end of the last line: git always has one */
	ask_helper("get", "host=h:81\nwwwauth[]=a=b\nprotocol=https\n", out);
	assert_string_equal(out, mine);
	static const char *const others[] = { "protocol=https\nhost=evil\n\n", "protocol=http\nhost=h:81\n\n", "protocol=https\nhost=h\n\n", "protocol=https\n\n",
		                              "host=h:81\n\n", "", "protocol=https\nhost=h:81\nhost=evil\n\n" };
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		ask_helper("get", others[i], out);
		assert_string_equal(out, "");
	}
	ask_helper("store", "protocol=https\nhost=h:81\n\n", out);
	assert_string_equal(out, "");
	/* An address with no host to speak of: nobody is answered. */
	assert_int_equal(in_box("POST", "/git/clone", "{\"url\":\"/srv/x\",\"path\":\"p\",\"username\":\"bob\",\"password\":\"p\"}"), 200);
	ask_helper("get", "protocol=https\nhost=h\n\n", out);
	assert_string_equal(out, "");
	ask_helper("get", "\n", out);
	assert_string_equal(out, "");
}

/* A push or pull with credentials asks git first whom it will speak to. */
static void test_address(void **state)
{
	(void)state;
	static const struct fake_command commands[] = {
		{ .text = "symbolic-ref", .out = "refs/heads/m\n", .err = "" },
		{ .text = "for-each-ref --format=%(push:remotename) refs/heads/m", .out = "fork\n", .err = "" },
		{ .text = "get-url --push -- fork", .out = "http://fork:1/r\nhttp://second/r\n", .err = "" },
		{ .text = "get-url --push -- http://direct/r", .out = "", .err = "error: No such remote\n", .code = 2 },
		{ .text = "ls-remote --get-url -- m", .out = "https://m/r\n", .err = "" },
		{ .text = "ls-remote --get-url", .out = "/srv/r\n", .err = "" },
	};
	static const struct {
		const char *path, *more, *origin, *line;
	} cases[] = {
		{ "/git/push", "", "http://fork:1", "push|--quiet|--recurse-submodules=no" },
		{ "/git/push", ",\"remote\":\"http://direct/r\"", "http://direct", "push|--quiet|--recurse-submodules=no|--|http://direct/r" },
		{ "/git/pull", ",\"remote\":\"m\",\"branch\":\"b\"", "https://m", "pull|--quiet|--no-edit|--no-recurse-submodules|--|m|b" },
		{ "/git/pull", "", "", "pull|--quiet|--no-edit|--no-recurse-submodules" },
	};
	fake_set_commands(commands, ARRAY_LEN(commands));
	make_box();
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_free char *body = xasprintf("{\"path\":\"/r\",\"username\":\"bob\",\"password\":\"S3cret\"%s}", cases[i].more);
		assert_int_equal(in_box("POST", cases[i].path, body), 200);
		const struct run_spec *s = fake_last_run(api);
		assert_string_equal(pairs_get(&s->env, "CAISSON_GIT_ORIGIN"), cases[i].origin);
		assert_string_equal(pairs_get(&s->env, "CAISSON_GIT_PASSWORD"), "S3cret");
		assert_non_null(strstr(line_before(0), cases[i].line));
		assert_null(pairs_get(&fake_run_before(api, 1)->env, "CAISSON_GIT_PASSWORD")); /* those that ask need it not */
		assert_null(strstr(line_before(1), "credential"));
	}
	fake_set_commands(NULL, 0);
}

static void test_failures(void **state)
{
	(void)state;
	static const struct {
		struct fake_command what;
		int status;
		const char *code, *message;
	} cases[] = {
		{ { .out = "", .err = "fatal: not a git repository (or any of the parent directories): .git\n", .code = 128 }, 404, "GIT_REPO_NOT_FOUND", "not a git" },
		{ { .out = "", .err = "fatal: a branch named 'n' already exists\n", .code = 128 }, 409, "GIT_BRANCH_EXISTS", "already" },
		{ { .out = "", .err = "error: branch 'n' not found.\n", .code = 1 }, 404, "GIT_BRANCH_NOT_FOUND", "'n'" },
		{ { .out = "", .err = " ! [remote rejected] main (hook)\nerror: failed to push some refs\n", .code = 1 }, 422, "GIT_REMOTE_REJECTED", "hook" },
		{ { .out = "", .err = " ! [rejected] main (fetch first)\n", .code = 1 }, 409, "GIT_PUSH_REJECTED", "fetch first" },
		{ { .out = "CONFLICT (content): Merge conflict in f\n", .err = "", .code = 1 }, 409, "GIT_MERGE_CONFLICT", "in f" },
		{ { .out = "", .err = "error: Your local changes would be overwritten by merge\n", .code = 1 }, 409, "GIT_DIRTY_WORKTREE", "local" },
		{ { .out = "", .err = "fatal: unable to access 'https://h/': Could not resolve host: h\n", .code = 128 }, 502, "GIT_TRANSPORT_FAILED", "host: h" },
		{ { .out = "", .err = "git: command not found\n", .code = 127 }, 422, "UNPROCESSABLE_ENTITY", "command not found" },
		{ { .out = "", .err = "", .code = 139 }, 400, "BAD_REQUEST", "git branch ended with 139" },
		{ { .out = "", .err = "\xff\x01 odd\n", .code = 1 }, 400, "BAD_REQUEST", "\xef\xbf\xbd\x01 odd" },
		{ { .out = "", .err = "", .failed = true }, 404, "GIT_REPO_NOT_FOUND", "no such directory" },
		{ { .out = "", .err = "", .oom = true, .code = 137 }, 507, "INSUFFICIENT_STORAGE", "memory" },
		{ { .out = "", .err = "", .lost = true }, 410, "GONE", "sandbox is not running" },
	};
	make_box();
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct fake_command c = cases[i].what;
		c.text = "branch";
		fake_set_commands(&c, 1);
		if (in_box("POST", "/git/branches", "{\"path\":\"/r\",\"name\":\"n\"}") != cases[i].status || !streq(text("code"), cases[i].code) ||
		    !strstr(text("message"), cases[i].message))
			fail_msg("%zu: %d %s %s", i, last.status, text("code"), text("message"));
	}
	fake_set_commands(NULL, 0);
}

/* --- answers --- */

#define BYTES(s) .out = (s), .out_n = sizeof(s) - 1, .err = ""

static void answers(const char *path, const char *want)
{
	assert_int_equal(in_box("GET", path, NULL), 200);
	json_t *o = json_loads(want, 0, NULL);
	assert_non_null(o);
	if (!json_equal(last.json, o))
		fail_msg("%s: %s", path, last.body.data);
	json_decref(o);
}

static void test_answers(void **state)
{
	(void)state;
	static const struct fake_command commands[] = {
		{ .text = "status --porcelain", BYTES("# branch.oid " HASH "\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0# stash 1\0"
		                                     "1 .M N... 100644 100644 100644 " HASH " " HASH " a b\0"
		                                     "2 RM N... 100644 100644 100644 " HASH " " HASH " R100 new\0old name\0"
		                                     "u UU N... 100644 100644 100644 100644 " HASH " " HASH " " HASH " both\0? x\xff\0! ignored\0") },
		{ .text = "symbolic-ref", BYTES("refs/heads/f/x\n") },
		{ .text = "for-each-ref", BYTES("f/x\0\nmain\0\n") },
		{ .text = "config --null", BYTES("remote.o.x.url\nhttps://h/\0remote.o.x.url\nsecond\0remote.b.url\n\0") },
		{ .text = "log -z", BYTES(HASH "\0Ann\0a@b\0002026-01-02T03:04:05+00:00\0first\n\nbody\n\0") },
		{ .text = "--get -- user.name", BYTES("a\nb\0") },
		{ .text = "--get -- none", .out = "", .err = "", .code = 1 },
	};
	fake_set_commands(commands, ARRAY_LEN(commands));
	make_box();
	answers("/git/status?path=/r", "{\"currentBranch\":\"main\",\"detached\":false,\"upstream\":\"origin/main\",\"ahead\":2,\"behind\":1,\"branchPublished\":true,\"fileStatus\":["
	                               "{\"name\":\"a b\",\"staging\":\"Unmodified\",\"worktree\":\"Modified\",\"extra\":\"\"},"
	                               "{\"name\":\"new\",\"staging\":\"Renamed\",\"worktree\":\"Modified\",\"extra\":\"old name\"},"
	                               "{\"name\":\"both\",\"staging\":\"Updated but unmerged\",\"worktree\":\"Updated but unmerged\",\"extra\":\"\"},"
	                               "{\"name\":\"x\\ufffd\",\"staging\":\"Untracked\",\"worktree\":\"Untracked\",\"extra\":\"\"}]}");
	answers("/git/branches?path=/r", "{\"current\":\"f/x\",\"branches\":[\"f/x\",\"main\"]}");
	answers("/git/remotes?path=/r", "{\"remotes\":[{\"name\":\"o.x\",\"url\":\"https://h/\"},{\"name\":\"b\",\"url\":\"\"}]}");
	answers("/git/history?path=/r", "[{\"hash\":\"" HASH "\",\"author\":\"Ann\",\"email\":\"a@b\",\"timestamp\":\"2026-01-02T03:04:05+00:00\",\"message\":\"first\\n\\nbody\"}]");
	answers("/git/config?key=user.name&scope=global", "{\"value\":\"a\\nb\"}");
	answers("/git/config?key=none", "{}");
	static const struct fake_command empty[] = {
		{ .text = "symbolic-ref", .out = "", .err = "", .code = 1 },
		{ .text = "for-each-ref", .out = "", .err = "" },
		{ .text = "config --null", .out = "", .err = "", .code = 1 },
		{ .text = "log -z", .out = "", .err = "fatal: your current branch 'main' does not have any commits yet\n", .code = 128 },
		{ .text = "status", BYTES("# branch.oid " HASH "\0# branch.head (detached)\0") },
	};
	fake_set_commands(empty, ARRAY_LEN(empty));
	answers("/git/branches?path=/r", "{\"branches\":[]}");
	answers("/git/remotes?path=/r", "{\"remotes\":[]}");
	answers("/git/history?path=/r", "[]");
	answers("/git/status?path=/r", "{\"currentBranch\":\"HEAD\",\"detached\":true,\"ahead\":0,\"behind\":0,\"branchPublished\":false,\"fileStatus\":[]}");
	fake_set_commands(NULL, 0);
}

/* What no git prints is an error, whatever it is. */
static void test_nonsense(void **state)
{
	(void)state;
#define HEAD_LINE "# branch.head main\0"
	static const struct {
		const char *path, *command;
		const char *out;
		size_t n;
	} cases[] = {
#define BAD(path, command, s) { path, command, s, sizeof(s) - 1 }
		BAD("/git/status", "status", "\0"),
		BAD("/git/status", "status", "# branch.oid x\0"),
		BAD("/git/status", "status", "# branch.head \0"),
		BAD("/git/status", "status", "# branch.head main"),
		BAD("/git/status", "status", HEAD_LINE "# branch.ab +1\0"),
		BAD("/git/status", "status", HEAD_LINE "# branch.ab +1 -99999999999999999999\0"),
		BAD("/git/status", "status", HEAD_LINE "? \0"),
		BAD("/git/status", "status", HEAD_LINE "1 \0"),
		BAD("/git/status", "status", HEAD_LINE "1 .M N... 1 2 3 4 5\0"),
		BAD("/git/status", "status", HEAD_LINE "1 .M N... 1 2 3 4 5 \0"),
		BAD("/git/status", "status", HEAD_LINE "1 .Z N... 1 2 3 4 5 f\0"),
		BAD("/git/status", "status", HEAD_LINE "2 R. N... 1 2 3 4 5 R1 f\0"),
		BAD("/git/status", "status", HEAD_LINE "2 R. N... 1 2 3 4 5 R1 f\0\0"),
		BAD("/git/status", "status", HEAD_LINE "x y\0"),
		BAD("/git/status", "status", "warning: a wrapper speaks\n" HEAD_LINE),
		BAD("/git/branches", "symbolic-ref", "main\n"),
		BAD("/git/branches", "symbolic-ref", "refs/heads/\n"),
		BAD("/git/branches", "symbolic-ref", "refs/heads/a\nb\n"),
		BAD("/git/branches", "for-each-ref", "main"),
		BAD("/git/branches", "for-each-ref", "main\0\n\0\n"),
		BAD("/git/remotes", "config", "remote.o.url\nx"),
		BAD("/git/remotes", "config", "remote.url\nx\0"),
		BAD("/git/remotes", "config", "other.o.url\nx\0"),
		BAD("/git/remotes", "config", "remote.o.url\0"),
		BAD("/git/history", "log", HASH "\0a\0b\0c\0"),
		BAD("/git/history", "log", "nohash\0a\0b\0c\0d\0"),
		BAD("/git/config", "config", "value"),
		BAD("/git/config", "config", "a\0b\0"),
	};
	make_box();
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct fake_command c[] = { { .text = cases[i].command, .out = cases[i].out, .out_n = cases[i].n, .err = "" },
			                          { .text = "symbolic-ref", .out = "refs/heads/main\n", .err = "" } };
		char path[64];
		snprintf(path, sizeof(path), "%s?path=/r&key=k", cases[i].path);
		fake_set_commands(c, ARRAY_LEN(c));
		if (in_box("GET", path, NULL) != 502 || !streq(text("code"), "BAD_GATEWAY"))
			fail_msg("%zu: %d %s", i, last.status, last.body.data);
	}
	fake_set_commands(NULL, 0);
}

/* Every cut and every changed byte of good output: read or refused, never more (a sanitizer watches). */
static void test_mutations(void **state)
{
	(void)state;
	static const char good[] = "# branch.head m\0# branch.ab +2 -1\0001 .M N... 1 1 1 " HASH " " HASH " a\0002 R. N... 1 1 1 " HASH " " HASH " R9 n\0o\0"
	                           "remote.a.url\nx\0" HASH "\0n\0m\0t\0b\0";
	static int (*const readers[])(struct str, json_t **) = { git_read_status, git_read_branches, git_read_remotes, git_read_history, git_read_hash };
	for (size_t at = 0; at <= sizeof(good) - 1; at++) {
		for (size_t k = 0; k < ARRAY_LEN(readers) * 4; k++) {
			size_t n = sizeof(good) - 1 - (k / ARRAY_LEN(readers) == 0 ? at : 0);
			char *copy = xmemdup(good, n + (n == 0)); /* of its own size, so that reading past it shows */
			if (k / ARRAY_LEN(readers) && at < n)
				copy[at] = "x\0 \n"[k / ARRAY_LEN(readers)];
			json_t *o = NULL;
			int rc = readers[k % ARRAY_LEN(readers)]((struct str){ copy, n }, &o);
			assert_true(rc == 0 ? o != NULL : rc == -EBADMSG && !o);
			json_decref(o);
			free(git_message((struct str){ copy, n }, "a"));
			free(copy);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_commands, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_secrets, setup, teardown),
		cmocka_unit_test(test_origin),
		cmocka_unit_test_setup_teardown(test_helper, setup, teardown),
		cmocka_unit_test_setup_teardown(test_address, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
		cmocka_unit_test_setup_teardown(test_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nonsense, setup, teardown),
		cmocka_unit_test(test_mutations),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	buf_done(&last.head);
	buf_done(&last.body);
	json_decref(last.json);
	return rc;
}
