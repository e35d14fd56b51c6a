#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"

static void line(const char *name, const char *value)
{
	auto_buf struct buf b;

	buf_init(&b, 1 << 16);
	buf_add(&b, "", 0);
	out_inert(&b, value ? value : "-");
	printf("%-20s %s\n", name, b.data);
}

static void print_info(const json_t *o, const char *url)
{
	const json_t *d = json_object_get(o, "defaults"), *kinds = json_object_get(o, "boundaries");
	auto_buf struct buf names;
	char text[128], memory[32], disk[32];

	buf_init(&names, 4096);
	buf_add(&names, "", 0);
	for (size_t i = 0; i < json_array_size(kinds); i++)
		buf_addf(&names, "%s%s", i ? ", " : "", json_string_value(json_array_get(kinds, i)));
	line("server", url);
	line("version", json_string_value(json_object_get(o, "version")));
	line("boundaries", names.data);
	if (json_is_string(json_object_get(o, "accelerator"))) {
		const char *reason = json_string_value(json_object_get(o, "accelerator_reason"));
		bool kvm = streq(json_string_value(json_object_get(o, "accelerator")), "kvm");
		auto_free char *how = xasprintf("%s%s%s%s", kvm ? "with KVM" : "emulated, several times slower", reason ? ": " : "", reason ? reason : "",
		                                kvm ? "" : " (how to get KVM: caisson doctor)");
		line("machines run", how);
	}
	const char *first = json_string_value(json_object_get(o, "default_boundary"));
	auto_free char *kind = xasprintf("%s%s", first ? first : "-", streq(first, "process") ? ", weaker than vm" : "");
	line("default boundary", kind);
	snprintf(text, sizeof text, "%lld, %lld running", (long long)json_integer_value(json_object_get(o, "sandboxes")),
	         (long long)json_integer_value(json_object_get(o, "running")));
	line("sandboxes", text);
	out_size(memory, sizeof memory, (uint64_t)json_integer_value(json_object_get(d, "memory_mib")) << 20);
	out_size(disk, sizeof disk, (uint64_t)json_integer_value(json_object_get(d, "disk_mib")) << 20);
	snprintf(text, sizeof text, "%g cpus, %s memory, %s disk, %lld pids", json_number_value(json_object_get(d, "cpus")), memory, disk,
	         (long long)json_integer_value(json_object_get(d, "pids")));
	line("default limits", text);
}

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	auto_caisson struct caisson *c = NULL;
	auto_free char *text = NULL;
	struct caisson_error e;

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 0, 0))
		return a.exit_code;
	int r = cli_connect(cli, &c);
	if (r)
		return r;
	if (caisson_request(c, "GET", "/v1/info", NULL, &text, &e) < 0)
		return cli_fail_error(&e);
	json_t *o = out_parse(text);
	if (cli->json) {
		json_object_set_new(o, "url", json_string(caisson_url(c)));
		return out_json(o);
	}
	print_info(o, caisson_url(c));
	json_decref(o);
	return 0;
}

const struct command command_info = {
	.name = "info",
	.synopsis = "",
	.summary = "Say what the server is and can do",
	.help = "What this host could give, also without a server: `caisson doctor`.\n",
	.run = run,
};
