#include "cli/attach.h"
#include "cli/commands.h"
#include "cli/default_image.h"
#include "cli/embed.h"
#include "cli/sandbox_args.h"
#include "cli/signals.h"
#include "cli/verbs.h"

#include <stdio.h>
#include <unistd.h>

enum { OPT_KEEP = 1, IDLE_SECONDS = 300 };

static const struct option_spec options[] = {
	SANDBOX_OPTIONS,
	RUN_OPTIONS,
	{ OPT_KEEP, 0, "keep", NULL, "do not delete the sandbox at the end" },
	{ 0 },
};

struct plan { /* the arguments, read */
	struct sandbox_args sandbox;
	struct attach_args attach;
	bool keep;
};

static int in_sandbox(const struct cli *cli, struct caisson *c, struct plan *p, char **argv)
{
	struct caisson_sandbox *made;
	struct caisson_error e;

	sandbox_args_finish(&p->sandbox);
	if (!p->keep) {
		/* Should this program die before it deletes: the command ends with it, and then the sandbox is idle. */
		p->sandbox.o.ephemeral = true;
		p->sandbox.o.idle_s = IDLE_SECONDS;
	}
	if (signals_start() < 0)
		return cli_fail("can't wait for signals");
	if (caisson_create(c, &p->sandbox.o, &made, &e) < 0)
		return cli_fail_error(&e);
	verb_say_stand_in(cli, c, p->sandbox.o.image);
	int code = attach_run(c, made->id, &p->attach, argv, cli->json);
	if (p->keep)
		cli_warn("kept the sandbox: caisson exec %s ..., caisson rm -f %s", made->name, made->name);
	else if (caisson_delete(c, made->id, &e) < 0 && e.kind != CAISSON_ERR_NOT_FOUND)
		cli_warn("the sandbox %s was not deleted: %s", made->id, e.message);
	caisson_sandbox_free(made);
	return code;
}

static int without_server(const struct cli *cli, struct plan *p, char **argv)
{
	struct embedded server;
	struct caisson *c;
	struct caisson_error e;

	if (geteuid() != 0) {
		auto_free char *socket = cli_socket_path(cli);
		return cli_fail("no server runs here (unix:%s), and to make a sandbox without one takes root: run `sudo caisson run ...`, or start "
		                "`sudo caisson serve` and set CAISSON_URL and CAISSON_API_KEY",
		                socket);
	}
	if (p->keep)
		return cli_usage(cli, "--keep needs a server that stays: start one with `caisson serve`");
	int r = default_image_ensure(p->sandbox.o.image);
	if (r)
		return r;
	r = embed_start(p->sandbox.o.boundary, &server);
	if (r)
		return r;
	const struct caisson_connect_options o = { .url = server.url, .key = server.key };
	if (caisson_connect(&o, &c, &e) < 0) {
		r = cli_fail_error(&e);
	} else {
		r = in_sandbox(cli, c, p, argv);
		caisson_close(c);
	}
	embed_stop(&server);
	return r;
}

static bool names_a_server(const struct cli *cli)
{
	const char *url = getenv("CAISSON_URL");

	return cli->url || (!cli->data && url && *url);
}

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	struct plan p = { 0 };
	struct caisson *c;
	struct caisson_error e;
	int r;

	args_init(&a, cli, argc, argv, true);
	for (int o; (o = args_next(&a)) > 0;) {
		if (o == OPT_KEEP)
			p.keep = true;
		else if (!sandbox_args_take(&a, o, &p.sandbox))
			attach_args_take(&a, o, &p.attach);
	}
	const struct caisson_connect_options where = { .url = cli->url, .data = cli->data };
	if (a.leave || !args_count(&a, 1, -1)) {
		r = a.exit_code;
	} else if (caisson_connect(&where, &c, &e) == 0) {
		r = in_sandbox(cli, c, &p, a.operands);
		caisson_close(c);
	} else if (e.kind == CAISSON_ERR_CONNECT && !names_a_server(cli)) {
		r = without_server(cli, &p, a.operands);
	} else {
		r = cli_fail_error(&e);
	}
	sandbox_args_done(&p.sandbox);
	attach_args_done(&p.attach);
	return r;
}

const struct command command_run = {
	.name = "run",
	.synopsis = "[OPTIONS] [--] COMMAND [ARG...]",
	.summary = "Run a command in a fresh sandbox, and delete it",
	.help = "stdout, stderr and the exit code are the command's (128 + N when signal N ended it; 124: the time limit; 125: caisson\n"
		"itself failed). Its stdin is this one's when that is a pipe or a file, or with -i or -t; otherwise it is at its end\n"
		"at once. SIGINT, SIGTERM, SIGQUIT and SIGHUP go to the command; the third SIGINT kills it.\n"
		"Without a server one is run for as long as this takes; that needs root.\n"
		"  caisson run -- python3 -c 'print(6*7)'\n"
		"  caisson run -m 512m --timeout 10s -- sh -c 'make test' < input\n"
		"  caisson run -t bash\n",
	.options = options,
	.run = run,
};
