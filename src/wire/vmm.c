#include "wire/vmm.h"

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
		"on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny", NULL,
	};

	add_words(a, words);
	/* rtc: with KVM there is none unless it is asked for, and the kernel then asks after it for two seconds, 60,000 exits long */
	add_option(a, "-M", xstrdup("microvm,pit=off,pic=off,rtc=on,isa-serial=off,memory-backend=mem"));
	add_option(a, "-accel", xstrdup(p->kvm ? "kvm" : "tcg,tb-size=64"));
	/* arch-capabilities: where KVM is nested on AMD the register can be read but not written, and QEMU gives up */
	add_option(a, "-cpu", xstrdup(p->kvm ? "host,-arch-capabilities" : "max"));
	add_option(a, "-smp", xasprintf("%llu", (unsigned long long)(p->cpu_millis + 999) / 1000));
	add_option(a, "-m", xasprintf("%lluM", (unsigned long long)p->memory_mib));
	/* under the same name in every machine: that is how a state that was saved finds its memory again */
	if (p->ram == VMM_RAM_OWN)
		add_option(a, "-object", xasprintf("memory-backend-ram,id=mem,size=%lluM", (unsigned long long)p->memory_mib));
	else
		add_option(a, "-object", xasprintf("memory-backend-file,id=mem,size=%lluM,mem-path=/proc/self/fd/%d,share=%s",
						   (unsigned long long)p->memory_mib, VMM_FD_RAM, p->ram == VMM_RAM_SHARED ? "on" : "off"));
	if (p->begin == VMM_INCOMING) {
		add_option(a, "-incoming", xstrdup("defer"));
		return;
	}
	add_option(a, "-kernel", xasprintf("/proc/self/fd/%d", VMM_FD_KERNEL));
	add_option(a, "-initrd", xasprintf("/proc/self/fd/%d", VMM_FD_INITRD));
	add_option(a, "-append", kernel_line(p));
}

static void add_devices(struct args *a, const struct vmm_plan *p)
{
	add_option(a, "-chardev", xasprintf("socket,id=guest,fd=%d,server=on,wait=off", VMM_FD_GUEST));
	/* event_idx: with it and two emulated processors a wake-up is lost within seconds of traffic, and the line stands still */
	add_option(a, "-device", xstrdup("virtio-serial-device,event_idx=off"));
	add_option(a, "-device", xstrdup("virtserialport,chardev=guest,name=guest"));
	/* the same device in every machine: that is how a state that was saved finds it again */
	add_option(a, "-chardev", p->volumes ? xasprintf("socket,fd=%d,id=volumes", VMM_FD_VOLUMES) : xstrdup("null,id=volumes"));
	add_option(a, "-device", xstrdup("virtserialport,chardev=volumes,name=volumes"));
	add_option(a, "-chardev", xasprintf("socket,id=qmp,fd=%d,server=on,wait=off", VMM_FD_QMP));
	add_option(a, "-mon", xstrdup("chardev=qmp,mode=control"));
	add_option(a, "-object", xstrdup("rng-random,id=rng,filename=/dev/urandom"));
	add_option(a, "-device", xstrdup("virtio-rng-device,rng=rng"));
	/* the sets are how QEMU takes a file as a descriptor; the guest tells its disks apart by serial */
	add_option(a, "-add-fd", xasprintf("fd=%d,set=1", VMM_FD_IMAGE));
	add_option(a, "-blockdev", xstrdup("driver=file,node-name=image,filename=/dev/fdset/1,read-only=on,locking=off"));
	add_option(a, "-device", xstrdup("virtio-blk-device,drive=image,serial=image"));
	add_option(a, "-add-fd", xasprintf("fd=%d,set=2", VMM_FD_DISK));
	add_option(a, "-blockdev", xasprintf("driver=raw,node-name=disk,file.driver=file,file.filename=/dev/fdset/2,file.locking=off,discard=unmap,"
					     "file.discard=unmap,cache.no-flush=%s",
					     p->keep_disk ? "off" : "on"));
	add_option(a, "-device", xstrdup("virtio-blk-device,drive=disk,serial=disk"));
	if (!p->tap)
		return;
	add_option(a, "-netdev", xasprintf("tap,id=net,fd=%d,vhost=off", VMM_FD_TAP));
	/* event_idx: as above. The address is the guest's to set: one given here would be what is in the state that is restored */
	add_option(a, "-device", xasprintf("virtio-net-device,netdev=net%s", p->kvm ? "" : ",event_idx=off"));
}

const char *vmm_plan_wrong(const struct vmm_plan *p)
{
	if (p->begin != VMM_BOOT && p->begin != VMM_INCOMING)
		return "begin: boot or incoming";
	if (p->ram != VMM_RAM_OWN && p->ram != VMM_RAM_SHARED && p->ram != VMM_RAM_COPIED)
		return "ram: own, shared or copied";
	if (p->kvm > 1 || p->keep_disk > 1 || p->tap > 1 || p->volumes > 1)
		return "kvm, keep_disk, tap, volumes: 0 or 1";
	if (p->tsc_khz > 100000000)
		return "tsc_khz: at most 100 GHz";
	if (p->cpu_millis < 10 || p->cpu_millis > VMM_CPUS_MAX * 1000)
		return "cpus: 0.01 to 64";
	if (p->memory_mib < VMM_MEMORY_MIB_MIN || p->memory_mib > 1 << 20)
		return "memory: 128 MiB to 1 TiB";
	return NULL;
}

uint32_t vmm_plan_fds(const struct vmm_plan *p)
{
	uint32_t fds = VMM_FD_BIT(VMM_FD_IMAGE) | VMM_FD_BIT(VMM_FD_DISK) | VMM_FD_BIT(VMM_FD_GUEST) | VMM_FD_BIT(VMM_FD_QMP);

	if (p->ram != VMM_RAM_OWN)
		fds |= VMM_FD_BIT(VMM_FD_RAM);
	if (p->begin == VMM_BOOT)
		fds |= VMM_FD_BIT(VMM_FD_INITRD) | VMM_FD_BIT(VMM_FD_KERNEL);
	if (p->tap)
		fds |= VMM_FD_BIT(VMM_FD_TAP);
	if (p->volumes)
		fds |= VMM_FD_BIT(VMM_FD_VOLUMES);
	return fds;
}

char **vmm_argv(const char *program, const struct vmm_plan *p)
{
	struct args a = { NULL, 0 };

	add(&a, xstrdup(program));
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
