/* `caisson permissions`: what waits to be allowed. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/verbs.h"

#include <stdio.h>

static void add_row(struct table *t, const json_t *q)
{
	bool method = json_object_get(q, "method");
	auto_free char *request = xasprintf("%s %s%s", text_of(q, "method"), text_of(q, "host"), text_of(q, "path"));
	const char *what = method ? request : json_object_get(q, "host") ? text_of(q, "host") : text_of(q, "path");

	table_add(t, (const char *const[]){ text_of(q, "id"), text_of(q, "run"), what, text_of(q, "rule"), text_of(q, "denied_at") });
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const headings[] = { "ID", "RUN", "PROGRAM, HOST OR REQUEST", "RULE", "DENIED AT" };
	auto_args struct args a;
	json_t *items = NULL;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 1, 1))
		return a.exit_code;
	auto_free char *box = caisson_escape(a.operands[0]);
	auto_free char *path = xasprintf("/v1/sandboxes/%s/permissions", box ? box : "");
	int r = verb_ask(cli, "GET", path, NULL, &items);
	return r ? r : verb_show(cli, items, &(struct listing){ NULL, headings, ARRAY_LEN(headings), add_row });
}

static int answer(struct cli *cli, int argc, char **argv, const char *body)
{
	auto_args struct args a;
	int r = 0;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 2, 1 + 256))
		return a.exit_code;
	for (int i = 1; i < a.n_operands && r == 0; i++) {
		auto_free char *box = caisson_escape(a.operands[0]), *id = caisson_escape(a.operands[i]);
		auto_free char *path = xasprintf("/v1/sandboxes/%s/permissions/%s", box ? box : "", id ? id : "");
		r = verb_ask(cli, "POST", path, body, NULL);
	}
	return r;
}

static int run_allow(struct cli *cli, int argc, char **argv)
{
	return answer(cli, argc, argv, "{\"verdict\":\"allow\"}");
}

static int run_deny(struct cli *cli, int argc, char **argv)
{
	return answer(cli, argc, argv, "{\"verdict\":\"deny\"}");
}

static int run_set(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 1, 1 + 64))
		return a.exit_code;
	json_t *rules = json_array();
	for (int i = 1; i < a.n_operands; i++)
		json_array_append_new(rules, json_string_nocheck(a.operands[i]));
	json_t *change = json_pack("{s:o}", "permissions", rules);
	auto_free char *body = json_dumps(change, JSON_COMPACT), *box = caisson_escape(a.operands[0]);
	auto_free char *path = xasprintf("/v1/sandboxes/%s", box ? box : "");
	json_decref(change);
	return body ? verb_ask(cli, "PATCH", path, body, NULL) : cli_fail("a rule is not valid UTF-8");
}

static const struct command permissions_ls = { .name = "permissions ls", .synopsis = "SANDBOX", .summary = "List what waits to be allowed", .run = run_ls };
static const struct command permissions_allow = { .name = "permissions allow", .synopsis = "SANDBOX ID...", .summary = "Allow it", .run = run_allow };
static const struct command permissions_set = { .name = "permissions set", .synopsis = "SANDBOX [RULE...]", .summary = "Other rules about hosts and methods", .run = run_set };
static const struct command permissions_deny = { .name = "permissions deny", .synopsis = "SANDBOX ID...", .summary = "Do not", .run = run_deny };

const struct command command_permissions = {
	.name = "permissions",
	.synopsis = "ls|allow|deny|set SANDBOX ...",
	.summary = "Answer for programs, hosts and requests that a sandbox has to ask for",
	.help = "A sandbox has such programs by `caisson create --permit 'ask program:PATH'`, such hosts by 'ask host:NAME', such requests by 'ask method:DELETE NAME'. What nobody answers for is denied after two minutes.\n",
	.subcommands = (const struct command *const[]){ &permissions_ls, &permissions_allow, &permissions_deny, &permissions_set, NULL },
};
