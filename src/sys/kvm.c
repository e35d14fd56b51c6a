#include "sys/kvm.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <unistd.h>

int kvm_open(const char *path, struct err *e)
{
	auto_fd int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return err_set(e, ERR_UNAVAILABLE, ENOENT, "there is no %s", path);
	if (fd < 0 && (errno == ENODEV || errno == ENXIO))
		return err_set(e, ERR_UNAVAILABLE, ENODEV, "%s has no kernel module behind it", path);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "%s", path);
	int version = ioctl(fd, KVM_GET_API_VERSION, 0);
	if (version < 0)
		return err_set(e, ERR_UNAVAILABLE, ENOTTY, "%s is not KVM's device", path);
	if (version != KVM_API_VERSION)
		return err_set(e, ERR_UNAVAILABLE, EPROTO, "%s speaks version %d of KVM's interface, not %d", path, version, KVM_API_VERSION);
	return take_fd(&fd);
}

int kvm_probe(const char *path, struct err *e)
{
	auto_fd int fd = kvm_open(path, e);

	if (fd < 0)
		return fd;
	auto_fd int machine = ioctl(fd, KVM_CREATE_VM, 0);
	return machine < 0 ? err_sys(e, ERR_UNAVAILABLE, errno, "%s makes no machine", path) : 0;
}

const char *kvm_advice(int errnum)
{
	switch (errnum) {
	case EACCES:
		return "only who may write to /dev/kvm can use it: root, and on most systems the group kvm; a server that is started as root can";
	case EPERM:
		return "inside a container, give it the device (docker: --device /dev/kvm)";
	case EBUSY:
		return "another hypervisor holds the processor's virtualization: end it, or unload its module";
	case ENOTTY:
		return "something else lies at /dev/kvm: remove it, and load kvm_intel or kvm_amd";
	default:
		return "turn virtualization on in the firmware (if this machine is a virtual one: nested virtualization, in its hypervisor) and load "
		       "kvm_intel or kvm_amd";
	}
}
