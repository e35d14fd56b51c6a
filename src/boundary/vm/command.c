#include "boundary/vm/command.h"

#include <stdarg.h>
#include <stdio.h>

struct args {
	char **v;
	size_t n;
};

static void add(struct args *a, char *text)
{
	a->v = xreallocarray(a->v, a->n + 2, sizeof *a->v);
	a->v[a->n++] = text;
	a->v[a->n] = NULL;
}

static void add_words(struct args *a, const char *const *words)
{
	for (; *words; words++)
		add(a, xstrdup(*words));
}

static void add_option(struct args *a, const char *option, char *value)
{
	add(a, xstrdup(option));
	add(a, value);
}

/* Under emulation the kernel's own measurement of the clock fails at random, and then it spins for ever; its self-tests of ciphers take
 * longer than the rest of the boot. mitigations= stays as it is under KVM: there it protects the guest's users from each other. */
static char *kernel_line(const struct vmm_plan *p)
{
	static const char always[] = "console=none quiet panic=-1 reboot=t random.trust_cpu=off";

	if (p->kvm)
		return xstrdup(always);
	return xasprintf("%s tsc_early_khz=%llu tsc=reliable cryptomgr.notests=1 audit=0 mitigations=off", always, (unsigned long long)p->tsc_khz);
}

static void add_machine(struct args *a, const struct vmm_plan *p)
{
	static const char *const words[] = {
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-sandbox",
		"on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny", "-M", "microvm,pit=off,pic=off,isa-serial=off", NULL,
	};

	add_words(a, words);
	add_option(a, "-accel", xstrdup(p->kvm ? "kvm" : "tcg,tb-size=64"));
	/* arch-capabilities: where KVM is nested on AMD the register can be read but not written, and QEMU gives up */
	add_option(a, "-cpu", xstrdup(p->kvm ? "host,-arch-capabilities" : "max"));
	add_option(a, "-smp", xasprintf("%u", p->cpus));
	add_option(a, "-m", xasprintf("%lluM", (unsigned long long)p->memory_mib));
	add_option(a, "-kernel", xasprintf("/proc/self/fd/%d", LAUNCH_FD_KERNEL));
	add_option(a, "-initrd", xasprintf("/proc/self/fd/%d", LAUNCH_FD_INITRD));
	add_option(a, "-append", kernel_line(p));
}

static void add_devices(struct args *a, const struct vmm_plan *p)
{
	add_option(a, "-chardev", xasprintf("socket,id=guest,fd=%d,server=on,wait=off", LAUNCH_FD_GUEST));
	/* event_idx: with it and two emulated processors a wake-up is lost within seconds of traffic, and the line stands still */
	add_option(a, "-device", xstrdup("virtio-serial-device,event_idx=off"));
	add_option(a, "-device", xstrdup("virtserialport,chardev=guest,name=guest"));
	add_option(a, "-chardev", xasprintf("socket,id=qmp,fd=%d,server=on,wait=off", LAUNCH_FD_QMP));
	add_option(a, "-mon", xstrdup("chardev=qmp,mode=control"));
	add_option(a, "-object", xstrdup("rng-random,id=rng,filename=/dev/urandom"));
	add_option(a, "-device", xstrdup("virtio-rng-device,rng=rng"));
	/* the sets are how QEMU takes a file as a descriptor; the guest tells its disks apart by serial */
	add_option(a, "-add-fd", xasprintf("fd=%d,set=1", LAUNCH_FD_IMAGE));
	add_option(a, "-blockdev", xstrdup("driver=file,node-name=image,filename=/dev/fdset/1,read-only=on,locking=off"));
	add_option(a, "-device", xstrdup("virtio-blk-device,drive=image,serial=image"));
	add_option(a, "-add-fd", xasprintf("fd=%d,set=2", LAUNCH_FD_DISK));
	add_option(a, "-blockdev", xasprintf("driver=raw,node-name=disk,file.driver=file,file.filename=/dev/fdset/2,file.locking=off,discard=unmap,"
					     "file.discard=unmap,cache.no-flush=%s",
					     p->keep_disk ? "off" : "on"));
	add_option(a, "-device", xstrdup("virtio-blk-device,drive=disk,serial=disk"));
}

char **vmm_argv(const struct vmm_plan *p)
{
	struct args a = { NULL, 0 };

	add(&a, xstrdup(p->program));
	add_machine(&a, p);
	add_devices(&a, p);
	return a.v;
}

void vmm_argv_free(char **argv)
{
	for (size_t i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}
