#include "cli/commands.h"
#include "cli/out.h"
#include "cli/sandbox_args.h"
#include "cli/verbs.h"

enum { OPT_ENV = 1, OPT_USER, OPT_WORKDIR, OPT_IDLE, OPT_MAX, OPT_EPHEMERAL, OPT_FROM };

static const struct option_spec options[] = {
	SANDBOX_OPTIONS,
	{ OPT_ENV, 'e', "env", "NAME[=VALUE]", "environment of every run; without a value: this one's" },
	{ OPT_USER, 'u', "user", "USER", "default user of runs (default: the image's)" },
	{ OPT_WORKDIR, 'w', "workdir", "DIR", "default directory of runs" },
	{ OPT_IDLE, 0, "idle", "TIME", "stop it after so long without use (default: never)" },
	{ OPT_MAX, 0, "max-lifetime", "TIME", "delete it so long after now (default: never)" },
	{ OPT_FROM, 0, "from-snapshot", "SNAPSHOT", "begin as this snapshot (its name or id); image, boundary and disk are then its" },
	{ OPT_EPHEMERAL, 0, "ephemeral", NULL, "stopping it deletes it" },
	{ 0 },
};

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	auto_sandbox_args struct sandbox_args s = { 0 };
	auto_pair_list struct pair_list env = { 0 };
	uint64_t ms = 0;

	args_init(&a, cli, argc, argv, false);
	for (int o; (o = args_next(&a)) > 0;) {
		if (sandbox_args_take(&a, o, &s))
			continue;
		switch (o) {
		case OPT_ENV:
			args_pair(&a, "env", true, &env);
			break;
		case OPT_USER:
			s.o.user = a.value;
			break;
		case OPT_WORKDIR:
			s.o.workdir = a.value;
			break;
		case OPT_IDLE:
			if (args_duration(&a, "idle", &ms))
				s.o.idle_s = (ms + 999) / 1000;
			break;
		case OPT_MAX:
			if (args_duration(&a, "max-lifetime", &ms))
				s.o.max_s = (ms + 999) / 1000;
			break;
		case OPT_FROM:
			s.o.from_snapshot = a.value;
			break;
		case OPT_EPHEMERAL:
			s.o.ephemeral = true;
			break;
		default:
			break;
		}
	}
	if (a.leave || !args_count(&a, 0, 0))
		return a.exit_code;
	sandbox_args_finish(&s);
	s.o.env = env.v;
	s.o.n_env = env.n;

	auto_caisson struct caisson *c = NULL;
	struct caisson_sandbox *made;
	struct caisson_error e;
	int r = cli_connect(cli, &c);
	if (r)
		return r;
	if (caisson_create(c, &s.o, &made, &e) < 0)
		return cli_fail_error(&e);
	verb_say_stand_in(cli, c, s.o.image);
	if (cli->json)
		r = out_json(out_parse(made->json));
	else
		puts(made->id);
	caisson_sandbox_free(made);
	return r;
}

const struct command command_create = {
	.name = "create",
	.synopsis = "[OPTIONS]",
	.summary = "Create a sandbox and print its id",
	.help = "It runs until it is stopped or deleted. `caisson exec`, `cp`, `logs`, `stop`, `rm` take its id or its name.\n",
	.options = options,
	.run = run,
};
