#include "cli/default_image.h"

#include "image/vm.h"
#include "wire/vmm.h"

#include <unistd.h>

void image_progress(void *ctx, const char *line)
{
	(void)ctx;
	cli_warn("%s", line);
}

void image_for_machines(struct image_store *s, const char *digest, const struct image_options *o)
{
	const struct image_options own = { .progress = o->progress };
	struct image_vm_kernel kernel = { 0 };
	auto_free char *root = NULL;
	struct err e;

	if (access(VMM_PROGRAM, X_OK) < 0)
		cli_warn("the image is not prepared for virtual machines: there is no QEMU here (package qemu-system-x86)");
	else if (image_vm_kernel_make(s, &own, &kernel, &e) < 0 || image_vm_root(s, digest, &own, &root, &e) < 0)
		cli_warn("the image could not be prepared for virtual machines: %s", e.message);
	image_vm_kernel_done(&kernel);
}

int default_image_ensure(const char *image)
{
	const struct image_options o = { .progress = image_progress };
	struct image there;
	struct err e;
	char digest[72];

	if (image && !streq(image, "default"))
		return 0;
	auto_free char *folder = cli_images_folder();
	struct image_store *s = image_store_new(folder);
	int r = image_resolve(s, "default", &there, &e);
	if (r == 0) {
		image_done(&there);
	} else if (e.kind == ERR_NOT_FOUND) {
		cli_warn("building the default image: once, a few minutes");
		r = image_build_default(s, &o, digest, &e);
		if (r == 0)
			image_for_machines(s, digest, &o);
	}
	image_store_free(s);
	return r < 0 ? cli_fail_err(&e) : 0;
}
