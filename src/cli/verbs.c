#include "cli/verbs.h"

#include "cli/args.h"

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

void verb_say_stand_in(const struct cli *cli, struct caisson *c, const char *image)
{
	auto_free char *path = image ? xasprintf("/v1/images/%s", image) : NULL, *text = NULL;
	struct caisson_error e;

	if (!image || cli->json || caisson_request(c, "GET", path, NULL, &text, &e) < 0)
		return;
	json_t *found = out_parse(text);
	const char *name = json_string_value(json_array_get(json_object_get(found, "names"), 0));
	if (json_is_true(json_object_get(found, "stand_in")) && name)
		cli_warn("%s is not on the server: %s stands in for it (caisson image map)", image, name);
	json_decref(found);
}

int verb_show(struct cli *cli, json_t *take_items, const struct listing *l)
{
	const json_t *items = json_object_get(take_items, "items");

	if (cli->json)
		return out_json(take_items);
	auto_table struct table t;
	table_init(&t, l->n, l->headings);
	for (size_t i = 0; i < json_array_size(items); i++)
		l->row(&t, json_array_get(items, i));
	table_print(&t);
	json_decref(take_items);
	return 0;
}

int verb_list(struct cli *cli, int argc, char **argv, const struct listing *l)
{
	auto_args struct args a;
	json_t *items = NULL;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 0, 0))
		return a.exit_code;
	int r = verb_ask(cli, "GET", l->path, NULL, &items);
	return r ? r : verb_show(cli, items, l);
}

int verb_each(struct cli *cli, int argc, char **argv, const char *method, const char *path, const char *verb, const char *list)
{
	auto_args struct args a;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	return verb_operands(cli, &a, method, path, verb, list);
}

int verb_operands(struct cli *cli, struct args *a, const char *method, const char *path, const char *verb, const char *list)
{
	int result = 0;

	if (a->leave || !args_count(a, 1, -1))
		return a->exit_code;
	json_t *done = json_array();
	for (int i = 0; i < a->n_operands; i++) {
		auto_free char *id = caisson_escape(a->operands[i]), *one = xasprintf("%s/%s%s", path, id ? id : "", verb);
		json_t *now = NULL;
		int r = verb_ask(cli, method, one, NULL, *verb ? &now : NULL);
		if (r)
			result = r;
		else if (cli->json)
			json_array_append_new(done, now ? json_incref(now) : json_string(a->operands[i]));
		else
			puts(a->operands[i]);
		json_decref(now);
	}
	if (cli->json)
		return out_json(json_pack("{s:o}", list, done)) ? CLI_FAILED : result;
	json_decref(done);
	return result;
}

int verb_remove(struct cli *cli, int argc, char **argv, const char *path, const char *list)
{
	return verb_each(cli, argc, argv, "DELETE", path, "", list);
}

const char *text_of(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}
