#include "cli/default_image.h"

#include "image/build.h"

static void progress(void *ctx, const char *line)
{
	(void)ctx;
	cli_warn("%s", line);
}

int default_image_ensure(const char *image)
{
	const struct image_options o = { .progress = progress };
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
	}
	image_store_free(s);
	return r < 0 ? cli_fail_err(&e) : 0;
}
