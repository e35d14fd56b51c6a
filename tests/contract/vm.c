#include "contract.h"

#include "boundary/vm/vm.h"
#include "image/image.h"
#include "image/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* An unprivileged user for QEMU that no system has. */
enum { VMM_UID = 0x3ffff000 };

static char dir[] = "/tmp/caisson-contract-XXXXXX";
static bool made;
static struct vm_options options;

static const char *images(void)
{
	const char *folder = getenv("CAISSON_IMAGES");
	return folder ? folder : "/var/lib/caisson/images";
}

static void *read_guest(size_t *ret_n)
{
	struct stat st;
	auto_fd int fd = open(GUEST_PATH, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		abort();
	void *p = xmalloc((size_t)st.st_size);
	ssize_t n = read(fd, p, (size_t)st.st_size);
	*ret_n = n < 0 ? 0 : (size_t)n;
	return p;
}

static struct boundary *open_vm(uv_loop_t *loop, const char **skip)
{
	static struct err e;

	if (!made && !mkdtemp(dir))
		abort();
	made = true;
	options.data = dir;
	options.launcher = launcher_direct(images(), NULL, VMM_UID, VMM_UID, &e);
	struct boundary *b = options.launcher ? vm_boundary_new(loop, &options, &e) : NULL;
	if (!b) {
		if (options.launcher)
			options.launcher->free(options.launcher);
		*skip = e.message;
	}
	return b;
}

static void close_vm(struct boundary *b)
{
	b->ops->free(b);
}

static void done(void)
{
	if (rmdir(dir) < 0) {
		fprintf(stderr, "something is left in %s\n", dir);
		exit(1);
	}
}

int main(void)
{
	struct image_store *store = image_store_new(images());
	struct image_vm_kernel kernel;
	const char *kvm = getenv("CAISSON_TEST_KVM"); /* else emulated, which every machine can */
	struct image image;
	char *root;
	struct err e;

	if (geteuid() != 0 || image_resolve(store, "default", &image, &e) < 0) {
		fprintf(stderr, "skipped: needs root and the default image\n");
		return 77;
	}
	if (image_vm_kernel_make(store, NULL, &kernel, &e) < 0 || image_vm_root(store, image.digest, NULL, &root, &e) < 0) {
		fprintf(stderr, "skipped: %s\n", e.message);
		return 77;
	}
	options = (struct vm_options){ .kernel = kernel.vmlinux, .modules = kernel.modules, .kvm = kvm && *kvm };
	void *guest = read_guest(&options.guest_len);
	options.guest = guest;
	int rc = contract_run(&(struct contract_kind){ .name = "vm", .open = open_vm, .close = close_vm, .done = done, .image_digest = image.digest,
						       .exact_trees = true });
	free(guest);
	free(root);
	image_vm_kernel_done(&kernel);
	image_done(&image);
	image_store_free(store);
	return rc;
}
