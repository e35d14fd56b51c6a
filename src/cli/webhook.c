/* `caisson webhook`: where the audit log's lines are sent on to. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "cli/verbs.h"

#include <stdio.h>

enum { OPT_TYPE = 1 };

static const struct option_spec new_options[] = {
	{ OPT_TYPE, 0, "type", "TYPE", "only lines of this type, such as run or network.denied; may be repeated" },
	{ 0 },
};

static int run_new(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	json_t *types = json_array(), *o = NULL;

	args_init(&a, cli, argc, argv, false);
	for (int id; (id = args_next(&a)) > 0;)
		if (id == OPT_TYPE)
			json_array_append_new(types, json_string(a.value));
	if (a.leave || !args_count(&a, 1, 1)) {
		json_decref(types);
		return a.exit_code;
	}
	json_t *body = json_pack("{s:s,s:o}", "url", a.operands[0], "types", types);
	auto_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	json_decref(body);
	if (!text)
		return cli_fail("the address is not UTF-8");
	int r = verb_ask(cli, "POST", "/v1/webhooks", text, &o);
	if (r)
		return r;
	if (cli->json)
		return out_json(o);
	const char *id = json_string_value(json_object_get(o, "id")), *secret = json_string_value(json_object_get(o, "secret"));
	printf("%s %s\n", id ? id : "", secret ? secret : "");
	json_decref(o);
	return 0;
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const headings[] = { "ID", "URL", "TAKEN UP TO", "FAILURES", "LAST ERROR" };
	auto_args struct args a;
	json_t *o = NULL;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 0, 0))
		return a.exit_code;
	int r = verb_ask(cli, "GET", "/v1/webhooks", NULL, &o);
	if (r)
		return r;
	if (cli->json)
		return out_json(o);
	auto_table struct table t;
	table_init(&t, ARRAY_LEN(headings), headings);
	const json_t *items = json_object_get(o, "items");
	for (size_t i = 0; i < json_array_size(items); i++) {
		const json_t *w = json_array_get(items, i);
		char seq[24], failures[24];
		snprintf(seq, sizeof seq, "%lld", (long long)json_integer_value(json_object_get(w, "seq")));
		snprintf(failures, sizeof failures, "%lld", (long long)json_integer_value(json_object_get(w, "failures")));
		table_add(&t, (const char *const[]){ json_string_value(json_object_get(w, "id")), json_string_value(json_object_get(w, "url")), seq, failures,
						     json_string_value(json_object_get(w, "error")) });
	}
	table_print(&t);
	json_decref(o);
	return 0;
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 1, 1))
		return a.exit_code;
	auto_free char *id = caisson_escape(a.operands[0]), *path = xasprintf("/v1/webhooks/%s", id ? id : "");
	int r = verb_ask(cli, "DELETE", path, NULL, NULL);
	if (r)
		return r;
	if (cli->json)
		return out_json(json_pack("{s:s}", "deleted", a.operands[0]));
	puts(a.operands[0]);
	return 0;
}

static const struct command webhook_new = {
	.name = "webhook new", .synopsis = "[OPTIONS] URL", .summary = "Send lines to URL from now on; prints id and secret, this once", .options = new_options,
	.run = run_new
};
static const struct command webhook_ls = { .name = "webhook ls", .synopsis = "", .summary = "List them, and how they fare", .run = run_ls };
static const struct command webhook_rm = { .name = "webhook rm", .synopsis = "ID", .summary = "Send it nothing more", .run = run_rm };

const struct command command_webhook = {
	.name = "webhook",
	.synopsis = "new|ls|rm ...",
	.summary = "Send the audit log's lines on to another server, signed",
	.help = "Needs an operator's key.\n",
	.subcommands = (const struct command *const[]){ &webhook_new, &webhook_ls, &webhook_rm, NULL },
};
