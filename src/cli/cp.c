#include "cli/args.h"
#include "cli/commands.h"
#include "cli/copy.h"
#include "cli/out.h"

enum { OPT_RECURSIVE = 1 };

static const struct option_spec options[] = {
	{ OPT_RECURSIVE, 'r', "recursive", NULL, "accepted; directories are copied with all that is in them anyway" },
	{ 0 },
};

/* "SANDBOX:PATH" -> the parts; false: a local path ("./a:b" and "/a:b" are). */
static bool split(const char *text, char **ret_sandbox, const char **ret_path)
{
	size_t n = strcspn(text, ":/");

	if (text[n] != ':' || n == 0 || text[0] == '.')
		return false;
	*ret_sandbox = xstrndup(text, n);
	*ret_path = text[n + 1] ? text + n + 1 : ".";
	return true;
}

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	auto_caisson struct caisson *c = NULL;
	auto_free char *from_sandbox = NULL, *to_sandbox = NULL;
	const char *from, *to;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 2, 2))
		return a.exit_code;
	from = a.operands[0];
	to = a.operands[1];
	bool out = split(from, &from_sandbox, &from), in = split(to, &to_sandbox, &to);
	if (out == in)
		return cli_usage(cli, out ? "both sides are in a sandbox: copy to this machine in between"
		                          : "one side is to be SANDBOX:PATH (a local name with a colon: ./NAME)");
	if (!*from || !*to)
		return cli_usage(cli, "an empty path");
	int r = cli_connect(cli, &c);
	if (r)
		return r;
	struct copy copy = { .c = c, .sandbox = out ? from_sandbox : to_sandbox };
	r = out ? copy_out(&copy, from, to) : copy_in(&copy, from, to);
	if (r == 0 && cli->json && !streq(to, "-"))
		return out_json(json_pack("{s:I,s:I,s:I}", "files", (json_int_t)copy.files, "bytes", (json_int_t)copy.bytes, "skipped",
		                          (json_int_t)copy.skipped));
	return r;
}

const struct command command_cp = {
	.name = "cp",
	.synopsis = "SANDBOX:PATH LOCAL | LOCAL SANDBOX:PATH",
	.summary = "Copy files and directories in and out",
	.help = "As cp -r: into DEST when that is a directory, else as DEST; FOLDER/. means what is in it; - is stdin or stdout.\n"
		"What comes out of a sandbox can't be written outside DEST, whatever its names and links are; links that would\n"
		"lead out of the copied folder are left out, with a message. Owners and times are not kept.\n"
		"  caisson cp ./project box:/root/\n"
		"  caisson cp box:/root/out.png .\n"
		"  caisson cp box:/etc/os-release -\n",
	.options = options,
	.run = run,
};
