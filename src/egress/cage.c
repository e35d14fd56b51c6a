/* Giving everything up: no network, no files, no other process. What is left moves bytes on descriptors that are given to us. */
#include "egress/opener_int.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

/* No socket, connect, bind, open, exec, clone, ptrace, kill; of messages only those that come (recvmsg) and plain ones (sendto). */
static const unsigned allowed[] = {
	SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_recvfrom, SYS_recvmsg, SYS_sendto, SYS_shutdown, SYS_close, SYS_epoll_ctl, SYS_epoll_pwait,
	SYS_clock_gettime, SYS_gettimeofday, SYS_getrandom, SYS_mmap, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_exit, SYS_exit_group,
	SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_restart_syscall, SYS_getpid, SYS_gettid, SYS_futex, SYS_lseek,
#ifdef SYS_epoll_wait
	SYS_epoll_wait,
#endif
#ifdef SYS_time
	SYS_time,
#endif
};

static int install_filter(void)
{
	struct sock_filter f[6 + 2 * ARRAY_LEN(allowed)];
	unsigned short n = 0;

	f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ARRAY_LEN(allowed); i++) { /* an x32 number is none of these */
		f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
		f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	struct sock_fprog prog = { n, f };
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0 ? -errno : 0;
}

int cage(void)
{
	const struct rlimit none = { 0, 0 };

	/* Besides the filter, where the host lets an ordinary process have namespaces of its own: not even the filter's own mistake leads
	 * to the host's network then. */
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		log_debug("msg=\"no namespaces of its own\" errno=%d", errno);
	if (setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
		return -errno;
	return install_filter();
}
