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
			json_array_append_new(types, json_string_nocheck(a.value));
	if (a.leave || !args_count(&a, 1, 1)) {
		json_decref(types);
		return a.exit_code;
	}
	json_t *body = json_pack("{s:o,s:o}", "url", json_string_nocheck(a.operands[0]), "types", types);
	auto_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	json_decref(body);
	if (!text)
		return cli_fail("the address or a type is not UTF-8");
	int r = verb_ask(cli, "POST", "/v1/webhooks", text, &o);
	if (r)
		return r;
	if (cli->json)
		return out_json(o);
	const char *id = text_of(o, "id"), *secret = text_of(o, "secret");
	printf("%s %s\n", id ? id : "", secret ? secret : "");
	json_decref(o);
	return 0;
}

static void add_row(struct table *t, const json_t *w)
{
	char seq[24], failures[24];

	snprintf(seq, sizeof seq, "%lld", (long long)json_integer_value(json_object_get(w, "seq")));
	snprintf(failures, sizeof failures, "%lld", (long long)json_integer_value(json_object_get(w, "failures")));
	table_add(t, (const char *const[]){ text_of(w, "id"), text_of(w, "url"), seq, failures, text_of(w, "error") });
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const headings[] = { "ID", "URL", "TAKEN UP TO", "FAILURES", "LAST ERROR" };

	return verb_list(cli, argc, argv, &(struct listing){ "/v1/webhooks", headings, ARRAY_LEN(headings), add_row });
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
	return verb_remove(cli, argc, argv, "/v1/webhooks", "deleted");
}

static const struct command webhook_new = {
	.name = "webhook new", .synopsis = "[OPTIONS] URL", .summary = "Send lines to URL from now on; prints id and secret, this once", .options = new_options,
	.run = run_new
};
static const struct command webhook_ls = { .name = "webhook ls", .synopsis = "", .summary = "List them, and how they fare", .run = run_ls };
static const struct command webhook_rm = { .name = "webhook rm", .synopsis = "ID...", .summary = "Send them nothing more", .run = run_rm };

const struct command command_webhook = {
	.name = "webhook",
	.synopsis = "new|ls|rm ...",
	.summary = "Send the audit log's lines on to another server, signed",
	.help = "Needs an operator's key.\n",
	.subcommands = (const struct command *const[]){ &webhook_new, &webhook_ls, &webhook_rm, NULL },
};
