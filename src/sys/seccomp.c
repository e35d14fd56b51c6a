#include "sys/seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

const struct sock_filter seccomp_program[] = {
#include "seccomp-program.inc"
};
const unsigned short seccomp_program_len = sizeof seccomp_program / sizeof seccomp_program[0];

int seccomp_install(void)
{
	/* The kernel only reads the program, but the struct has no const. */
	union {
		const struct sock_filter *in;
		struct sock_filter *out;
	} program = { seccomp_program };
	struct sock_fprog prog = { seccomp_program_len, program.out };

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		return -errno;
	return 0;
}
