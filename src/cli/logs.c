#include "cli/attach.h"
#include "cli/commands.h"
#include "cli/out.h"

#include <errno.h>
#include <unistd.h>

enum { OPT_FOLLOW = 1, OPT_RUNS };

static const struct option_spec options[] = {
	{ OPT_FOLLOW, 'f', "follow", NULL, "go on until the command ends" },
	{ OPT_RUNS, 0, "runs", NULL, "list the sandbox's runs instead" },
	{ 0 },
};

/* All runs of the sandbox, oldest first; the caller's. NULL after a message. */
static json_t *list_runs(struct caisson *c, const char *sandbox)
{
	auto_free char *name = caisson_escape(sandbox), *path = xasprintf("/v1/sandboxes/%s/runs", name ? name : ""), *text = NULL;
	struct caisson_error e;

	if (caisson_request(c, "GET", path, NULL, &text, &e) < 0) {
		cli_fail_error(&e);
		return NULL;
	}
	return out_parse(text);
}

static const char *how_it_ended(const json_t *r, char *text, size_t n)
{
	const char *signal = json_string_value(json_object_get(r, "signal_name"));
	const json_t *code = json_object_get(r, "exit_code");

	if (json_is_true(json_object_get(r, "timed_out")))
		return "time limit";
	if (signal)
		return signal;
	if (!json_is_integer(code))
		return NULL;
	snprintf(text, n, "%lld", (long long)json_integer_value(code));
	return text;
}

static void print_runs(const json_t *o)
{
	static const char *const headings[] = { "RUN", "STATE", "EXIT", "STDOUT", "STDERR", "COMMAND" };
	const json_t *items = json_object_get(o, "items");
	auto_table struct table t;

	table_init(&t, ARRAY_LEN(headings), headings);
	for (size_t i = 0; i < json_array_size(items); i++) {
		const json_t *r = json_array_get(items, i);
		char code[24], out[32], err[32];
		out_size(out, sizeof out, (uint64_t)json_integer_value(json_object_get(r, "stdout_bytes")));
		out_size(err, sizeof err, (uint64_t)json_integer_value(json_object_get(r, "stderr_bytes")));
		table_add(&t, (const char *const[]){ json_string_value(json_object_get(r, "id")), json_string_value(json_object_get(r, "state")),
		                                     how_it_ended(r, code, sizeof code), out, err,
		                                     json_string_value(json_object_get(r, "command")) });
	}
	table_print(&t);
}

static int runs(struct cli *cli, struct caisson *c, const char *sandbox)
{
	json_t *o = list_runs(c, sandbox);

	if (!o)
		return CLI_FAILED;
	if (cli->json)
		return out_json(o);
	print_runs(o);
	json_decref(o);
	return 0;
}

/* The id of the newest run; NULL after a message. */
static char *newest(struct caisson *c, const char *sandbox)
{
	json_t *o = list_runs(c, sandbox);
	const json_t *items = json_object_get(o, "items");
	size_t n = json_array_size(items);
	char *id = n ? xstrdup(json_string_value(json_object_get(json_array_get(items, n - 1), "id"))) : NULL;

	if (o && !id)
		cli_fail("nothing has been run in %s yet", sandbox);
	json_decref(o);
	return id;
}

struct copy {
	bool json;
	struct buf out, err;
	int error;
};

static int on_output(void *ctx, int stream, const void *bytes, size_t n)
{
	struct copy *l = ctx;

	if (l->json) {
		buf_add(stream == CAISSON_STDERR ? &l->err : &l->out, bytes, n);
		return 0;
	}
	l->error = attach_write(stream == CAISSON_STDERR ? STDERR_FILENO : STDOUT_FILENO, bytes, n);
	return l->error;
}

static int show(struct cli *cli, struct caisson *c, const char *sandbox, const char *run, bool follow)
{
	struct copy l = { .json = cli->json };
	struct caisson_run *r;
	struct caisson_error e;
	int code = 0;

	buf_init(&l.out, (size_t)1 << 30);
	buf_init(&l.err, (size_t)1 << 30);
	if (caisson_run_follow(c, sandbox, run, 0, 0, follow, on_output, &l, &r, &e) == 0) {
		if (cli->json)
			code = attach_print_json(sandbox, r, &l.out, &l.err);
		caisson_run_free(r);
	} else if (l.error == -EPIPE) {
		code = CLI_BROKEN_PIPE;
	} else if (l.error) {
		code = cli_fail("writing the output: %s", strerror(-l.error));
	} else {
		code = cli_fail_error(&e);
	}
	buf_done(&l.out);
	buf_done(&l.err);
	return code;
}

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	auto_caisson struct caisson *c = NULL;
	bool follow = false, list = false;

	args_init(&a, cli, argc, argv, false);
	for (int o; (o = args_next(&a)) > 0;) {
		follow |= o == OPT_FOLLOW;
		list |= o == OPT_RUNS;
	}
	if (a.leave || !args_count(&a, 1, list ? 1 : 2))
		return a.exit_code;
	int r = cli_connect(cli, &c);
	if (r)
		return r;
	if (list)
		return runs(cli, c, a.operands[0]);
	auto_free char *id = a.n_operands == 2 ? xstrdup(a.operands[1]) : newest(c, a.operands[0]);
	return id ? show(cli, c, a.operands[0], id, follow) : CLI_FAILED;
}

const struct command command_logs = {
	.name = "logs",
	.synopsis = "[-f] SANDBOX [RUN] | --runs SANDBOX",
	.summary = "Show the output of a command that was run",
	.help = "Without RUN it is the newest one. What it wrote to stderr comes out on stderr. The exit code is 0 whatever the command's\n"
		"was: --runs shows that.\n",
	.options = options,
	.run = run,
};
