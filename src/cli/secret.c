#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "cli/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define VALUE_MAX 16384

enum { OPT_HOST = 1, OPT_HEADER, OPT_QUERY, OPT_BASIC, OPT_METHOD, OPT_PATH, OPT_GIT, OPT_AWS, OPT_DESCRIPTION, OPT_FROM_ENV };

static const struct option_spec add_options[] = {
	{ OPT_HOST, 0, "host", "NAME[:PORT]", "where it may go, such as api.example.org; may be repeated (needed)" },
	{ OPT_HEADER, 0, "header", "NAME", "field of a request in which it may stand (default: Authorization); may be repeated" },
	{ OPT_QUERY, 0, "query", "NAME", "parameter of the query in which it may stand; may be repeated" },
	{ OPT_BASIC, 0, "basic", NULL, "it may be the name or the password of Basic authentication" },
	{ OPT_METHOD, 0, "method", "NAME", "only for this method; may be repeated" },
	{ OPT_PATH, 0, "path", "PREFIX", "only for paths that begin so; may be repeated" },
	{ OPT_GIT, 0, "git", NULL, "a token that git inside gives by itself over HTTPS" },
	{ OPT_AWS, 0, "aws-key-id", "ID", "the secret key of this AWS access key: requests are signed with it" },
	{ OPT_DESCRIPTION, 0, "description", "TEXT", "for people" },
	{ OPT_FROM_ENV, 0, "from-env", "NAME", "take the value from this variable instead of the standard input" },
	{ 0 },
};

static void add_text(json_t *o, const char *list, const char *text)
{
	json_t *v = json_object_get(o, list);

	if (!v) {
		v = json_array();
		json_object_set_new(o, list, v);
	}
	json_array_append_new(v, json_string_nocheck(text));
}

/* Never by an argument: those are for everybody on the machine to see. One line break at the end is not part of it. */
static int read_value(const struct cli *cli, const char *from_env, char ret[static VALUE_MAX + 2])
{
	size_t n = 0;

	if (from_env) {
		const char *v = getenv(from_env);
		if (!v)
			return cli_usage(cli, "--from-env %s: there is no such variable in the environment", from_env);
		if (strlen(v) > VALUE_MAX)
			return cli_fail("the value has more than %d bytes", VALUE_MAX);
		memcpy(ret, v, strlen(v) + 1);
		return 0;
	}
	if (isatty(STDIN_FILENO))
		fprintf(stderr, "value, ended by Ctrl-D: ");
	for (ssize_t got; n <= VALUE_MAX; n += (size_t)got) {
		got = read(STDIN_FILENO, ret + n, VALUE_MAX + 1 - n);
		if (got < 0 && errno == EINTR)
			got = 0;
		else if (got < 0)
			return cli_fail("cannot read the value: %s", strerror(errno));
		else if (got == 0)
			break;
	}
	if (n > VALUE_MAX)
		return cli_fail("the value has more than %d bytes", VALUE_MAX);
	if (n && ret[n - 1] == '\n')
		n--;
	if (memchr(ret, '\0', n))
		return cli_fail("the value holds a NUL");
	ret[n] = '\0';
	return 0;
}

static bool take_option(struct args *a, int option, json_t *o)
{
	switch (option) {
	case OPT_HOST:
		add_text(o, "hosts", a->value);
		return true;
	case OPT_HEADER:
		add_text(o, "headers", a->value);
		return true;
	case OPT_QUERY:
		add_text(o, "query", a->value);
		return true;
	case OPT_METHOD:
		add_text(o, "methods", a->value);
		return true;
	case OPT_PATH:
		add_text(o, "paths", a->value);
		return true;
	case OPT_BASIC:
		json_object_set_new(o, "basic", json_true());
		return true;
	case OPT_GIT:
		json_object_set_new(o, "git", json_true());
		return true;
	case OPT_AWS:
		json_object_set_new(o, "aws_key_id", json_string_nocheck(a->value));
		return true;
	case OPT_DESCRIPTION:
		json_object_set_new(o, "description", json_string_nocheck(a->value));
		return true;
	default:
		return false;
	}
}

static int add(struct cli *cli, const char *name, const char *from_env, json_t *o)
{
	char value[VALUE_MAX + 2];
	json_t *made = NULL;
	int r = read_value(cli, from_env, value);

	if (r)
		return r;
	json_t *text = json_string(value);
	explicit_bzero(value, sizeof value);
	if (!text || json_object_set_new(o, "value", text) < 0)
		return cli_fail("the value is not UTF-8");
	json_object_set_new(o, "name", json_string_nocheck(name));
	char *body = json_dumps(o, JSON_COMPACT);
	if (!body)
		return cli_fail("the name or an option is not UTF-8");
	r = verb_ask(cli, "POST", "/v1/secrets", body, &made);
	free_secret(body);
	if (r)
		return r;
	if (cli->json)
		return out_json(made);
	puts(name);
	json_decref(made);
	return 0;
}

static int run_add(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	const char *from_env = NULL;
	json_t *o = json_object();

	args_init(&a, cli, argc, argv, false);
	for (int option; (option = args_next(&a)) > 0;)
		if (!take_option(&a, option, o) && option == OPT_FROM_ENV)
			from_env = a.value;
	int r = a.leave || !args_count(&a, 1, 1) ? a.exit_code : 0;
	if (!a.leave && !json_object_get(o, "hosts"))
		r = cli_usage(cli, "say with --host where the secret may go");
	else if (!a.leave)
		r = add(cli, a.operands[0], from_env, o);
	json_decref(o);
	return r;
}

static void add_word(struct buf *b, const char *before, const char *word)
{
	(void)buf_addf(b, "%s%s%s", b->len ? " " : "", before, word ? word : "");
}

static void add_words(struct buf *b, const char *before, const json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		add_word(b, before, json_string_value(json_array_get(list, i)));
}

/* Fields by their names, parameters of the query as "?name". */
static void add_places(struct buf *b, const json_t *k)
{
	static const char *const flags[] = { "basic", "git" };

	add_words(b, "", json_object_get(k, "headers"));
	add_words(b, "?", json_object_get(k, "query"));
	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		if (json_is_true(json_object_get(k, flags[i])))
			add_word(b, "", flags[i]);
	if (text_of(k, "aws_key_id"))
		add_word(b, "aws:", text_of(k, "aws_key_id"));
}

static void add_row(struct table *t, const json_t *k)
{
	enum { HOSTS, PLACES, PATHS, METHODS, LISTS };
	struct buf cells[LISTS];

	for (size_t i = 0; i < LISTS; i++)
		buf_init(&cells[i], 1 << 16);
	add_words(&cells[HOSTS], "", json_object_get(k, "hosts"));
	add_places(&cells[PLACES], k);
	add_words(&cells[PATHS], "", json_object_get(k, "paths"));
	add_words(&cells[METHODS], "", json_object_get(k, "methods"));
	for (size_t i = 0; i < LISTS; i++)
		if (!cells[i].len)
			(void)buf_addz(&cells[i], "all");
	table_add(t, (const char *const[]){ text_of(k, "name"), cells[HOSTS].data, cells[PLACES].data, cells[PATHS].data, cells[METHODS].data, text_of(k, "created_at"),
	                                    text_of(k, "updated_at") });
	for (size_t i = 0; i < LISTS; i++)
		buf_done(&cells[i]);
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const headings[] = { "NAME", "HOSTS", "PLACES", "PATHS", "METHODS", "CREATED (UTC)", "CHANGED (UTC)" };

	return verb_list(cli, argc, argv, &(struct listing){ "/v1/secrets", headings, ARRAY_LEN(headings), add_row });
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
	return verb_remove(cli, argc, argv, "/v1/secrets", "deleted");
}

static const struct command secret_add = {
	.name = "secret add",
	.synopsis = "[OPTIONS] --host NAME SECRET",
	.summary = "Keep a value that sandboxes may use and never see; it is read from the standard input",
	.options = add_options,
	.run = run_add,
};
static const struct command secret_ls = { .name = "secret ls", .synopsis = "", .summary = "List secrets (never their values)", .run = run_ls };
static const struct command secret_rm = { .name = "secret rm", .synopsis = "SECRET...", .summary = "Delete secrets, from every sandbox at once", .run = run_rm };

const struct command command_secret = {
	.name = "secret",
	.synopsis = "add|ls|rm ...",
	.summary = "Keep, list and delete secrets",
	.help = "A sandbox gets one by `caisson create --secret VARIABLE=SECRET`: the variable holds a placeholder, which is replaced by the value in\n"
		"requests that go where the secret may go.\n",
	.subcommands = (const struct command *const[]){ &secret_add, &secret_ls, &secret_rm, NULL },
};
