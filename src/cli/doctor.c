#include "warden/doctor.h"

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "image/image.h"

#include <stdio.h>
#include <unistd.h>

/* A line of our own below the boundary's: whether there is an image to start from. */
static void add_image(struct doctor_report *r)
{
	auto_free char *folder = cli_images_folder();
	struct image_store *s = image_store_new(folder);
	struct image i;
	struct err e;

	if (r->n == DOCTOR_LINES_MAX) {
		image_store_free(s);
		return;
	}
	struct doctor_line *l = &r->lines[r->n++];
	*l = (struct doctor_line){ .name = "default image", .ok = image_resolve(s, "default", &i, &e) == 0 };
	if (l->ok) {
		snprintf(l->detail, sizeof l->detail, "%s in %s", i.digest, folder);
		image_done(&i);
	} else {
		snprintf(l->detail, sizeof l->detail, "there is none in %s", folder);
		snprintf(l->advice, sizeof l->advice, "the first `caisson run` makes it, or: caisson image build");
	}
	image_store_free(s);
}

/* Whether the vm boundary could be had; it is not required. */
static void add_machines(struct doctor_report *r)
{
	auto_free char *folder = cli_images_folder(), *kernel = xasprintf("%s/vm/current/vmlinux", folder);
	bool qemu = access("/usr/bin/qemu-system-x86_64", X_OK) == 0;

	if (r->n == DOCTOR_LINES_MAX)
		return;
	struct doctor_line *l = &r->lines[r->n++];
	*l = (struct doctor_line){ .name = "virtual machines", .ok = qemu && access(kernel, R_OK) == 0 };
	snprintf(l->detail, sizeof l->detail, "%s, %s", qemu ? "QEMU" : "no QEMU", access(kernel, R_OK) == 0 ? "kernel prepared" : "no kernel prepared");
	if (!l->ok)
		snprintf(l->advice, sizeof l->advice, "install qemu-system-x86 and erofs-utils, then: caisson image build");
}

static int print_json(const struct doctor_report *r)
{
	json_t *items = json_array();

	for (size_t i = 0; i < r->n; i++) {
		const struct doctor_line *l = &r->lines[i];
		json_array_append_new(items, json_pack("{s:s,s:b,s:b,s:s,s:s}", "name", l->name, "ok", (int)l->ok, "required", (int)l->required,
		                                       "detail", l->detail, "advice", l->advice));
	}
	return out_json(json_pack("{s:{s:b},s:o}", "boundaries", "process", (int)r->process_ok, "items", items));
}

static void print_lines(const struct doctor_report *r)
{
	static const char *const headings[] = { "", "WHAT", "FOUND" };
	auto_table struct table t;

	table_init(&t, ARRAY_LEN(headings), headings);
	for (size_t i = 0; i < r->n; i++) {
		const struct doctor_line *l = &r->lines[i];
		table_add(&t, (const char *const[]){ l->ok ? "ok" : l->required ? "MISSING" : "no", l->name, l->detail });
	}
	table_print(&t);
	for (size_t i = 0, first = 1; i < r->n; i++) {
		if (r->lines[i].ok || !*r->lines[i].advice)
			continue;
		printf("%s  %s: %s\n", first ? "\nWhat to do:\n" : "", r->lines[i].name, r->lines[i].advice);
		first = 0;
	}
	printf("\nThe process boundary %s on this machine.\n", r->process_ok ? "works" : "does not work");
}

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	struct doctor_report r = { 0 };

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 0, 0))
		return a.exit_code;
	if (geteuid() != 0)
		cli_warn("without root most of this can't be tried: run it with sudo");
	auto_free char *images = cli_images_folder();
	doctor_examine(&r, images);
	add_image(&r);
	add_machines(&r);
	if (cli->json) {
		int code = print_json(&r);
		return code ? code : r.process_ok ? 0 : CLI_FAILED;
	}
	print_lines(&r);
	return r.process_ok ? 0 : CLI_FAILED;
}

const struct command command_doctor = {
	.name = "doctor",
	.synopsis = "",
	.summary = "Say what this machine can give, and what to do about the rest",
	.help = "Everything is found out by trying. Exit code 0 when sandboxes of the process boundary work here.\n",
	.run = run,
};
