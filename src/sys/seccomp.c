#include "sys/seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

const struct sock_filter seccomp_program[] = {
#include "seccomp-program.inc"
};
const unsigned short seccomp_program_len = sizeof seccomp_program / sizeof seccomp_program[0];

const struct sock_filter seccomp_vmm_program[] = {
#include "seccomp-vmm-program.inc"
};
const unsigned short seccomp_vmm_program_len = sizeof seccomp_vmm_program / sizeof seccomp_vmm_program[0];

const struct sock_filter seccomp_volumes_program[] = {
#include "seccomp-volumes-program.inc"
};
const unsigned short seccomp_volumes_program_len = sizeof seccomp_volumes_program / sizeof seccomp_volumes_program[0];

static int install(const struct sock_filter *filter, unsigned short len)
{
	/* The kernel only reads the program, but the struct has no const. */
	union {
		const struct sock_filter *in;
		struct sock_filter *out;
	} program = { filter };
	struct sock_fprog prog = { len, program.out };

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		return -errno;
	return 0;
}

int seccomp_install(void)
{
	return install(seccomp_program, seccomp_program_len);
}

int seccomp_install_vmm(void)
{
	return install(seccomp_vmm_program, seccomp_vmm_program_len);
}

int seccomp_install_volumes(void)
{
	return install(seccomp_volumes_program, seccomp_volumes_program_len);
}
