#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "cli/verbs.h"

enum { OPT_TENANT = 1, OPT_OPERATOR };

static const struct option_spec new_options[] = {
	{ OPT_TENANT, 0, "tenant", "NAME", "whose sandboxes it sees (default: yours)" },
	{ OPT_OPERATOR, 0, "operator", NULL, "it may manage keys and images" },
	{ 0 },
};

static int run_new(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	const char *tenant = NULL;
	bool operator_ = false;
	json_t *made = NULL;

	args_init(&a, cli, argc, argv, false);
	for (int o; (o = args_next(&a)) > 0;) {
		if (o == OPT_TENANT)
			tenant = a.value;
		else if (o == OPT_OPERATOR)
			operator_ = true;
	}
	if (a.leave || !args_count(&a, 1, 1))
		return a.exit_code;
	json_t *o = json_pack("{s:o,s:b}", "name", json_string_nocheck(a.operands[0]), "operator", (int)operator_);
	if (tenant && o)
		json_object_set_new(o, "tenant", json_string_nocheck(tenant));
	auto_free char *body = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (!body)
		return cli_fail("the name is not UTF-8");
	int r = verb_ask(cli, "POST", "/v1/keys", body, &made);
	if (r)
		return r;
	if (cli->json)
		return out_json(made);
	const char *key = text_of(made, "key");
	puts(key ? key : "");
	json_decref(made);
	return 0;
}

static void add_row(struct table *t, const json_t *k)
{
	table_add(t, (const char *const[]){
			     text_of(k, "id"), text_of(k, "name"), text_of(k, "tenant"), json_is_true(json_object_get(k, "operator")) ? "yes" : "no",
			     json_is_true(json_object_get(k, "revoked")) ? "revoked" : "valid", text_of(k, "created_at"), text_of(k, "used_at") });
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const headings[] = { "ID", "NAME", "TENANT", "OPERATOR", "STATE", "CREATED (UTC)", "LAST USED (UTC)" };

	return verb_list(cli, argc, argv, &(struct listing){ "/v1/keys", headings, ARRAY_LEN(headings), add_row });
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
	return verb_remove(cli, argc, argv, "/v1/keys", "revoked");
}

static const struct command key_new = {
	.name = "key new",
	.synopsis = "[OPTIONS] NAME",
	.summary = "Make a key and print it, this once",
	.options = new_options,
	.run = run_new,
};
static const struct command key_ls = { .name = "key ls", .synopsis = "", .summary = "List keys (never the keys themselves)", .run = run_ls };
static const struct command key_rm = { .name = "key rm", .synopsis = "ID...", .summary = "Revoke keys at once", .run = run_rm };

const struct command command_key = {
	.name = "key",
	.synopsis = "new|ls|rm ...",
	.summary = "Make, list and revoke API keys",
	.help = "Needs an operator's key, such as the first one, in api-key of the data folder.\n",
	.subcommands = (const struct command *const[]){ &key_new, &key_ls, &key_rm, NULL },
};
