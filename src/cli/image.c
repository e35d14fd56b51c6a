#include "image/build.h"

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/default_image.h"
#include "cli/out.h"

#include <unistd.h>

/* Images are made on the server's machine, by root: these commands work on its folder and ask no server. */

enum { OPT_FORCE = 1, OPT_REMOVE, OPT_QUIET };

static const struct option_spec build_options[] = {
	{ OPT_FORCE, 'f', "force", NULL, "build it anew though it is there" },
	{ OPT_QUIET, 'q', "quiet", NULL, "no progress" },
	{ 0 },
};
static const struct option_spec add_options[] = {
	{ OPT_QUIET, 'q', "quiet", NULL, "no progress" },
	{ 0 },
};
static const struct option_spec map_options[] = {
	{ OPT_REMOVE, 'd', "delete", NULL, "take the pattern out" },
	{ 0 },
};

struct images {
	struct args a;
	struct image_store *store;
	bool force, quiet, remove;
};

static void images_done(struct images *i)
{
	image_store_free(i->store);
	args_done(&i->a);
}
#define auto_images __attribute__((cleanup(images_done)))

/* Reads the arguments and opens the store. False: leave with i->a.exit_code. */
static bool begin(struct images *i, struct cli *cli, int argc, char **argv, int min, int max, bool changes)
{
	args_init(&i->a, cli, argc, argv, false);
	for (int o; (o = args_next(&i->a)) > 0;) {
		i->force |= o == OPT_FORCE;
		i->quiet |= o == OPT_QUIET;
		i->remove |= o == OPT_REMOVE;
	}
	if (i->a.leave || !args_count(&i->a, min, max))
		return false;
	if (changes && geteuid() != 0) {
		i->a.exit_code = cli_fail("images are changed by root only: run this with sudo");
		return false;
	}
	auto_free char *folder = cli_images_folder();
	i->store = image_store_new(folder);
	return true;
}

static int print_digest(const struct cli *cli, const char *name, const char *digest)
{
	if (cli->json)
		return out_json(json_pack("{s:s,s:s}", "name", name, "digest", digest));
	puts(digest);
	return 0;
}

static int run_build(struct cli *cli, int argc, char **argv)
{
	auto_images struct images i = { 0 };
	struct err e;
	char digest[72];

	if (!begin(&i, cli, argc, argv, 0, 0, true))
		return i.a.exit_code;
	const struct image_options o = { .progress = i.quiet ? NULL : image_progress, .force = i.force };
	if (image_build_default(i.store, &o, digest, &e) < 0)
		return cli_fail_err(&e);
	image_for_machines(i.store, digest, &o);
	return print_digest(cli, "default", digest);
}

static int run_add(struct cli *cli, int argc, char **argv)
{
	auto_images struct images i = { 0 };
	struct err e;
	char digest[72];

	if (!begin(&i, cli, argc, argv, 2, 2, true))
		return i.a.exit_code;
	const struct image_options o = { .progress = i.quiet ? NULL : image_progress };
	if (image_add(i.store, i.a.operands[0], i.a.operands[1], &o, digest, &e) < 0)
		return cli_fail_err(&e);
	image_for_machines(i.store, digest, &o);
	return print_digest(cli, i.a.operands[0], digest);
}

static int run_tag(struct cli *cli, int argc, char **argv)
{
	auto_images struct images i = { 0 };
	struct err e;

	if (!begin(&i, cli, argc, argv, 2, 2, true))
		return i.a.exit_code;
	if (image_tag(i.store, i.a.operands[0], i.a.operands[1], &e) < 0)
		return cli_fail_err(&e);
	return cli->json ? out_json(json_pack("{s:s}", "name", i.a.operands[1])) : 0;
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
	auto_images struct images i = { 0 };
	struct err e;
	int result = 0;

	if (!begin(&i, cli, argc, argv, 1, -1, true))
		return i.a.exit_code;
	json_t *removed = json_array();
	for (int n = 0; n < i.a.n_operands; n++) {
		if (image_remove(i.store, i.a.operands[n], &e) < 0)
			result = cli_fail_err(&e);
		else if (cli->json)
			json_array_append_new(removed, json_string(i.a.operands[n]));
		else
			puts(i.a.operands[n]);
	}
	if (cli->json)
		return out_json(json_pack("{s:o}", "removed", removed)) ? CLI_FAILED : result;
	json_decref(removed);
	return result;
}

/* --- ls --- */

static void add_json(void *ctx, const struct image *i)
{
	json_t *names = json_array();
	char created[25];

	for (char **n = i->names; n && *n; n++)
		json_array_append_new(names, json_string(*n));
	format_iso8601(i->created_ms, created);
	json_array_append_new(ctx, json_pack("{s:s,s:o,s:I,s:s,s:s?,s:s?}", "digest", i->digest, "names", names, "size_bytes",
	                                     (json_int_t)i->size_bytes, "created_at", created, "user", i->user, "workdir", i->workdir));
}

static void add_row(void *ctx, const struct image *i)
{
	auto_buf struct buf names;
	char size[32], created[25];

	buf_init(&names, 1 << 16);
	buf_add(&names, "", 0);
	for (char **n = i->names; n && *n; n++)
		buf_addf(&names, "%s%s", n == i->names ? "" : ", ", *n);
	out_size(size, sizeof size, i->size_bytes);
	format_iso8601(i->created_ms, created);
	created[10] = ' ';
	created[19] = '\0';
	table_add(ctx, (const char *const[]){ names.len ? names.data : NULL, size, created, i->digest });
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const headings[] = { "NAMES", "SIZE", "CREATED (UTC)", "DIGEST" };
	auto_images struct images i = { 0 };
	auto_table struct table t = { 0 };
	struct err e;

	if (!begin(&i, cli, argc, argv, 0, 0, false))
		return i.a.exit_code;
	if (cli->json) {
		json_t *items = json_array();
		if (image_each(i.store, add_json, items, &e) == 0)
			return out_json(json_pack("{s:o}", "items", items));
		json_decref(items);
		return cli_fail_err(&e);
	}
	table_init(&t, ARRAY_LEN(headings), headings);
	if (image_each(i.store, add_row, &t, &e) < 0)
		return cli_fail_err(&e);
	table_print(&t);
	return 0;
}

/* --- map --- */

static void map_json(void *ctx, const char *pattern, const char *name)
{
	json_object_set_new(ctx, pattern, json_string(name));
}

static void map_row(void *ctx, const char *pattern, const char *name)
{
	table_add(ctx, (const char *const[]){ pattern, name });
}

static int print_map(struct cli *cli, struct image_store *store)
{
	static const char *const headings[] = { "PATTERN", "IMAGE" };
	auto_table struct table t = { 0 };
	struct err e;

	if (cli->json) {
		json_t *map = json_object();
		if (image_map_each(store, map_json, map, &e) == 0)
			return out_json(json_pack("{s:o}", "map", map));
		json_decref(map);
		return cli_fail_err(&e);
	}
	table_init(&t, ARRAY_LEN(headings), headings);
	if (image_map_each(store, map_row, &t, &e) < 0)
		return cli_fail_err(&e);
	table_print(&t);
	return 0;
}

static int run_map(struct cli *cli, int argc, char **argv)
{
	auto_images struct images i = { 0 };
	struct err e;

	if (!begin(&i, cli, argc, argv, 0, 2, false))
		return i.a.exit_code;
	if (i.a.n_operands == 0)
		return print_map(cli, i.store);
	if (i.remove != (i.a.n_operands == 1))
		return cli_usage(cli, i.remove ? "-d takes a pattern only" : "which image does %s stand for?", i.a.operands[0]);
	if (geteuid() != 0)
		return cli_fail("images are changed by root only: run this with sudo");
	if (image_map(i.store, i.a.operands[0], i.remove ? NULL : i.a.operands[1], &e) < 0)
		return cli_fail_err(&e);
	return cli->json ? print_map(cli, i.store) : 0;
}

static const struct command image_ls = { .name = "image ls", .synopsis = "", .summary = "List images", .run = run_ls };
static const struct command image_build = {
	.name = "image build",
	.synopsis = "[-f]",
	.summary = "Build the default image from this machine's package sources",
	.help = "Debian stable (or what this machine's sources give) with python3, nodejs, git, curl and more. Needs mmdebstrap.\n",
	.options = build_options,
	.run = run_build,
};
static const struct command image_add_ = {
	.name = "image add",
	.synopsis = "NAME SOURCE",
	.summary = "Add an image: a root file system (tar), an OCI layout, or a docker archive",
	.help = "SOURCE is FILE.tar[.gz|.xz|.zst|.bz2], oci:DIR[:TAG] or docker-archive:FILE[:REF].\n",
	.options = add_options,
	.run = run_add,
};
static const struct command image_tag_ = { .name = "image tag", .synopsis = "IMAGE NAME", .summary = "Give an image another name", .run = run_tag };
static const struct command image_rm = {
	.name = "image rm",
	.synopsis = "IMAGE...",
	.summary = "Remove a name, and the image with its last one",
	.help = "A digest removes the image with all its names. An image that a sandbox uses is kept, with a message.\n",
	.run = run_rm,
};
static const struct command image_map_ = {
	.name = "image map",
	.synopsis = "[PATTERN NAME | -d PATTERN]",
	.summary = "Show or change which names stand for which image",
	.help = "A PATTERN is a name, or its beginning and a star: after `caisson image map 'python:*' default` a sandbox of\n"
		"python:3.12 gets the default image.\n",
	.options = map_options,
	.run = run_map,
};

const struct command command_image = {
	.name = "image",
	.synopsis = "ls|build|add|tag|rm|map ...",
	.summary = "Make, list, map and remove images on this machine",
	.help = "They are in $CAISSON_IMAGES, else /var/lib/caisson/images, whatever --data says; root changes them.\n",
	.subcommands = (const struct command *const[]){ &image_ls, &image_build, &image_add_, &image_tag_, &image_rm, &image_map_, NULL },
};
