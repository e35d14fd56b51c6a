#include "cli/attach.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "cli/signals.h"

enum { OPT_DETACH = 1 };

static const struct option_spec options[] = {
	RUN_OPTIONS,
	{ OPT_DETACH, 'd', "detach", NULL, "start it, print the run's id, and leave it running" },
	{ 0 },
};

static int detached(const struct cli *cli, struct caisson *c, const char *sandbox, const struct attach_args *t, char **argv)
{
	const struct caisson_run_options o = {
		.argv = (const char *const *)argv, .env = t->env.v, .n_env = t->env.n, .cwd = t->workdir, .user = t->user,
		.timeout_ms = t->timeout_ms, .pty = t->tty, .stdin_open = t->interactive && !t->tty,
	};
	struct caisson_run *r;
	struct caisson_error e;
	int code = 0;

	if (caisson_run_detached(c, sandbox, &o, &r, &e) < 0)
		return cli_fail_error(&e);
	if (cli->json)
		code = attach_print_json(sandbox, r, NULL, NULL);
	else
		puts(r->id);
	caisson_run_free(r);
	return code;
}

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	auto_attach_args struct attach_args t = { 0 };
	auto_caisson struct caisson *c = NULL;
	bool detach = false;

	args_init(&a, cli, argc, argv, true);
	for (int o; (o = args_next(&a)) > 0;) {
		if (o == OPT_DETACH)
			detach = true;
		else
			attach_args_take(&a, o, &t);
	}
	if (a.leave || !args_count(&a, 2, -1))
		return a.exit_code;
	char **command = a.operands + 1;
	if (streq(command[0], "--")) { /* caisson exec SANDBOX -- ls, as some are used to */
		if (!args_count(&a, 3, -1))
			return a.exit_code;
		command++;
	}
	int r = cli_connect(cli, &c);
	if (r)
		return r;
	if (detach)
		return detached(cli, c, a.operands[0], &t, command);
	if (signals_start() < 0)
		return cli_fail("can't wait for signals");
	return attach_run(c, a.operands[0], &t, command, cli->json);
}

const struct command command_exec = {
	.name = "exec",
	.synopsis = "[OPTIONS] SANDBOX COMMAND [ARG...]",
	.summary = "Run a command in a sandbox that is there",
	.help = "Streams, exit code and signals are as with `caisson run`. The command ends when this program goes away, unless it was\n"
		"detached: then `caisson logs SANDBOX RUN` shows its output.\n",
	.options = options,
	.run = run,
};
