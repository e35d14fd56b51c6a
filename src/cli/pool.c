/* `caisson pool`: how many sandboxes of a kind the server keeps ready. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "cli/verbs.h"
#include "model/sandbox.h"

#include <stdio.h>

enum { OPT_IMAGE = 1, OPT_BOUNDARY, OPT_CPUS, OPT_MEMORY, OPT_DISK, OPT_PIDS, OPT_USER, OPT_WORKDIR, OPT_NETWORK, OPT_EPHEMERAL, OPT_NO_SUDO };

static const struct option_spec set_options[] = {
	{ OPT_IMAGE, 0, "image", "REF", "image to start from (default: default)" },
	{ OPT_BOUNDARY, 0, "boundary", "KIND", "vm or process (default: the server's)" },
	{ OPT_CPUS, 0, "cpus", "N", "cores, such as 2 or 0.5" },
	{ OPT_MEMORY, 'm', "memory", "SIZE", "memory limit, such as 512m or 2g" },
	{ OPT_DISK, 0, "disk", "SIZE", "disk limit, such as 10g" },
	{ OPT_PIDS, 0, "pids", "N", "limit of processes and threads" },
	{ OPT_USER, 'u', "user", "NAME", "default user of commands" },
	{ OPT_WORKDIR, 'w', "workdir", "DIR", "default folder of commands" },
	{ OPT_NETWORK, 0, "network", "MODE", "none or public: whether they have a network (default: the server's)" },
	{ OPT_EPHEMERAL, 0, "ephemeral", NULL, "disks that need not outlive a stop" },
	{ OPT_NO_SUDO, 0, "no-sudo", NULL, "their user may not become root inside" },
	{ 0 },
};

static void add_row(struct table *t, const json_t *p)
{
	const json_t *r = json_object_get(p, "resources");
	const char *digest = text_of(p, "image_digest");
	const char *error = text_of(p, "error");
	char image[SPEC_IMAGE_MAX + 1], size[24], ready[24], cpus[24], memory[24];

	snprintf(image, sizeof image, "%.*s", digest && strncmp(digest, "sha256:", 7) == 0 ? 19 : (int)sizeof image - 1, digest ? digest : "");
	snprintf(size, sizeof size, "%lld", (long long)json_integer_value(json_object_get(p, "size")));
	snprintf(ready, sizeof ready, "%lld", (long long)json_integer_value(json_object_get(p, "ready")));
	snprintf(cpus, sizeof cpus, "%g", json_number_value(json_object_get(r, "cpus")));
	snprintf(memory, sizeof memory, "%lldm", (long long)json_integer_value(json_object_get(r, "memory_mib")));
	table_add(t, (const char *const[]){ image, text_of(p, "boundary"), cpus, memory,
	                                    json_is_true(json_object_get(p, "ephemeral")) ? "yes" : "no",
	                                    text_of(p, "user"), json_is_true(json_object_get(p, "network")) ? "yes" : "no",
	                                    size, ready,
	                                    error ? error : json_integer_value(json_object_get(p, "standing")) ? "set" : "asked for lately" });
}

static const char *const headings[] = { "IMAGE", "BOUNDARY", "CPUS", "MEMORY", "EPHEMERAL", "USER", "NETWORK", "SIZE", "READY", "WHY" };
static const struct listing pools = { "/v1/pools", headings, ARRAY_LEN(headings), add_row };

static int run_ls(struct cli *cli, int argc, char **argv)
{
	return verb_list(cli, argc, argv, &pools);
}

/* False: not one of these. */
static bool take_resource(struct args *a, int id, json_t *resources)
{
	static const struct { int id; const char *option, *field; uint64_t min, max; } sizes[] = {
		{ OPT_MEMORY, "memory", "memory_mib", RESOURCES_MEMORY_MIB_MIN, RESOURCES_MEMORY_MIB_MAX },
		{ OPT_DISK, "disk", "disk_mib", RESOURCES_DISK_MIB_MIN, RESOURCES_DISK_MIB_MAX },
	};
	uint64_t n;
	double cpus;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		if (id == sizes[i].id) {
			if (args_mib(a, sizes[i].option, sizes[i].min, sizes[i].max, &n))
				json_object_set_new(resources, sizes[i].field, json_integer((json_int_t)n));
			return true;
		}
	}
	if (id == OPT_PIDS && args_u64(a, "pids", RESOURCES_PIDS_MIN, RESOURCES_PIDS_MAX, &n))
		json_object_set_new(resources, "pids", json_integer((json_int_t)n));
	else if (id == OPT_CPUS && args_double(a, "cpus", RESOURCES_CPUS_MIN, RESOURCES_CPUS_MAX, &cpus))
		json_object_set_new(resources, "cpus", json_real(cpus));
	return id == OPT_PIDS || id == OPT_CPUS;
}

static void take_text(struct args *a, int id, json_t *body)
{
	static const char *const fields[] = { [OPT_IMAGE] = "image", [OPT_BOUNDARY] = "boundary", [OPT_USER] = "user", [OPT_WORKDIR] = "workdir" };

	if (id == OPT_NETWORK)
		json_object_set_new(body, "network", json_pack("{s:o}", "mode", json_string_nocheck(a->value)));
	else if (id == OPT_EPHEMERAL)
		json_object_set_new(body, "ephemeral", json_true());
	else if (id == OPT_NO_SUDO)
		json_object_set_new(body, "sudo", json_false());
	else if ((size_t)id < ARRAY_LEN(fields) && fields[id])
		json_object_set_new(body, fields[id], json_string_nocheck(a->value));
}

static int run_set(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	json_t *body = json_object(), *resources = json_object(), *o = NULL;
	uint64_t n;

	json_object_set_new(body, "resources", resources);
	args_init(&a, cli, argc, argv, false);
	for (int id; (id = args_next(&a)) > 0;) {
		if (!take_resource(&a, id, resources))
			take_text(&a, id, body);
	}
	if (a.leave || !args_count(&a, 1, 1)) {
		json_decref(body);
		return a.exit_code;
	}
	if (parse_u64(str_of(a.operands[0]), POOL_SIZE_MAX, &n) < 0) {
		json_decref(body);
		return cli_usage(cli, "SIZE: expected a number from 0 to %d, not '%s'", POOL_SIZE_MAX, a.operands[0]);
	}
	json_object_set_new(body, "size", json_integer((json_int_t)n));
	auto_free char *text = json_dumps(body, JSON_COMPACT);
	json_decref(body);
	if (!text)
		return cli_fail("the options are not UTF-8");
	int r = verb_ask(cli, "PUT", "/v1/pools", text, &o);
	return r ? r : verb_show(cli, o, &pools);
}

static const struct command pool_set = {
	.name = "pool set",
	.synopsis = "[OPTIONS] SIZE",
	.summary = "Keep SIZE sandboxes of a kind ready from now on (0: no longer)",
	.options = set_options,
	.run = run_set,
};
static const struct command pool_ls = { .name = "pool ls", .synopsis = "", .summary = "List what is kept ready", .run = run_ls };

const struct command command_pool = {
	.name = "pool",
	.synopsis = "ls|set ...",
	.summary = "Sandboxes that are ready before anybody asks",
	.help = "A create of the same kind, without a name or host name of its own, takes a ready one at once.\n",
	.subcommands = (const struct command *const[]){ &pool_ls, &pool_set, NULL },
};
