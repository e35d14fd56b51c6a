/* `caisson audit`: the audit log, shown, copied and checked. Checking reads the files themselves and asks no server. */
#include "audit/audit.h"
#include "cli/args.h"
#include "cli/attach.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "cli/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPT_LINES = 1, OPT_FOLLOW, OPT_TYPE, OPT_SANDBOX, OPT_AFTER, OPT_EXPECT };
enum { LINE_MAX = 64 << 10 };

/* --- the server's stream --- */

struct copy {
	bool raw;
	struct buf rest; /* of a line that is not complete yet */
	int error;
};

static bool plain_member(const char *key)
{
	static const char *const told[] = { "seq", "at", "type", "sandbox", "hash" };

	for (size_t i = 0; i < ARRAY_LEN(told); i++)
		if (streq(key, told[i]))
			return false;
	return true;
}

/* at type sandbox key=value ... */
static void print_line(struct copy *c, struct str line)
{
	json_t *o = json_loadb(line.p, line.n, 0, NULL), *v;
	auto_buf struct buf b;
	const char *key;

	buf_init(&b, LINE_MAX * 8);
	const char *sandbox = json_string_value(json_object_get(o, "sandbox")), *at = json_string_value(json_object_get(o, "at"));
	const char *type = json_string_value(json_object_get(o, "type"));
	(void)out_inert(&b, at ? at : "");
	(void)buf_addc(&b, ' ');
	(void)out_inert(&b, type ? type : "");
	if (sandbox) {
		(void)buf_addc(&b, ' ');
		(void)out_inert(&b, sandbox);
	}
	json_object_foreach (o, key, v) {
		auto_free char *text = json_is_string(v) ? xstrdup(json_string_value(v)) : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
		if (!plain_member(key) || !text)
			continue;
		(void)buf_addf(&b, " %s=", key);
		bool quoted = json_is_string(v) && strpbrk(text, " =");
		(void)buf_addz(&b, quoted ? "\"" : "");
		(void)out_inert(&b, text);
		(void)buf_addz(&b, quoted ? "\"" : "");
	}
	(void)buf_addc(&b, '\n');
	json_decref(o);
	c->error = attach_write(STDOUT_FILENO, b.data, b.len);
}

static int on_bytes(void *ctx, const void *bytes, size_t n)
{
	struct copy *c = ctx;
	const char *end;

	if (buf_add(&c->rest, bytes, n) < 0)
		return c->error = -E2BIG;
	while (!c->error && c->rest.len && (end = memchr(c->rest.data, '\n', c->rest.len))) {
		struct str line = { c->rest.data, (size_t)(end - c->rest.data) };
		if (line.n && c->raw)
			c->error = attach_write(STDOUT_FILENO, line.p, line.n + 1);
		else if (line.n) /* an empty one says that the server is alive */
			print_line(c, line);
		buf_consume(&c->rest, line.n + 1);
	}
	return c->error;
}

static char *stream_path(uint64_t after, const char *type, const char *sandbox, bool follow)
{
	auto_free char *t = caisson_escape(type ? type : ""), *s = caisson_escape(sandbox ? sandbox : "");

	return xasprintf("/v1/audit/stream?after=%llu%s%s%s%s%s", (unsigned long long)after, type ? "&type=" : "", type && t ? t : "",
			 sandbox ? "&sandbox=" : "", sandbox && s ? s : "", follow ? "&follow=true" : "");
}

static int show(struct cli *cli, const char *path, bool raw)
{
	auto_caisson struct caisson *server = NULL;
	struct copy c = { .raw = raw };
	struct caisson_error e;
	int r = cli_connect(cli, &server);

	if (r)
		return r;
	buf_init(&c.rest, LINE_MAX * 4);
	int rc = caisson_stream(server, path, on_bytes, &c, &e);
	buf_done(&c.rest);
	if (c.error == -EPIPE)
		return CLI_BROKEN_PIPE;
	if (c.error)
		return cli_fail("writing the lines: %s", strerror(-c.error));
	return rc < 0 ? cli_fail_error(&e) : 0;
}

/* --- tail, export --- */

static const struct option_spec tail_options[] = {
	{ OPT_LINES, 'n', "lines", "N", "begin N lines before the end (default: 20; with --type or --sandbox: of which those are shown)" },
	{ OPT_FOLLOW, 'f', "follow", NULL, "go on with what happens" },
	{ OPT_TYPE, 0, "type", "TYPE", "only these: \"run\", \"network.denied\"" },
	{ OPT_SANDBOX, 0, "sandbox", "SANDBOX", "only of this one, by id (by name while it is there)" },
	{ 0 },
};

static int run_tail(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	const char *type = NULL, *sandbox = NULL;
	uint64_t lines = 20;
	bool follow = false;
	json_t *o = NULL;

	args_init(&a, cli, argc, argv, false);
	for (int id; (id = args_next(&a)) > 0;) {
		if (id == OPT_LINES)
			(void)args_u64(&a, "lines", 0, 1000000, &lines);
		else if (id == OPT_TYPE)
			type = a.value;
		else if (id == OPT_SANDBOX)
			sandbox = a.value;
		follow |= id == OPT_FOLLOW;
	}
	if (a.leave || !args_count(&a, 0, 0))
		return a.exit_code;
	int r = verb_ask(cli, "GET", "/v1/audit?limit=1", NULL, &o);
	if (r)
		return r;
	uint64_t head = (uint64_t)json_integer_value(json_object_get(json_object_get(o, "head"), "seq"));
	json_decref(o);
	auto_free char *path = stream_path(head - MIN(head, lines), type, sandbox, follow);
	return show(cli, path, cli->json);
}

static const struct option_spec export_options[] = {
	{ OPT_AFTER, 0, "after", "SEQ", "only what comes after this line" },
	{ OPT_TYPE, 0, "type", "TYPE", "only these (what is left out cannot be verified)" },
	{ OPT_SANDBOX, 0, "sandbox", "SANDBOX", "only of this one (what is left out cannot be verified)" },
	{ 0 },
};

static int run_export(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	const char *type = NULL, *sandbox = NULL;
	uint64_t after = 0;

	args_init(&a, cli, argc, argv, false);
	for (int id; (id = args_next(&a)) > 0;) {
		if (id == OPT_AFTER)
			(void)args_u64(&a, "after", 0, INT64_MAX, &after);
		else if (id == OPT_TYPE)
			type = a.value;
		else if (id == OPT_SANDBOX)
			sandbox = a.value;
	}
	if (a.leave || !args_count(&a, 0, 0))
		return a.exit_code;
	auto_free char *path = stream_path(after, type, sandbox, false);
	return show(cli, path, true);
}

/* --- verify --- */

static const struct option_spec verify_options[] = {
	{ OPT_EXPECT, 0, "expect", "SEQ:HASH", "a line that is known from elsewhere must be there" },
	{ 0 },
};

struct found {
	bool json;
	json_t *problems;
};

static void on_problem(void *ctx, const char *what)
{
	struct found *f = ctx;

	if (f->json)
		json_array_append_new(f->problems, json_string(what));
	else
		cli_warn("%s", what);
}

static int run_verify(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	const char *expect = NULL;
	struct audit_report r;
	struct err e;

	args_init(&a, cli, argc, argv, false);
	for (int id; (id = args_next(&a)) > 0;)
		if (id == OPT_EXPECT)
			expect = a.value;
	if (a.leave || !args_count(&a, 0, 1))
		return a.exit_code;
	auto_free char *data = cli_data_folder(cli), *standard = xasprintf("%s/state/audit", data);
	struct found f = { .json = cli->json, .problems = json_array() };
	int rc = audit_verify(a.n_operands ? a.operands[0] : standard, expect, on_problem, &f, &r, &e);
	if (rc < 0) {
		json_decref(f.problems);
		return cli_fail_err(&e);
	}
	if (cli->json) {
		rc = out_json(json_pack("{s:b,s:I,s:I,s:I,s:s,s:o}", "ok", r.problems == 0, "first", (json_int_t)r.first, "last", (json_int_t)r.last, "files",
					(json_int_t)r.files, "hash", r.hash, "problems", f.problems));
		return r.problems ? CLI_FAILED : rc;
	}
	json_decref(f.problems);
	if (r.problems)
		return cli_fail("the audit log is not what was written (%zu problems)", r.problems);
	printf("in order: lines %llu to %llu in %zu files\n%llu:%s\n", (unsigned long long)r.first, (unsigned long long)r.last, r.files,
	       (unsigned long long)r.last, r.hash);
	return 0;
}

static const struct command audit_tail = {
	.name = "audit tail", .synopsis = "[OPTIONS]", .summary = "Show the last lines", .options = tail_options, .run = run_tail
};
static const struct command audit_export = {
	.name = "audit export", .synopsis = "[OPTIONS]", .summary = "Print the lines as they are", .options = export_options, .run = run_export
};
static const struct command audit_verify_command = {
	.name = "audit verify",
	.synopsis = "[OPTIONS] [FOLDER|FILE]",
	.summary = "Check that nothing was changed, taken out, moved or cut off",
	.help = "Reads the files of the data folder (--data), or a file that `audit export` has made. Exit code 0: all is in order; the last line printed is\n"
		"the number and hash to keep somewhere else, for --expect.\n",
	.options = verify_options,
	.run = run_verify,
};

const struct command command_audit = {
	.name = "audit",
	.synopsis = "tail|export|verify ...",
	.summary = "Who did what, and what became of it",
	.subcommands = (const struct command *const[]){ &audit_tail, &audit_export, &audit_verify_command, NULL },
};
