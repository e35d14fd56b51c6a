/* `caisson publish`, `caisson unpublish`: ports of a sandbox at ports of this host. */
#include "cli/commands.h"
#include "cli/out.h"
#include "cli/sandbox_args.h"
#include "cli/verbs.h"

#include <stdio.h>

static void add_row(struct table *t, const json_t *p)
{
	char host[16], port[16];

	snprintf(host, sizeof host, "%lld", (long long)json_integer_value(json_object_get(p, "host_port")));
	snprintf(port, sizeof port, "%lld", (long long)json_integer_value(json_object_get(p, "port")));
	table_add(t, (const char *const[]){ text_of(p, "address"), host, port, json_is_true(json_object_get(p, "lost")) ? "taken by another program" : "open" });
}

static const char *const headings[] = { "ADDRESS", "HOST PORT", "PORT", "STATE" };
static const struct listing published = { NULL, headings, ARRAY_LEN(headings), add_row };

static int show(struct cli *cli, const char *path)
{
	json_t *o = NULL;
	int r = verb_ask(cli, "GET", path, NULL, &o);

	if (r)
		return r;
	json_t *items = json_pack("{s:O}", "items", json_object_get(o, "publish"));
	json_decref(o);
	return verb_show(cli, items, &published);
}

static int publish(struct cli *cli, const char *path, const struct publication *p)
{
	json_t *body = json_pack("{s:i,s:s}", "port", p->port, "address", p->address), *o = NULL;

	if (p->host_port)
		json_object_set_new(body, "host_port", json_integer(p->host_port));
	auto_free char *text = json_dumps(body, JSON_COMPACT);
	json_decref(body);
	int r = verb_ask(cli, "POST", path, text, &o);
	if (r)
		return r;
	if (cli->json)
		return out_json(o);
	const char *address = text_of(o, "address");
	bool v6 = address && strchr(address, ':');
	printf("%s%s%s:%lld\n", v6 ? "[" : "", address ? address : "", v6 ? "]" : "", (long long)json_integer_value(json_object_get(o, "host_port")));
	json_decref(o);
	return 0;
}

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	struct publication p = { 0 };

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 1, 2) || (a.n_operands == 2 && !args_publication(&a, a.operands[1], &p)))
		return a.exit_code;
	auto_free char *name = caisson_escape(a.operands[0]);
	auto_free char *path = xasprintf("/v1/sandboxes/%s%s", name ? name : "", a.n_operands == 2 ? "/publish" : "");
	int r = a.n_operands == 2 ? publish(cli, path, &p) : show(cli, path);
	free(p.address);
	return r;
}

static int run_un(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	uint64_t port;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 2, 2))
		return a.exit_code;
	if (parse_u64(str_of(a.operands[1]), 65535, &port) < 0 || port == 0)
		return cli_usage(cli, "HOST_PORT: expected a number from 1 to 65535, not '%s'", a.operands[1]);
	auto_free char *name = caisson_escape(a.operands[0]);
	auto_free char *path = xasprintf("/v1/sandboxes/%s/publish/%u", name ? name : "", (unsigned)port);
	return verb_ask(cli, "DELETE", path, NULL, NULL);
}

const struct command command_publish = {
	.name = "publish",
	.synopsis = "SANDBOX [[[ADDRESS:]HOST_PORT:]PORT]",
	.summary = "Reach a sandbox's port at one of this host; without a port, list those",
	.help = "On 127.0.0.1 unless an address is given, at any free port unless one is. Prints where. It lasts as long as the sandbox.\n",
	.run = run,
};
const struct command command_unpublish = {
	.name = "unpublish",
	.synopsis = "SANDBOX HOST_PORT",
	.summary = "Take that back; connections that are there go on",
	.run = run_un,
};
