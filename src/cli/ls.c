#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"

enum { OPT_LABEL = 1, OPT_QUIET };

static const struct option_spec options[] = {
	{ OPT_LABEL, 'l', "label", "K=V", "only those with this label; may be repeated, all must match" },
	{ OPT_QUIET, 'q', "quiet", NULL, "print ids only" },
	{ 0 },
};

static void add_row(struct table *t, const struct caisson_sandbox *s)
{
	auto_buf struct buf labels;
	char cpus[32], memory[32], created[20];

	buf_init(&labels, 1 << 17);
	buf_add(&labels, "", 0);
	for (size_t i = 0; i < s->n_labels; i++)
		buf_addf(&labels, "%s%s=%s", i ? "," : "", s->labels[i].key, s->labels[i].value);
	snprintf(cpus, sizeof cpus, "%g", s->cpus);
	out_size(memory, sizeof memory, s->memory_mib << 20);
	snprintf(created, sizeof created, "%.19s", s->created_at ? s->created_at : "-");
	if (strlen(created) > 10)
		created[10] = ' ';
	table_add(t, (const char *const[]){ s->id, streq(s->name, s->id) ? NULL : s->name, s->state, s->boundary, s->image, cpus, memory, created,
	                                    labels.data });
}

/* All pages: `each` gets every sandbox. */
static int every(struct caisson *c, const struct pair_list *labels, void (*each)(void *ctx, const struct caisson_sandbox *s), void *ctx)
{
	auto_free char *cursor = NULL;

	do {
		struct caisson_sandbox_list *page;
		struct caisson_error e;
		if (caisson_list(c, labels->v, labels->n, cursor, 1000, &page, &e) < 0)
			return cli_fail_error(&e);
		for (size_t i = 0; i < page->n; i++)
			each(ctx, page->items[i]);
		free(cursor);
		cursor = take_ptr(&page->next);
		caisson_sandbox_list_free(page);
	} while (cursor);
	return 0;
}

static void each_json(void *ctx, const struct caisson_sandbox *s)
{
	json_array_append_new(ctx, out_parse(s->json));
}

static void each_id(void *ctx, const struct caisson_sandbox *s)
{
	(void)ctx;
	puts(s->id);
}

static void each_row(void *ctx, const struct caisson_sandbox *s)
{
	add_row(ctx, s);
}

static int print(struct cli *cli, struct caisson *c, const struct pair_list *labels, bool quiet)
{
	static const char *const headings[] = { "ID", "NAME", "STATE", "BOUNDARY", "IMAGE", "CPUS", "MEMORY", "CREATED (UTC)", "LABELS" };
	int r;

	if (cli->json) {
		json_t *items = json_array();
		r = every(c, labels, each_json, items);
		if (r == 0)
			return out_json(json_pack("{s:o}", "items", items));
		json_decref(items);
		return r;
	}
	if (quiet)
		return every(c, labels, each_id, NULL);
	auto_table struct table t;
	table_init(&t, ARRAY_LEN(headings), headings);
	r = every(c, labels, each_row, &t);
	if (r == 0)
		table_print(&t);
	return r;
}

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	auto_pair_list struct pair_list labels = { 0 };
	bool quiet = false;

	args_init(&a, cli, argc, argv, false);
	for (int o; (o = args_next(&a)) > 0;) {
		if (o == OPT_LABEL)
			args_pair(&a, "label", false, &labels);
		else if (o == OPT_QUIET)
			quiet = true;
	}
	if (a.leave || !args_count(&a, 0, 0))
		return a.exit_code;
	auto_caisson struct caisson *c = NULL;
	int r = cli_connect(cli, &c);
	return r ? r : print(cli, c, &labels, quiet);
}

const struct command command_ls = {
	.name = "ls",
	.synopsis = "[OPTIONS]",
	.summary = "List sandboxes, also stopped ones",
	.options = options,
	.run = run,
};
