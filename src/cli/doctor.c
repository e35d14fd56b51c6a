#include "warden/doctor.h"

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "image/vm.h"
#include "wire/vmm.h"

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

/* Whether the vm boundary can be had; it is not required. */
static bool add_machines(struct doctor_report *r)
{
	auto_free char *folder = cli_images_folder();
	struct image_store *s = image_store_new(folder);
	struct err e = { 0 };
	bool qemu = access(VMM_PROGRAM, X_OK) == 0, prepared = image_vm_ready(s, &e) == 0;

	image_store_free(s);
	if (r->n == DOCTOR_LINES_MAX)
		return qemu && prepared;
	struct doctor_line *l = &r->lines[r->n++];
	*l = (struct doctor_line){ .name = "virtual machines", .ok = qemu && prepared };
	snprintf(l->detail, sizeof l->detail, "%s, %.120s", qemu ? "QEMU" : "no QEMU", prepared ? "kernel and image prepared" : e.message);
	if (!l->ok)
		snprintf(l->advice, sizeof l->advice, "%scaisson image build", qemu ? "" : "install qemu-system-x86 and erofs-utils, then: ");
	return l->ok;
}

static bool line_ok(const struct doctor_report *r, const char *name)
{
	for (size_t i = 0; i < r->n; i++)
		if (streq(r->lines[i].name, name))
			return r->lines[i].ok;
	return false;
}

/* Which boundary a server would give here to whoever asks for none. */
static const char *default_boundary(const struct doctor_report *r, bool vm)
{
	return !r->process_ok ? NULL : vm ? "vm" : "process";
}

static int print_json(const struct doctor_report *r, bool vm)
{
	const char *kind = default_boundary(r, vm);
	json_t *items = json_array();

	for (size_t i = 0; i < r->n; i++) {
		const struct doctor_line *l = &r->lines[i];
		json_array_append_new(items, json_pack("{s:s,s:b,s:b,s:s,s:s}", "name", l->name, "ok", (int)l->ok, "required", (int)l->required,
		                                       "detail", l->detail, "advice", l->advice));
	}
	return out_json(json_pack("{s:{s:b,s:b},s:s?,s:o}", "boundaries", "process", (int)r->process_ok, "vm", (int)(r->process_ok && vm),
	                          "default_boundary", kind, "items", items));
}

static void print_lines(const struct doctor_report *r, bool vm)
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
	if (!r->process_ok)
		puts("\nNeither boundary works on this machine.");
	else if (vm)
		printf("\nSandboxes get the boundary vm here, %s; the process boundary works, too.\n",
		       line_ok(r, "KVM") ? "with KVM if machines come up with it" : "emulated for want of KVM");
	else
		puts("\nThe process boundary works on this machine. Sandboxes get it, the weaker one, until virtual machines are possible.");
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
	bool vm = add_machines(&r);
	if (cli->json) {
		int code = print_json(&r, vm);
		return code ? code : r.process_ok ? 0 : CLI_FAILED;
	}
	print_lines(&r, vm);
	return r.process_ok ? 0 : CLI_FAILED;
}

const struct command command_doctor = {
	.name = "doctor",
	.synopsis = "",
	.summary = "Say what this machine can give, and what to do about the rest",
	.help = "Everything is found out by trying. Exit code 0 when sandboxes work here.\n",
	.run = run,
};
