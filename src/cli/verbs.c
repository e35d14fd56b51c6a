#include "cli/verbs.h"

#include "cli/args.h"
#include "cli/out.h"

int verb_run(struct cli *cli, int argc, char **argv, sandbox_verb verb)
{
	auto_args struct args a;
	auto_caisson struct caisson *c = NULL;
	int result = 0;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 1, -1))
		return a.exit_code;
	int r = cli_connect(cli, &c);
	if (r)
		return r;
	json_t *items = json_array();
	for (int i = 0; i < a.n_operands; i++) {
		struct caisson_sandbox *s;
		struct caisson_error e;
		if (verb(c, a.operands[i], &s, &e) < 0) {
			result = cli_fail_error(&e);
			continue;
		}
		if (cli->json)
			json_array_append_new(items, out_parse(s->json));
		else
			puts(a.operands[i]);
		caisson_sandbox_free(s);
	}
	if (!cli->json) {
		json_decref(items);
		return result;
	}
	r = out_json(json_pack("{s:o}", "items", items));
	return result ? result : r;
}

int verb_ask(struct cli *cli, const char *method, const char *path, const char *body, json_t **ret)
{
	auto_caisson struct caisson *c = NULL;
	auto_free char *text = NULL;
	struct caisson_error e;
	int r = cli_connect(cli, &c);

	if (r)
		return r;
	if (caisson_request(c, method, path, body, &text, &e) < 0)
		return cli_fail_error(&e);
	if (ret)
		*ret = out_parse(text);
	return 0;
}
