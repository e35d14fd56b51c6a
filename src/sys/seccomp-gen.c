/* Writes the system-call filter of a sandbox, or with the argument "vmm" that of a QEMU, with "volumes" that of a server of volumes, as an array of instructions (run at build
 * time; rules in seccomp-rules.h).
 *
 * Shape: architecture check, then a binary tree over ranges of numbers with the same verdict. Built this way it has about half the
 * instructions of a library's list, which is what loading it costs; numbers that are always allowed never run it at all (the
 * kernel keeps a bitmap of them). */
#include "sys/seccomp-rules.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/if_tun.h>
#include <linux/ioctl.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum verdict { REFUSE, ALLOW, NO_SUCH, KILL, CLONE, THREAD, SOCKET, IOCTL, VMM_IOCTL, PERSONALITY, MKNOD, MKNODAT };

#ifdef __x86_64__
#define ARCH	AUDIT_ARCH_X86_64
#define X32_BIT 0x40000000u
#elif defined __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no system-call filter for this architecture yet"
#endif

#define RET_ERRNO(e) (SECCOMP_RET_ERRNO | (unsigned)(e))

struct range {
	unsigned first;
	enum verdict verdict;
};

static unsigned char verdicts[SYSCALL_KNOWN_MAX + 1];
static struct range ranges[SYSCALL_KNOWN_MAX + 4];
static size_t range_count;
static struct sock_filter program[BPF_MAXINSNS];
static size_t length;

static size_t emit(unsigned code, unsigned jt, unsigned jf, unsigned k)
{
	if (length >= BPF_MAXINSNS || jt > 255 || jf > 255)
		exit(2);
	program[length] = (struct sock_filter){ (uint16_t)code, (uint8_t)jt, (uint8_t)jf, k };
	return length++;
}

static void ret(unsigned value)
{
	emit(BPF_RET | BPF_K, 0, 0, value);
}

static void load_arg(unsigned n)
{
	emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, (unsigned)(offsetof(struct seccomp_data, args) + 8 * n)); /* low half, little endian */
}

/* "equal to k: value" */
static void ret_if(unsigned k, unsigned value)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, k);
	ret(value);
}

static void socket_rule(void)
{
	load_arg(0);
	ret_if(1, SECCOMP_RET_ALLOW);
	ret_if(2, SECCOMP_RET_ALLOW);
	ret_if(10, SECCOMP_RET_ALLOW);
	emit(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 16);
	ret(RET_ERRNO(EAFNOSUPPORT));
	load_arg(2);
	ret_if(0, SECCOMP_RET_ALLOW);
	ret(RET_ERRNO(EPROTONOSUPPORT));
}

static void ioctl_rule(bool vmm)
{
#define X(request) (unsigned)request,
	static const unsigned more[] = { SECCOMP_VMM_IOCTL_REFUSED(X) };
#undef X

	load_arg(1);
	ret_if(SECCOMP_TIOCSTI, RET_ERRNO(EPERM));
	ret_if(SECCOMP_TIOCLINUX, RET_ERRNO(EPERM));
	for (size_t i = 0; vmm && i < sizeof more / sizeof *more; i++)
		ret_if(more[i], RET_ERRNO(EPERM));
	ret(SECCOMP_RET_ALLOW);
}

static void mknod_rule(unsigned arg)
{
	load_arg(arg);
	emit(BPF_ALU | BPF_AND | BPF_K, 0, 0, 0170000);
	ret_if(0, SECCOMP_RET_ALLOW);
	ret_if(0100000, SECCOMP_RET_ALLOW);
	ret_if(0010000, SECCOMP_RET_ALLOW);
	ret(RET_ERRNO(EPERM));
}

static void leaf(enum verdict v)
{
	switch (v) {
	case ALLOW:
		ret(SECCOMP_RET_ALLOW);
		break;
	case REFUSE:
		ret(RET_ERRNO(EPERM));
		break;
	case NO_SUCH:
		ret(RET_ERRNO(ENOSYS));
		break;
	case KILL:
		ret(SECCOMP_RET_KILL_PROCESS);
		break;
	case CLONE:
		load_arg(0);
		emit(BPF_JMP | BPF_JSET | BPF_K, 0, 1, SECCOMP_CLONE_REFUSED);
		ret(RET_ERRNO(EPERM));
		ret(SECCOMP_RET_ALLOW);
		break;
	case THREAD:
		load_arg(0);
		emit(BPF_JMP | BPF_JSET | BPF_K, 0, 1, SECCOMP_CLONE_REFUSED);
		ret(RET_ERRNO(EPERM));
		emit(BPF_JMP | BPF_JSET | BPF_K, 1, 0, SECCOMP_CLONE_THREAD);
		ret(RET_ERRNO(EPERM));
		ret(SECCOMP_RET_ALLOW);
		break;
	case SOCKET:
		socket_rule();
		break;
	case IOCTL:
		ioctl_rule(false);
		break;
	case VMM_IOCTL:
		ioctl_rule(true);
		break;
	case PERSONALITY:
		load_arg(0);
		ret_if(0, SECCOMP_RET_ALLOW);
		ret_if(0xffffffffu, SECCOMP_RET_ALLOW);
		ret_if(SECCOMP_NO_RANDOMIZE, SECCOMP_RET_ALLOW);
		ret(RET_ERRNO(EPERM));
		break;
	case MKNOD:
		mknod_rule(1);
		break;
	case MKNODAT:
		mknod_rule(2);
		break;
	}
}

static void tree(size_t lo, size_t hi)
{
	if (hi - lo == 1) {
		leaf(ranges[lo].verdict);
		return;
	}
	size_t mid = lo + (hi - lo) / 2;
	size_t at = emit(BPF_JMP | BPF_JGE | BPF_K, 0, 0, ranges[mid].first);
	tree(lo, mid);
	if (length - at - 1 > 255)
		exit(2);
	program[at].jt = (uint8_t)(length - at - 1);
	tree(mid, hi);
}

static void add_range(unsigned first, enum verdict v)
{
	if (range_count && ranges[range_count - 1].verdict == v)
		return;
	ranges[range_count++] = (struct range){ first, v };
}

static void judge_for_sandbox(void)
{
#define X(name) verdicts[__NR_##name] = ALLOW;
	SECCOMP_ALLOWED(X)
#undef X
	verdicts[__NR_clone] = CLONE;
	verdicts[__NR_clone3] = NO_SUCH;
	verdicts[__NR_socket] = SOCKET;
	verdicts[__NR_ioctl] = IOCTL;
	verdicts[__NR_personality] = PERSONALITY;
	verdicts[__NR_mknodat] = MKNODAT;
#ifdef __NR_mknod
	verdicts[__NR_mknod] = MKNOD;
#endif
}

static void judge_for_vmm(void)
{
#define X(name) verdicts[__NR_##name] = REFUSE;
	SECCOMP_VMM_REFUSED(X)
#undef X
	verdicts[__NR_clone] = THREAD;
	verdicts[__NR_ioctl] = VMM_IOCTL;
}

static void judge_for_volumes(void)
{
#define X(name) verdicts[__NR_##name] = ALLOW;
	SECCOMP_VOLUMES_ALLOWED(X)
#undef X
	verdicts[__NR_mknodat] = MKNODAT;
}

int main(int argc, char **argv)
{
	const char *whose = argc > 1 ? argv[1] : "";

	if (strcmp(whose, "volumes") == 0)
		judge_for_volumes();
	else
		judge_for_sandbox();
	if (strcmp(whose, "vmm") == 0)
		judge_for_vmm();
	for (unsigned nr = 0; nr <= SYSCALL_KNOWN_MAX; nr++)
		add_range(nr, (enum verdict)verdicts[nr]);
	add_range(SYSCALL_KNOWN_MAX + 1, NO_SUCH);
#ifdef X32_BIT
	add_range(X32_BIT, KILL); /* x32 shares the architecture word of x86-64, so its bit must be looked at */
#endif

	emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, arch));
	emit(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
	ret(SECCOMP_RET_KILL_PROCESS);
	emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
	tree(0, range_count);

	printf("/* %zu instructions, %zu ranges; made by seccomp-gen.c */\n", length, range_count);
	for (size_t i = 0; i < length; i++)
		printf("{ 0x%04x, %u, %u, 0x%08x },\n", (unsigned)program[i].code, (unsigned)program[i].jt, (unsigned)program[i].jf, program[i].k);
	return 0;
}
