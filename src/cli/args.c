#include "cli/args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

enum { DURATION_MAX_DAYS = 3472 };
enum { OPT_JSON = 10001, OPT_URL, OPT_DATA, OPT_HELP };

const struct option_spec args_common[] = {
	{ OPT_JSON, 0, "json", NULL, "print JSON: one object, stable names" },
	{ OPT_URL, 0, "url", "URL", "server: http://HOST:PORT or unix:/PATH (else $CAISSON_URL)" },
	{ OPT_DATA, 0, "data", "DIR", "data folder of a server on this machine (else $CAISSON_DATA)" },
	{ OPT_HELP, 'h', "help", NULL, "show this text" },
	{ 0 },
};

void args_json_ahead(int argc, char **argv, bool stop)
{
	for (int i = 1; i < argc && !streq(argv[i], "--") && !(stop && argv[i][0] != '-'); i++)
		if (streq(argv[i], "--json"))
			cli_set_json_errors(true);
}

void args_init(struct args *a, struct cli *cli, int argc, char **argv, bool stop)
{
	args_json_ahead(argc, argv, stop);
	*a = (struct args){ .cli = cli, .argc_ = argc, .argv_ = argv, .at_ = 1, .stop_ = stop };
	a->operands = xcalloc((size_t)argc + 1, sizeof *a->operands);
}

void args_done(struct args *a)
{
	free(a->operands);
	a->operands = NULL;
}

static int leave(struct args *a, int exit_code)
{
	a->leave = true;
	a->exit_code = exit_code;
	return 0;
}

static const struct option_spec *find(const struct args *a, const char *name, size_t n, char letter)
{
	const struct option_spec *const tables[] = { a->cli->command ? a->cli->command->options : NULL, args_common };

	for (size_t t = 0; t < ARRAY_LEN(tables); t++)
		for (const struct option_spec *o = tables[t]; o && o->id; o++)
			if (name ? strlen(o->name) == n && memcmp(o->name, name, n) == 0 : letter && o->letter == letter)
				return o;
	return NULL;
}

static int common(struct args *a, int id)
{
	switch (id) {
	case OPT_JSON:
		a->cli->json = true;
		cli_set_json_errors(true);
		return -1;
	case OPT_URL:
		a->cli->url = a->value;
		return -1;
	case OPT_DATA:
		a->cli->data = a->value;
		return -1;
	case OPT_HELP:
		cli_print_help(a->cli->command);
		return leave(a, 0);
	default:
		return id;
	}
}

static const char *next_word(struct args *a)
{
	return a->at_ < a->argc_ ? a->argv_[a->at_++] : NULL;
}

static int long_option(struct args *a, const char *text)
{
	const char *equals = strchr(text, '=');
	size_t n = equals ? (size_t)(equals - text) : strlen(text);
	const struct option_spec *o = find(a, text, n, 0);

	if (!o)
		return leave(a, cli_usage(a->cli, "there is no option --%.*s", (int)MIN(n, (size_t)100), text));
	if (!o->value && equals)
		return leave(a, cli_usage(a->cli, "--%s takes no value", o->name));
	a->value = !o->value ? NULL : equals ? equals + 1 : next_word(a);
	if (o->value && !a->value)
		return leave(a, cli_usage(a->cli, "--%s needs a value: --%s %s", o->name, o->name, o->value));
	return common(a, o->id);
}

static int short_option(struct args *a)
{
	char letter = *a->cluster_++;
	const struct option_spec *o = find(a, NULL, 0, letter);

	if (!o)
		return leave(a, cli_usage(a->cli, "there is no option -%c", letter));
	a->value = NULL;
	if (o->value) {
		a->value = *a->cluster_ ? a->cluster_ : next_word(a);
		a->cluster_ = NULL;
		if (!a->value)
			return leave(a, cli_usage(a->cli, "-%c needs a value: -%c %s", letter, letter, o->value));
	}
	return common(a, o->id);
}

int args_next(struct args *a)
{
	while (!a->leave) {
		int r;
		if (a->cluster_ && *a->cluster_) {
			r = short_option(a);
		} else {
			char *word = a->at_ < a->argc_ ? a->argv_[a->at_++] : NULL;
			if (!word)
				return 0;
			if (streq(word, "--")) {
				while (a->at_ < a->argc_)
					a->operands[a->n_operands++] = a->argv_[a->at_++];
				return 0;
			}
			if (word[0] != '-' || !word[1]) {
				a->operands[a->n_operands++] = word;
				while (a->stop_ && a->at_ < a->argc_)
					a->operands[a->n_operands++] = a->argv_[a->at_++];
				continue;
			}
			if (word[1] == '-') {
				r = long_option(a, word + 2);
			} else {
				a->cluster_ = word + 1;
				r = short_option(a);
			}
		}
		if (r >= 0)
			return r;
	}
	return 0;
}

/* Each names something, and nothing has an empty name; but what follows the first of a command with words of its own is that one's. */
static bool one_is_empty(struct args *a)
{
	for (int i = 0; i < (a->stop_ ? MIN(a->n_operands, 1) : a->n_operands); i++)
		if (!a->operands[i][0]) {
			leave(a, cli_usage(a->cli, "argument %d is empty; expected: %s", i + 1, a->cli->command ? a->cli->command->synopsis : "a name"));
			return true;
		}
	return false;
}

bool args_count(struct args *a, int min, int max)
{
	if (a->n_operands >= min && (max < 0 || a->n_operands <= max))
		return !one_is_empty(a);
	leave(a, cli_usage(a->cli, a->n_operands < min ? "something is missing" : "unexpected: %s", a->n_operands < min ? "" : a->operands[max]));
	return false;
}

static bool bad_value(struct args *a, const char *option, const char *expected)
{
	leave(a, cli_usage(a->cli, "--%s %s: expected %s", option, a->value, expected));
	return false;
}

bool args_u64(struct args *a, const char *option, uint64_t min, uint64_t max, uint64_t *ret)
{
	char expected[80];
	uint64_t v;

	snprintf(expected, sizeof expected, "a whole number from %llu to %llu", (unsigned long long)min, (unsigned long long)max);
	if (parse_u64(str_of(a->value), max, &v) < 0 || v < min)
		return bad_value(a, option, expected);
	*ret = v;
	return true;
}

/* A decimal number at the start of text; *ret_rest is what follows. Locale-free, no sign, no exponent. */
static bool decimal(const char *text, double *ret, const char **ret_rest)
{
	double v = 0, scale = 1;
	bool any = false;

	for (; *text >= '0' && *text <= '9'; text++, any = true)
		v = v * 10 + (*text - '0');
	if (*text == '.')
		for (text++; *text >= '0' && *text <= '9'; text++, any = true)
			v += (scale /= 10) * (*text - '0');
	*ret = v;
	*ret_rest = text;
	return any && v < 1e15;
}

struct unit {
	const char *name;
	double factor;
};

static bool with_unit(const char *text, const struct unit *units, size_t n, double *ret)
{
	const char *rest;

	if (!decimal(text, ret, &rest))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (str_eq_nocase(str_of(rest), str_of(units[i].name))) {
			*ret *= units[i].factor;
			return true;
		}
	}
	return false;
}

bool args_mib(struct args *a, const char *option, uint64_t min, uint64_t max, uint64_t *ret)
{
	char expected[120];
	static const struct unit units[] = {
		{ "", 1 }, { "m", 1 }, { "mb", 1 }, { "mib", 1 }, { "g", 1024 }, { "gb", 1024 }, { "gib", 1024 },
		{ "t", 1048576 }, { "tb", 1048576 }, { "tib", 1048576 },
	};
	double v;

	snprintf(expected, sizeof expected, "a size such as 512m or 2g (without a unit: MiB), from %llum to %llum", (unsigned long long)min, (unsigned long long)max);
	if (!with_unit(a->value, units, ARRAY_LEN(units), &v) || v <= 0 || v > 1e9)
		return bad_value(a, option, expected);
	*ret = (uint64_t)ceil(v);
	return true;
}

bool args_duration(struct args *a, const char *option, uint64_t *ret_ms)
{
	static const struct unit units[] = {
		{ "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60e3 }, { "min", 60e3 }, { "h", 3600e3 }, { "d", 86400e3 },
	};
	double v;

	if (!with_unit(a->value, units, ARRAY_LEN(units), &v) || v < 1 || v > DURATION_MAX_DAYS * 86400e3)
		return bad_value(a, option, "a time such as 500ms, 30s, 10m or 2h (without a unit: seconds), from 1ms to 3472d");
	*ret_ms = (uint64_t)ceil(v);
	return true;
}

bool args_double(struct args *a, const char *option, double min, double max, double *ret)
{
	char expected[80];
	const char *rest;

	snprintf(expected, sizeof expected, "a number such as 2 or 0.5, from %g to %g", min, max);
	if (!decimal(a->value, ret, &rest) || *rest || *ret <= 0)
		return bad_value(a, option, expected);
	return true;
}

void pair_list_add(struct pair_list *list, const char *key, size_t key_len, const char *value)
{
	list->v = xreallocarray(list->v, list->n + 1, sizeof *list->v);
	list->v[list->n++] = (struct caisson_pair){ .key = xstrndup(key, key_len), .value = xstrdup(value) };
}

bool args_pair(struct args *a, const char *option, bool from_environment, struct pair_list *list)
{
	const char *equals = strchr(a->value, '=');
	const char *value = equals ? equals + 1 : from_environment ? getenv(a->value) : NULL;

	if (equals == a->value || !*a->value || (!equals && !from_environment))
		return bad_value(a, option, "NAME=VALUE");
	if (!value)
		return true;
	pair_list_add(list, a->value, equals ? (size_t)(equals - a->value) : strlen(a->value), value);
	return true;
}

void pair_list_done(struct pair_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free((void *)(uintptr_t)l->v[i].key);
		free((void *)(uintptr_t)l->v[i].value);
	}
	free(l->v);
	*l = (struct pair_list){ 0 };
}

void args_print_options(const struct option_spec *options)
{
	for (const struct option_spec *o = options; o && o->id; o++) {
		char left[64];
		snprintf(left, sizeof left, "%s%.1s%s--%s%s%s", o->letter ? "-" : "", o->letter ? &o->letter : "", o->letter ? ", " : "    ",
		         o->name, o->value ? " " : "", o->value ? o->value : "");
		printf("  %-26s %s\n", left, o->help);
	}
}
