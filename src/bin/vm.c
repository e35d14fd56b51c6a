#include "bin/vm.h"

#include "base/log.h"
#include "bin/guest_blob.h"
#include "boundary/vm/vm.h"
#include "wire/vmm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Not whether it works: a nested one may make a machine and then not get it anywhere. */
static bool kvm_answers(void)
{
	auto_fd int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	auto_fd int vm = fd >= 0 && ioctl(fd, KVM_GET_API_VERSION, 0) == KVM_API_VERSION ? ioctl(fd, KVM_CREATE_VM, 0) : -EBADF;

	return vm >= 0;
}

static bool taps_answer(void)
{
	auto_fd int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	return fd >= 0;
}

static void share_templates(const char *images, uid_t uid, gid_t gid, struct vm_parts *p)
{
	auto_free char *path = xasprintf("%s/../vm-templates", images);

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return;
	auto_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || fchown(fd, uid, gid) < 0)
		return;
	p->templates = take_ptr(&path);
	p->lock = take_fd(&fd);
}

int vm_parts_find(const struct serve_options *o, uid_t uid, gid_t gid, struct vm_parts *ret, struct err *e)
{
	if (access(VMM_PROGRAM, X_OK) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "the vm boundary needs %s (package qemu-system-x86)", VMM_PROGRAM);
	struct image_store *store = image_store_new(o->images);
	int r = image_vm_kernel_find(store, &ret->kernel, e);
	image_store_free(store);
	if (r < 0) {
		err_prefix(e, "the vm boundary needs a kernel ('caisson image build' prepares it)");
		return r;
	}
	ret->data = xasprintf("%s/vm", o->data);
	ret->lock = -EBADF;
	if (o->ephemeral)
		share_templates(o->images, uid, gid, ret);
	ret->kvm = !streq(o->accelerator, "emulated") && kvm_answers();
	ret->tap = taps_answer();
	if (!ret->tap)
		log_warn("msg=\"there is no /dev/net/tun here (kernel module tun): sandboxes of the vm boundary have no network\"");
	if (streq(o->accelerator, "kvm") && !ret->kvm) {
		vm_parts_done(ret);
		return err_set(e, ERR_UNAVAILABLE, ENODEV, "--accelerator kvm: this host has no /dev/kvm that answers");
	}
	return 0;
}

void vm_parts_done(struct vm_parts *p)
{
	image_vm_kernel_done(&p->kernel);
	if (!p->data)
		return;
	free(take_ptr(&p->data));
	free(take_ptr(&p->templates));
	p->lock = close_fd(p->lock);
}

struct boundary *vm_parts_boundary(uv_loop_t *loop, const struct vm_parts *p, int machines, struct err *e)
{
	const struct vm_options o = { .data = p->data, .templates = p->templates, .kernel = p->kernel.vmlinux, .modules = p->kernel.modules, .guest = guest_blob,
				      .guest_len = guest_blob_len(), .kvm = p->kvm, .tap = p->tap, .launcher = launcher_warden(loop, machines) };
	struct boundary *b = vm_boundary_new(loop, &o, e);

	if (!b)
		o.launcher->free(o.launcher);
	return b;
}
