#include "vm_host.h"

#include "image/image.h"
#include "image/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct parts {
	struct image_store *store;
	struct image_vm_kernel kernel;
	struct image image;
	void *guest;
};

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

int vm_host_init(struct vm_host *h)
{
	const char *folder = getenv("CAISSON_IMAGES"), *kvm = getenv("CAISSON_TEST_KVM"); /* else emulated, which every machine can */
	struct parts *p = xcalloc(1, sizeof *p);
	struct err e;

	*h = (struct vm_host){ .data = "/tmp/caisson-vm-XXXXXX", .images = folder ? folder : "/var/lib/caisson/images", .private = p };
	p->store = image_store_new(h->images);
	if (geteuid() != 0 || image_resolve(p->store, "default", &p->image, &e) < 0) {
		fprintf(stderr, "skipped: needs root and the default image\n");
		return 77;
	}
	auto_free char *root = NULL;
	if (image_vm_kernel_make(p->store, NULL, &p->kernel, &e) < 0 || image_vm_root(p->store, p->image.digest, NULL, &root, &e) < 0) {
		fprintf(stderr, "skipped: %s\n", e.message);
		return 77;
	}
	if (!mkdtemp(h->data))
		abort();
	h->digest = xstrdup(p->image.digest);
	h->options = (struct vm_options){ .data = h->data, .kernel = p->kernel.vmlinux, .modules = p->kernel.modules, .kvm = kvm && *kvm };
	p->guest = read_guest(&h->options.guest_len);
	h->options.guest = p->guest;
	return 0;
}

struct boundary *vm_host_open(struct vm_host *h, uv_loop_t *loop, struct err *e)
{
	struct vm_options o = h->options;

	o.launcher = launcher_direct(h->images, NULL, VM_HOST_UID, VM_HOST_UID, e);
	struct boundary *b = o.launcher ? vm_boundary_new(loop, &o, e) : NULL;
	if (!b && o.launcher)
		o.launcher->free(o.launcher);
	return b;
}

bool vm_host_done(struct vm_host *h)
{
	struct parts *p = h->private;

	vm_data_clean(h->data);
	bool clean = rmdir(h->data) == 0;
	if (!clean)
		fprintf(stderr, "something is left in %s\n", h->data);
	free(p->guest);
	free(h->digest);
	image_vm_kernel_done(&p->kernel);
	image_done(&p->image);
	image_store_free(p->store);
	free(p);
	return clean;
}
