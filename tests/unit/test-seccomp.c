/* The generated filter against libseccomp's own of the same rules: both are run here, by a small interpreter, for every number
 * and for arguments that matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sys/seccomp-rules.h"
#include "sys/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/if_tun.h>
#include <linux/ioctl.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOKED_AT   (SYSCALL_KNOWN_MAX + 60)
#define NATIVE_ARCH (seccomp_arch_native() == SCMP_ARCH_X86_64 ? AUDIT_ARCH_X86_64 : AUDIT_ARCH_AARCH64)

static const struct sock_filter *theirs;
static size_t theirs_len;

static uint32_t interpret(const struct sock_filter *p, size_t n, const struct seccomp_data *d)
{
	uint32_t a = 0;

	for (size_t pc = 0; pc < n; pc++) {
		const struct sock_filter *i = &p[pc];
		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			assert_true(i->k + 4 <= sizeof *d);
			memcpy(&a, (const char *)d + i->k, 4);
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= i->k;
			break;
		case BPF_JMP | BPF_JA:
			pc += i->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += a == i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			pc += a >= i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			pc += a > i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			pc += a & i->k ? i->jt : i->jf;
			break;
		case BPF_RET | BPF_K:
			return i->k;
		default:
			fail_msg("instruction %04x", i->code);
		}
	}
	fail_msg("the program has no end");
	return 0;
}

static uint32_t ours_says(uint32_t arch, int nr, const uint64_t args[6])
{
	struct seccomp_data d = { .nr = nr, .arch = arch };

	memcpy(d.args, args, sizeof d.args);
	return interpret(seccomp_program, seccomp_program_len, &d);
}

static uint32_t ours(int nr, uint64_t a0, uint64_t a1, uint64_t a2)
{
	return ours_says(NATIVE_ARCH, nr, (const uint64_t[6]){ a0, a1, a2, 0, 0, 0 });
}

static void allow(scmp_filter_ctx c, const char *name, int nr)
{
	int known = seccomp_syscall_resolve_name(name);

	/* the number that libseccomp's table has, where it is new enough to have one */
	if (known >= 0)
		assert_int_equal(known, nr);
	assert_int_equal(seccomp_rule_add_exact(c, SCMP_ACT_ALLOW, nr, 0), 0);
}

static void rule(scmp_filter_ctx c, uint32_t action, int nr, unsigned n, const struct scmp_arg_cmp *cmp)
{
	assert_int_equal(seccomp_rule_add_exact_array(c, action, nr, n, cmp), 0);
}

#define LOW 0xffffffffu
static void rules_on_arguments(scmp_filter_ctx c)
{
	static const unsigned families[] = { 1, 2, 10 }, personas[] = { 0, 0xffffffffu, SECCOMP_NO_RANDOMIZE }, types[] = { 0, 0100000, 0010000 };

	rule(c, SCMP_ACT_ALLOW, __NR_clone, 1, (struct scmp_arg_cmp[]){ SCMP_A0(SCMP_CMP_MASKED_EQ, SECCOMP_CLONE_REFUSED, 0) });
	for (size_t i = 0; i < 3; i++) {
		rule(c, SCMP_ACT_ALLOW, __NR_socket, 1, (struct scmp_arg_cmp[]){ SCMP_A0(SCMP_CMP_MASKED_EQ, LOW, families[i]) });
		rule(c, SCMP_ACT_ALLOW, __NR_personality, 1, (struct scmp_arg_cmp[]){ SCMP_A0(SCMP_CMP_MASKED_EQ, LOW, personas[i]) });
		rule(c, SCMP_ACT_ALLOW, __NR_mknodat, 1, (struct scmp_arg_cmp[]){ SCMP_A2(SCMP_CMP_MASKED_EQ, 0170000, types[i]) });
#ifdef __NR_mknod
		rule(c, SCMP_ACT_ALLOW, __NR_mknod, 1, (struct scmp_arg_cmp[]){ SCMP_A1(SCMP_CMP_MASKED_EQ, 0170000, types[i]) });
#endif
	}
	rule(c, SCMP_ACT_ALLOW, __NR_socket, 2, (struct scmp_arg_cmp[]){ SCMP_A0(SCMP_CMP_MASKED_EQ, LOW, 16), SCMP_A2(SCMP_CMP_MASKED_EQ, LOW, 0) });
	rule(c, SCMP_ACT_ERRNO(ENOSYS), __NR_clone3, 0, NULL);
	for (int nr = SYSCALL_KNOWN_MAX + 1; nr <= LOOKED_AT; nr++)
		rule(c, SCMP_ACT_ERRNO(ENOSYS), nr, 0, NULL);
}

static int build_theirs(void **state)
{
	(void)state;
	scmp_filter_ctx c = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int fd = memfd_create("filter", MFD_CLOEXEC);

#define X(name) allow(c, #name, __NR_##name);
	SECCOMP_ALLOWED(X)
#undef X
	rules_on_arguments(c);
	if (seccomp_export_bpf(c, fd) < 0)
		return -1;
	off_t size = lseek(fd, 0, SEEK_END);
	theirs = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
	theirs_len = (size_t)size / sizeof *theirs;
	seccomp_release(c);
	close(fd);
	return theirs == MAP_FAILED ? -1 : 0;
}

static bool special(int nr)
{
	/* libseccomp cannot say "two verdicts besides the default" as ours does; these are judged below */
	return nr == __NR_ioctl || nr == __NR_socket;
}

static void every_number_gets_the_same_verdict(void **state)
{
	static const uint64_t values[] = { 0,	       1,	    2,	     10,      16,      0xffffffffu, 0x1ffffffffu, 0x10000000, 0x7e020000,
					   0x00020000, 0x100000000, 0040000, 0100644, 0010600, 0020666,	    0060666,	  0140000,    0x40000 };

	(void)state;
	for (int nr = 0; nr <= LOOKED_AT; nr++) {
		if (special(nr))
			continue;
		for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
			struct seccomp_data d = { .nr = nr, .arch = NATIVE_ARCH };
			for (size_t k = 0; k < 6; k++)
				d.args[k] = values[i];
			uint32_t want = interpret(theirs, theirs_len, &d);
			uint32_t have = interpret(seccomp_program, seccomp_program_len, &d);
			if (want != have)
				fail_msg("number %d with %llx: libseccomp %08x, ours %08x", nr, (unsigned long long)values[i], want, have);
		}
	}
}

/* A server of volumes calls what sandboxes may call, too, and no sockets, programs or processes. */
static void a_server_of_volumes_may_do_less(void **state)
{
	static const int refused[] = { __NR_socket, __NR_connect, __NR_bind, __NR_accept4, __NR_execve, __NR_clone, __NR_kill, __NR_ptrace, __NR_ioctl,
				       __NR_openat2, __NR_setresuid, __NR_capset, __NR_chroot, __NR_fchdir, __NR_prctl, __NR_sendmsg, __NR_recvmsg };

	(void)state;
	for (int nr = 0; nr <= LOOKED_AT; nr++) {
		const struct seccomp_data d = { .nr = nr, .arch = NATIVE_ARCH };
		if (interpret(seccomp_volumes_program, seccomp_volumes_program_len, &d) == SECCOMP_RET_ALLOW)
			assert_int_equal(ours(nr, 0, 0, 0), SECCOMP_RET_ALLOW);
		for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
			if (refused[i] == nr)
				assert_int_equal(interpret(seccomp_volumes_program, seccomp_volumes_program_len, &d), SECCOMP_RET_ERRNO | EPERM);
	}
	const struct seccomp_data device = { .nr = __NR_mknodat, .arch = NATIVE_ARCH, .args = { 0, 0, 0060666 } };
	assert_int_equal(interpret(seccomp_volumes_program, seccomp_volumes_program_len, &device), SECCOMP_RET_ERRNO | EPERM);
}

static uint32_t vmm(int nr, uint64_t a0)
{
	const struct seccomp_data d = { .nr = nr, .arch = NATIVE_ARCH, .args = { a0 } };
	return interpret(seccomp_vmm_program, seccomp_vmm_program_len, &d);
}

/* A QEMU may do nothing that a sandbox may not, and not what is listed. */
static void a_vmm_may_do_less(void **state)
{
	static const int needed[] = { __NR_execve, __NR_ppoll,   __NR_accept4, __NR_mmap,   __NR_futex,     __NR_ioctl,   __NR_pread64,
				      __NR_pwritev, __NR_openat, __NR_recvmsg, __NR_tgkill, __NR_fallocate, __NR_seccomp, __NR_eventfd2 };
	static const unsigned refused[] = {
#define X(name) __NR_##name,
		SECCOMP_VMM_REFUSED(X)
#undef X
	};

	(void)state;
	for (int nr = 0; nr <= LOOKED_AT; nr++)
		for (uint64_t arg = 0; arg < 32; arg++)
			if (vmm(nr, 1ULL << arg) == SECCOMP_RET_ALLOW)
				assert_int_equal(ours(nr, 1ULL << arg, 0, 0), SECCOMP_RET_ALLOW);
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		assert_int_equal(vmm((int)refused[i], 1), SECCOMP_RET_ERRNO | EPERM);
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
		assert_int_equal(vmm(needed[i], 0), SECCOMP_RET_ALLOW);
	/* a thread as libc makes one; a process; a thread in a namespace of its own */
	assert_int_equal(vmm(__NR_clone, 0x3d0f00), SECCOMP_RET_ALLOW);
	assert_int_equal(vmm(__NR_clone, 0x1200011), SECCOMP_RET_ERRNO | EPERM);
	assert_int_equal(vmm(__NR_clone, 0x10000 | 0x10000000), SECCOMP_RET_ERRNO | EPERM);
	assert_int_equal(vmm(__NR_clone3, 0), SECCOMP_RET_ERRNO | ENOSYS);
#ifdef __x86_64__
	assert_int_equal(vmm(__NR_getpid | 0x40000000, 0), SECCOMP_RET_KILL_PROCESS);
#endif
}

/* With the high half of the request set, too, which the kernel does not look at. */
static void a_vmm_does_with_its_tap_what_it_has_to(void **state)
{
	static const uint64_t needed[] = { TUNGETFEATURES, TUNGETIFF, TUNSETOFFLOAD, TUNSETSNDBUF, TUNSETVNETHDRSZ, TUNSETVNETLE },
			      refused[] = {
#define X(request) request,
				      SECCOMP_VMM_IOCTL_REFUSED(X)
#undef X
			      };
	struct seccomp_data d = { .nr = __NR_ioctl, .arch = NATIVE_ARCH };

	(void)state;
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		for (uint64_t high = 0; high <= 1ULL << 63; high += 1ULL << 63) {
			d.args[1] = refused[i] | high;
			assert_int_equal(interpret(seccomp_vmm_program, seccomp_vmm_program_len, &d), SECCOMP_RET_ERRNO | EPERM);
			assert_int_equal(interpret(seccomp_program, seccomp_program_len, &d), SECCOMP_RET_ALLOW);
			if (high)
				break;
		}
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
		d.args[1] = needed[i];
		assert_int_equal(interpret(seccomp_vmm_program, seccomp_vmm_program_len, &d), SECCOMP_RET_ALLOW);
	}
}

static void foreign_entries_die(void **state)
{
	const uint64_t none[6] = { 0 };

	(void)state;
	for (int nr = 0; nr <= LOOKED_AT; nr++) {
		assert_int_equal(ours_says(AUDIT_ARCH_I386, nr, none), SECCOMP_RET_KILL_PROCESS);
		assert_int_equal(ours_says(0, nr, none), SECCOMP_RET_KILL_PROCESS);
#ifdef __x86_64__
		assert_int_equal(ours(nr | 0x40000000, 0, 0, 0), SECCOMP_RET_KILL_PROCESS);
#endif
	}
#ifdef __x86_64__
	assert_int_equal(ours(-1, 0, 0, 0), SECCOMP_RET_KILL_PROCESS);
#endif
}

static void what_must_never_be_allowed(void **state)
{
	static const char *const names[] = {
		"mount",
		"umount2",
		"pivot_root",
		"unshare",
		"setns",
		"bpf",
		"perf_event_open",
		"userfaultfd",
		"keyctl",
		"add_key",
		"request_key",
		"io_uring_setup",
		"io_uring_enter",
		"io_uring_register",
		"open_by_handle_at",
		"name_to_handle_at",
		"kexec_load",
		"kexec_file_load",
		"init_module",
		"finit_module",
		"delete_module",
		"reboot",
		"swapon",
		"swapoff",
		"acct",
		"syslog",
		"move_mount",
		"open_tree",
		"fsopen",
		"fsmount",
		"fsconfig",
		"fspick",
		"mount_setattr",
		"quotactl",
		"sethostname",
		"setdomainname",
		"settimeofday",
		"clock_settime",
		"clock_adjtime",
		"adjtimex",
		"iopl",
		"ioperm",
		"modify_ldt",
		"fanotify_init",
		"vhangup",
		"kcmp",
		"lookup_dcookie",
		"memfd_secret",
	};

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		int nr = seccomp_syscall_resolve_name(names[i]);
		if (nr >= 0)
			assert_int_equal(ours(nr, 0, 0, 0), SECCOMP_RET_ERRNO | EPERM);
	}
	assert_int_equal(ours(__NR_clone3, 0, 0, 0), SECCOMP_RET_ERRNO | ENOSYS);
}

static void terminals_and_sockets(void **state)
{
	(void)state;
	for (uint64_t high = 0; high <= 1ULL << 63; high = high ? high << 1 : 1ULL << 32) {
		assert_int_equal(ours(__NR_ioctl, 0, high | SECCOMP_TIOCSTI, 0), SECCOMP_RET_ERRNO | EPERM);
		assert_int_equal(ours(__NR_ioctl, 0, high | SECCOMP_TIOCLINUX, 0), SECCOMP_RET_ERRNO | EPERM);
		assert_int_equal(ours(__NR_clone, high | 0x10000000, 0, 0), SECCOMP_RET_ERRNO | EPERM);
		assert_int_equal(ours(__NR_socket, high | 17, 3, 0), SECCOMP_RET_ERRNO | EAFNOSUPPORT);
		if (high >> 63)
			break;
	}
	assert_int_equal(ours(__NR_ioctl, 0, 0x5401, 0), SECCOMP_RET_ALLOW); /* TCGETS */
	for (unsigned family = 0; family < 50; family++) {
		uint32_t want = family == 1 || family == 2 || family == 10 ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EAFNOSUPPORT;
		if (family != 16)
			assert_int_equal(ours(__NR_socket, family, 1, 0), want);
	}
	assert_int_equal(ours(__NR_socket, 16, 3, 0), SECCOMP_RET_ALLOW); /* NETLINK_ROUTE */
	for (unsigned protocol = 1; protocol < 32; protocol++)
		assert_int_equal(ours(__NR_socket, 16, 3, protocol), SECCOMP_RET_ERRNO | EPROTONOSUPPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_number_gets_the_same_verdict),
		cmocka_unit_test(a_vmm_may_do_less), cmocka_unit_test(a_server_of_volumes_may_do_less),
		cmocka_unit_test(a_vmm_does_with_its_tap_what_it_has_to),
		cmocka_unit_test(foreign_entries_die),
		cmocka_unit_test(what_must_never_be_allowed),
		cmocka_unit_test(terminals_and_sockets),
	};
	return cmocka_run_group_tests(tests, build_theirs, NULL);
}
