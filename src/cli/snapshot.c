#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "cli/verbs.h"

#include <stdio.h>

enum { OPT_NAME = 1, OPT_MEMORY, OPT_COUNT, OPT_DISK };

/* Asks; on success *ret (may be NULL) is the parsed answer, the caller's. */
static int ask(struct cli *cli, const char *method, const char *path, json_t *take_body, json_t **ret)
{
	auto_free char *body = take_body ? json_dumps(take_body, JSON_COMPACT) : NULL;

	json_decref(take_body);
	return verb_ask(cli, method, path, body, ret);
}

/* --- snapshot create --- */

static const struct option_spec create_options[] = {
	{ OPT_NAME, 'n', "name", "NAME", "what it is called (default: its id)" },
	{ OPT_MEMORY, 0, "memory", NULL, "also what is running, where the boundary can" },
	{ 0 },
};

static int run_create(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	const char *name = NULL;
	bool memory = false;
	json_t *made = NULL;

	args_init(&a, cli, argc, argv, false);
	for (int o; (o = args_next(&a)) > 0;) {
		if (o == OPT_NAME)
			name = a.value;
		else if (o == OPT_MEMORY)
			memory = true;
	}
	if (a.leave || !args_count(&a, 1, 1))
		return a.exit_code;
	json_t *body = json_pack("{s:s}", "sandbox", a.operands[0]);
	if (body && name && json_object_set_new(body, "name", json_string_nocheck(name)) < 0) {
		json_decref(body);
		body = NULL;
	}
	if (!body)
		return cli_fail("the name is not UTF-8");
	if (memory)
		json_object_set_new(body, "memory", json_true());
	int r = ask(cli, "POST", "/v1/snapshots", body, &made);
	if (r)
		return r;
	if (cli->json)
		return out_json(made);
	const char *id = text_of(made, "id");
	puts(id ? id : "");
	json_decref(made);
	return 0;
}

/* --- snapshot ls, rm --- */

static void add_row(struct table *t, const json_t *k)
{
	char size[32];

	out_size(size, sizeof size, (uint64_t)json_integer_value(json_object_get(k, "bytes")));
	table_add(t, (const char *const[]){ text_of(k, "id"), text_of(k, "name"), text_of(k, "state"), text_of(k, "sandbox"), text_of(k, "image"), size,
					    text_of(k, "created_at") });
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const headings[] = { "ID", "NAME", "STATE", "SANDBOX", "IMAGE", "SIZE", "CREATED (UTC)" };

	return verb_list(cli, argc, argv, &(struct listing){ "/v1/snapshots", headings, ARRAY_LEN(headings), add_row });
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
	return verb_remove(cli, argc, argv, "/v1/snapshots", "removed");
}

static const struct command snapshot_create = {
	.name = "snapshot create",
	.synopsis = "[OPTIONS] SANDBOX",
	.summary = "Keep the state of a sandbox and print the snapshot's id",
	.help = "The sandbox may be running, paused or stopped; it is held still for a moment and goes on as it was.\n",
	.options = create_options,
	.run = run_create,
};
static const struct command snapshot_ls = { .name = "snapshot ls", .synopsis = "", .summary = "List snapshots", .run = run_ls };
static const struct command snapshot_rm = {
	.name = "snapshot rm",
	.synopsis = "SNAPSHOT...",
	.summary = "Delete snapshots",
	.help = "The sandboxes that were made from one are not touched.\n",
	.run = run_rm,
};

const struct command command_snapshot = {
	.name = "snapshot",
	.synopsis = "create|ls|rm ...",
	.summary = "Keep, list and delete states of sandboxes",
	.help = "`caisson create --from-snapshot SNAPSHOT` makes a sandbox that begins as one; `caisson fork` does both at once.\n",
	.subcommands = (const struct command *const[]){ &snapshot_create, &snapshot_ls, &snapshot_rm, NULL },
};

/* --- fork --- */

static const struct option_spec fork_options[] = {
	{ OPT_COUNT, 'n', "count", "N", "how many children (default: 1; at most 100)" },
	{ OPT_NAME, 0, "name", "NAME", "of a single child (default: its id)" },
	{ 0 },
};

static int run_fork(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	const char *name = NULL;
	uint64_t count = 1;
	json_t *made = NULL;

	args_init(&a, cli, argc, argv, false);
	for (int o; (o = args_next(&a)) > 0;) {
		if (o == OPT_NAME)
			name = a.value;
		else if (o == OPT_COUNT)
			args_u64(&a, "count", 1, 100, &count);
	}
	if (a.leave || !args_count(&a, 1, 1))
		return a.exit_code;
	json_t *body = json_pack("{s:I}", "count", (json_int_t)count);
	if (name && json_object_set_new(body, "name", json_string_nocheck(name)) < 0) {
		json_decref(body);
		return cli_fail("the name is not UTF-8");
	}
	auto_free char *id = caisson_escape(a.operands[0]), *path = xasprintf("/v1/sandboxes/%s/fork", id ? id : "");
	int r = ask(cli, "POST", path, body, &made);
	if (r)
		return r;
	if (cli->json)
		return out_json(made);
	const json_t *items = json_object_get(made, "items");
	for (size_t i = 0; i < json_array_size(items); i++) {
		const char *child = text_of(json_array_get(items, i), "id");
		puts(child ? child : "");
	}
	json_decref(made);
	return 0;
}

const struct command command_fork = {
	.name = "fork",
	.synopsis = "[OPTIONS] SANDBOX",
	.summary = "Make children of a sandbox that begin with its files",
	.help = "All of them are made, or none. The parent goes on. What was running in it runs in the children only where the\n"
		"boundary can keep memory (`caisson info` says so).\n",
	.options = fork_options,
	.run = run_fork,
};

/* --- pause, resume --- */

static const struct option_spec pause_options[] = {
	{ OPT_DISK, 0, "disk", NULL, "on the disk, where the boundary can" },
	{ 0 },
};

static int run_pause(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	bool disk = false;

	args_init(&a, cli, argc, argv, false);
	for (int o; (o = args_next(&a)) > 0;)
		disk |= o == OPT_DISK;
	return verb_operands(cli, &a, "POST", "/v1/sandboxes", disk ? "/suspend" : "/pause", "items");
}

static int run_resume(struct cli *cli, int argc, char **argv)
{
	return verb_each(cli, argc, argv, "POST", "/v1/sandboxes", "/resume", "items");
}

const struct command command_pause = {
	.name = "pause",
	.synopsis = "[--disk] SANDBOX...",
	.summary = "Hold everything in a sandbox still",
	.help = "Its memory stays as it is; it uses no processor until `caisson resume`. With --disk it uses no memory either, and outlives\n"
		"the server; connections to and from it break.\n",
	.options = pause_options,
	.run = run_pause,
};
const struct command command_resume = { .name = "resume", .synopsis = "SANDBOX...", .summary = "Let a paused sandbox go on", .run = run_resume };
