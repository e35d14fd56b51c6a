#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"

enum { OPT_FORCE = 1 };

static const struct option_spec options[] = {
	{ OPT_FORCE, 'f', "force", NULL, "also when it runs; one that does not exist is no error" },
	{ 0 },
};

/* Deleting is meant to succeed always at the API; a person may have mistyped, or have forgotten that something runs. */
static int delete_one(struct caisson *c, const char *name, bool force)
{
	struct caisson_error e;

	if (!force) {
		struct caisson_sandbox *s;
		if (caisson_get(c, name, &s, &e) < 0)
			return cli_fail_error(&e);
		bool live = streq(s->state, "running") || streq(s->state, "paused") || streq(s->state, "starting") || streq(s->state, "suspending") ||
			    streq(s->state, "suspended") || streq(s->state, "resuming");
		auto_free char *id = take_ptr(&s->id);
		caisson_sandbox_free(s);
		if (live)
			return cli_fail("%s is not stopped: stop it first, or use rm -f", name);
		return caisson_delete(c, id, &e) < 0 ? cli_fail_error(&e) : 0;
	}
	return caisson_delete(c, name, &e) < 0 ? cli_fail_error(&e) : 0;
}

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	auto_caisson struct caisson *c = NULL;
	bool force = false;
	int result = 0;

	args_init(&a, cli, argc, argv, false);
	for (int o; (o = args_next(&a)) > 0;)
		force |= o == OPT_FORCE;
	if (a.leave || !args_count(&a, force ? 0 : 1, -1)) /* rm -f $(caisson ls -q), also when there is none */
		return a.exit_code;
	int r = cli_connect(cli, &c);
	if (r)
		return r;
	json_t *deleted = json_array();
	for (int i = 0; i < a.n_operands; i++) {
		r = delete_one(c, a.operands[i], force);
		if (r)
			result = r;
		else if (cli->json)
			json_array_append_new(deleted, json_string(a.operands[i]));
		else
			puts(a.operands[i]);
	}
	if (!cli->json) {
		json_decref(deleted);
		return result;
	}
	r = out_json(json_pack("{s:o}", "deleted", deleted));
	return result ? result : r;
}

const struct command command_rm = {
	.name = "rm",
	.synopsis = "[-f] SANDBOX...",
	.summary = "Delete sandboxes with everything in them",
	.options = options,
	.run = run,
};
