#include "bin/vm.h"

#include "base/log.h"
#include "bin/guest_blob.h"
#include "boundary/vm/vm.h"
#include "sys/kvm.h"
#include "wire/vmm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A KVM that was asked for and does not answer is an error: nobody gets something weaker than that silently. */
static int look_for_kvm(const char *accelerator, struct vm_parts *ret, struct err *e)
{
	ret->kvm_only = streq(accelerator, "kvm");
	ret->kvm = !streq(accelerator, "emulated") && kvm_probe(KVM_DEVICE, e) == 0;
	if (ret->kvm)
		return 0;
	if (ret->kvm_only) {
		err_prefix(e, "--accelerator kvm");
		return -ENODEV;
	}
	ret->no_kvm = xstrdup(accelerator ? "--accelerator emulated" : e->message);
	ret->advice = accelerator ? NULL : kvm_advice(e->errnum);
	return 0;
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

static int find_parts(const struct serve_options *o, uid_t uid, gid_t gid, struct vm_parts *ret, struct err *e)
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
	ret->tap = taps_answer();
	if (!ret->tap)
		log_warn("msg=\"there is no /dev/net/tun here (kernel module tun): sandboxes of the vm boundary have no network\"");
	r = look_for_kvm(o->accelerator, ret, e);
	if (r < 0)
		vm_parts_done(ret);
	return r;
}

static int default_image_ready(const char *images, struct err *e)
{
	struct image_store *store = image_store_new(images);
	int r = image_vm_ready(store, e);

	image_store_free(store);
	if (r < 0)
		err_prefix(e, "the vm boundary needs a file system of the image ('caisson image build' prepares it)");
	return r;
}

int vm_parts_find(const struct serve_options *o, uid_t uid, gid_t gid, struct vm_parts *ret, struct err *e)
{
	if (o->boundary && !streq(o->boundary, "process") && !streq(o->boundary, "vm"))
		return err_set(e, ERR_INVALID, EINVAL, "--boundary %s: process or vm", o->boundary);
	int r = find_parts(o, uid, gid, ret, e);
	if (r < 0 && (streq(o->boundary, "vm") || streq(o->accelerator, "kvm")))
		return r;
	if (r == 0 && !o->boundary)
		r = default_image_ready(o->images, e);
	ret->preferred = r == 0 && !streq(o->boundary, "process");
	if (r < 0 && !o->boundary)
		fprintf(stderr, "caisson: sandboxes get the boundary process, the weaker one: %s\n", e->message);
	else if (r < 0)
		log_info("msg=\"no vm boundary: %s\"", e->message);
	return 0;
}

void vm_parts_done(struct vm_parts *p)
{
	image_vm_kernel_done(&p->kernel);
	if (!p->data)
		return;
	free(take_ptr(&p->data));
	free(take_ptr(&p->templates));
	free(take_ptr(&p->no_kvm));
	p->lock = close_fd(p->lock);
}

/* Once, to whoever starts a server whose sandboxes are machines, and did not ask for it. */
static void say_if_emulated(struct boundary *b, const struct vm_parts *p)
{
	const char *why;

	if (streq(b->ops->accelerator(b, &why), "kvm"))
		return;
	if (p->preferred && (p->advice || !p->no_kvm))
		fprintf(stderr, "caisson: machines are emulated, several times slower than with KVM: %s.%s%s\n", why, p->advice ? " To get it: " : "",
		        p->advice ? p->advice : "");
	else
		log_info("msg=\"machines are emulated: %s\"", why);
}

struct boundary *vm_parts_boundary(uv_loop_t *loop, const struct vm_parts *p, int machines, struct boundary *process, struct err *e)
{
	const struct vm_options o = { .data = p->data, .templates = p->templates, .kernel = p->kernel.vmlinux, .modules = p->kernel.modules, .guest = guest_blob,
				      .guest_len = guest_blob_len(), .kvm = p->kvm, .kvm_only = p->kvm_only, .no_kvm = p->no_kvm, .tap = p->tap, .volumes = process,
				      .launcher = launcher_warden(loop, machines) };
	struct boundary *b = vm_boundary_new(loop, &o, e);

	if (b)
		say_if_emulated(b, p);
	if (!b)
		o.launcher->free(o.launcher);
	return b;
}
